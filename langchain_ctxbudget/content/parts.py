"""The parts of a message: what stands in its content, of every kind, in any provider's form.

A message is read into parts here, and nowhere else: what counts, clips, searches, quotes or learns
from a message asks its parts. Only `providers/` looks into the raw blocks besides, since it writes
them anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content.beside import (
    REFUSAL,
    blocks_beside,
    has_parts_beside,
    without_beside,
)
from langchain_ctxbudget.content.blocks import (
    Block,
    citations_of,
    fields_of,
    says_something,
    text_block,
    text_of,
    type_of,
)
from langchain_ctxbudget.content.calls import (
    CALL_BLOCKS,
    ITEM_CALLS,
    call_id_of,
    is_call,
    is_raw,
    is_result,
)
from langchain_ctxbudget.content.compactions import COMPACTION_TYPES, maker_of, summary_of
from langchain_ctxbudget.content.items import Item, item_of
from langchain_ctxbudget.content.media import (
    SCREEN,
    UNREAD,
    Medium,
    is_payload,
    medium_of,
    texts_inside,
    words_inside,
)
from langchain_ctxbudget.content.thoughts import has_thoughts, is_thought


class Kind(StrEnum):
    """What a part is."""

    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"
    REASONING = "reasoning"
    CALL = "call"
    RESULT = "result"
    SERVER_CALL = "server call"
    """A call of a tool that the provider runs itself."""
    SERVER_RESULT = "server result"
    CITATION = "citation"
    REFUSAL = "refusal"
    COMPACTION = "compaction"
    """What a provider keeps in place of messages that it has compacted itself."""
    UNKNOWN = "unknown"


_OWN_WORDS = frozenset({"text", "input_text", "output_text"})
"""Types of blocks that hold what somebody says, of LangChain and the providers, and of OpenAI's
Responses."""
_SERVER_CALLS = ("_call", "_tool_use", "mcp_list_tools", "executable_code")
_SERVER_RESULTS = ("_tool_result", "code_execution_result")
"""How the types of blocks end that tell of tools which the provider runs itself."""
_OTHER_KINDS = {
    "citation": Kind.CITATION,
    "citations": Kind.CITATION,
    "refusal": Kind.REFUSAL,
    **dict.fromkeys(COMPACTION_TYPES, Kind.COMPACTION),
}
_PROVIDERS_OF_TYPES = {
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "tool_use": "anthropic",
    "tool_result": "anthropic",
    "server_tool_use": "anthropic",
    "mcp_tool_use": "anthropic",
    "mcp_tool_result": "anthropic",
    "web_search_tool_result": "anthropic",
    "web_fetch_tool_result": "anthropic",
    "code_execution_tool_result": "anthropic",
    "bash_code_execution_tool_result": "anthropic",
    "text_editor_code_execution_tool_result": "anthropic",
    "tool_search_tool_result": "anthropic",
    "advisor_tool_result": "anthropic",
    "web_search_call": "openai",
    "file_search_call": "openai",
    "code_interpreter_call": "openai",
    "image_generation_call": "openai",
    "tool_search_call": "openai",
    "mcp_call": "openai",
    "mcp_list_tools": "openai",
    "mcp_approval_request": "openai",
    "reasoning_content": "bedrock-converse",
    "executable_code": "google",
    "code_execution_result": "google",
    "function_call_signature": "google",
}
"""Whose form a block is that says so by its type alone."""
_MEDIA_IN_RESULTS = frozenset({"image", "image_url", "file", "document"})
"""Types of media among those that LangChain lets a tool answer with; it makes a text of any other
block."""
_GIVEN_TO_READ = frozenset({"document", "text-plain", "search_result", "json"})
"""Types of blocks in which somebody gives a model something to read; no model writes them."""
_PLAIN_KEYS = frozenset({"type", "text", "id", "index"})


@dataclass(frozen=True)
class Part:
    """One part of a message.

    What it is, is known at once; the rest is read when it is asked for.
    """

    block: Block
    """As it stands in the message."""
    is_raw: bool = False
    """True for a call that LangChain does not list, and for a result in no message of its own."""
    in_place_of: "Part | None" = None
    """The part that this text stands for; None for a part of the message itself."""
    key: str = ""
    """The key in `additional_kwargs` under which it stands; empty for a part of the content."""

    @cached_property
    def type(self) -> str:
        """What its provider calls it, without LangChain's wrapping; empty for a mere text."""
        return type_of(self.block)

    @cached_property
    def kind(self) -> Kind:
        """What it is."""
        if self.key == REFUSAL:
            return Kind.REFUSAL
        is_worded = isinstance(self.block, str) or self.type in _OWN_WORDS
        if is_worded and self.text is not None:
            return Kind.TEXT
        if self.medium is not None:
            return Kind(self.medium.kind)
        return _kind_of_other(self.block)

    @property
    def label(self) -> str:
        """What it is called where its kind is told in brackets: its type as it is written."""
        if isinstance(self.block, str):
            return "text"
        return str(self.block.get("type", "content")) if isinstance(self.block, dict) else "content"

    @property
    def name(self) -> str:
        """What a reader calls it: its type without what providers put around that."""
        return (self.type or "content").removeprefix("input_").removesuffix("_url")

    # What a reader reads

    @property
    def text(self) -> str | None:
        """Its own text, word for word; None where it has none."""
        if isinstance(self.block, dict):
            text = self.block.get(REFUSAL if self.type == REFUSAL else "text")
            return text if isinstance(text, str) else None
        return self.block if isinstance(self.block, str) else None

    @property
    def plain_text(self) -> str | None:
        """Its text where it is nothing but text, in the form that every provider reads."""
        return text_of(self.block)

    @cached_property
    def words(self) -> Sequence[str]:
        """The texts inside it that a reader would read, of a search result or a document."""
        if self.kind is Kind.COMPACTION:
            return [summary_of(self.block)] if summary_of(self.block) else []
        return words_inside(self.block)

    @cached_property
    def citations(self) -> Sequence[str]:
        """The sources of a text, each as one line: title, address, what is cited of it."""
        if not isinstance(self.block, dict):
            return ()
        lines = [", ".join(words_inside(dict(source))) for source in citations_of(self.block)]
        return list(dict.fromkeys(filter(None, lines)))

    @cached_property
    def payload_characters(self) -> int:
        """How many characters in it are data that nobody reads: base64, or something encrypted."""
        return sum(len(text) for text in texts_inside(fields_of(self.block)) if is_payload(text))

    @property
    def data_characters(self) -> int:
        """The same without what is encrypted, of which nobody knows how much it says."""
        texts = texts_inside(fields_of(self.block), UNREAD)
        return sum(len(text) for text in texts if is_payload(text))

    @property
    def extras(self) -> Sequence[str]:
        """What it has besides plain text: keys of a text, or that it is of another type."""
        if not isinstance(self.block, dict):
            return ()
        if self.block.get("type") == "text":
            return [key for key in self.block if key not in _PLAIN_KEYS]
        return [f"a block of type {self.block.get('type')!r}"]

    @property
    def says_something(self) -> bool:
        """True if it holds more than white space and thoughts."""
        return self.kind is not Kind.REASONING and says_something(self.block)

    # Media

    @cached_property
    def medium(self) -> Medium | None:
        """The picture, the sound, the video or the file that it is; None for any other part."""
        return medium_of(self.block)

    @property
    def is_media(self) -> bool:
        """True for a picture, a sound, a video or a file."""
        return self.medium is not None

    @property
    def is_given_to_read(self) -> bool:
        """True for a document, a search result or JSON: a model reads such things, and writes none.

        It may be a medium, as a document of bytes is.
        """
        return self.type in _GIVEN_TO_READ

    @property
    def may_be_result(self) -> bool:
        """True for a medium in a form in which LangChain lets a tool answer with it."""
        if isinstance(self.block, str) or self.medium is None:
            return False
        return self.block.get("type") in _MEDIA_IN_RESULTS

    # Whose it is

    @property
    def is_function_call(self) -> bool:
        """True for a call of a function; not for one of a computer, a shell or a patch."""
        return self.type in CALL_BLOCKS

    @property
    def is_listed_call(self) -> bool:
        """True for a call that LangChain lists in `tool_calls` or `invalid_tool_calls`, too."""
        return self.is_function_call and not self.is_raw

    @property
    def call_id(self) -> str:
        """The id of the call that it is, or that it answers; empty where there is none."""
        return call_id_of(self.block)

    @property
    def item(self) -> Item | None:
        """The item of OpenAI's Responses API that it stands for; None if it stands for none."""
        return item_of(self.block)

    @property
    def provider(self) -> str:
        """Whose form it is, such as `anthropic`; empty where it does not say."""
        if self.kind is Kind.COMPACTION:
            return maker_of(self.block)
        if self.item is not None:
            return "openai"
        return _PROVIDERS_OF_TYPES.get(self.type, "")

    @property
    def is_signed(self) -> bool:
        """True for a thought by which its provider can tell that it is its own."""
        fields = fields_of(self.block)
        extras = fields.get("extras")
        if isinstance(extras, Mapping) and extras.get("signature"):
            return True
        return bool(fields.get("signature") or fields.get("data"))

    @property
    def is_run_by_provider(self) -> bool:
        """True for a call of a tool that the provider runs itself, and for what came of it."""
        if self.type in ITEM_CALLS or self.is_function_call:
            return False
        return self.type.endswith((*_SERVER_CALLS, *_SERVER_RESULTS))


def _kind_of_other(block: Block) -> Kind:
    """Returns the kind of a part that is neither a text nor a medium."""
    if is_thought(block):
        return Kind.REASONING
    if is_call(block):
        return Kind.CALL
    if is_result(block):
        return Kind.RESULT
    block_type = type_of(block)
    if block_type.endswith(_SERVER_RESULTS):
        return Kind.SERVER_RESULT
    if block_type.endswith(_SERVER_CALLS):
        return Kind.SERVER_CALL
    return _OTHER_KINDS.get(block_type, Kind.UNKNOWN)


# From messages, and back


def parts_of(message: BaseMessage) -> list[Part]:
    """Returns the parts of a message in order, those that stand beside its content behind them.

    The screen that a computer tool gives as an address is an image.
    """
    text = only_text_of(message)
    if text is not None:
        return [Part(text)]
    content = message.content
    beside = [Part(block, key=key) for key, block in blocks_beside(message).items()]
    if not isinstance(content, str):
        return [Part(block, is_raw(block, message)) for block in content] + beside
    if message.additional_kwargs.get("type") == SCREEN:
        return [Part({"type": "input_image", "image_url": content})]
    return [Part(content), *beside] if content or not beside else beside


def with_cited_texts_joined(parts: Iterable[Part]) -> list[Part]:
    """Returns parts with one text in place of texts in a row that have sources.

    A provider cuts an answer into several texts, in the middle of a sentence, where it cites.
    """
    joined: list[Part] = []
    for part in parts:
        if joined and _is_one_text(joined[-1], part):
            joined[-1] = _one_text(joined[-1], part)
        else:
            joined.append(part)
    return joined


def _is_one_text(before: Part, part: Part) -> bool:
    """Tells if two parts are texts, and one of them has sources."""
    if before.kind is not Kind.TEXT or part.kind is not Kind.TEXT or part.key or before.key:
        return False
    return any(citations_of(before.block)) or any(citations_of(part.block))


def _one_text(before: Part, part: Part) -> Part:
    """Returns two texts as one, with the sources of both."""
    sources = [*citations_of(before.block), *citations_of(part.block)]
    text = f"{before.text or ''}{part.text or ''}"
    return Part({**text_block(text), "citations": sources})


def only_text_of(message: BaseMessage) -> str | None:
    """Returns the content of a message that is one text; None for a message with other parts."""
    if not isinstance(message.content, str):
        return None
    beside = message.additional_kwargs
    if beside and (beside.get("type") == SCREEN or has_parts_beside(message)):
        return None
    return message.content


def text_part(text: str, in_place_of: Part | None = None) -> Part:
    """Returns a text as a part; it may stand for another part."""
    return Part(text_block(text), in_place_of=in_place_of)


def with_parts(message: BaseMessage, parts: Iterable[Part]) -> BaseMessage:
    """Returns a message with these parts, and none besides."""
    staying = list(parts)
    changes: dict[str, Any] = {"content": [part.block for part in staying if not part.key]}
    gone = blocks_beside(message).keys() - {part.key for part in staying}
    if gone:
        changes["additional_kwargs"] = without_beside(message, gone)
    return message.model_copy(update=changes)


def without_thoughts(message: BaseMessage) -> BaseMessage:
    """Returns a message without the reasoning in its content."""
    if not has_thoughts(message):
        return message
    return with_parts(message, [part for part in parts_of(message) if not is_thought(part.block)])


def has_media(message: BaseMessage) -> bool:
    """Tells if a message has a picture, a sound, a video or a file."""
    if isinstance(message.content, str):
        return message.additional_kwargs.get("type") == SCREEN
    return any(part.is_media for part in parts_of(message))


def media_count(message: BaseMessage) -> int:
    """Returns how many media a message has."""
    return sum(part.is_media for part in parts_of(message))


def has_more_than_text(message: BaseMessage) -> bool:
    """Tells if a message has media, search results, documents or JSON in a form of their own.

    Where they are too large, they become lines or texts: what can be told from the form, such as
    what to cite, is lost then.
    """
    if isinstance(message.content, str):
        return has_media(message)
    return any(
        part.plain_text is None and part.kind not in (Kind.CALL, Kind.REASONING)
        for part in parts_of(message)
    )
