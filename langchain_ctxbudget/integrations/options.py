"""What the adapters share: a pipeline from settings, and what a state gets of a prompt."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ValidationError

from langchain_ctxbudget.errors import InvalidSettingsError, require_names
from langchain_ctxbudget.pipeline import ContextPipeline, Session
from langchain_ctxbudget.settings import ContextSettings

PIPELINE_ARGUMENTS = frozenset(signature(ContextPipeline).parameters) - {"settings"}
"""The names of what a pipeline is made with besides its settings."""
ReportInState: TypeAlias = Literal["none", "numbers", "texts"]
"""The parts of a report that a graph or an agent gives back: none, only numbers, or also the texts
that it quotes."""


def pipeline_of(
    given: ContextPipeline | ContextSettings | Mapping[str, Any] | None,
) -> ContextPipeline:
    """Returns the given pipeline, or makes one of settings.

    A pipeline that is made here has no model, and learns only if the settings say so.
    """
    if isinstance(given, ContextPipeline):
        return given
    settings = given.chosen if isinstance(given, ContextSettings) else given
    if settings is None:
        settings = {}
    if not isinstance(settings, Mapping):
        raise InvalidSettingsError(
            'pipeline must be a ContextPipeline, or settings such as {"max_context_tokens": 8_000}'
            f", not {type(given).__name__}"
        )
    return ContextPipeline({"learn": False, **settings})


def require_pipeline(pipeline: object, why: str) -> None:
    """Refuses anything but a pipeline."""
    if not isinstance(pipeline, ContextPipeline):
        raise InvalidSettingsError(
            f"pipeline must be a ContextPipeline, not {type(pipeline).__name__}: {why}"
        )


@contextmanager
def refusing_unknown(fields: Mapping[str, Any], kind: type[BaseModel]) -> Iterator[None]:
    """Refuses fields that a class does not have, and makes pydantic's errors errors of ours."""
    require_names(fields, _field_names(kind), kind.__name__)
    try:
        yield
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            place = ".".join(map(str, problem["loc"]))
            problems.append(f"{place}={problem['input']!r}: {problem['msg']}")
        raise InvalidSettingsError(f"{kind.__name__} cannot have {'; '.join(problems)}") from error


def _field_names(kind: type[BaseModel]) -> list[str]:
    """Returns the names of a class's fields, and the other names by which they are accepted."""
    names = list(kind.model_fields)
    for field in kind.model_fields.values():
        alias = field.validation_alias
        aliases = getattr(alias, "choices", [alias])
        names += [name for name in aliases if isinstance(name, str)]
    return names


def require_report(report: ReportInState) -> ReportInState:
    """Refuses anything but the three kinds of report."""
    if report not in get_args(ReportInState):
        raise InvalidSettingsError(f"report must be 'none', 'numbers' or 'texts', not {report!r}")
    return report


def state_update(session: Session, report: ReportInState, key: str) -> dict[str, Any]:
    """Returns the update of a state after a prompt: the turn's background, and a wanted report."""
    update: dict[str, Any] = {}
    if report != "none" and session.context is not None:
        update[key] = session.context.report.to_dict(texts=report == "texts")
    if session.plan.background is not None:
        update["ctxbudget_turn"] = session.plan.background.to_dict()
    return update


def newest(_old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    """Reduces a channel that several branches write at once to the last value."""
    return new
