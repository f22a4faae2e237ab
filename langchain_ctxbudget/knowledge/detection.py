"""Finding the topics and entities that a message is about.

Of the ways from a message to a thing, the surest counts: its name stands in the message; the
message has all terms of a name; the place that the user has open names it; the message's vector is
far nearer to it than to the others; it was named just before.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.knowledge.profiles import importance_at
from langchain_ctxbudget.knowledge.records import Profile
from langchain_ctxbudget.messages import MARKS, STOP_WORDS, UNSPACED, terms
from langchain_ctxbudget.search import Vectors, units
from langchain_ctxbudget.stores import utc

Vector: TypeAlias = NDArray[Any]
VectorKind: TypeAlias = tuple[str, int]
"""The model that vectors are of, and their dimensions: only those of one kind are compared."""
How = Literal["name", "alias", "terms", "open", "similar", "salient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionPolicy:
    """How sure each way makes that a message is about a thing, 0 to 1."""

    label: float = 1.0
    """The thing's label stands in the message."""
    alias: float = 0.9
    """Another name of the thing stands in the message."""
    terms: float = 0.8
    """The message has all terms of a name, in any order."""
    open: float = 0.75
    """The user has it open; the confidence of its name there counts this share."""
    vector: float = 0.7
    """The cosine to the message's vector, where it stands out, counts this share."""
    salient: float = 0.7
    """The thing was named in the message before; the confidence of its name counts this share."""
    fading: float = 0.8
    """The share of that which is left one message later."""
    least: float = 0.35
    """A thing that is less sure is not meant."""
    least_cosine: float = 0.5
    """The least cosine of a vector that stands out."""
    deviations: float = 3.0
    """Standard deviations above the mean of the others from which a cosine stands out."""
    least_deviation: float = 0.05
    """The least standard deviation of cosines, as a few may be equal by chance."""


DETECTION = DetectionPolicy()
DECIMALS = 6
"""Confidence and cosines are rounded, so that equal ones are equal on every computer."""
_TOKEN = re.compile(rf"\s+|(?:[^\W{UNSPACED}]|[{MARKS}])+|.", re.DOTALL)
_OWNS = re.compile(r"['\u2019]s? (?:[^\W_]+,? ){0,3}")
"""What stands between the name of an owner and that of what is owned."""
_ASCII_TOKEN = re.compile(r"\s+|[A-Za-z0-9_]+|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Detectable:
    """A thing that can be detected, with its label and then its aliases as names."""

    id: str
    names: tuple[str, ...]
    importance: float = 0.5


@dataclass(frozen=True, slots=True)
class Detection:
    """A thing that a message is about, with the confidence and the way that gave it."""

    id: str
    confidence: float
    how: How


@dataclass(slots=True)
class _Naming:
    """How a message names a thing."""

    by_label: bool = False
    """False: by aliases alone."""
    times: int = 0
    times_as_owner: int = 0
    """How often as the owner of something that is named right behind it: "Anna's cat Max"."""

    @property
    def times_as_subject(self) -> int:
        """How often it is named for itself."""
        return self.times - self.times_as_owner

    @property
    def how(self) -> How:
        """The way by which it is found."""
        return "name" if self.by_label else "alias"

    @property
    def confidence(self) -> float:
        """How sure that makes it."""
        return DETECTION.label if self.by_label else DETECTION.alias


class Detector:
    """Finds things by name, terms and vector; built once and asked for many messages.

    Args:
        things: The things to find.
        vectors: One row per thing, of length 1, zeros where there is none.
    """

    def __init__(self, things: Sequence[Detectable], vectors: Vectors | None = None) -> None:
        self._things = tuple(things)
        self._vectors = np.zeros((0, 0), np.float32) if vectors is None else vectors
        self._rows_with_vector = np.flatnonzero(self._vectors.any(axis=1))
        self._names: defaultdict[tuple[str, ...], dict[int, bool]] = defaultdict(dict)
        """For the tokens of each name its things, and whether it is the label."""
        self._terms: defaultdict[str, list[tuple[int, frozenset[str]]]] = defaultdict(list)
        """For one term of each name its thing, and all terms of the name."""
        self._lengths: Mapping[str, list[int]] = {}
        """For the first token of each name, in how many tokens such names end, longest first."""
        self._read_names()

    def _read_names(self) -> None:
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for number, thing in enumerate(self._things):
            for place, name in enumerate(thing.names):
                needed = frozenset(terms(name))
                if needed:
                    self._terms[min(needed)].append((number, needed))
                tokens = tuple(_tokens(name.strip()))
                if not _names_something(tokens):
                    continue
                lengths[tokens[0]].add(len(tokens))
                self._names[tokens].setdefault(number, place == 0)
        self._lengths = {token: sorted(found, reverse=True) for token, found in lengths.items()}

    def __len__(self) -> int:
        """Returns how many things there are to find."""
        return len(self._things)

    def detect(
        self,
        message: str,
        *,
        query: Vector | None = None,
        recent: Sequence[str] = (),
        places: Sequence[str] = (),
    ) -> list[Detection]:
        """Returns the things that a message is about.

        The surest come first, then those named more often, then the more important ones.

        Args:
            message: The text of the message.
            query: Its vector, where vectors are compared.
            recent: The messages before it, newest last, for what was named just before.
            places: The names of the places that the user has open.
        """
        namings = self._named(message)
        best: dict[int, tuple[float, How]] = {}
        for thing, confidence, how in self._candidates(
            message, namings, query=query, recent=recent, places=places
        ):
            rounded = round(confidence, DECIMALS)
            if rounded < DETECTION.least:
                continue
            if thing not in best or rounded > best[thing][0]:
                best[thing] = rounded, how

        def rank(thing: int) -> tuple[float, int, float, str]:
            confidence, _ = best[thing]
            times = namings[thing].times_as_subject if thing in namings else 0
            return -confidence, -times, -self._things[thing].importance, self._things[thing].id

        detections = []
        for thing in sorted(best, key=rank):
            confidence, how = best[thing]
            detections.append(Detection(self._things[thing].id, confidence, how))
        return detections

    def _candidates(
        self,
        message: str,
        namings: Mapping[int, _Naming],
        *,
        query: Vector | None,
        recent: Sequence[str],
        places: Sequence[str],
    ) -> Iterator[tuple[int, float, How]]:
        """Yields things with their confidence by each way that finds them, the surest first."""
        for thing, naming in namings.items():
            yield thing, naming.confidence, naming.how
        for thing in self._with_all_terms(message):
            yield thing, DETECTION.terms, "terms"
        for place in places:
            for thing, naming in self._named(place).items():
                yield thing, DETECTION.open * naming.confidence, "open"
        for thing, cosine in self._outstanding(query):
            yield thing, DETECTION.vector * min(1.0, cosine), "similar"
        for ago, earlier in enumerate(reversed(recent)):
            share = DETECTION.salient * DETECTION.fading**ago
            for thing, naming in self._named(earlier).items():
                yield thing, share * naming.confidence, "salient"

    def named_ids(self, message: str) -> list[str]:
        """Returns the ids of the things that a message names, in the order of the things."""
        return [self._things[thing].id for thing in sorted(self._named(message))]

    def subject_ids(self, sentence: str) -> list[str]:
        """Returns the ids of the things that a sentence is about, in the order of the things.

        "Anna's cat Max is deaf" is about Max, where both are known.
        """
        namings = self._named(sentence)
        subjects = [thing for thing, naming in namings.items() if naming.times_as_subject]
        return [self._things[thing].id for thing in sorted(subjects)]

    def _named(self, message: str) -> dict[int, _Naming]:
        """Returns the things that a message names, and how; no name counts inside a longer one."""
        namings: dict[int, _Naming] = {}
        if not self._lengths:
            return namings
        tokens = _tokens(message)
        covered_until = 0
        named_before: Collection[int] = ()
        for start, token in enumerate(tokens):
            for length in self._lengths.get(token, ()):
                end = start + length
                if end <= covered_until:
                    continue
                things = self._names.get(tuple(tokens[start:end]))
                if not things:
                    continue
                if _OWNS.fullmatch("".join(tokens[covered_until:start])):
                    for owner in named_before:
                        namings[owner].times_as_owner += 1
                covered_until = end
                named_before = things
                for thing, is_label in things.items():
                    naming = namings.setdefault(thing, _Naming())
                    naming.by_label |= is_label
                    naming.times += 1
                break
        return namings

    def _with_all_terms(self, message: str) -> Iterator[int]:
        """Yields the things of which a message has all terms of a name."""
        if not self._terms:
            return
        message_terms = set(terms(message))
        for term in message_terms & self._terms.keys():
            for thing, needed in self._terms[term]:
                if needed <= message_terms:
                    yield thing

    def _outstanding(self, query: Vector | None) -> Iterator[tuple[int, float]]:
        """Yields the things whose vectors stand out against all others, with their cosines."""
        rows = self._rows_with_vector
        if query is None or len(rows) < 2:  # noqa: PLR2004 - one alone cannot stand out
            return
        [aim] = units(np.asarray([query], np.float32))
        cosines = np.einsum("ij,j->i", self._vectors, aim)[rows].astype(np.float64)
        cosines = np.round(cosines, DECIMALS)

        # Of each, the mean and the deviation of all others.
        others = len(cosines) - 1
        mean = (cosines.sum() - cosines) / others
        variance = ((cosines**2).sum() - cosines**2) / others - mean**2
        deviation = np.sqrt(np.maximum(variance, 0))
        deviation = np.maximum(deviation, DETECTION.least_deviation)

        is_near = cosines >= DETECTION.least_cosine
        stands_out = cosines >= mean + DETECTION.deviations * deviation
        for place in np.flatnonzero(is_near & stands_out):
            yield int(rows[place]), float(cosines[place])


def _names_something(tokens: Sequence[str]) -> bool:
    """Returns whether a name of these tokens names anything; "it" alone does not."""
    return bool(tokens) and not (len(tokens) == 1 and tokens[0] in STOP_WORDS)


def _tokens(text: str) -> list[str]:
    """Splits a text into folded words, white space and other characters.

    Of scripts without spaces between words, every character is one.
    """
    pattern = _ASCII_TOKEN if text.isascii() else _TOKEN
    tokens = pattern.findall(unicodedata.normalize("NFKC", text))
    return [" " if token.isspace() else token.casefold() for token in tokens]


def vector_kind_of(profile: Profile) -> VectorKind:
    """Returns the kind of a topic's or an entity's vector; no dimensions where it has none."""
    return profile.embedding_model or "", len(profile.embedding)


def detector_of(profiles: Sequence[Profile], kind: VectorKind | None = None) -> Detector:
    """Returns a detector for topics or entities by their names and terms.

    Of two found as surely, the more important one comes first.

    Args:
        profiles: The topics or entities.
        kind: The kind of vectors by which it finds them, too; None to find them without vectors.
    """
    times = [utc(profile.last_engaged_at) for profile in profiles if profile.last_engaged_at]
    newest = max(times, default=None)
    things = []
    for profile in profiles:
        importance = importance_at(profile, newest) if newest else 0.0
        things.append(Detectable(profile.id, profile.names, importance))
    if kind is None or not profiles:
        return Detector(things)

    _, dimensions = kind
    no_vector = (0.0,) * dimensions
    rows = []
    for profile in profiles:
        is_comparable = vector_kind_of(profile) == kind
        rows.append(profile.embedding if is_comparable else no_vector)
    return Detector(things, np.asarray(rows, np.float32).reshape(len(rows), -1))
