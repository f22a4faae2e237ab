"""What the reader looks at in a sentence: its characters and words in short runs, and its place.

Each feature is hashed into one of `BUCKETS` numbers, so that no vocabulary is kept. All sentences
of a batch are worked on at once: their characters stand in one array, and arrays of the same length
say which sentence each belongs to.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.int64]

BUCKET_BITS = 17
"""The highest bits of a feature's hash: the number of its bucket."""
BUCKETS = 1 << BUCKET_BITS
MARK_SHIFT = 32
"""The eight bits from this one on, counted from the lowest, are the mark of a feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePolicy:
    """What of a sentence is a feature; whoever changes it must train the weights again."""

    most_characters: int = 400
    """Characters of a sentence that are looked at, from its beginning."""
    run_lengths: tuple[int, ...] = (3, 4, 5)
    """Characters in a row that are a feature, within a word and the spaces around it."""
    word_gaps: tuple[int, ...] = (1, 2)
    """How far apart two words are that are a feature together."""
    first_words: int = 3
    """Words of the beginning of a sentence that are features as such."""
    characters_a_step: int = 25
    """Lengths of sentences are told apart in steps of so many characters."""
    most_steps: int = 10
    """With more steps, all sentences are equally long."""


FEATURE_POLICY = FeaturePolicy()
_PRIME = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples spread over all numbers of 64 bits: the golden ratio's (Knuth)."""
_MULTIPLIER = np.uint64(0xFF51AFD7ED558CCD)
_POWERS = np.cumprod(np.full(FEATURE_POLICY.most_characters + 4, _PRIME, np.uint64))
_COLONS = (":", "\uff1a")
_OPENING_QUOTES = "\u201c\u201e\u00ab\u300c\u300e"
_CLOSING_QUOTES = "\u201d\u00bb\u300d\u300f"
_SPACE = ord(" ")
_ZERO = ord("0")
_NINE = ord("9")
_END = 0
"""The character behind each sentence of a batch."""


class Family(IntEnum):
    """Kinds of features. The number of its kind is part of a feature's hash."""

    RUN = 0
    """Characters in a row."""
    WORD = 10
    PAIR = 20
    """Two words that stand near each other."""
    FIRST_WORD = 30
    NEXT_WORD = 31
    """One of the words that follow the first one."""
    LAST_WORD = 40
    PLACE = 50
    """Where the sentence stands, how long it is, and which marks it has."""
    FIRST_PAIR = 60
    """The first two words of a sentence."""
    FIRST_THREE = 61
    """The first three words of a sentence."""
    CLAUSE_WORD = 62
    """The first word of a clause."""
    CLAUSE_PAIR = 63
    """The first two words of a clause."""


WEIGHTS = {
    Family.RUN: 0.5,
    Family.WORD: 1.0,
    Family.PAIR: 1.0,
    Family.FIRST_WORD: 1.0,
    Family.NEXT_WORD: 1.0,
    Family.LAST_WORD: 1.0,
    Family.PLACE: 0.7,
    Family.FIRST_PAIR: 1.5,
    Family.FIRST_THREE: 1.5,
    Family.CLAUSE_WORD: 1.0,
    Family.CLAUSE_PAIR: 1.0,
}
"""How much a feature of each kind counts: there are many more runs than words, and what a sentence
or a clause begins with says most about what it is."""


class PlacedSentence(NamedTuple):
    """A sentence and where it stands in its message."""

    text: str
    number: int
    """From 0."""
    of: int
    """How many sentences the message has."""
    is_announced: bool = False
    """True if the sentence in front of it ends with a colon."""
    is_behind_colon: bool = False
    """True if any sentence in front of it does: somebody else's text may have begun there."""
    is_in_quotes: bool = False
    """True if a quotation has begun in front of it and has not ended."""


def placed(texts: Sequence[str]) -> list[PlacedSentence]:
    """Returns the sentences of one message, each with its place."""
    sentences: list[PlacedSentence] = []
    is_announced = False
    is_behind_colon = False
    quotes = _Quotes()
    for number, text in enumerate(texts):
        sentences.append(
            PlacedSentence(
                text=text,
                number=number,
                of=len(texts),
                is_announced=is_announced,
                is_behind_colon=is_behind_colon,
                is_in_quotes=quotes.are_open,
            )
        )
        is_announced = text.rstrip().endswith(_COLONS)
        is_behind_colon |= is_announced
        quotes = quotes.after(text)
    return sentences


class _Quotes(NamedTuple):
    """The quotation marks of a message so far."""

    opened: int = 0
    """How many more have opened than closed, of those that look different at both ends."""
    straight: int = 0
    """How many there are of those that look alike."""

    @property
    def are_open(self) -> bool:
        """True if a quotation has begun and not ended."""
        return self.opened > 0 or self.straight % 2 == 1

    def after(self, text: str) -> "_Quotes":
        """Returns them with those of one more sentence."""
        opened = sum(map(text.count, _OPENING_QUOTES)) - sum(map(text.count, _CLOSING_QUOTES))
        return _Quotes(max(0, self.opened + opened), self.straight + text.count('"'))


@dataclass(frozen=True, slots=True)
class Features:
    """The features of the sentences of a batch, sentence by sentence; arrays of one length."""

    buckets: Numbers
    marks: NDArray[np.uint8]
    """Further bits of their hashes, by which features of one bucket are told apart."""
    owners: Numbers
    """The number of the sentence that has each."""
    weights: NDArray[np.float32]
    """How much each counts."""

    def scaled(self, rarity: NDArray[np.float32], marks: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Returns the weights, larger where a feature is rare, and 0 where it is unknown.

        If all features of a sentence were known, the squares of their weights would add up to 1. So
        a long sentence counts no more than a short one, and one of unknown words counts little.

        Args:
            rarity: A factor for every bucket, shape (buckets,); 0 where it stands for nothing.
            marks: The mark of the feature that each bucket stands for, shape (buckets,).
        """
        is_known = (marks[self.buckets] == self.marks) & (rarity[self.buckets] > 0)
        factors = np.where(is_known, rarity[self.buckets], np.float32(1.0))
        weights: NDArray[np.float32] = self.weights * factors
        lengths = np.sqrt(np.bincount(self.owners, weights * weights)).astype(np.float32)
        scaled: NDArray[np.float32] = weights * is_known / lengths[self.owners]
        return scaled


class _OneKind(NamedTuple):
    """Features of one kind."""

    family: Family
    hashes: Hashes
    owners: Numbers


def features_of(
    sentences: Sequence[PlacedSentence], families: Collection[Family] = tuple(Family)
) -> Features:
    """Returns the features of sentences, of some kinds; there is at least one sentence."""
    all_kinds = [*_in_texts(sentences), _of_places(sentences)]
    kinds = [kind for kind in all_kinds if kind.family in families]
    owners = np.concatenate([kind.owners for kind in kinds])
    counts = [len(kind.hashes) for kind in kinds]
    families_of_all = np.repeat([kind.family for kind in kinds], counts)
    hashes = _mixed(np.concatenate([kind.hashes for kind in kinds]), families_of_all)
    weights = np.repeat(np.array([WEIGHTS[kind.family] for kind in kinds], np.float32), counts)
    order = np.argsort(owners, kind="stable")
    hashes = hashes[order]
    buckets = (hashes >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
    marks = (hashes >> np.uint64(MARK_SHIFT)).astype(np.uint8)
    return Features(buckets, marks, owners[order], weights[order])


def _mixed(hashes: Hashes, families: Numbers | int) -> Hashes:
    """Returns hashes that depend on their families, with every bit on every bit of the given ones.

    Args:
        hashes: The hashes, shape (features,).
        families: The family of each, or that of all of them.
    """
    mixed: Hashes = hashes + _POWERS[families]
    mixed ^= mixed >> np.uint64(33)
    mixed *= _MULTIPLIER
    mixed ^= mixed >> np.uint64(29)
    return mixed


# In the texts


def _in_texts(sentences: Sequence[PlacedSentence]) -> Iterator[_OneKind]:
    """Yields the features in the texts of sentences."""
    texts = [_framed(sentence.text) for sentence in sentences]
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), np.uint32).copy()
    codes[(codes >= _ZERO) & (codes <= _NINE)] = _ZERO  # one number is like another
    owners = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    yield from _runs(codes, owners)
    words = _words_in(codes, owners)
    if words is not None:
        yield from _words_and_pairs(words)
        yield from _words_at_ends(words)
        yield from _openings(words)


def _framed(text: str) -> str:
    """Returns a text between spaces, with the mark of its end."""
    words = text[: FEATURE_POLICY.most_characters].lower().replace("\0", " ")
    return f" {words} \0"


def _runs(codes: NDArray[np.uint32], owners: Numbers) -> Iterator[_OneKind]:
    """Yields characters in a row, of which only the first and the last may be a space."""
    values = codes.astype(np.uint64)
    is_space = codes == _SPACE
    is_end = codes == _END
    spaces = np.append(0, np.cumsum(is_space))
    ends = np.append(0, np.cumsum(is_end))
    hashes = values
    for length in range(2, max(FEATURE_POLICY.run_lengths) + 1):
        hashes = hashes[:-1] * _PRIME + values[length - 1 :]
        if length not in FEATURE_POLICY.run_lengths:
            continue
        inner_spaces = spaces[length - 1 : -1] - spaces[1 : len(spaces) - length + 1]
        ends_inside = ends[length:] - ends[:-length]
        starts = np.flatnonzero((inner_spaces == 0) & (ends_inside == 0))
        yield _OneKind(Family.RUN, hashes[starts] + np.uint64(length), owners[starts])


class _Words(NamedTuple):
    """The words of all sentences, one after the other; arrays of one length."""

    hashes: Hashes
    owners: Numbers
    """The number of the sentence that has each."""
    first_codes: NDArray[np.uint32]
    """The first character of each."""
    has_letters: NDArray[np.bool_]
    """False for a mark, and for a character of a script without spaces."""

    @property
    def begins_sentence(self) -> NDArray[np.bool_]:
        """Whether each is the first word of its sentence."""
        return np.append(True, self.owners[1:] != self.owners[:-1])

    @property
    def begins_clause(self) -> NDArray[np.bool_]:
        """Whether each is the first word of a sentence, or of letters behind a mark."""
        is_break = _clause_breaks()[np.minimum(self.first_codes, _KNOWN_CODES - 1)]
        follows_break = np.append(False, is_break[:-1])
        return self.begins_sentence | (follows_break & self.has_letters)


def _words_in(codes: NDArray[np.uint32], owners: Numbers) -> _Words | None:
    """Returns the words of sentences; None where there is none."""
    kinds = _kinds_of(codes)
    in_words = np.flatnonzero(kinds != _Character.SPACE)
    if not len(in_words):
        return None
    is_letter = kinds[in_words] == _Character.LETTER
    is_adjacent = np.append(False, np.diff(in_words) == 1)
    follows_letter = is_adjacent & np.append(False, is_letter[:-1])
    starts = np.flatnonzero(~(is_letter & follows_letter))
    lengths = np.diff(np.append(starts, len(in_words)))
    places = np.arange(len(in_words)) - np.repeat(starts, lengths)
    parts = (codes[in_words].astype(np.uint64) + np.uint64(7)) * _POWERS[places]
    return _Words(
        hashes=_mixed(np.add.reduceat(parts, starts), Family.WORD),
        owners=owners[in_words[starts]],
        first_codes=codes[in_words[starts]],
        has_letters=is_letter[starts],
    )


def _words_and_pairs(words: _Words) -> Iterator[_OneKind]:
    """Yields the words, and pairs of them that stand near each other."""
    hashes = words.hashes
    owners = words.owners
    yield _OneKind(Family.WORD, hashes, owners)
    for gap in FEATURE_POLICY.word_gaps:
        is_one_sentence = owners[:-gap] == owners[gap:]
        pairs = hashes[:-gap] * _PRIME + hashes[gap:] + np.uint64(gap)
        yield _OneKind(Family.PAIR, pairs[is_one_sentence], owners[:-gap][is_one_sentence])


def _words_at_ends(words: _Words) -> Iterator[_OneKind]:
    """Yields the words at both ends of sentences."""
    firsts = np.flatnonzero(words.begins_sentence)
    lasts = np.append(firsts[1:], len(words.owners)) - 1
    yield _OneKind(Family.LAST_WORD, words.hashes[lasts], words.owners[lasts])
    yield _OneKind(Family.FIRST_WORD, words.hashes[firsts], words.owners[firsts])
    for distance in range(1, FEATURE_POLICY.first_words):
        nexts = (firsts + distance)[firsts + distance <= lasts]
        yield _OneKind(Family.NEXT_WORD, words.hashes[nexts], words.owners[nexts])


def _openings(words: _Words) -> Iterator[_OneKind]:
    """Yields what sentences and clauses begin with, in order."""
    firsts = np.flatnonzero(words.begins_sentence)
    clauses = np.flatnonzero(words.begins_clause)
    yield _OneKind(Family.CLAUSE_WORD, words.hashes[clauses], words.owners[clauses])
    yield _in_a_row(Family.FIRST_PAIR, words, firsts, 2)
    yield _in_a_row(Family.FIRST_THREE, words, firsts, 3)
    yield _in_a_row(Family.CLAUSE_PAIR, words, clauses, 2)


def _in_a_row(family: Family, words: _Words, starts: Numbers, length: int) -> _OneKind:
    """Returns words in a row that begin at some places and end in the same sentence."""
    owners = words.owners
    ends = starts + length - 1
    is_within = ends < len(owners)
    is_within[is_within] = owners[starts[is_within]] == owners[ends[is_within]]
    starts = starts[is_within]
    hashes = words.hashes[starts]
    for distance in range(1, length):
        hashes = hashes * _PRIME + words.hashes[starts + distance]
    return _OneKind(family, hashes, owners[starts])


class _Character(IntEnum):
    """Kinds of characters, by the part that they play in words."""

    SPACE = 0
    LETTER = 1
    """A part of a word."""
    WORD = 2
    """A word by itself: a mark, or a character of a script without spaces."""


_MARKS = [
    (0xA1, 0xA1),
    (0xAB, 0xAB),
    (0xBB, 0xBB),
    (0xBF, 0xBF),
    (0x60C, 0x60C),
    (0x61F, 0x61F),
    (0x964, 0x964),
    (0x2000, 0x206F),
    (0x3001, 0x303F),
    (0xFF00, 0xFF0F),
    (0xFF1A, 0xFF1F),
    (0x1F000, 0x1FFFF),
]
"""Ranges of marks and emojis beyond ASCII."""
_UNSPACED = [(0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF)]
"""Ranges of characters of Chinese, Japanese and Korean."""
_CLAUSE_BREAKS = ",;:.!?-\u2013\u2014\uff0c\u3002\u3001\uff1b"
"""Marks behind which a clause may begin."""
_APOSTROPHES = "'_\u2019"
_SPACES = " \t\n\r\xa0\u3000\0"
_KNOWN_CODES = 0x20000
"""Characters from this code on are letters."""


@cache
def _kinds() -> NDArray[np.uint8]:
    """Returns the kind of every character, by its code."""
    kinds = np.full(_KNOWN_CODES, _Character.LETTER, np.uint8)
    for code in range(128):
        if not chr(code).isalnum():
            kinds[code] = _Character.WORD
    for first, last in (*_MARKS, *_UNSPACED):
        kinds[first : last + 1] = _Character.WORD
    kinds[[ord(character) for character in _APOSTROPHES]] = _Character.LETTER
    kinds[[ord(character) for character in _SPACES]] = _Character.SPACE
    return kinds


@cache
def _clause_breaks() -> NDArray[np.bool_]:
    """Returns for every character, by its code, whether a clause may begin behind it."""
    breaks = np.zeros(_KNOWN_CODES, np.bool_)
    breaks[[ord(mark) for mark in _CLAUSE_BREAKS]] = True
    return breaks


def _kinds_of(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Returns the kinds of characters."""
    return _kinds()[np.minimum(codes, _KNOWN_CODES - 1)]


# Where they stand


_FIRST_QUOTES = "\"'\u201c\u201e\u00ab\u300c>"
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_BULLETS = ("- ", "* ", "\u2022 ")


def _of_places(sentences: Sequence[PlacedSentence]) -> _OneKind:
    """Returns the features of each sentence's place, length and marks."""
    places = [_places(sentence) for sentence in sentences]
    owners = np.repeat(np.arange(len(places)), list(map(len, places)))
    hashes = np.array([place for of_one in places for place in of_one], np.uint64)
    return _OneKind(Family.PLACE, hashes, owners)


class _Place(IntEnum):
    """Features of a sentence's place, length and marks."""

    FIRST = 1
    NOT_FIRST = 2
    LAST = 3
    NOT_LAST = 4
    """To which the number of the message's sentences is added."""
    OF_CHARACTERS = 20
    """To which the step of the sentence's length is added."""
    ASKS = 40
    EXCLAIMS = 41
    PLAIN = 42
    QUOTES = 50
    HAS_CODE = 51
    IS_ANNOUNCED = 52
    IS_ITEM = 53
    IS_BEHIND_COLON = 54
    IS_IN_QUOTES = 55


def _places(sentence: PlacedSentence) -> list[int]:
    """Returns the features of one sentence's place, length and marks."""
    step = min(len(sentence.text) // FEATURE_POLICY.characters_a_step, FEATURE_POLICY.most_steps)
    places = [_Place.OF_CHARACTERS + step]
    if sentence.of > 1:  # the data were written: they cannot tell how often a rule stands alone
        places += _places_among_others(sentence)
    return places + _marks_of(sentence)


def _places_among_others(sentence: PlacedSentence) -> list[int]:
    """Returns where a sentence stands among the others of its message."""
    is_first = sentence.number == 0
    is_last = sentence.number == sentence.of - 1
    return [
        _Place.FIRST if is_first else _Place.NOT_FIRST,
        _Place.LAST if is_last else _Place.NOT_LAST,
    ]


def _marks_of(sentence: PlacedSentence) -> list[int]:
    """Returns which marks a sentence has, and which stand before it."""
    text = sentence.text
    marks: list[int] = []
    if text.endswith(_QUESTION_MARKS):
        marks.append(_Place.ASKS)
    elif text.endswith("!"):
        marks.append(_Place.EXCLAIMS)
    else:
        marks.append(_Place.PLAIN)
    if text[:1] in _FIRST_QUOTES:
        marks.append(_Place.QUOTES)
    if "`" in text:
        marks.append(_Place.HAS_CODE)
    if sentence.is_announced:
        marks.append(_Place.IS_ANNOUNCED)
    if sentence.is_behind_colon:
        marks.append(_Place.IS_BEHIND_COLON)
    if sentence.is_in_quotes:
        marks.append(_Place.IS_IN_QUOTES)
    if text.startswith(_BULLETS) or text[:1].isdigit():
        marks.append(_Place.IS_ITEM)
    return marks
