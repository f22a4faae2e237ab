"""What later messages used of earlier ones: evidence that needs no labels. Pure.

Whoever labels a conversation says which messages a turn is about. Without labels, the answer says
so itself: a path, a number or a name that it has, that stands in an old message and not in what was
just said, was taken from there. A single ordinary word proves nothing, as it may stand in both by
chance; several rare words from one sentence do.
"""

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.messages import (
    UNSPACED,
    cached_until_forgotten,
    fold,
    is_unspaced,
    is_user,
    one_line,
    plain_text,
    sentences,
    terms,
    values_in,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePolicy:
    """When something that stands in an answer and in an old message counts as used."""

    rare_share: float = 0.02
    """What stands in more than this share of the earlier messages is not rare."""
    always_rare: int = 3
    """What stands in at most so many earlier messages is rare in any conversation."""
    least_words: float = 3
    """Rare words that one sentence must share with the answer, where it shares no value."""
    least_words_of_user: float = 2
    """The same of a sentence of the user, whose words the model does not have from itself."""
    least_digits: int = 3
    """A bare number of fewer digits is no value, but a word: it stands in many texts by chance."""
    weight_of_others: float = 3
    """What the user or a tool said weighs so many times what the model said, which repeats its own
    phrases."""


EVIDENCE = EvidencePolicy()

_VALUE = re.compile(rf"[^\W_{UNSPACED}]+(?:(?:[^\W{UNSPACED}]|[./\\:@#%+,\-])*[^\W_{UNSPACED}])?")
"""A number, date, path, address, identifier or word, with the marks inside it; in scripts without
spaces, only what is in other letters or digits."""
_QUOTATION = re.compile(r"[\"“„«「『]([^\"“”„«»「」『』\n]{3,80})[\"”“»」』]")
_ESCAPED_BREAK = re.compile(r"\\[nrt]")
"""A line break as the arguments of a call have it in JSON."""
_LINE_NUMBER = re.compile(r"^\s*\d+[→\t|]", re.MULTILINE)
"""What a tool writes in front of the lines of a file."""
_IN_CAMEL_CASE = re.compile(r"[a-z\d][A-Z]")
_AROUND_WORDS = ".,;:!?()[]{}*\"'`“”„«»「」『』_"
_JOINED = re.compile(r"\w{2}[.\\:@#_]\w|\w[.\\:@#_]\w{2}|/.*/")


class Line(NamedTuple):
    """A sentence or a line of a message, and what it holds."""

    text: str
    items: frozenset[str]


@dataclass(frozen=True, slots=True)
class Use:
    """A sentence of an earlier message that an answer used."""

    message: int
    """The position of the earlier message in the conversation."""
    sentence: str
    items: tuple[str, ...]
    """What the answer has of it: values as they are compared, and stems of words."""
    weight: float
    """The rarer the items and the more of them, the higher."""


def is_value(item: str) -> bool:
    """Tells if an item is a number, an identifier, an address or a quotation, and no plain word."""
    return item.startswith("=")


@cached_until_forgotten(65_536)
def items_of(line: str) -> frozenset[str]:
    """Returns what a line holds: its values, each behind an equals sign, and stems of its words.

    Of a path, the last two parts are compared, as tools write it from different folders.
    """
    items: set[str] = set()
    for quotation in _QUOTATION.findall(line):
        items.add(f"={one_line(fold(quotation))}")
    words = line
    for token in _VALUE.findall(line):
        if _names_something(token):
            parts = re.split(r"[/\\]", fold(token))
            items.add(f"={'/'.join(parts[-2:])}")
            words = words.replace(token, " ")
    items.update(terms(words))
    return frozenset(items)


def _names_something(token: str) -> bool:
    """Tells if a token is a number of several digits, a path, an address or an identifier."""
    if token.isdigit():
        return len(token) >= EVIDENCE.least_digits
    return _has_digit(token) or bool(_JOINED.search(token) or _IN_CAMEL_CASE.search(token))


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def lines_of(text: str) -> tuple[Line, ...]:
    """Returns the sentences and lines of a text, and what each holds."""
    plain = _LINE_NUMBER.sub("", _ESCAPED_BREAK.sub("\n", text))
    return tuple(Line(one_line(sentence), items_of(sentence)) for sentence in sentences(plain))


class LineReader:
    """Reads messages line by line, each message once, as prompts have most of them in common."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[BaseMessage, tuple[Line, ...]]] = {}

    def lines(self, message: BaseMessage) -> tuple[Line, ...]:
        """Returns the sentences and lines of a message, and what each holds."""
        # The message is kept, so that no other one gets its address.
        read = self._read.get(id(message))
        if read is None:
            read = (message, lines_of(plain_text(message)))
            self._read[id(message)] = read
        return read[1]


class Conversation:
    """The messages of a conversation, read once: what each prompt's answer used of earlier ones."""

    def __init__(self, messages: Sequence[BaseMessage], reader: LineReader) -> None:
        """Reads the messages."""
        self._is_users = [is_user(message) for message in messages]
        self._is_models = [isinstance(message, AIMessage) for message in messages]
        self.lines = [reader.lines(message) for message in messages]
        self._places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._messages: dict[str, list[int]] = defaultdict(list)
        for number, lines in enumerate(self.lines):
            for place, line in enumerate(lines):
                for item in line.items:
                    self._places[item].append((number, place))
                    numbers = self._messages[item]
                    if not numbers or numbers[-1] != number:
                        numbers.append(number)

    def uses(self, answer: int, newest: int, known: Iterable[str] = ()) -> tuple[Use, ...]:
        """Returns what an answer used of the messages before the newest ones, the weightiest first.

        Args:
            answer: the position of the answer.
            newest: the position of the first of the messages that the answer directly follows. What
                they say themselves needs no memory.
            known: items that stand in every prompt, as in its instructions.
        """
        used = self.items(answer, answer + 1) - self.items(newest, answer) - set(known)
        weights: dict[str, float] = {}
        for item in used:
            weight = self._rarity(item, newest)
            if weight > 0:
                weights[item] = weight
        return self._sources(weights, newest)

    def items(self, begin: int, end: int) -> set[str]:
        """Returns everything that some messages in a row hold."""
        items: set[str] = set()
        for lines in self.lines[begin:end]:
            for line in lines:
                items |= line.items
        return items

    def _rarity(self, item: str, newest: int) -> float:
        """Returns the weight of an item by how few earlier messages hold it; 0 if many or none."""
        holders = bisect_left(self._messages.get(item, ()), newest)
        if not 0 < holders <= max(EVIDENCE.always_rare, EVIDENCE.rare_share * newest):
            return 0.0
        return math.log((newest + 1) / holders)

    def _sources(self, weights: dict[str, float], newest: int) -> tuple[Use, ...]:
        """Returns the sentences that hold the items, each item with the sentence that has most.

        Of sentences that have as much, the newest is meant.
        """
        shared: dict[tuple[int, int], set[str]] = defaultdict(set)
        for item in weights:
            for place in self._places[item]:
                if place[0] >= newest:
                    break
                shared[place].add(item)

        uses: list[Use] = []
        while shared:
            place = max(shared, key=lambda place: (self._weight(place, shared, weights), place))
            weight = self._weight(place, shared, weights)
            items = shared.pop(place)
            if self._proves_use(place[0], items):
                line = self.lines[place[0]][place[1]]
                uses.append(Use(place[0], line.text, tuple(sorted(items)), weight))
            for other in [*shared]:
                shared[other] -= items
                if not shared[other]:
                    del shared[other]
        return tuple(sorted(uses, key=lambda use: -use.weight))

    def _weight(
        self,
        place: tuple[int, int],
        shared: Mapping[tuple[int, int], set[str]],
        weights: Mapping[str, float],
    ) -> float:
        """Returns the weight of what a sentence shares with an answer."""
        weight = sum(weights[item] for item in sorted(shared[place]))
        if self._is_models[place[0]]:
            return weight
        return weight * EVIDENCE.weight_of_others

    def _proves_use(self, message: int, items: set[str]) -> bool:
        """Tells if items that a sentence of a message and an answer share are more than chance."""
        words = 0.0
        for item in items:
            if is_value(item):
                return True
            # A character of a script without spaces is in two pairs.
            words += 0.5 if is_unspaced(item) else 1.0
        if self._is_users[message]:
            return words >= EVIDENCE.least_words_of_user
        return words >= EVIDENCE.least_words


class Shown:
    """What a prompt shows of the items that some uses are about, line by line."""

    def __init__(self, lines: Iterable[Line], uses: Iterable[Use]) -> None:
        """Reads the lines of a prompt."""
        wanted = frozenset(chain.from_iterable(use.items for use in uses))
        self._lines: list[Line] = []
        for line in lines:
            items = wanted & line.items
            if items:
                self._lines.append(Line(line.text, items))

    def share(self, use: Use) -> float:
        """Returns the share of a use's items that stand together in one line of the prompt."""
        return len(self._nearest(use).items) / len(use.items)

    def missing(self, use: Use) -> tuple[str, ...]:
        """Returns what of a use its nearest line does not have, as the sentence has it."""
        found = self._nearest(use).items
        missing = [item for item in use.items if item not in found]
        return as_written(missing, use.sentence)

    def _nearest(self, use: Use) -> Line:
        """Returns the line with most of a use's items, and those that it has."""
        best = Line("", frozenset())
        wanted = frozenset(use.items)
        for line in self._lines:
            items = wanted & line.items
            if len(items) > len(best.items):
                best = Line(line.text, items)
        return best


def as_written(items: Sequence[str], sentence: str) -> tuple[str, ...]:
    """Returns the values and words of a sentence that items stand for, in order.

    Of a value of several words, such as a date, an item is only a part: the whole value is told. An
    item that no word stands for, as a quotation or two characters, is told as it is.
    """
    values = [value.text for value in values_in(sentence, with_names=False)]
    left = set(items)
    words: list[str] = []
    for word in sentence.split():
        named = items_of(word) & left
        if named:
            left -= named
            words.append(_whole(word.strip(_AROUND_WORDS), values))
    words += sorted(item.removeprefix("=") for item in left)
    return tuple(dict.fromkeys(words))


def _whole(word: str, values: Sequence[str]) -> str:
    """Returns the value that a word is a part of; the word itself if it is of none."""
    for value in values:
        if word in value.split():
            return value
    return word
