"""Pictures and other blocks that cannot be shown in part.

The newest stay whole, the oldest give way, texts stay.
"""

import base64
import io
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

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

SCOPE = {"user_id": "ada", "conversation_id": "screen"}
STEPS = {8_000: 25, 16_000: 40, 32_000: 60}
"""Steps of a turn with a picture each, by budget: more than fit together."""


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
MANY_STEPS = ("image_url with bytes", "image with an address")
"""Forms that are tried at every budget; the others at the smallest one."""


def pipeline(budget: int, **changes: Any) -> ContextPipeline:
    given_settings = {"max_context_tokens": budget, "learn": False, **changes}
    return ContextPipeline(
        given_settings, model="gpt-4o", system_prompt="You operate a screen.", store=InMemoryStore()
    )


def step(number: int, *blocks: Any) -> list[BaseMessage]:
    call = {"name": "click", "args": {"x": number}, "id": f"call-{number}"}
    shown = [{"type": "text", "text": f"Screen {number}"}, *blocks]
    return [AIMessage("", tool_calls=[call]), ToolMessage(shown, tool_call_id=f"call-{number}")]


def fits(made: ContextPipeline, context: AssembledContext, budget: int) -> bool:
    counted = made.token_counter.count_messages(context.messages)
    return counted == context.report.total_tokens <= budget


def said_in(context: AssembledContext) -> str:
    return "\n".join(message.text for message in context.messages)


# An agent that looks at a screen


def looked_at(made: ContextPipeline, block: Any, steps: int) -> list[AssembledContext]:
    """The prompts of a turn with so many steps, each with a picture."""
    turn: list[BaseMessage] = [HumanMessage("Book the flight.")]
    contexts = []
    for number in range(steps):
        turn += step(number, block)
        contexts.append(made.assemble(turn, **SCOPE))
    return contexts


@pytest.mark.parametrize(
    ("form", "budget"),
    [
        *((form, 8_000) for form in MEDIA),
        *(
            pytest.param(form, budget, marks=pytest.mark.slow)
            for form in MANY_STEPS
            for budget in (16_000, 32_000)
        ),
    ],
)
def test_every_step_of_a_turn_sees_its_newest_picture(form: str, budget: int) -> None:
    made = pipeline(budget)
    contexts = looked_at(made, MEDIA[form], STEPS[budget])
    newest = [context.messages[-1].content[-1] for context in contexts]
    assert [number for number, block in enumerate(newest) if block != MEDIA[form]] == []
    assert all(fits(made, context, budget) for context in contexts)


def begins_with(context: AssembledContext, before: AssembledContext) -> bool:
    beginning = context.messages[: len(before.messages)]
    return [message.content for message in beginning] == [
        message.content for message in before.messages
    ]


@pytest.mark.parametrize("budget", STEPS)
def test_pictures_give_way_several_at_once(budget: int) -> None:
    contexts = looked_at(pipeline(budget), PICTURES["image_url with bytes"], STEPS[budget])
    grown = [begins_with(new, old) for old, new in pairwise(contexts)]
    rewritten = grown.count(False)
    assert 0 < rewritten <= STEPS[budget] / 5
    assert "\0\0" not in "".join("." if same else "\0" for same in grown), "never twice in a row"


def test_older_pictures_are_told_in_a_line_and_in_the_report() -> None:
    context = looked_at(pipeline(8_000), PICTURES["image with bytes"], 25)[-1]
    results = [message for message in context.messages if isinstance(message, ToolMessage)]
    shown = [message.text for message in results if message.content[-1]["type"] == "text"]
    assert len(shown) > 10
    assert shown[0].startswith("Screen ")
    assert "[image left out: image/png, 2 KB" in shown[0]
    items = context.report.layer("L7").items
    clipped = [
        item for item in items if (item.status, item.reason) == (Status.SHRUNK, Reason.CLIPPED)
    ]
    assert len(clipped) == len(shown)


def test_the_newest_pictures_of_parallel_calls_stay() -> None:
    calls = [{"name": "look", "args": {}, "id": f"call-{number}"} for number in range(5)]
    results = [step(number, PICTURES["image with bytes"])[1] for number in range(5)]
    context = pipeline(3_000).assemble(
        [HumanMessage("Look."), AIMessage("", tool_calls=calls), *results], **SCOPE
    )
    kinds = [message.content[1]["type"] for message in context.messages[-5:]]
    assert kinds == ["text", "text", "image", "image", "image"]
    assert all(f"Screen {number}" in said_in(context) for number in range(5))


def test_a_result_keeps_the_last_of_its_pictures_that_fit() -> None:
    blocks = [PICTURES["image with bytes"]] * 5
    context = pipeline(3_000).assemble([HumanMessage("Look."), *step(0, *blocks)], **SCOPE)
    kinds = [block["type"] for block in context.messages[-1].content]
    assert kinds == ["text", "image", "image"]
    assert context.messages[-1].text.startswith("Screen 0")


def test_a_long_text_gives_way_before_the_picture_beside_it() -> None:
    turn = [
        HumanMessage("Look."),
        *step(0, {"type": "text", "text": "word " * 9_000}, PICTURES["image with bytes"]),
    ]
    context = pipeline(3_000).assemble(turn, **SCOPE)
    assert context.messages[-1].content[-1] == PICTURES["image with bytes"]
    assert context.messages[-1].text.startswith("Screen 0\nword")


SIZES = st.tuples(st.integers(64, 2_000), st.integers(64, 1_500))


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=30),
    words=st.integers(1, 1_200),
    budget=st.integers(2_000, 20_000),
)
def test_the_newest_picture_is_whole_whenever_it_fits(
    sizes: list[Any], words: int, budget: int
) -> None:
    made = pipeline(budget)
    turn: list[BaseMessage] = [HumanMessage("go " * words)]
    bare_tokens = made.assemble(turn, **SCOPE).report.total_tokens
    for number, (width, height) in enumerate(sizes):
        block = {
            "type": "image",
            "base64": png(width // 64 * 64, height // 64 * 64),
            "mime_type": "image/png",
        }
        newest = step(number, block)
        turn += newest
        context = made.assemble(turn, **SCOPE)
        assert fits(made, context, budget)
        step_tokens = sum(map(made.token_counter.count_message, newest))
        if bare_tokens + step_tokens <= budget:
            assert context.messages[-1].content == newest[-1].content


class _Looking(GenericFakeChatModel):
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


def test_an_agent_with_the_middleware_is_never_blind() -> None:
    calls = [
        AIMessage("", tool_calls=[{"name": "look", "args": {"number": n}, "id": f"c{n}"}])
        for n in range(25)
    ]
    model = _Looking(messages=iter([*calls, AIMessage("Booked.")]), seen=[])
    agent = create_agent(model, [look], middleware=[ContextBudgetMiddleware(pipeline(8_000))])
    config: Any = {
        "configurable": {"user_id": "ada", "thread_id": "screen"},
        "recursion_limit": 200,
    }
    agent.invoke({"messages": [HumanMessage("Book the flight.")]}, config)
    results = [messages[-1] for messages in model.seen if isinstance(messages[-1], ToolMessage)]
    assert [message.content[-1] for message in results] == [PICTURES["image_url with bytes"]] * 25


# Pictures in the history


def has_picture(message: BaseMessage) -> bool:
    return not isinstance(message.content, str) and PICTURES["image with bytes"] in message.content


@pytest.mark.parametrize("budget", [2_500, 4_000, 8_000, 16_000])
def test_the_newest_picture_of_earlier_turns_stays(budget: int) -> None:
    made = pipeline(budget)
    blind = []
    for number in range(20):
        context = made.assemble(f"What is on screen {number}?", **SCOPE)
        results = [message for message in context.messages if isinstance(message, ToolMessage)]
        if number and not (
            results and has_picture(results[-1]) and f"Screen {number - 1}" in results[-1].text
        ):
            blind.append(number)
        assert fits(made, context, budget)
        asked = HumanMessage(f"What is on screen {number}?")
        made.add_messages(
            [asked, *step(number, PICTURES["image with bytes"]), AIMessage("A form. " * 9)], **SCOPE
        )
    assert blind == []


@pytest.mark.parametrize("budget", [2_500, 4_000, 8_000, 16_000])
def test_a_picture_of_the_user_in_every_turn_fits(budget: int) -> None:
    made = pipeline(budget)
    for number in range(20):
        block = {"type": "text", "text": f"Here is screen {number}."}
        question = HumanMessage([block, PICTURES["image with bytes"]])
        context = made.assemble([question], **SCOPE)
        assert has_picture(context.messages[-1])
        assert fits(made, context, budget)
        made.add_messages([question, AIMessage(f"I see screen {number}.")], **SCOPE)
        if number:
            assert f"I see screen {number - 1}." in said_in(context)


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
        asked = [HumanMessage("Fetch it."), AIMessage("", tool_calls=[call])]
        return [*asked, ToolMessage(content, tool_call_id="call-1"), AIMessage("I have read it.")]
    return [HumanMessage("Fetch it."), AIMessage(content)]


def asked_after(budget: int, by: str, blocks: Sequence[Any], **changes: Any) -> AssembledContext:
    made = pipeline(budget, **changes)
    said = [HumanMessage("My locker code is 4711."), AIMessage("OK"), *exchange(by, blocks)]
    made.add_messages(said, **SCOPE)
    context = made.assemble("What is my locker code?", **SCOPE)
    assert fits(made, context, budget)
    return context


CASES = [
    *(("user", name) for name in LARGE),
    *(("tool", name) for name in LARGE),
    *(("assistant", name) for name in LARGE | OF_AN_ASSISTANT),
]


@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(1_000, marks=pytest.mark.slow),
        8_000,
        pytest.param(128_000, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("by", "name"), CASES)
def test_one_large_block_takes_neither_text_nor_neighbours(by: str, name: str, budget: int) -> None:
    context = asked_after(budget, by, [(LARGE | OF_AN_ASSISTANT)[name]])
    said = said_in(context)
    neighbours = [
        "My locker code is 4711.",
        "Fetch it." if by != "user" else "I have read it.",
        WORDS.strip(),
    ]
    assert [text for text in neighbours if text not in said] == []


def test_twelve_web_results_leave_their_text_and_their_neighbours() -> None:
    results = [{**LARGE["a search result"], "title": f"Rents in {number}"} for number in range(12)]
    context = asked_after(8_000, "tool", results)
    said = said_in(context)
    assert [
        text for text in ("4711", "Rents in 0", "rent rent", "tokens left out") if text not in said
    ] == []


def test_a_line_tells_of_a_block_that_is_left_out() -> None:
    context = asked_after(8_000, "user", [LARGE["a large PDF"]])
    assert "[file left out: application/pdf, 300 KB" in said_in(context)
    items = [item for layer in context.report.layers for item in layer.items]
    assert [item.reason for item in items if item.status is Status.SHRUNK] == [Reason.SHORTENED]


def test_reasoning_goes_with_the_item_that_it_led_to() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    context = asked_after(1_000, "assistant", [reasoning, OF_AN_ASSISTANT["a drawing"]])
    [answer] = [
        message
        for message in context.messages
        if isinstance(message, AIMessage) and "June" in message.text
    ]
    assert {block["type"] for block in answer.content} == {"text"}
    assert "[image left out: image/png, 150 KB" in answer.text
    assert [repair.kind for repair in context.report.repairs] == ["item_id"]


def test_a_call_with_arguments_over_the_budget_takes_no_neighbours() -> None:
    call = {"name": "write", "args": {"text": "word " * 30_000}, "id": "call-1"}
    made = pipeline(8_000)
    wrote = [AIMessage("", tool_calls=[call]), ToolMessage("Written.", tool_call_id="call-1")]
    said = [
        HumanMessage("My locker code is 4711."),
        AIMessage("OK"),
        HumanMessage("Write."),
        *wrote,
        AIMessage("Done."),
    ]
    made.add_messages(said, **SCOPE)
    context = made.assemble("What is my locker code?", **SCOPE)
    assert fits(made, context, 8_000)
    assert [text for text in ("4711", "Write.", "Done.") if text not in said_in(context)] == []
    assert context.report.last_resort == ("large blocks",)


def test_an_answer_in_the_turn_with_a_block_over_the_budget_is_clipped() -> None:
    call = {"name": "look", "args": {}, "id": "call-1"}
    content: Any = [{"type": "text", "text": "I search."}, OF_AN_ASSISTANT["a web search's result"]]
    turn = [
        HumanMessage("Go."),
        AIMessage(content, tool_calls=[call]),
        ToolMessage("Seen.", tool_call_id="call-1"),
    ]
    context = pipeline(8_000).assemble(turn, **SCOPE)
    assert context.report.total_tokens <= 8_000
    assert [
        text
        for text in ("Go.", "I search.", "https://a.example", "Seen.")
        if text not in said_in(context)
    ] == []


ANY_BLOCK = st.sampled_from(sorted(LARGE))


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(ANY_BLOCK, min_size=1, max_size=6),
    by=st.sampled_from(["user", "tool", "assistant"]),
    budget=st.integers(1_000, 130_000),
    emphasis=st.sampled_from(["balanced", "cache"]),
)
def test_no_blocks_of_any_kind_take_the_text_beside_them(
    names: list[str], by: str, budget: int, emphasis: str
) -> None:
    context = asked_after(budget, by, [LARGE[name] for name in names], emphasis=emphasis)
    assert [text for text in ("4711", WORDS.strip()) if text not in said_in(context)] == []
