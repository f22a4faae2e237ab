"""What the recall tool can quote: the stored messages, and behind them those that so far only an agent's state has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    SystemMessage,
    ToolMessage,
    message_chunk_to_message,
)

from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.messages.calls import is_user
from langchain_ctxbudget.messages.messages import (
    content_id,
    date_of,
    fingerprint,
    plain_text,
    plainly_same,
    speaker,
)
from langchain_ctxbudget.messages.preservation import Preservation, preservation_of
from langchain_ctxbudget.tokens.counters import TokenCounter


@dataclass(frozen=True, slots=True)
class Unstored:
    """A message that the store does not have, or not as it is now."""

    id: str
    message: BaseMessage
    speaker: str
    date: str | None
    text: str
    preservation: Preservation | None


Quotable: TypeAlias = Entry | Unstored


@dataclass(frozen=True, slots=True)
class Transcript:
    """The messages of a conversation by position: first the stored ones, then those of the current turn.

    It is a view: of the stored messages none is copied or read again, so that it is made quickly for a long
    conversation. A message that the state has in another version than the store is quoted as the state has it.
    """

    conversation: Conversation
    state: Mapping[str | None, BaseMessage]
    """The messages of an agent's state by id."""
    rest: Sequence[Unstored] = ()
    """Those that are not stored."""
    question: str | None = None
    """The id of the one that the current turn is to answer, where it is not stored."""
    tool: str = ""
    """The name of the tool that looks things up."""

    @classmethod
    def of(
        cls, conversation: Conversation, state: Sequence[BaseMessage] | None = None, *, tool: str = ""
    ) -> Transcript:
        """What can be quoted now.

        Args:
            conversation: an open conversation.
            state: the messages of an agent's state; None takes the turn that was assembled last in this process.
            tool: the name of the tool that looks things up.
        """
        given = (conversation.last.turn if conversation.last else ()) if state is None else state
        first = next((i for i, message in enumerate(given) if not isinstance(message, SystemMessage)), len(given))
        by_id = {getattr(message, "id", None): message for message in given[first:]}
        new = [message for message in given[first:] if conversation.position(getattr(message, "id", None)) is None]
        rest: dict[str, Unstored] = {}
        date = conversation.entries[-1].date if conversation.entries else None
        for message in new:
            if isinstance(message, BaseMessage) and (key := message.id or _new_id(conversation, message)):
                rest[key] = _unstored(key, message, date)
                date = rest[key].date
        question = next((item.id for item in reversed(rest.values()) if is_user(item.message)), None)
        return cls(conversation, {} if state is None else by_id, list(rest.values()), question, tool)

    @property
    def stored(self) -> int:
        """How many of the messages are stored."""
        return len(self.conversation.entries)

    def __len__(self) -> int:
        return self.stored + len(self.rest)

    def __getitem__(self, position: int) -> Quotable:
        if position >= self.stored:
            return self.rest[position - self.stored]
        entries = self.conversation.entries
        entry = entries[position]
        message = self.state.get(entry.id)
        if message is None or _reads_the_same(message, entry):
            return entry
        return _unstored(entry.id, message, entries[position - 1].date if position else None)

    @property
    def counter(self) -> TokenCounter:
        """What answers are counted with."""
        return self.conversation.counter

    def position(self, message_id: str) -> int | None:
        """Where a message stands, or None where there is none of this id."""
        known = self.conversation.position(message_id)
        if known is not None:
            return known
        return next((at for at, item in enumerate(self.rest, self.stored) if item.id == message_id), None)

    def is_searched(self, position: int) -> bool:
        """Whether a query may find a message.

        Not what is to be left out of prompts, and not what only repeats the query: the question of the current turn,
        the calls of the tool that looks things up, and its results.
        """
        is_stored = position < self.stored
        item = self.conversation.entries[position] if is_stored else self.rest[position - self.stored]
        message = item.message
        if not item.text or item.preservation == "drop" or (item.id == self.question and not is_stored):
            return False
        if isinstance(message, ToolMessage):
            return message.name != self.tool
        if not isinstance(message, AIMessage) or all(call["name"] != self.tool for call in message.tool_calls):
            return True
        return is_stored and bool(message.text.strip())


def _new_id(conversation: Conversation, message: BaseMessage) -> str | None:
    """An id for a message that has none; None where the conversation knows one that says the same."""
    said = fingerprint(message)
    return None if conversation.table.occurrences[said] else content_id(said, 1)


def _reads_the_same(message: BaseMessage, entry: Entry) -> bool:
    """Whether quotes of a message are those of the stored one."""
    stored = entry.message
    if plainly_same(message, stored):
        return True
    said = (message.type, message.name, date_of(message), plain_text(message))
    return said == (stored.type, stored.name, date_of(stored), entry.text)


def _unstored(key: str, message: BaseMessage, date: str | None) -> Unstored:
    """A message as it is in the state; without a date of its own, it has the given one."""
    message = message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message
    return Unstored(
        id=key,
        message=message,
        speaker=speaker(message),
        date=date_of(message) or date,
        text=plain_text(message),
        preservation=preservation_of(message),
    )
