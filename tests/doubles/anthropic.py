"""What Anthropic's Messages API refuses, by its published rules, judged on the JSON of a request.

Read in November 2026.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from anthropic.types.beta import BetaMessageParam, BetaTextBlockParam

from tests.doubles.issued import is_bound_to, is_signature_of
from tests.doubles.media import MEGABYTE, Medium
from tests.doubles.schemas import Problems, Rule, problems_by, problems_of_form

Body = Mapping[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
MOST_MARKS = 4
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
MOST_IMAGES = 100
LONGEST_SIDE = 8_000
MANY_IMAGES = 20
LONGEST_SIDE_OF_MANY = 2_000
MOST_IMAGE_BYTES = 5 * MEGABYTE
MOST_REQUEST_BYTES = 32 * MEGABYTE
_OF_USERS = frozenset(
    {"text", "image", "document", "search_result", "tool_result", "container_upload"}
)
_MODEL_ONLY = frozenset({"tool_use", "thinking", "redacted_thinking", "server_tool_use"})
_RESULT_OF = {
    "web_search": "web_search_tool_result",
    "web_fetch": "web_fetch_tool_result",
    "code_execution": "code_execution_tool_result",
    "bash_code_execution": "bash_code_execution_tool_result",
    "text_editor_code_execution": "text_editor_code_execution_tool_result",
    "tool_search_tool_regex": "tool_search_tool_result",
    "tool_search_tool_bm25": "tool_search_tool_result",
    "advisor": "advisor_tool_result",
}
"""The block that answers a server tool, by the tool's name."""
_SERVER_RESULTS = frozenset({*_RESULT_OF.values(), "mcp_tool_result"})


def known_form(body: Body) -> Problems:
    """Unknown roles, types of blocks and keys.

    "messages.1.content.0.text.id: Extra inputs are not permitted", "Input tag 'reasoning' found
    using 'type' does not match any of the expected tags" (API errors).
    """
    yield from problems_of_form(body["messages"], Iterable[BetaMessageParam], "messages")
    system = body.get("system")
    if isinstance(system, list):
        yield from problems_of_form(system, Iterable[BetaTextBlockParam], "system")


def of_their_roles(body: Body) -> Problems:
    """The blocks that each role may have.

    "'image' blocks are not permitted within assistant turns" (API error), nor calls within the
    user's.
    """
    for where, message in _placed(body):
        if message["role"] not in ("user", "assistant"):
            yield f"{where}: unexpected role {message['role']!r}"
        for block in blocks_of(message["content"]):
            is_refused = block["type"] in (_OF_USERS - {"text"})
            if message["role"] == "user":
                is_refused = block["type"] not in _OF_USERS
            if is_refused:
                yield f"{where}: {block['type']!r} is not permitted for the {message['role']}"


def user_first(body: Body) -> Problems:
    """The user speaks first, or a compaction stands first.

    "messages: first message must use the "user" role", "at least one message is required". In the
    examples of "Compaction" (platform.claude.com, read in November 2026), an assistant's message
    with the block begins the conversation from then on, in the place of what was compacted.
    """
    if not body["messages"]:
        yield "messages: at least one message is required"
        return
    first = body["messages"][0]
    begins_with = [block["type"] for block in blocks_of(first["content"])[:1]]
    if first["role"] != "user" and begins_with != ["compaction"]:
        yield "messages: first message must use the 'user' role"


def said_something(body: Body) -> Problems:
    """Texts are not empty.

    "messages: text content blocks must be non-empty", "must contain non-whitespace text";
    "all messages must have non-empty content except for the optional final assistant message".
    """
    for where, message in _placed(body):
        if not blocks_of(message["content"]):
            yield f"{where}: no content"
    for where, block in every_block(body):
        if block["type"] == "text" and not block["text"].strip():
            yield f"{where}: text content blocks must be non-empty"
    for block in blocks_of(body.get("system")):
        if not block["text"].strip():
            yield "system: text content blocks must be non-empty"


def whole_calls(body: Body) -> Problems:
    """Ids and names have the characters of "tool_use.id: String should match pattern".

    ^[a-zA-Z0-9_-]+$; names up to 128 ("Define tools": ^[a-zA-Z0-9_-]{1,64}$ before 2026).
    """
    for where, block in every_block(body):
        if block["type"] not in ("tool_use", "server_tool_use", "mcp_tool_use"):
            continue
        has_id = _ID.fullmatch(block["id"] or "")
        has_name = _NAME.fullmatch(block["name"] or "")
        if not has_id or not has_name:
            yield f"{where}: refused id {block['id']!r} or name {block['name']!r}"
        if not isinstance(block["input"], dict):
            yield f"{where}: tool_use.input: Input should be a valid dictionary"


def own_call_ids(body: Body) -> Problems:
    """Refused with "messages: `tool_use` ids must be unique" (API error)."""
    counts: Counter[str] = Counter()
    for _, block in every_block(body):
        if block["type"] in ("tool_use", "server_tool_use", "mcp_tool_use"):
            counts[block["id"]] += 1
    for key, number in counts.items():
        if number > 1:
            yield f"`tool_use` ids must be unique: {key!r} {number} times"


def answered_calls(body: Body) -> Problems:
    """A turn's calls are answered at the beginning of the next one, each once.

    "`tool_use` ids were found without `tool_result` blocks immediately after", "unexpected
    `tool_use_id` found in `tool_result` blocks", "each tool_use must have a single result".
    Messages of one role in a row are one turn ("Using the Messages API").
    """
    calls: Counter[str] = Counter()
    for role, turn in turns_of(body):
        results = _ids_in(turn, "tool_result", "tool_use_id")
        if role == "user" and results != calls:
            yield f"results {dict(results)} for calls {dict(calls)}"
        first_blocks = turn[: results.total()]
        if any(block["type"] != "tool_result" for block in first_blocks):
            yield "a result behind other content of the user's turn"
        calls = _ids_in(turn, "tool_use", "id")
    if calls:
        yield f"calls {dict(calls)} at the end"


def _ids_in(turn: Sequence[Body], kind: str, key: str) -> Counter[str]:
    """How often each id stands under a key of the blocks of a type."""
    return Counter(block[key] for block in turn if block["type"] == kind)


def answered_server_tools(body: Body) -> Problems:
    """A call of a server tool and its result stand in one turn, in this order.

    "`web_search` tool use with id `srvtoolu_x` was found without a corresponding
    `web_search_tool_result` block" (lisette#108); "unexpected `tool_use_id` found in
    `advisor_tool_result` blocks: srvtoolu_x. Each `advisor_tool_result` block must have a
    corresponding `server_tool_use` block before it." (claude-code#66944).
    """
    for _, turn in turns_of(body):
        open_calls: dict[str, str] = {}
        for block in turn:
            if block["type"] == "server_tool_use":
                open_calls[block["id"]] = _RESULT_OF.get(block["name"], "")
            if block["type"] == "mcp_tool_use":
                open_calls[block["id"]] = "mcp_tool_result"
            if block["type"] in _SERVER_RESULTS:
                expected = open_calls.pop(block["tool_use_id"], None)
                if expected != block["type"]:
                    yield f"unexpected `tool_use_id` {block['tool_use_id']} in {block['type']}"
        for call_id, kind in open_calls.items():
            yield f"tool use {call_id} was found without a corresponding `{kind}` block"


def unchanged_thinking(body: Body) -> Problems:
    """A signature is bound to its thought.

    "Invalid `signature` in `thinking` block"; "`thinking` or `redacted_thinking` blocks in the
    latest assistant message cannot be modified" (claude-code#63267).
    """
    for where, block in every_block(body):
        if block["type"] != "thinking":
            continue
        if not is_signature_of("anthropic", block["thinking"] or None, block["signature"]):
            yield f"{where}: invalid `signature` in `thinking` block"


def bound_thinking(body: Body) -> Problems:
    """A thought is bound to system, tools and all messages before it.

    "Invalid `signature` in `thinking` block. The block is bound to a different conversation."
    ("Prefix checks on thinking blocks", platform.claude.com; opencode#48637.) Models that take
    `enabled` do not check it.
    """
    if (body.get("thinking") or {}).get("type") == "enabled":
        return
    for position, message in enumerate(body["messages"]):
        for block in blocks_of(message["content"]):
            if block["type"] not in ("thinking", "redacted_thinking"):
                continue
            text = block.get("signature") or block.get("data")
            if not is_bound_to(read_before(body, position), text):
                yield f"messages[{position}]: the block is bound to a different conversation"


def read_before(body: Body, position: int | None = None) -> str:
    """What stands before a message of a request, or before its answer.

    Marks do not count, and a text alone is as good as a block with it.
    """
    before = [
        body.get("tools") or [],
        blocks_of(body.get("system")),
        body["messages"][:position],
    ]
    return json.dumps(_in_one_form(before), sort_keys=True)


def _in_one_form(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_one_form(part) for part in value]
    if not isinstance(value, dict):
        return value
    parts = {key: _in_one_form(part) for key, part in value.items() if key != "cache_control"}
    if isinstance(parts.get("content"), str):
        parts["content"] = blocks_of(parts["content"])
    return parts


def thinking_first(body: Body) -> Problems:
    """In a loop of tools, the assistant's turn begins with thinking where thinking is enabled.

    "Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a
    final `assistant` message must start with a thinking block (preceeding the lastmost set of
    `tool_use` and `tool_result` blocks)." (zed#33317.)
    """
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    turns = list(turns_of(body))
    is_loop = any(block["type"] == "tool_result" for block in turns[-1][1])
    if is_loop and turns[-2][1][0]["type"] not in ("thinking", "redacted_thinking"):
        yield f"expected `thinking` or `redacted_thinking`, but found {turns[-2][1][0]['type']!r}"


def few_marks(body: Body) -> Problems:
    """At most four marks in tools, system and messages together (continue#6937).

    "A maximum of 4 blocks with cache_control may be provided. Found 5." (Anthropic.SDK#50),
    "cache_control cannot be set for empty text blocks"; thinking blocks have none (its schema).
    """
    marked = [*(body.get("tools") or ()), *blocks_of(body.get("system"))]
    marked += [block for _, block in every_block(body)]
    marks = sum("cache_control" in block for block in marked)
    if marks > MOST_MARKS:
        yield f"a maximum of 4 blocks with cache_control may be provided. Found {marks}."


def sendable_media(body: Body) -> Problems:
    """Types, sides, bytes and number of pictures and files, and the bytes of the request.

    "Vision": 100 images a request, 8000 x 8000 pixels, 2000 x 2000 in requests of more than 20
    (dify#11177), 5 MB each ("image exceeds 5 MB maximum", of the base64); requests of 32 MB.
    """
    sources = list(_sources(body))
    images = [source for _, kind, source in sources if kind == "image"]
    if len(images) > MOST_IMAGES:
        yield f"too many images: {len(images)} of {MOST_IMAGES}"
    longest = LONGEST_SIDE if len(images) <= MANY_IMAGES else LONGEST_SIDE_OF_MANY
    for where, kind, source in sources:
        if source["type"] == "base64":
            medium = Medium(source["media_type"], source["data"])
            yield from _medium_problems(medium, kind, longest, where)
    size = len(json.dumps(body["messages"]))
    if size > MOST_REQUEST_BYTES:
        yield f"request exceeds the maximum size: {size} of {MOST_REQUEST_BYTES} bytes"


def _medium_problems(medium: Medium, kind: str, longest: int, where: str) -> Problems:
    if kind == "document":
        yield from medium.problems({"application/pdf"}, where)
        return
    yield from medium.problems(IMAGE_TYPES, where)
    if len(medium.data) > MOST_IMAGE_BYTES:
        yield f"{where}: image exceeds 5 MB maximum: {len(medium.data)} bytes"
    if max(medium.sides) > longest:
        yield f"{where}: at least one of the image dimensions exceeds {longest} pixels"


def _sources(body: Body) -> Iterator[tuple[str, str, Body]]:
    for where, block in every_block(body):
        if block["type"] in ("image", "document"):
            yield where, block["type"], block["source"]


def blocks_of(content: Any) -> list[Any]:
    """The blocks of a content."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    return []


def every_block(body: Body) -> Iterator[tuple[str, Any]]:
    """Every block of the messages, and those inside of results of tools.

    A result that is a text may be empty; a text block in a result may not.
    """
    for where, message in _placed(body):
        for block in blocks_of(message["content"]):
            yield where, block
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                for inner in block["content"]:
                    yield f"{where}.tool_result", inner


def turns_of(body: Body) -> Iterator[tuple[str, list[Any]]]:
    """The blocks of the messages of one role in a row."""
    for role, group in groupby(body["messages"], lambda message: message["role"]):
        blocks: list[Any] = []
        for message in group:
            blocks += blocks_of(message["content"])
        yield role, blocks


def _placed(body: Body) -> Iterator[tuple[str, Body]]:
    for position, message in enumerate(body["messages"]):
        yield f"messages[{position}]", message


RULES: Sequence[Rule] = (
    known_form,
    of_their_roles,
    user_first,
    said_something,
    whole_calls,
    own_call_ids,
    answered_calls,
    answered_server_tools,
    unchanged_thinking,
    bound_thinking,
    thinking_first,
    few_marks,
    sendable_media,
)


def anthropic_problems(body: Body) -> list[str]:
    """What Anthropic refuses in a request; empty for a good one."""
    return problems_by(RULES, body)
