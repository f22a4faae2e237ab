"""How a chat model's summary is read.

A reply is read leniently, for small models do not keep to a format: as the JSON that was asked for, with or without a
code fence and words around it, and as a summary alone where it is prose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from langchain_ctxbudget.core.prompts import (
    ARTIFACT_CHARACTERS,
    DECISION_CHARACTERS,
    MAX_DECISIONS,
    MAX_QUESTIONS,
    NARRATIVE_CHARACTERS,
    QUESTION_CHARACTERS,
    SCHEMA,
    clipped,
)
from langchain_ctxbudget.core.text import fold, one_line, sentences, terms, word_count
from langchain_ctxbudget.core.tokens import encodable

MIN_SUMMARY_CHARACTERS, SUMMARY_CHARACTERS_PER_TOKEN = 2_000, 16
"""Of a summary that is longer than this, and than this times its cap in tokens, the end is not looked at."""
_ITEMS_READ = 64
"""Of a list in a reply, the rest of which is not looked at."""
_SHORT_HEADING_WORDS = 3
MOST_REPLY_CHARACTERS = 200_000
"""A longer reply has lost its way."""
_REFUSES = re.compile(
    r"(?:I'm sorry|I am sorry|Sorry,|I apologi[sz]e|I can(?:no|')?t\b|I cannot|I'm unable|I am unable|As an AI)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """A model's reply as it was read.

    Example:
        >>> read_reply(
        ...     '{"summary": "Ada chose oak.", "open_questions": ["Who delivers?"]}', cap_tokens=100
        ... ).open_questions
        ('Who delivers?',)
    """

    summary: str
    key_decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] | None = None
    """None: the reply does not say."""
    code_artifacts: tuple[str, ...] = ()
    narrative: str = ""

    def after(self, earlier: Notes) -> Notes:
        """These notes, which were made with earlier ones in sight: lists merged, what is not said taken over."""
        return Notes(
            summary=self.summary,
            key_decisions=_unique((*earlier.key_decisions, *self.key_decisions)),
            open_questions=earlier.open_questions if self.open_questions is None else self.open_questions,
            code_artifacts=_unique((*earlier.code_artifacts, *self.code_artifacts)),
            narrative=self.narrative or earlier.narrative,
        )


_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_LOOKS_LIKE_JSON = re.compile(r"\A(?:[{\[]|```)")
# The object that was asked for, wherever it begins: models like to introduce it.
_OBJECT = re.compile(rf'\{{\s*"(?:{"|".join(SCHEMA["properties"])})"\s*:')
_SHOWN_CHARACTERS = 120
_BULLET = re.compile(r"\A(?:[-*+•\u2013\u2014]|#{1,6}|\d{1,3}[.)])\s+")
_INTRODUCTION = re.compile(r"\A(?:here(?: is|'s|\u2019s| are)|sure\b|certainly\b|okay\b)", re.IGNORECASE)


def read_reply(reply: str | Mapping[str, Any], *, cap_tokens: int) -> Notes:
    """Read what a model answered.

    Args:
        reply: its text, or the fields where its client has read them already.
        cap_tokens: how long the summary should be, in tokens; not enforced here, but it bounds what is read.

    Raises:
        ValueError: nothing is in it, it is JSON that cannot be read, or its summary says nothing; says which.
    """
    if isinstance(reply, Mapping):
        return _notes(reply, str(reply), cap_tokens)
    text = without_thoughts(reply)
    if not text:
        raise ValueError("an empty reply")
    if len(text) > MOST_REPLY_CHARACTERS:
        raise ValueError(f"a reply of {len(text):,} characters where {cap_tokens:,} tokens were asked for")
    if _is_bare_value(text):
        raise ValueError(f"JSON that is not an object: {_shown(text)}")
    begins = _OBJECT.search(text)
    if begins or _LOOKS_LIKE_JSON.match(text):
        try:
            fields = json_object(text, begins.start() if begins else 0)
        except ValueError as error:
            raise ValueError(f"{error}: {_shown(text)}") from None
        return _notes(fields, text, cap_tokens)
    if _REFUSES.match(text):
        raise ValueError(f"a refusal: {_shown(text)}")
    return _notes({"summary": text}, text, cap_tokens)


def _is_bare_value(text: str) -> bool:
    """Whether a reply is a JSON value such as `null`, a number or a string in quotation marks."""
    if text[0] in "{[" or len(text) > MIN_SUMMARY_CHARACTERS:
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def without_thoughts(reply: str) -> str:
    """A reply without what the model thought aloud before it."""
    return _THOUGHTS.sub("", reply, count=1).strip()


def json_object(text: str, begin: int) -> Mapping[str, Any]:
    """The JSON object that begins at a place; what stands behind it is not looked at.

    Raises:
        ValueError: there is none, or it cannot be read; shows nothing of the text.
    """
    try:
        # Line breaks inside strings are a common mistake of small models.
        value, _ = json.JSONDecoder(strict=False).raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise ValueError(f"invalid JSON ({reason})") from None
    if not isinstance(value, Mapping):
        raise ValueError("JSON that is not an object")  # noqa: TRY004 - the reply's fault
    return value


def _notes(fields: Mapping[str, Any], reply: str, cap_tokens: int) -> Notes:
    raw = fields.get("summary")
    whole = raw if isinstance(raw, str) else "\n".join(_strings(raw))
    most = max(MIN_SUMMARY_CHARACTERS, SUMMARY_CHARACTERS_PER_TOKEN * cap_tokens)
    summary = whole if len(whole) <= most else f"{whole[:most]}…"
    if not any(True for _ in statements(summary)):
        raise ValueError(f"a reply without a summary: {_shown(reply)}")
    questions = fields.get("open_questions")
    narrative = fields.get("narrative")
    return Notes(
        summary=encodable(summary),
        key_decisions=_items(fields.get("key_decisions"), MAX_DECISIONS, DECISION_CHARACTERS),
        open_questions=None if questions is None else _items(questions, MAX_QUESTIONS, QUESTION_CHARACTERS),
        code_artifacts=_items(fields.get("code_artifacts"), _ITEMS_READ, ARTIFACT_CHARACTERS),
        narrative=clipped(encodable(narrative), NARRATIVE_CHARACTERS) if isinstance(narrative, str) else "",
    )


def statements(summary: str) -> Iterator[str]:
    """The sentences of a summary that say something, one line each, without bullets, headings and repetitions."""
    seen: set[str] = set()
    for line in summary.splitlines():
        for sentence in sentences(_without_bullet(line)):
            flat = one_line(sentence)
            same = fold(flat)
            if same not in seen and terms(flat) and not _is_heading(flat):
                seen.add(same)
                yield flat


def _without_bullet(line: str) -> str:
    return _BULLET.sub("", line.strip()).replace("**", "")


def _is_heading(flat: str) -> bool:
    return flat.endswith(":") and (word_count(flat) <= _SHORT_HEADING_WORDS or bool(_INTRODUCTION.match(flat)))


def _items(value: object, limit: int, characters: int) -> tuple[str, ...]:
    """The strings of a list, one line each, without the marks that are added where they are shown."""
    texts = (_without_bullet(text[: 4 * characters]).replace("[OPEN]", "") for text in _strings(value))
    return _unique((clipped(encodable(text), characters) for text in texts), limit)


def _strings(value: object) -> Iterator[str]:
    """The texts of a list, of objects in it (`{"decision": ..., "reason": ...}`) theirs; a text alone is a list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in islice(value, _ITEMS_READ):
            if isinstance(item, str):
                yield item
            elif isinstance(item, Mapping):
                yield ": ".join(part for part in islice(item.values(), _ITEMS_READ) if isinstance(part, str))


def _unique(texts: Iterable[str], limit: int | None = None) -> tuple[str, ...]:
    """The texts that say something, each once, in order."""
    found: dict[str, str] = {}
    for text in texts:
        if terms(text):
            found.setdefault(fold(text), text)
    return tuple(islice(found.values(), limit))


def _shown(reply: str) -> str:
    return repr(clipped(reply, _SHOWN_CHARACTERS))
