"""`ContextUsageHandler`: corrects a pipeline's counts by what the provider measured."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from time import monotonic
from typing import Any
from uuid import UUID

from cachetools import LRUCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult

from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.worker import new_mutex

_MOST_RUNS = 256
"""The most runs under way that are remembered; the oldest may never end."""
_logger = logging.getLogger(__name__)
_is_observed_elsewhere = ContextVar("is_observed_elsewhere", default=False)
"""True where somebody else observes the usage of the calls that begin."""


@contextmanager
def observed_elsewhere() -> Iterator[None]:
    """Makes handlers ignore calls that begin inside, whose usage somebody else observes."""
    token = _is_observed_elsewhere.set(True)
    try:
        yield
    finally:
        _is_observed_elsewhere.reset(token)


@dataclass(frozen=True, slots=True)
class _Run:
    """A call of a model that is under way."""

    report: ContextReport
    """That of its prompt."""
    began: float
    """On the monotonic clock, in seconds."""


class ContextUsageHandler(BaseCallbackHandler):
    """Gives the usage that a model reports back to the pipeline that made its prompt.

    It calls `ContextPipeline.observe_usage`. One handler serves all runs:
    `model.invoke(messages, config={"callbacks": [handler]})`. A model that streams must report its
    usage (`stream_usage=True`). Calls of the middleware, which
    observes usage by itself, are ignored, and so are those whose prompt is not one of the
    pipeline's latest, word for word: `pipeline.usage.record` counts them. `observed` is the number
    of usages that the pipeline has taken; others are in the log, with the reason.
    """

    run_inline = True  # an async run would send every token of a stream through a thread
    ignore_agent = ignore_chain = ignore_custom_event = ignore_retriever = ignore_retry = True

    @checks_names()
    def __init__(self, pipeline: ContextPipeline) -> None:
        """Serves the pipeline that makes the prompts."""
        super().__init__()
        self.observed = 0
        self._pipeline = pipeline
        self._runs: LRUCache[UUID, _Run] = LRUCache(_MOST_RUNS)
        self._mutex = new_mutex()

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **kwargs: Any,
    ) -> None:
        """Remembers the prompt that the run answers."""
        if _is_observed_elsewhere.get():
            return
        report = self._pipeline.engine.recent.find(messages[0])
        if report is None:
            _logger.info(
                "Run %s answers none of the latest prompts: its usage is not observed", run_id
            )
            return
        with self._mutex:
            self._runs[run_id] = _Run(report, monotonic())

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Gives the usage of the answer to the pipeline."""
        with self._mutex:
            run = self._runs.pop(run_id, None)
        answer = _answer_with_usage(response)
        if run is None or answer is None:
            return
        seconds = monotonic() - run.began
        try:
            self._pipeline.observe_usage(answer, report=run.report, seconds=seconds)
        except InputError as error:
            _logger.warning("The usage of run %s is ignored: %s", run_id, error)
        else:
            with self._mutex:
                self.observed += 1

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forgets the run: it has no usage."""
        with self._mutex:
            self._runs.pop(run_id, None)


def _answer_with_usage(response: LLMResult) -> AIMessage | None:
    """Returns the first message of a response that tells its usage."""
    for generation in chain.from_iterable(response.generations):
        message = getattr(generation, "message", None)
        if isinstance(message, AIMessage) and message.usage_metadata:
            return message
    return None
