"""`BudgetedMemory`: a conversation of a pipeline as the memory of a LangChain chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, get_buffer_string
from pydantic import ConfigDict, Field, PrivateAttr, ValidationError

from langchain_ctxbudget.errors import InputError, InvalidSettingsError, UnsupportedContentError
from langchain_ctxbudget.flow import Flow, twins
from langchain_ctxbudget.integrations.chat_history import window_of
from langchain_ctxbudget.integrations.options import invalid_fields, require_pipeline
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.stores import Scope

try:
    from langchain_classic.base_memory import BaseMemory
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError("The memory needs langchain-classic: pip install 'langchain-ctxbudget[classic]'") from error

_NO_INPUT = "stop"
"""An input of chains that is for the model's call, not for its prompt."""
_USUAL_OUTPUT = "output"
"""The answer among several outputs, for instance of an agent."""


class BudgetedMemory(BaseMemory):
    """A conversation that is kept whole and that a chain reads within a number of tokens.

    It takes the place of `ConversationBufferMemory`, `ConversationSummaryBufferMemory` and the like. LangChain has
    deprecated `BaseMemory`: for new code, use `ContextBudgetMiddleware`, `build_context_graph` or `ContextPipeline`.

    A chain reads the window of the conversation, to be put between the prompt's own system message and the input; leave
    room for the rest of the prompt. Or, with `whole_prompt`, it reads everything there is to send, the input included;
    then the chain's prompt is `ChatPromptTemplate([MessagesPlaceholder("history")])` alone. One object is for one
    conversation; all share one pipeline.

    Raises:
        InvalidSettingsError: `pipeline` is something else, or a field has a value or a name that is not known.
        MissingScopeError: no user or no conversation.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> from langchain_ctxbudget.integrations.memory import BudgetedMemory
        >>> memory = BudgetedMemory(pipeline=ContextPipeline(), user_id="ada", conversation_id="c1", max_tokens=1_000)
        >>> memory.save_context({"input": "My bike is blue."}, {"output": "Nice!"})
        >>> [message.text for message in memory.load_memory_variables({})["history"]]
        ['My bike is blue.', 'Nice!']
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", frozen=True)

    pipeline: ContextPipeline
    """The pipeline that keeps the conversation; the same for all memories."""
    user_id: str
    conversation_id: str
    memory_key: str = Field(default="history", min_length=1)
    """The variable of the chain's prompt that is filled."""
    input_key: str | None = None
    """The chain's input that the user said; None: the only one there is besides `memory_key` and `stop`."""
    output_key: str | None = None
    """The chain's output that is the answer; None: the only one there is, or of several the one named `output`."""
    return_messages: bool = True
    """False gives the window as one string, in which only text is left of images and the like."""
    human_prefix: str = "Human"
    ai_prefix: str = "AI"
    max_tokens: int | None = Field(default=None, strict=True, ge=1)
    """The most tokens of the window or the whole prompt; None: `max_context_tokens` of the pipeline's settings."""
    whole_prompt: bool = False
    """True gives the whole prompt for the input, which must be there when variables are loaded."""
    _last_report: ContextReport | None = PrivateAttr(default=None)

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401 - the fields above; pydantic would hide our errors
        require_pipeline(fields.get("pipeline"), "make one and give it to all memories")
        Scope(fields.get("user_id", ""), fields.get("conversation_id", ""))
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise invalid_fields("BudgetedMemory", error) from error
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
        """The report of the last whole prompt that was assembled through this object."""
        return self._last_report

    def _load_memory_variables(self, inputs: dict[str, Any]) -> Flow[dict[str, Any]]:
        """Returns the messages or the string for the chain's prompt, under `memory_key`.

        Args:
            inputs: of the chain; only a whole prompt looks at them.

        Raises:
            BudgetTooSmallError: what must be sent does not fit.
            EmptyMessageError: a whole prompt for an input without content.
            InputError: a whole prompt, and it is not clear which of the inputs it is for.
            SystemPromptTooLargeError: the system prompt takes more than its share of the model's window.
            UnsupportedContentError: a whole prompt for an input that is neither a string nor messages.
        """
        if not self.whole_prompt:
            return {self.memory_key: (yield from self._window())}
        settings = None if self.max_tokens is None else {"max_context_tokens": self.max_tokens}
        turn = _messages(self._input(inputs), HumanMessage)
        context = yield from self.pipeline.engine.assemble(self._scope, turn, Request(settings=settings))
        self._last_report = context.report
        return {self.memory_key: context.messages}

    load_memory_variables, aload_memory_variables = twins(_load_memory_variables)

    def _save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Flow[None]:
        """Appends the input and the output of a turn to the conversation, in one write.

        Raises:
            InputError: it is not clear which of the inputs or outputs was said.
            MessageConflictError: the id of a message is known with other content; nothing was written.
            UnsupportedContentError: what was said is neither a string nor messages.
        """
        guesses = [_USUAL_OUTPUT] if _USUAL_OUTPUT in outputs else list(outputs)
        answer = _chosen(outputs, self.output_key, guesses, "output")
        said = [*_messages(self._input(inputs), HumanMessage), *_messages(answer, AIMessage)]
        yield from self.pipeline.engine.workspace.add(said, self._scope)

    save_context, asave_context = twins(_save_context)

    def _clear(self) -> Flow[None]:
        """Removes the conversation and everything that was derived from it, and nothing else."""
        return self.pipeline.engine.workspace.clear(self._scope)

    clear, aclear = twins(_clear)

    @property
    def _scope(self) -> Scope:
        return Scope(self.user_id, self.conversation_id)

    def _window(self) -> Flow[list[BaseMessage] | str]:
        limit = room = self.pipeline.settings.max_context_tokens if self.max_tokens is None else self.max_tokens
        while True:
            messages = yield from window_of(self.pipeline.engine, self._scope, room)
            if self.return_messages:
                return messages
            text = get_buffer_string(messages, human_prefix=self.human_prefix, ai_prefix=self.ai_prefix)
            if self.pipeline.token_counter.count_text(text) <= limit:
                return text
            # A long prefix, or calls as text, cost more than they do in messages. Few sizes are tried, and the same
            # ones with every turn: the conversation is compacted for each.
            room = room * 3 // 4

    def _input(self, inputs: Mapping[str, Any]) -> object:
        guesses = [key for key in inputs if key not in (self.memory_key, _NO_INPUT)]
        return _chosen(inputs, self.input_key, guesses, "input")


def _chosen(values: Mapping[str, Any], named: str | None, guesses: Sequence[str], kind: str) -> object:
    """Returns the value under the key that was named, or under the only one that it can be."""
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
    if isinstance(said, str):
        return [kind(said)]
    given = [said] if isinstance(said, BaseMessage) else said
    if not isinstance(given, list | tuple) or not all(isinstance(message, BaseMessage) for message in given):
        raise UnsupportedContentError(
            f"What was said must be a string, a message or a list of messages, not {type(said).__name__}: "
            f"put it into a {kind.__name__}"
        )
    return list(given)
