"""How a tool is told to a model that may call it: in full, or in one line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

from langchain_ctxbudget.messages import one_line, sentences
from langchain_ctxbudget.tokens import compact_json
from langchain_ctxbudget.tools.known import KnownTool, mapping_of

FEW = 8
"""A one-line signature shows so many values of an enumeration, and fields of an object."""
SENTENCE_CHARACTERS = 160
"""The most characters of the sentence behind a one-line signature."""
MOST_DEPTH = 4
"""How deep schemas within schemas are read: a schema may contain itself."""
_INDENT = "  "
_MORE = "..."


def full_signature(tool: KnownTool) -> str:
    """Returns everything that a model needs in order to call a tool, one parameter a line."""
    name = tool.name
    if tool.server:
        name = f"{name} (server {tool.server})"
    heading = _described(name, cleandoc(tool.description))
    parameters = list(_parameter_lines(tool.parameters, tool.parameters, depth=0))
    if not parameters:
        return f"{heading}\nArguments: none"
    return "\n".join([heading, "Arguments:", *parameters])


def short_signature(tool: KnownTool) -> str:
    """Returns a tool as one line: its parameters with their types, and what it does."""
    types = Types(tool.parameters, most=FEW, shows_fields=True)
    signature = f"{tool.name}({', '.join(types.fields_of(tool.parameters))})"
    return _described(signature, first_sentence(tool.description))


def _described(text: str, description: str) -> str:
    """Returns a text with what describes it behind it, where anything does."""
    if not description:
        return text
    return f"{text}: {description}"


def first_sentence(text: str) -> str:
    """Returns the first sentence of a description in one line, clipped where it is long."""
    first = one_line(next(iter(sentences(text.strip())), ""))
    if len(first) <= SENTENCE_CHARACTERS:
        return first
    return f"{first[:SENTENCE_CHARACTERS].rsplit(' ', 1)[0]} {_MORE}"


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ANN401
    """Returns a schema, in the place of a reference what it refers to in the same document."""
    fields = mapping_of(schema)
    for _ in range(MOST_DEPTH):
        reference = fields.get("$ref")
        if not isinstance(reference, str):
            break
        beside = {key: value for key, value in fields.items() if key != "$ref"}
        fields = {**_referred_to(reference, root), **beside}
    return fields


def _referred_to(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the schema that a reference like `#/$defs/Place` names; {} where there is none."""
    schema = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        schema = mapping_of(schema.get(key))
    return schema


def properties_of(
    schema: Mapping[str, Any], root: Mapping[str, Any]
) -> dict[str, Mapping[str, Any]]:
    """Returns the schemas of an object's properties, by name."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): resolved(value, root) for name, value in properties.items()}


def object_within(
    schema: Any,  # noqa: ANN401 - whatever a schema holds
    root: Mapping[str, Any],
    depth: int = MOST_DEPTH,
) -> Mapping[str, Any]:
    """Returns the object that a value is, that its items are, or that one of its forms is."""
    outer = resolved(schema, root)
    if "properties" in outer or not depth:
        return outer
    for inner in (outer.get("items"), *_ways(outer)):
        found = object_within(inner, root, depth - 1)
        if "properties" in found:
            return found
    return {}


@dataclass(frozen=True, slots=True)
class Types:
    """Tells types in short, such as `string[]` or `"asc" | "desc"`."""

    root: Mapping[str, Any]
    """The schema in which references are looked up."""
    most: int | None = None
    """The most values of an enumeration, and fields of an object; None shows all."""
    shows_fields: bool = False
    """True to show objects by their fields."""

    def of(self, schema: Any, depth: int = MOST_DEPTH) -> str:  # noqa: ANN401
        """Returns the type of a value."""
        schema = resolved(schema, self.root)
        choices = _list_at(schema, "enum")
        if choices is not None:
            return " | ".join(self._few([compact_json(choice) for choice in choices]))
        if "const" in schema:
            return compact_json(schema["const"])
        ways = _ways(schema)
        if ways and depth:
            return " | ".join(dict.fromkeys(self.of(way, depth - 1) for way in ways))
        if schema.get("type") == "array" and depth:
            return self._array_of(schema.get("items"), depth - 1)
        return self._plain(schema, depth)

    def _array_of(self, schema: Any, depth: int) -> str:  # noqa: ANN401
        """Returns the type of an array whose items keep to a schema."""
        items = self.of(schema, depth)
        if " | " in items:
            return f"({items})[]"
        return f"{items}[]"

    def _plain(self, schema: Mapping[str, Any], depth: int) -> str:
        """Returns the type of an object, or of a single value."""
        is_object = "properties" in schema
        if is_object and self.shows_fields and depth:
            return f"{{{', '.join(self.fields_of(schema, depth - 1))}}}"
        untyped = "object" if is_object else "any"
        return str(schema.get("type") or untyped)

    def fields_of(self, schema: Mapping[str, Any], depth: int = MOST_DEPTH) -> list[str]:
        """Returns the fields of an object with their types, `?` behind those not required."""
        required = _required(schema)
        fields: list[str] = []
        for name, field in properties_of(schema, self.root).items():
            if name in required:
                fields.append(f"{name}: {self.of(field, depth)}")
            else:
                fields.append(f"{name}?: {self.of(_without_null(field), depth)}")
        if depth == MOST_DEPTH:
            return fields
        return self._few(fields)

    def _few(self, texts: list[str]) -> list[str]:
        if self.most is None or len(texts) <= self.most:
            return texts
        return [*texts[: self.most], _MORE]


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the schema of a value that is given, as nothing need be given."""
    ways = [way for way in _ways(schema) if resolved(way, {}).get("type") != "null"]
    if not ways:
        return schema
    return {"anyOf": ways}


def _ways(schema: Mapping[str, Any]) -> list[Any]:
    """Returns the schemas of which a value keeps to one, none where there is only one way."""
    kinds = _list_at(schema, "type")
    if kinds is not None:
        return [{**schema, "type": kind} for kind in kinds]
    for key in ("anyOf", "oneOf"):
        ways = _list_at(schema, key)
        if ways is not None:
            return list(ways)
    return []


def _list_at(schema: Mapping[str, Any], key: str) -> Sequence[Any] | None:
    """Returns the list under a key; None where there is none."""
    values = schema.get(key)
    if isinstance(values, Sequence) and not isinstance(values, str):
        return values
    return None


def _required(schema: Mapping[str, Any]) -> frozenset[str]:
    required = schema.get("required")
    if not isinstance(required, Sequence):
        return frozenset()
    return frozenset(map(str, required))


def _parameter_lines(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> Iterator[str]:
    """Yields a line for every parameter, and for those within it."""
    required = _required(schema)
    types = Types(root)
    for name, parameter in properties_of(schema, root).items():
        notes = [types.of(parameter)]
        if name in required:
            notes.append("required")
        if parameter.get("default") is not None:
            notes.append(f"default {compact_json(parameter['default'])}")
        notes += _limits(parameter)
        line = f"{_INDENT * depth}- {name} ({', '.join(notes)})"
        yield _described(line, one_line(str(parameter.get("description") or "")))
        if depth < MOST_DEPTH:
            yield from _parameter_lines(object_within(parameter, root), root, depth + 1)


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
