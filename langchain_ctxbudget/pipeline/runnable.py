"""Makes a pipeline a step of a LangChain chain."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue, StringPromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langchain_ctxbudget.errors import InputError, UnsupportedContentError
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.messages.messages import checked, current_turn, flattened, split_instructions
from langchain_ctxbudget.messages.turns import split_turn
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.runs import current_runtime, is_task, run_of
from langchain_ctxbudget.pipeline.tracing import describe_run
from langchain_ctxbudget.prompt.request import Request


def context_runnable(
    engine: Engine, default_user: str | None, *, tools: Sequence[Any], response_format: object, runtime_store: bool
) -> Runnable[Any, list[BaseMessage]]:
    """Returns a runnable from the turn to answer to the messages to send; see `ContextPipeline.as_runnable`."""

    def flow(given: object, config: RunnableConfig) -> Flow[list[BaseMessage]]:
        instructions, asked = ([], _state(given)) if isinstance(given, Mapping) else _turn(given)
        said = asked if isinstance(given, Mapping) else current_turn(asked)
        run = run_of(config, default_user, current_runtime(), messages=said)
        used = engine.over(run.store if runtime_store else None)
        request = Request(
            tools=tools,
            response_format=response_format,
            settings=run.settings,
            persona_id=run.persona_id,
            device_id=run.device_id,
            instructions=instructions,
            task=is_task(config),
        )
        if isinstance(given, Mapping):
            request = replace(request, block=given.get("ctxbudget_turn"), failures=flattened(said))
            context = (yield from used.answer(run.scope, *split_turn(said), request)).context
        else:
            context = yield from used.assemble(run.scope, said, request)
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
    if "messages" not in given:
        raise InputError(
            f"A mapping must have the messages of an agent's state under 'messages'; it has {sorted(given)}. To answer "
            f"one of its values, put a step in front that picks it: itemgetter('input') | ..."
        )
    return _converted(given["messages"])


def _turn(given: Any) -> tuple[list[str], Any]:  # noqa: ANN401 - whatever a chain hands over
    """Returns the texts of the system messages in front of a turn, and the turn."""
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
    try:
        return convert_to_messages(given)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise UnsupportedContentError(f"messages must be what a chat model takes: {error}") from error
