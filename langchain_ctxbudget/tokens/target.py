"""The model that prompts are made for.

How its tokens are counted and corrected, and how large its window is.

The window is that of the model's profile, else what its server says: Ollama (`/api/ps`,
`/api/show`), or a list of models as OpenAI-compatible servers and LM Studio give it. OpenAI and
Azure are never asked.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from langchain_core.messages import BaseMessage
from pydantic import SecretStr

from langchain_ctxbudget.errors import (
    InputError,
    InvalidSettingsError,
    TokenizerUnavailableError,
    require_count,
)
from langchain_ctxbudget.flow import Flow, in_thread
from langchain_ctxbudget.messages import CALL_BLOCKS, block_types
from langchain_ctxbudget.tokens import counters
from langchain_ctxbudget.tokens.provider import longest_call_id
from langchain_ctxbudget.worker import new_mutex

MOST_TIMES = 5
MOST_HIDDEN_TOKENS = 1_000
"""A usage of more than this many times our count, plus this many tokens that a provider adds, is of
another call."""
Model: TypeAlias = "counters.ChatModel | str | None"


def target_key(model: counters.ChatModel) -> tuple[object, ...]:
    """Returns all that a model's counts and its window depend on.

    Models for which it is equal share a target.
    """
    inner = counters.unwrapped(model)
    profile = getattr(inner, "profile", None) or {}
    window = profile.get("max_input_tokens"), profile.get("max_output_tokens")
    own = getattr(
        inner, "__dict__", {}
    ).values()  # what is set: to ask for more could make a client
    addresses = [value for value in own if isinstance(value, str) and ":" in value]
    return (type(inner), *counters.model_names(inner), *addresses, *window)


class ModelTarget:
    """A model as a pipeline sees it; shared by threads and tasks."""

    def __init__(self, model: Model, token_counter: counters.TokenCounter | None) -> None:
        """Choose how to count; the window is found when it is first needed."""
        if token_counter is not None and not isinstance(token_counter, counters.TokenCounter):
            raise InvalidSettingsError(
                f"token_counter must be a TokenCounter, not {type(token_counter).__name__}"
            )
        is_name = isinstance(model, str) and bool(model.strip())
        if not (model is None or is_name or hasattr(counters.unwrapped(model), "get_num_tokens")):
            raise InvalidSettingsError(
                f"model must be a chat model, also a bound one, its name, or None, not {model!r}; of a chain pass its "
                f"model"
            )
        self.model = model
        self.given_counter = token_counter
        self.tokenizer = token_counter or counters.counter_for(model)
        self.counter = self.tokenizer
        """Counts with the corrections that are known."""
        self.calibration = Calibration(exact=self.tokenizer.mode == "exact")
        """The corrections in force."""
        self.longest_call_id = longest_call_id(model)
        """How many characters the model's provider takes for the id of a call; None: any number."""
        self._mutex = new_mutex()
        self._window: Window | None = None

    @property
    def model_name(self) -> str | None:
        """The name of the model; None where it is not known."""
        return None if self.model is None else next(counters.model_names(self.model), None)

    def load(self) -> None:
        """Loads the tokenizer; if it is not available, the first count raises."""
        if self.tokenizer.is_local:
            with suppress(TokenizerUnavailableError):
                self.tokenizer.count_text("a")

    def observe(self, input_tokens: int, counted_tokens: int) -> None:
        """Corrects the counts by what a provider measured for a prompt.

        `InputError` where it cannot be of this one.
        """
        require_count("input_tokens", input_tokens, 0)
        if input_tokens > (most := counted_tokens * MOST_TIMES + MOST_HIDDEN_TOKENS):
            raise InputError(
                f"The provider measured {input_tokens:,} tokens for a prompt that counts {counted_tokens:,}. More than "
                f"{most:,} cannot be its usage, but that of another prompt or of several calls: pass the usage of one "
                f"call, and the report of its prompt"
            )
        with self._mutex:
            self.calibration = self.calibration.observe(counted_tokens, input_tokens)
            factor = self.calibration.factor
            if factor != (
                self.counter.factor if isinstance(self.counter, counters.CalibratedCounter) else 1.0
            ):
                self.counter = (
                    self.tokenizer
                    if factor == 1.0
                    else counters.CalibratedCounter(self.tokenizer, factor)
                )

    def find_window(self) -> "Flow[Window]":
        """Finds the model's window, once."""
        if self._window is None:
            self._window = yield from find_window(self.model)
        return self._window


# The ratio of what a provider measured for a request (`usage_metadata["input_tokens"]`) to our own
# count tells how far the model's tokenizer is from ours, and corrects what is counted next

_STEPS = 20
"""The factor is a multiple of 0.05, so that the counts, and with them the prompt, stay the same
most of the time."""
_LOWEST_STEPS = 10
_FIRST_STEPS = 2 * _STEPS
"""The largest factor that follows from one observation."""
_OBSERVATIONS = 16
_CONFIRMING_SHARE = 4
"""One observation in so many, and at least a second one, makes a ratio more than an accident."""
_BAND = 1.5
"""A usage further above a confirmed ratio is not that of one call, but of several summed up."""
RELIABLE_TOKENS = 500
"""A smaller request consists mostly of tokens that the provider adds to every request."""
_CLIENT_CALLS = {
    *CALL_BLOCKS,
    "computer_call",
    "shell_call",
    "local_shell_call",
    "apply_patch_call",
}
"""Calls that the application runs: its model is called once for each answer."""
_SERVER_BLOCKS = ("_call", "_tool_result", "_tool_use", "mcp_list_tools", "executable_code")
"""How the types of blocks end that tell of tools which the provider runs itself."""


def is_of_one_call(answer: BaseMessage) -> bool:
    """Tells if the usage of an answer covers its prompt alone.

    Not if the provider ran tools in between.
    """
    if any(kind.endswith(_SERVER_BLOCKS) for kind in block_types(answer) - _CLIENT_CALLS):
        return False
    usage = (
        getattr(answer, "usage_metadata", None) or {}
    )  # some do not count what came from a cache
    return bool(
        (usage.get("input_token_details") or {}).get("cache_read", 0)
        <= usage.get("input_tokens", 0)
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor between our counts and a provider's.

    At least 0.5, or 1 where our counts are exact.

    It is the largest ratio of the last 16 requests, rounded up to a multiple of 0.05, that is not
    more than half above one that a quarter of them, and at least two, reach. Exact counts are an
    observation of their own.
    """

    exact: bool = False
    """True where our counts are those of the model's own tokenizer (`TokenCounter.mode`)."""
    requests: tuple[tuple[int, int], ...] = ()
    """The latest requests, oldest first: tokens as we count them, and as the provider did."""

    def observe(self, counted_tokens: int, measured_tokens: int) -> "Calibration":
        """Returns the calibration after one more request."""
        if counted_tokens < RELIABLE_TOKENS or measured_tokens <= 0:
            return self
        return replace(
            self, requests=(*self.requests, (counted_tokens, measured_tokens))[-_OBSERVATIONS:]
        )

    @property
    def factor(self) -> float:
        """The number that counts are multiplied by; 1.0 where nothing was observed."""
        lowest = _STEPS if self.exact else _LOWEST_STEPS
        ratios = [
            max(lowest, -(-measured * _STEPS // counted)) for counted, measured in self.requests
        ]
        ratios += [_STEPS] if self.exact or not ratios else []
        if len(ratios) == 1:
            return min(ratios[0], _FIRST_STEPS) / _STEPS
        confirmed = sorted(ratios, reverse=True)[max(2, len(ratios) // _CONFIRMING_SHARE) - 1]
        return max(ratio for ratio in ratios if ratio <= max(_STEPS, confirmed * _BAND)) / _STEPS


_TIMEOUT = 2.0
_LARGEST_WINDOW_TOKENS = 1_000_000_000
"""Larger numbers stand for "no limit": tokenizers of Hugging Face say 10**30."""
_SNAPSHOT_DATE = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_API_SUFFIX = re.compile(r"(?:/api|/openai)?/v\d+$")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,10})\s*$", re.MULTILINE)
_LENGTHS = (
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "loaded_context_length",
    "n_ctx",
)
"""Where vLLM, OpenRouter, Groq, Mistral, LM Studio and llama.cpp (in `meta`) tell the window."""


@dataclass(frozen=True, slots=True)
class Window:
    """A model's window, and its source."""

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
    sound = (
        isinstance(value, int)
        and not isinstance(value, bool)
        and 0 < value <= _LARGEST_WINDOW_TOKENS
    )
    return value if sound else None  # type: ignore[return-value]


def find_window(model: Model) -> Flow[Window]:
    """Finds the window of a model in its profile or at its server.

    Never raises an error of the network.
    """
    if model is None or isinstance(model, str):
        return _window_of_name(model) if model else Window()
    inner = counters.unwrapped(model)
    window = _window_of_profile(
        getattr(inner, "profile", None), f"the profile of {type(inner).__name__}"
    )
    if window.tokens is None and (num_ctx := token_count(getattr(inner, "num_ctx", None))):
        return replace(window, tokens=num_ctx, source="settings", detail="num_ctx of the model")
    url = _server_of(inner) if window.tokens is None else ""
    return (yield in_thread(partial(_served, inner, url, window))) if url else window


def _window_of_profile(profile: object, detail: str) -> Window:
    known = profile if isinstance(profile, Mapping) else {}
    tokens, output_tokens = (
        token_count(known.get(f"max_{name}_tokens")) for name in ("input", "output")
    )
    return (
        Window(tokens, output_tokens, "profile", detail)
        if tokens
        else Window(output_tokens=output_tokens)
    )


def _window_of_name(name: str) -> Window:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - takes a second to import

    model = counters.PROVIDER_PREFIX.sub("", name.strip())
    # A dated snapshot without a profile of its own has the window of its model.
    for known_as in dict.fromkeys((model, _SNAPSHOT_DATE.sub("", model))):
        # The profile is a table in the package; nothing is called, so the key is never sent.
        profile = ChatOpenAI(model=known_as, api_key=SecretStr("not-used")).profile
        window = _window_of_profile(profile, f"the profile of {known_as}")
        if window.tokens is not None:
            return window
    return Window()


def _server_of(model: Any) -> str:  # noqa: ANN401 - models are known by what they have, not by their class
    """Returns the base URL of the server that a model names; empty where none may be asked."""
    of_client = getattr(getattr(getattr(model, "_client", None), "_client", None), "base_url", None)
    urls = (of_client, getattr(model, "openai_api_base", None), getattr(model, "base_url", None))
    given = next(
        (str(url).strip() for url in urls if url), ""
    )  # Ollama's client completes "localhost"
    try:
        url = urlsplit(given)
    except ValueError:  # a bracket too many
        return ""
    asked = url.scheme in ("http", "https") and not f".{url.hostname}".endswith(
        (".openai.com", ".azure.com")
    )
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}" if asked else ""


def _served(model: Any, base: str, window: Window) -> Window:  # noqa: ANN401
    """Asks a server; what fails is told without its text, which may hold an address."""
    import httpx  # noqa: PLC0415 - takes 0.1 s to import

    name = str(getattr(model, "model_name", None) or getattr(model, "model", ""))
    root = _API_SUFFIX.sub("", base)
    secret = getattr(model, "openai_api_key", None)
    headers = (
        {"Authorization": f"Bearer {secret.get_secret_value()}"}
        if isinstance(secret, SecretStr)
        else {}
    )
    ollama = [("GET", f"{root}/api/ps"), ("POST", f"{root}/api/show")]
    others = [("GET", f"{base}/models"), ("GET", f"{root}/api/v0/models")]
    url = urlsplit(base)
    failures: list[str] = []
    address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
    for method, place in ollama if hasattr(model, "num_ctx") else others:
        body = {"model": name} if method == "POST" else None
        try:
            answer = httpx.request(
                method, place, headers=headers, json=body, timeout=_TIMEOUT
            ).raise_for_status()
            if tokens := _length(answer.json(), name.removesuffix(":latest")):
                return replace(window, tokens=tokens, source="served", detail=address)
            failures.append(f"{method} {urlsplit(place).path} names no length")
        except Exception as error:  # noqa: BLE001 - whatever a socket, a certificate, an odd key or an odd answer raises
            failures.append(f"{method} {urlsplit(place).path} failed ({type(error).__name__})")
    return replace(
        window, failure=f"{address} did not tell the window of {name!r}: {'; '.join(failures)}"
    )


def _length(answer: Any, name: str) -> int | None:  # noqa: ANN401
    """Reads the window of a model in what a server says.

    The only model of a list is taken under any name.
    """
    if (
        "model_info" in answer
    ):  # Ollama: what the model was trained with, or less where its file says so
        info = answer["model_info"]
        in_file = _NUM_CTX.search(answer.get("parameters") or "")
        return token_count(
            int(in_file[1]) if in_file else info[f"{info['general.architecture']}.context_length"]
        )
    entries = answer if isinstance(answer, list) else answer.get("data") or answer["models"]
    chat = [one for one in entries if one.get("type") != "embeddings"]  # LM Studio lists both
    named = [
        one
        for one in chat
        if name in (str(one.get(key)).removesuffix(":latest") for key in ("id", "name"))
    ]
    if not named and (
        len(chat) != 1 or "data" not in answer
    ):  # Ollama lists what is loaded, perhaps another model
        return None
    entry = (named or chat)[0]
    told = (token_count({**entry, **(entry.get("meta") or {})}.get(key)) for key in _LENGTHS)
    return min(filter(None, told), default=None)
