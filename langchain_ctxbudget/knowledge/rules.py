"""Learning without a model: what users say of themselves, names as they introduce them, and phrases that recur.

Precision comes first, because a wrong line about a user costs more than many right ones earn. What is asked, supposed,
quoted, pasted, retold or played as a role says nothing, nor does a message that asks for a text, and neither does a
sentence that no rule knows.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.records import FactCategory, LearnedFact, PhraseRecord, Said
from langchain_ctxbudget.messages import STOP_WORDS, fold, sentences, stem, terms, units, without_pasted

MOST_CHARACTERS, MOST_SENTENCES, MOST_STATED = 800, 12, 140
"""A longer message is a document that was pasted without a mark; a longer statement is none."""
STATED = 0.9
"""Confidence in a statement."""
TOPIC_MESSAGES, TOPIC_OCCASIONS, MOST_SEEN, MOST_KEPT = 3, 2, 8, 200
"""A phrase of so many messages, on so many days or in so many conversations, is a topic; messages kept of a phrase,
and phrases of a user."""

Read = tuple[Said, Sequence[str]]
"""A message and its sentences."""
_NO_SENTENCE = re.compile(r"^\[.*\]$|[{}=<>|\\%]|;$|\*\*", re.DOTALL)
_ASKS_FOR_TEXT = re.compile(
    r"(?i)\b(?:imagine|pretend|suppose|role-?play|act(?:ing)? (?:as|like)|re(?:write|phrase)|paraphrase|proofread"
    r"|polish|translate|summari[sz]e|poem|lyrics|essay|cover letter|resum[e\u00e9]|your (?:mission|niche|role|team)"
    r"|language model|narrator|experienced|expertise|years of experience|you(?: are|['\u2019]re) (?:an?|the)|output"
    r"|write|draft|compose|generate|create|say|correct"
    r"|(?:story|poem|example|text|e-?mail|message|letter)\b[^.]{0,20}:)(?!\w)"
)
"""A message that asks for a text, or gives out roles: nobody knows whose "I" it speaks with."""


def learn(
    said: Sequence[Said], phrases: Sequence[PhraseRecord], conversation_id: str
) -> tuple[records.Learned, tuple[PhraseRecord, ...]]:
    """Learns from the user's own messages of one conversation; returns the phrases that may become topics, too."""
    own = [(message, _read(message.text)) for message in {one.id: one for one in said if one.from_user}.values()]
    entities = _entities(own)
    people = {stem(word) for entity in entities if entity.type == "person" for word in fold(entity.name).split()}
    kept, topics = _phrases(own, phrases, conversation_id, people)
    return records.Learned(facts=_facts(own), entities=entities, topics=topics), kept


def _read(text: str) -> list[str]:
    """Returns the sentences that a user wrote; none of what looks like a pasted document or asks for a text."""
    own = without_pasted(text) if len(text) <= MOST_CHARACTERS else ""
    found = [] if _ASKS_FOR_TEXT.search(own) else [unit for unit in units(own) if not _NO_SENTENCE.search(unit)]
    return found if len(found) <= MOST_SENTENCES else []


def _union(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


# Statements

_UNSURE = re.compile(
    r"(?i)[\"\u201c\u201d\u00ab\u00bb?]|:\s|\b(?:if|unless|whether|wish|would|could|should|might|(?-i:may)|maybe|perhaps"
    r"|probably|joking|kidding|sa(?:id|ys?|ying)|t(?:old|ells?)|wr(?:ote|ites)|ask(?:ed|s)|replied|thinks?|guess"
    r"|assuming|for example|e\.g|as though|yeah right|oh great|oh sure|lol|haha)\b"
)
"""What makes a sentence a question, a quotation, a condition, a guess or a joke."""
_LEANING = re.compile(
    r"(?i)\b(?:you|yours?|th(?:is|at|ese|ose)|it|them|they|him|her|here|there|above|below|following|ones?|such|so|itself"
    r"|bit|lot|few|mess|something|stuff|things?|moment|minute|option|number|idea|answer|plan|both)\b"
)
"""What a statement cannot be understood with, out of its place, and what says too little."""
_OPENING = re.compile(
    r"(?i)(?:(?:hi+|hello|hey|yo|good (?:morning|day|evening)|thanks|thank you)\b(?: (?!i\b|we\b|my\b)\w+)?|(?:well|so"
    r"|oh|ah|yes|yeah|ok(?:ay)?|wow|btw|by the way|fyi|actually|also|and|but|because|since|though|anyway|honestly"
    r"|personally|to be honest|in real life)\b)[,!.]? +"
)
_CLOSING = re.compile(r"(?:,? (?:too|either|though|btw|as well|again|anyway|then))+$", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"(?i)(?:,(?!\d)|[;(])\s*(?:(?:and|but|so|or) )?|\s[-\u2013\u2014]+\s|\u2014|\s(?:and|but|so|because|since|though"
    r"|although|while|when|where)\s+(?=(?:i|we|my|our|it|he|she|they|that|there|the)\b)"
)
_WRITTEN_OUT = (
    (r"\u2019", "'"), (r"\bi'?m\b", "I am"), (r"\bwe're\b", "we are"), (r"\b(i|we)'?ve\b", r"\1 have"),
    (r"\bcan'?t\b", "cannot"), (r"\bdon'?t\b", "do not"), (r"\bname's\b", "name is"), (r"\baren't\b", "are not"),
    (r"\b(i|we) have got\b", r"\1 have"),
)  # fmt: skip
_CLAUSE = re.compile(
    r"(?i)(?:i|we) (?P<aux>am not|are not|am|are|do not|cannot|no longer)? ?"
    r"(?:(?:really|just|currently|now|still|recently) )*(?P<verb>[\w-]+)(?: (?P<rest>.+))?"
)
_ROLE = (
    r"(?:[\w'-]+ ){0,3}(?:nurse|student|chef|cook|vet|ceo|cto|mom|mum|dad|parent|veteran|librarian|musician|pilot"
    r"|lawyer|doctor|professor|actor|editor|contractor|translator|director|accountant|consultant|assistant|paralegal|analyst"
    r"|(?:teach|engin|develop|design|writ|paint|danc|farm|bak|manag|research|programm|photograph|driv|train)e?er"
    r"|(?:scient|journal|art|dent|pharmac|psycholog|therap|econom|pian|novel)ist|electrician|technician)"
    r"(?=$| (?:at|in|for|of|from|with|who|and|by|since|on)\b)"
)
_OWNED = (
    r"(?:an?|one|two|three|four|five|six|\d+|twin) (?:[\w-]+ ){0,2}(?:sons?|daughters?|kids?|child(?:ren)?|brothers?"
    r"|sisters?|siblings?|twins|dogs?|cats?|pupp(?:y|ies)|kittens?|horses?|rabbits?|allerg(?:y|ies)|diabetes)\b"
)
_THING = (
    r"(?!(?:all |just )?(?:the|an?|not|no|how|what|when|where|who|being|having|to (?:be|see|hear|know)|hearing"
    r"|seeing)\b)\w"
)
# Form; category; slot ("@": of what is liked); verbs, or first words after "am"; what follows them.
_RULES = rf"""
does | identity | home | live | (?:in|near|on|at|with|alone|outside)\b
does | identity | job | work | as\b
does | identity | employer | work | (?:at|for) (?!home|night|least|all|a while|the)
does | identity |  | study teach speak | (?!up|to |about|out|for|with|my mind)\w
does | identity |  | play | (?:the )?(?!with|around|games?\b|an? )\w
does | identity |  | have | {_OWNED}
not | identity |  | eat drink smoke drive | (?:any )?\w*$
is | identity |  | a an | {_ROLE}
is | identity |  | allergic intolerant | to\b
is | identity | diet | vegan vegetarian pescatarian |
is | identity |  | retired self-employed unemployed left-handed colour-blind dyslexic diabetic |
is | identity | origin | from | (?:the )?(?-i:[A-Z])
is | identity | home | based living | (?:in|near)\b
is | identity | job | working | as\b
is | identity | employer | working | (?:at|for) (?:an?|(?-i:[A-Z]))
did | identity | home | moved relocated | (?:back )?(?:to|from .+ to)\b
did | identity |  | joined | (?:(?-i:[A-Z])|an? (?!call|meeting|chat|conversation))
did | identity |  | adopted bought | (?:an?|our|two) (?:new |old )?(?:house|flat|apartment|home|farm|car|dog|cat|pup)
does | preference | @ | love like enjoy prefer hate dislike adore avoid | {_THING}
cannot | preference | @ | stand | {_THING}
is | preference | @ | a | (?:big|huge|lifelong) fan of \w
is | preference | @ | passionate | about \w
does | preference |  | use | (?-i:[A-Z])
is | project |  | working | on (?:an?|my|our) (?!problem|question)
is | project |  | building writing developing designing renovating researching organizing | (?:an?|my|our|two)\b
is | project |  | planning preparing | (?:an?|my|our|for) \w
is | project |  | learning | (?!about|how|more|from|new|to (?!play|cook|speak|draw|dance|drive|code|paint|swim|sew))\w
is | project | next home | moving relocating | (?:back )?(?:to|from .+ to) (?:the )?(?-i:[A-Z])
is | project |  | looking | for (?:an?|our) (?:new )?(?:job|flat|apartment|house|home|car|dog|cat|roommate)\b
did | project |  | decided | (?:to|on|against) (?!do|ask|try|go with|take|get|have|use|add|modify|change|make|let)\w+ \w
"""
_BY_VERB: dict[tuple[str, str], list[tuple[re.Pattern[str], FactCategory, str]]] = {}
for _line in _RULES.strip().split("\n"):
    _form, _category, _slot, _verbs, _rest = (part.strip() for part in _line.split(" |", 4))
    for _verb in _verbs.split():
        _after = re.compile(_rest, re.IGNORECASE), cast("FactCategory", _category), _slot
        _BY_VERB.setdefault((_form, _verb), []).append(_after)
_FORMS = {"": ("does", "did"), "do not": ("not", "does"), "no longer": ("does",), "am": ("is",), "am not": ("is",)}
"""The forms of a rule that an auxiliary verb may go with."""
_KIN = (
    r"(?:best )?(?:wife|husband|partner|spouse|girlfriend|boyfriend|fianc[\u00e9e]e?|(?:sister|brother|mother|father"
    r"|son|daughter)(?:-in-law)?|child|baby|mom|mum|dad|grand(?:mother|father|ma|pa|son|daughter)|aunt|uncle|cousin|niece"
    r"|nephew|friend|boss|manager|colleague|co-?worker|teammate|roommate|flatmate|neighbou?r|landlord|teacher|professor"
    r"|supervisor|therapist|doctor|coach|mentor|co-?founder|dog|cat|puppy|kitten|horse|rabbit|parrot)"
)
_NAME = r"[A-Z][\w'\u2019-]*[a-z](?: [A-Z][\w'\u2019-]*[a-z])*"
_MINE = re.compile(
    r"(?i)(?:my|our) (?P<what>fav(?:ou?rite)? [\w -]{2,30}|name|home ?town|native language|mother tongue|time ?zone"
    r"|birthday|job|profession|pronouns|(?P<work>goal|dream|budget|deadline|wedding))"
    r"(?P<of> for (?:the |my |our )?[\w ]{2,20})? (?:is|are) (?!not\b|to know|a secret|coming|getting)(?P<value>.+)"
)
_OF_KIN = re.compile(
    rf"(?i:my|our) (?P<said>(?i:{_KIN})(?:,? {_NAME}\b,?)? (?:(?:lives|works|studies|teaches|loves|likes|hates|plays"
    r"|speaks) (?!to |it\b|up)|is (?:an? |from |allergic |called |named )).+)"
)
_CALL_ME = re.compile(r"(?i:please |just |you can )*(?i:call me|i go by|my friends call me) (?P<name>[A-Z][\w'-]+)")
_STANDING = re.compile(
    r"(?i)(?:please |kindly |and |also )*(?P<do>(?:always|never) (?:answer|reply|respond|use|write|give|keep|explain"
    r"|include|add|format|show|speak|talk|call|start|end|ask|cite|avoid)\b .*|keep (?:your|all) (?:answers|replies"
    r"|responses|explanations) \w.*)"
)
_ENDED = re.compile(r"(?:^|\s)(?:any ?more|any longer)$", re.IGNORECASE)
_PERSONS = {
    "i": "they", "me": "them", "my": "their", "mine": "theirs", "myself": "themselves", "your": "its",
    "we": "they", "us": "them", "our": "their", "ours": "theirs", "ourselves": "themselves",
}  # fmt: skip
_PERSON = re.compile(rf"\b(?!US\b)(?:{'|'.join(_PERSONS)})\b(?!\.)", re.IGNORECASE)
_THIRD = {"have": "has", "teach": "teaches", "study": "studies"}


def _facts(own: Iterable[Read]) -> tuple[LearnedFact, ...]:
    """Returns the statements of messages, in the order in which they were said last; the same one is one fact."""
    facts: dict[tuple[str, bool], LearnedFact] = {}
    for message, read in own:
        for fact in (fact for one in read for sentence in sentences(one) for fact in _statements(sentence)):
            if len(fact.text) <= MOST_STATED:
                key = fold(fact.text), fact.only_ends
                known = facts.pop(key, fact)
                facts[key] = replace(fact, message_ids=_union(known.message_ids, (message.id,)))
    return tuple(facts.values())


def _statements(sentence: str) -> Iterator[LearnedFact]:
    """Yields what a sentence says of the user who wrote it."""
    if _UNSURE.search(sentence):
        return
    for pattern, full in _WRITTEN_OUT:
        sentence = re.sub(pattern, full, sentence, flags=re.IGNORECASE)
    said = _opened(_CLOSING.sub("", sentence.rstrip(" .!")))
    if called := _CALL_ME.match(said):
        yield _stated(f"Wants to be called {called['name']}", "preference", "called")
    elif asked := _STANDING.fullmatch(said):
        do = _CLAUSE_END.split(asked["do"])[0]
        is_length = re.search(r"\b(?:short|brief|concise|long|detailed)\b", do)
        slot = "answer language" if re.search(r" in [A-Z]", do) else "answer length" if is_length else ""
        yield _stated(f"Wants the assistant to {do[0].lower()}{do[1:]}", "preference", slot)
    else:
        yield from filter(None, map(_of_clause, map(_opened, _CLAUSE_END.split(said))))


def _stated(text: str, category: FactCategory, slot: str) -> LearnedFact:
    """Returns a fact with the third person for the first, and a capital."""
    bare = _PERSON.sub(lambda found: _PERSONS[found[0].lower()], text).strip(" ,.;:!")
    return LearnedFact(text=bare[:1].upper() + bare[1:], category=category, slot=slot, confidence=STATED)


def _opened(text: str) -> str:
    """Returns a text without its greetings and conjunctions."""
    while opening := _OPENING.match(text):
        text = text[opening.end() :]
    return text.strip()


def _of_clause(clause: str) -> LearnedFact | None:
    """Returns what a clause says of the user; None where no rule knows it, or it cannot be understood alone."""
    if _LEANING.search(clause):
        return None
    if mine := _MINE.fullmatch(clause):
        slot = re.sub(r"\bcolor\b", "colour", re.sub(r"^fav(?:orite)?\b", "favourite", fold(mine["what"])))
        liked: FactCategory = "preference" if slot.startswith("favourite") else "identity"
        text = f"{mine['what']}{mine['of'] or ''} is {mine['value']}"
        return _stated(text, "project" if mine["work"] else liked, "" if mine["of"] else slot)
    if kin := _OF_KIN.fullmatch(clause):
        return _stated(kin["said"], "identity", "")
    own = _CLAUSE.fullmatch(clause)
    if own is None:
        return None
    aux, verb, rest = (own["aux"] or "").lower().replace("are", "am"), own["verb"].lower(), own["rest"] or ""
    is_negated = aux.endswith(" not") or aux == "cannot"
    ends = aux == "no longer" or bool(is_negated and _ENDED.search(rest))
    rest = _ENDED.sub("", rest)
    for form in _FORMS.get(aux, (aux,)):
        for after, kind, slot in _BY_VERB.get((form, verb), ()):
            if after.match(rest):
                value = _slot_of_liking(rest) if slot == "@" else "" if is_negated and not ends else slot
                text = _rendered(form, "no longer" if ends else "not" if is_negated else "", verb, rest)
                return replace(_stated(text, kind, value), only_ends=bool(ends and value))
    age = re.match(r"\d{1,2} years old$", f"{verb} {rest}") if aux == "am" else None
    return _stated(f"Is {age[0]}", "identity", "age") if age else None


def _rendered(form: str, negation: str, verb: str, rest: str) -> str:
    """Returns a statement without its subject."""
    if form == "is":
        words = ["" if verb.endswith("ing") else "is", negation, verb, rest]
    elif form in {"cannot", "did"}:
        words = ["cannot" if negation else "", verb, rest]
    elif negation == "not":
        words = ["does not", verb, rest]
    else:
        words = [negation, _THIRD.get(verb, f"{verb}s"), rest]
    return " ".join(filter(None, words))


def _slot_of_liking(rest: str) -> str:
    """Returns the slot of something short that is liked, so that hating it later takes its place."""
    thing = re.split(r" (?:on|in|at|for|with|to|over|than)\b", re.sub(r"^(?:\w+ fan of|about) ", "", rest))[0]
    words = terms(thing)
    return f"prefers:{' '.join(words)}" if 0 < len(words) <= 3 else ""  # noqa: PLR2004 - a short thing


# Names

_RUNS = re.compile(
    r"(?:(?:Dr|Mrs?|Ms|Prof|St)\. )?[A-Z][\w-]*(?:(?: & | of the | of | )[A-Z][\w-]*)*(?!['\u2019](?!s\b))"
)
_NO_NAMES = STOP_WORDS.union(map(fold, (*calendar.day_name, *calendar.month_name, "yes", "yeah", "ok", "okay", "hey")))
_MY_KIN = re.compile(rf"\b(?i:my|our) (?P<kin>(?i:{_KIN}))(?:,| is| is called| is named| named| called|'s name is)? $")
_IS_KIN = re.compile(rf"(?:,| is|,? who is) (?:my|our) (?P<kin>(?i:{_KIN}))\b")
_KINDS: tuple[tuple[records.EntityType, re.Pattern[str]], ...] = (
    ("project", re.compile(r"(?i)\b(?:project|app|novel|book|blog|podcast)(?: is|,?) (?:called|named) $")),
    ("organization", re.compile(r"(?i)\b(?:company|band|shop|agency|firm|startup)(?: is|,?) (?:called|named) $")),
    ("organization", re.compile(r"(?i)\b(?:i|we) (?:work|worked|am working|used to work) (?:at|for) $")),
    ("tool", re.compile(r"(?i)\b(?:i|we) (?:use|switched to) $")),
)


def _entities(own: Iterable[Read]) -> tuple[records.LearnedEntity, ...]:
    """Returns the names that messages introduce; what is named twice is one entity, as it was introduced first."""
    entities: dict[str, records.LearnedEntity] = {}
    for message, read in own:
        for new in (name for sentence in read for name in _names(sentence)):
            known = entities.get(fold(new.name), new)
            ids = _union(known.message_ids, (message.id,))
            relationship = known.relationship or new.relationship
            entities[fold(new.name)] = replace(known, message_ids=ids, relationship=relationship)
    return tuple(entities.values())


def _names(sentence: str) -> Iterator[records.LearnedEntity]:
    """Yields the capitalised runs that a sentence introduces: whose relative it is, or what kind of thing."""
    capitals = [word[0].isupper() for word in sentence.split()]
    if sum(capitals) > len(capitals) / 2 + 1 or re.search(r"[\"\u201c\u201d\u00ab\u00bb]", sentence):
        return  # a headline, one who shouts, or a quotation
    for run in _RUNS.finditer(sentence):
        name, before, after = run[0], sentence[: run.start()], sentence[run.end() :]
        who = _MY_KIN.search(before) or _IS_KIN.match(after)
        kind = "person" if who else next((kind for kind, said in _KINDS if said.search(before)), None)
        # "My sister, Ana, is here", but not "I asked my sister, Maybe she knows".
        is_aside = before.endswith(", ") and not re.match(r"[,.!]|$", after)
        if kind and len(name) > 1 and not is_aside and _NO_NAMES.isdisjoint(map(fold, name.split())):
            yield records.LearnedEntity(name=name, type=kind, relationship=who["kin"].lower() if who else "")


# Recurring phrases

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|\d+|[^\w\s]")
_NO_WORDS = re.compile(r"`[^`\n]*`|\[[^\]\n]*\]|[^\s,;()]*(?:://|[@#\\_/=<>{}$%]|\w\.\w|\(\))[^\s,;()]*")
_NO_NOUN = re.compile(r"['-]|(?:ly|ful|ous|[ai]ble|less|[^\W_]{3}(?<!e)ed)$")
_QUALITY = re.compile(r"(?:al|ive|ic|est|ary|ant|ent|y|ern|id|ate|[ic]it|ite)$")
"""The end of what is an adjective more often than not: in front of a noun, it makes no subject."""
_WORDS_OF_QUALITY = (
    "big huge real whole full fair hard quick tough wild best right wrong first second third last next new old "
    "great good nice bad main key one two three four five six other same different such more most many few long "
    "short small large deep clear fresh free fun cool hot cold late complete concise precise concrete firm flip "
    "grunt own true strange odd rough close sure safe strong weak light dark high low top super perfect fine "
    "wonderful awesome total pure sheer worth sounds looks feels makes runs remains seems stuck now back today "
    "together down away here there again bit bits little ground goodness sake hell god time way end rest point "
    "world case guy fantastic outstanding exciting interesting missing remaining coming following existing "
    "upcoming amazing anything everything something nothing proper look favourite favorite past future entire "
    "exact simple single double extra kind sort"
)
_QUALITIES = frozenset(_WORDS_OF_QUALITY.split())
_ARTICLES = frozenset(("a", "an", "the", "my", "our", "for", "about", "of", "with", "in", "on"))
"""A noun phrase stands behind one of these."""


def _is_noun(word: str) -> bool:
    lower = word.lower()
    is_word = len(word) > 1 and word[0].isalpha() and lower not in STOP_WORDS
    return is_word and lower not in _QUALITIES and not _NO_NOUN.search(lower)


def _compounds(read: Iterable[str]) -> Iterator[str]:
    """Yields noun phrases of two and three words, all of them names or none, and no word of quality among them."""
    for sentence in read:
        tokens = _WORD.findall(_NO_WORDS.sub(" , ", sentence))
        for first in (at + 1 for at, token in enumerate(tokens) if token.lower() in _ARTICLES):
            phrase = tokens[first : first + 3]
            capitals = [word[0].isupper() for word in phrase]
            for size in range(2, len(phrase) + 1):
                is_name = all(capitals[:size])
                is_compound = not any(capitals[:size]) and not _QUALITY.search(phrase[0])
                if (is_name or is_compound) and all(map(_is_noun, phrase[:size])):
                    yield " ".join(phrase[:size])


def _phrases(
    own: Iterable[Read], before: Sequence[PhraseRecord], conversation_id: str, people: set[str]
) -> tuple[tuple[PhraseRecord, ...], tuple[records.LearnedTopic, ...]]:
    """Returns the phrases so far, those that came up last at the end, and those of these messages that recur."""
    kept = {record.phrase: record for record in before}
    heard: dict[str, list[str]] = {}
    for message, read in own:
        source = records.Source(conversation_id=conversation_id, message_id=message.id, digest=message.digest)
        for label in _compounds(read):
            key = " ".join(map(stem, re.findall(r"[^\W_]+", label.lower())))
            record = kept.pop(key, None) or PhraseRecord(phrase=key, label=label[0].upper() + label[1:])
            if len(record.sources) < MOST_SEEN and source not in record.sources:
                day = message.at.date().isoformat() if message.at else ""
                last_at = max(filter(None, (record.last_at, message.at)), default=None)
                seen = {"sources": (*record.sources, source), "days": (*record.days, day), "last_at": last_at}
                record = record.model_copy(update=seen)
            kept[key] = record
            heard.setdefault(key, []).append(message.id)
    topics = {}
    for key, messages in heard.items():
        record = kept[key]
        occasions = {(one.conversation_id, day) for one, day in zip(record.sources, record.days, strict=False)}
        recurs = len(record.sources) >= TOPIC_MESSAGES and len(occasions) >= TOPIC_OCCASIONS
        if recurs and people.isdisjoint(key.split()):
            here = (one.message_id for one in record.sources if one.conversation_id == conversation_id)
            topics[key] = records.LearnedTopic(label=record.label, message_ids=_union(here, messages))
    longer = {key.rpartition(" ")[0] for key in topics}
    # Of too many, those of one message that came up longest ago go.
    often = [record for record in kept.values() if len(record.sources) > 1]
    once = [record for record in kept.values() if len(record.sources) <= 1]
    left = {record.phrase for record in [*once, *often][-MOST_KEPT:]}
    remembered = tuple(record for key, record in kept.items() if key in left)
    return remembered, tuple(topic for key, topic in topics.items() if key not in longer)
