"""Every error that this package raises on purpose: `CtxBudgetError` and its kinds."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, iscoroutinefunction, isfunction, signature
from typing import Any, Self, TypeVar

from langchain_core.exceptions import LangChainException

Public = TypeVar("Public", bound=Callable[..., Any])
_HAS_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
"""The kinds of parameters that may be given without their name."""
MOST_ERROR_CHARACTERS = 300
"""Of an error of somebody else's, so many characters are repeated."""
ELSEWHERE = {"session_id": "conversation_id", "thread_id": "conversation_id"}
"""Names that other packages have for our arguments."""


class CtxBudgetError(LangChainException):
    """The base of every error of this package."""


class BudgetError(CtxBudgetError, ValueError):
    """The request cannot be brought within its budget.

    Attributes:
        budget_tokens: what there is, in tokens.
        floors: what each part needs, in tokens; their sum is over the budget.
        advice: what to change.
    """

    def __init__(
        self, problem: str, budget_tokens: int, floors: Mapping[str, int], advice: str
    ) -> None:
        self.problem = problem
        self.budget_tokens = budget_tokens
        self.floors = dict(floors)
        self.advice = advice
        width = max(map(len, self.floors), default=0)
        table = "\n".join(
            f"  {name:<{width}}  {tokens:>8,}" for name, tokens in self.floors.items()
        )
        super().__init__(f"{problem}\n{table}\n{advice}")

    def __reduce__(self) -> tuple[object, ...]:
        """Is copied, and sent to other processes, without its constructor."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class BudgetTooSmallError(BudgetError):
    """The parts that must be sent do not fit into the budget."""

    def __init__(self, budget_tokens: int, floors: Mapping[str, int], advice: str) -> None:
        needed = sum(floors.values())
        problem = f"The budget is {budget_tokens:,} tokens, but what must be sent needs {needed:,}:"
        super().__init__(problem, budget_tokens, floors, advice)


class SystemPromptTooLargeError(BudgetError):
    """The system prompt takes more than its allowed share."""

    def __init__(self, system_tokens: int, allowed_tokens: int, share: str, setting: str) -> None:
        problem = (
            f"The system prompt is {system_tokens:,} tokens, over {share}, "
            f"which is {allowed_tokens:,}:"
        )
        advice = (
            f"Shorten it, use a model with a larger window or a larger budget, or raise {setting}."
        )
        super().__init__(problem, allowed_tokens, {"system prompt": system_tokens}, advice)


class InvalidAllocationError(BudgetError):
    """A strategy of the application's own gave away more than there is, or less than nothing."""

    def __init__(self, strategy: str, budget_tokens: int, tokens: Mapping[str, int]) -> None:
        granted = sum(tokens.values())
        problem = (
            f"The strategy {strategy!r} gave {granted:,} tokens away, "
            f"where {budget_tokens:,} are free:"
        )
        advice = (
            "No layer may get less than 0, and all together at most what is free; `share_out` "
            "takes care of both."
        )
        super().__init__(problem, budget_tokens, tokens, advice)


class StrategyError(CtxBudgetError, RuntimeError):
    """A strategy of the application's own raised an error; that is its cause."""


class TokenCountError(CtxBudgetError, RuntimeError):
    """A finished prompt counts otherwise than it was planned, also after it was made again.

    Attributes:
        planned_tokens: what the prompt was made with.
        counted_tokens: what its messages, tools and response format count now.
        budget_tokens: the most that it may have.
    """

    planned_tokens: int
    counted_tokens: int
    budget_tokens: int

    @classmethod
    def of(cls, planned_tokens: int, counted_tokens: int, budget_tokens: int, counter: str) -> Self:
        """Returns the error for two counts of one prompt by a counter, which is named."""
        error = cls(
            f"The prompt was planned with {planned_tokens:,} tokens, but counts "
            f"{counted_tokens:,} by {counter!r}; its budget is {budget_tokens:,}. It was not sent. "
            "A token_counter of your own must count the same message the same each time; with any "
            "other counter this is a defect of langchain-ctxbudget: please report it"
        )
        error.planned_tokens = planned_tokens
        error.counted_tokens = counted_tokens
        error.budget_tokens = budget_tokens
        return error


class InputError(CtxBudgetError, ValueError):
    """An argument that cannot be used."""


class InvalidSettingsError(InputError):
    """A setting outside its range."""


class EmptyMessageError(InputError):
    """The current message has no content."""


class UnsupportedContentError(InputError):
    """Something that is not a message, or a message of a kind that no model can be sent.

    So is one whose content has something that is neither a text nor a dict.
    """


class MissingScopeError(InputError):
    """A user or conversation id is missing; nothing is read or written without both."""


class ForeignUserError(InputError):
    """Something is another user's.

    A run's thread, or a run that names another user than the authenticated one.
    """


class MessageConflictError(InputError):
    """A message id that the conversation knows came with other content."""


class DocumentError(InputError):
    """A document that cannot be read, has no text, or is not in the knowledge base."""


class FactError(InputError):
    """A fact about the user that is not known, or cannot be pinned as too many are already."""


class ConversationFormatError(InputError):
    """A file that is none of the accepted conversation formats, or is cut off."""


class StoreError(CtxBudgetError):
    """The store cannot be used."""


class StoreLockedError(StoreError):
    """The store's folder is open in another process."""


class EmbeddingMismatchError(StoreError):
    """The store was written with other embeddings than it is opened with."""


class StoreDataError(StoreError):
    """The store holds a record that this version cannot read."""


class ModelReplyError(CtxBudgetError):
    """A chat model was asked in the background and gave nothing that can be used.

    Tells what each attempt gave.

    `is_passing` says that asking later may help: nobody answered, or the server failed. It is false
    where the model did answer and the answer cannot be used, and where the request itself was
    refused.
    """

    def __init__(self, message: str, *, is_passing: bool = True) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class BlockedLoopError(CtxBudgetError, RuntimeError):
    """A blocking call would wait for a task of the event loop that it blocks."""


class TokenizerUnavailableError(CtxBudgetError):
    """An exact tokenizer that is not installed here and cannot be fetched."""


class EmbeddingsUnavailableError(CtxBudgetError):
    """The word vectors of the local embeddings are not installed here."""


def require_kind(name: str, value: object, kind: type) -> None:
    """Raises `InvalidSettingsError` for an argument that is neither None nor of a kind."""
    if value is not None and not isinstance(value, kind):
        raise InvalidSettingsError(f"{name} must be a {kind.__name__}, not {type(value).__name__}")


def suggestion_for(name: str, known: Iterable[str]) -> str:
    """Returns which name a misspelt one seems to mean, in brackets; nothing where none is near."""
    nearest = _nearest(name, known)
    return f" (is {nearest!r} meant?)" if nearest else ""


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the name that a misspelt one seems to mean; None where none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - not needed where nothing is misspelt

    nearest = get_close_matches(ELSEWHERE.get(name, name), known, 1)
    return nearest[0] if nearest else None


def require_names(
    arguments: Mapping[str, object],
    own: Iterable[str],
    where: str,
    settings: Iterable[str] = (),
    of_pipeline: Iterable[str] = (),
) -> None:
    """Raises `InvalidSettingsError` for an argument that a function does not have.

    It tells the name that seems to be meant: one of the function's `own`, or of the `settings` that
    it takes as one of its arguments. An argument of `ContextPipeline` belongs to the pipeline that
    the function takes: those are `of_pipeline`. `where` names the function.
    """
    names = [name for name in own if name != "self"]
    unknown = sorted({*arguments} - {*names})
    if not unknown:
        return
    known = [*names]
    takes_settings_as = _settings_argument(names)
    if takes_settings_as is not None:
        known += settings
    name = unknown[0]
    if name in known:
        raise InvalidSettingsError(
            f"{name} is a setting: pass {takes_settings_as}={{{name!r}: {arguments[name]!r}}}"
        )
    if name in of_pipeline:
        raise InvalidSettingsError(
            f"{where} has no argument {name!r}, but its pipeline has: make the pipeline "
            f"with it, as in {where}(ContextPipeline({{...}}, {name}=...))"
        )
    listed = ", ".join(names) or "none"
    suggestion = suggestion_for(name, known)
    nearest = _nearest(name, known)
    if nearest is not None and nearest not in names:
        suggestion = f" (is it the setting {takes_settings_as}={{{nearest!r}: ...}}?)"
    raise InvalidSettingsError(f"{where} has no argument {name!r}{suggestion}; it has {listed}")


def _settings_argument(names: Iterable[str]) -> str | None:
    """Returns the argument of a function that takes settings; None where there is none."""
    for name in ("settings", "pipeline"):
        if name in names:
            return name
    return None


def checks_names(
    settings: Iterable[str] = (), of_pipeline: Iterable[str] = ()
) -> Callable[[Public], Public]:
    """Makes a function, or the public methods of a class, suggest what a misspelt argument means.

    It also refuses ids that are not given by name.

    Args:
        settings: names that may be given as settings, where a function takes those.
        of_pipeline: names of arguments that the pipeline has which a function takes.
    """

    def with_checks(public: Any) -> Any:  # noqa: ANN401 - a function or a class
        if not isinstance(public, type):
            return _checked(public, settings, of_pipeline)
        for name, method in [*vars(public).items()]:
            is_public = name == "__init__" or not name.startswith("_")
            if is_public and isfunction(method):
                setattr(public, name, _checked(method, settings, of_pipeline))
        return public

    return with_checks


def _checked(
    function: Callable[..., Any], settings: Iterable[str], of_pipeline: Iterable[str]
) -> Callable[..., Any]:
    """Returns a function that refuses arguments which it does not have."""
    parameters = signature(function).parameters
    where = function.__qualname__.removesuffix(".__init__")
    kinds = [parameter.kind for parameter in parameters.values()]
    takes_any_name = Parameter.VAR_KEYWORD in kinds
    most_places = len(kinds)
    if Parameter.VAR_POSITIONAL not in kinds:
        most_places = sum(map(_HAS_PLACE.__contains__, kinds))
    # Ids that are not given are None, which is a `MissingScopeError`.
    missing_ids: dict[str, None] = {}
    for name in ("user_id", "conversation_id"):
        if name in parameters and parameters[name].kind is Parameter.KEYWORD_ONLY:
            missing_ids[name] = None

    @wraps(function)
    def checked(*args: object, **arguments: object) -> Any:  # noqa: ANN401 - what it returns
        if not takes_any_name:
            require_names(arguments, parameters, where, settings, of_pipeline)
        if len(args) > most_places and missing_ids:
            raise InputError(
                f"{where} takes ids by name, so that none is taken for another: write "
                f"{_call_with_ids(function, missing_ids)}"
            )
        return function(*args, **missing_ids | arguments)

    if not iscoroutinefunction(function):
        return checked

    @wraps(function)
    async def awaited(*args: object, **arguments: object) -> object:
        return await checked(*args, **arguments)

    return awaited


def _call_with_ids(function: Callable[..., Any], ids: Iterable[str]) -> str:
    """Returns how a function is called with its ids: the other arguments in short."""
    given = [f"{name}=..." for name in ids]
    others = [
        parameter
        for parameter in signature(function).parameters.values()
        if parameter.kind in _HAS_PLACE and parameter.name != "self"
    ]
    if others:
        given.insert(0, "...")
    return f"{function.__name__}({', '.join(given)})"


def require_count(
    name: str,
    value: object,
    least: int = 1,
    most: int | None = None,
    kind: type[InputError] = InputError,
) -> None:
    """Raises an error of a kind for an argument that is no whole number within limits."""
    if type(value) is not int or value < least or (most is not None and value > most):
        limits = f"of at least {least:,}"
        if most is not None:
            limits = f"from {least:,} to {most:,}"
        raise kind(f"{name} must be a whole number {limits}, not {value!r}")
