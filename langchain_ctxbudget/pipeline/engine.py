"""One model over a workspace: what all prompts that are made with it share."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.messages import AIMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Call, Flow
from langchain_ctxbudget.messages import model_of
from langchain_ctxbudget.pipeline.opening import SessionOpener
from langchain_ctxbudget.pipeline.workspace import LruCache, Workspace
from langchain_ctxbudget.providers import COMMON, model_names, profile_of, unwrapped
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.sentences import reader_version
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import ModelTarget, is_of_one_call, target_key

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable


class Engine:
    """One model over a workspace; threads and tasks share it.

    The prompts of one conversation are made by a `Prompter`.
    """

    def __init__(
        self,
        workspace: Workspace,
        target: ModelTarget,
        system_prompt: str,
        reranker: BaseDocumentCompressor | None,
    ) -> None:
        self.workspace = workspace
        self.settings = workspace.settings
        self.recent = workspace.recent
        self.target = target
        self.system_prompt = system_prompt
        self.reranker = reranker
        self.opener = SessionOpener(workspace, target, system_prompt, reranker)
        self._of_runs: LruCache[Engine] = LruCache()
        self._is_loaded = False

    def over_store(self, store: BaseStore | None) -> "Engine":
        """Returns the same over the store that a run brought along; None is the engine's own."""
        return self._over(self.workspace.over_store(store))

    def where_kept(self) -> "Engine":
        """Returns the same over the store in which the conversations are; see `Workspace`."""
        return self._over(self.workspace.where_kept())

    def _over(self, workspace: Workspace) -> "Engine":
        if workspace is self.workspace:
            return self
        return self._of_runs.find(id(workspace), lambda: self._same(workspace, self.target))

    def for_model(self, model: "Runnable[Any, Any] | str") -> "Engine":
        """Returns the engine for the model of a run, or for one of a name.

        What that does not tell of itself is taken for the engine's.
        """
        is_same = unwrapped(model) is unwrapped(self.target.model)
        profile = profile_of(model)
        if is_same and profile.name == self.target.profile.name:
            return self
        is_named = any(model_names(model))
        tells_provider = profile not in (COMMON, self.target.profile)
        if not (is_named or tells_provider or getattr(model, "profile", None)):
            return self
        counter = self.target.given_counter
        if counter is None and not is_named:
            counter = self.target.tokenizer
        target = ModelTarget(model, counter, self.target.given_profile, prices=self.target.prices)
        return self._of_runs.find(target_key(model), lambda: self._same(self.workspace, target))

    def _same(self, workspace: Workspace, target: ModelTarget) -> "Engine":
        return Engine(workspace, target, self.system_prompt, self.reranker)

    def ready(self) -> Flow[None]:
        """Loads everything that a decision needs ahead of it.

        A blocking call loads it on first use.
        """

        def load() -> None:
            self.target.load()
            _ = self.workspace.embeddings
            reader_version()  # reads the weights

        if not self._is_loaded:
            yield Call(lambda: None, lambda: asyncio.to_thread(load))
            self._is_loaded = True

    def observe(
        self,
        usage_metadata: Mapping[str, Any] | AIMessage | None,
        report: ContextReport | None,
        model: str | None = None,
        seconds: float | None = None,
    ) -> float:
        """Corrects the estimates and books the usage; see `ContextPipeline.observe_usage`."""
        is_comparable = True
        if isinstance(usage_metadata, AIMessage):
            answer = usage_metadata
            model = model or model_of(answer)
            is_comparable = is_of_one_call(answer)
            usage_metadata = cast("Mapping[str, Any] | None", answer.usage_metadata)
        if usage_metadata is None:
            return self.target.calibration.factor

        report = report or self._last_report()
        self._book(usage_metadata, report, model or self.target.model_name, seconds)
        if is_comparable:
            tokenizer = self.target.tokenizer.name
            if report.tokenizer != tokenizer:
                raise InputError(
                    f"The report was counted with {report.tokenizer!r}, and this pipeline counts "
                    f"with {tokenizer!r}: pass usage to the pipeline that assembled the prompt"
                )
            self.target.observe(usage_metadata["input_tokens"], report.uncorrected_tokens)
        return self.target.calibration.factor

    def _last_report(self) -> ContextReport:
        if self.recent.last is None:
            raise InputError(
                "Nothing was assembled yet: pass the report of the prompt that this usage is for"
            )
        return self.recent.last.report()

    def _book(
        self,
        usage_metadata: Mapping[str, Any],
        report: ContextReport,
        model: str | None,
        seconds: float | None,
    ) -> None:
        """Books the usage for a prompt in the books of its store."""
        if report.forecast:
            raise InputError("The report is a forecast: a prompt of it was never sent")
        recent = self.recent.last_of(report.user_id, report.conversation_id)
        if recent is None:
            scope = Scope(report.user_id, report.conversation_id)
            books = self.workspace.workers.bookkeeping
        else:
            scope = recent.scope
            books = recent.books
        books.note(scope, usage_metadata, model, seconds)
        books.worker.submit(scope.user_id)
