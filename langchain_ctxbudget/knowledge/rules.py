"""Learning without a model: what users say of themselves, names as they are written, and recurring phrases.

What was pasted teaches nothing, and neither does a message that is too long to be talk.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from langchain_ctxbudget.knowledge.records import (
    EntityType,
    Learned,
    LearnedEntity,
    LearnedFact,
    LearnedTopic,
    PhraseRecord,
    Said,
    Source,
)
from langchain_ctxbudget.knowledge.statements import KIN, KIN_CLAUSE, LEANING, TASK, UNSURE, statements, third
from langchain_ctxbudget.messages import STOP_WORDS, fold, remembering, stem, units, without_pasted
from langchain_ctxbudget.tokens import vocab

MOST_CHARACTERS, MOST_SENTENCES = 2_000, 20
"""A longer message is a document that was pasted without a mark: it teaches nothing."""
TOPIC_MESSAGES, TOPIC_CONVERSATIONS = 3, 2
"""A phrase of so many messages, or a compound of so many conversations, is a topic."""
NEARLY_AS_OFTEN = 0.6
"""A phrase is no topic of its own where a longer one has this share of its messages."""
MOST_KEPT, MOST_SOURCES, MOST_COUNTED = 200, 3, 8
"""Phrases kept of a user; messages and conversations kept of a phrase."""
MOST_WORDS = 3
COMMON_RANK, RARE_RANK = 2_000, 7_000
"""Ranks in o200k_base, lower the more common a word is: no phrase has a word below the first, and every phrase has one
from the second on."""


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
        >>> learned, phrases = learn([Said(id="m1", digest="", text="My hiking trip is in May.")], (), "c1")
        >>> [phrase.phrase for phrase in phrases]
        ['hike', 'hike trip', 'trip']
        >>> learned, phrases = learn(
        ...     [Said(id="m2", digest="", text="Where does the hiking trip begin?")], phrases, "c2"
        ... )
        >>> [topic.label for topic in learned.topics]
        ['Hiking trip']
    """
    own = [(message, _read(message.text)) for message in {one.id: one for one in said if one.from_user}.values()]
    entities = _entities(own)
    heard, kept = _heard(own), {record.phrase: record for record in phrases}
    for key, phrase in heard.items():
        kept[key] = _counted(kept.pop(key, PhraseRecord(phrase=key, label="")), phrase, conversation_id)
    named = _words_of_names(entities)
    records = [record for key, record in kept.items() if named.isdisjoint((key, *key.split()))]
    topics = _topics(records, heard, conversation_id)
    # Those of many messages stay, and those that came up last.
    promise = sorted(range(len(records)), key=lambda at: _messages(records[at]) ** 2 / (len(records) - at))
    most_promising = tuple(records[at] for at in sorted(promise[-MOST_KEPT:]))
    return Learned(facts=_facts(own), entities=entities, topics=topics), most_promising


Read = tuple[Said, Sequence[str]]
"""A message and its sentences."""
_NO_SENTENCE = re.compile(r"^\[.*\]$|[{}=<>|\\%]|;$", re.DOTALL)


def _read(text: str) -> list[str]:
    """Returns the sentences that a user wrote; none of what looks like a pasted document."""
    if len(text) > MOST_CHARACTERS:
        return []
    found = [unit for unit in units(without_pasted(text)) if not _NO_SENTENCE.search(unit)]
    return found if len(found) <= MOST_SENTENCES else []


def _facts(own: Iterable[Read]) -> tuple[LearnedFact, ...]:
    """Returns the statements of messages, in the order in which they were said last; the same one is one fact."""
    facts: dict[tuple[str, bool], LearnedFact] = {}
    for message, read in own:
        for one in dict.fromkeys(statements(read)):
            if one.ends and message.at is None:
                continue  # Nothing can end at an unknown time.
            known = facts.pop((fold(one.text), one.ends), None)
            facts[fold(one.text), one.ends] = LearnedFact(
                text=one.text,
                category=one.category,
                confidence=one.confidence,
                slot=one.slot,
                message_ids=_union(known.message_ids if known else (), (message.id,)),
                valid_until=message.at if one.ends else None,
            )
    return tuple(facts.values())


# Names

_RUN = r"(?:(?:Dr|Mrs?|Ms|Prof|St)\. )?(?![A-Z]+ of )[A-Z][\w-]*(?:(?: & | of the | of | )[A-Z][\w-]*)*"
_RUNS = re.compile(rf"{_RUN}(?!['\u2019](?!s\b))")
_DATES = (*calendar.day_name, *calendar.day_abbr, *calendar.month_name, *calendar.month_abbr)
_NO_NAMES = frozenset(map(fold, (*_DATES, "Christmas", "Easter", "God", "TV")))
_ADJECTIVE = re.compile(r"(?:ish|ese|ian|French|German|Dutch|Greek|PhD)$")
"""Languages and nationalities, which are written like names."""
_PLACE = re.compile(r"\b(?:in|to|from|near|at|around|across) (?:the )?$")
"""What stands behind these is most often a place, which is no kind of entity."""
_DOES = re.compile(r" (?:likes|loves|wants|lives|thinks|says|said|called)\b")
"""What only people do."""
_OF_KIN = re.compile(rf"\b(?i:my|our) (?P<kin>(?i:{KIN}))(?:,| is| is called| is named| named| called|'s name is)? $")
_IS_KIN = re.compile(rf"(?:,| is|,? who is) (?:my|our) (?P<kin>(?i:{KIN}))\b")
_CALLED = "(?: is| is called|,? called| named)?"
_KINDS: tuple[tuple[EntityType, re.Pattern[str]], ...] = (
    ("person", re.compile(r"\b(?i:talk(?:ed|ing)? to|meeting with|met|(?:lunch|coffee|dinner) with) $")),
    ("project", re.compile(rf"\b(?i:(?:project|app|game|novel|book|blog|podcast){_CALLED}) $")),
    ("organization", re.compile(rf"\b(?i:(?:company|band|shop|agency|firm|label|publisher|startup){_CALLED}) $")),
    ("organization", re.compile(r"\b(?i:work(?:s|ed|ing)? (?:at|for)|join(?:ed|ing)?|\w+(?:er|or|yst|nurse) at) $")),
    (
        "tool",
        re.compile(r"\b(?i:us(?:e|es|ed|ing)|switch(?:ed|ing)? to|runs? on|built? (?:it )?(?:in|with)|written in) $"),
    ),
)


def _entities(own: Iterable[Read]) -> tuple[LearnedEntity, ...]:
    """Returns the names in messages; what is named twice is one entity, of the kind that the text gave it anywhere."""
    entities: dict[str, LearnedEntity] = {}
    for message, read in own:
        for sentence in read:
            if TASK.match(sentence):
                break
            for new in _names(sentence, message.id):
                known = entities.get(fold(new.name), new)
                entities[fold(new.name)] = LearnedEntity(
                    name=known.name,
                    type=new.type if known.type == "concept" else known.type,
                    relationship=new.relationship or known.relationship,
                    attributes=tuple((dict(known.attributes) | dict(new.attributes)).items()),
                    facts=_union(known.facts, new.facts),
                    message_ids=_union(known.message_ids, new.message_ids),
                )
    return tuple(entities.values())


def _names(sentence: str, message_id: str) -> Iterator[LearnedEntity]:
    """Yields the capitalised runs inside a sentence; one at its beginning only where it is surely one."""
    words = sentence.split()
    if (
        re.search(r"[\"\u201c\u201d\u00ab\u00bb]", sentence)
        or sum(word[0].isupper() for word in words) > len(words) / 2 + 1
    ):
        return  # a quotation, a headline, or shouting
    is_told = not sentence.endswith("?") and not UNSURE.search(sentence)
    for run in _RUNS.finditer(sentence):
        name, before = run[0], sentence[: run.start()]
        of_kin = _OF_KIN.search(before)
        who = of_kin or _IS_KIN.match(sentence[run.end() :])
        is_person = who or _DOES.match(sentence, run.end())
        kind: EntityType = next((kind for kind, said in _KINDS if said.search(before)), "concept")
        kind = "person" if is_person else kind
        if kind == "concept" and _PLACE.search(before):
            continue
        if not (is_person or re.search(r"[\w,'\u2019] $", before)) or not _can_be_name(
            name, is_surely=kind != "concept"
        ):
            continue
        clause = KIN_CLAUSE.match(sentence[of_kin.start() :]) if is_told and of_kin else None
        is_clear = clause and clause["name"] == name and not LEANING.search(clause["said"])
        said = clause["said"].rstrip(" .!") if clause and is_clear else ""
        where = re.fullmatch(rf"lives (?:in|near) ({_RUN})", said)
        yield LearnedEntity(
            name=name,
            type=kind,
            relationship=who["kin"].lower() if who else None,
            attributes=(("location", where[1]),) if where else (),
            facts=(third(f"{name} {said}"),) if said else (),
            message_ids=(message_id,),
        )


def _can_be_name(name: str, *, is_surely: bool) -> bool:
    words = [fold(word) for word in name.split()]
    if len(name) == 1 or words[0] in STOP_WORDS or any(word.removesuffix("s") in _NO_NAMES for word in words):
        return False
    # What is more common without its capital is hardly a name.
    are_common = all(_rank(word.lower()) < _rank(word) for word in name.split())
    return is_surely or not (name.isupper() or _ADJECTIVE.search(name) or are_common)


def _words_of_names(entities: Iterable[LearnedEntity]) -> set[str]:
    """Returns the keys of names, and all words of people's names, which are in no phrase."""
    names = {_key(entity.name): entity.type for entity in entities}
    words = {word for name, kind in names.items() if kind == "person" for word in name.split()}
    return {name for name, kind in names.items() if " " in name or kind == "person"} | words


# Recurring phrases

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|\d+|[^\w\s]")
_NO_WORDS = re.compile(r"`[^`\n]*`|\[[^\]\n]*\]|[^\s,;()]*(?:://|[@#\\_/=<>{}$%]|\w\.\w|\(\))[^\s,;()]*")
_NO_NOUN = re.compile(r"'|^favou?rite$|(?:ly|ful|ous|ible|less|[^\W_]{3}(?<!e)ed)$")
_ARTICLES = frozenset(("a", "an", "the", "my", "our", "this", "for", "about", "of", "with", "in", "on"))
"""A compound stands behind one of these, with at most one common word between."""
_DEFINITE = frozenset(("the", "my", "our"))
"""A single word stands behind one of these."""


@remembering(16_384)
def _rank(word: str) -> int:
    """Returns the rank of a word in o200k_base: the lower, the more common; one of several tokens is rare."""
    tokens = vocab.encoding().encode_ordinary(f" {word}")
    return tokens[0] if len(tokens) == 1 else vocab.TOKENS


def _key(label: str) -> str:
    """Returns the stems of a phrase: one key for all of its forms."""
    return " ".join(map(stem, re.findall(r"[^\W_]+", label.lower())))


def _phrases(read: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """Returns the phrases of one to three words in a message, by key: the label, and whether it is surely a noun."""
    found: dict[str, tuple[str, bool]] = {}
    for run, before in _runs(read):
        for start in range(len(run)):
            for end in range(start + 1, min(len(run), start + MOST_WORDS) + 1):
                label = " ".join(run[start:end])
                if max(_rank(word.lower()) for word in run[start:end]) < RARE_RANK:
                    continue
                is_noun = before & _ARTICLES if " " in label else before & _DEFINITE and end == len(run)
                known, was_noun = found.get(_key(label), (label[0].upper() + label[1:], False))
                found[_key(label)] = known, was_noun or bool(is_noun)
    return found


def _runs(read: Iterable[str]) -> Iterator[tuple[list[str], set[str]]]:
    """Yields the words between those that are in no phrase, and the two words before them."""
    for sentence in read:
        tokens = _WORD.findall(_NO_WORDS.sub(" , ", sentence))
        lowered = [token.lower().replace("\u2019", "'") for token in tokens]
        if len(tokens) > 2 * MOST_WORDS and not STOP_WORDS.intersection(lowered):
            continue  # another language
        begin = 0
        for at, word in enumerate([*lowered, "."]):
            is_in = len(word) > 1 and word[0].isalpha() and word not in STOP_WORDS and not _NO_NOUN.search(word)
            if not is_in or _rank(word) < COMMON_RANK:
                is_exclaimed = at == 1 and not word[0].isalnum()  # "Thanks!"
                yield [] if is_exclaimed else tokens[begin:at], set(lowered[max(0, begin - 2) : begin])
                begin = at + 1


@dataclass(slots=True)
class _Heard:
    """A phrase in the messages that are read now."""

    labels: list[str] = field(default_factory=list)
    noun: str = ""
    """The first label that is surely a noun phrase."""
    new: list[Said] = field(default_factory=list)
    """Messages with it; those that were counted before are taken out."""
    was_topic: bool = False


def _heard(own: Iterable[Read]) -> dict[str, _Heard]:
    """Returns the phrases of messages by key, those that come up last at the end."""
    found: dict[str, _Heard] = {}
    for message, read in own:
        for key, (label, is_noun) in _phrases(read).items():
            found[key] = heard = found.pop(key, None) or _Heard()
            heard.labels.append(label)
            heard.noun = heard.noun or (label if is_noun else "")
            heard.new.append(message)
    return found


def _messages(record: PhraseRecord) -> int:
    return sum(count for _, count in record.counts)


def _is_topic(record: PhraseRecord) -> bool:
    """Tells that a phrase comes up often enough; a single word, more easily met by chance, by its messages only."""
    is_known = " " in record.phrase and len(record.counts) >= TOPIC_CONVERSATIONS
    return bool(record.label) and (is_known or _messages(record) >= TOPIC_MESSAGES)


def _counted(record: PhraseRecord, heard: _Heard, conversation_id: str) -> PhraseRecord:
    """Adds the messages that are new to a phrase; what stands before one that is known was counted as well."""
    record = record.model_copy(update={"label": record.label or heard.noun})
    heard.was_topic = _is_topic(record)
    known = {source.message_id for source in record.sources if source.conversation_id == conversation_id}
    last = max((at for at, message in enumerate(heard.new) if message.id in known), default=-1)
    heard.new = heard.new[last + 1 :]
    if not heard.new:
        return record
    counts = dict(record.counts)
    counts[conversation_id] = counts.pop(conversation_id, 0) + len(heard.new)
    newest = heard.new[-MOST_SOURCES:]
    sources = (Source(conversation_id=conversation_id, message_id=one.id, digest=one.digest) for one in newest)
    return record.model_copy(
        update={
            "counts": tuple(counts.items())[-MOST_COUNTED:],
            "last_at": max((at for at in (record.last_at, *(one.at for one in heard.new)) if at), default=None),
            "sources": (*record.sources, *sources)[-MOST_SOURCES:],
        }
    )


def _topics(
    records: Iterable[PhraseRecord], heard: Mapping[str, _Heard], conversation_id: str
) -> tuple[LearnedTopic, ...]:
    """Returns the recurring phrases that came up now, without those that are only part of a longer one."""
    recurring = {record.phrase: record for record in records if _is_topic(record)}
    for record in list(recurring.values()):
        for part in _parts(record.phrase):
            if part in recurring and _messages(record) >= NEARLY_AS_OFTEN * _messages(recurring[part]):
                del recurring[part]
    topics = []
    for key, record in recurring.items():
        if key not in heard or not heard[key].new:
            continue
        earlier = () if heard[key].was_topic else record.sources
        before = (source.message_id for source in earlier if source.conversation_id == conversation_id)
        labels = dict.fromkeys(heard[key].labels)
        topic = LearnedTopic(
            label=record.label,
            aliases=tuple(label for label in labels if label != record.label),
            parent=next((recurring[part].label for part in _parts(key) if part in recurring), None),
            message_ids=_union(before, (message.id for message in heard[key].new)),
        )
        topics.append(topic)
    return tuple(topics)


def _parts(phrase: str) -> list[str]:
    """Returns the shorter phrases in a phrase, the longest first."""
    words = phrase.split()
    sizes = range(len(words) - 1, 0, -1)
    return [" ".join(words[at : at + size]) for size in sizes for at in range(len(words) - size + 1)]


def _union(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
