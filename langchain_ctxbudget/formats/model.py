"""What a file of conversations holds, whichever its format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count

from langchain_core.messages import AIMessage, BaseMessage

from langchain_ctxbudget.core.messages import fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFile:
    """One conversation as it was read from a file.

    Attributes:
        format: `openai`, `langchain`, `chatgpt`, `langgraph` or `evaluation`.
        conversation_id: the file's own, else one made from how the conversation begins.
        title: the file's own, if it has one.
        messages: in order, every one with an id that is unique in the conversation; `name` and
            `additional_kwargs["created_at"]` (ISO 8601) where the file has them.

    Example:
        ```python
        for conversation in read_conversations("conversations.json"):
            print(conversation.title, len(conversation.messages))
        ```
    """

    format: str
    conversation_id: str
    title: str | None
    messages: list[BaseMessage]

    @property
    def label(self) -> str:
        """What to call it: the title, else the id."""
        return self.title or self.conversation_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A conversation as one format's reader returns it: ids may be missing or repeat."""

    format: str
    conversation_id: str | None
    title: str | None
    messages: list[BaseMessage]


def complete(drafts: Sequence[Draft]) -> list[ConversationFile]:
    """Gives every conversation and message an id of its own, the same ones every time.

    An id that the file has stays; its second occurrence gets `-2`. A conversation without one is named
    after its messages up to the first answer, so that it keeps its id when it goes on; a message after
    its conversation and position.
    """
    conversation_ids = unique([draft.conversation_id or _opening_id(draft.messages) for draft in drafts])
    return [
        ConversationFile(
            format=draft.format,
            conversation_id=conversation_id,
            title=draft.title,
            messages=_identified(draft.messages, conversation_id),
        )
        for draft, conversation_id in zip(drafts, conversation_ids, strict=True)
    ]


def unique(ids: Sequence[str]) -> list[str]:
    """The ids with a number behind every repetition; no first occurrence changes."""
    taken = set(ids)
    found: set[str] = set()
    result: list[str] = []
    next_number: dict[str, count[int]] = {}
    for wanted in ids:
        given = wanted
        if wanted in found:
            numbers = next_number.setdefault(wanted, count(2))
            given = next(name for number in numbers if (name := f"{wanted}-{number}") not in taken)
            taken.add(given)
        found.add(given)
        result.append(given)
    return result


def _opening_id(messages: Sequence[BaseMessage]) -> str:
    answer = next((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), len(messages))
    digest = blake2b(digest_size=8)
    for message in messages[: answer + 1]:
        digest.update(fingerprint(message).encode())
    return f"conversation-{digest.hexdigest()}"


def _identified(messages: Sequence[BaseMessage], conversation_id: str) -> list[BaseMessage]:
    wanted = [message.id or f"{conversation_id}-{n}" for n, message in enumerate(messages, start=1)]
    return [message.model_copy(update={"id": given}) for message, given in zip(messages, unique(wanted), strict=True)]
