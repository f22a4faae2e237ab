"""How large a model's window is: from its profile, else from the server that serves it, else from the settings.

The order; nothing further down is asked once the window is known:

1. `profile`: `max_input_tokens` of `model.profile`, also behind `bind`, `with_config` and `with_retry`. Of a model
   given by its name, the profile that langchain-openai carries for it. No network, no API key.
2. `served`: what the server at the model object's own base URL says of the model; how it is asked is in `serving`.
3. `settings`: `window_tokens`, or a `num_ctx` of the model object whose server does not answer.

Nobody tells: `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from langchain_ctxbudget.core.tokens import PROVIDER_PREFIX, unwrapped
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.serving import ask, server_of, token_count

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import

WindowSource = Literal["profile", "served", "settings", "unknown"]

_SNAPSHOT_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What is known of a model's window, and where from.

    Example:
        >>> Window(tokens=8_192, source="settings").tokens
        8192
    """

    tokens: int | None = None
    """How much fits into the model, in tokens; None: not known."""
    output_tokens: int | None = None
    """What the model says it may answer with, in tokens; None: it does not say."""
    source: WindowSource = "unknown"
    """Who told `tokens`."""
    detail: str = ""
    """The same in words; addresses come without credentials and queries."""
    failure: str | None = None
    """Why a server that should tell did not; None: it told, or there was none to ask."""


def find_window(model: BaseChatModel | str | None) -> Flow[Window]:
    """What the model's profile, else its server, tells of its window; never an exception of the network.

    Args:
        model: a chat model, its name, or None. Of names, those of OpenAI's models are known.

    Example:
        >>> from langchain_ctxbudget.flow import drive
        >>> drive(find_window("openai:gpt-4o")).tokens
        128000
    """
    if model is None:
        return Window()
    if isinstance(model, str):
        return _window_of_name(model)
    inner = unwrapped(model)
    window = _window_of_profile(getattr(inner, "profile", None), f"the profile of {type(inner).__name__}")
    if window.tokens is not None:
        return window
    server = server_of(inner)
    if server is None:
        return window
    answer = yield from ask(server)
    if answer.tokens is not None:
        output_tokens = answer.output_tokens or window.output_tokens
        return Window(tokens=answer.tokens, output_tokens=output_tokens, source="served", detail=answer.detail)
    if server.num_ctx is not None:  # every request asks Ollama for it, so it holds whatever the server says
        window = replace(window, tokens=server.num_ctx, source="settings", detail="num_ctx of the model")
    return replace(window, failure=answer.failure)


def with_setting(window: Window, window_tokens: int | None) -> Window:
    """The window, or the setting where the window is not known.

    Args:
        window: what was found.
        window_tokens: the setting, in tokens; None: not set.

    Example:
        >>> with_setting(Window(tokens=4_096, source="profile"), 8_192).tokens
        4096
        >>> with_setting(Window(), 8_192).source
        'settings'
    """
    if window.tokens is not None or window_tokens is None:
        return window
    return replace(window, tokens=window_tokens, source="settings", detail="window_tokens")


def _window_of_profile(profile: object, detail: str) -> Window:
    if not isinstance(profile, Mapping):
        return Window()
    tokens = token_count(profile.get("max_input_tokens"))
    output_tokens = token_count(profile.get("max_output_tokens"))
    if tokens is None:
        return Window(output_tokens=output_tokens)
    return Window(tokens=tokens, output_tokens=output_tokens, source="profile", detail=detail)


def _window_of_name(name: str) -> Window:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - takes a second to import
    from pydantic import SecretStr  # noqa: PLC0415

    model = PROVIDER_PREFIX.sub("", name.strip())
    # A dated snapshot without a profile of its own has the window of its model.
    for known_as in dict.fromkeys((model, _SNAPSHOT_DATE.sub("", model))):
        # The profile is a table in the package; nothing is called, so the key is never sent.
        profile = ChatOpenAI(model=known_as, api_key=SecretStr("not-used")).profile
        window = _window_of_profile(profile, f"the profile of {known_as}")
        if window.tokens is not None:
            return window
    return Window()
