"""`ContextUsageHandler`.

A callback handler that corrects a pipeline's counts by what the provider measured.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult

from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.worker import keep_newest, new_mutex

_RUNS = 256
"""The most runs under way; the oldest may never end."""
_logger = logging.getLogger(__name__)
_left_to_others = ContextVar(
    "whether somebody else observes the usage of the calls that begin here", default=False
)


@contextmanager
def observed_elsewhere() -> Iterator[None]:
    """Makes handlers ignore calls that begin inside, whose usage somebody else observes."""
    token = _left_to_others.set(True)
    try:
        yield
    finally:
        _left_to_others.reset(token)


class ContextUsageHandler(BaseCallbackHandler):
    """Gives the usage that a model reports back to the pipeline that made its prompt.

    See `observe_usage`.

    One handler serves all runs: `model.invoke(messages, config={"callbacks": [handler]})`. Where a
    model streams, it must report its usage (`stream_usage=True`). Calls of the middleware, which
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
        self._runs: dict[UUID, ContextReport] = {}
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
        if _left_to_others.get():
            return
        report = self._pipeline.engine.recent.find(messages[0])
        if report is None:
            _logger.info(
                "Run %s answers none of the latest prompts: its usage is not observed", run_id
            )
            return
        with self._mutex:
            keep_newest(self._runs, run_id, report, _RUNS)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Gives the usage of the answer to the pipeline."""
        with self._mutex:
            report = self._runs.pop(run_id, None)
        said = (getattr(one, "message", None) for one in chain.from_iterable(response.generations))
        answer = next(
            (one for one in said if isinstance(one, AIMessage) and one.usage_metadata), None
        )
        if report is None or answer is None:
            return
        try:
            self._pipeline.observe_usage(answer, report=report)
        except InputError as error:
            _logger.warning("The usage of run %s is ignored: %s", run_id, error)
        else:
            with self._mutex:
                self.observed += 1

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forgets the run: it has no usage."""
        with self._mutex:
            self._runs.pop(run_id, None)
