"""The lines that stand for older messages in a prompt, within their tokens.

The older part of a history is divided by strategy (seed 000): `windowed` is one summary; `compacted` has the oldest 40
of 75 messages as a summary and the others as key messages; `multi_level` has a zone for every level of the tree. A zone
leaves its rest to the next, newer one. A span is shown at the finest resolution that its zone has room for: whole
messages, the sentences that add most, its best sentence, or nothing: no sentence is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from langchain_ctxbudget.budget import Fragment, Layer, Reason
from langchain_ctxbudget.history import work_state
from langchain_ctxbudget.history.extractive import Digest, Kind, Line, Sentence, choose, key_messages
from langchain_ctxbudget.messages import clip_text, fences, one_line, remembering
from langchain_ctxbudget.stores import EXTRACTION, SummaryLine

KEY_MESSAGES = "key messages"
PARTS = {
    "windowed": {"summary": 1},
    "compacted": {"summary": 10, KEY_MESSAGES: 25},
    "multi_level": {"level 3": 5, "level 2": 10, "level 1": 15},
}
"""The zones of a strategy, oldest first, and the parts of the room that each may take (seed 000)."""
OLDEST_SHARE = 40 / 75
"""Of the compacted messages, those that are summarised; the others are represented by key messages (seed 000)."""
KEY_MESSAGE_SHARE = 4
"""No key message takes more than one part in so many of its zone."""
SMALLEST_KEY_MESSAGE_TOKENS = 48
LINE_OVERHEAD_TOKENS = 4
TITLE_VALUE = 1e9
"""Titles are taken out last, and JSON knows no infinity."""
MAX_TRIES = 8
"""Tries to make lines and their headings fit together; two or three are enough."""

Count = Callable[[str], int]
"""The cost of a text, in tokens."""


def zone_of(strategy: str, digest: Digest, cut: int) -> str:
    """Returns the zone of a strategy to which a span before the cut belongs; levels from three on are one."""
    if strategy == "multi_level":
        return f"level {min(digest.level, 3)}"
    is_newer = digest.level == 1 and digest.first >= cut * OLDEST_SHARE
    return KEY_MESSAGES if strategy == "compacted" and is_newer else "summary"


def summary_lines(
    strategy: str,
    digests: Sequence[Digest],
    cut: int,
    count: Count,
    room_tokens: int,
    *,
    said: Sequence[str],
    alive: frozenset[str],
    quotable: Sequence[Line],
    total: int,
) -> list[SummaryLine]:
    """Returns the lines that stand for everything before the cut, in order, headings within `room_tokens` too.

    Args:
        strategy: divides the spans into zones.
        digests: of all spans before the cut, the oldest first.
        cut: where verbatim history begins.
        count: the cost of a text.
        room_tokens: what all of it may cost.
        said: the arc's lines, which are not repeated.
        alive: the open questions that were not answered since.
        quotable: the messages that may be key messages: no results of tools, none to be dropped or only summarised.
        total: the number of messages of the conversation.
    """
    zones = [(name, list(spans)) for name, spans in groupby(digests, lambda digest: zone_of(strategy, digest, cut))]
    lines: list[SummaryLine] = []
    left, parts = room_tokens, sum(PARTS[strategy][name] for name, _ in zones)
    for name, spans in zones:
        title = [_title(name, spans)] if len(zones) > 1 else []
        room = left * PARTS[strategy][name] // parts - cost_of(title, count)
        parts -= PARTS[strategy][name]
        if name == KEY_MESSAGES:
            make = _messages(spans, count, room, quotable, total)
        else:
            make = _sentences(spans, count, said, alive)
        if own := _fitting(make, count, room):
            lines += [*title, *own]
            left -= cost_of([*title, *own], count)
    return lines


def _title(zone: str, spans: Sequence[Digest]) -> SummaryLine:
    first, end = spans[0].first, spans[-1].end
    text = f"# Messages {first + 1}-{end}{', in short' if spans[0].level > 1 else ''}\n"
    text = f"# Key messages of {first + 1}-{end}\n" if zone == KEY_MESSAGES else text
    return SummaryLine(position=first, heading="", text=text, value=TITLE_VALUE)


def cost_of(lines: Iterable[SummaryLine], count: Count) -> int:
    """Returns the tokens of lines, each heading once above those in a row that share it."""
    total, heading = 0, ""
    for line in lines:
        total += count(line.text) + (count(line.heading) if line.heading and line.heading != heading else 0)
        heading = line.heading
    return total


def _fitting(make: Callable[[int], list[SummaryLine]], count: Count, room_tokens: int) -> list[SummaryLine]:
    """Returns lines that fit with their headings, whose cost is known only once they are chosen."""
    room = room_tokens
    for _ in range(MAX_TRIES):
        lines = make(max(0, room))
        total = cost_of(lines, count)
        if total <= room_tokens:
            return lines
        room -= total - room_tokens
    return []


_as_data = remembering(4_096)(fences.as_data)


def _line(digest: Digest, said: Line | Sentence, text: str, *, value: float, made_by: str) -> SummaryLine:
    return SummaryLine(
        position=said.position,
        order=said.order if isinstance(said, Sentence) else 0,
        heading=f"[{said.date}]\n" if said.date else "",
        text=f"- {f'{said.speaker}: ' if said.speaker else ''}{text}\n",
        first=digest.first,
        end=digest.end,
        made_by=made_by,
        value=value,
    )


def _sentences(
    spans: Sequence[Digest], count: Count, said: Sequence[str], alive: frozenset[str]
) -> Callable[[int], list[SummaryLine]]:
    """Returns what chooses sentences: of every span its best that fits, then what adds most."""
    candidates = [
        (digest, sentence)
        for digest in spans
        for sentence in digest.sentences
        if (sentence.kind is not Kind.OPEN or sentence.text in alive)
        and not any(sentence.text in line for line in said)
    ]
    lines: list[SummaryLine] = []
    for digest, sentence in candidates:
        mark = "[OPEN] " if sentence.kind is Kind.OPEN and "[OPEN]" not in sentence.text else ""
        text = f"{mark}{_as_data(sentence.text)}"
        lines.append(_line(digest, sentence, text, value=sentence.score, made_by=digest.made_by))
    costs = [count(line.text) for line in lines]
    of_span: dict[int, list[int]] = {}
    for i in sorted(range(len(lines)), key=lambda i: (-candidates[i][1].score, i)):
        of_span.setdefault(lines[i].first, []).append(i)

    def chosen(room: int) -> list[SummaryLine]:
        best: set[int] = set()
        left = rest = room
        for waiting, at in zip(range(len(of_span), 0, -1), sorted(of_span, reverse=True), strict=True):
            first = lines[of_span[at][0]]
            heading_tokens = count(first.heading) if first.heading else 0
            fair = left // waiting - heading_tokens  # of what is left; the newest span comes first
            whole = next((i for i in of_span[at] if costs[i] <= fair), None)
            if whole is not None:
                best.add(whole)
                left, rest = left - costs[whole] - heading_tokens, rest - costs[whole]
        free = [0 if i in best else cost for i, cost in enumerate(costs)]
        picked = {*choose([sentence for _, sentence in candidates], free, max(0, rest)), *best}
        return sorted((lines[i] for i in picked), key=lambda line: (line.position, line.order))

    return chosen


def _messages(
    spans: Sequence[Digest], count: Count, room_tokens: int, quotable: Sequence[Line], total: int
) -> Callable[[int], list[SummaryLine]]:
    """Returns what chooses whole messages, the most important ones, with marks where others are left out."""
    first, end = spans[0].first, spans[-1].end
    messages = [line for line in quotable if first <= line.position < end]
    most = max(SMALLEST_KEY_MESSAGE_TOKENS, room_tokens // KEY_MESSAGE_SHARE)
    costs = [min(line.tokens + LINE_OVERHEAD_TOKENS, most) for line in messages]

    def gap(before: int, position: int, heading: str) -> list[SummaryLine]:
        if (left_out := position - before - 1) < 1:
            return []
        text = f"[… {left_out} message{'s' if left_out > 1 else ''} left out …]\n"
        return [SummaryLine(position=position, heading=heading, text=text)]

    def chosen(room: int) -> list[SummaryLine]:
        lines: list[SummaryLine] = []
        before = first - 1
        for i in key_messages(messages, costs, room, total):
            at, said = messages[i].position, messages[i].text
            if messages[i].tokens > most:
                said = clip_text(said, count, most - LINE_OVERHEAD_TOKENS, reference=f"#{at + 1}") or said
            digest = next(span for span in spans if span.first <= at < span.end)
            lines += gap(before, at, lines[-1].heading if lines else "")
            lines.append(_line(digest, messages[i], fences.as_item(said), value=float(at), made_by=EXTRACTION))
            before = at
        return [*lines, *gap(before, end, lines[-1].heading)] if lines else []

    return chosen


def _name(line: SummaryLine) -> str:
    if line.heading in work_state.VALUES:
        return f"{one_line(line.heading[2:]).lower()}, {line.order + 1}"
    return f"message {line.position + 1}" if line.end > line.first else "heading"


def fragments(layer: Layer, lines: Sequence[SummaryLine], count: Count) -> tuple[Fragment, ...]:
    """Returns the lines of a summary or an arc as they go into a prompt."""
    return tuple(
        Fragment(
            layer=layer,
            id=_name(line),
            text=line.text,
            tokens=count(line.text),
            reason=Reason.SUMMARY,
            heading=line.heading,
            value=line.value,
            covers=(line.first, line.end),
        )
        for line in lines
    )
