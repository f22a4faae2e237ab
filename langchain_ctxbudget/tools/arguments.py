"""Whether the arguments of a call fit its tool, and what is wrong with them in plain words."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from langchain_ctxbudget.tokens import compact_json
from langchain_ctxbudget.tools.known import KnownTool
from langchain_ctxbudget.tools.signatures import FEW, Types, full_signature

if TYPE_CHECKING:
    from jsonschema import ValidationError

MOST_PROBLEMS = 5
"""Problems that are told at once."""
VALUE_CHARACTERS = 80
"""Characters that are shown of a value that is wrong."""


def problem_of_arguments(tool: KnownTool, arguments: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with the arguments of a call, with the tool's signature; None if fine.

    A schema that cannot be read, or that refers to another document, is not checked: the tool
    itself is to say what it does not like.
    """
    problems = [_in_words(error, tool) for error in _errors(tool.parameters, dict(arguments))]
    if not problems:
        return None
    told = "\n".join(f"- {problem}" for problem in problems[:MOST_PROBLEMS])
    return (
        f"The arguments do not fit {tool.name}, which was not called:\n{told}\n\n"
        f"{full_signature(tool)}"
    )


def _errors(schema: Mapping[str, Any], arguments: dict[str, Any]) -> "list[ValidationError]":
    """Returns where arguments do not keep to a schema, in the order of its rules."""
    # They take a tenth of a second to import, and most prompts need none of them.
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415
    from jsonschema.validators import validator_for  # noqa: PLC0415
    from jsonschema_specifications import REGISTRY  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    validator_class = validator_for(schema, default=Draft202012Validator)
    try:
        validator_class.check_schema(schema)
        # With a registry of its own it never fetches what a schema refers to.
        return list(validator_class(schema, registry=REGISTRY).iter_errors(arguments))
    except (SchemaError, Unresolvable, RecursionError, re.error):
        return []


def _in_words(error: "ValidationError", tool: KnownTool) -> str:
    """Returns one problem as a sentence about the argument that it is about."""
    path = _path(error.absolute_path)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"missing: {_listed(missing, path)}"
    if error.validator == "additionalProperties" and error.validator_value is False:
        known = error.schema.get("properties", {})
        unknown = [name for name in error.instance if name not in known]
        return f"not known: {_listed(unknown, path)}"
    about = path or "the object of arguments"
    value = _clipped(error.instance)
    if error.validator in _KINDS:
        return f"{about} must be {Types(tool.parameters, FEW).of(error.schema)}, not {value}"
    return f"{about} must keep to {error.validator} {_clipped(error.validator_value)}, not {value}"


_KINDS = ("type", "enum", "const", "anyOf", "oneOf")
"""Rules that say which values there are."""


def _listed(names: Iterable[str], path: str) -> str:
    """Returns the names of arguments with the path of the object that they belong to."""
    return ", ".join(f"{path}.{name}".lstrip(".") for name in names)


def _path(keys: Iterable[str | int]) -> str:
    """Returns where a value stands, such as `files[0].path`."""
    path = ""
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        else:
            path += f".{key}"
    return path.removeprefix(".")


def _clipped(value: object) -> str:
    text = compact_json(value)
    if len(text) <= VALUE_CHARACTERS:
        return text
    return f"{text[:VALUE_CHARACTERS]}..."
