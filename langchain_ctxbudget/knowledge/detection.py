"""Detection of named things (topics, people, tools) that a message is about.

Four ways lead to a thing, and the surest one counts: its name stands in the message; the message has all terms of a
name; the message's vector is far nearer to it than to the others; it was named just before. Names are whole words in
any case and spacing. Names and terms are indexed, so a message costs by its own length, not by what is known.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.messages import MARKS, STOP_WORDS, UNSPACED, terms
from langchain_ctxbudget.search import Vectors, units

Vector = NDArray[Any]
How = Literal["name", "alias", "terms", "similar", "salient"]

MIN_CONFIDENCE = 0.35
NAME, ALIAS, TERMS, MOST_BY_VECTOR = 1.0, 0.9, 0.8, 0.7
"""Confidence by each way; by vectors, a share of it."""
OUTSTANDING, NEAR, SMALLEST_DEVIATION = 3.0, 0.5, 0.05
"""Deviations above the mean of the others, the least cosine, and the least deviation."""
SALIENT, FADING = 0.7, 0.8
"""Confidence by having been named in the message before (seed 004), and the share of it left one message later."""
DECIMALS = 6

_TOKEN = re.compile(rf"\s+|(?:[^\W{UNSPACED}]|[{MARKS}])+|.", re.DOTALL)
_ASCII_TOKEN = re.compile(r"\s+|[A-Za-z0-9_]+|.", re.DOTALL)


class Named(NamedTuple):
    """A thing that can be detected, with its label and then its aliases as names."""

    id: str
    names: tuple[str, ...]
    importance: float = 0.5


class Detection(NamedTuple):
    """A thing that a message is about: confidence from 0 to 1, and the way that gave it."""

    id: str
    confidence: float
    how: How


class Detector:
    """Finds things by name, terms and vector; built once and asked for many messages.

    `vectors` has one row per thing, of length 1, zeros where there is none.
    """

    def __init__(self, things: Sequence[Named], vectors: Vectors | None = None) -> None:
        self._things = tuple(things)
        self._vectors = np.zeros((0, 0), np.float32) if vectors is None else vectors
        self._with_vector = np.flatnonzero(self._vectors.any(axis=1))
        self._names: defaultdict[tuple[str, ...], dict[int, bool]] = defaultdict(dict)
        """For the tokens of each name its things, and if it is the label."""
        self._terms: defaultdict[str, list[tuple[int, frozenset[str]]]] = defaultdict(list)
        """For one term of each name its thing, and all terms."""
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for number, thing in enumerate(things):
            for place, name in enumerate(thing.names):
                if needed := frozenset(terms(name)):
                    self._terms[min(needed)].append((number, needed))
                tokens = tuple(_tokens(name.strip()))
                if tokens and not (len(tokens) == 1 and tokens[0] in STOP_WORDS):  # "it" names nothing
                    lengths[tokens[0]].add(len(tokens))
                    self._names[tokens].setdefault(number, place == 0)
        self._lengths = {token: sorted(known, reverse=True) for token, known in lengths.items()}

    def detect(self, message: str, *, query: Vector | None = None, recent: Sequence[str] = ()) -> list[Detection]:
        """Finds the things that a message is about: the surest first, then those named more often, then by importance.

        `query` is its vector, where vectors are compared; what `recent` messages (newest last) name counts
        `0.7 * confidence * 0.8 ** ago`.
        """
        named, said = self._named(message), set(terms(message))
        by_terms = (one for term in said & self._terms.keys() for one in self._terms[term] if one[1] <= said)
        found: list[tuple[int, float, How]] = [
            *((thing, *((NAME, "name") if is_label else (ALIAS, "alias"))) for thing, (is_label, _) in named.items()),
            *((thing, TERMS, "terms") for thing, _ in by_terms),
            *((thing, confidence, "similar") for thing, confidence in self._similar(query)),
            *(
                (thing, SALIENT * FADING**ago * (NAME if is_label else ALIAS), "salient")
                for ago, earlier in enumerate(reversed(recent))
                for thing, (is_label, _) in self._named(earlier).items()
            ),
        ]
        best: dict[int, tuple[float, How]] = {}
        for thing, confidence, how in found:
            rounded = round(confidence, DECIMALS)
            if rounded >= MIN_CONFIDENCE and rounded > best.get(thing, (0.0, how))[0]:
                best[thing] = rounded, how

        def rank(thing: int) -> tuple[float, int, float, str]:
            known = self._things[thing]
            return -best[thing][0], -named.get(thing, (False, 0))[1], -known.importance, known.id

        return [Detection(self._things[thing].id, *best[thing]) for thing in sorted(best, key=rank)]

    def named(self, message: str) -> list[str]:
        """Returns the ids of the things whose names stand in a message, in the order of the things."""
        return [self._things[thing].id for thing in sorted(self._named(message))]

    def _named(self, message: str) -> dict[int, tuple[bool, int]]:
        """Returns each thing that a message names: if by its label, and how often; no name inside a longer one."""
        found: dict[int, tuple[bool, int]] = {}
        compared = _tokens(message)
        covered = 0
        for start, token in enumerate(compared):
            for end in (start + length for length in self._lengths.get(token, ())):
                if named := self._names.get(tuple(compared[start:end])) if end > covered else None:
                    covered = end
                    for thing, is_label in named.items():
                        label, times = found.get(thing, (False, 0))
                        found[thing] = (label or is_label, times + 1)
                    break
        return found

    def _similar(self, query: Vector | None) -> Iterator[tuple[int, float]]:
        """Yields things whose vectors stand out against all others; one alone cannot."""
        rows = self._with_vector
        if query is None or len(rows) < 2:  # noqa: PLR2004 - itself and another one
            return
        [aim] = units(np.asarray([query], np.float32))
        cosines = np.round((self._vectors @ aim)[rows].astype(np.float64), DECIMALS)
        others = len(cosines) - 1
        mean = (cosines.sum() - cosines) / others
        variance = ((cosines**2).sum() - cosines**2) / others - mean**2
        deviation = np.maximum(np.sqrt(np.maximum(variance, 0)), SMALLEST_DEVIATION)
        for place in np.flatnonzero((cosines >= NEAR) & (cosines >= mean + OUTSTANDING * deviation)):
            yield int(rows[place]), MOST_BY_VECTOR * min(1.0, float(cosines[place]))


def _tokens(text: str) -> list[str]:
    """Splits a text into folded words, white space and other characters; without spaces, every character is one."""
    written = (_ASCII_TOKEN if text.isascii() else _TOKEN).findall(unicodedata.normalize("NFKC", text))
    return [" " if token.isspace() else token.casefold() for token in written]
