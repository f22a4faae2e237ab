"""What is given as documents, read: files, texts, LangChain documents and loaders. Text, Markdown and PDF."""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from os import PathLike, fspath
from os.path import abspath
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeAlias, cast

from langchain_core.document_loaders import BaseBlobParser, BaseLoader, Blob
from langchain_core.documents import Document

from langchain_ctxbudget.core.messages import as_json_data
from langchain_ctxbudget.core.text import iso_date, one_line
from langchain_ctxbudget.documents.records import digest, searchable
from langchain_ctxbudget.documents.splitting import Part, first_heading, markdown_parts
from langchain_ctxbudget.errors import DocumentError, InputError, UnsupportedContentError

TYPES = {".pdf": "pdf", ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown"}
"""By the ending of a file; everything else is text."""
KINDS = frozenset({*TYPES.values(), "text"})
"""How a file is read; another type is a name that somebody gave."""
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
    """A file as a document; its source is its path, its date what it says itself, else the day it was last changed.

    Raises:
        DocumentError: it cannot be read, or has no text.
    """
    source, kind = named(path), type_of(path.name)
    try:
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
        if kind == "pdf":
            found = list(PdfParser().lazy_parse(Blob.from_path(path)))
            for page in found:
                page.metadata["source"] = source
        else:
            found = [Document(_decoded(path.read_bytes(), source), metadata={"source": source, "type": kind})]
    except (OSError, ValueError) as error:  # a path with NUL is a ValueError
        raise DocumentError(f"{source} cannot be read ({type(error).__name__}: {error})") from error
    new = of_documents(found, metadata)
    if not new.text.strip():
        hint = ": its pages are pictures; recognise their text first (OCR)" if kind == "pdf" else ""
        raise DocumentError(f"{source} has no text{hint}")
    if new.date is not None:
        return new
    return of_documents(found, {**metadata, "date": changed})


def named(source: object) -> str:
    """By which source a document is known: a string as it is, a path as absolute, so that a file has one.

    Links are not followed: a folder `current` that leads to a release stays what it is called.

    Raises:
        DocumentError: neither a string nor a path.
    """
    if isinstance(source, str):
        return source
    if isinstance(source, PathLike):
        return Path(abspath(Path(source))).as_posix()  # noqa: PTH100 - `resolve` follows links
    raise DocumentError(f"A document is known by its source or its id, a string or a path, not {type(source).__name__}")


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

    Raises:
        DocumentError: metadata that cannot be what it is given as.
    """
    shared = {
        name: value
        for name, value in documents[0].metadata.items()
        if all(document.metadata.get(name) == value for document in documents)
    }
    known = {**shared, **metadata}
    text = "\n\n".join(document.page_content for document in documents)
    source = _name(known, "source") or _word(documents[0].id) or f"text:{digest(text)}"
    kind = _name(known, "type") or type_of(source)
    pages = [_page(document.metadata.get("page")) for document in documents]
    if kind == "markdown":
        parts = [part for document in documents for part in markdown_parts(searchable(document.page_content))]
    else:
        pairs = zip(documents, pages, strict=True)
        parts = [Part(searchable(document.page_content), page=page) for document, page in pairs]
    headed = first_heading(parts) if kind == "markdown" else ""
    title = _name(known, "title") or headed or _named(source) or text.strip().partition("\n")[0]
    rest = {name: value for name, value in known.items() if name not in _FIELDS}
    return NewDocument(
        source=source,
        title=one_line(title)[:TITLE_CHARACTERS],
        date=_date(known),
        type=one_line(kind),
        metadata=_as_json(source, rest),
        parts=tuple(part for part in parts if part.text.strip()),
        text=text,
    )


def _word(value: object) -> str:
    return (value if isinstance(value, str) else fspath(value) if isinstance(value, PathLike) else "").strip()


def _given(known: Mapping[str, Any], name: str) -> object:
    """What metadata say; None also for the empty cell of a table (NaN)."""
    value = known.get(name)
    return None if isinstance(value, float | date) and value != value else value  # noqa: PLR0124


def _name(known: Mapping[str, Any], name: str) -> str:
    value = _given(known, name)
    if value is not None and not isinstance(value, str | PathLike):
        raise DocumentError(f"The {name} of {_whose(known)} is a string, not {value!r}")
    return _word(value)


def _whose(known: Mapping[str, Any]) -> str:
    return repr(source) if (source := _word(known.get("source"))) else "a document"


def _as_json(source: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", as_json_data(dict(sorted(metadata.items()))))
    except UnsupportedContentError as error:
        raise DocumentError(f"The metadata of {source!r} cannot be kept as JSON") from error


def _page(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _date(known: Mapping[str, Any]) -> str | None:
    value = _given(known, "date")
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()[:10]
    found = iso_date(value)
    if found is None and value not in (None, ""):
        raise DocumentError(f"The date of {_whose(known)} is a date, or is written as YYYY-MM-DD, not {value!r}")
    return found


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


def require_names_of_one(groups: Sequence[Sequence[Given]], metadata: Mapping[str, Any]) -> None:
    """Refuse to call several documents the same.

    Raises:
        DocumentError: metadata of all of them have a source or a title.
    """
    if len(groups) > 1 and not metadata.keys().isdisjoint({"source", "title"}):
        raise DocumentError("`source` and `title` are those of one document; give each document its own metadata")


def read(group: Sequence[Given], metadata: Mapping[str, Any]) -> list[NewDocument | DocumentError]:
    """The documents that a group of `by_source` is, in order; in the place of one that cannot be read, why."""
    first = group[0]
    try:
        if isinstance(first, BaseLoader):
            return _loaded(first, metadata)
        return [_read(group, metadata)]
    except DocumentError as error:
        return [error]


def _loaded(loader: BaseLoader, metadata: Mapping[str, Any]) -> list[NewDocument | DocumentError]:
    items: list[Given] = []
    failure: DocumentError | None = None
    try:
        for item in loader.lazy_load():
            items += items_of(item)
    except DocumentError as error:
        failure = error
    except Exception as error:  # noqa: BLE001 - loaders raise anything
        name = type(loader).__name__
        failure = DocumentError(f"{name} failed after {len(items)} documents ({type(error).__name__}: {error})")
        failure.__cause__ = error
    groups = by_source(items)
    require_names_of_one(groups, metadata)
    if failure:  # more of the last one may have been to come, and half a document is worse than what is there
        groups = [group for group in groups if group[-1] is not items[-1] or not _has_parts(group)]
    found = [outcome for group in groups for outcome in read(group, metadata)]
    return [*found, failure] if failure else found


def _has_parts(group: Sequence[Given]) -> bool:
    return len(group) > 1 or any(isinstance(item, Document) and "page" in item.metadata for item in group)


def _read(group: Sequence[Given], metadata: Mapping[str, Any]) -> NewDocument:
    first = group[0]
    if isinstance(first, PathLike):
        return read_file(Path(first), metadata)
    documents = [Document(_as_text(item)) if isinstance(item, str) else item for item in group]
    new = of_documents([item for item in documents if isinstance(item, Document)], metadata)
    if not new.text.strip():
        raise DocumentError(f"The document {new.title or new.source!r} has no text")
    return new


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

    Links that lead out of it are left out: whoever may write into a folder could else have any file read.

    Raises:
        DocumentError: there is no such directory.
        InputError: a pattern of what is not below it, or that is none.
    """
    if not directory.is_dir():
        raise DocumentError(f"{directory} is no directory")
    pattern = "**/*" if glob is None else glob
    wrong = InputError(f"glob must be a pattern of files below the directory, such as '**/*.py', not {glob!r}")
    if not isinstance(pattern, str) or ".." in PurePath(pattern).parts:
        raise wrong
    try:
        paths = sorted(directory.glob(pattern))
    except (NotImplementedError, ValueError) as error:
        raise wrong from error
    root = directory.resolve()
    found = [path for path in paths if path.is_file() and path.resolve().is_relative_to(root)]
    if glob is not None:
        return found
    return [
        path
        for path in found
        if path.suffix.lower() in READABLE and not any(name[0] == "." for name in path.relative_to(directory).parts)
    ]
