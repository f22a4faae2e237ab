"""Which messages are learned from next, and what of them may be read."""

from __future__ import annotations

from datetime import UTC, datetime

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.flow import batch, drive
from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.learner import take
from langchain_ctxbudget.knowledge.learning import Work, as_said, others_in, time_of
from tests.conversations import COUNTER, SCOPE, opened


def taken(store: InMemoryStore, of: OpenConversation, at_least: int = 1) -> Work | None:
    return drive(take(store, of, COUNTER, at_least=at_least))


def learned(store: InMemoryStore, of: OpenConversation) -> list[int]:
    """Learns until nothing is new; how many messages were taken each time."""
    sizes = []
    while (work := taken(store, of)) is not None:
        drive(batch(store, [records.written(records.progress_place(SCOPE), work.done)]))
        sizes.append(len(work.entries) - work.first)
    return sizes


# What may be read


def test_results_of_tools_are_read_where_that_is_asked_for_and_told_from_what_the_assistant_says() -> None:
    for result in (
        ToolMessage("x", tool_call_id="1"),
        FunctionMessage(content="x", name="look_up"),
        HumanMessage([{"type": "tool_result", "tool_use_id": "1", "content": "x"}]),
    ):
        entries = opened(result, AIMessage("b")).entries
        for from_tools, expected in ((False, []), (True, [("x", True, False)])):
            read = [(one.text, one.from_tool, one.from_user) for one in as_said(entries, from_tools=from_tools)]
            assert read == [*expected, ("b", False, False)], (result, from_tools)


def test_what_says_nothing_or_is_not_theirs_is_not_read() -> None:
    for message in (
        HumanMessage(""),
        AIMessage("", tool_calls=[{"name": "look_up", "args": {}, "id": "1"}]),
        SystemMessage("x"),
        HumanMessage("x", additional_kwargs={"ctxbudget": "drop"}),
    ):
        assert as_said(opened(message).entries, from_tools=False) == [], message


def users(user_id: str, *names: str | None) -> list[str | None]:
    """Of messages with these names, the names of those that are the user's."""
    messages: list[BaseMessage] = [HumanMessage("text", name=name) for name in names]
    entries = opened(*messages).entries
    own = {one.id for one in as_said(entries, from_tools=False, others=others_in(entries, user_id)) if one.from_user}
    return [entry.message.name for entry in entries if entry.id in own]


def test_the_user_is_who_has_no_name_or_one_that_begins_as_the_id_does() -> None:
    assert users("u1", None, "Bob", None) == [None, None]
    for user_id, name in (
        ("ada", "Ada Lovelace"),
        ("ada.lovelace@example.com", "Ada Lovelace"),
        ("ada_lovelace", "ADA  Lovelace"),
        ("Ada Lovelace", "ada"),
        ("zoë", "Zoë"),
    ):
        assert users(user_id, name, "Bob") == [name]
    assert users("ada", "Ada", "Ada Jones") == ["Ada"]
    assert users("ada", "Ada Lovelace", "Ada Jones") == []


def test_when_a_message_was_said() -> None:
    for created_at, expected in (
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
    ):
        [entry] = opened(HumanMessage("x", additional_kwargs={"created_at": created_at})).entries
        assert time_of(entry) == expected, created_at
