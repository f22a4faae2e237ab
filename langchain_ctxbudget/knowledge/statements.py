"""What users say outright of themselves, by rules for plain English: first-person statements and lasting wishes.

Precision comes first, because a wrong line about a user costs more than many right ones earn. What is asked, supposed,
quoted, retold or played as a role says nothing, and neither does a sentence that no rule knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from langchain_ctxbudget.knowledge.records import FactCategory
from langchain_ctxbudget.messages import fold, sentences, terms

MOST_STATED = 140
"""The longest statement that is learned, in characters."""
STATED, ASKED_FOR = 0.9, 0.95
"""Confidence in a plain statement, and in what the user asks the assistant to do from now on."""
MOST_LIKED_WORDS = 3
"""What is liked is a slot of its own up to so many words."""


TASK = re.compile(
    r"(?:please |now |ok(?:ay)?,? |(?:can|could|would|will) you (?:please )?|let['\u2019]?s |help me )*(?:imagine"
    r"|pretend|suppose|assume|play|act|role-?play|translate|proofread|rewrite|rephrase|correct|edit|improve"
    r"|summari[sz]e|paraphrase|polish|fix|say|write|draft|compose|complete|continue|repeat|generate|create|here is"
    r"|you are (?:the|an?)"
    r"|(?:the |my )?(?:lyrics|story|poem|example|text|email|message|letter)\b.{0,20}:)(?!\w)",
    re.IGNORECASE,
)
"""The beginning of a text or a role: everything from here on is not about the user."""
UNSURE = re.compile(
    r"[\"\u201c\u201d\u00ab\u00bb]|:\s|\b(?:if|unless|whether|imagine|suppose|pretend|wish|would|could|should|might|(?-i:may)"
    r"|maybe|perhaps|probably|joking|kidding|said|says?|saying|told|tells?|wrote|writes|asked|asks|replied|thinks?"
    r"|guess|assuming"
    r"|narrator|lyrics|for example|e\.g|as though|yeah right|oh great|oh sure)\b",
    re.IGNORECASE,
)
"""What makes a sentence a quotation, a condition or a guess."""
LEANING = re.compile(
    r"\b(?:you|yours?|this|that|these|those|it|them|him|her|here|there|above|below|following|ones?|such|so|itself|bit"
    r"|lot"
    r"|few|mess|something|stuff|things?|moment|minute)\b",
    re.IGNORECASE,
)
"""What a statement cannot be understood with, out of its place, and what says too little."""
_OPENING = re.compile(
    r"(?:(?:hi+|hello|hey|yo|good (?:morning|day|evening)|thanks|thank you)\b(?: (?!i\b|we\b|my\b)\w+)?|(?:well|so|oh"
    r"|ah|yes|yeah|ok(?:ay)?|wow|haha|btw|by the way|fyi|actually|also|and|but|because|since|though|anyway|"
    r"honestly|personally|to be honest|in real life)\b)[,!.]? +",
    re.IGNORECASE,
)
_CLOSING = re.compile(r"(?:,? (?:too|either|though|btw|lol|haha|as well|again|anyway|then))+$", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"(?:,(?!\d)|[;(])\s*(?:(?:and|but|so|or) )?|\s[-\u2013\u2014]+\s|\u2014"
    r"|\s(?:and|but|so|because|since|though|although|while|when|where)"
    r"\s+(?=(?:i|we|my|our|it|he|she|they|that|there|the)\b)",
    re.IGNORECASE,
)
_WRITTEN_OUT = (
    (r"\u2019", "'"), (r"\bi'?m\b", "I am"), (r"\bwe're\b", "we are"), (r"\b(i|we)'?ve\b", r"\1 have"),
    (r"\bcan'?t\b", "cannot"), (r"\bdon'?t\b", "do not"), (r"\b(i|we)'(d|ll)\b", r"\1 would"),
    (r"\bname's\b", "name is"), (r"\baren't\b", "are not"), (r"\b(i|we) have got\b", r"\1 have"),
)  # fmt: skip
_CLAUSE = re.compile(
    r"(?:i|we) (?P<aux>am not|are not|am|are|do not|cannot|have been"
    r"|have(?! (?:an?|no|one|two|three|four|five|six|twin|\d+) )|used to|was|no longer)? ?"
    r"(?P<how>(?:(?:really|also|just|currently|now|usually|always|never|still|originally|recently|often|mostly) )*)"
    r"(?P<verb>[\w-]+)(?: (?P<rest>.+))?",
    re.IGNORECASE,
)
_OWNED = (
    r"(?:an?|one|two|three|four|five|six|\d+|twin) (?:[\w-]+ ){0,3}(?:sons?|daughters?|kids?|child(?:ren)?|brothers?"
    r"|sisters?|siblings?|twins|dogs?|cats?|pupp(?:y|ies)|kittens?|horses?|rabbits?|allerg(?:y|ies)|degree|phd"
    r"|diabetes)\b"
)
_ROLE = (
    r"(?:[\w'-]+ ){0,3}(?!number|matter|disaster|monster|loser|sucker|winner|(?:n?ever|after|over|under|other"
    r"|better)\b)(?:\w{2,}(?:er|or|ist|yst|ian|eer|ant)|nurse|student|chef|cook|vet|ceo|cto|mom|mum|dad|parent"
    r"|veteran)(?=$| (?:at|in|for|of|from|with|who|and|by|since|on|living|working|based)\b)"
)
_THING = (
    r"(?!(?:all |just )?(?:the|an?|both|not|no|option|how|what|when|where|who|to (?:be|see|hear)|hearing|seeing)\b)\w"
)
# Form; category; slot ("@": of what is liked); verbs, or first words after "am"; what follows them.
_RULES = rf"""
does | identity | home | live | (?:in|near|on|at|with|alone|outside)\b
does | identity | job | work | as\b
does | identity | employer | work | (?:at|for) (?!home|night|least|all|a while|the moment)
does | identity |  | work | (?:in|from|remotely|part-time|full-time|nights|with)\b
does | identity |  | study teach speak | (?!up|to |about|out|for|with|my mind)\w
does | identity |  | own run drive manage coach | (?:an?|my own|our own|two|three) (?!test|script|risk)
does | identity |  | play | (?:the |in an? )?(?!with|around|games?\b|a (?:role|part|game))\w
does | identity |  | volunteer | (?:at|for|with|in)\b
does | identity |  | have | {_OWNED}
not | identity |  | eat drink smoke drive own | (?:any )?\w*$
cannot | identity |  | eat drink have | (?!any|enough|more)\w
is | identity |  | a an the | {_ROLE}
is | identity |  | allergic intolerant | to\b
is | identity | diet | vegan vegetarian pescatarian |
is | identity | marital status | married divorced engaged widowed | (?!in )
is | identity |  | retired self-employed unemployed left-handed colour-blind dyslexic diabetic lactose |
is | identity | origin | from | (?:the )?(?-i:[A-Z])
is | identity | home | based living | (?:in|near)\b
is | identity | job | working | as\b
is | identity | employer | working | (?:at|for) (?:an?|(?-i:[A-Z]))
is | identity | studies | studying majoring | (?!for|up|hard)\w
did | identity | home | moved relocated | (?:back )?(?:to|from .+ to)\b
did | identity | childhood home | grew | up (?:in|on|near)\b
was | identity | birth | born raised | (?:in|on|and)\b
did | identity |  | graduated studied majored | (?!up|hard|with my)\w
did | identity |  | joined | (?:(?-i:[A-Z])|(?:an?|the) (?!call|meeting|chat|conversation))
did | identity | marital status | got | (?:married|divorced|engaged)\b
did | identity |  | adopted | (?:an?|two|three)\b
did | identity |  | bought | (?:an?|our) (?:new |old )?(?:house|flat|apartment|home|farm|car)\b
used to | identity |  | live work be play teach study smoke own | \w
has been | identity |  | living teaching married vegan vegetarian | \w
does | preference | @ | love like enjoy prefer hate dislike adore avoid | {_THING}
cannot | preference | @ | stand | {_THING}
is | preference | @ | a | (?:big|huge|lifelong) fan of \w
is | preference | @ | passionate | about \w
does | preference |  | use | (?-i:[A-Z])
is | project |  | working | on (?!some|an? (?:problem|question))
is | project |  | building writing developing designing renovating researching organizing | (?:an?|my|our|the|two)\b
is | project |  | planning preparing | (?:an?|my|our|for|to (?!do|ask|use|try|go with|get)\w+) \w
is | project |  | learning | (?!about|how|more|from|new|to (?!play|cook|speak|draw|dance|drive|code|paint|swim|sew))\w
is | project |  | training saving applying studying | (?:up )?for (?:an?|my|our|the)\b
is | project | next home | moving relocating | (?:back )?(?:to|from .+ to) (?:the )?(?-i:[A-Z])
is | project |  | getting | (?:married|divorced|a (?:dog|cat|puppy|kitten))\b
is | project |  | starting launching | (?:an?|my|our) (?:new )?(?!conversation|chat|file)\w
is | project |  | looking | for (?:an?|our) (?:new )?(?:job|flat|apartment|house|home|car|dog|cat|roommate)\b
is | project |  | flying travelling traveling going | to (?:the )?(?-i:[A-Z])
is | project |  | visiting | (?:my |(?-i:[A-Z]))
did | project |  | signed | up for .*(?-i:[A-Z])
does | project |  | plan | (?:to|on) (?!do|ask|use|try|get|go with|continue|keep)\w+ \w
did | project |  | decided | (?:to|on|against) (?!do|ask|try|go with|take|get|have|use|add|modify|change)\w+ \w
does | project |  | want | to (?:learn|become|move to|visit) (?!how|more|about|if|from)\w
has been | project |  | learning building writing training developing | (?!about|how|up|off)\w
"""
_BY_VERB: dict[tuple[str, str], list[tuple[re.Pattern[str], FactCategory, str]]] = {}
for _line in _RULES.strip().split("\n"):
    _form, _category, _slot, _verbs, _rest = (part.strip() for part in _line.split(" |", 4))
    for _verb in _verbs.split():
        _after = re.compile(_rest, re.IGNORECASE), cast("FactCategory", _category), _slot
        _BY_VERB.setdefault((_form, _verb), []).append(_after)

KIN = (
    r"(?:(?:late|ex|best|close|older|younger|little|big|eldest|youngest|twin|new|former|business|team"
    r"|\d+-year-old)[- ])*(?:wife|husband|partner|spouse|girlfriend|boyfriend|fianc[\u00e9e]e?|(?:sister|brother|mother"
    r"|father|son|daughter)(?:-in-law)?|child|baby|mom|mum|dad|grand(?:mother|father|ma|pa|son|daughter)|aunt|uncle"
    r"|cousin|niece|nephew|friend|boss|manager|colleague|co-?worker|teammate|roommate|flatmate|neighbou?r|landlord"
    r"|teacher|professor|supervisor|therapist|doctor|coach|mentor|co-?founder|dog|cat|puppy|kitten|horse|rabbit|parrot)"
)
_PARTNER = re.compile(r"(?:wife|husband|partner|spouse|girlfriend|boyfriend|fianc.*)\Z")
_NAME = r"(?:(?:Dr|Mrs?|Ms|Prof)\. )?[A-Z][\w'\u2019-]*[a-z](?: [A-Z][\w'\u2019-]*[a-z])*"
KIN_CLAUSE = re.compile(
    rf"(?i:my|our) (?P<kin>(?i:{KIN}))(?:,? (?P<name>{_NAME})\b,?)? (?P<said>(?:has (?:an?|two|three|\d+) |was born |"
    r"(?:lives|works|studies|teaches|loves|likes|hates|plays|speaks) (?!to |it\b|up)|is (?:an? |from |allergic |called "
    r"|named |\d+|(?=[A-Z]))).+)"
)
_MINE = re.compile(
    r"(?:my|our) (?P<what>fav(?:ou?rite)? [\w -]{2,30}|(?:full |first |last |nick)?name|home ?town|native language"
    r"|mother tongue|time ?zone|birthday|job|profession|pronouns|degree|goal|dream|budget|deadline|launch|wedding"
    r"|editor)"
    r"(?P<of> for (?:the |my |our )?[\w ]{2,20})? (?:is|are) (?!not\b|to know|a secret|coming|getting)(?P<value>.+)",
    re.IGNORECASE,
)
_CALL_ME = re.compile(r"(?i:please |just |you can )*(?i:call me|i go by|my friends call me) (?P<name>[A-Z][\w'-]+)")
_INTRODUCED = re.compile(
    r"(?:(?i:hi|hello|hey)\b[^,.!]{0,12}[,.!] *(?:I am|I['\u2019]m) |(?i:(?:.{0,20}[,.!] )?my name(?: is|['\u2019]s) ))"
    rf"(?P<name>{_NAME})(?=[.!,]|$| and\b| from\b)"
)
_STANDING = re.compile(
    r"(?:please |kindly |and |also )*(?:(?:from now on|in (?:the )?future"
    r"|going forward),? (?:please )?(?P<lasting>(?!i\b|we\b|the\b|my\b)\w.+)|(?P<do>(?:always|never) (?:answer|reply"
    r"|respond|use|write|give|keep|explain|include|add|format|show|speak|talk|call|start|end|ask|cite|avoid)\b .*"
    r"|no (?:emojis?|jargon|bullet points|disclaimers|small talk)\b.*|keep (?:your|all|the) (?:answers|replies"
    r"|responses|explanations) \w.*|use (?:metric|imperial|celsius|british|american)\b.*|(?:answer|reply|respond|speak"
    r"|talk|write)(?: to me)?(?: only)? in (?:(?:plain|simple) )?(?-i:[A-Z])\w+.*|do not (?:use|add"
    r"|include|give me|call me|suggest|start|end|mention|send) (?!.*\b(?:this|that|it|the|an?)\b).+))",
    re.IGNORECASE,
)
_ANSWER_SLOTS = (
    ("answer language", re.compile(r"(?:answer|reply|respond|speak|talk|write)\b.* in [A-Z]")),
    (
        "answer length",
        re.compile(r"(?=.*\b(?:answers|replies|responses)\b).*\b(?:short|brief|concise|long|detailed)\b"),
    ),
)
_FORMS = {
    "": ("does", "did"), "do not": ("not", "does"), "no longer": ("does",), "have": ("did",),
    "have been": ("has been",), "am": ("is",), "am not": ("is",),
}  # fmt: skip
"""The forms of a rule that an auxiliary verb may go with."""
_ENDED = re.compile(r"(?:^|\s)(?:any ?more|any longer)$", re.IGNORECASE)
_PERSONS = {
    "i": "they", "me": "them", "my": "their", "mine": "theirs", "myself": "themselves", "your": "its", "you": "it",
    "we": "they", "us": "them", "our": "their", "ours": "theirs", "ourselves": "themselves",
}  # fmt: skip
_PERSON = re.compile(rf"\b(?!US\b)(?:{'|'.join(_PERSONS)})\b(?!\.)", re.IGNORECASE)
_THIRD = {"have": "has", "teach": "teaches", "study": "studies", "coach": "coaches"}


class Statement(NamedTuple):
    """Something that users say of themselves."""

    text: str
    """Without a subject: "Lives in Lisbon"."""
    category: FactCategory
    slot: str = ""
    """A newer value supersedes an older one: "home"."""
    confidence: float = STATED
    ends: bool = False
    """It only says that the value of its slot is over."""


def statements(read: Iterable[str]) -> Iterator[Statement]:
    """Yields what the sentences of a message say of the user who wrote it."""
    for sentence in (part for one in read for part in sentences(one)):
        if TASK.match(sentence):
            return
        if not sentence.endswith("?") and not UNSURE.search(sentence):
            yield from (found for found in _of_sentence(sentence) if len(found.text) <= MOST_STATED)


def _of_sentence(sentence: str) -> Iterator[Statement]:
    if named := _INTRODUCED.match(sentence):
        yield Statement(f"Name is {named['name']}", "identity", "name")
    for pattern, full in _WRITTEN_OUT:
        sentence = re.sub(pattern, full, sentence, flags=re.IGNORECASE)
    sentence = _opened(_CLOSING.sub("", sentence.rstrip(" .!")))
    if called := _CALL_ME.match(sentence):
        yield Statement(f"Wants to be called {called['name']}", "preference", "called")
    elif asked := _STANDING.fullmatch(sentence):
        yield _wanted(_CLAUSE_END.split(asked["lasting"] or asked["do"])[0])
    else:
        yield from filter(None, map(_of_clause, map(_opened, _CLAUSE_END.split(sentence))))


def _opened(text: str) -> str:
    """Returns a text without its greetings and conjunctions."""
    while opening := _OPENING.match(text):
        text = text[opening.end() :]
    return text.strip()


def _wanted(do: str) -> Statement:
    slot = next((slot for slot, pattern in _ANSWER_SLOTS if pattern.search(do)), "")
    if do.lower().startswith("no "):
        return Statement(f"Wants {do[0].lower()}{do[1:]}", "preference", slot, ASKED_FOR)
    bare = third(do[0].lower() + do[1:]).removeprefix("do not ")
    negated = "not to" if do.lower().startswith("do not ") else "to"
    return Statement(f"Wants the assistant {negated} {bare}", "preference", slot, ASKED_FOR)


def _of_clause(clause: str) -> Statement | None:
    """Returns what a clause says of the user; None where no rule knows it, or it cannot be understood alone."""
    mine, kin, own = _MINE.fullmatch(clause), KIN_CLAUSE.fullmatch(clause), _CLAUSE.fullmatch(clause)
    said = mine["value"] if mine else kin["said"] if kin else own["rest"] or "" if own else ""
    if LEANING.search(said):
        return None
    if mine:
        return _of_mine(mine["what"], mine["of"] or "", said)
    if kin:
        named = " ".join(filter(None, (kin["kin"], kin["name"])))
        is_name = _PARTNER.match(kin["kin"]) and re.match(r"is (?:called |named |(?=[A-Z]))", said)
        return Statement(third(f"{named[0].upper()}{named[1:]} {said}"), "identity", "partner" if is_name else "")
    return _of_user(own["aux"] or "", own["how"], own["verb"].lower(), said) if own else None


def _of_mine(what: str, of: str, value: str) -> Statement:
    slot = re.sub(r"\bcolor\b", "colour", re.sub(r"^fav(?:orite)?\b", "favourite", fold(what)))
    is_work = slot in ("goal", "dream", "budget", "deadline", "launch", "wedding")
    is_liked = slot.startswith("favourite") or slot == "editor"
    category: FactCategory = "preference" if is_liked else "project" if is_work else "identity"
    return Statement(third(f"{what[0].upper()}{what[1:]}{of} is {value}"), category, "" if of else slot)


def _of_user(aux: str, how: str, verb: str, rest: str) -> Statement | None:
    aux, is_negated = aux.lower().replace("are", "am"), aux.lower().endswith(" not") or aux.lower() == "cannot"
    ends = aux == "no longer" or bool(is_negated and _ENDED.search(rest))
    rest = _ENDED.sub("", rest)
    for form in _FORMS.get(aux, (aux,)):
        for after, category, slot in _BY_VERB.get((form, verb), ()):
            if after.match(rest):
                value = _slot_of_liking(rest) if slot == "@" else "" if is_negated and not ends else slot
                negation = "no longer" if ends else "not" if is_negated else ""
                text = _rendered(form, negation, how.lower(), f"{verb} {rest}".strip())
                return Statement(third(text), category, value, ends=ends and bool(value))
    age = re.match(r"\d{1,2}(?: years old)?(?= and\b|$)", f"{verb} {rest}".strip()) if aux == "am" else None
    return Statement(f"Is {age[0]}", "identity", "age") if age else None


def _rendered(form: str, negation: str, how: str, said: str) -> str:
    """Returns a statement without its subject."""
    verb, _, rest = said.partition(" ")
    inflected = f"{_THIRD.get(verb, f'{verb}s')} {rest}"
    words = [negation, re.sub(r"\b(?:also|just|still|currently|now) ", "", how).strip()]
    match form:
        case "is":
            words = ["" if verb.endswith("ing") else "is", *words, said]
        case "not" | "does" if negation == "not":
            words = ["does", *words, said]
        case "not" | "does":
            words = [*words, inflected]
        case "did":
            words = [*words, said]
        case _:
            words = [form, words[1], said]
    text = " ".join(filter(None, words))
    return text[0].upper() + text[1:]


def third(text: str) -> str:
    """Returns a text with the third person for the first."""
    return _PERSON.sub(lambda found: _PERSONS[found[0].lower()], text).strip(" ,.;:!")


def _slot_of_liking(rest: str) -> str:
    """Returns the slot of something short that is liked, so that hating it later takes its place."""
    thing = re.split(r" (?:on|in|at|for|with|to|over|than)\b", re.sub(r"^(?:\w+ fan of|about) ", "", rest))[0]
    words = terms(thing)
    return f"prefers:{' '.join(words)}" if 1 <= len(words) <= MOST_LIKED_WORDS else ""
