"""What the commands show of what is known about a user."""

import json
import time
from functools import partial
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.cli.__main__ import main
from langchain_ctxbudget.dashboard.service import DashboardService
from langchain_ctxbudget.knowledge import Fact
from tests.integration_tests import test_cli

SAID = [
    "I live in Lisbon.",
    "I work as a nurse.",
    "My sister Clara lives in Porto.",
    "I am allergic to peanuts.",
]
LONG = "My colleague Maximiliana Wolfeschlegelsteinhausenbergerdorff works on the project Aurora Borealis."


def conversation(name: str, *said: str) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": text, "id": f"{name}-{number}"}
        for number, text in enumerate(said)
    ]
    return {"id": name, "title": name, "messages": messages}


Run = Any
"""Runs a command; returns its code, its output and its errors."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(test_cli.run, capsys)


@pytest.fixture
def inspect(run: Run, store: Path) -> Any:
    """Returns what `inspect --json` gives; with an error to expect, returns that."""

    def command(*arguments: object, error: str = "") -> Any:
        code, out, err = run("inspect", "--store", store, "--user", "ada", "--json", *arguments)
        assert (code, error in err) == (int(bool(error)), True), err
        return err if error else json.loads(out)

    return command


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    path = folder / "chats.json"
    path.write_text(
        json.dumps([conversation("monday", *SAID), conversation("friday", "Clara called.")])
    )
    assert main(["import", str(path), "--store", str(folder / "store"), "--user", "ada"]) == 0
    deadline = time.monotonic() + 10
    while list((folder / "store").glob("*-wal")) and time.monotonic() < deadline:
        time.sleep(0.02)  # Chroma closes its database in its own time
    return folder / "store"


@pytest.fixture
def store(imported: Path, tmp_path: Path) -> Path:
    """Two conversations of ada, learned from."""
    copytree(imported, tmp_path / "store", ignore=ignore_patterns("*.lock"))
    return tmp_path / "store"


def id_of(inspect: Any, text: str) -> str:
    return next(str(fact["id"]) for fact in inspect("facts")["facts"] if text in fact["text"])


def add_fact(store: Path, text: str) -> str:
    with ChromaStore(store) as kept, ContextPipeline({"learn": False}, store=kept) as pipeline:
        return pipeline.knowledge.add_fact(text, user_id="ada").id


def texts(inspect: Any, *options: str) -> list[str]:
    return [fact["text"] for fact in inspect("facts", *options)["facts"]]


def test_import_learns_or_does_not_and_says_how_to_look_at_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    store = tmp_path / "store"
    path.write_text(json.dumps([conversation("monday", "I live in Lisbon.")]))
    code, out, _ = run("import", path, "--store", store, "--user", "ada", "--no-learn")
    assert (code, "Nothing was learned" in out) == (0, True)
    empty = {"user_id": "ada", "facts": [], "topics": [], "entities": []}
    assert json.loads(run("inspect", "--store", store, "--user", "ada", "--json")[1]) == empty
    code, out, _ = run("import", path, "--store", store, "--user", "ada")
    assert (code, "Known about 'ada': 1 fact," in out) == (0, True)
    [command] = [line for line in out.splitlines() if line.startswith("ctxbudget inspect")]
    code, out, _ = run(*command.split()[1:])
    assert (code, "Lives in Lisbon" in out) == (0, True)


async def test_the_dashboard_calls_a_conversation_what_its_file_calls_it(
    run: Run, store: Path, tmp_path: Path
) -> None:
    path = tmp_path / "titled.json"
    without_ids = [{"role": "user", "content": text} for text in ("Hello.", "Hello.")]
    for said in (without_ids[:1], without_ids, without_ids):  # what is stored is not stored again
        path.write_text(json.dumps([{"id": "sunday", "title": "A quiet day", "messages": said}]))
        assert run("import", path, "--store", store, "--user", "ada", "--no-learn")[0] == 0
    with ChromaStore(store) as kept, ContextPipeline({"learn": False}, store=kept) as pipeline:
        found = (await DashboardService(pipeline).sessions("ada"))["sessions"]
        [sunday] = [one for one in found if one["session_id"] == "sunday"]
        assert (sunday["title"], sunday["messages"]) == ("A quiet day", 2)
        pipeline.clear(user_id="ada", conversation_id="sunday")
        assert "A quiet day" not in "".join(pipeline.export_user(user_id="ada"))


def test_what_is_known_belongs_to_one_user(
    run: Run, inspect: Any, store: Path, tmp_path: Path
) -> None:
    code, out, _ = run("inspect", "--store", store, "--user", "bo")
    assert (
        out == "No facts, topics or entities of 'bo' in this store; conversations of theirs: 0.\n"
    )
    code, out, err = run(
        "inspect", "--store", store, "--user", "bo", "--why", id_of(inspect, "Lisbon")
    )
    assert (code, out, "Nothing with the id" in err) == (1, "", True)
    code, _, err = run("inspect", "--store", tmp_path / "missing", "--user", "ada")
    assert (code, "There is no store in" in err, (tmp_path / "missing").exists()) == (
        1,
        True,
        False,
    )


def test_facts_topics_and_entities_are_shown_first_as_whole_records(inspect: Any) -> None:
    data = inspect()
    assert set(data) == {"user_id", "facts", "topics", "entities"}
    facts = [Fact.model_validate(fact) for fact in data["facts"]]
    assert {fact.text for fact in facts} >= {"Lives in Lisbon", "Works as a nurse"}
    assert {source.conversation_id for fact in facts for source in fact.sources} == {"monday"}
    assert [entity["id"] for entity in data["entities"]] == ["entity/person/clara"]


def test_every_table_fits_eighty_columns_and_cuts_nothing(
    run: Run, inspect: Any, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "long.json"
    path.write_text(
        json.dumps([conversation("a conversation with a long name " * 3, *SAID, *[LONG] * 6)])
    )
    assert run("import", path, "--store", store, "--user", "ada")[0] == 0
    add_fact(store, "Writes [red] and \x1b[31m")
    for kind in ("facts", "topics", "entities"):
        code, out, _ = run("inspect", "--store", store, "--user", "ada", kind)
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
        assert not {"…", "\x1b"} & set(out)
        assert "Writes [red] and" in out or kind != "facts"


def test_why_gives_the_messages_word_for_word(run: Run, inspect: Any, store: Path) -> None:
    data = inspect("--why", "entity/person/clara")
    assert [source["message"]["data"]["content"] for source in data["sources"]] == [SAID[2]]
    _, out, _ = run("inspect", "--store", store, "--user", "ada", "--why", "entity/person/clara")
    assert all(text in out for text in (SAID[2], "monday"))
    inspect("--why", "fact/none", error="Nothing with the id 'fact/none'")


def test_what_is_known_is_pinned_corrected_and_deleted(run: Run, inspect: Any, store: Path) -> None:
    added = add_fact(store, "Builds a kayak")
    last = inspect("facts")["facts"][-1]
    where = ("inspect", "--store", store, "--user", "ada")
    assert run(*where, "--pin", last["id"])[:2] == (0, f"{last['id']} is pinned.\n")
    assert inspect("facts")["facts"][0]["pinned"]
    assert texts(inspect)[0] == last["text"]
    assert run(*where, "--unpin", last["id"])[:2] == (0, f"{last['id']} is no longer pinned.\n")
    assert not any(fact["pinned"] for fact in inspect("facts")["facts"])
    assert (
        run(*where, "--correct", "entity/person/clara", "Clara Diaz")[1]
        == "entity/person/clara is corrected.\n"
    )
    assert "Clara Diaz (person)" in run(*where, "entities")[1]
    assert run(*where, "--delete", added)[1].startswith(f"{added} is forgotten.")
    assert "Builds a kayak" not in texts(inspect)
    told = run(*where, "--text")[1]
    assert told.startswith("# What is known about ada\n")
    assert "- Lives in Lisbon (from 1 message, by rules" in told
    assert (
        run(*where, "--delete", "all")[1]
        == "All that was known of 'ada' is forgotten. The conversations stay.\n"
    )
    assert run(*where)[1].startswith("No facts, topics or entities of 'ada'")
    with ChromaStore(store) as kept, ContextPipeline({"learn": False}, store=kept) as pipeline:
        assert [
            one.text for one in pipeline.get_messages(user_id="ada", conversation_id="monday")
        ] == SAID
    with pytest.raises(SystemExit):
        run("inspect", "--store", store, "--user", "ada", "--pin", "a", "--delete", "b")
