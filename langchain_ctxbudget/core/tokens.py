"""Counting tokens: exactly where the tokenizer is known, never too low where it is not.

`counter_for` chooses. o200k_base (gpt-4o and everything after it) is exact without a network, as the package
carries its vocabulary; the older encodings of OpenAI come from tiktoken, which fetches them once; for all other
models `EstimatingCounter` stands in. What a message costs beyond its texts is in `message_cost`, tools and response
formats in `schema_cost`, images in `image_cost`.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.core import vocab
from langchain_ctxbudget.core.estimate import estimate_tokens, text_pieces
from langchain_ctxbudget.core.image_cost import image_rate
from langchain_ctxbudget.core.message_cost import REPLY_TOKENS, Framing, message_tokens
from langchain_ctxbudget.core.schema_cost import response_format_tokens, tools_tokens
from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import
    from tiktoken import Encoding

# Where the context block ends, the user's own words begin.
_CONTEXT_END = re.compile(r"(?<=</context>\n)")

CountMode = Literal["exact", "estimated"]

_CACHED_TEXTS = 65_536
_KEY_CHARACTERS = 256
"""Longer texts are known by their digest, so that the cache does not keep them alive."""
_CARRIED = frozenset({"o200k_base", "o200k_harmony"})  # they differ in special tokens only, which text has none of
# tiktoken's expression engine gives up on a run of white space of a million characters.
_LONGEST_RUN = 500_000
_LONG_RUN = re.compile(rf"(\s{{{_LONGEST_RUN}}})")
PROVIDER_PREFIX = re.compile(r"^(?:(?:openai|azure|azure_openai|azure_ai|openrouter)[:/])+", re.IGNORECASE)
"""What may stand before the name of one of OpenAI's models."""
# Names that tiktoken does not know yet; the rule of `ChatOpenAI`.
_O200K_FAMILIES = ("gpt-4o", "gpt-4.1", "gpt-5", "gpt-6")
_NAME_ATTRIBUTES = ("tiktoken_model_name", "model_name", "model", "deployment_name", "azure_deployment")


class TokenCounter(ABC):
    """How tokens are counted; a subclass gives `name`, `mode` and `_count`.

    Counts are cached by content, at most 65,536 of them, so a text is tokenized once. Threads may share a counter.

    Example:
        >>> class Characters(TokenCounter):
        ...     name, mode = "characters", "estimated"
        ...
        ...     def _count(self, text):
        ...         return len(text)
        >>> Characters().count_text("four")
        4
    """

    name: str
    """The tokenizer, for instance `o200k_base`."""
    mode: CountMode
    framing: Framing = Framing()
    """What the model adds around a message."""

    def __init__(self) -> None:
        self._start(memory=None)

    @abstractmethod
    def _count(self, text: str) -> int:
        """Tokens of a text that is not empty."""

    @property
    def calls(self) -> int:
        """Texts that were tokenized so far; a count that was cached is none."""
        return self._calls

    def count_text(self, text: str) -> int:
        """Tokens of a text; special tokens in it count as the text they are written as."""
        if not text:
            return 0
        return self._cached(_key(text), lambda: self._count(text) if self._memory is None else self._estimated(text))

    def _cached(self, key: str | bytes, count: Callable[[], int]) -> int:
        """The count that is known by that key, else what `count` answers, which is a call.

        Args:
            key: a short text, or a digest.
            count: counts; may raise, and then nothing is kept.
        """
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
            self._calls += 1
        if self._memory is not None and (remembered := self._memory.remembered(key)) is not None:
            return remembered
        tokens = count()
        with self._lock:
            self._cache[key] = tokens
            if len(self._cache) > _CACHED_TEXTS:
                self._cache.popitem(last=False)
        return tokens

    def remembered(self, key: str | bytes) -> int | None:
        """The count that is known by a key; None where there is none."""
        with self._lock:
            return self._cache.get(key)

    def from_memory(self) -> TokenCounter:
        """A counter of the same kind that never tokenizes: it knows what this one has counted, and estimates."""
        twin = copy(self)
        twin._start(memory=self)  # noqa: SLF001 - its own class
        return twin

    def _start(self, memory: TokenCounter | None) -> None:
        """Begin with nothing counted, and with another counter's memory instead of a tokenizer, if there is one."""
        self._lock = threading.Lock()
        self._cache: OrderedDict[str | bytes, int] = OrderedDict()
        self._calls = 0
        self._memory = memory

    def _estimated(self, text: str) -> int:
        """A count from those of the text's parts, each known or else estimated."""
        parts = [part for piece in text_pieces(text) for part in _CONTEXT_END.split(piece) if part]
        return sum(map(self._estimated_part, parts))

    def _estimated_part(self, text: str) -> int:
        inside = text.strip("\n")  # line breaks at its ends are another token, or part of one
        assert self._memory is not None  # noqa: S101 - only a twin estimates
        for part, more in ((text, 0), (inside, 1)):
            known = self._memory.remembered(_key(part)) if part else 0
            if known is not None:
                return known + more
        return estimate_tokens(text)

    def count_message(self, message: BaseMessage) -> int:
        """Tokens of a message with its framing, without the priming of the reply."""
        return message_tokens(message, self.count_text, self.framing)

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + REPLY_TOKENS

    def count_tools(self, tools: Sequence[Any]) -> int:
        """Tokens of tool schemas as they are sent; 0 for none.

        Args:
            tools: dicts (functions or a provider's own tools), LangChain tools, functions, pydantic classes.
        """
        return tools_tokens(tools, self.count_text, self.framing.function_tokens)

    def count_response_format(self, response_format: Any) -> int:  # noqa: ANN401 - schemas come in any type
        """Tokens of a response format as it is sent; 0 for None.

        Args:
            response_format: a dict, a pydantic class, a TypedDict.
        """
        return response_format_tokens(response_format, self.count_text)


class TiktokenCounter(TokenCounter):
    """Counts exactly, with one of OpenAI's tokenizers.

    Example:
        >>> TiktokenCounter("gpt-4o").count_text("Hello, world!")
        4
    """

    mode = "exact"

    def __init__(self, encoding_or_model: str = "o200k_base") -> None:
        """Choose the tokenizer; the carried one is loaded when it first counts (about 0.1 s, once per process).

        Args:
            encoding_or_model: an encoding (`o200k_base`, `cl100k_base`, ...) or the name of a model (`gpt-4o`,
                `openai:gpt-4.1`, ...).

        Raises:
            InputError: the name is neither.
            TokenizerUnavailableError: the encoding is not carried and cannot be fetched.
        """
        super().__init__()
        encoding = _encoding_name(encoding_or_model)
        if encoding is None:
            raise InputError(
                f"{encoding_or_model!r} is neither an encoding ({', '.join(_encoding_names())}) nor the name of a "
                "model whose encoding tiktoken knows, such as 'gpt-4o'. For other models use EstimatingCounter"
            )
        self.name = encoding
        self.framing = _framing(PROVIDER_PREFIX.sub("", encoding_or_model), encoding)
        self._fetched = None if encoding in _CARRIED else _fetch(encoding)

    def _count(self, text: str) -> int:
        encode = (self._fetched or vocab.encoding()).encode_ordinary
        return sum(len(encode(part)) for part in _parts(text))


class EstimatingCounter(TokenCounter):
    """Estimates, for models whose tokenizer is not known: not below o200k_base, by about a third above it on English.

    On English, code, JSON and most European languages that is enough for tokenizers of 32,000 tokens, too. Smaller
    vocabularies than that of o200k_base cut Arabic, Hindi, Chinese and Korean into up to twice as many tokens as are
    estimated, and those that read digits one by one (Llama 2) cut numbers into three times as many: what a provider
    reports as used corrects this (`CalibratedCounter`).

    Counts add up: lines that begin with `-`, `[`, `#` or `<` cost together what they cost one by one.

    Example:
        >>> EstimatingCounter().count_text("The kettle is on.") >= TiktokenCounter().count_text("The kettle is on.")
        True
    """

    name = "estimate"
    mode = "estimated"

    def _count(self, text: str) -> int:
        return estimate_tokens(text)


def counter_for(model: BaseChatModel | str | None) -> TokenCounter:
    """The counter for a model: exact where its tokenizer is known and can be had, else an estimate.

    Nothing is fetched for a model that is not one of OpenAI's.

    Args:
        model: a chat model, its name, or None for o200k_base.
    """
    if model is None:
        return TiktokenCounter()
    for name in model_names(model):
        if _encoding_name(name):
            try:
                return TiktokenCounter(name)
            except TokenizerUnavailableError:
                break
    return EstimatingCounter()


def unwrapped(model: Any) -> Any:  # noqa: ANN401 - a binding passes for a model everywhere
    """The model itself, of what `bind` and `with_config` wrap."""
    while bound := getattr(model, "bound", None):
        model = bound
    return model


def model_names(model: BaseChatModel | str) -> Iterator[str]:
    """The names by which a model may be known, the one that says most first."""
    if isinstance(model, str):
        yield model
        return
    inner = unwrapped(model)
    for attribute in _NAME_ATTRIBUTES:
        name = getattr(inner, attribute, None)
        if isinstance(name, str):
            yield name


def _encoding_name(encoding_or_model: str) -> str | None:
    """The encoding of that name or of that model; None where neither is known."""
    if encoding_or_model in _CARRIED:
        return encoding_or_model
    from tiktoken.model import encoding_name_for_model  # noqa: PLC0415 - not needed for what is carried

    if encoding_or_model in _encoding_names():
        return encoding_or_model
    model = PROVIDER_PREFIX.sub("", encoding_or_model)
    try:
        return encoding_name_for_model(model)
    except KeyError:
        return "o200k_base" if model.lower().startswith(_O200K_FAMILIES) else None


def _encoding_names() -> list[str]:
    from tiktoken import list_encoding_names  # noqa: PLC0415

    return list_encoding_names()


def _fetch(encoding: str) -> Encoding:
    from tiktoken import get_encoding  # noqa: PLC0415

    try:
        return get_encoding(encoding)
    except Exception as error:  # whatever the network, the proxy or the disk of tiktoken's cache raises
        raise TokenizerUnavailableError(
            f"The encoding {encoding!r} is not carried by this package, and tiktoken could not fetch it "
            f"({type(error).__name__}: {error}). Set TIKTOKEN_CACHE_DIR to a folder that holds it, or pass another "
            "token_counter: TiktokenCounter('o200k_base') and EstimatingCounter() need no network"
        ) from error


def _framing(model: str, encoding: str) -> Framing:
    """The constants of `ChatOpenAI`, for functions of the OpenAI cookbook, for images of OpenAI's vision guide."""
    function_tokens = 10 if encoding == "cl100k_base" else Framing().function_tokens
    if model.startswith("gpt-3.5-turbo-0301"):  # the role is left out where there is a name
        return Framing(message_tokens=4, name_tokens=-1, function_tokens=function_tokens)
    return Framing(function_tokens=function_tokens, image=image_rate(model))


def _parts(text: str) -> list[str]:
    """A text in parts that tiktoken can take; nearly always the text itself."""
    if len(text) <= _LONGEST_RUN:
        return [text]
    return [part for part in _LONG_RUN.split(text) if part]


def encodable(text: str) -> str:
    """A text that UTF-8 can hold: halves of a character joined, those without another half replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _key(text: str) -> str | bytes:
    return text if len(text) <= _KEY_CHARACTERS else _digest(text)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
