"""The pieces of a message in which users may speak of themselves: no questions, quotations, code or inventions."""

# ruff: noqa: E501 - a pattern stands on one line
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from langchain_ctxbudget.core.prose import units
from langchain_ctxbudget.core.statement_vocabulary import words
from langchain_ctxbudget.core.text import sentences

MAX_NAME_WORDS = 4
_APOSTROPHES = str.maketrans("\u2018\u2019\u02bc\u00b4`\u201c\u201d", "'''''\"\"")
# From here on a message speaks in another voice: a role, an invention, a text to work on.
_OTHER_VOICE = re.compile(
    r"\b(?:pretend(?:ing)?|imagine|in (?:this|the|my) (?:story|dream|game|novel|scenario|role|campaign),? i|(?:summari[sz]e|translate|proofread|rephrase|rewrite|paraphrase|correct|shorten|analy[sz]e|edit|improve|polish|classify) (?:the following|this (?:\w+ )?(?:review|text|paragraph|email|letter|message|article|post|story|sentence|essay|bio|transcript|draft|passage|comment|one))|the following (?:text|paragraph|email|review|letter|message|story)|suppos(?:e|ing) (?:that )?(?:i|we|you|my)\b|assum(?:e|ing) (?:that )?(?:i|we|my)\b"
    r"|role-?play|act as|hypothetical(?:ly)?|let'?s say|say i'm|you are now|in the voice of|from the perspective of"
    r"|(?:start|beginning|opening|first (?:line|page|chapter|paragraph|verse)) of (?:my|the|a) \w+"
    r"|in (?:the )?first person|as if i)\b",
    re.IGNORECASE,
)
_OTHER_VOICE_PARTS = (
    *(
        "pretend",
        "imagin",
        "suppos",
        "assum",
        "role",
        "act as",
        "hypothe",
        "let's say",
        "lets say",
        "say i'm",
        "are now",
    ),
    *("in the voice", "perspective", "first", "as if i", "start of", "beginning of", "opening of", "story", "dream"),
    *(
        "game",
        "novel",
        "scenario",
        "campaign",
        "following",
        "summari",
        "translat",
        "proof",
        "phras",
        "rewrit",
        "correct",
    ),
    *("shorten", "analy", "edit", "improv", "polish", "classif"),
)
_OTHER_TEXT = re.compile(
    r"\b(?:translate|proof-?read|rewrite|rephrase|reword|paraphrase|summari[sz]e|edit|correct|improve|reply|respond"
    r"|analy[sz]e|explain|continue|complete|finish|classify|review|shorten|polish|write|compose|draft|grammar|lyrics"
    r"|story|poem|song|novel|dialogue|monologue|scene|sentences?|text|paragraph|e-?mail|letter|message|essay|prompt|says"
    r"|bio|post|tweet|caption|transcript|quote|reads?|example|character|persona|user story|test (?:data|case|input))\b"
    r"[^\n.:?!]{0,80}:|^(?:dear|to whom)\b[^\n]{0,60},\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_QUOTED = re.compile(r"\"[^\"\n]{0,400}(?:\"|$)|(?<![\w'])'[^'\n]{0,200}'(?!\w)|\u00ab[^\u00bb]{0,400}\u00bb")
_REPORTS = re.compile(
    r"\b(?:said|says|saying|told|tells|wrote|writes|asked|asks|replied|claims?|claimed|goes|was like|were like|be like"
    r"|insists?|thinks|thought|believes|wonder(?:s|ed|ing)?|wish|dream(?:ed|t) that|according to|joked)\b",
    re.IGNORECASE,
)
_SARCASM = re.compile(
    r"(?:^|\s)/s\b|\byeah,? right\b|^oh,? (?:great|sure|yes|joy|how)\b|\b(?:i|we) just (?:love|adore)\b"
    r"|\b(?:of course|sure|clearly|obviously|totally|because),? (?:i|we) (?:just |absolutely |totally )?(?:love|enjoy)\b"
    r"|\b(?:love|loving|enjoy)s? (?:it )?(?:when|how)\b(?! you)|🙄|\bjust kidding\b|\bjk\b|\blol not\b|\bsarcas",
    re.IGNORECASE,
)
_IF = re.compile(r"\b(?:if|unless|whether|would(?:n't| not)? have|as though|were (?:i|we) to|had i)\b", re.IGNORECASE)
_ASIDE = re.compile(
    r",? *\b(?:if (?:that|it|this)(?: all)?(?: (?:helps|matters|is relevant|makes a difference|changes anything)|'s"
    r" (?:relevant|important|useful))|by the way|btw|fyi|just so you know|just fyi|for context|for the record"
    r"|in case (?:that|it|you)[\w' ]{0,30}|lol|haha+|tbh|imo|imho|to be honest|i (?:think|guess|believe|suppose)"
    r"|as you (?:may |might )?know|i'm afraid|believe it or not|thanks|thank you|thx|please|you know|i must say"
    r"|(?:and|so) (?:please )?(?:keep|bear) (?:that|this|it) in mind|so (?:please )?remember (?:that|it|this)"
    r"|actually|though|too|as well|obviously|unfortunately|sadly|luckily|ok(?:ay)?|right|after all)"
    r"[.!, ]*$",
    re.IGNORECASE,
)
_SMILEY = re.compile(r"(?:\s|^)(?:[:;]-?[()DPp]|<3|[\U0001F300-\U0001FAFF\u2600-\u27BF\uFE0F]+)")
MAX_ASIDE, LAST_WORD = 80, 20
_ASIDE_ENDS = words(
    "helps matters relevant anything difference important useful way btw fyi know so context record lol haha hahaha tbh imo "
    "imho honest think guess believe suppose afraid not thanks you thx please say mind this that it actually though too well "
    "obviously unfortunately sadly luckily ok okay right all"
)
_SARCASM_PARTS = ("/s", "yeah", "oh", "just ", "love", "loving", "enjoy", "sarcas", "jk", "lol", "🙄")
_WORD = re.compile("[a-z]+")
_HINTS = words(
    "i im ive my we our me us let call always never don dont no avoid stop only please future now emojis "
    "deadline launch release wedding due exam kickoff conference demo renovation surgery called named "
    "birthday favourite favorite vegan vegetarian allergic married working based living building learning "
    "originally moved grew adopted got used love prefer hate as keep answers replies use call going default "
    "whenever"
)
LEAD_IN = re.compile(
    r"(?:(?:btw|by the way|also|oh|ah|and|but|so|well|ok(?:ay)?|yes|yeah|yep|(?:no|nope|nah)(?=[,.!])|hi(?: there)?|hello(?: there)?|hey"
    r"(?: there)?|thanks|thank you|great|good (?:morning|evening|afternoon)|sorry|actually|honestly|personally|anyway"
    r"|in fact|to be (?:honest|fair|clear|precise)|tbh|fyi|ps|p\.s\.?|nb|[^:]{0,40}\b(?:about me|about myself|background|context|facts?|things?|updates?|news|introduction|profile|my situation|details?|info)(?=:)|just so you know|for (?:your information"
    r"|the record|context|reference|background|now|what it'?s worth|me|us)|about me|some (?:context|background)"
    r"|a (?:bit|little) (?:about me|of (?:context|background))|(?:quick |small |minor )?(?:context|background|intro|update"
    r"|note|reminder|correction|heads[- ]up|fun fact|decision|final decision|edit)(?=\s*[:,.!-])|(?:please )?(?:remember"
    r"|note|keep in mind|bear in mind|don'?t forget|be aware|know)(?: that)?|one (?:more )?thing|another thing|plus"
    r"|additionally|besides|moreover|furthermore|basically|as (?:i|we) (?:said|mentioned)(?: before| earlier)?"
    r"|as (?:always|usual)|as for me|in my (?:case|free time|spare time)|in general|generally|usually|normally|typically"
    r"|these days|nowadays|lately|recently|currently|now|right now|at the moment|at present|today|this year|last"
    r" (?:year|month|week|summer|winter|spring|autumn|fall)|next (?:year|month|week)|since then|these past \w+"
    r"|on (?:weekends|weekdays|\w+days)|at (?:home|work)|outside (?:of )?work|(?:in|since) (?:\w+ )?(?:19|20)\d\d"
    r"|unfortunately|sadly|luckily|fortunately|finally|still|then|because|cause|cuz|since|as|given(?: that)?|though"
    r"|although|even though|while|turns out|it turns out|good news|bad news|great news|big news|guess what"
    r"|(?:i|we) (?:should|forgot to|must|wanted to|want to|might|have to) (?:also )?(?:mention|add|say|note|tell you|admit"
    r"|point out)(?: that)?|(?:i|we) (?:am|are) asking|the (?:thing|reason|point|truth) is(?: that)?|all in all|overall"
    r"|(?:i am )?(?:glad|happy) to be here|nice to meet you|you should know(?: that)?|just|first|second|both)"
    r"(?:\s*[,:;!.]+\s*|\s+-+\s+|\s*[\u2013\u2014]\s*|\s+))",
    re.IGNORECASE,
)
HEDGE = re.compile(
    r"(?:(?:i|we) (?:think|guess|believe|suppose|feel like|assume)(?: that)?|maybe|perhaps|probably|possibly"
    r"|not (?:100% )?sure,? but|i am not sure,? but)[, ]+",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"\b(?:maybe|perhaps|probably|possibly|might|likely|tentatively|i (?:think|guess|believe|suppose)|not sure)\b",
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"\b(?:remember|for the record|don'?t forget|keep in mind|bear in mind|note) ?(?:that|this|:|,)|\bfor"
    r" the record\b|^remember\b|\bplease (?:note|remember)\b",
    re.IGNORECASE,
)
_SUBJECT = r"(?:i|im|i'm|ive|i've|we|we're|we've|my|our)\b"
_VERBS = (
    "live|work|study|love|like|hate|prefer|enjoy|have|own|teach|speak|play|run|use|drink|eat|cook|drive|manage|lead|"
    "am|do not|don't|can't|cannot|avoid|moved|started|grew up|was born|used to|need|want|plan|volunteer|commute|write"
    "|collect|build|went|joined|quit|studied|worked|lived|never|usually|always|mostly|currently|now|recently|also"
)
# Where one clause ends and the next begins.
_BOUNDARY = re.compile(
    rf"\s*(?:;|\s[-\u2013]+\s|\u2014|\.\.+|\u2026)\s*"
    rf"|,?\s+(?:and|but|so|because|cause|cuz|since|although|though|while|whereas|plus|yet|as)\s+"
    rf"(?=(?:also |now |then |that |currently )?{_SUBJECT})"
    rf"|,\s*(?=(?:also |now |currently )?{_SUBJECT})"
    r"|(?:,\s*|\s+so\s+)(?:it|he|she|they|that)(?:'s|'re| is| are| has| was)\b.*"
    rf"|,\s*(?:so|which|who|hence|thus|therefore)\b.*|\s+so\s+(?=(?:please|can|could|what|how|that|you|it|don'?t)\b).*"
    rf"|,\s*(?:and|but|so|please|can|could|would|do|does|is|are|should|what|which|how|where|who|when|why|any|give|tell|show"
    rf"|suggest|recommend|help|make|write|find|let|explain)\s(?!.*,?\s(?:and|but) {_SUBJECT}).*",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:[,;.:]|\s-+|\s?[\u2013\u2014])\s*(?:so|and|but|then|any idea|also)?,?\s*"
    r"(?=(?:what|which|how|where|who|when|why|can|could|would|do|does|did|is|are|should|will|shall|any|may|got|have you"
    r"|thoughts|am i)\b)"
    r"|\s(?:so|and|but)\s+(?=(?:what|which|how|where|who|when|why|can|could|would|do|does|is|are|should|will|any)\b)",
    re.IGNORECASE,
)
# "I live in Leeds and work at Acme": the second verb has the first one's subject.
_SAME_SUBJECT = re.compile(
    rf"(?<!\blive)(?<!\bwork)(?<!\blove)(?<!\bstudy),?\s+(?:and|but)\s+(?=(?:{_VERBS})\s)|,\s*(?=(?:{_VERBS})\s)",
    re.IGNORECASE,
)
_GOVERNED = re.compile(
    r"\b(?:to [a-z]|will|would|can|could|might|should|that|who|which|when|not|never|like|love|hate|enjoy|been)\b"
)
# "As a vegetarian, I ..."
_AS_A = re.compile(r"^as (an? [\w -]{2,40}?),? (?=(?:i|i'm|i've|we|my)\b)|^as (an? [\w -]{2,40})$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a sentence that may be a statement."""

    text: str
    hedged: bool
    asked: bool
    """Whether the user asks for it to be remembered."""


def parts(text: str) -> Iterator[Part]:
    """The pieces of a message in the user's own voice: no questions, quotations, code, hypotheses or invention."""
    own = _QUOTED_LINE.sub("", text.translate(_APOSTROPHES) if "```" not in text else _without_ticks(text))
    own = _in_own_voice(own)
    for unit in units(own):
        if not unit.startswith("["):
            for sentence in sentences(unit):
                yield from _of_sentence(sentence)


def _in_own_voice(text: str) -> str:
    """A message up to where it begins to speak in another voice."""
    others = [_OTHER_VOICE.search(text) if _has_any(text, _OTHER_VOICE_PARTS) else None]
    others.append(_OTHER_TEXT.search(text) if ":" in text or "dear" in text.lower() else None)
    for begin in sorted(other.start() for other in others if other):
        return text[: text.rfind("\n", 0, begin) + 1] + _before(text, begin)
    return text


def _has_any(text: str, some: tuple[str, ...]) -> bool:
    """Whether a text has a part of what a pattern looks for: seen ten times as fast as the pattern."""
    lowered = text.lower()
    return any(part in lowered for part in some)


def _without_ticks(text: str) -> str:
    """A text with code blocks: their marks stay."""
    return text.translate({**_APOSTROPHES, ord("`"): "`"})


def _before(text: str, end: int) -> str:
    """The whole sentences of a line that stand before a place in it."""
    line = text[text.rfind("\n", 0, end) + 1 : end]
    last = max(line.rfind(mark) for mark in (". ", "! ", "? "))
    return line[: last + 1]


def _of_sentence(sentence: str) -> Iterator[Part]:
    if _HINTS.isdisjoint(_WORD.findall(sentence.lower())):
        return
    if _has_any(sentence, _SARCASM_PARTS) and _SARCASM.search(sentence):
        return
    sentence = _QUOTED.sub(_short_quote, sentence)
    if sentence.rstrip("\"')* ").endswith("?"):
        asks = _ASKS.search(sentence)
        if not asks:
            return
        sentence = sentence[: asks.start()]
    asked, hedged = bool(_ASKED.search(sentence)), bool(_HEDGED.search(sentence))
    body = _AS_A.sub(r"I am \1; ", _without_asides(sentence))
    if re.match(r"(?:if|unless|when|once|whenever|should)\b", body, re.IGNORECASE) and _IF.match(body):
        return
    for piece in _BOUNDARY.split(expanded(body)):
        one = piece.strip(" ,.!*_-()")
        if _REPORTS.search(one):
            return
        if one and not _IF.search(one):
            yield from (Part(each, hedged, asked) for each in _one_by_one(one))


def _without_asides(sentence: str) -> str:
    """A sentence without what it only says by the way at its end, and without smileys."""
    body = _SMILEY.sub("", sentence)
    for _ in range(2):
        last = _WORD.findall(body[-LAST_WORD:].lower())[-1:]
        if _ASIDE_ENDS.isdisjoint(last) and "in case " not in body:
            break
        begin = max(0, len(body) - MAX_ASIDE)
        body = body[:begin] + _ASIDE.sub("", body[begin:]).strip()
    return body


def _one_by_one(piece: str) -> Iterator[str]:
    """What "I" does, verb by verb."""
    body = without_lead(piece)
    subject = re.match(r"(?:i|we)\b", body, re.IGNORECASE)
    begin = 0
    for cut in _SAME_SUBJECT.finditer(body) if subject else ():
        if cut.start() > 1 and not _GOVERNED.search(body[begin : cut.start()]):
            yield f"{subject[0]} {body[begin : cut.start()]}" if begin and subject else body[: cut.start()]
            begin = cut.end()
    yield f"{subject[0]} {body[begin:]}" if begin and subject else body


def without_lead(text: str) -> str:
    """A piece without the words that only lead to what it says."""
    for _ in range(6):
        lead = HEDGE.match(text) or LEAD_IN.match(text)
        if not lead:
            break
        text = text[lead.end() :]
    return text


def _short_quote(found: re.Match[str]) -> str:
    """A quoted name stays; anything longer, or with a subject of its own, is somebody's words."""
    inner = found[0].strip("\"'\u00ab\u00bb ")
    return (
        inner
        if len(inner.split()) <= MAX_NAME_WORDS and not re.search(r"\b(?:i|i'm|my|we|me)\b", inner, re.IGNORECASE)
        else "\u2039quote\u203a"
    )


_CONTRACTIONS = re.compile(
    r"\b(?:(i|we)'(m|re|ve|d|ll)|(im|ive)|((?:do|does|did|is|are|was|were|have|has|had|could|would|should)(?:n't|nt))"
    r"|(can'?t|cannot|won'?t)|(gonna|wanna)|(my|our) (\w+)'s(?= (?:a|an|the|called|named|in|on|from|due|allergic|not)\b))\b"
    r"|\b(name|birthday|favou?rite \w+)'s\b",
    re.IGNORECASE,
)
_LONG = {"m": "am", "re": "are", "ve": "have", "d": "would", "ll": "will"}


def expanded(text: str) -> str:
    """A text with its contractions written out."""
    return _CONTRACTIONS.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    whole = found[0]
    lowered = whole.lower()
    if found[1]:
        return f"{found[1]} {_LONG[found[2].lower()]}"
    if found[3]:
        return "I am" if lowered == "im" else "I have"
    if found[4]:
        return lowered.removesuffix("nt").removesuffix("n't") + " not"
    if found[5]:
        return "will not" if lowered.startswith("w") else "can not"
    if found[6]:
        return "going to" if lowered == "gonna" else "want to"
    return whole[:-2] + " is"
