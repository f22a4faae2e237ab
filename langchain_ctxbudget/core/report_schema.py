"""The format of a report's data: its versions, what is read of them, and its JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from langchain_ctxbudget.errors import InputError

SCHEMA_VERSION = 3
READ_VERSIONS = (2, SCHEMA_VERSION)
"""Version 2 has neither `usage` nor the `source` of items."""
NAMED_PROBLEMS = 3

T = TypeVar("T")


def write(report: object) -> dict[str, Any]:
    """A report as plain data, ready for JSON."""
    data: dict[str, Any] = _adapter(type(report)).dump_python(report, mode="json")
    return data


def read(kind: type[T], data: object) -> T:
    """A report from data of any version that can be read, as one of this version.

    Args:
        kind: `ContextReport`.
        data: what `write` gave, here or in an earlier version of the package.

    Raises:
        InputError: an unknown version, or data that is no report.
    """
    versions = " and ".join(map(str, READ_VERSIONS))
    if not isinstance(data, Mapping):
        raise InputError(
            f"A report is read from a mapping of its fields (schema version {versions}), not {_kind(data)}"
        )
    version = data.get("schema_version")
    if version not in READ_VERSIONS:
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        advice = "; it was written by a newer version of this package: update it" if newer else ""
        said = f"schema version {version!r}" if "schema_version" in data else "no schema_version"
        raise InputError(f"A report with {said} cannot be read, only {versions}{advice}")
    try:
        report: T = _adapter(kind).validate_python({**data, "schema_version": SCHEMA_VERSION})
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        named = problems[:NAMED_PROBLEMS]
        more = [f"and {len(problems) - len(named)} more"] if len(problems) > len(named) else []
        raise InputError(
            f"This is no report of schema version {version} ({versions} can be read): {'; '.join([*named, *more])}"
        ) from None
    return report


def json_schema(kind: type[object]) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of what `write` gives, which leaves no field out.

    Args:
        kind: `ContextReport`.
    """
    schema = _adapter(kind).json_schema(mode="serialization")
    schema["properties"]["schema_version"] = {"const": SCHEMA_VERSION, "title": "Schema Version", "type": "integer"}
    for part in (schema, *schema["$defs"].values()):
        part["description"] = part["description"].partition("\n")[0]
        if "properties" in part:
            part["required"] = list(part["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:langchain-ctxbudget:context-report:{SCHEMA_VERSION}",
        **schema,
    }


_adapters: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    """Made when it is first needed, which takes a while."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _kind(data: object) -> str:
    return type(data).__name__
