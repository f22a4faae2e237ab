"""The coverage ledger of a conversation: every message in exactly one state."""

from __future__ import annotations

from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.report.report import CoverageRange, CoverageState, ranges


def ledger(conversation: Conversation) -> dict[CoverageState, list[str]]:
    """The ids of a conversation's messages by their state in its last prompt, in order.

    Messages that came after that prompt, or all where there was none in this process, are to be verbatim in the next
    one as far as they fit: they count as verbatim, and what the last compaction left behind as it left it.
    """
    states: dict[CoverageState, list[str]] = {"verbatim": [], "summarized": [], "retrieved": [], "omitted": []}
    for part in _known(conversation):
        states[part.state] += conversation.ids(range(part.first - 1, part.last))
    reached = sum(map(len, states.values()))
    states["verbatim"] += conversation.ids(range(reached, len(conversation.entries)))
    return states


def _known(conversation: Conversation) -> tuple[CoverageRange, ...]:
    """The ledger of the last prompt, else what the cut that was used last says."""
    if conversation.last is not None and conversation.last.coverage is not None:
        return conversation.last.coverage
    if not conversation.cuts:
        return ()
    cut = list(conversation.cuts.values())[-1]
    covered = [(line.first, line.end) for line in (*cut.summary, *cut.arc) if line.first < line.end]
    marks: dict[int, CoverageState] = dict.fromkeys(conversation.dropped, "omitted")
    marks |= dict.fromkeys(cut.kept, "verbatim")
    return ranges(len(conversation.entries), cut.position, covered, marks)
