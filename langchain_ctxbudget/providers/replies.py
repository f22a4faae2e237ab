"""Asks models for replies of a schema and of a length, in the way that each class understands.

LangChain's standard argument for the longest reply is `max_tokens`. Google's classes call it
`max_output_tokens`; `ChatOllama` only has an attribute for it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from langchain_ctxbudget.providers.models import choices_of, thinking_of, unwrapped

if TYPE_CHECKING:
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.runnables import Runnable

THOUGHT_TOKENS = 8_000
"""Tokens that a reply may have for a model's thoughts where the model does not say how many: for
providers, thoughts are part of the longest reply."""
_OF_GOOGLE = "max_output_tokens"
_OF_OLLAMA = "num_predict"
"""Names of the longest reply in Google's classes and in `ChatOllama`."""
_WITHOUT_THOUGHTS = ("disabled", "none", "minimal", 0)
"""Values of several classes' options with which a model does not think."""


def bound_to_schema(
    model: Any,  # noqa: ANN401 - a binding passes for a model everywhere
    schema: Mapping[str, Any],
    *,
    is_strict: bool,
    reply_tokens: int | None = None,
) -> "Runnable[LanguageModelInput, Any] | None":
    """Returns a model bound to the JSON schema of its reply; None if it cannot be bound.

    LangChain's parser is left off: it throws prose away, and takes JSON that was cut off for whole.

    Args:
        model: The model.
        schema: The schema. If it is to be strict, all of its fields are required.
        is_strict: Whether the provider is to hold the reply to the schema, as far as it can.
        reply_tokens: The longest reply without thoughts; None leaves it as the model has it.
    """
    from langchain_core.runnables import RunnableSequence  # noqa: PLC0415 - takes 0.2 s

    if reply_tokens is not None:
        model = _with_attribute(model, longest_reply(model, reply_tokens))
    for options in _ways_to_bind(model, is_strict=is_strict):
        try:
            chain = model.with_structured_output(dict(schema), **options)
        except Exception:  # noqa: BLE001, S112 - no two classes say in the same way that they cannot
            continue
        bound = chain.first if isinstance(chain, RunnableSequence) else chain
        return bound if reply_tokens is None else with_longest_reply(bound, model, reply_tokens)
    return None


def _ways_to_bind(model: object, *, is_strict: bool) -> Iterator[dict[str, Any]]:
    """Yields arguments of `with_structured_output`, the strictest first."""
    profile = getattr(unwrapped(model), "profile", None)
    if is_strict and isinstance(profile, Mapping) and profile.get("structured_output"):
        yield {"method": "json_schema", "strict": True}
    if is_strict:
        yield {"strict": True}
    else:
        yield {}


def with_longest_reply(runnable: Any, model: object, reply_tokens: int) -> Any:  # noqa: ANN401
    """Returns a model, or what it is bound to, with a limit on the tokens of its replies.

    Args:
        runnable: The model, or a binding of it.
        model: The model, whose class tells the name of the limit.
        reply_tokens: The longest reply without thoughts.
    """
    fields = _fields_of(model)
    tokens = longest_reply(model, reply_tokens)
    if _OF_OLLAMA in fields:
        return _with_attribute(runnable, tokens)
    if _OF_GOOGLE in fields:
        return runnable.bind(max_output_tokens=tokens)
    return runnable.bind(max_tokens=tokens)


def longest_reply(model: object, reply_tokens: int) -> int:
    """Returns the limit on a model's replies, with thoughts, and no more than the model allows."""
    inner = _first_of(model)
    profile = getattr(inner, "profile", None) or {}
    tokens = reply_tokens + _thought_tokens(inner, model, profile)
    most = profile.get("max_output_tokens") if isinstance(profile, Mapping) else None
    return min(tokens, most) if isinstance(most, int) and most > 0 else tokens


def _thought_tokens(inner: Any, model: object, profile: object) -> int:  # noqa: ANN401
    """Returns the tokens of a reply that a model may use for its thoughts."""
    thinking = thinking_of(model)
    budget = thinking.get("budget_tokens") or getattr(inner, "thinking_budget", None)
    if isinstance(budget, int) and budget > 0:
        return budget
    if hasattr(inner, "thinking"):  # Claude thinks only if it is asked to
        asked = thinking.get("type")
        thinks = bool(asked) and asked not in _WITHOUT_THOUGHTS
    else:
        thinks = budget != 0 and _thinks_by_itself(inner, profile)
    return THOUGHT_TOKENS if thinks else 0


def _thinks_by_itself(inner: object, profile: object) -> bool:
    """Tells if a model thinks by its profile or its effort, unless that says it does not."""
    effort = getattr(inner, "reasoning_effort", None)
    if effort in _WITHOUT_THOUGHTS:
        return False
    reasons = isinstance(profile, Mapping) and bool(profile.get("reasoning_output"))
    return reasons or bool(effort)


def _with_attribute(model: Any, tokens: int) -> Any:  # noqa: ANN401
    """Returns a copy of a model of Ollama, or of what wraps one, with the limit as its attribute.

    Any other model is returned as it is.
    """
    wrapped = getattr(model, "bound", None)
    if wrapped:
        return model.model_copy(update={"bound": _with_attribute(wrapped, tokens)})
    if _OF_OLLAMA not in _fields_of(model):
        return model
    return model.model_copy(update={_OF_OLLAMA: tokens})


def _fields_of(model: object) -> Mapping[str, Any]:
    """Returns the fields that the class of a model declares."""
    return getattr(type(_first_of(model)), "model_fields", {})


def _first_of(model: object) -> Any:  # noqa: ANN401
    """Returns the model that gets a request first, without what wraps it."""
    inner = unwrapped(model)
    choices = choices_of(inner)
    return unwrapped(choices[0]) if choices else inner
