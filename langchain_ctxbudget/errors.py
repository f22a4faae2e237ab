"""Every error that this package raises on purpose: `CtxBudgetError` and its kinds."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import iscoroutinefunction, isfunction, signature
from typing import Any, Self, TypeVar

from langchain_core.exceptions import LangChainException

Public = TypeVar("Public", bound=Callable[..., Any])
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
        problem = f"The budget is {budget_tokens:,} tokens, but what must be sent needs {sum(floors.values()):,}:"
        super().__init__(problem, budget_tokens, floors, advice)


class SystemPromptTooLargeError(BudgetError):
    """The system prompt takes more than its allowed share."""

    def __init__(self, system_tokens: int, allowed_tokens: int, share: str, setting: str) -> None:
        problem = f"The system prompt is {system_tokens:,} tokens, over {share}, which is {allowed_tokens:,}:"
        advice = (
            f"Shorten it, use a model with a larger window or a larger budget, or raise {setting}."
        )
        super().__init__(problem, allowed_tokens, {"L0 system prompt": system_tokens}, advice)


class InvalidAllocationError(BudgetError):
    """A strategy of the application's own gave away more than there is, or less than nothing."""

    def __init__(self, strategy: str, budget_tokens: int, tokens: Mapping[str, int]) -> None:
        given = sum(tokens.values())
        problem = f"The strategy {strategy!r} gave {given:,} tokens away, where {budget_tokens:,} are free:"
        advice = "No layer may get less than 0, and all together at most what is free; `share_out` takes care of both."
        super().__init__(problem, budget_tokens, tokens, advice)


class TokenCountError(CtxBudgetError, RuntimeError):
    """A finished prompt counts otherwise than it was planned, also after it was made again without known costs.

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
            f"The prompt was planned with {planned_tokens:,} tokens, but counts {counted_tokens:,} by {counter!r}; its "
            f"budget is {budget_tokens:,}. It was not sent. A token_counter of your own must count the same message "
            f"the same each time; with any other counter this is a defect of langchain-ctxbudget: please report it"
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
    """Something that is not a message, or a message of a kind that no model can be sent."""


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
    """A fact about the user that is not known, or cannot be pinned because as many are as may be."""


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

    `is_passing` says that asking later may help: nobody answered, or the server failed. It is false where the model did
    answer and the answer cannot be used, and where the request itself was refused.
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


def meant(name: str, known: Iterable[str]) -> str:
    """Returns which name a misspelt one seems to mean, in brackets; nothing where none is near."""
    return "".join(
        f" (is {near!r} meant?)" for near in get_close_matches(ELSEWHERE.get(name, name), known, 1)
    )


def require_names(
    given: Mapping[str, object], own: Iterable[str], where: str, settings: Iterable[str] = ()
) -> None:
    """Raises `InvalidSettingsError` for an argument that there is none of, with the name that seems to be meant."""
    names = [name for name in own if name != "self"]
    place = next((one for one in ("settings", "pipeline") if one in names), None)
    known = [*names, *settings] if place else names
    for name in sorted({*given} - {*names}):
        if name in known:
            raise InvalidSettingsError(
                f"{name} is a setting: pass {place}={{{name!r}: {given[name]!r}}}"
            )
        has = ", ".join(names) or "none"
        raise InvalidSettingsError(
            f"{where} has no argument {name!r}{meant(name, known)}; it has {has}"
        )


def checks_names(settings: Iterable[str] = ()) -> Callable[[Public], Public]:
    """Makes a function, or the public methods of a class, suggest the argument that a misspelt one means.

    `settings` are names that may be given as settings, where a function takes those.
    """

    def with_checks(public: Any) -> Any:  # noqa: ANN401 - what it is given
        if isinstance(public, type):
            for name, method in [*vars(public).items()]:
                if isfunction(method) and (name == "__init__" or not name.startswith("_")):
                    setattr(public, name, with_checks(method))
            return public
        known = signature(public).parameters
        where = public.__qualname__.removesuffix(".__init__")
        takes_any = any(one.kind is one.VAR_KEYWORD for one in known.values())
        scope = {"user_id", "conversation_id"} & {
            one.name for one in known.values() if one.kind is one.KEYWORD_ONLY
        }

        @wraps(public)
        def checked(*args: object, **given: object) -> Any:  # noqa: ANN401
            require_names({} if takes_any else given, known, where, settings)
            return public(*args, **dict.fromkeys(scope) | given)  # None is a `MissingScopeError`

        @wraps(public)
        async def awaited(*args: object, **given: object) -> object:
            return await checked(*args, **given)

        return awaited if iscoroutinefunction(public) else checked

    return with_checks


def require_count(
    name: str,
    value: object,
    least: int = 1,
    most: int | None = None,
    kind: type[InputError] = InputError,
) -> None:
    """Raises an error of a kind for an argument that is no whole number within limits."""
    if type(value) is not int or value < least or (most is not None and value > most):
        limits = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        raise kind(f"{name} must be a whole number {limits}, not {value!r}")
