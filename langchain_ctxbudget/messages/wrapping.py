"""Lines that a sentence goes on from: those of a text that was wrapped at a width.

A line break ends a sentence in lists, headings, verses and most of what people type. In a text that
was wrapped it ends none, and what stands behind it may limit a rule.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from langchain_ctxbudget.messages.text import ENGLISH, is_at_end_of_sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappingPolicy:
    """When a line break is taken for one that a width has made."""

    least_columns: int = 50
    """Texts are wrapped at so many columns at least; verses and items of lists are shorter."""
    most_columns: int = 100
    """And at so many at most."""
    fewest_words: int = 3
    """A line of fewer words in front of one in small letters is a title or a greeting."""
    fewest_lines: int = 3
    """A paragraph of fewer lines does not show that it was wrapped."""


WRAPPING_POLICY = WrappingPolicy()


@dataclass(frozen=True)
class Paragraph:
    """Lines of prose between blank ones, without white space at their ends."""

    lines: Sequence[str]
    indents: Sequence[int]
    """How far each line is indented, in characters."""

    @cached_property
    def columns(self) -> int:
        """The columns of the longest line."""
        return max(map(_columns, self.lines))

    @property
    def has_a_width(self) -> bool:
        """True if its longest line is as long as lines are where texts are wrapped."""
        least = WRAPPING_POLICY.least_columns
        return least <= self.columns <= WRAPPING_POLICY.most_columns

    @cached_property
    def is_wrapped_throughout(self) -> bool:
        """True if each of its lines was full: the next word would not have had room in it."""
        if len(self.lines) < WRAPPING_POLICY.fewest_lines or not self.has_a_width:
            return False
        return all(self._was_full(line, after) for line, after in pairwise(self.lines))

    def goes_on_behind(self, number: int, first: int) -> bool:
        """Tells whether a sentence goes on from one line of it to the next.

        Args:
            number: The number of the line, from 0.
            first: The number of the line with which the lines begin that belong together so far.
        """
        line = self.lines[number]
        after = self.lines[number + 1]
        if is_at_end_of_sentence(line) or ENGLISH.markup.match(after):
            return False
        if self._is_of_item(number + 1, first):
            return True
        if _begins_small(after) and (_begins_large(line) or line.endswith(",")):
            return len(line.split()) >= WRAPPING_POLICY.fewest_words
        return self._was_full(line, after) and self._goes_on_in(after, self.lines[first])

    def _goes_on_in(self, after: str, first: str) -> bool:
        """Tells whether a sentence goes on in a line behind a full one.

        Args:
            after: The line.
            first: The line with which those begin that belong together so far.
        """
        if _begins_small(after) and _begins_large(first):
            return True
        if _begins_large(after) or not after[0].isalpha():
            return self.is_wrapped_throughout
        return self.has_a_width

    def _is_of_item(self, number: int, first: int) -> bool:
        """Tells whether a line is indented below an item of a list."""
        has_mark = ENGLISH.markup.match(self.lines[first]) is not None
        return has_mark and self.indents[number] > self.indents[first]

    def _was_full(self, line: str, after: str) -> bool:
        """Tells whether the first word of the next line would not have had room in a line."""
        return _columns(line) + 1 + _columns(_first_word(after)) > self.columns


def _columns(text: str) -> int:
    """Returns how many columns a text takes; a full-width character takes two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _first_word(line: str) -> str:
    """Returns the first word of a line; in scripts without spaces, the first character."""
    if unicodedata.east_asian_width(line[0]) in "WF":
        return line[0]
    return line.split(maxsplit=1)[0]


def _begins_small(line: str) -> bool:
    return line[0].islower()


def _begins_large(line: str) -> bool:
    """Tells whether the words of a line, behind the mark of a list, begin with a capital."""
    mark = ENGLISH.markup.match(line)
    return line[mark.end() if mark else 0 :][:1].isupper()
