"""The model that prompts are made for: how its tokens are counted and corrected, and how large its window is."""

from __future__ import annotations

import json
import re
from contextlib import suppress

from langchain_core.language_models import BaseChatModel, BaseLanguageModel

from langchain_ctxbudget.background import new_mutex
from langchain_ctxbudget.errors import InputError, InvalidSettingsError, TokenizerUnavailableError
from langchain_ctxbudget.flow import Flow, Lock, locked
from langchain_ctxbudget.tokens.calibration import CalibratedCounter, Calibration
from langchain_ctxbudget.tokens.counters import PROVIDER_PREFIX, TokenCounter, counter_for, model_names, unwrapped
from langchain_ctxbudget.tokens.windows import Window, find_window

MOST_TIMES = 5
"""No tokenizer makes so many times as many tokens of a prompt as another."""
MOST_HIDDEN_TOKENS = 1_000
"""The most that a provider may add to a prompt unseen."""
WINDOW_ATTEMPTS = 3
"""Times that a server which does not tell its model's window is asked."""
_SERVERS = ("openai_api_base", "base_url", "azure_endpoint", "endpoint", "anthropic_api_url")
"""Attributes of models that name the server that runs them."""
_VERSION = re.compile(r"[-@:](?:v?\d|latest|preview)")

Model = BaseChatModel | str | None


def kind_of(model: BaseChatModel) -> tuple[object, ...]:
    """Returns all that counting for a model and its window depend on: objects of one kind are the same target."""
    inner = unwrapped(model)
    profile = getattr(inner, "profile", None) or {}
    limits = (profile.get("max_input_tokens"), profile.get("max_output_tokens"))
    return (*_identity(inner), *limits)


def _identity(inner: BaseChatModel) -> tuple[object, ...]:
    server = next((url for name in _SERVERS if (url := getattr(inner, name, None))), None)
    return (type(inner), *model_names(inner), str(server))


class ModelTarget:
    """A model as a pipeline sees it; shared by threads and tasks."""

    def __init__(self, model: Model, token_counter: TokenCounter | None) -> None:
        """Choose how to count; the window is found when it is first needed.

        Args:
            model: the model or its name.
            token_counter: None takes the model's.

        Raises:
            InvalidSettingsError: one of them is something else.
        """
        if token_counter is not None and not isinstance(token_counter, TokenCounter):
            raise InvalidSettingsError(f"token_counter must be a TokenCounter, not {type(token_counter).__name__}")
        named = isinstance(model, str) and bool(model.strip())
        if model is not None and not named and not isinstance(unwrapped(model), BaseLanguageModel):
            raise InvalidSettingsError(
                f"model must be a chat model, also a bound one, its name, or None, not {model!r}; of a chain pass its "
                f"model"
            )
        self.model, self.given_counter = model, token_counter
        self.tokenizer = token_counter or counter_for(model)
        self.counter = self.tokenizer
        """Counts with the corrections that are known."""
        self._calibrations: dict[str, Calibration] = {}
        """Corrections for each model that has answered; for the target itself under no name."""
        self._mutex = new_mutex()
        self._window: Window | None = None
        self._window_attempts = 0
        self._window_lock = Lock()

    @property
    def model_name(self) -> str | None:
        """The name of the model; None where it is not known."""
        return None if self.model is None else next(model_names(self.model), None)

    @property
    def identity(self) -> str:
        """Tells the counts for this model, at its server and with its tokenizer, from those for others."""
        kind: tuple[object, ...] = () if self.model is None else (self.model,)
        if self.model is not None and not isinstance(self.model, str):
            kind = _identity(unwrapped(self.model))
        named = (f"{part.__module__}.{part.__qualname__}" if isinstance(part, type) else str(part) for part in kind)
        return json.dumps([*named, self.tokenizer.name])

    @property
    def calibration(self) -> Calibration:
        """The corrections of the counts that are in force."""
        with self._mutex:
            return self._current

    @property
    def _current(self) -> Calibration:
        """The model's own; while there are none, those of a model whose name may be another one of this."""
        blank = Calibration(exact=self.tokenizer.mode == "exact")
        return self._calibrations.get("") or next(iter(self._calibrations.values()), blank)

    @property
    def factor(self) -> float:
        """The number that counts are multiplied by."""
        return self.calibration.factor

    def load(self) -> None:
        """Loads what counting needs; where it cannot be had, whoever counts says so."""
        with suppress(TokenizerUnavailableError):
            self.tokenizer.load()

    def observe(self, input_tokens: int, counted_tokens: int, answered_by: str | None = None) -> None:
        """Corrects the counts by what a provider measured for a prompt.

        What another model has answered, as a fallback does, says nothing of this one: it counts only as long as no
        answer of this model is known, whose name a server may not tell or tell otherwise.

        Args:
            input_tokens: of the answer.
            counted_tokens: our count of its prompt, without any correction.
            answered_by: the model that the answer names.

        Raises:
            InputError: the number is not a count, or cannot be that of this prompt.
        """
        if not isinstance(input_tokens, int) or isinstance(input_tokens, bool) or input_tokens < 0:
            raise InputError(f"input_tokens must be a whole number of at least 0, not {input_tokens!r}")
        most = counted_tokens * MOST_TIMES + MOST_HIDDEN_TOKENS
        if input_tokens > most:
            raise InputError(
                f"The provider measured {input_tokens:,} tokens for a prompt that counts {counted_tokens:,}. More than "
                f"{most:,} cannot be its usage, but that of another prompt or of several calls: pass the usage of one "
                f"call, and the report of its prompt"
            )
        with self._mutex:
            name = self._other_name(answered_by)
            if name in self._calibrations or not name or not any(self._calibrations):
                known = self._calibrations.get(name, Calibration(exact=self.tokenizer.mode == "exact"))
                self._calibrations[name] = known.observe(counted_tokens, input_tokens)
            self._correct()

    def resume(self, calibration: Calibration) -> None:
        """Goes on with corrections that were kept, where none are known yet."""
        with self._mutex:
            if not self._calibrations:
                self._calibrations[""] = calibration
                self._correct()

    def _other_name(self, answered_by: str | None) -> str:
        """Returns the name of the model that has answered; nothing where it is, or may be, this one."""
        own = list(model_names(self.model)) if self.model is not None else []
        same = not own or not answered_by or any(_is_same(name, answered_by) for name in own)
        return "" if same else str(answered_by)

    def _correct(self) -> None:
        """Counts with the corrections that are known; the mutex is held."""
        known, counter = self._current, self.counter
        before = (counter.factor, counter.request_tokens) if isinstance(counter, CalibratedCounter) else (1.0, 0)
        now = (known.factor, known.request_tokens)
        if now != before:
            self.counter = self.tokenizer if now == (1.0, 0) else CalibratedCounter(self.tokenizer, *now)

    def find_window(self) -> Flow[Window]:
        """Finds the model's window; a server that does not tell is asked again a few times, one that hangs is not."""

        def ask() -> Flow[Window]:
            if not self._window_settled:
                self._window_attempts += 1
                self._window = yield from find_window(self.model)
            return self._window or Window()

        if self._window_settled:
            return self._window or Window()
        return (yield from locked(self._window_lock, ask()))

    @property
    def _window_settled(self) -> bool:
        known = self._window
        return known is not None and (not known.failure or known.hangs or self._window_attempts >= WINDOW_ATTEMPTS)


def _is_same(*names: str) -> bool:
    """Tells if two names are those of one model: a provider, a date or a version may stand beside the shorter one."""
    short, long = sorted((PROVIDER_PREFIX.sub("", name.casefold()).rpartition("/")[2] for name in names), key=len)
    return long.startswith(short) and (long == short or _VERSION.match(long, len(short)) is not None)
