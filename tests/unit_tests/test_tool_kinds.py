"""The kinds of tools: a kind is one object, of which everything else follows."""

from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.history import tool_kinds
from langchain_ctxbudget.history.tool_calls import CallArguments
from langchain_ctxbudget.history.tool_kinds import (
    Section,
    Staleness,
    ToolKindRules,
    ToolUse,
    equal_calls,
    note_outcome,
    shown_failure,
)
from langchain_ctxbudget.history.work_notes import WorkNotes
from langchain_ctxbudget.history.work_state import WorkState
from langchain_ctxbudget.prompt.stale import StaleResults
from langchain_ctxbudget.providers import COMMON, grouped
from langchain_ctxbudget.settings import ToolKind


@pytest.mark.parametrize("kind", get_args(ToolKind))
def test_every_kind_of_the_settings_has_one_object(kind: ToolKind) -> None:
    assert [rules.kind for rules in tool_kinds.KINDS].count(kind) == 1


def test_every_object_is_of_a_kind_of_the_settings() -> None:
    assert {rules.kind for rules in tool_kinds.KINDS} == set(get_args(ToolKind))


def test_what_nobody_recognises_is_of_the_last_kind() -> None:
    assert tool_kinds.KINDS[-1].fits(CallArguments("weather", {}))


@pytest.mark.parametrize("kind", get_args(ToolKind))
def test_the_reference_of_the_settings_names_every_kind(kind: ToolKind) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
    lines = page.read_text(encoding="utf-8").splitlines()

    [row] = [line for line in lines if line.startswith("| `tool_kinds` |")]

    assert f'`"{kind}"`' in row


# A kind that is added

DATABASE_KIND = cast("ToolKind", "database")
DATABASE = ToolKindRules(
    kind=DATABASE_KIND,
    fits=lambda call: "table" in call.args,
    subjects=lambda call: (f"{call.args['table']} where {call.args['where']}",),
    failure=shown_failure,
    note=note_outcome,
    section=Section(
        "# Tables queried\n", 75.0, partial(WorkNotes.outcome_lines, kind=DATABASE_KIND)
    ),
    staleness=Staleness(done_again="queried again", replaces=equal_calls, looks_at=equal_calls),
)


@pytest.fixture
def a_kind_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_kinds, "KINDS", (DATABASE, *tool_kinds.KINDS))


def query(number: int, where: str, result: str) -> list[BaseMessage]:
    """A call that queries the table `lamps`, and its result."""
    args: dict[str, Any] = {"table": "lamps", "where": where}
    call_id = f"call_{number}"
    calls = [{"name": "query", "args": args, "id": call_id}]
    return [AIMessage("", tool_calls=calls), ToolMessage(result, tool_call_id=call_id)]


QUERIES = [
    HumanMessage("Which lamps are out?"),
    *query(1, "price > 40", "three rows"),
    *query(2, "colour = red", "error: no column colour"),
    *query(3, "price > 40", "four rows"),
]


@pytest.mark.usefixtures("a_kind_more")
def test_a_kind_that_is_added_is_recognised() -> None:
    assert ToolUse.of("query", {"table": "lamps", "where": "x"}, {}).kind == "database"


@pytest.mark.usefixtures("a_kind_more")
def test_a_kind_that_is_added_may_be_said_by_the_application() -> None:
    use = ToolUse.of("look", {"table": "lamps", "where": "x"}, {"look": DATABASE_KIND})

    assert use.kind == "database"


@pytest.mark.usefixtures("a_kind_more")
def test_a_kind_that_is_added_is_told() -> None:
    state = WorkState().read(enumerate(QUERIES))

    lines = [line for line in state.lines(len, 2_000, "") if line.heading == "# Tables queried\n"]

    assert [line.text for line in lines] == [
        "- lamps where price > 40: no error\n",
        "- lamps where colour = red: failed, error: no column colour\n",
    ]


@pytest.mark.usefixtures("a_kind_more")
def test_the_last_error_may_be_of_a_kind_that_is_added() -> None:
    state = WorkState().read(enumerate(QUERIES))

    error = state.lines(len, 2_000, "")[0]

    assert error.heading == "# Last error\n"
    assert error.text == "- lamps where colour = red: error: no column colour (not resolved yet)\n"


@pytest.mark.usefixtures("a_kind_more")
def test_a_copy_keeps_what_was_noted_of_a_kind_that_is_added() -> None:
    state = WorkState().read(enumerate(QUERIES))

    state.copy().read(enumerate(query(4, "price > 90", "none"), len(QUERIES)))

    assert len(state.outcomes[DATABASE_KIND]) == 2


@pytest.mark.usefixtures("a_kind_more")
def test_a_kind_that_is_added_makes_results_stale() -> None:
    stale = StaleResults({})
    for group in grouped(QUERIES, COMMON)[0]:
        stale.read(group)

    assert stale.replaced_by == {"call_1": ("call_3", "queried again")}


@pytest.mark.usefixtures("a_kind_more")
def test_a_prompt_and_its_report_tell_a_kind_that_is_added() -> None:
    rounds = [
        message
        for number in range(40)
        for message in query(number, f"price > {number}", f"row {number}\n" * 200)
    ]
    pipeline = ContextPipeline({"max_context_tokens": 3_000})

    context = pipeline.assemble([QUERIES[0], *rounds], user_id="ada", conversation_id="c1")

    [arc] = [layer for layer in context.report.layers if layer.layer == "L4"]
    assert "# Tables queried\n- lamps where price > " in context.messages[0].text
    assert "tables queried, 1" in [item.id for item in arc.items]
