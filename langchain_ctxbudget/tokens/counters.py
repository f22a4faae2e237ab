"""Counting tokens: exactly where the tokenizer is known, with a margin where it is not.

The package carries the vocabulary of o200k_base (gpt-4o and everything after it); older ones are
fetched by tiktoken.
"""

import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import ceil
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError, checks_names
from langchain_ctxbudget.messages import shown_blocks, text_of
from langchain_ctxbudget.tokens import cost, vocab
from langchain_ctxbudget.tokens.cost import Framing
from langchain_ctxbudget.worker import keep_newest, new_mutex

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from tiktoken import Encoding
    from tokenizers import Tokenizer

ChatModel: TypeAlias = "BaseChatModel"
"""Under this name, annotations do not import the class, which takes 0.2 s."""
CountMode = Literal["exact", "estimated"]
PROVIDER_PREFIX = re.compile(
    r"^(?:(?:openai|azure|azure_openai|azure_ai|openrouter)[:/])+", re.IGNORECASE
)
"""A prefix that may stand before the name of an OpenAI model."""
_CACHED_TEXTS = 65_536
_CARRIED = frozenset(
    {"o200k_base", "o200k_harmony"}
)  # they differ in special tokens only, which text has none of
_O200K_FAMILIES = (
    "gpt-4o",
    "gpt-4.1",
    "gpt-5",
    "gpt-6",
)  # as `ChatOpenAI` takes names that tiktoken does not know
_NAME_ATTRIBUTES = (
    "tiktoken_model_name",
    "model_name",
    "model",
    "deployment_name",
    "azure_deployment",
)
_COUNTING = ("get_num_tokens_from_messages", "get_num_tokens", "get_token_ids")
_CHAT_FRAMING = Framing(message_tokens=5)
_CHAT_REPLY_TOKENS = 5


class TokenCounter(ABC):
    """Counts tokens; a subclass gives `name`, `mode` and `_count`.

    Counts are cached by content, at most 65,536 of them, so a text is tokenized once. Threads may
    share a counter.

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
    is_local: bool = False
    """True where counting asks no server, so that texts can be counted before anybody asks."""
    framing: Framing = Framing()
    """The tokens that the model adds around a message."""
    _reply_tokens: int = cost.REPLY_TOKENS

    @checks_names()
    def __init__(self) -> None:
        self._lock = new_mutex()
        self._cache: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._calls = 0

    @abstractmethod
    def _count(self, text: str) -> int:
        """Returns the tokens of a text that is not empty."""

    @property
    def identity(self) -> str:
        """A name for its counts.

        The same after a restart, and another one for every other way to count.
        """
        return f"{type(self).__qualname__} {self.name} {self.framing}"

    @property
    def calls(self) -> int:
        """Texts that were tokenized so far; a count that was cached is none."""
        return self._calls

    def count_text(self, text: str) -> int:
        """Returns the tokens of a text.

        Special tokens in it count as the text they are written as.
        """
        if not text:
            return 0
        key = hash(text), len(text)  # no text is kept alive
        if (known := self._cache.get(key)) is not None:
            return known
        tokens = self._count(encodable(text))  # as it is sent
        with self._lock:
            self._calls += 1
            return keep_newest(self._cache, key, tokens, _CACHED_TEXTS)

    def count_message(self, message: BaseMessage) -> int:
        """Returns the tokens of a message with its framing, without the priming of the reply."""
        return cost.message_tokens(message, self.count_text, self.framing)

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + self._reply_tokens

    def count_tools(self, tools: Sequence[Any]) -> int:
        """Returns the tokens of tool schemas (LangChain tools, functions, classes, dicts) as sent.

        0 for none.
        """
        return cost.tools_tokens(tools, self.count_text, self.framing.function_tokens)

    def count_response_format(self, response_format: Any) -> int:  # noqa: ANN401 - schemas come in any type
        """Returns the tokens of a response format (a dict, a pydantic class, a TypedDict) as sent.

        0 for None.
        """
        return cost.response_format_tokens(response_format, self.count_text)


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
        """Choose an encoding (`o200k_base`) or a model (`gpt-4o`, `openai:gpt-4.1`).

        An `InputError` for others.
        """
        super().__init__()
        encoding = _encoding_name(encoding_or_model)
        if encoding is None:
            raise InputError(
                f"{encoding_or_model!r} is neither an encoding such as 'o200k_base' nor the name of a model whose "
                "encoding tiktoken knows, such as 'gpt-4o'. For other models use EstimatingCounter"
            )
        self.name = encoding
        rate = cost.image_rate(PROVIDER_PREFIX.sub("", encoding_or_model))
        self.framing = Framing(function_tokens=10 if encoding == "cl100k_base" else 7, image=rate)
        self._fetched: Encoding | None = None
        if encoding not in _CARRIED:
            from tiktoken import get_encoding  # noqa: PLC0415 - not needed for what is carried

            try:
                self._fetched = get_encoding(encoding)
            except (
                Exception
            ) as error:  # whatever the network, the proxy or the disk of tiktoken's cache raises
                raise TokenizerUnavailableError(
                    f"The encoding {encoding!r} is not carried by this package, and tiktoken could not fetch it "
                    f"({type(error).__name__}: {error}). Set TIKTOKEN_CACHE_DIR to a folder that holds it, or pass "
                    "another token_counter: TiktokenCounter('o200k_base') and EstimatingCounter() need no network"
                ) from error

    def _count(self, text: str) -> int:
        return vocab.count_tokens(self._fetched or vocab.encoding(), text)


class EstimatingCounter(TokenCounter):
    """Estimates, for models whose tokenizer is not known.

    Two fifths above the exact count of o200k_base.

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
                f"tokenizer must be a tokenizers.Tokenizer (`backend_tokenizer` of one of transformers) or the path of "
                f"a model's tokenizer.json, not {tokenizer!r} ({type(error).__name__}: {error})"
            ) from error
        self.name = f"huggingface:{label}"
        self._tokenizer.encode_special_tokens = True  # a text that imitates them is text
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(encodable(text), add_special_tokens=False).ids)


class ModelCounter(TokenCounter):
    """Counts texts with the model's own `get_num_tokens`.

    What stands around them, by this package's own rule.

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
    def __init__(self, model: "BaseChatModel") -> None:
        """Ask the model, which may be bound, for a first count.

        `TokenizerUnavailableError` where it cannot.
        """
        super().__init__()
        from langchain_core.language_models import BaseLanguageModel  # noqa: PLC0415 - takes 0.2 s

        inner: Any = unwrapped(model)
        if not isinstance(inner, BaseLanguageModel):
            raise InputError(f"model must be a LangChain chat model, not {type(model).__name__}")
        kind = type(inner)
        model_name = next(model_names(model), "")
        self.name = f"model:{model_name or kind.__name__}"
        self.framing = Framing(image=cost.image_rate(model_name))
        self._ask: Callable[[str], int] = inner.get_num_tokens
        whole, *parts = (
            getattr(kind, name) is not getattr(BaseLanguageModel, name) for name in _COUNTING
        )
        self.mode = "exact" if whole else "estimated"
        try:
            if not any(parts) and not inner.custom_get_token_ids:
                raise NotImplementedError("it would take the tokenizer of GPT-2")  # noqa: TRY301
            self._ask("a")
        except Exception as error:
            raise TokenizerUnavailableError(
                f"{kind.__name__} cannot count tokens here ({type(error).__name__}: {error}). Pass another "
                "token_counter: TiktokenCounter for a model of OpenAI, HuggingFaceCounter for one whose tokenizer is "
                "open, EstimatingCounter() for any other"
            ) from error

    def _count(self, text: str) -> int:
        text = encodable(text)
        try:
            return self._ask(text)
        except Exception:  # noqa: BLE001 - tiktoken refuses special tokens and endless white space, a network fails
            return estimate_tokens(text)


class CalibratedCounter(TokenCounter):
    """Multiplies the counts of another counter by a factor, rounded up, line by line, so that lines add up."""

    def __init__(self, inner: TokenCounter, factor: float) -> None:
        super().__init__()
        self.inner = inner
        self.factor = factor
        self.name = inner.name
        self.mode = inner.mode
        self.framing = inner.framing
        self._ratio = Fraction(
            str(factor)
        )  # as it is written: a float that is above 1.1 would make 11 of 10

    @property
    def identity(self) -> str:
        """A name for its counts.

        The same after a restart, and another one for every other way to count.
        """
        return f"{self.inner.identity} x {self.factor}"

    @property
    def calls(self) -> int:
        """Texts that the other counter has tokenized."""
        return self.inner.calls

    def count_message(self, message: BaseMessage) -> int:
        """Returns the tokens of a message with its framing, without the priming of the reply."""
        tokens = self.inner.count_message(message)
        texts = [text for block in shown_blocks(message) if (text := text_of(block)) is not None]
        rest = tokens - sum(map(self.inner.count_text, texts))
        return self._corrected(rest) + sum(map(self.count_text, texts))

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + self._corrected(
            self.inner.count_messages([])
        )

    def count_tools(self, tools: Sequence[Any]) -> int:
        """Returns the tokens of tool schemas as they are sent; 0 for none."""
        return self._corrected(self.inner.count_tools(tools))

    def count_response_format(self, response_format: Any) -> int:  # noqa: ANN401 - schemas come in any type
        """Returns the tokens of a response format as it is sent; 0 for None."""
        return self._corrected(self.inner.count_response_format(response_format))

    def _count(self, text: str) -> int:
        return sum(self._corrected(self.inner.count_text(piece)) for piece in text_pieces(text))

    def _corrected(self, tokens: int) -> int:
        return ceil(tokens * self._ratio)


def counter_for(model: "BaseChatModel | str | None") -> TokenCounter:
    """Returns the counter for a model.

    Exact where its tokenizer is known and can be had, else an estimate.
    """
    if model is None:
        return TiktokenCounter()
    for name in filter(_encoding_name, model_names(model)):
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


def model_names(model: "BaseChatModel | str") -> Iterator[str]:
    """Yields the names by which a model may be known, the one that says most first."""
    inner = unwrapped(model)
    names = (
        [inner]
        if isinstance(inner, str)
        else [getattr(inner, name, None) for name in _NAME_ATTRIBUTES]
    )
    yield from (name for name in names if isinstance(name, str))


def encodable(text: str) -> str:
    """Returns a text that UTF-8 can hold.

    Halves of a character joined, those without another half replaced.
    """
    if text.isascii():  # as most is, and that is known without a look at it
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _encoding_name(encoding_or_model: str) -> str | None:
    """Returns the encoding of that name or of that model; None where neither is known."""
    if encoding_or_model in _CARRIED:
        return encoding_or_model
    from tiktoken import list_encoding_names  # noqa: PLC0415 - not needed for what is carried
    from tiktoken.model import encoding_name_for_model  # noqa: PLC0415

    model = PROVIDER_PREFIX.sub("", encoding_or_model)
    try:
        return model if model in list_encoding_names() else encoding_name_for_model(model)
    except KeyError:
        return "o200k_base" if model.lower().startswith(_O200K_FAMILIES) else None


_BORDER = re.compile(r"(?<=\n)(?=[-\[#<])")
_OTHER_SCRIPT = re.compile("[^\x00-\u024f]")


def text_pieces(text: str) -> list[str]:
    """Cuts a text before every line that begins as those of a fence.

    No tokenizer joins tokens across such a border.
    """
    return _BORDER.split(text)


def estimate_tokens(text: str) -> int:
    """Estimates tokens.

    Two fifths above o200k_base, as on Latin script, and a quarter per character of others.
    """
    encoding = vocab.encoding()
    return sum(
        -(-(28 * vocab.count_tokens(encoding, piece) + 5 * len(_OTHER_SCRIPT.findall(piece))) // 20)
        for piece in text_pieces(text)
    )
