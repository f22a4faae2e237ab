"""The size of a model's window: from its profile, else from the server that serves it, else from the settings.

A server is asked only where the model object has a base URL of its own, never OpenAI's or Azure's. A `ChatOllama` is
asked about as Ollama (`POST /api/show`, `GET /api/ps`). Any other server is asked for the list of models that
OpenAI-compatible servers give (`GET {base}/models`: vLLM, SGLang, llama.cpp, OpenRouter, Groq, ...), then for LM
Studio's (`GET /api/v0/models`), then as Ollama, until an answer names a length or nobody answers.

Each request gets 2 seconds and is sent in a worker thread under async. The model's key goes to the base URL's own host
only: redirects are not followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
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


class _NotToldError(Exception):
    """A request that brought no window; its text is for `Window.failure`."""


class _UnreachableError(_NotToldError):
    """Nobody answered, so that nothing more is asked."""


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
    server = None if window.tokens is not None else server_of(inner)
    if server is None:
        return window
    dialects = [server.ollama()]
    if not server.is_ollama:
        lists = ((f"{server.base}/models", "OpenAI-compatible server"), (f"{server.root}/api/v0/models", "LM Studio"))
        dialects = [*(server.listed(url, kind) for url, kind in lists), *dialects]
    failures: list[str] = []
    for ask in dialects:
        try:
            answer = yield from ask
            return replace(answer, output_tokens=answer.output_tokens or window.output_tokens)
        except _NotToldError as error:
            failures.append(str(error))
            if isinstance(error, _UnreachableError):
                break
    if server.num_ctx is not None:  # every request asks Ollama for it, so it holds whatever the server says
        window = replace(window, tokens=server.num_ctx, source="settings", detail="num_ctx of the model")
    failure = f"{server.address} did not tell the window of {server.model!r}: {'; '.join(failures)}"
    return replace(window, failure=failure)


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


def server_of(model: Any) -> ModelServer | None:  # noqa: ANN401 - models are known by what they have, not by their class
    """Returns the server at the model's own base URL; None where there is none that may be asked."""
    try:
        url = urlsplit(_base_url(model).strip())
        sound = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:  # a bracket too many, a port that is no number
        return None
    return ModelServer(model, url) if sound and not f".{url.hostname}".endswith(_NEVER_ASKED) else None


class ModelServer:
    """A server that may be asked about a model."""

    def __init__(self, model: Any, url: SplitResult) -> None:  # noqa: ANN401
        path = url.path.rstrip("/")
        self.base = f"{url.scheme}://{url.netloc}{path}"
        """May hold a password; `address` is fit to be shown."""
        self.address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{path}"
        self.root = _API_SUFFIX.sub("", self.base)
        self.model = str(getattr(model, "model_name", None) or getattr(model, "model", ""))
        self.is_ollama, self.num_ctx = hasattr(model, "num_ctx"), token_count(getattr(model, "num_ctx", None))
        key = getattr(model, "openai_api_key", None) or getattr(model, "api_key", None)
        secret = key.get_secret_value() if isinstance(key, SecretStr) else key
        self._headers = {"Authorization": f"Bearer {secret}"} if isinstance(secret, str) and secret else {}

    def listed(self, url: str, kind: str) -> Flow[Window]:
        """Reads the window in a list of models; the only model of a list is taken under any name."""
        answer = yield from self._exchange("GET", url)
        entries = _entries(answer.get("data") if isinstance(answer, dict) else answer)  # Together sends the bare list
        chat = [entry for entry in entries if entry.get("type") != "embeddings"]  # LM Studio lists both
        entry = _named(entries, self.model) or (chat[0] if len(chat) == 1 else None)
        if entry is None:
            raise _NotToldError(f"a list of {len(entries)} models does not have it")
        lengths = _numbers(entry, _LENGTHS)
        if not lengths:
            raise _NotToldError("a list of models names no context length")
        outputs = min(_numbers(entry, _OUTPUTS), default=None)
        return Window(min(lengths), outputs, "served", f"{kind} at {self.address}")

    def ollama(self) -> Flow[Window]:
        """Reads the length that Ollama uses: `num_ctx` of the model or of the Modelfile, or of a loaded model."""
        shown = _mapping((yield from self._exchange("POST", f"{self.root}/api/show", {"model": self.model})))
        info = _mapping(shown.get("model_info"))
        trained = token_count(info.get(f"{info.get('general.architecture')}.context_length"))
        in_file = _NUM_CTX.search(str(shown.get("parameters")))
        served = self.num_ctx or (token_count(int(in_file[1])) if in_file else None)
        if served is None and trained is not None:
            with suppress(_NotToldError):
                running = _entries(_mapping((yield from self._exchange("GET", f"{self.root}/api/ps"))).get("models"))
                served = token_count(_mapping(_named(running, self.model)).get("context_length"))
        known = [length for length in (served, trained) if length is not None]
        if not known:
            raise _NotToldError("POST /api/show names no context length")
        note = "" if served else " (the length of its training; without num_ctx it may serve less)"
        return Window(min(known), None, "served", f"Ollama at {self.address}{note}")

    def _exchange(self, method: str, url: str, body: object = None) -> Flow[object]:
        """Sends a request and reads its answer as JSON; an error of its text may hold an address."""
        import httpx  # noqa: PLC0415 - takes 0.1 s to import

        asked = f"{method} {urlsplit(url).path}"
        verify = url.startswith("https:")  # http has no certificates, and loading them takes 30 ms
        ask = partial(httpx.request, method, url, headers=self._headers, json=body, verify=verify, timeout=_TIMEOUT)
        try:
            response = yield in_thread(ask)
            answer: object = response.json() if response.is_success else None
        except (httpx.TimeoutException, httpx.ConnectError) as error:
            raise _UnreachableError(f"{asked} found nobody who answers in {_TIMEOUT:g} s") from error
        except Exception as error:  # whatever a socket, a proxy, a certificate, an odd key or no JSON raises
            raise _NotToldError(f"{asked} failed ({type(error).__name__})") from error
        if not response.is_success:
            raise _NotToldError(f"{asked} answered {response.status_code}")
        return answer


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


def _named(entries: list[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """Returns the entry of that name, in any case, with or without the tag `:latest`."""
    wanted = _plain(name)
    return next((one for one in entries if wanted in (_plain(one.get(key)) for key in ("id", "model", "name"))), None)


def _plain(name: object) -> str:
    return str(name).strip().casefold().removesuffix(":latest")


def _numbers(entry: Mapping[str, Any], names: Iterable[str]) -> list[int]:
    places = [entry, *(_mapping(entry.get(nested)) for nested in _NESTED)]
    return [tokens for name in names for place in places if (tokens := token_count(place.get(name))) is not None]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _entries(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
