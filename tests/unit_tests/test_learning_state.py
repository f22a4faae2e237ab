"""Holds what is known to its messages, after they are read and after they go."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget import knowledge
from langchain_ctxbudget.knowledge.known import MOST_ITEMS, KeptKnowledge
from langchain_ctxbudget.knowledge.merging import updated, without
from langchain_ctxbudget.knowledge.records import Learned, PhraseRecord, TopicConversation
from langchain_ctxbudget.knowledge.work import Work, as_read_messages, others_in
from langchain_ctxbudget.messages import time_of
from tests.conversations import COUNTER, SCOPE, opened

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MESSAGES_LEFT = {"m0": "d0"}
"""What is left of a conversation: ids of messages, with digests of their texts."""


def source(message: str, conversation: str = "c1") -> knowledge.Source:
    digest = message.replace("m", "d")
    return knowledge.Source(conversation_id=conversation, message_id=message, digest=digest)


FIRST = source("m0")
REMOVED = source("m1")


def fact(name: str, *sources: knowledge.Source, **fields: Any) -> knowledge.Fact:
    return knowledge.Fact(
        id=name,
        text=name,
        category="preference",
        sources=sources,
        created_at=NOW,
        last_seen=NOW,
        **fields,
    )


def after_removal(**known: Any) -> knowledge.Knowledge:
    """What is known after the message m1 was removed."""
    return without(knowledge.Knowledge(**known), "c1", MESSAGES_LEFT)


def test_what_a_removed_message_superseded_counts_again() -> None:
    newer = fact("b", REMOVED)
    older = fact("a", FIRST, ended="superseded", ended_at=NOW, superseded_by="b")

    after = after_removal(facts=(newer,), ended_facts=(older,))

    assert after.ended_facts == ()
    assert after.facts == (fact("a", FIRST),)


def test_an_entity_that_loses_a_source_loses_its_details() -> None:
    sarah = knowledge.EntityProfile(
        id="e",
        name="Sarah",
        facts=("x",),
        attributes=(("a", "b"),),
        sources=(FIRST, REMOVED),
    )

    [left] = after_removal(entities=(sarah,)).entities

    assert left.facts == ()
    assert left.attributes == ()
    assert left.sources == (FIRST,)


def test_what_a_model_wrote_goes_with_any_message_it_comes_from() -> None:
    by_model = fact("tea", FIRST, REMOVED, made_by="a model")
    by_rules = fact("coffee", FIRST, REMOVED, made_by=knowledge.BY_RULES)

    [left] = after_removal(facts=(by_model, by_rules)).facts

    assert left.id == "coffee"


def test_a_phrase_is_no_longer_counted_for_a_removed_message() -> None:
    in_both = PhraseRecord(phrase="p", label="P", sources=(FIRST, REMOVED))
    in_removed = PhraseRecord(phrase="q", label="Q", sources=(REMOVED,))

    [left] = after_removal(phrases=(in_both, in_removed)).phrases

    assert left.phrase == "p"
    assert left.sources == (FIRST,)


def topic(number: int, made_by: str) -> knowledge.TopicProfile:
    """A topic that came up in another conversation; the higher its number, the later."""
    hours_ago = MOST_ITEMS + 2 - number
    return knowledge.TopicProfile(
        id=f"topic/t{number}",
        slug=f"t{number}",
        label=f"T{number}",
        made_by=made_by,
        sources=(source("m9", "c9"),),
        last_engaged_at=NOW - timedelta(hours=hours_ago),
    )


def link(profile: knowledge.TopicProfile) -> TopicConversation:
    return TopicConversation(
        topic_id=profile.id,
        conversation_id="c9",
        messages=1,
        last_at=profile.last_engaged_at,
    )


def test_of_too_many_topics_the_least_important_go_with_their_links() -> None:
    by_user = [topic(0, knowledge.BY_USER), topic(1, knowledge.BY_USER)]
    by_rules = [topic(number, knowledge.BY_RULES) for number in range(2, MOST_ITEMS + 2)]
    topics = (*by_user, *by_rules)
    before = knowledge.Knowledge(
        topics=topics, links={(profile.id, "c9"): link(profile) for profile in topics}
    )
    conversation = opened("x").seen_with(COUNTER)
    work = Work(
        scope=SCOPE,
        entries=conversation.entries,
        costs=conversation.costs,
        first=0,
        progress=knowledge.ProgressRecord(),
        there=None,
        kept_before=KeptKnowledge(),
    )

    after = updated(before, work, Learned(), NOW)

    ids_left = {profile.id for profile in after.topics}
    assert {profile.id for profile in topics} - ids_left == {"topic/t2", "topic/t3"}
    assert {topic_id for topic_id, _ in after.links} == ids_left


@pytest.mark.parametrize(
    "result",
    [
        ToolMessage("x", tool_call_id="1"),
        FunctionMessage(content="x", name="look_up"),
        HumanMessage([{"type": "tool_result", "tool_use_id": "1", "content": "x"}]),
    ],
    ids=["tool", "function", "block"],
)
def test_a_result_of_a_tool_is_not_read(result: BaseMessage) -> None:
    [read] = as_read_messages(opened(result, AIMessage("b")).table)

    assert read.text == "b"


def test_what_the_assistant_says_is_not_the_users() -> None:
    [read] = as_read_messages(opened(AIMessage("b")).table)

    assert not read.from_user


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(HumanMessage(""), id="empty"),
        pytest.param(
            AIMessage("", tool_calls=[{"name": "look_up", "args": {}, "id": "1"}]),
            id="a call alone",
        ),
        pytest.param(SystemMessage("x"), id="the application's"),
        pytest.param(
            HumanMessage("x", additional_kwargs={"ctxbudget": "drop"}), id="to be dropped"
        ),
    ],
)
def test_what_says_nothing_or_is_not_the_users_is_not_read(message: BaseMessage) -> None:
    assert as_read_messages(opened(message).table) == []


def users(user_id: str, *names: str | None) -> list[str | None]:
    """Of messages with these names, the names of those that are the user's."""
    entries = opened(*[HumanMessage("text", name=name) for name in names]).table

    messages = as_read_messages(entries, others_in(entries, user_id))

    own_ids = {message.id for message in messages if message.from_user}
    return [entry.message.name for entry in entries if entry.id in own_ids]


@pytest.mark.parametrize(
    ("user_id", "name"),
    [("ada", "Ada"), ("ada_lovelace", "ADA  Lovelace"), ("Ada Lovelace", "ada.lovelace")],
)
def test_the_user_is_who_is_called_like_the_id(user_id: str, name: str) -> None:
    assert users(user_id, name, "Bob") == [name]


def test_the_user_is_who_has_no_name_where_others_have_one() -> None:
    assert users("u1", None, "Bob", None) == [None, None]


def test_of_two_who_share_a_first_name_the_user_is_who_has_it_alone() -> None:
    assert users("ada", "Ada", "Ada Jones") == ["Ada"]


def test_of_two_who_begin_like_the_id_nobody_is_the_user() -> None:
    assert users("ada", "Ada Lovelace", "Ada Jones") == []


def test_who_is_the_only_one_to_speak_is_the_user() -> None:
    assert users("u1", "Ada", "Ada") == ["Ada", "Ada"]


@pytest.mark.parametrize(
    ("created_at", "expected"),
    [
        ("2026-01-02T03:04:05+00:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05+02:00", datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        ("yesterday", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_when_a_message_was_said(created_at: str, expected: datetime | None) -> None:
    message = HumanMessage("x", additional_kwargs={"created_at": created_at})

    [entry] = opened(message).table

    assert time_of(entry.message) == expected
