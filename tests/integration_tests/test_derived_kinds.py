"""What happens to derived data, of every kind and at every place, when messages go."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, ListNamespacesOp, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import Flow, drive
from langchain_ctxbudget.history import derived_kinds, segments, table
from langchain_ctxbudget.history.derived import Change, DerivedKind
from langchain_ctxbudget.stores import CutsRecord, InStore, Scope, Value
from tests.cases import few_are_quick
from tests.conversations import BagOfWords
from tests.derived_folder import StoreBesideFolder
from tests.integration_tests.summary_models import Scripted

ADA: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
SCOPE = Scope("ada", "c1")
BOB = Scope("bob", "c1")
FORK = Scope("ada", "fork")
QUESTION = "Where is the violet lantern?"
SEGMENT = 32
FOLLOWING = 8
SETTINGS = {"max_context_tokens": 600, "span_messages": 8, "learn": False}


class Marks(DerivedKind):
    """A kind that nobody knows but this test."""

    name = "marks"
    pieces: ClassVar[dict[str, Value]] = {"a-1": {"mark": "a"}, "b-1": {"mark": "b"}}

    def forget_changed(self, store: BaseStore, change: Change) -> Flow[None]:
        return self.clear(store, change.scope)


class PaidMarks(Marks):
    """The same, of somebody who pays for it."""

    name = "paid marks"
    is_remade = False


MARKS = [Marks(), PaidMarks()]


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_kinds, "KINDS", (*derived_kinds.KINDS, *MARKS))
    monkeypatch.setattr(segments, "SEGMENT_MESSAGES", SEGMENT)
    monkeypatch.setattr(segments, "FOLLOWING", FOLLOWING)
    monkeypatch.setattr(table, "MOST_DECODED", SEGMENT)


@pytest.fixture(params=few_are_quick(["in the store", "in a folder"]))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BaseStore:
    if request.param == "in a folder":
        return StoreBesideFolder(tmp_path)
    return InMemoryStore()


def new_pipeline(store: BaseStore) -> ContextPipeline:
    return ContextPipeline(
        SETTINGS, store=store, embeddings=BagOfWords(), summary_model=Scripted(), writer_id="w"
    )


@pytest.fixture
def pipeline(store: BaseStore) -> Iterator[ContextPipeline]:
    with closing(new_pipeline(store)) as opened:
        yield opened


def message(number: int) -> BaseMessage:
    text = f"In drawer {number} lies lantern {number * 7}, said {number % 5} times on day {number}."
    return AIMessage(text, id=f"m{number}") if number % 2 else HumanMessage(text, id=f"m{number}")


def fill(pipeline: ContextPipeline) -> None:
    """A conversation with pieces of every kind, too short to be sealed again by itself."""
    messages = [message(number) for number in range(SEGMENT + FOLLOWING)]
    pipeline.add_messages(messages, **ADA)
    context = pipeline.assemble(QUESTION, **ADA)
    assert context.report.history_strategy != "full"
    assert pipeline.flush(60)
    pipeline.remove_messages(str(messages[-1].id), on_removal="forget", **ADA)
    store = pipeline.store
    for kind in MARKS:
        drive(kind.put(store, SCOPE, kind.pieces))
    sent = {"0": {"text": "a background"}}
    drive(kind_of("sent").put(store, SCOPE, sent))
    pipeline.sweep({"messages": 90})


def kind_of(name: str) -> DerivedKind:
    [kind] = [kind for kind in derived_kinds.KINDS if kind.name == name]
    return kind


def keys(store: BaseStore, kind: DerivedKind, scope: Scope = SCOPE) -> list[str]:
    return sorted(drive(kind.keys(store, scope)))


EVERY_KIND = ["cuts", "compactions", "sent", "blocks", "ages", "marks", "paid marks"]
KINDS = pytest.mark.parametrize("kind", EVERY_KIND)
MADE_UP = pytest.mark.parametrize("kind", MARKS, ids=["remade", "paid"])
GOES: dict[str, Callable[[ContextPipeline], object]] = {
    "clear": lambda pipeline: pipeline.clear(**ADA),
    "erase": lambda pipeline: pipeline.erase_user(user_id="ada"),
    "hand over": lambda pipeline: pipeline.hand_over("c1", from_user="ada", to_user="bob"),
}


@pytest.mark.parametrize(
    "go",
    [*GOES.values(), lambda pipeline: pipeline.remove_messages("m0", on_removal="forget", **ADA)],
    ids=[*GOES, "forget"],
)
def test_vectors_of_texts_in_memory_go_with_the_texts(
    pipeline: ContextPipeline, go: Callable[[ContextPipeline], object]
) -> None:
    fill(pipeline)
    vectors = pipeline.engine.workspace.vectors
    vectors[b"a text"] = np.zeros(4, np.float32)
    go(pipeline)
    assert not vectors


def test_words_go_from_segments_that_a_killed_process_has_left_without_a_head(
    pipeline: ContextPipeline, store: BaseStore
) -> None:
    fill(pipeline)
    pipeline.close()
    blocks = kind_of("blocks")
    drive(blocks.forget(store, SCOPE, [segments.HEAD]))

    with closing(new_pipeline(store)) as later:
        later.remove_messages("m0", on_removal="forget", **ADA)

    assert not any(key.startswith("0 ") for key in keys(store, blocks))


def test_every_kind_is_tested() -> None:
    assert [kind.name for kind in derived_kinds.KINDS] == EVERY_KIND


@KINDS
def test_a_conversation_has_pieces_of_every_kind(pipeline: ContextPipeline, kind: str) -> None:
    fill(pipeline)
    assert keys(pipeline.store, kind_of(kind))


@KINDS
@pytest.mark.parametrize("go", few_are_quick(GOES.values(), 2), ids=GOES)
def test_nothing_is_left_where_a_conversation_goes(
    pipeline: ContextPipeline, kind: str, go: Callable[[ContextPipeline], object]
) -> None:
    fill(pipeline)
    go(pipeline)
    assert keys(pipeline.store, kind_of(kind)) == []


@KINDS
def test_what_tells_of_a_forgotten_message_goes(pipeline: ContextPipeline, kind: str) -> None:
    fill(pipeline)
    pipeline.remove_messages("m0", on_removal="forget", **ADA)
    assert set(keys(pipeline.store, kind_of(kind))) <= {segments.HEAD}


def test_the_head_names_no_segment_with_a_forgotten_message(pipeline: ContextPipeline) -> None:
    fill(pipeline)
    pipeline.remove_messages("m0", on_removal="forget", **ADA)
    head = drive(segments.read_head(pipeline.store, SCOPE))
    assert head is not None
    assert head.segments == ()


@KINDS
def test_what_tells_of_the_old_words_goes_with_an_edit(
    pipeline: ContextPipeline, kind: str
) -> None:
    fill(pipeline)
    pipeline.edit_message("m0", HumanMessage("No lantern is there."), **ADA)
    assert set(keys(pipeline.store, kind_of(kind))) <= {segments.HEAD}


def test_archiving_keeps_what_a_model_wrote(pipeline: ContextPipeline) -> None:
    fill(pipeline)
    before = keys(pipeline.store, kind_of("compactions"))
    pipeline.remove_messages("m0", **ADA)
    assert keys(pipeline.store, kind_of("compactions")) == before


def test_what_stands_before_a_forgotten_message_stays(pipeline: ContextPipeline) -> None:
    fill(pipeline)
    pipeline.remove_messages(f"m{SEGMENT}", on_removal="forget", **ADA)
    for kind in ("blocks", "compactions"):
        assert len(keys(pipeline.store, kind_of(kind))) > 1


@MADE_UP
def test_a_fork_begins_without_what_was_left_under_its_id(
    pipeline: ContextPipeline, kind: DerivedKind
) -> None:
    fill(pipeline)
    drive(kind.put(pipeline.store, FORK, kind.pieces))
    pipeline.fork("fork", until="m3", **ADA)
    assert keys(pipeline.store, kind, FORK) == []


@KINDS
def test_a_fork_leaves_what_the_first_conversation_has(
    pipeline: ContextPipeline, kind: str
) -> None:
    fill(pipeline)
    before = keys(pipeline.store, kind_of(kind))
    pipeline.fork("fork", until="m3", **ADA)
    assert keys(pipeline.store, kind_of(kind)) == before


def test_a_fork_that_is_refused_takes_nothing_away(pipeline: ContextPipeline) -> None:
    fill(pipeline)
    with pytest.raises(ValueError, match="already"):
        pipeline.fork("c1", **ADA)
    assert keys(pipeline.store, MARKS[0]) == ["a-1", "b-1"]


@pytest.mark.parametrize("kind", ["compactions", "blocks", "marks", "paid marks"])
def test_the_next_owner_gets_what_is_derived(pipeline: ContextPipeline, kind: str) -> None:
    fill(pipeline)
    before = keys(pipeline.store, kind_of(kind))
    pipeline.hand_over("c1", from_user="ada", to_user="bob")
    assert keys(pipeline.store, kind_of(kind), BOB) == before


def test_the_next_owner_does_not_get_what_the_last_one_was_sent(pipeline: ContextPipeline) -> None:
    fill(pipeline)
    pipeline.hand_over("c1", from_user="ada", to_user="bob")
    assert keys(pipeline.store, kind_of("sent"), BOB) == []


def test_the_prompt_of_the_next_owner_is_rebuilt(pipeline: ContextPipeline) -> None:
    fill(pipeline)
    pipeline.hand_over("c1", from_user="ada", to_user="bob")
    [value] = drive(kind_of("cuts").get(pipeline.store, BOB, ["cuts"]))
    assert value is not None
    assert {cut.prefix for cut in CutsRecord.read(value, "").cuts} == {""}


@pytest.mark.parametrize("kind", ["cuts", "compactions", "sent", "paid marks"])
def test_an_export_has_what_costs_something(pipeline: ContextPipeline, kind: str) -> None:
    fill(pipeline)
    assert any(f'"kind": "{kind}"' in line for line in pipeline.export_user(user_id="ada"))


@pytest.mark.parametrize("kind", ["blocks", "ages", "marks"])
def test_an_export_is_without_what_is_made_again(pipeline: ContextPipeline, kind: str) -> None:
    fill(pipeline)
    assert not any(f'"kind": "{kind}"' in line for line in pipeline.export_user(user_id="ada"))


def test_the_records_of_a_user_are_counted_without_what_is_made_again(
    pipeline: ContextPipeline,
) -> None:
    fill(pipeline)
    lines = len(pipeline.export_user(user_id="ada"))
    assert pipeline.erase_user(user_id="ada") == lines


class Busy(InMemoryStore):
    """Somebody writes a piece that is made again, once a user's namespaces are listed."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        if any(isinstance(op, ListNamespacesOp) for op in todo) and not self.is_written:
            self.is_written = True
            super().batch([PutOp(SCOPE.namespace("blocks"), "0 texts", {"data": ""})])
        return super().batch(todo)

    is_written = False


def test_what_is_written_while_a_user_is_erased_goes_and_is_not_counted() -> None:
    store = Busy()
    with closing(new_pipeline(store)) as pipeline:
        assert pipeline.erase_user(user_id="ada") == 0
    assert store.is_written
    assert store.search(()) == []


def test_what_is_made_again_is_kept_at_the_other_place_alone(tmp_path: Path) -> None:
    store = StoreBesideFolder(tmp_path)
    with closing(new_pipeline(store)) as pipeline:
        fill(pipeline)
    kinds = {namespace[2] for namespace in store.list_namespaces()}
    remade = {"blocks", "ages", "marks"}
    assert kinds.isdisjoint(remade)
    assert {file.split("/")[1] for file in store.derived.files()} == remade


def test_what_costs_something_stays_in_the_store(tmp_path: Path) -> None:
    store = StoreBesideFolder(tmp_path)
    assert isinstance(kind_of("compactions").place(store), InStore)


def test_a_conversation_opens_from_segments_at_another_place(store: BaseStore) -> None:
    with closing(new_pipeline(store)) as first:
        fill(first)
    with closing(new_pipeline(store)) as second:
        second.assemble(QUESTION, **ADA)
        embeddings = second.embeddings
        assert isinstance(embeddings, BagOfWords)
        sealed = {message(number).text for number in range(SEGMENT)}
        assert sealed.isdisjoint(embeddings.asked)


def test_segments_whose_place_is_lost_are_made_again(tmp_path: Path) -> None:
    store = StoreBesideFolder(tmp_path)
    with closing(new_pipeline(store)) as first:
        fill(first)
    files = store.derived.files()
    drive(store.derived.erase("ada", "blocks"))
    with closing(new_pipeline(store)) as second:
        second.add_messages([message(SEGMENT + FOLLOWING)], **ADA)
        second.assemble(QUESTION, **ADA)
        assert second.flush(60)
    assert store.derived.files() == files
