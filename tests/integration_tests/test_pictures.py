"""Pictures and other blocks that cannot be shown in part.

The newest stay whole, the oldest give way, texts stay.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langgraph.store.memory import InMemoryStore
from PIL import Image

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.providers import OPENAI
from tests.cases import few_are_quick

SCOPE = {"user_id": "ada", "conversation_id": "screen"}
ROUNDS = {8_000: 25, 16_000: 40, 32_000: 60}
"""Rounds of a turn with a picture each, by budget: more than fit together."""


@cache
def png(width: int = 1_024, height: int = 768) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


@cache
def noise(size: int) -> str:
    return base64.b64encode(Random(size).randbytes(size)).decode()


URL = f"data:image/png;base64,{png()}"
SCREEN = {"type": "computer_screenshot", "image_url": URL}
PICTURES: dict[str, Any] = {
    "image_url with bytes": {"type": "image_url", "image_url": {"url": URL}},
    "image_url with an address": {
        "type": "image_url",
        "image_url": {"url": "https://example.org/screen.png"},
    },
    "image with bytes": {"type": "image", "base64": png(), "mime_type": "image/png"},
    "image with an address": {"type": "image", "url": "https://example.org/screen.png"},
    "image with an id": {"type": "image", "file_id": "file-1"},
    "image of Anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": png()},
    },
    "image of Anthropic with an id": {
        "type": "image",
        "source": {"type": "file", "file_id": "file-1"},
    },
    "input_image with bytes": {"type": "input_image", "image_url": URL},
    "input_image with an id": {"type": "input_image", "file_id": "file-1"},
    "computer_screenshot": SCREEN,
    "computer_call_output": {
        "type": "non_standard",
        "value": {"type": "computer_call_output", "call_id": "c", "output": SCREEN},
    },
}
OTHER_MEDIA: dict[str, Any] = {
    "a PDF": {"type": "file", "base64": noise(20_000), "mime_type": "application/pdf"},
    "a PDF of OpenAI": {
        "type": "file",
        "file": {
            "file_data": f"data:application/pdf;base64,{noise(20_000)}",
            "filename": "rent.pdf",
        },
    },
    "a PDF of Anthropic": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": noise(20_000)},
    },
    "a sound": {"type": "audio", "base64": noise(100_000), "mime_type": "audio/wav"},
    "a sound of OpenAI": {
        "type": "input_audio",
        "input_audio": {"data": noise(100_000), "format": "wav"},
    },
}
MEDIA = PICTURES | OTHER_MEDIA


ANY_FORM = replace(OPENAI, media_forms=None)
"""OpenAI's rules, but that every medium is read in any form, and in the result of a tool."""


def new_pipeline(budget: int, **changes: Any) -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": budget, "learn": False, **changes},
        model="gpt-4o",
        provider=ANY_FORM,
        system_prompt="You operate a screen.",
        store=InMemoryStore(),
    )


def round_with(number: int, *blocks: Any) -> list[BaseMessage]:
    """A click, and what the screen shows then."""
    call = {"name": "click", "args": {"x": number}, "id": f"call-{number}"}
    content = [{"type": "text", "text": f"Screen {number}"}, *blocks]
    return [AIMessage("", tool_calls=[call]), ToolMessage(content, tool_call_id=f"call-{number}")]


def results_of(messages: Sequence[BaseMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def kinds_of(message: BaseMessage) -> list[str]:
    """The types of a message's blocks."""
    return [block["type"] for block in message.content if isinstance(block, dict)]


def text_of(context: AssembledContext) -> str:
    return "\n".join(message.text for message in context.messages)


def check_fits(pipeline: ContextPipeline, context: AssembledContext, budget: int) -> None:
    counted = pipeline.token_counter.count_messages(context.messages)
    assert counted == context.report.total_tokens <= budget


def check_has(context: AssembledContext, *texts: str) -> None:
    prompt = text_of(context)
    assert [text for text in texts if text not in prompt] == []


# An agent that looks at a screen


class Turn(NamedTuple):
    """The prompts of a turn in which each round has the same block."""

    block: Any
    budget: int
    pipeline: ContextPipeline
    contexts: list[AssembledContext]


def turn_with(block: Any, budget: int) -> Turn:
    pipeline = new_pipeline(budget)
    messages: list[BaseMessage] = [HumanMessage("Book the flight.")]
    contexts = []
    for number in range(ROUNDS[budget]):
        messages += round_with(number, block)
        contexts.append(pipeline.assemble(messages, **SCOPE))
    return Turn(block, budget, pipeline, contexts)


QUICK_FORMS = ["image_url with bytes", "image with an address"]
SLOW_FORMS = [form for form in MEDIA if form not in QUICK_FORMS]
FORMS_AND_BUDGETS = [
    *((form, 8_000) for form in QUICK_FORMS),
    *(pytest.param((form, 8_000), marks=pytest.mark.slow) for form in SLOW_FORMS),
    pytest.param(("image_url with bytes", 16_000), marks=pytest.mark.slow),
    pytest.param(("image_url with bytes", 32_000), marks=pytest.mark.slow),
    pytest.param(("image with an address", 16_000), marks=pytest.mark.slow),
    pytest.param(("image with an address", 32_000), marks=pytest.mark.slow),
]
"""Every form at the smallest budget, two of them at every budget."""


def form_and_budget(param: tuple[str, int]) -> str:
    form, budget = param
    return f"{form} at {budget}"


@pytest.fixture(scope="module", params=FORMS_AND_BUDGETS, ids=form_and_budget)
def turn(request: pytest.FixtureRequest) -> Turn:
    form, budget = request.param
    return turn_with(MEDIA[form], budget)


@pytest.mark.slow
def test_every_round_of_a_turn_sees_its_newest_picture(turn: Turn) -> None:
    newest = [seen_in(context.messages[-1].content[-1]) for context in turn.contexts]

    assert newest == [seen_in(turn.block)] * len(newest)


def seen_in(block: Any) -> Any:
    """What a model sees of a block: of a screen its address, else the block."""
    if block.get("type") == "non_standard":
        block = block["value"]["output"]
    address = block.get("image_url")
    return address["url"] if isinstance(address, dict) else address or block


@pytest.mark.slow
def test_every_prompt_of_a_turn_with_pictures_fits(turn: Turn) -> None:
    for context in turn.contexts:
        check_fits(turn.pipeline, context, turn.budget)


class TestPicturesGiveWay:
    """In a turn with a picture each round, the oldest are left out."""

    @pytest.fixture(scope="class", params=ROUNDS)
    @classmethod
    def rewritten(cls, request: pytest.FixtureRequest) -> list[bool]:
        """Whether a prompt begins otherwise than the one before."""
        contexts = turn_with(PICTURES["image_url with bytes"], request.param).contexts
        return [not begins_with(new, old) for old, new in pairwise(contexts)]

    @pytest.mark.slow
    def test_several_do_at_once(self, rewritten: list[bool]) -> None:
        rounds = len(rewritten) + 1
        assert 0 < rewritten.count(True) <= rounds / 5

    @pytest.mark.slow
    def test_never_in_two_rounds_after_each_other(self, rewritten: list[bool]) -> None:
        assert (True, True) not in pairwise(rewritten)


def begins_with(context: AssembledContext, before: AssembledContext) -> bool:
    contents = [message.content for message in context.messages]
    beginning = [message.content for message in before.messages]
    return contents[: len(beginning)] == beginning


class TestOlderPictures:
    @pytest.fixture(scope="class")
    @classmethod
    def context(cls) -> AssembledContext:
        return turn_with(PICTURES["image with bytes"], 8_000).contexts[-1]

    @pytest.mark.slow
    def test_they_are_told_in_a_line(self, context: AssembledContext) -> None:
        without_picture = results_without_picture(context)

        assert len(without_picture) > 10
        assert without_picture[0].text.startswith("Screen ")
        assert "[image left out: image/png, 2 KB" in without_picture[0].text

    @pytest.mark.slow
    def test_they_are_told_in_the_report(self, context: AssembledContext) -> None:
        shrunk = [
            item
            for item in context.report.layer("L7").items
            if item.status is Status.SHRUNK and item.reason is Reason.CLIPPED
        ]

        assert len(shrunk) == len(results_without_picture(context))


def results_without_picture(context: AssembledContext) -> list[ToolMessage]:
    return [result for result in results_of(context.messages) if kinds_of(result)[-1] == "text"]


def test_the_newest_pictures_of_parallel_calls_stay() -> None:
    rounds = [round_with(number, PICTURES["image with bytes"]) for number in range(5)]
    results = [result for _, result in rounds]
    calls = [{"name": "look", "args": {}, "id": f"call-{number}"} for number in range(5)]
    question = HumanMessage("Look.")

    context = new_pipeline(3_000).assemble(
        [question, AIMessage("", tool_calls=calls), *results], **SCOPE
    )

    last_blocks = [kinds_of(message)[-1] for message in context.messages[-5:]]
    assert last_blocks == ["text", "text", "image", "image", "image"]
    check_has(context, "Screen 0", "Screen 1", "Screen 2", "Screen 3", "Screen 4")


def test_a_result_keeps_the_last_of_its_pictures_that_fit() -> None:
    blocks = [PICTURES["image with bytes"]] * 5

    context = new_pipeline(3_000).assemble(
        [HumanMessage("Look."), *round_with(0, *blocks)], **SCOPE
    )

    assert kinds_of(context.messages[-1]) == ["text", "image", "image", "image"]
    assert context.messages[-1].text.startswith("Screen 0")


def test_a_long_text_gives_way_before_the_picture_beside_it() -> None:
    text = {"type": "text", "text": "word " * 9_000}
    picture = PICTURES["image with bytes"]

    context = new_pipeline(3_000).assemble(
        [HumanMessage("Look."), *round_with(0, text, picture)], **SCOPE
    )

    assert context.messages[-1].content[-1] == picture
    assert context.messages[-1].text.startswith("Screen 0\nword")


def picture_of_size(width: int, height: int) -> dict[str, Any]:
    """In steps of 64 pixels, so that pictures are made once for many tests."""
    data = png(width // 64 * 64, height // 64 * 64)
    return {"type": "image", "base64": data, "mime_type": "image/png"}


pictures = st.builds(picture_of_size, st.integers(64, 2_000), st.integers(64, 1_500))


@pytest.mark.slow
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    blocks=st.lists(pictures, min_size=1, max_size=30),
    words=st.integers(1, 1_200),
    budget=st.integers(2_000, 20_000),
)
def test_the_newest_picture_is_whole_whenever_it_fits(
    blocks: list[Any], words: int, budget: int
) -> None:
    pipeline = new_pipeline(budget)
    messages: list[BaseMessage] = [HumanMessage("go " * words)]
    bare_tokens = pipeline.assemble(messages, **SCOPE).report.total_tokens

    for number, block in enumerate(blocks):
        newest = round_with(number, block)
        messages += newest
        context = pipeline.assemble(messages, **SCOPE)

        check_fits(pipeline, context, budget)
        round_tokens = sum(map(pipeline.token_counter.count_message, newest))
        if bare_tokens + round_tokens <= budget:
            assert context.messages[-1].content == newest[-1].content


class Looking(GenericFakeChatModel):
    """A model that looks at the screen again and again, and keeps what it was sent."""

    seen: list[list[BaseMessage]] = []  # noqa: RUF012 - a field of a pydantic model

    def bind_tools(self, _tools: Sequence[Any], **_: Any) -> Runnable[Any, Any]:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.seen.append(messages)
        return super()._generate(messages, *args, **kwargs)


@tool
def look(number: int) -> list[dict[str, Any]]:
    """Look at the screen."""
    return [{"type": "text", "text": f"Screen {number}"}, PICTURES["image_url with bytes"]]


def call_of_look(number: int) -> AIMessage:
    call = {"name": "look", "args": {"number": number}, "id": f"c{number}"}
    return AIMessage("", tool_calls=[call])


@pytest.mark.slow
def test_an_agent_with_the_middleware_is_never_blind() -> None:
    answers = [*(call_of_look(number) for number in range(25)), AIMessage("Booked.")]
    model = Looking(messages=iter(answers), seen=[])
    agent = create_agent(model, [look], middleware=[ContextBudgetMiddleware(new_pipeline(8_000))])
    config: Any = {
        "configurable": {"user_id": "ada", "thread_id": "screen"},
        "recursion_limit": 200,
    }

    agent.invoke({"messages": [HumanMessage("Book the flight.")]}, config)

    newest = [messages[-1] for messages in model.seen]
    blocks = [result.content[-1] for result in results_of(newest)]
    assert blocks == [PICTURES["image_url with bytes"]] * 25


# Pictures in the history


PICTURE = PICTURES["image with bytes"]
every_budget = pytest.mark.parametrize("budget", [2_500, 4_000, 8_000, 16_000])


def has_picture(message: BaseMessage) -> bool:
    return not isinstance(message.content, str) and PICTURE in message.content


def shows_screen(context: AssembledContext, number: int) -> bool:
    """Whether the newest result is that of a screen, with its picture."""
    results = results_of(context.messages)
    if not results:
        return False
    return has_picture(results[-1]) and f"Screen {number}" in results[-1].text


@pytest.mark.slow
@every_budget
def test_the_newest_picture_of_earlier_turns_stays(budget: int) -> None:
    pipeline = new_pipeline(budget)
    blind = []
    for number in range(20):
        question = f"What is on screen {number}?"
        context = pipeline.assemble(question, **SCOPE)
        if number > 0 and not shows_screen(context, number - 1):
            blind.append(number)
        check_fits(pipeline, context, budget)
        answer = AIMessage("A form. " * 9)
        pipeline.add_messages(
            [HumanMessage(question), *round_with(number, PICTURE), answer], **SCOPE
        )

    assert blind == []


@pytest.mark.slow
@every_budget
def test_a_picture_of_the_user_in_every_turn_fits(budget: int) -> None:
    pipeline = new_pipeline(budget)
    for number in range(20):
        text = {"type": "text", "text": f"Here is screen {number}."}
        question = HumanMessage([text, PICTURE])
        context = pipeline.assemble([question], **SCOPE)

        assert has_picture(context.messages[-1])
        check_fits(pipeline, context, budget)
        if number > 0:
            check_has(context, f"I see screen {number - 1}.")
        pipeline.add_messages([question, AIMessage(f"I see screen {number}.")], **SCOPE)


# One block that does not fit


WORDS = "The invoice of Brandt & Sons is due in June. " * 2
LARGE: dict[str, Any] = {
    "an image": PICTURES["image of Anthropic"],
    "an image with an address": PICTURES["image_url with an address"],
    "a large PDF": {"type": "file", "base64": noise(300_000), "mime_type": "application/pdf"},
    "a large sound": {"type": "audio", "base64": noise(900_000), "mime_type": "audio/wav"},
    "a document of text": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "clause " * 30_000},
    },
    "a search result": {
        "type": "search_result",
        "source": "https://example.org",
        "title": "Rents",
        "content": [{"type": "text", "text": "rent " * 30_000}],
    },
    "JSON": {"type": "json", "json": {"values": list(range(30_000))}},
    "a type of tomorrow": {"type": "hologram", "payload": noise(300_000), "note": "It turns."},
    "a type of tomorrow with text": {
        "type": "hologram",
        "parts": [{"caption": "it turns " * 20_000}],
    },
}
OF_AN_ASSISTANT: dict[str, Any] = {
    "a drawing": {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "output_format": "png",
        "result": noise(150_000),
    },
    "a web search": {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "rent " * 30_000},
    },
    "a web search's result": {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [
            {
                "type": "web_search_result",
                "url": "https://a.example",
                "encrypted_content": noise(300_000),
            }
        ],
    },
    "thinking": {"type": "thinking", "thinking": "rent " * 30_000, "signature": "c2ln"},
}


def exchange(by: str, blocks: Sequence[Any]) -> list[BaseMessage]:
    """A question and an answer of which one has blocks besides a text."""
    content: Any = [*blocks, {"type": "text", "text": WORDS}]
    if by == "user":
        return [HumanMessage(content), AIMessage("I have read it.")]
    if by == "tool":
        call = {"name": "fetch", "args": {}, "id": "call-1"}
        return [
            HumanMessage("Fetch it."),
            AIMessage("", tool_calls=[call]),
            ToolMessage(content, tool_call_id="call-1"),
            AIMessage("I have read it."),
        ]
    return [HumanMessage("Fetch it."), AIMessage(content)]


CODE = [HumanMessage("My locker code is 4711."), AIMessage("OK")]


def ask_for_code(history: Sequence[BaseMessage], budget: int, **changes: Any) -> AssembledContext:
    """The prompt of a question after a conversation that has told a code and more."""
    pipeline = new_pipeline(budget, **changes)
    pipeline.add_messages([*CODE, *history], **SCOPE)
    context = pipeline.assemble("What is my locker code?", **SCOPE)
    check_fits(pipeline, context, budget)
    return context


every_budget_of_a_large_block = pytest.mark.parametrize(
    "budget",
    [
        pytest.param(1_000, marks=pytest.mark.slow),
        8_000,
        pytest.param(128_000, marks=pytest.mark.slow),
    ],
)
LARGE_OF_AN_ASSISTANT = LARGE | OF_AN_ASSISTANT


@every_budget_of_a_large_block
@pytest.mark.parametrize("block", few_are_quick(LARGE.values(), 3), ids=LARGE)
def test_a_large_block_of_a_user_takes_neither_text_nor_neighbours(block: Any, budget: int) -> None:
    context = ask_for_code(exchange("user", [block]), budget)

    check_has(context, "My locker code is 4711.", "I have read it.", WORDS.strip())


@every_budget_of_a_large_block
@pytest.mark.parametrize("block", few_are_quick(LARGE.values(), 3), ids=LARGE)
def test_a_large_block_of_a_tool_takes_neither_text_nor_neighbours(block: Any, budget: int) -> None:
    context = ask_for_code(exchange("tool", [block]), budget)

    check_has(context, "My locker code is 4711.", "Fetch it.", WORDS.strip())


@every_budget_of_a_large_block
@pytest.mark.parametrize(
    "block", few_are_quick(LARGE_OF_AN_ASSISTANT.values(), 4), ids=LARGE_OF_AN_ASSISTANT
)
def test_a_large_block_of_an_assistant_takes_no_text_or_neighbours(block: Any, budget: int) -> None:
    context = ask_for_code(exchange("assistant", [block]), budget)

    check_has(context, "My locker code is 4711.", "Fetch it.", WORDS.strip())


@pytest.mark.slow
def test_twelve_web_results_leave_their_text_and_their_neighbours() -> None:
    results = [{**LARGE["a search result"], "title": f"Rents in {number}"} for number in range(12)]

    context = ask_for_code(exchange("tool", results), 8_000)

    check_has(context, "4711", "Rents in 0", "rent rent", "tokens left out")


def test_a_line_tells_of_a_block_that_is_left_out() -> None:
    context = ask_for_code(exchange("user", [LARGE["a large PDF"]]), 8_000)

    check_has(context, "[file left out: application/pdf, 300 KB")


def test_the_report_tells_of_a_block_that_is_left_out() -> None:
    report = ask_for_code(exchange("user", [LARGE["a large PDF"]]), 8_000).report

    reasons: list[Reason] = []
    for layer in report.layers:
        reasons += [item.reason for item in layer.items if item.status is Status.SHRUNK]
    assert reasons == [Reason.SHORTENED]


class TestReasoningBeforeADrawing:
    """The drawing does not fit."""

    @pytest.fixture(scope="class")
    @classmethod
    def context(cls) -> AssembledContext:
        reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
        blocks = [reasoning, OF_AN_ASSISTANT["a drawing"]]
        return ask_for_code(exchange("assistant", blocks), 1_000)

    def test_it_goes_with_the_drawing(self, context: AssembledContext) -> None:
        [answer] = [
            message
            for message in context.messages
            if isinstance(message, AIMessage) and "June" in message.text
        ]

        assert set(kinds_of(answer)) == {"text"}
        assert "[image left out: image/png, 150 KB" in answer.text

    def test_that_it_goes_is_a_repair(self, context: AssembledContext) -> None:
        assert [repair.kind for repair in context.report.repairs] == ["item_id"]


class TestACallWithArgumentsOverTheBudget:
    @pytest.fixture(scope="class")
    @classmethod
    def context(cls) -> AssembledContext:
        call = {"name": "write", "args": {"text": "word " * 30_000}, "id": "call-1"}
        history = [
            HumanMessage("Write."),
            AIMessage("", tool_calls=[call]),
            ToolMessage("Written.", tool_call_id="call-1"),
            AIMessage("Done."),
        ]
        return ask_for_code(history, 8_000)

    def test_it_takes_no_neighbours(self, context: AssembledContext) -> None:
        check_has(context, "4711", "Write.", "Done.")

    def test_it_is_the_last_resort_of_the_report(self, context: AssembledContext) -> None:
        assert context.report.last_resort == ("large blocks",)


def test_an_answer_in_the_turn_with_too_large_a_block_is_clipped() -> None:
    call = {"name": "look", "args": {}, "id": "call-1"}
    text = {"type": "text", "text": "I search."}
    content: Any = [text, OF_AN_ASSISTANT["a web search's result"]]
    messages = [
        HumanMessage("Go."),
        AIMessage(content, tool_calls=[call]),
        ToolMessage("Seen.", tool_call_id="call-1"),
    ]

    context = new_pipeline(8_000).assemble(messages, **SCOPE)

    assert context.report.total_tokens <= 8_000
    check_has(context, "Go.", "I search.", "https://a.example", "Seen.")


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(st.sampled_from(sorted(LARGE)), min_size=1, max_size=6),
    by=st.sampled_from(["user", "tool", "assistant"]),
    budget=st.integers(1_000, 130_000),
    emphasis=st.sampled_from(["recall", "balanced", "cache"]),
)
def test_no_blocks_of_any_kind_take_the_text_beside_them(
    names: list[str], by: str, budget: int, emphasis: str
) -> None:
    blocks = [LARGE[name] for name in names]

    context = ask_for_code(exchange(by, blocks), budget, emphasis=emphasis)

    check_has(context, "4711", WORDS.strip())


# What has texts inside, and what the user shows

WORDED = {
    "a search result": {
        "type": "search_result",
        "source": "https://example.org",
        "title": "Ferries",
        "content": [{"type": "text", "text": "The ferry leaves at nine. " * 150}],
    },
    "a document": {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "Sail at nine. " * 250},
    },
    "JSON": {"type": "json", "json": {"ferries": list(range(400))}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few_are_quick(WORDED))
@pytest.mark.parametrize("budget", few_are_quick([8_000, 16_000]))
def test_the_newest_result_of_any_form_is_whole(name: str, budget: int) -> None:
    turn = turn_with(WORDED[name], budget)

    for number, context in enumerate(turn.contexts):
        newest = results_of(context.messages)[-1]
        assert newest.tool_call_id == f"call-{number}"
        assert WORDED[name] in newest.content
        check_fits(turn.pipeline, context, budget)


@pytest.mark.slow
@pytest.mark.parametrize("name", few_are_quick(WORDED))
def test_the_newest_result_of_an_earlier_turn_is_whole(name: str) -> None:
    pipeline = new_pipeline(8_000)
    for number in range(8):
        messages = [HumanMessage(f"Look {number}."), *round_with(number, WORDED[name])]
        pipeline.add_messages([*messages, AIMessage("I see.")], **SCOPE)

        context = pipeline.assemble("What was it?", **SCOPE)
        assert WORDED[name] in results_of(context.messages)[-1].content
        check_fits(pipeline, context, 8_000)


def test_of_many_pictures_of_the_user_the_newest_stay() -> None:
    pipeline = new_pipeline(4_000)
    numbered = [{"type": "image", "base64": png(1_000 + n, 700)} for n in range(12)]
    message = HumanMessage([{"type": "text", "text": "Compare these."}, *numbered])
    context = pipeline.assemble(message, **SCOPE)

    content = context.messages[-1].content
    assert content[0] == {"type": "text", "text": "Compare these."}
    pictures = [block for block in content if block["type"] == "image"]
    assert len(pictures) > 2
    assert pictures == numbered[-len(pictures) :]
    assert "[image left out: " in context.messages[-1].text
    check_fits(pipeline, context, 4_000)
