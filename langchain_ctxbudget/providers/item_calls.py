"""Puts calls and results that LangChain does not list into a form that the provider reads.

Some calls stand in the content of a message alone: items of OpenAI's Responses API (of a computer,
a shell, a patch), and blocks in the form of another provider. Such a call owns its result as any
call does. Where the provider reads both as they are, they stay. Otherwise the call is listed in
`tool_calls`, and its result becomes a tool message: every provider reads that.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.content import (
    ITEM_CALLS,
    ITEM_RESULTS,
    Block,
    answered_ids,
    as_ordinary_result,
    as_screen,
    blocks_of,
    call_id_of,
    is_item_result,
    is_raw,
    is_result,
    is_text,
    item_call_ids,
    listed_calls,
    raw_text,
    result_of,
    type_of,
    with_listed,
)
from langchain_ctxbudget.messages import Group
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.profile import ItemAnswer, Profile
from langchain_ctxbudget.providers.stretch import Change, Placed, Repair, Stretch

_IS_LISTED = Change(
    "call_form", "its calls or results are sent in the form that every provider reads"
)


_SCREEN = ITEM_CALLS["computer_call"].result_type
"""The type of the block that shows the screen of a computer."""


class _Answer(NamedTuple):
    """The newest result of a call."""

    result: ToolMessage
    is_item: bool
    """True if it is a block in another message, in the form of an item."""


class _CallIds(NamedTuple):
    """The ids of the calls that are sent, by their form."""

    listed: set[str]
    items: set[str]
    """Those of calls that are items of the Responses API."""


def with_calls_as_read(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Lists calls that the provider does not read as they are, and makes messages of results."""
    if all(is_text(placed.message) for placed in stretch.placed):
        return stretch, []
    answers = _answers_in(stretch.messages)
    calling = [_with_calls_as_read(placed.message, answers, profile) for placed in stretch.placed]
    call_ids = _ids_by_form(calling)

    sent: list[Placed] = []
    repairs: list[Repair] = []
    for placed, message in zip(stretch.placed, calling, strict=True):
        *results, last = _with_results_as_read(message, call_ids)
        if last is placed.message and not results:
            sent.append(placed)
            continue
        sent += map(Placed, results)
        sent.append(Placed(last, placed.position))
        if results or _is_told(placed.message, last):
            repairs.append(_IS_LISTED.repair_of(placed.message))
    return Stretch(sent, stretch.used), repairs


def _ids_by_form(messages: Sequence[BaseMessage]) -> _CallIds:
    """Returns the ids of the calls in messages."""
    ids = _CallIds(set(), set())
    for message in messages:
        ids.listed.update(str(call["id"]) for call in listed_calls(message))
        ids.items.update(item_call_ids(message))
    return ids


def with_calls_as_shown(group: Group) -> Group:
    """Returns a group whose results are shown in short, with calls that may stand beside these.

    A call of a computer whose screen is left out is listed.
    """
    if not any(map(_has_item, group.messages)):
        return group
    stretch, _ = with_calls_as_read(Stretch.of(group.messages), COMMON)
    return Group(tuple(stretch.messages), group.positions)


def _has_item(message: BaseMessage) -> bool:
    """Tells if a message has a call that is an item, or a screen of a computer."""
    return is_item_result(message) or bool(item_call_ids(message))


def _answers_in(messages: Sequence[BaseMessage]) -> dict[str, _Answer]:
    """Returns the newest result of every call that has one, by the id of the call."""
    answers: dict[str, _Answer] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            answers[message.tool_call_id] = _Answer(message, is_item=False)
        elif answered_ids(message):
            for block in filter(is_result, blocks_of(message)):
                is_item = type_of(block) in ITEM_RESULTS
                answers[call_id_of(block)] = _Answer(result_of(block, message), is_item)
    return answers


# Calls


def _with_calls_as_read(
    message: BaseMessage, answers: Mapping[str, _Answer], profile: Profile
) -> BaseMessage:
    """Returns a message whose calls the provider reads as they are, or that are listed."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return message
    to_list: list[Block] = []
    for block in message.content:
        answer = answers.get(call_id_of(block))
        if is_raw(block, message) and not is_result(block):
            must_be_listed = answer is not None
        else:
            must_be_listed = type_of(block) in ITEM_CALLS and not _is_read(block, answer, profile)
        if must_be_listed:
            to_list.append(block)
    if not to_list:
        return message
    return with_listed(message, to_list)


def _is_read(call: Block, answer: _Answer | None, profile: Profile) -> bool:
    """Tells if a provider reads a call that is an item, beside the answer that it has."""
    wanted = profile.item_calls.get(type_of(call))
    if wanted is None or answer is None:
        return False
    match wanted:
        case ItemAnswer.SCREEN:
            return as_screen(answer.result) is not None
        case ItemAnswer.ITEM:
            return answer.is_item
        case ItemAnswer.ANY:
            return True


# Results


def _with_results_as_read(message: BaseMessage, call_ids: _CallIds) -> list[BaseMessage]:
    """Returns a message in the form in which its results are read, behind those that leave it.

    A message that held nothing but results is not among them.
    """
    if isinstance(message, ToolMessage):
        return [_as_read(message, call_ids)]
    if not answered_ids(message):
        return [message]
    blocks = blocks_of(message)
    results: list[BaseMessage] = []
    rest: list[Block] = []
    for block in blocks:
        if _leaves_message(block, call_ids):
            results.append(_as_read(result_of(block, message), call_ids))
        else:
            rest.append(_as_block(block, call_ids))
    if rest == blocks:
        return [message]
    if rest:
        results.append(message.model_copy(update={"content": rest}))
    return results


def _leaves_message(block: Block, call_ids: _CallIds) -> bool:
    """Tells if a block becomes a tool message: it answers a listed call, or is no item.

    A screen is an item that has to stand in a message of its own.
    """
    if not is_result(block):
        return False
    call_id = call_id_of(block)
    if call_id in call_ids.listed:
        return True
    if call_id not in call_ids.items:
        return False
    return type_of(block) == _SCREEN or type_of(block) not in ITEM_RESULTS


def _as_block(block: Block, call_ids: _CallIds) -> Block:
    """Returns a block as it stays in its message: a result whose call is no item becomes a text."""
    if type_of(block) in ITEM_RESULTS and call_id_of(block) not in call_ids.items:
        return raw_text(block)
    return block


def _as_read(result: ToolMessage, call_ids: _CallIds) -> ToolMessage:
    """Returns a result as the screen of a computer that was called, or as that of any tool."""
    if result.tool_call_id not in call_ids.items:
        return as_ordinary_result(result)
    return as_screen(result) or result


def _is_told(message: BaseMessage, sent: BaseMessage) -> bool:
    """Tells if a change of form is told: not that of a screen, whose words are the same."""
    return not isinstance(message, ToolMessage) or message.content != sent.content
