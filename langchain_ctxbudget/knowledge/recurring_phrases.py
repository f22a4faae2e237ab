"""Topics without a model: phrases that recur in what a user says.

A phrase is two or three nouns in a row. It becomes a topic once it has come up on enough days or in
enough conversations. Which words are nouns, rules of English tell.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from langchain_ctxbudget.knowledge.own_statements import STATEMENT_POLICY
from langchain_ctxbudget.knowledge.records import (
    ENGLISH,
    LearnedTopic,
    PhraseRecord,
    ReadMessage,
    Source,
)
from langchain_ctxbudget.messages import STOP_WORDS, stem, units


@dataclass(frozen=True, slots=True, kw_only=True)
class PhrasePolicy:
    """When a phrase is a topic, and what is kept of phrases."""

    fewest_occasions: int = 3
    """Days or conversations on which a phrase must come up to be a topic."""
    most_sources: int = 8
    """Messages that are kept of a phrase."""
    most_kept: int = 200
    """Phrases that are kept of a user."""


PHRASE_POLICY = PhrasePolicy()
_NO_SUBJECTS = STOP_WORDS.union(ENGLISH["no_subjects"].split())


class Recurring(NamedTuple):
    """The topics of some messages, and the phrases of all messages so far."""

    topics: tuple[LearnedTopic, ...]
    phrases: tuple[PhraseRecord, ...]
    """Those that are kept: the ones that came up more than once, then the newest."""


def recurring(
    messages: Iterable[ReadMessage], known: Sequence[PhraseRecord], conversation_id: str
) -> Recurring:
    """Returns the topics of some messages, and the phrases once these are counted in.

    Args:
        messages: The messages of one conversation; those of the user count.
        known: The phrases so far.
        conversation_id: The conversation.
    """
    phrases = {record.phrase: record for record in known}
    labels = defaultdict[str, dict[str, str]](dict)
    for message in messages:
        if not message.from_user or _is_document(message.text):
            continue
        source = _source_of(message, conversation_id)
        for label in _compounds(units(message.text)):
            key = _key_of(label)
            record = phrases.get(key) or _new_record(key, label)
            labels[key][message.id] = label
            phrases[key] = _with_source(record, source)
    return Recurring(topics=_topics(labels, phrases), phrases=_kept(phrases.values()))


def _is_document(text: str) -> bool:
    """Tells whether a message is so long that it was pasted, without a mark that says so."""
    return len(text) > STATEMENT_POLICY.most_message_characters


def _source_of(message: ReadMessage, conversation_id: str) -> Source:
    day = message.at.date().isoformat() if message.at else ""
    return Source(
        conversation_id=conversation_id, message_id=message.id, digest=message.digest, day=day
    )


def _key_of(label: str) -> str:
    """Returns the stems of a phrase: one key for all of its forms."""
    return " ".join(stem(word) for word in re.findall(r"[^\W_]+", label.lower()))


def _new_record(key: str, label: str) -> PhraseRecord:
    return PhraseRecord(phrase=key, label=label[0].upper() + label[1:])


def _with_source(record: PhraseRecord, source: Source) -> PhraseRecord:
    """Returns the record of a phrase once it has come up in one more message."""
    if len(record.sources) >= PHRASE_POLICY.most_sources or source in record.sources:
        return record
    return record.model_copy(update={"sources": (*record.sources, source)})


def _topics(
    labels: Mapping[str, Mapping[str, str]], phrases: Mapping[str, PhraseRecord]
) -> tuple[LearnedTopic, ...]:
    """Returns the topics among phrases, without those with which a longer topic begins.

    Args:
        labels: How each message writes a phrase, by phrase.
        phrases: The records of all phrases.
    """
    topics: dict[str, LearnedTopic] = {}
    for key, by_message in labels.items():
        sources = phrases[key].sources
        occasions = {(source.conversation_id, source.day) for source in sources}
        if len(occasions) >= PHRASE_POLICY.fewest_occasions:
            topics[key] = LearnedTopic(
                label=phrases[key].label,
                aliases=tuple(dict.fromkeys(by_message.values())),
                message_ids=tuple(by_message),
            )
    beginnings = {key.rpartition(" ")[0] for key in topics}
    return tuple(topic for key, topic in topics.items() if key not in beginnings)


def _kept(phrases: Iterable[PhraseRecord]) -> tuple[PhraseRecord, ...]:
    """Returns the phrases that are kept: those that came up more than once, then the newest."""

    def rank(record: PhraseRecord) -> tuple[bool, str, str]:
        newest_day = max(source.day for source in record.sources)
        return len(record.sources) > 1, newest_day, record.phrase

    best = sorted(phrases, key=rank)[-PHRASE_POLICY.most_kept :]
    return tuple(sorted(best, key=lambda record: record.phrase))


def _compounds(sentences: Iterable[str]) -> Iterator[str]:
    """Yields two or three nouns in a row."""
    for sentence in sentences:
        for pair, third in ENGLISH.nouns.findall(sentence):
            if not _is_subject(pair):
                continue
            yield pair
            is_same_case = third[1:2].isupper() == pair[0].isupper()
            if third and is_same_case and _is_noun(third.strip()):
                yield pair + third


def _is_subject(pair: str) -> bool:
    """Tells whether two words are a subject: nouns, the first of which is no adjective."""
    first, second = pair.split()
    if not _is_noun(first) or not _is_noun(second):
        return False
    return pair[0].isupper() or not ENGLISH.quality.search(first)


def _is_noun(word: str) -> bool:
    """Tells whether a word is probably a noun, by its ending and a list of words that are none."""
    lower = word.lower()
    return lower not in _NO_SUBJECTS and not ENGLISH.no_noun.search(lower)
