"""Documents in chunks of so many tokens at most, cut at headings, paragraphs, lines, sentences and words.

A Markdown text is cut at its headings first, in place: LangChain's `MarkdownHeaderTextSplitter` takes the indentation
from code. Within a section LangChain's recursive splitter does the work, never down to single characters: what has no
border to cut at is halved until it fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from langchain_text_splitters import RecursiveCharacterTextSplitter

from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.errors import InvalidSettingsError

CHUNK_TOKENS = 256
"""A paragraph or two: small enough to be about one thing, large enough to be understood alone."""
OVERLAP_TOKENS = 32
SMALLEST_CHUNK_TOKENS = 16
HEADINGS = " > "
"""Between the headings of a path."""

_BORDERS = [
    r"\n[ \t]*\n",  # paragraphs
    r"\n",
    r"(?<=[.!?…])(?=\s)|(?<=[。！？])",  # noqa: RUF001 - sentences
    r"(?<=[,;:])(?=\s)|(?<=[、，；])",  # noqa: RUF001
    r"\s",
]
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")


@dataclass(frozen=True, slots=True)
class Part:
    """A text with one place: a page, or a section under a heading."""

    text: str
    heading: str = ""
    page: int | None = None


@dataclass(frozen=True)
class Splitter:
    """How documents are split.

    Raises:
        InvalidSettingsError: a size that makes no sense.

    Example:
        >>> from langchain_ctxbudget import TiktokenCounter
        >>> splitter = Splitter(TiktokenCounter(), chunk_tokens=16, overlap_tokens=0)
        >>> [len(splitter.split(Part("One two three. " * 20))) > 4]
        [True]
    """

    counter: TokenCounter
    chunk_tokens: int = CHUNK_TOKENS
    """The most that a chunk has."""
    overlap_tokens: int = OVERLAP_TOKENS
    """About so much of a chunk is repeated in the next one of its section."""

    def __post_init__(self) -> None:
        for name, least in (("chunk_tokens", SMALLEST_CHUNK_TOKENS), ("overlap_tokens", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidSettingsError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if self.overlap_tokens > self.chunk_tokens // 2:
            raise InvalidSettingsError(
                f"overlap_tokens ({self.overlap_tokens}) must be at most half of chunk_tokens ({self.chunk_tokens}), "
                f"else chunks say mostly the same"
            )

    @property
    def name(self) -> str:
        """Another one for every way to split."""
        return f"{self.chunk_tokens}/{self.overlap_tokens}/{self.counter.name}"

    @cached_property
    def _recursive(self) -> RecursiveCharacterTextSplitter:
        return RecursiveCharacterTextSplitter(
            separators=_BORDERS,
            is_separator_regex=True,
            keep_separator=True,
            strip_whitespace=False,
            chunk_size=self.chunk_tokens,
            chunk_overlap=self.overlap_tokens,
            length_function=self.counter.count_text,
        )

    def split(self, part: Part) -> list[str]:
        """The chunks of a part, in order; each is a piece of its text."""
        if self.counter.count_text(part.text) <= self.chunk_tokens:
            chunks = [part.text]
        else:
            chunks = [small for chunk in self._recursive.split_text(part.text) for small in self._within(chunk)]
        trimmed = (_BLANK_LINES.sub("", chunk).rstrip() for chunk in chunks)
        return [chunk for chunk in trimmed if chunk]

    def _within(self, text: str) -> Iterator[str]:
        """A text in halves, and those in halves, until each fits; a single character is left as it is."""
        if self.counter.count_text(text) <= self.chunk_tokens or len(text) == 1:
            yield text
            return
        middle = len(text) // 2
        yield from self._within(text[:middle])
        yield from self._within(text[middle:])


def markdown_parts(text: str) -> list[Part]:
    r"""A Markdown text cut before its headings, each part with the path of headings that it stands under.

    A heading with nothing under it goes with the part behind it.

    Example:
        >>> [part.heading for part in markdown_parts("# A\nOne.\n## B\nTwo.\n# C\nThree.")]
        ['A', 'A > B', 'C']
    """
    starts: list[tuple[int, str]] = [(0, "")]
    path: list[tuple[int, str]] = []
    fence, place, said = "", 0, False
    for line in text.splitlines(keepends=True):
        if border := _FENCE.match(line):
            mark = border[1]
            if not fence:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence):
                fence = ""
        found = None if fence else _HEADING.match(line.rstrip("\r\n"))
        if found:
            level = len(found[1])
            name = line[found.end() :].strip().rstrip("#").strip()
            path = [*((above, title) for above, title in path if above < level), (level, name)]
            heading = HEADINGS.join(title for _, title in path if title)
            if said:
                starts.append((place, heading))
            else:
                starts[-1] = (starts[-1][0], heading)
            said = False
        elif line.strip():
            said = True
        place += len(line)
    ends = [start for start, _ in starts[1:]] + [len(text)]
    parts = (Part(text[start:end], heading) for (start, heading), end in zip(starts, ends, strict=True))
    return [part for part in parts if part.text.strip()]


def first_heading(parts: Sequence[Part]) -> str:
    """The heading that a Markdown text begins with, which is its title; empty where there is none."""
    return next((part.heading.split(HEADINGS)[0] for part in parts if part.heading), "")
