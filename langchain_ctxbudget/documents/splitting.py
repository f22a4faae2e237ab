"""From the text of a document to its chunks, and to a summary of its own sentences."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_ctxbudget.history import Line, Sentence, choose, keep_sentences
from langchain_ctxbudget.messages import CodeFence, code_fences
from langchain_ctxbudget.search import shrink_to
from langchain_ctxbudget.tokens import TokenCounter

if TYPE_CHECKING:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

SUMMARY_TOKENS = 200
HEADINGS = " > "
"""Stands between the headings of a section and of those that it is part of."""
WHOLE_FENCE_CHUNKS = 4
"""A fence of code that is as long as so many chunks is still one chunk."""
SMALLEST_CODE_TOKENS = 16
"""The least room for code in a part of a longer fence."""
_MARK = re.compile("\0(\\d+)\0")
"""Stands for a fence while a text is cut; documents have no NUL."""
_CHUNKS_TOGETHER = 20
"""Chunks from which sentences are picked together."""
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
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata that the rest of the document does not have, such as the `page`."""


def split(text: str, counter: TokenCounter, chunk_tokens: int, overlap_tokens: int) -> list[str]:
    """Splits a text into chunks, in order, at paragraphs, lines, sentences and words.

    LangChain's recursive splitter does the work; text without a border is halved until it fits. A
    fence of code stays whole, also where it is longer than a chunk; one that is much longer is cut
    between its lines into several fences.
    """
    pieces = [text]
    if counter.count_text(text) > chunk_tokens:
        pieces = _Pieces(text, counter, chunk_tokens).of_text(overlap_tokens)
    chunks = (_BLANK_LINES.sub("", piece).rstrip() for piece in pieces)
    return [chunk for chunk in chunks if chunk]


class _Pieces:
    """Cuts a text into pieces.

    While it is cut, marks without a border stand for its fences of code.
    """

    def __init__(self, text: str, counter: TokenCounter, chunk_tokens: int) -> None:
        self._text = text
        self._fences = code_fences(text)
        self._counter = counter
        self._chunk_tokens = chunk_tokens

    def of_text(self, overlap_tokens: int) -> list[str]:
        """Returns the pieces of the text, of which some repeat the end of the one before."""
        pieces: list[str] = []
        for piece in self._splitter(overlap_tokens).split_text(self._with_marks()):
            whole = self._without_marks(piece)
            if whole == piece:
                pieces += _halved(piece, self._counter, self._chunk_tokens)
            elif self._counter.count_text(whole) <= WHOLE_FENCE_CHUNKS * self._chunk_tokens:
                pieces.append(whole)
            else:
                for mark in _MARK.finditer(piece):
                    pieces += self._of_fence(self._fences[int(mark[1])])
        return pieces

    def _of_fence(self, fence: CodeFence) -> list[str]:
        """Returns the code of a fence in several fences, each at most as long as a chunk."""
        code = self._text[fence.body_start : fence.body_end]
        borders_tokens = self._counter.count_text(fence.around(self._text, ""))
        code_tokens = max(self._chunk_tokens - borders_tokens, SMALLEST_CODE_TOKENS)
        pieces = _split_plain(code, self._counter, code_tokens)
        return [fence.around(self._text, _BLANK_LINES.sub("", piece)) for piece in pieces]

    def _with_marks(self) -> str:
        """Returns the text with a mark in place of each fence."""
        parts: list[str] = []
        end = 0
        for number, fence in enumerate(self._fences):
            parts += [self._text[end : fence.start], f"\0{number}\0"]
            end = fence.end
        return "".join([*parts, self._text[end:]])

    def _without_marks(self, piece: str) -> str:
        """Returns a piece with its fences in place of their marks."""
        if not self._fences:
            return piece
        return _MARK.sub(lambda mark: self._fence_text(int(mark[1])), piece)

    def _fence_text(self, number: int) -> str:
        fence = self._fences[number]
        return self._text[fence.start : fence.end]

    def _splitter(self, overlap_tokens: int) -> "RecursiveCharacterTextSplitter":
        return _splitter_of(
            lambda piece: self._counter.count_text(self._without_marks(piece)),
            self._chunk_tokens,
            overlap_tokens,
        )


def _split_plain(text: str, counter: TokenCounter, most_tokens: int) -> list[str]:
    """Returns the pieces of a text, which do not overlap; fences of code are nothing special."""
    pieces: list[str] = []
    for piece in _splitter_of(counter.count_text, most_tokens, 0).split_text(text):
        pieces += _halved(piece, counter, most_tokens)
    return pieces


def _splitter_of(
    count: Callable[[str], int], chunk_tokens: int, overlap_tokens: int
) -> "RecursiveCharacterTextSplitter":
    from langchain_text_splitters import RecursiveCharacterTextSplitter  # noqa: PLC0415 - when something is split

    return RecursiveCharacterTextSplitter(
        separators=_BORDERS,
        is_separator_regex=True,
        keep_separator=True,
        strip_whitespace=False,
        chunk_size=chunk_tokens,
        chunk_overlap=overlap_tokens,
        length_function=count,
    )


def _halved(text: str, counter: TokenCounter, most_tokens: int) -> list[str]:
    """Returns pieces of a text that have at most so many tokens, or one character."""
    middle = len(text) // 2
    if not middle or counter.count_text(text) <= most_tokens:
        return [text]
    first = _halved(text[:middle], counter, most_tokens)
    return [*first, *_halved(text[middle:], counter, most_tokens)]


def markdown_parts(text: str) -> list[Part]:
    """Cuts a Markdown text before its headings.

    A heading with nothing under it goes with the next part. (LangChain's
    `MarkdownHeaderTextSplitter` takes the indentation from code.)
    """
    parts = _MarkdownParts()
    for line in text.splitlines(keepends=True):
        parts.add(line)
    return parts.finished()


class _MarkdownParts:
    """The parts of a Markdown text while its lines are read."""

    def __init__(self) -> None:
        self._sections: list[tuple[str, list[str]]] = [("", [])]
        """The headings of every section, and its lines."""
        self._titles: dict[int, str] = {}
        """The titles of the headings that the current line is under, by level."""
        self._fence = ""
        """The border of the code block that the current line is in."""
        self._has_body = False

    def add(self, line: str) -> None:
        """Takes the next line."""
        self._note_fence(line)
        heading = None if self._fence else _HEADING.match(line)
        if heading is not None:
            self._begin_section(heading, line)
        elif line.strip():
            self._has_body = True
        self._sections[-1][1].append(line)

    def finished(self) -> list[Part]:
        """Returns all parts that have text."""
        parts = [Part("".join(lines), headings) for headings, lines in self._sections]
        return [part for part in parts if part.text.strip()]

    def _note_fence(self, line: str) -> None:
        border = _FENCE.match(line)
        if border is None:
            return
        if not self._fence:
            self._fence = border[1]
        elif border[1].startswith(self._fence):
            self._fence = ""

    def _begin_section(self, heading: re.Match[str], line: str) -> None:
        level = len(heading[1])
        self._titles = {above: title for above, title in self._titles.items() if above < level}
        self._titles[level] = line[heading.end() :].strip().rstrip("#").strip()
        lines: list[str] = []
        if not self._has_body:
            _, lines = self._sections.pop()
        headings = HEADINGS.join(title for title in self._titles.values() if title)
        self._sections.append((headings, lines))
        self._has_body = False


def extract(
    text: str, chunks: Sequence[str], counter: TokenCounter, budget_tokens: int = SUMMARY_TOKENS
) -> str:
    """Returns the most telling sentences of a document, in order; the whole text where it fits."""
    if counter.count_text(text) <= budget_tokens:
        return text
    sentences: list[Sentence] = []
    for first in range(0, len(chunks), _CHUNKS_TOGETHER):
        together = enumerate(chunks[first : first + _CHUNKS_TOGETHER], first)
        sentences += keep_sentences(
            Line(number, "", None, chunk, from_user=False) for number, chunk in together
        )
    # One token more for each, since joined texts may be counted in other pieces.
    costs = [counter.count_text(sentence.text) + 1 for sentence in sentences]
    chosen = choose(sentences, costs, budget_tokens)
    summary = " ".join(sentences[number].text for number in chosen)
    # A text without sentences (a table, a log, one long word) gives its beginning.
    beginning = summary or text[:budget_tokens]
    shrunk = shrink_to(beginning, counter.count_text, budget_tokens)
    return shrunk or text[: budget_tokens // 4]
