"""What OpenAI's Responses API refuses, by its published rules, judged on the JSON of a request.

The items that a request refers to are taken to be stored, unless it says `store: false`. Read in
November 2026.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from openai.types.responses.response_input_item_param import ResponseInputItemParam

from tests.doubles.issued import needed_by
from tests.doubles.media import Medium
from tests.doubles.openai_chat import (
    call_id_problems,
    file_problems,
    function_problems,
    image_limits,
    image_url_problems,
    name_problems,
)
from tests.doubles.schemas import Problems, Rule, problems_by, problems_of_form

Body = Mapping[str, Any]

_MAY_LACK = (
    # An item is also accepted as it stands in examples of the guides, by its text or id alone.
    "message.id",
    "message.status",
    "image_generation_call.result",
    "image_generation_call.status",
    "web_search_call.action",
    "input_image.detail",
)
_OUTPUT_OF = {
    "function_call": "function_call_output",
    "computer_call": "computer_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
_CALL_OF = {output: call for call, output in _OUTPUT_OF.items()}
_ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "reasoning": "rs",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "computer_call": "cu",
    "custom_tool_call": "ctc",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
}
_LONGEST_ITEM_ID = 64


def nothing_else_stored(body: Body) -> Problems:
    """No responses are stored here: "Previous response with id 'resp_...' not found"."""
    previous = body.get("previous_response_id")
    if previous is not None:
        yield f"previous_response_id: {previous!r} not found, nothing is stored here"


def known_form(body: Body) -> Problems:
    """Unknown types of items and parts, and unknown or missing keys.

    "Invalid value: 'tool_use'. Supported values are: 'apply_patch_call', ...", "Unknown parameter:
    'input[3].index'", "Missing required parameter: 'input[2].summary'" (API errors).

    A screenshot may be an `input_image`: OpenAI's guide "Computer use" has it so, and at Azure
    nothing else works (openai-dotnet#375), though the schema knows a `computer_screenshot` alone.
    """
    if not body["input"]:
        yield "input: expected a list with at least one item, got []"
    items = [_with_screenshot(item) for item in body["input"]]
    yield from problems_of_form(
        items, Iterable[ResponseInputItemParam], "input", may_lack=_MAY_LACK
    )


def _with_screenshot(item: Body) -> Body:
    """An item as the schema has it."""
    output = item.get("output")
    if _kind(item) != "computer_call_output" or not isinstance(output, dict):
        return item
    if output.get("type") != "input_image":
        return item
    return {**item, "output": {**output, "type": "computer_screenshot"}}


def known_ids(body: Body) -> Problems:
    """The id of an item tells its type.

    "Invalid 'input[2].id': 'x'. Expected an ID that begins with 'fc'" (API error).
    """
    for where, item in _placed(body):
        prefix = _ID_PREFIXES.get(_kind(item), "")
        if "id" not in item or item["id"] is None:
            continue
        if not item["id"].startswith(prefix):
            yield f"{where}: expected an id that begins with {prefix!r}, got {item['id']!r}"
        if len(item["id"]) > _LONGEST_ITEM_ID:
            yield f"{where}.id: string too long"


def own_item_ids(body: Body) -> Problems:
    """Refused with "Duplicate item found with id rs_..." (API error)."""
    items = [item for item in body["input"] if _kind(item) != "item_reference"]
    counts = Counter(item["id"] for item in items if item.get("id"))
    for item_id, number in counts.items():
        if number > 1:
            yield f"input: duplicate item id {item_id!r}"


def whole_calls(body: Body) -> Problems:
    """Ids of calls of at most 64 characters are taken by the reference, 40 by some models.

    The narrow side: 40, as with Chat Completions. Names and arguments are as there.
    """
    for where, item in _placed(body):
        if "call_id" in item and _kind(item) in (*_OUTPUT_OF, *_CALL_OF):
            yield from call_id_problems(item["call_id"], where)
        if _kind(item) == "function_call":
            yield from function_problems(item, where)
        if _kind(item) == "custom_tool_call":
            yield from name_problems(item["name"], where)


def system_first(body: Body) -> Problems:
    """One system message, in front of all others (stricter than OpenAI)."""
    roles = [item.get("role") for item in body["input"]]
    if body.get("instructions"):
        roles.insert(0, "system")
    for position, role in enumerate(roles):
        if role in ("system", "developer") and position > 0:
            yield f"input[{position}]: a {role} message that is not the first"


_END: Body = {"role": "user"}
"""What stands for the item behind the last one: the user goes on."""


def said_something(body: Body) -> Problems:
    """A message has a text, unless a call follows an assistant's (stricter than OpenAI)."""
    for position, (item, following) in enumerate(pairwise([*body["input"], _END])):
        if _kind(item) != "message" or not _has_only_empty_texts(item["content"]):
            continue
        if item["role"] != "assistant" or _kind(following) not in _OUTPUT_OF:
            yield f"input[{position}]: a message of the {item['role']} without content or calls"


def _has_only_empty_texts(content: Any) -> bool:
    if isinstance(content, str):
        return not content.strip()
    texts = [part.get("text") for part in content if "text" in part]
    is_all = len(texts) == len(content)
    return is_all and not any(str(text).strip() for text in texts)


def answered_calls(body: Body) -> Problems:
    """Every call of a tool has one output behind it.

    "No tool output found for function call call_x.", "No tool output found for computer call
    call_x." (Azure-Samples/computer-use#22), "No tool call found for function call output with
    call_id call_x." (AgentTeams#299).
    """
    called: Counter[tuple[str, str]] = Counter()
    answered: set[tuple[str, str]] = set()
    for where, item in _placed(body):
        kind = _kind(item)
        if kind in _OUTPUT_OF and _is_ours_to_answer(item):
            called[kind, _call_id(item)] += 1
        if kind not in _CALL_OF:
            continue
        key = (_CALL_OF[kind], _call_id(item))
        if key not in called:
            yield f"{where}: no tool call found for {kind} {key[1]!r}"
        if key in answered:
            yield f"{where}: a second {kind} for {key[1]!r}"
        answered.add(key)
    for key, number in called.items():
        if number > 1:
            yield f"input: call_id {key[1]!r} of {number} calls"
        if key not in answered:
            yield f"input: no tool output found for {key[0]} {key[1]!r}"


def _call_id(item: Body) -> str:
    return str(item.get("call_id") or item.get("id"))


def _is_ours_to_answer(item: Body) -> bool:
    """Calls from within a program are answered there."""
    return not item.get("caller") or item["caller"].get("type") == "direct"


def followed_reasoning(body: Body) -> Problems:
    """Behind reasoning stands what the model said or did then.

    "Item 'rs_x' of type 'reasoning' was provided without its required following item."
    (vercel/ai#7099, openai-node#1567).
    """
    for position, (item, following) in enumerate(pairwise([*body["input"], _END])):
        if _kind(item) != "reasoning":
            continue
        is_of_others = following.get("role") not in (None, "assistant")
        if is_of_others or _kind(following) in _CALL_OF:
            yield f"input[{position}]: reasoning without its required following item"


def with_their_reasoning(body: Body) -> Problems:
    """An item that a model made after reasoning stands behind it, unless it has no id.

    "Item 'fc_x' of type 'function_call' was provided without its required 'reasoning' item: 'rs_x'"
    (agency-swarm#367; without the id, laravel/ai#1052).
    """
    earlier: set[str] = set()
    for where, item in _placed(body):
        item_id = item.get("id") or ""
        needed = needed_by(item_id)
        if needed and needed not in earlier:
            yield f"{where}: {item_id!r} without its required 'reasoning' item {needed!r}"
        earlier.add(item_id)


def resolvable(body: Body) -> Problems:
    """Nothing is stored where the request says so.

    "Item with id 'rs_x' not found. Items are not persisted when `store` is set to false."
    """
    if body.get("store") is not False:
        return
    for where, item in _placed(body):
        if _kind(item) == "reasoning" and not item.get("encrypted_content"):
            yield f"{where}: item {item['id']!r} not found: nothing is stored"
        if _kind(item) in ("image_generation_call", "item_reference") and "result" not in item:
            yield f"{where}: item {item['id']!r} not found: nothing is stored"


def sendable_images(body: Body) -> Problems:
    """Types, number and bytes of images and files, as with Chat Completions."""
    images: list[Medium | None] = []
    for where, part in _media_parts(body):
        if part["type"] == "input_file":
            yield from file_problems(part, where)
        elif part.get("image_url"):
            images.append(Medium.in_url(part["image_url"]))
            yield from image_url_problems(part["image_url"], where)
        elif part.get("file_id"):
            images.append(None)
        else:
            yield f"{where}: an image needs image_url or file_id"
    yield from image_limits(images)


_MEDIA_TYPES = ("input_image", "input_file", "computer_screenshot")


def _media_parts(body: Body) -> Iterator[tuple[str, Body]]:
    for where, item in _placed(body):
        for key in ("content", "output"):
            value = item.get(key)
            parts = value if isinstance(value, list) else [value]
            for part in parts:
                if isinstance(part, dict) and part.get("type") in _MEDIA_TYPES:
                    yield f"{where}.{key}", part


def _kind(item: Body) -> str:
    return str(item.get("type") or "message")


def _placed(body: Body) -> Iterator[tuple[str, Body]]:
    for position, item in enumerate(body["input"]):
        yield f"input[{position}]", item


RULES: Sequence[Rule] = (
    nothing_else_stored,
    known_form,
    known_ids,
    own_item_ids,
    whole_calls,
    system_first,
    said_something,
    answered_calls,
    followed_reasoning,
    with_their_reasoning,
    resolvable,
    sendable_images,
)


def responses_problems(body: Body) -> list[str]:
    """What Responses refuses in a request made of items; empty for a good one."""
    return problems_by(RULES, body)
