"""Which messages are learned from next, and what of them may be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import batch, drive
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.records import ProgressRecord
from langchain_ctxbudget.knowledge.taking import (
    BEFORE_MESSAGES,
    MOST_MARKS,
    MOST_MESSAGES,
    Work,
    as_said,
    others_in,
    take,
    thinned,
    time_of,
)
from langchain_ctxbudget.stores.records import MessageRecord, Place, Scope

SCOPE = Scope("ada", "c1")
COUNTER = ContextPipeline().token_counter


def conversation(*messages: BaseMessage | str) -> Conversation:
    """An open conversation; texts are the user's, and a message's id is its position."""
    made = Conversation(SCOPE, COUNTER)
    for number, message in enumerate(messages):
        whole = HumanMessage(message) if isinstance(message, str) else message
        whole.id = whole.id or f"m{number}"
        made.append(MessageRecord.of(whole, Place(clock=number, lane="a", number=number), named=True), whole)
    return made


def numbered(count: int) -> Conversation:
    return conversation(*(f"text {number}" for number in range(count)))


def taken(store: InMemoryStore, of: Conversation, at_least: int = 1) -> Work | None:
    return drive(take(store, of, at_least=at_least))


def learned(store: InMemoryStore, of: Conversation) -> list[int]:
    """Learn until nothing is new; how many messages were taken each time."""
    sizes = []
    while (work := taken(store, of)) is not None:
        drive(batch(store, [repos.progress_write(SCOPE, work.done)]))
        sizes.append(len(work.new))
    return sizes


@pytest.mark.parametrize(("count", "at_least", "found"), [(0, 1, False), (4, 5, False), (5, 5, True), (1, 1, True)])
def test_enough_must_be_new(count: int, at_least: int, *, found: bool) -> None:
    assert (taken(InMemoryStore(), numbered(count), at_least) is not None) == found


def test_every_message_is_taken_once_and_in_order() -> None:
    store = InMemoryStore()
    assert learned(store, numbered(7)) == [7]
    work = taken(store, numbered(12))
    assert work is not None
    assert [entry.id for entry in work.new] == [f"m{number}" for number in range(7, 12)]
    assert not work.changed


def test_many_are_taken_some_at_a_time() -> None:
    assert learned(InMemoryStore(), numbered(2 * MOST_MESSAGES + 1)) == [MOST_MESSAGES, MOST_MESSAGES, 1]


def test_few_messages_before_are_shown_with_them() -> None:
    store = InMemoryStore()
    learned(store, numbered(7))
    work = taken(store, numbered(8))
    assert work is not None
    assert [said.id for said in work.before] == [f"m{number}" for number in range(7 - BEFORE_MESSAGES, 7)]


def test_after_a_change_reading_goes_on_where_nothing_has_changed() -> None:
    store = InMemoryStore()
    for count in (3, 6, 9):
        learned(store, numbered(count))
    other = conversation(*(f"text {number}" if number != 4 else "another" for number in range(9)))
    work = taken(store, other, at_least=100)
    assert work is not None
    assert work.changed
    assert (work.first, len(work.new)) == (3, 6)


def test_of_a_shorter_conversation_nothing_is_new_and_yet_it_has_changed() -> None:
    store = InMemoryStore()
    for count in (3, 6):
        learned(store, numbered(count))
    work = taken(store, numbered(3), at_least=100)
    assert work is not None
    assert (work.changed, len(work.new)) == (True, 0)
    assert work.there == {entry.id: entry.fingerprint for entry in numbered(3).entries}


def test_what_is_there_is_the_whole_conversation_also_where_less_is_taken() -> None:
    store = InMemoryStore()
    many = MOST_MESSAGES + 50
    learned(store, numbered(many))
    work = taken(store, conversation("another", *(f"text {number}" for number in range(1, many))))
    assert work is not None
    assert work.there is not None
    assert (len(work.new), len(work.there)) == (MOST_MESSAGES, many)


def test_progress_is_where_the_next_begins() -> None:
    store, whole = InMemoryStore(), numbered(6)
    work = taken(store, whole)
    assert work is not None
    assert work.done.marks == ((6, whole.entries[-1].digest),)
    assert whole.learned == (0, "")
    learned(store, whole)
    assert whole.learned == work.done.marks[-1]
    assert whole.new_to_learn() == 0


def test_a_conversation_that_is_empty_now_has_no_progress() -> None:
    store = InMemoryStore()
    learned(store, numbered(6))
    work = taken(store, conversation())
    assert work is not None
    assert work.done == ProgressRecord()


def test_what_was_taken_before_an_erasure_can_be_told() -> None:
    store = InMemoryStore()
    work = taken(store, numbered(5))
    known.erased(store, "ada")
    assert work is not None
    assert work.epoch != known.epoch_of(store, "ada")


def test_a_part_ends_before_the_next_message_that_says_something() -> None:
    store = InMemoryStore()
    whole = conversation("one", ToolMessage("x", tool_call_id="1"), "two", ToolMessage("y", tool_call_id="2"), "three")
    work = taken(store, whole)
    assert work is not None
    assert [len(work.until_said(count).new) for count in (1, 2, 3, 9)] == [2, 4, 5, 5]
    assert [said.text for said in work.until_said(2).said] == ["one", "two"]


# Marks


@given(st.integers(0, 300))
def test_marks_are_few_and_the_newest_half_stays(count: int) -> None:
    marks = [(number, "") for number in range(count)]
    kept = thinned(marks)
    assert len(kept) <= MOST_MARKS
    assert kept[-MOST_MARKS // 2 :] == tuple(marks[-MOST_MARKS // 2 :])
    assert list(kept) == sorted(kept)


def test_of_older_marks_the_oldest_is_kept() -> None:
    marks: tuple[tuple[int, str], ...] = ()
    for number in range(1, 1_000):
        marks = thinned((*marks, (number, "")))
    assert marks[0][0] == 1
    assert len(marks) > MOST_MARKS // 2


# What may be read


CALLS = [{"name": "look_up", "args": {}, "id": "1"}]


def said(*messages: BaseMessage, from_tools: bool = False) -> list[tuple[str, bool]]:
    entries = conversation(*messages).entries
    return [(one.text, one.from_user) for one in as_said(entries, from_tools=from_tools)]


def test_what_the_user_and_the_assistant_say_is_read() -> None:
    assert said(HumanMessage("a"), AIMessage("b")) == [("a", True), ("b", False)]


@pytest.mark.parametrize("from_tools", [False, True])
def test_what_tools_give_is_read_where_that_is_asked_for(*, from_tools: bool) -> None:
    found = said(ToolMessage("x", tool_call_id="1"), from_tools=from_tools)
    assert found == ([("x", False)] if from_tools else [])


RESULT = HumanMessage([{"type": "tool_result", "tool_use_id": "1", "content": "x"}])


@pytest.mark.parametrize("from_tools", [False, True])
@pytest.mark.parametrize(
    "result",
    [ToolMessage("x", tool_call_id="1"), FunctionMessage(content="x", name="look_up"), RESULT],
    ids=lambda it: it.type,
)
def test_a_result_is_told_from_what_the_assistant_says(result: BaseMessage, *, from_tools: bool) -> None:
    entries = conversation(result.model_copy(), AIMessage("b")).entries
    read = [(one.text, one.from_tool, one.from_user) for one in as_said(entries, from_tools=from_tools)]
    assert read == [*([("x", True, False)] if from_tools else []), ("b", False, False)]


# Who the user is


def users(user_id: str, *names: str | None) -> list[str | None]:
    """Of messages with these names, the names of those that are the user's."""
    entries = conversation(*(HumanMessage("text", name=name) for name in names)).entries
    own = {one.id for one in as_said(entries, from_tools=False, others=others_in(entries, user_id)) if one.from_user}
    return [entry.message.name for entry in entries if entry.id in own]


def test_the_only_one_who_writes_is_the_user() -> None:
    assert users("u1", "Maya", "Maya") == ["Maya", "Maya"]


def test_beside_messages_without_a_name_a_named_one_is_somebody_elses() -> None:
    assert users("u1", None, "Bob", None) == [None, None]


def test_beside_messages_without_a_name_those_with_the_users_name_are_the_users() -> None:
    assert users("ada", None, "Ada", "Bob") == [None, "Ada"]


def test_results_are_no_messages_without_a_name() -> None:
    entries = conversation(HumanMessage("text", name="Maya"), RESULT.model_copy()).entries
    assert others_in(entries, "u1") == frozenset()


@pytest.mark.parametrize(
    ("user_id", "name"),
    [
        ("ada", "Ada Lovelace"),
        ("ada.lovelace@example.com", "Ada Lovelace"),
        ("ada_lovelace", "ADA  Lovelace"),
        ("Ada Lovelace", "ada"),
        ("zoë", "Zoë"),
    ],
)
def test_a_name_that_begins_as_the_users_id_does_is_the_users(user_id: str, name: str) -> None:
    assert users(user_id, name, "Bob") == [name]


@pytest.mark.parametrize(("user_id", "name"), [("ada", "Adam"), ("user-1", "user-2"), ("ada", "Miss Ada"), ("7", "!")])
def test_a_name_that_only_resembles_the_users_id_is_somebody_elses(user_id: str, name: str) -> None:
    assert users(user_id, name, "Bob") == []


def test_of_two_names_that_begin_as_the_users_id_does_the_same_one_counts() -> None:
    assert users("ada", "Ada", "Ada Jones") == ["Ada"]
    assert users("ada", "Ada Lovelace", "Ada Jones") == []


def test_the_messages_before_are_not_all_the_users_either() -> None:
    store = InMemoryStore()
    before = [HumanMessage("a"), HumanMessage("b", name="Bob")]
    learned(store, conversation(*before))
    work = taken(store, conversation(*before, "c"))
    assert work is not None
    assert [said.from_user for said in work.before] == [True, False]


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage(""),
        AIMessage("", tool_calls=CALLS),
        SystemMessage("x"),
        HumanMessage("x", additional_kwargs={"ctxbudget": "drop"}),
    ],
)
def test_what_says_nothing_or_is_not_theirs_is_not_read(message: BaseMessage) -> None:
    assert said(message) == []


def test_what_is_said_beside_a_call_is_read() -> None:
    [(text, from_user)] = said(AIMessage("I look.", tool_calls=CALLS))
    assert text.startswith("I look.")
    assert not from_user


@pytest.mark.parametrize(
    ("created_at", "expected"),
    [
        ("2026-01-02T03:04:05+00:00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05+02:00", datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        ("yesterday", None),
        ("", None),
        (7, None),
        (None, None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-12:00", None),
    ],
)
def test_when_a_message_was_said(created_at: object, expected: datetime | None) -> None:
    [entry] = conversation(HumanMessage("x", additional_kwargs={"created_at": created_at})).entries
    assert time_of(entry) == expected


def test_times_are_in_utc() -> None:
    at = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    [entry] = conversation(HumanMessage("x", additional_kwargs={"created_at": at.isoformat()})).entries
    found = time_of(entry)
    assert found == at
    assert found is not None
    assert found.tzinfo is UTC
