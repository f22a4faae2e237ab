"""Tools that a provider runs itself, as a reader reads of them: what was asked, what came of it.

Blocks come in the forms of OpenAI (`web_search_call`), Anthropic (`server_tool_use`,
`web_search_tool_result`), Google (`executable_code`) and LangChain (`server_tool_call`).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_ctxbudget.content.blocks import Block, fields_of, json_text
from langchain_ctxbudget.content.media import NO_WORDS, is_payload

_NAMES = ("name", "tool_name")
_NAMES_OF_SERVERS = ("server_name", "server_label")
_REQUESTS = ("input", "args", "arguments", "action")
"""Keys under which a call keeps what it asks for."""
_ASKED = ("queries", "query", "code", "command", "url", "pattern", "executable_code")
"""Keys whose values say by themselves what was asked for: the first of them that is there."""
_OUTCOMES = ("output", "outputs", "results", "result", "content", "error", "code_execution_result")
"""Keys under which a block keeps what came of a call."""
_SOURCES = "sources"
_NAMES_OF_TYPES = {
    "executable_code": "code_execution",
    "server_tool_call": "a tool",
    "server_tool_result": "a tool",
}
"""What tools are called where the type of a block does not tell it."""
_PART_OF_TYPES = ("_tool_result", "_call", "_result")
_NAMES_OF_ADDRESSES = ("url", "uri", "link")
_NAMES_OF_TITLES = ("title", "filename", "display_name")
_UNREAD = (
    "encrypted_content",
    "encrypted_index",
    "file_id",
    "container_id",
    "page_age",
    "retrieved_at",
)
"""Keys under which nothing stands that a reader would read."""
_RESULT = "[Result]"
_LONGEST_LINE = 200
"""Characters of a request that stands in a line with the name of the tool."""


def readable_server_tool(block: Block) -> str:
    """Returns a call of a provider's own tool, or what came of it, as a text for a reader.

    Empty where there is nothing to read, such as the result of a call that only tells that it has
    been made.
    """
    fields = fields_of(block)
    request = _request_in(fields)
    outcome = "\n".join(_lines_of(_outcome_in(fields)))
    if request is None:
        return f"[Result of {_name_in(fields)}]\n{outcome}" if outcome else ""
    call = _call_text(_name_in(fields), request)
    return f"{call}\n{_RESULT}\n{outcome}" if outcome else call


def cited_sources(block: Block) -> list[str]:
    """Returns the web pages and files that a text cites, each in a line: `- title (address)`."""
    fields = fields_of(block)
    citations = fields.get("annotations") or fields.get("citations")
    if not isinstance(citations, list):
        return []
    lines = [_source_line(citation) for citation in citations if isinstance(citation, Mapping)]
    return list(filter(None, lines))


def _name_in(fields: Mapping[str, Any]) -> str:
    """Returns what a tool is called: by its name and its server, or by the type of the block."""
    names = [fields[key] for key in (*_NAMES, *_NAMES_OF_SERVERS) if fields.get(key)]
    extras = fields.get("extras")
    if isinstance(extras, Mapping):
        names += [extras[key] for key in (*_NAMES, *_NAMES_OF_SERVERS) if extras.get(key)]
    if names:
        return " of ".join(map(str, names[:2]))
    name = str(fields.get("type", "tool"))
    if isinstance(extras, Mapping) and extras.get("block_type"):
        name = str(extras["block_type"])
    if name in _NAMES_OF_TYPES:
        return _NAMES_OF_TYPES[name]
    for end in _PART_OF_TYPES:
        name = name.removesuffix(end)
    return name


# What was asked


def _request_in(fields: Mapping[str, Any]) -> object:
    """Returns what a call asks for; None for a block that only holds what came of one."""
    for key in _REQUESTS:
        if key in fields:
            return _parsed(fields[key])
    asked = {key: fields[key] for key in _ASKED if fields.get(key)}
    if asked:
        return asked
    block_type = str(fields.get("type", ""))
    return {} if block_type.endswith(("_call", "_use")) else None


def _parsed(request: object) -> object:
    """Returns arguments that a provider writes as JSON as what they mean."""
    if not isinstance(request, str):
        return request
    try:
        return json.loads(request)
    except ValueError:
        return request


def _call_text(name: str, request: object) -> str:
    """Returns a call as a line, or as a line with what is asked for under it."""
    asked = _asked_text(request)
    if not asked:
        return f"[{name}]"
    if "\n" in asked or len(asked) > _LONGEST_LINE:
        return f"[{name}]\n{asked}"
    return f"[{name}: {asked}]"


def _asked_text(request: object) -> str:
    """Returns what is asked for as a text."""
    if not isinstance(request, Mapping):
        return request if isinstance(request, str) else json_text(request)
    for key in _ASKED:
        value = request.get(key)
        if value:
            return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    pairs = [f"{key}: {_short(value)}" for key, value in request.items() if key != "type"]
    return ", ".join(pairs)


def _short(value: object) -> str:
    return value if isinstance(value, str) else json_text(value)


# What came of it


def _outcome_in(fields: Mapping[str, Any]) -> list[object]:
    """Returns everything that came of a call, as the block holds it."""
    values = [fields[key] for key in _OUTCOMES if fields.get(key)]
    action = fields.get("action")
    if isinstance(action, Mapping) and action.get(_SOURCES):
        values.append(action[_SOURCES])
    return values


def _lines_of(value: object) -> Iterator[str]:
    """Yields what a reader would read of an outcome, a source in a line: `- title (address)`."""
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _lines_of(inner)
    elif isinstance(value, Mapping):
        source = _source_line(value)
        if source:
            yield source
        named = (*_NAMES_OF_ADDRESSES, *_NAMES_OF_TITLES) if source else ()
        for key, inner in value.items():
            if key not in named and key not in _UNREAD and key not in NO_WORDS:
                yield from _lines_of(inner)
    elif isinstance(value, str) and value.strip() and not is_payload(value):
        yield value


def _source_line(value: Mapping[str, Any]) -> str:
    """Returns a web page or a file in a line; empty where it is neither."""
    titles = [value[key] for key in _NAMES_OF_TITLES if isinstance(value.get(key), str)]
    addresses = [value[key] for key in _NAMES_OF_ADDRESSES if isinstance(value.get(key), str)]
    title = titles[0] if titles else ""
    address = addresses[0] if addresses else ""
    if title and address:
        return f"- {title} ({address})"
    return f"- {title or address}" if title or address else ""
