"""`pipeline.knowledge`.

What is known is listed, changed by hand, traced to its messages, and shown.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.knowledge import (
    BY_USER,
    NOTHING,
    EntityProfile,
    Fact,
    Knowledge,
    Source,
    TopicProfile,
    known,
)
from langchain_ctxbudget.knowledge.records import TopicConversation
from langchain_ctxbudget.messages import fingerprint
from tests.conversations import BagOfWords
from tests.integration_tests.test_learning import system

ADA: Any = {"user_id": "ada"}
HERE: Any = {"user_id": "ada", "conversation_id": "c1"}
THERE: Any = {"user_id": "ada", "conversation_id": "c2"}
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MESSAGES = [
    HumanMessage("I live in Lisbon.", id="m0"),
    HumanMessage("My sister Sarah works at Acme.", id="m1"),
    HumanMessage("Sarah likes my home brewing.", id="m2"),
    HumanMessage("I'm visiting Sarah next week.", id="m3"),
]
SOURCES = [
    Source(conversation_id="c1", message_id=str(message.id), digest=fingerprint(message))
    for message in MESSAGES
]
SARAH = "entity/person/sarah"
BREWING = "topic/home-brewing"


def fact(text: str, source: int, **changes: Any) -> Fact:
    fields: dict[str, Any] = {
        "category": "identity",
        "created_at": NOW,
        "last_seen": NOW,
        "sources": (SOURCES[source],),
        **changes,
    }
    return Fact(id=f"fact/{source}", text=text, **fields)


def link(name: str, messages: int) -> TopicConversation:
    share = messages / len(MESSAGES)
    return TopicConversation(
        topic_id=name,
        conversation_id="c1",
        messages=messages,
        relevance_score=share,
        last_at=NOW,
        until=len(MESSAGES),
    )


LEARNED = Knowledge(
    facts=(
        fact("Lives in Lisbon", 0, slot="home"),
        fact("Visits Sarah next week", 3, category="project"),
    ),
    topics=(
        TopicProfile(
            id=BREWING,
            slug="home-brewing",
            label="Home brewing",
            sources=(SOURCES[2],),
            last_engaged_at=NOW,
        ),
    ),
    entities=(
        EntityProfile(
            id=SARAH,
            name="Sarah",
            type="person",
            relationship="sister",
            relations=(("works at", "Acme"),),
            sources=tuple(SOURCES[1:]),
            last_engaged_at=NOW,
        ),
    ),
    links={(BREWING, "c1"): link(BREWING, 1), (SARAH, "c1"): link(SARAH, 3)},
)


@contextmanager
def opened(
    store: BaseStore | None = None, now: datetime = NOW, **settings: Any
) -> Iterator[ContextPipeline]:
    settings = {"learn_every": 1_000, "sources": [], **settings}
    with ContextPipeline(
        settings, store=InMemoryStore() if store is None else store, clock=lambda: now
    ) as pipeline:
        yield pipeline


def save(pipeline: ContextPipeline, **changes: Any) -> None:
    """Changes what is known as learning would."""
    before = drive(known.read(pipeline.store, "ada"))
    names = ("mark", "facts", "topics", "entities", "bundles", "links", "phrases")
    fields = {name: getattr(before, name) for name in names}
    drive(known.save(pipeline.store, "ada", before, Knowledge(**{**fields, **changes})))


@contextmanager
def knowing(store: BaseStore | None = None) -> Iterator[ContextPipeline]:
    with opened(store) as pipeline:
        pipeline.add_messages(MESSAGES, **HERE)
        drive(known.save(pipeline.store, "ada", NOTHING, LEARNED))
        pipeline.knowledge.heartbeat(device_id="laptop", **ADA)  # it compiles what is missing
        yield pipeline


@pytest.fixture
def pipeline() -> Iterator[ContextPipeline]:
    """A pipeline that knows two facts, a topic and an entity of Ada."""
    with knowing() as pipeline:
        yield pipeline


def texts(pipeline: ContextPipeline) -> list[str]:
    return sorted(fact.text for fact in pipeline.knowledge.list_facts(**ADA))


def bundles(pipeline: ContextPipeline) -> dict[str, str]:
    return {bundle.id: bundle.compiled_prompt for bundle in pipeline.knowledge.list_bundles(**ADA)}


def bundles_with(pipeline: ContextPipeline, words: str) -> list[str]:
    return [name for name, text in bundles(pipeline).items() if words in text]


# Look at it, change it


def test_a_fact_that_is_added_is_listed(pipeline: ContextPipeline) -> None:
    added = pipeline.knowledge.add_fact("Plays the cello", category="identity", **ADA)

    assert added in pipeline.knowledge.list_facts(**ADA)


def test_a_fact_that_is_edited_is_the_users_own(pipeline: ContextPipeline) -> None:
    edited = pipeline.knowledge.edit("fact/0", text="Lives in Lisbon, Alfama", **ADA)

    assert edited.text == "Lives in Lisbon, Alfama"
    assert edited.made_by == BY_USER


def test_a_fact_that_is_pinned_comes_first(pipeline: ContextPipeline) -> None:
    pinned = pipeline.knowledge.pin("fact/0", **ADA)

    assert pinned.pinned is True
    assert pipeline.knowledge.list_facts(**ADA)[0] == pinned


def test_a_fact_that_is_no_longer_pinned_is_as_before(pipeline: ContextPipeline) -> None:
    edited = pipeline.knowledge.edit("fact/0", text="Lives in Lisbon, Alfama", **ADA)
    pipeline.knowledge.pin("fact/0", **ADA)

    assert pipeline.knowledge.pin("fact/0", pinned=False, **ADA) == edited


def test_a_fact_that_is_deleted_is_not_listed_among_ended_ones(pipeline: ContextPipeline) -> None:
    added = pipeline.knowledge.add_fact("Plays the cello", category="identity", **ADA)

    pipeline.knowledge.delete(added.id, **ADA)

    assert added not in pipeline.knowledge.list_facts(include_ended=True, **ADA)


def test_a_topic_that_is_renamed_keeps_its_old_name_as_another(pipeline: ContextPipeline) -> None:
    renamed = pipeline.knowledge.edit(BREWING, label="Beer at home", **ADA)

    # Users go on saying what they used to.
    assert renamed.names == ("Beer at home", "Home brewing")
    assert [topic.label for topic in pipeline.knowledge.list_topics(**ADA)] == ["Beer at home"]


def test_entities_are_listed(pipeline: ContextPipeline) -> None:
    assert [entity.name for entity in pipeline.knowledge.list_entities(**ADA)] == ["Sarah"]


def test_bundles_are_listed(pipeline: ContextPipeline) -> None:
    assert bundles(pipeline).keys() >= {BREWING, SARAH, "identity_core"}


def test_a_fact_that_is_deleted_goes_from_the_one_bundle_that_has_it(
    pipeline: ContextPipeline,
) -> None:
    assert len(bundles_with(pipeline, "Visits Sarah")) == 1

    pipeline.knowledge.delete("fact/3", **ADA)

    assert bundles_with(pipeline, "Visits Sarah") == []


def test_a_topic_that_is_deleted_goes_with_its_bundle(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.delete(BREWING, **ADA)

    assert pipeline.knowledge.list_topics(**ADA) == []
    assert BREWING not in bundles(pipeline)


def test_an_entity_that_is_deleted_goes_with_its_bundle(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.delete(SARAH, **ADA)

    assert pipeline.knowledge.list_entities(**ADA) == []
    assert SARAH not in bundles(pipeline)
    assert bundles_with(pipeline, "Acme") == []


# Where it comes from


def test_why_gives_the_messages_that_say_it(pipeline: ContextPipeline) -> None:
    sources = pipeline.knowledge.why(SARAH, **ADA)

    assert [source.message_id for source in sources] == ["m1", "m2", "m3"]
    assert [source.changed for source in sources] == [False, False, False]
    assert [source.message.text for source in sources if source.message] == [
        "My sister Sarah works at Acme.",
        "Sarah likes my home brewing.",
        "I'm visiting Sarah next week.",
    ]


def test_why_gives_copies_of_messages(pipeline: ContextPipeline) -> None:
    [first, *_] = pipeline.knowledge.why(SARAH, **ADA)
    assert first.message is not None

    first.message.content = "changed"

    assert pipeline.get_messages(**HERE)[1].text == "My sister Sarah works at Acme."


def test_no_message_says_what_was_added_by_hand(pipeline: ContextPipeline) -> None:
    added = pipeline.knowledge.add_fact("Sings", **ADA)

    assert pipeline.knowledge.why(added.id, **ADA) == []


def test_why_tells_of_changed_and_lost_messages_of_an_ended_fact(
    pipeline: ContextPipeline,
) -> None:
    changed_source = SOURCES[1].model_copy(update={"digest": "of another text"})
    lost_source = Source(conversation_id="c1", message_id="gone")
    sources = (changed_source, lost_source)
    ended = LEARNED.facts[0].model_copy(
        update={"id": "fact/old", "sources": sources, "ended": "expired"}
    )
    save(pipeline, ended_facts=(ended,))

    changed, lost = pipeline.knowledge.why("fact/old", **ADA)

    assert changed.changed is True
    assert lost.changed is False
    assert lost.message is None


# What is refused


@pytest.mark.parametrize(
    ("name", "arguments", "changes", "message"),
    [
        ("add_fact", [""], {}, "text cannot be ''"),
        ("add_fact", [" \n"], {}, "must not be blank"),
        ("add_fact", ["x" * 2_001], {}, "at most 2000 characters"),
        ("add_fact", [None], {}, "text cannot be None"),
        ("add_fact", ["Sings"], {"confidence": 0}, "confidence cannot be"),
        ("add_fact", ["Sings"], {"confidence": 1.5}, "confidence cannot be"),
        ("add_fact", ["Sings"], {"confidence": True}, "confidence cannot be"),
        ("add_fact", ["Sings"], {"confidence": "high"}, "confidence cannot be"),
        ("add_fact", ["Sings"], {"category": "hobby"}, "'project', 'preference' or 'identity'"),
        ("edit", ["fact/0"], {"confidence": 2}, "confidence cannot be 2"),
        (
            "edit",
            ["fact/0"],
            {"sources": ()},
            "sources cannot be edited; the fields that can are text, category",
        ),
        ("edit", [BREWING], {"total_messages": 9}, "total_messages cannot be edited"),
        ("edit", [SARAH], {"compiled_context": " "}, "must not be blank"),
        ("edit", ["fact/none"], {}, "Nothing with the id 'fact/none'"),
        ("delete", ["fact/none"], {}, "Nothing with the id 'fact/none'"),
        ("pin", ["fact/none"], {}, "Nothing with the id 'fact/none'"),
        ("why", ["fact/none"], {}, "Nothing with the id 'fact/none'"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(
    pipeline: ContextPipeline,
    name: str,
    arguments: list[Any],
    changes: dict[str, Any],
    message: str,
) -> None:
    before = drive(known.read(pipeline.store, "ada"))

    with pytest.raises(InputError, match=message):
        getattr(pipeline.knowledge, name)(*arguments, **changes, **ADA)

    assert drive(known.read(pipeline.store, "ada")) is before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device_id", ""),
        ("device_id", None),
        ("device_id", "d" * 2_001),
        ("visible_conversation_ids", "c1"),
        ("visible_conversation_ids", ["c1", 5]),
        ("visible_conversation_ids", ["c"] * 101),
        ("visible_conversation_ids", ["c" * 2_001]),
        ("active_notebook_id", 5),
        ("path", "/" * 2_001),
        ("idle", "no"),
        ("battery", 5),
        ("local_time", "2026-01-01"),
        ("local_time", datetime(2026, 1, 1)),
    ],
)
def test_a_heartbeat_that_does_not_fit_is_refused(
    pipeline: ContextPipeline, name: str, value: Any
) -> None:
    before = drive(known.read(pipeline.store, "ada"))

    with pytest.raises(InputError, match=name):
        pipeline.knowledge.heartbeat(**{"device_id": "d", name: value}, **ADA)

    assert drive(known.read(pipeline.store, "ada")) is before


# What is said by hand counts


def test_a_fact_by_hand_supersedes_the_other_value_of_its_slot(pipeline: ContextPipeline) -> None:
    assert "Lisbon" in system(pipeline.assemble("Hi", **THERE))

    porto = pipeline.knowledge.add_fact("Lives in Porto", category="identity", slot="home", **ADA)

    facts = pipeline.knowledge.list_facts(include_ended=True, **ADA)
    [lisbon] = [fact for fact in facts if fact.id == "fact/0"]
    assert lisbon.superseded_by == porto.id
    assert "Lisbon" not in system(pipeline.assemble("Hi", **THERE)), "at the next turn"


def test_an_entity_that_was_edited_outlives_the_messages(pipeline: ContextPipeline) -> None:
    details = {
        "name": "Sally",
        "facts": ("Plays chess",),
        "attributes": (("email", "s@example.org"),),
        "aliases": ("Sal",),
    }
    pipeline.knowledge.edit(SARAH, **details, **ADA)

    pipeline.clear(**HERE)

    [sally] = pipeline.knowledge.list_entities(**ADA)
    assert {name: getattr(sally, name) for name in details} == details
    assert sally.relationship == "sister", "it stays as it was written"


def test_a_fact_that_was_edited_outlives_the_messages(pipeline: ContextPipeline) -> None:
    pipeline.knowledge.edit("fact/0", text="Lives in Alfama", **ADA)

    pipeline.clear(**HERE)

    assert texts(pipeline) == ["Lives in Alfama"]


def test_what_nobody_touched_goes_with_the_messages(pipeline: ContextPipeline) -> None:
    pipeline.clear(**HERE)

    assert texts(pipeline) == []
    assert pipeline.knowledge.list_topics(**ADA) == []


# What prompts show


@pytest.fixture(scope="module")
def shown_without_learning() -> str:
    """What a prompt shows where learning is off."""
    store = InMemoryStore()
    with knowing(store) as pipeline:
        pipeline.knowledge.add_fact("Sings", **ADA)
        pipeline.knowledge.edit(SARAH, compiled_context="Calls on Sundays.", **ADA)
    with opened(store, learn=False) as pipeline:
        context = pipeline.assemble("Does Sarah like home brewing?", **THERE)
    return system(context) + context.messages[-1].text


def test_where_learning_is_off_facts_by_hand_are_shown(shown_without_learning: str) -> None:
    assert "Sings" in shown_without_learning


@pytest.mark.parametrize("words", ["Calls on Sundays.", "Lisbon", "Acme", "likes my"])
def test_where_learning_is_off_nothing_else_is_shown(
    shown_without_learning: str, words: str
) -> None:
    assert words not in shown_without_learning


class TestAFactLearnedInAConversation:
    """The conversation keeps its snapshot."""

    @pytest.fixture
    def before(self, pipeline: ContextPipeline) -> AssembledContext:
        """A prompt of the conversation before the fact was learned."""
        before = pipeline.assemble("Hi", **THERE)
        facts = drive(known.read(pipeline.store, "ada")).facts
        save(pipeline, facts=(*facts, fact("Works as a nurse", 1)))
        return before

    def test_it_is_not_shown(self, pipeline: ContextPipeline, before: AssembledContext) -> None:
        assert system(pipeline.assemble("Hi", **THERE)) == system(before)

    @pytest.mark.usefixtures("before")
    def test_the_report_says_when_it_will_be(self, pipeline: ContextPipeline) -> None:
        items = pipeline.assemble("Hi", **THERE).report.layer("L1").items

        [reason] = [item.reason for item in items if item.id == "fact/1"]
        assert reason == "next_snapshot"

    @pytest.mark.usefixtures("before")
    def test_it_is_shown_once_something_is_changed_by_hand(self, pipeline: ContextPipeline) -> None:
        pipeline.assemble("Hi", **THERE)

        pipeline.knowledge.pin("fact/0", **ADA)

        assert "Works as a nurse" in system(pipeline.assemble("Hi", **THERE))


# Devices


TOM = EntityProfile(
    id="entity/person/tom",
    name="Tom",
    type="person",
    relationship="boss",
    sources=(SOURCES[0],),
)


class TestADevice:
    """A phone that has a conversation about Tom in front, and then one about Sarah."""

    @pytest.fixture
    def pipeline(self, pipeline: ContextPipeline) -> ContextPipeline:
        at_work = link(TOM.id, 3).model_copy(update={"conversation_id": "work"})
        save(
            pipeline,
            entities=(*LEARNED.entities, TOM),
            links={**LEARNED.links, (TOM.id, "work"): at_work},
        )
        return pipeline

    @pytest.mark.parametrize(("in_front", "person"), [("work", TOM.id), ("c1", SARAH)])
    def test_its_conversation_predicts_a_person(
        self, pipeline: ContextPipeline, in_front: str, person: str
    ) -> None:
        show(pipeline, in_front)

        [_, phone] = pipeline.knowledge.list_devices(**ADA)
        assert phone.predicted_entities[0] == person

    @pytest.mark.parametrize(("in_front", "person"), [("work", TOM.id), ("c1", SARAH)])
    def test_the_predicted_person_comes_first(
        self, pipeline: ContextPipeline, in_front: str, person: str
    ) -> None:
        show(pipeline, in_front)

        people = people_in_prompt(pipeline)
        assert len(people) == 2
        assert people[0] == person

    def test_its_conversation_predicts_a_topic(self, pipeline: ContextPipeline) -> None:
        show(pipeline, "c1")

        [_, phone] = pipeline.knowledge.list_devices(**ADA)
        assert phone.predicted_topics == (BREWING,)

    def test_bundles_that_prompts_show_are_counted(self, pipeline: ContextPipeline) -> None:
        show(pipeline, "work")
        people_in_prompt(pipeline)
        show(pipeline, "c1")
        people_in_prompt(pipeline)

        bundles = pipeline.knowledge.list_bundles(**ADA)
        hits = {bundle.id: bundle.hit_count for bundle in bundles}
        assert hits[SARAH] == 2
        assert hits[BREWING] == 0


def show(pipeline: ContextPipeline, conversation: str | None) -> None:
    """Tells which conversation the phone has in front."""
    pipeline.knowledge.heartbeat(device_id="phone", active_conversation_id=conversation, **ADA)


def people_in_prompt(pipeline: ContextPipeline) -> list[str]:
    question = "What about Tom and Sarah?"
    context = pipeline.assemble(question, device_id="phone", **THERE)
    items = context.report.layer(Layer.ENTITIES).items
    return [item.id for item in items if item.status is not Status.OMITTED]


@pytest.fixture(scope="module")
def store_with_another_conversation() -> InMemoryStore:
    store = InMemoryStore()
    with knowing(store) as pipeline:
        pipeline.add_messages([HumanMessage("Sarah sent hops for the home brewing.")], **THERE)
    return store


EVERY_TEXT = [
    "I live in Lisbon.",
    "I'm visiting Sarah next week.",
    "My sister Sarah works at Acme.",
    "Sarah likes my home brewing.",
    "Sarah sent hops for the home brewing.",
]


@pytest.mark.parametrize(
    ("in_front", "ahead"), [("c1", EVERY_TEXT), (None, [])], ids=["in front", "none in front"]
)
def test_a_conversation_in_front_is_read_ahead_with_what_others_say(
    store_with_another_conversation: InMemoryStore, in_front: str | None, ahead: list[str]
) -> None:
    """What they say of what is predicted; each text is embedded once."""
    embeddings = BagOfWords()
    with ContextPipeline(
        {"learn": False},
        store=copy.deepcopy(store_with_another_conversation),
        embeddings=embeddings,
        clock=lambda: NOW,
    ) as pipeline:
        show(pipeline, in_front)
        assert pipeline.flush(10)
        assert sorted(set(embeddings.asked)) == ahead

        pipeline.assemble("What of Sarah's brewing?", device_id="phone", **HERE)
        assert sorted(embeddings.asked) == EVERY_TEXT


# Texts that an application gives

TABLES = "users orders invoices carts items prices taxes stocks refunds audits tokens".split()
GIVEN = " ".join(
    f"The table of {table} is moved by hand, and nobody but Omar may start that."
    for table in TABLES
)


def prompt_about(question: str, budget_tokens: int) -> AssembledContext:
    """A prompt of somebody who has long texts about a topic and a person, after a long chat."""
    pipeline = ContextPipeline(settings={"max_context_tokens": budget_tokens})
    pipeline.knowledge.add_topic("Prisma", compiled_context=GIVEN, **ADA)
    pipeline.knowledge.add_entity("Sarah", type="person", compiled_context=GIVEN, **ADA)
    chat = pipeline.conversation("c1", **ADA)
    chat.add([HumanMessage(f"The shelf number {number} is full.") for number in range(200)])
    return chat.assemble(question)


@pytest.mark.parametrize("question", ["How do I start Prisma?", "What does Sarah say?"])
@pytest.mark.parametrize("budget_tokens", [700, 8_000])
def test_a_given_text_stands_whole_where_it_has_room(question: str, budget_tokens: int) -> None:
    context = prompt_about(question, budget_tokens)

    assert GIVEN in context.messages[-1].text


@pytest.mark.parametrize(
    ("question", "layer"),
    [("How do I start Prisma?", Layer.TOPICS), ("What does Sarah say?", Layer.ENTITIES)],
)
def test_a_given_text_that_is_cut_is_told_so(question: str, layer: Layer) -> None:
    context = prompt_about(question, 200)

    [item] = context.report.layer(layer).items
    assert (item.status, item.reason) == (Status.SHRUNK, Reason.NO_ROOM)


def test_a_given_text_is_cut_behind_a_sentence() -> None:
    context = prompt_about("How do I start Prisma?", 200)

    assert "The table of users is moved by hand, and nobody but Omar may start that. " in (
        context.messages[-1].text
    )
