"""What a model is told of tools: signatures, answers to searches, names, wrong arguments."""

from typing import Any

import numpy as np
import pytest

from langchain_ctxbudget import EstimatingCounter
from langchain_ctxbudget.tools import (
    ToolSet,
    find_text,
    full_signature,
    names_by_server,
    problem_of_arguments,
    short_signature,
)
from langchain_ctxbudget.tools.known import KnownTool
from tests.unit_tests.test_tool_set import function

COUNTER = EstimatingCounter()


def known(schema: dict[str, Any], name: str = "f", description: str = "") -> KnownTool:
    given = {"name": name, "description": description, "parameters": schema}
    return ToolSet.of([{"type": "function", "function": given}]).tools[0]


def of_parameter(schema: Any, *, required: bool = True) -> KnownTool:
    names = ["x"] if required else []
    return known({"type": "object", "properties": {"x": schema}, "required": names})


STRING = {"type": "string"}
TREE = {"type": "array", "items": {"$ref": "#/properties/x"}}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (STRING, "x: string"),
        ({"type": "array", "items": STRING}, "x: string[]"),
        ({"type": "array"}, "x: any[]"),
        ({"enum": ["a", 1]}, 'x: "a" | 1'),
        ({"const": "a"}, 'x: "a"'),
        ({"anyOf": [STRING, {"type": "null"}]}, "x: string | null"),
        ({"type": ["string", "null"]}, "x: string | null"),
        (
            {"type": "array", "items": {"anyOf": [STRING, {"type": "integer"}]}},
            "x: (string | integer)[]",
        ),
        ({"type": "object"}, "x: object"),
        ({"properties": {"y": STRING}}, "x: {y?: string}"),
        ({"enum": list(range(20))}, "x: 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | ..."),
        ({}, "x: any"),
        (True, "x: any"),
    ],
)
def test_a_type_in_one_line(schema: Any, shown: str) -> None:
    assert short_signature(of_parameter(schema)) == f"f({shown})"


def test_what_need_not_be_given_has_a_mark() -> None:
    nullable = of_parameter({"anyOf": [STRING, {"type": "null"}]}, required=False)

    assert short_signature(nullable) == "f(x?: string)"


def test_a_reference_is_looked_up() -> None:
    tool = known(
        {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/Mode"}},
            "$defs": {"Mode": {"enum": ["a"]}},
        }
    )

    assert short_signature(tool) == 'f(x?: "a")'


def test_a_schema_that_contains_itself_ends() -> None:
    tool = of_parameter(TREE)

    assert short_signature(tool).startswith("f(x: ")
    assert full_signature(tool).startswith("f\nArguments:")


def test_one_line_says_the_first_sentence() -> None:
    tool = known({}, description="Adds\nup. Never use it for money.")

    assert short_signature(tool) == "f(): Adds"


def test_a_full_signature_says_everything() -> None:
    row = {"type": "object", "properties": {"y": {"type": "integer", "minimum": 1}}}
    tool = known(
        {
            "type": "object",
            "properties": {
                "rows": {"type": "array", "items": row, "description": "What is\nadded."},
                "mode": {"enum": ["a", "b"], "default": "a"},
            },
            "required": ["rows"],
        },
        name="s__f",
        description="Adds. Twice.",
    )

    assert full_signature(tool).splitlines() == [
        "s__f (server s): Adds. Twice.",
        "Arguments:",
        "- rows (object[], required): What is added.",
        "  - y (integer, >= 1)",
        '- mode ("a" | "b", default "a")',
    ]


def test_an_indented_description_is_told_without_its_indent() -> None:
    tool = known({}, description="\n    Adds.\n      Twice.\n    ")

    assert full_signature(tool).startswith("f: Adds.\n  Twice.\nArguments")


def test_a_tool_without_parameters_says_so() -> None:
    assert full_signature(known({})) == "f\nArguments: none"


# The answer to a search


def many(number: int) -> ToolSet:
    return ToolSet.of(
        [function(f"tool_{place}", "Does it. More of it.", x=STRING) for place in range(number)]
    )


def answer(tools: ToolSet, scores: list[float], most_tokens: int = 2_000, **how: Any) -> str:
    return find_text(tools, np.array(scores), COUNTER, most_tokens, **how)


def test_the_best_are_shown_in_full_and_others_in_short() -> None:
    text = answer(many(7), [1.0] * 7)

    assert text.count("Arguments:") == 5
    assert "tool_6(x?: string): Does it." in text


def test_an_answer_says_first_how_to_call() -> None:
    assert answer(many(2), [1.0, 0.9]).startswith(
        "Call any of these with call_tool(name, arguments)"
    )


def test_tools_come_in_the_order_of_their_scores() -> None:
    text = answer(many(3), [0.5, 1.0, 0.7])

    assert text.index("tool_1") < text.index("tool_2") < text.index("tool_0")


def test_a_tool_far_behind_the_best_is_not_told() -> None:
    assert "tool_1" not in answer(many(2), [2.0, 0.5])


def test_bound_tools_are_to_be_called_directly() -> None:
    text = answer(many(2), [1.0, 0.9], bound=["tool_0"])

    assert text.startswith("You have these already, call them directly: tool_0")
    assert "tool_1\n" not in text
    assert "tool_1: Does it." in text


def test_an_answer_keeps_to_its_room() -> None:
    text = answer(many(40), [1.0] * 40, most_tokens=300)

    assert COUNTER.count_text(text) <= 330


def test_the_best_tool_is_told_without_any_room() -> None:
    assert "tool_0(x?: string)" in answer(many(3), [1.0, 0.9, 0.8], most_tokens=1)


def test_where_no_tool_fits_well_the_nearest_are_told() -> None:
    text = answer(many(9), [0.3] * 9)

    assert text.startswith("No tool fits well.")
    assert text.count("(x?: string)") == 5


def test_where_no_tool_fits_well_the_servers_are_told() -> None:
    tools = ToolSet.of([function("git__commit"), function("mail__send"), function("add")])

    assert answer(tools, [0.0, 0.0, 0.0]).endswith("There are tools of these servers: git, mail")


def test_names_stand_by_their_servers() -> None:
    tools = ToolSet.of([function("git__add"), function("sum"), function("git__commit")])

    assert names_by_server(tools, ["sum"]) == "git: git__add, git__commit"
    assert names_by_server(tools, []) == "git: git__add, git__commit\nsum"


# Arguments

ARGUMENTS = known(
    {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1},
            "mode": {"enum": ["a", "b"]},
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["path"],
                    "additionalProperties": False,
                    "properties": {"path": STRING},
                },
            },
        },
        "required": ["n"],
    }
)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "missing: n"),
        ({"n": "one"}, 'n must be integer, not "one"'),
        ({"n": 0}, "n must keep to minimum 1, not 0"),
        ({"n": 1, "mode": "c"}, 'mode must be "a" | "b", not "c"'),
        ({"n": 1, "files": [{}]}, "missing: files[0].path"),
        ({"n": 1, "files": [{"path": "p", "y": 1}]}, "not known: files[0].y"),
    ],
)
def test_wrong_arguments_are_told_in_words(arguments: dict[str, Any], problem: str) -> None:
    told = problem_of_arguments(ARGUMENTS, arguments)

    assert told is not None
    assert told.splitlines()[1] == f"- {problem}"
    assert told.endswith(full_signature(ARGUMENTS))


def test_right_arguments_have_no_problem() -> None:
    assert problem_of_arguments(ARGUMENTS, {"n": 1, "mode": "a"}) is None


def test_a_long_value_is_clipped() -> None:
    told = problem_of_arguments(ARGUMENTS, {"n": "x" * 10_000})

    assert told is not None
    assert len(told) < 500


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"properties": {"n": {"type": "string", "pattern": r"\p{L}"}}},
        {"$ref": "#"},
    ],
)
def test_a_schema_that_cannot_be_read_checks_nothing(schema: dict[str, Any]) -> None:
    assert problem_of_arguments(known(schema), {"n": "x"}) is None
