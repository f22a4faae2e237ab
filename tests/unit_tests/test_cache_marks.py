"""Marks for a provider's cache: a request has as many as its provider takes, the newest ones."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline
from langchain_ctxbudget.providers import (
    ANTHROPIC,
    COMMON,
    OPENAI,
    Profile,
    Repair,
    marks_beside,
    request_mark_of,
)
from langchain_ctxbudget.providers.requirements import finished
from tests.cases import few_are_quick

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
MARK = {"type": "ephemeral"}
FOR_AN_HOUR = {"type": "ephemeral", "ttl": "1h"}
CLAUDE = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")


def text(words: str, mark: dict[str, str] | None = None) -> dict[str, Any]:
    """A block of text, with a mark or without."""
    if mark is None:
        return {"type": "text", "text": words}
    return {"type": "text", "text": words, "cache_control": mark}


def question(number: int, mark: dict[str, str] = MARK) -> HumanMessage:
    """A question with a mark."""
    return HumanMessage([text(f"Question {number}", mark)], id=f"h{number}")


def chat(turns: int) -> list[BaseMessage]:
    """A conversation in which the application marks every question."""
    messages: list[BaseMessage] = []
    for number in range(turns):
        messages.append(question(number))
        messages.append(AIMessage(f"Answer {number}."))
    return messages


def marked_words(messages: Sequence[BaseMessage]) -> list[str]:
    """The texts of the messages that have a mark."""
    return [message.text for message in messages if "cache_control" in str(message.content)]


def sent(
    *messages: BaseMessage,
    profile: Profile = ANTHROPIC,
    tools: Sequence[object] = (),
    request_mark: object = None,
) -> tuple[list[BaseMessage], list[Repair]]:
    """Messages as they are sent, in a request with these tools and this option."""
    return finished(messages, profile, marks_beside(tools, request_mark))


def test_the_newest_four_stay_and_the_others_are_told() -> None:
    messages, repairs = sent(*chat(6))

    assert marked_words(messages) == ["Question 2", "Question 3", "Question 4", "Question 5"]
    assert [(repair.kind, repair.message_id) for repair in repairs] == [
        ("cache_mark", "h0"),
        ("cache_mark", "h1"),
    ]


def test_up_to_four_marks_stay_where_they_are() -> None:
    given = chat(4)
    messages, repairs = sent(*given)

    assert messages == given
    assert repairs == []


def test_the_system_messages_own_mark_stays_and_counts() -> None:
    system = SystemMessage([text("You help.", MARK)])
    messages, _ = sent(system, *chat(6))

    assert marked_words(messages) == ["You help.", "Question 3", "Question 4", "Question 5"]


@tool(extras={"cache_control": MARK})
def look_up(topic: str) -> str:
    """Looks something up."""
    return topic


@pytest.mark.parametrize(
    ("beside", "left"),
    [
        pytest.param({"tools": [look_up]}, 3, id="a LangChain tool"),
        pytest.param({"tools": [{"name": "x", "cache_control": MARK}]}, 3, id="Anthropic's form"),
        pytest.param({"tools": [{"function": {"cache_control": MARK}}]}, 3, id="OpenAI's form"),
        pytest.param({"request_mark": MARK}, 3, id="an option of the request"),
        pytest.param({"tools": [look_up], "request_mark": MARK}, 2, id="both"),
        pytest.param({"tools": [look_up] * 5}, 0, id="only tools"),
    ],
)
def test_marks_beside_the_messages_count(beside: dict[str, Any], left: int) -> None:
    messages, _ = sent(*chat(6), **beside)

    assert len(marked_words(messages)) == left


@pytest.mark.parametrize(
    "model",
    [
        CLAUDE.bind(cache_control=MARK),
        CLAUDE.bind(cache_control=MARK).with_config(tags=["x"]),
        ChatAnthropic(model="claude-sonnet-4-5", api_key="x", model_kwargs={"cache_control": MARK}),
    ],
    ids=["bound", "bound and configured", "in the model"],
)
def test_a_mark_that_the_model_brings_along_is_found(model: object) -> None:
    assert request_mark_of(model) == MARK


IMAGE = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
RAW_RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [text("Found.", MARK)]}


@pytest.mark.parametrize(
    "block",
    [
        {**IMAGE, "cache_control": MARK},
        {**IMAGE, "extras": {"cache_control": MARK}},
        {**IMAGE, "metadata": {"cache_control": MARK}},
        RAW_RESULT,
    ],
    ids=["on it", "in its extras", "in its metadata", "inside it"],
)
def test_a_mark_is_found_wherever_it_stands(block: dict[str, Any]) -> None:
    old = HumanMessage([block], id="old")
    messages, repairs = sent(old, *chat(4))

    assert "cache_control" not in str(messages[0].content)
    assert [repair.message_id for repair in repairs] == ["old"]
    assert "cache_control" in str(old.content)


def test_a_mark_inside_a_result_is_sent_on_it() -> None:
    [message], repairs = sent(HumanMessage([RAW_RESULT]))

    result = {"type": "tool_result", "tool_use_id": "a", "content": [text("Found.")]}
    assert message.content == [{**result, "cache_control": MARK}]
    assert repairs == []


def test_thoughts_are_sent_without_a_mark() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x", "cache_control": MARK}
    [_, message], repairs = sent(question(1), AIMessage([thought, text("Yes.")]))

    assert marked_words([message]) == []
    assert len(repairs) == 1


def test_behind_a_mark_for_five_minutes_none_is_for_an_hour() -> None:
    messages, repairs = sent(question(1, FOR_AN_HOUR), question(2), question(3, FOR_AN_HOUR))

    assert [message.content for message in messages] == [
        [text("Question 1", FOR_AN_HOUR)],
        [text("Question 2", MARK)],
        [text("Question 3", MARK)],
    ]
    assert [repair.message_id for repair in repairs] == ["h3"]


def test_a_tools_mark_for_five_minutes_stands_before_all_others() -> None:
    [message], _ = sent(question(1, FOR_AN_HOUR), tools=[look_up])

    assert message.content == [text("Question 1", MARK)]


@pytest.mark.parametrize(("profile", "left"), [(OPENAI, 0), (COMMON, 4)])
def test_other_providers(profile: Profile, left: int) -> None:
    """A gateway that nothing is known of may lead to Anthropic."""
    messages, _ = sent(*chat(6), profile=profile)

    assert len(marked_words(messages)) == left


# Every way out


def marks_of(messages: Sequence[BaseMessage], tools: Sequence[Any] = ()) -> int:
    """How many marks the model's package sends to Anthropic, with those of tools that have one."""
    payload: dict[str, Any] = CLAUDE._get_request_payload(list(messages))
    return str(payload).count("cache_control") + len(tools)


BUDGETS = few_are_quick([4_000, 8_000, 32_000, 128_000], quick=2)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("markers", ["none", "anthropic"])
def test_no_prompt_of_a_long_chat_has_more_than_four(markers: str, budget: int) -> None:
    settings = {"max_context_tokens": budget, "cache_markers": markers}
    pipeline = ContextPipeline(settings, model=CLAUDE, store=InMemoryStore())
    counts: list[int] = []
    for number in range(9):
        asked = question(number)
        context = pipeline.assemble(asked, tools=[look_up], **SCOPE)
        counts.append(marks_of(context.messages, [look_up]))
        assert "cache_control" in str(context.messages[-1].content)
        pipeline.add_messages([asked, AIMessage(f"Answer {number}.")], **SCOPE)

    assert max(counts) == 4


def test_marks_for_an_hour_are_set_where_the_cache_is_to_live_longer() -> None:
    settings = {"cache_markers": "anthropic", "cache_lifetime_seconds": 3_600}
    pipeline = ContextPipeline(settings, model=CLAUDE, store=InMemoryStore())

    [message] = pipeline.assemble("Hi", **SCOPE).messages

    assert message.content == [text("Hi", FOR_AN_HOUR)]


def test_no_marks_are_set_for_a_provider_that_takes_none() -> None:
    settings = {"cache_markers": "anthropic"}
    pipeline = ContextPipeline(settings, model="gpt-4o", store=InMemoryStore())

    [message] = pipeline.assemble("Hi", **SCOPE).messages

    assert message.content == "Hi"


def test_a_large_result_with_a_mark_counts_the_same_without_it() -> None:
    """The recount would refuse the prompt otherwise."""
    call = {"name": "look_up", "args": {}, "id": "a"}
    words = [text("Words", MARK)]
    found = {"type": "search_result", "source": "x", "title": "T", "content": words}
    messages = [
        HumanMessage("Look.", id="q"),
        AIMessage("", tool_calls=[call]),
        ToolMessage([found], tool_call_id="a"),
        *chat(5),
    ]
    pipeline = ContextPipeline(model=CLAUDE, store=InMemoryStore())
    pipeline.add_messages(messages, **SCOPE)

    report = pipeline.assemble("And?", **SCOPE).report

    assert {repair.kind for repair in report.repairs} == {"cache_mark"}
    assert report.failures == ()


def test_a_whole_history_and_a_window_have_no_more_than_four() -> None:
    pipeline = ContextPipeline(model=CLAUDE, store=InMemoryStore())
    pipeline.add_messages(chat(9), **SCOPE)
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)

    assert marks_of(history.messages) == 4
    assert marks_of(history.window(2_000)) == 4
    assert len(marked_words(pipeline.get_messages(**SCOPE))) == 9


def test_the_mark_of_a_system_message_before_a_state_stays() -> None:
    system = SystemMessage([text("You help.", MARK), text("Be brief.")])
    step = ContextPipeline(model=CLAUDE, store=InMemoryStore()).as_runnable(default_user="ada")

    messages = step.invoke({"messages": [system, *chat(5), HumanMessage("Hi")]})

    assert messages[0].content == [text("You help.\n\nBe brief.", MARK)]
    assert marks_of(messages) == 4
