"""Finds the profile of the provider that gets the requests for a model.

The model object tells it by its class, and by the provider that LangChain's partner classes name
(`ls_provider`). The model's name decides only where there is nothing else: if the model is given by
its name alone, or if a class of the application's own tells nothing. If a class for OpenAI's models
talks to another address, the server there is taken for one that speaks as OpenAI does.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.providers.anthropic import ANTHROPIC, ANTHROPIC_VERTEX
from langchain_ctxbudget.providers.azure import AZURE, AZURE_RESPONSES
from langchain_ctxbudget.providers.bedrock import BEDROCK, BEDROCK_CONVERSE
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.compatible import COMPATIBLE, COMPATIBLE_RESPONSES
from langchain_ctxbudget.providers.google import GOOGLE, GOOGLE_VERTEX
from langchain_ctxbudget.providers.mistral import MISTRAL
from langchain_ctxbudget.providers.ollama import OLLAMA
from langchain_ctxbudget.providers.openai import OPENAI
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.responses import OPENAI_RESPONSES

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        OPENAI,
        OPENAI_RESPONSES,
        AZURE,
        AZURE_RESPONSES,
        ANTHROPIC,
        ANTHROPIC_VERTEX,
        BEDROCK,
        BEDROCK_CONVERSE,
        GOOGLE,
        GOOGLE_VERTEX,
        MISTRAL,
        OLLAMA,
        COMPATIBLE,
        COMPATIBLE_RESPONSES,
        COMMON,
    )
}
"""The profiles by their names, which an application may say."""
_OF_PROVIDERS: Mapping[str, Profile] = {
    "openai": OPENAI,
    "openai-codex": OPENAI_RESPONSES,
    "azure": AZURE,
    "azure_openai": AZURE,
    "anthropic": ANTHROPIC,
    "anthropic-bedrock": BEDROCK,
    "anthropic_bedrock": BEDROCK,
    "google_anthropic_vertex": ANTHROPIC_VERTEX,
    "bedrock_converse": BEDROCK_CONVERSE,
    "google": GOOGLE,
    "google_genai": GOOGLE,
    "google_vertexai": GOOGLE_VERTEX,
    "mistral": MISTRAL,
    "mistralai": MISTRAL,
    "ollama": OLLAMA,
    "deepseek": COMPATIBLE,
    "xai": COMPATIBLE,
    "groq": COMPATIBLE,
    "together": COMPATIBLE,
    "fireworks": COMPATIBLE,
    "openrouter": COMPATIBLE,
    "litellm": COMPATIBLE,
    "perplexity": COMPATIBLE,
    "nvidia": COMPATIBLE,
    "huggingface": COMPATIBLE,
}
"""The profiles by what LangChain calls providers: `ls_provider` of its classes, `model_provider` of
answers, and the names that `init_chat_model` takes (langchain 1.5.2)."""
_OF_CLASSES: Mapping[str, Profile] = {
    "ChatAnthropicVertex": ANTHROPIC_VERTEX,
    "ChatAnthropicBedrock": BEDROCK,
    "ChatBedrockConverse": BEDROCK_CONVERSE,
}
"""The profiles of classes of which several tell the same provider."""
_BEDROCK_CLASS = "ChatBedrock"
_OPENAI_CLASS = "BaseChatOpenAI"
_OF_SEVERAL_MAKERS = frozenset({"", "bedrock", "amazon_bedrock"})
"""Values of `model_provider` that do not tell whose model has answered."""
_WITH_RESPONSES: Mapping[str, Profile] = {
    OPENAI.name: OPENAI_RESPONSES,
    AZURE.name: AZURE_RESPONSES,
    COMPATIBLE.name: COMPATIBLE_RESPONSES,
}
"""The profiles of servers that speak as OpenAI's Responses do, by that of their other API."""
_BY_NAME_ALONE = replace(OPENAI, items=OPENAI_RESPONSES.items)
"""Of OpenAI's models by name: that does not tell the API, so items of Responses stay."""
_OPENAI_HOSTS = (".openai.com", ".azure.com", ".chatgpt.com")
_OPENAI_PREFIX = re.compile(r"(?:openai|azure|azure_openai)[:/]", re.IGNORECASE)
_OPENAI_NAME = re.compile(r"(?:[\w.-]+[:/])*(?:gpt-|chatgpt|codex|o\d)", re.IGNORECASE)
_BEGINNINGS_OF_NAMES: Mapping[str, Profile] = {
    "claude": ANTHROPIC,
    "gemini": GOOGLE,
    "mistral": MISTRAL,
    "mixtral": MISTRAL,
    "open-mistral": MISTRAL,
    "open-mixtral": MISTRAL,
    "codestral": MISTRAL,
    "devstral": MISTRAL,
    "magistral": MISTRAL,
    "ministral": MISTRAL,
    "pixtral": MISTRAL,
    "voxtral": MISTRAL,
    "deepseek": COMPATIBLE,
    "grok": COMPATIBLE,
}
"""Whose model a name means where nothing but the name is given, as `init_chat_model` takes it."""
_OPTIONS_OF_REQUESTS = ("model_kwargs", "additional_model_request_fields")
"""Attributes, and arguments of calls, with more options of a request: those of `ChatBedrock`, and
of `ChatBedrockConverse`."""
_NAME_ATTRIBUTES = (
    "tiktoken_model_name",
    "model_name",
    "model",
    "deployment_name",
    "azure_deployment",
)


def profile_named(provider: str | Profile) -> Profile:
    """Returns the profile that an application means, by its name or by what LangChain calls it.

    Raises:
        InvalidSettingsError: There is none of that name.
    """
    if isinstance(provider, Profile):
        return provider
    profile = None
    if isinstance(provider, str):
        profile = PROFILES.get(provider) or _OF_PROVIDERS.get(provider)
    if profile is None:
        known = ", ".join(sorted(PROFILES))
        raise InvalidSettingsError(
            f"provider must be a Profile or the name of one, not {provider!r}. Known are: {known}"
        )
    return profile


def profile_of(model: object, tools: Sequence[object] = ()) -> Profile:
    """Returns the profile of the provider that gets the requests for a model.

    If the model has fallbacks or alternatives, any of them may get a request: the profile is then
    that of the first, with what all of them take, see `Profile.taken_by_all`.

    Args:
        model: The model, an object or a name; it may be bound.
        tools: The tools of the call besides those that are bound: they may decide to which of
            OpenAI's two APIs it goes.
    """
    inner: Any = unwrapped(model)
    if inner is None:
        return COMMON
    if isinstance(inner, str):
        return _profile_by_name([inner])
    choices = choices_of(inner)
    if choices:
        first, *others = [profile_of(choice, tools) for choice in choices]
        return first.taken_by_all(others)
    profile = _profile_by_class(inner)
    profile = as_asked_to_think(profile, model)
    with_responses = _WITH_RESPONSES.get(profile.name)
    if with_responses and _speaks_responses(inner, _bound_arguments(model), tools):
        return with_responses
    return profile


def profile_of_author(answer: BaseMessage) -> Profile:
    """Returns the profile of the provider that has written an answer, if the answer tells it."""
    provider = str(answer.response_metadata.get("model_provider"))
    return _OF_PROVIDERS.get(provider, COMMON)


def authors_of(answer: BaseMessage) -> frozenset[str] | None:
    """Returns who has written an answer, in the words of `OwnItems`; None if it does not tell."""
    provider = str(answer.response_metadata.get("model_provider") or "")
    if provider in _OF_SEVERAL_MAKERS:
        return None
    profile = _OF_PROVIDERS.get(provider)
    if profile is None or profile.items is None:
        return frozenset({provider})
    return profile.items.authors or frozenset({provider})


def _profile_by_class(model: object) -> Profile:
    """Returns the profile of a model object by its class and what that tells of itself."""
    bases = [base.__name__ for base in type(model).__mro__]
    for name in bases:
        if name in _OF_CLASSES:
            return _OF_CLASSES[name]
    if _BEDROCK_CLASS in bases:
        return _profile_at_bedrock(model)
    provider = told_provider(model)
    profile = _OF_PROVIDERS.get(provider)
    if _OPENAI_CLASS in bases:
        return _profile_of_openai_class(model, profile)
    if provider:
        return profile or COMMON
    return _profile_by_name(model_names(model))


def _profile_of_openai_class(model: object, told: Profile | None) -> Profile:
    """Returns the profile of a class for OpenAI's models, which may talk to another address."""
    if told is None or told is COMPATIBLE:
        return COMPATIBLE
    if told is not AZURE and _is_elsewhere(model):
        return COMPATIBLE
    return told


def _profile_at_bedrock(model: object) -> Profile:
    """Returns the profile of a model of `ChatBedrock`, which takes those of several makers."""
    if getattr(model, "beta_use_converse_api", False):
        return BEDROCK_CONVERSE
    maker = getattr(model, "provider", None)
    if not maker:
        # The maker stands in the id of a model at Bedrock: us.anthropic.claude-sonnet-4-5.
        maker = str(getattr(model, "model_id", "")).split(".")
    return BEDROCK if "anthropic" in maker else COMMON


def as_asked_to_think(profile: Profile, model: object) -> Profile:
    """Returns a profile that binds no thoughts if its model is asked for them by hand.

    Every model of Claude that binds thoughts refuses `{"type": "enabled", "budget_tokens": ...}`
    (migration guides of Opus, Sonnet and Haiku 5.5, November 2026). Those that take it want the
    thoughts of a round back with its results: "Expected `thinking` or `redacted_thinking`, but
    found `tool_use`" (zed-industries/zed issue 33317).
    """
    if profile.binds_thoughts and thinking_of(model).get("type") == "enabled":
        return replace(profile, binds_thoughts=False)
    return profile


def thinking_of(model: object) -> Mapping[str, Any]:
    """Returns the thinking that a model of Claude is asked for; empty if it tells none."""
    inner = unwrapped(model)
    arguments = _bound_arguments(model)
    places: list[object] = [{"thinking": getattr(inner, "thinking", None)}, arguments]
    for name in _OPTIONS_OF_REQUESTS:
        places += [getattr(inner, name, None), arguments.get(name)]
    for options in places:
        thinking = options.get("thinking") if isinstance(options, Mapping) else None
        if isinstance(thinking, Mapping):
            return thinking
    return {}


def _speaks_responses(model: object, arguments: Mapping[str, Any], tools: Sequence[object]) -> bool:
    """Tells if a request of a model goes to OpenAI's Responses API, as its class decides that."""
    decides = getattr(model, "_use_responses_api", None)
    if decides is None:
        return False
    all_tools = [*(arguments.get("tools") or ()), *map(_tool_as_sent, tools)]
    try:
        payload = {**model._default_params, **arguments}  # type: ignore[attr-defined]  # noqa: SLF001
        if all_tools:
            payload["tools"] = all_tools
        return bool(decides(payload))
    except Exception:  # noqa: BLE001 - whatever a class of somebody else's raises
        return False


def _tool_as_sent(tool: object) -> Mapping[str, Any]:
    """Returns a tool in a form from which a class sees to which API the request goes."""
    return tool if isinstance(tool, Mapping) else {"type": "function"}


def _bound_arguments(model: object) -> dict[str, Any]:
    """Returns the arguments that are bound to a model, those of the innermost binding last."""
    arguments: dict[str, Any] = {}
    while getattr(model, "bound", None):
        arguments = {**getattr(model, "kwargs", {}), **arguments}
        model = model.bound  # type: ignore[attr-defined]
    return arguments


def _profile_by_name(names: Iterable[str]) -> Profile:
    """Returns the profile of a model of which only names are known."""
    for name in names:
        profile = _profile_by_one_name(name.strip())
        if profile is not None:
            return profile
    return COMMON


def _profile_by_one_name(name: str) -> Profile | None:
    """Returns the profile of a model by its name, with or without a prefix; None if it tells none.

    The prefix is what `init_chat_model` takes for the provider: `anthropic:claude-sonnet-4-5`.
    """
    if _OPENAI_PREFIX.match(name) or _OPENAI_NAME.match(name):
        return _BY_NAME_ALONE
    provider, separator, _ = name.partition(":")
    if separator and provider in _OF_PROVIDERS:
        return _OF_PROVIDERS[provider]
    for beginning, profile in _BEGINNINGS_OF_NAMES.items():
        if name.lower().startswith(beginning):
            return profile
    return None


def choices_of(model: object) -> list[object]:
    """Returns the models of which one gets a request (`with_fallbacks`, alternatives)."""
    from langchain_core.runnables import Runnable, RunnableWithFallbacks  # noqa: PLC0415 - takes 0.2 s
    from langchain_core.runnables.configurable import RunnableConfigurableAlternatives  # noqa: PLC0415

    if isinstance(model, RunnableWithFallbacks):
        return [model.runnable, *model.fallbacks]
    if isinstance(model, RunnableConfigurableAlternatives):
        others = model.alternatives.values()
        return [model.default, *(other for other in others if isinstance(other, Runnable))]
    return []


def told_provider(model: object) -> str:
    """Returns the provider that the class of a model names; empty where LangChain guesses."""
    from langchain_core.language_models import BaseChatModel  # noqa: PLC0415 - takes 0.2 s

    if (
        not isinstance(model, BaseChatModel)
        or type(model)._get_ls_params is BaseChatModel._get_ls_params  # noqa: SLF001
    ):
        return ""
    try:
        return str(model._get_ls_params().get("ls_provider") or "")  # noqa: SLF001
    except Exception:  # noqa: BLE001 - whatever a class of somebody else's raises
        return ""


def _is_elsewhere(model: object) -> bool:
    """Tells whether a class for OpenAI's models talks to neither OpenAI nor Azure."""
    address = getattr(model, "openai_api_base", None)
    if not address:
        # The client has read the environment, too.
        address = getattr(getattr(model, "root_client", None), "base_url", None)
    address = str(address or "").strip()
    if not address:
        return False
    try:
        host = urlsplit(address).hostname
    except ValueError:  # a bracket too many
        return True
    return not f".{host}".endswith(_OPENAI_HOSTS)


# The model objects of LangChain


def unwrapped(model: Any) -> Any:  # noqa: ANN401 - a binding passes for a model everywhere
    """Returns the model that `bind` and `with_config` wrap."""
    while getattr(model, "bound", None):
        model = model.bound
    return model


def model_names(model: object) -> Iterator[str]:
    """Yields the names by which a model may be known, the one that says most first."""
    inner = unwrapped(model)
    if isinstance(inner, str):
        yield inner
        return
    for attribute in _NAME_ATTRIBUTES:
        name = getattr(inner, attribute, None)
        if isinstance(name, str):
            yield name
