"""What seed 001 says of facts, memory budget, eviction, extraction and sessions is what happens."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from threading import Event
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline, ContextSettings
from langchain_ctxbudget.knowledge.fact_merging import CATEGORIES, FACT_POLICY, eviction_score
from langchain_ctxbudget.prompt.fitting import FIRST_MESSAGES, LAST_MESSAGES
from tests.integration_tests.seeds import ADA, C1, NOW, Row, pipeline, refused, talk

FACTS = (
    ("Building a local-first AI chat app with WebLLM", "project"),
    ("Currently implementing a memory extraction system", "project"),
    ("Prefers direct answers without preamble", "preference"),
    ("Uses TypeScript, minimal abstraction", "preference"),
    ("Solo developer based in Copenhagen", "identity"),
)


PROMPT = """\
## What you know about this user
Current work:
- Building a local-first AI chat app with WebLLM
- Currently implementing a memory extraction system
Preferences:
- Prefers direct answers without preamble
- Uses TypeScript, minimal abstraction
About user:
- Solo developer based in Copenhagen"""


def knowing(facts: Any = FACTS, **settings: Any) -> ContextPipeline:
    clock = [NOW]
    it = pipeline(clock, **settings)
    for number, (text, category) in enumerate(reversed(facts)):
        clock.append(NOW + timedelta(seconds=number))  # the first is the newest
        it.knowledge.add_fact(text, **ADA, category=category)
    return it


def system(it: ContextPipeline) -> str:
    return it.assemble("Hi", **C1).messages[0].text


def score(category: str, days: int, confidence: float) -> float:
    it = knowing([("Builds a kayak", category)])
    fact = it.knowledge.list_facts(**ADA)[0].model_copy(update={"confidence": confidence})
    return round(eviction_score(fact, fact.last_seen + timedelta(days=days)), 6)


def listed(*facts: tuple[str, Any, float, bool]) -> list[str]:
    it = pipeline()
    for text, category, confidence, pinned in facts:
        fact = it.knowledge.add_fact(text, **ADA, category=category, confidence=confidence)
        it.knowledge.pin(fact.id, **ADA, pinned=pinned)
    return [fact.text for fact in it.knowledge.list_facts(**ADA)]


def after(number: int, days: int) -> tuple[int, int]:
    """How many facts are current, and how many have ended, of so many said before, when one more is said later."""
    clock = [NOW]
    it = pipeline(clock)
    for n in range(number):
        it.knowledge.add_fact(f"Owns {n} {n}th kettle of copper", **ADA, category="project")
    clock.append(NOW + timedelta(days=days))
    it.knowledge.add_fact("Sells tea", **ADA, category="project")
    every = it.knowledge.list_facts(**ADA, include_ended=True)
    current = sum(fact.is_current for fact in every)
    return current, len(every) - current


def left_behind() -> int:
    """How many facts are known of a short session whose process ended, when the user begins another one."""
    store = InMemoryStore()
    ended = ContextPipeline(store=store)
    ended.add_messages([HumanMessage("I live in Lisbon.")], **C1)
    ended.flush()  # by now it is noted that there is a session that waits
    it = ContextPipeline(store=store)
    it.add_messages([HumanMessage("Hello.")], user_id="ada", conversation_id="c2")
    it.flush()
    return len(it.knowledge.list_facts(**ADA))


def learned(
    *, messages: int, end: bool = False, idle: bool = False, close: bool = False, wait: bool = False
) -> int:
    """How many facts are known after so many messages, the first of which tells one."""
    clock, store = [NOW], InMemoryStore()
    it = ContextPipeline(store=store, clock=lambda: clock[-1])
    said = [
        HumanMessage("I live in Lisbon."),
        *[AIMessage(f"I see {n}.") for n in range(messages - 1)],
    ]
    it.add_messages(said, **C1)
    if end:
        it.end_session(**C1)
    if idle:
        it.knowledge.heartbeat(**ADA, device_id="d", active_conversation_id="c1", idle=True)
    if wait:
        clock.append(NOW + timedelta(minutes=31))
        it.add_messages([HumanMessage("Hello.")], user_id="ben", conversation_id="c9")
    if close:
        it.close()
        return len(ContextPipeline(store=store).knowledge.list_facts(**ADA))
    it.flush()
    return len(it.knowledge.list_facts(**ADA))


def status(messages: int) -> tuple[bool, datetime | None]:
    it = ContextPipeline(clock=lambda: NOW)
    it.add_messages(talk(messages), **C1)
    it.flush()
    told = it.status(**C1)
    return told.is_extracting, told.last_extraction


def under_way() -> list[tuple[bool, bool]]:
    """What is being extracted and compacted while a model has not answered yet, and after it did."""
    answers = Event()

    class Slow(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "slow"

        def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
            answers.wait(10)
            said = '{"facts": [], "topics": [], "entities": [], "summary": "Pears were planted."}'
            return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])

    it, seen = (
        ContextPipeline(
            {"max_context_tokens": 2_000}, summary_model=Slow(), system_prompt="You help."
        ),
        [],
    )
    it.add_messages(talk(100), **C1)
    it.assemble("And now?", **C1)
    for wait in (False, True):
        if wait:
            answers.set()
            it.flush()
        told = it.status(**C1)
        seen.append((told.is_extracting, told.is_compacting))
    return seen


def compacted() -> tuple[str, bool]:
    it = pipeline(max_context_tokens=2_000)
    it.add_messages(talk(100), **C1)
    total = it.assemble("And now?", **C1).report.total_tokens
    told = it.status(**C1)
    return told.compaction_stage, told.saved_tokens > total


def memory_room(history: int) -> int:
    """The memories that are shown beside a history, of far too many, in the profile `seed`."""
    memories = [
        f"Kettle number {n} of the collection is made of copper and stands on shelf {n}."
        for n in range(60)
    ]
    rule = {"strategy": "elastic", "profile": "seed"}
    it = pipeline(max_context_tokens=3_000, memories=memories, allocation=rule)
    it.add_messages(talk(history), **C1)
    layer = it.assemble("Hi", **C1).report.layer("L1")
    return sum(item.tokens for item in layer.items if item.status == "included")


def tight() -> tuple[bool, ...]:
    """Which facts stay in a prompt that is too small: work, a sure preference, another one, identity."""
    it = pipeline(max_context_tokens=138)
    facts: list[tuple[str, Any, float]] = [
        ("Builds a kayak of cedar in the shed behind the house", "project", 0.5),
        ("Prefers answers that begin with the result of it all", "preference", 0.9),
        ("Likes the tea from the shop on the corner of the road", "preference", 0.8),
        ("Lives in the old mill of the village beside the lake", "identity", 0.9),
    ]
    for text, category, confidence in facts:
        it.knowledge.add_fact(text, **ADA, category=category, confidence=confidence)
    text = (
        it.assemble("What did I want to know about it, and why was that so much to ask? " * 2, **C1)
        .messages[0]
        .text
    )
    return tuple(word in text for word in ("kayak", "result", "tea", "mill"))


def reserved() -> int:
    it = pipeline(output_reserve_tokens=1_000, window_tokens=8_192)
    return it.assemble("Hi", **C1).report.output_reserve_tokens


def jobs() -> list[str]:
    it = ContextPipeline(clock=lambda: NOW)
    it.add_messages(
        [HumanMessage("I'm a nurse."), AIMessage("I see."), HumanMessage("I work as a teacher.")],
        **C1,
    )
    it.end_session(**C1)
    it.flush()
    return [fact.text for fact in it.knowledge.list_facts(**ADA)]


def pins() -> list[str]:
    it = pipeline()
    told = list[str]()
    for number in range(11):
        fact = it.knowledge.add_fact(f"Owns {number} {number}th kettle of copper", **ADA)
        told.append(refused(partial(it.knowledge.pin, fact.id, **ADA)))
    return told[-1:]


def numbers() -> tuple[bool, bool, bool]:
    """Tokens of what is known, of the whole, and their share."""
    report = knowing().assemble("Hi", **C1).report
    used, total = report.layer("L1").used_tokens, report.total_tokens
    return used > 0, total > used, 0 < total / report.budget_tokens < 1


def without_memory() -> tuple[str, bool]:
    """A prompt whose store cannot be read: what it says, and that the report tells of it."""

    class Broken(InMemoryStore):
        def batch(self, ops: Iterable[Any]) -> list[Any]:
            ops = list(ops)
            if any("knowledge" in op.namespace for op in ops if hasattr(op, "namespace")):
                raise OSError("the disk is gone")
            return super().batch(ops)

    context = ContextPipeline({"learn": False}, store=Broken(), system_prompt="You help.").assemble(
        "Hi", **C1
    )
    return context.messages[0].text, any(
        "the disk is gone" in one for one in context.report.failures
    )


ROWS = [
    Row(
        "format: grouped by category, a dash for each, no empty heading",
        lambda: PROMPT in system(knowing()),
        True,
    ),
    Row(
        "format: an empty category has no heading",
        lambda: "About user:" in system(knowing(FACTS[:4])),
        False,
    ),
    Row(
        "selection: pinned, then project > preference > identity, then confidence",
        lambda: listed(
            ("Lives in Rome", "identity", 0.9, False),
            ("Likes tea", "preference", 0.5, False),
            ("Likes jazz", "preference", 0.9, False),
            ("Builds a kayak", "project", 0.5, False),
            ("Has a dog", "identity", 0.4, True),
        ),
        ["Has a dog", "Builds a kayak", "Likes jazz", "Likes tea", "Lives in Rome"],
    ),
    Row("memoryTokens, totalTokens, percentUsed", numbers, (True, True, True)),
    Row(
        "memory that cannot be read: the chat goes on without", without_memory, ("You help.", True)
    ),
    Row(
        "stage one: the first 2 and the last 6 messages",
        lambda: (FIRST_MESSAGES, LAST_MESSAGES),
        (2, 6),
    ),
    Row("what is left for the answer: 1,000 where the application says so", reserved, 1_000),
    Row("contradiction: of two jobs, the one that was said last", jobs, ["Works as a teacher"]),
    Row("stage two: work and preferences above 0.8 stay", tight, (True, True, False, False)),
    Row("at most 10 are pinned", pins, ["FactError"]),
    Row("memory budget: 25 %, at most 500", lambda: 450 < memory_room(0) <= 500, True),
    Row(
        "memory budget: the conversation is taken off; at least 150",
        lambda: 110 < memory_room(200) <= 150,
        True,
    ),
    Row("compaction: at 80 %", lambda: ContextSettings().compaction_trigger, 0.8),
    Row("compaction: the last 6 messages", lambda: ContextSettings().keep_messages, 6),
    Row("compaction status: its stage, and saved tokens", compacted, ("multi_level", True)),
    Row(
        "eviction score: age * weight / confidence, project 0.8",
        lambda: score("project", 30, 0.8),
        30.0,
    ),
    Row("eviction score: preference 0.3", lambda: score("preference", 30, 0.5), 18.0),
    Row("eviction score: identity 0.5", lambda: score("identity", 30, 0.5), 30.0),
    Row(
        "expiry",
        lambda: {name: category.lasts_days for name, category in CATEGORIES.items()},
        {"project": 60, "preference": 180, "identity": 365},
    ),
    Row(
        "caps",
        lambda: (FACT_POLICY.hard_cap, FACT_POLICY.prune_threshold, FACT_POLICY.most_pinned),
        (150, 120, 10),
    ),
    Row("expired facts stay up to 120", lambda: after(50, 61), (51, 0)),
    Row("above 120 they end", lambda: after(120, 61), (1, 120)),
    Row("above 150 it evicts down to 120", lambda: after(150, 1), (120, 31)),
    Row(
        "extraction: every 5 messages",
        lambda: (ContextSettings().learn_every, learned(messages=5)),
        (5, 1),
    ),
    Row("extraction: not before", lambda: learned(messages=4), 0),
    Row("extraction: at the end of a session", lambda: learned(messages=2, end=True), 1),
    Row(
        "extraction: when the page is hidden, which is an idle heartbeat",
        lambda: learned(messages=2, idle=True),
        1,
    ),
    Row(
        "extraction: when a conversation was idle for half an hour",
        lambda: learned(messages=2, wait=True),
        1,
    ),
    Row("extraction: on unmount, which is close", lambda: learned(messages=2, close=True), 1),
    Row(
        "extraction: of a session that ended with its process, when the user's next one begins",
        left_behind,
        1,
    ),
    Row("isExtracting, lastExtraction: nothing yet", lambda: status(1), (False, None)),
    Row(
        "isExtracting, isCompacting: while a model works", under_way, [(True, True), (False, False)]
    ),
    Row("isExtracting, lastExtraction", lambda: status(5), (False, NOW)),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row.says for row in ROWS])
def test_what_the_seed_says_holds(row: Row) -> None:
    assert row.call() == row.expected
