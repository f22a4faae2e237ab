"""The model that prompts are made for: how its tokens are counted, and how large its window is."""

from __future__ import annotations

import threading

from langchain_core.language_models import BaseChatModel, BaseLanguageModel

from langchain_ctxbudget.core.calibration import CalibratedCounter, Calibration
from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.core.tokens import TokenCounter, counter_for, model_names, unwrapped
from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.flow import Flow, Lock, locked
from langchain_ctxbudget.windows import Window, find_window

NO_CORRECTION = (1.0, 0)
"""By what counts are multiplied, and what is added to every request."""
MOST_TIMES = 5
"""No tokenizer makes so many times as many tokens of a prompt as another."""
MOST_HIDDEN_TOKENS = 1_000
"""What a provider may add to a prompt unseen."""
_SERVERS = ("openai_api_base", "base_url", "azure_endpoint", "endpoint", "anthropic_api_url")
"""Attributes of models that name the server that runs them."""
WINDOW_ATTEMPTS = 3
"""Times that a server which does not tell its model's window is asked."""

Model = BaseChatModel | str | None


def kind_of(model: BaseChatModel) -> tuple[object, ...]:
    """What counting for a model and its window depend on: two objects of one kind are the same target."""
    inner = unwrapped(model)
    profile = getattr(inner, "profile", None) or {}
    server = next((url for name in _SERVERS if (url := getattr(inner, name, None))), None)
    limits = (profile.get("max_input_tokens"), profile.get("max_output_tokens"))
    return (type(inner), *model_names(inner), str(server), *limits)


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
        self.tokenizer = token_counter or counter_for(model)
        self.counter = self.tokenizer
        self.factor = 1.0
        self.model = model
        self.given_counter = token_counter
        self._calibration = Calibration(exact=self.tokenizer.mode == "exact")
        self._correction = NO_CORRECTION
        self._mutex = threading.Lock()
        self._window: Window | None = None
        self._window_attempts = 0
        self._window_lock = Lock()

    @property
    def model_name(self) -> str | None:
        """What the model is called; None where that is not known."""
        return None if self.model is None else next(model_names(self.model), None)

    def observe(self, input_tokens: int, report: ContextReport) -> float:
        """Correct the counts by what a provider measured; the factor from now on.

        Raises:
            InputError: the number is not a count, or cannot be that of this prompt.
        """
        if not isinstance(input_tokens, int) or isinstance(input_tokens, bool) or input_tokens < 0:
            raise InputError(f"input_tokens must be a whole number of at least 0, not {input_tokens!r}")
        if report.forecast:
            raise InputError("The report is a forecast: a prompt of it was never sent")
        if report.tokenizer != self.tokenizer.name:
            raise InputError(
                f"The report was counted with {report.tokenizer!r}, and this pipeline counts with "
                f"{self.tokenizer.name!r}: pass usage to the pipeline that assembled the prompt"
            )
        counted = report.uncorrected_tokens
        most = counted * MOST_TIMES + MOST_HIDDEN_TOKENS
        if input_tokens > most:
            raise InputError(
                f"The provider measured {input_tokens:,} tokens for a prompt that counts {counted:,}. More than "
                f"{most:,} cannot be its usage, but that of another prompt or of several calls: pass the usage of one "
                f"call, and the report of its prompt"
            )
        with self._mutex:
            self._calibration = self._calibration.observe(counted, input_tokens)
            self.factor, extra = self._calibration.factor, self._calibration.request_tokens
            if (self.factor, extra) != self._correction:
                self._correction = self.factor, extra
                corrects = self._correction != NO_CORRECTION
                self.counter = CalibratedCounter(self.tokenizer, self.factor, extra) if corrects else self.tokenizer
            return self.factor

    def find_window(self) -> Flow[Window]:
        """The model's window; a server that does not tell is asked again a few times, then no more."""

        def ask() -> Flow[Window]:
            if self._window is None or (self._window.failure and self._window_attempts < WINDOW_ATTEMPTS):
                self._window_attempts += 1
                self._window = yield from find_window(self.model)
            return self._window

        if self._window is not None and not self._window.failure:
            return self._window
        return (yield from locked(self._window_lock, ask()))
