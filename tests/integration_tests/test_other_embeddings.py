"""A store whose vectors were made by other embeddings than those that it is opened with."""

from typing import Any

from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from tests.integration_tests.conftest import Call

SCOPE: Any = {"user_id": "ada", "conversation_id": "c1"}
SAID = (
    "I am learning home brewing. The home brewing kettle is new.",
    "Sarah likes my home brewing.",
    "Today the home brewing went well.",
    "I am learning bike touring. The bike touring tent is new.",
    "Sarah likes my bike touring.",
    "Today the bike touring went well.",
)


class Named(DeterministicFakeEmbedding):
    model: str


def opened(store: InMemoryStore, embeddings: Embeddings) -> ContextPipeline:
    return ContextPipeline({"learn_every": 1}, store=store, embeddings=embeddings)


def test_vectors_of_other_embeddings_are_made_anew_and_words_serve_until_then(call: Call) -> None:
    store = InMemoryStore()
    with opened(store, Named(model="one", size=16)) as before:
        for where, said in {"c1": SAID[::3], "c2": SAID[1::3], "c3": SAID[2::3]}.items():
            before.add_messages(
                [HumanMessage(text) for text in said], user_id="ada", conversation_id=where
            )
        assert before.flush(30)
        topics = before.knowledge.list_topics(user_id="ada")
        assert len(topics) > 1
        assert {len(topic.embedding) for topic in topics} == {16}
    with opened(store, Named(model="two", size=16)) as after:
        context = call(after, "assemble", "How is my home brewing?", **SCOPE)
        assert [item.id for item in context.report.layer("L2").items if item.status == "included"]
        [failure] = [one for one in context.report.failures if one.startswith("topics")]
        assert all(f"{model} (16 dimensions)" in failure for model in ("one", "two"))
        for _ in range(4):
            after.add_messages([HumanMessage("Good.")], **SCOPE)
        assert call(after, "flush", 30)
        now = after.knowledge.list_topics(user_id="ada")
        assert {(topic.embedding_model, len(topic.embedding)) for topic in now} == {("two", 16)}
        context = call(after, "assemble", "How is my home brewing?", **SCOPE)
        assert not context.report.failures
