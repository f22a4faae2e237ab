"""Replaces ids of calls that a provider refuses, in the call and in its result.

The new id follows from the old one and the profile alone, so a call and its result stay a pair
wherever they stand: in the history, in the current turn, in a prompt of another process.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.content import KEYS_OF_CALL_IDS, Part, call_ids, is_text, with_calls_as
from langchain_ctxbudget.providers.profile import CallIds, Profile
from langchain_ctxbudget.providers.stretch import Placed, Repair, Stretch

_CALLS_BY_ID = frozenset(
    {"tool_call", "invalid_tool_call", "tool_use", "function_call", "custom_tool_call"}
)
"""Types of blocks whose own `id` is that of the call, unless they have a `call_id` besides."""
_THOUGHTS_BY_CALL = "__gemini_function_call_thought_signatures__"
"""The key of `additional_kwargs` under which langchain-google-genai (4.4.3) keeps the signature of
the thought that led to each call, by the id of the call."""


def with_accepted_call_ids(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Returns messages whose calls and results go by ids that the provider takes."""
    ids = profile.call_ids
    if ids.may_be_any:
        return stretch, []
    sent: list[Placed] = []
    repairs: list[Repair] = []
    for placed in stretch.placed:
        message = placed.message
        accepted = message if is_text(message) else with_accepted_ids(message, ids)
        if accepted is message:
            sent.append(placed)
            continue
        sent.append(Placed(accepted, placed.position))
        if not isinstance(message, ToolMessage):  # the repair of the call tells of its result, too
            repairs.append(_digests_told(message, accepted, ids))
    return Stretch(sent, stretch.used), repairs


def _digests_told(message: BaseMessage, accepted: BaseMessage, ids: CallIds) -> Repair:
    """Returns the repair that tells which ids a message with calls is sent with, and why."""
    longest = max(map(len, call_ids(message)), default=0)
    refused = "that the provider refuses"
    if ids.longest is not None and longest > ids.longest:
        refused = f"over {ids.longest} characters"
    detail = f"ids of calls {refused} are sent as digests: {list(call_ids(accepted))}"
    return Repair("call_id", message.id or "", detail)


def sent_call_id(result: BaseMessage, profile: Profile) -> str | None:
    """Returns the id of the call that a result answers as it is sent; None for other messages."""
    if not isinstance(result, ToolMessage):
        return None
    return profile.call_ids.accepted(result.tool_call_id)


def with_accepted_ids(message: BaseMessage, ids: CallIds) -> BaseMessage:
    """Returns a message whose calls, or whose result, go by ids that a provider takes.

    A message with such ids is returned as it is.
    """
    if ids.may_be_any:
        return message
    fields = _fields_with_accepted_ids(message, ids)
    changes = {name: value for name, value in fields.items() if value != getattr(message, name)}
    if not changes:
        return message
    former_ids = {ids.accepted(call_id): call_id for call_id in call_ids(message)}
    return with_thoughts_of_calls(message.model_copy(update=changes), former_ids)


def _fields_with_accepted_ids(message: BaseMessage, ids: CallIds) -> dict[str, Any]:
    """Returns the fields of a message in which ids of calls stand, with accepted ids."""
    fields: dict[str, Any] = {}
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = ids.accepted(message.tool_call_id)
    if isinstance(message, AIMessage):
        fields |= _calls_with_accepted_ids(message, ids)
    if isinstance(message.content, list):
        fields["content"] = [_block_with_accepted_ids(block, ids) for block in message.content]
    return fields


def ids_of_calls(message: BaseMessage) -> Sequence[str]:
    """Returns the ids of the calls that a message makes, or of the one that it answers."""
    if isinstance(message, ToolMessage):
        return [message.tool_call_id]
    return call_ids(message)


def without_call_ids(message: BaseMessage) -> BaseMessage:
    """Returns a message without its ids of calls: equal for messages that differ in these alone."""
    if isinstance(message, ToolMessage):
        return message.model_copy(update={"tool_call_id": ""})
    if not isinstance(message, AIMessage) or not message.tool_calls:
        return message
    names = [call["name"] for call in message.tool_calls]
    bare = with_calls_as(message, list(map(str, range(len(names)))), names)
    return bare.model_copy(update={"additional_kwargs": {}})


def _calls_with_accepted_ids(message: AIMessage, ids: CallIds) -> dict[str, Any]:
    """Returns the fields of an assistant's message that hold its calls, with accepted ids."""
    fields: dict[str, Any] = {
        "tool_calls": [_with_accepted_id(call, ids) for call in message.tool_calls],
        "invalid_tool_calls": [_with_accepted_id(call, ids) for call in message.invalid_tool_calls],
    }
    raw_calls = message.additional_kwargs.get("tool_calls")
    if isinstance(raw_calls, list):
        accepted_calls = [_with_accepted_id(call, ids) for call in raw_calls]
        fields["additional_kwargs"] = {**message.additional_kwargs, "tool_calls": accepted_calls}
    return fields


def with_thoughts_of_calls(message: BaseMessage, former_ids: Mapping[str, str]) -> BaseMessage:
    """Returns a message whose calls have new ids, with the signatures of their thoughts under them.

    Args:
        message: The message with the new ids.
        former_ids: The former id of each call, by the new one.
    """
    signatures = message.additional_kwargs.get(_THOUGHTS_BY_CALL)
    if not isinstance(signatures, Mapping):
        return message
    moved = {new: signatures[former] for new, former in former_ids.items() if former in signatures}
    additional = {**message.additional_kwargs, _THOUGHTS_BY_CALL: moved}
    return message.model_copy(update={"additional_kwargs": additional})


def _with_accepted_id(call: Any, ids: CallIds, key: str = "id") -> Any:  # noqa: ANN401 - calls are dicts of several types
    """Returns a call with an accepted id under a key; anything that has no text there as it is."""
    if not isinstance(call, dict) or not isinstance(call.get(key), str):
        return call
    return {**call, key: ids.accepted(call[key])}


def _block_with_accepted_ids(block: Any, ids: CallIds) -> Any:  # noqa: ANN401 - blocks are texts or dicts
    """Returns a block of a content with ids of calls that the provider takes.

    Also one in LangChain's `non_standard` wrapping. Ids of tools that the provider runs itself are
    its own, and stay.
    """
    if not isinstance(block, dict) or Part(block).is_run_by_provider:
        return block
    if block.get("type") == "non_standard":
        return {**block, "value": _block_with_accepted_ids(block.get("value"), ids)}
    for key in KEYS_OF_CALL_IDS:
        block = _with_accepted_id(block, ids, key)
    if block.get("type") in _CALLS_BY_ID and "call_id" not in block:
        block = _with_accepted_id(block, ids)
    return block
