"""Marks in a request that tell Anthropic's cache where a beginning ends that it is to hold.

An application sets them under `cache_control`: on blocks of messages, on tools, or as an option of
the request. This package sets its own with `cache_markers="anthropic"`. Anthropic takes four of
them in a request, and a long history may have more.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from langchain_ctxbudget.content import Block, blocks_of, text_block
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change, MarksBeside, Placed, Repair, Stretch

MARK_KEY = "cache_control"
Mark = Mapping[str, Any]
LONG = "1h"
"""The `ttl` of a mark for an hour; without one, a mark is for five minutes."""
_KEPT_IN = ("extras", "metadata")
"""Keys of a block under which `langchain-anthropic` looks for a mark, too."""
_NEVER_MARKED = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks that Anthropic refuses with a mark: "thinking.cache_control: Extra inputs are not
permitted" (Wei-Shaw/sub2api issue 225, January 2026)."""


def marks_beside(tools: Sequence[object], request_mark: object = None) -> MarksBeside:
    """Returns the marks of tools, and the one that a request has as an option of its own."""
    marks = [mark for mark in map(_mark_of_tool, tools) if mark is not None]
    count = len(marks) + (1 if request_mark else 0)
    return MarksBeside(count, not all(map(_is_long, marks)))


class _Place(NamedTuple):
    """The place of a mark in a request."""

    message: int
    block: int
    mark: Mark


def request_mark_of(model: object) -> object:
    """Returns the mark that a model sends with every request, as an option of its own, if any."""
    while model is not None:
        for name in ("kwargs", "model_kwargs"):
            options = getattr(model, name, None)
            if isinstance(options, Mapping) and options.get(MARK_KEY):
                return options[MARK_KEY]
        model = getattr(model, "bound", None)
    return None


def with_accepted_marks(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Returns a request with the marks that a provider takes: the newest, and the system message's.

    A mark that is sent stands on a block of a message, not inside a block. None for an hour comes
    behind one for five minutes.
    """
    messages = stretch.messages
    places = _places_in(messages)
    if not places:
        return stretch, []
    kept = _kept_marks(places, messages, profile.cache.most_marks - stretch.marks_beside.count)
    ordered = _in_order_of_lifetimes(kept, is_short=stretch.marks_beside.is_short)
    # Every message that has marks is written anew, also with none of them.
    marks: dict[int, dict[int, Mark]] = {place.message: {} for place in places}
    for place in ordered:
        marks[place.message][place.block] = place.mark

    placed = list(stretch.placed)
    repairs: list[Repair] = []
    for number, marks_of_message in marks.items():
        sent, changes = _with_marks(messages[number], marks_of_message, profile)
        placed[number] = Placed(sent, placed[number].position)
        repairs += [change.repair_of(messages[number]) for change in changes]
    return replace(stretch, placed=placed), repairs


def _places_in(messages: Sequence[BaseMessage]) -> list[_Place]:
    """Returns the marks in the messages of a request, in order."""
    places: list[_Place] = []
    for number, message in enumerate(messages):
        if not isinstance(message.content, str):
            places += [_Place(number, block, mark) for block, mark in _marks_in(message)]
    return places


def _marks_in(message: BaseMessage) -> Iterator[tuple[int, Mark]]:
    """Yields the marks of a message, each with the position of its block."""
    for position, block in enumerate(blocks_of(message)):
        mark = _mark_of(block)
        if mark is not None:
            yield position, mark


def _mark_of(block: Block) -> Mark | None:
    """Returns the mark of a block, wherever it stands; None if it has none."""
    if isinstance(block, str):
        return None
    for fields in (block, *map(block.get, _KEPT_IN)):
        if isinstance(fields, Mapping) and isinstance(fields.get(MARK_KEY), Mapping):
            mark: Mark = fields[MARK_KEY]
            return mark
    inner_marks = [mark for mark in map(_mark_of, _blocks_inside(block)) if mark is not None]
    return inner_marks[-1] if inner_marks else None


def _blocks_inside(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the blocks inside a block, as in a result of a tool."""
    inside = block.get("content")
    if not isinstance(inside, list):
        return []
    return [part for part in inside if isinstance(part, dict)]


def _is_long(mark: Mark) -> bool:
    """Tells if a mark is for an hour."""
    return mark.get("ttl") == LONG


def _mark_of_tool(tool: object) -> Mark | None:
    """Returns the mark of a tool in any form; None if it has none."""
    extras = getattr(tool, "extras", None)
    if isinstance(extras, Mapping):
        return _mark_of({"extras": extras})
    if not isinstance(tool, Mapping):
        return None
    function = tool.get("function")
    mark = _mark_of(dict(tool))
    if mark is None and isinstance(function, Mapping):
        return _mark_of(dict(function))
    return mark


def _kept_marks(
    places: Sequence[_Place], messages: Sequence[BaseMessage], most: int
) -> list[_Place]:
    """Returns the marks that are sent: the newest, and the last one of the system message."""
    allowed = [place for place in places if _may_be_marked(messages[place.message], place.block)]
    if most <= 0:
        return []
    if len(allowed) <= most:
        return allowed
    of_system = [place for place in allowed if isinstance(messages[place.message], SystemMessage)]
    kept = allowed[-most:]
    if of_system and of_system[-1] not in kept:
        return [of_system[-1], *kept[1:]]
    return kept


def _may_be_marked(message: BaseMessage, position: int) -> bool:
    """Tells if Anthropic takes a mark on a block of a message."""
    block = blocks_of(message)[position]
    return isinstance(block, str) or block.get("type") not in _NEVER_MARKED


def _in_order_of_lifetimes(places: Sequence[_Place], *, is_short: bool) -> list[_Place]:
    """Returns marks of which all behind the first one for five minutes are for five minutes, too.

    Anthropic refuses others: "a ttl='1h' cache_control block must not come after a ttl='5m'
    cache_control block" (cnighswonger/claude-code-cache-fix issue 44, April 2026).

    Args:
        places: The marks of the messages, in order.
        is_short: True if a mark before them is for five minutes.
    """
    ordered: list[_Place] = []
    for place in places:
        if not _is_long(place.mark):
            is_short = True
            ordered.append(place)
        elif is_short:
            ordered.append(place._replace(mark=_without_key(place.mark, "ttl")))
        else:
            ordered.append(place)
    return ordered


def _with_marks(
    message: BaseMessage, marks: Mapping[int, Mark], profile: Profile
) -> tuple[BaseMessage, list[Change]]:
    """Returns a message with marks on these of its blocks and no others, and what was changed."""
    blocks = blocks_of(message)
    sent: list[Block] = []
    removed = 0
    shortened = 0
    for position, block in enumerate(blocks):
        before = _mark_of(block)
        mark = marks.get(position)
        sent.append(_with_mark(block, mark))
        if mark is None and before is not None:
            removed += 1
        if mark is not None and mark != before:
            shortened += 1
    if sent == blocks:
        return message, []
    changes: list[Change] = []
    if removed:
        changes.append(Change("cache_mark", _removal(removed, profile)))
    if shortened:
        detail = "its mark for the cache is for five minutes, as one before it is"
        changes.append(Change("cache_mark", detail))
    return message.model_copy(update={"content": sent}), changes


def _removal(count: int, profile: Profile) -> str:
    """Returns what the report says of a message from which marks were removed."""
    marks = "its mark" if count == 1 else f"{count} of its marks"
    most = profile.cache.most_marks
    if not most:
        return f"sent without {marks} for a cache, which the provider does not take"
    return f"sent without {marks} for the cache: of more than {most} in a request the newest count"


def _with_mark(block: Block, mark: Mark | None) -> Block:
    """Returns a block with a mark of its own, and none inside it, or without any."""
    if isinstance(block, str):
        return block
    if mark is None:
        return without_mark(block)
    bare = _bare(block)
    for key in _KEPT_IN:
        fields = block.get(key)
        if isinstance(fields, Mapping) and fields.get(MARK_KEY) == mark:
            return {**bare, key: fields}
    return {**bare, MARK_KEY: dict(mark)}


def without_mark(block: Block) -> Block:
    """Returns a block without a mark for a cache, also inside it."""
    if isinstance(block, str) or _mark_of(block) is None:
        return block
    return _bare(block)


def with_kept_mark_alone(block: dict[str, Any]) -> dict[str, Any]:
    """Returns a block without what LangChain keeps beside its own keys, but for a mark."""
    kept = dict(block)
    for key in _KEPT_IN:
        if key not in kept:
            continue
        fields = kept.pop(key)
        if isinstance(fields, Mapping) and MARK_KEY in fields:
            kept[key] = {MARK_KEY: fields[MARK_KEY]}
    return kept


def _bare(block: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a block without a mark: on it, under a key of it, or on a block inside it."""
    bare = _without_key(block, MARK_KEY)
    for key in _KEPT_IN:
        fields = bare.get(key)
        if isinstance(fields, Mapping) and MARK_KEY in fields:
            bare[key] = _without_key(fields, MARK_KEY)
            if not bare[key]:
                del bare[key]
    if _blocks_inside(bare):
        bare["content"] = list(map(_bare_inside, bare["content"]))
    return bare


def _bare_inside(part: object) -> object:
    """Returns a block inside a block without its mark; anything else as it is."""
    return _bare(part) if isinstance(part, dict) else part


def _without_key(fields: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Returns fields without the one under a key."""
    return {name: value for name, value in fields.items() if name != key}


# Marks that are set


def system_mark_of(messages: Sequence[BaseMessage]) -> Mark | None:
    """Returns the last mark of the system messages that a conversation begins with, if any."""
    last: Mark | None = None
    for message in messages:
        if not isinstance(message, SystemMessage):
            break
        for _, mark in _marks_in(message):
            last = mark
    return last


def with_system_mark(
    messages: Sequence[BaseMessage], mark: Mark | None, profile: Profile
) -> tuple[list[BaseMessage], list[Repair]]:
    """Returns a request whose system message ends with the application's own mark, if it has one.

    The system message is sent as one text, so that a mark inside it stands at its end.
    """
    marked = list(messages)
    if mark is None or not marked or not isinstance(marked[0], SystemMessage):
        return marked, []
    if not profile.cache.most_marks:
        change = Change("cache_mark", _removal(1, profile))
        return marked, [change.repair_of(marked[0])]
    marked[0] = _marked(marked[0], mark) or marked[0]
    return marked, []


def with_cache_marks(
    messages: Sequence[BaseMessage],
    stable: int,
    most: int = 4,
    mark: Mark | None = None,
) -> list[BaseMessage]:
    """Marks for Anthropic's cache where a prompt, its stable zone and its system message end.

    The end of the prompt always gets one: of too many, older ones give way. The others are set
    while the request has fewer than `most`, with what the application has marked itself. A mark
    goes to the last text of its message; a message that only calls tools, thinks or shows something
    has none, and the one before it is tried. The given messages are not changed.
    """
    marked = list(messages)
    marks_left = most - sum(len(list(_marks_in(message))) for message in marked)
    for end in (len(marked), stable, 1):
        position = min(end, len(marked)) - 1
        is_end_of_prompt = position == len(marked) - 1
        if marks_left <= 0 and not is_end_of_prompt:
            continue
        position, with_mark = _last_with_mark(marked, position, mark or {"type": "ephemeral"})
        if with_mark is not None and not _is_marked(marked[position]):
            marked[position] = with_mark
            marks_left -= 1
    return marked


def _last_with_mark(
    messages: Sequence[BaseMessage], position: int, mark: Mark
) -> tuple[int, BaseMessage | None]:
    """Returns the position of the last message, up to a given one, that can be marked, and it so.

    Where none can be marked, that is the given position and None.
    """
    for number in range(position, -1, -1):
        with_mark = _marked(messages[number], mark)
        if with_mark is not None:
            return number, with_mark
    return position, None


def _is_marked(message: BaseMessage) -> bool:
    """Tells if a message has a mark."""
    if isinstance(message.content, str):
        return False
    return next(_marks_in(message), None) is not None


def _marked(message: BaseMessage, mark: Mark) -> BaseMessage | None:
    """Returns a message with a mark on its last text that says something, or None without one."""
    if isinstance(message, AIMessage) and message.response_metadata.get("output_version") == "v1":
        return None  # out of LangChain's standard content `langchain-anthropic` makes new blocks
    blocks = list(blocks_of(message))
    for number in reversed(range(len(blocks))):
        block = blocks[number]
        if isinstance(block, str):
            block = text_block(block)
        if block.get("type") == "text" and str(block.get("text") or "").strip():
            blocks[number] = {**block, MARK_KEY: dict(mark)}
            return message.model_copy(update={"content": blocks})
    return None
