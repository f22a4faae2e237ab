"""Which of many named things a message is about: topics, people, tools.

Four ways lead to a thing, the surest one counts: its name stands in the message; the message shares its terms; the
message's vector is far nearer to it than to the others; it was named just before.

Names are whole words, in any case, spacing and spelling that NFKC takes for the same. The names of all things are one
trie of tokens, and the terms of all things are one inverted index, so a message costs what it is long, not what is
known.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log1p
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.core.text import MARKS, STOP_WORDS, UNSPACED, terms
from langchain_ctxbudget.core.vectors import Vectors, units
from langchain_ctxbudget.errors import InputError

Vector = NDArray[Any]
How = Literal["name", "alias", "terms", "similar", "salient"]

MIN_CONFIDENCE = 0.35
"""Less is not worth giving."""
NAME, ALIAS = 1.0, 0.9
MOST_BY_TERMS, MOST_BY_VECTOR = 0.8, 0.7
FEW_TERMS = 5
"""A thing's strongest terms, so many of them, are the whole that a message can have a share of: a long text about it
must not make it harder to find."""
OUTSTANDING, NEAR = 3.0, 0.5
"""Deviations that a cosine must be above the others' mean, and the least cosine."""
SMALLEST_DEVIATION = 0.05
"""The deviation of a few cosines that happen to be alike says nothing."""
SALIENT = 0.7
"""What being named before counts, against being named now (seed 004)."""
FADING = 0.8
"""The share of its salience that is left one message later."""
DECIMALS = 6

_GAP = " "
_TOKEN = re.compile(rf"\s+|(?:[^\W{UNSPACED}]|[{MARKS}])+|.", re.DOTALL)
_ASCII_TOKEN = re.compile(r"\s+|[A-Za-z0-9_]+|.", re.DOTALL)
_SENTENCE_ENDS = frozenset(".!?…")
_RARE = 1
"""Things that have a rare term."""
_MANY = 10
"""Of fewer things, none has a term that can be called rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Something that can be detected.

    Example:
        >>> Named(id="topic/home-brewing", names=("Home brewing", "homebrew")).importance
        0.5
    """

    id: str
    """Unique among those that are detected together."""
    names: tuple[str, ...]
    """Its label first, then aliases."""
    text: str = ""
    """What it is about: its terms are compared with the message."""
    importance: float = 0.5
    """0 to 1; the more important one comes first where all else is equal."""


@dataclass(frozen=True, slots=True)
class Detection:
    """A thing that a message is about.

    Example:
        >>> Detection("topic/home-brewing", 0.9, "alias").how
        'alias'
    """

    id: str
    confidence: float
    """0 to 1."""
    how: How
    """The way that gave the confidence."""


@dataclass(slots=True)
class _Node:
    """A place in the trie of names."""

    next: dict[str, _Node] = field(default_factory=dict)
    ends: list[tuple[int, bool, str]] = field(default_factory=list)
    """Of each name that ends here: whose it is, whether it is the label, and, for a name that is a word like "will",
    how it is written."""


class Detector:
    """What is known by name, terms and vector, built once and asked for many messages.

    Args:
        things: with ids that differ.
        vectors: one row per thing, of length 1, zeros where there is none; shape `(things, dimensions)`.

    Raises:
        InputError: there is not one vector per thing.

    Example:
        >>> detector = Detector([Named(id="sarah", names=("Sarah Chen", "Sarah")), Named(id="acme", names=("Acme",))])
        >>> [(found.id, found.how) for found in detector.detect("Does SARAH work at acme?")]
        [('acme', 'name'), ('sarah', 'alias')]
        >>> detector.detect("What does she think?", recent=["Sarah called."], salience=True)
        [Detection(id='sarah', confidence=0.63, how='salient')]
    """

    def __init__(self, things: Sequence[Named], vectors: Vectors | None = None) -> None:
        if vectors is not None and len(vectors) != len(things):
            raise InputError(f"{len(vectors)} vectors for {len(things)} things: give one row per thing, zeros for none")
        self._things = tuple(things)
        self._vectors = vectors
        self._with_vector = np.flatnonzero(vectors.any(axis=1)) if vectors is not None else np.zeros(0, np.intp)
        self._names = _trie(self._things)

    @cached_property
    def _terms(self) -> _TermIndex:
        return _TermIndex(self._things)

    def detect(
        self, message: str, *, query: Vector | None = None, recent: Sequence[str] = (), salience: bool = False
    ) -> list[Detection]:
        """The things that a message is about.

        A thing that was named by one of the messages before, with confidence c (1.0 by its label, 0.9 by an alias), and
        k messages have followed that one, counts with `0.7 * c * 0.8 ** k`: for four messages by its label.

        Args:
            message: what is asked.
            query: the message's vector, shape `(dimensions,)`; None: vectors are not compared.
            recent: the messages before it, newest last.
            salience: whether things that these name count as well.

        Returns:
            highest confidence first, then the one that is named more often, then the more important one, then by id.
        """
        best: dict[int, tuple[float, How]] = {}

        def propose(found: Iterable[tuple[int, float, How]]) -> None:
            for thing, confidence, how in found:
                rounded = round(confidence, DECIMALS)
                if rounded >= MIN_CONFIDENCE and rounded > best.get(thing, (0.0, how))[0]:
                    best[thing] = (rounded, how)

        named = self._named(message)
        propose((thing, NAME if label else ALIAS, "name" if label else "alias") for thing, (label, _) in named.items())
        propose((thing, confidence, "terms") for thing, confidence in self._terms.found(message))
        if query is not None:
            propose((thing, confidence, "similar") for thing, confidence in self._similar(query))
        if salience:
            propose((thing, confidence, "salient") for thing, confidence in self._salient(recent))

        def rank(thing: int) -> tuple[float, int, float, str]:
            known = self._things[thing]
            return -best[thing][0], -named.get(thing, (False, 0))[1], -known.importance, known.id

        return [Detection(self._things[thing].id, *best[thing]) for thing in sorted(best, key=rank)]

    def named(self, message: str) -> list[str]:
        """The ids of the things whose names stand in a message, in the order of the things."""
        return [self._things[thing].id for thing in sorted(self._named(message))]

    def _named(self, message: str) -> dict[int, tuple[bool, int]]:
        """Which things a message names: whether by their labels, and how often."""
        found: dict[int, tuple[bool, int]] = {}
        for thing, is_label in _matches(self._names, message):
            label, times = found.get(thing, (False, 0))
            found[thing] = (label or is_label, times + 1)
        return found

    def _similar(self, query: Vector) -> Iterator[tuple[int, float]]:
        """Things that stand out against all others; one alone cannot."""
        rows = self._with_vector
        if self._vectors is None or len(rows) < 2:  # noqa: PLR2004 - itself and another one
            return
        [aim] = units(np.asarray([query], np.float32))
        cosines = np.round((self._vectors @ aim)[rows].astype(np.float64), DECIMALS)
        others = len(cosines) - 1
        mean = (cosines.sum() - cosines) / others
        variance = ((cosines**2).sum() - cosines**2) / others - mean**2
        deviation = np.maximum(np.sqrt(np.maximum(variance, 0)), SMALLEST_DEVIATION)
        for place in np.flatnonzero((cosines >= NEAR) & (cosines >= mean + OUTSTANDING * deviation)):
            yield int(rows[place]), MOST_BY_VECTOR * min(1.0, float(cosines[place]))

    def _salient(self, recent: Sequence[str]) -> Iterator[tuple[int, float]]:
        weight = SALIENT
        for message in reversed(recent):
            if weight < MIN_CONFIDENCE:
                return
            for thing, (label, _) in self._named(message).items():
                yield thing, weight * (NAME if label else ALIAS)
            weight *= FADING


def _tokens(text: str) -> tuple[list[str], list[str]]:
    """The tokens of a text as they are compared, and as they are written.

    A token is a word, white space, or any other character; in scripts without spaces, every character.
    """
    written = (_ASCII_TOKEN if text.isascii() else _TOKEN).findall(unicodedata.normalize("NFKC", text))
    return [_GAP if token.isspace() else token.casefold() for token in written], written


def _trie(things: Iterable[Named]) -> _Node:
    root = _Node()
    for number, thing in enumerate(things):
        for place, name in enumerate(thing.names):
            compared, written = _tokens(name.strip())
            is_plain_word = len(written) == 1 and compared[0] in STOP_WORDS
            if not compared or (is_plain_word and written == compared):  # "it" names nothing
                continue
            node = root
            for token in compared:
                node = node.next.setdefault(token, _Node())
            if all(end[0] != number for end in node.ends):  # an alias that is the label in another case
                node.ends.append((number, place == 0, written[0] if is_plain_word else ""))
    return root


def _matches(root: _Node, message: str) -> Iterator[tuple[int, bool]]:
    """Whose names a message has, and whether each is a label; no name that stands inside another one."""
    compared, written = _tokens(message)
    covered = 0
    for start in range(len(compared)):
        node = root
        longest: list[tuple[int, bool, str]] = []
        end = place = start
        while place < len(compared) and (following := node.next.get(compared[place])) is not None:
            node, place = following, place + 1
            if ends := [found for found in node.ends if not found[2] or _is_meant(found[2], written, start)]:
                longest, end = ends, place
        if end > covered:  # else a name that began before goes as far
            covered = end
            yield from ((thing, label) for thing, label, _ in longest)


def _is_meant(name: str, written: Sequence[str], place: int) -> bool:
    """Whether a word like "will" is the name "Will": written as that is, and not for beginning a sentence."""
    if written[place] != name:
        return False
    before = "".join(written[max(0, place - 2) : place]).strip()[-1:]
    begins = not before or before in _SENTENCE_ENDS
    return not begins or name != name.capitalize()


class _TermIndex:
    """The terms of things: of each name, and of the text about it."""

    def __init__(self, things: Sequence[Named]) -> None:
        owners: list[int] = []
        texts: list[frozenset[str]] = []
        found_in: Counter[str] = Counter()
        for number, thing in enumerate(things):
            own = {frozenset(terms(text)) for text in (*thing.names, thing.text)}
            found_in.update(set().union(*own))
            for text in own:
                owners.append(number)
                texts.append(text)
        self._weights = {term: log1p((len(things) - count + 0.5) / (count + 0.5)) for term, count in found_in.items()}
        self._rare = {term for term, count in found_in.items() if count <= _RARE and len(things) >= _MANY}
        self._owners = np.asarray(owners, np.intp)
        self._whole = np.asarray([self._whole_of(text) for text in texts], np.float64)
        having: dict[str, list[int]] = {}
        for number, text in enumerate(texts):
            for term in text:
                having.setdefault(term, []).append(number)
        self._having = {term: np.asarray(numbers, np.intp) for term, numbers in having.items()}

    def _whole_of(self, text: Iterable[str]) -> float:
        return sum(sorted((self._weights[term] for term in text), reverse=True)[:FEW_TERMS]) or 1.0

    def found(self, message: str) -> Iterator[tuple[int, float]]:
        """Things whose terms a message shares: all of a name, two of one text about them, or one only they have."""
        shared = [term for term in sorted(set(terms(message))) if term in self._having]
        if not shared:
            return
        having = [self._having[term] for term in shared]
        sizes = [len(numbers) for numbers in having]
        texts, size = np.concatenate(having), len(self._owners)
        weights = np.repeat([self._weights[term] for term in shared], sizes)
        telling = np.repeat([2 if term in self._rare else 1 for term in shared], sizes)
        share = np.bincount(texts, weights, size) / self._whole
        enough = (np.bincount(texts, telling, size) >= 2) | (share >= 1)  # noqa: PLR2004 - two terms, or a rare one
        for text in np.flatnonzero(enough):
            yield int(self._owners[text]), MOST_BY_TERMS * min(1.0, float(share[text]))
