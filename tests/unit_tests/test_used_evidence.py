"""What an answer used of earlier messages, found without labels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.replay.evidence import Conversation, LineReader, Shown, Use, is_value

SMALL_TALK = [HumanMessage("Good morning to you."), AIMessage("Good morning! How are you?")]
QUESTION = [AIMessage("Anything else?"), HumanMessage("What was it again?")]


def uses(told: str, answer: str, question: str = "What was it again?") -> tuple[Use, ...]:
    """What an answer used of something that was told ten messages before."""
    newest = [AIMessage("Anything else?"), HumanMessage(question)]
    messages = [HumanMessage(told), *SMALL_TALK * 5, *newest, AIMessage(answer)]
    return Conversation(messages, LineReader()).uses(len(messages) - 1, len(messages) - 3)


@pytest.mark.parametrize(
    ("told", "answer", "value"),
    [
        ("The deposit is £1,722.15 a month.", "You pay £1,722.15.", "=1,722.15"),
        ("Open src/shelves/labels.py first.", "I edit src/shelves/labels.py.", None),
        ("We fly on 2026-07-15.", "The flight is on 2026-07-15.", "=2026-07-15"),
        ("Call maya@example.org.", "Her address is maya@example.org.", "=maya@example.org"),
        ("The key is order_id.", "Join on order_id.", "=order_id"),
        ("It is called “The Long Shelf”.", "The name is “The Long Shelf”.", "=the long shelf"),
        ("In /home/ada/src/rows/a.py.", "I open rows/a.py.", "=rows/a.py"),
        ("    12→def open_row(): pass", "Call open_row.", "=open_row"),
        ("会議は15:30に始まります。", "15:30です。", "=15:30"),
    ],
    ids=[
        "amount",
        "path",
        "date",
        "address",
        "identifier",
        "quotation",
        "folder",
        "code",
        "Japanese",
    ],
)
def test_a_value_that_an_answer_repeats_was_used(told: str, answer: str, value: str | None) -> None:
    [use] = uses(told, answer)

    assert use.message == 0
    assert any(map(is_value, use.items))
    assert value is None or value in use.items


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        ("The cupboard has brass hinges and oak doors.", "Brass hinges would suit your oak."),
        ("Der Zug nach Lindau fährt vom Nebengleis.", "Nimm den Zug vom Nebengleis nach Lindau."),
        ("Ключи лежат под синим ковриком у двери.", "Посмотри под синим ковриком, ключи там."),
        ("図書館は金曜日に休館します。", "図書館は金曜日が休館です。"),
    ],
    ids=["English", "German", "Russian", "Japanese"],
)
def test_several_rare_words_of_a_sentence_were_used(told: str, answer: str) -> None:
    [use] = uses(told, answer)

    assert use.sentence == told


def test_a_single_word_is_chance() -> None:
    assert uses("The cupboard has brass hinges.", "A brass lamp is nice.") == ()


def test_what_the_user_has_just_said_is_not_from_memory() -> None:
    assert uses("The deposit is £1,722.15.", "£1,722.15 it is.", "Is it £1,722.15?") == ()


def test_a_number_is_compared_as_a_whole() -> None:
    assert uses("It costs 480,000 yen.", "About 480 of them.") == ()


def test_what_stands_everywhere_is_not_rare() -> None:
    told = [HumanMessage(f"Drill {number} of shelf B-7.") for number in range(10)]
    messages = [*told, *QUESTION, AIMessage("Look at shelf B-7.")]

    assert Conversation(messages, LineReader()).uses(12, 10) == ()


def test_the_newest_of_equal_sources_is_meant() -> None:
    told = HumanMessage("The code is QX-771.")
    messages = [told, *SMALL_TALK, told, *QUESTION, AIMessage("QX-771")]

    [use] = Conversation(messages, LineReader()).uses(6, 4)
    assert use.message == 3


def test_arguments_of_calls_use_results() -> None:
    call = {"name": "find", "args": {"what": "labels"}, "id": "c1"}
    edit = {"name": "edit", "args": {"path": "src/shelves/labels.py"}, "id": "c2"}
    messages: list[BaseMessage] = [
        HumanMessage("Fix it."),
        AIMessage("", tool_calls=[call]),
        ToolMessage("src/shelves/labels.py:14", tool_call_id="c1"),
        *QUESTION,
        AIMessage("", tool_calls=[edit]),
    ]
    messages[2].content = "Found: src/shelves/labels.py"

    [use] = Conversation(messages, LineReader()).uses(5, 3)
    assert use.message == 2


# What of it a prompt shows


TOLD = "The cupboard has brass hinges, oak doors and costs £1,722.15."
[USE] = uses(TOLD, "Brass hinges and oak for £1,722.15.")


def shown(text: str) -> Shown:
    return Shown(LineReader().lines(HumanMessage(text)), [USE])


@pytest.mark.parametrize(
    ("prompt", "share"),
    [
        (TOLD, 1),
        ("Notes: brass hinges, oak, £1,722.15", 1),
        ("£1,722.15", 1 / 4),
        ("Brass is a metal.\nDoors are of oak.", 1 / 4),
        ("Good morning.", 0),
    ],
    ids=["word for word", "in other words", "the value alone", "in two lines", "nothing"],
)
def test_what_stands_together_in_a_line_is_kept(prompt: str, share: float) -> None:
    assert shown(prompt).share(USE) == share


def test_what_is_missing_is_told_as_it_was_written() -> None:
    assert shown("A cupboard of oak.").missing(USE) == ("brass", "hinges", "£1,722.15")


WORDS = st.sampled_from("oak brass hinge £1,722.15 QX-771 lamp Zug 会議 src/a/b.py door".split())
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


@given(st.lists(TEXTS, min_size=4, max_size=12))
def test_a_prompt_with_everything_keeps_everything(texts: list[str]) -> None:
    messages: list[BaseMessage] = [*map(HumanMessage, texts)]
    reader = LineReader()
    used = Conversation(messages, reader).uses(len(texts) - 1, len(texts) - 2)
    lines = [line for message in messages[:-1] for line in reader.lines(message)]

    assert [Shown(lines, used).share(use) for use in used] == [1.0] * len(used)


@given(st.lists(TEXTS, min_size=4, max_size=12))
def test_what_was_used_stands_in_its_sentence(texts: list[str]) -> None:
    messages: list[BaseMessage] = [*map(HumanMessage, texts)]
    used = Conversation(messages, LineReader()).uses(len(texts) - 1, len(texts) - 2)

    assert all(use.sentence == " ".join(texts[use.message].split()) for use in used)
