"""Reads documents: files (text, Markdown, PDF), texts, LangChain documents and loaders."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from os import PathLike, fspath
from os.path import abspath
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, TypeAlias, cast

from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document

from langchain_ctxbudget.documents.document_records import digest, searchable
from langchain_ctxbudget.documents.split import HEADINGS, Part, markdown_parts
from langchain_ctxbudget.errors import DocumentError, InputError, UnsupportedContentError
from langchain_ctxbudget.messages.messages import as_json_data
from langchain_ctxbudget.messages.text import iso_date, one_line

TYPES = {".pdf": "pdf", ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown"}
"""Types by the suffix of a file; everything else is text."""
READABLE = frozenset({*TYPES, ".txt", ".text", ".rst", ".org", ".adoc"})
"""Suffixes that a directory is searched for by default."""
TITLE_CHARACTERS = 120
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_PDF_DATE = re.compile(r"D:(\d{4})(\d{2})(\d{2})")

Given: TypeAlias = Document | str | PathLike[str] | BaseLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDocument:
    """A document that was read and is not split yet."""

    source: str
    title: str
    date: str | None
    type: str
    metadata: Mapping[str, Any]
    parts: tuple[Part, ...]
    text: str

    @property
    def hash(self) -> str:
        """A hash of the text and of its pages."""
        pages = "" if self.type != "pdf" else "\0".join(f"{part.page}:{len(part.text)}" for part in self.parts)
        return digest(f"{self.type}\0{pages}\0{self.text}")


def items_of(given: Given | Iterable[Given]) -> list[Given]:
    """Returns what was given as a list.

    Raises:
        DocumentError: an item is no document.
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


def by_source(items: Iterable[Given], metadata: Mapping[str, Any]) -> list[list[Given]]:
    """Groups LangChain documents with the same source, such as pages; every other item is a group of its own.

    Raises:
        DocumentError: the metadata of all of them have the source or the title of one.
    """
    groups: dict[object, list[Given]] = {}
    for number, item in enumerate(items):
        source = _text(item.metadata.get("source")) if isinstance(item, Document) else ""
        groups.setdefault(source or number, []).append(item)
    if len(groups) > 1 and not metadata.keys().isdisjoint({"source", "title"}):
        raise DocumentError("`source` and `title` are those of one document; give each document its own metadata")
    return list(groups.values())


def read(group: Sequence[Given], metadata: Mapping[str, Any]) -> list[NewDocument | DocumentError]:
    """Reads the documents of a group, in order; one that cannot be read gives its error instead."""
    first = group[0]
    try:
        if isinstance(first, BaseLoader):
            return _read_loader(first, metadata)
        if isinstance(first, PathLike):
            return [_read_file(Path(first), metadata)]
        documents = [item if isinstance(item, Document) else Document(_not_a_path(str(item))) for item in group]
        return [_with_text(_merged(documents, metadata))]
    except DocumentError as error:
        return [error]


def source_of(source: object) -> str:
    """Returns the source a document is known by: a string as it is, a path as absolute, links not followed.

    Raises:
        DocumentError: neither a string nor a path.
    """
    if isinstance(source, str):
        return source
    if isinstance(source, PathLike):
        return Path(abspath(Path(source))).as_posix()  # noqa: PTH100 - `resolve` follows links
    raise DocumentError(f"A document is known by its source or its id, a string or a path, not {type(source).__name__}")


def files_below(directory: Path, glob: str | None) -> list[Path]:
    """Returns the files of a directory, sorted; links that lead out of it are left out.

    Raises:
        DocumentError: there is no such directory.
        InputError: a pattern that leads out of the directory.
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
    hidden = {path for path in found if any(name[0] == "." for name in path.relative_to(directory).parts)}
    return [path for path in found if path.suffix.lower() in READABLE and path not in hidden]


def _read_loader(loader: BaseLoader, metadata: Mapping[str, Any]) -> list[NewDocument | DocumentError]:
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
    groups = by_source(items, metadata)
    if failure and groups and _has_pages(groups[-1]):  # more pages may have been to come
        groups.pop()
    found = [outcome for group in groups for outcome in read(group, metadata)]
    return [*found, failure] if failure else found


def _has_pages(group: Sequence[Given]) -> bool:
    return len(group) > 1 or any(isinstance(item, Document) and "page" in item.metadata for item in group)


def _read_file(path: Path, metadata: Mapping[str, Any]) -> NewDocument:
    source, kind = source_of(path), _type_of(path.name)
    try:
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
        if kind == "pdf":
            found = list(_pdf_pages(path, source))
        else:
            found = [Document(_decoded(path.read_bytes(), source), metadata={"source": source, "type": kind})]
    except (OSError, ValueError) as error:  # a path with NUL is a ValueError
        if isinstance(error, DocumentError):
            raise
        raise DocumentError(f"{source} cannot be read ({type(error).__name__}: {error})") from error
    hint = ": its pages are pictures; recognise their text first (OCR)" if kind == "pdf" else ""
    new = _with_text(_merged(found or [Document("", metadata={"source": source, "type": kind})], metadata), hint)
    return new if new.date else replace(new, date=changed)


def _pdf_pages(path: Path, source: str) -> Iterator[Document]:
    """Yields a document per page, as LangChain's loaders of PDF do."""
    try:
        from pypdf import PdfReader  # noqa: PLC0415 - an extra
    except ImportError as error:
        hint = "pip install 'langchain-ctxbudget[documents]'"
        raise DocumentError(f"{source} is a PDF, and pypdf is not installed: {hint}") from error
    try:
        reader = PdfReader(path)
        info: Mapping[str, Any] = reader.metadata or {}
        found = _PDF_DATE.match(str(info.get("/ModDate") or info.get("/CreationDate") or ""))
        about = {"title": one_line(str(info.get("/Title") or "")), "type": "pdf", "source": source}
        about["date"] = (found and iso_date("-".join(found.groups()))) or ""
        for number, page in enumerate(reader.pages, 1):
            yield Document(page.extract_text(), metadata={**about, "page": number})
    except Exception as error:  # pypdf raises anything on a broken file
        raise DocumentError(f"{source} cannot be read as PDF ({type(error).__name__}: {error})") from error


def _decoded(data: bytes, source: str) -> str:
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "utf-8")
    if encoding != "utf-16" and b"\0" in data:
        raise DocumentError(f"{source} is no text: it has NUL bytes")
    try:
        return data.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace").replace("\r\n", "\n")


def _not_a_path(text: str) -> str:
    """Refuses a string that is the name of a file, which is probably meant as a path."""
    try:
        is_file = "\n" not in text and len(text) < TITLE_CHARACTERS and Path(text).is_file()
    except (OSError, ValueError):
        is_file = False
    if is_file:
        raise DocumentError(f"{text!r} is a file, but a string is taken for a document's text. Give Path({text!r})")
    return text


def _with_text(new: NewDocument, hint: str = "") -> NewDocument:
    if not new.text.strip():
        raise DocumentError(f"The document {new.source!r} has no text{hint}")
    return new


def _merged(documents: Sequence[Document], metadata: Mapping[str, Any]) -> NewDocument:
    """Merges documents with one source, such as pages; `metadata` outweigh theirs."""
    first = documents[0].metadata
    shared = {name: value for name, value in first.items() if all(it.metadata.get(name) == value for it in documents)}
    known = {**shared, **metadata}
    text = "\n\n".join(document.page_content for document in documents)
    source = _field(known, "source") or _text(documents[0].id) or f"text:{digest(text)}"
    kind = one_line(_field(known, "type")) or _type_of(source)
    paged = kind != "markdown" and all(_page(document) is not None for document in documents)
    parts: list[Part] = []
    for document in documents:
        page = None if kind == "markdown" else _page(document)
        own = {name: value for name, value in document.metadata.items() if name not in {*known, "source"}}
        if page is not None:
            own.pop("page", None)
        said, kept = searchable(document.page_content), _as_json(source, own)
        cut = markdown_parts(said) if kind == "markdown" else [Part(said, page=page)]
        parts += (replace(part, metadata=kept) for part in cut if part.text.strip())
    headed = next((part.heading.split(HEADINGS)[0] for part in parts if part.heading), "")
    title = _field(known, "title") or headed or _stem(source) or text.strip().partition("\n")[0]
    fields = {"source", "title", "date", "type", *(("page",) if paged else ())}
    return NewDocument(
        source=source,
        title=one_line(title)[:TITLE_CHARACTERS],
        date=_date(known),
        type=kind,
        metadata=_as_json(source, {name: value for name, value in known.items() if name not in fields}),
        parts=tuple(parts),
        text=text,
    )


def _text(value: object) -> str:
    return (value if isinstance(value, str) else fspath(value) if isinstance(value, PathLike) else "").strip()


def _value(known: Mapping[str, Any], name: str) -> object:
    """Returns a value of the metadata, or None for the empty cell of a table (NaN)."""
    value = known.get(name)
    return None if isinstance(value, float | date) and value != value else value  # noqa: PLR0124


def _field(known: Mapping[str, Any], name: str) -> str:
    value = _value(known, name)
    if value is not None and not isinstance(value, str | PathLike):
        raise DocumentError(f"The {name} of {_label(known)} is a string, not {value!r}")
    return _text(value)


def _date(known: Mapping[str, Any]) -> str | None:
    value = _value(known, "date")
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()[:10]
    found = iso_date(value)
    if found is None and value not in (None, ""):
        raise DocumentError(f"The date of {_label(known)} is a date, or is written as YYYY-MM-DD, not {value!r}")
    return found


def _label(known: Mapping[str, Any]) -> str:
    return repr(source) if (source := _text(known.get("source"))) else "a document"


def _page(document: Document) -> int | None:
    value = document.metadata.get("page")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _type_of(name: str) -> str:
    return TYPES.get(PurePosixPath(name).suffix.lower(), "text")


def _stem(source: str) -> str:
    return "" if source.startswith("text:") else PurePosixPath(source.replace("\\", "/").rstrip("/")).stem or source


def _as_json(source: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", as_json_data(dict(sorted(metadata.items()))))
    except UnsupportedContentError as error:
        raise DocumentError(f"The metadata of {source!r} cannot be kept as JSON") from error
