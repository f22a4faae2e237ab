"""From what an application gives to a document: files, texts and LangChain documents are read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from os import PathLike
from os.path import abspath
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, TypeAlias, cast

from langchain_core.documents import Document

from langchain_ctxbudget.documents import addresses
from langchain_ctxbudget.documents.splitting import HEADINGS, Part, markdown_parts
from langchain_ctxbudget.errors import DocumentError
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.messages import as_json_data, digest, encodable, iso_date, one_line

TYPES = {".pdf": "pdf", ".md": "markdown", ".markdown": "markdown", ".mdx": "markdown"}
"""Types by the ending of a file's name; all others are `text`."""
TITLE_CHARACTERS = 120
_OWN_FIELDS = ("source", "title", "date", "type")
"""Metadata that a document has in fields of its own."""
Given: TypeAlias = Document | str | PathLike[str]
"""What a document may be given as."""


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document that was read and is not split yet."""

    about: Mapping[str, Any]
    """Its `source`, `title`, `date`, `type`, `metadata`, and a `hash` of its text."""
    parts: Sequence[Part]
    text: str


def by_source(
    given: Given | Iterable[Given] | None, metadata: Mapping[str, Any]
) -> list[list[Given]]:
    """Groups LangChain documents with the same source, such as the pages of a file.

    Every other item is a group of its own.

    Raises:
        DocumentError: An item is no document, or several share the metadata of one.
    """
    groups: dict[object, list[Given]] = {}
    for number, item in enumerate(_items(given)):
        if not isinstance(item, Document | str | PathLike):
            _refuse(repr(item))
        source = ""
        if isinstance(item, Document):
            source = str(item.metadata.get("source") or "")
        groups.setdefault(source or number, []).append(item)
    if len(groups) > 1 and not metadata.keys().isdisjoint({"source", "title"}):
        raise DocumentError(
            "`source` and `title` are those of one document; give each document its own metadata"
        )
    return list(groups.values())


def _items(given: Given | Iterable[Given] | None) -> Iterable[Given]:
    """Returns what was given one by one; nothing of it is checked yet."""
    # One by one, a mapping would give its keys, and bytes would give numbers.
    if isinstance(given, Mapping | bytes | bytearray):
        _refuse(
            f"{type(given).__name__}: give Document(page_content=..., metadata=...), "
            "or the text of bytes that were decoded"
        )
    if isinstance(given, Document | str | PathLike) or not isinstance(given, Iterable):
        return [cast("Given", given)]
    return given


def _refuse(given: str) -> NoReturn:
    raise DocumentError(
        f"A document is a LangChain Document, a string (its text) or a path, not {given}"
    )


def source_of(source: object) -> str:
    """Returns the source by which a document is known.

    A string stays as it is; a path becomes absolute, and links are not followed.
    """
    if isinstance(source, PathLike):
        return Path(abspath(Path(source))).as_posix()  # noqa: PTH100 - `resolve` follows links
    if not isinstance(source, str):
        raise DocumentError(
            f"A document is known by its source, a string or a path, not {type(source).__name__}"
        )
    return source


def text_document(text: object, documents: object) -> Document:
    """Returns the text of one document as a document.

    Raises:
        DocumentError: It is no string, or documents are given as well.
    """
    if documents is not None:
        raise DocumentError("Give documents, or the text of one document as `text`, not both")
    if not isinstance(text, str):
        raise DocumentError(
            f"`text` is the text of one document, a string, not {type(text).__name__}"
        )
    return Document(text)


def read_document(group: Sequence[Given], metadata: Mapping[str, Any]) -> NewDocument:
    """Reads a document: a file, a text, or LangChain documents with one source.

    Args:
        group: of `by_source`.
        metadata: it goes before the metadata that the documents have.

    Raises:
        DocumentError: The document cannot be read, or has no text.
    """
    first = group[0]
    if isinstance(first, PathLike):
        return _merged(_file_documents(Path(first)), metadata)
    if isinstance(first, Document):
        return _merged(cast("Sequence[Document]", group), metadata)
    _refuse_address(first)
    return _merged([Document(first)], metadata)


def _refuse_address(text: str) -> None:
    """Raises a `DocumentError` for a string that says where a document is, not what it says."""
    otherwise = "If this is the text of a document, give it as text=..."
    if addresses.exists(text):
        path = Path(text).expanduser()
        as_path = f"Path({str(path)!r})"
        if path.is_dir():
            raise DocumentError(
                f"{text!r} is a folder. Give its files: {as_path}.rglob('*.md'). {otherwise}"
            )
        raise DocumentError(
            f"{text!r} is a file, but a string is a document's text. Give {as_path}. {otherwise}"
        )
    if addresses.looks_like_path(text):
        folder = Path.cwd().as_posix()
        raise DocumentError(
            f"{text!r} looks like the path of a file, and there is none (in {folder!r}, if it is "
            f"relative). Give the path of a file that is there, as Path(...). {otherwise}"
        )
    if addresses.is_address(text):
        raise DocumentError(
            f"{text!r} is an address, and nothing is fetched from there. Give the page's text, or "
            f"the documents of a LangChain loader. {otherwise}"
        )


def _file_documents(path: Path) -> list[Document]:
    """Returns the text of a file as a document, or one for each page of a PDF."""
    metadata = {"source": source_of(path), "type": TYPES.get(path.suffix.lower(), "text")}
    try:
        changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        metadata["date"] = changed_at.date().isoformat()
        if metadata["type"] == "pdf":
            return _pdf_pages(path, metadata)
        return [Document(_decoded(path), metadata=metadata)]
    except ImportError as error:
        raise DocumentError(
            f"{path} is a PDF, and pypdf is not installed: {install_command('documents')}"
        ) from error
    except Exception as error:  # pypdf raises anything on a broken file
        raise DocumentError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def _pdf_pages(path: Path, metadata: Mapping[str, Any]) -> list[Document]:
    from pypdf import PdfReader  # noqa: PLC0415 - an extra

    reader = PdfReader(path)
    title = one_line(str(getattr(reader.metadata, "title", None) or ""))
    texts = [page.extract_text() for page in reader.pages] or [""]
    return [
        Document(text, metadata={**metadata, "title": title, "page": number})
        for number, text in enumerate(texts, 1)
    ]


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
    """Makes one document of several, such as pages; they share the metadata in which they agree.

    Raises:
        DocumentError: There is no text in it, or its date cannot be read.
    """
    shared = _shared_metadata(documents)
    merged = {**shared, **metadata}
    text = "\n\n".join(document.page_content for document in documents)
    source = _stripped(merged, "source") or documents[0].id or f"text:{hash_of(text)}"
    kind = _kind_of(source, merged)
    _require_text(text, source, kind)
    parts: list[Part] = []
    for document in documents:
        parts += _parts(document, kind, merged)
    title = _stripped(merged, "title") or _title_of(source, parts, text)
    others = {name: value for name, value in merged.items() if name not in _OWN_FIELDS}
    about = {
        "source": source,
        "title": one_line(title)[:TITLE_CHARACTERS],
        "date": _date(metadata.get("date") or shared.get("date"), source),
        "type": kind,
        "metadata": _as_json(others),
        "hash": hash_of(text),
    }
    return NewDocument(about, parts, text)


def _kind_of(source: str, metadata: Mapping[str, Any]) -> str:
    """Returns the type of a document: the one that its metadata tell, or that of its file name."""
    suffix = PurePosixPath(source).suffix.lower()
    return one_line(_stripped(metadata, "type")) or TYPES.get(suffix, "text")


def _require_text(text: str, source: str, kind: str) -> None:
    """Raises `DocumentError` where a document has no text."""
    if text.strip():
        return
    message = f"The document {source!r} has no text"
    if kind == "pdf":
        message += ": its pages are pictures; recognise their text first (OCR)"
    raise DocumentError(message)


def _shared_metadata(documents: Sequence[Document]) -> dict[str, Any]:
    """Returns the metadata in which all documents agree."""

    def agree(name: str, value: object) -> bool:
        return all(document.metadata.get(name) == value for document in documents)

    first = documents[0].metadata
    return {name: value for name, value in first.items() if agree(name, value)}


def _stripped(metadata: Mapping[str, Any], name: str) -> str:
    """Returns a field of metadata as a text; empty where it is not told."""
    return str(metadata.get(name) or "").strip()


def _parts(document: Document, kind: str, merged: Mapping[str, Any]) -> list[Part]:
    """Returns the parts of one page or file that have text, with the metadata of it alone."""
    own = {
        name: value
        for name, value in document.metadata.items()
        if name not in merged and name != "source"
    }
    # An index refuses NUL and halves of characters.
    text = encodable(document.page_content).replace("\0", "")
    parts = markdown_parts(text) if kind == "markdown" else [Part(text)]
    return [replace(part, metadata=_as_json(own)) for part in parts if part.text.strip()]


def _title_of(source: str, parts: Sequence[Part], text: str) -> str:
    """Returns a title for a document without one: its first heading, file name, or first line."""
    for part in parts:
        if part.heading:
            return part.heading.split(HEADINGS)[0]
    if not source.startswith("text:"):
        stem = PurePosixPath(source.replace("\\", "/")).stem
        if stem:
            return stem
    return text.strip().partition("\n")[0]


def hash_of(text: str) -> str:
    """Returns a digest of a text that names it in the store."""
    return digest(text, 12).hex()


def _date(value: object, source: str) -> str | None:
    # A datetime is a date, too.
    found = value.isoformat()[:10] if isinstance(value, date) else iso_date(value)
    if found is None and value not in (None, ""):
        raise DocumentError(
            f"The date of {source!r} is a date, or is written as YYYY-MM-DD, not {value!r}"
        )
    return found


def _as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", as_json_data(dict(sorted(metadata.items()))))
