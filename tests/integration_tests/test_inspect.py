"""`inspect` shows what is known about a user, where it is from, and corrects or forgets it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.cli.__main__ import main
from langchain_ctxbudget.dashboard.service import DashboardService
from langchain_ctxbudget.knowledge import Fact
from tests.integration_tests.plain_reader import reading_plainly

MONDAY = [
    "I live in Lisbon.",
    "I work as a nurse.",
    "My sister Clara lives in Porto.",
    "I am allergic to peanuts.",
]
LONG = (
    "My colleague Maximiliana Wolfeschlegelsteinhausenbergerdorff works on "
    "the project Aurora Borealis."
)
CLARA = "entity/person/clara"
CHROMA_CLOSES_WITHIN = 10
"""Seconds."""

Answer = tuple[int, str, str]
"""The exit code of a command, its output and its errors."""
Run = Callable[..., Answer]
Records = Callable[..., Any]
Facts = Callable[[], list[dict[str, Any]]]


def conversation(name: str, *texts: str) -> dict[str, Any]:
    messages = []
    for number, text in enumerate(texts):
        messages.append({"role": "user", "content": text, "id": f"{name}-{number}"})
    return {"id": name, "title": name, "messages": messages}


def file_of(folder: Path, *conversations: dict[str, Any]) -> Path:
    path = folder / "chats.json"
    path.write_text(json.dumps(conversations))
    return path


@pytest.fixture(scope="module", autouse=True)
def plain_reader() -> Iterator[None]:
    with reading_plainly():
        yield


@contextmanager
def pipeline_over(store: Path) -> Iterator[ContextPipeline]:
    with ChromaStore(store) as opened, ContextPipeline({"learn": False}, store=opened) as pipeline:
        yield pipeline


def add_fact(store: Path, text: str) -> str:
    with pipeline_over(store) as pipeline:
        return pipeline.knowledge.add_fact(text, user_id="ada").id


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command."""

    def command(*arguments: object) -> Answer:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def inspect(run: Run, store: Path) -> Run:
    """Runs `inspect` on what is known about ada."""

    def command(*arguments: object) -> Answer:
        return run("inspect", "--store", store, "--user", "ada", *arguments)

    return command


@pytest.fixture
def records(inspect: Run) -> Records:
    """Returns what `inspect --json` gives, which ends well."""

    def command(*arguments: object) -> Any:
        code, output, errors = inspect("--json", *arguments)
        assert code == 0, errors
        return json.loads(output)

    return command


@pytest.fixture
def facts(records: Records) -> Facts:
    """Returns the facts about ada, in the order in which they are shown."""
    return lambda: list(records("facts")["facts"])


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    path = file_of(folder, conversation("monday", *MONDAY), conversation("friday", "Clara called."))
    store = folder / "store"
    assert main(["import", str(path), "--store", str(store), "--user", "ada"]) == 0
    with pipeline_over(store) as pipeline:
        pipeline.knowledge.add_entity("Clara", type="person", user_id="ada")

    deadline = time.monotonic() + CHROMA_CLOSES_WITHIN
    while list(store.glob("*-wal")) and time.monotonic() < deadline:
        time.sleep(0.02)  # Chroma closes its database in its own time
    return store


@pytest.fixture
def store(imported: Path, tmp_path: Path) -> Path:
    """Two conversations of ada, learned from."""
    copytree(imported, tmp_path / "store", ignore=ignore_patterns("*.lock"))
    return tmp_path / "store"


# What an import says


def test_an_import_without_learning_says_so_and_learns_nothing(run: Run, tmp_path: Path) -> None:
    path = file_of(tmp_path, conversation("monday", "I live in Lisbon."))
    store = tmp_path / "store"

    code, output, _ = run("import", path, "--store", store, "--user", "ada", "--no-learn")
    assert code == 0
    assert "Nothing was learned" in output

    _, known, _ = run("inspect", "--store", store, "--user", "ada", "--json")
    nothing: dict[str, list[Any]] = {kind: [] for kind in ("rules", "facts", "topics", "entities")}
    assert json.loads(known) == {"user_id": "ada", **nothing, "suspended": {}}


@pytest.fixture
def game(run: Run, tmp_path: Path) -> Path:
    """A store with a conversation of which two messages are a game."""
    texts = ["Let's pretend I'm a pirate called Ann.", "I live on a ship.", "Stop. I live in Rome."]
    store = tmp_path / "store"
    path = file_of(tmp_path, conversation("monday", *texts))
    assert run("import", path, "--store", store, "--user", "ada")[0] == 0
    return store


def test_what_was_not_learned_for_a_game_is_told(run: Run, game: Path) -> None:
    _, known, _ = run("inspect", "--store", game, "--user", "ada")

    told = (
        "Nothing was learned from 2 messages of 1 conversation: a game, a story or a supposition."
    )
    assert told in " ".join(known.split())


def test_what_was_not_learned_for_a_game_is_counted_in_json(run: Run, game: Path) -> None:
    _, known, _ = run("inspect", "--store", game, "--user", "ada", "--json")

    assert json.loads(known)["suspended"] == {"monday": 2}


def test_an_import_learns_what_an_earlier_one_did_not(run: Run, tmp_path: Path) -> None:
    path = file_of(tmp_path, conversation("monday", "I live in Lisbon."))
    store = tmp_path / "store"
    run("import", path, "--store", store, "--user", "ada", "--no-learn")

    code, output, _ = run("import", path, "--store", store, "--user", "ada")

    assert code == 0
    assert "Known about 'ada': 0 rules, 1 fact," in output


def test_an_import_names_the_command_that_shows_what_it_learned(run: Run, tmp_path: Path) -> None:
    path = file_of(tmp_path, conversation("monday", "I live in Lisbon."))
    _, output, _ = run("import", path, "--store", tmp_path / "store", "--user", "ada")

    [command] = [line for line in output.splitlines() if line.startswith("ctxbudget inspect")]
    code, shown, _ = run(*command.split()[1:])

    assert code == 0
    assert "I live in Lisbon." in shown


@pytest.mark.slow
async def test_the_dashboard_shows_the_title_that_a_file_gave(
    run: Run, store: Path, tmp_path: Path
) -> None:
    hello = {"role": "user", "content": "Hello."}
    # The third import brings nothing new: what is stored is not stored again.
    for messages in ([hello], [hello, hello], [hello, hello]):
        sunday = {"id": "sunday", "title": "A quiet day", "messages": messages}
        path = file_of(tmp_path, sunday)
        assert run("import", path, "--store", store, "--user", "ada", "--no-learn")[0] == 0

    with pipeline_over(store) as pipeline:
        shown = await DashboardService(pipeline).sessions("ada")

    [session] = [each for each in shown["sessions"] if each["session_id"] == "sunday"]
    assert session["title"] == "A quiet day"
    assert session["messages"] == 2


@pytest.mark.slow
def test_the_title_goes_with_its_conversation(run: Run, store: Path, tmp_path: Path) -> None:
    hello = {"role": "user", "content": "Hello."}
    path = file_of(tmp_path, {"id": "sunday", "title": "A quiet day", "messages": [hello]})
    run("import", path, "--store", store, "--user", "ada", "--no-learn")

    with pipeline_over(store) as pipeline:
        assert "A quiet day" in "".join(pipeline.export_user(user_id="ada"))
        pipeline.clear(user_id="ada", conversation_id="sunday")
        assert "A quiet day" not in "".join(pipeline.export_user(user_id="ada"))


# Whose it is


def test_of_another_user_nothing_is_known(run: Run, store: Path) -> None:
    code, output, _ = run("inspect", "--store", store, "--user", "bo")
    assert code == 0
    assert output == (
        "No rules, facts, topics or entities of 'bo' in this store; conversations of theirs: 0.\n"
    )


def test_why_is_not_answered_about_another_user(run: Run, store: Path, facts: Facts) -> None:
    [lisbon] = [fact["id"] for fact in facts() if "Lisbon" in fact["text"]]

    code, output, errors = run("inspect", "--store", store, "--user", "bo", "--why", lisbon)

    assert code == 1
    assert output == ""
    assert "Nothing with the id" in errors


def test_a_store_that_is_missing_is_not_made(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "missing"

    code, _, errors = run("inspect", "--store", missing, "--user", "ada")

    assert code == 1
    assert "There is no store in" in errors
    assert not missing.exists()


# What is shown


def test_json_has_every_kind(records: Records) -> None:
    assert set(records()) == {"user_id", "rules", "facts", "topics", "entities", "suspended"}


def test_facts_are_shown_as_whole_records_with_their_sources(records: Records) -> None:
    facts = [Fact.model_validate(record) for record in records()["facts"]]

    assert {fact.text for fact in facts} >= {'"I live in Lisbon."', '"I work as a nurse."'}
    conversations = set()
    for fact in facts:
        conversations |= {source.conversation_id for source in fact.sources}
    assert conversations == {"monday"}


def test_entities_are_shown_by_kind_and_name(records: Records) -> None:
    assert [entity["id"] for entity in records()["entities"]] == [CLARA]


@pytest.fixture(scope="module")
def long_store(imported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations with names, facts and topics that are too long for a table."""
    folder = tmp_path_factory.mktemp("long")
    store = folder / "store"
    copytree(imported, store, ignore=ignore_patterns("*.lock"))
    name = "a conversation with a long name " * 3
    path = file_of(folder, conversation(name, *MONDAY, *[LONG] * 6))
    assert main(["import", str(path), "--store", str(store), "--user", "ada"]) == 0
    add_fact(store, "Writes [red] and \x1b[31m")
    return store


@pytest.fixture
def table(run: Run, long_store: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    code, output, _ = run("inspect", "--store", long_store, "--user", "ada", kind)
    assert code == 0
    return output


@pytest.mark.parametrize("kind", ["facts", "topics", "entities"])
def test_a_table_fits_eighty_columns(table: str) -> None:
    assert max(len(line) for line in table.splitlines()) <= 80


@pytest.mark.parametrize("kind", ["facts", "topics", "entities"])
def test_a_table_cuts_nothing(table: str) -> None:
    assert "…" not in table


@pytest.mark.parametrize("kind", ["facts", "topics", "entities"])
def test_a_table_sends_no_control_characters(table: str) -> None:
    assert "\x1b" not in table


@pytest.mark.parametrize("kind", ["facts"])
def test_a_table_shows_markup_as_text(table: str) -> None:
    assert "Writes [red] and" in table


def test_why_gives_the_message_word_for_word_as_json(records: Records, facts: Facts) -> None:
    [porto] = [fact["id"] for fact in facts() if "Porto" in fact["text"]]

    sources = records("--why", porto)["sources"]

    contents = [source["message"]["data"]["content"] for source in sources]
    assert contents == ["My sister Clara lives in Porto."]


def test_why_names_the_message_and_its_conversation(inspect: Run, facts: Facts) -> None:
    [porto] = [fact["id"] for fact in facts() if "Porto" in fact["text"]]

    _, output, _ = inspect("--why", porto)

    assert "My sister Clara lives in Porto." in output
    assert "monday" in output


def test_why_of_an_unknown_id_is_an_error(inspect: Run) -> None:
    code, _, errors = inspect("--json", "--why", "fact/none")
    assert code == 1
    assert "Nothing with the id 'fact/none'" in errors


def test_text_is_a_page_of_what_is_known(inspect: Run) -> None:
    _, output, _ = inspect("--text")
    assert output.startswith("# What is known about ada\n")
    assert '- "I live in Lisbon." (from 1 message, by rules' in output


# The standing rules of a conversation


RULE = "Never push to main."


@pytest.fixture
def rule_id(inspect: Run, records: Records) -> str:
    """A rule that was added to the conversation of monday."""
    code, _, errors = inspect("--conversation", "monday", "--add-rule", RULE)
    assert code == 0, errors
    [rule] = records("--conversation", "monday")["rules"]
    return str(rule["id"])


def test_a_rule_is_listed_with_who_made_it(inspect: Run, rule_id: str) -> None:
    code, output, _ = inspect("--conversation", "monday")

    assert code == 0
    assert rule_id in output
    assert RULE in output
    assert "in this conversation, by user" in output


def test_a_rule_of_one_conversation_is_not_listed_in_another(inspect: Run, rule_id: str) -> None:
    _, output, _ = inspect("--conversation", "friday")

    assert rule_id not in output
    assert output == "No rule is in force in 'friday'.\n"


def test_a_rule_is_lifted(inspect: Run, records: Records, rule_id: str) -> None:
    _, output, _ = inspect("--conversation", "monday", "--lift-rule", rule_id)

    assert output == f"{rule_id} is lifted.\n"
    assert records("--conversation", "monday")["rules"] == []


def test_a_rule_for_all_conversations_is_known_of_the_user(inspect: Run, records: Records) -> None:
    inspect("--conversation", "monday", "--add-rule", RULE, "--everywhere")

    assert [rule["text"] for rule in records("rules")["rules"]] == [RULE]
    assert [rule["text"] for rule in records("--conversation", "friday")["rules"]] == [RULE]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--add-rule", RULE], "Say in which conversation: --conversation ID"),
        (["--lift-rule", "rule/1"], "Say in which conversation: --conversation ID"),
        (["--conversation", "sunday"], "'ada' has no conversation 'sunday'"),
        (["--conversation", "monday", "--lift-rule", "rule/1"], "no rule 'rule/1' is in force"),
        (["--conversation", "monday", "--add-rule", "x" * 2_001], "1 to 2,000 characters"),
    ],
)
def test_a_change_of_rules_that_cannot_be_is_refused(
    inspect: Run, arguments: list[str], error: str
) -> None:
    code, _, errors = inspect(*arguments)

    assert code == 1
    assert error in errors


# What is changed


def test_a_fact_that_is_pinned_is_shown_first(inspect: Run, facts: Facts) -> None:
    last = facts()[-1]

    code, output, _ = inspect("--pin", last["id"])

    assert code == 0
    assert output == f"{last['id']} is pinned.\n"
    first = facts()[0]
    assert first["pinned"]
    assert first["text"] == last["text"]


def test_a_pin_is_taken_back(inspect: Run, facts: Facts) -> None:
    last = facts()[-1]["id"]
    inspect("--pin", last)

    code, output, _ = inspect("--unpin", last)

    assert code == 0
    assert output == f"{last} is no longer pinned.\n"
    assert [fact["text"] for fact in facts() if fact["pinned"]] == []


def test_a_name_is_corrected(inspect: Run) -> None:
    _, output, _ = inspect("--correct", CLARA, "Clara Diaz")
    assert output == "entity/person/clara is corrected.\n"

    _, table, _ = inspect("entities")
    assert "Clara Diaz (person)" in table


def test_a_fact_is_forgotten(inspect: Run, store: Path, facts: Facts) -> None:
    kayak = add_fact(store, "Builds a kayak")
    assert "Builds a kayak" in [fact["text"] for fact in facts()]

    _, output, _ = inspect("--delete", kayak)

    assert output.startswith(f"{kayak} is forgotten.")
    assert "Builds a kayak" not in [fact["text"] for fact in facts()]


def test_all_that_is_known_is_forgotten(inspect: Run) -> None:
    _, output, _ = inspect("--delete", "all")
    assert output == "All that was known of 'ada' is forgotten. The conversations stay.\n"

    _, table, _ = inspect()
    assert table.startswith("No rules, facts, topics or entities of 'ada'")


def test_the_conversations_stay_when_all_is_forgotten(inspect: Run, store: Path) -> None:
    inspect("--delete", "all")

    with pipeline_over(store) as pipeline:
        messages = pipeline.get_messages(user_id="ada", conversation_id="monday")
    assert [message.text for message in messages] == MONDAY


def test_two_changes_at_once_are_refused(inspect: Run) -> None:
    with pytest.raises(SystemExit):
        inspect("--pin", "a", "--delete", "b")
