"""What is kept of everything before a cut, and the arc that is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from langchain_ctxbudget.core.arc import DECISIONS, NARRATIVE, OPEN, ArcLine, Density, arc_lines, choose_arc
from langchain_ctxbudget.core.compaction import Strategy
from langchain_ctxbudget.core.digest import EXTRACTION, Digest
from langchain_ctxbudget.core.questions import answers
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.spans import content_key, extraction
from langchain_ctxbudget.stores.records import SummaryLine

FOCUS_MESSAGES = 10
"""The newest messages before the cut, which tell what the conversation had come to."""
DENSITY: dict[Strategy, Density] = {"windowed": "light", "compacted": "rich", "multi_level": "dense"}
"""How much the arc says: the less of the messages is visible, the more (seed 000)."""


def digests_before(conversation: Conversation, segment_messages: int, cut: int) -> tuple[list[Digest], tuple[str, ...]]:
    """What is kept of everything before a cut, oldest and coarsest first, and whose model is still to write."""
    spans, made = conversation.spans(segment_messages), conversation.made
    digests: list[Digest] = []
    waiting: list[str] = []
    for node in spans.frontier(cut):
        content = spans.key(node, conversation.entries)
        written = made.about(content, node.first, conversation.digest_before(node.first))
        digests.append(written or spans.extraction(node, conversation.entries))
        if written is None and made.maker and not made.given_up(made.key(content)):
            waiting.append(made.key(content))
    whole = spans.boundaries[spans.segments_until(cut)]
    if whole < cut:
        rest = content_key(conversation.entries, whole, cut)
        written = made.about(rest, whole, conversation.digest_before(whole))
        digests.append(written or extraction(conversation.entries, whole, cut))
    return digests, tuple(waiting)


def arc_of(
    conversation: Conversation, digests: Sequence[Digest], strategy: Strategy, cut: int, arc_tokens: int
) -> tuple[list[ArcLine], set[str]]:
    """The arc's lines, and the texts of the questions that are open."""
    end = len(conversation.entries)
    questions = [question for question in conversation.read_questions(end).alive() if question.position < cut]
    focus = conversation.lines(max(0, cut - FOCUS_MESSAGES), cut)
    alive = {question.text for question in questions}
    if digests and digests[-1].open_questions:
        recent = [line.text for line in conversation.lines(cut, end)]
        left = tuple(q for q in digests[-1].open_questions if not any(answers(q, text) for text in recent))
        digests = [*digests[:-1], replace(digests[-1], open_questions=left)]
        alive |= set(left)
    lines = arc_lines(digests, DENSITY[strategy], open_questions=questions, focus=focus)
    return choose_arc(lines, conversation.counter.count_text, arc_tokens), alive


def arc_line(line: ArcLine, digests: Sequence[Digest]) -> SummaryLine:
    """A line of the arc as it is kept, with who wrote it and the messages that it stands for."""
    maker = next((d.made_by for d in digests if d.first <= line.position < d.end), EXTRACTION)
    stands = line.section in (NARRATIVE, DECISIONS, OPEN)  # who took part, or names, tell nothing of a message
    return SummaryLine(
        position=line.position,
        heading=line.section,
        text=line.text,
        first=line.first if stands else 0,
        end=line.end if stands else 0,
        made_by=maker,
        value=line.value,
    )
