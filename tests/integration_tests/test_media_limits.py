"""Media beyond what a provider takes in one request give way, the oldest first, and are told."""

import base64
import io
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from PIL import Image

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedChatMessageHistory,
    ChromaStore,
    ContextPipeline,
    ContextReport,
    create_recall_tool,
)
from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.providers import ANTHROPIC, GOOGLE, OPENAI, within_media_limits
from langchain_ctxbudget.providers.media_rules import MEGABYTE
from tests.cases import few_are_quick
from tests.fuzz.samples import document
from tests.integration_tests.sent_by import WAYS

SCOPE = {"user_id": "ada", "conversation_id": "screen"}
RUN = {"configurable": {"user_id": "ada", "thread_id": "screen"}}
BUDGET = 600_000


@cache
def png(width: int = 640, height: int = 480, padding: int = 0) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "PNG")
    return base64.b64encode(file.getvalue() + bytes(padding)).decode()


def picture(data: str) -> dict[str, Any]:
    return {"type": "image", "base64": data, "mime_type": "image/png"}


def exchanges(blocks: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """A conversation in which a tool shows each block."""
    messages: list[BaseMessage] = []
    for number, block in enumerate(blocks):
        call = {"name": "look", "args": {"at": number}, "id": f"call-{number}"}
        content = [{"type": "text", "text": f"Screen {number}"}, block]
        messages += [
            HumanMessage(f"Look at {number}.", id=f"h{number}"),
            AIMessage("", tool_calls=[call], id=f"a{number}"),
            ToolMessage(content, tool_call_id=f"call-{number}", id=f"t{number}"),
            AIMessage(f"I see {number}.", id=f"s{number}"),
        ]
    return messages


def one_turn(blocks: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """The same as one turn of an agent."""
    messages = [it for it in exchanges(blocks) if it.id and it.id[0] in "at"]
    return [HumanMessage("Look around.", id="h"), *messages]


def shown(messages: Sequence[BaseMessage]) -> list[int]:
    """The numbers of the screens whose picture is sent: in its result, or right behind it."""
    numbers: list[int] = []
    newest = 0
    for message in messages:
        if isinstance(message, ToolMessage):
            newest = int(message.tool_call_id.removeprefix("call-"))
        if picture_in(message):
            numbers.append(newest)
    return numbers


def picture_in(message: BaseMessage) -> bool:
    kinds = [block["type"] for block in message.content if isinstance(block, dict)]
    return "image" in kinds or "image_url" in kinds


def model_of(provider: str) -> BaseChatModel:
    match provider:
        case "openai":
            return ChatOpenAI(model="gpt-4.1", api_key="x")
        case "anthropic":
            return ChatAnthropic(model="claude-opus-4-7", api_key="x")
        case _:
            return ChatGoogleGenerativeAI(model="gemini-2.5-flash", google_api_key="x")


def new_pipeline(provider: str) -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": BUDGET, "learn": False},
        model=model_of(provider),
        store=InMemoryStore(),
    )


class Case(NamedTuple):
    provider: str
    picture: Callable[[], str]
    number: int
    most: int
    """The most that may be sent of them."""


CASES = {
    "too many for Claude": Case("anthropic", png, 130, 100),
    "too heavy for Claude": Case("anthropic", lambda: png(padding=1_400_000), 120, 17),
    "too heavy for Gemini": Case("google", lambda: png(padding=1_400_000), 120, 11),
    "too heavy for OpenAI": Case("openai", lambda: png(padding=1_400_000), 120, 28),
    "more than 20 wide ones for Claude": Case("anthropic", lambda: png(2_560, 1_440), 30, 20),
}


def in_a_history(case: Case, blocks: Sequence[dict[str, Any]]) -> AssembledContext:
    pipeline = new_pipeline(case.provider)
    pipeline.add_messages(exchanges(blocks), **SCOPE)
    return pipeline.assemble("What do you see?", **SCOPE)


def in_a_turn(case: Case, blocks: Sequence[dict[str, Any]]) -> AssembledContext:
    return new_pipeline(case.provider).assemble(one_turn(blocks), **SCOPE)


@pytest.mark.slow
@pytest.mark.parametrize("way", few_are_quick([in_a_turn, in_a_history]))
@pytest.mark.parametrize("name", few_are_quick(CASES, 2))
def test_the_newest_media_that_a_provider_takes_are_sent(
    name: str, way: Callable[[Case, Sequence[dict[str, Any]]], AssembledContext]
) -> None:
    case = CASES[name]
    context = way(case, [picture(case.picture())] * case.number)

    numbers = shown(context.messages)
    assert case.most // 2 < len(numbers) <= case.most
    assert numbers == list(range(numbers[0], case.number))
    told = {repair.message_id for repair in context.report.repairs if "line" in repair.detail}
    assert told == {f"t{number}" for number in range(numbers[0])}


def test_what_is_refused_for_itself_is_a_line_and_nothing_else_changes() -> None:
    blocks = [picture(png()), picture(png(9_000, 10)), picture(png())]
    context = in_a_turn(CASES["too many for Claude"], blocks)

    assert shown(context.messages) == [0, 2]
    line = "Screen 1[image left out: image/png, "
    assert [it for it in context.messages if it.text.startswith(line) and "9000 x 10" in it.text]


def test_the_total_is_that_of_what_is_sent() -> None:
    pipeline = new_pipeline("anthropic")
    context = pipeline.assemble(one_turn([picture(png())] * 110), **SCOPE)

    counted = pipeline.token_counter.count_messages(context.messages)
    assert counted == context.report.total_tokens


@pytest.mark.slow
def test_the_beginning_changes_only_now_and_then() -> None:
    pipeline = new_pipeline("anthropic")
    firsts = set()
    for number in range(101, 125, 6):
        context = pipeline.assemble(one_turn([picture(png())] * number), **SCOPE)
        firsts.add(shown(context.messages)[0])

    assert len(firsts) <= 2


@pytest.mark.slow
def test_the_recall_tool_brings_back_what_a_line_names() -> None:
    pipeline = new_pipeline("anthropic")
    recall = create_recall_tool(pipeline, max_tokens=64)
    pipeline.add_messages(exchanges([picture(png())] * 110), **SCOPE)

    context = pipeline.assemble("And now?", tools=[recall], **SCOPE)
    [first, *_] = [it for it in context.messages if isinstance(it, ToolMessage)]
    assert first.text.endswith('640 x 480; recall "#3"]')
    answer = recall.invoke({"reference": "#3"}, RUN)
    assert answer[-1] == picture(png())


def test_without_the_tool_no_line_names_it() -> None:
    context = in_a_history(CASES["too many for Claude"], [picture(png())] * 110)

    assert "recall" not in "".join(message.text for message in context.messages)


@pytest.mark.parametrize("most_tokens", [None, BUDGET])
def test_a_chat_history_gives_what_the_provider_takes(most_tokens: int | None) -> None:
    history = BudgetedChatMessageHistory(
        "screen",
        user_id="ada",
        pipeline=new_pipeline("anthropic"),
        max_tokens=most_tokens,
    )
    history.add_messages(exchanges([picture(png())] * 110))

    numbers = shown(history.messages)
    assert 50 < len(numbers) <= 100
    assert numbers[-1] == 109


@pytest.mark.parametrize(("count", "first"), [(20, 0), (21, 5)])
def test_more_than_twenty_images_for_claude_are_small(count: int, first: int) -> None:
    sent, _ = within_media_limits(exchanges([picture(png(2_400, 8))] * count), ANTHROPIC)
    assert shown(sent)[0] == first


@pytest.mark.parametrize("profile", [ANTHROPIC, OPENAI, GOOGLE])
def test_the_newest_medium_always_stays(profile: Any) -> None:
    large = picture(png(padding=6 * MEGABYTE))
    messages = exchanges([large] * 12)

    sent, _ = within_media_limits(messages, profile)
    assert shown(sent)[-1] == 11


@pytest.mark.parametrize("kind", ["image", "audio", "video", "file"])
def test_a_medium_larger_than_a_request_is_a_line(kind: str) -> None:
    medium = {"type": kind, "base64": "A" * (20 * MEGABYTE + 4), "mime_type": f"{kind}/any"}
    message = HumanMessage([{"type": "text", "text": "Listen."}, medium], id="h1")

    [sent], repairs = within_media_limits([message], GOOGLE)

    assert sent.content[0] == {"type": "text", "text": "Listen."}
    assert "left out" in str(sent.content[1])
    assert [repair.kind for repair in repairs] == ["media"]


def test_messages_without_media_stay_the_same_objects() -> None:
    messages = exchanges([{"type": "text", "text": "nothing"}])
    sent, repairs = within_media_limits(messages, ANTHROPIC)

    assert all(one is other for one, other in zip(sent, messages, strict=True))
    assert repairs == []


# What is refused even alone needs no room


def refused_file() -> dict[str, Any]:
    return {"type": "file", "base64": document(101), "mime_type": "application/pdf"}


def refused_picture() -> dict[str, Any]:
    return picture(png(9_000, 10))


def asked_with(block: dict[str, Any]) -> list[BaseMessage]:
    """A question with a block, behind an exchange with another one."""
    content = [{"type": "text", "text": "Read it."}, block]
    return [HumanMessage(content, id="h0"), AIMessage("I have.", id="s0"), HumanMessage(content)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("budget", few_are_quick([4_000, 128_000]))
@pytest.mark.parametrize("block", few_are_quick([refused_file, refused_picture], 2))
def test_what_is_refused_alone_takes_no_room_in_the_current_message(
    block: Callable[[], dict[str, Any]], budget: int, way: str
) -> None:
    pipeline = ContextPipeline(
        {"max_context_tokens": budget, "learn": False}, model=model_of("anthropic")
    )

    sent = WAYS[way](pipeline, asked_with(block()))

    shown_by_user = [it.text for it in sent if isinstance(it, HumanMessage)]
    assert len(shown_by_user) == 2
    assert all("left out: " in text for text in shown_by_user)


def test_what_is_refused_alone_takes_no_room_in_a_result() -> None:
    pipeline = ContextPipeline({"max_context_tokens": 4_000}, model=model_of("anthropic"))

    context = pipeline.assemble(one_turn([refused_file()]), **SCOPE)

    assert "101 pages" in context.messages[-1].text
    assert [repair.message_id for repair in context.report.repairs] == ["t0"]


# What a report says of it, and what sending everything is compared with


def omitted(report: ContextReport) -> dict[str, int]:
    """What the report says to be beyond the provider's limits, with its tokens."""
    return {
        item.id: item.tokens
        for layer in report.layers
        for item in layer.items
        if item.reason is Reason.MEDIA_LIMIT and item.status is Status.OMITTED
    }


def more_omitted(report: ContextReport) -> int:
    return sum(layer.more_omitted.get(Reason.MEDIA_LIMIT, 0) for layer in report.layers)


def picture_tokens(pipeline: ContextPipeline) -> int:
    """What one more picture costs in a message."""
    messages = [HumanMessage([picture(png())] * number) for number in (1, 2)]
    one, two = map(pipeline.token_counter.count_message, messages)
    return two - one


@pytest.mark.slow
@pytest.mark.parametrize("way", [in_a_turn, in_a_history])
def test_media_beyond_the_limit_are_omitted_items_with_their_tokens(
    way: Callable[[Case, Sequence[dict[str, Any]]], AssembledContext],
) -> None:
    case = CASES["too many for Claude"]
    context = way(case, [picture(png())] * case.number)

    items = omitted(context.report)
    left_out = case.number - len(shown(context.messages))
    assert len(items) + more_omitted(context.report) == left_out > 20
    assert items["t0: image 1"] == picture_tokens(new_pipeline(case.provider))


@pytest.mark.slow
@pytest.mark.parametrize("way", few_are_quick([in_a_turn, in_a_history]))
@pytest.mark.parametrize("name", few_are_quick(CASES, 2))
def test_sending_everything_has_no_media_beyond_the_limit(
    name: str, way: Callable[[Case, Sequence[dict[str, Any]]], AssembledContext]
) -> None:
    case = CASES[name]
    stability = way(case, [picture(case.picture())] * case.number).report.stability

    # A message that stands behind a result is rounded up by itself.
    rounded = 0.02 * stability.effective_tokens
    assert stability.saved_tokens == pytest.approx(0, abs=rounded)
    assert stability.whole_effective_tokens == pytest.approx(
        stability.effective_tokens, abs=rounded
    )


def test_within_the_limit_nothing_is_omitted() -> None:
    report = in_a_history(CASES["too many for Claude"], [picture(png())] * 20).report

    assert omitted(report) == {}
    assert report.stability.whole_effective_tokens == report.stability.effective_tokens


@pytest.mark.parametrize("budget", [4_000, 128_000])
@pytest.mark.parametrize("block", [refused_file, refused_picture])
def test_what_is_refused_alone_is_no_part_of_sending_everything(
    block: Callable[[], dict[str, Any]], budget: int
) -> None:
    pipeline = ContextPipeline(
        {"max_context_tokens": budget, "learn": False}, model=model_of("anthropic")
    )
    *history, question = asked_with(block())
    pipeline.add_messages(history, **SCOPE)
    report = pipeline.assemble(question, **SCOPE).report

    assert report.stability.saved_tokens == 0
    assert sorted(omitted(report)) == [f"{name}: {block()['type']} 1" for name in ("h0", "human")]


def test_it_counts_the_tokens_of_what_is_refused_alone() -> None:
    report = in_a_turn(CASES["too many for Claude"], [refused_file()]).report

    assert omitted(report)["t0: file 1"] > 100 * 1_000
    assert report.total_tokens < 200


def test_an_explanation_of_a_medium_names_the_limit() -> None:
    report = in_a_turn(CASES["too many for Claude"], [picture(png(9_000, 10))]).report

    assert "more than it takes in one request" in report.explain("t0: image 1")


def test_a_dropped_message_takes_nothing_from_sending_everything() -> None:
    pipeline = new_pipeline("anthropic")
    pipeline.add_messages(asked_with(refused_file())[:2], **SCOPE)
    pipeline.pin("h0", preservation="drop", **SCOPE)

    stability = pipeline.assemble("What did I ask?", **SCOPE).report.stability
    assert stability.whole_effective_tokens > 20


@pytest.mark.slow
def test_a_reopened_conversation_knows_its_media(tmp_path: Path) -> None:
    with ChromaStore(tmp_path) as store:
        settings = {"max_context_tokens": BUDGET, "learn": False}
        reports = []
        for _ in range(2):
            with ContextPipeline(settings, model=model_of("anthropic"), store=store) as pipeline:
                if not reports:
                    pipeline.add_messages(exchanges([picture(png())] * 130), **SCOPE)
                reports.append(pipeline.assemble("What do you see?", **SCOPE).report)
                assert pipeline.flush(60)

    first, second = reports
    assert second.total_tokens == first.total_tokens
    assert second.stability.saved_tokens == 0
