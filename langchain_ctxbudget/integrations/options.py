"""Shared parts of the adapters.

A pipeline from settings, a run's request, what a state gets of a prompt.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ValidationError

from langchain_ctxbudget.errors import InvalidSettingsError, require_names
from langchain_ctxbudget.pipeline import ContextPipeline, Session
from langchain_ctxbudget.settings import ContextSettings

ReportInState: TypeAlias = Literal["none", "numbers", "texts"]
"""The parts of a report that a graph or an agent gives back: none, only numbers, or also the texts
that it quotes."""


def pipeline_of(
    given: ContextPipeline | ContextSettings | Mapping[str, Any] | None,
) -> ContextPipeline:
    """Returns the given pipeline, or makes one of settings, which learns only if they say so.

    It has no model.
    """
    if isinstance(given, ContextPipeline):
        return given
    own = given.chosen if isinstance(given, ContextSettings) else given
    return ContextPipeline(
        {"learn": False, **(own or {})} if own is None or isinstance(own, Mapping) else own
    )


def require_pipeline(pipeline: object, why: str) -> None:
    """Refuses anything but a pipeline."""
    if not isinstance(pipeline, ContextPipeline):
        raise InvalidSettingsError(
            f"pipeline must be a ContextPipeline, not {type(pipeline).__name__}: {why}"
        )


@contextmanager
def refusing_unknown(fields: Mapping[str, Any], kind: type[BaseModel]) -> Iterator[None]:
    """Refuses fields that a class does not have, and makes pydantic's error about others one of ours."""
    aliases = (field.validation_alias for field in kind.model_fields.values())
    names = [
        name
        for alias in aliases
        for name in getattr(alias, "choices", [alias])
        if isinstance(name, str)
    ]
    require_names(fields, [*kind.model_fields, *names], kind.__name__)
    try:
        yield
    except ValidationError as error:
        wrong = (
            f"{'.'.join(map(str, each['loc']))}={each['input']!r}: {each['msg']}"
            for each in error.errors()
        )
        raise InvalidSettingsError(f"{kind.__name__} cannot have {'; '.join(wrong)}") from error


def require_report(wanted: ReportInState) -> ReportInState:
    """Refuses anything but the three kinds of report."""
    if wanted not in get_args(ReportInState):
        raise InvalidSettingsError(f"report must be 'none', 'numbers' or 'texts', not {wanted!r}")
    return wanted


def state_update(session: Session, wanted: ReportInState, key: str) -> dict[str, Any]:
    """Returns the update of a state after a prompt.

    The turn's background, and the report where it is wanted.
    """
    update: dict[str, Any] = {}
    if wanted != "none" and session.context is not None:
        update[key] = session.context.report.to_dict(texts=wanted == "texts")
    if session.plan.background is not None:
        update["ctxbudget_turn"] = session.plan.background.to_dict()
    return update


def newest(_old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    """Reduces a channel that several branches of a step write to the last value."""
    return new
