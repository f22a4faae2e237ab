"""Corrections of counts between prompts and the store: read once, and kept when they change."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from langgraph.store.base import BaseStore, Item, PutOp

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.pipeline.bookkeeping import Bookkeeping
from langchain_ctxbudget.report.report import ContextReport
from langchain_ctxbudget.stores.records import CountsRecord, Scope
from langchain_ctxbudget.tokens.calibration import Calibration
from langchain_ctxbudget.tokens.target import ModelTarget


class KeptCounts:
    """The corrections of a model's counts that a store has; they are read once."""

    def __init__(self, target: ModelTarget) -> None:
        self.problem = ""
        """Why they could not be read; empty where they were."""
        self._target, self._read = target, False

    def read(self, store: BaseStore) -> Flow[None]:
        """Goes on with the kept corrections; where that fails, the next prompt tries again."""
        if self._read:
            return
        try:
            [found] = yield from batch(store, [CountsRecord.place(self._target.identity)])
            self._read, self.problem = True, ""
            if isinstance(found, Item):
                record = CountsRecord.read(found.value, "the corrections of the counts")
                known = Calibration(exact=self._target.tokenizer.mode == "exact")
                for counted, measured in (*record.requests, *record.small_requests):
                    known = known.observe(counted, measured)
                self._target.resume(known)
        except Exception as error:  # noqa: BLE001 - derived: usage corrects again
            self.problem = f"corrections of the counts not read: {type(error).__name__}: {error}"


def observe(
    target: ModelTarget,
    books: Bookkeeping,
    scope: Scope,
    usage_metadata: Mapping[str, Any],
    report: ContextReport,
    *,
    model: str | None,
    comparable: bool,
) -> float:
    """Corrects the counts by what a provider measured for a prompt, and counts what it used.

    Args:
        target: the model whose counts are corrected.
        books: count the usage.
        scope: the conversation of the prompt.
        usage_metadata: of the answer.
        report: of the prompt.
        model: the one that has answered.
        comparable: True where the usage is that of the prompt alone; else it only counts as used.

    Returns:
        the factor from now on.

    Raises:
        InputError: it is no usage, or cannot be that of this prompt.
    """
    name, before = model or target.model_name, target.counter
    try:
        if comparable:
            _require_own(report, target)
            target.observe(usage_metadata["input_tokens"], report.uncorrected_tokens, model)
    except InputError:
        with suppress(InputError):  # what was used was used, also where it cannot correct anything
            if not report.forecast:
                books.note_usage(scope, usage_metadata, name)
        raise
    if target.counter is not before:
        known = target.calibration
        record = CountsRecord(
            model=target.model_name, requests=tuple(known.requests), small_requests=tuple(known.small_requests)
        )
        place = CountsRecord.place(target.identity)
        books.keep(PutOp(place.namespace, place.key, record.to_value(), index=False))
    books.note_usage(scope, usage_metadata, name)
    return target.factor


def _require_own(report: ContextReport, target: ModelTarget) -> None:
    if report.forecast:
        raise InputError("The report is a forecast: a prompt of it was never sent")
    if report.tokenizer != target.tokenizer.name:
        raise InputError(
            f"The report was counted with {report.tokenizer!r}, and this pipeline counts with "
            f"{target.tokenizer.name!r}: pass usage to the pipeline that assembled the prompt"
        )
