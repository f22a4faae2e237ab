"""Session files of OpenAI's Codex: `rollout-*.jsonl`, one item or event a line.

The format was read from openai/codex, `codex-rs/protocol` (`RolloutItem`, `ResponseItem`), as of
version 0.128 (April 2026), and of versions before September 2025, whose lines have no envelope.

- `response_item` is what was sent to the model and came from it. `event_msg` tells most of that a
  second time, for a screen; it is read for what it tells beside: titles, tokens, turns taken back.
- `compacted` stands for messages that are in the file anyway.
- A user's message that no event repeats was written by Codex: instructions, surroundings.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata

from langchain_ctxbudget.readers.base import GroupReader, JsonObject, ReadConversation
from langchain_ctxbudget.readers.fields import id_at, object_at, objects_in, text_at, time_at
from langchain_ctxbudget.readers.items import ItemCollector, text_of_instructions, words_of
from langchain_ctxbudget.readers.pieces import marked_with_source
from langchain_ctxbudget.readers.trees import conversation_of

META = "session_meta"
ITEM = "response_item"
EVENT = "event_msg"
COMPACTED = "compacted"
LINES = frozenset({META, ITEM, EVENT, COMPACTED, "turn_context", "world_state"})
"""Types of lines with a payload."""
PROGRAM = "codex"
"""The `lc_source` of a user's message that Codex wrote. The user's words are not in it."""
SUMMARY = "summarization"
"""The `lc_source` that LangChain gives to a summary in the place of messages."""
BARE_ITEMS = frozenset(
    {
        "function_call",
        "function_call_output",
        "local_shell_call",
        "custom_tool_call",
        "custom_tool_call_output",
        "reasoning",
    }
)
"""Types of items that stand alone in a line, in old files."""
BARE_CONTENT = ("input_text", "output_text")
_IN_TAGS = re.compile(r"\s*<(?P<name>[a-z_]+)>.*</(?P=name)>\s*", re.DOTALL)
"""A message that Codex wrote, in files that have no events."""


class Codex(GroupReader):
    """Reads sessions; turns that were taken back are branches."""

    name: ClassVar[str] = "codex"
    accepts: ClassVar[str] = (
        'session files of Codex (~/.codex/sessions): lines with "type" and "payload"'
    )
    repeats: ClassVar[bool] = True

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is a line of a session."""
        if record.get("type") in LINES:
            return isinstance(record.get("payload"), dict)
        return _is_bare_meta(record) or "record_type" in record or _is_bare_item(record)

    def groups(self, records: Sequence[JsonObject]) -> Iterable[Sequence[JsonObject]]:
        """Returns the lines of each session; one that was forked has its parent's in front."""
        groups: list[list[JsonObject]] = [[]]
        known: set[str] = set()
        for record in records:
            meta = _meta_in(record)
            if meta is not None:
                session = id_at(meta, ("id",)) or ""
                if groups[-1] and session not in known:
                    groups.append([])
                    known = set()
                known |= {session, id_at(meta, ("forked_from_id",)) or session}
            groups[-1].append(record)
        return groups

    def read(self, records: Sequence[JsonObject]) -> ReadConversation:
        """Returns the conversation of one session."""
        session = _Session(records)
        for record in records:
            session.take(record)
        return session.conversation()


def _is_bare_meta(record: JsonObject) -> bool:
    """Tells if a record is the first line of an old file."""
    return (
        "id" in record and "timestamp" in record and ("instructions" in record or "git" in record)
    )


def _is_bare_item(record: JsonObject) -> bool:
    if record.get("type") in BARE_ITEMS:
        return True
    content = objects_in(record.get("content"))
    return bool(content) and all(block.get("type") in BARE_CONTENT for block in content)


def _meta_in(record: JsonObject) -> JsonObject | None:
    """Returns what a line tells of a session; None if it tells nothing."""
    if record.get("type") == META:
        return object_at(record, "payload")
    if _is_bare_meta(record):
        return record
    return None


def _item_in(record: JsonObject) -> JsonObject | None:
    """Returns the item of a line; None if it has none."""
    if record.get("type") == ITEM:
        return object_at(record, "payload")
    if _is_bare_item(record):
        return record
    return None


class _Session:
    """A session while it is read, line by line."""

    def __init__(self, records: Sequence[JsonObject]) -> None:
        self._meta = next(filter(None, map(_meta_in, records)), {})
        self._typed = _typed_texts(records)
        self._text_of_items = _text_of_items(records)
        self._title: str | None = None
        self._collector = ItemCollector()
        self._branches: list[list[BaseMessage]] = []

    def take(self, record: JsonObject) -> None:
        """Reads the next line."""
        payload = object_at(record, "payload")
        item = _item_in(record)
        if item is not None:
            self._take_item(item, time_at(record))
        elif record.get("type") == EVENT:
            self._take_event(payload, time_at(record))
        elif record.get("type") == "turn_context":
            self._collector.model = text_at(payload, "model") or self._collector.model
        elif record.get("type") == COMPACTED and not self._collector.messages:
            summary = text_at(payload, "message")
            if summary is not None:
                message = marked_with_source(HumanMessage(summary), SUMMARY)
                self._collector.messages.append(message)

    def _take_item(self, item: JsonObject, time: str | None) -> None:
        before = len(self._collector.messages)
        self._collector.add(item, time)
        if item.get("role") == "user" and not self._is_typed(words_of(item)):
            messages = self._collector.messages
            messages[before:] = map(_as_written_by_codex, messages[before:])

    def _is_typed(self, texts: Sequence[str]) -> bool:
        """Tells if the user typed one of the texts of a message."""
        if not texts:
            return True
        if not self._typed:
            return not all(map(_IN_TAGS.fullmatch, texts))
        return any(text.strip() in self._typed for text in ["\n".join(texts), *texts])

    def _take_event(self, event: JsonObject, time: str | None) -> None:
        match event.get("type"):
            case "user_message":
                self._take_words("user", event, time)
            case "agent_message":
                self._take_words("assistant", event, time)
            case "thread_name_updated":
                self._title = text_at(event, "thread_name") or self._title
            case "token_count":
                self._take_usage(object_at(object_at(event, "info"), "last_token_usage"))
            case "thread_rolled_back":
                turns = event.get("num_turns")
                if isinstance(turns, int) and turns > 0:
                    self._take_back(turns)

    def _take_words(self, role: str, event: JsonObject, time: str | None) -> None:
        """Takes the words of an event that no item has."""
        text = text_at(event, "message")
        if text is not None and text.strip() not in self._text_of_items:
            self._take_item({"type": "message", "role": role, "content": text}, time)

    def _take_usage(self, counts: JsonObject) -> None:
        """Takes the tokens of the last answer, where they are not known yet."""
        usage = _usage(counts)
        if usage is None:
            return
        answer = self._collector.last_answer()
        if answer is not None and answer.usage_metadata is None:
            answer.usage_metadata = usage

    def _take_back(self, turns: int) -> None:
        """Takes back the last turns of the user; they stay as a branch."""
        messages = self._collector.finish()
        starts = [place for place, message in enumerate(messages) if _begins_turn(message)]
        if starts:
            self._branches.append(list(messages))
            del messages[starts[-min(turns, len(starts))] :]

    def conversation(self) -> ReadConversation:
        """Returns what was read."""
        transcripts = [self._collector.finish(), *reversed(self._branches)]
        conversation = conversation_of(
            [self._with_instructions(messages) for messages in transcripts],
            conversation_id=id_at(self._meta, ("id",)),
            title=self._title,
        )
        return replace(conversation, tools=tuple(objects_in(self._meta.get("dynamic_tools"))))

    def _with_instructions(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Returns messages behind the instructions that the session began with."""
        text = text_of_instructions(self._meta.get("base_instructions"))
        if text is None or not messages:
            return messages
        return [SystemMessage(text), *messages]


def _typed_texts(records: Sequence[JsonObject]) -> frozenset[str]:
    """Returns what the user typed, as events tell it."""
    payloads = [object_at(record, "payload") for record in records if record.get("type") == EVENT]
    texts = [
        text_at(payload, "message") for payload in payloads if payload.get("type") == "user_message"
    ]
    return frozenset(text.strip() for text in texts if text is not None)


def _text_of_items(records: Sequence[JsonObject]) -> str:
    """Returns all that items say, in which the words of an event are looked for."""
    texts: list[str] = []
    for record in records:
        texts += words_of(_item_in(record) or {})
    return "\n\n".join(texts)


def _as_written_by_codex(message: BaseMessage) -> BaseMessage:
    """Returns a message with a mark that Codex wrote it, if it is one in the user's name."""
    if isinstance(message, HumanMessage):
        return marked_with_source(message, PROGRAM)
    return message


def _begins_turn(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and "lc_source" not in message.additional_kwargs


def _usage(usage: JsonObject) -> UsageMetadata | None:
    """Returns the tokens of a call; those read from the cache are counted as sent as well."""
    counts: dict[str, Any] = {key: value for key, value in usage.items() if isinstance(value, int)}
    if "input_tokens" not in counts or "output_tokens" not in counts:
        return None
    return UsageMetadata(
        input_tokens=counts["input_tokens"],
        output_tokens=counts["output_tokens"],
        total_tokens=counts["input_tokens"] + counts["output_tokens"],
        input_token_details=InputTokenDetails(cache_read=counts.get("cached_input_tokens", 0)),
        output_token_details=OutputTokenDetails(reasoning=counts.get("reasoning_output_tokens", 0)),
    )
