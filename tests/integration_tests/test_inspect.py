"""What the commands show of what is known about a user, and what they change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from langchain_ctxbudget import ChromaStore, ContextPipeline, importing
from langchain_ctxbudget.cli import main
from langchain_ctxbudget.knowledge.records import Fact
from langchain_ctxbudget.terminal import WIDEST_ID

SAID = ["I live in Lisbon.", "I work as a nurse.", "My sister Clara lives in Porto.", "I am allergic to peanuts."]


def conversation(name: str, *said: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text, "id": f"{name}-{number}"} for number, text in enumerate(said)]
    return {"id": name, "title": name, "messages": messages}


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def load(capsys: pytest.CaptureFixture[str], folder: Path, *conversations: dict[str, Any], options: Any = ()) -> str:
    path = folder / "chats.json"
    path.write_text(json.dumps(list(conversations)), encoding="utf-8")
    code, out, err = run(capsys, "import", path, "--store", folder / "store", "--user", "ada", *options)
    assert code == 0, err
    return out


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    path = folder / "chats.json"
    path.write_text(json.dumps([conversation("monday", *SAID), conversation("friday", "Clara called.")]))
    assert main(["import", str(path), "--store", str(folder / "store"), "--user", "ada"]) == 0
    return folder / "store"


@pytest.fixture
def store(imported: Path, tmp_path: Path) -> Path:
    """Two conversations of ada, learned from."""
    copytree(imported, tmp_path / "store", ignore=ignore_patterns("*.lock"))
    return tmp_path / "store"


def inspect(capsys: pytest.CaptureFixture[str], store: Path, *arguments: object) -> Any:
    """What the command gives as data."""
    code, out, err = run(capsys, "inspect", "--store", store, "--user", "ada", "--json", *arguments)
    assert code == 0, err
    return json.loads(out)


def texts(data: Any) -> list[str]:
    return [fact["text"] for fact in data["facts"]]


def id_of(capsys: pytest.CaptureFixture[str], store: Path, text: str) -> str:
    return next(str(fact["id"]) for fact in inspect(capsys, store)["facts"] if text in fact["text"])


# Import


def test_import_learns_from_everything_that_it_wrote_however_little(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = load(capsys, tmp_path, conversation("monday", "I live in Lisbon."))
    assert "Known about 'ada': 1 facts" in out
    assert texts(inspect(capsys, tmp_path / "store")) == ["Lives in Lisbon"]


def test_import_learns_from_more_conversations_than_may_wait(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "LOOK_EVERY_SECONDS", 0.02)
    monkeypatch.setattr("langchain_ctxbudget.background.BackgroundWorker.__init__.__kwdefaults__",
                        {"most_waiting": 1, "idle_seconds": 5.0})  # fmt: skip
    load(capsys, tmp_path, *(conversation(f"c{number}", f"I play game{number}x.") for number in range(6)))
    found = inspect(capsys, tmp_path / "store", "conversations")["conversations"]
    assert [one["messages_read"] for one in found] == [1] * 6


def test_import_does_not_learn_where_it_is_told_not_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = load(capsys, tmp_path, conversation("monday", *SAID, *SAID), options=["--no-learn"])
    assert "Nothing was learned" in out
    assert inspect(capsys, tmp_path / "store") == {"user_id": "ada", "facts": [], "topics": [], "entities": []}


def test_import_says_how_to_look_at_what_was_learned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = load(capsys, tmp_path, conversation("monday", "I live in Lisbon."))
    [command] = [line for line in out.splitlines() if line.startswith("ctxbudget inspect")]
    assert run(capsys, *command.split()[1:])[0] == 0


# Whose


def test_without_a_user_nothing_is_shown_and_nobody_is_named(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    code, out, err = run(capsys, "inspect", "--store", store)
    assert (code, out) == (1, "")
    assert "MissingScopeError" in err
    assert "the users of a store are not listed" in err
    assert "Clara" not in err


def test_of_another_user_nothing_is_shown(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    code, out, _ = run(capsys, "inspect", "--store", store, "--user", "bo")
    assert code == 0
    assert out == "No facts, topics or entities of 'bo' in this store; it has 0 conversations of theirs.\n"


def test_a_folder_without_a_store_is_an_error_and_stays_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        code, _, err = run(capsys, "inspect", "--store", folder, "--user", "ada")
        assert code == 1
        assert "There is no store in" in err
    assert list(tmp_path.iterdir()) == []


def test_what_stands_behind_an_id_of_another_user_cannot_be_asked(
    capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    fact = id_of(capsys, store, "Lisbon")
    code, out, err = run(capsys, "inspect", "--store", store, "--user", "bo", "--why", fact)
    assert (code, out) == (1, "")
    assert "Nothing with the id" in err


# Lists


def test_facts_topics_and_entities_are_what_is_shown_first(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    data = inspect(capsys, store)
    assert set(data) == {"user_id", "facts", "topics", "entities"}
    assert set(texts(data)) == {"Lives in Lisbon", "Works as a nurse", "Is allergic to peanuts",
                                "Sister Clara lives in Porto"}  # fmt: skip
    assert [entity["id"] for entity in data["entities"]] == ["entity/person/clara"]


def test_data_is_whole_records(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    facts = [Fact.model_validate(fact) for fact in inspect(capsys, store, "facts")["facts"]]
    assert all(fact.sources[0].conversation_id == "monday" for fact in facts)


@pytest.mark.parametrize("kind", ["facts", "topics", "entities", "bundles", "devices", "conversations"])
def test_every_table_fits_eighty_columns_and_cuts_nothing(
    kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "My colleague Maximiliana Wolfeschlegelsteinhausenbergerdorff works on the project Aurora Borealis."
    load(capsys, tmp_path, conversation("a conversation with a long name " * 3, *SAID, *[long] * 6))
    with ChromaStore(tmp_path / "store") as kept, ContextPipeline({"learn": False}, store=kept) as pipeline:
        pipeline.knowledge.heartbeat(
            user_id="ada", device_id="the old telephone in the hall, " * 3, path="/chat/" + "x" * 90
        )
    data = inspect(capsys, tmp_path / "store", kind)[kind]
    code, out, _ = run(capsys, "inspect", "--store", tmp_path / "store", "--user", "ada", kind)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    for one in data:
        name = str(one.get("id") or one.get("device_id") or one["conversation_id"])
        parts = [name[start : start + WIDEST_ID] for start in range(0, len(name), WIDEST_ID)]
        assert all(part.strip() in out for part in parts)
    assert data or kind == "topics"


def test_ended_facts_are_shown_with_the_reason_on_request(
    capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path
) -> None:
    load(capsys, tmp_path, conversation("sunday", "I moved to Porto."))
    before, after = inspect(capsys, store, "facts"), inspect(capsys, store, "facts", "--ended")
    assert "Lives in Lisbon" not in texts(before)
    assert [fact["ended"] for fact in after["facts"] if fact["text"] == "Lives in Lisbon"] == ["superseded"]
    _, out, _ = run(capsys, "inspect", "--store", store, "--user", "ada", "facts", "--ended")
    assert f"superseded {datetime.now(UTC).date()}" in " ".join(out.split())


def test_conversations_say_what_they_are_about_and_how_far_they_were_read(
    capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    found = {one["conversation_id"]: one for one in inspect(capsys, store, "conversations")["conversations"]}
    assert {name: one["messages_read"] for name, one in found.items()} == {"monday": 4, "friday": 1}
    assert [item["name"] for item in found["friday"]["about"]] == ["Clara"]


def test_markup_and_control_characters_are_text(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    run(capsys, "inspect", "--store", store, "--user", "ada", "--add-fact", "Writes [red] and \x1b[31m")
    _, out, _ = run(capsys, "inspect", "--store", store, "--user", "ada", "facts")
    assert "Writes [red] and" in out
    assert "\x1b" not in out


# One item


def test_why_gives_the_messages_word_for_word(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    data = inspect(capsys, store, "--why", "entity/person/clara")
    assert [source["message"]["data"]["content"] for source in data["sources"]] == [SAID[2], "Clara called."]
    _, out, _ = run(capsys, "inspect", "--store", store, "--user", "ada", "--why", "entity/person/clara")
    assert all(text in out for text in (SAID[2], "Clara called.", "monday", "friday"))


def test_why_of_what_was_said_by_hand_says_so(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    run(capsys, "inspect", "--store", store, "--user", "ada", "--add-fact", "Sings in a choir")
    fact = id_of(capsys, store, "choir")
    _, out, _ = run(capsys, "inspect", "--store", store, "--user", "ada", "--why", fact)
    assert "Said by hand: no message stands behind it." in out


def test_why_of_what_is_unknown_is_an_error(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    code, _, err = run(capsys, "inspect", "--store", store, "--user", "ada", "--why", "fact/none")
    assert code == 1
    assert "Nothing with the id 'fact/none'" in err


# Changes


def test_a_fact_can_be_added_with_its_category(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    item = inspect(capsys, store, "--add-fact", "Builds a kayak", "--category", "project")["item"]
    assert (item["text"], item["category"], item["made_by"]) == ("Builds a kayak", "project", "user")
    assert texts(inspect(capsys, store))[0] == "Builds a kayak"


def test_a_pin_puts_a_fact_first_and_can_be_taken_back(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    last = inspect(capsys, store)["facts"][-1]
    assert inspect(capsys, store, "--pin", last["id"])["item"]["pinned"]
    assert texts(inspect(capsys, store))[0] == last["text"]
    assert not inspect(capsys, store, "--unpin", last["id"])["item"]["pinned"]


def test_the_eleventh_pin_is_refused(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    with ChromaStore(store) as kept, ContextPipeline({"learn": False}, store=kept) as pipeline:
        for number in range(10):
            pipeline.knowledge.add_fact(f"Plays instrument{number}x", user_id="ada", pinned=True)
    fact = id_of(capsys, store, "Lisbon")
    code, _, err = run(capsys, "inspect", "--store", store, "--user", "ada", "--pin", fact)
    assert code == 1
    assert "At most 10 facts can be pinned" in err


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ("text=Lives in Faro = Algarve", "text", "Lives in Faro = Algarve"),
        ("confidence=0.5", "confidence", 0.5),
        ("valid_until=2999-01-31", "valid_until", "2999-01-31T00:00:00Z"),
    ],
)
def test_a_fact_can_be_edited(
    change: str, field: str, value: object, capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    fact = id_of(capsys, store, "Lives in Lisbon")
    item = inspect(capsys, store, "--edit", fact, change)["item"]
    by = "user" if field == "text" else "rules"  # what is only said about a fact leaves it what was learned
    assert (item["id"], item[field], item["made_by"]) == (fact, value, by)
    assert item in inspect(capsys, store)["facts"]


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ("aliases=Clarita, C. Silva", "aliases", ["Clarita", "C. Silva"]),
        ('attributes=[["email", "clara@example.com"]]', "attributes", [["email", "clara@example.com"]]),
        ('relations=[{"relation": "works at", "target": "Acme"}]', "relations",
         [{"relation": "works at", "target": "Acme"}]),
    ],
)  # fmt: skip
def test_lists_are_divided_by_commas_or_json(
    change: str, field: str, value: object, capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    assert inspect(capsys, store, "--edit", "entity/person/clara", change)["item"][field] == value


@pytest.mark.parametrize(
    "change",
    ["text", "=x", "confidence=high", "confidence=7", "valid_until=soon", "sources=[]", "user_id=bo", "category=none"],
)
def test_an_edit_that_makes_no_sense_changes_nothing(
    change: str, capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    before = inspect(capsys, store)
    fact = id_of(capsys, store, "Lisbon")
    code, _, err = run(capsys, "inspect", "--store", store, "--user", "ada", "--edit", fact, change)
    assert code == 1
    assert "InputError" in err
    assert inspect(capsys, store) == before


def test_an_edit_without_a_change_is_an_error(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    code, _, err = run(capsys, "inspect", "--store", store, "--user", "ada", "--edit", "entity/person/clara")
    assert code == 1
    assert "add FIELD=VALUE" in err


def test_what_is_deleted_is_gone_and_its_messages_stay(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    fact = id_of(capsys, store, "peanuts")
    assert inspect(capsys, store, "--delete", fact) == {"deleted": fact}
    assert "Is allergic to peanuts" not in texts(inspect(capsys, store, "--ended"))
    with ChromaStore(store) as kept, ContextPipeline(store=kept) as pipeline:
        stored = pipeline.get_messages(user_id="ada", conversation_id="monday")
    assert [message.text for message in stored] == SAID


def test_two_changes_at_once_are_refused(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    with pytest.raises(SystemExit):
        run(capsys, "inspect", "--store", store, "--user", "ada", "--pin", "a", "--delete", "b")
    assert "not allowed with" in capsys.readouterr().err
