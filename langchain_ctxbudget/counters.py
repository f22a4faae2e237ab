"""Counters for models that are not of OpenAI: a Hugging Face tokenizer, or what the model itself counts.

Their libraries are imported where they are used.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_ctxbudget.core.estimate import estimate_tokens
from langchain_ctxbudget.core.image_cost import image_rate
from langchain_ctxbudget.core.message_cost import REPLY_TOKENS, Framing
from langchain_ctxbudget.core.messages import fingerprint
from langchain_ctxbudget.core.tokens import TokenCounter, encodable, model_names, unwrapped
from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from tokenizers import Tokenizer

_CHAT_FRAMING = Framing(message_tokens=5)
_CHAT_REPLY_TOKENS = 5
_TOKENIZER_FILE = "tokenizer.json"
_CHUNK_CHARACTERS = 100_000
_SPECIAL = re.compile(r"(?<=<)(?=\|)")
_CALL_KEYS = frozenset({"tool_calls", "function_call", "audio"})


class HuggingFaceCounter(TokenCounter):
    """Counts exactly, with the tokenizer of an open model (Llama, Qwen, Gemma, Mistral, ...).

    What stands around a message is the chat template's business, which a tokenizer does not know. Five tokens and the
    role cover the usual ones, each of which takes four and the role:

    - ChatML (Qwen): `<|im_start|>` role, line break, text, `<|im_end|>`, line break;
    - Llama 3: `<|start_header_id|>` role `<|end_header_id|>`, a double line break, text, `<|eot_id|>`;
    - Gemma: `<start_of_turn>` role, line break, text, `<end_of_turn>`, line break.

    The reply is primed with at most four, and the request begins with one. What a template adds of its own accord (the
    date, a system prompt where there is none) is not counted.

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
        """Tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + _CHAT_REPLY_TOKENS

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(encodable(text), add_special_tokens=False).ids)


class ModelCounter(TokenCounter):
    """Counts with the model's own functions: `get_num_tokens` and `get_num_tokens_from_messages`.

    Each message is counted once, so a request costs one call per new message; for `ChatOpenAI` the sum is, to the
    token, what the model answers for the whole request. Nothing is fetched: images, and all that the model cannot
    count or counts as less, are counted by this package's own rule. The counter is `exact` where the model has a
    function of its own for messages. Where it has not, LangChain's would count their text without what stands around
    it, so messages are counted by this package's own rule too, with the model's count of texts.

    A model that counts over the network (Anthropic, Gemini) is asked once per new message and text, also per line of
    what is retrieved: `EstimatingCounter`, corrected by what the provider reports as used, answers at once.

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
        """Tokens of a message with its framing, without the priming of the reply."""
        if not self._counts_messages:
            return super().count_message(message)
        ask = self._asked_message if self._memory is None else super().count_message
        return self._cached(b"message" + bytes.fromhex(fingerprint(message)), lambda: ask(message))

    def count_messages(self, messages: Sequence[BaseMessage]) -> int:
        """Tokens of a request with these messages, the priming of the reply included."""
        return sum(map(self.count_message, messages)) + self._reply_tokens

    def _check(self) -> None:
        """Ask for a first count, and for what the model adds to a request and to a message.

        Raises:
            TokenizerUnavailableError: there is no answer.
        """
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
        except Exception:  # noqa: BLE001 - tiktoken refuses what looks like a special token, and endless white space
            return sum(map(self._count_part, _parts(text)))

    def _count_part(self, text: str) -> int:
        try:
            return self._asked_text(text)
        except Exception:  # noqa: BLE001 - the prompt is made all the same
            return estimate_tokens(text)


def _loaded(tokenizer: Tokenizer | PathLike[str] | str) -> tuple[Tokenizer, str]:
    """A tokenizer of our own, and what to call it."""
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
    """A model's function that is told not to download images, where it knows how not to."""
    if "allow_fetching_images" in inspect.signature(function).parameters:
        return partial(function, allow_fetching_images=False)
    return function


def _is_plain(message: BaseMessage) -> bool:
    """Whether a message is text alone, which any model can count."""
    if not isinstance(message.content, str):
        return False
    return not isinstance(message, AIMessage) or not (
        message.tool_calls or message.invalid_tool_calls or _CALL_KEYS & message.additional_kwargs.keys()
    )


def _parts(text: str) -> list[str]:
    """A text in parts that are not long, and none of which is a special token."""
    return [
        part[start : start + _CHUNK_CHARACTERS]
        for part in _SPECIAL.split(text)
        for start in range(0, len(part), _CHUNK_CHARACTERS)
    ]
