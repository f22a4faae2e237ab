"""The description of the API, made of its operations."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter

from langchain_ctxbudget.dashboard.answers import BudgetProblem, Problem
from langchain_ctxbudget.dashboard.operations import OPERATIONS, Operation
from langchain_ctxbudget.dashboard.refusals import CONFLICT

_REFERENCE = "#/components/schemas/{model}"
_Adapters = list[tuple[str, Any, TypeAdapter[Any]]]


def describe() -> dict[str, Any]:
    """The API as an OpenAPI 3.1 document."""
    adapters: _Adapters = [(kind.__name__, "serialization", TypeAdapter(kind)) for kind in (Problem, BudgetProblem)]
    adapters += [(one.name, "serialization", one.answer) for one in OPERATIONS]
    adapters += [(one.name, "validation", one.question) for one in OPERATIONS if one.method == "POST"]
    schemas, definitions = TypeAdapter.json_schemas(adapters, ref_template=_REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Context budget",
            "version": version("langchain-ctxbudget"),
            "description": "What is in the context of a user's conversations, why, and what it cost.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation, schemas: Any) -> dict[str, Any]:  # noqa: ANN401 - as pydantic has them
    answers = {"200": _content("As asked.", schemas[operation.name, "serialization"])}
    for status, reason in operation.every_refusal.items():
        kind = operation.conflict if status == CONFLICT else Problem
        answers[str(status)] = _content(reason, schemas[kind.__name__, "serialization"])
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": answers,
    }
    if operation.method == "POST":
        body = schemas[operation.name, "validation"]
        described["requestBody"] = {"required": True, **_content("", body)}
        del described["requestBody"]["description"]
    else:
        described["parameters"] = _parameters(operation)
    return described


def _content(description: str, schema: object) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    """The parameters of a question, in the path or in the query."""
    asked = operation.question.json_schema()
    parameters = []
    for name, schema in asked.get("properties", {}).items():
        in_path = f"{{{name}}}" in operation.path
        parameters.append(
            {
                "name": name,
                "in": "path" if in_path else "query",
                "required": name in asked.get("required", ()),
                "description": schema.get("description", ""),
                "schema": _without_null(schema),
            }
        )
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter: what is not given is left out, and not null."""
    kept = {key: value for key, value in schema.items() if key not in ("description", "title", "default")}
    if default := schema.get("default"):
        kept["default"] = default
    for part in kept.pop("anyOf", ()):
        if part != {"type": "null"}:
            kept |= part
    return kept
