"""Counters for models that are not of OpenAI: a Hugging Face tokenizer, or the counts of the model itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError
from langchain_ctxbudget.messages.messages import fingerprint
from langchain_ctxbudget.tokens.counters import TokenCounter, encodable, model_names, unwrapped
from langchain_ctxbudget.tokens.estimate import estimate_tokens
from langchain_ctxbudget.tokens.message_cost import REPLY_TOKENS, Framing, image_rate

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from tokenizers import Tokenizer

_CHAT_FRAMING = Framing(message_tokens=5)
_CHAT_REPLY_TOKENS = 5
_TOKENIZER_FILE = "tokenizer.json"
_CALL_KEYS = frozenset({"tool_calls", "function_call", "audio"})


class HuggingFaceCounter(TokenCounter):
    """Counts exactly, with the tokenizer of an open model (Llama, Qwen, Gemma, Mistral, ...).

    A tokenizer does not know the chat template. Five tokens and the role per message, and five for the reply, cover
    those of Qwen, Llama 3 and Gemma. A template's own additions (the date, a system prompt where there is none) are not
    counted.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> words = Tokenizer(models.WordLevel({"hello": 0, "world": 1, "?": 2}, unk_token="?"))
        >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> HuggingFaceCounter(words).count_text("hello world")
        2
    """

    mode = "exact"

    def __init__(self, tokenizer: Tokenizer | PathLike[str] | str, *, framing: Framing = _CHAT_FRAMING) -> None:
        """Load the tokenizer.

        Args:
            tokenizer: a `tokenizers.Tokenizer`, which is copied; a `tokenizer.json` or the folder that holds it; or
                the name of a model on the Hugging Face hub, which is fetched once unless it was fetched before.
            framing: what the model adds around a message.

        Raises:
            InputError: it is none of these, or the file is not a tokenizer's.
            TokenizerUnavailableError: the hub cannot be reached, or has no such model for you.
        """
        super().__init__()
        self.framing = framing
        self._tokenizer, label = _loaded(tokenizer)
        self.name = f"huggingface:{label}"
        self._tokenizer.encode_special_tokens = True  # a text that imitates them is text
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        if getattr(self._tokenizer.model, "dropout", None):
            self._tokenizer.model.dropout = None  # at random, for training

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + _CHAT_REPLY_TOKENS

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(encodable(text), add_special_tokens=False).ids)


class ModelCounter(TokenCounter):
    """Counts with the model's own functions: `get_num_tokens` and `get_num_tokens_from_messages`.

    Each message is counted once. Images, and all that the model cannot count or counts as less, are counted by this
    package's own rule, and nothing is fetched. The counter is `exact` where the model has a function of its own for
    messages; where it has not, messages are counted by this package's own rule with the model's count of texts.

    A model that counts over the network (Anthropic, Gemini) is asked once per new message and text, also per line of
    retrieved text: `EstimatingCounter`, corrected by what the provider reports as used, answers at once.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> model = FakeListChatModel(responses=["x"], custom_get_token_ids=lambda text: list(map(ord, text)))
        >>> ModelCounter(model).count_text("four")
        4
    """

    def __init__(self, model: BaseChatModel) -> None:
        """Ask the model for a first count.

        Args:
            model: a chat model, also one that is bound.

        Raises:
            TokenizerUnavailableError: the model cannot count here.
        """
        super().__init__()
        from langchain_core.language_models import BaseLanguageModel  # noqa: PLC0415 - takes 0.2 s

        self._model: Any = unwrapped(model)
        if not isinstance(self._model, BaseLanguageModel):
            raise InputError(f"model must be a LangChain chat model, not {type(model).__name__}")
        self.name = f"model:{next(model_names(model), type(self._model).__name__)}"
        self.framing = Framing(image=image_rate(next(model_names(model), "")))
        self._reply_tokens = REPLY_TOKENS
        own: Any = type(self._model)
        self._counts_messages = own.get_num_tokens_from_messages is not BaseLanguageModel.get_num_tokens_from_messages
        self._counts_texts = not self._counts_messages or (
            own.get_num_tokens is not BaseLanguageModel.get_num_tokens
            or own.get_token_ids is not BaseLanguageModel.get_token_ids
            or self._model.custom_get_token_ids is not None
        )
        self._ask = _without_fetching(self._model.get_num_tokens_from_messages)
        self._frame_tokens = 0
        self._check()
        self.mode = "exact" if self._counts_messages else "estimated"

    def count_message(self, message: BaseMessage) -> int:
        """Returns the tokens of a message with its framing, without the priming of the reply."""
        if not self._counts_messages:
            return super().count_message(message)
        key = b"message" + bytes.fromhex(fingerprint(message))
        return self._cached(key, lambda: self._asked_message(message))

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Returns the tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + self._reply_tokens

    def _check(self) -> None:
        """Asks for a first count, which tells what the model adds to a request and to a message."""
        if self._counts_messages:
            probe = HumanMessage("a")
            try:
                one_tokens, two_tokens = self._ask([probe]), self._ask([probe, probe])
            except Exception:  # noqa: BLE001 - `ChatOpenAI` with another provider's model, for one
                self._counts_messages = False
            else:
                self._calls += 2
                self._reply_tokens = max(0, 2 * one_tokens - two_tokens)
                self._frame_tokens = one_tokens - 1
        try:
            self._asked_text("a")
        except Exception as error:
            raise TokenizerUnavailableError(
                f"{type(self._model).__name__} cannot count tokens here ({type(error).__name__}: {error}). Pass "
                "another token_counter: TiktokenCounter for a model of OpenAI, HuggingFaceCounter for one whose "
                "tokenizer is open, EstimatingCounter() for any other"
            ) from error
        self._calls += 1

    def _asked_message(self, message: BaseMessage) -> int:
        try:
            tokens = self._ask([message]) - self._reply_tokens
        except Exception:  # noqa: BLE001 - whatever a model raises on what it does not know
            return super().count_message(message)
        return tokens if _is_plain(message) else max(tokens, super().count_message(message))

    def _asked_text(self, text: str) -> int:
        if self._counts_texts:
            return int(self._model.get_num_tokens(text))
        return max(1, self._ask([HumanMessage(text)]) - self._frame_tokens)

    def _count(self, text: str) -> int:
        text = encodable(text)
        try:
            return self._asked_text(text)
        except Exception:  # noqa: BLE001 - tiktoken refuses special tokens and endless white space, a network fails
            return estimate_tokens(text)


def _loaded(tokenizer: Tokenizer | PathLike[str] | str) -> tuple[Tokenizer, str]:
    """Returns a tokenizer of our own, and its label."""
    import tokenizers  # noqa: PLC0415 - not needed by those who only import the package

    if isinstance(tokenizer, tokenizers.Tokenizer):
        kind = type(tokenizer.model).__name__.lower()
        return tokenizers.Tokenizer.from_str(tokenizer.to_str()), f"{kind}-{tokenizer.get_vocab_size()}"
    if not isinstance(tokenizer, str | PathLike):
        raise InputError(
            f"tokenizer must be a tokenizers.Tokenizer, a {_TOKENIZER_FILE} or the name of a model on the Hugging Face "
            f"hub, not {type(tokenizer).__name__}; for a fast tokenizer of transformers pass its `backend_tokenizer`"
        )
    path = Path(tokenizer)
    file = path / _TOKENIZER_FILE if path.is_dir() else path
    if file.is_file():
        return _read(file), file.parent.resolve().name if file.name == _TOKENIZER_FILE else file.stem
    if isinstance(tokenizer, PathLike):
        raise InputError(f"There is no tokenizer at {file}: give the {_TOKENIZER_FILE} of the model, or its folder")
    try:
        return tokenizers.Tokenizer.from_pretrained(tokenizer), tokenizer
    except Exception as error:  # whatever the network, the hub's answer or the disk of its cache raises
        raise TokenizerUnavailableError(
            f"{tokenizer!r} is no file here, and the Hugging Face hub did not give a tokenizer of that name "
            f"({type(error).__name__}: {error}). Give the path of the model's {_TOKENIZER_FILE}, set HF_TOKEN if the "
            "model is gated, or pass EstimatingCounter(), which needs no network"
        ) from error


def _read(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer  # noqa: PLC0415

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:
        raise InputError(f"{file} is not the {_TOKENIZER_FILE} of a Hugging Face tokenizer ({error})") from error


def _without_fetching(function: Callable[..., int]) -> Callable[..., int]:
    """Returns a model's function told not to download images, where it can be told."""
    if "allow_fetching_images" in inspect.signature(function).parameters:
        return partial(function, allow_fetching_images=False)
    return function


def _is_plain(message: BaseMessage) -> bool:
    """Tells if a message is text alone, which any model can count."""
    if not isinstance(message.content, str):
        return False
    return not isinstance(message, AIMessage) or not (
        message.tool_calls or message.invalid_tool_calls or _CALL_KEYS & message.additional_kwargs.keys()
    )
