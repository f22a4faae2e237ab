"""What this process keeps in memory of users.

Nothing that an erased one has said, and of many no more than of some.
"""

import gc
import re
from collections.abc import Callable, Iterator
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
MOST_USERS_HELD = 1_050


def secret() -> str:
    """Made anew each time: a constant of this module would be found."""
    return "".join(reversed("xuuqiznaz"))


def talk(pipeline: ContextPipeline, app: Any) -> None:
    """Uses the secret everywhere: it is counted, searched, learned, shown and named."""
    word = secret()
    for name in CONVERSATIONS:
        scope = {**ADA, "conversation_id": name}
        pipeline.save_settings({"preferences": [f"Prices in {word}."]}, **ADA)
        for turn in range(12):
            question = (
                f"My sister {word} works at {word}corp, and I like {word}fruit {turn}. "
                f"The {word} project is due."
            )
            answer = f"{word} {turn} is noted in {word}file.py."
            pipeline.add_messages([HumanMessage(question), AIMessage(answer)], **scope)
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


def has_mark(content: object, mark: str) -> bool:
    if isinstance(content, str):
        return mark in content.lower()
    return isinstance(content, bytes) and mark.encode() in content.lower()


def holders_of(mark: str) -> Iterator[str]:
    """What holds a text with a mark, of everything that Python's collector knows, as texts."""
    gc.collect()
    for holder in gc.get_objects():
        if isinstance(holder, FrameType | CellType):
            continue
        for content in gc.get_referents(holder):
            if has_mark(content, mark):
                yield f"{type(holder).__name__}: {content[:80]!r}"


def found(mark: str) -> list[str]:
    return list(holders_of(mark))


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


@pytest.mark.parametrize(("remove", "counter"), [(erase, None), (clear, EstimatingCounter())])
def test_no_object_of_the_process_has_a_word_of_what_was_erased(
    remove: Callable[[ContextPipeline], None], counter: Any
) -> None:
    with ContextPipeline(store=InMemoryStore(), token_counter=counter) as pipeline:
        app = create_app(pipeline, user_id="ada")
        talk(pipeline, app)
        assert len(found(secret())) > len(CONVERSATIONS)

        remove(pipeline)

        assert not found(secret())


def sync_with_secret(pipeline: ContextPipeline) -> None:
    greeting = HumanMessage("Hello.", id="a")
    reply = AIMessage("Hello!", id="b")
    name = HumanMessage(f"I am {secret()}.", id="c")
    pipeline.sync([greeting, reply, name], **ADA, conversation_id="c1")


def test_no_object_has_a_word_that_an_agents_state_made_it_forget() -> None:
    with ContextPipeline(store=InMemoryStore()) as pipeline:
        sync_with_secret(pipeline)
        sync_with_secret(pipeline)

        state = [HumanMessage("Hello.", id="a"), AIMessage("Hello!", id="b")]
        pipeline.sync(state, on_removal="forget", **ADA, conversation_id="c1")

        assert not found(secret())


def test_of_many_users_no_more_is_kept_in_memory_than_of_some() -> None:
    with ContextPipeline(store=InMemoryStore()) as pipeline:
        for number in range(USERS):
            scope: Any = {"user_id": f"visitor-{number}", "conversation_id": "c1"}
            pipeline.add_messages([HumanMessage("I live in Lisbon.")], **scope)
            pipeline.assemble("Where do I live?", **scope)
        assert pipeline.flush(300)
        pipeline.store._data.clear()  # type: ignore[attr-defined]

        holders = "\n".join(found("visitor-"))

        visitors = set(re.findall(r"visitor-[0-9]+", holders))
        assert len(visitors) <= MOST_USERS_HELD
