"""Compactions of a provider: sent back to it as they are, and to nobody else.

Whoever reads one ignores what stands before it. So one that is sent is always the beginning of the
conversation, which `history/provider_cut.py` sees to; any other becomes a text, or goes.
"""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.content import Kind, Part, parts_of, text_part, with_parts
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change

SUMMARY_NOTE = "[Summary of the conversation up to here, by the model that wrote this message]\n"
_FAILED = Change("compaction", "sent without a compaction by its provider that has failed")
_AS_TEXT = Change("compaction", "the summary that its provider wrote is sent as text")
_UNREADABLE = Change(
    "compaction", "sent without a compaction that only the provider which made it can read"
)


def with_read_compactions(
    message: BaseMessage, profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message without compactions that the provider does not read.

    Their words become a text.
    """
    if isinstance(message.content, str) or not isinstance(message, AIMessage):
        return message, ()
    parts: list[Part] = []
    changes: list[Change] = []
    for part in parts_of(message):
        if part.kind is not Kind.COMPACTION or _is_read(part, profile):
            parts.append(part)
            continue
        changes.append(_change_for(part))
        parts += [text_part(SUMMARY_NOTE + words, part) for words in part.words]
    if not changes:
        return message, ()
    return with_parts(message, parts), changes


def _is_read(part: Part, profile: Profile) -> bool:
    """Tells whether a compaction is one that the provider reads."""
    return bool(part.provider) and part.provider == profile.compactions


def _change_for(part: Part) -> Change:
    """Returns what a report says of a compaction that is not sent."""
    if part.words:
        return _AS_TEXT
    return _UNREADABLE if part.provider else _FAILED
