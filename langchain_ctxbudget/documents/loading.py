"""What is given as documents, read: files, texts, LangChain documents and loaders. Text, Markdown and PDF."""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, cast

from langchain_core.document_loaders import BaseBlobParser, BaseLoader, Blob
from langchain_core.documents import Document

from langchain_ctxbudget.core.messages import as_json_data
from langchain_ctxbudget.core.text import iso_date, one_line
from langchain_ctxbudget.documents.records import digest, searchable
from langchain_ctxbudget.documents.splitting import Part, first_heading, markdown_parts
from langchain_ctxbudget.errors import DocumentError

TYPES = {".pdf": "pdf", ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown"}
"""By the ending of a file; everything else is text."""
READABLE = frozenset({*TYPES, ".txt", ".text", ".rst", ".org", ".adoc"})
"""What a directory is searched for, unless the caller says what."""
TITLE_CHARACTERS = 120
_FIELDS = frozenset({"source", "title", "date", "type", "page"})
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_PDF_DATE = re.compile(r"D:(\d{4})(\d{2})(\d{2})")

_log = logging.getLogger(__name__)

Given: TypeAlias = Document | str | PathLike[str] | BaseLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDocument:
    """A document that was read, not split yet."""

    source: str
    title: str
    date: str | None
    type: str
    metadata: Mapping[str, Any]
    parts: tuple[Part, ...]
    """Pages, sections, or all of it; together what it says."""
    text: str

    @property
    def hash(self) -> str:
        """Of what it says and on which pages."""
        pages = "" if self.type != "pdf" else "\0".join(f"{part.page}:{len(part.text)}" for part in self.parts)
        return digest(f"{self.type}\0{pages}\0{self.text}")


class PdfParser(BaseBlobParser):
    """Reads the text of a PDF with pypdf, one document per page, as LangChain's loaders of PDF do."""

    def lazy_parse(self, blob: Blob) -> Iterator[Document]:
        """One document per page that has text.

        Raises:
            DocumentError: pypdf is not installed, or cannot read it.
        """
        try:
            from pypdf import PdfReader  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise DocumentError(
                f"{blob.source} is a PDF, and pypdf is not installed: pip install 'langchain-ctxbudget[documents]'"
            ) from error
        try:
            with blob.as_bytes_io() as file:
                reader = PdfReader(file)
                info: Mapping[str, Any] = reader.metadata or {}
                about = {"title": one_line(str(info.get("/Title") or "")), "date": _pdf_date(info)}
                for number, page in enumerate(reader.pages, 1):
                    metadata = {**blob.metadata, "source": blob.source, "page": number, "type": "pdf", **about}
                    yield Document(page.extract_text(), metadata=metadata)
        except Exception as error:  # pypdf raises anything on a broken file
            raise DocumentError(f"{blob.source} cannot be read as PDF ({type(error).__name__}: {error})") from error


def _pdf_date(info: Mapping[str, Any]) -> str | None:
    found = _PDF_DATE.match(str(info.get("/ModDate") or info.get("/CreationDate") or ""))
    return iso_date("-".join(found.groups())) if found else None


def read_file(path: Path, metadata: Mapping[str, Any]) -> NewDocument:
    """A file as a document; its date is what it says itself, else the day on which it was last changed.

    Raises:
        DocumentError: it cannot be read, or has no text.
    """
    source, kind = path.as_posix(), type_of(path.name)
    try:
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
        if kind == "pdf":
            found = list(PdfParser().lazy_parse(Blob.from_path(path)))
            for page in found:
                page.metadata["source"] = source
        else:
            found = [Document(_decoded(path.read_bytes(), source), metadata={"source": source, "type": kind})]
    except OSError as error:
        raise DocumentError(f"{source} cannot be read ({type(error).__name__}: {error})") from error
    new = of_documents(found, metadata)
    if not new.text.strip():
        hint = ": its pages are pictures; recognise their text first (OCR)" if kind == "pdf" else ""
        raise DocumentError(f"{source} has no text{hint}")
    if new.date is not None:
        return new
    return of_documents(found, {**metadata, "date": changed})


def _decoded(data: bytes, source: str) -> str:
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    if encoding != "utf-16" and b"\0" in data:
        raise DocumentError(f"{source} is no text: it has NUL bytes")
    try:
        return data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace").replace("\r\n", "\n")


def type_of(name: str) -> str:
    """`markdown`, `pdf` or `text`, by the ending of a name."""
    return TYPES.get(PurePosixPath(name).suffix.lower(), "text")


def of_documents(documents: Sequence[Document], metadata: Mapping[str, Any]) -> NewDocument:
    """Documents with one source as one: the pages of a PDF, or whatever a loader made of it.

    Args:
        documents: at least one.
        metadata: lies over theirs.
    """
    shared = {
        name: value
        for name, value in documents[0].metadata.items()
        if all(document.metadata.get(name) == value for document in documents)
    }
    known = {**shared, **metadata}
    text = "\n\n".join(document.page_content for document in documents)
    source = _word(known.get("source")) or _word(documents[0].id) or f"text:{digest(text)}"
    kind = _word(known.get("type")) or type_of(source)
    pages = [_page(document.metadata.get("page")) for document in documents]
    if kind == "markdown":
        parts = [part for document in documents for part in markdown_parts(searchable(document.page_content))]
    else:
        pairs = zip(documents, pages, strict=True)
        parts = [Part(searchable(document.page_content), page=page) for document, page in pairs]
    headed = first_heading(parts) if kind == "markdown" else ""
    title = _word(known.get("title")) or headed or _named(source) or text.strip().partition("\n")[0]
    rest = {name: value for name, value in known.items() if name not in _FIELDS}
    return NewDocument(
        source=source,
        title=one_line(title)[:TITLE_CHARACTERS],
        date=_date(known.get("date")),
        type=one_line(kind),
        metadata=as_json_data(dict(sorted(rest.items()))),
        parts=tuple(part for part in parts if part.text.strip()),
        text=text,
    )


def _word(value: object) -> str:
    return (value if isinstance(value, str) else fspath(value) if isinstance(value, PathLike) else "").strip()


def _page(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _date(value: object) -> str | None:
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()[:10]
    return iso_date(value)


def _named(source: str) -> str:
    """The name of a file without its ending; empty for what is no file."""
    if source.startswith("text:"):
        return ""
    return PurePosixPath(source.replace("\\", "/").rstrip("/")).stem or source


def items_of(given: Given | Iterable[Given]) -> list[Given]:
    """What was given, one by one.

    Raises:
        DocumentError: something else than documents.
    """
    one = isinstance(given, Document | str | PathLike | BaseLoader) or not isinstance(given, Iterable)
    items: list[Any] = [given] if one else list(cast("Iterable[Any]", given))
    for item in items:
        if not isinstance(item, Document | str | PathLike | BaseLoader):
            raise DocumentError(
                f"A document is a LangChain Document, a string (its text), a path or a loader, not "
                f"{type(item).__name__}"
            )
    return items


def by_source(items: Iterable[Given]) -> list[list[Given]]:
    """Items that are one document together: LangChain documents with the same source, in order."""
    groups: dict[object, list[Given]] = {}
    for number, item in enumerate(items):
        source = _word(item.metadata.get("source")) if isinstance(item, Document) else ""
        groups.setdefault(source or number, []).append(item)
    return list(groups.values())


def read(group: Sequence[Given], metadata: Mapping[str, Any]) -> list[NewDocument]:
    """The documents that a group of `by_source` is.

    Raises:
        DocumentError: something cannot be read, or has no text.
    """
    first = group[0]
    if isinstance(first, BaseLoader):
        return [new for inner in by_source(first.lazy_load()) for new in read(inner, metadata)]
    if isinstance(first, PathLike):
        return [read_file(Path(first), metadata)]
    documents = [Document(_as_text(item)) if isinstance(item, str) else item for item in group]
    new = of_documents([item for item in documents if isinstance(item, Document)], metadata)
    if not new.text.strip():
        raise DocumentError(f"The document {new.title or new.source!r} has no text")
    return [new]


def _as_text(text: str) -> str:
    """A text; a string that is the name of a file is probably meant as one.

    Raises:
        DocumentError: it is.
    """
    try:
        is_file = "\n" not in text and len(text) < TITLE_CHARACTERS and Path(text).is_file()
    except (OSError, ValueError):
        is_file = False
    if is_file:
        raise DocumentError(f"{text!r} is a file, but a string is taken for a document's text. Give Path({text!r})")
    return text


def files_below(directory: Path, glob: str | None) -> list[Path]:
    """The files of a directory, sorted; without a pattern, all that are text, Markdown or PDF and not hidden.

    Raises:
        DocumentError: there is no such directory.
    """
    if not directory.is_dir():
        raise DocumentError(f"{directory} is no directory")
    found = sorted(path for path in directory.glob(glob or "**/*") if path.is_file())
    if glob is not None:
        return found
    return [
        path
        for path in found
        if path.suffix.lower() in READABLE and not any(name[0] == "." for name in path.relative_to(directory).parts)
    ]
