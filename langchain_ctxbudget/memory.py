"""`BudgetedMemory`: a conversation of a pipeline as the memory of a LangChain chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, get_buffer_string
from pydantic import ConfigDict, Field, PrivateAttr, ValidationError

from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, UnsupportedContentError
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.history_window import window
from langchain_ctxbudget.opening import Request
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores.records import Scope

try:
    from langchain_classic.base_memory import BaseMemory
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError("The memory needs langchain-classic: pip install 'langchain-ctxbudget[classic]'") from error

_NO_INPUT = "stop"
"""An input of chains that is for the model's call, not for its prompt."""
_USUAL_OUTPUT = "output"
"""The answer among several outputs, of an agent for instance."""


class BudgetedMemory(BaseMemory):
    """A conversation that is kept whole and that a chain reads within a number of tokens.

    It takes the place of `ConversationBufferMemory`, `ConversationSummaryBufferMemory` and the like in chains that
    have one. LangChain has deprecated `BaseMemory`, which is subclassed here on purpose, so that such chains can stay
    as they are. For new code, use `ContextBudgetMiddleware` with `create_agent`, `build_context_graph` in LangGraph,
    or `ContextPipeline` itself.

    What a chain reads is one of two things. The window of the conversation, to be put between the prompt's own system
    message and the input: what the rest of the prompt costs comes on top, so leave room for it. Or, with
    `whole_prompt`, all there is to send, with what is retrieved for the input and with the input itself; then the
    chain's prompt is `ChatPromptTemplate([MessagesPlaceholder("history")])` and nothing else, and the model gets what
    it gets through every other way into the pipeline. Of tools that a model is bound to a memory knows nothing.

    Chains save strings. A message, or a list of them, is kept as it is, be it input or output: the turn of an agent
    with its calls and results, for instance. One object is for one conversation; all share one pipeline. It cannot be
    changed, and reads or writes nothing when it is made.

    Raises:
        InvalidSettingsError: `pipeline` is something else, or a field has a value or a name that is not known.
        MissingScopeError: no user or no conversation.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> from langchain_ctxbudget.memory import BudgetedMemory
        >>> memory = BudgetedMemory(pipeline=ContextPipeline(), user_id="ada", conversation_id="c1", max_tokens=1_000)
        >>> memory.save_context({"input": "My bike is blue."}, {"output": "Nice!"})
        >>> [message.text for message in memory.load_memory_variables({})["history"]]
        ['My bike is blue.', 'Nice!']
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", frozen=True)

    pipeline: ContextPipeline
    """What keeps the conversation; the same for all memories."""
    user_id: str
    """Whose conversation it is."""
    conversation_id: str
    """Which one."""
    memory_key: str = Field(default="history", min_length=1)
    """The variable of the chain's prompt that is filled."""
    input_key: str | None = None
    """Which of the chain's inputs the user said; None: the only one there is besides `memory_key` and `stop`."""
    output_key: str | None = None
    """Which of the chain's outputs is the answer; None: the only one there is, or of several the one named `output`."""
    return_messages: bool = True
    """False gives the window as one string, in which only text is left of images and the like."""
    human_prefix: str = "Human"
    """What stands in front of the user's messages in a string."""
    ai_prefix: str = "AI"
    """What stands in front of the model's messages in a string."""
    max_tokens: int | None = Field(default=None, strict=True, ge=1)
    """What the window, or the whole prompt, costs at most; None: `max_context_tokens` of the pipeline's settings."""
    whole_prompt: bool = False
    """True gives the whole prompt for the input, which must be there when variables are loaded."""
    _last_report: ContextReport | None = PrivateAttr(default=None)

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - the fields above; pydantic would hide our errors
        pipeline = fields.get("pipeline")
        if not isinstance(pipeline, ContextPipeline):
            raise InvalidSettingsError(
                f"pipeline must be a ContextPipeline, not {type(pipeline).__name__}: make one and give it to all "
                f"memories"
            )
        Scope(fields.get("user_id", ""), fields.get("conversation_id", ""))
        try:
            super().__init__(**fields)
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, each['loc']))}={each['input']!r}: {each['msg']}" for each in error.errors())
            raise InvalidSettingsError(f"BudgetedMemory cannot have {'; '.join(wrong)}") from error
        if self.whole_prompt and not self.return_messages:
            raise InvalidSettingsError("whole_prompt is a list of messages: leave return_messages at True")
        if self.input_key == self.memory_key:
            raise InvalidSettingsError(f"input_key and memory_key are both {self.memory_key!r}: name two variables")

    @property
    def memory_variables(self) -> list[str]:
        """The variable of the chain's prompt that is filled."""
        return [self.memory_key]

    @property
    def last_report(self) -> ContextReport | None:
        """The account of the last whole prompt that was assembled through this object."""
        return self._last_report

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """What the chain's prompt is to hold, under `memory_key`.

        Args:
            inputs: of the chain; only a whole prompt looks at them.

        Raises:
            BudgetTooSmallError: what must be sent does not fit.
            EmptyMessageError: a whole prompt for an input without content.
            InputError: a whole prompt, and it is not clear which of the inputs it is for.
            SystemPromptTooLargeError: the system prompt takes more than its share of the model's window.
            UnsupportedContentError: a whole prompt for an input that is neither a string nor messages.
        """
        return drive(self._load(inputs))

    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """What the chain's prompt is to hold; see `load_memory_variables`."""
        return await adrive(self._load(inputs))

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Append what was said in a turn to the conversation, in one write; what goes wrong with it is raised.

        Args:
            inputs: of the chain.
            outputs: of the chain.

        Raises:
            InputError: it is not clear which of the inputs or outputs was said.
            MessageConflictError: the id of a message is known with other content; nothing was written.
            UnsupportedContentError: what was said is neither a string nor messages.
        """
        said = self._said(inputs, outputs)
        self.pipeline.add_messages(said, user_id=self.user_id, conversation_id=self.conversation_id)

    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Append what was said in a turn to the conversation; see `save_context`."""
        said = self._said(inputs, outputs)
        await self.pipeline.aadd_messages(said, user_id=self.user_id, conversation_id=self.conversation_id)

    def clear(self) -> None:
        """Remove the conversation and what was derived from it, and nothing else."""
        self.pipeline.clear(user_id=self.user_id, conversation_id=self.conversation_id)

    async def aclear(self) -> None:
        """Remove the conversation and what was derived from it; see `clear`."""
        await self.pipeline.aclear(user_id=self.user_id, conversation_id=self.conversation_id)

    def _load(self, inputs: Mapping[str, Any]) -> Flow[dict[str, Any]]:
        scope = Scope(self.user_id, self.conversation_id)
        loaded = yield from self._prompt(scope, inputs) if self.whole_prompt else self._window(scope)
        return {self.memory_key: loaded}

    def _prompt(self, scope: Scope, inputs: Mapping[str, Any]) -> Flow[list[BaseMessage]]:
        """Everything there is to send for an input."""
        turn = _messages(self._input(inputs), HumanMessage)
        settings = None if self.max_tokens is None else {"max_context_tokens": self.max_tokens}
        context = yield from self.pipeline.engine.assemble(scope, turn, Request(settings=settings))
        self._last_report = context.report
        return context.messages

    def _window(self, scope: Scope) -> Flow[list[BaseMessage] | str]:
        """The conversation alone, as messages or as a string."""
        engine = self.pipeline.engine
        limit = room = self.pipeline.settings.max_context_tokens if self.max_tokens is None else self.max_tokens
        while True:
            messages = yield from window(engine, scope, room)
            if self.return_messages:
                return messages
            text = get_buffer_string(messages, human_prefix=self.human_prefix, ai_prefix=self.ai_prefix)
            if self.pipeline.token_counter.count_text(text) <= limit:
                return text
            # A long prefix, or calls as text, cost more than they do in messages. Few sizes are tried, and the same
            # ones with every turn: the conversation is compacted for each.
            room = room * 3 // 4

    def _said(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[BaseMessage]:
        """The messages of a turn."""
        return [*_messages(self._input(inputs), HumanMessage), *_messages(self._output(outputs), AIMessage)]

    def _input(self, inputs: Mapping[str, Any]) -> object:
        guesses = [key for key in inputs if key not in (self.memory_key, _NO_INPUT)]
        return _chosen(inputs, self.input_key, guesses, "input")

    def _output(self, outputs: Mapping[str, Any]) -> object:
        guesses = [_USUAL_OUTPUT] if _USUAL_OUTPUT in outputs else list(outputs)
        return _chosen(outputs, self.output_key, guesses, "output")


def _chosen(values: Mapping[str, Any], named: str | None, guesses: Sequence[str], kind: str) -> object:
    """The value under the key that was named, or under the only one that it can be.

    Raises:
        InputError: it is not there, or there are several.
    """
    if named is not None:
        if named not in values:
            raise InputError(f"{kind}_key is {named!r}, and the chain's {kind}s are {list(values)}: name one of them")
        return values[named]
    if len(guesses) != 1:
        raise InputError(
            f"The chain must have one {kind} to remember, not {len(guesses)} {list(guesses)}: "
            f"name the one that was said with {kind}_key"
        )
    return values[guesses[0]]


def _messages(said: object, kind: type[HumanMessage | AIMessage]) -> list[BaseMessage]:
    """What was said as messages: a string as one of a kind, and messages as they are.

    Raises:
        UnsupportedContentError: it is neither.
    """
    if isinstance(said, str):
        return [kind(said)]
    given = [said] if isinstance(said, BaseMessage) else said
    if not isinstance(given, list | tuple) or not all(isinstance(message, BaseMessage) for message in given):
        raise UnsupportedContentError(
            f"What was said must be a string, a message or a list of messages, not {type(said).__name__}: "
            f"put it into a {kind.__name__}"
        )
    return list(given)
