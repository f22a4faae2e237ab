"""Sentences of a message, and the files and functions that it names; code, tables and JSON are only named."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from langchain_ctxbudget.messages.text import one_line, sentences

MAX_SENTENCE_CHARACTERS = 400
"""A longer sentence is cut here, with an ellipsis."""
JOINED_CHARACTERS = 240
"""A sentence that begins with "It" or "That" is read with the one before it while both are no longer than this."""
MAX_FIELDS, MAX_FIELD_CHARACTERS = 8, 48
"""Limits of the fields of JSON that are shown."""
MAX_NAME_CHARACTERS = 96
MAX_NAMES = 6
"""Limit of the names shown of a piece of code or of the head of a table."""
SYMBOL_SHARE = 0.2
"""A line with more brackets and operators than this is no sentence."""

_FENCE = "```"
_MARKUP = re.compile(r"^(?:[-*•>#|]+|\d{1,3}[.)])(?=\s)\s*|^\s+")
_SYMBOL = re.compile(r"[{}\[\]<>=;|\\~^#*_+/\"`]")
_RULER = re.compile(r"^[\s|:+=_~*.-]*$")
_ANAPHOR = re.compile(
    r"(?:it|that|this|these|those|they|he|she|its|their|his|both|which)(?:['\u2019]s|'d|'ll|'re)?\b",
    re.IGNORECASE,
)
# The splitter takes these for the end of a sentence.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|No|vs|ca|approx|e\.g|i\.e|z\.B|bzw|Nr)\.$|[\"“(]\d{1,2}\.$"
)
_CALL = re.compile(r"\[called ([^\s({]{1,80})\((.*)\)\]$", re.DOTALL)
_CALLED = re.compile(r"\[called [^\s({]{1,80}\(")
_DEFINITION = re.compile(
    r"\b(?:(def|function|func|fn)|class|interface|struct|enum|trait|create (?:unique )?(?:table|index|view))"
    r"[ \t]{1,8}(?:if not exists )?([A-Za-z_]\w{1,80})",
    re.IGNORECASE,
)
# A line of code outside a code block: an assignment, a call, a frame of a stack trace, or a statement.
_CODE_LINE = re.compile(
    r"(?:[\w.\[\]]+(?:, ?[\w.]+)* ?[-+*/|&]?= ?\S|[\w.]+\(.*\)[;:,]?$|Traceback \(|File \"[^\"]*\", line \d"
    r"|at [\w$.<>]+ ?\(.*\)$"
    r"|(?:def|class|async def|function|func|fn|export|const|var|public|private|static|import|from|return|raise"
    r"|yield|await"
    r"|if|elif|else|for|while|try|except|with|create|select|insert|update|delete)\b.*[:;{(,)\]]$|import [\w.]+$"
    r"|from [\w.]+ import\b|@\w[\w.]*(?:\(.*)?$|[)}\]]+[;,]?$)"
)
_PASTE = re.compile(
    r"^[ \t]*>.*$|(?P<fence>`{3,}|^[ \t]*~{3,}|\"{3,}|'{3,})"
    r"|(?:(?P<closes></)|(?<!\w)<(?!(?:br|hr|img|input|li|p|td|tr)\b))(?P<name>[^\W\d][\w:.-]*)(?=[\s/>])[^<>]*>?",
    re.MULTILINE,
)
"""A mark of a paste: a quoted line, a fence, or a tag."""
_LEFT_OUT = "\n[\u2026]\n"
"""No sentence, so that nobody reads what stands before and after it as one."""
_LANGUAGE = re.compile(r"[A-Za-z][\w+#.-]{0,20}(?=[ \t]*\n)")
_ENDINGS = (
    "py|pyi|ipynb|ts|tsx|js|jsx|mjs|vue|sql|md|rst|json|jsonl|ya?ml|toml|ini|cfg|conf|env|lock|sh|bash|ps1|html?|s?css|rs|go"
    "|java|kt|swift|rb|php|cs|cpp|cc|hpp|c|h|scala|tf|proto|xml|csv|tsv|parquet|txt|log|xlsx?|docx?|pptx?|pdf|png|jpe?g|svg"
)
_TOKEN = re.compile(r"[\w./\\:@-]+(?:\(\)?)?")
_FILE = re.compile(rf".*[^./\\:]\.(?:{_ENDINGS})", re.IGNORECASE)
_NAMED_IN_CODE = re.compile(r"[A-Za-z_$][\w$]*(?:[.:]{1,2}[\w$]+)*")
_LOOKS_LIKE_CODE = re.compile(r"[a-z0-9][A-Z]|\w[_.]\w|::|^[A-Z][a-z]+$")
_BACKTICKS = re.compile(r"(?<!`)`([^`\n]{2,60})`(?!`)")
_LIBRARIES = frozenset(f"{name}.js" for name in ("node", "next", "vue", "react", "express", "three", "d3", "nuxt"))
"""Names that end as files do."""


def units(text: str) -> list[str]:
    r"""Returns a text sentence by sentence, each on one line and cut where it is too long.

    Code, tables, JSON and tool calls are no sentences: each becomes one unit in brackets that says what it is and
    which names it has. Lines without words and list marks are left out.
    """
    found: list[str] = []
    for number, part in enumerate(text.split(_FENCE)):
        if number % 2:
            found.append(_code_note(part))
        elif note := _json_note(part):
            found.append(note)
        else:
            found.extend(_plain_units(part))
    return [_cut(unit, MAX_SENTENCE_CHARACTERS) for unit in found if unit]


def without_pasted(text: str) -> str:
    """Returns a text without what was pasted into it; empty where nothing is left.

    That is all from the first mark of a paste (a tag, a fence, a quoted line) to the last one, as what is pasted may
    imitate the end of its own fence; to the end of the text where something is left open.
    """
    marks = list(_PASTE.finditer(text))
    if not marks:
        return text
    is_open: dict[str, bool] = {}
    for mark in marks:
        if fence := mark["fence"]:
            is_open[fence[-1]] = not is_open.get(fence[-1])
        elif name := mark["name"]:
            is_open[name.casefold()] = not mark["closes"]
    left = text[: marks[0].start()] + _LEFT_OUT + ("" if any(is_open.values()) else text[marks[-1].end() :])
    return left if any(map(str.isalnum, left)) else ""


def begins_in_the_middle(sentence: str) -> bool:
    """Tells if a sentence begins with a word that stands for something said before it."""
    return bool(_ANAPHOR.match(sentence))


def _plain_units(text: str) -> Iterator[str]:
    """The units of a text without code blocks."""
    rows: list[str] = []
    code: list[str] = []
    for line in chain(text.split("\n"), ("",)):
        stripped = line.strip()
        if stripped.startswith("|") and stripped.count("|") > 1:
            rows.append(stripped)
            continue
        if rows:
            yield _table_note(rows)
            rows = []
        if _RULER.match(stripped):
            continue
        if call := _CALL.match(stripped):
            yield _call_note(call)
        elif note := _json_note(stripped):
            yield note
        elif _CODE_LINE.match(stripped):
            code.append(line)
        else:
            yield from _joined(sentences(_MARKUP.sub("", stripped)))
    yield _code_note("\n".join(code))


def _joined(parts: Iterable[str]) -> Iterator[str]:
    """The sentences of a line; one that leans on its predecessor, or was split by mistake, is put to it."""
    whole = ""
    for part in map(one_line, (*parts, "")):
        leans = _ANAPHOR.match(part) and len(whole) + len(part) < JOINED_CHARACTERS and " " in whole
        if part and whole and (leans or _ABBREVIATION.search(whole[-12:])):
            whole += f" {part}"
            continue
        if whole and _is_prose(whole):
            yield whole
        whole = part


def _is_prose(sentence: str) -> bool:
    return len(_SYMBOL.findall(sentence)) <= SYMBOL_SHARE * len(sentence)


def _cut(unit: str, most: int) -> str:
    return unit if len(unit) <= most else unit[: most - 1].rstrip() + "…"


def _code_note(code: str) -> str:
    """Names the functions, classes and tables that a piece of code defines; empty where it defines none."""
    language = _LANGUAGE.match(code)
    names = _listed(list(dict.fromkeys(_defined(code))))
    return f"[{language[0]} code: {names}]" if names and language else f"[code: {names}]" if names else ""


def _table_note(rows: list[str]) -> str:
    body = [row for row in rows if not _RULER.match(row)]
    cells = body[0].strip("|").split("|") if len(body) > 1 else []
    head = [one_line(cell)[:MAX_FIELD_CHARACTERS] for cell in cells if cell.strip()]
    return f"[table of {len(body) - 1} rows: {_listed(head)}]" if head else ""


def _listed(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")


def _call_note(call: re.Match[str]) -> str:
    fields = _fields(call[2])
    return f"[called {call[1]}: {fields}]" if fields else f"[called {call[1]}]"


def _json_note(text: str) -> str:
    """The first fields of a JSON text; empty for any other text."""
    stripped = text.strip()
    if stripped[:1] not in ("{", "[") or stripped[-1:] not in ("}", "]") or stripped[1:2].isalpha():
        return ""
    fields = _fields(stripped)
    return f"[JSON: {fields}]" if fields else ""


def _fields(text: str) -> str:
    """The scalar fields of a JSON text, the outermost first."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    shown: list[str] = []
    level: list[tuple[str, object]] = [("", value)]
    while level and len(shown) <= MAX_FIELDS:
        inner: list[tuple[str, object]] = []
        for key, item in level:
            if isinstance(item, dict):
                inner += [(str(name), nested) for name, nested in item.items()]
            elif isinstance(item, list):
                inner += [(key, nested) for nested in item]
            elif item not in (None, "", False):
                said = one_line(str(item))
                short = said if len(said) <= MAX_FIELD_CHARACTERS else said[: MAX_FIELD_CHARACTERS - 1] + "…"
                shown.append(f"{key}: {short}" if key else short)
        level = inner
    return ", ".join(shown[:MAX_FIELDS]) + (", …" if len(shown) > MAX_FIELDS else "")


def artifacts(texts: Iterable[str]) -> tuple[str, ...]:
    """Names of files, functions and classes in texts, the most mentioned first."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_names(text))
    return tuple(name for name, _ in counts.most_common())


def _names(text: str) -> Iterator[str]:
    parts = _CALLED.sub("[", text).split(_FENCE)
    for code in parts[1::2]:
        yield from (name for name in _defined(code) if name.endswith("()") or _LOOKS_LIKE_CODE.search(name))
    for prose in parts[::2]:
        for said in _BACKTICKS.findall(prose):
            if _LOOKS_LIKE_CODE.search(said) and _NAMED_IN_CODE.fullmatch(said) and not _FILE.fullmatch(said):
                yield said
        yield from filter(None, map(_named, _TOKEN.findall(prose)))


def _named(token: str) -> str:
    """The file or the function that a token of a text names, or nothing."""
    if "." not in token and "(" not in token:
        return ""
    name = token.lstrip(":-@").rstrip(".:-@")
    if len(name) > MAX_NAME_CHARACTERS or "://" in name:
        return ""
    if "(" in name:
        function = name.rstrip("()").rsplit("/", 1)[-1]
        named = _NAMED_IN_CODE.fullmatch(function) and (name.endswith(")") or _LOOKS_LIKE_CODE.search(function))
        return f"{function}()" if named else ""
    return name.removeprefix("./") if _FILE.fullmatch(name) and name.lower() not in _LIBRARIES else ""


def _defined(code: str) -> Iterator[str]:
    for function, name in _DEFINITION.findall(code):
        yield f"{name}()" if function else name
