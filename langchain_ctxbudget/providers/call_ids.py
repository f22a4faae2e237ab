"""Ids of calls that are longer than a provider takes.

A digest stands in their place, in the call and in its result.

A digest follows from the id alone, so calls and results stay paired wherever they stand: in
history, in the current turn, in prompts of other processes.
"""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.content import call_ids, is_text
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Placed, Repair, Stretch

_KEYS_OF_CALL_IDS = ("call_id", "tool_call_id", "tool_use_id")
"""Keys under which blocks of any type name a call."""
_CALLS_BY_ID = frozenset(
    {"tool_call", "invalid_tool_call", "tool_use", "function_call", "custom_tool_call"}
)
"""Types of blocks whose own `id` is that of the call, unless they have a `call_id` besides."""


def with_short_call_ids(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Puts a digest in place of every id of a call that is longer than a provider takes."""
    longest = profile.longest_call_id
    if longest is None:
        return stretch, []
    sent: list[Placed] = []
    repairs: list[Repair] = []
    for placed in stretch.placed:
        message = placed.message
        short = message if is_text(message) else with_short_ids(message, profile)
        if short is message:
            sent.append(placed)
            continue
        sent.append(Placed(short, placed.position))
        if not isinstance(message, ToolMessage):
            ids = list(call_ids(short))
            detail = f"ids of calls over {longest} characters are sent as digests: {ids}"
            repairs.append(Repair("call_id", message.id or "", detail))
    return Stretch(sent, stretch.used), repairs


def sent_call_id(result: BaseMessage, profile: Profile) -> str | None:
    """Returns the id of the call that a result answers as it is sent; None for other messages."""
    if not isinstance(result, ToolMessage):
        return None
    return short_id(result.tool_call_id, profile.longest_call_id)


def short_id(call_id: str, longest: int | None) -> str:
    """Returns an id, or a digest of 37 characters in place of one that has more than `longest`.

    With None, an id may have any length.
    """
    if longest is None or len(call_id) <= longest:
        return call_id
    return f"call_{digest(call_id).hex()}"


def with_short_ids(message: BaseMessage, profile: Profile) -> BaseMessage:
    """Returns a message whose calls, or whose result, go by ids that a provider takes.

    A message with such ids is returned as it is.
    """
    longest = profile.longest_call_id
    if longest is None:
        return message
    changes: dict[str, Any] = {}
    if isinstance(message, ToolMessage):
        changes["tool_call_id"] = short_id(message.tool_call_id, longest)
    if isinstance(message, AIMessage):
        changes |= _calls_with_short_ids(message, longest)
    if isinstance(message.content, list):
        changes["content"] = [_block_with_short_ids(block, longest) for block in message.content]

    for name in list(changes):
        if changes[name] == getattr(message, name):
            del changes[name]
    return message.model_copy(update=changes) if changes else message


def _calls_with_short_ids(message: AIMessage, longest: int) -> dict[str, Any]:
    """Returns the fields of an assistant's message that hold its calls, with short ids."""
    fields: dict[str, Any] = {
        "tool_calls": [_with_short_id(call, longest) for call in message.tool_calls],
        "invalid_tool_calls": [
            _with_short_id(call, longest) for call in message.invalid_tool_calls
        ],
    }
    raw_calls = message.additional_kwargs.get("tool_calls")
    if isinstance(raw_calls, list):
        short_calls = [_with_short_id(call, longest) for call in raw_calls]
        fields["additional_kwargs"] = {**message.additional_kwargs, "tool_calls": short_calls}
    return fields


def _with_short_id(call: Any, longest: int, key: str = "id") -> Any:  # noqa: ANN401 - calls are dicts of several types
    """Returns a call with a short id under a key; anything that has no text there as it is."""
    if not isinstance(call, dict) or not isinstance(call.get(key), str):
        return call
    return {**call, key: short_id(call[key], longest)}


def _block_with_short_ids(block: Any, longest: int) -> Any:  # noqa: ANN401 - blocks are texts or dicts
    """Returns a block of a content with short ids of calls.

    Also one in LangChain's `non_standard` wrapping.
    """
    if not isinstance(block, dict):
        return block
    if block.get("type") == "non_standard":
        return {**block, "value": _block_with_short_ids(block.get("value"), longest)}
    for key in _KEYS_OF_CALL_IDS:
        block = _with_short_id(block, longest, key)
    if block.get("type") in _CALLS_BY_ID and "call_id" not in block:
        block = _with_short_id(block, longest)
    return block
