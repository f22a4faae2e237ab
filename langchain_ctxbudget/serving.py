"""What the server of a model says of its window: Ollama, LM Studio, and whatever lists models as OpenAI does.

A server is asked only where the model object has a base URL of its own, and never OpenAI's or Azure's. A `ChatOllama`
is asked about as Ollama; any other server in this order, until an answer names a length:

1. OpenAI-compatible, `GET {base}/models`: vLLM, SGLang, llama.cpp, OpenRouter, Together, Groq, Mistral
2. LM Studio, `GET {root}/api/v0/models`
3. Ollama, `POST {root}/api/show`

The root is the base URL without its trailing `/v1`, `/api/v1` or `/openai/v1`. Where a server names several lengths
for a model, the smallest counts: a longer request would be refused or cut. The length that a model was trained with
counts only where the server does not say what it serves, and the answer's `detail` says so.

Each request gets 2 seconds, 1 of them to connect (more, where a name resolves slowly or headers come byte by byte);
under async it is sent in a worker thread, as a cancelled asynchronous request can leave its socket open. After one that
found nobody, or nobody in time, nothing more is asked. Answers above 10 MB are not read to their end. The model's key
goes to the scheme, host and port of the base URL and nowhere else: redirects are not followed. The proxies of the
environment are used, as the model itself uses them, save for this machine's own addresses, which no proxy can reach.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from langchain_ctxbudget.flow import Call, Flow

_ANSWER_SECONDS = 2.0
_TIMEOUT = (1.0, _ANSWER_SECONDS, _ANSWER_SECONDS, _ANSWER_SECONDS)  # to connect, read, write, wait for a connection
_LARGEST_ANSWER_BYTES = 10_000_000
_LARGEST_WINDOW_TOKENS = 1_000_000_000
"""Larger numbers stand for "no limit": tokenizers of Hugging Face say 10**30."""

_API_SUFFIX = re.compile(r"(?:/api|/openai)?/v\d+$")
# `parameters` of Ollama is a text of one parameter a line.
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,10})\s*$", re.MULTILINE)
# They name no context length, and Azure's deployments have names that only their owner understands.
_NEVER_ASKED = ("openai.com", "openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com")

_LENGTHS = (
    "max_model_len",  # vLLM, SGLang
    "context_length",  # OpenRouter, Together, Fireworks
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "loaded_context_length",  # LM Studio, of a model in memory
    "n_ctx",  # llama.cpp
)
_OUTPUTS = ("max_completion_tokens", "max_output_tokens")  # Groq and OpenRouter
_NESTED = ("meta", "top_provider")  # llama.cpp; OpenRouter, of the provider that requests go to


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that may be asked, and the model to ask it about."""

    base: str = field(repr=False)  # may hold a password
    root: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    address: str
    """The base URL, fit to be shown."""
    model: str
    num_ctx: int | None
    """The window that the model object asks Ollama for, in tokens."""
    is_ollama: bool
    is_this_machine: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswer:
    """What a server told of the model's window."""

    tokens: int | None = None
    """The window, in tokens; None: it did not tell."""
    output_tokens: int | None = None
    """The longest answer, in tokens; None: it did not tell."""
    detail: str = ""
    """Who told it, and what is special about it."""
    failure: str | None = None
    """What was asked in vain, where there is no window."""


class _NotToldError(Exception):
    """A request that brought no window; its text is for `ServerAnswer.failure`."""

    def __init__(self, reason: str, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.unreachable = unreachable


def token_count(value: object) -> int | None:
    """The value if it is a sound number of tokens, else None.

    Example:
        >>> token_count(8_192), token_count("8192"), token_count(0)
        (8192, None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_WINDOW_TOKENS:
        return value
    return None


def ask(server: Server) -> Flow[ServerAnswer]:
    """Ask in one dialect after the other until an answer names the window; whatever fails is in `failure`."""
    dialects = (_ollama,) if server.is_ollama else (_openai_compatible, _lm_studio, _ollama)
    failures: list[str] = []
    for dialect in dialects:
        try:
            return (yield from dialect(server))
        except _NotToldError as error:
            failures.append(str(error))
            if error.unreachable:
                break
    return ServerAnswer(failure=f"{server.address} did not tell the window of {server.model!r}: {'; '.join(failures)}")


# Whom to ask


def server_of(model: Any) -> Server | None:  # noqa: ANN401 - models are known by what they have, not by their class
    """The server at the model's own base URL; None where there is none that may be asked.

    Args:
        model: a chat model such as `ChatOpenAI` (`openai_api_base`) or `ChatOllama` (`base_url`, `num_ctx`).
    """
    named = _base_url(model)
    url = _http_url(named) if named else None
    if url is None or _is_within(url.hostname or "", _NEVER_ASKED):
        return None
    path = url.path.rstrip("/")
    base = f"{url.scheme}://{url.netloc}{path}"
    names = (getattr(model, name, None) for name in ("model_name", "model"))
    keys = (_secret(getattr(model, name, None)) for name in ("openai_api_key", "api_key"))
    return Server(
        base=base,
        root=_API_SUFFIX.sub("", base),
        headers=next(({"Authorization": f"Bearer {key}"} for key in keys if key), {}),
        address=f"{url.scheme}://{url.netloc.rpartition('@')[2]}{path}",
        model=next((name for name in names if isinstance(name, str)), ""),
        num_ctx=token_count(getattr(model, "num_ctx", None)),
        is_ollama=hasattr(model, "num_ctx"),
        is_this_machine=_is_this_machine(url.hostname or ""),
    )


def _base_url(model: Any) -> str | None:  # noqa: ANN401
    """The address that the developer gave the model; of Ollama's model also the one that its client goes to."""
    if hasattr(model, "azure_endpoint"):
        return None
    urls = (getattr(model, attribute, None) for attribute in ("openai_api_base", "base_url"))
    given = next((url for url in urls if isinstance(url, str) and url), None)
    if hasattr(model, "num_ctx"):
        if given and "://" in given:
            return given
        # The client has completed "localhost", or read OLLAMA_HOST.
        client = getattr(getattr(model, "_client", None), "_client", None)
        return str(getattr(client, "base_url", "")) or None
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


def _is_within(host: str, domains: Iterable[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _is_this_machine(host: str) -> bool:
    if _is_within(host, ("localhost",)):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _secret(key: object) -> str | None:
    """The text of a `SecretStr`; a key that is made by a function is not made for this."""
    reveal = getattr(key, "get_secret_value", None)
    secret = reveal() if callable(reveal) else key
    return secret if isinstance(secret, str) else None


# How each is asked


def _openai_compatible(server: Server) -> Flow[ServerAnswer]:
    """`GET {base}/models`; of llama.cpp also `/props`, where the list names the length of the training only."""
    entry, note = _found((yield from _exchange(server, "GET", f"{server.base}/models")), server.model)
    detail = f"OpenAI-compatible server at {server.address}{note}"
    if not _numbers(entry, _LENGTHS) and (trained := token_count(_mapping(entry.get("meta")).get("n_ctx_train"))):
        try:
            props = _mapping((yield from _exchange(server, "GET", f"{server.root}/props")))
        except _NotToldError:
            props = {}
        served = token_count(_mapping(props.get("default_generation_settings")).get("n_ctx"))
        if served is None:
            detail = f"{detail} (the length of its training; it may serve less)"
        return ServerAnswer(tokens=served or trained, detail=detail)
    return _listed(entry, "GET /models", detail)


def _lm_studio(server: Server) -> Flow[ServerAnswer]:
    """`GET {root}/api/v0/models`: the length that the model is loaded with, else its largest."""
    entry, note = _found((yield from _exchange(server, "GET", f"{server.root}/api/v0/models")), server.model)
    return _listed(entry, "GET /api/v0/models", f"LM Studio at {server.address}{note}")


def _ollama(server: Server) -> Flow[ServerAnswer]:
    """`POST {root}/api/show`: the length of the training, and how much of it Ollama uses.

    That is `num_ctx`, of the model object or else of the Modelfile, or else what `/api/ps` says of a loaded model.
    """
    shown = _mapping((yield from _exchange(server, "POST", f"{server.root}/api/show", {"model": server.model})))
    info = _mapping(shown.get("model_info"))
    trained = token_count(info.get(f"{info.get('general.architecture')}.context_length"))
    served = server.num_ctx or _modelfile_num_ctx(shown.get("parameters"))
    if served is None and trained is None:
        raise _NotToldError("POST /api/show names no context length")
    if served is None:
        served = yield from _loaded_length(server)
    detail = f"Ollama at {server.address}"
    if served is None:
        detail = f"{detail} (the length of its training; without num_ctx it may serve less)"
    return ServerAnswer(tokens=min(tokens for tokens in (served, trained) if tokens is not None), detail=detail)


def _modelfile_num_ctx(parameters: object) -> int | None:
    found = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return token_count(int(found[1])) if found else None


def _loaded_length(server: Server) -> Flow[int | None]:
    """`GET {root}/api/ps`: the length that the model is loaded with, where it is loaded."""
    try:
        running = _mapping((yield from _exchange(server, "GET", f"{server.root}/api/ps")))
    except _NotToldError:
        return None
    entry = _named(_each(dict, running.get("models")), server.model)
    return token_count(entry.get("context_length")) if entry else None


# What they answer


def _found(answer: object, model: str) -> tuple[Mapping[str, Any], str]:
    """The model's entry in a list of models, and a note on it.

    A server of one model is taken to mean it by any name: llama.cpp calls it by its file and takes every name for
    it, and vLLM refuses other names. Of several models, none is taken for one of another name.

    Raises:
        _NotToldError: the list does not have the model.
    """
    entries = _each(dict, answer.get("data") if isinstance(answer, dict) else answer)  # Together sends the bare list
    entry = _named(entries, model)
    if entry is None:
        chat = [entry for entry in entries if entry.get("type") != "embeddings"]  # LM Studio lists both
        if len(chat) != 1:
            raise _NotToldError(f"a list of {len(entries)} models does not have it")
        return chat[0], f" (its only model is {str(chat[0].get('id'))[:100]!r})"
    parent = entry.get("parent")  # of an adapter that vLLM serves
    if not _numbers(entry, _LENGTHS) and isinstance(parent, str):
        return _named(entries, parent) or entry, ""
    return entry, ""


def _named(entries: list[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """The entry of that very name, else the one whose name differs in case or in the tag `:latest`."""
    for form in (str.strip, _plain):
        for entry in entries:
            names = [entry.get("id"), entry.get("model"), entry.get("name"), *_each(str, entry.get("aliases"))]
            if form(name) in map(form, _each(str, names)):
                return entry
    return None


def _plain(name: str) -> str:
    return name.casefold().removesuffix(":latest")


def _listed(entry: Mapping[str, Any], asked: str, detail: str) -> ServerAnswer:
    lengths = _numbers(entry, _LENGTHS)
    if not lengths:
        raise _NotToldError(f"{asked} names no context length")
    return ServerAnswer(tokens=min(lengths), output_tokens=min(_numbers(entry, _OUTPUTS), default=None), detail=detail)


def _numbers(entry: Mapping[str, Any], names: Iterable[str]) -> list[int]:
    """The sound ones of these fields, of the entry and what is nested in it."""
    places = [entry, *(_mapping(entry.get(nested)) for nested in _NESTED)]
    found = (token_count(place.get(name)) for name in names for place in places)
    return [tokens for tokens in found if tokens is not None]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _each(kind: type, value: object) -> list[Any]:
    """The members of that kind, where the value is a list."""
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list) else []


# The transport


def _exchange(server: Server, method: str, url: str, body: object = None) -> Flow[object]:
    """Send a request and read its answer as JSON.

    Raises:
        _NotToldError: no answer, no success, or no JSON.
    """
    asked = f"{method} {urlsplit(url).path}"
    request = {"method": method, "url": url, "headers": {**server.headers, "Accept-Encoding": "identity"}, "json": body}
    options = {"trust_env": not server.is_this_machine, "follow_redirects": False, "timeout": _TIMEOUT}
    options["verify"] = url.startswith("https:")  # http has no certificates to check, and loading them takes 30 ms
    try:
        send = partial(_send, request, options)
        status, content = yield Call(send, lambda: asyncio.to_thread(send))
    except Exception as error:  # whatever a socket, a proxy, a certificate or an odd key raises
        reason, unreachable = _reason(error)
        raise _NotToldError(f"{asked} {reason}", unreachable=unreachable) from error
    if status != 200:  # noqa: PLR2004
        raise _NotToldError(f"{asked} answered {status}")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _NotToldError(f"{asked} answered no JSON") from error


class _Body:
    """The bytes of an answer; raises where they come too late or are too many."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _ANSWER_SECONDS
        self.content = bytearray()

    def add(self, chunk: bytes) -> None:
        self.content += chunk
        if len(self.content) > _LARGEST_ANSWER_BYTES:
            raise OverflowError
        if time.monotonic() > self._until:
            raise TimeoutError


def _send(request: dict[str, Any], options: dict[str, Any]) -> tuple[int, bytearray]:
    import httpx  # noqa: PLC0415 - takes 0.1 s to import

    body = _Body()
    with httpx.Client(**options) as client, client.stream(**request) as response:
        for chunk in response.iter_raw():
            body.add(chunk)
    return response.status_code, body.content


def _reason(error: Exception) -> tuple[str, bool]:
    """Why there is no answer, without the text of the error, which may hold an address; whether nobody is there."""
    import httpx  # noqa: PLC0415

    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return f"got no answer in {_ANSWER_SECONDS:g} s", True
    if isinstance(error, httpx.ConnectError):
        return "could not connect", True
    if isinstance(error, OverflowError):
        return f"answered more than {_LARGEST_ANSWER_BYTES // 1_000_000} MB", False
    return f"failed ({type(error).__name__})", False
