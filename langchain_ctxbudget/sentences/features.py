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
BUCKETS = 1 << BUCKET_BITS
MARK_PLACE = 32
"""The bits of a hash from which its mark is taken, the lowest first."""
MOST_CHARACTERS = 400
"""Characters of a sentence that are looked at."""
RUN_LENGTHS = (3, 4, 5)
"""Characters in a row that are a feature, within a word and the spaces around it."""
WORD_GAPS = (1, 2)
"""How far apart two words are that are a feature together."""
FIRST_WORDS = 3
LONGEST_COUNTED = 8
"""The number of sentences of a message, above which all are taken for equally long."""
CHARACTERS_OF_A_STEP = 25
"""Lengths of sentences are told apart in steps of so many characters."""
LONGEST_STEP = 10
_PRIME = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples spread over all numbers of 64 bits: the golden ratio's (Knuth)."""
_MULTIPLIER = np.uint64(0xFF51AFD7ED558CCD)
_POWERS = np.cumprod(np.full(MOST_CHARACTERS + 4, _PRIME, np.uint64))
_COLONS = (":", "\uff1a")
_OPENING_QUOTES = "\u201c\u201e\u00ab\u300c\u300e"
_CLOSING_QUOTES = "\u201d\u00bb\u300d\u300f"
_SPACE = ord(" ")
_ZERO = ord("0")
_NINE = ord("9")
_END = 0
"""The character behind each sentence of a batch."""


class Family(IntEnum):
    """Kinds of features; a number is part of the hash of each feature of its kind."""

    RUN = 0
    WORD = 10
    PAIR = 20
    FIRST_WORD = 30
    NEXT_WORD = 31
    LAST_WORD = 40
    PLACE = 50
    FIRST_PAIR = 60
    FIRST_THREE = 61
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
        """Returns the weights with those of rare features larger, and of unknown ones 0.

        The squares of those of a sentence would add up to 1 if all its features were known. So a
        long sentence counts no more than a short one, and of strange words little is said.

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


class _Found(NamedTuple):
    """Features of one kind."""

    family: Family
    hashes: Hashes
    owners: Numbers


def features_of(
    sentences: Sequence[PlacedSentence], families: Collection[Family] = tuple(Family)
) -> Features:
    """Returns the features of sentences, of some kinds; there is at least one sentence."""
    all_found = [*_in_texts(sentences), _of_places(sentences)]
    found = [one for one in all_found if one.family in families]
    owners = np.concatenate([one.owners for one in found])
    hashes = np.concatenate([_mixed(one.hashes, one.family) for one in found])
    weights = np.concatenate(
        [np.full(len(one.hashes), WEIGHTS[one.family], np.float32) for one in found]
    )
    order = np.argsort(owners, kind="stable")
    hashes = hashes[order]
    buckets = (hashes >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
    marks = (hashes >> np.uint64(MARK_PLACE)).astype(np.uint8)
    return Features(buckets, marks, owners[order], weights[order])


def _mixed(hashes: Hashes, family: int) -> Hashes:
    """Returns hashes of which every bit depends on every bit of the given ones, and on a number."""
    mixed: Hashes = hashes + _POWERS[family]
    mixed ^= mixed >> np.uint64(33)
    mixed *= _MULTIPLIER
    mixed ^= mixed >> np.uint64(29)
    return mixed


# In the texts


def _in_texts(sentences: Sequence[PlacedSentence]) -> Iterator[_Found]:
    """Yields the features in the texts of sentences."""
    texts = [_framed(sentence.text) for sentence in sentences]
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), np.uint32).copy()
    codes[(codes >= _ZERO) & (codes <= _NINE)] = _ZERO  # one number is like another
    owners = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    yield from _runs(codes, owners)
    yield from _words(codes, owners)


def _framed(text: str) -> str:
    """Returns a text between spaces, with the mark of its end."""
    words = text[:MOST_CHARACTERS].lower().replace("\0", " ")
    return f" {words} \0"


def _runs(codes: NDArray[np.uint32], owners: Numbers) -> Iterator[_Found]:
    """Yields characters in a row, of which only the first and the last may be a space."""
    values = codes.astype(np.uint64)
    is_space = codes == _SPACE
    is_end = codes == _END
    spaces = np.append(0, np.cumsum(is_space))
    ends = np.append(0, np.cumsum(is_end))
    hashes = values
    for length in range(2, max(RUN_LENGTHS) + 1):
        hashes = hashes[:-1] * _PRIME + values[length - 1 :]
        if length not in RUN_LENGTHS:
            continue
        inner_spaces = spaces[length - 1 : -1] - spaces[1 : len(spaces) - length + 1]
        ends_inside = ends[length:] - ends[:-length]
        starts = np.flatnonzero((inner_spaces == 0) & (ends_inside == 0))
        yield _Found(Family.RUN, hashes[starts] + np.uint64(length), owners[starts])


def _words(codes: NDArray[np.uint32], owners: Numbers) -> Iterator[_Found]:
    """Yields words, pairs of them, and those at the ends of sentences."""
    kinds = _kinds_of(codes)
    in_words = np.flatnonzero(kinds != _Character.SPACE)
    if not len(in_words):
        return
    is_letter = kinds[in_words] == _Character.LETTER
    follows = np.append(False, np.diff(in_words) == 1)
    follows_letter = follows & np.append(False, is_letter[:-1])
    starts = np.flatnonzero(~(is_letter & follows_letter))
    lengths = np.diff(np.append(starts, len(in_words)))
    places = np.arange(len(in_words)) - np.repeat(starts, lengths)
    parts = (codes[in_words].astype(np.uint64) + np.uint64(7)) * _POWERS[places]
    words = _mixed(np.add.reduceat(parts, starts), Family.WORD)
    of = owners[in_words[starts]]
    yield _Found(Family.WORD, words, of)
    for gap in WORD_GAPS:
        is_one_sentence = of[:-gap] == of[gap:]
        pairs = words[:-gap] * _PRIME + words[gap:] + np.uint64(gap)
        yield _Found(Family.PAIR, pairs[is_one_sentence], of[:-gap][is_one_sentence])

    firsts = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    lasts = np.append(firsts[1:], len(of)) - 1
    yield _Found(Family.LAST_WORD, words[lasts], of[lasts])
    yield _Found(Family.FIRST_WORD, words[firsts], of[firsts])
    for distance in range(1, FIRST_WORDS):
        nexts = (firsts + distance)[firsts + distance <= lasts]
        yield _Found(Family.NEXT_WORD, words[nexts], of[nexts])

    is_break = np.isin(codes[in_words[starts]], _CLAUSE_BREAKS)
    yield from _openings(words, of, is_break, is_letter[starts])


def _openings(
    words: Hashes, of: Numbers, is_break: NDArray[np.bool_], is_letter: NDArray[np.bool_]
) -> Iterator[_Found]:
    """Yields what sentences and clauses begin with, in order.

    Args:
        words: The words of all sentences, one after the other.
        of: The number of the sentence that has each.
        is_break: Whether each is a mark behind which a clause may begin.
        is_letter: Whether each is a word of letters.
    """
    is_first = np.append(True, of[1:] != of[:-1])
    follows_break = np.append(False, is_break[:-1])
    firsts = np.flatnonzero(is_first)
    clauses = np.flatnonzero(is_first | (follows_break & is_letter))
    yield _Found(Family.CLAUSE_WORD, words[clauses], of[clauses])
    for family, starts, length in (
        (Family.FIRST_PAIR, firsts, 2),
        (Family.FIRST_THREE, firsts, 3),
        (Family.CLAUSE_PAIR, clauses, 2),
    ):
        yield _in_a_row(family, words, of, starts, length)


def _in_a_row(family: Family, words: Hashes, of: Numbers, starts: Numbers, length: int) -> _Found:
    """Returns the runs of words that begin at some places and end in the same sentence."""
    ends = starts + length - 1
    is_within = ends < len(of)
    is_within[is_within] = of[starts[is_within]] == of[ends[is_within]]
    starts = starts[is_within]
    hashes = words[starts]
    for distance in range(1, length):
        hashes = hashes * _PRIME + words[starts + distance]
    return _Found(family, hashes, of[starts])


class _Character(IntEnum):
    """What a character is to a word."""

    SPACE = 0
    LETTER = 1
    """It is part of a word."""
    WORD = 2
    """It is a word by itself: a mark, or a character of a script without spaces."""


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
_CLAUSE_BREAKS = [ord(mark) for mark in ",;:.!?-\u2013\u2014\uff0c\u3002\u3001\uff1b"]
"""Marks behind which a clause may begin."""
_APOSTROPHES = "'_\u2019"
_SPACES = " \t\n\r\xa0\u3000\0"
_KNOWN_CODES = 0x20000
"""Characters beyond are parts of words."""


@cache
def _kinds() -> NDArray[np.uint8]:
    """Returns what each character is to words."""
    kinds = np.full(_KNOWN_CODES, _Character.LETTER, np.uint8)
    for code in range(128):
        if not chr(code).isalnum():
            kinds[code] = _Character.WORD
    for first, last in (*_MARKS, *_UNSPACED):
        kinds[first : last + 1] = _Character.WORD
    kinds[[ord(character) for character in _APOSTROPHES]] = _Character.LETTER
    kinds[[ord(character) for character in _SPACES]] = _Character.SPACE
    return kinds


def _kinds_of(codes: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Returns what characters are to words."""
    return _kinds()[np.minimum(codes, _KNOWN_CODES - 1)]


# Where they stand


_FIRST_QUOTES = "\"'\u201c\u201e\u00ab\u300c>"
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_BULLETS = ("- ", "* ", "\u2022 ")


def _of_places(sentences: Sequence[PlacedSentence]) -> _Found:
    """Returns what the place and the marks of each sentence tell."""
    places = [_places(sentence) for sentence in sentences]
    owners = np.repeat(np.arange(len(places)), list(map(len, places)))
    hashes = np.array([place for of_one in places for place in of_one], np.uint64)
    return _Found(Family.PLACE, hashes, owners)


class _Place(IntEnum):
    """What the place and the marks of a sentence may tell; of steps, the first one."""

    FIRST = 1
    NOT_FIRST = 2
    LAST = 3
    NOT_LAST = 4
    OF_SENTENCES = 10
    OF_CHARACTERS = 20
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
    """Returns what the place and the marks of a sentence tell."""
    text = sentence.text
    step = min(len(text) // CHARACTERS_OF_A_STEP, LONGEST_STEP)
    places = [_Place.OF_CHARACTERS + step]
    if sentence.of > 1:  # how often a message is a rule alone, no data tell
        places += [
            _Place.FIRST if sentence.number == 0 else _Place.NOT_FIRST,
            _Place.LAST if sentence.number == sentence.of - 1 else _Place.NOT_LAST,
            _Place.OF_SENTENCES + min(sentence.of, LONGEST_COUNTED),
        ]
    if text.endswith(_QUESTION_MARKS):
        places.append(_Place.ASKS)
    elif text.endswith("!"):
        places.append(_Place.EXCLAIMS)
    else:
        places.append(_Place.PLAIN)
    if text[:1] in _FIRST_QUOTES:
        places.append(_Place.QUOTES)
    if "`" in text:
        places.append(_Place.HAS_CODE)
    if sentence.is_announced:
        places.append(_Place.IS_ANNOUNCED)
    if sentence.is_behind_colon:
        places.append(_Place.IS_BEHIND_COLON)
    if sentence.is_in_quotes:
        places.append(_Place.IS_IN_QUOTES)
    if text.startswith(_BULLETS) or text[:1].isdigit():
        places.append(_Place.IS_ITEM)
    return places
