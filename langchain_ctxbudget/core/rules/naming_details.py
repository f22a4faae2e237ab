"""What a sentence says about the names in it: attributes, how they are related, and a short sentence."""

from __future__ import annotations

import re
from itertools import zip_longest

from langchain_ctxbudget.core.rules import naming_words as words
from langchain_ctxbudget.core.rules.naming_reading import NAME, Mention, Sentence
from langchain_ctxbudget.core.rules.naming_words import word_set

MAX_FACT_CHARACTERS = 160
_AFTER = 140
"""Characters after a name that are searched for its attributes."""

_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,24}){1,3}")
_PHONE = re.compile(
    r"\b(?:phone|number|call|tel|telephone|mobile|cell|reach|whatsapp)\b[^\d+\n]{0,30}(\+?\d[\d ().-]{5,18}\d)",
    re.IGNORECASE,
)
_PLACE = r"((?:[A-Z][\w'’-]{1,20})(?:[ ,]{1,2}[A-Z][\w'’-]{1,20}){0,2})"  # noqa: RUF001
_LOCATION = re.compile(
    r"\b(?:lives?|living|lived|based|located|moved|moving|relocated|relocating|works? remotely)"
    r"(?: near| out| back| over| remotely)?"
    rf" (?:in|to|from) (?:the )?{_PLACE}"
)
_AGE = re.compile(
    r"(?:\bis|\bwas|,|'s|’s)(?: now| only| almost| just| about)? (\d{1,3})"  # noqa: RUF001
    r"(?: years? old\b|(?=[.,!?)]|$| and | now))"
    r"|\b(?:turned|turns|turning|turn) (\d{1,3})\b(?!%)"
)
_BIRTHDAY = re.compile(
    r"(?:birthday (?:is|falls|'s|is on)|born)(?: on| is)*(?: the)? "
    r"((?:\d{1,2}(?:st|nd|rd|th)?(?: of)? [A-Z][a-z]{2,8}|[A-Z][a-z]{2,8} \d{1,2}(?:st|nd|rd|th)?)(?:,? \d{4})?)"
)
_DEPARTMENT = re.compile(
    r"^(?:[^.;]{0,40}?\b(?:works?|working|is|from|in|leads?|runs?|heads?|joined|manages?|over)) (?:in |at |from |on )?"
    r"(?:the |our )?((?:product |data |customer |platform |people )?(?:marketing|sales|finance|hr|legal|engineering"
    r"|billing|support|operations|accounting|procurement|research|infrastructure|security|payroll|compliance|design"
    r"|success|platform|data|growth|logistics|it))(?: team| department| group|(?=[.,;!]|$| and | at ))",
    re.IGNORECASE,
)
_RELATION = {
    "works at": "works at", "works for": "works at", "worked at": "worked at", "work at": "works at",
    "working at": "works at", "working for": "works at", "from": "works at", "at": "works at", "joined": "works at",
    "is joining": "works at", "studies at": "studies at", "is at": "works at", "works with": "works with",
    "interns at": "works at", "teaches at": "teaches at", "founded": "founded", "runs": "runs", "leads": "leads",
    "left": "left", "quit": "left", "worked for": "worked at", "owns": "owns", "manages": "manages",
    "over at": "works at",
    "married": "married to", "is married to": "married to", "married to": "married to", "reports to": "reports to",
    "is dating": "dating", "is engaged to": "engaged to", "is working on": "works on", "works on": "works on",
    "started at": "works at", "is leading": "leads", "maintains": "maintains", "built": "built",
    "works under": "reports to",
    "'s wife": "married to", "'s husband": "married to", "who works at": "works at", "who works for": "works at",
    "now works at": "works at", "now works for": "works at", "who runs": "runs", "who leads": "leads",
    "just joined": "works at", "moved to": "works at", "works over at": "works at", "graduated from": "graduated from",
}  # fmt: skip
_TO_PEOPLE = frozenset({"married to", "reports to", "dating", "engaged to", "works with", "manages"})
_TO_WORK = frozenset({"leads", "works on", "maintains", "built", "runs", "owns"})
_CLAUSE_END = re.compile(r"[.;!?…](?=\s|$)|,? (?:and|but|so) (?:I|we)\b|,? (?:and|but) my\b| [—–] |\n")  # noqa: RUF001
_APPOSITION = re.compile(r"^,? ?\(?(?:who(?: is|'s)? |[^,()]{1,60}[,)] )")
_WORD = re.compile(r"[\w'’]+")  # noqa: RUF001
_PRONOUN = re.compile(r"(?:[.;,!?] |\band )(?:and |but )?(?:[Hh]e|[Ss]he)((?:'s|’s)? (\w+))")  # noqa: RUF001
_NO_SUBJECT = word_set("at of in with to from for by on about and or than like as")
_ASKING = re.compile(
    r"^(?:can|could|would|should|do|does|did|is|are|what|who|why|when|where|how|which|please)\b", re.IGNORECASE
)


def add_details(sentence: Sentence, found: list[Mention]) -> None:
    """Put what a sentence says about each of its names to it."""
    people = [mention for mention in found if mention.kind == "person"]
    for mention, following in zip_longest(found, found[1:]):
        until = following.start if following else len(sentence.text)
        if mention.kind == "person":
            _add_attributes(sentence.text, mention, until)
        if following:
            _add_relation(sentence, mention, following)
        fact = _fact(sentence.text, mention)
        if not fact and len(people) == 1 and mention is people[0]:
            fact = _pronoun_fact(sentence.text, mention)
        if fact:
            mention.facts.append(fact)
    if len(people) == 1:
        if email := _EMAIL.search(sentence.text):
            people[0].attributes.append(("email", email[0].rstrip(".")))
        if phone := _PHONE.search(sentence.text):
            people[0].attributes.append(("phone", phone[1].strip()))


def _add_attributes(text: str, mention: Mention, until: int) -> None:
    own = text[mention.end : min(until, mention.end + _AFTER)]
    if mention.possessive:
        own = f"'s{own}"
    near = text[mention.end : mention.end + _AFTER]
    for name, pattern, said in (("department", _DEPARTMENT, own), ("location", _LOCATION, near), ("age", _AGE, own),
                                ("birthday", _BIRTHDAY, near)):  # fmt: skip
        if value := pattern.search(said):
            mention.attributes.append((name, (value[1] or value[value.lastindex or 1]).strip(" ,")))


def _add_relation(sentence: Sentence, mention: Mention, following: Mention) -> None:
    between = sentence.low[mention.at + 1 : following.at]
    if not between or len(between) > 6 or NAME in between:  # noqa: PLR2004
        return
    if mention.possessive:
        between = ["'s", *between]
    said = " ".join(between).replace("'s wife ,", "'s wife").strip(" ,(")
    relation = _RELATION.get(said.replace("'s ", "'s ", 1))
    if relation is None and between[-1] in {"at", "of"} and any(word in words.JOBS for word in between):
        relation = "works at"
    if relation is None and between[-1] in {"wife", "husband"} and between[-2:-1] in (["her"], ["his"], ["'s"]):
        relation = "married to"
    if relation is None:
        return
    fits = {
        "person": relation in _TO_PEOPLE,
        "organization": relation not in _TO_PEOPLE,
        "project": relation in _TO_WORK | {"founded"},
        "tool": relation in {"maintains", "built"},
    }
    if mention.kind == "person" and fits.get(following.kind, False):
        mention.relations.append((relation, following.text))


def _fact(text: str, mention: Mention) -> str:
    """The clause of which the name is the subject, if it says anything."""
    if text.endswith("?") or mention.kind == "tool":
        return ""
    after = text[mention.end : mention.end + 2 * MAX_FACT_CHARACTERS]
    rest = after.lstrip()
    if after[:1] in {",", "("} or after[:2] == " (":
        cut = _APPOSITION.match(after)
        rest = after[cut.end() :] if cut else rest
    following = _WORD.search(rest[:24])
    verb = following[0].lower() if following and following.start() < 2 else ""  # noqa: PLR2004
    belonging = mention.possessive and (verb in words.BELONGINGS or verb.endswith("ing"))
    if not (belonging or (not mention.possessive and verb in words.VERBS - {"are", "were", "have"})):
        return ""
    before = text[: mention.start].rstrip()
    if before and (_ASKING.match(before) or before.rsplit(None, 1)[-1].lower() in _NO_SUBJECT):
        return ""
    end = _CLAUSE_END.search(text, mention.end)
    fact = mention.text + text[mention.end - 2 * mention.possessive : end.start() if end else len(text)].rstrip(" ,")
    if after.startswith(", who "):
        fact = f"{mention.text} {rest.partition(',')[0].rstrip(' .')}"
    return fact if len(fact) <= MAX_FACT_CHARACTERS and len(fact.split()) > 2 else ""  # noqa: PLR2004


def _pronoun_fact(text: str, mention: Mention) -> str:
    """What is said of the only person of a text as "she" or "he", with the name in its place."""
    pronoun = _PRONOUN.search(text, mention.end)
    if text.endswith("?") or pronoun is None:
        return ""
    if pronoun[2] not in words.VERBS and pronoun[1] == f" {pronoun[2]}":
        return ""
    end = _CLAUSE_END.search(text, pronoun.end())
    fact = mention.text + text[pronoun.start(1) : end.start() if end else len(text)].rstrip(" ,.")
    return fact if len(fact) <= MAX_FACT_CHARACTERS and len(fact.split()) > 2 else ""  # noqa: PLR2004
