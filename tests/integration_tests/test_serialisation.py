"""What is assembled goes through the request builders of `langchain-openai` and `langchain-anthropic`.

What they put on the wire is judged: OpenAI's by the rules of the strict server, Anthropic's by those below, which are
written on the JSON of a request, too: "`tool_use` ids were found without `tool_result` blocks immediately after",
"unexpected `tool_use_id` found in `tool_result` blocks", "`tool_use` ids must be unique", "text content blocks must be
non-empty", "first message must use the 'user' role", "'image' blocks are not permitted within assistant turns".
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import BudgetTooSmallError
from tests.integration_tests import strategies
from tests.integration_tests.strict_openai_server import chat_problems, recount, responses_problems
from tests.integration_tests.test_valid_prompts import BUDGETS, TRANSCRIPTS, TURNS, Messages, numbered

Body = Mapping[str, Any]
Judge = Callable[[Body], list[str]]

# -- Anthropic's rules

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_TEXT, _RESULT, _MEDIA = {"text"}, {"tool_result"}, {"image", "document"}
_BLOCKS = {
    "user": _TEXT | _RESULT | _MEDIA,
    "assistant": _TEXT | {"tool_use", "thinking", "redacted_thinking"},
}
_KEYS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "cache_control", "citations", "title", "context"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}


def anthropic_problems(body: Body) -> list[str]:
    """What Anthropic's Messages refuses in a request; empty for a good one."""
    messages = body["messages"]
    found = [*_system(body.get("system"))]
    if not messages or messages[0]["role"] != "user":
        found.append("messages: first message must use the 'user' role")
    found += [told for number, message in enumerate(messages) for told in _message(message, f"messages[{number}]")]
    return found or [*_turns(messages), *_ids(messages)]


def _system(system: object) -> Iterator[str]:
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    for block in blocks if isinstance(blocks, list) else ():
        if block["type"] != "text" or not block["text"].strip():
            yield f"system: {block!r:.60} is no text"


def _blocks(message: Body) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message(message: Body, where: str) -> Iterator[str]:
    if set(message) != {"role", "content"} or message["role"] not in _BLOCKS:
        yield f"{where}: {sorted(message)} of role {message.get('role')!r}"
        return
    if not _blocks(message):
        yield f"{where}: no content"
    for block in _blocks(message):
        yield from _block(block, _BLOCKS[message["role"]], where)


def _block(block: object, allowed: set[str], where: str) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or kind not in allowed:
        yield f"{where}: {kind!r} blocks are not permitted, only {sorted(allowed)}"
        return
    if unknown := block.keys() - _KEYS[kind]:
        yield f"{where}: unknown keys {sorted(unknown)} of a {kind} block"
    match kind:
        case "text" if not block["text"].strip():
            yield f"{where}: text content blocks must be non-empty"
        case "tool_use":
            if not _ID.fullmatch(block["id"] or "") or not _NAME.fullmatch(block["name"] or ""):
                yield f"{where}: refused id {block['id']!r} or name {block['name']!r}"
            if not isinstance(block["input"], dict):
                yield f"{where}: an input that is no object"
        case "tool_result" if isinstance(block["content"], list):
            for part in block["content"]:
                yield from _block(part, _TEXT | _MEDIA, f"{where}.tool_result")
        case _:
            pass


def _turns(messages: Sequence[Body]) -> Iterator[str]:
    """Messages of one role in a row are one turn; a turn's calls are answered at the beginning of the next one."""
    calls: Counter[str] = Counter()
    for role, said in groupby(messages, lambda message: message["role"]):
        blocks = [block for message in said for block in _blocks(message)]
        results = Counter(block["tool_use_id"] for block in blocks if block["type"] == "tool_result")
        if role == "user" and results != calls:
            yield f"results {results} for calls {calls}"
        if any(block["type"] != "tool_result" for block in blocks[: results.total()]):
            yield "a result behind other content of the user's turn"
        calls = Counter(block["id"] for block in blocks if block["type"] == "tool_use")
    if calls:
        yield f"calls {calls} at the end"


def _ids(messages: Sequence[Body]) -> Iterator[str]:
    counts = Counter(block["id"] for message in messages for block in _blocks(message) if block["type"] == "tool_use")
    yield from (
        f"`tool_use` ids must be unique: {key!r} {number} times" for key, number in counts.items() if number > 1
    )


# -- the request builders

CHAT = ChatOpenAI(model="gpt-4o", api_key="x")
RESPONSES = ChatOpenAI(model="gpt-4o", api_key="x", use_responses_api=True)
STATELESS = ChatOpenAI(model="gpt-4o", api_key="x", output_version="responses/v1", store=False)
ANTHROPIC = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
APIS: Mapping[str, tuple[BaseChatModel, Judge]] = {
    "chat completions": (CHAT, chat_problems),
    "responses": (RESPONSES, responses_problems),
    "responses, nothing stored": (STATELESS, responses_problems),
    "anthropic": (ANTHROPIC, anthropic_problems),
}


def wire(model: Any, messages: Sequence[BaseMessage]) -> Body:
    """The JSON that a package sends."""
    body: Body = json.loads(json.dumps(model._get_request_payload(list(messages))))
    return body


def problems(messages: Sequence[BaseMessage], budget: int) -> list[str]:
    """What the endpoints have against a prompt, its size among it."""
    found: list[str] = []
    for api, (model, judge) in APIS.items():
        body = wire(model, messages)
        told = judge(body)
        if not told and model is CHAT and (tokens := recount(body)) > budget:
            told = [f"{tokens} tokens of {budget}"]
        found += [f"{api}: {problem}" for problem in told]
    return found


class Prompts:
    """One pipeline for many cases, each in a conversation of its own."""

    def __init__(self) -> None:
        self.pipeline = ContextPipeline(
            {"learn": False}, system_prompt="You are a careful assistant.", store=InMemoryStore()
        )
        self.numbers = count()

    def assemble(self, history: Messages, turn: Any, **chosen: Any) -> list[BaseMessage]:
        """The prompt after a history; none where the budget is too small for any."""
        scope = {"user_id": "ada", "conversation_id": f"c{next(self.numbers)}"}
        self.pipeline.add_messages(numbered(history, "m"), **scope)
        try:
            return self.pipeline.assemble(turn, settings=chosen, **scope).messages
        except BudgetTooSmallError:
            return []

    def check(self, history: Messages, turn: Any, budget: int, **chosen: Any) -> None:
        if messages := self.assemble(history, turn, max_context_tokens=budget, **chosen):
            assert problems(messages, budget) == []


@pytest.fixture(scope="module")
def prompts() -> Prompts:
    return Prompts()


# -- any conversation


def usual(message: BaseMessage) -> BaseMessage:
    """A message whose result, if it is one, is text: images in results have a test of their own below."""
    if not isinstance(message, ToolMessage) or isinstance(message.content, str):
        return message
    texts = [block for block in message.content if isinstance(block, str) or block["type"] != "image_url"]
    return message.model_copy(update={"content": texts})


def usual_turn(turn: Any) -> Any:
    return [*map(usual, turn)] if isinstance(turn, list) else turn


common = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


@settings(common, max_examples=200)
@given(transcript=TRANSCRIPTS, turn=TURNS, budget=st.sampled_from(BUDGETS))
def test_any_traffic_is_serialised_to_requests_that_are_accepted(
    prompts: Prompts, transcript: Messages, turn: Messages, budget: int
) -> None:
    prompts.check([*map(usual, transcript)], numbered(usual_turn(turn), "t"), budget)


@settings(common, max_examples=200)
@given(history=strategies.history, turn=strategies.turns, budget=strategies.budgets, chosen=strategies.settings)
def test_with_any_settings_it_is_serialised_to_requests_that_are_accepted(
    prompts: Prompts, history: Messages, turn: Any, budget: int, chosen: dict[str, Any]
) -> None:
    prompts.check([*map(usual, history)], usual_turn(turn), budget, **chosen)


# -- shapes one by one


def calling(*ids: str, text: str = "") -> AIMessage:
    return AIMessage(text, tool_calls=[{"name": "search", "args": {"page": 1}, "id": key} for key in ids])


def result(key: str, content: Any = "Nobody.") -> ToolMessage:
    return ToolMessage(content, tool_call_id=key)


WHO = HumanMessage("Who ordered it?")
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
TOOL_USE = {"type": "tool_use", "id": "a", "name": "search", "input": {"page": 1}}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "Nobody."}
FUNCTION_CALL = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "search", "arguments": '{"page": 1}'}
FUNCTION_OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "Nobody."}
OUTPUT_TEXT = {"type": "text", "text": "Let us see.", "id": "msg_1", "annotations": []}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
CUSTOM_CALL = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "a", "name": "search", "input": "page 1"}
CUSTOM_OUTPUT = {"type": "custom_tool_call_output", "output": "Nobody."}
CUSTOM_CALLING = AIMessage(
    [REASONING, OUTPUT_TEXT, CUSTOM_CALL], tool_calls=[{"name": "search", "args": {"__arg1": "page 1"}, "id": "a"}]
)
STANDARD_TEXT = {"type": "text", "text": "Let us see."}
STANDARD_CALL = {"type": "tool_call", "id": "a", "name": "search", "args": {"page": 1}}
STANDARD_REASONING = {"type": "reasoning", "id": "rs_1", "reasoning": "Hm.", "extras": {"encrypted_content": "x"}}
PDF = {"type": "file", "base64": "JVBERi0=", "mime_type": "application/pdf", "filename": "order.pdf"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png", "detail": "low"}}
DATA_IMAGE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}


def standard(*blocks: dict[str, Any]) -> AIMessage:
    """An answer of OpenAI with LangChain's standard content, `output_version="v1"`."""
    metadata = {"output_version": "v1", "model_provider": "openai"}
    calls = [{"name": "search", "args": {"page": 1}, "id": "a"}] if STANDARD_CALL in blocks else []
    return AIMessage([*blocks], tool_calls=calls, response_metadata=metadata)


def wrapped(block: dict[str, Any]) -> dict[str, Any]:
    """A provider's own block as it stands in standard content."""
    return {"type": "non_standard", "value": block}


SHAPES: Mapping[str, Messages] = {
    "parallel calls": [WHO, calling("a", "b"), result("a"), result("b")],
    "interleaved calls": [WHO, calling("a"), calling("b"), result("b"), result("a")],
    "a dangling call": [WHO, calling("a", "b"), result("a")],
    "a result first": [WHO, result("a"), calling("a")],
    "an orphan": [WHO, result("z"), AIMessage("Nobody.")],
    "one id twice": [WHO, calling("a"), result("a"), calling("a"), result("a")],
    "words and a call": [WHO, calling("a", text="Let us see."), result("a")],
    "an error of a tool": [WHO, calling("a"), ToolMessage("No network.", tool_call_id="a", status="error")],
    "blocks of Anthropic": [WHO, AIMessage([THOUGHT, TOOL_USE]), HumanMessage([TOOL_RESULT])],
    "blocks of Responses": [WHO, AIMessage([REASONING, OUTPUT_TEXT, FUNCTION_CALL]), HumanMessage([FUNCTION_OUTPUT])],
    "blocks of Responses, listed": [
        WHO,
        AIMessage([OUTPUT_TEXT, FUNCTION_CALL], tool_calls=calling("a").tool_calls),
        result("a"),
    ],
    "standard content": [WHO, standard(STANDARD_TEXT)],
    "standard content that thinks": [WHO, standard(STANDARD_REASONING, STANDARD_TEXT, STANDARD_CALL), result("a")],
    "an id that Anthropic refuses": [WHO, calling("functions.search:0"), result("functions.search:0")],
    "a file of the user": [HumanMessage([STANDARD_TEXT, PDF])],
    "a call of 2023": [WHO, AIMessage("", additional_kwargs={"function_call": {"name": "search", "arguments": "{}"}})],
    "a call that cannot be read": [
        WHO,
        AIMessage("", invalid_tool_calls=[{"name": "search", "args": "{", "id": "a", "error": "cut off"}]),
        result("a"),
    ],
    "images of the user": [HumanMessage([{"type": "text", "text": "What is this?"}, IMAGE, DATA_IMAGE])],
    "a system message in the middle": [WHO, SystemMessage("Be brief."), AIMessage("Nobody.")],
    "two users in a row": [WHO, HumanMessage("Well?"), AIMessage("Nobody.")],
    "an answer first": [AIMessage("Good morning."), WHO],
    "a text that is no block in a result": [WHO, calling("a"), result("a", ["Nobody."])],
    "keys of LangChain in a text": [HumanMessage([{**OUTPUT_TEXT, "index": 0}]), AIMessage("Nobody.")],
    "an image of an assistant": [WHO, AIMessage([IMAGE])],
    "a file of an assistant that calls": [WHO, AIMessage([PDF], tool_calls=calling("a").tool_calls), result("a")],
    "a call of Responses twice": [WHO, *2 * (AIMessage([FUNCTION_CALL]), HumanMessage([FUNCTION_OUTPUT]))],
    "an answer of Responses twice": [WHO, *2 * (AIMessage([REASONING, OUTPUT_TEXT]), WHO)],
    "a call and its reasoning twice": [
        WHO,
        *2 * (AIMessage([REASONING, OUTPUT_TEXT, FUNCTION_CALL]), HumanMessage([FUNCTION_OUTPUT])),
    ],
    "standard content twice": [
        WHO,
        *2 * (standard(STANDARD_REASONING, {**STANDARD_CALL, "extras": {"item_id": "fc_1"}}), result("a")),
    ],
    "a custom call": [WHO, AIMessage([CUSTOM_CALL]), result("a")],
    "a custom call, listed": [WHO, CUSTOM_CALLING, result("a", [CUSTOM_OUTPUT])],
    "a custom call in standard content": [
        WHO,
        AIMessage([wrapped(CUSTOM_CALL)], tool_calls=CUSTOM_CALLING.tool_calls),
        result("a", [wrapped(CUSTOM_OUTPUT)]),
    ],
    "the result of a custom call in a human message": [
        WHO,
        CUSTOM_CALLING,
        HumanMessage([{**CUSTOM_OUTPUT, "call_id": "a"}]),
    ],
}


def test_every_shape_is_accepted_in_the_history_and_as_the_current_turn(prompts: Prompts) -> None:
    for shape, messages in SHAPES.items():
        sent = prompts.assemble(messages, "And why?", max_context_tokens=4_000)
        assert problems(sent, 4_000) == [], shape
        if isinstance(messages[0], HumanMessage):
            sent = prompts.assemble([WHO, AIMessage("Nobody.")], messages, max_context_tokens=4_000)
            assert problems(sent, 4_000) == [], shape


WITH_IMAGE = [WHO, calling("a"), result("a", [STANDARD_TEXT, IMAGE])]


def test_an_image_in_a_result_is_accepted_where_results_may_have_images(prompts: Prompts) -> None:
    messages = prompts.assemble(WITH_IMAGE, "And why?", max_context_tokens=4_000)
    for api, (model, judge) in APIS.items():
        body = wire(model, messages)
        assert "a.png" in json.dumps(body)
        if api != "chat completions":
            assert judge(body) == []
            continue
        [refused], [before] = (
            judge(body),
            judge(wire(model, WITH_IMAGE)),
        )  # the caller's choice, and no worse than it was
        reason = " no part of type 'image_url' is allowed here, only ['text']"
        assert [problem.split(":", 1)[1] for problem in (refused, before)] == [reason] * 2


# -- the rules themselves

GOOD = wire(ANTHROPIC, [SystemMessage("You are a clerk."), WHO, calling("a", "b"), result("b"), result("a"), WHO])


def test_the_rules_of_anthropic_accept_a_good_request_and_refuse_others() -> None:
    assert anthropic_problems(GOOD) == []
    for messages, told in (
        ([calling("a"), result("a")], "first message"),
        ([WHO, calling("a", "b"), result("a")], "for calls"),
        ([WHO, calling("a")], "at the end"),
        ([WHO, result("a")], "for calls"),
        ([WHO, calling("a"), result("a"), calling("a"), result("a")], "unique"),
        ([WHO, calling("a"), WHO, result("a")], "behind other content"),
        ([HumanMessage(" ")], "non-empty"),
        ([WHO, AIMessage([{"type": "image", "source": {"type": "url", "url": "x"}}])], "'image'"),
        ([WHO, calling(""), result("")], "refused id"),
        ([HumanMessage([FUNCTION_OUTPUT])], "'function_call_output'"),
        ([SystemMessage([{"type": "text", "text": ""}]), WHO], "is no text"),
    ):
        assert told in "; ".join(anthropic_problems(wire(ANTHROPIC, messages)))
