"""Whose model a target is, and how long the ids of calls may be that its provider takes.

The model object tells it (`ls_provider` of LangChain's partner classes). A name is looked at only
where there is nothing else: where a model is given by its name, where a class of the application's
own does not tell, and where a class for OpenAI's models talks to another address, which may pass
requests on to anybody.
"""

import re
from typing import Any
from urllib.parse import urlsplit

from langchain_ctxbudget.tokens.counters import model_names, unwrapped

OPENAI_CALL_ID_CHARACTERS = 40
"""The characters of a call's id that OpenAI takes. Others take more, and some read what they have
put into an id."""
_OPENAI_PROVIDERS = frozenset({"openai", "openai-codex"})
_AZURE_PROVIDERS = frozenset({"azure", "azure_openai"})
_GATEWAYS = frozenset({"litellm", "openrouter"})
"""Providers, as LangChain's classes call them, that pass requests on to the provider of the model
that is named."""
_OPENAI_HOSTS = (".openai.com", ".azure.com", ".chatgpt.com")
_OPENAI_PREFIX = re.compile(r"(?:openai|azure|azure_openai)[:/]", re.IGNORECASE)
_OPENAI_NAME = re.compile(r"(?:[\w.-]+[:/])*(?:gpt-|chatgpt|codex|o\d)", re.IGNORECASE)


def longest_call_id(model: object) -> int | None:
    """Returns how many characters the id of a call may have for a model; None: any number."""
    if is_of_openai(model):
        return OPENAI_CALL_ID_CHARACTERS
    return None


def is_of_openai(model: object) -> bool:
    """Tells whether requests for a model, an object or a name, go to OpenAI, or to Azure for it.

    Of a model with fallbacks or alternatives, any may get the request, so that one of OpenAI's is
    enough.
    """
    if model is None:
        return False
    inner: Any = unwrapped(model)
    choices = _choices_of(inner)
    if choices:
        return any(map(is_of_openai, choices))
    if isinstance(inner, str):
        return is_name_of_openai(inner)
    provider = told_provider(inner)
    if provider in _AZURE_PROVIDERS:
        return True
    if provider in _OPENAI_PROVIDERS and not _is_elsewhere(inner):
        return True
    says_nothing = not provider or provider in _OPENAI_PROVIDERS or provider in _GATEWAYS
    return says_nothing and any(map(is_name_of_openai, model_names(inner)))


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


def is_name_of_openai(name: str) -> bool:
    """Tells whether a name is that of a model of OpenAI's, with or without prefixes."""
    stripped = name.strip()
    return bool(_OPENAI_PREFIX.match(stripped) or _OPENAI_NAME.match(stripped))


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
