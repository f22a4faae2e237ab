"""Items of another provider: its reasoning is left out, its server tools become texts.

An item that is not the provider's own is refused, or read as something that nobody said. Whose an
item is, the message tells (`model_provider`); where it does not, the form of the block.

| item of another provider | what is sent |
|---|---|
| reasoning, in any form | nothing |
| a call of a server tool, and what came of it | what was asked, and what came of it, as a text |
| an image that a server tool has made | a line that names it |
| any other item | the texts in it, or nothing |
| a text with citations, annotations or a signature | the text |
| a call of a function | the call, in `tool_calls` alone |

In a message of the user and in a result an item is nobody's: an agent's answer that is handed on as
a whole has such. No provider takes them there, and the same is sent of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget.content import (
    ITEM_CALLS,
    Kind,
    Part,
    cited_sources,
    has_thoughts,
    parts_of,
    readable_server_tool,
    text_part,
    with_parts,
)
from langchain_ctxbudget.messages import placeholder_of
from langchain_ctxbudget.providers.models import authors_of
from langchain_ctxbudget.providers.profile import OwnItems, Profile
from langchain_ctxbudget.providers.stretch import UNBOUND, Change, Repair

_OF_ANY_PROVIDER = frozenset({Kind.TEXT, Kind.CALL, Kind.RESULT, Kind.REFUSAL, Kind.COMPACTION})
"""Kinds of parts that are no items of one provider, or that other requirements see to."""
_OF_MODELS = frozenset(
    {Kind.REASONING, Kind.SERVER_CALL, Kind.SERVER_RESULT, Kind.REFUSAL, Kind.COMPACTION}
)
"""Kinds of parts that models alone write."""
_GENERATED_IMAGE = "image_generation_call"
_SIGNATURES = frozenset({"function_call_signature"})
"""Types of blocks that hold nothing but the signature of a thought."""
_NO_REASONING = Change(
    "foreign_reasoning",
    "sent without reasoning that another provider has written, or nobody has signed",
)


def with_own_items(message: BaseMessage, profile: Profile) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message without items of another provider, and what was changed for that."""
    if isinstance(message, HumanMessage | ToolMessage):
        return _without_items_of_models(message)
    if profile.items is None or not isinstance(message, AIMessage):
        return message, ()
    if profile.items.reasoning_key in message.additional_kwargs:
        message, changes = _without_reasoning_beside(message, profile.items)
        content_only, further_changes = _with_own_content(message, profile.items)
        return content_only, [*changes, *further_changes]
    return _with_own_content(message, profile.items)


def repairs_of_lost_thoughts(message: BaseMessage, profile: Profile) -> list[Repair]:
    """Returns the repairs of a message that is sent without thoughts where these are bound.

    Those of another provider are lost for that reason alone.
    """
    own, changes = with_own_items(message, profile)
    lost = [change for change in changes if change is _NO_REASONING]
    if has_thoughts(own):
        lost.append(UNBOUND)
    return [change.repair_of(message) for change in lost]


def _without_items_of_models(message: BaseMessage) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message of the user, or a result, without items that models alone write."""
    if isinstance(message.content, str):
        return message, ()
    parts = parts_of(message)
    if not any(map(_is_of_model, parts)):
        return message, ()
    sent: list[Part] = []
    for part in parts:
        if not _is_of_model(part):
            sent.append(part)
        elif text := _readable(part):
            sent.append(text_part(text, in_place_of=part))
    return with_parts(message, sent), _changes(parts, sent, "a model's answer")


def _is_of_model(part: Part) -> bool:
    """Tells if a part is an item that models alone write."""
    return part.kind in _OF_MODELS or part.type in _SIGNATURES or part.type in ITEM_CALLS


def _without_reasoning_beside(
    message: AIMessage, items: OwnItems
) -> tuple[AIMessage, Sequence[Change]]:
    """Returns a message without another provider's reasoning beside its content."""
    if not _Author(authors_of(message), items).is_foreign:
        return message, ()
    others = {
        key: value for key, value in message.additional_kwargs.items() if key != items.reasoning_key
    }
    return message.model_copy(update={"additional_kwargs": others}), [_NO_REASONING]


def _with_own_content(message: AIMessage, items: OwnItems) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message without items of another provider in its content."""
    if isinstance(message.content, str):
        return message, ()
    author = _Author(authors_of(message), items)
    parts = parts_of(message)
    sent: list[Part] = []
    for part in parts:
        accepted = _accepted(part, author)
        if accepted is not None:
            sent.append(accepted)
    if sent == parts:
        return message, ()
    sent = _with_sources(sent, parts)
    return with_parts(message, sent), _changes(parts, sent, "another provider")


class _Author(NamedTuple):
    """Who has written a message, seen by the provider that it is sent to."""

    names: frozenset[str] | None
    """What the message tells of that; None where it tells nothing."""
    items: OwnItems
    """What the provider takes back."""

    @property
    def is_foreign(self) -> bool:
        """True if the message tells that another provider has written it."""
        return self.names is not None and self.items.authors.isdisjoint(self.names)

    def wrote_own(self, part: Part) -> bool:
        """Tells if a part of the message is an item that the provider takes back."""
        if not self._may_have_written(part):
            return False
        if part.kind is Kind.REASONING and self.items.wants_signatures and not part.is_signed:
            return False
        if part.kind is Kind.UNKNOWN and self.names is not None:
            # Of a kind that came up later; a provider without items of its own has none.
            return bool(self.items.types)
        return _item_type(part) in self.items.types

    def _may_have_written(self, part: Part) -> bool:
        """Tells if the provider's own model may have written a part of the message.

        Where the message does not tell who wrote it, the form of the part does.
        """
        if self.names is None:
            return part.provider in self.items.authors
        return not self.is_foreign


def _accepted(part: Part, author: _Author) -> Part | None:
    """Returns a part as the provider takes it; None where nothing of it is sent."""
    if author.is_foreign and part.kind is Kind.TEXT:
        return _bare_text(part)
    if author.is_foreign and part.is_listed_call:
        return None
    if _is_of_any_provider(part) or author.wrote_own(part):
        return part
    text = _readable(part)
    if not text:
        return None
    return text_part(text, in_place_of=part)


def _is_of_any_provider(part: Part) -> bool:
    """Tells if a part is no item of one provider: words, calls, media, what was given to read.

    An image is an item if a tool of the provider has made it.
    """
    if part.kind in _OF_ANY_PROVIDER or part.is_given_to_read:
        return True
    return part.is_media and _item_type(part) != _GENERATED_IMAGE


def _item_type(part: Part) -> str:
    """Returns the type of an item, also where LangChain writes it as an image."""
    if part.is_media and part.item is not None and part.item.is_run_by_provider:
        return _GENERATED_IMAGE
    return part.type


def _bare_text(part: Part) -> Part:
    """Returns a text without what only its provider reads: citations, ids, signatures."""
    if part.text is None or (not part.extras and part.label == "text"):
        return part
    return text_part(part.text)


def _readable(part: Part) -> str:
    """Returns what a reader would read of an item; empty where there is nothing."""
    if _is_thought(part):
        return ""
    if part.is_media:
        return placeholder_of(part)
    if part.kind is Kind.REFUSAL:
        return part.text or ""
    return readable_server_tool(part.block) or "\n".join(part.words)


def _with_sources(sent: Sequence[Part], parts: Sequence[Part]) -> list[Part]:
    """Returns what is sent, with sources that only citations tell in the text of the last search.

    Args:
        sent: The parts that are sent.
        parts: The parts of the message, with their citations.
    """
    with_sources = list(sent)
    searches = [number for number, part in enumerate(sent) if _is_search(part)]
    if not searches:
        return with_sources
    sources = _untold_sources(parts, sent)
    if not sources:
        return with_sources
    last = searches[-1]
    search = sent[last]
    found = (search.text or "").split("\n")
    untitled = [line for line in found if not _is_titled(line, sources)]
    text = "\n".join([*untitled, *sources])
    with_sources[last] = text_part(text, in_place_of=search.in_place_of)
    return with_sources


def _untold_sources(parts: Sequence[Part], sent: Sequence[Part]) -> list[str]:
    """Returns the sources that parts cite and that nothing sent tells: a line for each."""
    shown = "\n".join(part.text or "" for part in sent)
    sources: list[str] = []
    for part in parts:
        sources += [source for source in cited_sources(part.block) if source not in shown]
    return list(dict.fromkeys(sources))


def _is_titled(line: str, sources: Sequence[str]) -> bool:
    """Tells if a line has only the address of a page that one of some sources tells with title."""
    address = line.removeprefix("- ")
    return line != address and any(source.endswith(f" ({address})") for source in sources)


def _is_search(part: Part) -> bool:
    """Tells if a text stands for a call of a server tool."""
    return part.in_place_of is not None and part.in_place_of.kind is Kind.SERVER_CALL


def _changes(parts: Sequence[Part], sent: Sequence[Part], author: str) -> list[Change]:
    """Returns what the report says of an author's parts that are sent as texts, or not at all."""
    gone = _left_out(parts, sent)
    changes: list[Change] = []
    if any(map(_is_thought, gone)):
        changes.append(_NO_REASONING)
    as_text = _labels([part.in_place_of for part in sent if part.in_place_of is not None])
    if as_text:
        changes.append(Change("foreign_item", f"items of {author} sent as text: {as_text}"))
    others = _labels([part for part in gone if _is_told_by_label(part)])
    if others:
        changes.append(Change("foreign_item", f"sent without items of {author}: {others}"))
    return changes


def _left_out(parts: Sequence[Part], sent: Sequence[Part]) -> list[Part]:
    """Returns the parts of which nothing is sent. A text is always sent, if only its words."""
    kept: set[int] = set()
    for part in sent:
        kept.add(id(part))
        kept.add(id(part.in_place_of))
    return [part for part in parts if id(part) not in kept and part.kind is not Kind.TEXT]


def _is_told_by_label(part: Part) -> bool:
    """Tells if a part that is left out is named in the report.

    Thoughts have a change of their own, and a listed call is sent in `tool_calls`.
    """
    return not _is_thought(part) and not part.is_listed_call


def _labels(parts: Sequence[Part]) -> str:
    """Returns what parts are called, each label once, in a row."""
    return ", ".join(dict.fromkeys(part.label for part in parts))


def _is_thought(part: Part) -> bool:
    """Tells if a part is reasoning, or nothing but the signature of it."""
    return part.kind is Kind.REASONING or part.type in _SIGNATURES
