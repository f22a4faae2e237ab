"""Names of speakers as they are sent: two stay two, and none is lost."""

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.providers import COMMON, accepted_name, grouped

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
LONG = "a" * 64


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Jörg", "Järg"),
        ("Jörg", "Jorg"),
        ("José", "Jose"),
        ("Łukasz", "Lukasz"),
        ("Fox 🦊", "Fox 🐺"),
        (LONG + "a", LONG + "b"),
    ],
)
def test_two_names_stay_two(one: str, other: str) -> None:
    assert accepted_name(one) != accepted_name(other)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("Jörg", "Jorg_db27"),
        ("Jo\u0308rg", "Jorg_db27"),
        ("Straße", "Strasse_61a3"),
        ("Anna Lena", "Anna_Lena"),
        ("Dr. Who", "Dr_Who"),
        ("Jorg", "Jorg"),
    ],
)
def test_a_name_is_sent_in_plain_letters(name: str, sent: str) -> None:
    assert accepted_name(name) == sent


@pytest.mark.parametrize("name", ["李", "李 Wei", "Анна", "🦊", "___"])
def test_of_some_names_no_form_is_accepted(name: str) -> None:
    assert accepted_name(name) is None


def test_a_long_name_ends_within_its_limit() -> None:
    assert len(accepted_name("ö" * 100) or "") == COMMON.longest_name


def test_a_name_that_is_sent_otherwise_is_told() -> None:
    _, repairs = grouped([HumanMessage("Hello", name="Jörg")], COMMON)

    assert [repair.kind for repair in repairs] == ["name"]


def test_a_models_name_makes_no_heading() -> None:
    [group], _ = grouped([AIMessage("Hello", name="李")], COMMON)

    assert group.messages[0].content == "Hello"


@pytest.mark.parametrize("name", ["李", "🦊"])
@pytest.mark.parametrize("content", ["Hello", [{"type": "text", "text": "Hello"}]])
def test_a_turn_tells_its_speaker_as_history_does(name: str, content: str | list[str]) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    turn: list[BaseMessage] = [HumanMessage(content, name=name, id="h1")]
    sent_in_turn = pipeline.assemble(turn, **SCOPE).messages[-1]
    pipeline.add_messages([*turn, AIMessage("Hi", id="a1")], **SCOPE)

    sent_in_history = pipeline.assemble("Go on", **SCOPE).messages[-3]

    assert sent_in_turn.text == f"[{name}]\nHello"
    assert sent_in_history.text == sent_in_turn.text
