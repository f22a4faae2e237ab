"""The layer of the messages before the current turn, and of the summary of older ones.

Where it is cut, and what its summary says, is decided in the room `history`.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.budget import Layer, Reason, Situation, Status
from langchain_ctxbudget.history import HistoryView, history_tokens, pinned_tokens
from langchain_ctxbudget.layers.base import (
    Chosen,
    Groups,
    Place,
    PromptLayer,
    Rung,
    Sent,
    Staying,
    View,
)
from langchain_ctxbudget.layers.groups import group_item, group_tokens, positions_of
from langchain_ctxbudget.messages import Group, clip_message, is_user, newest_that_fit
from langchain_ctxbudget.providers import with_calls_as_shown
from langchain_ctxbudget.report import CoverageState, ReportItem, preview
from langchain_ctxbudget.tokens import TokenCounter

FIRST_MESSAGES = 2
"""The messages that the rung `middle-out` keeps at the beginning of the history."""
LAST_MESSAGES = 6
"""The messages that it keeps at the end."""
CLIPPED_RESULT_TOKENS = 64
"""The most that a tool's result in the history costs after the rung `extreme`."""
_BLANKS = re.compile(r"(?<=\S)\s{2,}")
_BLANK_LINES = re.compile(r"\n{3,}")


class HistoryLayer(PromptLayer):
    """The messages before the turn; its items are the lines of their summary."""

    name = Layer.HISTORY
    title = Layer.HISTORY.full_name
    place = Place.HISTORY

    def measured(self, situation: Situation, view: View) -> Situation:
        """Returns a situation with what the conversation costs, whole and pinned."""
        conversation = view.conversation
        return replace(
            situation,
            message_count=len(conversation.entries),
            history_tokens=history_tokens(conversation, view.limit_tokens),
            pinned_tokens=pinned_tokens(
                conversation, view.limit_tokens, view.settings.keep_important
            ),
        )

    def items(self, view: View, _tokens: int) -> Chosen:
        """Returns the lines of the summary that were written for the cut."""
        return Chosen(fragments=view.history.summary)

    # How it gives way

    def staying(self, rung: Rung) -> Sequence[Staying]:
        """Returns how many lines of the summary stay when a rung is taken."""
        if rung is Rung.HEAVY:
            return [Staying(share=0.5)]
        if rung is Rung.EXTREME:
            return [Staying(number=1)]
        return ()

    def shortened(self, rung: Rung, groups: Groups, counter: TokenCounter) -> Groups:
        """Returns what stays of the verbatim messages when a rung is taken."""
        shorten = _SHORTENED.get(rung)
        return groups if shorten is None else shorten(groups, counter)

    # How it is explained

    def explained_messages(self, view: View, sent: Sent) -> list[ReportItem]:
        """Returns the verbatim messages: sent, taken out, or impossible to send."""
        history = view.history
        counter = view.counter
        pinned = {*view.conversation.kept_positions}
        items: list[ReportItem] = []
        for group in sent.groups:
            status = Status.INCLUDED
            reason = Reason.RECENT
            if sent.shortened.intersection(group.positions):
                status = Status.SHRUNK
                reason = Reason.SHORTENED
            elif group.start < history.cut:
                reason = _reason_of_kept(view, group, pinned)
            items.append(group_item(group, counter, status, reason))
        positions = positions_of(sent.groups)
        pruned = [group for group in history.groups if not positions.intersection(group.positions)]
        items += [group_item(group, counter, Status.OMITTED, Reason.PRUNED) for group in pruned]
        shown = positions_of(history.groups)
        end = len(view.conversation.entries)
        missing = sorted(pinned.union(range(history.cut, end)) - shown)
        return [*items, *(_missing_item(view, position) for position in missing)]

    def counted(self, view: View, sent: Sent, _chosen: Chosen) -> Mapping[Reason, int]:
        """Returns how many messages before the cut are not verbatim, by their reasons."""
        cut = view.history.cut
        counts: Counter[CoverageState] = Counter()
        for part in sent.coverage:
            counts[part.state] += max(0, min(part.last, cut) - part.first + 1)
        dropped = bisect_left(view.conversation.dropped_positions, cut)
        omitted = counts["omitted"] - dropped
        # Those that are too weak would not come with more room.
        weak = min(omitted, sent.irrelevant)
        compacted = sum(
            max(0, min(part.last, view.history.compacted) - part.first + 1)
            for part in sent.coverage
            if part.state in ("summarized", "retrieved")
        )
        by_reason = {
            Reason.SUMMARIZED: counts["summarized"] + counts["retrieved"] - compacted,
            Reason.COMPACTED: compacted,
            Reason.DROPPED: dropped,
            Reason.LOW_RELEVANCE: weak,
            Reason.NO_ROOM: omitted - weak,
        }
        return {reason: count for reason, count in by_reason.items() if count}


def verbatim_tokens(granted_tokens: Mapping[str, int]) -> int:
    """Returns the tokens for verbatim messages and the summary of older ones."""
    return granted_tokens[HistoryLayer.name]


def _reason_of_kept(view: View, group: Group, pinned: Collection[int]) -> Reason:
    """Returns why a group before the cut is verbatim."""
    if group.start in (view.conversation.compaction or ()):
        return Reason.SUMMARY
    is_pinned = any(position in pinned for position in group.positions)
    return Reason.PINNED if is_pinned else Reason.IMPORTANT


def _missing_item(view: View, position: int) -> ReportItem:
    """Returns the item of a message that was to be verbatim, and is not."""
    history = view.history
    entry = view.conversation.entries[position]
    if position < history.cut or position in history.shortened:
        reason = Reason.NO_ROOM
        tokens = view.conversation.costs[position]
    else:
        reason = Reason.DROPPED if entry.preservation == "drop" else Reason.REPAIRED
        tokens = view.counter.count_message(entry.sent_message)
    return ReportItem(
        id=entry.id,
        tokens=tokens,
        status=Status.OMITTED,
        reason=reason,
        preview=preview(entry.text),
    )


def shortened_positions(history: HistoryView, sent: Groups) -> frozenset[int]:
    """Returns positions of messages that are sent in short.

    The compaction has shortened them, or the last resort.
    """
    chosen = {group.positions: group.messages for group in history.groups}
    changed = [group for group in sent if chosen.get(group.positions) != group.messages]
    return history.shortened.union(positions_of(changed))


# What the rungs of the last resort do to its messages


def _each(
    change: Callable[[BaseMessage, TokenCounter], BaseMessage],
    groups: Groups,
    counter: TokenCounter,
) -> Groups:
    """Returns groups with a change of every message."""
    changed: list[Group] = []
    for group in groups:
        messages = [change(message, counter) for message in group.messages]
        changed.append(with_calls_as_shown(replace(group, messages=tuple(messages))))
    return tuple(changed)


def _with_fewer_blanks(message: BaseMessage, counter: TokenCounter) -> BaseMessage:
    """Returns a message without needless blanks, if that is shorter.

    Results of tools, and messages with code, stay as they are: blanks may mean something there.
    """
    if isinstance(message, ToolMessage) or not isinstance(message.content, str):
        return message
    if "```" in message.content:
        return message
    lines = [_BLANKS.sub(" ", line).rstrip() for line in message.content.split("\n")]
    text = _BLANK_LINES.sub("\n\n", "\n".join(lines))
    shorter = message.model_copy(update={"content": text})
    return shorter if counter.count_message(shorter) < counter.count_message(message) else message


def _newer_half(history: Groups, counter: TokenCounter) -> Groups:
    """Returns the newest exchanges that cost at most half of the history, at least the last one."""
    costs = [group_tokens(group, counter) for group in history]
    half = len(costs) - newest_that_fit(costs, sum(costs) // 2)
    questions = _questions(history)
    start = next((number for number in questions if number >= half), questions[-1])
    return history[start:]


def _last_exchange(history: Groups, _counter: TokenCounter) -> Groups:
    """Returns the last exchange alone."""
    return history[_questions(history)[-1] :]


def _questions(history: Groups) -> list[int]:
    """Returns the numbers of the groups in which a human speaks, or that of the first group.

    Cut there, a history begins as providers want it.
    """
    numbers = [number for number, group in enumerate(history) if _has_human(group)]
    return numbers or [0]


def _has_human(group: Group) -> bool:
    return is_user(group.messages[0])


def _clipped_result(message: BaseMessage, counter: TokenCounter) -> BaseMessage:
    """Returns a tool's result in short, and any other message as it is."""
    if not isinstance(message, ToolMessage):
        return message
    clipped = clip_message(
        message,
        counter.count_message,
        counter.count_text,
        CLIPPED_RESULT_TOKENS,
        reference=message.id,
    )
    return message if clipped is None else clipped


def _middle_out(history: Groups, _counter: TokenCounter) -> Groups:
    """Returns the groups that have one of the first or of the last messages."""
    ends = list(accumulate(len(group.messages) for group in history))
    return tuple(
        group
        for group, end in zip(history, ends, strict=True)
        if end - len(group.messages) < FIRST_MESSAGES or end > ends[-1] - LAST_MESSAGES
    )


_SHORTENED: Mapping[Rung, Callable[[Groups, TokenCounter], Groups]] = {
    Rung.LIGHT: partial(_each, _with_fewer_blanks),
    Rung.MEDIUM: _newer_half,
    Rung.HEAVY: _last_exchange,
    Rung.EXTREME: partial(_each, _clipped_result),
    Rung.MIDDLE_OUT: _middle_out,
}
