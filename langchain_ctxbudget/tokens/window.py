"""How large a model's window is: from its profile, else from its server.

A server is Ollama (`/api/ps`, `/api/show`), or gives a list of models as OpenAI-compatible servers
and LM Studio do. OpenAI and Azure are never asked.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from langchain_ctxbudget.flow import Flow, in_thread
from langchain_ctxbudget.providers import unwrapped
from langchain_ctxbudget.tokens.counters import PROVIDER_PREFIX, ChatModel

_TIMEOUT_SECONDS = 2.0
_LARGEST_WINDOW_TOKENS = 1_000_000_000
"""Larger numbers stand for "no limit": tokenizers of Hugging Face say 10**30."""
_SNAPSHOT_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_API_SUFFIX = re.compile(r"(?:/api|/openai)?/v\d+$")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,10})\s*$", re.MULTILINE)
_LENGTH_KEYS = (
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "loaded_context_length",
    "n_ctx",
)
"""Where vLLM, OpenRouter, Groq, Mistral, LM Studio and llama.cpp (in `meta`) tell the window."""
_NEVER_ASKED = (".openai.com", ".azure.com")


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window, and where it is known from."""

    tokens: int | None = None
    output_tokens: int | None = None
    """The longest answer, in tokens; None where the model does not say."""
    source: Literal["profile", "served", "settings", "unknown"] = "unknown"
    detail: str = ""
    """The source in words; addresses come without credentials and queries."""
    failure: str | None = None
    """Why a server that should tell did not."""

    def or_setting(self, window_tokens: int | None) -> "Window":
        """Returns the window, or the setting (in tokens) where the window is not known."""
        if self.tokens is not None or window_tokens is None:
            return self
        return replace(self, tokens=window_tokens, source="settings", detail="window_tokens")


def token_count(value: object) -> int | None:
    """Returns the value if it is a sound number of tokens, else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= _LARGEST_WINDOW_TOKENS else None


def find_window(model: "ChatModel | str | None") -> Flow[Window]:
    """Finds the window of a model in its profile or at its server.

    It never raises an error of the network.
    """
    if model is None or isinstance(model, str):
        return _window_of_name(model) if model else Window()
    inner = unwrapped(model)
    detail = f"the profile of {type(inner).__name__}"
    window = _window_of_profile(getattr(inner, "profile", None), detail)
    if window.tokens is not None:
        return window
    num_ctx = token_count(getattr(inner, "num_ctx", None))
    if num_ctx is not None:
        return replace(window, tokens=num_ctx, source="settings", detail="num_ctx of the model")
    address = _server_of(inner)
    if not address:
        return window
    served: Window = yield in_thread(partial(_served_window, inner, address, window))
    return served


def _window_of_profile(profile: object, detail: str) -> Window:
    """Returns the window that LangChain's profile of a model names."""
    fields = profile if isinstance(profile, Mapping) else {}
    tokens = token_count(fields.get("max_input_tokens"))
    output_tokens = token_count(fields.get("max_output_tokens"))
    if tokens is None:
        return Window(output_tokens=output_tokens)
    return Window(tokens, output_tokens, "profile", detail)


def _window_of_name(name: str) -> Window:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - takes a second to import

    model = PROVIDER_PREFIX.sub("", name.strip())
    # A dated snapshot without a profile of its own has the window of its model.
    for candidate in dict.fromkeys((model, _SNAPSHOT_DATE.sub("", model))):
        # The profile is a table in the package; nothing is called, so the key is never sent.
        profile = ChatOpenAI(model=candidate, api_key=SecretStr("not-used")).profile
        window = _window_of_profile(profile, f"the profile of {candidate}")
        if window.tokens is not None:
            return window
    return Window()


def _server_of(model: Any) -> str:  # noqa: ANN401 - models are known by what they have, not by their class
    """Returns the base URL of the server that a model names; empty where none may be asked."""
    try:
        url = urlsplit(_given_address(model))
    except ValueError:  # a bracket too many
        return ""
    if url.scheme not in ("http", "https") or f".{url.hostname}".endswith(_NEVER_ASKED):
        return ""
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"


def _given_address(model: Any) -> str:  # noqa: ANN401
    """Returns the address that a model was made with; Ollama's client completes "localhost"."""
    client = getattr(getattr(model, "_client", None), "_client", None)
    addresses = (
        getattr(client, "base_url", None),
        getattr(model, "openai_api_base", None),
        getattr(model, "base_url", None),
    )
    for address in addresses:
        if address:
            return str(address).strip()
    return ""


def _served_window(model: Any, base: str, window: Window) -> Window:  # noqa: ANN401
    """Asks a server; what fails is told without its text, which may hold an address."""
    name = str(getattr(model, "model_name", None) or getattr(model, "model", ""))
    url = urlsplit(base)
    address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
    failures: list[str] = []
    for method, place in _questions(model, base):
        question = f"{method} {urlsplit(place).path}"
        try:
            answer = _answer(model, method, place, name)
            tokens = _length(answer, name.removesuffix(":latest"))
        # Whatever a socket, a certificate, an odd key or an odd answer raises.
        except Exception as error:  # noqa: BLE001
            failures.append(f"{question} failed ({type(error).__name__})")
            continue
        if tokens:
            return replace(window, tokens=tokens, source="served", detail=address)
        failures.append(f"{question} names no length")
    return replace(
        window, failure=f"{address} did not tell the window of {name!r}: {'; '.join(failures)}"
    )


def _questions(model: Any, base: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yields the methods and addresses of the questions to a server, the best first."""
    root = _API_SUFFIX.sub("", base)
    is_ollama = hasattr(model, "num_ctx")
    if is_ollama:
        yield "GET", f"{root}/api/ps"
        yield "POST", f"{root}/api/show"
    else:
        yield "GET", f"{base}/models"
        yield "GET", f"{root}/api/v0/models"


def _answer(model: Any, method: str, place: str, name: str) -> Any:  # noqa: ANN401
    """Asks a server one question, with the key of the model where it has one."""
    import httpx  # noqa: PLC0415 - takes 0.1 s to import

    headers = {}
    secret = getattr(model, "openai_api_key", None)
    if isinstance(secret, SecretStr):
        headers["Authorization"] = f"Bearer {secret.get_secret_value()}"
    body = {"model": name} if method == "POST" else None
    response = httpx.request(method, place, headers=headers, json=body, timeout=_TIMEOUT_SECONDS)
    return response.raise_for_status().json()


def _length(answer: Any, name: str) -> int | None:  # noqa: ANN401
    """Reads the window of a model in what a server answers."""
    if "model_info" in answer:
        return _ollama_length(answer)
    entry = _entry_of(answer, name)
    if entry is None:
        return None
    fields = {**entry, **(entry.get("meta") or {})}
    lengths = (token_count(fields.get(key)) for key in _LENGTH_KEYS)
    return min(filter(None, lengths), default=None)


def _ollama_length(answer: Mapping[str, Any]) -> int | None:
    """Returns the length that a model was trained with, or less where its file says so."""
    in_file = _NUM_CTX.search(answer.get("parameters") or "")
    if in_file is not None:
        return token_count(int(in_file[1]))
    info = answer["model_info"]
    return token_count(info[f"{info['general.architecture']}.context_length"])


def _entry_of(answer: Any, name: str) -> Mapping[str, Any] | None:  # noqa: ANN401
    """Returns the entry of a model in a list; the only model of a list is taken under any name."""
    entries = answer if isinstance(answer, list) else answer.get("data") or answer["models"]
    # LM Studio lists embeddings as well.
    models: list[Mapping[str, Any]] = [
        entry for entry in entries if entry.get("type") != "embeddings"
    ]
    for entry in models:
        names = (str(entry.get(key)).removesuffix(":latest") for key in ("id", "name"))
        if name in names:
            return entry
    # Ollama lists what is loaded, which may be another model.
    if len(models) == 1 and "data" in answer:
        return models[0]
    return None
