"""What this process keeps in memory of users.

Nothing that an erased one has said, and of many no more than of some.
"""

import gc
import re
from types import CellType, FrameType
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore
from starlette.testclient import TestClient

from langchain_ctxbudget import ContextPipeline, EstimatingCounter, KnowledgeBase
from langchain_ctxbudget.dashboard import create_app

pytestmark = pytest.mark.slow

ADA: Any = {"user_id": "ada"}
CONVERSATIONS = ("c1", "c2")
USERS = 1_200
MOST_HELD = 1_050


def secret() -> str:
    return "".join(reversed("xuuqiznaz"))


def tell(pipeline: ContextPipeline, app: Any) -> None:
    """Says and asks much, all of it about one thing, and has it counted, searched, learned, shown and named."""
    word = secret()
    for name in CONVERSATIONS:
        scope = {**ADA, "conversation_id": name}
        pipeline.save_settings({"preferences": [f"Prices in {word}."]}, **ADA)
        for turn in range(12):
            said = f"My sister {word} works at {word}corp, and I like {word}fruit {turn}. The {word} project is due."
            pipeline.add_messages(
                [HumanMessage(said), AIMessage(f"{word} {turn} is noted in {word}file.py.")],
                **scope,
            )
        assert pipeline.flush(30)
        for tokens in (8_000, 1_200):
            pipeline.assemble(
                f"What did I say about {word}fruit and {word}.txt?",
                settings={"max_context_tokens": tokens},
                **scope,
            )
        pipeline.end_session(**scope)
        assert pipeline.flush(30)
        client = TestClient(app, base_url="http://localhost", client=("127.0.0.1", 5))
        assert word in client.get("/api/context/messages", params={"session_id": name}).text


def found(mark: str) -> list[str]:
    """What holds a text with a mark, of everything that Python's collector knows, as texts."""
    gc.collect()
    lowered = mark.lower()
    encoded = lowered.encode()
    return [
        f"{type(holder).__name__}: {text[:80]!r}"
        for holder in gc.get_objects()
        if not isinstance(holder, FrameType | CellType)
        for text in gc.get_referents(holder)
        if (isinstance(text, str) and lowered in text.lower())
        or (isinstance(text, bytes) and encoded in text.lower())
    ]


def erase(pipeline: ContextPipeline) -> None:
    word = secret()
    manual = Document(f"The {word} manual. {word} is blue.", metadata={"source": f"{word}.txt"})
    KnowledgeBase(pipeline.store, **ADA).add(manual)
    pipeline.assemble(f"What is in {word}.txt?", conversation_id="c1", **ADA)
    pipeline.erase_user(**ADA)


def clear(pipeline: ContextPipeline) -> None:
    pipeline.save_settings({}, **ADA)
    for name in CONVERSATIONS:
        pipeline.clear(**ADA, conversation_id=name)


@pytest.mark.parametrize(("how", "counter"), [(erase, None), (clear, EstimatingCounter())])
def test_no_object_of_the_process_has_a_word_of_what_was_erased(how: Any, counter: Any) -> None:
    with ContextPipeline(store=InMemoryStore(), token_counter=counter) as pipeline:
        app = create_app(pipeline, user_id="ada")
        tell(pipeline, app)
        assert len(found(secret())) > len(CONVERSATIONS)
        how(pipeline)
        assert not found(secret())


def test_no_object_of_the_process_has_a_word_that_an_agents_state_made_it_forget() -> None:
    with ContextPipeline(store=InMemoryStore()) as pipeline:
        scope = {**ADA, "conversation_id": "c1"}
        kept = [HumanMessage("Hello.", id="a"), AIMessage("Hello!", id="b")]
        for state in ([*kept, HumanMessage(f"I am {secret()}.", id="c")] for _ in range(2)):
            pipeline.sync(state, **scope)
        del state
        pipeline.sync(kept, on_removal="forget", **scope)
        assert not found(secret())


def test_of_many_users_no_more_is_kept_in_memory_than_of_some() -> None:
    with ContextPipeline(store=InMemoryStore()) as pipeline:
        for number in range(USERS):
            scope: Any = {"user_id": f"visitor-{number}", "conversation_id": "c1"}
            pipeline.add_messages([HumanMessage("I live in Lisbon.")], **scope)
            pipeline.assemble("Where do I live?", **scope)
        assert pipeline.flush(300)
        pipeline.store._data.clear()  # type: ignore[attr-defined]
        held = {
            visitor for text in found("visitor-") for visitor in re.findall(r"visitor-[0-9]+", text)
        }
        assert len(held) <= MOST_HELD
