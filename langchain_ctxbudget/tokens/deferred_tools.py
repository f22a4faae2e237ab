"""Tools that are deferred: bound to a model, but kept out of its window until it asks for them.

An application marks them with `extras={"defer_loading": True}`, as LangChain's
`ProviderToolSearchMiddleware` does, or in a provider's own form.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxbudget.providers import DeferredTools

_DEFER = "defer_loading"


@dataclass(frozen=True, slots=True)
class ToolsInWindow:
    """What of the tools of a call stands in the model's window."""

    whole: Sequence[Any]
    """Those whose whole schemas do from the beginning."""
    named: Sequence[Any] = ()
    """Deferred ones of which names and descriptions do, as schemas of nothing else."""
    loaded: Sequence[Any] = ()
    """Deferred ones that were loaded."""
    has_deferred: bool = False

    @classmethod
    def of(
        cls, tools: Sequence[Any], kind: DeferredTools, referenced: Collection[str] = ()
    ) -> "ToolsInWindow":
        """Returns what of tools a provider puts into the window.

        Args:
            tools: LangChain tools, functions, classes or schemas.
            kind: what the provider does with deferred ones.
            referenced: the names of the tools that messages refer to.
        """
        if kind is DeferredTools.SENT or not any(map(has_deferred_part, tools)):
            return cls(tools)
        whole: list[Any] = []
        named: list[Any] = []
        loaded: list[Any] = []
        for tool in tools:
            if not is_deferred(tool):
                whole.append(_without_deferred_members(tool))
            elif kind is DeferredTools.NAMED:
                named.append(_name_and_description(tool))
            elif _name_of(tool) in referenced:
                loaded.append(tool)
        return cls(whole, named, loaded, has_deferred=True)


def has_deferred_part(tool: object) -> bool:
    """Tells whether a tool is deferred, or one in a namespace of tools."""
    return is_deferred(tool) or any(map(is_deferred, _members(tool)))


def is_deferred(tool: object) -> bool:
    """Tells whether a tool is deferred, in any form."""
    fields = [tool, getattr(tool, "extras", None)]
    if isinstance(tool, Mapping):
        fields += [tool.get("extras"), tool.get("function")]
    return any(isinstance(each, Mapping) and each.get(_DEFER) is True for each in fields)


def _members(tool: object) -> list[Any]:
    """Returns the tools in a namespace of OpenAI's."""
    members = tool.get("tools") if isinstance(tool, Mapping) else None
    return members if isinstance(members, list) else []


def _without_deferred_members(tool: Any) -> Any:  # noqa: ANN401 - tools come in any type
    members = _members(tool)
    if not any(map(is_deferred, members)):
        return tool
    return {**tool, "tools": [member for member in members if not is_deferred(member)]}


def _function_of(tool: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """Returns a tool as a function with its name and description; as it is where it has none."""
    try:
        function = convert_to_openai_tool(tool).get("function")
    except Exception:  # noqa: BLE001 - a tool that only its provider knows
        function = None
    if isinstance(function, Mapping):
        return function
    return tool if isinstance(tool, Mapping) else {}


def _name_of(tool: Any) -> str:  # noqa: ANN401
    return str(_function_of(tool).get("name", ""))


def _name_and_description(tool: Any) -> dict[str, Any]:  # noqa: ANN401
    function = _function_of(tool)
    told = {key: function[key] for key in ("name", "description") if key in function}
    return {"type": "function", "function": told}
