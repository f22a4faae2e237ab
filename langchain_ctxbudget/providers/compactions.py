"""Sends a provider's compactions back to it as they are, and to no other provider.

A provider that reads a compaction ignores what stands before it. So `history/provider_cut.py` sees
to it that a compaction which is sent begins the conversation. For other providers, its summary
becomes a text; one that cannot be read is left out.
"""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.content import Kind, Part, fields_of, parts_of, text_part, with_parts
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change

SUMMARY_NOTE = "[Summary of the conversation up to here, by the model that wrote this message]\n"
_IN_OWN_FORM = Change("content_form", "its compaction is sent in the form of its provider")
_FAILED = Change("compaction", "sent without a compaction by its provider that has failed")
_AS_TEXT = Change("compaction", "the summary that its provider wrote is sent as text")
_UNREADABLE = Change(
    "compaction", "sent without a compaction that only the provider which made it can read"
)


def with_read_compactions(
    message: BaseMessage, profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message with texts in place of compactions that the provider does not read.

    Also returns what was changed. A compaction without a summary in plain words is left out.
    """
    if isinstance(message.content, str) or not isinstance(message, AIMessage):
        return message, ()
    parts: list[Part] = []
    changes: list[Change] = []
    for part in parts_of(message):
        sent, change = _as_read(part, message, profile)
        parts += sent
        if change is not None:
            changes.append(change)
    if not changes:
        return message, ()
    return with_parts(message, parts), changes


def _as_read(
    part: Part, message: AIMessage, profile: Profile
) -> tuple[Sequence[Part], Change | None]:
    """Returns what is sent of a part, and what was changed for that."""
    if part.kind is not Kind.COMPACTION:
        return [part], None
    if _is_read(part, profile):
        own_form = _in_own_form(part, message)
        if own_form is part:
            return [part], None
        return [own_form], _IN_OWN_FORM
    texts = [text_part(SUMMARY_NOTE + words, part) for words in part.words]
    return texts, _change_for(part)


def _in_own_form(part: Part, message: AIMessage) -> Part:
    """Returns a compaction as its provider writes it.

    It may stand in a block of LangChain's own. LangChain's package unwraps such a block only in a
    message of standard content (`output_version` "v1"), so in others it is unwrapped here.
    """
    fields = fields_of(part.block)
    if fields is part.block or message.response_metadata.get("output_version") == "v1":
        return part
    return Part(fields)


def _is_read(part: Part, profile: Profile) -> bool:
    """Tells whether a compaction is one that the provider reads."""
    return bool(part.provider) and part.provider == profile.compactions


def _change_for(part: Part) -> Change:
    """Returns what a report says of a compaction that is not sent."""
    if part.words:
        return _AS_TEXT
    return _UNREADABLE if part.provider else _FAILED
