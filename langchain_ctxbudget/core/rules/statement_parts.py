"""The pieces of a message in which users may speak of themselves: no questions, quotations, code or inventions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from langchain_ctxbudget.core.prose import units
from langchain_ctxbudget.core.rules.statement_vocabulary import words
from langchain_ctxbudget.core.rules.statement_voices import own_voice, without_quotations
from langchain_ctxbudget.core.text import sentences

_REPORTS = re.compile(
    r"\b(?:said|says|saying|told|tells|(?:wrote|writes)(?= ?[:,\u2039]| that\b)|asked|asks|replied|claims?|claimed"
    r"|goes(?=[:,])|was like|were like|be like"
    r"|insists?|thinks|thought|believes|wonder(?:s|ed|ing)?|wish|dream(?:ed|t) that|according to|joked)\b",
    re.IGNORECASE,
)
_SARCASM = re.compile(
    r"(?:^|\s)/s\b|\byeah,? right\b|^oh,? (?:great|sure|yes|joy|how)\b|\b(?:i|we) just (?:love|adore)\b"
    r"|\b(?:of course|sure|clearly|obviously|totally),? (?:i|we) (?:just |absolutely |totally )?(?:love|enjoy)\b"
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
_SMILEY = re.compile(r"(?:\s|^)(?:[:;]-?[()DPp](?!\w)|<3|[\U0001F300-\U0001FAFF\u2600-\u27BF\uFE0F]+)")
_EMPHASIS = re.compile(r"\*{1,3}([^*\n]{1,80})\*{1,3}")
MAX_ASIDE, LAST_WORD = 80, 20
_ASIDE_ENDS = words(
    "helps matters relevant anything difference important useful way btw fyi know so context record lol haha hahaha "
    "tbh imo imho honest think guess believe suppose afraid not thanks you thx please say mind this that it actually "
    "though too well obviously unfortunately sadly luckily ok okay right all either"
)
# Without any of these words in a sentence, the pattern of that name finds nothing.
_ASKED_WORDS = words("remember record forget mind note")
_HEDGED_WORDS = words("maybe perhaps probably possibly might likely tentatively think guess believe suppose sure")
_REPORTING = words(
    "said says saying told tells wrote writes asked asks replied claim claims claimed goes like insist insists thinks "
    "thought believes wonder wonders wondered wondering wish dreamed dreamt according joked"
)
_SUPPOSING = words("if unless whether would wouldn though were had")
_SARCASM_PARTS = ("/s", "yeah", "oh", "just ", "love", "loving", "enjoy", "sarcas", "jk", "lol", "🙄")
_WORD = re.compile("[a-z]+")
_HINTS = words(
    "i im ive my we our me us let call always never don dont no avoid stop only please future now emojis deadline "
    "launch release wedding due exam kickoff conference demo renovation surgery called named birthday favourite "
    "favorite vegan vegetarian allergic married based living working building learning originally moved grew adopted "
    "got left used love prefer hate as keep answers replies use call going default whenever wants expects requires "
    "needs starts begins answer"
)
# Whoever writes "ok cool We want ..." begins a sentence there.
_RUN_ON = re.compile(
    r"(?<=[a-z]) (?=(?:We|We'\w+|My|Our|In|On|At|For|After|Because|The|Please|Could you|Can you|Would you|What|How"
    r"|Why)\s[a-z])"
    r"|(?<=lol|aha) (?=I\b)|\s*\n\s*"
)
LEAD_IN = re.compile(
    r"(?:(?:btw|by the way|also|oh|ah|and|but|so|well|ok(?:ay)?|yes|yeah|yep|(?:no|nope|nah)(?=[,.!])"
    r"|hi(?: there)?|hello(?: there)?|yo|hm+|wow|cool|nice|right|sure|fair enough|perfect|awesome|alright|got it"
    r"|good to know"
    r"|makes sense|sounds (?:good|great|yummy|fine|nice|fun|interesting)|lol|ha(?:ha)+|ugh|one last thing|last thing"
    r"|hey"
    r"(?: there)?|thanks|thank you|great|good (?:morning|evening|afternoon)|sorry|actually|honestly|personally|anyway"
    r"|in fact|to be (?:honest|fair|clear|precise)|tbh|fyi|ps|p\.s\.?|nb"
    r"|[^:]{0,40}\b(?:about me|about myself|background|context|facts?|things?|updates?|news|introduction|profile"
    r"|my situation|details?|info)(?=:)|just so you know|for (?:your information"
    r"|the record|context|reference|background|now|what it'?s worth|me|us)|about me|some (?:context|background)"
    r"|a (?:bit|little) (?:about me|of (?:context|background))|(?:quick |small |minor )?(?:context|background|intro"
    r"|update"
    r"|note|reminder|correction|heads[- ]up|fun fact|decision|final decision|edit)(?=\s*[:,.!-])"
    r"|(?:please )?(?:remember"
    r"|note|keep in mind|bear in mind|don'?t forget|be aware|know)(?: that)?|one (?:more )?thing|another thing|plus"
    r"|additionally|besides|moreover|furthermore|basically|as (?:i|we) (?:said|mentioned)(?: before| earlier)?"
    r"|as (?:always|usual)|as for me|in my (?:case|free time|spare time)|in general|generally|usually|normally"
    r"|typically"
    r"|these days|nowadays|lately|recently|currently|now|right now|at the moment|at present|today|since then"
    r"|these past \w+"
    r"|at (?:home|work)|outside (?:of )?work|that'?s why|which is why|afterwards|later|soon|after (?:that|this)"
    r"|unfortunately|sadly|luckily|fortunately|finally|still|then|(?:because|cause|cuz|since|as)(?=,? (?:i|we|my|our"
    r"|im)\b)|given(?: that)?|though"
    r"|although|even though|while|turns out|it turns out|good news|bad news|great news|big news|guess what"
    r"|(?:i|we) (?:should|forgot to|must|wanted to|want to|might|have to) (?:also )?(?:mention|(?:add|note)(?= that"
    r"|[,:]| i\b| my\b)|say|tell you|admit"
    r"|point out)(?: that)?|(?:i|we) (?:am|are) asking|the (?:thing|reason|point|truth) is(?: that)?|all in all|overall"
    r"|(?:i am )?(?:glad|happy) to be here|nice to meet you|you should know(?: that)?|just|first|second|both)"
    r"(?:\s*[,:;!.]+\s*|\s+-+\s+|\s*[\u2013\u2014]\s*|\s+))",
    re.IGNORECASE,
)
_AT_ONCE = re.compile(
    r"(?:my|our|(?:i|we) (?!should|forgot|must|want|might|have to|think|guess|believe|suppose|feel|assume"
    r"|am (?:asking|not|glad|happy)"
    r"|are asking))\b",
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
    rf"|,\s*(?=(?:also |now |then |currently )?{_SUBJECT})|,?\s+(?:so|and|but)\s+(?=please\b)|,\s*(?=please\b)"
    r"|(?:,\s*|\s+so\s+)(?:it|he|she|they|that)(?:'s|'re| is| are| has| was)\b.*"
    r"|,?\s+(?:and|but)\s+(?:now |then )?(?:he|she|they|it)(?:'s|'re)?\s\w.*"
    rf"|,\s*(?:so|which|who|hence|thus|therefore)\b.*|\s+so\s+(?=(?:please|can|could|what|how|that|you|it|don'?t)\b).*"
    rf"|,\s*(?:and|but|so|please|can|could|would|do|does|is|are|should|what|which|how|where|who|when|why|any|give"
    rf"|tell|show"
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


# "In winter I repair radios": what comes first is told last.
_FRONT = re.compile(
    r"(?P<front>(?:(?:in|on|at|for|after|before|during|since|because of|due to|thanks to|with|from|until"
    r"|over|as(?= an? )|by(?= (?:training|day|night|profession|trade|birth)\b))\s"
    r"(?:(?!(?:i|we)\b)[\w'\u2019.-]+\s){0,5}?(?!(?:i|we)\b)[\w'.-]+"
    r"|(?:next|last|this|every)(?: (?:year|month|week|spring|summer|autumn|fall|winter|\w+day|time))|next)),?\s+"
    r"(?P<clause>(?:i|we)\s(?:am |are )?(?!am |are |said |told ).+)",
    re.IGNORECASE,
)
_IDLE_FRONT = re.compile(
    r"\b(?:that|these|it|you|your|example|instance|present|me|us|reason|case|fact|opinion|moment|end|hand|record"
    r"|first|least|once|point"
    r"|course|mind|hope|now|general|this (?!year|month|week|spring|summer|autumn|fall|winter))\b",
    re.IGNORECASE,
)
# "a dashboard that I'm building for my bees"
_MADE_BY = re.compile(
    r"\b(?P<what>(?:an?|my|our|the|some) (?:[\w-]+ ){1,5}?)(?:that |which )?(?P<who>i am|we are) (?:currently |now )?"
    r"(?P<verb>building|writing|making|developing|designing|planning|organi[sz]ing|working on|learning|restoring"
    r"|running)\b"
    r"(?P<rest>.*)",
    re.IGNORECASE,
)


# "sounds great I live in Rome"
_BREATH = re.compile(
    r"\b(today|now|again|too|please|thanks|help|done|it|yet|already|anyway|here|tonight|yesterday|well|boring|great"
    r"|good|nice"
    r"|cool|ok|okay|right|wrong|fine|funny|lost|stuck|works|sure|perfect|weird|annoying|tired|lol|haha) (?=I\b)"
)
_SUBORDINATE = words("if unless suppose wish because when told said says thinks")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a sentence that may be a statement."""

    text: str
    hedged: bool
    asked: bool
    """Whether the user asks for it to be remembered."""


def parts(text: str) -> Iterator[Part]:
    """The pieces of a message in the user's own voice: no questions, quotations, code, hypotheses or invention."""
    for unit in units(own_voice(text)):
        if not unit.startswith("["):
            plain = unit.isascii() and not any(mark in unit for mark in ":;<")
            for sentence in sentences(unit if plain else _SMILEY.sub("\n", unit)):
                spoken = _WORD.findall(sentence.lower())
                if not _HINTS.isdisjoint(spoken):
                    whole = _BREATH.sub(r"\1\n", sentence) if _SUBORDINATE.isdisjoint(spoken) else sentence
                    for piece in _RUN_ON.split(whole):
                        yield from _of_sentence(piece.strip())


def _has_any(text: str, some: tuple[str, ...]) -> bool:
    """Whether a text has a part of what a pattern looks for: seen ten times as fast as the pattern."""
    lowered = text.lower()
    return any(part in lowered for part in some)


def _of_sentence(sentence: str) -> Iterator[Part]:
    if _has_any(sentence, _SARCASM_PARTS) and _SARCASM.search(sentence):
        return
    sentence = without_quotations(sentence)
    if sentence.rstrip("\"')* ").endswith("?"):
        asks = _ASKS.search(sentence)
        if not asks:
            return
        sentence = sentence[: asks.start()]
    spoken = frozenset(_WORD.findall(sentence.lower()))
    asked = not _ASKED_WORDS.isdisjoint(spoken) and bool(_ASKED.search(sentence))
    hedged = not _HEDGED_WORDS.isdisjoint(spoken) and bool(_HEDGED.search(sentence))
    reports, supposes = not _REPORTING.isdisjoint(spoken), not _SUPPOSING.isdisjoint(spoken)
    body = _AS_A.sub(r"I am \1; ", without_lead(_without_asides(_EMPHASIS.sub(r"\1", sentence))))
    if re.match(r"(?:if|unless|when|once|whenever|should)\b", body, re.IGNORECASE) and _IF.match(body):
        return
    for piece in _BOUNDARY.split(expanded(body)):
        one = piece.strip(" ,.!*_-()")
        if reports and _REPORTS.search(one):
            return
        if one and not (supposes and _IF.search(one)):
            yield from (Part(each, hedged, asked) for each in _one_by_one(one))


def _without_asides(sentence: str) -> str:
    """A sentence without what it only says by the way at its end."""
    body = sentence
    for _ in range(2):
        last = _WORD.findall(body[-LAST_WORD:].lower())[-1:]
        if _ASIDE_ENDS.isdisjoint(last) and "in case " not in body:
            break
        begin = max(0, len(body) - MAX_ASIDE)
        body = body[:begin] + _ASIDE.sub("", body[begin:]).strip()
    return body


def _one_by_one(piece: str) -> Iterator[str]:
    """What "I" does, verb by verb."""
    body = _in_order(without_lead(_in_order(piece)))
    subject = re.match(r"(?:i|we)\b", body, re.IGNORECASE)
    begin = 0
    for cut in _SAME_SUBJECT.finditer(body) if subject else ():
        if cut.start() > 1 and not _GOVERNED.search(body[begin : cut.start()]):
            yield f"{subject[0]} {body[begin : cut.start()]}" if begin and subject else body[: cut.start()]
            begin = cut.end()
    yield f"{subject[0]} {body[begin:]}" if begin and subject else body


def _in_order(body: str) -> str:
    """A piece with its subject in front."""
    if _AT_ONCE.match(body):
        return body
    if front := _FRONT.fullmatch(body):
        idle = _IDLE_FRONT.search(front["front"])
        return front["clause"] if idle else f"{front['clause']} {front['front'][0].lower()}{front['front'][1:]}"
    if (made := _MADE_BY.search(body)) and made.start():
        return f"{made['who']} {made['verb']} {made['what'].strip()}{made['rest']}"
    return body


def without_lead(text: str) -> str:
    """A piece without the words that only lead to what it says."""
    if _AT_ONCE.match(text):
        return text
    for _ in range(6):
        lead = HEDGE.match(text) or LEAD_IN.match(text)
        if not lead:
            break
        text = text[lead.end() :]
    return text


_CONTRACTIONS = re.compile(
    r"\b(?:(i|we)'(m|re|ve|d|ll)|(im|ive)"
    r"|((?:do|does|did|is|are|was|were|have|has|had|could|would|should)(?:n't|nt))"
    r"|(can'?t|cannot|won'?t)|(gonna|wanna|must(?! not| have))"
    r"|(my|our) (\w+)'s(?= (?:a|an|the|called|named|in|on|from|due|allergic|not)\b))\b"
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
        return {"gonna": "going to", "wanna": "want to"}.get(lowered, "have to")
    return whole[:-2] + " is"
