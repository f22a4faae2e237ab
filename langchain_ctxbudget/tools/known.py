"""One tool of a call, as a model reads it: its name, its server, its schema."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_ctxbudget.tokens import has_deferred_part, is_deferred, tool_schema
from langchain_ctxbudget.tools.own import OwnTool, own_kind

SERVER_KEYS = ("server", "mcp_server")
"""Keys of a tool's `metadata` or `extras` under which an application may name its server."""
_PREFIX_END = "__"
_MCP_PREFIX = "mcp__"
"""Some clients put it in front of `server__tool`."""
_DEFINITION = "provider_tool_definition"
"""A key of `extras`: `langchain-anthropic` sends what stands there in the place of the tool."""
_OF_FUNCTIONS = (None, "function", "object")
"""What schemas of functions have as `type`, in any form."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownTool:
    """One tool, read once."""

    name: str
    """Empty for a tool that only its provider knows, unless this has a name."""
    server: str
    """The MCP server that it comes from, "" where none is known."""
    description: str
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments, {} where there is none."""
    given: Any
    """The tool as the application gave it."""
    is_function: bool = True
    """False for a tool that a provider defines: it can be bound, and no schema says how to call
    it."""
    own: OwnTool | None = None
    """Which of the package's tools it is."""
    is_deferred: bool = False
    """True if it is marked for its provider to load when it is asked for."""
    has_deferred_part: bool = False
    """True if it is deferred, or one in a namespace of tools that it is."""


def read_tool(given: Any) -> KnownTool:  # noqa: ANN401 - tools come in any type
    """Returns a LangChain tool, function, class or schema as a model reads it."""
    schema = tool_schema(given)
    function = _function_of(schema)
    name = str(function.get("name") or "")
    is_function = bool(name) and not _is_of_a_provider(given)
    server = ""
    if is_function:
        server = _server_of(given, name)
    return KnownTool(
        name=name,
        server=server,
        description=str(function.get("description") or ""),
        parameters=mapping_of(function.get("parameters")),
        given=given,
        is_function=is_function,
        own=own_kind(given),
        is_deferred=is_deferred(given),
        has_deferred_part=has_deferred_part(given),
    )


def _function_of(schema: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """Returns the function of a schema, in the form of chats or of responses."""
    fields = mapping_of(schema)
    return mapping_of(fields.get("function", fields))


def mapping_of(value: object) -> Mapping[str, Any]:
    """Returns a value that is a mapping; an empty one in the place of anything else."""
    if isinstance(value, Mapping):
        return value
    return {}


def _is_of_a_provider(given: Any) -> bool:  # noqa: ANN401
    """Tells whether a provider, and not a schema, defines what a tool is."""
    if not isinstance(given, Mapping):
        extras = getattr(given, "extras", None)
        return isinstance(extras, Mapping) and _DEFINITION in extras
    if given.get("type") == "custom":  # Anthropic's word for a function, OpenAI's for free text
        return "input_schema" not in given
    return given.get("type") not in _OF_FUNCTIONS


def _server_of(given: Any, name: str) -> str:  # noqa: ANN401
    """Returns the server that a tool names, or that stands in front of its name."""
    for notes in _notes_of(given):
        for key in SERVER_KEYS:
            if isinstance(notes.get(key), str):
                return str(notes[key])
        server = _server_of_connection(notes)
        if server:
            return server
    server, prefix_end, _ = name.removeprefix(_MCP_PREFIX).partition(_PREFIX_END)
    if not prefix_end:
        return ""
    return server


def _notes_of(given: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401
    """Yields what an application has noted beside a tool's schema."""
    for name in ("metadata", "extras"):
        if isinstance(given, Mapping):
            notes = given.get(name)
        else:
            notes = getattr(given, name, None)
        if isinstance(notes, Mapping):
            yield notes


def _server_of_connection(notes: Mapping[str, Any]) -> str:
    """Returns the name of the server that `langchain.mcp` notes of its connection."""
    connection = mapping_of(notes.get("mcp"))
    name = mapping_of(connection.get("server")).get("name")
    if isinstance(name, str):
        return name
    return ""
