"""The tools of a call: which are bound, which are left to be found, and what they cost.

Tools stand in front of everything in a provider's cache, so every change of their list rewrites the
whole prompt. While the last prompt is extended, its list stays; it is chosen anew with a rebuild.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from weakref import WeakKeyDictionary

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.content import listed_calls, referenced_tools
from langchain_ctxbudget.history import Conversation
from langchain_ctxbudget.prompt.plan import Plan
from langchain_ctxbudget.providers import DeferredTools
from langchain_ctxbudget.stores import CutRecord
from langchain_ctxbudget.tokens import TOOLS_END_TOKENS, ToolsInWindow, has_deferred_part
from langchain_ctxbudget.tools import (
    BOUND_TOOLS,
    DEFERRED_TOOLS,
    LOADED_TOOLS,
    ChosenTools,
    OwnTool,
    ToolSet,
    choose,
)

# Which tools are bound


def with_tools_of_last(plan: Plan, last: CutRecord | None) -> Plan:
    """Returns the plan with the tools that the last prompt had, as far as they are still given."""
    names = plan.growth.tools
    if names is None:
        names = last.tools if last else ()
    return _with_named_tools(plan, names)


def with_new_tools(plan: Plan, last: CutRecord | None, *, is_something_left_out: bool) -> Plan:
    """Returns the plan with tools that are chosen for its message.

    Args:
        plan: the plan of a prompt that is rebuilt.
        last: the cut of the prompt before it, whose tools for what is left out stay.
        is_something_left_out: True if the prompt does not show everything that was said.
    """
    given = _Given.of(plan)
    names = frozenset(last.tools) if last else frozenset()
    offers_for_left_out = is_something_left_out or given.offers_for_left_out(names)
    return _with_chosen_tools(plan, given, last, offers_for_left_out=offers_for_left_out)


def without_tools_for_left_out(plan: Plan, last: CutRecord | None) -> Plan:
    """Returns the plan with tools that are chosen for its message, but none for what is left out.

    Args:
        plan: the plan of a prompt that is rebuilt, in which these have no room.
        last: the cut of the prompt before it.
    """
    return _with_chosen_tools(plan, _Given.of(plan), last, offers_for_left_out=False)


def _with_chosen_tools(
    plan: Plan, given: "_Given", last: CutRecord | None, *, offers_for_left_out: bool
) -> Plan:
    """Returns the plan with tools that are chosen for its message, or by another node before.

    Args:
        plan: the plan of a prompt that is rebuilt.
        given: the tools of its call.
        last: the cut of the prompt before it.
        offers_for_left_out: True if the tools for what is left out are bound.
    """
    if plan.growth.tools is not None:
        return _with_named_tools(plan, plan.growth.tools)
    chosen: list[int] = []
    if not given.fits(offers_for_left_out=offers_for_left_out):
        # Without a last prompt this may be a call of a loop whose first prompt another process
        # made: then what the loop has called since must not change the list.
        used = _used_tools(plan) if last else _used_before_turn(plan)
        chosen = _chosen_for_message(plan, given, used, offers_for_left_out=offers_for_left_out)
    return _with_tools(plan, given, chosen, offers_for_left_out=offers_for_left_out)


def _with_named_tools(plan: Plan, names: Collection[str]) -> Plan:
    """Returns the plan with the tools of some names, as far as they are given."""
    given = _Given.of(plan)
    named = frozenset((*names, *plan.request.settings.required_tools))
    return _with_tools(
        plan,
        given,
        given.named(named),
        offers_for_left_out=given.offers_for_left_out(named),
    )


def is_given_tools_for_left_out(plan: Plan) -> bool:
    """Tells whether the call has tools of the package that are bound once something is left out."""
    return bool(_Given.of(plan).for_left_out)


def lacks_tools_for_left_out(plan: Plan) -> bool:
    """Tells whether tools are given that the prompt will need once it leaves something out."""
    given = _Given.of(plan)
    return any(position in plan.tools.left_out for position in given.for_left_out)


def loses_tools_for_left_out(plan: Plan, record: CutRecord, newest: CutRecord) -> bool:
    """Tells whether a prompt with the tools of a cut would lose those for what is left out.

    A long turn may have bound them in a prompt of its own. Its tools are the last that were sent.

    Args:
        plan: the plan.
        record: the cut of the prompt that this one may extend.
        newest: the cut that was made last.
    """
    given = _Given.of(plan)
    had_tools = given.offers_for_left_out(newest.tools)
    return had_tools and not given.offers_for_left_out(record.tools)


def has_tools_to_choose_from(plan: Plan) -> bool:
    """Tells whether the tools of a call cost more than may be bound."""
    return not _Given.of(plan).fits(offers_for_left_out=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sorted:
    """The tools of a call, sorted by what decides on them; each by its position.

    Tools that their provider runs or loads are none of these: they are always bound.
    """

    choosable: tuple[int, ...]
    """Those among which the package chooses, where not all of them fit."""
    for_search: tuple[int, ...]
    """The package's tools by which the model gets at those that are not bound."""
    for_left_out: tuple[int, ...]
    """The package's tools that are of use once something is left out."""


@lru_cache(maxsize=32)
def _sorted(known: ToolSet, kind: DeferredTools) -> _Sorted:
    choosable: list[int] = []
    for_search: list[int] = []
    for_left_out: list[int] = []
    for position, tool in enumerate(known.tools):
        match tool.own:
            case None:
                is_loaded_by_provider = tool.is_deferred and kind is not DeferredTools.SENT
                if tool.is_function and not is_loaded_by_provider:
                    choosable.append(position)
            case OwnTool.FIND | OwnTool.CALL:
                for_search.append(position)
            case OwnTool.RECALL | OwnTool.COMPACT:
                for_left_out.append(position)
            case OwnTool.REQUIRED:
                pass
    return _Sorted(
        choosable=tuple(choosable), for_search=tuple(for_search), for_left_out=tuple(for_left_out)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The tools of a call, and what of the call decides on them."""

    known: ToolSet
    window_tokens: Sequence[int]
    """What each costs in the model's window."""
    most_tokens: int | None
    """What all that are bound may cost; None for any number."""
    choosable: tuple[int, ...]
    for_search: tuple[int, ...]
    for_left_out: tuple[int, ...]
    """Empty where the caller binds whatever it has given."""

    @classmethod
    def of(cls, plan: Plan) -> "_Given":
        """Returns the tools of a plan's call."""
        known = plan.request.call.tools
        parts = _sorted(known, plan.conversation.profile.deferred_tools)
        return cls(
            known=known,
            window_tokens=_window_tokens(plan, known),
            most_tokens=plan.request.settings.tool_tokens,
            choosable=parts.choosable,
            for_search=parts.for_search,
            for_left_out=parts.for_left_out if plan.request.binds_chosen_tools else (),
        )

    def fits(self, *, offers_for_left_out: bool) -> bool:
        """Tells whether all tools may be bound, so that none has to be found.

        Args:
            offers_for_left_out: True if the tools for what is left out are bound.
        """
        if self.most_tokens is None:
            return True
        tokens = self.tokens(offers_for_left_out=offers_for_left_out)
        for_search = sum(tokens[position] for position in self.for_search)
        return sum(tokens) - for_search <= self.most_tokens

    def tokens(self, *, offers_for_left_out: bool) -> Sequence[int]:
        """Returns what each tool costs of the limit: nothing while it cannot be bound yet.

        Args:
            offers_for_left_out: True if the tools for what is left out are bound.
        """
        if offers_for_left_out:
            return self.window_tokens
        tokens = [*self.window_tokens]
        for position in self.for_left_out:
            tokens[position] = 0
        return tokens

    def named(self, names: Collection[str]) -> list[int]:
        """Returns those to choose from that have some names."""
        return [at for at in self.choosable if self.known.tools[at].name in names]

    def offers_for_left_out(self, names: Collection[str]) -> bool:
        """Tells whether names include those of tools for what is left out."""
        return any(self.known.tools[at].name in names for at in self.for_left_out)


def _chosen_for_message(
    plan: Plan, given: _Given, used: Sequence[str], *, offers_for_left_out: bool
) -> list[int]:
    """Returns the tools to bind: those used before or named by the system prompt, then by fit.

    Args:
        plan: the plan.
        given: the tools of its call.
        used: the names of those that were used, the last one first.
        offers_for_left_out: True if the tools for what is left out are bound, which takes room.
    """
    scores = plan.findings.tool_scores
    if scores is None or len(scores) != len(given.known):
        scores = given.known.unranked
    choosable = frozenset(given.choosable)
    others = [tool.name for at, tool in enumerate(given.known.tools) if at not in choosable]
    positions = choose(
        given.known,
        given.tokens(offers_for_left_out=offers_for_left_out),
        scores,
        used=[*used, *_named_in(plan.request.system_prompt, given.known)],
        most_tokens=given.most_tokens or 0,
        always=[*others, *plan.request.settings.required_tools],
    )
    return [position for position in positions if position in choosable]


def _with_tools(
    plan: Plan, given: _Given, chosen: Collection[int], *, offers_for_left_out: bool
) -> Plan:
    """Returns the plan with its tools, and what they cost.

    Args:
        plan: the plan.
        given: the tools of its call.
        chosen: the positions of those that are bound where not all fit.
        offers_for_left_out: True if the tools for what is left out are bound.
    """
    bound = dict.fromkeys(range(len(given.known)), Reason.BOUND)
    left_out: dict[int, Reason] = {}
    if given.fits(offers_for_left_out=offers_for_left_out):
        left_out |= dict.fromkeys(given.for_search, Reason.NOT_NEEDED_YET)
    else:
        used = frozenset(_used_tools(plan))
        named = frozenset(_named_in(plan.request.system_prompt, given.known))
        required = frozenset(plan.request.settings.required_tools)
        left_out |= dict.fromkeys(given.choosable, Reason.TO_BE_FOUND)
        for position in chosen:
            del left_out[position]
            name = given.known.tools[position].name
            if name in required:
                bound[position] = Reason.CONFIGURED
            elif name in used:
                bound[position] = Reason.USED_BEFORE
            else:
                bound[position] = Reason.NAMED if name in named else Reason.FITS_QUESTION
        bound |= dict.fromkeys(given.for_search, Reason.FINDS_TOOLS)
    if not offers_for_left_out:
        left_out |= dict.fromkeys(given.for_left_out, Reason.NOT_NEEDED_YET)
    for position in left_out:
        del bound[position]
    tools = ChosenTools(
        known=given.known,
        bound=bound,
        left_out=left_out,
        window_tokens=given.window_tokens,
    )
    conversation = plan.conversation
    has_recall_tool = bool(tools.name_of(OwnTool.RECALL))
    if conversation.has_recall_tool is not has_recall_tool:
        conversation = conversation.with_recall_tool(is_bound=has_recall_tool)
    return replace(plan, conversation=conversation, tools=tools)


# What was used, or is named

_NAME = re.compile(r"`([\w.-]+)`|\b(\w+_\w+)\b")
"""How a text names a tool: as code, or by a name that is no ordinary word."""


@lru_cache(maxsize=32)
def _named_in(system_prompt: str, known: ToolSet) -> tuple[str, ...]:
    """Returns the names of the tools that a system prompt names, in its order."""
    found = (match[1] or match[2] for match in _NAME.finditer(system_prompt))
    return tuple(dict.fromkeys(name for name in found if known.named(name) is not None))


class _NamesInMessages:
    """The names of tools that the messages of conversations have in them.

    Each message is read once: the tables of messages are only added to.
    """

    def __init__(
        self, names_in: Callable[[BaseMessage], Iterable[str]], most_messages: int | None = None
    ) -> None:
        """Reads nothing yet.

        Args:
            names_in: returns the names in a message.
            most_messages: the newest messages that are read where none were read before, as older
                ones may still have to be decoded; None for all.
        """
        self._names_in = names_in
        self._most_messages = most_messages
        self._read: WeakKeyDictionary[object, _ReadNames] = WeakKeyDictionary()

    def in_conversation(self, conversation: Conversation) -> dict[str, None]:
        """Returns the names in the messages of a conversation, the one that came last behind."""
        end = len(conversation.entries)
        read = self._read.get(conversation.table)
        if read is None or read.messages > end:
            first = 0 if self._most_messages is None else max(0, end - self._most_messages)
            read = _ReadNames({}, first)
        if read.messages < end:
            unread = (conversation.entries[at].message for at in range(read.messages, end))
            read = _ReadNames(self._and_in(read.names, unread), end)
            self._read[conversation.table] = read
        return read.names

    def in_prompt(self, plan: Plan) -> dict[str, None]:
        """Returns the names in the messages of a conversation and its turn."""
        return self._and_in(self.in_conversation(plan.conversation), plan.request.turn)

    def _and_in(
        self, names: Mapping[str, None], messages: Iterable[BaseMessage]
    ) -> dict[str, None]:
        """Returns names and those in further messages."""
        all_names = dict(names)
        for message in messages:
            for name in self._names_in(message):
                all_names.pop(name, None)
                all_names[name] = None
        return all_names


@dataclass(frozen=True, slots=True)
class _ReadNames:
    """The names in the messages of a table that were read."""

    names: dict[str, None]
    messages: int
    """The number of messages up to which they were read."""


def _called_in(message: BaseMessage) -> list[str]:
    """Returns the names of the tools that a message calls, also by way of `call_tool`."""
    names: list[str] = []
    for call in listed_calls(message):
        name = call.get("name")
        arguments = call.get("args")
        if name == OwnTool.CALL and isinstance(arguments, Mapping):
            name = arguments.get("name")
        if isinstance(name, str):
            names.append(name)
    return names


RECENT_CALLS = 1_000
"""Calls in so many of the newest messages count as use, where a process opens a conversation."""
_CALLED = _NamesInMessages(_called_in, most_messages=RECENT_CALLS)
_REFERENCED = _NamesInMessages(referenced_tools)
"""What results of a provider's tool search refer to."""


def _used_tools(plan: Plan) -> list[str]:
    """Returns the names of the tools that were called, the one that was called last first."""
    return [*reversed(_CALLED.in_prompt(plan))]


def _used_before_turn(plan: Plan) -> list[str]:
    """Returns the names of the tools that the conversation calls, the last one first."""
    return [*reversed(_CALLED.in_conversation(plan.conversation))]


def servers_in_use(plan: Plan) -> frozenset[str]:
    """Returns the servers of the tools that the conversation calls."""
    known = plan.request.call.tools
    used = [known.named(name) for name in _used_before_turn(plan)]
    return frozenset(tool.server for tool in used if tool is not None and tool.server)


# What they cost


def _window_tokens(plan: Plan, known: ToolSet) -> Sequence[int]:
    """Returns what each tool costs in the window, where it is bound; 0 while it is not loaded.

    A deferred tool that was loaded earlier in the conversation counts, also where the message that
    has loaded it may be left out: it is not known yet when tools are counted.
    """
    tokens = known.tokens(plan.counter)
    kind = plan.conversation.profile.deferred_tools
    if kind is DeferredTools.SENT or not known.has_deferred:
        return tokens
    loaded = _loaded_tools(plan)
    in_window: list[int] = []
    for tool, whole_tokens in zip(known.tools, tokens, strict=True):
        if not has_deferred_part(tool.given):
            in_window.append(whole_tokens)
            continue
        window = ToolsInWindow.of([tool.given], kind, loaded)
        shown = [*window.whole, *window.named, *window.loaded]
        in_window.append(sum(map(plan.counter.count_tool, shown)))
    return in_window


def costs_of_tools(plan: Plan) -> dict[str, int]:
    """Returns what the bound tools cost together, their frames included, by their names in errors.

    Deferred tools are always among them, so that the report tells of them.
    """
    tools = plan.tools
    counter = plan.counter
    kind = plan.conversation.profile.deferred_tools
    if kind is DeferredTools.SENT or not tools.known.has_deferred:
        tokens = tools.known.total_tokens(tuple(tools.bound), counter)
        return {BOUND_TOOLS: tokens} if tokens else {}
    window = ToolsInWindow.of(tools.given, kind, _loaded_tools(plan))
    costs = {
        BOUND_TOOLS: counter.count_tools(window.whole),
        LOADED_TOOLS: counter.count_tools(window.loaded),
    }
    costs = {name: tokens for name, tokens in costs.items() if tokens}
    if window.has_deferred:
        costs[DEFERRED_TOOLS] = counter.count_tools(window.named)
    return costs


def tokens_of_application(plan: Plan, *, only_bound: bool = False) -> int:
    """Returns what the application's tools cost together, without the package's own.

    Args:
        plan: the plan.
        only_bound: True for those of them that are bound.
    """
    known = plan.tools.known
    positions = plan.tools.bound if only_bound else range(len(known))
    own = frozenset(known.own.values())
    given = [position for position in positions if position not in own]
    kind = plan.conversation.profile.deferred_tools
    if kind is DeferredTools.SENT or not known.has_deferred:
        return known.total_tokens(given, plan.counter)
    tokens = [plan.tools.window_tokens[position] for position in given]
    return TOOLS_END_TOKENS + sum(tokens) if tokens else 0


def _loaded_tools(plan: Plan) -> frozenset[str]:
    """Returns the names of the deferred tools that the provider's search has loaded."""
    if plan.conversation.profile.deferred_tools is not DeferredTools.HIDDEN:
        return frozenset()
    return frozenset(_REFERENCED.in_prompt(plan))
