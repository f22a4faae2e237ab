"""Reads documents: files (text, Markdown, PDF), texts and LangChain documents; and splits them into chunks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from hashlib import blake2b
from os import PathLike
from os.path import abspath
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias, cast

from langchain_core.documents import Document

from langchain_ctxbudget.errors import DocumentError
from langchain_ctxbudget.messages import as_json_data, iso_date, one_line
from langchain_ctxbudget.tokens import TokenCounter, encodable

TYPES = {".pdf": "pdf", ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown"}
TITLE_CHARACTERS = 120
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
Given: TypeAlias = Document | str | PathLike[str]


@dataclass(frozen=True, slots=True)
class Part:
    """A page of a document, or a section under a heading."""

    text: str
    heading: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata that the rest of the document does not have, such as the `page`."""


class NewDocument(NamedTuple):
    """A document that was read and is not split yet."""

    about: Mapping[str, Any]
    """Its `source`, `title`, `date`, `type`, `metadata`, and a `hash` of its text."""
    parts: Sequence[Part]
    text: str


def by_source(given: Given | Iterable[Given], metadata: Mapping[str, Any]) -> list[list[Given]]:
    """Groups LangChain documents with the same source, such as pages; every other item is a group of its own."""
    single = isinstance(given, Document | str | PathLike) or not isinstance(given, Iterable)
    groups: dict[object, list[Given]] = {}
    for number, item in enumerate(cast("list[Given]", [given]) if single else cast("Iterable[Given]", given)):
        if not isinstance(item, Document | str | PathLike):
            raise DocumentError(f"A document is a LangChain Document, a string (its text) or a path, not {item!r}")
        source = str(item.metadata.get("source") or "") if isinstance(item, Document) else ""
        groups.setdefault(source or number, []).append(item)
    if len(groups) > 1 and not metadata.keys().isdisjoint({"source", "title"}):
        raise DocumentError("`source` and `title` are those of one document; give each document its own metadata")
    return list(groups.values())


def source_of(source: object) -> str:
    """Returns the source a document is known by: a string as it is, a path as absolute, links not followed."""
    if isinstance(source, PathLike):
        return Path(abspath(Path(source))).as_posix()  # noqa: PTH100 - `resolve` follows links
    if not isinstance(source, str):
        raise DocumentError(f"A document is known by its source, a string or a path, not {type(source).__name__}")
    return source


def read(group: Sequence[Given], metadata: Mapping[str, Any]) -> NewDocument:
    """Reads a document: a file, a text, or LangChain documents with one source; `metadata` outweigh theirs."""
    first = group[0]
    if isinstance(first, PathLike):
        return _merged(_of_file(Path(first)), metadata)
    if isinstance(first, Document):
        return _merged(cast("Sequence[Document]", group), metadata)
    with suppress(OSError):
        if "\n" not in first and len(first) < TITLE_CHARACTERS and Path(first).is_file():
            raise DocumentError(f"{first!r} is a file, but a string is a document's text. Give Path({first!r})")
    return _merged([Document(first)], metadata)


def _of_file(path: Path) -> list[Document]:
    """Returns the text of a file as a document, or one for each page of a PDF, as LangChain's loaders do."""
    known = {"source": source_of(path), "type": TYPES.get(path.suffix.lower(), "text")}
    try:
        known["date"] = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
        if known["type"] != "pdf":
            return [Document(_decoded(path), metadata=known)]
        from pypdf import PdfReader  # noqa: PLC0415 - an extra

        reader = PdfReader(path)
        known["title"] = one_line(str(getattr(reader.metadata, "title", None) or ""))
        pages = [page.extract_text() for page in reader.pages] or [""]
        return [Document(text, metadata={**known, "page": number}) for number, text in enumerate(pages, 1)]
    except ImportError as error:
        hint = "pip install 'langchain-ctxbudget[documents]'"
        raise DocumentError(f"{path} is a PDF, and pypdf is not installed: {hint}") from error
    except Exception as error:  # pypdf raises anything on a broken file
        raise DocumentError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    if b"\0" in data:
        raise ValueError("no text in UTF-8: it has NUL bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("cp1252", errors="replace")
    return text.replace("\r\n", "\n")


def _merged(documents: Sequence[Document], metadata: Mapping[str, Any]) -> NewDocument:
    first = documents[0].metadata
    shared = {name: value for name, value in first.items() if all(it.metadata.get(name) == value for it in documents)}
    known = {**shared, **metadata}
    said = {name: str(known.get(name) or "").strip() for name in ("source", "title", "type")}
    text = "\n\n".join(document.page_content for document in documents)
    source = said["source"] or documents[0].id or f"text:{digest(text)}"
    kind = one_line(said["type"]) or TYPES.get(PurePosixPath(source).suffix.lower(), "text")
    if not text.strip():
        hint = ": its pages are pictures; recognise their text first (OCR)" if kind == "pdf" else ""
        raise DocumentError(f"The document {source!r} has no text{hint}")
    parts: list[Part] = []
    for document in documents:
        own = {name: value for name, value in document.metadata.items() if name not in known and name != "source"}
        page = encodable(document.page_content).replace("\0", "")  # an index refuses NUL and half characters
        for part in markdown_parts(page) if kind == "markdown" else [Part(page)]:
            parts += [replace(part, metadata=_as_json(own))] if part.text.strip() else []
    headed = next((part.heading.split(HEADINGS)[0] for part in parts if part.heading), "")
    stem = "" if source.startswith("text:") else PurePosixPath(source.replace("\\", "/")).stem
    title = said["title"] or headed or stem or text.strip().partition("\n")[0]
    others = {name: value for name, value in known.items() if name not in ("source", "title", "date", "type")}
    about = {
        "source": source,
        "title": one_line(title)[:TITLE_CHARACTERS],
        "date": _date(metadata.get("date") or shared.get("date"), source),
        "type": kind,
        "metadata": _as_json(others),
        "hash": digest(text),
    }
    return NewDocument(about, parts, text)


def digest(text: str) -> str:
    """Returns a short hash of a text."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _date(value: object, source: str) -> str | None:
    found = value.isoformat()[:10] if isinstance(value, date) else iso_date(value)  # a datetime is a date
    if found is None and value not in (None, ""):
        raise DocumentError(f"The date of {source!r} is a date, or is written as YYYY-MM-DD, not {value!r}")
    return found


def _as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", as_json_data(dict(sorted(metadata.items()))))


def split(text: str, counter: TokenCounter, chunk_tokens: int, overlap_tokens: int) -> list[str]:
    """Splits a text into chunks, in order, each a piece of it: at paragraphs, lines, sentences and words.

    LangChain's recursive splitter does the work; text without a border is halved until it fits.
    """
    from langchain_text_splitters import RecursiveCharacterTextSplitter  # noqa: PLC0415 - when something is split

    def within(text: str) -> list[str]:
        middle = len(text) // 2
        fits = counter.count_text(text) <= chunk_tokens or not middle
        return [text] if fits else [*within(text[:middle]), *within(text[middle:])]

    recursive = RecursiveCharacterTextSplitter(
        separators=_BORDERS,
        is_separator_regex=True,
        keep_separator=True,
        strip_whitespace=False,
        chunk_size=chunk_tokens,
        chunk_overlap=overlap_tokens,
        length_function=counter.count_text,
    )
    fits = counter.count_text(text) <= chunk_tokens
    chunks = [text] if fits else [small for chunk in recursive.split_text(text) for small in within(chunk)]
    return [trimmed for chunk in chunks if (trimmed := _BLANK_LINES.sub("", chunk).rstrip())]


def markdown_parts(text: str) -> list[Part]:
    """Cuts a Markdown text before its headings; a heading with nothing under it goes with the next part.

    LangChain's `MarkdownHeaderTextSplitter` takes the indentation from code.
    """
    cut: list[tuple[str, list[str]]] = [("", [])]
    path: dict[int, str] = {}
    fence, has_body = "", False
    for line in text.splitlines(keepends=True):
        if border := _FENCE.match(line):
            fence = ("" if border[1].startswith(fence) else fence) if fence else border[1]
        if not fence and (found := _HEADING.match(line)):
            path = {level: title for level, title in path.items() if level < len(found[1])}
            path[len(found[1])] = line[found.end() :].strip().rstrip("#").strip()
            before = [] if has_body else cut.pop()[1]
            cut.append((HEADINGS.join(title for title in path.values() if title), before))
            has_body = False
        else:
            has_body = has_body or bool(line.strip())
        cut[-1][1].append(line)
    return [Part(text, heading) for heading, lines in cut if (text := "".join(lines)).strip()]
