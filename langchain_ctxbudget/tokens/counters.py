"""Counting tokens: exactly where the tokenizer is known, with a margin where it is not.

o200k_base (gpt-4o and everything after it) is exact without a network, as the package carries its vocabulary; the older
encodings of OpenAI come from tiktoken, which fetches them once. What a message costs beyond its texts is in
`message_cost`, tools and response formats in `schema_cost`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.background import new_mutex
from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError
from langchain_ctxbudget.messages.text import digest
from langchain_ctxbudget.tokens import vocab
from langchain_ctxbudget.tokens.estimate import estimate_tokens
from langchain_ctxbudget.tokens.message_cost import REPLY_TOKENS, Framing, image_rate, message_tokens
from langchain_ctxbudget.tokens.schema_cost import response_format_tokens, tools_tokens

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import
    from tiktoken import Encoding

CountMode = Literal["exact", "estimated"]

PROVIDER_PREFIX = re.compile(r"^(?:(?:openai|azure|azure_openai|azure_ai|openrouter)[:/])+", re.IGNORECASE)
"""May stand before the name of one of OpenAI's models."""
_CACHED_TEXTS = 65_536
_CARRIED = frozenset({"o200k_base", "o200k_harmony"})  # they differ in special tokens only, which text has none of
# Names that tiktoken does not know yet; the rule of `ChatOpenAI`.
_O200K_FAMILIES = ("gpt-4o", "gpt-4.1", "gpt-5", "gpt-6")
_NAME_ATTRIBUTES = ("tiktoken_model_name", "model_name", "model", "deployment_name", "azure_deployment")


class TokenCounter(ABC):
    """Counts tokens; a subclass gives `name`, `mode` and `_count`.

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
    """The tokens that the model adds around a message."""

    def __init__(self) -> None:
        self._lock = new_mutex()
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._calls = 0

    @abstractmethod
    def _count(self, text: str) -> int:
        """Returns the tokens of a text that is not empty."""

    def load(self) -> None:  # noqa: B027 - most have nothing to load
        """Loads what counting needs, which may take long."""

    @property
    def calls(self) -> int:
        """Texts that were tokenized so far; a count that was cached is none."""
        return self._calls

    def count_text(self, text: str) -> int:
        """Returns the tokens of a text; special tokens in it count as the text they are written as."""
        return self._cached(digest(text), lambda: self._count(text)) if text else 0

    def _cached(self, key: bytes, count: Callable[[], int]) -> int:
        """Returns the count known by a digest, so that no text is kept alive, else what `count` answers."""
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
            self._calls += 1
        tokens = count()
        with self._lock:
            self._cache[key] = tokens
            if len(self._cache) > _CACHED_TEXTS:
                self._cache.popitem(last=False)
        return tokens

    def count_message(self, message: BaseMessage) -> int:
        """Returns the tokens of a message with its framing, without the priming of the reply."""
        return message_tokens(message, self.count_text, self.framing)

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + REPLY_TOKENS

    def count_tools(self, tools: Sequence[Any]) -> int:
        """Returns the tokens of tool schemas as they are sent; 0 for none.

        Args:
            tools: dicts (functions or a provider's own tools), LangChain tools, functions, pydantic classes.
        """
        return tools_tokens(tools, self.count_text, self.framing.function_tokens)

    def count_response_format(self, response_format: Any) -> int:  # noqa: ANN401 - schemas come in any type
        """Returns the tokens of a response format (a dict, a pydantic class, a TypedDict) as sent; 0 for None."""
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

    def load(self) -> None:
        """Loads the carried vocabulary."""
        if self._fetched is None:
            vocab.encoding()

    def _count(self, text: str) -> int:
        return vocab.count_tokens(self._fetched or vocab.encoding(), text)


class EstimatingCounter(TokenCounter):
    """Estimates, for models whose tokenizer is not known: two fifths above the exact count of o200k_base.

    That is enough for tokenizers of 32,000 tokens on English, code, JSON and most European languages. Smaller
    vocabularies cut Arabic, Hindi, Chinese and Korean into up to twice as many tokens as are estimated, and those that
    read digits one by one cut numbers into twice as many: what a provider reports as used corrects this.

    Example:
        >>> EstimatingCounter().count_text("The kettle is on.") >= TiktokenCounter().count_text("The kettle is on.")
        True
    """

    name = "estimate"
    mode = "estimated"

    def load(self) -> None:
        """Loads the carried vocabulary."""
        vocab.encoding()

    def _count(self, text: str) -> int:
        return estimate_tokens(text)


def counter_for(model: BaseChatModel | str | None) -> TokenCounter:
    """Returns the counter for a model: exact where its tokenizer is known and can be had, else an estimate.

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
    """Returns the model that `bind` and `with_config` wrap."""
    while bound := getattr(model, "bound", None):
        model = bound
    return model


def model_names(model: BaseChatModel | str) -> Iterator[str]:
    """Yields the names by which a model may be known, the one that says most first."""
    if isinstance(model, str):
        yield model
        return
    inner = unwrapped(model)
    names = (getattr(inner, attribute, None) for attribute in _NAME_ATTRIBUTES)
    yield from (name for name in names if isinstance(name, str))


def encodable(text: str) -> str:
    """Returns a text that UTF-8 can hold: halves of a character joined, those without another half replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _encoding_name(encoding_or_model: str) -> str | None:
    """Returns the encoding of that name or of that model; None where neither is known."""
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
    """Returns the constants of `ChatOpenAI`, for functions of the OpenAI cookbook, for images of the vision guide."""
    function_tokens = 10 if encoding == "cl100k_base" else Framing().function_tokens
    if model.startswith("gpt-3.5-turbo-0301"):  # the role is left out where there is a name
        return Framing(message_tokens=4, name_tokens=-1, function_tokens=function_tokens)
    return Framing(function_tokens=function_tokens, image=image_rate(model))
