"""An export has everything of a user, and after erasing them there is nothing of them any more.

Seen through every read, by SQL over the database, and in the bytes of its files.
"""

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chromadb
import pytest
from langchain_core.messages import BaseMessage, HumanMessage, messages_from_dict
from langgraph.store.base import BaseStore, IndexConfig
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    BudgetedChatMessageHistory,
    ChromaStore,
    ContextPipeline,
    create_recall_tool,
)
from langchain_ctxbudget.stores import label
from tests.integration_tests.learning_models import asks_to_learn
from tests.integration_tests.summary_models import Scripted, exchange, learned, summary
from tests.processes import FORKED
from tests.stores import EVERY_STORE, blocking_stores, embed

SETTINGS = {"max_context_tokens": 700, "span_messages": 4, "keep_messages": 4}
ADA = "ada-who-leaves@example.com"
GRACE = "grace"
SCOPE: Any = {"user_id": ADA, "conversation_id": "c1"}
CONVERSATIONS = ["c1", "c2", "c3"]
SECRET = "xylophonic"
"""A word that every text of the user who leaves has; the model that summarizes and learns repeats
it."""
NOTHING = "nothing"
"""What every text of the other user has in its place."""
INDEX: IndexConfig = {"dims": 64, "embed": embed}


def new_pipeline(store: BaseStore) -> ContextPipeline:
    return ContextPipeline(SETTINGS, store=store, summary_model=Scripted(answer=answer))


def answer(prompt: str) -> str:
    """Returns a summary and what is learned, as either or both may be asked for."""
    word = SECRET if SECRET in prompt else NOTHING
    of_user = json.loads(learned(word)) if asks_to_learn(prompt) else {}
    return summary(f"It was about {word}.", **of_user)


def with_word(word: str, message: BaseMessage) -> BaseMessage:
    return type(message)(f"{word}: {message.text}", id=message.id)


def messages_with(word: str, exchanges: Iterable[int]) -> list[BaseMessage]:
    """Returns a question and an answer a number, with the word in front of each."""
    messages: list[BaseMessage] = []
    for number in exchanges:
        messages += [with_word(word, message) for message in exchange(number)]
    return messages


def fill(pipeline: ContextPipeline, user: str, word: str) -> None:
    """Stores everything that can be stored of a user, in three conversations.

    The last one is a branch of the second.
    """
    for name in ("c1", "c2"):
        scope = {"user_id": user, "conversation_id": name}
        pipeline.add_messages(messages_with(word, range(12)), **scope)
        pipeline.remove_messages("q1", on_removal="archive", **scope)
        pipeline.remove_messages("q2", on_removal="forget", **scope)
        pipeline.edit_message("q3", HumanMessage(f"{word}: edited"), **scope)
        pipeline.pin(["q4", "a4"], **scope)
        assert pipeline.assemble("What was it about?", **scope).report.failures == ()
    assert pipeline.flush(30)
    pipeline.fork("c3", user_id=user, conversation_id="c2")
    pipeline.save_settings({"preferences": [f"Say {word}."]}, user_id=user)
    pipeline.save_settings({"preferences": [f"Sing {word}."]}, user_id=user, persona_id=word)


def everything(store: BaseStore) -> list[str]:
    """Returns all items and the names of all namespaces, as text."""
    namespaces = store.list_namespaces(limit=100_000)
    if isinstance(store, InMemoryStore):  # goes on listing those that are empty
        namespaces = [namespace for namespace in namespaces if store.search(namespace)]
    items = store.search((), limit=100_000)
    return [repr(item) for item in items] + [repr(namespace) for namespace in namespaces]


def is_of_ada(text: str) -> bool:
    return SECRET in text or ADA in text or label(ADA) in text


def traces(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if is_of_ada(text)]


# Export


@dataclass
class Export:
    """The export of a user, and what the pipeline shows of them."""

    records: list[dict[str, Any]]
    facts: list[str]
    messages: dict[str, list[BaseMessage]]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["kind"].partition("/")[0] == kind]

    def values(self, kind: str) -> list[dict[str, Any]]:
        return [record["value"] for record in self.of_kind(kind)]

    def exported_messages(self, conversation: str, *, archived: bool) -> list[BaseMessage]:
        messages = []
        for record in self.of_kind("messages"):
            value = record["value"]
            if record["conversation_id"] != conversation or "message" not in value:
                continue
            if bool(value["archived"]) == archived:
                messages.append(value["message"])
        return messages_from_dict(messages)


def export_of(store: BaseStore) -> Export:
    with new_pipeline(store) as pipeline:
        fill(pipeline, ADA, SECRET)
        fill(pipeline, GRACE, NOTHING)
        assert pipeline.flush(30)
        messages = {}
        for name in CONVERSATIONS:
            messages[name] = pipeline.get_messages(user_id=ADA, conversation_id=name)
        return Export(
            records=[json.loads(line) for line in pipeline.export_user(user_id=ADA)],
            facts=[fact.text for fact in pipeline.knowledge.list_facts(user_id=ADA)],
            messages=messages,
        )


@pytest.fixture(scope="module")
def exports() -> dict[str, Export]:
    """The exports that were made so far, by the kind of their store."""
    return {}


@pytest.fixture(params=EVERY_STORE)
def export(request: pytest.FixtureRequest, exports: dict[str, Export]) -> Export:
    """The export of a user from a store of each kind: made once, for it takes seconds."""
    kind = request.param
    if kind not in exports:
        with blocking_stores(kind, request) as new:
            exports[kind] = export_of(new())
    return exports[kind]


@pytest.mark.parametrize("name", ["kind", "key", "value", "created_at", "updated_at"])
def test_every_record_has_its_kind_key_value_and_times(export: Export, name: str) -> None:
    assert [record for record in export.records if name not in record] == []


def test_messages_stand_first_in_an_export(export: Export) -> None:
    assert export.records[0]["kind"].partition("/")[0] == "messages"


def test_an_export_has_every_kind_of_record(export: Export) -> None:
    assert {record["kind"].partition("/")[0] for record in export.records} == {
        "messages",
        "lanes",
        "cuts",
        "pins",
        "compactions",
        "settings",
        "knowledge",
        "snapshot",
        "learning",
        "spent",
        "usage",
    }


def test_an_export_has_the_facts_that_are_known(export: Export) -> None:
    knowledge = export.of_kind("knowledge")
    facts = [each["value"]["text"] for each in knowledge if each["kind"] == "knowledge/facts"]
    assert facts == export.facts
    assert len(facts) > 0


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_an_export_has_the_messages_that_are_shown(export: Export, conversation: str) -> None:
    exported = export.exported_messages(conversation, archived=False)
    shown = export.messages[conversation]
    assert ids_and_contents(exported) == ids_and_contents(shown)


def ids_and_contents(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    return sorted((str(message.id), message.text) for message in messages)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_messages_stand_in_their_order_in_an_export(export: Export, conversation: str) -> None:
    exported = ids_but_the_edited(export.exported_messages(conversation, archived=False))
    shown = ids_but_the_edited(export.messages[conversation])
    assert exported == [key for key in shown if key in exported]


def ids_but_the_edited(messages: Sequence[BaseMessage]) -> list[str]:
    """Returns the ids of messages with the word that fills them, but of the one that is edited."""
    return [str(each.id) for each in messages if SECRET in each.text and each.id != "q3"]


@pytest.mark.parametrize("conversation", ["c1", "c2"])
def test_an_export_has_archived_messages(export: Export, conversation: str) -> None:
    [archived] = export.exported_messages(conversation, archived=True)
    assert archived.text == messages_with(SECRET, [1])[0].text


def test_a_branch_has_no_archived_messages_of_its_source(export: Export) -> None:
    assert export.exported_messages("c3", archived=True) == []


def test_an_export_has_pins(export: Export) -> None:
    assert {"pins": {"q4": "keep", "a4": "keep"}} in export.values("pins")


def test_an_export_has_the_settings_of_a_user(export: Export) -> None:
    assert {"preferences": ["Say xylophonic."]} in export.values("settings")


def test_an_export_has_the_settings_of_a_persona(export: Export) -> None:
    assert {"preferences": ["Sing xylophonic."]} in export.values("settings")


def test_a_file_of_an_export_is_read_line_by_line(tmp_path: Path) -> None:
    hostile = [
        "two\nlines",
        "separators \u2028 \u2029 \x85 \x0b \x0c",
        "nul \0",
        "half \ud800",
        "\U0001f642",
        '"',
    ] * 2
    path = tmp_path / "ada.jsonl"
    with new_pipeline(InMemoryStore()) as pipeline:
        pipeline.add_messages([HumanMessage(text) for text in hostile], **SCOPE)
        path.write_text("\n".join(pipeline.export_user(user_id=ADA)), encoding="utf-8")

    lines = path.read_text(encoding="utf-8").splitlines()

    values = [json.loads(line)["value"] for line in lines]
    assert sorted(texts_of(values)) == sorted(hostile)


def texts_of(values: Iterable[dict[str, Any]]) -> list[str]:
    """Returns the texts of the values that hold a message."""
    return [value["message"]["data"]["content"] for value in values if "message" in value]


@dataclass
class Damaged:
    """The stored value of a message that was damaged, and the values that are exported then."""

    value: dict[str, Any]
    exported: list[dict[str, Any]]


@pytest.fixture(
    params=[{"text": "{not json"}, {"text": 5}, {"place": "x"}, {"place": {"clock": "a"}}],
    ids=["text is no JSON", "text is a number", "place is a text", "place has no number"],
)
def damaged(request: pytest.FixtureRequest) -> Damaged:
    """An export of twelve messages, "0" to "11", of which the second is damaged."""
    store = InMemoryStore()
    with new_pipeline(store) as pipeline:
        pipeline.add_messages([HumanMessage(str(number)) for number in range(12)], **SCOPE)
        items = [item for item in store.search((), limit=100) if item.key.endswith("/1")]
        value = {**items[0].value, **request.param}
        store.put(items[0].namespace, items[0].key, value)
        lines = [json.loads(line) for line in pipeline.export_user(user_id=ADA)]
    return Damaged(value, [line["value"] for line in lines if line["kind"] == "messages"])


def test_a_damaged_message_is_exported_as_it_is_stored(damaged: Damaged) -> None:
    assert [value for value in damaged.exported if "message" not in value] == [damaged.value]


def test_messages_beside_a_damaged_one_are_exported_in_order(damaged: Damaged) -> None:
    others = ["0", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"]
    assert texts_of(damaged.exported) == others


# Erase


@dataclass
class Reads:
    """What one pipeline shows of the three conversations of an erased user."""

    prompts: list[list[str]] = field(default_factory=list)
    failures: list[tuple[str, ...]] = field(default_factory=list)
    pages: list[BaseMessage] = field(default_factory=list)
    messages: list[BaseMessage] = field(default_factory=list)
    compactions: list[Any] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)
    windows: list[BaseMessage] = field(default_factory=list)
    recalled: list[str] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)
    export: list[str] = field(default_factory=list)


def reads_of(reader: ContextPipeline) -> Reads:
    reads = Reads()
    for name in CONVERSATIONS:
        scope = {"user_id": ADA, "conversation_id": name}
        context = reader.assemble("What was it about?", **scope)
        reads.prompts.append([message.text for message in context.messages])
        reads.failures.append(context.report.failures)
        reads.pages += reader.get_page(**scope).messages
        reads.messages += reader.get_messages(**scope)
        reads.compactions += reader.get_compactions(**scope)
        for ids in reader.coverage(**scope).values():
            reads.covered += ids
        history = BudgetedChatMessageHistory(name, user_id=ADA, pipeline=reader)
        reads.windows += history.window(500)
        config: Any = {"configurable": {"user_id": ADA, "thread_id": name}}
        reads.recalled.append(str(create_recall_tool(reader).invoke({"reference": "1-40"}, config)))
    reads.settings.append(reader.get_settings(user_id=ADA))
    reads.settings.append(reader.get_settings(user_id=ADA, persona_id=SECRET))
    reads.export += reader.export_user(user_id=ADA)
    return reads


@dataclass
class Erased:
    """What is seen after one of two users was erased."""

    records: int
    """How many the export had before."""
    erased: int
    """How many records were erased, as `erase_user` says."""
    traces: list[str]
    graces_before: list[str]
    graces_after: list[str]
    reads: dict[str, Reads]
    """By who reads."""


READERS = ["the pipeline that erased", "another that had read", "a new one"]


def erased_from(store: BaseStore) -> Erased:
    with new_pipeline(store) as pipeline, new_pipeline(store) as other:
        fill(pipeline, ADA, SECRET)
        fill(pipeline, GRACE, NOTHING)
        other.assemble("Hello", **SCOPE)
        assert pipeline.flush(30)
        assert other.flush(30)
        graces = pipeline.export_user(user_id=GRACE)
        records = len(pipeline.export_user(user_id=ADA))

        count = pipeline.erase_user(user_id=ADA)

        left = traces(everything(store))
        readers = [pipeline, other, new_pipeline(store)]
        reads = {}
        for name, reader in zip(READERS, readers, strict=True):
            reads[name] = reads_of(reader)
        return Erased(records, count, left, graces, pipeline.export_user(user_id=GRACE), reads)


@pytest.fixture(scope="module")
def all_erased() -> dict[str, Erased]:
    """What was seen so far, by the kind of the store."""
    return {}


@pytest.fixture(params=EVERY_STORE)
def erased(request: pytest.FixtureRequest, all_erased: dict[str, Erased]) -> Erased:
    """A store of each kind from which a user was erased: made once, for it takes seconds."""
    kind = request.param
    if kind not in all_erased:
        with blocking_stores(kind, request) as new:
            all_erased[kind] = erased_from(new())
    return all_erased[kind]


@pytest.fixture(params=READERS)
def reads(request: pytest.FixtureRequest, erased: Erased) -> Reads:
    return erased.reads[request.param]


def test_erasing_tells_how_many_records_it_erased(erased: Erased) -> None:
    assert erased.erased == erased.records
    assert erased.erased > 0


def test_a_store_has_no_trace_of_an_erased_user(erased: Erased) -> None:
    assert erased.traces == []


def test_erasing_a_user_leaves_others_as_they_were(erased: Erased) -> None:
    assert erased.graces_after == erased.graces_before


def test_after_erasing_a_prompt_is_the_question_alone(reads: Reads) -> None:
    assert reads.prompts == [["What was it about?"]] * 3


def test_after_erasing_no_prompt_tells_of_failures(reads: Reads) -> None:
    assert reads.failures == [(), (), ()]


@pytest.mark.parametrize("name", ["pages", "messages", "compactions", "covered", "windows"])
def test_after_erasing_a_conversation_is_empty(reads: Reads, name: str) -> None:
    assert getattr(reads, name) == []


def test_after_erasing_nothing_is_recalled(reads: Reads) -> None:
    assert [text for text in reads.recalled if SECRET in text] == []


def test_after_erasing_there_are_no_settings(reads: Reads) -> None:
    assert reads.settings == [{}, {}]


def test_after_erasing_an_export_is_empty(reads: Reads) -> None:
    assert reads.export == []


@pytest.mark.parametrize("which", ["same", "other"])
def test_what_the_model_was_writing_does_not_come_back(store: BaseStore, which: str) -> None:
    """The user is erased while a model works on their texts.

    By the pipeline that asked it, or by another one.
    """
    asked = threading.Event()
    may_answer = threading.Event()

    def answer_late(prompt: str) -> str:
        asked.set()
        assert may_answer.wait(30)
        return answer(prompt)

    late = Scripted(answer=answer_late)
    with (
        ContextPipeline(SETTINGS, store=store, summary_model=late) as writing,
        new_pipeline(store) as other,
    ):
        writing.add_messages(messages_with(SECRET, range(12)), **SCOPE)
        writing.assemble("What was it about?", **SCOPE)
        assert asked.wait(30)

        eraser = {"same": writing, "other": other}[which]
        eraser.erase_user(user_id=ADA)
        may_answer.set()
        assert writing.flush(30)

        assert traces(everything(store)) == []
        assert len(writing.assemble("What was it about?", **SCOPE).messages) == 1
        assert traces(everything(store)) == []


# In the bytes of files


def places_in_bytes(folder: Path) -> list[tuple[str, str]]:
    """Returns the files with the id of the erased user in any spelling, or a word of theirs."""
    spellings = (ADA, label(ADA), label(ADA).removesuffix("~"), SECRET)
    places = []
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            places += [(path.name, word) for word in spellings if word.encode() in content]
    return places


def keep_indexes(folder: str) -> None:
    """Lets Chroma itself write to the folder: it keeps its indexes in files, as a server does."""
    client = chromadb.PersistentClient(folder)
    for collection in client.list_collections():
        records = collection.get(include=["metadatas"])
        for first in range(0, len(records["ids"]), 50):
            ids = records["ids"][first : first + 50]
            metadatas = (records["metadatas"] or [])[first : first + 50]
            collection.upsert(ids, embeddings=[[1.0] for _ in ids], metadatas=metadatas)


@dataclass
class Vacuumed:
    """What the files of a folder hold of an erased user, and what is left of another."""

    places_before: list[tuple[str, str]]
    places_after: list[tuple[str, str]]
    places_when_closed: list[tuple[str, str]]
    graces_before: list[str]
    graces_after: list[str]
    written_after: list[str]


@pytest.fixture(scope="module", params=[False, True], ids=["new folder", "with index files"])
def vacuumed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Vacuumed:
    folder = tmp_path_factory.mktemp("vacuumed")
    with ChromaStore(folder, index=INDEX) as store, new_pipeline(store) as pipeline:
        fill(pipeline, ADA, SECRET)
        fill(pipeline, GRACE, NOTHING)
    if request.param:
        process = FORKED.Process(target=keep_indexes, args=(str(folder),))
        process.start()
        process.join()
        assert "index_metadata.pickle" in [name for name, _ in places_in_bytes(folder)]

    grace: Any = {"user_id": GRACE, "conversation_id": "c9"}
    with ChromaStore(folder, index=INDEX) as store, new_pipeline(store) as pipeline:
        graces_before = pipeline.export_user(user_id=GRACE)
        pipeline.erase_user(user_id=ADA)
        places_before = places_in_bytes(folder)
        store.vacuum()
        places_after = places_in_bytes(folder)
        graces_after = pipeline.export_user(user_id=GRACE)
        pipeline.add_messages([HumanMessage("Still here?")], **grace)
    places_when_closed = places_in_bytes(folder)

    with ChromaStore(folder, index=INDEX) as store, new_pipeline(store) as pipeline:
        written_after = [message.text for message in pipeline.get_messages(**grace)]
    return Vacuumed(
        places_before=places_before,
        places_after=places_after,
        places_when_closed=places_when_closed,
        graces_before=graces_before,
        graces_after=graces_after,
        written_after=written_after,
    )


def test_before_a_vacuum_files_have_bytes_of_an_erased_user(vacuumed: Vacuumed) -> None:
    assert vacuumed.places_before != []


def test_after_a_vacuum_no_file_has_a_byte_of_an_erased_user(vacuumed: Vacuumed) -> None:
    assert vacuumed.places_after == []


def test_a_closed_folder_has_no_byte_of_an_erased_user(vacuumed: Vacuumed) -> None:
    assert vacuumed.places_when_closed == []


def test_a_vacuum_leaves_others_as_they_were(vacuumed: Vacuumed) -> None:
    assert vacuumed.graces_after == vacuumed.graces_before


def test_what_is_written_after_a_vacuum_is_kept(vacuumed: Vacuumed) -> None:
    assert vacuumed.written_after == ["Still here?"]


# By SQL


def rows(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields each row of each table of a folder's database, as text, after the table's name."""
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            for row in database.execute(f'SELECT * FROM "{table}"'):
                yield table, repr(row)


@dataclass
class Folder:
    """A closed folder from which a user was erased."""

    path: Path
    traces: list[str]
    """What the store showed of the user before it was closed."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    path = tmp_path_factory.mktemp("erased")
    with ChromaStore(path, index=INDEX) as store:
        with new_pipeline(store) as pipeline:
            fill(pipeline, ADA, SECRET)
            fill(pipeline, GRACE, NOTHING)
            adas = ("ctxbudget", label(ADA), "notes")
            graces = ("ctxbudget", label(GRACE), "notes")
            store.put(adas, "k", {"text": f"a note about {SECRET}"})
            store.put(graces, "k", {"text": f"a note about {NOTHING}"})
            pipeline.erase_user(user_id=ADA)
        return Folder(path, traces(everything(store)))


def test_a_folder_shows_no_trace_of_an_erased_user(folder: Folder) -> None:
    assert folder.traces == []


def test_a_folder_has_rows_of_another_user(folder: Folder) -> None:
    assert any("Grace" in row or "grace" in row for _, row in rows(folder.path))


def test_no_table_but_the_log_has_a_row_of_an_erased_user(folder: Folder) -> None:
    """The log has the last writes of each collection, until others take their place."""
    tables = {table for table, row in rows(folder.path) if is_of_ada(row)}
    assert tables <= {"embeddings_queue"}


def test_a_folder_without_an_erased_user_is_opened_again(folder: Folder) -> None:
    with ChromaStore(folder.path, index=INDEX) as store, new_pipeline(store) as pipeline:
        assert len(pipeline.get_messages(user_id=GRACE, conversation_id="c1")) > 0
