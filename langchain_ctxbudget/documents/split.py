"""Splits documents into chunks of a limited number of tokens, at headings, paragraphs, lines, sentences and words.

Markdown is cut at its headings first, in place, because LangChain's `MarkdownHeaderTextSplitter` takes the indentation
from code. Within a section LangChain's recursive splitter does the work; text without a border is halved until it fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_text_splitters import RecursiveCharacterTextSplitter

from langchain_ctxbudget.background import cached_property
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.tokens.counters import TokenCounter

CHUNK_TOKENS = 256
OVERLAP_TOKENS = 32
SMALLEST_CHUNK_TOKENS = 16
HEADINGS = " > "

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
    """A page of a document, or a section under a heading."""

    text: str
    heading: str = ""
    page: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Splitter:
    """Splits the parts of documents into chunks.

    Raises:
        InvalidSettingsError: a size outside its range.
    """

    counter: TokenCounter
    chunk_tokens: int = CHUNK_TOKENS
    """The most tokens of a chunk."""
    overlap_tokens: int = OVERLAP_TOKENS
    """About so many tokens of a chunk are repeated in the next one of its section."""

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
        """A name that is another one for other limits or counters."""
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
        """Returns the chunks of a part, in order; each is a piece of its text."""
        if self.counter.count_text(part.text) <= self.chunk_tokens:
            chunks = [part.text]
        else:
            chunks = [small for chunk in self._recursive.split_text(part.text) for small in self._within(chunk)]
        trimmed = (_BLANK_LINES.sub("", chunk).rstrip() for chunk in chunks)
        return [chunk for chunk in trimmed if chunk]

    def _within(self, text: str) -> Iterator[str]:
        if self.counter.count_text(text) <= self.chunk_tokens or len(text) == 1:
            yield text
            return
        middle = len(text) // 2
        yield from self._within(text[:middle])
        yield from self._within(text[middle:])


def markdown_parts(text: str) -> list[Part]:
    r"""Cuts a Markdown text before its headings; a heading with nothing under it goes with the next part.

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
