"""Calls and results that LangChain does not list, in a form that the provider reads.

A call that is an item of OpenAI's Responses API (of a computer, a shell, a patch), or a block
alone, owns its result as any call does. Where its provider reads both as they are, they stay; else
the call is listed, and the result becomes a tool message, as everybody reads it.
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


class _Answer(NamedTuple):
    """The newest result of a call."""

    result: ToolMessage
    is_item: bool
    """True if it is a block in another message, in the form of an item."""


def with_calls_as_read(stretch: Stretch, profile: Profile) -> tuple[Stretch, list[Repair]]:
    """Lists calls that the provider does not read as they are, and makes messages of results."""
    if all(is_text(placed.message) for placed in stretch.placed):
        return stretch, []
    answers = _answers_in(stretch.messages)
    calling = [_with_calls_as_read(placed.message, answers, profile) for placed in stretch.placed]
    listed = {str(call["id"]) for message in calling for call in listed_calls(message)}
    screens = {call_id for message in calling for call_id in item_call_ids(message)}

    sent: list[Placed] = []
    repairs: list[Repair] = []
    for placed, message in zip(stretch.placed, calling, strict=True):
        results = _with_results_as_read(message, listed, screens)
        if len(results) == 1 and results[0] is placed.message:
            sent.append(placed)
            continue
        *others, last = results
        sent += map(Placed, others)
        sent.append(Placed(last, placed.position))
        if _is_told(placed.message, results):
            repairs.append(_IS_LISTED.repair_of(placed.message))
    return Stretch(sent, stretch.used), repairs


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
    is_screen = message.additional_kwargs.get("type") in ITEM_RESULTS
    return is_screen or bool(item_call_ids(message))


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
    return with_listed(message, to_list) if to_list else message


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


def _with_results_as_read(
    message: BaseMessage, listed: set[str], items: set[str]
) -> list[BaseMessage]:
    """Returns a message in the form in which its results are read, and results that were in it."""
    if isinstance(message, ToolMessage):
        return [_as_read(message, items)]
    if not answered_ids(message):
        return [message]
    rest: list[Block] = []
    results: list[BaseMessage] = []
    for block in blocks_of(message):
        call_id = call_id_of(block)
        if is_result(block) and (call_id in listed or _is_made_a_message(block, items)):
            results.append(_as_read(result_of(block, message), items))
        elif type_of(block) in ITEM_RESULTS and call_id not in items:
            rest.append(raw_text(block))
        else:
            rest.append(block)
    if rest == blocks_of(message):
        return [message]
    if rest:
        results.append(message.model_copy(update={"content": rest}))
    return results


def _is_made_a_message(result: Block, items: set[str]) -> bool:
    """Tells if a result of a call that is an item has to stand in a message of its own.

    A screen does, and what is no item itself.
    """
    if call_id_of(result) not in items:
        return False
    is_screen = type_of(result) == ITEM_CALLS["computer_call"].result_type
    return is_screen or type_of(result) not in ITEM_RESULTS


def _as_read(result: ToolMessage, items: set[str]) -> ToolMessage:
    """Returns a result as the screen of a computer that was called, or as that of any tool."""
    if result.tool_call_id not in items:
        return as_ordinary_result(result)
    return as_screen(result) or result


def _is_told(message: BaseMessage, results: Sequence[BaseMessage]) -> bool:
    """Tells if a change of form is told: not that of a screen, whose words are the same."""
    if len(results) > 1 or not isinstance(message, ToolMessage):
        return True
    return message.content != results[0].content
