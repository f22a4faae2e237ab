"""Marks of citations in ChatGPT's answers, removed or made readable.

The forms were read from mohamed-chs/convoviz (`docs/dev/chatgpt-spec.md`, February 2026) and from
answers that people have copied: a mark begins with U+E200 and ends with U+E201, with U+E202 between
its fields, such as `cite` and `turn0search0`; an older one is `【4:0†notes.pdf】`.
"""

import json
import re

from langchain_ctxbudget.readers.base import JsonObject
from langchain_ctxbudget.readers.fields import object_at, objects_in, text_at

BEGIN = "\ue200"
END = "\ue201"
BETWEEN = "\ue202"
_MARK = re.compile(f" ?{BEGIN}([^{BEGIN}{END}]*){END}")
_OLDER_MARK = re.compile(r" ?【[^【】\n]*†[^【】\n]*】")
_REFERENCE = re.compile(r"turn\d+\w+")
"""A field of a mark that names a source by its number."""
_LEFT_OVER = re.compile("[\ue200-\ue206]")
"""Characters of marks that were cut off."""


def without_marks(text: str, metadata: JsonObject) -> str:
    """Returns a text without marks of citations.

    A mark becomes the words that ChatGPT showed in its place where the message's metadata tells
    them, such as a link. Words inside a mark stay, such as the name of a city.
    """
    for reference in objects_in(metadata.get("content_references")):
        mark = text_at(reference, "matched_text")
        if mark is None or not (BEGIN in mark or "†" in mark):
            continue
        words = text_at(reference, "alt") or _words_in(mark)
        if not words:
            text = text.replace(f" {mark}", "")
        text = text.replace(mark, words)
    text = _MARK.sub(_words_of_match, text)
    return _LEFT_OVER.sub("", _OLDER_MARK.sub("", text))


def _words_of_match(match: re.Match[str]) -> str:
    words = _words_in(match[1])
    if words and match[0].startswith(" "):
        return f" {words}"
    return words


def _words_in(mark: str) -> str:
    """Returns the words of a mark: all fields but its kind and the numbers of sources."""
    _, *fields = mark.strip(BEGIN + END).split(BETWEEN)
    words = [_word_of(field) for field in fields if not _REFERENCE.search(field)]
    return " ".join(filter(None, words))


def _word_of(field: str) -> str:
    """Returns the word that a field shows; of a list (kind, name, description), the name."""
    try:
        value = json.loads(field)
    except ValueError:
        return field
    if isinstance(value, list) and len(value) > 1 and isinstance(value[1], str):
        return value[1]
    return ""


def report_in(metadata: JsonObject) -> str | None:
    """Returns the report of a deep research, which is kept as the state of a widget."""
    state = object_at(metadata, "chatgpt_sdk").get("widget_state")
    if isinstance(state, str):
        state = _parsed(state)
    if not isinstance(state, dict) or state.get("status") != "completed":
        return None
    message = object_at(state, "report_message")
    parts = object_at(message, "content").get("parts")
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        return None
    return without_marks(parts[0], object_at(message, "metadata"))


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
