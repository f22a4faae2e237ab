"""Shortens a text that is too large.

Its ends stay, and between them the lines that matter most for its kind.

A log tells at its start what was run and at its end how it went; between them errors count. A diff
is told by its files and hunks, search hits by the first of every file, code by its signatures,
prose by its headings; all of them by lines that share rare words with what the text was looked at
for. JSON is written anew with shorter lists and texts.
"""

import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate, compress
from typing import Any

from langchain_ctxbudget.messages.text import ENGLISH, LINE_CHARACTERS, remembering, terms

MARKED_SHARE = 0.4
"""The most that pieces take which stand neither at the start nor at the end."""
SIGNATURE = 0.3
"""The worth of a line that begins a function: less than a line that was looked for, which an edit
may replace."""
AROUND = 2
FOCUSED_AROUND = 6
"""Pieces on both sides of an error, and of what was looked for, that tell what it is about."""
JSON_SIZES = [(max(1, int(8_192 * 0.8**i)), max(20, int(4_096 * 0.8**i))) for i in range(41)]
"""Items of a list and characters of a text, from the finest form of JSON to the coarsest."""
NEAR = 1 / 8
"""Share of the head, and of the tail, that is given up for a cut at a line break or at white
space."""
GAP = "\n[… lines left out: {:,} …]\n"
SHORT_GAP = "\n…\n"
SMALL_ROOM = 300
"""The mark of a gap, and a shorter one for rooms of less than so many characters."""

_BREAKS = (re.compile(r"(?<=[.!?;])\s+|(?<=[。！？])"), re.compile(r"\s+"))  # noqa: RUF001 - these end sentences
_LINE_BREAK = re.compile(r"\r?\n|\r")
_SPACE = re.compile(r"\s")
_OF_DIFF = (
    (re.compile(r"diff --git |--- "), 1.0),
    (re.compile(r"@@ "), 0.7),
    (re.compile("[+-]"), 0.4),
)


def outlined(
    text: str,
    characters: int,
    focus: frozenset[str],
    mark: Callable[[int], str],
    worth: tuple[float, ...] = (),
) -> str:
    """Returns about `characters` characters of a text, with the marks of gaps.

    Empty if nothing would stay.

    `mark` returns what stands in the largest gap for the number of characters that are left out altogether. What its
    lines are worth follows from its kind, the focus, and the ends, unless it is given.
    """
    if form := _shorter_json(text, characters):
        return form + mark(len(text) - len(form))
    pieces, marked, ends = _read(text, focus, worth)
    chosen = [False] * len(pieces)
    left = characters
    gap_mark = SHORT_GAP if worth or characters < SMALL_ROOM else GAP
    for values, reserved in (
        (marked, 0 if worth else int(characters * (1 - MARKED_SHARE))),
        (ends, 0),
    ):
        open_ones = [i for i, value in enumerate(values) if value > 0 and not chosen[i]]
        for rank, i in enumerate(sorted(open_ones, key=lambda i: (-values[i], i))):
            joins = any(chosen[max(0, i - 1) : i + 2]) or i in (0, len(pieces) - 1)
            cost = len(pieces[i]) + (0 if joins else len(gap_mark))
            if cost <= left - (
                reserved if rank else 0
            ):  # what says most has its place even in a small room
                chosen[i], left = True, left - cost
            elif not reserved:
                break  # ends are filled from outside
    gaps = _gaps(pieces, chosen, len(gap_mark))
    tells = any(map(ENGLISH.error.search, compress(pieces, chosen)))
    if not gaps or (left > characters // 4 and not tells):  # they are too long for this room
        head, tail = _ends(text, characters)
        return f"{head}{mark(len(text) - len(head) - len(tail))}{tail}" if head or tail else ""
    largest = max(gaps, key=lambda gap: sum(map(len, pieces[slice(*gap)])))
    first = pieces[largest[0]]
    more = "" if first.endswith("\n") else first[: head_end(first, left)]  # of a line that goes on
    left_out = sum(len(piece) for gap in gaps for piece in pieces[slice(*gap)]) - len(more)
    made = ""
    shown = 0
    for gap in gaps:
        made += "".join(pieces[shown : gap[0]])
        told = more + mark(left_out) if gap == largest else gap_mark.format(gap[1] - gap[0])
        made += told.lstrip("\n") if not made or made.endswith("\n") else told
        shown = gap[1]
    return made + "".join(pieces[shown:])


def _gaps(pieces: Sequence[str], chosen: Sequence[bool], shortest: int) -> list[tuple[int, int]]:
    """Returns the gaps, as ranges of pieces; a gap shorter than its mark is not made."""
    edges = [
        i
        for i in range(len(pieces) + 1)
        if (i < len(pieces) and not chosen[i]) != (i > 0 and not chosen[i - 1])
    ]
    gaps = list(zip(edges[::2], edges[1::2], strict=True))
    return [gap for gap in gaps if sum(map(len, pieces[slice(*gap)])) > shortest]


@remembering(256)
def _read(
    text: str, focus: frozenset[str], worth: tuple[float, ...]
) -> tuple[list[str], list[float], list[float]]:
    """Returns the pieces of a text, and what each is worth.

    By its kind and the focus, and by how near an end it is.
    """
    lines = [_parted(line) for line in text.splitlines(keepends=True)]
    pieces = [piece for line in lines for piece in line]
    if worth:
        marked = [value for value, line in zip(worth, lines, strict=True) for _ in line]
        return pieces, marked, [0.0] * len(pieces)
    before = accumulate(map(len, pieces), initial=0)
    ends = [
        abs(1 - (2 * at + len(piece)) / len(text))
        for at, piece in zip(before, pieces, strict=False)
    ]
    marked = [
        value if piece.strip() else 0.0
        for value, piece in zip(_by_kind(pieces), pieces, strict=True)
    ]
    if focus:
        found = [focus.intersection(terms(piece)) for piece in pieces]
        having = Counter(term for one in found for term in one)
        near = _spread(
            [sum(math.log(len(pieces) / having[term]) for term in one) for one in found],
            FOCUSED_AROUND,
        )
        most = max(near) or 1.0
        marked = [value + worth / most for value, worth in zip(marked, near, strict=True)]
    return pieces, marked, ends


def _parted(line: str) -> list[str]:
    parts = list[str]()
    start = 0
    while len(line) - start > LINE_CHARACTERS:
        window = (start + LINE_CHARACTERS // 4, start + LINE_CHARACTERS)
        ends = (
            found.end() for pattern in _BREAKS for found in [*pattern.finditer(line, *window)][-1:]
        )
        end = next(ends, start + LINE_CHARACTERS)
        parts.append(line[start:end])
        start = end
    return [*parts, line[start:]]


def _spread(worth: Sequence[float], around: int) -> list[float]:
    """Lends what a piece is worth to those around it, less with every piece between them."""
    near = [0.0] * len(worth)
    for i, value in enumerate(worth):
        for at in range(max(0, i - around), min(len(worth), i + around + 1)) if value > 0 else ():
            near[at] += value * (1 - abs(at - i) / (around + 1))
    return near


def _by_kind(pieces: Sequence[str]) -> list[float]:
    """Returns what each piece says by the kind of its text, from 0 to 1."""
    if any(map(ENGLISH.diff.match, pieces)):
        return [
            next((worth for kind, worth in _OF_DIFF if kind.match(piece)), 0.0) for piece in pieces
        ]
    hits = [found[1] if (found := ENGLISH.hit.match(piece)) else "" for piece in pieces]
    if sum(map(bool, hits)) > len(pieces) / 2:
        first = {file: i for i, file in reversed([*enumerate(hits)]) if file}
        return [float(first.get(file) == i) for i, file in enumerate(hits)]
    signatures = [SIGNATURE * bool(ENGLISH.signature.match(piece)) for piece in pieces]
    if sum(signatures) > SIGNATURE:
        return signatures
    errors = _spread([float(bool(ENGLISH.error.search(piece))) for piece in pieces], AROUND)
    headings = (float(bool(ENGLISH.heading.match(piece))) for piece in pieces)
    return [max(min(value, 1.0), heading) for value, heading in zip(errors, headings, strict=True)]


@remembering(32)
def _json(text: str) -> object:
    """Returns the JSON object or list of a text; None of another text."""
    try:
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None


@remembering(256)
def _shorter_json(text: str, characters: int) -> str:
    """Returns the most detailed form of a JSON text within a number of characters.

    Empty if there is none.
    """
    if (value := _json(text)) is None:
        return ""

    def form(size: tuple[int, int]) -> str:
        return json.dumps(_smaller(value, *size), ensure_ascii=False)

    try:
        fits = bisect_left(JSON_SIZES, x=True, key=lambda size: len(form(size)) <= characters)
        return form(JSON_SIZES[fits]) if fits < len(JSON_SIZES) else ""
    except RecursionError:  # it is nested deeper than can be written
        return ""


def _smaller(value: Any, items: int, characters: int) -> Any:  # noqa: ANN401 - JSON can be anything
    if isinstance(value, str):
        return (
            value
            if len(value) <= characters
            else f"{value[:characters]}… {len(value) - characters:,} more"
        )
    if isinstance(value, list):
        left_out = len(value) - items
        last = value[-(items // 2) :] if items > 1 else []
        ends = (
            value if left_out <= 0 else [*value[: items - len(last)], f"… {left_out:,} more", *last]
        )
        return [_smaller(one, items, characters) for one in ends]
    if isinstance(value, dict):
        most = 4 * items + 8
        small = {key: _smaller(one, items, characters) for key, one in list(value.items())[:most]}
        return small | ({"…": f"{len(value) - most:,} more"} if len(value) > most else {})
    return value


def head_end(text: str, end: int) -> int:
    """Returns where to cut a text to keep at most `end` characters.

    At a line break, else at white space.
    """
    for pattern in (_LINE_BREAK, _SPACE):
        if starts := [
            found.start() for found in pattern.finditer(text, end - int(end * NEAR), end + 1)
        ]:
            return starts[-1]
    return end


def _tail_start(text: str, start: int) -> int:
    furthest = start + int((len(text) - start) * NEAR)
    for pattern in (_LINE_BREAK, _SPACE):
        if found := pattern.search(text, max(0, start - 1), furthest):
            return found.end()
    return start


def _ends(text: str, characters: int) -> tuple[str, str]:
    """Returns the head and the tail of a text, with at most `characters` characters together."""
    tail_characters = characters // 2
    return text[: head_end(text, characters - tail_characters)], text[
        _tail_start(text, len(text) - tail_characters) :
    ]
