"""How a tool is told to a model that may call it: in full, or in one line."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_ctxbudget.messages import one_line, sentences
from langchain_ctxbudget.tokens import compact_json
from langchain_ctxbudget.tools.known import KnownTool

FEW_CHOICES = 8
"""A one-line signature shows so many values of an enumeration."""
SENTENCE_CHARACTERS = 160
"""The most characters of the sentence behind a one-line signature."""
MOST_DEPTH = 4
"""How deep objects within objects are described."""
_INDENT = "  "
_ANY = "any"


def full_signature(tool: KnownTool) -> str:
    """Returns everything that a model needs in order to call a tool, one parameter a line."""
    server = f" (server {tool.server})" if tool.server else ""
    lines = [f"{tool.name}{server}: {tool.description.strip()}".rstrip(": ")]
    lines += _parameter_lines(tool.parameters, tool.parameters, depth=0)
    if not _properties(tool.parameters, tool.parameters):
        lines.append("- no arguments")
    return "\n".join(lines)


def short_signature(tool: KnownTool) -> str:
    """Returns a tool as one line: its parameters with their types, and what it does."""
    root = tool.parameters
    required = _required(root)
    parameters: list[str] = []
    for name, schema in _properties(root, root).items():
        mark = "" if name in required else "?"
        parameters.append(f"{name}{mark}: {_type(schema, root, FEW_CHOICES)}")
    does = first_sentence(tool.description)
    return f"{tool.name}({', '.join(parameters)})" + (f": {does}" if does else "")


def first_sentence(text: str) -> str:
    """Returns the first sentence of a description in one line, clipped where it is long."""
    first = one_line(next(iter(sentences(text)), ""))
    if len(first) <= SENTENCE_CHARACTERS:
        return first
    return first[:SENTENCE_CHARACTERS].rsplit(" ", 1)[0] + " ..."


def _parameter_lines(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> Iterator[str]:
    """Yields a line for every parameter, and for those within it."""
    required = _required(schema)
    for name, parameter in _properties(schema, root).items():
        notes = [_type(parameter, root)]
        if name in required:
            notes.append("required")
        if parameter.get("default") is not None:
            notes.append(f"default {compact_json(parameter['default'])}")
        notes += _limits(parameter)
        described = one_line(str(parameter.get("description") or ""))
        line = f"{_INDENT * depth}- {name} ({', '.join(notes)}): {described}"
        yield line.rstrip(": ")
        if depth < MOST_DEPTH:
            yield from _parameter_lines(_object_within(parameter, root), root, depth + 1)


_LIMITS = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
    "format": "{}",
}


def _limits(schema: Mapping[str, Any]) -> list[str]:
    """Returns in words what a value must keep to besides its type."""
    return [words.format(schema[key]) for key, words in _LIMITS.items() if key in schema]


def _type(
    schema: Any,  # noqa: ANN401 - whatever a schema holds
    root: Mapping[str, Any],
    most_choices: int | None = None,
    depth: int = MOST_DEPTH,
) -> str:
    """Returns the type of a value in short, such as `string[]` or `"asc" | "desc"`.

    Args:
        schema: The schema of the value.
        root: The schema that references are looked up in.
        most_choices: The most values of an enumeration that are shown; None shows all.
        depth: How many types within types are still read: a schema may contain itself.
    """
    schema = resolved(schema, root)
    choices = schema.get("enum")
    if isinstance(choices, Sequence) and not isinstance(choices, str):
        return _choices(choices, most_choices)
    if "const" in schema:
        return compact_json(schema["const"])
    ways = _ways(schema)
    if ways and depth:
        types = [_type(way, root, most_choices, depth - 1) for way in ways]
        return " | ".join(dict.fromkeys(types))
    kind = schema.get("type")
    if kind == "array" and depth:
        items = _type(schema.get("items"), root, most_choices, depth - 1)
        return f"({items})[]" if " | " in items else f"{items}[]"
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else _ANY


def _ways(schema: Mapping[str, Any]) -> list[Any]:
    """Returns the schemas of which a value keeps to one, none where there is only one way."""
    kinds = schema.get("type")
    if isinstance(kinds, Sequence) and not isinstance(kinds, str):
        return [{**schema, "type": kind} for kind in kinds]
    for key in ("anyOf", "oneOf"):
        ways = schema.get(key)
        if isinstance(ways, Sequence) and not isinstance(ways, str):
            return list(ways)
    return []


def _choices(choices: Sequence[Any], most: int | None) -> str:
    shown = [compact_json(choice) for choice in choices[:most]]
    if len(shown) < len(choices):
        shown.append("...")
    return " | ".join(shown)


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ANN401
    """Returns a schema with the one that it refers to within the same document put in its place."""
    for _ in range(MOST_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str):
            break
        target: Any = root
        for key in reference.removeprefix("#").strip("/").split("/"):
            target = target.get(key) if isinstance(target, Mapping) else None
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **beside} if isinstance(target, Mapping) else beside
    return schema if isinstance(schema, Mapping) else {}


def _properties(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the schemas of an object's properties, by name."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): resolved(value, root) for name, value in properties.items()}


def _required(schema: Mapping[str, Any]) -> frozenset[str]:
    required = schema.get("required")
    return frozenset(map(str, required)) if isinstance(required, Sequence) else frozenset()


def _object_within(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = MOST_DEPTH
) -> Mapping[str, Any]:
    """Returns the object that a value is, that its items are, or that one of its forms is."""
    schema = resolved(schema, root)
    if "properties" in schema or not depth:
        return schema
    for inner in (schema.get("items"), *_ways(schema)):
        if isinstance(inner, Mapping):
            found = _object_within(inner, root, depth - 1)
            if "properties" in found:
                return found
    return {}
