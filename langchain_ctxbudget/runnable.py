"""A pipeline as a step of a LangChain chain."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue, StringPromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langchain_ctxbudget.core.messages import checked, flattened, split_instructions
from langchain_ctxbudget.core.turns import split_turn
from langchain_ctxbudget.engine import Engine
from langchain_ctxbudget.errors import InputError, UnsupportedContentError
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.opening import Request
from langchain_ctxbudget.runs import current_runtime, run_of
from langchain_ctxbudget.tracing import describe_run


def context_runnable(
    engine: Engine, default_user: str | None, *, tools: Sequence[Any], response_format: object, runtime_store: bool
) -> Runnable[Any, list[BaseMessage]]:
    """A runnable from what is to be answered to the messages that are sent; see `ContextPipeline.as_runnable`.

    Args:
        engine: of the pipeline.
        default_user: the user where a run names none.
        tools: what the model is bound to.
        response_format: a schema that the model must answer in.
        runtime_store: whether the store of the run outweighs the engine's.
    """

    def flow(given: object, config: RunnableConfig) -> Flow[list[BaseMessage]]:
        run = run_of(config, default_user, current_runtime())
        used = engine.over(run.store if runtime_store else None)
        request = Request(
            tools=tools, response_format=response_format, settings=run.settings, persona_id=run.persona_id
        )
        if isinstance(given, Mapping):
            said = _state(given)
            request = replace(request, block=given.get("ctxbudget_turn"), failures=flattened(said))
            draft = yield from used.answer(run.scope, *split_turn(said), request)
            context = draft.context
        else:
            instructions, turn = _turn(given)
            context = yield from used.assemble(run.scope, turn, replace(request, instructions=instructions))
        assert context is not None  # noqa: S101 - the last step sets it
        describe_run(context.report)
        return context.messages

    def invoke(given: object, config: RunnableConfig) -> list[BaseMessage]:
        return drive(flow(given, config))

    async def ainvoke(given: object, config: RunnableConfig) -> list[BaseMessage]:
        return await adrive(flow(given, config))

    asynchronous: Callable[..., Coroutine[Any, Any, list[BaseMessage]]] = ainvoke
    step: Runnable[Any, list[BaseMessage]] = RunnableLambda(invoke, asynchronous, name="context_budget")
    return step.with_config(run_name="context_budget", tags=["ctxbudget"])


def _state(given: Mapping[str, Any]) -> list[BaseMessage]:
    """The messages of an agent's state.

    Raises:
        InputError: it has none.
    """
    if "messages" not in given:
        raise InputError(
            f"A mapping must have the messages of an agent's state under 'messages'; it has {sorted(given)}. To answer "
            f"one of its values, put a step in front that picks it: itemgetter('input') | ..."
        )
    return _converted(given["messages"])


def _turn(given: Any) -> tuple[list[str], Any]:  # noqa: ANN401 - whatever a chain hands over
    """What is to be answered, and the system messages in front of it, whose texts join the system prompt.

    Raises:
        InputError: it has a history, which is the pipeline's to add.
    """
    if isinstance(given, PromptValue):
        given = given.text if isinstance(given, StringPromptValue) else given.to_messages()
    if not isinstance(given, list | tuple):
        return [], given
    instructions, said = split_instructions(checked(_converted(given), "messages"))
    history, turn = split_turn(said)
    if history:
        raise InputError(
            f"{len(history)} messages stand before the current turn, and the pipeline adds the stored conversation "
            f'itself. Leave them out, or give all messages of an agent as {{"messages": [...]}}: then the stored '
            f"conversation is made equal to them"
        )
    return instructions, turn


def _converted(given: Any) -> list[BaseMessage]:  # noqa: ANN401
    """Messages in any form that a chat model takes.

    Raises:
        UnsupportedContentError: it takes none of them.
    """
    try:
        return convert_to_messages(given)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise UnsupportedContentError(f"messages must be what a chat model takes: {error}") from error
