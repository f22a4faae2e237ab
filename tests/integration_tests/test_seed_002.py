"""What seed 002 says of ratios, history, ranking of memories and analytics is what happens."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextSettings, EstimatingCounter, TiktokenCounter
from langchain_ctxbudget.search import PRIORITIES
from tests.integration_tests.seeds import ADA, C1, NOW, Row, pipeline, refused, talk


def ratio(**shares: float) -> Any:
    given: Any = {"strategy": "ratio", **shares}
    return ContextSettings(allocation=given).allocation


def planned() -> tuple[int, int]:
    """What memories and history may use of 32,768 tokens, with a system prompt of 2 and a message of 3."""
    it = pipeline(max_context_tokens=32_768, allocation="ratio")
    it.add_messages(talk(900), **C1)
    report = it.assemble("And now?", **C1).report
    history = report.layer("L4").allocated_tokens + report.layer("L6").allocated_tokens
    left = 32_768 - report.layer("L0").used_tokens - report.layer("L7").used_tokens
    return round(100 * history / left), round(100 * report.output_reserve_tokens / left)


def newest() -> bool:
    it = pipeline(max_context_tokens=2_000, allocation="ratio")
    said = talk(100)
    it.add_messages(said, **C1)
    return [one.text for one in it.assemble("And now?", **C1).messages[-7:-1]] == [
        one.text for one in said[-6:]
    ]


def analytics(conversation_id: str | None) -> tuple[Any, ...]:
    it = pipeline(keep_snapshots=10, max_context_tokens=2_000)
    for name, number in (("c1", 2), ("c2", 100)):
        it.add_messages(talk(number), user_id="ada", conversation_id=name)
        for _ in range(2):
            it.assemble("And now?", user_id="ada", conversation_id=name)
    found = it.snapshots.analytics(user_id="ada", conversation_id=conversation_id)
    return (
        found.prompts,
        0 < found.mean_share <= 1,
        found.saved_tokens > 0,
        found.layers["L7"][0] > 0,
    )


def preserved(share: float = 0.0, **pins: Any) -> list[str]:
    """What stands whole of the older messages, among which is a decision; a message of each day is pinned so."""
    it = pipeline(max_context_tokens=2_000, keep_important=share)
    said = talk(100)
    said[40] = HumanMessage(
        "We agreed to graft the old Williams pears onto quince, and to ask Mrs. Field for six rootstocks."
    )
    ids = it.add_messages(said, **C1)
    for how, number in pins.items():
        wish: Any = how
        it.pin(ids[number], preservation=wish, **C1)
    layer = it.assemble("And now?", **C1).report.layer("L6")
    return [
        item.preview[:26]
        for item in layer.items
        if item.reason in ("important", "pinned", "dropped")
    ]


def opened(messages: int) -> int:
    """How many records a new process reads for a prompt of a conversation of so many messages."""

    class Counting(InMemoryStore):
        read = 0

        def batch(self, ops: Iterable[Any]) -> list[Any]:
            found = super().batch(ops)
            self.read += sum(
                len(one) if isinstance(one, list) else one is not None for one in found
            )
            return found

    store = Counting()
    with ContextPipeline({"learn": False}, store=store) as it:
        it.add_messages(talk(messages // 2), **C1)
        it.assemble("And now?", **C1)
        it.flush()
    store.read = 0
    ContextPipeline({"learn": False}, store=store).assemble("And now?", **C1)
    return store.read


def quoted(*weights: float) -> str:
    """The one memory, of four about a kayak that have no room among the facts shown, that is quoted for a message."""
    clock = [NOW - timedelta(days=400)]
    it = pipeline(clock, retrieval={"memory_weights": weights, "most_items": 1})
    for n in range(40):
        it.knowledge.add_fact(
            f"Builds shed {n} beside the road to the old mill of the village",
            **ADA,
            category="project",
        )
    facts: list[tuple[str, Any, float]] = [
        ("Core: the kayak is red, and so are both of its paddles", "core", 0.5),
        ("Sure: the kayak was made of cedar by a neighbour of theirs", "experience", 0.9),
        ("Like: what colour the kayak has was never a question", "experience", 0.5),
    ]
    for text, kind, confidence in facts:
        it.knowledge.add_fact(text, **ADA, memory_type=kind, confidence=confidence)
    clock.append(NOW)
    text = "New: the kayak was lent to the people of the lake house, for a whole summer"
    it.knowledge.add_fact(text, **ADA, memory_type="experience", confidence=0.5)
    layer = it.assemble("What colour has the kayak?", **C1).report.layer("L5")
    return next(item.preview.partition(":")[0] for item in layer.items if item.status == "included")


def dropped() -> bool:
    """Whether the last but one question, dropped, stands in a prompt that has room for all."""
    it = pipeline()
    ids = it.add_messages(talk(3), **C1)
    it.pin(ids[2], preservation="drop", **C1)
    return any("In year 1" in one.text for one in it.assemble("And now?", **C1).messages)


def counted_once() -> int:
    """How many texts a second prompt of a conversation counts, beside its message."""
    it = pipeline()
    it.add_messages(talk(50), **C1)
    it.assemble("And now?", **C1)
    return it.assemble("And now?", **C1).report.tokenizer_calls


def heavy(memory: float, history: float) -> bool:
    kept = ratio(memory=memory, history=history, reserve=0.3)
    return (kept.memory, kept.history) == (memory, history)


def large_system() -> object:
    """A system prompt of about 300 tokens, of a window of 1,000."""
    it = ContextPipeline(
        {"learn": False, "window_tokens": 1_000}, system_prompt="You help with pears. " * 60
    )
    return it.assemble("Hi", **C1)


ROWS = [
    Row(
        "default ratios",
        lambda: (ratio().memory, ratio().history, ratio().reserve),
        (0.3, 0.4, 0.3),
    ),
    Row("custom ratios", lambda: ratio(memory=0.35, history=0.35, reserve=0.3).memory, 0.35),
    Row(
        "ratios sum to 1, within 0.05",
        lambda: ratio(memory=0.3, history=0.4, reserve=0.34).reserve,
        0.34,
    ),
    Row("history 40 %, reserve 30 %", planned, (40, 30)),
    Row(
        "ratios that sum to more are refused",
        lambda: refused(lambda: ratio(memory=0.3, history=0.4, reserve=0.36)),
        "InvalidSettingsError",
    ),
    Row("memory-heavy, history-heavy", lambda: (heavy(0.4, 0.3), heavy(0.2, 0.5)), (True, True)),
    Row(
        "system over 25 % of the window is an error",
        lambda: (ContextSettings().max_system_share, refused(large_system)),
        (0.25, "SystemPromptTooLargeError"),
    ),
    Row(
        "max_response_tokens: what is kept free for the answer",
        lambda: ContextSettings(output_reserve_tokens=4_096).output_reserve_tokens,
        4_096,
    ),
    Row(
        "tokens of the seed's sentence, by o200k_base",
        lambda: TiktokenCounter().count_text("Hello, world! This is a test."),
        9,
    ),
    Row(
        "without a tokenizer: an estimate, never below",
        lambda: EstimatingCounter().count_text("Hello, world! This is a test.") >= 9,
        True,
    ),
    Row(
        "message token caching: a second prompt counts at most five texts",
        lambda: counted_once() <= 5,
        True,
    ),
    Row("history: recent first, at least 3 exchanges", newest, True),
    Row(
        "preservation: a message is kept whole by hand",
        lambda: preserved(keep=4),
        ["In year 2 we planted 6 pea"],
    ),
    Row("preservation: a message is left out by hand", dropped, False),
    Row("preservation by analysis", lambda: preserved(0.03), ["We agreed to graft the old"]),
    Row(
        "lazy history: of 2,000 messages, a new process reads at most 600 records",
        lambda: opened(2_000) <= 600,
        True,
    ),
    Row("memories by similarity", lambda: quoted(1, 0, 0, 0), "- Like"),
    Row("memories by priority: how certain they are", lambda: quoted(0, 1, 0, 0), "- Sure"),
    Row("memories by recency", lambda: quoted(0, 0, 1, 0), "- New"),
    Row("memories by type: core 100, experience 70", lambda: quoted(0, 0, 0, 1), "- Core"),
    Row(
        "types: core, explicit, fact, project, experience",
        lambda: [*PRIORITIES.values()],
        [100, 90, 80, 75, 70],
    ),
    Row("memories by 0.4, 0.3, 0.2, 0.1", lambda: quoted(0.4, 0.3, 0.2, 0.1), "- Sure"),
    Row("analytics of a conversation", lambda: analytics("c1"), (2, True, False, True)),
    Row("analytics of a user", lambda: analytics(None), (4, True, True, True)),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row.says for row in ROWS])
def test_what_the_seed_says_holds(row: Row) -> None:
    assert row.call() == row.expected
