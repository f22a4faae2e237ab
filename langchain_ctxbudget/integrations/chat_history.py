"""`BudgetedChatMessageHistory`.

A conversation of a pipeline as LangChain's chat message history, and its window.
"""

import logging
from collections.abc import Sequence
from functools import partial

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.budget import Layer
from langchain_ctxbudget.errors import BudgetTooSmallError, InputError, checks_names, require_count
from langchain_ctxbudget.flow import Flow, twins
from langchain_ctxbudget.history import CONTEXT_INTRO, Conversation, HistoryPlan, compact
from langchain_ctxbudget.integrations.options import require_pipeline
from langchain_ctxbudget.messages import newest_that_fit, with_short_call_ids
from langchain_ctxbudget.pipeline import ContextPipeline, Engine
from langchain_ctxbudget.prompt import Content, Request
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope

ARC_SHARE = 0.08
"""The most of a window that the arc takes."""
LEFT_OUT = "[Earlier messages are left out.]"
_log = logging.getLogger(__name__)


@checks_names()
class BudgetedChatMessageHistory(BaseChatMessageHistory):
    """A conversation that is kept whole and read within a number of tokens.

    A view of it, over a shared pipeline.

    With `max_tokens`, `messages` is what fits (`window`), so that `RunnableWithMessageHistory` sends no more
    than that, and `all_messages` is everything that was said. Without it, both are everything; only `all_messages` has
    ids of calls that are too long for the pipeline's model. For new code, see `build_context_graph` and
    `ContextPipeline`, which also retrieve and report.

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

        `messages` has at most `max_tokens`, or all.
        """
        super().__init__()
        require_pipeline(pipeline, "make one and give it to all histories")
        self.conversation_id = conversation_id
        self.user_id = user_id
        self.pipeline = pipeline
        self.max_tokens = max_tokens
        require_count("max_tokens", 1 if max_tokens is None else max_tokens)
        self._scope = Scope(user_id, conversation_id)
        self._asked = Request(persona_id=persona_id, device_id=device_id)
        self._ids = {"user_id": user_id, "conversation_id": conversation_id}

    @property
    def all_messages(self) -> list[BaseMessage]:
        """Every message as it was given, chunks of a stream as whole messages.

        Each has an id by now.
        """
        return self.pipeline.get_messages(**self._ids)

    @property
    def messages(self) -> list[BaseMessage]:
        """The window of `max_tokens`, if given.

        Else every message, with ids of calls that the model takes.
        """
        if self.max_tokens is None:
            return self._with_short_ids(self.all_messages)
        return self.window(self.max_tokens)

    @messages.setter
    def messages(self, _messages: Sequence[BaseMessage]) -> None:
        raise InputError(
            "messages are read-only: `add_messages` appends, `clear` removes, `pipeline.sync` replaces"
        )

    async def aget_messages(self) -> list[BaseMessage]:
        """Returns what `messages` is."""
        if self.max_tokens is None:
            return self._with_short_ids(await self.pipeline.aget_messages(**self._ids))
        return await self.awindow(self.max_tokens)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Appends messages, as `ContextPipeline.add_messages`.

        Those whose id is known already are left alone.
        """
        self.pipeline.add_messages(messages, **self._ids)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Appends messages; see `add_messages`."""
        await self.pipeline.aadd_messages(messages, **self._ids)

    def clear(self) -> None:
        """Removes the conversation and everything that was derived from it, and nothing else."""
        self.pipeline.clear(**self._ids)

    async def aclear(self) -> None:
        """Removes the conversation; see `clear`."""
        await self.pipeline.aclear(**self._ids)

    def _with_short_ids(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Returns messages as LangChain sends them on.

        The pipeline's model may refuse long ids of calls.
        """
        sent, _ = with_short_call_ids(messages, self.pipeline.engine.target.longest_call_id)
        return sent

    def _window(self, max_tokens: int) -> Flow[list[BaseMessage]]:
        """Returns the part of the conversation that stands in a prompt between a system and a human message.

        Arc and summary of older messages are one human message in front of the newest ones. Give
        the same number with every turn: each has compaction steps of its own, and between two of
        them a window only grows at its end.
        """
        return window_of(self.pipeline.engine, self._scope, max_tokens, self._asked)

    window, awindow = twins(_window)


def window_of(
    engine: Engine, scope: Scope, max_tokens: int, request: Request
) -> Flow[list[BaseMessage]]:
    """Returns the messages of a conversation that fit a request.

    See `BudgetedChatMessageHistory.window`.
    """
    require_count("max_tokens", max_tokens)
    view, conversation, failures = yield from engine.history(
        scope, partial(_plan, max_tokens=max_tokens), request
    )
    content = Content(
        fragments=(*view.arc, *view.summary),
        summary_intro=view.summary_intro,
        summary_outro=view.summary_outro,
        history=view.groups,
    )
    counter = conversation.counter
    whole = not view.cut
    messages = _messages_of(
        content, whole=whole
    )  # copies, as they are sent: what is counted last is what is returned
    while messages and (excess := counter.count_messages(messages) - max_tokens) > 0:
        # Arc and summary give way first, then the oldest messages.
        smaller, _ = prompts.without_least(content, counter, excess, (Layer.ARC, Layer.HISTORY))
        if smaller == content:
            needed = {"a line that says that messages are left out": max_tokens + excess}
            raise BudgetTooSmallError(
                max_tokens, needed, "Raise max_tokens; a window of some hundred says something."
            )
        whole = whole and smaller.history == content.history
        content = smaller
        messages = _messages_of(content, whole=whole)
    for failure in failures:  # a window has no report to say it in
        _log.warning("window of conversation %r: %s", scope.conversation_id, failure)
    return messages


def _plan(conversation: Conversation, settings: ContextSettings, *, max_tokens: int) -> HistoryPlan:
    room = max(0, max_tokens - conversation.counter.count_messages([]))
    arc = int(room * ARC_SHARE)
    newest = compact.newest_costs(conversation, settings.keep_messages, max_tokens)
    # Calls and results stay together: at least what stands behind the newest place for a cut.
    last = next((n for n, safe in enumerate(reversed(conversation.safe), start=1) if safe), 0)
    return HistoryPlan(
        conversation=conversation,
        settings=settings,
        fits_whole=conversation.total_tokens <= room,
        # A prompt of the same budget has less room for history, and another cut.
        cut_key=f"a window, {prompts.cut_key(settings, max_tokens, conversation.counter)}",
        budget_tokens=max_tokens,
        history_tokens=room - arc,
        arc_tokens=arc,
        keep=max(last, newest_that_fit(newest, int(max_tokens * compact.keep_share(max_tokens)))),
    )


def _messages_of(content: Content, *, whole: bool) -> list[BaseMessage]:
    """Returns the messages of a window; `whole` is True where it has every message.

    They are copies: what a caller does to its messages must not change the next window.
    """
    parts = [CONTEXT_INTRO + "".join(arc)] if (arc := prompts.system_parts(content)) else []
    if content.summary:
        parts.append(prompts.summary_text(content))
    elif not whole:
        parts.append(LEFT_OUT)
    elif note := prompts.opening_note(content):
        parts.append(note)
    opening = [HumanMessage("\n".join(parts))] if parts else []
    history = (message for part in content.history for message in part.messages)
    return [*map(prompts.request_copy, (*opening, *history))]
