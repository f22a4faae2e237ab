"""Sentences of a message, without what was pasted, and the files and functions that it names."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from langchain_ctxbudget.messages.letters import LEFT_OUT
from langchain_ctxbudget.messages.text import (
    ENGLISH,
    LINE_CHARACTERS,
    cached_until_forgotten,
    one_line,
    sentence_spans,
    sentences,
)
from langchain_ctxbudget.messages.wrapping import Paragraph

MAX_SENTENCE_CHARACTERS = 400
"""A longer sentence is cut here, with an ellipsis."""
SYMBOL_SHARE = 0.2
"""A line with more brackets and operators than this is no sentence."""
_FENCE = "```"
_SIGNS_OF_PASTE = ("<", ">", _FENCE, "~~~", '"""', "'''")
"""One of these is in each mark of a paste, and most messages have none."""
_HEADS = "#>|"
"""A line that begins with one of these is a heading, a quotation or a row of a table."""


def units(text: str) -> list[str]:
    """Returns a text sentence by sentence, each on one line and cut where it is too long.

    Code, tables, JSON and lines without words are no sentences; a tool call is one.
    """
    prose: list[str] = []
    for outside_code in text.split(_FENCE)[::2]:
        for begin, end in _line_spans(outside_code):
            prose += _prose_of(outside_code[begin:end])
    return list(map(cut_sentence, prose))


@cached_until_forgotten(1_024)
def prose_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Returns where the sentences of a text begin and end.

    Code, tables, JSON and lines without words are no sentences; marks of lists are left out.
    """
    spans: list[tuple[int, int]] = []
    begin = 0
    for number, part in enumerate(text.split(_FENCE)):
        if number % 2 == 0:
            spans += _prose_spans_in(part, begin)
        begin += len(part) + len(_FENCE)
    return tuple(spans)


def _prose_spans_in(text: str, begin: int) -> list[tuple[int, int]]:
    """Returns the same of a text without fences that begins at a place."""
    spans: list[tuple[int, int]] = []
    for first, end in _line_spans(text):
        line = text[first:end]
        if _is_prose(line):
            mark = ENGLISH.markup.match(line)
            words = line[mark.end() :] if mark else line
            spans += _joined_spans(words, begin + end - len(words))
    return spans


def _line_spans(text: str) -> list[tuple[int, int]]:
    """Returns where the lines of a text stand, without white space at their ends.

    Lines from which a sentence goes on are one with the next line.
    """
    spans: list[tuple[int, int]] = []
    for lines in _paragraphs(text):
        paragraph = Paragraph(
            lines=[text[begin:end] for begin, end in lines],
            indents=[begin - text.rfind("\n", 0, begin) for begin, _ in lines],
        )
        first = 0
        for number, (_, end) in enumerate(lines):
            is_last = number + 1 == len(lines)
            if is_last or not _goes_on_behind(paragraph, number, first):
                spans.append((lines[first][0], end))
                first = number + 1
    return spans


def _paragraphs(text: str) -> list[list[tuple[int, int]]]:
    """Returns where the lines of each paragraph stand, without white space at their ends."""
    paragraphs: list[list[tuple[int, int]]] = [[]]
    begin = 0
    for line in text.split("\n"):
        bare = line.strip()
        if bare:
            first = begin + len(line) - len(line.lstrip())
            paragraphs[-1].append((first, first + len(bare)))
        elif paragraphs[-1]:
            paragraphs.append([])
        begin += len(line) + 1
    return [lines for lines in paragraphs if lines]


def _goes_on_behind(paragraph: Paragraph, number: int, first: int) -> bool:
    """Tells if a sentence goes on from a line of a paragraph to the next one.

    Args:
        paragraph: The paragraph.
        number: The number of the line, from 0.
        first: The number of the line with which the lines begin that belong together so far.
    """
    line = paragraph.lines[number]
    after = paragraph.lines[number + 1]
    if not (_is_in_plain_words(line) and _is_in_plain_words(after)) or line[0] in _HEADS:
        return False
    return paragraph.goes_on_behind(number, first)


def _is_in_plain_words(line: str) -> bool:
    """Tells if a line may be a part of a sentence: "if nobody is there," may, and is no code."""
    if ENGLISH.called.match(line):
        return False
    return _is_prose(line) or (line.endswith(",") and not ENGLISH.symbol.search(line))


def _joined_spans(line: str, begin: int) -> list[tuple[int, int]]:
    """Returns the sentences of a line, with no end where one goes on."""
    joined: list[tuple[int, int]] = []
    for first, end in sentence_spans(_on_one_line(line)):
        if joined and _is_within_sentence(line[slice(*joined[-1])], line[first:end]):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((first, end))
    return [(begin + first, begin + end) for first, end in joined if _is_in_words(line[first:end])]


def _on_one_line(text: str) -> str:
    """Returns a text with a space for each line break, so that none ends a sentence in it."""
    return text.replace("\n", " ")


def _unwrapped(text: str) -> str:
    """Returns a text with a space for each line break behind which a sentence goes on."""
    parts: list[str] = []
    at = 0
    for begin, end in _line_spans(text):
        parts += [text[at:begin], _on_one_line(text[begin:end])]
        at = end
    return "".join([*parts, text[at:]])


def cut_sentence(sentence: str) -> str:
    """Returns a sentence, cut with an ellipsis where it is too long."""
    if len(sentence) <= MAX_SENTENCE_CHARACTERS:
        return sentence
    return sentence[: MAX_SENTENCE_CHARACTERS - 1].rstrip() + "…"


def without_pasted(text: str) -> str:
    """Returns a text without everything between its first and last mark of a paste.

    All of that goes, since a paste may imitate its own end. If a mark is never closed, the end of
    the text goes, too. A text without words is empty.
    """
    if not any(sign in text for sign in _SIGNS_OF_PASTE):
        return text
    marks = list(ENGLISH.paste.finditer(text))
    if not marks:
        return text
    rest = text[: marks[0].start()] + LEFT_OUT
    if not _leave_open(marks):
        rest += text[marks[-1].end() :]
    has_words = any(map(str.isalnum, rest))
    return rest if has_words else ""


def _leave_open(marks: Sequence[re.Match[str]]) -> bool:
    """Tells if marks open a fence or a tag that none of them closes."""
    is_open: dict[str, bool] = {}
    for mark in marks:
        fence = mark["fence"]
        tag = mark["name"]
        if fence:
            character = fence[-1]
            is_open[character] = not is_open.get(character)
        elif tag:
            is_open[tag.casefold()] = not mark["closes"]
    return any(is_open.values())


def without_quotations(text: str, begin: int, end: int) -> str:
    """Returns a part of a text with an ellipsis for each part that stands in quotation marks."""
    kept: list[str] = []
    at = begin
    for first, last in _quotation_spans(text):
        if last > at and first < end:
            kept += [text[at : max(at, first)], "…"]
            at = min(last, end)
    return "".join([*kept, text[at:end]])


def ends_in_quotation(text: str, begin: int, end: int) -> bool:
    """Tells if a quotation begins in a part of a text and ends behind it."""
    return any(begin <= first < end < last for first, last in _quotation_spans(text))


@cached_until_forgotten(1_024)
def _quotation_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Returns where parts of a text stand in quotation marks."""
    if not ENGLISH.quotation_begins.search(text):
        return ()
    return tuple(found.span() for found in ENGLISH.quotation.finditer(_unwrapped(text)))


def begins_in_the_middle(sentence: str) -> bool:
    """Tells if a sentence begins with a word that refers to the one before it."""
    return bool(ENGLISH.anaphor.match(sentence))


def _prose_of(line: str) -> list[str]:
    """Returns the sentences of a line: none if it is no prose; of a call, its beginning."""
    if ENGLISH.called.match(line):
        if len(line) > LINE_CHARACTERS:
            line = f"{line[: LINE_CHARACTERS - 2].rstrip()}…]"
        return [line]
    if not _is_prose(line):
        return []
    whole_sentences = _joined_sentences(sentences(ENGLISH.markup.sub("", _on_one_line(line))))
    return [sentence for sentence in whole_sentences if _is_in_words(sentence)]


def _is_prose(line: str) -> bool:
    """Tells if a line is neither a row of a table, nor JSON, a ruler or code."""
    if line.startswith("|") and line.count("|") > 1:
        return False
    if line.startswith(("{", "[")) and line.endswith(("}", "]")) and not line[1:2].isalpha():
        return False
    return not (ENGLISH.ruler.match(line) or ENGLISH.code_line.match(line))


def _is_in_words(sentence: str) -> bool:
    """Tells if a sentence has few enough brackets and operators."""
    return len(ENGLISH.symbol.findall(sentence)) <= SYMBOL_SHARE * len(sentence)


def _joined_sentences(parts: Iterable[str]) -> list[str]:
    """Joins a sentence to the one before it where it was split from it, or refers to it."""
    joined: list[str] = []
    for part in map(one_line, parts):
        if joined and _continues(joined[-1], part):
            joined[-1] += f" {part}"
        else:
            joined.append(part)
    return joined


def _continues(before: str, sentence: str) -> bool:
    """Tells if a sentence goes on from the one before it."""
    if _is_within_sentence(before, sentence):
        return True
    is_short = len(before) + len(sentence) < 2 * LINE_CHARACTERS
    return is_short and " " in before and begins_in_the_middle(sentence)


def _is_within_sentence(before: str, sentence: str) -> bool:
    """Tells if a text was split within a sentence.

    It was behind an abbreviation, and before a small letter behind initials and quotations.
    """
    if ENGLISH.abbreviation.search(before[-12:]):
        return True
    return sentence[:1].islower() and bool(ENGLISH.goes_on_small.search(before[-12:]))


def artifacts(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of files in texts, and of functions and classes in code.

    The most mentioned come first.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        parts = ENGLISH.called.sub("[", text).split(_FENCE)
        for code in parts[1::2]:
            counts.update(_defined_in(code))
        for prose in parts[::2]:
            named = map(_named, ENGLISH.token.findall(prose))
            counts.update(filter(None, named))
    return tuple(name for name, _ in counts.most_common())


def _defined_in(code: str) -> list[str]:
    """Returns the names of functions and classes that code defines."""
    names: list[str] = []
    for function_word, name in ENGLISH.definition.findall(code):
        if function_word:
            names.append(f"{name}()")
        elif ENGLISH.looks_like_code.search(name):
            names.append(name)
    return names


def _named(token: str) -> str:
    """Returns the file or the function that a token of a text names; empty if it names none."""
    if "." not in token and "(" not in token:
        return ""
    name = token.lstrip(":-@").rstrip(".:-@")
    if len(name) > LINE_CHARACTERS or "://" in name:
        return ""
    if "(" in name:
        return _function_of(name)
    if ENGLISH.file.fullmatch(name):
        return name.removeprefix("./")
    return ""


def _function_of(call: str) -> str:
    """Returns the function that a token with a bracket calls; empty if it calls none."""
    function = call.rstrip("()").rsplit("/", 1)[-1]
    if not ENGLISH.named_in_code.fullmatch(function):
        return ""
    is_function = call.endswith(")") or ENGLISH.looks_like_code.search(function)
    return f"{function}()" if is_function else ""
