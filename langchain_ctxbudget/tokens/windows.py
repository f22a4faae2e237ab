"""The size of a model's window: from its profile, else from the server that serves it, else from the settings.

A server is asked only where the model object has a base URL of its own, never OpenAI's or Azure's. A `ChatOllama` is
asked about as Ollama (`GET /api/ps`, `POST /api/show`). Any other server is asked for the list of models that
OpenAI-compatible servers give (`GET {base}/models`: vLLM, SGLang, llama.cpp, OpenRouter, Groq, ...), then for LM
Studio's (`GET /api/v0/models`), then as Ollama, until an answer names a length or nobody answers.

Each request gets 2 seconds and is sent in a worker thread under async. The model's key goes to the base URL's own host
only: redirects are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from langchain_ctxbudget.flow import Flow, in_thread
from langchain_ctxbudget.tokens.counters import PROVIDER_PREFIX, unwrapped

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import

WindowSource = Literal["profile", "served", "settings", "unknown"]

_TIMEOUT = 2.0
_LARGEST_WINDOW_TOKENS = 1_000_000_000
"""Larger numbers stand for "no limit": tokenizers of Hugging Face say 10**30."""
_SNAPSHOT_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_API_SUFFIX = re.compile(r"(?:/api|/openai)?/v\d+$")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,10})\s*$", re.MULTILINE)
_NEVER_ASKED = (".openai.com", ".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")
_LENGTHS = (
    "max_model_len",  # vLLM, SGLang
    "context_length",  # OpenRouter, Together, Fireworks
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "loaded_context_length",  # LM Studio, of a model in memory
    "n_ctx",  # llama.cpp
)
_OUTPUTS = ("max_completion_tokens", "max_output_tokens")
_NESTED = ("meta", "top_provider")
"""Here llama.cpp has the length that it serves, and OpenRouter the limits of the provider that it asks."""


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window, and its source."""

    tokens: int | None = None
    """The window, in tokens; None where it is not known."""
    output_tokens: int | None = None
    """The longest answer, in tokens; None where the model does not say."""
    source: WindowSource = "unknown"
    """The source of `tokens`."""
    detail: str = ""
    """The same in words; addresses come without credentials and queries."""
    failure: str | None = None
    """Why a server that should tell did not; None where it told, or where there was none to ask."""


def token_count(value: object) -> int | None:
    """Returns the value if it is a sound number of tokens, else None."""
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_WINDOW_TOKENS
    return value if sound else None  # type: ignore[return-value]


def find_window(model: BaseChatModel | str | None) -> Flow[Window]:
    """Finds the window of a model in its profile or at its server; never raises an error of the network."""
    if model is None or isinstance(model, str):
        return _window_of_name(model) if model else Window()
    inner = unwrapped(model)
    window = _window_of_profile(getattr(inner, "profile", None), f"the profile of {type(inner).__name__}")
    url = server_of(inner) if window.tokens is None else None
    return window if url is None else (yield from _served(inner, url, window))


def _served(model: Any, url: SplitResult, window: Window) -> Flow[Window]:  # noqa: ANN401
    """Asks a server in one dialect after the other; what fails is told without its text, which may hold an address."""
    import httpx  # noqa: PLC0415 - takes 0.1 s to import

    path = url.path.rstrip("/")
    base, address = (f"{url.scheme}://{place}{path}" for place in (url.netloc, url.netloc.rpartition("@")[2]))
    root = _API_SUFFIX.sub("", base)
    name, num_ctx = str(getattr(model, "model_name", None) or getattr(model, "model", "")), getattr(model, "num_ctx", 0)
    questions = [("GET", f"{root}/api/ps", "Ollama"), ("POST", f"{root}/api/show", "Ollama")]
    if token_count(num_ctx):  # every request loads the model anew
        del questions[0]
    elif not hasattr(model, "num_ctx"):
        lists = (f"{base}/models", "OpenAI-compatible server"), (f"{root}/api/v0/models", "LM Studio")
        questions = [*(("GET", *one) for one in lists), *questions]
    key = getattr(model, "openai_api_key", None) or getattr(model, "api_key", None)
    secret = key.get_secret_value() if isinstance(key, SecretStr) else key
    headers = {"Authorization": f"Bearer {secret}"} if isinstance(secret, str) and secret else {}
    failures: list[str] = []
    for method, place, kind in questions:
        asked = f"{method} {urlsplit(place).path}"
        body = {"model": name} if method == "POST" else None
        verify = place.startswith("https:")  # http has no certificates, and loading them takes 30 ms
        ask = partial(httpx.request, method, place, headers=headers, json=body, verify=verify, timeout=_TIMEOUT)
        try:
            response = yield in_thread(ask)
            answer = response.json() if response.is_success else None
        except (httpx.TimeoutException, httpx.ConnectError):
            failures.append(f"{asked} found nobody who answers in {_TIMEOUT:g} s")
            break
        except Exception as error:  # noqa: BLE001 - whatever a socket, a certificate, an odd key or no JSON raises
            failures.append(f"{asked} failed ({type(error).__name__})")
            continue
        tokens, output_tokens = _shown(answer, token_count(num_ctx)) if body else _listed(answer, name)
        if tokens is not None:
            return Window(tokens, output_tokens or window.output_tokens, "served", f"{kind} at {address}")
        failures.append(
            f"{asked} names no length" if response.is_success else f"{asked} answered {response.status_code}"
        )
    if token_count(num_ctx):  # Ollama is asked for it, so it holds whatever the server says
        window = replace(window, tokens=num_ctx, source="settings", detail="num_ctx of the model")
    return replace(window, failure=f"{address} did not tell the window of {name!r}: {'; '.join(failures)}")


def _listed(answer: object, name: str) -> tuple[int | None, int | None]:
    """Reads window and longest answer in a list of models; the only model of a list is taken under any name."""
    given = answer if isinstance(answer, list) else _mapping(answer).get("data") or _mapping(answer).get("models")
    entries = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    chat = [one for one in entries if one.get("type") != "embeddings"]  # LM Studio lists both
    named = [one for one in entries if _plain(name) in (_plain(one.get(key)) for key in ("id", "model", "name"))]
    if not named and len(chat) != 1:
        return None, None
    entry = (named or chat)[0]
    places = [entry, *(_mapping(entry.get(nested)) for nested in _NESTED)]
    window, output = (
        min((tokens for one in places for key in keys if (tokens := token_count(one.get(key)))), default=None)
        for keys in (_LENGTHS, _OUTPUTS)
    )
    return window, output


def _shown(answer: object, num_ctx: int | None) -> tuple[int | None, int | None]:
    """Reads the length that Ollama uses: `num_ctx` of the model object or of the Modelfile, at most its training's."""
    info = _mapping(_mapping(answer).get("model_info"))
    trained = token_count(info.get(f"{info.get('general.architecture')}.context_length"))
    in_file = _NUM_CTX.search(str(_mapping(answer).get("parameters")))
    served = num_ctx or (token_count(int(in_file[1])) if in_file else None)
    return min((length for length in (served, trained) if length), default=None), None


def with_setting(window: Window, window_tokens: int | None) -> Window:
    """Returns the window, or the setting (in tokens) where the window is not known."""
    filled = replace(window, tokens=window_tokens, source="settings", detail="window_tokens")
    return window if window.tokens is not None or window_tokens is None else filled


def _window_of_profile(profile: object, detail: str) -> Window:
    known = _mapping(profile)
    tokens, output_tokens = (token_count(known.get(f"max_{name}_tokens")) for name in ("input", "output"))
    if tokens is None:
        return Window(output_tokens=output_tokens)
    return Window(tokens=tokens, output_tokens=output_tokens, source="profile", detail=detail)


def _window_of_name(name: str) -> Window:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - takes a second to import

    model = PROVIDER_PREFIX.sub("", name.strip())
    # A dated snapshot without a profile of its own has the window of its model.
    for known_as in dict.fromkeys((model, _SNAPSHOT_DATE.sub("", model))):
        # The profile is a table in the package; nothing is called, so the key is never sent.
        profile = ChatOpenAI(model=known_as, api_key=SecretStr("not-used")).profile
        window = _window_of_profile(profile, f"the profile of {known_as}")
        if window.tokens is not None:
            return window
    return Window()


def server_of(model: Any) -> SplitResult | None:  # noqa: ANN401 - models are known by what they have, not by their class
    """Returns the model's own base URL; None where there is none that may be asked."""
    try:
        url = urlsplit(_base_url(model).strip())
        sound = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # a bracket too many, a port that is no number
        return None
    return url if sound and not f".{url.hostname}".endswith(_NEVER_ASKED) else None


def _base_url(model: Any) -> str:  # noqa: ANN401
    """Returns the address that the developer gave the model, or that its client was told by the environment."""
    if hasattr(model, "azure_endpoint"):
        return ""
    urls = (getattr(model, attribute, None) for attribute in ("openai_api_base", "base_url"))
    given: str = next((url for url in urls if isinstance(url, str) and url), "")
    if hasattr(model, "num_ctx") and "://" not in given:
        # Ollama's client has completed "localhost", or read OLLAMA_HOST.
        client = getattr(getattr(model, "_client", None), "_client", None)
        return str(getattr(client, "base_url", ""))
    # The openai package reads this variable by itself; a default of a subclass was named by nobody.
    client_url = str(getattr(getattr(model, "root_client", None), "base_url", ""))
    variable = os.environ.get("OPENAI_BASE_URL", "")
    return given or (variable if variable.rstrip("/") == client_url.rstrip("/") else "")


def _plain(name: object) -> str:
    return str(name).strip().casefold().removesuffix(":latest")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
