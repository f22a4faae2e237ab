"""Shared parts of the adapters: a pipeline from options, a run's request, what state and stream get of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypeAlias, get_args

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore
from pydantic import ValidationError
from typing_extensions import TypedDict

from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.pipeline import ContextPipeline, Prices, Run, Session, is_task
from langchain_ctxbudget.prompt import LAST_STEP, Request
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import TokenCounter

ReportInState: TypeAlias = Literal["none", "numbers", "texts"]
"""The parts of a report that a graph or an agent gives back: none, only numbers, or also the texts that it quotes."""


class PipelineOptions(TypedDict, total=False):
    """The arguments of `ContextPipeline` beside its settings."""

    system_prompt: str
    model: BaseChatModel | str | None
    store: BaseStore | None
    embeddings: Embeddings | None
    token_counter: TokenCounter | None
    summary_model: BaseChatModel | None
    reranker: BaseDocumentCompressor | None
    writer_id: str | None
    clock: Callable[[], datetime] | None
    prices: Prices | None


def pipeline_of(
    given: ContextPipeline | ContextSettings | Mapping[str, Any] | None, options: PipelineOptions
) -> ContextPipeline:
    """Returns the given pipeline, or makes one of settings and options."""
    if isinstance(given, ContextPipeline):
        if options:
            raise InvalidSettingsError(
                f"Options of a pipeline ({', '.join(sorted(options))}) come with a pipeline that is made already: give "
                f"them to ContextPipeline(...)"
            )
        return given
    known = PipelineOptions.__annotations__
    if unknown := sorted(set(options) - set(known)):
        raise InvalidSettingsError(
            f"Unknown options {', '.join(unknown)}; known are {', '.join(known)}, and settings as the first argument"
        )
    return ContextPipeline(given, **options)


def require_pipeline(pipeline: object, why: str) -> None:
    """Refuses anything but a pipeline."""
    if not isinstance(pipeline, ContextPipeline):
        raise InvalidSettingsError(f"pipeline must be a ContextPipeline, not {type(pipeline).__name__}: {why}")


def invalid_fields(name: str, error: ValidationError) -> InvalidSettingsError:
    """Returns pydantic's error about the fields of a class as one of ours."""
    wrong = (f"{'.'.join(map(str, each['loc']))}={each['input']!r}: {each['msg']}" for each in error.errors())
    return InvalidSettingsError(f"{name} cannot have {'; '.join(wrong)}")


def require_report(wanted: ReportInState) -> ReportInState:
    """Refuses anything but the three kinds of report."""
    if wanted not in get_args(ReportInState):
        raise InvalidSettingsError(f"report must be 'none', 'numbers' or 'texts', not {wanted!r}")
    return wanted


def request_of(
    run: Run, config: RunnableConfig, state: Mapping[str, Any], failures: Sequence[str], asked: Request
) -> Request:
    """Returns what a run asks for beside what is the same for every run."""
    return replace(
        asked,
        settings=run.settings,
        persona_id=run.persona_id,
        device_id=run.device_id,
        block=state.get("ctxbudget_turn"),
        task=is_task(config),
        failures=failures,
    )


def in_state(session: Session, wanted: ReportInState, key: str) -> dict[str, Any]:
    """Returns the update of a state after a prompt: the turn's context block, and the report where it is wanted."""
    update: dict[str, Any] = {}
    if wanted != "none" and session.context is not None:
        update[key] = session.context.report.to_dict(texts=wanted == "texts")
    if session.plan.block is not None:
        update["ctxbudget_turn"] = session.plan.block.to_dict()
    return update


def newest(_old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    """Reduces a channel that several branches of a step write to the last value."""
    return new


def progress(step: str, session: Session) -> dict[str, Any]:
    """Returns the stream event of a step that has just run: numbers, and nothing that anybody has said."""
    done: dict[str, Any] = {"step": step, "milliseconds": round(session.timings_ms[step], 3)}
    if step == LAST_STEP and session.context is not None:
        report = session.context.report
        done |= {"tokens": report.total_tokens, "budget_tokens": report.budget_tokens}
        done["layers"] = {part.layer: part.used_tokens for part in report.layers}
    return {"ctxbudget": done}
