"""What one provider accepts, refuses, counts and charges, as data.

The requirements (`requirements.py`) change what is sent by these values, the counters (`tokens/`)
count by them, and `prompt/` decides by them whether a prompt is extended or rebuilt. A value is
added here together with the first code that reads it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.providers.cache_terms import CacheTerms, cache_terms_for
from langchain_ctxbudget.providers.media_forms import MediaForms
from langchain_ctxbudget.providers.media_rules import MediaRules

THOUGHT_MARK = "__thought__"
"""Stands in the id of a call before the thought signature of the model that asked for it: LiteLLM
keeps Gemini's there (BerriAI/litellm pull request 16895, read in November 2026)."""
_REASONING = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
"""Types of blocks that hold thoughts, of all providers."""
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Framing(NamedTuple):
    """Tokens that a model adds around the text of a message and of a function."""

    message_tokens: int = 3
    name_tokens: int = 1
    function_tokens: int = 7
    """The frame of one function, for gpt-4o and later; 10 for the cl100k_base models."""


class ItemAnswer(Enum):
    """What must answer a call that is an item of OpenAI's Responses API."""

    SCREEN = "a result with a picture"
    ITEM = "an item of its own, as a block in a user's message"
    ANY = "a result in any form"


ANY_ITEM_CALLS: Mapping[str, ItemAnswer] = {
    "computer_call": ItemAnswer.SCREEN,
    "shell_call": ItemAnswer.ANY,
    "local_shell_call": ItemAnswer.ANY,
    "apply_patch_call": ItemAnswer.ANY,
    "mcp_approval_request": ItemAnswer.ITEM,
}
"""Of a provider that is not known: the application knows what its model reads."""


class DeferredTools(Enum):
    """What a provider does with tools that are to be loaded by a tool search (`defer_loading`)."""

    SENT = "sent whole, as the provider knows no such tools, or nobody knows whether it does"
    NAMED = "name and description stand in the window; what is loaded, in the message that loads it"
    HIDDEN = "in the window only once a message refers to them, and then whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallIds:
    """Which ids of calls a provider takes, and what is sent in place of others."""

    longest: int | None = None
    """How many characters an id may have; None: any number."""
    shortest: int = 1
    """How many characters an id must have."""
    refused: str = ""
    """A pattern of characters that must not stand in an id; empty: any may."""
    keeps_thoughts: bool = False
    """True for servers that put a model's thought signature into an id and read it there again:
    such an id is sent as it is."""

    @property
    def may_be_any(self) -> bool:
        """True if the provider takes every id."""
        return self.longest is None and self.shortest <= 1 and not self.refused

    def accepted(self, call_id: str) -> str:
        """Returns an id as it is sent: the id itself, or a digest of one that is refused.

        The digest depends on the id alone, so a call and its result stay a pair. An empty id stays
        empty: it is replaced later, where calls are paired with their results.
        """
        if not call_id or self._takes(call_id):
            return call_id
        digested = f"call_{digest(call_id).hex()}"
        if self.longest is None or len(digested) <= self.longest:
            return digested
        return _letters_and_digits(digest(call_id), self.longest)

    def numbered(self, call_id: str, number: int) -> str:
        """Returns another id for a call whose id was used already, with a number in it.

        A thought signature in the id stays whole.
        """
        name, mark, thought = (call_id or "call").partition(THOUGHT_MARK)
        return self.accepted(f"{name}-{number}{mark}{thought}")

    def also_taken_by(self, others: Sequence["CallIds"]) -> "CallIds":
        """Returns the rules for ids that this provider takes, and others do, too."""
        rules = [self, *others]
        limits = [ids.longest for ids in rules if ids.longest is not None]
        return CallIds(
            longest=min(limits, default=None),
            shortest=max(ids.shortest for ids in rules),
            refused=_any_of(ids.refused for ids in rules),
            keeps_thoughts=all(ids.keeps_thoughts for ids in rules),
        )

    def _takes(self, call_id: str) -> bool:
        """Tells if the provider takes an id."""
        if self.keeps_thoughts and THOUGHT_MARK in call_id:
            return True
        if self.longest is not None and not self.shortest <= len(call_id) <= self.longest:
            return False
        return not (self.refused and re.search(self.refused, call_id))


def _any_of(patterns: Iterable[str]) -> str:
    """Returns a pattern that finds whatever one of some patterns finds; empty if all are."""
    return "|".join(dict.fromkeys(pattern for pattern in patterns if pattern))


def _letters_and_digits(value: bytes, length: int) -> str:
    """Returns bytes as a text of so many letters and digits."""
    number = int.from_bytes(value, "big")
    characters: list[str] = []
    for _ in range(length):
        number, place = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[place])
    return "".join(characters)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnItems:
    """Which reasoning, and which calls of server tools, a provider takes back.

    Anything else is treated as another provider's: reasoning is left out, and what server tools
    were asked, and answered, becomes a text.
    """

    authors: frozenset[str] = frozenset()
    """Whose items it takes: those of its own models, wherever they run."""
    types: frozenset[str] = frozenset()
    """The types of blocks that it takes back, in its own form and in LangChain's standard one."""
    wants_signatures: bool = False
    """True where it refuses reasoning without its signature."""
    reasoning_key: str = ""
    """The key of `additional_kwargs` under which its class reads reasoning; empty: none."""


EVERY_ITEM: Final = None
"""Of a provider that is not known: any item may be its own, so all stay as they are."""
EVERY_FORM: Final = None
"""Of a provider that is not known: the application knows what its model reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One provider, as data. The defaults are what nearly every provider accepts."""

    name: str
    """What the application calls it where it says whose model it is."""
    call_ids: CallIds = CallIds()
    item_calls: Mapping[str, ItemAnswer] = field(default_factory=dict)
    """The types of calls that it reads as items, and what must answer each. Other calls are sent as
    calls of functions."""
    longest_name: int = 64
    """How many characters the name of a speaker or a tool may have."""
    refused_in_names: str = "[^a-zA-Z0-9_-]+"
    """A pattern of what must not stand in such a name."""
    calls_follow_others: bool = False
    """True if calls must not come right behind another message of the assistant."""
    answers_follow_results: bool = False
    """True if a user's message must not come right behind the result of a tool."""
    begins_with_user: bool = True
    """True if the first message behind the system message must be the user's."""
    items: OwnItems | None = EVERY_ITEM
    """Which items it takes back; None where that is not known: then all stay as they are."""
    binds_thoughts: bool = False
    """True where thoughts are taken back only behind exactly what they were made behind: system
    prompt, tools and all messages before them."""
    compactions: str = ""
    """Whose compactions its models read: what stands before one is ignored. Empty: nobody's."""
    reads_own_media: bool = False
    """True if its models read the media again that they have made, in an assistant's message."""
    sends_sounds_by_id: bool = False
    """True if its package sends a spoken answer again, by the id of its sound."""
    framing: Framing = field(default_factory=Framing)
    media: MediaRules = field(default_factory=MediaRules)
    media_forms: MediaForms | None = EVERY_FORM
    """In which forms its package and its API read media and other blocks; None where that is not
    known: then all stay as they are."""
    cache: CacheTerms = field(default_factory=CacheTerms)
    deferred_tools: DeferredTools = DeferredTools.SENT
    cache_by_family: Mapping[str, CacheTerms] = field(default_factory=dict)
    """How the provider caches prompts for some families of models, by how their names begin. All
    others have `cache`."""

    def taken_by_all(self, others: Sequence["Profile"]) -> "Profile":
        """Returns it with what it takes and others take, too, any of which may get a request.

        Its own reasoning stays: without it this provider may refuse a round of calls, and classes
        of others leave most of it out themselves. So do its forms of media, its prices, and its way
        of counting.
        """
        profiles = [self, *others]
        items = self.items
        if items is not None and any(profile.items != items for profile in others):
            items = replace(items, types=items.types & _REASONING)
        return replace(
            self,
            call_ids=self.call_ids.also_taken_by([profile.call_ids for profile in others]),
            items=items,
            longest_name=min(profile.longest_name for profile in profiles),
            refused_in_names=_any_of(profile.refused_in_names for profile in profiles),
            calls_follow_others=any(profile.calls_follow_others for profile in profiles),
            answers_follow_results=any(profile.answers_follow_results for profile in profiles),
            begins_with_user=any(profile.begins_with_user for profile in profiles),
        )

    def cache_terms_for(self, model_name: str) -> CacheTerms:
        """Returns how this provider caches prompts for a model, and what it charges for that."""
        return cache_terms_for(model_name, self.cache, self.cache_by_family)
