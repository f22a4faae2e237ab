"""Whether the arguments of a call fit its tool, and what is wrong with them in plain words."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from langchain_ctxbudget.tokens import compact_json
from langchain_ctxbudget.tools.known import KnownTool
from langchain_ctxbudget.tools.signatures import full_signature

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
    problems = [_in_words(error) for error in _errors(tool.parameters, arguments)]
    if not problems:
        return None
    told = "\n".join(f"- {problem}" for problem in problems[:MOST_PROBLEMS])
    return (
        f"The arguments do not fit {tool.name}, which was not called:\n{told}\n\n"
        f"{full_signature(tool)}"
    )


def _errors(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> "Iterable[ValidationError]":
    """Returns where arguments do not keep to a schema, in the order of the schema's rules."""
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
    except (SchemaError, Unresolvable, RecursionError):
        return []


def _in_words(error: "ValidationError") -> str:
    """Returns one problem as a sentence about the argument that it is about."""
    path = ".".join(map(str, error.absolute_path))
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"missing: {', '.join(f'{path}.{name}'.lstrip('.') for name in missing)}"
    value = compact_json(error.instance)
    if len(value) > VALUE_CHARACTERS:
        value = value[:VALUE_CHARACTERS] + "..."
    if error.validator == "type":
        kinds = error.validator_value
        wanted = kinds if isinstance(kinds, str) else " or ".join(kinds)
        return f"{path or 'the arguments'} must be {wanted}, not {value}"
    if error.validator == "enum":
        choices = ", ".join(map(compact_json, error.validator_value))
        return f"{path} must be one of {choices}, not {value}"
    return f"{path}: {error.message}".removeprefix(": ")
