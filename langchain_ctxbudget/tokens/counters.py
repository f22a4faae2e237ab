"""Counting tokens: exactly where the tokenizer is known, with a margin where it is not.

The package carries the vocabulary of o200k_base (gpt-4o and everything after it); older ones are
fetched by tiktoken.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from fractions import Fraction
from math import ceil
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import parts_of
from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError, checks_names
from langchain_ctxbudget.messages import encodable
from langchain_ctxbudget.providers import (
    OPENAI,
    Framing,
    MediaRates,
    model_names,
    profile_of,
    unwrapped,
    with_media_behind,
)
from langchain_ctxbudget.tokens import cost, schemas, vocab
from langchain_ctxbudget.worker import new_mutex

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable
    from tiktoken import Encoding
    from tokenizers import Tokenizer

ChatModel: TypeAlias = "Runnable[Any, Any]"
"""A chat model, also one that is bound or has fallbacks. Under this name, annotations do not import
the class, which takes 0.2 s."""
CountMode = Literal["exact", "estimated"]
PROVIDER_PREFIX = re.compile(
    r"^(?:(?:openai|azure|azure_openai|azure_ai|openrouter)[:/])+", re.IGNORECASE
)
"""A prefix that may stand before the name of an OpenAI model."""
_CACHED_TEXTS = 65_536
"""Texts whose counts are kept."""
_CARRIED = frozenset({"o200k_base", "o200k_harmony"})
"""Encodings whose vocabulary is here; they differ in special tokens only."""
_O200K_FAMILIES = ("gpt-4o", "gpt-4.1", "gpt-5", "gpt-6")
"""Beginnings of names that tiktoken does not know, as `ChatOpenAI` takes them."""
_COUNTING_METHODS = ("get_num_tokens_from_messages", "get_num_tokens", "get_token_ids")
_OLDER_FUNCTION_TOKENS = 10
"""The frame of one function, for models before gpt-4o."""
_CHAT_FRAMING = Framing(message_tokens=5)
_CHAT_REPLY_TOKENS = 5
_MEDIA_OF_GPT_4O = OPENAI.media.rates_for("gpt-4o")
_EARLIER_MEDIA = "image=ImageRate(base_tokens=85, tile_tokens=170, patch_tokens=0.0)"
"""How the same stands in the identities of counts that earlier versions have stored."""


class _Tally:
    """How many texts were tokenized, of all counters that share their counts."""

    calls: int = 0


class TokenCounter(ABC):
    """Counts tokens; a subclass gives `name`, `mode` and `_count`.

    Counts are cached by content, at most 65,536 of them, so a text is tokenized once. Threads may
    share a counter.

    Example:
        >>> class Characters(TokenCounter):
        ...     name = "characters"
        ...     mode = "estimated"
        ...
        ...     def _count(self, text):
        ...         return len(text)
        >>> Characters().count_text("four")
        4
    """

    name: str
    """The tokenizer, for instance `o200k_base`."""
    mode: CountMode
    is_local: bool = False
    """True where counting asks no server, so that texts can be counted before anybody asks."""
    framing: Framing = Framing()
    """The tokens that the model adds around a message."""
    media: MediaRates = MediaRates()
    """What images, files, sounds and videos cost."""
    has_media_behind: bool = False
    """True if the media of results are sent in messages of the user behind these."""
    _reply_tokens: int = cost.REPLY_TOKENS

    @checks_names()
    def __init__(self) -> None:
        self._lock = new_mutex()
        # A plain dictionary, because a prompt looks up hundreds of counts: a cache of cachetools
        # takes five times as long.
        self._cache: dict[tuple[int, int], int] = {}
        self._tally = _Tally()

    @abstractmethod
    def _count(self, text: str) -> int:
        """Returns the tokens of a text that is not empty."""

    @property
    def identity(self) -> str:
        """A name for its counts: the same after a restart, another for every other way to count."""
        media = _EARLIER_MEDIA if self.media == _MEDIA_OF_GPT_4O else repr(self.media)
        framing = repr(self.framing).removesuffix(")")
        return f"{type(self).__qualname__} {self.name} {framing}, {media})"

    @property
    def calls(self) -> int:
        """Texts that were tokenized so far; a count that was cached is none."""
        return self._tally.calls

    def with_media(self, rates: MediaRates, *, behind_results: bool = False) -> "TokenCounter":
        """Returns a counter of the same texts to which media cost so much; both share counts.

        Args:
            rates: What media cost.
            behind_results: True if those of results are sent in messages of the user behind these;
                a counter with a `count_message` of its own counts results as they stand.
        """
        has_own_rule = type(self).count_message is not TokenCounter.count_message
        behind_results = behind_results and not has_own_rule
        if (rates, behind_results) == (self.media, self.has_media_behind):
            return self
        other = copy(self)
        other.media = rates
        other.has_media_behind = behind_results
        return other

    def count_text(self, text: str) -> int:
        """Returns the tokens of a text; special tokens in it count as text."""
        if not text:
            return 0
        # The key is a hash, so that no text is kept alive.
        key = (hash(text), len(text))
        tokens = self._cache.get(key)
        if tokens is None:
            tokens = self._count(encodable(text))
            with self._lock:
                self._tally.calls += 1
                self._cache[key] = tokens
                if len(self._cache) > _CACHED_TEXTS:
                    oldest = next(iter(self._cache))
                    del self._cache[oldest]
        return tokens

    def count_message(self, message: BaseMessage) -> int:
        """Returns the tokens of a message with its framing, without the priming of the reply.

        With them are those of the message that shows the media of a result behind it, if any does.
        """
        if not self.has_media_behind:
            return self._count_one(message)
        return sum(map(self._count_one, with_media_behind(message)))

    def count_alone(self, message: BaseMessage) -> int:
        """Returns the tokens of a message by itself, wherever its media are sent.

        It is what is stored of a message, and the same for all models of one tokenizer.
        """
        return self._count_one(message) if self.has_media_behind else self.count_message(message)

    def is_sent_alone(self, message: BaseMessage) -> bool:
        """Tells if a message is sent without another one that shows its media."""
        return not self.has_media_behind or len(with_media_behind(message)) == 1

    def _count_one(self, message: BaseMessage) -> int:
        return cost.message_tokens(message, self.count_text, self.framing, self.media)

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the reply's priming included."""
        return sum(map(self.count_message, messages)) + self._reply_tokens

    def count_tools(self, tools: Sequence[Any]) -> int:
        """Returns the tokens of tools (LangChain's, functions, classes, dicts) as they are sent."""
        return schemas.tools_tokens(tools, self.count_text, self.framing.function_tokens)

    def count_tool(self, tool: Any) -> int:  # noqa: ANN401 - tools come in any type
        """Returns the tokens of one tool as it is sent, without the frame that all share."""
        return schemas.tool_tokens(tool, self.count_text, self.framing.function_tokens)

    def count_response_format(self, response_format: Any) -> int:  # noqa: ANN401 - schemas come in any type
        """Returns the tokens of a response format (a dict, a class) as it is sent; 0 for None."""
        return schemas.response_format_tokens(response_format, self.count_text)


class TiktokenCounter(TokenCounter):
    """Counts exactly, with one of OpenAI's tokenizers.

    Example:
        >>> TiktokenCounter("gpt-4o").count_text("Hello, world!")
        4
    """

    mode = "exact"
    is_local = True

    @checks_names()
    def __init__(self, encoding_or_model: str = "o200k_base") -> None:
        """Chooses how to count.

        Args:
            encoding_or_model: an encoding (`o200k_base`) or a model (`gpt-4o`, `openai:gpt-4.1`).

        Raises:
            InputError: It is neither.
            TokenizerUnavailableError: The encoding cannot be fetched.
        """
        super().__init__()
        encoding = _encoding_name(encoding_or_model)
        if encoding is None:
            raise InputError(
                f"{encoding_or_model!r} is neither an encoding such as 'o200k_base' nor the name "
                "of a model whose encoding tiktoken knows, such as 'gpt-4o'. "
                "For other models use EstimatingCounter"
            )
        self.name = encoding
        self.media = OPENAI.media.rates_for(encoding_or_model)
        if encoding == "cl100k_base":
            self.framing = self.framing._replace(function_tokens=_OLDER_FUNCTION_TOKENS)
        self._fetched = None if encoding in _CARRIED else _fetched_encoding(encoding)

    def _count(self, text: str) -> int:
        return vocab.count_tokens(self._fetched or vocab.encoding(), text)


class EstimatingCounter(TokenCounter):
    """Estimates, for models whose tokenizer is not known: two fifths above o200k_base.

    That is enough for 32,000 tokens on English, code, JSON and most European languages; reported
    usage corrects it.

    Example:
        >>> EstimatingCounter().count_text("The kettle is on.") >= TiktokenCounter().count_text(
        ...     "The kettle is on."
        ... )
        True
    """

    name = "estimate"
    mode = "estimated"
    is_local = True

    def _count(self, text: str) -> int:
        return estimate_tokens(text)


class HuggingFaceCounter(TokenCounter):
    """Counts exactly, with the tokenizer of an open model (Llama, Qwen, Gemma, Mistral, ...).

    Takes a `tokenizers.Tokenizer`, which is copied (for a model of the hub
    `Tokenizer.from_pretrained(name)`), or the path of a `tokenizer.json`. Of the chat template it
    knows no more than `framing`: five tokens and the role per message, and five for the reply,
    cover those of Qwen, Llama 3 and Gemma, but not a date or a prompt of its own.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> words = Tokenizer(models.WordLevel({"hello": 0, "world": 1, "?": 2}, unk_token="?"))
        >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> HuggingFaceCounter(words).count_text("hello world")
        2
    """

    mode = "exact"
    is_local = True
    _reply_tokens = _CHAT_REPLY_TOKENS

    @checks_names()
    def __init__(
        self, tokenizer: "Tokenizer | PathLike[str] | str", *, framing: Framing = _CHAT_FRAMING
    ) -> None:
        from tokenizers import Tokenizer  # noqa: PLC0415

        super().__init__()
        self.framing = framing
        try:
            if isinstance(tokenizer, Tokenizer):
                label = f"{type(tokenizer.model).__name__.lower()}-{tokenizer.get_vocab_size()}"
                self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
            else:
                label = "/".join(Path(tokenizer).resolve().parts[-2:])
                self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:
            raise InputError(
                "tokenizer must be a tokenizers.Tokenizer (`backend_tokenizer` of one of "
                f"transformers) or the path of a model's tokenizer.json, not {tokenizer!r} "
                f"({type(error).__name__}: {error})"
            ) from error
        self.name = f"huggingface:{label}"
        # A text that imitates special tokens is text.
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(encodable(text), add_special_tokens=False).ids)


class ModelCounter(TokenCounter):
    """Counts texts with the model's own `get_num_tokens`; the framing by this package's rule.

    A model that counts over the network (Gemini) is asked once per new text, which
    `EstimatingCounter` avoids.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> model = FakeListChatModel(
        ...     responses=["x"], custom_get_token_ids=lambda text: list(map(ord, text))
        ... )
        >>> ModelCounter(model).count_text("four")
        4
    """

    @checks_names()
    def __init__(self, model: ChatModel) -> None:
        """Asks the model, which may be bound, for a first count.

        Raises:
            InputError: It is no chat model.
            TokenizerUnavailableError: The model cannot count.
        """
        super().__init__()
        from langchain_core.language_models import BaseLanguageModel  # noqa: PLC0415 - takes 0.2 s

        inner: Any = unwrapped(model)
        if not isinstance(inner, BaseLanguageModel):
            raise InputError(f"model must be a LangChain chat model, not {type(model).__name__}")
        model_type = type(inner)
        model_name = next(model_names(model), "")
        self.name = f"model:{model_name or model_type.__name__}"
        profile = profile_of(inner)
        self.framing = profile.framing
        self.media = profile.media.rates_for(model_name)
        self._ask: Callable[[str], int] = inner.get_num_tokens
        counts_messages, *counts_texts = (
            getattr(model_type, method) is not getattr(BaseLanguageModel, method)
            for method in _COUNTING_METHODS
        )
        self.mode = "exact" if counts_messages else "estimated"
        try:
            if not any(counts_texts) and not inner.custom_get_token_ids:
                raise NotImplementedError("it would take the tokenizer of GPT-2")  # noqa: TRY301
            self._ask("a")
        except Exception as error:
            raise TokenizerUnavailableError(
                f"{model_type.__name__} cannot count tokens here "
                f"({type(error).__name__}: {error}). Pass another token_counter: "
                "TiktokenCounter for a model of OpenAI, HuggingFaceCounter for one whose "
                "tokenizer is open, EstimatingCounter() for any other"
            ) from error

    def _count(self, text: str) -> int:
        text = encodable(text)
        try:
            return self._ask(text)
        # Tiktoken refuses special tokens and endless white space; a network fails.
        except Exception:  # noqa: BLE001
            return estimate_tokens(text)


class CalibratedCounter(TokenCounter):
    """Multiplies the counts of another counter by a factor.

    Each line is rounded up by itself, so that lines add up.
    """

    def __init__(self, inner: TokenCounter, factor: float) -> None:
        super().__init__()
        self.inner = inner
        self.factor = factor
        self.name = inner.name
        self.mode = inner.mode
        self.framing = inner.framing
        self.media = inner.media
        self.has_media_behind = inner.has_media_behind
        # The factor as it is written: a float a little above 1.1 would make 12 of 10.
        self._ratio = Fraction(str(factor))

    @property
    def identity(self) -> str:
        """A name for its counts: the same after a restart, another for every other way to count."""
        return f"{self.inner.identity} x {self.factor}"

    @property
    def calls(self) -> int:
        """Texts that the other counter has tokenized."""
        return self.inner.calls

    def _count_one(self, message: BaseMessage) -> int:
        rest = self.inner.count_alone(message)
        tokens = 0
        for part in parts_of(message):
            text = part.plain_text
            if text is not None:
                rest -= self.inner.count_text(text)
                tokens += self.count_text(text)
        return self.corrected(rest) + tokens

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the reply's priming included."""
        priming = self.corrected(self.inner.count_messages([]))
        return sum(map(self.count_message, messages)) + priming

    def count_tools(self, tools: Sequence[Any]) -> int:
        """Returns the tokens of tool schemas as they are sent; 0 for none."""
        return self.corrected(self.inner.count_tools(tools))

    def count_tool(self, tool: Any) -> int:  # noqa: ANN401 - tools come in any type
        """Returns the tokens of one tool as it is sent, without the frame that all share."""
        return self.corrected(self.inner.count_tool(tool))

    def count_response_format(self, response_format: Any) -> int:  # noqa: ANN401 - schemas come in any type
        """Returns the tokens of a response format as it is sent; 0 for None."""
        return self.corrected(self.inner.count_response_format(response_format))

    def _count(self, text: str) -> int:
        return sum(self.corrected(self.inner.count_text(piece)) for piece in text_pieces(text))

    def corrected(self, tokens: int) -> int:
        """Returns tokens of the other counter as this one counts them."""
        return ceil(tokens * self._ratio)


def counter_for(model: "ChatModel | str | None") -> TokenCounter:
    """Returns the counter for a model: exact where its tokenizer can be had, else an estimate."""
    if model is None:
        return TiktokenCounter()
    rates = profile_of(model).media.rates_for(next(model_names(model), ""))
    return _text_counter_for(model).with_media(rates)


def _text_counter_for(model: "ChatModel | str") -> TokenCounter:
    for name in model_names(model):
        if _encoding_name(name) is None:
            continue
        try:
            return TiktokenCounter(name)
        except TokenizerUnavailableError:
            break
    return EstimatingCounter()


def _encoding_name(encoding_or_model: str) -> str | None:
    """Returns the encoding of that name or of that model; None where neither is known."""
    if encoding_or_model in _CARRIED:
        return encoding_or_model
    from tiktoken import list_encoding_names  # noqa: PLC0415 - not needed for what is carried
    from tiktoken.model import encoding_name_for_model  # noqa: PLC0415

    model = PROVIDER_PREFIX.sub("", encoding_or_model)
    if model in list_encoding_names():
        return model
    try:
        return encoding_name_for_model(model)
    except KeyError:
        is_o200k = model.lower().startswith(_O200K_FAMILIES)
        return "o200k_base" if is_o200k else None


def _fetched_encoding(encoding: str) -> "Encoding":
    """Returns an encoding that tiktoken fetches, or has fetched before.

    Raises:
        TokenizerUnavailableError: It cannot be fetched.
    """
    from tiktoken import get_encoding  # noqa: PLC0415 - not needed for what is carried

    try:
        return get_encoding(encoding)
    except Exception as error:  # whatever the network, a proxy or the disk of the cache raises
        raise TokenizerUnavailableError(
            f"The encoding {encoding!r} is not carried by this package, and tiktoken could not "
            f"fetch it ({type(error).__name__}: {error}). Set TIKTOKEN_CACHE_DIR to a folder that "
            "holds it, or pass another token_counter: TiktokenCounter('o200k_base') and "
            "EstimatingCounter() need no network"
        ) from error


_BORDER = re.compile(r"(?<=\n)(?=[-\[#<])")
_OTHER_SCRIPT = re.compile("[^\x00-\u024f]")


def text_pieces(text: str) -> list[str]:
    """Cuts a text before every line that begins like one of a fence.

    No tokenizer joins tokens across such a border.
    """
    return _BORDER.split(text)


def estimate_tokens(text: str) -> int:
    """Estimates tokens: two fifths above o200k_base, and a quarter for each non-Latin character.

    Each line of a fence is rounded up by itself, so that lines add up.
    """
    encoding = vocab.encoding()
    tokens = 0
    for piece in text_pieces(text):
        counted = vocab.count_tokens(encoding, piece)
        others = len(_OTHER_SCRIPT.findall(piece))
        # 7/5 of the count and 1/4 of the characters, in twentieths so that nothing is a float.
        twentieths = 28 * counted + 5 * others
        tokens += -(-twentieths // 20)
    return tokens
