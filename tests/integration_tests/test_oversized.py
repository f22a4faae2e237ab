"""Input that is too large for the budget: clipped around a marker, or refused with its floors."""

import base64
import copy
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.errors import BudgetTooSmallError, SystemPromptTooLargeError
from tests.integration_tests.test_promises import SCOPE, SYSTEM_PROMPT, check_adds_up, check_valid

LOG = "FIRST LINE\n" + "2026-11-20T10:00:00 INFO worker 7 has done its part\n" * 2_000 + "LAST LINE"
LONG_JSON = json.dumps([{"id": number, "value": "x" * (number % 7)} for number in range(3_000)])
MARKER = r"\n?\[… [\d,]+ tokens left out[^\]]*…\]"

CHAT = [HumanMessage("My build machine is called Wilma."), AIMessage("Noted.")]


def image(width: int, height: int, detail: str = "auto") -> dict[str, Any]:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(
        ">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0
    )
    url = "data:image/png;base64," + base64.b64encode(header + b"\0" * 300).decode()
    return {"type": "image_url", "image_url": {"url": url, "detail": detail}}


def new_pipeline(
    budget: int, history: Sequence[BaseMessage] = (), **changes: Any
) -> ContextPipeline:
    pipeline = ContextPipeline(
        {"max_context_tokens": budget, "learn": False, **changes},
        system_prompt=SYSTEM_PROMPT,
        store=InMemoryStore(),
        writer_id="w",
    )
    if history:
        pipeline.add_messages(history, **SCOPE)
    return pipeline


def call_of(*ids: str) -> AIMessage:
    calls = [{"name": "run", "args": {"command": "make"}, "id": key} for key in ids]
    return AIMessage("", tool_calls=calls)


def turn_with(*results: Any) -> list[BaseMessage]:
    """A question, calls, and their results."""
    ids = [f"call-{number}" for number in range(len(results))]
    answers = [
        ToolMessage(result, tool_call_id=key) for key, result in zip(ids, results, strict=True)
    ]
    return [HumanMessage("Why does it fail?"), call_of(*ids), *answers]


def results_of(context: AssembledContext) -> list[ToolMessage]:
    return [message for message in context.messages if isinstance(message, ToolMessage)]


@dataclass(frozen=True)
class Prompt:
    """A prompt of a turn, within a budget."""

    turn: list[BaseMessage]
    budget: int
    context: AssembledContext

    def check_fits(self, chat_openai: ChatOpenAI) -> None:
        counted = chat_openai.get_num_tokens_from_messages(self.context.messages)
        assert counted == self.context.report.total_tokens <= self.budget
        check_adds_up(self.context)
        check_valid(self.context, self.turn)


def prompt_of(turn: list[BaseMessage], budget: int) -> Prompt:
    return Prompt(turn, budget, new_pipeline(budget).assemble(turn, **SCOPE))


# Results of tools


GIANTS = {"log": LOG, "json": LONG_JSON, "run": "x" * 300_000, "emoji": "👨‍👩‍👧‍👦" * 20_000}


@pytest.fixture(scope="module", params=[200, 1_000, 8_000])
def budget(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module", params=GIANTS)
def giant(request: pytest.FixtureRequest) -> str:
    return GIANTS[request.param]


@pytest.fixture(scope="module")
def giant_result(giant: str, budget: int) -> Prompt:
    """A prompt with one result that is too large."""
    return prompt_of(turn_with(giant), budget)


def test_a_giant_result_fits(giant_result: Prompt, chat_openai: ChatOpenAI) -> None:
    giant_result.check_fits(chat_openai)


def test_a_giant_result_keeps_its_head_and_its_tail(giant_result: Prompt, giant: str) -> None:
    [result] = results_of(giant_result.context)
    head, tail = re.split(MARKER, result.text)

    if giant == LONG_JSON:  # it is written anew in front of the marker
        tail = head.strip()
    assert head[:10] == giant[:10]
    assert tail[-2:] == giant[-2:]


def test_a_giant_result_uses_what_there_is(giant_result: Prompt) -> None:
    """But for the room of the next rounds."""
    assert giant_result.context.report.total_tokens > 0.45 * giant_result.budget


def test_messages_that_are_given_stay_as_they_are() -> None:
    turn = turn_with(LOG, [{"type": "text", "text": LOG}, image(1024, 1024)])
    before = copy.deepcopy(turn)

    new_pipeline(600).assemble(turn, **SCOPE)

    assert turn == before


class TestAClippedResult:
    """A log in a turn of a short conversation."""

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls) -> AssembledContext:
        return new_pipeline(1_000, CHAT).assemble(turn_with(LOG), **SCOPE)

    def test_it_leaves_room_for_the_conversation(self, context: AssembledContext) -> None:
        assert "Wilma" in str(context.messages)

    def test_it_is_in_the_report(self, context: AssembledContext) -> None:
        question, clipped = context.report.layer("L7").items

        assert question.status is Status.INCLUDED
        assert question.reason is Reason.REQUIRED
        assert clipped.status is Status.SHRUNK
        assert clipped.reason is Reason.CLIPPED

    def test_its_tokens_are_those_of_the_round(
        self, context: AssembledContext, chat_openai: ChatOpenAI
    ) -> None:
        _, clipped = context.report.layer("L7").items

        frame = chat_openai.get_num_tokens_from_messages([])
        counted = chat_openai.get_num_tokens_from_messages(context.messages[-2:])
        assert clipped.tokens == counted - frame

    def test_its_marker_says_how_much_is_left_out(
        self, context: AssembledContext, chat_openai: ChatOpenAI
    ) -> None:
        [result] = results_of(context)
        marker = re.search(r"\[… ([\d,]+) tokens", result.text)

        assert marker is not None
        left_out = chat_openai.get_num_tokens(LOG) - chat_openai.get_num_tokens(result.text)
        assert int(marker[1].replace(",", "")) == pytest.approx(left_out, abs=40)

    def test_it_is_stored_whole(self) -> None:
        pipeline = new_pipeline(1_000, CHAT)
        pipeline.assemble(turn_with(LOG), **SCOPE)
        pipeline.add_messages(turn_with(LOG), **SCOPE)
        pipeline.assemble("Thanks. What was the last line?", **SCOPE)

        assert pipeline.get_messages(**SCOPE)[-1].content == LOG


class TestManyGiantResults:
    """A turn of forty rounds with a log each."""

    @pytest.fixture(scope="class", params=[500, 4_000, 12_000])
    @classmethod
    def prompt(cls, request: pytest.FixtureRequest) -> Prompt:
        turn: list[BaseMessage] = [HumanMessage("Make it build.")]
        for number in range(40):
            key = f"call-{number}"
            turn += [call_of(key), ToolMessage(f"ATTEMPT {number}\n{LOG}", tool_call_id=key)]
        return prompt_of(turn, request.param)

    @pytest.mark.slow
    def test_they_fit(self, prompt: Prompt, chat_openai: ChatOpenAI) -> None:
        prompt.check_fits(chat_openai)

    def test_old_ones_give_way_before_the_newest(self, prompt: Prompt) -> None:
        assert results_of(prompt.context)[-1].text.startswith("ATTEMPT 39")

    def test_each_that_gave_way_is_in_the_report(self, prompt: Prompt) -> None:
        layer = prompt.context.report.layer("L7")
        omitted = [item for item in layer.items if item.status is Status.OMITTED]

        listed = len(omitted) + sum(layer.more_omitted.values())
        assert listed + len(results_of(prompt.context)) == 40


# The user's message


class TestSeveralMessagesOfAUserAreClipped:
    """A turn has an older and a newer message, each with room, and both together without."""

    @pytest.fixture(scope="class")
    @classmethod
    def sent(cls) -> list[str]:
        pipeline = new_pipeline(2_000, oversized_message="clip")
        turn = [HumanMessage(f"{LOG[:4_000]} {word}") for word in ("older", "newer")]
        prompt = pipeline.assemble(turn, **SCOPE)
        return [message.text for message in prompt.messages[-2:]]

    def test_the_newest_is_whole(self, sent: list[str]) -> None:
        assert sent[1] == f"{LOG[:4_000]} newer"

    def test_an_older_one_gives_way(self, sent: list[str]) -> None:
        assert re.search(MARKER, sent[0])


def test_a_giant_message_is_an_error_that_names_floors_and_setting() -> None:
    with pytest.raises(BudgetTooSmallError, match='oversized_message="clip"') as raised:
        new_pipeline(1_000).assemble(LOG, **SCOPE)

    assert raised.value.floors["current message"] > 40_000
    assert raised.value.budget_tokens == 1_000
    assert "max_context_tokens (now 1,000)" in str(raised.value)


def test_where_clipping_is_on_an_error_does_not_advise_it() -> None:
    with pytest.raises(BudgetTooSmallError) as raised:
        new_pipeline(20, oversized_message="clip").assemble(LOG, **SCOPE)

    assert "oversized_message" not in str(raised.value)


def test_an_image_of_the_user_is_never_dropped() -> None:
    question = {"type": "text", "text": "What is this?"}
    message = HumanMessage([question, image(1_024, 1_024)])

    with pytest.raises(BudgetTooSmallError) as raised:
        new_pipeline(500, oversized_message="clip").assemble(message, **SCOPE)

    assert raised.value.floors["current message"] >= 765


def pictures_and_words(name: str, pictures: int = 3) -> HumanMessage:
    words = {"type": "text", "text": f"{name} " * 150}
    return HumanMessage([*[image(1_024, 1_024)] * pictures, words])


def test_several_images_of_the_user_give_way_before_words_do() -> None:
    message = pictures_and_words("apple")

    context = new_pipeline(900, oversized_message="clip").assemble(message, **SCOPE)

    assert message.text in context.messages[-1].text


class TestAClippedMessage:
    """A log that the user sends, where the settings say that it is clipped."""

    @pytest.fixture(scope="class", params=[150, 1_000, 8_000])
    @classmethod
    def prompt(cls, request: pytest.FixtureRequest) -> Prompt:
        message = HumanMessage(LOG, id="m1")
        pipeline = new_pipeline(request.param, oversized_message="clip")
        return Prompt([message], request.param, pipeline.assemble(message, **SCOPE))

    def test_it_fits_and_adds_up(self, prompt: Prompt, chat_openai: ChatOpenAI) -> None:
        counted = chat_openai.get_num_tokens_from_messages(prompt.context.messages)

        assert counted == prompt.context.report.total_tokens <= prompt.budget
        check_adds_up(prompt.context)

    def test_it_keeps_its_id_its_head_and_its_tail(self, prompt: Prompt) -> None:
        message = prompt.context.messages[-1]

        assert message.id == "m1"
        assert message.text.startswith("FIRST LINE")
        assert message.text.endswith("LAST LINE")

    def test_it_is_in_the_report(self, prompt: Prompt) -> None:
        [item] = prompt.context.report.layer("L7").items

        assert item.status is Status.SHRUNK
        assert item.reason is Reason.CLIPPED


# Any turn


PIECES = [
    "word ",
    "2026-11-20 INFO ok\n",
    '{"a": [1, 2]},',
    "北京 ",
    "👩‍🚀",
    "é",
    " ",
    "\n",
    "x",
    "</context>",
    "QUJD",
]
texts = st.builds(
    lambda piece, times, end: piece * times + end,
    st.sampled_from(PIECES),
    st.integers(1, 3_000),
    st.text(max_size=20),
)
text_blocks = texts.map(lambda text: {"type": "text", "text": text})
other_blocks = st.sampled_from(
    [image(300, 300, "low"), image(600, 600), {"type": "odd", "payload": "p" * 400}]
)
blocks = st.lists(texts | text_blocks | other_blocks, min_size=1, max_size=4)
contents = texts | blocks


def text_in(block: str | dict[str, Any]) -> str:
    if isinstance(block, str):
        return block
    return str(block.get("text", "x"))


def says_something(content: str | list[Any]) -> bool:
    return any(text_in(block).strip() for block in content)


@st.composite
def turns(draw: st.DrawFn) -> list[BaseMessage]:
    turn: list[BaseMessage] = [HumanMessage(draw(contents.filter(says_something)))]
    for round_number in range(draw(st.integers(0, 3))):
        ids = [f"c{round_number}-{n}" for n in range(draw(st.integers(1, 3)))]
        turn.append(call_of(*ids))
        turn += [ToolMessage(draw(contents), tool_call_id=key) for key in ids]
    return turn


def check_floors(
    error: BudgetTooSmallError, turn: list[BaseMessage], budget: int, oversized: str
) -> None:
    """The floors are over the budget, and enough of a budget."""
    floors = sum(error.floors.values())
    assert floors > budget

    context = new_pipeline(floors, oversized_message=oversized).assemble(turn, **SCOPE)
    assert context.report.total_tokens <= floors


def check_every_call_is_answered(context: AssembledContext) -> None:
    calls: list[Any] = []
    for message in context.messages:
        if isinstance(message, AIMessage):
            calls += message.tool_calls
    answered = [result.tool_call_id for result in results_of(context)]
    assert answered == [call["id"] for call in calls]


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=8)
@given(turn=turns(), budget=st.integers(1, 3_000), oversized=st.sampled_from(["error", "clip"]))
def test_any_turn_fits_or_its_floors_do(
    turn: list[BaseMessage], budget: int, oversized: str
) -> None:
    pipeline = new_pipeline(budget, oversized_message=oversized)
    try:
        context = pipeline.assemble(turn, **SCOPE)
    except BudgetTooSmallError as error:
        check_floors(error, turn, budget, oversized)
        return

    assert context.report.total_tokens <= budget
    check_adds_up(context)
    check_every_call_is_answered(context)
    question = turn[0].content
    if oversized == "error" and isinstance(question, str):
        human = next(message for message in context.messages if isinstance(message, HumanMessage))
        assert human.text.endswith(question), "never cut without being told to"


# The system prompt


PROFILE: Any = {"max_input_tokens": 1_000}
WITHIN_SHARE = "rule " * 249
OVER_SHARE = "rule " * 260
"""More than a quarter of a window of 1,000 tokens."""


@pytest.fixture
def small_model() -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o", api_key="not-used", profile=PROFILE)


def test_a_system_prompt_over_its_share_of_the_window_is_an_error(small_model: ChatOpenAI) -> None:
    pipeline = ContextPipeline(system_prompt=OVER_SHARE, model=small_model, store=InMemoryStore())

    with pytest.raises(
        SystemPromptTooLargeError, match="25% of the model's window of 1,000 tokens"
    ) as raised:
        pipeline.assemble("Hello", **SCOPE)

    assert raised.value.budget_tokens == 250
    assert raised.value.floors["system prompt"] > 250
    assert "max_system_share" in str(raised.value)


def test_a_system_prompt_may_fill_its_share_of_the_window(small_model: ChatOpenAI) -> None:
    pipeline = ContextPipeline(system_prompt=WITHIN_SHARE, model=small_model, store=InMemoryStore())

    context = pipeline.assemble("Hello", **SCOPE)

    assert context.report.layer("L0").used_tokens == 250


def test_a_window_of_the_settings_has_the_same_share() -> None:
    pipeline = ContextPipeline(
        {"window_tokens": 1_000}, system_prompt=OVER_SHARE, store=InMemoryStore()
    )

    with pytest.raises(SystemPromptTooLargeError):
        pipeline.assemble("Hello", **SCOPE)


def test_settings_allow_a_system_prompt_a_larger_share() -> None:
    pipeline = ContextPipeline(
        {"window_tokens": 1_000}, system_prompt=OVER_SHARE, store=InMemoryStore()
    )

    context = pipeline.assemble("Hello", settings={"max_system_share": 0.5}, **SCOPE)

    assert context.messages[0].text


def test_where_there_is_no_window_a_system_prompt_has_no_share() -> None:
    pipeline = ContextPipeline(
        {"max_context_tokens": 300}, system_prompt=OVER_SHARE, store=InMemoryStore()
    )

    assert pipeline.assemble("Hello", **SCOPE).report.total_tokens <= 300
