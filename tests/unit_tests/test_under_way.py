"""Prompts between two steps of a graph: kept with the conversation that they were begun for."""

from typing import Any

import pytest

from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.pipeline import under_way
from langchain_ctxbudget.pipeline.under_way import SessionsUnderWay
from langchain_ctxbudget.stores import Scope

SESSION: Any = "a session"


def opened(conversation_id: str = "c1", user_id: str = "ada") -> OpenConversation:
    return OpenConversation(Scope(user_id, conversation_id))


def kept(conversation: OpenConversation) -> SessionsUnderWay:
    sessions = SessionsUnderWay()
    sessions.keep(conversation, SESSION)
    return sessions


def test_a_session_is_found_by_its_conversation() -> None:
    conversation = opened()
    assert kept(conversation).find(conversation) == SESSION


def test_a_conversation_that_was_opened_again_has_none() -> None:
    assert kept(opened()).find(opened()) is None


def test_a_finished_session_is_gone() -> None:
    conversation = opened()
    sessions = kept(conversation)
    sessions.finish(conversation)
    assert sessions.find(conversation) is None


@pytest.mark.parametrize(("user_id", "remains"), [("ada", None), ("bob", SESSION)])
def test_sessions_of_a_user_are_forgotten(user_id: str, remains: Any) -> None:
    conversation = opened()
    sessions = kept(conversation)
    sessions.forget(lambda scope: scope.user_id == user_id)
    assert sessions.find(conversation) == remains


def test_the_oldest_session_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_way, "MOST_UNDER_WAY", 1)
    first = opened("c1")
    sessions = kept(first)
    sessions.keep(opened("c2"), SESSION)
    assert sessions.find(first) is None
