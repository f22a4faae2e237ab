"""What is known after messages were learned from, and after they are gone: pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from langchain_ctxbudget.knowledge import (
    BY_RULES,
    BY_USER,
    EntityProfile,
    Fact,
    Knowledge,
    ProgressRecord,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.learning import MOST_PROFILES, Work, updated, without
from langchain_ctxbudget.knowledge.records import Highlight, Learned, PhraseRecord, TopicConversation
from tests.conversations import COUNTER, SCOPE, opened

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CUT = {"m0": "d0"}
"""What is left of a conversation."""


def source(message: str, where: str = "c1") -> Source:
    return Source(conversation_id=where, message_id=message, digest=message.replace("m", "d"))


def fact(name: str, *sources: Source, **fields: Any) -> Fact:
    times = {"created_at": NOW, "last_seen": NOW}
    return Fact(**{"id": name, "text": name, "category": "preference", "sources": sources, **times, **fields})


def ended(name: str, by: str, *sources: Source, **fields: Any) -> Fact:
    return fact(name, *sources, ended="superseded", ended_at=NOW, superseded_by=by, valid_until=NOW, **fields)


# Without some messages


def test_what_they_superseded_counts_again() -> None:
    state = Knowledge(facts=(fact("b", source("m1")),), ended=(ended("a", "b", source("m0")),))
    after = without(state, "c1", CUT)
    assert after.ended == ()
    assert after.facts == (fact("a", source("m0")),)


def test_an_entity_that_loses_a_source_loses_its_details() -> None:
    sarah = EntityProfile(
        id="e", name="Sarah", facts=("x",), attributes=(("a", "b"),), sources=(source("m0"), source("m1"))
    )
    [left] = without(Knowledge(entities=(sarah,)), "c1", CUT).entities
    assert (left.facts, left.attributes, left.sources) == ((), (), (source("m0"),))


def test_what_a_model_has_written_goes_with_any_message_that_it_comes_from() -> None:
    both = (source("m0"), source("m1"))
    facts = [fact(by, *both, made_by=by) for by in ("a model", BY_RULES)]
    assert [left.id for left in without(Knowledge(facts=tuple(facts)), "c1", CUT).facts] == [BY_RULES]


def test_a_topic_loses_what_was_said_about_it() -> None:
    highlights = tuple(Highlight(text=f"said in {one}", source=source(one)) for one in ("m0", "m1"))
    topic = TopicProfile(
        id="t", slug="t", label="T", is_dirty=False, highlights=highlights, sources=(source("m0"), source("m1"))
    )
    [left] = without(Knowledge(topics=(topic,)), "c1", CUT).topics
    assert left.highlights == highlights[:1]
    assert left.sources == (source("m0"),)


def phrase(*sources: Source, **counts: int) -> PhraseRecord:
    return PhraseRecord(phrase="p", label="P", sources=sources, counts=tuple(counts.items()))


@pytest.mark.parametrize(
    ("before", "there", "after"),
    [
        (phrase(source("m1"), c1=1), CUT, None),
        (phrase(source("m0"), source("m1"), c1=2), CUT, phrase(source("m0"), c1=1)),
        (phrase(source("m0"), c1=1), CUT, phrase(source("m0"), c1=1)),
        (phrase(source("m0", "c2"), source("m1"), c1=1, c2=1), CUT, phrase(source("m0", "c2"), c2=1)),
        (phrase(source("m0", "c2"), c1=4, c2=1), {}, phrase(source("m0", "c2"), c2=1)),
        (phrase(source("m1"), source("m2"), source("m3"), c1=9), CUT, None),
        (phrase(source("m1", "c2"), c2=1), {}, phrase(source("m1", "c2"), c2=1)),
    ],
)
def test_a_phrase_is_no_longer_counted_for_them(
    before: PhraseRecord, there: dict[str, str], after: PhraseRecord | None
) -> None:
    assert without(Knowledge(phrases=(before,)), "c1", there).phrases == ((after,) if after else ())


# With some messages


def learn(state: Knowledge, *texts: str, first: int = 0, **learned: Any) -> Knowledge:
    of = opened(*texts).seen_with(COUNTER)
    work = Work(
        scope=SCOPE, entries=of.entries, costs=of.costs, first=first, progress=ProgressRecord(), there=None, epoch=0
    )
    return updated(state, work, Learned(**learned), NOW)


def test_of_too_many_topics_the_least_important_go() -> None:
    many = tuple(
        TopicProfile(
            id=f"topic/t{n}",
            slug=f"t{n}",
            label=f"T{n}",
            sources=(source("m9", "c9"),),
            last_engaged_at=NOW - timedelta(hours=MOST_PROFILES + 2 - n),
        )
        for n in range(MOST_PROFILES + 2)
    )
    own = tuple(
        one.model_copy(update={"pinned": True} if n else {"made_by": BY_USER}) for n, one in enumerate(many[:2])
    )
    links = {(one.id, "c9"): TopicConversation(topic_id=one.id, conversation_id="c9") for one in many}
    state = learn(Knowledge(topics=(*own, *many[2:]), links=links), "x")
    kept = {one.id for one in state.topics}
    assert len(kept) == MOST_PROFILES
    assert {one.id for one in many} - kept == {"topic/t2", "topic/t3"}
    assert {name for name, _ in state.links} == kept
