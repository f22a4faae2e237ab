"""Everything of a user as JSONL, and nothing of them any more.

Through every read, and by SQL over the database.
"""

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
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
from tests.stores import embed

SETTINGS = {"max_context_tokens": 700, "span_messages": 4, "keep_messages": 4}
ADA = "ada-who-leaves@example.com"
GRACE = "grace"
SCOPE: Any = {"user_id": ADA, "conversation_id": "c1"}
SECRET = "xylophonic"
"""A word that every text of the user who leaves has; the model that summarizes and learns repeats
it."""


def new_pipeline(store: BaseStore, **changes: Any) -> ContextPipeline:
    return ContextPipeline(
        {**SETTINGS, **changes}, store=store, summary_model=Scripted(answer=answer)
    )


def answer(prompt: str) -> str:
    word = SECRET if SECRET in prompt else "nothing"
    return learned(word) if asks_to_learn(prompt) else summary(f"It was about {word}.")


def told(number: int, word: str) -> list[BaseMessage]:
    return [type(message)(f"{word}: {message.text}", id=message.id) for message in exchange(number)]


def fill(pipeline: ContextPipeline, user: str, word: str) -> None:
    """Everything that can be stored of a user, in three conversations.

    The last one has a branch.
    """
    for name in ("c1", "c2"):
        scope = {"user_id": user, "conversation_id": name}
        pipeline.add_messages(
            [message for number in range(12) for message in told(number, word)], **scope
        )
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
    items = store.search((), limit=100_000)
    namespaces = store.list_namespaces(limit=100_000)
    if isinstance(store, InMemoryStore):  # goes on listing those that are empty
        namespaces = [one for one in namespaces if store.search(one)]
    return [*map(repr, items), *map(repr, namespaces)]


def traces(texts: Iterable[object]) -> list[object]:
    return [text for text in texts if any(word in str(text) for word in (SECRET, ADA, label(ADA)))]


# Export


def test_an_export_has_everything_of_a_user(store: BaseStore) -> None:
    with new_pipeline(store) as pipeline:
        fill(pipeline, ADA, SECRET)
        fill(pipeline, GRACE, "nothing")
        assert pipeline.flush(30)
        records = [json.loads(line) for line in pipeline.export_user(user_id=ADA)]
        assert all(
            {"kind", "key", "value", "created_at", "updated_at"} <= record.keys()
            for record in records
        )
        kinds: dict[str, list[dict[str, Any]]] = {}
        for record in records:
            kinds.setdefault(record["kind"].partition("/")[0], []).append(record)
        assert next(iter(kinds)) == "messages"
        said = {"messages", "lanes", "cuts", "pins", "compactions", "settings"}
        assert set(kinds) == said | {"knowledge", "snapshot", "learning"}
        facts = [
            each["value"]["text"]
            for each in kinds["knowledge"]
            if each["kind"] == "knowledge/facts"
        ]
        assert facts == [fact.text for fact in pipeline.knowledge.list_facts(user_id=ADA)] != []
        for name in ("c1", "c2", "c3"):
            values = [
                each["value"] for each in kinds["messages"] if each["conversation_id"] == name
            ]
            values = [value for value in values if "message" in value]
            there = messages_from_dict(
                [value["message"] for value in values if not value["archived"]]
            )
            kept = messages_from_dict([value["message"] for value in values if value["archived"]])
            shown = pipeline.get_messages(user_id=ADA, conversation_id=name)
            assert sorted((one.id, one.content) for one in there) == sorted(
                (one.id, one.content) for one in shown
            )
            assert [one.content for one in kept] == (
                [] if name == "c3" else [told(1, SECRET)[0].content]
            )
            unedited = [one.id for one in there if SECRET in str(one.content) and one.id != "q3"]
            assert unedited == [one.id for one in shown if one.id in unedited]
        assert {"pins": {"q4": "keep", "a4": "keep"}} in [each["value"] for each in kinds["pins"]]
        settings = [each["value"] for each in kinds["settings"]]
        assert {"preferences": [f"Say {SECRET}."]} in settings
        assert {"preferences": [f"Sing {SECRET}."]} in settings


def test_a_file_of_an_export_is_read_line_by_line(tmp_path: Path) -> None:
    hostile = [
        "two\nlines",
        "separators \u2028 \u2029 \x85 \x0b \x0c",
        "nul \0",
        "half \ud800",
        "\U0001f642",
        '"',
    ] * 2
    with new_pipeline(InMemoryStore()) as pipeline:
        pipeline.add_messages([HumanMessage(text) for text in hostile], **SCOPE)
        path = tmp_path / "ada.jsonl"
        path.write_text("\n".join(pipeline.export_user(user_id=ADA)), encoding="utf-8")
    values = [json.loads(line)["value"] for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [value["message"]["data"]["content"] for value in values if "message" in value]
    assert sorted(texts) == sorted(hostile)


def test_a_damaged_message_is_exported_as_it_is_stored_and_all_others_in_their_order() -> None:
    damages: list[dict[str, Any]] = [
        {"text": "{not json"},
        {"text": 5},
        {"place": "x"},
        {"place": {"clock": "a"}},
    ]
    for damage in damages:
        store = InMemoryStore()
        with new_pipeline(store) as pipeline:
            pipeline.add_messages([HumanMessage(str(n)) for n in range(12)], **SCOPE)
            [first, *_] = [one for one in store.search((), limit=100) if one.key.endswith("/1")]
            store.put(first.namespace, first.key, {**first.value, **damage})
            lines = [json.loads(line) for line in pipeline.export_user(user_id=ADA)]
        values = [line["value"] for line in lines if line["kind"] == "messages"]
        texts = [value["message"]["data"]["content"] for value in values if "message" in value]
        assert texts == [str(n) for n in range(12) if n != 1]
        assert [value for value in values if "message" not in value] == [{**first.value, **damage}]


# Erase


def test_after_erasing_no_read_tells_of_the_user(store: BaseStore) -> None:
    with new_pipeline(store) as pipeline, new_pipeline(store) as other:
        fill(pipeline, ADA, SECRET)
        fill(pipeline, GRACE, "nothing")
        other.assemble("Hello", **SCOPE)
        assert pipeline.flush(30)
        graces = pipeline.export_user(user_id=GRACE)
        records = len(pipeline.export_user(user_id=ADA))
        assert pipeline.erase_user(user_id=ADA) == records > 0
        assert traces(everything(store)) == []
        for reader in (pipeline, other, new_pipeline(store)):
            for name in ("c1", "c2", "c3"):
                scope = {"user_id": ADA, "conversation_id": name}
                context = reader.assemble("What was it about?", **scope)
                assert [message.text for message in context.messages] == ["What was it about?"]
                assert context.report.failures == ()
                assert reader.get_page(**scope).messages == []
                assert reader.get_messages(**scope) == reader.get_compactions(**scope) == []
                assert not any(reader.coverage(**scope).values())
                history = BudgetedChatMessageHistory(name, user_id=ADA, pipeline=reader)
                assert history.window(500) == []
                config = {"configurable": {"user_id": ADA, "thread_id": name}}
                assert SECRET not in str(
                    create_recall_tool(reader).invoke({"reference": "1-40"}, config)
                )
            assert (
                reader.get_settings(user_id=ADA)
                == reader.get_settings(user_id=ADA, persona_id=SECRET)
                == {}
            )
            assert reader.export_user(user_id=ADA) == []
        assert pipeline.export_user(user_id=GRACE) == graces


@pytest.mark.parametrize("which", ["same", "other"])
def test_what_the_model_was_writing_does_not_come_back(store: BaseStore, which: str) -> None:
    """The user is erased while a model works on their texts, by the pipeline that asked it, or by another one."""
    asked = threading.Event()
    may_answer = threading.Event()

    def answer_late(prompt: str) -> str:
        asked.set()
        assert may_answer.wait(30)
        return answer(prompt)

    with (
        ContextPipeline(
            SETTINGS, store=store, summary_model=Scripted(answer=answer_late)
        ) as writing,
        new_pipeline(store) as other,
    ):
        writing.add_messages(
            [message for number in range(12) for message in told(number, SECRET)], **SCOPE
        )
        writing.assemble("What was it about?", **SCOPE)
        assert asked.wait(30)
        (writing if which == "same" else other).erase_user(user_id=ADA)
        may_answer.set()
        assert writing.flush(30)
        assert traces(everything(store)) == []
        assert len(writing.assemble("What was it about?", **SCOPE).messages) == 1
        assert traces(everything(store)) == []


# By SQL


def rows(folder: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            yield from ((table, repr(row)) for row in database.execute(f'SELECT * FROM "{table}"'))


INDEX: IndexConfig = {"dims": 64, "embed": embed}


def work_and_erase(store: BaseStore) -> None:
    with new_pipeline(store) as pipeline:
        fill(pipeline, ADA, SECRET)
        fill(pipeline, GRACE, "nothing")
        for user, word in ((ADA, SECRET), (GRACE, "nothing")):
            store.put(("ctxbudget", label(user), "notes"), "k", {"text": f"a note about {word}"})
        pipeline.erase_user(user_id=ADA)


def ids_in_bytes(folder: Path) -> list[tuple[str, str]]:
    """The files that hold the id of the erased user in any spelling, or a word that they said."""
    spellings = (ADA, label(ADA), label(ADA).removesuffix("~"), SECRET)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        (path.name, one) for path in files for one in spellings if one.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    "had_indexes", [False, True], ids=["new folder", "folder with index files"]
)
def test_after_a_vacuum_no_file_has_a_byte_of_an_erased_user(
    tmp_path: Path, had_indexes: bool
) -> None:
    with ChromaStore(tmp_path, index=INDEX) as store, new_pipeline(store) as pipeline:
        fill(pipeline, ADA, SECRET)
        fill(pipeline, GRACE, "nothing")
    if had_indexes:
        process = FORKED.Process(target=keep_indexes, args=(str(tmp_path),))
        process.start()
        process.join()
        assert any(name == "index_metadata.pickle" for name, _ in ids_in_bytes(tmp_path))
    with ChromaStore(tmp_path, index=INDEX) as store, new_pipeline(store) as pipeline:
        graces = pipeline.export_user(user_id=GRACE)
        pipeline.erase_user(user_id=ADA)
        assert ids_in_bytes(tmp_path)
        store.vacuum()
        assert ids_in_bytes(tmp_path) == []
        assert pipeline.export_user(user_id=GRACE) == graces
        pipeline.add_messages([HumanMessage("Still here?")], user_id=GRACE, conversation_id="c9")
    assert ids_in_bytes(tmp_path) == []
    with ChromaStore(tmp_path, index=INDEX) as store, new_pipeline(store) as pipeline:
        assert [one.text for one in pipeline.get_messages(user_id=GRACE, conversation_id="c9")] == [
            "Still here?"
        ]


def keep_indexes(folder: str) -> None:
    """Let Chroma itself write to the folder, which keeps its indexes in files, as a server does."""
    client = chromadb.PersistentClient(folder)
    for collection in client.list_collections():
        records = collection.get(include=["metadatas"])
        for first in range(0, len(records["ids"]), 50):
            ids = records["ids"][first : first + 50]
            metadatas = (records["metadatas"] or [])[first : first + 50]
            collection.upsert(ids, embeddings=[[1.0] for _ in ids], metadatas=metadatas)


def test_of_an_erased_user_no_table_of_a_chroma_folder_has_a_row_but_the_log(
    tmp_path: Path,
) -> None:
    """The log has the last writes of each collection, until others take their place."""
    with ChromaStore(tmp_path, index=INDEX) as store:
        work_and_erase(store)
        assert traces(everything(store)) == []
    found = list(rows(tmp_path))
    assert any("Grace" in row or "grace" in row for _, row in found)
    assert {table for table, row in found if traces([row])} <= {"embeddings_queue"}
    with ChromaStore(tmp_path, index=INDEX) as store, new_pipeline(store) as pipeline:
        assert pipeline.get_messages(user_id=GRACE, conversation_id="c1")
