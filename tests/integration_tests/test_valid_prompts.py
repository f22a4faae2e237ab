"""Every shape of tool traffic becomes a prompt that providers accept.

By rules that know nothing of this package.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.function import FunctionMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from langchain_ctxbudget import AssembledContext, BudgetedChatMessageHistory, ContextPipeline
from langchain_ctxbudget.content import call_ids
from langchain_ctxbudget.errors import BudgetTooSmallError
from tests.conftest import EVALUATION_DATA
from tests.doubles.providers import (
    APIS,
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    UNSTORED_RESPONSES,
    Api,
    check_anthropic,
    check_openai,
)
from tests.doubles.recount import recount
from tests.integration_tests import strategies
from tests.unit_tests.test_turns import TRANSCRIPTS, ai, result

pytestmark = pytest.mark.usefixtures("offline_tiktoken")

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
SYSTEM_PROMPT = "You are a careful assistant."
BUDGETS = (100, 150, 256, 512, 1024, 2048, 4096, 8000)
TRACES = EVALUATION_DATA / "tau_airline.dev.jsonl.gz"
TRACE_BUDGETS = (512, 2048)

Messages = list[BaseMessage]
Body = Mapping[str, Any]


def turn_of(question: str, transcript: Messages) -> Messages:
    """A question, and what models and tools say in a transcript."""
    answers = [
        message for message in transcript if not isinstance(message, HumanMessage | ChatMessage)
    ]
    return [HumanMessage(question), *answers]


TURNS = st.builds(turn_of, st.sampled_from(["Who booked it?", "word " * 400]), TRANSCRIPTS)


# -- what a prompt is judged by

TEXT_APIS = {name: api for name, api in APIS.items() if api is not GEMINI}
EVERY_API = pytest.mark.parametrize("api", TEXT_APIS.values(), ids=list(TEXT_APIS))


def problems(messages: Sequence[BaseMessage], budget: int) -> list[str]:
    """What any provider refuses in a prompt, tokens over the budget included."""
    found: list[str] = []
    for name, api in TEXT_APIS.items():
        found += [f"{name}: {problem}" for problem in api.problems(messages)]
    if not found:
        tokens = recount(CHAT.body_of(messages))
        found += [f"{tokens} tokens of {budget}"] if tokens > budget else []
    return found


def numbered(messages: Sequence[BaseMessage], prefix: str) -> Messages:
    return [
        message.model_copy(update={"id": f"{prefix}{number}"})
        for number, message in enumerate(messages)
    ]


def check_prompt(
    context: AssembledContext, pipeline: ContextPipeline, turn: Sequence[BaseMessage]
) -> None:
    """A prompt fits, is valid, and holds what it must of the current turn.

    That is a human message, and what came after it.
    """
    assert check_openai(context.messages) == []
    assert check_anthropic(context.messages) == []
    tokens = pipeline.token_counter.count_messages(context.messages)
    assert tokens == context.report.total_tokens
    assert tokens <= context.report.budget_tokens
    ids = {message.id for message in context.messages}
    assert turn[0].id in ids
    last = last_that_is_no_result(turn)
    if call_ids(last) and not has_late_result(turn):
        assert last.id in ids


def has_late_result(turn: Sequence[BaseMessage]) -> bool:
    """Whether a result answers a call before the last one, or of the history.

    The round with that result is then as new as the result.
    """
    last = last_that_is_no_result(turn)
    behind = turn[list(turn).index(last) + 1 :]
    results = [message for message in behind if isinstance(message, ToolMessage)]
    called = {call_id for message in turn for call_id in call_ids(message)}
    answered = {message.tool_call_id for message in turn if isinstance(message, ToolMessage)}
    is_of_history = not answered <= called
    return is_of_history or any(one.tool_call_id not in call_ids(last) for one in results)


def last_that_is_no_result(turn: Sequence[BaseMessage]) -> BaseMessage:
    others = [message for message in turn if not isinstance(message, ToolMessage | FunctionMessage)]
    return others[-1]


class Prompts:
    """Prompts of one pipeline, each of a conversation of its own."""

    def __init__(self) -> None:
        self.pipeline = ContextPipeline(
            {"learn": False}, system_prompt=SYSTEM_PROMPT, store=InMemoryStore()
        )
        self.numbers = count()

    def assemble(
        self, history: Messages, turn: Any, budget: int, **changes: Any
    ) -> AssembledContext | None:
        """A prompt, if the budget is not too small; what is stored stays as it is."""
        scope = {"user_id": "ada", "conversation_id": f"c{next(self.numbers)}"}
        settings = {**changes, "max_context_tokens": budget}
        self.pipeline.add_messages(numbered(history, "m"), **scope)
        try:
            return self.pipeline.assemble(turn, settings=settings, **scope)
        except BudgetTooSmallError:
            return None
        finally:
            assert self.pipeline.get_messages(**scope) == numbered(history, "m")


@pytest.fixture(scope="module")
def prompts() -> Prompts:
    return Prompts()


common = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


@settings(common, max_examples=15)
@given(transcript=TRANSCRIPTS, turn=TURNS, budget=st.sampled_from(BUDGETS))
def test_any_tool_traffic_becomes_an_accepted_prompt(
    prompts: Prompts, transcript: Messages, turn: Messages, budget: int
) -> None:
    turn = numbered(turn, "t")
    context = prompts.assemble(transcript, turn, budget)
    if context:
        check_prompt(context, prompts.pipeline, turn)


def without_images_in_results(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, ToolMessage) or isinstance(message.content, str):
        return message
    texts = [
        block for block in message.content if isinstance(block, str) or block["type"] != "image_url"
    ]
    return message.model_copy(update={"content": texts})


TOOL_TRAFFIC: st.SearchStrategy[Any] = st.tuples(
    TRANSCRIPTS, TURNS.map(lambda turn: numbered(turn, "t")), st.sampled_from(BUDGETS), st.just({})
)
ANY_TRAFFIC: st.SearchStrategy[Any] = st.tuples(
    strategies.history, strategies.turns, strategies.budgets, strategies.settings
)


@pytest.mark.slow
@settings(common, max_examples=120)
@given(traffic=TOOL_TRAFFIC | ANY_TRAFFIC)
def test_any_traffic_with_any_settings_becomes_accepted_requests(
    prompts: Prompts, traffic: Any
) -> None:
    history, turn, budget, changes = traffic
    history = list(map(without_images_in_results, history))
    if isinstance(turn, list):
        turn = list(map(without_images_in_results, turn))

    context = prompts.assemble(history, turn, budget, **changes)

    if context:
        assert problems(context.messages, budget) == []


@pytest.mark.parametrize("budget", [512, 2_048])
def test_a_turn_of_a_hundred_calls_becomes_an_accepted_prompt(
    prompts: Prompts, budget: int
) -> None:
    turn: Messages = [HumanMessage("Read all pages.", id="t")]
    for page in range(100):
        turn += [ai(f"call-{page}"), result(f"call-{page}", "found " * 40)]

    context = prompts.assemble([], turn, budget)

    assert context is not None
    check_prompt(context, prompts.pipeline, turn)


# -- shapes one by one


def search_call(key: str = "a") -> ToolCall:
    return ToolCall(name="search", args={"page": 1}, id=key)


def calling(key: str) -> AIMessage:
    return AIMessage("", tool_calls=[search_call(key)])


def answering(key: str, content: Any = "Nobody.") -> ToolMessage:
    return ToolMessage(content, tool_call_id=key)


WHO = HumanMessage("Who ordered it?")
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
TOOL_USE = {"type": "tool_use", "id": "a", "name": "search", "input": {"page": 1}}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "Nobody."}
FUNCTION_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "a",
    "name": "search",
    "arguments": '{"page": 1}',
}
FUNCTION_OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "Nobody."}
OUTPUT_TEXT = {"type": "text", "text": "Let us see.", "id": "msg_1", "annotations": []}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
CUSTOM_CALL = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "a",
    "name": "search",
    "input": "page 1",
}
CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "output": "Nobody."}
CUSTOM_CALLING = AIMessage(
    [REASONING, OUTPUT_TEXT, CUSTOM_CALL],
    tool_calls=[{"name": "search", "args": {"__arg1": "page 1"}, "id": "a"}],
)
STANDARD_TEXT = {"type": "text", "text": "Let us see."}
STANDARD_CALL = {"type": "tool_call", "id": "a", "name": "search", "args": {"page": 1}}
STANDARD_REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "reasoning": "Hm.",
    "extras": {"encrypted_content": "x"},
}
PDF = {
    "type": "file",
    "base64": "JVBERi0=",
    "mime_type": "application/pdf",
    "filename": "order.pdf",
}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png", "detail": "low"}}


def standard(*blocks: dict[str, Any]) -> AIMessage:
    metadata = {"output_version": "v1", "model_provider": "openai"}
    calls = [search_call() for block in blocks if block["type"] == "tool_call"]
    return AIMessage(list(blocks), tool_calls=calls, response_metadata=metadata)


def wrapped(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "non_standard", "value": block}


SHAPES: Mapping[str, Messages] = {
    "blocks of Anthropic": [WHO, AIMessage([THOUGHT, TOOL_USE]), HumanMessage([TOOL_RESULT])],
    "blocks of Responses": [
        WHO,
        AIMessage([REASONING, OUTPUT_TEXT, FUNCTION_CALL]),
        HumanMessage([FUNCTION_OUTPUT]),
    ],
    "blocks of Responses, listed": [
        WHO,
        AIMessage([OUTPUT_TEXT, FUNCTION_CALL], tool_calls=[search_call()]),
        answering("a"),
    ],
    "standard content": [WHO, standard(STANDARD_TEXT)],
    "standard content that thinks": [
        WHO,
        standard(STANDARD_REASONING, STANDARD_TEXT, STANDARD_CALL),
        answering("a"),
    ],
    "an id that Anthropic refuses": [
        WHO,
        calling("functions.search:0"),
        answering("functions.search:0"),
    ],
    "a file of the user": [HumanMessage([STANDARD_TEXT, PDF])],
    "a call of 2023": [
        WHO,
        AIMessage("", additional_kwargs={"function_call": {"name": "search", "arguments": "{}"}}),
    ],
    "a call that cannot be read": [
        WHO,
        AIMessage(
            "", invalid_tool_calls=[{"name": "search", "args": "{", "id": "a", "error": "cut off"}]
        ),
        answering("a"),
    ],
    "a text that is no block in a result": [WHO, calling("a"), answering("a", ["Nobody."])],
    "keys of LangChain in a text": [
        HumanMessage([{**OUTPUT_TEXT, "index": 0}]),
        AIMessage("Nobody."),
    ],
    "an image of an assistant": [WHO, AIMessage([IMAGE])],
    "a file of an assistant that calls": [
        WHO,
        AIMessage([PDF], tool_calls=[search_call()]),
        answering("a"),
    ],
    "a call of Responses twice": [
        WHO,
        *2 * (AIMessage([FUNCTION_CALL]), HumanMessage([FUNCTION_OUTPUT])),
    ],
    "an answer of Responses twice": [WHO, *2 * (AIMessage([REASONING, OUTPUT_TEXT]), WHO)],
    "a call and its reasoning twice": [
        WHO,
        *2 * (AIMessage([REASONING, OUTPUT_TEXT, FUNCTION_CALL]), HumanMessage([FUNCTION_OUTPUT])),
    ],
    "standard content twice": [
        WHO,
        *2
        * (
            standard(STANDARD_REASONING, {**STANDARD_CALL, "extras": {"item_id": "fc_1"}}),
            answering("a"),
        ),
    ],
    "a custom call": [WHO, AIMessage([CUSTOM_CALL]), answering("a")],
    "a custom call, listed": [WHO, CUSTOM_CALLING, answering("a", [CUSTOM_OUTPUT])],
    "a custom call in standard content": [
        WHO,
        AIMessage([wrapped(CUSTOM_CALL)], tool_calls=CUSTOM_CALLING.tool_calls),
        answering("a", [wrapped(CUSTOM_OUTPUT)]),
    ],
    "the result of a custom call in a human message": [
        WHO,
        CUSTOM_CALLING,
        HumanMessage([{**CUSTOM_OUTPUT, "call_id": "a"}]),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_accepted_in_the_history(prompts: Prompts, shape: str) -> None:
    context = prompts.assemble(SHAPES[shape], "And why?", 4_000)

    assert context is not None
    assert problems(context.messages, 4_000) == []


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_accepted_as_the_current_turn(prompts: Prompts, shape: str) -> None:
    context = prompts.assemble([WHO, AIMessage("Nobody.")], SHAPES[shape], 4_000)

    assert context is not None
    assert problems(context.messages, 4_000) == []


TRAFFIC_WITH_AN_IMAGE = [WHO, calling("a"), answering("a", [STANDARD_TEXT, IMAGE])]


@pytest.fixture(scope="module")
def prompt_with_an_image(prompts: Prompts) -> Messages:
    context = prompts.assemble(TRAFFIC_WITH_AN_IMAGE, "And why?", 4_000)
    assert context is not None
    return context.messages


@pytest.mark.slow
@EVERY_API
def test_an_image_in_a_result_is_sent(prompt_with_an_image: Messages, api: Api) -> None:
    assert "a.png" in json.dumps(api.body_of(prompt_with_an_image))


@pytest.mark.slow
@pytest.mark.parametrize("api", [RESPONSES, UNSTORED_RESPONSES, MESSAGES])
def test_an_image_in_a_result_is_accepted_where_it_may_be(
    prompt_with_an_image: Messages, api: Api
) -> None:
    assert api.problems(prompt_with_an_image) == []


@pytest.mark.slow
def test_with_chat_completions_an_image_in_a_result_is_no_worse(
    prompt_with_an_image: Messages,
) -> None:
    """It is the caller's choice there."""
    assert reasons_without_places(prompt_with_an_image) == reasons_without_places(
        TRAFFIC_WITH_AN_IMAGE
    )


def reasons_without_places(messages: Messages) -> list[str]:
    problems = CHAT.problems(messages)
    return [problem.split(":", 1)[1] for problem in problems]


# -- every call of real agent traces


def traces() -> Iterator[Messages]:
    """The messages of every third trace, without system messages."""
    with gzip.open(TRACES, "rt", encoding="utf-8") as lines:
        for line in islice(lines, 0, None, 3):
            messages = convert_to_messages(json.loads(line)["messages"])
            others = [message for message in messages if not isinstance(message, SystemMessage)]
            yield numbered(others, "m")


@pytest.mark.slow
@pytest.mark.skipif(
    not TRACES.exists(), reason="CTXBUDGET_EVALUATION_DATA names no folder with them"
)
def test_every_call_of_a_trace_becomes_an_accepted_prompt() -> None:
    """The traces of a real agent are not part of this repository."""
    replays = [replay_of(messages) for messages in traces()]

    prompts = sum(replay.prompts for replay in replays)
    errors = sum(replay.errors for replay in replays)
    assert prompts > 50 * errors


@dataclass
class Replay:
    """How many prompts a trace became, and how often the budget was too small."""

    prompts: int = 0
    errors: int = 0


def replay_of(messages: Messages) -> Replay:
    """Replays a trace with each of the budgets; every prompt is checked."""
    replay = Replay()
    pipeline = ContextPipeline({"learn": False}, system_prompt=SYSTEM_PROMPT, store=InMemoryStore())
    start = 0
    for end, message in enumerate(messages):
        if isinstance(message, HumanMessage):
            pipeline.add_messages(messages[start:end], **SCOPE)
            start = end
        turn = messages[start : end + 1]
        for budget in TRACE_BUDGETS:
            try:
                context = pipeline.assemble(turn, settings={"max_context_tokens": budget}, **SCOPE)
            except BudgetTooSmallError:
                replay.errors += 1
                continue
            if isinstance(turn[0], HumanMessage):
                check_prompt(context, pipeline, turn)
            replay.prompts += 1
    assert pipeline.get_messages(**SCOPE) == messages[:start]
    return replay


# -- OpenAI keeps responses
#
# A model that goes on with one reads all that is kept there, and not the prompt it is sent.


ANSWER: list[Any] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "text", "text": "It is 5 m long.", "id": "msg_1"},
]
EXCHANGE = [
    HumanMessage("How long is it?", id="h1"),
    AIMessage(
        ANSWER,
        id="resp_1",
        response_metadata={"id": "resp_1", "model_provider": "openai", "model": "gpt-5"},
    ),
]
NEXT_QUESTION = HumanMessage("And how wide?", id="h2")


def request_with_previous_response(messages: list[BaseMessage]) -> dict[str, Any]:
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_previous_response_id=True)
    return model._get_request_payload(messages)


@pytest.fixture
def kept() -> ContextPipeline:
    """A pipeline with an exchange that OpenAI keeps."""
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(EXCHANGE, **SCOPE)
    return pipeline


def test_without_a_pipeline_only_the_new_message_is_sent() -> None:
    request = request_with_previous_response([*EXCHANGE, NEXT_QUESTION])

    assert request["previous_response_id"] == "resp_1"
    assert len(request["input"]) == 1


def test_a_prompt_is_sent_whole(kept: ContextPipeline) -> None:
    request = request_with_previous_response(kept.assemble(NEXT_QUESTION, **SCOPE).messages)

    assert "previous_response_id" not in request
    assert [item.get("role", item["type"]) for item in request["input"]] == [
        "user",
        "reasoning",
        "assistant",
        "user",
    ]


def test_a_prompt_is_sent_with_the_ids_of_its_items(kept: ContextPipeline) -> None:
    request = request_with_previous_response(kept.assemble(NEXT_QUESTION, **SCOPE).messages)

    assert [item["id"] for item in request["input"] if "id" in item] == ["rs_1", "msg_1"]


def test_a_window_is_sent_whole(kept: ContextPipeline) -> None:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=kept)

    request = request_with_previous_response([*history.window(500), NEXT_QUESTION])

    assert "previous_response_id" not in request


# -- ids of items that come twice
#
# A turn that was copied, an edited branch, an answer that was put together of two.


@pytest.fixture
def prompt_with_a_search_twice() -> AssembledContext:
    answer: Any = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "text", "text": "5 m."},
    ]
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages([HumanMessage("How long?"), AIMessage(answer)], **SCOPE)
    pipeline.add_messages([HumanMessage("How long?"), AIMessage(answer)], **SCOPE)
    return pipeline.assemble(NEXT_QUESTION, **SCOPE)


def test_a_search_that_was_sent_before_is_left_out(
    prompt_with_a_search_twice: AssembledContext,
) -> None:
    items = RESPONSES.body_of(prompt_with_a_search_twice.messages)["input"]

    assert [item["type"] for item in items].count("web_search_call") == 1
    assert [repair.kind for repair in prompt_with_a_search_twice.report.repairs] == ["item_id"]


def test_the_words_of_a_search_that_is_left_out_stay(
    prompt_with_a_search_twice: AssembledContext,
) -> None:
    items = RESPONSES.body_of(prompt_with_a_search_twice.messages)["input"]

    assert str(items).count("5 m.") == 2


# -- long ids of calls

LONG_ID = f"call_{'x' * 391}"


def prompt_with_a_long_id(model: str) -> AssembledContext:
    """A prompt with a call and its result twice, in its history and in its turn."""
    turn = [
        HumanMessage("Look."),
        AIMessage("", tool_calls=[ToolCall(name="look", args={}, id=LONG_ID)]),
        ToolMessage("5 m.", tool_call_id=LONG_ID),
    ]
    conversation = ContextPipeline(model=model).conversation("c", user_id="u")
    conversation.add([*turn, AIMessage("It is 5 m.")])
    return conversation.assemble(turn)


def ids_of_calls(context: AssembledContext) -> list[str]:
    ids: list[str] = []
    for message in context.messages:
        ids += call_ids(message)
    return ids


def ids_of_results(context: AssembledContext) -> list[str]:
    return [
        message.tool_call_id for message in context.messages if isinstance(message, ToolMessage)
    ]


@pytest.mark.parametrize("model", ["openai:gpt-4o", "gemini-2.5-pro"])
def test_calls_and_results_have_the_same_ids(model: str) -> None:
    context = prompt_with_a_long_id(model)

    assert ids_of_calls(context) == ids_of_results(context)
    assert len(ids_of_calls(context)) == 2


def test_long_ids_of_calls_are_digests_for_openai() -> None:
    context = prompt_with_a_long_id("openai:gpt-4o")

    assert max(map(len, ids_of_calls(context))) <= 40
    assert [repair.kind for repair in context.report.repairs] == ["call_id", "call_id"]


def test_ids_of_calls_stay_long_for_gemini() -> None:
    """It reads what its ids hold."""
    context = prompt_with_a_long_id("gemini-2.5-pro")

    assert min(map(len, ids_of_calls(context))) > 40
    assert [repair.kind for repair in context.report.repairs] == ["call_id"]


# -- names of tools


@pytest.mark.parametrize("name", ["a.b", "web search", "x" * 70, "1st", "-x", "田中"])
@pytest.mark.parametrize("api", [CHAT, MESSAGES, GEMINI], ids=lambda api: api.name)
def test_calls_and_results_go_by_a_name_that_is_accepted(api: Api, name: str) -> None:
    call = ToolCall(name=name, args={}, id="a")
    turn = [WHO, AIMessage("", tool_calls=[call]), ToolMessage("5 m.", name=name, tool_call_id="a")]
    context = ContextPipeline(model=api.model).conversation("c", user_id="u").assemble(turn)

    assert api.problems(context.messages) == []


# -- halves of characters


@pytest.fixture(scope="module")
def prompt_with_halves() -> AssembledContext:
    """A prompt with halves of surrogate pairs in its system prompt, its history and its turn."""
    conversation = ContextPipeline(system_prompt="Be kind \ud800.").conversation("c", user_id="u")
    history = [
        HumanMessage("half \ud83d", id="h"),
        AIMessage([{"type": "text", "text": "\ude42 half"}], id="a"),
    ]
    call = ToolCall(name="read", args={"path": "a\udcff.txt"}, id="c1")
    turn = [
        HumanMessage("\udfff", id="t"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("\ud800", tool_call_id="c1"),
    ]
    conversation.add(history)
    return conversation.assemble(turn)


@EVERY_API
def test_halves_of_characters_are_sent_as_utf_8_can_hold_them(
    prompt_with_halves: AssembledContext, api: Api
) -> None:
    body = api.body_of(prompt_with_halves.messages)

    sent = json.dumps(body, ensure_ascii=False).encode()

    assert api.problems_of(json.loads(sent)) == []


def test_the_report_names_messages_with_halves_of_characters(
    prompt_with_halves: AssembledContext,
) -> None:
    repairs = prompt_with_halves.report.repairs

    assert [repair.message_id for repair in repairs if repair.kind == "characters"] == [
        "",
        "h",
        "a",
        "t",
        "",
        "",
    ]
