"""Neighbouring chunks of a document that are both quoted are one passage."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

from langchain_ctxbudget.budget import Fragment
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.report import JOINED
from langchain_ctxbudget.retrieval.citations import citation_of, heading_of_document
from langchain_ctxbudget.retrieval.filling import Selection
from langchain_ctxbudget.retrieval.searched import Other, document_of

LEAST_OVERLAP = 12
"""Characters; fewer may be the same by chance where nothing is repeated."""
_BEGINS_BLOCK = re.compile(r"[ \t]*(?:`{3}|~{3}|#{1,6} )")
"""Code or a heading, which stands behind a blank line."""


def join_neighbours(selection: Selection) -> None:
    """Makes one quote of those neighbouring chunks of a document that are quoted."""
    for numbers in [*_neighbours(selection)]:
        chunks = [selection.pool.others[number] for number in numbers]
        passage = _passage(selection, numbers, chunks)
        if passage is None:
            continue
        freed_tokens = _price(selection, numbers) - passage.tokens
        freed_tokens -= selection.count(passage.heading)
        if selection.tokens_left + freed_tokens < 0:
            continue
        best = max(numbers, key=lambda number: float(selection.pool.ranking.keys[number]))
        for number in numbers:
            if number != best:
                del selection.chosen[number]
        selection.chosen[best] = replace(passage, value=selection.chosen[best].value)
        selection.passages[best] = tuple(numbers)
        selection.tokens_left += freed_tokens


def _neighbours(selection: Selection) -> Iterator[list[int]]:
    """Yields the numbers of quoted chunks that stand in a row in their document."""
    row: list[int] = []
    others = selection.pool.others
    for number in sorted(number for number in selection.chosen if number < len(others)):
        if row and not _is_next(others[row[-1]], others[number]):
            if len(row) > 1:
                yield row
            row = []
        row.append(number)
    if len(row) > 1:
        yield row


def _is_next(before: Other, chunk: Other) -> bool:
    """Tells whether a text is the next chunk of the document that another one is from."""
    document = document_of(before)
    return bool(document) and document == document_of(chunk) and chunk.place == before.place + 1


def _passage(
    selection: Selection, numbers: Sequence[int], chunks: Sequence[Other]
) -> Fragment | None:
    """Returns the quote of neighbouring chunks, under one heading."""
    citation = citation_of(chunks)
    if citation is None:
        return None
    first = selection.chosen[numbers[0]]
    line = fences.item("", joined_texts(chunks))
    return replace(
        first,
        id=JOINED.join(chunk.id for chunk in chunks),
        text=line,
        tokens=selection.count(line),
        heading=heading_of_document(citation, chunks[0].date),
        citation=citation,
    )


def _price(selection: Selection, numbers: Sequence[int]) -> int:
    """Returns what quotes cost, with the headings that no other quote stands below."""
    parts = [selection.chosen[number] for number in numbers]
    headings = {part.heading for part in parts}
    for number, part in selection.chosen.items():
        if number not in numbers:
            headings.discard(part.heading)
    return sum(part.tokens for part in parts) + sum(map(selection.count, headings))


def joined_texts(chunks: Sequence[Other]) -> str:
    """Returns the text of neighbouring chunks, in which nothing stands twice."""
    *_, text = accumulate((chunk.text for chunk in chunks), _joined)
    return text


def _joined(text: str, following: str) -> str:
    """Returns two texts as one, of which the second may repeat the end of the first."""
    repeated = _overlap(text, following)
    if repeated:
        return text + following[repeated:]
    # The splitter leaves the blank at which it has cut a sentence in front of the next word.
    if following[:1] == " " and following[1:2].strip():
        return text + following
    line_breaks = "\n\n" if _BEGINS_BLOCK.match(following) else "\n"
    return f"{text}{line_breaks}{following}"


def _overlap(text: str, following: str) -> int:
    """Returns how many characters at the end of a text the following one repeats."""
    longest = min(len(text), len(following))
    for size in range(longest, LEAST_OVERLAP - 1, -1):
        if text.endswith(following[:size]):
            return size
    return 0
