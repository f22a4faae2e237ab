"""What a message may be about: its noun phrases, found by word lists and by what stands before and after.

There is no tagger. A word that is in no list counts as a noun, unless its place or its ending says that it is a verb
or an adjective. Precision comes first: where there is doubt a word is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from langchain_ctxbudget.core.prose import units
from langchain_ctxbudget.core.rules import phrase_words as lists
from langchain_ctxbudget.core.text import STOP_WORDS, stem

MOST_WORDS = 3
"""Content words in a phrase."""
MOST_PHRASES = 60
"""Of one text; the first ones are taken."""
READ_CHARACTERS = 6_000
"""A longer text is a document that was pasted: its beginning says what it is about."""
TOPIC_MESSAGES, TOPIC_CONVERSATIONS = 3, 2
"""A phrase of so many messages, or of so many conversations, is one that a person comes back to."""
MIN_LETTERS, MAX_LETTERS = 3, 24
FEWEST_WORDS_TO_TELL = 6
"""A sentence of so many words without a common English one is in another language."""


class _Class(IntEnum):
    BREAK = 0
    """Is in no phrase."""
    WEAK = 1
    """Says what something is, not what it is about: "trip", "plan". Needs another word."""
    NOUN = 2


_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
# Inline code, notes in brackets, addresses, paths, names of files and functions, handles: no words.
_NO_WORDS = re.compile(r"`[^`\n]*`|\[[^\]\n]*\]|[^\s,;()]*(?:://|[@#\\_/=<>{}$%]|\w\.\w|\(\))[^\s,;()]*")
_TOKEN = re.compile(r"[^\W_]+(?:[-'\u2019][^\W_]+)*|[^\w\s]|_")
_WORD = re.compile(r"[a-z\u00df-\u024f]+[0-9]{0,2}")
_OPENS = frozenset('.!?:;"\u201c(')
"""After these, as at the beginning, a capital says nothing."""
_MARKS = frozenset(",!?.\u2026")
_ASKS = lists.words("what how when why where which who and but so then ,")
"""After these, as at the beginning, a verb may stand before its subject."""
_ASKS_OF = lists.words("how what which")
"""The same with a word between: "how long does"."""
_AT_THAT_TIME = lists.words(
    "this that each every next all tomorrow yesterday tonight one most monday tuesday wednesday thursday friday "
    "saturday sunday"
)
"""After these, a part of the day is a time; elsewhere it may say what kind of thing follows."""
_BROKEN_ENDING = re.compile(r"(?:ly|ful|less|ous|[a-z]{3}(?:able|ible)|iest|ier|ish|(?<!e)ed)$")
"""Of adverbs, adjectives, verbs."""
_ABSTRACT_ENDING = re.compile(
    r"[a-z]{3}(?:ness|ity|ance|ence|ment|tion|sion|ship|ism|[a-z](?:al|ic)|ive|ate|ary|ant|ent|ing)s?$"
)
_OWNER = re.compile(r"(?:['\u2019]s|(?<=s)['\u2019])$")

_HEADS = {
    "to": lists.words("trip trips holiday vacation journey visit move migration switch relocation"),
    "for": lists.words("training preparation application"),
    "of": lists.words("migration renovation redesign refactoring history"),
}
"""Nouns that say what is done with what follows: "trip to Lisbon" is "Lisbon trip"."""
_FOREIGN_WORDS = lists.words(
    "ich und der das ist nicht ein eine mit für auf mir mein wir sie den dem zu el que los las por para con una es "
    "del está mi yo muy je le les des est une pour dans pas mon et du sur il che di non per sono mio della eu não uma "
    "com meu em ik het een van niet mijn voor dat jag och det att som på med men jeg og ikke jest nie się na ve bir "
    "bu için tu su lo ma si se"
)
_ENGLISH_WORDS = lists.words(
    "the and is to of my i you it that for with this have are be what how can do we i'm it's but your our from "
    "about please if or not they would could should will there like any some more at by"
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase that a text may be about."""

    key: str
    """The stems of its words, joined by blanks: the same for all forms."""
    label: str
    """As it was written."""


@dataclass(frozen=True, slots=True)
class _Word:
    written: str
    parts: tuple[str, ...]
    stems: tuple[str, ...]
    kind: _Class
    is_name: bool
    """Whether its capital says that it is a name."""


def key_phrases(text: str) -> list[Phrase]:
    """The phrases of one to three words that a text may be about, each once, in the order in which they come up.

    A phrase and its parts are all given; which of them is meant shows when they are counted over many messages.

    Example:
        >>> [phrase.label for phrase in key_phrases("I am looking for a marathon training plan.")]
        ['Marathon', 'Marathon training', 'Marathon training plan', 'Training plan']
    """
    found: dict[str, Phrase] = {}
    for unit in units(_QUOTED_LINE.sub("", text[:READ_CHARACTERS])):
        if unit.startswith("[") and unit.endswith("]"):
            continue
        for run in _runs(_NO_WORDS.sub(" , ", unit)):
            for phrase in _phrases(run):
                found.setdefault(phrase.key, phrase)
        if len(found) >= MOST_PHRASES:
            break
    return list(found.values())[:MOST_PHRASES]


def is_topic(messages: int, conversations: int) -> bool:
    """Whether a phrase that came up in so many messages and conversations is one that a person comes back to."""
    return messages >= TOPIC_MESSAGES or conversations >= TOPIC_CONVERSATIONS


def key(label: str) -> str:
    """The key of a phrase, however it is written.

    Example:
        >>> key("Home-brewing") == key("home brews")
        True
    """
    return " ".join(map(stem, re.findall(r"[^\W_]+", _OWNER.sub("", label.lower()))))


def _runs(unit: str) -> Iterator[list[_Word]]:
    """The stretches of words that may be phrases."""
    tokens: list[str] = _TOKEN.findall(unit)
    lowered = [token.lower().replace("\u2019", "'") for token in tokens]
    if not _is_english(lowered):
        return
    run: list[_Word] = []
    expects_verb = False
    for at, low in enumerate(lowered):
        opens = at == 0 or tokens[at - 1] in _OPENS
        after = lowered[at + 1] if at + 1 < len(tokens) else ""
        is_out = (
            not (low in lists.ONLY_IN_COMPANY and _is_in_company(lowered, at, alone=not run))
            if low in lists.BREAKING
            else low in lists.PARTS_OF_DAY and _is_time(lowered, at)
        )
        word = None if is_out else _word(tokens[at], opens=opens and after not in lists.OF_PEOPLE)
        if word is None or word.kind is _Class.BREAK:
            yield from _ended(run, tokens, lowered, at)
            run = []
            if low not in lists.SKIPPED:
                begins = opens or lowered[at - 1] in _ASKS or (at > 1 and lowered[at - 2] in _ASKS_OF)
                expects_verb = low in lists.BE or (low in lists.BEFORE_VERBS and not (begins and low in lists.INVERTED))
            continue
        verb = _reads_as_verb(lowered, at, alone=not run, expected=expects_verb, opens=opens)
        expects_verb = False
        if not verb:
            run.append(word)
        if verb or _OWNER.search(low):
            yield from _ended(run, tokens, lowered, at)
            run = []
    yield from _ended(run, tokens, lowered, len(tokens))


def _ended(run: list[_Word], tokens: list[str], lowered: list[str], end: int) -> Iterator[list[_Word]]:
    """A run, and its last word with what it is done to: "trip to Lisbon" as "Lisbon trip"."""
    if not run or _is_exclaimed(run, tokens, end):
        return
    yield run
    if end == len(tokens) or len(run) > 1 or run[0].parts[-1] not in _HEADS.get(lowered[end], ()):
        return
    while end + 1 < len(tokens) and lowered[end + 1] in lists.DETERMINERS:
        end += 1
    if end + 1 < len(tokens) and lowered[end + 1] not in lists.BREAKING:
        done_to = _word(tokens[end + 1], opens=False)
        if done_to.kind is not _Class.BREAK:
            yield [done_to, run[0]]


def _is_exclaimed(run: list[_Word], tokens: list[str], end: int) -> bool:
    """Whether a word in no list stands alone between two marks: "Woohoo!", "..., right?"."""
    if len(run) > 1 or run[0].parts[-1] in lists.NOUNS or run[0].parts[-1].removesuffix("s") in lists.NOUNS:
        return False
    begins = end == 1 or not tokens[end - 2][0].isalnum()
    return begins and end < len(tokens) and tokens[end] in _MARKS


def _is_in_company(lowered: list[str], at: int, *, alone: bool) -> bool:
    """Whether a word stands beside a noun as part of its name: behind a singular, or between its article and it."""
    after = lowered[at + 1] if at + 1 < len(lowered) else ""
    before = lowered[at - 1] if at else ""
    if not alone:
        return lowered[at] != "back" and not before.endswith("s") and after not in lists.OBJECTS
    goes_on = after.isalpha() and (after not in lists.BREAKING or after in lists.ONLY_IN_COMPANY)
    return goes_on and (before in lists.BEFORE_NOUNS or before in lists.ADJECTIVES)


def _is_time(lowered: list[str], at: int) -> bool:
    """Whether a part of the day says when something is, not of what kind: "the night before", not "a night shift"."""
    before = lowered[max(0, at - 2) : at]
    after = lowered[at + 1] if at + 1 < len(lowered) else ""
    if not after.isalpha() or after in lists.BREAKING:
        return True
    last = before[-1:] == ["last"] and lists.DETERMINERS.isdisjoint(before)
    return last or not _AT_THAT_TIME.isdisjoint(before[-1:])


def _reads_as_verb(lowered: list[str], at: int, *, alone: bool, expected: bool, opens: bool) -> bool:
    """Whether a word stands where a verb does.

    Args:
        lowered: the tokens of the sentence.
        at: which of them.
        alone: whether it is the first of its run.
        expected: whether the words before ask for a verb.
        opens: whether a sentence begins with it.
    """
    low, before = lowered[at], lowered[at - 1] if at else ""
    has_object = at + 1 < len(lowered) and lowered[at + 1] in lists.OBJECTS
    if not alone:
        return has_object and low.endswith(("s", "ing"))
    if expected and before != "to":
        return before not in lists.BE or low.endswith("ing")
    if before == "to":
        return has_object or low in lists.VERB_FORMS
    if has_object:
        return low.endswith("ing") or before not in lists.BEFORE_NOUNS
    if low not in lists.ALSO_VERBS or before in lists.BEFORE_NOUNS or before in lists.ADJECTIVES:
        return False
    after = lowered[at + 1] if at + 1 < len(lowered) else ""
    return not low.endswith("s") and (not opens or after not in lists.BREAKING)


@lru_cache(maxsize=16_384)
def _word(written: str, *, opens: bool) -> _Word:
    bare = _OWNER.sub("", written)
    parts = tuple(bare.lower().split("-"))
    kinds = [_class(part) for part in parts]
    return _Word(
        written=bare,
        parts=parts,
        stems=tuple(map(stem, parts)),
        kind=_Class.BREAK if _Class.BREAK in kinds else max(kinds),
        is_name=not opens and written[0].isupper() and not written.isupper() and parts[-1] not in lists.NOUNS,
    )


def _class(word: str) -> _Class:
    if word in lists.ONLY_IN_COMPANY:
        return _Class.WEAK
    if not MIN_LETTERS <= len(word) <= MAX_LETTERS or not _WORD.fullmatch(word) or word in lists.BREAKING:
        return _Class.BREAK
    if word in lists.WEAK or word in lists.PARTS_OF_DAY:
        return _Class.WEAK
    if word in lists.NOUNS or word.removesuffix("s") in lists.NOUNS:
        return _Class.NOUN
    if _BROKEN_ENDING.search(word):
        return _Class.BREAK
    return _Class.WEAK if _ABSTRACT_ENDING.search(word) else _Class.NOUN


def _phrases(run: list[_Word]) -> Iterator[Phrase]:
    """Every phrase in a run of words."""
    for start in range(len(run)):
        for end in range(start + 1, min(len(run), start + MOST_WORDS) + 1):
            words = run[start:end]
            if end == start + 1 and (words[0].is_name or words[0].kind is _Class.WEAK) and len(words[0].parts) == 1:
                continue
            stems = [stem for word in words for stem in word.stems]
            if len(stems) > MOST_WORDS or len(set(stems)) < len(stems):
                continue
            label = " ".join(word.written for word in words)
            yield Phrase(" ".join(stems), label[0].upper() + label[1:] if words[0].written.islower() else label)


def _is_english(words: list[str]) -> bool:
    """Whether a sentence is not plainly in another language."""
    english = sum(word in _ENGLISH_WORDS for word in words)
    foreign = sum(word in _FOREIGN_WORDS for word in words)
    if foreign:
        return english > foreign
    known = any(word in STOP_WORDS or "'" in word for word in words)
    return known or sum(word[0].isalnum() for word in words) < FEWEST_WORDS_TO_TELL
