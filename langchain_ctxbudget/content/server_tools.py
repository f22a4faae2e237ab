"""Tools that a provider runs itself, as a reader reads of them: what was asked, what came of it.

Blocks come in the forms of OpenAI (`web_search_call`), Anthropic (`server_tool_use`,
`web_search_tool_result`), Google (`executable_code`) and LangChain (`server_tool_call`).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_ctxbudget.content.blocks import Block, citations_of, fields_of, json_text
from langchain_ctxbudget.content.media import UNREAD, first_text, is_payload

_NAMES = ("name", "tool_name")
_NAMES_OF_SERVERS = ("server_name", "server_label")
_REQUESTS = ("input", "args", "arguments", "action")
"""Keys under which a call keeps what it asks for."""
_ASKED = ("queries", "query", "code", "command", "url", "pattern", "executable_code")
"""Keys whose values say by themselves what was asked for: the first of them that is there."""
_DETAILS = ("path", "file_text", "old_str", "new_str", "insert_text", "view_range", "pattern")
"""Keys whose values say more of it: of a file that is edited, of a page that is searched."""
_OUTCOMES = ("output", "outputs", "results", "result", "content", "error", "code_execution_result")
"""Keys under which a block keeps what came of a call."""
_SOURCES = "sources"
_NAMES_OF_TYPES = {
    "executable_code": "code_execution",
    "server_tool_call": "a tool",
    "server_tool_result": "a tool",
    "mcp_tool_use": "a tool",
    "mcp_tool_result": "a tool",
}
_LISTINGS = {"mcp_list_tools": "list of tools"}
"""What blocks are called that say which tools a server has."""
"""What tools are called where the type of a block does not tell it."""
_ENDINGS_OF_TYPES = ("_tool_result", "_call", "_result")
_NAMES_OF_ADDRESSES = ("url", "uri", "link")
_NAMES_OF_TITLES = ("title", "filename", "display_name")
_HIDDEN = UNREAD | {"page_age", "retrieved_at"}
"""Keys of an outcome that a reader is not told."""
_HIDDEN_IN_SOURCES = _HIDDEN.union(_NAMES_OF_ADDRESSES, _NAMES_OF_TITLES)
"""The same in a source, whose address and title stand in a line already."""
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


def server_tool_in_words(block: Block, *, is_result: bool) -> str:
    """Returns what a reader calls a call of a provider's own tool, or what came of it.

    It is such as `web search`, or `results of a web search`.
    """
    fields = fields_of(block)
    if fields.get("type") in _LISTINGS:
        return _name_in(fields)
    if any(fields.get(key) for key in _NAMES_OF_SERVERS):  # the name is that of a function
        return f"{'results' if is_result else 'call'} of {_name_in(fields)}"
    name = _name_in(fields).replace("_", " ")
    if not is_result:
        return name
    if name.startswith(("a ", "an ")):
        return f"results of {name}"
    article = "an" if name[0] in "aeiou" else "a"
    return f"results of {article} {name}"


def cited_sources(block: Block) -> list[str]:
    """Returns the web pages and files that a text cites, each in a line: `- title (address)`."""
    return list(filter(None, map(_source_line, citations_of(block))))


def _name_in(fields: Mapping[str, Any]) -> str:
    """Returns what a tool is called: by its name and its server, or by the type of the block."""
    extras = fields.get("extras")
    further_fields = extras if isinstance(extras, Mapping) else {}
    names = [*_names_in(fields), *_names_in(further_fields)]
    listing = _LISTINGS.get(str(fields.get("type")))
    if listing:
        names = [listing, *names]
    if names:
        return " of ".join(names[:2])
    return _name_by_type(str(further_fields.get("block_type") or fields.get("type", "tool")))


def _names_in(fields: Mapping[str, Any]) -> list[str]:
    """Returns the names of a tool and of its server, as far as they are told."""
    return [str(fields[key]) for key in (*_NAMES, *_NAMES_OF_SERVERS) if fields.get(key)]


def _name_by_type(block_type: str) -> str:
    """Returns what a tool is called that tells no name, by the type of its block."""
    if block_type in _NAMES_OF_TYPES:
        return _NAMES_OF_TYPES[block_type]
    name = block_type
    for ending in _ENDINGS_OF_TYPES:
        name = name.removesuffix(ending)
    return name


# What was asked


def _request_in(fields: Mapping[str, Any]) -> object:
    """Returns what a call asks for; None for a block that only holds what came of one."""
    if fields.get("type") in _LISTINGS:
        return _names_of_tools(fields)
    for key in _REQUESTS:
        if key in fields:
            return _parsed(fields[key])
    asked = {key: fields[key] for key in _ASKED if fields.get(key)}
    if asked:
        return asked
    block_type = str(fields.get("type", ""))
    return {} if block_type.endswith(("_call", "_use")) else None


def _names_of_tools(fields: Mapping[str, Any]) -> str:
    """Returns the names of the tools that a server has, in a line."""
    tools = fields.get("tools")
    if not isinstance(tools, list):
        return ""
    described = (tool for tool in tools if isinstance(tool, Mapping))
    return ", ".join(str(tool["name"]) for tool in described if tool.get("name"))


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
            asked = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            return ", ".join([asked, *_details_of(request, key)])
    pairs = [f"{key}: {_short(value)}" for key, value in request.items() if key != "type"]
    return ", ".join(pairs)


def _details_of(request: Mapping[str, Any], asked_key: str) -> list[str]:
    """Returns what a request says besides what stands under a key: `pattern: fox`."""
    keys = [key for key in _DETAILS if request.get(key) and key != asked_key]
    return [f"{key}: {_short(request[key])}" for key in keys]


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
    if isinstance(value, Mapping):
        yield from _lines_of_fields(value)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _lines_of(inner)
    elif isinstance(value, str) and value.strip() and not is_payload(value):
        yield value.strip("\n")


def _lines_of_fields(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a reader would read of an object in an outcome."""
    source = _source_line(fields)
    if source:
        yield source
    hidden = _HIDDEN_IN_SOURCES if source else _HIDDEN
    for key, value in fields.items():
        if key not in hidden:
            yield from _lines_of(value)


def _source_line(fields: Mapping[str, Any]) -> str:
    """Returns a web page or a file in a line; empty where it is neither."""
    title = first_text([fields], _NAMES_OF_TITLES)
    address = first_text([fields], _NAMES_OF_ADDRESSES)
    if title and address:
        return f"- {title} ({address})"
    if not title and not address:
        return ""
    return f"- {title or address}"
