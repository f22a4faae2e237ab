"""`BudgetedMemory`: a conversation of a pipeline as the memory of a LangChain chain."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage
from pydantic import ConfigDict, Field

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.integrations.chat_history import BudgetedChatMessageHistory, window_of
from langchain_ctxbudget.integrations.options import refusing_unknown
from langchain_ctxbudget.pipeline import ContextPipeline, Prompter
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.stores import Scope

try:
    from langchain_classic.memory.chat_memory import BaseChatMemory
    from langchain_classic.memory.utils import get_prompt_input_key
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError(
        f"The memory needs langchain-classic: {install_command('classic')}"
    ) from error


class BudgetedMemory(BaseChatMemory):
    """A conversation that is kept whole and that a chain reads within a number of tokens.

    It takes the place of `ConversationBufferMemory`, `ConversationSummaryBufferMemory` and the
    like, which LangChain has deprecated. A chain reads the window of the conversation, as messages
    between the prompt's system message and the input. Or, with `whole_prompt`, everything there is
    to send, the input included; then the chain's prompt is
    `ChatPromptTemplate([MessagesPlaceholder("history")])` alone. `input_key` and `output_key` are
    LangChain's.

    Example:
        >>> from langchain_ctxbudget import BudgetedMemory, ContextPipeline
        >>> memory = BudgetedMemory(pipeline=ContextPipeline(), user_id="ada", conversation_id="c1")
        >>> memory.save_context({"input": "My bike is blue."}, {"output": "Noted!"})
        >>> [message.content for message in memory.load_memory_variables({})["history"]]
        ['My bike is blue.', 'Noted!']
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    pipeline: ContextPipeline
    user_id: str
    conversation_id: str
    memory_key: str = Field(default="history", min_length=1)
    """The variable of the chain's prompt that is filled."""
    max_tokens: int | None = Field(default=None, strict=True, ge=1)
    """The most tokens of the window or the whole prompt; None: `max_context_tokens` of the
    pipeline's settings."""
    persona_id: str | None = None
    device_id: str | None = None
    whole_prompt: bool = False
    """True gives the whole prompt for the input, which must be there when variables are loaded."""

    if not TYPE_CHECKING:  # checkers and editors know the fields

        def __init__(self, **fields: Any) -> None:
            pipeline: Any = fields.get("pipeline")
            with refusing_unknown(fields, type(self)):
                history = BudgetedChatMessageHistory(
                    fields.get("conversation_id", ""),
                    user_id=fields.get("user_id", ""),
                    pipeline=pipeline,
                )
                super().__init__(**{**fields, "chat_memory": history})

    @property
    def memory_variables(self) -> list[str]:
        """The variable of the chain's prompt that is filled."""
        return [self.memory_key]

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the messages for the chain's prompt, under `memory_key`.

        Args:
            inputs: of the chain; only a whole prompt looks at them.

        Raises:
            InputError: The input is neither text nor a list of content blocks.
        """
        return drive(self._variables(inputs))

    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the messages for the chain's prompt, under `memory_key`.

        Args:
            inputs: of the chain; only a whole prompt looks at them.

        Raises:
            InputError: The input is neither text nor a list of content blocks.
        """
        return await adrive(self._variables(inputs))

    def _variables(self, inputs: dict[str, Any]) -> Flow[dict[str, Any]]:
        scope = Scope(self.user_id, self.conversation_id)
        prompter = Prompter(self.pipeline.engine, scope)
        request = Request(persona_id=self.persona_id, device_id=self.device_id)
        if not self.whole_prompt:
            max_tokens = self.max_tokens or self.pipeline.settings.max_context_tokens
            window = yield from window_of(prompter, max_tokens, request)
            return {self.memory_key: window}

        content = inputs[self.input_key or get_prompt_input_key(inputs, self.memory_variables)]
        if not isinstance(content, str | list):
            raise InputError(
                f"The input must be text or a list of content blocks, not {type(content).__name__}"
            )
        if self.max_tokens is not None:
            request = replace(request, settings={"max_context_tokens": self.max_tokens})
        context = yield from prompter.assemble([HumanMessage(content)], request)
        return {self.memory_key: context.messages}
