"""What the grammar of a clause tells, whatever its verb: habits, experiences, decisions and plans."""

from __future__ import annotations

import re

from langchain_ctxbudget.core.rules.statement_clauses import Clause, Tense
from langchain_ctxbudget.core.rules.statement_patterns import DATE, MONTHS, POINTS, Category
from langchain_ctxbudget.core.rules.statement_slots import Statement
from langchain_ctxbudget.core.rules.statement_vocabulary import words
from langchain_ctxbudget.core.rules.statement_wording import leans, rendered

# Verbs of the mind and of the conversation: in no tense do they say what a person does.
_OF_THE_MOMENT = words(
    "agree apologise apologize appreciate ask assume be believe bet come confuse doubt expect feel figure find forget "
    "get guess hear hope imagine know like look love mean mind miss must need notice promise realise realize "
    "recommend remember reckon regret say see seem sound suggest suppose swear tell thank think try understand want "
    "wish wonder worry have am are is mention explain talk respect trust admire envy enjoy hate wait stand require "
    "deserve recall propose request foresee envision value cannot speak chat doesn don about together sort kind "
    "gotten refuse insist demand accept dare asked assumed believed came expected felt figured forgot forgotten found "
    "got guessed heard hoped imagined knew known liked looked meant mentioned missed needed noticed promised realised "
    "realized said saw seemed supposed talked thanked thought told tried wanted wished wondered worried explained had "
    "understood gave made waited spoke chatted recalled requested stated deserved required insisted asking assuming "
    "being coming expecting facing feeling guessing hearing hitting hoping looking needing running saying seeing "
    "struggling talking telling thinking trying waiting wanting wondering going losing wasting deciding managing "
    "standing loving"
)
# What people and programs do once. Said of "I" without how often, it is a step of a story.
_ONCE = words(
    "add approach attack build call cast change check clear click close compile copy debug define delete deploy draw "
    "drop enter execute fix go grab hit import insert install let lift load log nod open pass paste pick press print "
    "pull push put raise reach receive refresh reload remove replace restart return save scream send set shout show "
    "sigh sit smile start step stop take turn type update upload walk whisper give stare leave run kneel kiss hold "
    "bow choose lose win mess scroll jump move review rest use added changed checked clicked copied debugged deleted "
    "deployed fixed installed loaded opened pasted pressed printed pushed removed restarted sent showed tested typed "
    "updated uploaded"
)
_OFTEN = words(
    "always usually normally typically generally often sometimes rarely seldom hardly never mostly mainly regularly "
    "occasionally only primarily"
)
_UNIT = r"(?:day|night|week|weekend|month|year|morning|evening|season|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_HOW_OFTEN = re.compile(
    rf"\b(?:(?:every|each|once an?|twice an?|\w+ times an?|\w+ \w+ an?) (?:\w+ ){{0,2}}{_UNIT}s?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)days|an? (?:night|day|week|month|year)$|at night"
    r"|(?:on|in|at) (?:\w+ ){0,2}(?:weekends|weekdays|mornings|evenings|nights|afternoons|winters?|summers?"
    r"|autumns?))\b",
    re.IGNORECASE,
)
# A thing of the conversation or of the code at hand, or a past of hours.
_AT_HAND = re.compile(
    rf"(?!there (?:for|since)\b|it (?:in|on|with) (?-i:[A-Z])|(?:all|some|any|both|most) (?:(?:of|my|our"
    rf"|the) )*[a-z]{{3}}|all of it\b|everything\b){POINTS}"
    r"|.*\b(?:this (?:one|bug|error|file|code|way|thing)|like this|that one|errors?|exceptions?|bugs?|crash\w*"
    r"|traceback"
    r"|timeouts?|undefined|your|yesterday|today|tonight|this (?:morning|afternoon|evening)|last night|just now"
    r"|right now|at the moment|so far|an? (?:sec|second|minute|moment)|an? (?:great|good) team|(?:them|him|her|it|you"
    r"|one)$"
    r"|(?:a lot|so much|much|(?:new |many |interesting )+things)$"
    r"|together$|well together)\b",
    re.IGNORECASE,
)
_NOUN = re.compile(r"(?:the|my (?!own)|your|his|her|their|back|away|out|off|up|down|into|over|towards?|to|for you)\b")
_OF_ONES_DUTY = words(
    "do handle write teach manage organise organize lead edit paint sell grow maintain produce review translate"
)
_ONCE_UPON = re.compile(
    rf"\b(?:(?:years|months|decades) (?:ago|back|now)|as an? (?:child|kid|teenager|student|boy|girl|teen)|since"
    r"|at (?:school|university|college|uni|\w+teen|twenty)|in the (?:army|navy|\w+ties)|when (?:i|we) (?:was|were)"
    rf"|last (?:year|spring|summer|autumn|fall|winter|month|season|{MONTHS})|in (?:the )?{MONTHS}|(?:19|20)\d\d"
    r"|for (?:(?:about|over|almost|nearly|more than) )?[\w-]+ (?:years|months|decades)|(?:twice|\w+ times)$)\b"
    r"|^my (?:very )?first\b",
    re.IGNORECASE,
)
_BIOGRAPHY = words(
    "learned learnt trained studied graduated failed passed qualified inherited emigrated served retired survived "
    "competed apprenticed became"
)
_DECIDED = words(
    "abandoned adopted agreed cancelled canceled chose chosen decided ditched dropped hired opted picked postponed "
    "settled sold split standardised standardized stopped switched retrained converted enrolled"
)
"""What one decided counts, whatever it is about; what one did only if it is not "the ..." thing at hand."""
_DID = words(
    "acquired bought built closed expanded founded launched leased merged migrated moved opened outsourced published "
    "raised rebuilt rented replaced rewrote rewritten signed"
)
_ATTAINED = words("bought sold finished quit left moved learned learnt passed published")
_OF_A_LIFE = re.compile(
    r"(?:took|taken) up (?!too|space|time|the offer)|spent .*\b(?:years|months|childhood|youth|summers?|winters?)\b"
    r"|did (?:my|a|an) (?:\w+ ){0,2}(?:service|phd|training|apprenticeship|masters?|internship|residency|degree"
    r"|studies)"
    r"|(?:went|gone) (?:vegan|vegetarian|freelance|part-time|blind|deaf|with |for (?!an? )\w+ )|turned down (?:the|an?"
    r"|my) (?:\w+ )?(?:offer|job|role|promotion|invitation|place)|got rid of (?:my|our)|gave up \w"
    r"|moved (?:all |everything |my |our )+(?!files?|cursor|code)\w+ to|grew up|worked on .* for ",
    re.IGNORECASE,
)
_DECIDES = words(
    "build buy close expand hire hold launch merge migrate move offer open outsource postpone raise rebuild release "
    "rent replace rewrite sell ship stop switch"
)
_SOON = re.compile(
    rf"(?!.*\b(?:tomorrow|tonight|today)\b).*(?:{DATE}|\b(?:over|before|by|for|until) (?:the )?(?:easter|christmas"
    rf"|summer"
    r"|spring|winter|autumn|\w+ (?:weeks|months))\b)",
    re.IGNORECASE,
)
_AT_A_PLACE = re.compile(r"\b(?:in|at|with) [A-Z]")
_SO_LONG = re.compile(
    rf"(?<!it )(?<!this )(?<!that )\b(?:since (?:{MONTHS}|(?:19|20)\d\d|childhood|(?:i|we) (?:was|were)|last \w+"
    rf"|the \w+$|an? )"
    r"|for (?:(?:about|over|almost|nearly|more than) )?[\w-]+ (?:years|months|decades)|all my life|my whole life)\b",
    re.IGNORECASE,
)
_VERB = re.compile(r"[a-z]{2,}")


def by_grammar(clause: Clause) -> Statement | None:
    """What a clause says that lasts, judged by its tense and by how often, how long ago or when it is."""
    if clause.perfect and _SO_LONG.search(clause.rest) and not clause.negated:
        return _stated(clause, "identity")
    if clause.head in _OF_THE_MOMENT or not _VERB.fullmatch(clause.head) or _AT_HAND.match(clause.rest):
        return None
    category = _CATEGORY[clause.tense](clause) if clause.tense in _CATEGORY else None
    return _stated(clause, category) if category else None


def _stated(clause: Clause, category: Category) -> Statement | None:
    text = rendered(clause)
    return None if leans(text) else Statement(text=text, category=category)


def _habit(clause: Clause) -> Category | None:
    often = not _OFTEN.isdisjoint(clause.adverbs.split()) or bool(_HOW_OFTEN.search(clause.rest))
    if often and (clause.rest or clause.negated or "never" in clause.adverbs):
        return "preference"
    if clause.negated and clause.rest.startswith("any "):
        return "identity"
    if clause.head in {"keep", "manage"} and re.match(r"\w+ing\b|to ", clause.rest):
        return None
    if not clause.rest or (clause.head in _ONCE and not (clause.plural and _AT_A_PLACE.search(clause.rest))):
        return None
    if clause.plural:
        return "project"
    return None if _NOUN.match(clause.rest) and clause.head not in _OF_ONES_DUTY else "identity"


def _underway(clause: Clause) -> Category | None:
    if clause.head in {"getting", "having"} and not _SOON.match(clause.rest):
        return None
    if clause.head == "doing" and not re.match(r"(?:most|all|some|the|our|my|an?|every)\b", clause.rest):
        return None
    if clause.negated or clause.head.removesuffix("ing") in _ONCE:
        return None
    return "project" if clause.rest and (clause.plural or _SOON.match(clause.rest)) else None


def _happened(clause: Clause) -> Category | None:
    if clause.negated or not clause.rest:
        return None
    decided = clause.head in _DECIDED and not _OF_CODE.search(clause.rest)
    did = clause.plural and clause.head in _DID and (not clause.rest.startswith("the ") or _is_dated(clause))
    if decided or did:
        return "project"
    if "finally" in clause.adverbs.split() and clause.head in _ATTAINED:
        return "identity"
    if _OF_A_LIFE.match(clause.said):
        return "project" if clause.plural else "identity"
    if clause.perfect and ("never" in clause.adverbs.split() or re.match(r"(?:two|three|four|\d+) ", clause.rest)):
        return "identity"
    return "identity" if clause.head in _BIOGRAPHY or (clause.head not in _ONCE and _is_dated(clause)) else None


_OF_CODE = re.compile(
    r"\b(?:tables?|columns?|index|rows?|branch|files?|database|container|options? \w|another|different|other)\b",
    re.IGNORECASE,
)


def _is_dated(clause: Clause) -> bool:
    return bool(_ONCE_UPON.search(clause.rest))


def _planned(clause: Clause) -> Category | None:
    if clause.negated or clause.head in {"check", "send", "go", "update", "let"}:
        return None
    decides = clause.plural and clause.head in _DECIDES and not clause.rest.startswith("the ")
    return "project" if clause.rest and (decides or _SOON.match(clause.rest)) else None


_CATEGORY = {
    Tense.PRESENT: _habit,
    Tense.PROGRESSIVE: _underway,
    Tense.PAST: _happened,
    Tense.WILL: _planned,
}
