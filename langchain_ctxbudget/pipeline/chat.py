"""`Chat`: one conversation of a pipeline, whose ids are named once."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import BaseMessage, MessageLikeRepresentation

from langchain_ctxbudget import history, stores, tokens
from langchain_ctxbudget.budget import Layer, Status
from langchain_ctxbudget.errors import checks_names
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.knowledge import StandingRule
from langchain_ctxbudget.messages import Preservation, Turn, is_one_message
from langchain_ctxbudget.pipeline.forecast import CostForecast
from langchain_ctxbudget.pipeline.prompter import Prompter
from langchain_ctxbudget.pipeline.rules import ConversationRules
from langchain_ctxbudget.pipeline.stored import ConversationStatus, StoredConversation
from langchain_ctxbudget.pipeline.tool_search import found_tools
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt import AssembledContext, Request
from langchain_ctxbudget.report import ContextReport, CoverageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tools import ToolSet

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.pipeline import ContextPipeline


@checks_names(ContextSettings.model_fields)
class Chat:
    """One conversation of a pipeline, whose ids are named once.

    Each method that reads or writes has an async form.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langchain_ctxbudget import ContextPipeline
        >>> chat = ContextPipeline().conversation("c1", user_id="ada")
        >>> context = chat.assemble("My bike is blue.")
        >>> ids = chat.add(context.turn, AIMessage("Noted!"))
        >>> [message.text for message in chat.messages()]
        ['My bike is blue.', 'Noted!']
        >>> chat
        Chat('c1', user_id='ada', messages=2)
    """

    def __init__(self, pipeline: "ContextPipeline", conversation_id: str, *, user_id: str) -> None:
        self.pipeline = pipeline
        self.conversation_id = conversation_id
        self.user_id = user_id
        self._scope = stores.Scope(user_id, conversation_id)

    # An agent's first run may bring the store along in which its conversations are, so these are
    # looked up for each call.

    @property
    def _workspace(self) -> Workspace:
        return self.pipeline.engine.where_kept().workspace

    @property
    def _stored(self) -> StoredConversation:
        return StoredConversation(self._workspace, self._scope)

    @property
    def _prompter(self) -> Prompter:
        return Prompter(self.pipeline.engine.where_kept(), self._scope)

    @property
    def _everywhere(self) -> StoredConversation:
        """The conversation in every store of the pipeline and of its runs."""
        return StoredConversation(self.pipeline.engine.workspace, self._scope)

    @property
    def _rules(self) -> ConversationRules:
        return ConversationRules(self._workspace, self._scope)

    def __repr__(self) -> str:
        """Names the conversation, and its messages where it is open in this process."""
        number: int | None = None
        for workspace in self.pipeline.engine.workspace.places_kept():
            if number is None:
                number = workspace.open_messages(self._scope)
        counted = "" if number is None else f", messages={number}"
        return f"Chat({self.conversation_id!r}, user_id={self.user_id!r}{counted})"

    def assemble(
        self,
        message: Turn,
        *,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> AssembledContext:
        """Makes the prompt for the current turn; see `ContextPipeline.assemble`.

        Args:
            message: the user's words, or the turn so far.
            tools: what will be bound to the model; counted as it is sent.
            response_format: a schema that the model must answer in; counted as it is sent.
            settings: overrides for this call.
            persona_id: the persona whose saved settings apply on top of the user's.
            device_id: where the user is: what is open there counts as mentioned.
        """
        request = Request(
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )
        return drive(self._prompter.assemble(message, request))

    async def aassemble(
        self,
        message: Turn,
        *,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> AssembledContext:
        """Makes the prompt for the current turn; the async form of `assemble`."""
        request = Request(
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )
        return await adrive(self._prompter.assemble(message, request))

    def forecast(
        self,
        message: Turn,
        *,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> CostForecast:
        """Tells what the prompt for a turn would cost; see `ContextPipeline.forecast`.

        Args:
            message: the user's words, or the turn so far.
            tools: what would be bound to the model.
            response_format: a schema that the model would have to answer in.
            settings: overrides for this call.
            persona_id: the persona whose saved settings apply on top of the user's.
            device_id: where the user is: what is open there counts as mentioned.
        """
        request = Request(
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )
        return drive(self._prompter.forecast_cost(message, request))

    async def aforecast(
        self,
        message: Turn,
        *,
        tools: Sequence[Any] = (),
        response_format: object = None,
        settings: ContextSettings | Mapping[str, Any] | None = None,
        persona_id: str | None = None,
        device_id: str | None = None,
    ) -> CostForecast:
        """Tells what the prompt for a turn would cost; the async form of `forecast`."""
        request = Request(
            tools=tools,
            response_format=response_format,
            settings=settings,
            persona_id=persona_id,
            device_id=device_id,
        )
        return await adrive(self._prompter.forecast_cost(message, request))

    def add(self, *messages: Turn) -> list[str]:
        """Appends messages, one by one or in lists, and returns their ids.

        A message may have any form that LangChain's chat models take: a string is the user's words,
        `("assistant", "Noted!")` and `{"role": "assistant", "content": "Noted!"}` have a role.
        Messages that the conversation knows are left alone, and changed ones are refused.
        """
        return drive(self._stored.add(_flat(messages)))

    async def aadd(self, *messages: Turn) -> list[str]:
        """Appends messages, and returns their ids; the async form of `add`."""
        return await adrive(self._stored.add(_flat(messages)))

    def sync(
        self,
        messages: Sequence[MessageLikeRepresentation],
        *,
        on_removal: history.OnRemoval = "archive",
    ) -> list[str]:
        """Makes the conversation equal to an agent's state; see `ContextPipeline.sync`.

        Args:
            messages: the state's messages.
            on_removal: whether messages that the state has no more are archived or forgotten.
        """
        return drive(self._stored.sync(messages, on_removal))

    async def a_sync(
        self,
        messages: Sequence[MessageLikeRepresentation],
        *,
        on_removal: history.OnRemoval = "archive",
    ) -> list[str]:
        """Makes the conversation equal to an agent's state; the async form of `sync`."""
        return await adrive(self._stored.sync(messages, on_removal))

    def messages(self) -> list[BaseMessage]:
        """Returns every message as it was given."""
        return drive(self._stored.messages())

    async def amessages(self) -> list[BaseMessage]:
        """Returns every message as it was given; the async form of `messages`."""
        return await adrive(self._stored.messages())

    def page(self, *, limit: int = 50, before: str | None = None) -> history.MessagePage:
        """Returns the newest messages, or the newest ones before a page.

        Args:
            limit: the most messages to return.
            before: the `before` of the page after this one.
        """
        return drive(self._stored.page(limit, before))

    async def apage(self, *, limit: int = 50, before: str | None = None) -> history.MessagePage:
        """Returns the newest messages before a page; the async form of `page`."""
        return await adrive(self._stored.page(limit, before))

    def edit(self, message_id: str, message: MessageLikeRepresentation) -> None:
        """Puts a message in the place of another; see `ContextPipeline.edit_message`."""
        drive(self._stored.edit(message_id, message))

    async def aedit(self, message_id: str, message: MessageLikeRepresentation) -> None:
        """Puts a message in the place of another; the async form of `edit`."""
        await adrive(self._stored.edit(message_id, message))

    def remove(
        self, message_ids: str | Sequence[str], *, on_removal: history.OnRemoval = "archive"
    ) -> None:
        """Takes messages out of the conversation; see `ContextPipeline.remove_messages`."""
        drive(self._stored.remove(message_ids, on_removal))

    async def aremove(
        self, message_ids: str | Sequence[str], *, on_removal: history.OnRemoval = "archive"
    ) -> None:
        """Takes messages out of the conversation; the async form of `remove`."""
        await adrive(self._stored.remove(message_ids, on_removal))

    def pin(
        self, message_ids: str | Sequence[str], *, preservation: Preservation | None = "keep"
    ) -> None:
        """Sets how compaction treats messages; see `ContextPipeline.pin`."""
        drive(self._stored.pin(message_ids, preservation))

    async def apin(
        self, message_ids: str | Sequence[str], *, preservation: Preservation | None = "keep"
    ) -> None:
        """Sets how compaction treats messages; the async form of `pin`."""
        await adrive(self._stored.pin(message_ids, preservation))

    def fork(self, new_conversation_id: str, *, until: str | None = None) -> "Chat":
        """Begins a new conversation with the messages of this one, and returns it.

        Args:
            new_conversation_id: the id of the new conversation.
            until: the id of the last message to take over; default: all are.
        """
        drive(self._stored.fork(new_conversation_id, until))
        return Chat(self.pipeline, new_conversation_id, user_id=self.user_id)

    async def afork(self, new_conversation_id: str, *, until: str | None = None) -> "Chat":
        """Begins a new conversation with the messages of this one; the async form of `fork`."""
        await adrive(self._stored.fork(new_conversation_id, until))
        return Chat(self.pipeline, new_conversation_id, user_id=self.user_id)

    def coverage(self) -> dict[CoverageState, list[str]]:
        """Returns the ids of the messages by their state in the last prompt.

        See `ContextPipeline.coverage`.
        """
        return drive(self._stored.coverage())

    async def acoverage(self) -> dict[CoverageState, list[str]]:
        """Returns the ids of the messages by their state; the async form of `coverage`."""
        return await adrive(self._stored.coverage())

    def compactions(self) -> list[history.ConversationCompaction]:
        """Returns the summaries of all spans that are no longer shown whole."""
        return drive(self._stored.compactions())

    async def acompactions(self) -> list[history.ConversationCompaction]:
        """Returns the summaries of spans not shown whole; the async form of `compactions`."""
        return await adrive(self._stored.compactions())

    def find_tools(self, query: str, *, tools: Sequence[Any]) -> str:
        """Looks for tools that fit, and returns what a model is told of them.

        It is the answer of the tool `find_tools` that prompts with the setting `tool_tokens` offer.

        Args:
            query: what is to be done.
            tools: all tools, as they are given to `assemble`.
        """
        return drive(self._found_tools(query, tools))

    async def afind_tools(self, query: str, *, tools: Sequence[Any]) -> str:
        """Looks for tools that fit; the async form of `find_tools`."""
        return await adrive(self._found_tools(query, tools))

    def _found_tools(self, query: str, tools: Sequence[Any]) -> Flow[str]:
        yield from self.pipeline.engine.ready()
        tokens.require_schemas(tools, None)
        counter = self.pipeline.engine.target.counter
        embeddings = self._workspace.embeddings
        return (
            yield from found_tools(ToolSet.of(tools), query, embeddings, counter, self._bound_tools)
        )

    @property
    def _bound_tools(self) -> frozenset[str]:
        """The names of the tools that the last prompt of this process has bound."""
        report = self.last_report()
        if report is None:
            return frozenset()
        items = report.layer(Layer.TOOLS).items
        return frozenset(item.id for item in items if item.status is Status.INCLUDED)

    def rules(self) -> list[StandingRule]:
        """Returns the standing rules in force, those of the application first.

        Prompts keep them in the user's own words until the user lifts or replaces them.
        """
        return drive(self._rules.in_force())

    async def arules(self) -> list[StandingRule]:
        """Returns the standing rules in force; the async form of `rules`."""
        return await adrive(self._rules.in_force())

    def add_rule(self, text: str, *, everywhere: bool = False) -> StandingRule:
        """Adds a standing rule by hand, and returns it.

        Args:
            text: the rule; prompts show these words.
            everywhere: True if it holds in all conversations of the user.

        Raises:
            InputError: the text is empty, or has more than 2,000 characters.
        """
        return drive(self._rules.add(text, everywhere=everywhere))

    async def aadd_rule(self, text: str, *, everywhere: bool = False) -> StandingRule:
        """Adds a standing rule by hand; the async form of `add_rule`."""
        return await adrive(self._rules.add(text, everywhere=everywhere))

    def lift_rule(self, rule_id: str) -> None:
        """Lifts a standing rule: from the next prompt on it no longer holds.

        Args:
            rule_id: the `id` of one of `rules()`.

        Raises:
            InputError: no such rule is in force, or the application gives it in the settings.
        """
        drive(self._rules.lift(rule_id))

    async def alift_rule(self, rule_id: str) -> None:
        """Lifts a standing rule; the async form of `lift_rule`."""
        await adrive(self._rules.lift(rule_id))

    def end_session(self) -> bool:
        """Says that the conversation pauses or ends.

        Returns:
            True if its new messages are learned from now.
        """
        return self._workspace.workers.learning.end_session(self._scope)

    async def aend_session(self) -> bool:
        """Says that the conversation pauses or ends; the async form of `end_session`."""
        return self._workspace.workers.learning.end_session(self._scope)

    def status(self) -> ConversationStatus:
        """Returns the background work on the conversation, and the outcome of its last prompt."""
        return drive(self._stored.status())

    async def astatus(self) -> ConversationStatus:
        """Returns the background work on the conversation; the async form of `status`."""
        return await adrive(self._stored.status())

    def clear(self) -> None:
        """Deletes the conversation and everything that was derived from it."""
        drive(self._everywhere.clear())

    async def aclear(self) -> None:
        """Deletes the conversation; the async form of `clear`."""
        await adrive(self._everywhere.clear())

    def last_report(self) -> ContextReport | None:
        """Returns the report of the last prompt in this process; None where there was none."""
        return self.pipeline.engine.recent.report_of(self._scope)


def _flat(
    messages: Sequence[Turn],
) -> list[MessageLikeRepresentation]:
    """Returns messages, some of which came in lists, as one list."""
    flat: list[MessageLikeRepresentation] = []
    for part in messages:
        if isinstance(part, list | tuple) and not is_one_message(part):
            flat.extend(cast("Sequence[MessageLikeRepresentation]", part))
        else:
            flat.append(cast("MessageLikeRepresentation", part))
    return flat
