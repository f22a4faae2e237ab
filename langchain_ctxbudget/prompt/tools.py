"""The tools of a call, as far as they stand in the model's window."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from langchain_ctxbudget.content import referenced_tools
from langchain_ctxbudget.history import Conversation
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.providers import DeferredTools
from langchain_ctxbudget.tokens import ToolsInWindow, has_deferred_part


@dataclass(frozen=True, slots=True)
class _References:
    """The tools that the first messages of a conversation refer to."""

    names: frozenset[str] = frozenset()
    messages: int = 0
    """The number of these messages."""


NO_REFERENCES = _References()
_REFERENCES: WeakKeyDictionary[object, _References] = WeakKeyDictionary()
"""By the tables of the messages. These only grow, so each message is searched once."""


def tools_in_window(plan: Plan) -> ToolsInWindow:
    """Returns what of the tools of a call stands in the window.

    A deferred tool that was loaded earlier in the conversation counts, also where the message that
    has loaded it may be left out: it is not known yet when tools are counted.
    """
    tools = plan.request.call.tools
    kind = plan.conversation.profile.deferred_tools
    if kind is not DeferredTools.HIDDEN:
        return ToolsInWindow.of(tools, kind)
    if not any(map(has_deferred_part, tools)):
        return ToolsInWindow(tools)
    referenced = _referenced_in(plan.conversation)
    in_turn = map(referenced_tools, plan.request.turn)
    return ToolsInWindow.of(tools, kind, referenced.union(*in_turn))


def _referenced_in(conversation: Conversation) -> frozenset[str]:
    """Returns the names of the tools that the messages of a conversation refer to."""
    entries = conversation.entries
    known = _REFERENCES.get(conversation.table, NO_REFERENCES)
    if known.messages > len(entries):
        known = NO_REFERENCES
    unread = [entries[position].message for position in range(known.messages, len(entries))]
    names = known.names.union(*map(referenced_tools, unread))
    _REFERENCES[conversation.table] = _References(names, len(entries))
    return names
