"""The tools of a call, as far as they stand in the model's window."""

from weakref import WeakKeyDictionary

from langchain_ctxbudget.content import referenced_tools
from langchain_ctxbudget.history import Conversation
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.providers import DeferredTools
from langchain_ctxbudget.tokens import ToolsInWindow, has_deferred_part

_Read = tuple[int, frozenset[str]]
_READ: WeakKeyDictionary[object, _Read] = WeakKeyDictionary()
"""How many messages of a table were searched for references to tools, and the names found there.

A table only grows, so each message is searched once."""


def tools_in_window(plan: Plan) -> ToolsInWindow:
    """Returns what of the tools of a call stands in the window.

    A deferred tool that was loaded earlier in the conversation counts, also where the message that
    has loaded it may be left out: it is not known yet when tools are counted.
    """
    tools = plan.request.call.tools
    kind = plan.conversation.profile.deferred_tools
    referenced: frozenset[str] = frozenset()
    if kind is DeferredTools.HIDDEN and any(map(has_deferred_part, tools)):
        referenced = _referenced_in(plan.conversation)
        referenced = referenced.union(*map(referenced_tools, plan.request.turn))
    return ToolsInWindow.of(tools, kind, referenced)


def _referenced_in(conversation: Conversation) -> frozenset[str]:
    """Returns the names of the tools that the messages of a conversation refer to."""
    read, names = _READ.get(conversation.table, (0, frozenset()))
    entries = conversation.entries
    if read > len(entries):
        read, names = 0, frozenset()
    for position in range(read, len(entries)):
        names |= referenced_tools(entries[position].message)
    _READ[conversation.table] = (len(entries), names)
    return names
