"""A conversation alone, within a number of tokens, to stand between an application's system message and its question.

The compaction is that of `assemble`; only the frame differs. A second system message is refused by providers, so the
arc stands above the summary in the one human message that a window of a compacted conversation begins with.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget.core.allocation import Allocation
from langchain_ctxbudget.core.assembly import (
    CONTEXT_INTRO,
    Content,
    group_tokens,
    opening_note,
    summary_text,
    system_parts,
    without_least,
)
from langchain_ctxbudget.core.layers import Layer
from langchain_ctxbudget.core.messages import request_copy
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.core.turn_fit import clipped
from langchain_ctxbudget.core.turns import Group, newest_that_fit
from langchain_ctxbudget.draft import Draft, Target
from langchain_ctxbudget.engine import Engine
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import compact
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge.remembered import Remembered
from langchain_ctxbudget.opening import NOTHING_ELSE
from langchain_ctxbudget.steps import compact_history
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.windows import Window

ARC_SHARE = 0.08
"""What the arc may take of a window."""
LEFT_OUT = "[Earlier messages are left out.]"
_ORDER = (Layer.ARC, Layer.HISTORY)
"""What gives way first."""

_log = logging.getLogger(__name__)


class WindowDraft(Draft):
    """A draft that is history and nothing else; a prompt of the same budget has less room for it, and another cut."""

    @property
    def made_for(self) -> str:
        """What a compaction cut of this window is made for."""
        return f"a window, {super().made_for}"


def window(engine: Engine, scope: Scope, max_tokens: int) -> Flow[list[BaseMessage]]:
    """What of a conversation stands in so many tokens.

    Args:
        engine: who has it open.
        scope: which conversation.
        max_tokens: what a request of these messages alone may cost.

    Raises:
        BudgetTooSmallError: there is no room even for a line that says that messages are left out.
        InputError: `max_tokens` is no whole number of at least 1.
    """
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise InputError(f"max_tokens must be a whole number of at least 1, not {max_tokens!r}")

    def body(conversation: Conversation) -> Flow[list[BaseMessage]]:
        draft = yield from _open(engine, conversation, max_tokens)
        draft.allocation = _allocation(draft)
        yield from compact_history(draft, engine.store, None)
        messages = fit(draft.content, draft.counter, max_tokens, whole=not draft.history.cut)
        if engine.summarizing:
            engine.summarizing.submit(draft)
        for failure in draft.failures:  # a window has no report to say it in
            _log.warning("window of conversation %r: %s", scope.conversation_id, failure)
        # Copies: what a caller does to its messages must not change the next window.
        return [*map(request_copy, messages)]

    return (yield from engine.recall(scope, body, engine.target.counter))


def _open(engine: Engine, conversation: Conversation, max_tokens: int) -> Flow[WindowDraft]:
    failures: list[str] = []
    summarizing = engine.summarizing
    settings, *_ = yield from engine.settings_for(conversation, NOTHING_ELSE, failures)
    return WindowDraft(
        conversation=conversation,
        target=Target(counter=conversation.counter, window=Window()),
        settings=settings,
        system_prompt="",
        turn=[],
        limit_tokens=max_tokens,
        write_summaries=summarizing.write_now if summarizing and not settings.summarize_in_background else None,
        remembered=Remembered(due=False, is_read=False),  # a window shows nothing of what is known
        failures=failures,
    )


def _allocation(draft: WindowDraft) -> Allocation:
    """Everything is history's but for a small share, which is the arc's."""
    conversation, limit = draft.conversation, draft.limit_tokens
    room = max(0, limit - draft.counter.count_messages([]))
    arc = int(room * ARC_SHARE)
    newest = compact.newest_costs(conversation, draft.settings.keep_messages, limit)
    keep = newest_that_fit(newest, int(limit * compact.KEEP_SHARE))
    last = _newest_group(conversation)
    if keep < last:  # calls and results stay together
        keep = last if _can_stand(draft, last, room) else 0
    return Allocation(
        strategy="window",
        total_tokens=limit,
        tokens={Layer.HISTORY: room - arc, Layer.ARC: arc},
        specs=(),
        fits_whole=conversation.total_tokens <= room,
        keep_messages=keep,
    )


def _newest_group(conversation: Conversation) -> int:
    """How many messages the newest place for a cut has behind it."""
    return next((n for n, safe in enumerate(reversed(conversation.safe), start=1) if safe), 0)


def _can_stand(draft: WindowDraft, newest: int, room_tokens: int) -> bool:
    """Whether the newest messages fit into the room, as short as they may become."""
    conversation, limits = draft.conversation, compact.Limits.of(draft.limit_tokens)
    positions = tuple(range(len(conversation.entries) - newest, len(conversation.entries)))
    shown = [limits.shown(conversation, position) for position in positions]
    if sum(cost for _, cost in shown) <= room_tokens:
        return True
    together = Group(tuple(message for message, _ in shown), positions)
    return group_tokens(_shortened(together, draft.counter, room_tokens), draft.counter) <= room_tokens


def _shortened(group: Group, counter: TokenCounter, budget_tokens: int) -> Group:
    return clipped({0: group}, counter, budget_tokens, (BaseMessage,))[0]


def fit(content: Content, counter: TokenCounter, max_tokens: int, *, whole: bool) -> list[BaseMessage]:
    """The messages of a history, counted exactly; what does not fit gives way, and a line says so.

    Arc and summary give way first, then the oldest messages; the newest group is clipped, and at last left out.

    Args:
        content: arc, summary and verbatim messages.
        counter: how tokens are counted.
        max_tokens: what a request of these messages alone may cost.
        whole: whether it has every message.

    Raises:
        BudgetTooSmallError: not even that line fits.
    """
    while (messages := built(content, whole=whole)) and (excess := counter.count_messages(messages) - max_tokens) > 0:
        older, newest = content.history[:-1], content.history[-1:]
        smaller, _ = without_least(replace(content, history=older), counter, excess, _ORDER)
        if smaller != replace(content, history=older):
            whole = whole and smaller.history == older
            content = replace(smaller, history=(*smaller.history, *newest))
        elif newest:
            room = group_tokens(newest[0], counter) - excess
            shorter = _shortened(newest[0], counter, room)
            whole = whole and group_tokens(shorter, counter) <= room
            content = replace(content, history=(shorter,) if group_tokens(shorter, counter) <= room else ())
        else:
            needed = {"a line that says that messages are left out": max_tokens + excess}
            raise BudgetTooSmallError(max_tokens, needed, "Raise max_tokens; a window of some hundred says something.")
    return messages


def built(content: Content, *, whole: bool) -> list[BaseMessage]:
    """The messages of a history, such that they may stand behind a system message and in front of a human one."""
    parts = [CONTEXT_INTRO + "".join(arc)] if (arc := system_parts(content)) else []
    if content.summary:
        parts.append(summary_text(content))
    elif not whole:
        parts.append(LEFT_OUT)
    elif note := opening_note(content):
        parts.append(note)
    opening: Sequence[BaseMessage] = [HumanMessage("\n".join(parts))] if parts else []
    return [*opening, *(message for part in content.history for message in part.messages)]
