"""Where a message speaks in the user's own voice, and where it quotes, plays a role, or brings a text to work on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_ctxbudget.core.rules.statement_vocabulary import words

MAX_NAME_WORDS, MAX_VERSE_WORDS, MIN_VERSE_LINES = 4, 9, 3
"""A quotation of so many words may be a name; so many lines of so many words may be verse."""

_APOSTROPHES = str.maketrans("\u2018\u2019\u02bc\u00b4`\u201c\u201d", "'''''\"\"")
_TEXT = (
    r"(?:review|text|paragraph|email|letter|message|article|post|story|sentence|essay|bio|transcript|draft|passage"
    r"|comment"
    r"|one|poem|song|lyrics)"
)
# From here on a message speaks in another voice: a role, an invention, a text to work on.
_OTHER_VOICE = re.compile(
    r"\b(?:pretend(?:ing)?|imagine|in (?:this|the|my) (?:story|dream|game|novel|scenario|role|campaign),? i"
    r"|(?:summari[sz]e|translate|proofread|rephrase|rewrite|paraphrase|correct|shorten|analy[sz]e|edit|improve|polish"
    rf"|classify|continue) (?:the following|this (?:\w+ )?{_TEXT}|the (?:story|scene))"
    r"|the following (?:text|paragraph|email|review|letter|message|story|poem|verse)"
    r"|(?:suppos(?:e|ing)|assum(?:e|ing)) (?:that )?(?:i|we|you|my)\b"
    r"|role-?play|act as|hypothetical(?:ly)?|let'?s say|say i'm|you are now|in the voice of|from the perspective of"
    r"|(?:start|beginning|opening|first (?:line|page|chapter|paragraph|verse)) of (?:my|the|a) \w+"
    r"|in (?:the )?first person|as if i|(?:stay|remain) in character|you (?:are|be|play) the \w+,? (?:and )?i"
    r"|i (?:am|play) (?:a|an|the) \w+,? (?:and )?you (?:are|play))\b",
    re.IGNORECASE,
)
_OTHER_VOICE_PARTS = words(
    "pretend,imagin,suppos,assum,role,act as,hypothe,let's say,lets say,say i'm,are now,in the "
    "voice,perspective,first,as if i,"
    "start of,beginning of,opening of,story,dream,game,novel,scenario,campaign,following,summari,translat,proof,phras,"
    "rewrit,correct,shorten,analy,edit,improv,polish,classif,continue,character,you are,you be,you play",
    ",",
)
"""A text without any of these is not searched for the pattern, which takes ten times as long."""
_WORK = re.compile(
    r"\b(?:translate|proof-?read|rewrite|rephrase|reword|paraphrase|summari[sz]e|edit|correct|improve|reply|respond"
    r"|analy[sz]e|explain|continue|complete|finish|classify|review|shorten|polish|write|compose|draft|grammar|lyrics"
    r"|story|poem|verses?|stanza|song|novel|dialogue|monologue|scene|sentences?|text|paragraph|e-?mail|letter|message"
    r"|essay|prompt|says|bio|post|tweet|caption|transcript|quote|reads?|example|character|persona|user story"
    r"|test (?:data|case|input))\b",
    re.IGNORECASE,
)
"""What stands before a colon after which a text begins that is to be worked on."""
_MOST_BEFORE_COLON = 100
_SALUTATION = re.compile(r"^(?:dear|to whom)\b[^\n]{0,60},\s*$", re.IGNORECASE | re.MULTILINE)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_QUOTED_LINES = re.compile(r"(?<![\w\"])\"(?=[^\"\n]*\n)[^\"]{0,1500}\"(?!\w)")
_QUOTED = re.compile(r"\"[^\"\n]{0,400}(?:\"|$)|(?<![\w'])'[^'\n]{0,200}'(?!\w)|\u00ab[^\u00bb]{0,400}\u00bb")
# "*I draw my sword and step forward*"
_STAGE = re.compile(r"(?:^|(?<=[.!?\"'\n] )|(?<=[\n\"]))\*(?![*\s])(?:[\w',-]+ ){2,}[^*\n]{1,300}\*(?!\*)")
_SPEAKER = re.compile(r"\b(?:i|i'm|my|we|me)\b", re.IGNORECASE)


def own_voice(text: str) -> str:
    """A message up to where it begins to speak in another voice, without block quotations and verse."""
    own = text.translate({**_APOSTROPHES, ord("`"): "`"} if "```" in text else _APOSTROPHES)
    if ">" in own:
        own = _QUOTED_LINE.sub("", own)
    if "\n" in own:
        own = _without_verse(_QUOTED_LINES.sub("\u2039quote\u203a", own) if '"' in own else own)
    if "*" in own and _STAGE.search(own):
        return ""
    lowered = own.lower()
    spoken = _OTHER_VOICE.search(own) if any(part in lowered for part in _OTHER_VOICE_PARTS) else None
    salutation = _SALUTATION.search(own) if "dear" in lowered or "to whom" in lowered else None
    begins = [other.start() for other in (spoken, salutation) if other]
    begin = min([*begins, *_given(own)], default=-1)
    return own if begin < 0 else own[: own.rfind("\n", 0, begin) + 1] + _whole_sentences(own, begin)


def _given(text: str) -> Iterator[int]:
    """Where the first request begins that ends in a colon and brings its text with it."""
    for colon in _COLON.finditer(text):
        before = _CLAUSE.findall(text[max(0, colon.start() - _MOST_BEFORE_COLON) : colon.start()])
        if before and (work := _WORK.search(before[-1])):
            yield colon.start() - len(before[-1]) + work.start()
            return


_COLON = re.compile(":")
_CLAUSE = re.compile(r"[^\n.:?!]+$")


def _whole_sentences(text: str, end: int) -> str:
    """The whole sentences of a line that stand before a place in it."""
    line = text[text.rfind("\n", 0, end) + 1 : end]
    last = max(line.rfind(mark) for mark in (". ", "! ", "? "))
    return line[: last + 1]


def _without_verse(text: str) -> str:
    """A text without runs of short lines of which most end in a comma or in nothing, and at least one in a comma."""
    kept: list[str] = []
    run: list[str] = []
    for line in [*text.split("\n"), ""]:
        if _may_be_verse(line):
            run.append(line)
            continue
        kept += [] if _is_verse(run) else run
        kept.append(line)
        run = []
    return "\n".join(kept[:-1])


def _may_be_verse(line: str) -> bool:
    bare = line.strip()
    return bool(bare) and bare[0].isalpha() and len(bare.split()) <= MAX_VERSE_WORDS


def _is_verse(lines: list[str]) -> bool:
    ends = [line.rstrip()[-1] for line in lines]
    return len(lines) >= MIN_VERSE_LINES and ends.count(",") + ends.count(";") >= len(lines) / 3


def without_quotations(sentence: str) -> str:
    """A sentence without the words of others; a quoted name stays."""
    return _QUOTED.sub(_short_quote, sentence)


def _short_quote(found: re.Match[str]) -> str:
    inner = found[0].strip("\"'\u00ab\u00bb ")
    is_name = len(inner.split()) <= MAX_NAME_WORDS and not _SPEAKER.search(inner)
    return inner if is_name else "\u2039quote\u203a"
