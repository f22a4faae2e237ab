"""What is known after messages were learned from, and after they are gone.

And what of them may be read.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget import knowledge
from langchain_ctxbudget.knowledge.known import MOST_ITEMS, Kept
from langchain_ctxbudget.knowledge.merging import updated, without
from langchain_ctxbudget.knowledge.records import Learned, PhraseRecord, TopicConversation
from langchain_ctxbudget.knowledge.work import Work, as_said, others_in
from langchain_ctxbudget.messages import time_of
from tests.conversations import COUNTER, SCOPE, opened

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CUT = {"m0": "d0"}
"""What is left of a conversation."""


def source(message: str, where: str = "c1") -> knowledge.Source:
    return knowledge.Source(
        conversation_id=where, message_id=message, digest=message.replace("m", "d")
    )


def fact(name: str, *sources: knowledge.Source, **fields: Any) -> knowledge.Fact:
    times = {"created_at": NOW, "last_seen": NOW}
    return knowledge.Fact(
        **{
            "id": name,
            "text": name,
            "category": "preference",
            "sources": sources,
            **times,
            **fields,
        }
    )


def ended(name: str, by: str, *sources: knowledge.Source, **fields: Any) -> knowledge.Fact:
    return fact(name, *sources, ended="superseded", ended_at=NOW, superseded_by=by, **fields)


def test_what_they_superseded_counts_again() -> None:
    state = knowledge.Knowledge(
        facts=(fact("b", source("m1")),), ended=(ended("a", "b", source("m0")),)
    )
    after = without(state, "c1", CUT)
    assert after.ended == ()
    assert after.facts == (fact("a", source("m0")),)


def test_an_entity_that_loses_a_source_loses_its_details() -> None:
    sarah = knowledge.EntityProfile(
        id="e",
        name="Sarah",
        facts=("x",),
        attributes=(("a", "b"),),
        sources=(source("m0"), source("m1")),
    )
    [left] = without(knowledge.Knowledge(entities=(sarah,)), "c1", CUT).entities
    assert (left.facts, left.attributes, left.sources) == ((), (), (source("m0"),))


def test_what_a_model_has_written_goes_with_any_message_that_it_comes_from() -> None:
    both = (source("m0"), source("m1"))
    facts = [fact(by, *both, made_by=by) for by in ("a model", knowledge.BY_RULES)]
    assert [
        left.id for left in without(knowledge.Knowledge(facts=tuple(facts)), "c1", CUT).facts
    ] == [knowledge.BY_RULES]


def test_a_phrase_is_no_longer_counted_for_them() -> None:
    both = PhraseRecord(phrase="p", label="P", sources=(source("m0"), source("m1")))
    lost = PhraseRecord(phrase="q", label="Q", sources=(source("m1"),))
    [left] = without(knowledge.Knowledge(phrases=(both, lost)), "c1", CUT).phrases
    assert (left.phrase, left.sources) == ("p", (source("m0"),))


def test_of_too_many_topics_the_least_important_go() -> None:
    many = []
    for n, by in enumerate([knowledge.BY_USER] * 2 + [knowledge.BY_RULES] * MOST_ITEMS):
        named = {"id": f"topic/t{n}", "slug": f"t{n}", "label": f"T{n}", "made_by": by}
        at = NOW - timedelta(hours=MOST_ITEMS + 2 - n)
        many.append(
            knowledge.TopicProfile(**named, sources=(source("m9", "c9"),), last_engaged_at=at)
        )
    links = {
        (one.id, "c9"): TopicConversation(
            topic_id=one.id, conversation_id="c9", messages=1, last_at=one.last_engaged_at
        )
        for one in many
    }
    work = opened("x").seen_with(COUNTER)
    todo = Work(
        scope=SCOPE,
        entries=work.entries,
        costs=work.costs,
        first=0,
        progress=knowledge.ProgressRecord(),
        there=None,
        kept=Kept(),
    )
    state = updated(knowledge.Knowledge(topics=tuple(many), links=links), todo, Learned(), NOW)
    assert {one.id for one in many} - {one.id for one in state.topics} == {"topic/t2", "topic/t3"}
    assert {name for name, _ in state.links} == {one.id for one in state.topics}


def test_results_of_tools_are_not_read_and_what_the_assistant_says_is_not_the_users() -> None:
    for result in (
        ToolMessage("x", tool_call_id="1"),
        FunctionMessage(content="x", name="look_up"),
        HumanMessage([{"type": "tool_result", "tool_use_id": "1", "content": "x"}]),
    ):
        entries = opened(result, AIMessage("b")).table
        read = [(one.text, one.from_user) for one in as_said(entries)]
        assert read == [("b", False)], result


def test_what_says_nothing_or_is_not_theirs_is_not_read() -> None:
    for message in (
        HumanMessage(""),
        AIMessage("", tool_calls=[{"name": "look_up", "args": {}, "id": "1"}]),
        SystemMessage("x"),
        HumanMessage("x", additional_kwargs={"ctxbudget": "drop"}),
    ):
        assert as_said(opened(message).table) == [], message


def users(user_id: str, *names: str | None) -> list[str | None]:
    """Of messages with these names, the names of those that are the user's."""
    messages: list[BaseMessage] = [HumanMessage("text", name=name) for name in names]
    entries = opened(*messages).table
    own = {one.id for one in as_said(entries, others_in(entries, user_id)) if one.from_user}
    return [entry.message.name for entry in entries if entry.id in own]


def test_the_user_is_who_has_no_name_or_is_called_like_the_id() -> None:
    assert users("u1", None, "Bob", None) == [None, None]
    for user_id, name in (
        ("ada", "Ada"),
        ("ada_lovelace", "ADA  Lovelace"),
        ("Ada Lovelace", "ada.lovelace"),
    ):
        assert users(user_id, name, "Bob") == [name]
    assert users("ada", "Ada", "Ada Jones") == ["Ada"]
    assert users("ada", "Ada Lovelace", "Ada Jones") == []
    assert users("u1", "Ada", "Ada") == ["Ada", "Ada"]


def test_when_a_message_was_said() -> None:
    for created_at, expected in (
        ("2026-01-02T03:04:05+00:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05+02:00", datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        ("yesterday", None),
        ("0001-01-01T00:00:00+14:00", None),
    ):
        [entry] = opened(HumanMessage("x", additional_kwargs={"created_at": created_at})).table
        assert time_of(entry.message) == expected, created_at
