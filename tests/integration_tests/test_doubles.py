"""The rules can fail.

Each of them on a request that breaks it, and none on requests that are good.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.doubles.anthropic import anthropic_problems, read_before
from tests.doubles.gemini import gemini_problems
from tests.doubles.issued import signature
from tests.doubles.openai_chat import chat_problems
from tests.doubles.openai_responses import responses_problems
from tests.fuzz import samples

Body = dict[str, Any]
Change = Callable[[Body], Any]


def wire_call(key: str, name: str = "search", arguments: str = '{"page": 1}') -> Body:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


FUNCTION = {
    "name": "search",
    "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
}
TOOL = {"type": "function", "function": FUNCTION}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png", "detail": "low"}}
CHAT: Body = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "You are a clerk."},
        {
            "role": "user",
            "name": "Ada",
            "content": [{"type": "text", "text": "Who ordered it?"}, IMAGE],
        },
        {"role": "assistant", "content": None, "tool_calls": [wire_call("a"), wire_call("b")]},
        {"role": "tool", "tool_call_id": "b", "content": "Nobody."},
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "assistant", "content": "Nobody did."},
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "search", "arguments": "{}"},
        },
        {"role": "function", "name": "search", "content": "Bea."},
        {"role": "user", "content": "Are you sure?"},
    ],
    "tools": [TOOL],
    "tool_choice": "auto",
    "temperature": 0.5,
}
RESPONSES: Body = {
    "model": "gpt-4o",
    "instructions": "You are a clerk.",
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Who ordered it?"}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hm.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "a",
            "name": "search",
            "arguments": '{"page": 1}',
        },
        {
            "type": "function_call",
            "id": "fc_2",
            "call_id": "b",
            "name": "search",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "b", "output": "Nobody."},
        {
            "type": "function_call_output",
            "call_id": "a",
            "output": [{"type": "input_text", "text": "Bea."}],
        },
        {"role": "user", "content": "Are you sure?"},
    ],
    "tools": [{"type": "function", **FUNCTION}],
    "store": False,
}


def say(role: str, content: object, **more: object) -> Change:
    return lambda body: body["messages"].append({"role": role, "content": content, **more})


def put(place: int, where: str = "messages", **changes: object) -> Change:
    return lambda body: body[where][place].update(changes)


def call_of(**changes: object) -> Change:
    return lambda body: body["messages"][2]["tool_calls"][0].update(changes)


def top(**changes: object) -> Change:
    return lambda body: body.update(changes)


def without(place: int, where: str = "messages") -> Change:
    return lambda body: body[where].pop(place)


def add(**item: object) -> Change:
    return lambda body: body["input"].append(item)


LONG = "x" * 41
PNG = samples.picture(1, 1)
BAD_PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eHh4"}}
CHAT_FAULTS: list[tuple[Change, str]] = [
    (top(messages=[]), "at least one message"),
    (say("critic", "No."), "no such object is permitted here: {'role': 'critic'}"),
    (say("system", "Be brief."), "not the first"),
    (put(1, name="Ada Lovelace"), "refused name 'Ada Lovelace'"),
    (put(1, index=0), "unknown parameter 'index'"),
    (call_of(function={"name": "search", "arguments": "{"}), "not the text of a JSON object"),
    (call_of(id=""), "needs an id"),
    (call_of(id=LONG), "string too long"),
    (say("assistant", "x", tool_calls=[]), "at least one call"),
    (say("assistant", None), "without content or tool_calls"),
    (say("assistant", [IMAGE]), "no such object is permitted here: {'type': 'image_url'}"),
    (put(3, content=[IMAGE]), "no such object is permitted here: {'type': 'image_url'}"),
    (say("user", " \n"), "an empty text"),
    (say("user", [BAD_PNG]), "could not process image"),
    (say("user", [IMAGE] * 501), "too many images"),
    (say("user", [{"type": "file", "file": {"file_data": "x"}}]), "'filename'"),
    (without(3), "without a response message before it: ['b']"),
    (say("tool", "Bea.", tool_call_id="z"), "must be a response to a preceding message"),
    (
        lambda body: body["messages"].insert(5, dict(body["messages"][4])),
        "must be a response to a preceding message",
    ),
    (lambda body: body["messages"].extend(copy.deepcopy(body["messages"][2:5])), "'a' 2 times"),
    (without(6), "must follow the call of its function"),
]
COMPUTER_CALL = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "c",
    "status": "completed",
    "action": {"type": "screenshot"},
    "pending_safety_checks": [],
}
RESPONSES_FAULTS: list[tuple[Change, str]] = [
    (top(input=[]), "at least one item"),
    (add(type="tool_use", id="a"), "no such object is permitted here: {'type': 'tool_use'}"),
    (put(1, "input", index=0), "unknown parameter 'index' of 'reasoning'"),
    (
        add(
            type="message",
            role="assistant",
            content=[{"type": "output_text", "text": "", "annotations": []}],
        ),
        "without content or calls",
    ),
    (add(role="user", content=[]), "without content or calls"),
    (add(role="system", content="Be brief."), "not the first"),
    (without(5, "input"), "no tool output found for function_call 'b'"),
    (add(**COMPUTER_CALL), "no tool output found for computer_call 'c'"),
    (add(type="function_call_output", call_id="z", output="x"), "no tool call found"),
    (add(type="function_call_output", call_id="a", output="x"), "a second function_call_output"),
    (put(4, "input", call_id="a"), "'a' of 2 calls"),
    (put(4, "input", call_id=LONG), "string too long"),
    (put(4, "input", id="fc_1"), "duplicate item id 'fc_1'"),
    (put(4, "input", id="call_1"), "begins with 'fc'"),
    (put(4, "input", id="fc_2_needs_rs_9"), "without its required 'reasoning' item 'rs_9'"),
    (lambda body: body["input"][1].pop("summary"), "missing required parameter 'summary'"),
    (lambda body: body["input"][1].pop("encrypted_content"), "nothing is stored"),
    (lambda body: body["input"].insert(5, body["input"].pop(1)), "required following"),
    (add(role="user", content=[{"type": "input_image", "image_url": "x"}]), "unsupported scheme"),
    (top(previous_response_id="resp_0"), "not found"),
]


def problems_after(change: Change, good: Body, judge: Callable[[Body], list[str]]) -> str:
    """Returns what is wrong with a good request after a change."""
    body = copy.deepcopy(good)
    change(body)
    return "; ".join(judge(body))


def test_a_good_chat_request_is_accepted() -> None:
    assert chat_problems(CHAT) == []


@pytest.mark.parametrize(("change", "problem"), CHAT_FAULTS)
def test_a_faulty_chat_request_is_refused(change: Change, problem: str) -> None:
    assert problem in problems_after(change, CHAT, chat_problems)


def test_a_good_responses_request_is_accepted() -> None:
    assert responses_problems(RESPONSES) == []


@pytest.mark.parametrize(("change", "problem"), RESPONSES_FAULTS)
def test_a_faulty_responses_request_is_refused(change: Change, problem: str) -> None:
    assert problem in problems_after(change, RESPONSES, responses_problems)


# -- Anthropic


def block(kind: str, **more: Any) -> Body:
    return {"type": kind, **more}


SEARCH = block("server_tool_use", id="srvtoolu_1", name="web_search", input={})
FOUND = block("web_search_tool_result", tool_use_id="srvtoolu_1", content=[])
ASKED: Body = {
    "model": "claude-sonnet-4-5",
    "system": [block("text", text="You are a clerk.")],
    "messages": [{"role": "user", "content": "Who ordered it?"}],
}
SIGNED = block(
    "thinking",
    thinking="Hm.",
    signature=signature("anthropic", "Hm.", read_before(ASKED)),
)
ANTHROPIC: Body = {
    **ASKED,
    "messages": [
        *ASKED["messages"],
        {
            "role": "assistant",
            "content": [
                SIGNED,
                SEARCH,
                FOUND,
                block("tool_use", id="a", name="search", input={}),
                block("tool_use", id="b", name="search", input={}),
            ],
        },
        {
            "role": "user",
            "content": [
                block("tool_result", tool_use_id="b", content="Nobody."),
                block("tool_result", tool_use_id="a", content="Bea."),
                block("text", text="Are you sure?"),
            ],
        },
    ],
}


def blocks_at(place: int, change: Change) -> Change:
    return lambda body: change(body["messages"][place]["content"])


def append(place: int, *blocks: Body) -> Change:
    return blocks_at(place, lambda content: content.extend(blocks))


def picture(media_type: str = "image/png", data: str = PNG) -> Body:
    return block("image", source=block("base64", media_type=media_type, data=data))


def marked(number: int) -> list[Body]:
    return [block("text", text="x", cache_control={"type": "ephemeral"})] * number


ANTHROPIC_FAULTS: list[tuple[Change, str]] = [
    (without(0), "first message"),
    (top(messages=[]), "at least one message"),
    (put(0, name="Ada"), "unknown parameter 'name' of 'user'"),
    (append(1, block("function_call", call_id="a")), "{'type': 'function_call'}"),
    (append(1, block("text", text="x", id="1")), "unknown parameter 'id' of 'text'"),
    (append(1, picture()), "'image' is not permitted for the assistant"),
    (append(2, block("tool_use", id="c", name="x", input={})), "not permitted for the user"),
    (append(2, block("text", text=" ")), "non-empty"),
    (put(0, content=[]), "no content"),
    (top(system=[block("text", text="")]), "system: text content blocks must be non-empty"),
    (blocks_at(1, lambda content: content[3].update(id="a.b")), "refused id 'a.b'"),
    (blocks_at(1, lambda content: content[3].update(name="web search")), "refused id"),
    (blocks_at(1, lambda content: content[3].update(id="b")), "unique"),
    (blocks_at(2, lambda content: content.pop(0)), "for calls"),
    (blocks_at(2, lambda content: content.append(content.pop(0))), "behind other content"),
    (without(2), "at the end"),
    (blocks_at(1, lambda content: content.pop(1)), "unexpected `tool_use_id` srvtoolu_1"),
    (blocks_at(1, lambda content: content.pop(2)), "without a corresponding `web_search_tool"),
    (blocks_at(1, lambda content: content[0].update(thinking="Ha.")), "invalid `signature`"),
    (put(0, content="Who paid?"), "bound to a different conversation"),
    (top(system=[]), "bound to a different conversation"),
    (top(tools=[block("web_search_20250305", name="web_search")]), "a different conversation"),
    (blocks_at(1, lambda content: content[0].pop("signature")), "missing required parameter"),
    (
        lambda body: (
            (body.update(thinking={"type": "enabled"}), body["messages"][2]["content"])
            and body["messages"][1]["content"].pop(0)
        ),
        "expected `thinking`",
    ),
    (append(2, *marked(5)), "Found 5"),
    (append(2, picture("image/bmp")), "invalid value 'image/bmp'"),
    (append(2, picture("image/jpeg")), "could not process image"),
    (append(2, picture(data="x")), "invalid base64"),
    (append(2, *[picture()] * 101), "too many images"),
    (append(2, picture(data=samples.picture(8_001, 1))), "exceeds 8000 pixels"),
    (append(2, *[picture(data=samples.picture(2_001, 1))] * 21), "exceeds 2000 pixels"),
]


def test_a_good_request_to_anthropic_is_accepted() -> None:
    assert anthropic_problems(ANTHROPIC) == []


@pytest.mark.parametrize(("change", "problem"), ANTHROPIC_FAULTS)
def test_a_faulty_request_to_anthropic_is_refused(change: Change, problem: str) -> None:
    assert problem in problems_after(change, ANTHROPIC, anthropic_problems)


def test_a_compaction_may_stand_first_for_anthropic() -> None:
    compacted = {"role": "assistant", "content": [block("compaction", content="The plan.")]}
    body = {**ASKED, "messages": [compacted, *ASKED["messages"]]}

    assert anthropic_problems(body) == []


# -- Gemini

CALL = {"functionCall": {"name": "search", "args": {}}, "thoughtSignature": ""}
CALL["thoughtSignature"] = signature("google", "")
RESPONSE = {"functionResponse": {"name": "search", "response": {"output": "Nobody."}}}
GEMINI: Body = {
    "model": "gemini-3-pro",
    "systemInstruction": {"parts": [{"text": "You are a clerk."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Who ordered it?"}]},
        {"role": "model", "parts": [{"text": "Hm.", "thought": True}, CALL]},
        {"role": "user", "parts": [RESPONSE]},
    ],
}


def parts_at(place: int, change: Change) -> Change:
    return lambda body: change(body["contents"][place]["parts"])


def part(place: int, **more: object) -> Change:
    return parts_at(place, lambda parts: parts.append(more))


GEMINI_FAULTS: list[tuple[Change, str]] = [
    (top(contents=[]), "not specified"),
    (put(1, "contents", role="assistant"), "use a valid role"),
    (without(0, "contents"), "role 'user'"),
    (put(0, "contents", parts=[]), "must not be empty"),
    (part(0, text=""), "must have one initialized field"),
    (parts_at(1, lambda parts: parts[1]["functionCall"].update(name="1 st")), "function name"),
    (parts_at(1, lambda parts: parts[1]["functionCall"].update(args="x")), "is no object"),
    (parts_at(2, lambda parts: parts[0]["functionResponse"].update(name="x")), "responses of"),
    (part(1, **CALL), "1 function responses for 2 function calls"),
    (without(2, "contents"), "0 function responses for 1"),
    (without(1, "contents"), "must come after a function call turn"),
    (
        lambda body: body["contents"].insert(1, {"role": "model", "parts": [{"text": "x"}]}),
        "must come after a user turn",
    ),
    (parts_at(1, lambda parts: parts[1].pop("thoughtSignature")), "missing a thought_signature"),
    (
        parts_at(1, lambda parts: parts[1].update(thoughtSignature=SIGNED["signature"])),
        "thought signature is not valid",
    ),
    (part(0, inlineData={"mimeType": "image/bmp", "data": PNG}), "unsupported media type"),
    (part(0, inline_data={"mime_type": "image/png", "data": "x"}), "invalid base64"),
    (part(0, fileData={"mimeType": "image/png", "fileUri": ""}), "without an address"),
]


def test_a_good_request_to_gemini_is_accepted() -> None:
    assert gemini_problems(GEMINI) == []


@pytest.mark.parametrize(("change", "problem"), GEMINI_FAULTS)
def test_a_faulty_request_to_gemini_is_refused(change: Change, problem: str) -> None:
    assert problem in problems_after(change, GEMINI, gemini_problems)
