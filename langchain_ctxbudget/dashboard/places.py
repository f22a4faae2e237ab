"""Which messages of a conversation are still where a kept report says that they were."""

from __future__ import annotations

from collections.abc import Iterator

from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.core.report_parts import JOINED
from langchain_ctxbudget.dashboard.transcripts import Transcript


def steady_messages(report: ContextReport, transcript: Transcript) -> int:
    """How many messages, from the first on, are where they were when a prompt was made; 0 where that is not known.

    A report names older messages by their positions alone, and the newest by their ids, too. Where the oldest one that
    it has the id of has not moved, neither has anything before it.

    Args:
        report: of the prompt.
        transcript: the conversation as it is now.
    """
    newest_first = list(zip(_sent_places(report), _sent_ids(report), strict=False))
    steady = 0
    for place, name in reversed(newest_first):
        message = transcript.by_id.get(name)
        if message is None or message.position != place:
            return steady
        steady = place
    return counted(report) if newest_first else 0


def counted(report: ContextReport) -> int:
    """How many messages the conversation had."""
    return report.coverage[-1].last if report.coverage else 0


def _sent_places(report: ContextReport) -> Iterator[int]:
    """The positions of messages from the last one back, without those that were left out."""
    for part in reversed(report.coverage):
        if part.state != "omitted":
            yield from range(part.last, part.first - 1, -1)


def _sent_ids(report: ContextReport) -> Iterator[str]:
    """The ids of the messages behind the cut that were sent, from the last one back."""
    for layer in report.layers:
        if layer.layer == Layer.HISTORY:
            for item in reversed(layer.items):
                if item.status is not Status.OMITTED and item.reason not in (Reason.SUMMARY, Reason.PINNED):
                    yield from reversed(item.id.split(JOINED))
