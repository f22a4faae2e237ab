"""How users want to be addressed and answered, where it is meant to last."""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_ctxbudget.core.rules import statement_nouns as nouns
from langchain_ctxbudget.core.rules.statement_slots import Statement, dimension
from langchain_ctxbudget.core.rules.statement_vocabulary import words

_CALL_ME = re.compile(
    r"(?i:please |just |you can |you may |feel free to )*(?i:call me) (?P<name>[A-Z][\w'-]*(?: [A-Z]\w+)?|[a-z]{2,12}$)"
)
_NO_NAME = words(
    "crazy back later stupid old when if lazy tomorrow maybe now today soon anything whatever anytime paranoid"
)
_STANDING = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|going forward|every time|each time|whenever|by default"
    r"|in (?:all|any|every) (?:of )?(?:your |the |my )?\w+)\b",
    re.IGNORECASE,
)
_ANSWERS = re.compile(
    r"\b(?:your |the |all |my |future )?(?:answers|replies|responses|explanations|code examples|code samples"
    r"|summaries|emoji"
    r"|emojis|jargon|apologi[sz]\w*|preamble|disclaimers?|small talk|bullet points|exclamation marks|bold text|lists"
    r"|tables|headings|markdown|introductions?|intros?|fluff|links|jokes|filler|hashtags"
    r"|footnotes|pleasantries)\b",
    re.IGNORECASE,
)
_KINDS = (
    r"(?:emoji\w*|jargon|preambles?|small talk|disclaimers?|bullet points|exclamation marks|apolog\w*|lists|tables"
    r"|headings"
    r"|markdown|introductions?|intros?|fluff|links|quotes|jokes|bold|italics|hashtags|abbreviations|footnotes|filler)"
)
_VERB = (
    r"(?:answer|reply|respond|use|using|write|give|keep|explain|include|add|format|show|speak|talk|address|refer|call"
    r"|be"
    r"|start|begin|end|ask|cite|assume|skip|avoid|prefer|make|put|sugar-?coat|repeat|apologi[sz]\w*|translate|provide"
    r"|stick"
    r"|sign|tell|suggest|recommend|remind|check|spell|state|quote|list|name|phrase|round|convert|mention|propose|leave"
    rf"|{_KINDS})"
)
_IMPERATIVE = re.compile(
    r"(?:(?:please|kindly|pls|plz|from now on|in (?:the )?future|going forward|when(?:ever)? (?:you|i) [\w' ]{2,40}?"
    r"|for (?:code|coding|recipes|dates)[\w ]{0,20}),? *)*"
    r"(?P<do>(?:always |never |do not |don'?t |avoid |stop |only "
    rf"|no (?={_KINDS}))?"
    rf"{_VERB}\b.*)",
    re.IGNORECASE,
)
# Units, languages and spellings are asked for once and meant for good.
_MANNER = re.compile(
    rf"(?:always |only )?{_VERB} (?!(?:an? (?!\w+ tone)|(?:it|this|that|these|those"
    rf"|one) ))(?:(?!an? )[\w'-]+ ){{0,4}}?(?:(?:in|with|to) )?"
    r"(?:kilomet\w+|miles|km|grams?|kilos?|kilograms?|ounces|pounds|cups|lit(?:re|er)s|celsius|fahrenheit|metric"
    r"|imperial"
    r"|euros?|dollars?|francs|\w+ spelling|(?:british|american|canadian|australian|plain|simple) (?:english|words"
    r"|language)"
    r"|(?:24|12)[- ]hour|iso dates|lower ?case|upper ?case|plain text|tabs|spaces|type hints"
    r"|oxford comma|digits|abbreviations when|(?:friendly|formal|informal|casual|neutral|professional|warm) tone"
    rf"|in (?:\w+ ){{1,3}}(?:sentences|words|lines|paragraphs)(?= or\b|$)|in (?:{nouns.NATION}|latin))\b",
    re.IGNORECASE,
)
_TONE = re.compile(
    r"be (?:more |always |brutally )?(?:blunt|honest|direct|critical|gentle|strict|patient|concise|brief|frank)\b"
    r"|(?:address|call) me (?:by|as|with) \w|stick to (?!the|it|this|that|your|my)\w|sugar-?coat\b",
    re.IGNORECASE,
)
_NOTHING_OF_THE_KIND = re.compile(
    r"(?:do not|don'?t|never|avoid|stop|no) (?:(?:suggest|recommend|use|include|mention|propose|offer|show|give me"
    r"|write)(?:ing)? )"
    r"(?!(?:the|this|that|these|those|it|an?|my|your|me|us|any of|all)\b)(?:any )?(?:[\w-]+ ){0,2}[\w-]+[^\Ws]s\b"
    r"|avoid (?!the|this|that|these|those|it|an?|my|your|me|using|to\b)[\w-]+",
    re.IGNORECASE,
)
_TERSE = re.compile(
    r"(?:please )?((?:short|shorter|simple|brief|concise|plain|longer|detailed) (?:sentences|answers|replies|words"
    r"|language)\b"
    r"[\w ,]{0,30})",
    re.IGNORECASE,
)
_LOCAL = re.compile(
    r"\b(?:return value|before you use|when it|the (?:value|result|input|output|error)|on error)\b"
    r"|\b(?:function|loop|method|class|returns|this (?:file|text|code)"
    r"|the (?:file|text|email|essay|letter|poem|story|script|button|user))\b",
    re.IGNORECASE,
)
_REASON = re.compile(r", (?:the|it|they|this|that|there|since|because|as|\w+ drive)\b.*", re.IGNORECASE)
_AT_HAND = re.compile(r"\b(?:this|that|it|these|here|now|following|below|above)\b", re.IGNORECASE)


def instruction(body: str) -> Iterator[Statement]:
    """How the user wants to be addressed and answered, where it is meant to last."""
    if called := _CALL_ME.match(body):
        if called["name"].lower() not in _NO_NAME:
            yield Statement(text=f"Wants to be called {called['name']}", category="preference", slot="called")
        return
    if terse := _TERSE.fullmatch(body):
        yield Statement(text=f"Wants {terse[1].lower()}", category="preference", slot=dimension(terse[1]))
        return
    found = _IMPERATIVE.match(body)
    if found and _lasts(body, found["do"]):
        do = _REASON.sub("", found["do"])
        do = re.sub(r",? (?:from now on|in (?:the )?future|going forward)$", "", do, flags=re.IGNORECASE)
        do = re.sub(r"\byour\b", "its", re.sub(r"\byou\b", "it", do.strip(" ,")))
        yield Statement(text=_wanted(do), category="preference", slot=dimension(do))


def _lasts(body: str, do: str) -> bool:
    if _LOCAL.search(do):
        return False
    if _STANDING.search(body):
        return True
    if (manner := _MANNER.match(do)) and not _AT_HAND.search(manner[0]):
        return True
    if _AT_HAND.search(do):
        return False
    if _NOTHING_OF_THE_KIND.match(do) or _TONE.match(re.sub(r"^(?:do not|don'?t) ", "", do)):
        return True
    negative = re.match(r"(?:do not|don'?t|no|avoid|stop|skip) ", do, re.IGNORECASE)
    is_do = re.match(r"(?:keep|make|give|use|write|include|format) ", do, re.IGNORECASE)
    about_yours = is_do and re.search(r"\byour\b", do)
    return bool(_ANSWERS.search(do) and (negative or about_yours))


def _wanted(do: str) -> str:
    if verbless := re.match(r"no (\w.*)", do, re.IGNORECASE):
        return f"Wants no {verbless[1]}"
    if negative := re.match(r"(?:do not|don'?t) (.*)", do, re.IGNORECASE):
        return f"Wants the assistant not to {negative[1]}"
    if re.match(r"(?:using|bullet|emoji|exclam)", do, re.IGNORECASE):
        return f"Wants {do}"
    return f"Wants the assistant to {do[0].lower()}{do[1:]}"
