"""Learning without a model: what users say of themselves, names as they introduce them, and phrases that recur.

Precision comes first, because a wrong line about a user costs more than many right ones earn. What is asked, supposed,
quoted, pasted, retold or played as a role says nothing, and neither does a sentence that no rule knows.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from langchain_ctxbudget.knowledge.records import (
    EntityType,
    FactCategory,
    Learned,
    LearnedEntity,
    LearnedFact,
    LearnedTopic,
    PhraseRecord,
    Said,
    Source,
)
from langchain_ctxbudget.messages import STOP_WORDS, fold, remembering, sentences, stem, terms, units, without_pasted
from langchain_ctxbudget.tokens import vocab

MOST_CHARACTERS, MOST_SENTENCES = 2_000, 20
"""A longer message is a document that was pasted without a mark: it teaches nothing."""
MOST_STATED = 140
"""The longest statement that is learned, in characters."""
STATED, ASKED_FOR = 0.9, 0.95
"""Confidence in a plain statement, and in what the user asks the assistant to do from now on."""
MOST_LIKED_WORDS = 3
"""What is liked is a slot of its own up to so many words."""
TOPIC_MESSAGES, TOPIC_CONVERSATIONS = 3, 2
"""A phrase of so many messages, or of so many conversations, is a topic."""
MOST_KEPT, MOST_SOURCES, MOST_COUNTED = 200, 3, 8
"""Phrases kept of a user; messages and conversations kept of a phrase."""
MOST_WORDS = 3
RARE_RANK = 7_000
"""A rank in o200k_base, higher the rarer a word is: every phrase has a word from here on."""

Read = tuple[Said, Sequence[str]]
"""A message and its sentences."""
_NO_SENTENCE = re.compile(r"^\[.*\]$|[{}=<>|\\%]|;$", re.DOTALL)


def learn(
    said: Sequence[Said], phrases: Sequence[PhraseRecord], conversation_id: str
) -> tuple[Learned, tuple[PhraseRecord, ...]]:
    """Learns from the user's own messages, and brings the phrases that may become topics up to date.

    A message that was learned from before is not counted again.

    Args:
        said: messages of one conversation, in their order.
        phrases: the phrases that the call before gave.
        conversation_id: the conversation of the messages.

    Example:
        >>> learned, _ = learn([Said(id="m1", digest="", text="I live in Lisbon, and I love hiking.")], (), "c1")
        >>> [fact.text for fact in learned.facts]
        ['Lives in Lisbon', 'Loves hiking']
    """
    own = [(message, _read(message.text)) for message in {one.id: one for one in said if one.from_user}.values()]
    entities = _entities(own)
    people = {word for entity in entities if entity.type == "person" for word in _key(entity.name).split()}
    kept, recurring = _phrases(own, phrases, conversation_id)
    topics = tuple(topic for key, topic in recurring.items() if people.isdisjoint(key.split()))
    # Those of many messages stay, and those that came up last.
    records = list(kept.values())
    promise = sorted(range(len(records)), key=lambda at: _messages(records[at]) ** 2 / (len(records) - at))
    most_promising = tuple(records[at] for at in sorted(promise[-MOST_KEPT:]))
    return Learned(facts=_facts(own), entities=entities, topics=topics), most_promising


def _read(text: str) -> list[str]:
    """Returns the sentences that a user wrote; none of what looks like a pasted document."""
    if len(text) > MOST_CHARACTERS:
        return []
    found = [unit for unit in units(without_pasted(text)) if not _NO_SENTENCE.search(unit)]
    return found if len(found) <= MOST_SENTENCES else []


def _union(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


# Statements

_TASK = re.compile(
    r"(?i)(?:please |now |ok(?:ay)?,? |(?:can|could|would|will) you (?:please )?|let['\u2019]?s |help me )*(?:imagine"
    r"|pretend|suppose|assume|play|act|role-?play|translate|proofread|rewrite|rephrase|correct|edit|improve|summari[sz]e"
    r"|paraphrase|polish|fix|say|write|draft|compose|complete|continue|repeat|generate|create|here is"
    r"|you are (?:the|an?)|(?:the |my )?(?:lyrics|story|poem|example|text|email|message|letter)\b.{0,20}:)(?!\w)"
)
"""The beginning of a text or a role: everything from here on is not about the user."""
_UNSURE = re.compile(
    r"(?i)[\"\u201c\u201d\u00ab\u00bb]|:\s|\b(?:if|unless|whether|imagine|suppose|pretend|wish|would|could|should|might"
    r"|(?-i:may)|maybe|perhaps|probably|joking|kidding|sa(?:id|ys?|ying)|t(?:old|ells?)|wr(?:ote|ites)|ask(?:ed|s)"
    r"|replied|thinks?|guess|assuming|narrator|lyrics|for example|e\.g|as though|yeah right|oh great|oh sure)\b"
)
"""What makes a sentence a quotation, a condition or a guess."""
_LEANING = re.compile(
    r"(?i)\b(?:you|yours?|th(?:is|at|ese|ose)|it|them|him|her|here|there|above|below|following|ones?|such|so|itself|bit"
    r"|lot|few|mess|something|stuff|things?|moment|minute)\b"
)
"""What a statement cannot be understood with, out of its place, and what says too little."""
_OPENING = re.compile(
    r"(?i)(?:(?:hi+|hello|hey|yo|good (?:morning|day|evening)|thanks|thank you)\b(?: (?!i\b|we\b|my\b)\w+)?|(?:well|so"
    r"|oh|ah|yes|yeah|ok(?:ay)?|wow|haha|btw|by the way|fyi|actually|also|and|but|because|since|though|anyway|honestly"
    r"|personally|to be honest|in real life)\b)[,!.]? +"
)
_CLOSING = re.compile(r"(?:,? (?:too|either|though|btw|lol|haha|as well|again|anyway|then))+$", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"(?i)(?:,(?!\d)|[;(])\s*(?:(?:and|but|so|or) )?|\s[-\u2013\u2014]+\s|\u2014|\s(?:and|but|so|because|since|though"
    r"|although|while|when|where)\s+(?=(?:i|we|my|our|it|he|she|they|that|there|the)\b)"
)
_WRITTEN_OUT = (
    (r"\u2019", "'"), (r"\bi'?m\b", "I am"), (r"\bwe're\b", "we are"), (r"\b(i|we)'?ve\b", r"\1 have"),
    (r"\bcan'?t\b", "cannot"), (r"\bdon'?t\b", "do not"), (r"\b(i|we)'(d|ll)\b", r"\1 would"),
    (r"\bname's\b", "name is"), (r"\baren't\b", "are not"), (r"\b(i|we) have got\b", r"\1 have"),
)  # fmt: skip
_CLAUSE = re.compile(
    r"(?i)(?:i|we) (?P<aux>am not|are not|am|are|do not|cannot|have been"
    r"|have(?! (?:an?|no|one|two|three|four|five|six|twin|\d+) )|used to|was|no longer)? ?"
    r"(?P<how>(?:(?:really|also|just|currently|now|usually|always|never|still|originally|recently|often|mostly) )*)"
    r"(?P<verb>[\w-]+)(?: (?P<rest>.+))?"
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
does | identity |  | have | {_OWNED}
not | identity |  | eat drink smoke drive own | (?:any )?\w*$
is | identity |  | a an the | {_ROLE}
is | identity |  | allergic intolerant | to\b
is | identity | diet | vegan vegetarian pescatarian |
is | identity |  | retired self-employed unemployed left-handed colour-blind dyslexic diabetic lactose |
is | identity | origin | from | (?:the )?(?-i:[A-Z])
is | identity | home | based living | (?:in|near)\b
is | identity | job | working | as\b
is | identity | employer | working | (?:at|for) (?:an?|(?-i:[A-Z]))
did | identity | home | moved relocated | (?:back )?(?:to|from .+ to)\b
was | identity | birth | born raised | (?:in|on|and)\b
did | identity |  | joined | (?:(?-i:[A-Z])|(?:an?|the) (?!call|meeting|chat|conversation))
did | identity |  | adopted bought | (?:an?|our|two) (?:new |old )?(?:house|flat|apartment|home|farm|car|dog|cat|pup)
does | preference | @ | love like enjoy prefer hate dislike adore avoid | {_THING}
cannot | preference | @ | stand | {_THING}
is | preference | @ | a | (?:big|huge|lifelong) fan of \w
is | preference | @ | passionate | about \w
does | preference |  | use | (?-i:[A-Z])
is | project |  | working | on (?!some|an? (?:problem|question))
is | project |  | building writing developing designing renovating researching organizing | (?:an?|my|our|the|two)\b
is | project |  | planning preparing | (?:an?|my|our|for|to (?!do|ask|use|try|go with|get)\w+) \w
is | project |  | learning | (?!about|how|more|from|new|to (?!play|cook|speak|draw|dance|drive|code|paint|swim|sew))\w
is | project | next home | moving relocating | (?:back )?(?:to|from .+ to) (?:the )?(?-i:[A-Z])
is | project |  | looking | for (?:an?|our) (?:new )?(?:job|flat|apartment|house|home|car|dog|cat|roommate)\b
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
_FORMS = {
    "": ("does", "did"), "do not": ("not", "does"), "no longer": ("does",), "have": ("did",),
    "have been": ("has been",), "am": ("is",), "am not": ("is",),
}  # fmt: skip
"""The forms of a rule that an auxiliary verb may go with."""
_KIN = (
    r"(?:[\w-]+ )?(?:wife|husband|partner|spouse|girlfriend|boyfriend|fianc[\u00e9e]e?|(?:sister|brother|mother|father"
    r"|son|daughter)(?:-in-law)?|child|baby|mom|mum|dad|grand(?:mother|father|ma|pa|son|daughter)|aunt|uncle|cousin|niece"
    r"|nephew|friend|boss|manager|colleague|co-?worker|teammate|roommate|flatmate|neighbou?r|landlord|teacher|professor"
    r"|supervisor|therapist|doctor|coach|mentor|co-?founder|dog|cat|puppy|kitten|horse|rabbit|parrot)"
)
_NAME = r"(?:(?:Dr|Mrs?|Ms|Prof)\. )?[A-Z][\w'\u2019-]*[a-z](?: [A-Z][\w'\u2019-]*[a-z])*"
_MINE = re.compile(
    r"(?i)(?:my|our) (?P<what>fav(?:ou?rite)? [\w -]{2,30}|(?:full |first |last |nick)?name|home ?town|native language"
    r"|mother tongue|time ?zone|birthday|job|profession|pronouns|degree|(?P<work>goal|dream|budget|deadline|launch"
    r"|wedding))(?P<of> for (?:the |my |our )?[\w ]{2,20})? (?:is|are) (?!not\b|to know|a secret|coming|getting)"
    r"(?P<value>.+)"
)
_OF_KIN = re.compile(
    rf"(?i:my|our) (?P<said>(?i:{_KIN})(?:,? {_NAME}\b,?)? (?:has (?:an?|two|three|\d+) |was born |(?:lives|works"
    r"|studies|teaches|loves|likes|hates|plays|speaks) (?!to |it\b|up)|is (?:an? |from |allergic |called |named |\d+"
    r"|(?=[A-Z]))).+)"
)
_CALL_ME = re.compile(r"(?i:please |just |you can )*(?i:call me|i go by|my friends call me) (?P<name>[A-Z][\w'-]+)")
_INTRODUCED = re.compile(
    r"(?:(?i:hi|hello|hey)\b[^,.!]{0,12}[,.!] *(?:I am |I['\u2019]m) |(?i:(?:.{0,20}[,.!] )?my name"
    rf"(?: is|['\u2019]s) ))(?P<name>{_NAME})(?=[.!,]|$| and\b| from\b)"
)
_STANDING = re.compile(
    r"(?i)(?:please |kindly |and |also )*(?:(?:from now on|in (?:the )?future|going forward),? (?:please )?(?P<lasting>"
    r"(?!i\b|we\b|the\b|my\b)\w.+)|(?P<do>(?:always|never) (?:answer|reply|respond|use|write|give|keep|explain|include"
    r"|add|format|show|speak|talk|call|start|end|ask|cite|avoid)\b .*|keep (?:your|all|the) (?:answers|replies"
    r"|responses|explanations) \w.*|(?:answer|reply|respond|speak|talk|write)(?: to me)?(?: only)? in "
    r"(?:(?:plain|simple) )?(?-i:[A-Z])\w+.*|do not (?:use|add|include|give me|call me|suggest|start|end|mention|send)"
    r" (?!.*\b(?:this|that|it|the|an?)\b).+))"
)
_IN_LANGUAGE = re.compile(r"(?:answer|reply|respond|speak|talk|write)\b.* in [A-Z]")
_OF_LENGTH = re.compile(r"(?=.*\b(?:answers|replies|responses)\b).*\b(?:short|brief|concise|long|detailed)\b")
_ENDED = re.compile(r"(?:^|\s)(?:any ?more|any longer)$", re.IGNORECASE)
_PERSONS = {
    "i": "they", "me": "them", "my": "their", "mine": "theirs", "myself": "themselves", "your": "its", "you": "it",
    "we": "they", "us": "them", "our": "their", "ours": "theirs", "ourselves": "themselves",
}  # fmt: skip
_PERSON = re.compile(rf"\b(?!US\b)(?:{'|'.join(_PERSONS)})\b(?!\.)", re.IGNORECASE)
_THIRD = {"have": "has", "teach": "teaches", "study": "studies", "coach": "coaches"}


def _facts(own: Iterable[Read]) -> tuple[LearnedFact, ...]:
    """Returns the statements of messages, in the order in which they were said last; the same one is one fact."""
    facts: dict[tuple[str, bool], LearnedFact] = {}
    for message, read in own:
        for fact in _statements(read):
            ends = fact.valid_until is not None
            if len(fact.text) > MOST_STATED or (ends and message.at is None):
                continue  # Nothing can end at an unknown time.
            known = facts.pop((fold(fact.text), ends), None)
            ids = _union(known.message_ids if known else (), (message.id,))
            facts[fold(fact.text), ends] = replace(fact, message_ids=ids, valid_until=message.at if ends else None)
    return tuple(facts.values())


def _statements(read: Iterable[str]) -> Iterator[LearnedFact]:
    """Yields what the sentences of a message say of the user who wrote it."""
    for sentence in (part for one in read for part in sentences(one)):
        if _TASK.match(sentence):
            return
        if sentence.endswith("?") or _UNSURE.search(sentence):
            continue
        if named := _INTRODUCED.match(sentence):
            yield _stated(f"Name is {named['name']}", "identity", "name")
        for pattern, full in _WRITTEN_OUT:
            sentence = re.sub(pattern, full, sentence, flags=re.IGNORECASE)  # noqa: PLW2901
        said = _opened(_CLOSING.sub("", sentence.rstrip(" .!")))
        if called := _CALL_ME.match(said):
            yield _stated(f"Wants to be called {called['name']}", "preference", "called")
        elif asked := _STANDING.fullmatch(said):
            yield _wanted(_CLAUSE_END.split(asked["lasting"] or asked["do"])[0])
        else:
            yield from filter(None, map(_of_clause, map(_opened, _CLAUSE_END.split(said))))


def _stated(text: str, category: FactCategory, slot: str, confidence: float = STATED) -> LearnedFact:
    """Returns a fact with the third person for the first, and a capital."""
    bare = _PERSON.sub(lambda found: _PERSONS[found[0].lower()], text).strip(" ,.;:!")
    return LearnedFact(text=bare[:1].upper() + bare[1:], category=category, slot=slot, confidence=confidence)


def _opened(text: str) -> str:
    """Returns a text without its greetings and conjunctions."""
    while opening := _OPENING.match(text):
        text = text[opening.end() :]
    return text.strip()


def _wanted(do: str) -> LearnedFact:
    slot = "answer language" if _IN_LANGUAGE.search(do) else "answer length" if _OF_LENGTH.search(do) else ""
    bare = do[0].lower() + do[1:]
    negated = "not to" if bare.startswith("do not ") else "to"
    return _stated(f"Wants the assistant {negated} {bare.removeprefix('do not ')}", "preference", slot, ASKED_FOR)


def _of_clause(clause: str) -> LearnedFact | None:
    """Returns what a clause says of the user; None where no rule knows it, or it cannot be understood alone."""
    if mine := _MINE.fullmatch(clause):
        what, value = mine["what"], mine["value"]
        slot = re.sub(r"\bcolor\b", "colour", re.sub(r"^fav(?:orite)?\b", "favourite", fold(what)))
        category: FactCategory = (
            "project" if mine["work"] else "preference" if slot.startswith("favourite") else "identity"
        )
        fact = _stated(f"{what}{mine['of'] or ''} is {value}", category, "" if mine["of"] else slot)
        return None if _LEANING.search(value) else fact
    if kin := _OF_KIN.fullmatch(clause):
        return None if _LEANING.search(kin["said"]) else _stated(kin["said"], "identity", "")
    own = _CLAUSE.fullmatch(clause)
    if own is None or _LEANING.search(own["rest"] or ""):
        return None
    aux, verb, rest = (own["aux"] or "").lower().replace("are", "am"), own["verb"].lower(), own["rest"] or ""
    is_negated = aux.endswith(" not") or aux == "cannot"
    ends = aux == "no longer" or bool(is_negated and _ENDED.search(rest))
    rest = _ENDED.sub("", rest)
    said = f"{verb} {rest}".strip()
    rules = ((form, rule) for form in _FORMS.get(aux, (aux,)) for rule in _BY_VERB.get((form, verb), ()))
    for form, (after, kind, slot) in rules:
        if after.match(rest):
            value = _slot_of_liking(rest) if slot == "@" else "" if is_negated and not ends else slot
            negation = "no longer" if ends else "not" if is_negated else ""
            fact = _stated(_rendered(form, negation, own["how"].lower(), said), kind, value)
            # Its time is that of the message.
            return replace(fact, valid_until=datetime.max.replace(tzinfo=UTC)) if ends and value else fact
    age = re.match(r"\d{1,2}(?: years old)?(?= and\b|$)", said) if aux == "am" else None
    return _stated(f"Is {age[0]}", "identity", "age") if age else None


def _rendered(form: str, negation: str, how: str, said: str) -> str:
    """Returns a statement without its subject."""
    verb, _, rest = said.partition(" ")
    how = re.sub(r"\b(?:also|just|still|currently|now) ", "", how).strip()
    if form == "is":
        words = ["" if verb.endswith("ing") else "is", negation, how, said]
    elif form in {"not", "does"}:
        inflected = f"{_THIRD.get(verb, f'{verb}s')} {rest}"
        words = ["does", negation, how, said] if negation == "not" else [negation, how, inflected]
    else:
        words = [negation if form == "did" else form, how, said]
    return " ".join(filter(None, words))


def _slot_of_liking(rest: str) -> str:
    """Returns the slot of something short that is liked, so that hating it later takes its place."""
    thing = re.split(r" (?:on|in|at|for|with|to|over|than)\b", re.sub(r"^(?:\w+ fan of|about) ", "", rest))[0]
    words = terms(thing)
    return f"prefers:{' '.join(words)}" if 1 <= len(words) <= MOST_LIKED_WORDS else ""


# Names

_RUNS = re.compile(
    r"(?:(?:Dr|Mrs?|Ms|Prof|St)\. )?(?![A-Z]+ of )[A-Z][\w-]*(?:(?: & | of the | of | )[A-Z][\w-]*)*"
    r"(?!['\u2019](?!s\b))"
)
_NO_NAMES = STOP_WORDS.union(map(fold, (*calendar.day_name, *calendar.month_name, "yes")))
_MY_KIN = re.compile(rf"\b(?i:my|our) (?P<kin>(?i:{_KIN}))(?:,| is| is called| is named| named| called|'s name is)? $")
_IS_KIN = re.compile(rf"(?:,| is|,? who is) (?:my|our) (?P<kin>(?i:{_KIN}))\b")
_CALLED = "(?: is| is called|,? called| named)?"
_KINDS: tuple[tuple[EntityType, re.Pattern[str]], ...] = (
    ("project", re.compile(rf"(?i)\b(?:project|app|game|novel|book|blog|podcast){_CALLED} $")),
    ("organization", re.compile(rf"(?i)\b(?:company|band|shop|agency|firm|label|publisher|startup){_CALLED} $")),
    ("organization", re.compile(r"(?i)\b(?:work(?:s|ed|ing)? (?:at|for)|join(?:ed|ing)?|\w+(?:er|or|yst|nurse) at) $")),
    ("tool", re.compile(r"(?i)\b(?:(?:i|we) use|switched to|runs? on|built (?:it )?(?:in|with)|written in) $")),
)


def _entities(own: Iterable[Read]) -> tuple[LearnedEntity, ...]:
    """Returns the names that messages introduce; what is named twice is one entity, as it was introduced first."""
    entities: dict[str, LearnedEntity] = {}
    for message, read in own:
        for sentence in read:
            if _TASK.match(sentence):
                break
            for new in _names(sentence):
                known = entities.get(fold(new.name), new)
                ids = _union(known.message_ids, (message.id,))
                relationship = known.relationship or new.relationship
                entities[fold(new.name)] = known.model_copy(update={"message_ids": ids, "relationship": relationship})
    return tuple(entities.values())


def _names(sentence: str) -> Iterator[LearnedEntity]:
    """Yields the capitalised runs that a sentence introduces: whose relative it is, or what kind of thing."""
    capitals = [word[0].isupper() for word in sentence.split()]
    is_shouted = sum(capitals) > len(capitals) / 2 + 1
    if is_shouted or re.search(r"[\"\u201c\u201d\u00ab\u00bb]", sentence):  # or a quotation, or a headline
        return
    for run in _RUNS.finditer(sentence):
        name, before, after = run[0], sentence[: run.start()], sentence[run.end() :]
        who = _MY_KIN.search(before) or _IS_KIN.match(after)
        kind = "person" if who else next((kind for kind, said in _KINDS if said.search(before)), None)
        # "My sister, Ana, is here", but not "I asked my sister, Maybe she knows".
        is_aside = before.endswith(", ") and not re.match(r"[,.!]|$", after)
        words = {fold(word).removesuffix("s") for word in name.split()}
        if kind and len(name) > 1 and not is_aside and _NO_NAMES.isdisjoint(words):
            yield LearnedEntity(name=name, type=kind, relationship=who["kin"].lower() if who else None)


# Recurring phrases

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|\d+|[^\w\s]")
_NO_WORDS = re.compile(r"`[^`\n]*`|\[[^\]\n]*\]|[^\s,;()]*(?:://|[@#\\_/=<>{}$%]|\w\.\w|\(\))[^\s,;()]*")
_NO_NOUN = re.compile(r"'|^favou?rite$|(?:ly|ful|ous|ible|less|[^\W_]{3}(?<!e)ed)$")
_ARTICLES = frozenset(("a", "an", "the", "my", "our", "this", "for", "about", "of", "with", "in", "on"))
"""A noun phrase stands behind one of these."""


@remembering(16_384)
def _rank(word: str) -> int:
    """Returns the rank of a word in o200k_base: the lower, the more common; one of several tokens is rare."""
    tokens = vocab.encoding().encode_ordinary(f" {word}")
    return tokens[0] if len(tokens) == 1 else vocab.TOKENS


def _key(label: str) -> str:
    """Returns the stems of a phrase: one key for all of its forms."""
    return " ".join(map(stem, re.findall(r"[^\W_]+", label.lower())))


def _compounds(read: Iterable[str]) -> Iterator[str]:
    """Yields the first two and the first three words of noun phrases, where one of them is rare."""
    for sentence in read:
        tokens = _WORD.findall(_NO_WORDS.sub(" , ", sentence))
        for first in (at + 1 for at, token in enumerate(tokens) if token.lower() in _ARTICLES):
            is_noun = [
                len(word) > 1 and word[0].isalpha() and word.lower() not in STOP_WORDS and not _NO_NOUN.search(word)
                for word in tokens[first : first + MOST_WORDS]
            ]
            for size in range(2, MOST_WORDS + 1):
                words = tokens[first : first + size]
                if sum(is_noun[:size]) == size and max(_rank(word.lower()) for word in words) >= RARE_RANK:
                    yield " ".join(words)


def _phrases(
    own: Iterable[Read], before: Sequence[PhraseRecord], conversation_id: str
) -> tuple[dict[str, PhraseRecord], dict[str, LearnedTopic]]:
    """Returns the phrases so far, those that came up last at the end, and those of these messages that recur."""
    kept = {record.phrase: record for record in before}
    heard: dict[str, dict[str, Said]] = {}
    for message, read in own:
        for label in _compounds(read):
            key = _key(label)
            heard.setdefault(key, {})[message.id] = message
            kept[key] = kept.pop(key, PhraseRecord(phrase=key, label=label[0].upper() + label[1:]))
    topics = {}
    for key, messages in heard.items():
        kept[key] = record = _counted(kept[key], list(messages.values()), conversation_id)
        if _messages(record) >= TOPIC_MESSAGES or len(record.counts) >= TOPIC_CONVERSATIONS:
            known = (source.message_id for source in record.sources if source.conversation_id == conversation_id)
            topics[key] = LearnedTopic(label=record.label, message_ids=_union(known, messages))
    longer = {key.rpartition(" ")[0] for key in topics}
    return kept, {key: topic for key, topic in topics.items() if key not in longer}


def _messages(record: PhraseRecord) -> int:
    return sum(count for _, count in record.counts)


def _counted(record: PhraseRecord, heard: Sequence[Said], conversation_id: str) -> PhraseRecord:
    """Adds the messages that are new to a phrase; what stands before one that is known was counted as well."""
    known = {source.message_id for source in record.sources if source.conversation_id == conversation_id}
    last = max((at for at, message in enumerate(heard) if message.id in known), default=-1)
    new, counts = heard[last + 1 :], dict(record.counts)
    if not new:
        return record
    counts[conversation_id] = counts.pop(conversation_id, 0) + len(new)
    sources = (Source(conversation_id=conversation_id, message_id=one.id, digest=one.digest) for one in new)
    return record.model_copy(
        update={
            "counts": tuple(counts.items())[-MOST_COUNTED:],
            "last_at": max((at for at in (record.last_at, *(one.at for one in new)) if at), default=None),
            "sources": (*record.sources, *sources)[-MOST_SOURCES:],
        }
    )
