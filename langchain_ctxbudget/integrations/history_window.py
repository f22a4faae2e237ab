"""Fits a conversation into a number of tokens, to stand between an application's system message and its question.

The compaction is that of `assemble`. A second system message is refused by providers, so the arc stands above the
summary in the one human message that a window of a compacted conversation begins with.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget.budget.layers import Layer
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import compact
from langchain_ctxbudget.history.compact import HistoryRoom
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.messages.messages import request_copy
from langchain_ctxbudget.messages.turns import Group, newest_that_fit
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.prompt.assembly import (
    CONTEXT_INTRO,
    Content,
    group_tokens,
    opening_note,
    summary_text,
    system_parts,
    without_least,
)
from langchain_ctxbudget.prompt.plan import cut_key
from langchain_ctxbudget.prompt.turn_fit import clipped
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.tokens.counters import TokenCounter

ARC_SHARE = 0.08
"""The most of a window that the arc takes."""
LEFT_OUT = "[Earlier messages are left out.]"
_ORDER = (Layer.ARC, Layer.HISTORY)
"""Layers in the order in which they give way."""

_log = logging.getLogger(__name__)


def window(engine: Engine, scope: Scope, max_tokens: int) -> Flow[list[BaseMessage]]:
    """Returns the messages of a conversation that fit a request of `max_tokens`.

    Raises:
        BudgetTooSmallError: there is no room even for a line that says that messages are left out.
        InputError: `max_tokens` is no whole number of at least 1.
    """
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1:
        raise InputError(f"max_tokens must be a whole number of at least 1, not {max_tokens!r}")

    def room(conversation: Conversation, settings: ContextSettings) -> HistoryRoom:
        return _room(conversation, settings, max_tokens)

    view, conversation, failures = yield from engine.history(scope, room)
    content = Content(
        arc=view.arc,
        summary=view.summary,
        summary_intro=view.summary_intro,
        summary_outro=view.summary_outro,
        history=view.groups,
    )
    messages = fit(content, conversation.counter, max_tokens, whole=not view.cut)
    for failure in failures:  # a window has no report to say it in
        _log.warning("window of conversation %r: %s", scope.conversation_id, failure)
    # Copies: what a caller does to its messages must not change the next window.
    return [*map(request_copy, messages)]


def _room(conversation: Conversation, settings: ContextSettings, max_tokens: int) -> HistoryRoom:
    """Gives everything to history but for the arc's small share."""
    room = max(0, max_tokens - conversation.counter.count_messages([]))
    arc = int(room * ARC_SHARE)
    newest = compact.newest_costs(conversation, settings.keep_messages, max_tokens)
    # Calls and results stay together: at least what stands behind the newest place for a cut.
    last = next((n for n, safe in enumerate(reversed(conversation.safe), start=1) if safe), 0)
    return HistoryRoom(
        settings=settings,
        fits_whole=conversation.total_tokens <= room,
        # A prompt of the same budget has less room for history, and another cut.
        cut_key=f"a window, {cut_key(settings, max_tokens, conversation.counter)}",
        budget_tokens=max_tokens,
        history_tokens=room - arc,
        arc_tokens=arc,
        keep=max(last, newest_that_fit(newest, int(max_tokens * compact.KEEP_SHARE))),
    )


def _shortened(group: Group, counter: TokenCounter, budget_tokens: int) -> Group:
    return clipped({0: group}, counter, budget_tokens, (BaseMessage,))[0]


def fit(content: Content, counter: TokenCounter, max_tokens: int, *, whole: bool) -> list[BaseMessage]:
    """Returns the messages of a history, counted exactly; `whole` is True where it has every message.

    Arc and summary give way first, then the oldest messages; the newest group is clipped, and at last left out.

    Raises:
        BudgetTooSmallError: not even a line that says that messages are left out fits.
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
    """Returns messages that may stand behind a system message and in front of a human one."""
    parts = [CONTEXT_INTRO + "".join(arc)] if (arc := system_parts(content)) else []
    if content.summary:
        parts.append(summary_text(content))
    elif not whole:
        parts.append(LEFT_OUT)
    elif note := opening_note(content):
        parts.append(note)
    opening: Sequence[BaseMessage] = [HumanMessage("\n".join(parts))] if parts else []
    return [*opening, *(message for part in content.history for message in part.messages)]
