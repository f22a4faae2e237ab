"""The size of a model's window: from its profile, else from the server that serves it, else from the settings.

A server is asked only where the model object has a base URL of its own, never OpenAI's or Azure's. A `ChatOllama` is
asked about as Ollama (`POST /api/show`, `GET /api/ps`). Any other server is asked for the list of models that
OpenAI-compatible servers give (`GET {base}/models`: vLLM, SGLang, llama.cpp, OpenRouter, Groq, ...), then for LM
Studio's (`GET /api/v0/models`), then as Ollama, until an answer names a length.

Each request gets 2 seconds and is sent in a worker thread under async. After one that found nobody, or nobody in time,
nothing more is asked. The model's key goes to the base URL's own host only: redirects are not followed.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, urlsplit

from langchain_ctxbudget.flow import Flow, in_thread
from langchain_ctxbudget.tokens.counters import PROVIDER_PREFIX, unwrapped

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import

WindowSource = Literal["profile", "served", "settings", "unknown"]

_ANSWER_SECONDS = 2.0
_CONNECT_SECONDS = 1.0
_LARGEST_ANSWER_BYTES = 10_000_000
_LARGEST_WINDOW_TOKENS = 1_000_000_000
"""Larger numbers stand for "no limit": tokenizers of Hugging Face say 10**30."""
_SUCCESS = 200
_SNAPSHOT_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_API_SUFFIX = re.compile(r"(?:/api|/openai)?/v\d+$")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,10})\s*$", re.MULTILINE)
_NEVER_ASKED = ("openai.com", "openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com")
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    hangs: bool = False
    """True where that server let whoever asked wait: it is not asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """A server that may be asked, and the model to ask it about."""

    base: str = field(repr=False)  # may hold a password
    headers: Mapping[str, str] = field(repr=False)
    address: str
    """The base URL, fit to be shown."""
    model: str
    num_ctx: int | None
    """The window that the model object asks Ollama for, in tokens."""
    is_ollama: bool


class _NotToldError(Exception):
    """A request that brought no window; its text is for `Window.failure`."""

    def __init__(self, reason: str, *, ends: bool = False, hangs: bool = False) -> None:
        super().__init__(reason)
        self.ends, self.hangs = ends or hangs, hangs


def token_count(value: object) -> int | None:
    """Returns the value if it is a sound number of tokens, else None."""
    sound = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_WINDOW_TOKENS
    return value if sound else None  # type: ignore[return-value]


def find_window(model: BaseChatModel | str | None) -> Flow[Window]:
    """Finds the window of a model in its profile or at its server; never raises an error of the network."""
    if model is None:
        return Window()
    if isinstance(model, str):
        return _window_of_name(model)
    inner = unwrapped(model)
    window = _window_of_profile(getattr(inner, "profile", None), f"the profile of {type(inner).__name__}")
    server = server_of(inner) if window.tokens is None else None
    if server is None:
        return window
    answer = yield from _ask(server)
    if answer.tokens is not None:
        return replace(answer, output_tokens=answer.output_tokens or window.output_tokens)
    if server.num_ctx is not None:  # every request asks Ollama for it, so it holds whatever the server says
        window = replace(window, tokens=server.num_ctx, source="settings", detail="num_ctx of the model")
    return replace(window, failure=answer.failure, hangs=answer.hangs)


def with_setting(window: Window, window_tokens: int | None) -> Window:
    """Returns the window, or the setting (in tokens) where the window is not known."""
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


# The server of a model


def server_of(model: Any) -> ModelServer | None:  # noqa: ANN401 - models are known by what they have, not by their class
    """Returns the server at the model's own base URL; None where there is none that may be asked."""
    url = _http_url(_base_url(model) or "")
    host = (url.hostname or "") if url else ""
    if url is None or any(host == domain or host.endswith(f".{domain}") for domain in _NEVER_ASKED):
        return None
    path = url.path.rstrip("/")
    names = (getattr(model, name, None) for name in ("model_name", "model"))
    keys = (_secret(getattr(model, name, None)) for name in ("openai_api_key", "api_key"))
    return ModelServer(
        base=f"{url.scheme}://{url.netloc}{path}",
        headers=next(({"Authorization": f"Bearer {key}"} for key in keys if key), {}),
        address=f"{url.scheme}://{url.netloc.rpartition('@')[2]}{path}",
        model=next((name for name in names if isinstance(name, str)), ""),
        num_ctx=token_count(getattr(model, "num_ctx", None)),
        is_ollama=hasattr(model, "num_ctx"),
    )


def _base_url(model: Any) -> str | None:  # noqa: ANN401
    """Returns the address that the developer gave the model, or that its client was told by the environment."""
    if hasattr(model, "azure_endpoint"):
        return None
    urls = (getattr(model, attribute, None) for attribute in ("openai_api_base", "base_url"))
    given = next((url for url in urls if isinstance(url, str) and url), None)
    if hasattr(model, "num_ctx") and not (given and "://" in given):
        # Ollama's client has completed "localhost", or read OLLAMA_HOST.
        client = getattr(getattr(model, "_client", None), "_client", None)
        return str(getattr(client, "base_url", ""))
    if given:
        return given
    # The openai package reads this variable by itself; a default of a subclass was named by nobody.
    client_url = str(getattr(getattr(model, "root_client", None), "base_url", ""))
    variable = os.environ.get("OPENAI_BASE_URL", "")
    return variable if variable.rstrip("/") == client_url.rstrip("/") else None


def _http_url(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a bracket too many, a port that is no number
        return None
    return parts if sound else None


def _secret(key: object) -> str | None:
    """Returns the text of a `SecretStr`; a key that is made by a function is not made for this."""
    reveal = getattr(key, "get_secret_value", None)
    secret = reveal() if callable(reveal) else key
    return secret if isinstance(secret, str) else None


# Asking it


def _ask(server: ModelServer) -> Flow[Window]:
    """Asks in one dialect after the other until an answer names the window; anything that fails is in `failure`."""
    root = _API_SUFFIX.sub("", server.base)
    dialects = [
        partial(_listed, server, f"{server.base}/models", "OpenAI-compatible server"),
        partial(_listed, server, f"{root}/api/v0/models", "LM Studio"),
        partial(_ollama, server, root),
    ]
    failures: list[str] = []
    hangs = False
    for ask in dialects[2:] if server.is_ollama else dialects:
        try:
            return (yield from ask())
        except _NotToldError as error:
            failures.append(str(error))
            hangs = error.hangs
            if error.ends:
                break
    failure = f"{server.address} did not tell the window of {server.model!r}: {'; '.join(failures)}"
    return Window(failure=failure, hangs=hangs)


def _listed(server: ModelServer, url: str, kind: str) -> Flow[Window]:
    """Reads the window in a list of models; the only model of a list is taken under any name.

    Raises:
        _NotToldError: the list does not have the model, or not its length.
    """
    answer = yield from _exchange(server, "GET", url)
    entries = _entries(answer.get("data") if isinstance(answer, dict) else answer)  # Together sends the bare list
    entry, detail = _named(entries, server.model), f"{kind} at {server.address}"
    if entry is None:
        chat = [entry for entry in entries if entry.get("type") != "embeddings"]  # LM Studio lists both
        if len(chat) != 1:
            raise _NotToldError(f"a list of {len(entries)} models does not have it")
        entry = chat[0]
        detail += f" (its only model is {str(entry.get('id'))[:100]!r})"
    lengths = _numbers(entry, _LENGTHS)
    if not lengths:
        raise _NotToldError("a list of models names no context length")
    outputs = min(_numbers(entry, _OUTPUTS), default=None)
    return Window(tokens=min(lengths), output_tokens=outputs, source="served", detail=detail)


def _ollama(server: ModelServer, root: str) -> Flow[Window]:
    """Reads the length that Ollama uses: `num_ctx` of the model object or of the Modelfile, or of a loaded model."""
    shown = _mapping((yield from _exchange(server, "POST", f"{root}/api/show", {"model": server.model})))
    info, parameters = _mapping(shown.get("model_info")), shown.get("parameters")
    trained = token_count(info.get(f"{info.get('general.architecture')}.context_length"))
    set_there = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    served = server.num_ctx or (token_count(int(set_there[1])) if set_there else None)
    if served is None and trained is None:
        raise _NotToldError("POST /api/show names no context length")
    if served is None:
        with suppress(_NotToldError):
            running = _mapping((yield from _exchange(server, "GET", f"{root}/api/ps"))).get("models")
            served = token_count((_named(_entries(running), server.model) or {}).get("context_length"))
    detail = f"Ollama at {server.address}"
    if served is None:
        detail += " (the length of its training; without num_ctx it may serve less)"
    tokens = min(length for length in (served, trained) if length is not None)
    return Window(tokens=tokens, source="served", detail=detail)


def _named(entries: list[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """Returns the entry of that very name, else the one whose name differs in case or in the tag `:latest`."""
    for form in (str.strip, lambda text: text.casefold().removesuffix(":latest")):
        for entry in entries:
            names = (entry.get(key) for key in ("id", "model", "name"))
            if form(name) in (form(known) for known in names if isinstance(known, str)):
                return entry
    return None


def _numbers(entry: Mapping[str, Any], names: Iterable[str]) -> list[int]:
    places = [entry, *(_mapping(entry.get(nested)) for nested in _NESTED)]
    found = (token_count(place.get(name)) for name in names for place in places)
    return [tokens for tokens in found if tokens is not None]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _exchange(server: ModelServer, method: str, url: str, body: object = None) -> Flow[object]:
    """Sends a request and reads its answer as JSON; raises a `_NotToldError` where there is none.

    It says why without the text of an error, which may hold an address.
    """
    import httpx  # noqa: PLC0415 - takes 0.1 s to import

    asked = f"{method} {urlsplit(url).path}"
    headers = {**server.headers, "Accept-Encoding": "identity"}
    request = {"method": method, "url": url, "headers": headers, "json": body}
    try:
        status, content = yield in_thread(partial(_send, request))
    except (TimeoutError, httpx.TimeoutException) as error:
        raise _NotToldError(f"{asked} got no answer in {_ANSWER_SECONDS:g} s", hangs=True) from error
    except httpx.ConnectError as error:
        raise _NotToldError(f"{asked} could not connect", ends=True) from error
    except OverflowError as error:
        raise _NotToldError(f"{asked} answered more than {_LARGEST_ANSWER_BYTES // 1_000_000} MB") from error
    except Exception as error:  # whatever a socket, a proxy, a certificate or an odd key raises
        raise _NotToldError(f"{asked} failed ({type(error).__name__})") from error
    if status != _SUCCESS:
        raise _NotToldError(f"{asked} answered {status}")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _NotToldError(f"{asked} answered no JSON") from error


def _send(request: dict[str, Any]) -> tuple[int, bytearray]:
    import httpx  # noqa: PLC0415

    content, until = bytearray(), time.monotonic() + _ANSWER_SECONDS
    timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
    verify = request["url"].startswith("https:")  # http has no certificates, and loading them takes 30 ms
    with httpx.Client(timeout=timeout, verify=verify) as client, client.stream(**request) as response:
        for chunk in response.iter_raw():
            content += chunk
            if len(content) > _LARGEST_ANSWER_BYTES:
                raise OverflowError
            if time.monotonic() > until:
                raise TimeoutError
    return response.status_code, content
