"""The data of a report: a schema with a version, and what is read of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report.report import ContextReport
from tests.unit_tests.test_report import example, reports

VERSION_2 = json.loads((Path(__file__).parents[1] / "data" / "report_version_2.json").read_text(encoding="utf-8"))
"""As the package wrote it when 2 was the version."""
SCHEMA = ContextReport.json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

everything = settings(deadline=None, max_examples=40)


@everything
@given(reports())
def test_a_report_comes_back_from_json_as_it_was(report: ContextReport) -> None:
    assert ContextReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


@everything
@given(reports())
def test_every_report_is_what_the_schema_says(report: ContextReport) -> None:
    VALIDATOR.validate(report.to_dict())


def test_every_field_of_a_report_is_in_the_schema() -> None:
    assert set(example().to_dict()) == set(SCHEMA["properties"]) == set(SCHEMA["required"])


@pytest.mark.parametrize(
    ("place", "value"), [("total_tokens", "many"), ("layers", [{}]), ("count_mode", "guessed"), ("schema_version", 2)]
)
def test_other_data_is_not_what_the_schema_says(place: str, value: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**example().to_dict(), place: value}, SCHEMA)


def test_a_report_of_version_2_is_read() -> None:
    report = ContextReport.from_dict(VERSION_2)
    assert report.layer("L6").used_tokens == VERSION_2["layers"][6]["used_tokens"] > 0
    assert report.coverage_counts()["verbatim"] > 0


def test_what_version_2_did_not_have_gets_its_default() -> None:
    report = ContextReport.from_dict(VERSION_2)
    assert report.usage is None
    assert {item.source for part in report.layers for item in part.items} == {""}


def changed(**changes: Any) -> dict[str, Any]:
    return {**example().to_dict(), **changes}


def without(name: str) -> dict[str, Any]:
    data = example().to_dict()
    del data[name]
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(schema_version=4), "schema version 4 cannot be read, only 2 and 3; .*newer version"),
        (changed(schema_version=1), "schema version 1 cannot be read, only 2 and 3$"),
        (changed(schema_version="3"), "schema version '3' cannot be read, only 2 and 3$"),
        (changed(schema_version=True), "schema version True cannot be read"),
        (changed(schema_version=[3]), r"schema version \[3\] cannot be read"),
        (changed(schema_version=None), "schema version None cannot be read"),
        (without("schema_version"), "no schema_version cannot be read, only 2 and 3"),
        ([1], "from a mapping of its fields .schema version 2 and 3., not list"),
        (None, "not NoneType"),
        (
            changed(total_tokens="many"),
            r"no report of schema version 3 \(2 and 3 can be read\): total_tokens: Input should",
        ),
        (without("coverage"), "coverage: Field required"),
        (changed(layers=[{"layer": "L0"}]), r"layers\.0\.title: Field required; .*; and 2 more$"),
        (changed(usage={"tier": "rich"}), "usage.tier: Input should be 'healthy'"),
        (changed(coverage=[{"first": 1, "last": 2, "state": "lost"}]), r"coverage\.0\.state: Input should be"),
        ({**VERSION_2, "stability": None}, "no report of schema version 2 .*: stability: "),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_wrong(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ContextReport.from_dict(data)


LAYERS = example().to_dict()["layers"]


def with_history(**changes: Any) -> list[dict[str, Any]]:
    return [{**layer, **changes} if layer["layer"] == "L6" else layer for layer in LAYERS]


def covering(*ranges: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"first": first, "last": last, "state": "verbatim"} for first, last in ranges]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_tokens": 16}, "total_tokens is 16, but its layers and overhead_tokens add up to 15"),
        ({"overhead_tokens": {}}, "total_tokens is 15, but its layers and overhead_tokens add up to 5"),
        ({"layers": with_history(used_tokens=6)}, "used_tokens of layer L6 is 6, but its items and overhead are 5"),
        ({"layers": [*LAYERS, LAYERS[0]]}, "there are two layers L0"),
        ({"coverage": covering((0, 2))}, r"coverage\.0\.first: .* greater than or equal to 1"),
        ({"coverage": covering((2, 3))}, "coverage has messages 2 to 3 behind message 0"),
        ({"coverage": covering((1, 9), (5, 12))}, "coverage has messages 5 to 12 behind message 9"),
        ({"coverage": covering((1, 4), (5, 4))}, "coverage has messages 5 to 4 behind message 4"),
    ],
)
def test_a_report_that_does_not_add_up_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ContextReport.from_dict(changed(**changes))
