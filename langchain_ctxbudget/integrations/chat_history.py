"""`BudgetedChatMessageHistory`: a conversation as LangChain's chat message history."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError, checks_names, require_count
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.history import (
    CONTEXT_INTRO,
    Conversation,
    HistoryPlan,
    HistoryRoom,
    as_compacted,
    keep_share,
    newest_costs,
    with_thoughts_at,
)
from langchain_ctxbudget.integrations.options import require_pipeline
from langchain_ctxbudget.knowledge import StandingRules
from langchain_ctxbudget.layers import Place, names_at, rules_of_window, tokens_of_rules
from langchain_ctxbudget.messages import fences, newest_that_fit
from langchain_ctxbudget.pipeline import ContextPipeline, Prompter
from langchain_ctxbudget.prompt import Content, Request
from langchain_ctxbudget.providers import Profile, accepted_history, finished, within_media_limits
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import TokenCounter

ARC_SHARE = 0.08
"""The most of a window that the arc takes."""
LEFT_OUT = "[Earlier messages are left out.]"
_log = logging.getLogger(__name__)


@checks_names()
class BudgetedChatMessageHistory(BaseChatMessageHistory):
    """A conversation of a shared pipeline that is kept whole and read within a number of tokens.

    With `max_tokens`, `messages` is what fits (`window`), so that `RunnableWithMessageHistory`
    sends no more than that, and `all_messages` is everything that was said. Without it, both are
    everything: `messages` as the provider of the pipeline's model accepts it, `all_messages` as it
    was said. For new code, see `build_context_graph` and `ContextPipeline`, which also retrieve and
    report.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=ContextPipeline())
        >>> history.add_user_message("My bike is blue.")
        >>> history.add_messages([AIMessage("Nice!")])
        >>> [message.content for message in history.messages]
        ['My bike is blue.', 'Nice!']
        >>> [message.type for message in history.window(1_000)]
        ['human', 'ai']
    """

    def __init__(
        self,
        conversation_id: str,
        *,
        user_id: str,
        pipeline: ContextPipeline,
        max_tokens: int | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> None:
        """Names a conversation (`session_id` in LangChain's terms).

        Args:
            conversation_id: the conversation.
            user_id: the user.
            pipeline: the pipeline that keeps the conversation.
            max_tokens: the most tokens of `messages`; None: every message.
            persona_id: the persona whose saved settings apply.
            device_id: the device of the user.
        """
        super().__init__()
        require_pipeline(pipeline, "make one and give it to all histories")
        self.conversation_id = conversation_id
        self.user_id = user_id
        self.pipeline = pipeline
        self.max_tokens = max_tokens
        if max_tokens is not None:
            require_count("max_tokens", max_tokens)
        self._chat = pipeline.conversation(conversation_id, user_id=user_id)
        self._prompter = Prompter(pipeline.engine, Scope(user_id, conversation_id))
        self._request = Request(persona_id=persona_id, device_id=device_id)

    def __repr__(self) -> str:
        """Names the conversation; reads nothing."""
        name = f"BudgetedChatMessageHistory({self.conversation_id!r}, user_id={self.user_id!r}"
        if self.max_tokens is not None:
            name += f", max_tokens={self.max_tokens}"
        return f"{name})"

    @property
    def all_messages(self) -> list[BaseMessage]:
        """Every message as it was given, chunks of a stream as whole messages.

        Each has an id by now.
        """
        return self._chat.messages()

    @property
    def messages(self) -> list[BaseMessage]:
        """The window of `max_tokens`; without it every message, as the provider takes it."""
        if self.max_tokens is None:
            return accepted_history(self.all_messages, self._profile)
        return self.window(self.max_tokens)

    @messages.setter
    def messages(self, _messages: Sequence[BaseMessage]) -> None:
        raise InputError(
            "messages are read-only: `add_messages` appends, `clear` removes, "
            "`pipeline.sync` replaces"
        )

    @property
    def _profile(self) -> Profile:
        """What the provider of the pipeline's model accepts."""
        return self.pipeline.engine.target.profile

    async def aget_messages(self) -> list[BaseMessage]:
        """Returns what `messages` is."""
        if self.max_tokens is None:
            return accepted_history(await self._chat.amessages(), self._profile)
        return await self.awindow(self.max_tokens)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Appends messages, but for those whose id is known already."""
        self._chat.add(messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Appends messages; see `add_messages`."""
        await self._chat.aadd(messages)

    def clear(self) -> None:
        """Removes the conversation and everything that was derived from it, and nothing else."""
        self._chat.clear()

    async def aclear(self) -> None:
        """Removes the conversation; see `clear`."""
        await self._chat.aclear()

    def window(self, max_tokens: int) -> list[BaseMessage]:
        """Returns the part of the conversation for a prompt between a system and a human message.

        Arc and summary of older messages are one human message in front of the newest ones. Give
        the same number with every turn: each number has a cut of its own, and between two rebuilds
        a window only grows at its end.

        Args:
            max_tokens: the most that the window may cost.

        Raises:
            BudgetTooSmallError: Not even a line that says that messages are left out has room.
        """
        return drive(window_of(self._prompter, max_tokens, self._request))

    async def awindow(self, max_tokens: int) -> list[BaseMessage]:
        """Returns the part of the conversation for a prompt between a system and a human message.

        Arc and summary of older messages are one human message in front of the newest ones. Give
        the same number with every turn: each number has a cut of its own, and between two rebuilds
        a window only grows at its end.

        Args:
            max_tokens: the most that the window may cost.

        Raises:
            BudgetTooSmallError: Not even a line that says that messages are left out has room.
        """
        return await adrive(window_of(self._prompter, max_tokens, self._request))


def window_of(prompter: Prompter, max_tokens: int, request: Request) -> Flow[list[BaseMessage]]:
    """Returns the messages of a conversation that fit; see `BudgetedChatMessageHistory.window`."""
    require_count("max_tokens", max_tokens)
    chosen = yield from prompter.choose_history(partial(_plan, max_tokens=max_tokens), request)
    view = chosen.view
    conversation = chosen.conversation
    count = conversation.counter.count_text
    rules = rules_of_window(chosen.rules, view, count, max_tokens)
    content = Content(
        fragments=(*view.arc, *view.summary),
        summary_intro=view.summary_intro,
        summary_outro=view.summary_outro,
        history=view.groups,
        compaction=conversation.compaction,
        profile=conversation.profile,
    )
    is_whole = view.cut == view.compacted
    window = _Window(content, rules.text, is_whole=is_whole)
    messages = _fitted(window, conversation.counter, max_tokens)
    # A window has no report that could tell of them.
    for failure in filter(None, (*chosen.failures, rules.warning)):
        _log.warning("window of conversation %r: %s", prompter.scope.conversation_id, failure)
    return messages


@dataclass(frozen=True, slots=True)
class _Window:
    """What a window holds."""

    content: Content
    rules: str
    """The standing rules that no message of it says; empty for none."""
    is_whole: bool
    """True where it holds every message."""


def _fitted(window: _Window, counter: TokenCounter, max_tokens: int) -> list[BaseMessage]:
    """Returns the messages of a window, as much of it as fits.

    Arc and summary give way first, then the oldest messages. The messages are copies as they are
    sent, so what is counted is what is returned.
    """
    order = names_at(Place.STABLE, Place.HISTORY)
    messages = _messages_of(window)
    while messages:
        excess = counter.count_messages(messages) - max_tokens
        if excess <= 0:
            break
        smaller, _ = prompts.without_least(window.content, counter, excess, order)
        if smaller == window.content:
            needed = {"a line that says that messages are left out": max_tokens + excess}
            raise BudgetTooSmallError(
                max_tokens, needed, "Raise max_tokens; a window of some hundred says something."
            )
        is_whole = window.is_whole and smaller.history == window.content.history
        window = _Window(smaller, window.rules, is_whole)
        messages = _messages_of(window)
    return messages


def _plan(
    conversation: Conversation,
    settings: ContextSettings,
    rules: StandingRules,
    *,
    max_tokens: int,
) -> HistoryPlan:
    """Returns the plan of a window's history."""
    conversation = as_compacted(conversation, max_tokens)
    key = prompts.cut_key(settings, max_tokens, conversation.counter)
    # A prompt of the same budget has less room for history, and another cut.
    cut_key = f"a window, {conversation.compaction_key}{key}"
    rule_tokens = _tokens_of_rules(rules, conversation.counter, max_tokens)
    room = max(0, max_tokens - rule_tokens - conversation.counter.count_messages([]))
    arc = int(room * ARC_SHARE)
    if cut_key in conversation.cuts or conversation.total_tokens > room or conversation.compaction:
        # Thoughts may be bound to what stood before them: each window that is cut begins anew.
        conversation = with_thoughts_at(conversation, ())
    newest = newest_costs(conversation, settings.keep_messages, max_tokens)
    newest_tokens = int(max_tokens * keep_share(max_tokens))
    # Calls and results stay together: what stands behind the newest place for a cut is kept.
    behind_last_cut = _messages_behind_last_cut(conversation)
    return HistoryPlan(
        conversation=conversation,
        settings=settings,
        room=HistoryRoom(
            total_tokens=max_tokens,
            history_tokens=room - arc,
            arc_tokens=arc,
            fits_whole=conversation.total_tokens <= room,
            keep=max(behind_last_cut, newest_that_fit(newest, newest_tokens)),
        ),
        cut_key=cut_key,
    )


def _tokens_of_rules(rules: StandingRules, counter: TokenCounter, max_tokens: int) -> int:
    """Returns the most tokens that rules take in a window, in a message of their own."""
    tokens = tokens_of_rules(rules.all_in_force, counter.count_text, max_tokens)
    if not tokens:
        return 0
    frame = [HumanMessage(_fenced(""))]
    return tokens + counter.count_messages(frame)


def _fenced(rules: str) -> str:
    """Returns rules in the fence that they have in a system message."""
    name = fences.PREFERENCES
    return f"{fences.opening(name)}{rules}{fences.closing(name).rstrip()}"


def _messages_behind_last_cut(conversation: Conversation) -> int:
    """Returns how many messages stand behind the newest place where a cut is possible."""
    for count, is_safe in enumerate(reversed(conversation.safe), start=1):
        if is_safe:
            return count
    return 0


def _messages_of(window: _Window) -> list[BaseMessage]:
    """Returns the messages of a window.

    They are copies: what a caller does to its messages must not change the next window.
    """
    content = window.content
    parts: list[str] = []
    if window.rules:
        parts.append(_fenced(window.rules))
    arc = prompts.system_parts(content)
    if arc:
        parts.append(CONTEXT_INTRO + "".join(arc))
    if content.summary:
        parts.append(prompts.summary_text(content))
    elif not window.is_whole:
        parts.append(LEFT_OUT)
    else:
        note = prompts.opening_note(content)
        if note:
            parts.append(note)
    messages = prompts.messages_of(content.compacted)
    if parts:
        messages.append(HumanMessage("\n".join(parts)))
    messages += prompts.messages_of(content.behind_compaction)
    messages, _ = within_media_limits(messages, content.profile)
    copies = [prompts.request_copy(message) for message in messages]
    sent, _ = finished(copies, content.profile)
    return sent
