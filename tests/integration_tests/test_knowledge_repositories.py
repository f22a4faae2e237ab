"""What is known of a user is kept and given back equal, by user, on every store; nothing of it is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore, GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ChromaStore, ContextPipeline, flow
from langchain_ctxbudget.errors import MissingScopeError, StoreDataError
from langchain_ctxbudget.knowledge import repositories
from langchain_ctxbudget.knowledge.records import (
    ClientPresence,
    ContextBundle,
    EntityDetails,
    EntityProfile,
    Fact,
    Highlight,
    KnowledgeMark,
    PhraseRecord,
    ProgressRecord,
    Relation,
    SnapshotRecord,
    Source,
    TopicConversation,
    TopicProfile,
    Visit,
)
from langchain_ctxbudget.knowledge.repositories import (
    BUNDLES,
    ENDED,
    ENTITIES,
    FACTS,
    LINKS,
    PHRASES,
    PRESENCE,
    TOPICS,
    Repository,
    link_key,
)
from langchain_ctxbudget.stores import bulk, compactions
from langchain_ctxbudget.stores.compactions import ConversationCompaction, KeptSentence
from langchain_ctxbudget.stores.records import ROOT, Record, Scope, label
from tests.integration_tests.conftest import Call

NOW = datetime(2026, 3, 29, 0, 59, 59, 999_999, tzinfo=UTC)
THERE = datetime(2026, 3, 29, 3, 30, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))
TEXTS = [
    "plain",
    "",
    "nul \0",
    "only half \ud800",
    "both \0 and \udfff",
    "\U0001f642\U0001f469\u200d\U0001f469\u200d\U0001f467 e\u0301 \u202e",
    "line\u2028line\r\n",
    "large " * 20_000,
    '{"json": "{}"}',
]
IDS = [
    "topic/cycling",
    "topic/cyclin",
    "topic/cycling2",
    "..",
    "a.b",
    "a/b",
    "/",
    "%",
    "_",
    "a%",
    "~",
    "mark",
    " ",
    "'; DROP TABLE store; --",
    "\U0001f642",
    "nul \0",
    "half \ud800",
    "two\nlines",
    "long " * 2_000,
    "long " * 2_000 + "er",
]
USERS = ["ada", "ad", "ada2", "ada~", "ada.b", "ada%", "ada_", "%", "*"]


def fact(name: str, text: str) -> Fact:
    return Fact(
        id=name,
        text=text,
        category="identity",
        confidence=1 / 3,
        pinned=True,
        slot=text,
        sources=(Source(conversation_id=name, message_id=text, digest=text),),
        made_by=text,
        created_at=NOW,
        last_seen=NOW,
        valid_from=NOW,
        valid_until=NOW,
        ended="superseded",
        ended_at=NOW,
        superseded_by=text,
    )


def topic(name: str, text: str) -> TopicProfile:
    return TopicProfile(
        id=name,
        slug=text,
        label=text,
        aliases=(text, text),
        parent_slug=text,
        domain="business",
        total_conversations=1,
        total_acus=2,
        total_messages=3,
        total_tokens_spent=2**40,
        avg_session_depth=3.0,
        first_engaged_at=NOW,
        last_engaged_at=NOW,
        engagement_streak=4,
        peak_hour=23,
        proficiency_level="expert",
        proficiency_signals=(text,),
        importance_score=0.1,
        pinned=True,
        compiled_context=text,
        context_version=5,
        is_dirty=False,
        embedding=(0.1, -1e-30, 3.0),
        embedding_model=text,
        related_memory_ids=(name, text),
        highlights=(Highlight(text=text, date="2026-01-01", source=Source(conversation_id=name, message_id=text)),),
        related_acu_ids=(name,),
        sources=(Source(conversation_id=name, message_id=text),),
        made_by=text,
        created_at=NOW,
        updated_at=NOW,
    )


def entity(name: str, text: str) -> EntityProfile:
    return EntityProfile(
        id=name,
        name=text,
        type="organization",
        aliases=(text,),
        relationship=text,
        sentiment=-0.7,
        facts=(text, text),
        attributes=((text, name), (name, text), (text, text)),
        relations=(Relation(relation=text, target=name),),
        mention_count=1,
        conversation_count=2,
        first_mentioned_at=NOW,
        last_mentioned_at=NOW,
        importance_score=0.9,
        pinned=True,
        compiled_context=text,
        context_version=3,
        is_dirty=False,
        embedding=(0.1,),
        embedding_model=text,
        sources=(Source(conversation_id=name, message_id=text),),
        made_by=text,
        by_hand=EntityDetails(
            relationship=text,
            aliases=(name, text),
            facts=(text,),
            attributes=((name, text),),
            relations=(Relation(relation=text, target=name),),
        ),
        created_at=NOW,
        updated_at=NOW,
    )


def link(name: str, text: str) -> TopicConversation:
    return TopicConversation(
        topic_id=name,
        conversation_id=text[:1_000],
        relevance_score=0.3,
        messages=1,
        exchanges=2,
        tokens=3,
        sentiment=-1.0,
        first_at=NOW,
        last_at=NOW,
        hours=tuple(range(24)),
        days=("2026-03-29",),
        until=4,
    )


def bundle(name: str, text: str) -> ContextBundle:
    return ContextBundle(
        id=name,
        bundle_type="composite",
        topic_profile_id=name,
        entity_profile_id=name,
        conversation_id=name,
        persona_id=text,
        compiled_prompt=text,
        compressed_prompt=text,
        token_count=1,
        compressed_token_count=2,
        composition=(name, text),
        version=3,
        is_dirty=True,
        priority=0.2,
        compiled_at=NOW,
        expires_at=NOW,
        last_used_at=NOW,
        use_count=4,
        hit_count=5,
        miss_count=6,
    )


def presence(name: str, text: str) -> ClientPresence:
    return ClientPresence(
        device_id=name,
        active_conversation_id=text,
        visible_conversation_ids=(text, name),
        active_notebook_id=text,
        active_persona_id=text,
        last_navigation_path=text,
        navigation_history=(Visit(path=text, at=NOW), Visit(path=name, at=NOW)),
        local_time=THERE,
        session_started_at=NOW,
        idle_since=NOW,
        predicted_topics=(name,),
        predicted_entities=(text,),
        last_heartbeat_at=NOW,
        is_online=False,
    )


def phrase(name: str, text: str) -> PhraseRecord:
    sources = (Source(conversation_id=name, message_id=text),)
    return PhraseRecord(phrase=name, label=text, counts=((text, 1), (name, 2)), last_at=NOW, sources=sources)


def compaction(name: str, text: str) -> ConversationCompaction:
    return ConversationCompaction(
        id=name,
        conversation_id=text,
        from_message_index=0,
        to_message_index=9,
        original_token_count=100,
        compacted_token_count=10,
        summary=text,
        key_decisions=(text,),
        open_questions=(text,),
        code_artifacts=(text,),
        compression_ratio=10.0,
        compaction_level=2,
        made_by=text,
        narrative=text,
        context=text,
        sentences=(KeptSentence(text=text, kind="decision", score=0.1, date="d", speaker=text, position=1, order=2),),
        created_at=NOW,
    )


Make = Callable[[str, str], Any]
KINDS: dict[str, tuple[Repository[Any], Make]] = {
    "facts": (FACTS, fact),
    "ended": (ENDED, fact),
    "topics": (TOPICS, topic),
    "entities": (ENTITIES, entity),
    "links": (LINKS, link),
    "bundles": (BUNDLES, bundle),
    "presence": (PRESENCE, presence),
    "phrases": (PHRASES, phrase),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def single_records(scope: Scope, text: str) -> dict[str, tuple[Record, PutOp, GetOp]]:
    """Those of which there is one for a user, or for a conversation: as made, its write and where it is."""
    mark = KnowledgeMark(mark=text, edited=text)
    progress = ProgressRecord(position=7, marks=((5, text), (7, text)))
    snapshot = SnapshotRecord(facts=(("f", text), (text, text)), edited=text)
    summary = compaction("a-b", text)
    return {
        "mark": (mark, repositories.mark_write(scope.user_id, mark), repositories.mark_read(scope.user_id)),
        "progress": (progress, repositories.progress_write(scope, progress), repositories.progress_read(scope)),
        "snapshot": (snapshot, repositories.snapshot_write(scope, snapshot), repositories.snapshot_read(scope)),
        "compaction": (summary, compactions.saving(scope, summary), GetOp(scope.namespace("compactions"), "a-b")),
    }


def everything(user_id: str) -> list[PutOp]:
    """One record of every kind."""
    scope = Scope(user_id, "c1")
    several = [repository.put(user_id, make("x", user_id)) for repository, make in KINDS.values()]
    return several + [put for _, put, _ in single_records(scope, user_id).values()]


def write(store: BaseStore, call: Call, puts: Iterable[PutOp]) -> None:
    call(flow, "drive", bulk.write(store, list(puts)))


def read(store: BaseStore, call: Call, record: type[Record], at: GetOp) -> Record | None:
    [item] = call(flow, "drive", flow.batch(store, [at]))
    return repositories.found(record, item)


def test_every_field_of_every_record_is_tried() -> None:
    made = [make("x", "y") for _, make in KINDS.values()]
    made += [record for record, _, _ in single_records(Scope("ada", "c1"), "y").values()]
    for record in made:
        fields = type(record).model_fields
        assert record.model_fields_set == set(fields)
        same = [name for name, field in fields.items() if getattr(record, name) == field.default]
        assert not same, f"{type(record).__name__} is tried with what these have anyway: {same}"


# Of which a user has many


@every_kind
def test_a_record_reads_back_equal_whatever_it_says(store: BaseStore, call: Call, kind: str) -> None:
    repository, make = KINDS[kind]
    records = [make(f"{number:02}", text) for number, text in enumerate(TEXTS)]
    write(store, call, (repository.put("ada", record) for record in records))
    assert call(flow, "drive", repository.all(store, "ada")) == records
    for record in records:
        assert call(flow, "drive", repository.get(store, "ada", repository.key(record))) == record


@every_kind
def test_a_record_is_found_by_its_id_whatever_that_is(store: BaseStore, call: Call, kind: str) -> None:
    repository, make = KINDS[kind]
    records = [make(name, "text") for name in IDS]
    write(store, call, (repository.put("ada", record) for record in records))
    for record in records:
        assert call(flow, "drive", repository.get(store, "ada", repository.key(record))) == record
    assert call(flow, "drive", repository.all(store, "ada")) == sorted(records, key=repository.key)


@every_kind
def test_a_record_takes_the_place_of_its_predecessor(store: BaseStore, call: Call, kind: str) -> None:
    repository, make = KINDS[kind]
    old = make("x", "text")
    required = {name for name, field in type(old).model_fields.items() if field.is_required()}
    new = type(old)(**old.model_dump(include=required))  # all the rest as it is by default
    write(store, call, [repository.put("ada", old)])
    write(store, call, [repository.put("ada", new)])
    assert call(flow, "drive", repository.all(store, "ada")) == [new]


@every_kind
def test_a_record_that_is_not_there_is_none(store: BaseStore, call: Call, kind: str) -> None:
    repository, make = KINDS[kind]
    write(store, call, [repository.put("ada", make("there", "text"))])
    for name in ("ther", "there2", "%", "_", ""):
        assert call(flow, "drive", repository.get(store, "ada", name)) is None


@every_kind
def test_a_deleted_record_is_gone_and_the_others_stay(store: BaseStore, call: Call, kind: str) -> None:
    repository, make = KINDS[kind]
    records = {name: make(name, "text") for name in ("a", "ab", "b")}
    write(store, call, (repository.put("ada", record) for record in records.values()))
    write(store, call, [repository.delete("ada", repository.key(records["a"])), repository.delete("ada", "nothing")])
    assert call(flow, "drive", repository.get(store, "ada", repository.key(records["a"]))) is None
    assert call(flow, "drive", repository.all(store, "ada")) == [records["ab"], records["b"]]


def test_every_user_has_their_own(store: BaseStore, call: Call) -> None:
    write(store, call, (put for user in USERS for put in everything(user)))
    for user in USERS:
        for repository, make in KINDS.values():
            assert call(flow, "drive", repository.all(store, user)) == [make("x", user)]
        for record, _, at in single_records(Scope(user, "c1"), user).values():
            assert read(store, call, type(record), at) == record


def test_a_user_without_any_has_none(store: BaseStore, call: Call) -> None:
    write(store, call, everything("ada"))
    for stranger in ("ad", "ada2", "%", "_", "*"):
        for repository, _ in KINDS.values():
            assert call(flow, "drive", repository.all(store, stranger)) == []
        for record, _, at in single_records(Scope(stranger, "c1"), "").values():
            assert read(store, call, type(record), at) is None


@pytest.mark.parametrize("user", ["", None])
def test_nothing_is_read_or_written_without_a_user(user: Any) -> None:
    store = InMemoryStore()
    for repository, make in KINDS.values():
        with pytest.raises(MissingScopeError, match="user_id"):
            repository.put(user, make("x", "text"))
        with pytest.raises(MissingScopeError, match="user_id"):
            flow.drive(repository.all(store, user))
    with pytest.raises(MissingScopeError, match="user_id"):
        repositories.mark_read(user)


def test_a_link_is_of_one_topic_in_one_conversation() -> None:
    ids = ["", "a", "b", "a~", "~", "ab", "a/b", "/"]
    assert len({link_key(topic_id, conversation_id) for topic_id in ids for conversation_id in ids}) == len(ids) ** 2


@every_kind
def test_what_cannot_be_read_is_named(kind: str) -> None:
    store, (repository, make) = InMemoryStore(), KINDS[kind]
    at = repository.place("ada", "broken")
    flow.drive(bulk.write(store, [repository.put("ada", make("x", "y")), PutOp(at.namespace, at.key, {"odd": 1})]))
    with pytest.raises(StoreDataError, match=rf"'broken~' in ctxbudget/ada~/knowledge/{kind} is not a "):
        flow.drive(repository.all(store, "ada"))
    with pytest.raises(StoreDataError, match="'broken~'"):
        flow.drive(repository.get(store, "ada", "broken"))


# Of which there is one


@pytest.mark.parametrize("which", ["mark", "progress", "snapshot", "compaction"])
def test_a_single_record_reads_back_equal_whatever_it_says(store: BaseStore, call: Call, which: str) -> None:
    for text in TEXTS:
        record, put, at = single_records(Scope("ada", "c1"), text)[which]
        write(store, call, [put])
        assert read(store, call, type(record), at) == record


def test_every_conversation_has_its_own(store: BaseStore, call: Call) -> None:
    scopes = [Scope("ada", name) for name in IDS]
    write(store, call, (put for n, scope in enumerate(scopes) for _, put, _ in single_records(scope, f"{n}").values()))
    for number, scope in enumerate(scopes):
        of_user, *of_conversation = single_records(scope, f"{number}").values()
        for record, _, at in of_conversation:
            assert read(store, call, type(record), at) == record
        assert read(store, call, KnowledgeMark, of_user[2]) == KnowledgeMark(mark="19", edited="19")


def test_a_single_record_is_removed_by_none(store: BaseStore, call: Call) -> None:
    scope = Scope("ada", "c1")
    write(store, call, everything("ada"))
    puts = [
        repositories.mark_write("ada", None),
        repositories.progress_write(scope, None),
        repositories.snapshot_write(scope, None),
        *compactions.deleting(scope, ["a-b"]),
    ]
    write(store, call, puts)
    for record, _, at in single_records(scope, "").values():
        assert read(store, call, type(record), at) is None
    assert call(flow, "drive", FACTS.all(store, "ada")) == [fact("x", "ada")]


@pytest.mark.parametrize("text", TEXTS[:7])
def test_a_compaction_is_the_digest_that_it_was_made_of(store: BaseStore, call: Call, text: str) -> None:
    scope, made = Scope("ada", "c1"), compaction("a-b", text)
    write(store, call, [compactions.saving(scope, made)])
    assert call(flow, "drive", compactions.read(store, scope, ["a-b", "none"])) == {"a-b": made.to_digest()}
    assert call(flow, "drive", compactions.written_besides(store, scope, ["x"])) == ["a-b"]
    assert call(flow, "drive", compactions.written_besides(store, scope, ["a"])) == []


# Facts that have ended


def ended(number: int) -> Fact:
    return fact(f"{number:04}", "text").model_copy(update={"ended_at": NOW + timedelta(seconds=number)})


def test_a_fact_that_ends_is_moved(store: BaseStore, call: Call) -> None:
    current, past = fact("stays", "text"), ended(1)
    write(store, call, [FACTS.put("ada", current), FACTS.put("ada", past), ENDED.put("ada", ended(0))])
    write(store, call, call(flow, "drive", repositories.ending(store, "ada", [past])))
    assert call(flow, "drive", FACTS.all(store, "ada")) == [current]
    assert call(flow, "drive", ENDED.all(store, "ada")) == [ended(0), past]


def test_of_ended_facts_the_newest_stay() -> None:
    store, most = InMemoryStore(), repositories.MOST_ENDED
    flow.drive(bulk.write(store, [ENDED.put("ada", ended(number)) for number in range(2, most + 2)]))
    new = [ended(1), ended(most + 2), ended(most + 3)]  # one of them ended before all that are kept
    flow.drive(bulk.write(store, flow.drive(repositories.ending(store, "ada", new))))
    assert flow.drive(ENDED.all(store, "ada")) == [ended(number) for number in range(4, most + 4)]


def test_where_no_fact_ends_nothing_is_read() -> None:
    assert list(repositories.ending(InMemoryStore(), "ada", [])) == []


# Together with everything else of a user


def namespaces(store: BaseStore, call: Call) -> set[tuple[str, ...]]:
    [found] = call(flow, "drive", flow.batch(store, [SearchOp((), limit=10_000)]))
    return {item.namespace for item in found}


def test_erasing_a_user_leaves_nothing(store: BaseStore, call: Call) -> None:
    write(store, call, [*everything("ada"), *everything("ada2")])
    with ContextPipeline(store=store) as pipeline:
        assert call(pipeline, "erase_user", user_id="ada") == len(everything("ada"))
    assert {namespace[1] for namespace in namespaces(store, call)} == {label("ada2")}
    assert call(flow, "drive", FACTS.all(store, "ada2")) == [fact("x", "ada2")]


def test_an_export_has_all_of_it(store: BaseStore, call: Call) -> None:
    write(store, call, [*everything("ada"), *everything("ada2")])
    with ContextPipeline(store=store) as pipeline:
        lines = [json.loads(line) for line in call(pipeline, "export_user", user_id="ada")]
    exported = {(*line["namespace"], line["key"]) for line in lines}
    assert exported == {(*put.namespace, put.key) for put in everything("ada")}
    [topic_line] = [line for line in lines if line["namespace"][3:] == ["topics"]]
    assert TopicProfile.read(topic_line["value"], "") == topic("x", "ada")


def test_clearing_a_conversation_leaves_what_is_known_of_the_user(store: BaseStore, call: Call) -> None:
    gone, other = Scope("ada", "facts"), Scope("ada", "c1")  # a conversation may be called as a kind is
    write(store, call, [*everything("ada"), *(put for _, put, _ in single_records(gone, "ada").values())])
    current = fact("x", "ada").model_copy(update={"ended": None, "ended_at": None, "superseded_by": None})
    write(store, call, [FACTS.put("ada", current), ENDED.delete("ada", "x")])  # no fact is both at once
    with ContextPipeline(store=store) as pipeline:
        call(pipeline, "add_messages", [HumanMessage("Hello")], user_id="ada", conversation_id="facts")
        call(pipeline, "clear", user_id="ada", conversation_id="facts")
    assert label("facts") not in {namespace[3] for namespace in namespaces(store, call) if len(namespace) > 3}
    _, *of_conversation = single_records(other, "ada").values()  # the mark may be renewed
    for record, _, at in of_conversation:
        assert read(store, call, type(record), at) == record
    for repository, make in KINDS.values():  # what is counted may be counted again
        if repository is ENDED:
            continue
        left = call(flow, "drive", repository.all(store, "ada"))
        assert [repository.key(record) for record in left] == [repository.key(make("x", "ada"))]


@pytest.mark.parametrize("make_store", [InMemoryStore, ChromaStore])
def test_nothing_of_it_is_embedded(make_store: Callable[..., Any]) -> None:
    seen: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        seen.extend(texts)
        return [[1.0, 0.0] for _ in texts]

    store = make_store(index={"dims": 2, "embed": embed, "fields": ["$"]})
    flow.drive(bulk.write(store, everything("ada")))
    assert seen == []
    store.put((ROOT, "note"), "k", {"text": "this is"})
    assert seen
    if isinstance(store, ChromaStore):
        store.close()
