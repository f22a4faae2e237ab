"""What parts of documents are cited by, and the headings that say it."""

from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from langchain_ctxbudget.budget import Citation
from langchain_ctxbudget.history import Entry
from langchain_ctxbudget.messages import fences, one_line
from langchain_ctxbudget.retrieval.searched import Other, document_of

_MOST_TITLE_CHARACTERS = 80
_NO_HEADING = str.maketrans("[]", "()")
_DIGEST = "text:"
"""Begins the source of a text that was given without one."""


def citation_of(chunks: Sequence[Other | Entry]) -> Citation | None:
    """Returns what neighbouring chunks of a document, or a whole one, are cited by.

    None for texts that are not from a document.
    """
    first = chunks[0]
    last = chunks[-1]
    if isinstance(first, Entry) or isinstance(last, Entry) or first.source != "documents":
        return None
    number = ""
    if document_of(first):
        number = _from_to(str(first.place + 1), str(last.place + 1))
    return Citation(
        title=first.title,
        source=str(first.metadata.get("source") or ""),
        number=number,
        page=_from_to(_page_of(first), _page_of(last)),
    )


def heading_of_document(citation: Citation, day: str | None) -> str:
    """Returns the heading above a quoted part of a document."""
    page = f"page {as_title(citation.page)}" if citation.page else ""
    details = [_names_in_heading(citation), page, day]
    return f"[document: {', '.join(filter(None, details))}]\n"


def _names_in_heading(citation: Citation) -> str:
    """Returns title, source and number as a heading has them."""
    title = as_title(citation.title)
    source = as_title(_short_source(citation.source))
    names = [title, source]
    if title.casefold() in source.casefold():  # a file that has its name for a title
        names = [source]
    text = ", ".join(filter(None, names))
    return f"{text} #{citation.number}" if citation.number else text


def _short_source(source: str) -> str:
    """Returns a source as a heading has it: of the path of a file on this computer, its name.

    Nothing for a text that was given without a source.
    """
    if source.startswith(_DIGEST):
        return ""
    for path in (PurePosixPath(source), PureWindowsPath(source)):
        if path.is_absolute():
            return path.name
    return source


def _page_of(chunk: Other) -> str:
    page = chunk.metadata.get("page")
    return "" if page is None else one_line(str(page))


def _from_to(first: str, last: str) -> str:
    return first if first == last else f"{first}-{last}"


def as_title(text: str) -> str:
    """Returns a title that is fit for a heading: one line, not too long, without brackets."""
    return fences.as_data(one_line(text)[:_MOST_TITLE_CHARACTERS].translate(_NO_HEADING))
