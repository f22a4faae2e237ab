"""Learning without a model.

What users say of themselves, names as they introduce them, and phrases that recur.

Precision comes first, because a wrong line about a user costs more than many right ones earn. What
is asked, supposed, quoted, pasted, retold or played as a role says nothing, nor does a message that
asks for a text, and neither does a sentence that no rule knows.

A wish is kept as the whole sentence in the user's own words. So is a statement of which a shorter
form would lose something: a condition, a time, a reason. Only what loses nothing is told in the
third person ("Lives in Lisbon").
"""

import calendar
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile, zip_longest
from typing import cast

from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.presence import NEW_SESSION_AFTER
from langchain_ctxbudget.knowledge.records import (
    ENGLISH,
    NO_PASSAGE,
    FactCategory,
    LearnedFact,
    Passage,
    PhraseRecord,
    ReadMessage,
    Source,
)
from langchain_ctxbudget.messages import (
    STOP_WORDS,
    fold,
    sentences,
    stem,
    terms,
    units,
    without_pasted,
)

MOST_CHARACTERS = 800
MOST_SENTENCES = 12
"""A longer message is a document that was pasted without a mark."""
MOST_PLAYED = 10
"""Messages of the user that a passage of a game goes on for without another sign of it."""
MOST_STATED = 200
"""Characters of a statement; a longer one is not learned, rather than shortened."""
STATED = 0.9
TOPIC_OCCASIONS = 3
MOST_SEEN = 8
MOST_KEPT = 200
"""A phrase that comes up on so many days or in so many conversations is a topic; messages kept of a
phrase, and phrases of a user."""
Read = tuple[ReadMessage, Sequence[str]]


def learn(
    said: Sequence[ReadMessage],
    phrases: Sequence[PhraseRecord],
    conversation_id: str,
    passage: Passage = NO_PASSAGE,
) -> tuple[records.Learned, tuple[PhraseRecord, ...]]:
    """Learns from the user's own messages of one conversation.

    Returns the phrases that may become topics, too.

    Those messages in which a part is played say nothing of the user; `passage` is the one in which
    they begin.
    """
    by_id = {message.id: message for message in said if message.from_user}
    own = [(message, _read(message.text)) for message in by_id.values()]
    played, _ = played_in(said, passage)
    facts: list[LearnedFact] = []
    entities: list[records.LearnedEntity] = []
    for message, read in own:
        if message.id in played:
            continue
        told = list(_told(message.text, read))
        stated = [fact for fact in _stated_in(told, read) if len(fact.text) <= MOST_STATED]
        facts += [fact._replace(message_ids=(message.id,)) for fact in stated]
        for unit in told:
            entities += [entity._replace(message_ids=(message.id,)) for entity in _names(unit)]
    people: set[str] = set()
    for entity in entities:
        if entity.type == "person":
            people.update(stem(word) for word in fold(entity.name).split())
    kept, topics = _phrases(own, phrases, conversation_id, people)
    return records.Learned(
        facts=tuple(dict.fromkeys(facts)), entities=tuple(entities), topics=topics
    ), kept


def _read(text: str) -> list[str]:
    """Returns the sentences that a user wrote.

    None of what looks like a pasted document or asks for a text.
    """
    if len(text) > MOST_CHARACTERS:
        return []
    own = ENGLISH.not_said.sub("", without_pasted(text))
    if ENGLISH.asks_for_text.search(own):
        return []
    found = [unit for unit in _joined(units(own)) if not ENGLISH.no_sentence.search(unit)]
    return found if len(found) <= MOST_SENTENCES else []


def _joined(parts: Iterable[str]) -> list[str]:
    """Returns sentences without a break behind an abbreviation.

    "I live in St." and "Gallen." are one.
    """
    joined: list[str] = []
    for part in parts:
        if joined and _is_split_before(part, joined[-1]):
            joined[-1] = f"{joined[-1]} {part}"
        else:
            joined.append(part)
    return joined


def _is_split_before(part: str, before: str) -> bool:
    """Returns whether a text was split between two parts at a point that ended no sentence."""
    if ENGLISH.split_behind_title.search(before):
        return True
    if ENGLISH.begins_anew.match(part):
        return False
    if ENGLISH.split_behind_initial.search(before):
        return True
    return not part[0].isupper() and bool(ENGLISH.split_behind_short_form.search(before))


def played_in(
    said: Iterable[ReadMessage], passage: Passage = NO_PASSAGE
) -> tuple[list[str], Passage]:
    """Returns the ids of the user's messages in which a part is played, and the passage at the end.

    A passage begins where the user asks for it ("Let's play a text adventure."). It is over with
    the message that says so ("Stop the game."), with half an hour of silence, or after ten messages
    of the user without another sign of it.
    """
    played: list[str] = []
    left = passage.left
    last = passage.at
    for message in said:
        if not message.from_user:
            continue
        if left and last and message.at and message.at - last > NEW_SESSION_AFTER:
            left = 0
        last = message.at or last
        rest = ENGLISH.plays_ended.sub(" ", message.text)  # "Stop the role-play." begins none
        is_ended = rest != message.text or ENGLISH.plays_no_more.search(message.text)
        if ENGLISH.plays.search(rest):
            left = MOST_PLAYED
        elif not left:
            continue
        elif is_ended:
            left = 0
        elif ENGLISH.plays_on.search(message.text):
            left = MOST_PLAYED
        else:
            left -= 1
        played.append(message.id)
    return played, passage.model_copy(update={"left": left, "at": last})


def _told(text: str, read: Iterable[str]) -> Iterator[str]:
    """Yields sentences up to one behind which words of somebody else may stand.

    None of a verse, a mail, a table.
    """
    if ENGLISH.no_prose.search(text.strip()):
        return
    for unit in read:
        yield unit
        if ENGLISH.hands_over.search(unit):
            return
        if not ENGLISH.speaks.match(unit) and not ENGLISH.speaks.match(_opened(unit)):
            return


# Statements

_WRITTEN_OUT, _ONE_SLOT, _OF_KIN_ONCE = (
    [
        line.split(" > ")
        for line in ENGLISH[name].replace("{_BESIDE}", ENGLISH["beside_job"]).strip().split("\n")
    ]
    for name in ("written_out", "one_slot", "of_kin_once")
)
_RULES = ENGLISH["rules"].format(
    _ROLE=ENGLISH["role"], _THING=ENGLISH["thing"], _BESIDE=ENGLISH["beside_job"]
)
_READ_RULES = [
    (cast("FactCategory", kind.strip()), slot.strip(), re.compile(said.strip(), re.IGNORECASE))
    for kind, slot, said in (line.split("|", 2) for line in _RULES.strip().split("\n"))
]
_KIN = ENGLISH["kin"]
_OF_KIN = re.compile(ENGLISH["of_kin"].format(_KIN=_KIN, _ROLE=ENGLISH["role"]))
_PERSONS = dict(
    zip(*(ENGLISH[words].split() for words in ("first_person", "third_person")), strict=True)
)
_PERSON = re.compile(rf"\b(?!US\b)(?:{'|'.join(_PERSONS)})\b(?!\.)", re.IGNORECASE)
_THIRD = {"teach": "teaches", "study": "studies"}
_CARRY_NOTHING = {*_PERSONS, *ENGLISH["carry_nothing"].split()}
"""Words that a statement may lose on its way to the third person."""


def _stated_in(told: Sequence[str], read: Sequence[str]) -> Iterator[LearnedFact]:
    """Yields what the sentences `told` say of their writer.

    They are the first ones of those that were `read`.
    """
    for place, unit in enumerate(told):
        parts = _joined(sentences(unit))
        behind = [*parts[1:], *read[place + 1 : place + 2]]
        for part, following in zip_longest(parts, behind, fillvalue=""):
            if part:
                yield from _statements(part, following)


def _statements(sentence: str, following: str = "") -> Iterator[LearnedFact]:
    """Yields what a sentence says of the user who wrote it.

    The `following` one may limit it ("But only at night.").
    """
    if ENGLISH.unsure.search(sentence) or ENGLISH.takes_back.match(following):
        return
    written = sentence
    for pattern, full in _WRITTEN_OUT:
        written = re.sub(pattern, full, written, flags=re.IGNORECASE)
    said = _opened(written.rstrip(" .!"))
    limit = following if ENGLISH.limits_before.match(following) else ""
    whole = f"{sentence} {limit}".strip()
    if ENGLISH.call_me.match(said):
        yield _quoted(whole, "preference", "called")
    elif asked := ENGLISH.standing.fullmatch(said):
        yield _quoted(whole, "preference", _slot_of_wish(asked["do"]))
    else:
        clauses = takewhile(
            ENGLISH.own.match, filter(None, map(_opened, ENGLISH.clause_end.split(said)))
        )
        found = [*filter(None, map(_of_clause, clauses))]
        is_short_of_words = limit or ENGLISH.limits.search(written) or _loses(written, found)
        if found and (is_short_of_words or sentence.isupper()):  # "LIVEs IN BERLIN"
            slots = dict.fromkeys(fact.slot for fact in found if fact.slot)
            yield _quoted(whole, found[0].category, ", ".join(slots))
        else:
            yield from found


def _quoted(words: str, category: FactCategory, slot: str) -> LearnedFact:
    """Returns a fact that is the user's own words, as a quotation.

    A narrow one, which says when or where something holds, takes nothing's place. What is planned
    may have any time.
    """
    is_narrow = category != "project" and bool(ENGLISH.limits.search(words))
    text = records.quotation(words)
    return LearnedFact(
        text=text, category=category, slot=slot, confidence=STATED, is_narrow=is_narrow
    )


def _slot_of_wish(do: str) -> str:
    """Returns the slot of what the assistant is to do.

    The language or the length of its answers, else none.
    """
    first = ENGLISH.clause_end.split(do)[0]
    if re.search(r" in [A-Z]", first):
        return "answer language"
    return "answer length" if re.search(r"\b(?:short|brief|concise|long|detailed)\b", first) else ""


def _loses(sentence: str, found: Iterable[LearnedFact]) -> bool:
    """Returns whether the facts found in a sentence leave out any word of it.

    Courtesies and persons do not count.
    """
    while courtesy := ENGLISH.courtesy.match(sentence):
        sentence = sentence[courtesy.end() :]
    kept = {stem(word) for fact in found for word in ENGLISH.word.findall(fold(fact.text))}
    words = ENGLISH.word.findall(fold(ENGLISH.closing.sub("", sentence.rstrip(" .!"))))
    return not all(
        stem(_PERSONS.get(word, word)) in kept for word in words if word not in _CARRY_NOTHING
    )


def _stated(text: str, category: FactCategory, slot: str) -> LearnedFact:
    """Returns a fact with the third person for the first, and a capital."""
    bare = _PERSON.sub(lambda found: _PERSONS[found[0].lower()], text).strip(" ,.;:!")
    return LearnedFact(
        text=bare[:1].upper() + bare[1:], category=category, slot=slot, confidence=STATED
    )


def _opened(text: str) -> str:
    """Returns a text without greetings and conjunctions, and without a closing "too"."""
    while opening := ENGLISH.opening.match(text):
        text = text[opening.end() :]
    return ENGLISH.closing.sub("", text.strip())


def _of_clause(clause: str) -> LearnedFact | None:
    """Returns what a clause says of the user.

    None where no rule knows it, or it cannot be understood alone.
    """
    if ENGLISH.leaning.search(clause):
        return None
    if mine := ENGLISH.mine.fullmatch(clause):
        slot = fold(mine["what"])
        for pattern, name in _ONE_SLOT:
            slot = re.sub(pattern, name, slot)
        liked: FactCategory = "preference" if slot.startswith("favourite") else "identity"
        return _stated(
            f"{mine['what']} is {mine['value']}", "project" if mine["work"] else liked, slot
        )
    if kin := _OF_KIN.fullmatch(clause):
        return _stated(kin["said"], "identity", _slot_of_kin(kin))
    if own := ENGLISH.clause.fullmatch(clause):
        said = f"am {own['said']}" if own["am"] else own["said"]
        negation = "not" if own["not"] else (own["no"] or "").lower().replace("do not", "not")
        for category, slot, rule in _READ_RULES:
            if rule.match(said) or (negation and rule.match(f"do not {said}")):
                stated = _in_third_person(said, negation)
                if slot == "@":
                    return _stated(stated, category, _slot_of_liking(said))
                return _stated(stated, category, "" if negation else slot)
    return None


def _in_third_person(said: str, negation: str) -> str:
    verb, _, rest = said.partition(" ")
    if verb == "am":
        words = ["" if rest.partition(" ")[0].endswith("ing") else "is", negation, rest]
    elif verb == "cannot" or verb.endswith("ed"):
        words = [verb, rest]
    elif negation == "not":
        words = ["does not", verb, rest]
    else:
        words = [negation, _THIRD.get(verb, f"{verb}s"), rest]
    return " ".join(filter(None, words))


def _slot_of_kin(kin: re.Match[str]) -> str:
    """Returns the slot of what somebody has one of.

    Somebody is a partner, a parent, a boss, or a relative with a name.
    """
    who = re.sub(ENGLISH["partner"], "partner", kin["kin"].lower())
    named = (kin["named"] or "").replace(",", "")
    what = next((slot for said, slot in _OF_KIN_ONCE if re.match(said, kin["what"])), "")
    whose = ""
    if who in ENGLISH["only_one"].split():
        whose = who
    elif named:
        whose = f"{who}{named}"
    return f"{whose}: {what}" if whose and what else ""


def _slot_of_liking(said: str) -> str:
    """Returns the slot of something short that is liked; hating it later takes its place."""
    limit = ENGLISH.limits.search(said)
    said = said[: limit.start()] if limit else said
    words = terms(
        re.sub(
            r"^(?:am (?:\w+ \w+ fan of|\w+ about)|cannot \w+|\w+) | any ?(?:more|longer)$", "", said
        )
    )
    return f"prefers:{' '.join(words)}" if 0 < len(words) <= 3 else ""  # noqa: PLR2004 - a short thing


# Names

_NO_NAMES = STOP_WORDS.union(
    map(fold, (*calendar.day_name, *calendar.month_name, "yes", "yeah", "ok", "okay", "hey"))
)
_MY_KIN = re.compile(
    rf"\b(?i:my|our) (?P<kin>(?i:{_KIN}))"
    r"(?:,| is| is called| is named| named| called|'s name is)? $"
)
_IS_KIN = re.compile(
    rf"(?: is|,? who is|,(?= my [\w -]+,)) (?:my|our) (?!(?:best )?friend)(?P<kin>(?i:{_KIN}))\b"
)
_KINDS = [
    (cast("records.EntityType", kind.strip()), re.compile(said.lstrip(), re.IGNORECASE))
    for kind, said in (line.split("|", 1) for line in ENGLISH["kinds"].strip().split("\n"))
]


def _names(sentence: str) -> Iterator[records.LearnedEntity]:
    """Yields the capitalised runs that a sentence introduces.

    Whose relative it is, or what kind of thing.
    """
    capitals = [word[0].isupper() for word in sentence.split()]
    if sum(capitals) > len(capitals) / 2 + 1 or re.search(
        r"[\"\u201c\u201d\u00ab\u00bb]", sentence
    ):
        return  # a headline, one who shouts, or a quotation
    for run in ENGLISH.name.finditer(sentence):
        name = run[0]
        before = sentence[: run.start()]
        after = sentence[run.end() :]
        who = _MY_KIN.search(before) or _IS_KIN.match(after)
        kind = next((kind for kind, said in _KINDS if said.search(before)), None)
        if who:
            kind = "person"
        # "My sister, Ana, is here", but not "I asked my sister, Maybe she knows".
        is_aside = before.endswith(", ") and not re.match(r"[,.!]|$", after)
        if (
            kind
            and len(name) > 1
            and not is_aside
            and _NO_NAMES.isdisjoint(map(fold, name.split()))
        ):
            yield records.LearnedEntity(
                name=name, type=kind, relationship=who["kin"].lower() if who else ""
            )


# Recurring phrases

_NO_SUBJECTS = STOP_WORDS.union(ENGLISH["no_subjects"].split())


def _is_noun(word: str) -> bool:
    lower = word.lower()
    return lower not in _NO_SUBJECTS and not ENGLISH.no_noun.search(lower)


def _compounds(read: Iterable[str]) -> Iterator[str]:
    """Yields pairs and triples of nouns."""
    for sentence in read:
        for pair, third in ENGLISH.nouns.findall(sentence):
            first, second = pair.split()
            if not _is_noun(first) or not _is_noun(second):
                continue
            if not pair[0].isupper() and ENGLISH.quality.search(first):
                continue
            yield pair
            if third and third[1].isupper() == pair[0].isupper() and _is_noun(third.strip()):
                yield pair + third


def _phrases(
    own: Iterable[Read], before: Sequence[PhraseRecord], conversation_id: str, people: set[str]
) -> tuple[tuple[PhraseRecord, ...], tuple[records.LearnedTopic, ...]]:
    """Returns the most frequent and newest phrases so far, and the topics of these messages.

    A topic is a phrase that has come up on enough days or in enough conversations.
    """
    kept = {record.phrase: record for record in before}
    heard = defaultdict[str, dict[str, str]](dict)
    for message, read in own:
        day = message.at.date().isoformat() if message.at else ""
        source = Source(
            conversation_id=conversation_id, message_id=message.id, digest=message.digest, day=day
        )
        for label in _compounds(read):
            key = " ".join(map(stem, re.findall(r"[^\W_]+", label.lower())))
            heard[key][message.id] = label
            record = kept.setdefault(
                key, PhraseRecord(phrase=key, label=label[0].upper() + label[1:])
            )
            if len(record.sources) < MOST_SEEN and source not in record.sources:
                kept[key] = record.model_copy(update={"sources": (*record.sources, source)})
    topics = {}
    for key, messages in heard.items():
        occasions = {(one.conversation_id, one.day) for one in kept[key].sources}
        if len(occasions) >= TOPIC_OCCASIONS and people.isdisjoint(key.split()):
            forms = tuple(
                dict.fromkeys(messages.values())
            )  # the plural, and what else it is called
            topics[key] = records.LearnedTopic(
                label=kept[key].label, aliases=forms, message_ids=tuple(messages)
            )
    longer = {key.rpartition(" ")[0] for key in topics}
    newest = sorted(
        kept.values(),
        key=lambda one: (len(one.sources) > 1, max(s.day for s in one.sources), one.phrase),
    )
    remembered = tuple(sorted(newest[-MOST_KEPT:], key=lambda one: one.phrase))
    return remembered, tuple(topic for key, topic in topics.items() if key not in longer)
