"""Every shape of tool traffic becomes a prompt that providers accept, by rules that know nothing of this package."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
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
    ToolMessage,
)
from langchain_core.messages.function import FunctionMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from langchain_ctxbudget import AssembledContext, BudgetedChatMessageHistory, ContextPipeline
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.messages import call_ids
from tests.conftest import EVALUATION_DATA
from tests.integration_tests import strategies
from tests.integration_tests.provider_rules import (
    ANTHROPIC,
    anthropic_problems,
    check_anthropic,
    check_openai,
)
from tests.integration_tests.strict_openai_server import chat_problems, recount, responses_problems
from tests.unit_tests.test_turns import TRANSCRIPTS, ai, result

pytestmark = pytest.mark.usefixtures("offline_tiktoken")

SYSTEM_PROMPT = "You are a careful assistant."
BUDGETS = (100, 150, 256, 512, 1024, 2048, 4096, 8000)
TRACES = EVALUATION_DATA / "tau_airline.dev.jsonl.gz"
TRACE_BUDGETS = (512, 2048)

Messages = list[BaseMessage]
Body = Mapping[str, Any]
TURNS = st.tuples(st.sampled_from(["Who booked it?", "word " * 400]), TRANSCRIPTS).map(
    lambda of: [
        HumanMessage(of[0]),
        *(one for one in of[1] if not isinstance(one, HumanMessage | ChatMessage)),
    ]
)
CHAT = ChatOpenAI(model="gpt-4o", api_key="x")
APIS: Mapping[str, tuple[Any, Callable[[Body], list[str]]]] = {
    "chat completions": (CHAT, chat_problems),
    "responses": (
        ChatOpenAI(model="gpt-4o", api_key="x", use_responses_api=True),
        responses_problems,
    ),
    "responses, nothing stored": (
        ChatOpenAI(model="gpt-4o", api_key="x", output_version="responses/v1", store=False),
        responses_problems,
    ),
    "anthropic": (ANTHROPIC, anthropic_problems),
}


def wire(model: Any, messages: Sequence[BaseMessage]) -> Body:
    body: Body = json.loads(json.dumps(model._get_request_payload(list(messages))))
    return body


def problems(messages: Sequence[BaseMessage], budget: int) -> list[str]:
    found: list[str] = []
    for api, (model, judge) in APIS.items():
        body = wire(model, messages)
        told = judge(body)
        if not told and model is CHAT and (tokens := recount(body)) > budget:
            told = [f"{tokens} tokens of {budget}"]
        found += [f"{api}: {problem}" for problem in told]
    return found


def numbered(messages: Sequence[BaseMessage], prefix: str) -> Messages:
    return [
        message.model_copy(update={"id": f"{prefix}{number}"})
        for number, message in enumerate(messages)
    ]


def check_prompt(
    context: AssembledContext, pipeline: ContextPipeline, turn: Sequence[BaseMessage]
) -> None:
    """A prompt fits, is valid, and holds what it must of the current turn, a human message and what came after it."""
    assert check_openai(context.messages) == []
    assert check_anthropic(context.messages) == []
    report = context.report
    assert (
        pipeline.token_counter.count_messages(context.messages)
        == report.total_tokens
        <= report.budget_tokens
    )
    sent = {message.id for message in context.messages}
    assert turn[0].id in sent
    last = next(
        message
        for message in reversed(turn)
        if not isinstance(message, ToolMessage | FunctionMessage)
    )
    if call_ids(last):
        assert last.id in sent


class Prompts:
    def __init__(self) -> None:
        self.pipeline = ContextPipeline(
            {"learn": False}, system_prompt=SYSTEM_PROMPT, store=InMemoryStore()
        )
        self.numbers = count()

    def assemble(
        self, history: Messages, turn: Any, budget: int, **chosen: Any
    ) -> AssembledContext | None:
        scope = {"user_id": "ada", "conversation_id": f"c{next(self.numbers)}"}
        self.pipeline.add_messages(numbered(history, "m"), **scope)
        try:
            return self.pipeline.assemble(
                turn, settings={**chosen, "max_context_tokens": budget}, **scope
            )
        except BudgetTooSmallError:
            return None
        finally:
            assert self.pipeline.get_messages(**scope) == numbered(history, "m")


@pytest.fixture(scope="module")
def prompts() -> Prompts:
    return Prompts()


common = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


@settings(common, max_examples=45)
@given(transcript=TRANSCRIPTS, turn=TURNS, budget=st.sampled_from(BUDGETS))
def test_any_tool_traffic_becomes_a_prompt_that_providers_accept(
    prompts: Prompts, transcript: Messages, turn: Messages, budget: int
) -> None:
    turn = numbered(turn, "t")
    if context := prompts.assemble(transcript, turn, budget):
        check_prompt(context, prompts.pipeline, turn)


def usual(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, ToolMessage) or isinstance(message.content, str):
        return message
    texts = [
        block for block in message.content if isinstance(block, str) or block["type"] != "image_url"
    ]
    return message.model_copy(update={"content": texts})


def usual_turn(turn: Any) -> Any:
    return [*map(usual, turn)] if isinstance(turn, list) else turn


CASES = st.tuples(
    TRANSCRIPTS, TURNS.map(lambda turn: numbered(turn, "t")), st.sampled_from(BUDGETS), st.just({})
)
CASES |= st.tuples(strategies.history, strategies.turns, strategies.budgets, strategies.settings)


@pytest.mark.slow
@settings(common, max_examples=400)
@given(case=CASES)
def test_any_traffic_with_any_settings_is_serialised_to_requests_that_are_accepted(
    prompts: Prompts, case: Any
) -> None:
    history, turn, budget, chosen = case
    if context := prompts.assemble([*map(usual, history)], usual_turn(turn), budget, **chosen):
        assert problems(context.messages, budget) == []


def test_a_turn_of_a_hundred_calls_becomes_a_prompt_that_providers_accept(prompts: Prompts) -> None:
    turn: Messages = [HumanMessage("Read all pages.", id="t")]
    for page in range(100):
        turn += [ai(f"call-{page}"), result(f"call-{page}", "found " * 40)]
    for budget in (512, 2048):
        context = prompts.assemble([], turn, budget)
        assert context is not None
        check_prompt(context, prompts.pipeline, turn)


# -- shapes one by one


def calling(*ids: str, text: str = "") -> AIMessage:
    return AIMessage(
        text, tool_calls=[{"name": "search", "args": {"page": 1}, "id": key} for key in ids]
    )


def found(key: str, content: Any = "Nobody.") -> ToolMessage:
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
    calls = [{"name": "search", "args": {"page": 1}, "id": "a"}] if STANDARD_CALL in blocks else []
    return AIMessage([*blocks], tool_calls=calls, response_metadata=metadata)


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
        AIMessage([OUTPUT_TEXT, FUNCTION_CALL], tool_calls=calling("a").tool_calls),
        found("a"),
    ],
    "standard content": [WHO, standard(STANDARD_TEXT)],
    "standard content that thinks": [
        WHO,
        standard(STANDARD_REASONING, STANDARD_TEXT, STANDARD_CALL),
        found("a"),
    ],
    "an id that Anthropic refuses": [
        WHO,
        calling("functions.search:0"),
        found("functions.search:0"),
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
        found("a"),
    ],
    "a text that is no block in a result": [WHO, calling("a"), found("a", ["Nobody."])],
    "keys of LangChain in a text": [
        HumanMessage([{**OUTPUT_TEXT, "index": 0}]),
        AIMessage("Nobody."),
    ],
    "an image of an assistant": [WHO, AIMessage([IMAGE])],
    "a file of an assistant that calls": [
        WHO,
        AIMessage([PDF], tool_calls=calling("a").tool_calls),
        found("a"),
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
            found("a"),
        ),
    ],
    "a custom call": [WHO, AIMessage([CUSTOM_CALL]), found("a")],
    "a custom call, listed": [WHO, CUSTOM_CALLING, found("a", [CUSTOM_OUTPUT])],
    "a custom call in standard content": [
        WHO,
        AIMessage([wrapped(CUSTOM_CALL)], tool_calls=CUSTOM_CALLING.tool_calls),
        found("a", [wrapped(CUSTOM_OUTPUT)]),
    ],
    "the result of a custom call in a human message": [
        WHO,
        CUSTOM_CALLING,
        HumanMessage([{**CUSTOM_OUTPUT, "call_id": "a"}]),
    ],
}


@pytest.mark.slow
def test_every_shape_is_accepted_in_the_history_and_as_the_current_turn(prompts: Prompts) -> None:
    for shape, messages in SHAPES.items():
        places: list[tuple[Messages, Any]] = [
            (messages, "And why?"),
            ([WHO, AIMessage("Nobody.")], messages),
        ]
        for history, turn in places[: 1 + isinstance(messages[0], HumanMessage)]:
            context = prompts.assemble(history, turn, 4_000)
            assert context is not None
            assert problems(context.messages, 4_000) == [], shape


@pytest.mark.slow
def test_an_image_in_a_result_is_accepted_where_results_may_have_images(prompts: Prompts) -> None:
    given = [WHO, calling("a"), found("a", [STANDARD_TEXT, IMAGE])]
    context = prompts.assemble(given, "And why?", 4_000)
    assert context is not None
    for api, (model, judge) in APIS.items():
        body = wire(model, context.messages)
        assert "a.png" in json.dumps(body)
        # With Chat Completions it is the caller's choice, and no worse than it was.
        reasons = [
            [told.split(":", 1)[1] for told in judge(it)] for it in (body, wire(model, given))
        ]
        assert reasons[0] == (reasons[1] if api == "chat completions" else [])


# Many more cases, and every step of real agent traces


def traces() -> list[Messages]:
    with gzip.open(TRACES, "rt", encoding="utf-8") as lines:
        return [
            convert_to_messages(json.loads(line)["messages"]) for line in islice(lines, 0, None, 3)
        ]


@pytest.mark.slow
@pytest.mark.skipif(
    not TRACES.exists(), reason="CTXBUDGET_EVALUATION_DATA names no folder with them"
)
def test_every_step_of_a_trace_becomes_a_prompt_that_providers_accept() -> None:
    """The traces of a real agent are not part of this repository; every third one is taken."""
    store = InMemoryStore()
    prompts = errors = 0
    for number, trace in enumerate(traces()):
        pipeline = ContextPipeline({"learn": False}, system_prompt=SYSTEM_PROMPT, store=store)
        scope = {"user_id": "ada", "conversation_id": f"trace {number}"}
        said = [message for message in trace if not isinstance(message, SystemMessage)]
        messages = [
            message.model_copy(update={"id": f"m{place}"}) for place, message in enumerate(said)
        ]
        start = 0
        for end in range(1, len(messages) + 1):
            if isinstance(messages[end - 1], HumanMessage):
                pipeline.add_messages(messages[start : end - 1], **scope)
                start = end - 1
            turn = messages[start:end]
            for budget in TRACE_BUDGETS:
                try:
                    context = pipeline.assemble(
                        turn, settings={"max_context_tokens": budget}, **scope
                    )
                except BudgetTooSmallError:
                    errors += 1
                    continue
                if isinstance(turn[0], HumanMessage):
                    check_prompt(context, pipeline, turn)
                prompts += 1
        assert pipeline.get_messages(**scope) == messages[:start]
    assert prompts > 50 * errors


# -- OpenAI keeps responses: a model that goes on with one reads all that is kept there, and not the
# prompt it is sen


SCOPE = {"user_id": "ada", "conversation_id": "c1"}
ANSWER: list[Any] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "text", "text": "It is 5 m long.", "id": "msg_1"},
]
SAID = [
    HumanMessage("How long is it?", id="h1"),
    AIMessage(
        ANSWER,
        id="resp_1",
        response_metadata={"id": "resp_1", "model_provider": "openai", "model": "gpt-5"},
    ),
]
ASKED = HumanMessage("And how wide?", id="h2")


def request_of(messages: list[BaseMessage]) -> dict[str, Any]:
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_previous_response_id=True)
    return model._get_request_payload(messages)


def test_the_whole_prompt_or_window_is_sent_with_the_ids_of_its_items() -> None:
    without = request_of([*SAID, ASKED])
    assert (without["previous_response_id"], len(without["input"])) == ("resp_1", 1)
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(SAID, **SCOPE)
    sent = request_of(pipeline.assemble(ASKED, **SCOPE).messages)
    assert "previous_response_id" not in sent
    assert [part.get("role", part["type"]) for part in sent["input"]] == [
        "user",
        "reasoning",
        "assistant",
        "user",
    ]
    assert [part["id"] for part in sent["input"] if "id" in part] == ["rs_1", "msg_1"]
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    assert "previous_response_id" not in request_of([*history.window(500), ASKED])


# Ids of items that come twice: a turn that was copied, an edited branch, an answer that was put
# together of two


def test_a_search_that_was_sent_before_is_left_out_and_its_words_stay() -> None:
    found: Any = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "text", "text": "5 m."},
    ]
    pipeline = ContextPipeline(store=InMemoryStore())
    for _ in range(2):
        pipeline.add_messages([HumanMessage("How long?"), AIMessage(found)], **SCOPE)
    context = pipeline.assemble(ASKED, **SCOPE)
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_responses_api=True)
    items = model._get_request_payload(context.messages)["input"]
    assert [part["type"] for part in items].count("web_search_call") == 1
    assert str(items).count("5 m.") == 2
    assert [repair.kind for repair in context.report.repairs] == ["item_id"]


def test_long_ids_of_calls_are_digests_for_openai_alone_in_history_and_turn() -> None:
    call = {"name": "look", "args": {}, "id": f"call_{'x' * 391}"}
    said = [
        HumanMessage("Look."),
        AIMessage("", tool_calls=[call]),
        ToolMessage("5 m.", tool_call_id=call["id"]),
    ]
    for model, is_short in (
        ("openai:gpt-4o", True),
        ("gemini-2.5-pro", False),
    ):  # which reads what its ids hold
        chat = ContextPipeline(model=model).conversation("c", user_id="u")
        chat.add([*said, AIMessage("It is 5 m.")])
        context = chat.assemble(said)
        ids = [key for message in context.messages for key in call_ids(message)]
        assert ids == [one.tool_call_id for one in context.messages if isinstance(one, ToolMessage)]
        assert [len(key) <= 40 for key in ids] == [is_short] * 2
        assert [it.kind for it in context.report.repairs] == ["call_id"] * (2 if is_short else 1)


def test_halves_of_characters_are_sent_as_utf_8_can_hold_them() -> None:
    call = {"name": "read", "args": {"path": "a\udcff.txt"}, "id": "c1"}
    said = [
        HumanMessage("half \ud83d", id="h"),
        AIMessage([{"type": "text", "text": "\ude42 half"}], id="a"),
    ]
    turn = [
        HumanMessage("\udfff", id="t"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("\ud800", tool_call_id="c1"),
    ]
    chat = ContextPipeline(system_prompt="Be kind \ud800.").conversation("c", user_id="u")
    chat.add(said)
    context = chat.assemble(turn)
    for model, problems in APIS.values():
        assert not problems(
            json.loads(json.dumps(wire(model, context.messages), ensure_ascii=False).encode())
        )
    assert [it.message_id for it in context.report.repairs if it.kind == "characters"] == [
        "",
        "h",
        "a",
        "t",
        "",
        "",
    ]
