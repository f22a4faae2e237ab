"""The knowledge of a user.

One frozen value, read once, kept in this process until its mark changes, and written.

The value is never changed, only replaced: a prompt that is being made goes on with what it began
with.

Of the ways from a message to a topic or an entity, the surest counts: its name stands in the
message; the message has all terms of a name; the message's vector is far nearer to it than to the
others; it was named just before.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from heapq import nlargest
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from langgraph.store.base import BaseStore
from numpy.typing import NDArray

from langchain_ctxbudget.errors import StoreError
from langchain_ctxbudget.flow import Flow, Lock, batch
from langchain_ctxbudget.knowledge import records
from langchain_ctxbudget.knowledge.profiles import OF_FACTS, Compiler, importance_at
from langchain_ctxbudget.knowledge.records import (
    EntityProfile,
    Fact,
    PhraseRecord,
    Profile,
    TopicProfile,
)
from langchain_ctxbudget.messages import MARKS, STOP_WORDS, UNSPACED, terms
from langchain_ctxbudget.search import Vectors, units
from langchain_ctxbudget.stores import bulk, new_token, utc, written
from langchain_ctxbudget.worker import keep_newest, new_mutex

KEPT_USERS = 64
"""Users of a store whose knowledge stays in memory; the one not asked for longest goes first."""
ERASED = "All that was known of the user was erased elsewhere at the same moment: nothing is kept"
MOST_ITEMS = 1_000
"""Ended facts, topics, and entities that are kept of a user: those that ended last, and the most
important ones."""
Vector = NDArray[Any]
How = Literal["name", "alias", "terms", "similar", "salient"]
MIN_CONFIDENCE = 0.35
NAME = 1.0
ALIAS = 0.9
TERMS = 0.8
MOST_BY_VECTOR = 0.7
"""Confidence by each way; by vectors, a share of it."""
OUTSTANDING = 3.0
NEAR = 0.5
SMALLEST_DEVIATION = 0.05
"""Deviations above the mean of the others, the least cosine, and the least deviation."""
SALIENT = 0.7
FADING = 0.8
"""Confidence by having been named in the message before (seed 004), and the share of it left one
message later."""
DECIMALS = 6
_TOKEN = re.compile(rf"\s+|(?:[^\W{UNSPACED}]|[{MARKS}])+|.", re.DOTALL)
_ASCII_TOKEN = re.compile(r"\s+|[A-Za-z0-9_]+|.", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Everything known about one user."""

    mark: records.KnowledgeMark = field(default_factory=lambda: records.KnowledgeMark(mark=""))
    """The token of the version that was read; empty where nothing is stored."""
    facts: tuple[Fact, ...] = ()
    ended: tuple[Fact, ...] = ()
    topics: tuple[TopicProfile, ...] = ()
    entities: tuple[EntityProfile, ...] = ()
    bundles: Mapping[str, records.ContextBundle] = field(default_factory=dict)
    is_read: bool = True
    """False: reading failed, so nothing follows from an item that is missing."""
    links: Mapping[tuple[str, str], records.TopicConversation] = field(default_factory=dict)
    phrases: tuple[PhraseRecord, ...] = ()

    @cached_property
    def topic_detector(self) -> "Detector":
        """Finds topics in a message."""
        return detector(self.topics, self.vectors_made_by)

    @cached_property
    def entity_detector(self) -> "Detector":
        """Finds entities in a message."""
        return detector(self.entities, self.vectors_made_by)

    @cached_property
    def by_id(self) -> dict[str, Fact | Profile]:
        """Current facts, topics and entities by id."""
        return {item.id: item for item in (*self.facts, *self.profiles)}

    @cached_property
    def names_by_id(self) -> dict[str, tuple[str, ...]]:
        """The names of topics and entities by id."""
        return {profile.id: profile.names for profile in self.profiles}

    @cached_property
    def vectors_made_by(self) -> tuple[str, int] | None:
        """The model and dimensions of the vectors that a message can be compared with.

        None without any.
        """
        return next(
            (
                (one.embedding_model or "", len(one.embedding))
                for one in self.profiles
                if one.embedding
            ),
            None,
        )

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """Topics, then entities."""
        return (*self.topics, *self.entities)

    @cached_property
    def by_hand(self) -> "Knowledge":
        """Only the items that the user or the application wrote by hand."""
        facts = tuple(one for one in self.facts if one.made_by == records.BY_USER)
        topics = tuple(
            one for one in self.topics if one.made_by == records.BY_USER and not one.sources
        )
        entities = tuple(
            one for one in self.entities if one.made_by == records.BY_USER and not one.sources
        )
        compiler = Compiler(now=datetime.min.replace(tzinfo=UTC))
        made = [*map(compiler.topic, topics), *map(compiler.entity, entities)]
        made += [compiler.of_facts(kind, facts) for kind in OF_FACTS]
        made += [text for text in self.bundles.values() if text.bundle_type == "composite"]
        return replace(
            self,
            facts=facts,
            topics=topics,
            entities=entities,
            bundles={one.id: one for one in made},
        )

    def with_facts(self, every: Iterable[Fact]) -> "Knowledge":
        """Returns the same with these facts, current ones and others."""
        given = list(every)
        current, ended = (
            tuple(fact for fact in given if fact.is_current is which) for which in (True, False)
        )
        return replace(self, facts=current, ended=ended)


NOTHING = Knowledge()


# What a message is about


class Detectable(NamedTuple):
    """A thing that can be detected, with its label and then its aliases as names."""

    id: str
    names: tuple[str, ...]
    importance: float = 0.5


class Detection(NamedTuple):
    """A thing that a message is about: confidence from 0 to 1, and the way that gave it."""

    id: str
    confidence: float
    how: How


class Detector:
    """Finds things by name, terms and vector; built once and asked for many messages.

    `vectors` has one row per thing, of length 1, zeros where there is none.
    """

    def __init__(self, things: Sequence[Detectable], vectors: Vectors | None = None) -> None:
        self._things = tuple(things)
        self._vectors = np.zeros((0, 0), np.float32) if vectors is None else vectors
        self._with_vector = np.flatnonzero(self._vectors.any(axis=1))
        self._names: defaultdict[tuple[str, ...], dict[int, bool]] = defaultdict(dict)
        """For the tokens of each name its things, and if it is the label."""
        self._terms: defaultdict[str, list[tuple[int, frozenset[str]]]] = defaultdict(list)
        """For one term of each name its thing, and all terms."""
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for number, thing in enumerate(things):
            for place, name in enumerate(thing.names):
                if needed := frozenset(terms(name)):
                    self._terms[min(needed)].append((number, needed))
                tokens = tuple(_tokens(name.strip()))
                if tokens and not (
                    len(tokens) == 1 and tokens[0] in STOP_WORDS
                ):  # "it" names nothing
                    lengths[tokens[0]].add(len(tokens))
                    self._names[tokens].setdefault(number, place == 0)
        self._lengths = {token: sorted(known, reverse=True) for token, known in lengths.items()}

    def __len__(self) -> int:
        """Returns how many things there are to find."""
        return len(self._things)

    def detect(
        self, message: str, *, query: Vector | None = None, recent: Sequence[str] = ()
    ) -> list[Detection]:
        """Finds the things that a message is about.

        The surest first, then those named more often, then by importance.

        `query` is its vector, where vectors are compared; what `recent` messages (newest last) name counts
        `0.7 * confidence * 0.8 ** ago`.
        """
        named = self._named(message)
        said = set(terms(message)) if self._terms else set[str]()
        by_terms = (
            one for term in said & self._terms.keys() for one in self._terms[term] if one[1] <= said
        )
        found: list[tuple[int, float, How]] = [
            *(
                (thing, *((NAME, "name") if is_label else (ALIAS, "alias")))
                for thing, (is_label, _) in named.items()
            ),
            *((thing, TERMS, "terms") for thing, _ in by_terms),
            *((thing, confidence, "similar") for thing, confidence in self._similar(query)),
            *(
                (thing, SALIENT * FADING**ago * (NAME if is_label else ALIAS), "salient")
                for ago, earlier in enumerate(reversed(recent))
                for thing, (is_label, _) in self._named(earlier).items()
            ),
        ]
        best: dict[int, tuple[float, How]] = {}
        for thing, confidence, how in found:
            rounded = round(confidence, DECIMALS)
            if rounded >= MIN_CONFIDENCE and rounded > best.get(thing, (0.0, how))[0]:
                best[thing] = rounded, how

        def rank(thing: int) -> tuple[float, int, float, str]:
            known = self._things[thing]
            return -best[thing][0], -named.get(thing, (False, 0))[1], -known.importance, known.id

        return [Detection(self._things[thing].id, *best[thing]) for thing in sorted(best, key=rank)]

    def named(self, message: str) -> list[str]:
        """Returns the ids of the things whose names stand in a message, in the order of the things."""
        return [self._things[thing].id for thing in sorted(self._named(message))]

    def _named(self, message: str) -> dict[int, tuple[bool, int]]:
        """Returns each thing that a message names: if by its label, and how often.

        No name inside a longer one.
        """
        found: dict[int, tuple[bool, int]] = {}
        compared = _tokens(message) if self._lengths else []
        covered = 0
        for start, token in enumerate(compared):
            for end in (start + length for length in self._lengths.get(token, ())):
                if named := self._names.get(tuple(compared[start:end])) if end > covered else None:
                    covered = end
                    for thing, is_label in named.items():
                        label, times = found.get(thing, (False, 0))
                        found[thing] = (label or is_label, times + 1)
                    break
        return found

    def _similar(self, query: Vector | None) -> Iterator[tuple[int, float]]:
        """Yields things whose vectors stand out against all others; one alone cannot."""
        rows = self._with_vector
        if query is None or len(rows) < 2:  # noqa: PLR2004 - itself and another one
            return
        [aim] = units(np.asarray([query], np.float32))
        cosines = np.round(
            np.einsum("ij,j->i", self._vectors, aim)[rows].astype(np.float64), DECIMALS
        )
        others = len(cosines) - 1
        mean = (cosines.sum() - cosines) / others
        variance = ((cosines**2).sum() - cosines**2) / others - mean**2
        deviation = np.maximum(np.sqrt(np.maximum(variance, 0)), SMALLEST_DEVIATION)
        for place in np.flatnonzero(
            (cosines >= NEAR) & (cosines >= mean + OUTSTANDING * deviation)
        ):
            yield int(rows[place]), MOST_BY_VECTOR * min(1.0, float(cosines[place]))


def _tokens(text: str) -> list[str]:
    """Splits a text into folded words, white space and other characters.

    Without spaces, every character is one.
    """
    written = (_ASCII_TOKEN if text.isascii() else _TOKEN).findall(
        unicodedata.normalize("NFKC", text)
    )
    return [" " if token.isspace() else token.casefold() for token in written]


def detector(profiles: Sequence[Profile], made_by: tuple[str, int] | None = None) -> Detector:
    """Makes a detector by names, terms and vectors.

    Of two found as surely, the more important one comes first.
    """
    newest = max(
        (utc(one.last_engaged_at) for one in profiles if one.last_engaged_at), default=None
    )
    none = (0.0,) * (made_by[1] if made_by else 0)
    rows = [
        one.embedding if (one.embedding_model, len(one.embedding)) == made_by else none
        for one in profiles
    ]
    named = [
        Detectable(one.id, one.names, importance_at(one, newest) if newest else 0.0)
        for one in profiles
    ]
    return Detector(
        named, np.asarray(rows, np.float32).reshape(len(rows), -1) if rows and made_by else None
    )


# Kept in this process


@dataclass(slots=True, eq=False)
class Kept:
    """The knowledge of one user in this process.

    An erasure of something of the user makes another one.
    """

    knowledge: Knowledge | None = None
    uses: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """How often which bundle was a hit (True) or a miss since that was written last."""


_stores: WeakKeyDictionary[BaseStore, dict[str, Kept]] = WeakKeyDictionary()
_mutex = new_mutex()
_locks: WeakValueDictionary[tuple[int, str], Lock] = WeakValueDictionary()


def kept_of(store: BaseStore, user_id: str) -> Kept:
    """Returns the cache of a user.

    Work that was begun with an earlier cache must not be written.
    """
    with _mutex:
        users = _stores.setdefault(store, {})
        return keep_newest(users, user_id, users.get(user_id) or Kept(), KEPT_USERS)


def lock_of(store: BaseStore, user_id: str) -> Lock:
    """Returns the lock to hold while a user's knowledge is changed, shared by every pipeline of this process."""
    with _mutex:  # it lives while somebody holds it or waits for it, and so does the store
        return _locks.setdefault((id(store), user_id), Lock())


def interrupted(store: BaseStore, user_id: str) -> None:
    """Drops a user's cache because data is erased.

    Work under way is not written, and knowledge is read anew.
    """
    with _mutex:
        _stores.get(store, dict[str, Kept]()).pop(user_id, None)


def note_use(store: BaseStore, user_id: str, used: Mapping[str, bool]) -> None:
    """Counts the bundles of a prompt, and whether it could use each as it is.

    Written with the next change.
    """
    kept_of(store, user_id).uses.update([*used.items()])


# Read and written


def read(
    store: BaseStore, user_id: str, found: object = None, *, marked: bool = False
) -> Flow[Knowledge]:
    """Reads the knowledge about a user if its mark has changed.

    `marked` says that the mark was `found` already.
    """
    if not marked:
        [found] = yield from batch(store, [records.mark_place(user_id)])
    mark = records.KnowledgeMark.found(found)
    kept = kept_of(store, user_id)
    if mark is None:
        kept.knowledge = None
        return NOTHING
    if kept.knowledge is not None and kept.knowledge.mark == mark:
        return kept.knowledge
    links = yield from records.LINKS.all(store, user_id)
    known = Knowledge(
        mark=mark,  # read before what it marks, so never newer
        topics=tuple((yield from records.TOPICS.all(store, user_id))),
        entities=tuple((yield from records.ENTITIES.all(store, user_id))),
        bundles={bundle.id: bundle for bundle in (yield from records.BUNDLES.all(store, user_id))},
        links={(link.topic_id, link.conversation_id): link for link in links},
        phrases=tuple((yield from records.PHRASES.all(store, user_id))),
    ).with_facts((yield from records.FACTS.all(store, user_id)))
    kept_of(store, user_id).knowledge = known
    return known


def save(
    store: BaseStore, user_id: str, before: Knowledge, after: Knowledge, *, edited: bool = False
) -> Flow[None]:
    """Writes what has changed, and then the mark; nothing where nothing has.

    The order makes a kill in between harmless, as learning again has the same effect: a fact ends
    before another one takes its place, phrases are counted last. With `edited`, every conversation
    renews its snapshot.

    Raises:
        StoreError: another process has erased the user since `before` was read; nothing is kept.
    """
    ended = tuple(
        nlargest(
            MOST_ITEMS, after.ended, key=lambda fact: (fact.ended_at or fact.last_seen, fact.id)
        )
    )
    puts = [
        *records.BUNDLES.changes(user_id, before.bundles.values(), after.bundles.values()),
        *records.TOPICS.changes(user_id, before.topics, after.topics),
        *records.ENTITIES.changes(user_id, before.entities, after.entities),
        *records.LINKS.changes(user_id, before.links.values(), after.links.values()),
        *records.FACTS.changes(user_id, (*before.ended, *before.facts), (*ended, *after.facts)),
        *records.PHRASES.changes(user_id, before.phrases, after.phrases),
    ]
    if not puts:
        return
    gone = {profile.id for profile in before.profiles} - {profile.id for profile in after.profiles}
    devices = (yield from records.PRESENCE.all(store, user_id)) if gone else []
    none = {"predicted_topics": (), "predicted_entities": ()}  # until the next heartbeat
    puts += records.PRESENCE.changes(
        user_id, devices, [device.model_copy(update=none) for device in devices]
    )
    place = records.mark_place(user_id)
    kept = kept_of(store, user_id)
    [item] = yield from batch(store, [place])
    found = records.KnowledgeMark.found(item)
    if found is None and before.mark.mark:
        raise StoreError(ERASED)
    old = found or before.mark
    mark = records.KnowledgeMark(mark=new_token(), edited=new_token() if edited else old.edited)
    try:
        yield from bulk.write(store, puts)
        [last, _] = yield from batch(store, [place, written(place, mark)])
        if found and last is None:
            yield from bulk.write(
                store, [put._replace(value=None) for put in (*puts, written(place, None))]
            )
            raise StoreError(ERASED)  # noqa: TRY301
    except BaseException:
        kept.knowledge = None  # some of it may be written
        raise
    saved = replace(after, mark=mark, ended=ended)
    _ = (
        saved.topic_detector,
        saved.entity_detector,
    )  # built here, so that no prompt has to wait for them
    kept.knowledge = (
        saved if old == before.mark and records.KnowledgeMark.found(last) == found else None
    )
