"""Whether a string is the path of a file or the address of a page, and not the text of a document.

A text that is taken for a path is refused with an error that says how to give it. A path that is
taken for a text is stored in silence, and nobody finds what the file says. So what could well be
either is taken for a path.
"""

import re
from contextlib import suppress
from pathlib import Path

MOST_CHARACTERS = 1_024
"""A longer string is a text: no path that somebody writes is so long."""
MOST_WORDS_OF_A_NAME = 4
"""A file name without a folder has at most so many words, else it is a sentence that ends with a
file name."""
MOST_WORDS_OF_A_FOLDER = 2

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_ROOT = re.compile(
    r"""
    ~[\w.-]*(?:[\\/]|$)     # ~/x.md, ~ada/x.md
    | \.{1,2}[\\/]          # ./docs, ..\docs
    | [A-Za-z]:[\\/]        # C:\docs, C:/docs
    | \\\\(?=[\w.?])        # \\server\docs
    | //?(?=[\w.~])         # /docs
    """,
    re.VERBOSE,
)
_SEPARATOR = re.compile(r"[\\/]")
_EXTENSION = re.compile(r"[^\s\\/.]\.[A-Za-z][A-Za-z0-9]{0,7}$")
_DOCUMENT_EXTENSION = re.compile(
    r"""
    [^\s\\/.]\.(?:
        md | mdx | markdown | txt | text | rst | adoc | org | tex | rtf | log | pdf | epub
        | docx? | odt | pages | pptx? | odp | xlsx? | ods | csv | tsv
        | html? | xml | json | jsonl | ya?ml | toml | ini | eml | ipynb
    )$
    """,
    re.VERBOSE | re.IGNORECASE,
)
_END_OF_SENTENCE = re.compile(r"[.!?…]\s")
_PAUSE = re.compile(r"[,;:]\s")


def is_address(text: str) -> bool:
    """Returns True for the address of a page alone, such as `https://example.com/x.html`."""
    return len(text) <= MOST_CHARACTERS and _ADDRESS.fullmatch(text.strip()) is not None


def exists(text: str) -> bool:
    """Returns True for the path of a file or a folder that is there."""
    if not text.strip() or "\n" in text or len(text) > MOST_CHARACTERS:
        return False
    # A name may be too long, have a NUL, or a home that nobody has.
    with suppress(OSError, ValueError, RuntimeError):
        return Path(text).exists() or Path(text).expanduser().exists()
    return False


def looks_like_path(text: str) -> bool:
    """Returns True for one line that is written as a path is, even if there is no such file."""
    line = text.strip()
    if not line or len(line) > MOST_CHARACTERS:
        return False
    if "\n" in line or "://" in line or _END_OF_SENTENCE.search(line):
        return False
    root = _ROOT.match(line)
    has_blanks = len(line.split()) > 1
    if root is None:
        return _is_file_with_blanks(line) if has_blanks else _is_relative_path(line)
    if not has_blanks or _EXTENSION.search(line):
        return True
    return _is_folder_with_blanks(root[0], line[root.end() :])


def _is_relative_path(word: str) -> bool:
    """Returns True for `docs/x.md`, `docs/` and `notes.md`, not for `and/or` or `Node.js`."""
    if not _SEPARATOR.search(word):
        return _DOCUMENT_EXTENSION.search(word) is not None
    ends_with_folder = word[-1] in "\\/" and len(word) > 1
    return ends_with_folder or _EXTENSION.search(word) is not None


def _is_file_with_blanks(line: str) -> bool:
    """Returns True for `docs/My notes.md`, not for a sentence that ends with a file's name."""
    words = line.split()
    if _PAUSE.search(line):
        return False
    if _SEPARATOR.search(words[0]):
        return _EXTENSION.search(line) is not None
    return _DOCUMENT_EXTENSION.search(line) is not None and len(words) <= MOST_WORDS_OF_A_NAME


def _is_folder_with_blanks(root: str, rest: str) -> bool:
    """Returns True for `/home/ada/My Documents`, not for a command such as `/remind me`."""
    *folders, name = _SEPARATOR.split(rest)
    is_clear = bool(folders) or root != "/"
    return is_clear and len(name.split()) <= MOST_WORDS_OF_A_FOLDER
