"""Puts single messages into a role, and into a form of calls and content, that providers read."""

from collections.abc import Sequence

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.function import FunctionMessage

from langchain_ctxbudget.content import compaction_by, in_one_form, is_text
from langchain_ctxbudget.messages import is_empty
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.compactions import with_read_compactions
from langchain_ctxbudget.providers.contents import OLD_FORMS, in_readable_form
from langchain_ctxbudget.providers.names import accepted_name
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change

SYSTEM_NOTE = "[Note from the application]\n"
NO_FIRST_QUESTION = "[The conversation begins.]"
"""Stands before a first message of an assistant."""
NOTHING_IN_IT = Change("empty_message", "left out: it has no content")
_ROLES: dict[str, type[HumanMessage | AIMessage | SystemMessage]] = {
    "user": HumanMessage,
    "human": HumanMessage,
    "assistant": AIMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "developer": SystemMessage,
}


def accepted(message: BaseMessage, profile: Profile) -> tuple[BaseMessage | None, Sequence[Change]]:
    """Returns a message as it may stand behind the first one, and what was changed.

    Its role, its calls and its content are in a form that providers read. Returns None for a
    message that says nothing, which is left out.
    """
    if _is_plain_text(message):
        return message, ()
    if is_empty(message):
        return None, [NOTHING_IN_IT]
    formed, changes = _formed(message, profile)
    if is_empty(formed):
        return None, [*changes, NOTHING_IN_IT]
    return formed, changes


def in_accepted_form(message: BaseMessage, profile: Profile = COMMON) -> BaseMessage:
    """Returns a message as it may stand behind the first one, also if it says nothing."""
    formed, _ = _formed(message, profile)
    return formed


def _formed(message: BaseMessage, profile: Profile) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message as it may stand behind the first one, and what was changed."""
    in_role = _in_role(message, profile)
    readable, compactions = with_read_compactions(in_role, profile)
    formed, changes = in_readable_form(readable)
    return formed, [*_role_changes(message, in_role), *compactions, *changes]


def opening_before(first: BaseMessage | None, profile: Profile) -> str:
    """Returns the text of a user's message that must be sent before a first message.

    Empty where there is no first message, or where the provider lets it stand first.
    """
    if first is None or isinstance(first, HumanMessage) or not profile.begins_with_user:
        return ""
    if profile.compactions and compaction_by(first) == profile.compactions:
        return ""  # a conversation that was compacted begins with that
    return NO_FIRST_QUESTION


def _is_plain_text(message: BaseMessage) -> bool:
    """Tells at a glance if a message is a text that is sent as it is, as most are."""
    if not is_text(message) or not str(message.content).strip():
        return False
    return OLD_FORMS.isdisjoint(message.additional_kwargs)


def _role_changes(message: BaseMessage, in_role: BaseMessage) -> list[Change]:
    """Returns what was changed in the role of a message, or in the form of its calls."""
    if isinstance(message, SystemMessage):
        detail = "sent as a note: only the first message may be system"
        return [Change("system_in_history", detail)]
    if isinstance(message, ChatMessage):
        return [Change("role", f"{message.role!r} is sent as {in_role.type!r}")]
    if in_role is not message:
        detail = "its calls or results are sent in the form that every provider reads"
        return [Change("call_form", detail)]
    return []


def _in_role(message: BaseMessage, profile: Profile) -> BaseMessage:
    """Returns a message in a role that may stand behind the first, with its calls in one form."""
    match message:
        case FunctionMessage():  # of 2023, when calls had no ids: it answers none
            call_id = f"function {message.name}"
            return ToolMessage(message.content, tool_call_id=call_id, id=message.id)
        case ChatMessage():
            return _in_role(_in_known_role(message, profile), profile)
        case SystemMessage():
            return HumanMessage(SYSTEM_NOTE + message.text, id=message.id)
        case _:
            return in_one_form(message)


def _in_known_role(message: ChatMessage, profile: Profile) -> BaseMessage:
    """Returns a message in a role that LangChain knows.

    Any other role becomes the name of a user who says the words.
    """
    role = message.role.lower()
    name = message.name
    if not name and role not in _ROLES:
        name = accepted_name(message.role, profile)
    kind = _ROLES.get(role, HumanMessage)
    return kind(
        message.content,
        id=message.id,
        name=name or None,
        additional_kwargs=message.additional_kwargs,
    )
