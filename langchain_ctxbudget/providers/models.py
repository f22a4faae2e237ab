"""Whose model it is.

The model object tells it (`ls_provider` of LangChain's partner classes). A name is looked at only
where there is nothing else: where a model is given by its name, where a class of the application's
own does not tell, and where a class for OpenAI's models talks to another address, which may pass
requests on to anybody.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.providers.anthropic import ANTHROPIC
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.google import GOOGLE
from langchain_ctxbudget.providers.openai import OPENAI
from langchain_ctxbudget.providers.profile import Profile

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

PROFILES = {
    "openai": OPENAI,
    "openai-codex": OPENAI,
    "azure": OPENAI,
    "azure_openai": OPENAI,
    "anthropic": ANTHROPIC,
    "google": GOOGLE,
    "google_genai": GOOGLE,
    "google_vertexai": GOOGLE,
}
"""The profiles by what LangChain's classes and answers call their provider."""
_AT_AN_ADDRESS = frozenset({"openai", "openai-codex"})
"""Providers whose class may talk to another address."""
_GATEWAYS = frozenset({"", "litellm", "openrouter"})
"""Providers, as LangChain's classes call them, that pass requests on to the provider of the model
that is named; a class that does not tell may do so, too."""
_OPENAI_HOSTS = (".openai.com", ".azure.com", ".chatgpt.com")
_OPENAI_PREFIX = re.compile(r"(?:openai|azure|azure_openai)[:/]", re.IGNORECASE)
_OPENAI_NAME = re.compile(r"(?:[\w.-]+[:/])*(?:gpt-|chatgpt|codex|o\d)", re.IGNORECASE)
_NAME_ATTRIBUTES = (
    "tiktoken_model_name",
    "model_name",
    "model",
    "deployment_name",
    "azure_deployment",
)


def profile_of(model: object) -> Profile:
    """Returns the profile of whoever gets the requests for a model, an object or a name.

    Of a model with fallbacks or alternatives, any may get the request: the strictest counts.
    """
    inner: Any = unwrapped(model)
    if inner is None:
        return COMMON
    if isinstance(inner, str):
        return _profile_by_name([inner])
    choices = _choices_of(inner)
    if choices:
        return _strictest(map(profile_of, choices))
    provider = told_provider(inner)
    if provider in _GATEWAYS or (provider in _AT_AN_ADDRESS and _is_elsewhere(inner)):
        return _profile_by_name(model_names(inner))
    return PROFILES.get(provider, COMMON)


def profile_of_author(answer: BaseMessage) -> Profile:
    """Returns the profile of whoever has written an answer, as far as the answer tells."""
    provider = str(answer.response_metadata.get("model_provider"))
    if provider.startswith("google"):
        return GOOGLE
    return PROFILES.get(provider, COMMON)


def _strictest(profiles: Iterable[Profile]) -> Profile:
    """Returns the profile that leaves the fewest characters to the ids of calls."""
    return min(profiles, key=lambda profile: profile.call_ids.longest or float("inf"))


def _profile_by_name(names: Iterable[str]) -> Profile:
    """Returns the profile of a model of which nothing but names is known."""
    return OPENAI if any(map(_is_name_of_openai, names)) else COMMON


def _is_name_of_openai(name: str) -> bool:
    """Tells whether a name is that of a model of OpenAI's, with or without prefixes."""
    stripped = name.strip()
    return bool(_OPENAI_PREFIX.match(stripped) or _OPENAI_NAME.match(stripped))


def _choices_of(model: object) -> list[object]:
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


def model_names(model: "BaseChatModel | str") -> Iterator[str]:
    """Yields the names by which a model may be known, the one that says most first."""
    inner = unwrapped(model)
    if isinstance(inner, str):
        yield inner
        return
    for attribute in _NAME_ATTRIBUTES:
        name = getattr(inner, attribute, None)
        if isinstance(name, str):
            yield name
