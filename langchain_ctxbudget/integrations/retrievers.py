"""`BudgetedRetriever`: the search of a pipeline as a LangChain retriever."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic import ConfigDict, Field

from langchain_ctxbudget.documents import beside
from langchain_ctxbudget.errors import (
    InputError,
    InvalidSettingsError,
    require_count,
    require_names,
)
from langchain_ctxbudget.flow import Flow, adrive, drive
from langchain_ctxbudget.history import Conversation, OpenConversation
from langchain_ctxbudget.integrations.options import refusing_unknown, require_pipeline
from langchain_ctxbudget.knowledge import facts
from langchain_ctxbudget.messages import Count
from langchain_ctxbudget.pipeline import ContextPipeline, Engine, Run, current_runtime, run_of
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.retrieval import Sources, search
from langchain_ctxbudget.settings import SOURCES, Source
from langchain_ctxbudget.stores import Scope, require_id

SEPARATOR = "\n\n"
"""Stands between two documents where they are joined, as in `create_retriever_tool`; counted with
them."""
RANKED = 50
"""The number of documents that are ranked; at least `k`."""
_log = logging.getLogger(__name__)


class BudgetedRetriever(BaseRetriever):
    """Searches a user's conversations, memories and documents, limited by number and by tokens.

    It is the search that prompts retrieve with, best first. Metadata are `id`, `found_in` (`conversations`, `memories`
    or `documents`), `source`, `title`, `date`, `speaker`, `score`, its parts as `scores`, and `tokens`; a message's
    `conversation_id` and `reference`; a document's own. The user is `user_id`, else the run's, else `default_user`; a
    run that names another one than `user_id` is refused. A call may have its own limits: `invoke(query, k=1)`.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> from langchain_ctxbudget import BudgetedRetriever, ContextPipeline
        >>> pipeline = ContextPipeline()
        >>> said = [HumanMessage("My bike is blue."), HumanMessage("The garden needs water.")]
        >>> ids = pipeline.add_messages(said, user_id="ada", conversation_id="c1")
        >>> retriever = BudgetedRetriever(pipeline=pipeline, user_id="ada", k=1)
        >>> [found.page_content for found in retriever.invoke("Which colour has the bike?")]
        ['My bike is blue.']
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", frozen=True)

    pipeline: ContextPipeline
    user_id: str | None = None
    default_user: str | None = None
    conversation_id: str | None = None
    """The conversation that is open; None: none of the user's conversations is another than the
    others."""
    persona_id: str | None = None
    device_id: str | None = None
    """None: those of the run. Saved settings of the persona apply; what is found is the same on all
    devices."""
    k: int | None = Field(default=4, strict=True, ge=1)
    """The most documents; None: as many as fit."""
    max_tokens: int | None = Field(default=None, strict=True, ge=1)
    """The most tokens, a blank line between each two of them included; a document that does not fit
    is skipped."""
    sources: tuple[Source, ...] = Field(default=SOURCES, min_length=1)
    runtime_store: bool = True
    """True lets the store that a graph was compiled with outweigh the pipeline's."""
    tags: list[str] | None = Field(default=["ctxbudget"])

    if not TYPE_CHECKING:  # checkers and editors know the fields

        def __init__(self, **fields: Any) -> None:
            with refusing_unknown(fields, type(self)):
                require_pipeline(
                    fields.get("pipeline"), "give it the one that keeps the conversations"
                )
                for name in (
                    "user_id",
                    "default_user",
                    "conversation_id",
                    "persona_id",
                    "device_id",
                ):
                    if fields.get(name) is not None:
                        require_id(name, fields[name])
                super().__init__(**fields)
            if self.user_id is not None and self.default_user is not None:
                raise InvalidSettingsError(
                    "user_id is the user of every run, default_user has no use: leave one out"
                )

    def invoke(
        self,
        input: str,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Returns the documents for a query, best first.

        `k` and `max_tokens` may be given for this call.
        """
        _require_limits(kwargs)
        return super().invoke(input, config, run_config=config, **kwargs)

    async def ainvoke(
        self,
        input: str,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Returns the documents for a query, best first; see `invoke`."""
        _require_limits(kwargs)
        return await super().ainvoke(input, config, run_config=config, **kwargs)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: object,
        **given: Any,
    ) -> list[Document]:
        return drive(self._documents(query, **given))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: object,
        **given: Any,
    ) -> list[Document]:
        return await adrive(self._documents(query, **given))

    def _documents(
        self,
        query: str,
        *,
        run_config: RunnableConfig | None = None,
        k: int | None = None,
        max_tokens: int | None = None,
    ) -> Flow[list[Document]]:
        if not isinstance(query, str):
            raise InputError(
                f"The query must be a string, not {type(query).__name__}: put a step in front that picks it, for "
                f"instance itemgetter('question') | retriever"
            )
        k = self.k if k is None else k
        max_tokens = self.max_tokens if max_tokens is None else max_tokens
        config = ensure_config(run_config)
        # Whose run it is says the config, but not which conversation: a retriever has the one that
        # it was made with.
        config = {
            **config,
            "configurable": {**(config.get("configurable") or {}), "thread_id": "-"},
        }
        run = run_of(config, self.default_user, current_runtime(), only_user=self.user_id)
        if not query.strip():
            return []
        engine = self.pipeline.engine.over(run.store if self.runtime_store else None)
        ranked = yield from self._ranked(engine, run, query, max(RANKED, k or 0))
        count = self.pipeline.token_counter.count_text
        found = _fitting(ranked, count, k, max_tokens)
        for each in found:
            each.metadata = beside(each.metadata, {"tokens": count(each.page_content)})
        return found

    def _ranked(self, engine: Engine, run: Run, query: str, limit: int) -> Flow[list[Document]]:
        """Returns the best ones.

        An open conversation is searched whole, beside the newest messages of the others.
        """

        def body(conversation: Conversation | None) -> Flow[list[Document]]:
            workspace = engine.workspace
            count = engine.target.counter.count_text
            persona = self.persona_id or run.persona_id
            device = self.device_id or run.device_id
            asked = Request(settings=run.settings, persona_id=persona, device_id=device)
            problems: list[str] = []
            stored = yield from workspace.read_stored(OpenConversation(run.scope), asked, problems)
            memories = facts.as_candidates(
                facts.memory_fragments(stored.settings, count), stored.knowledge.facts
            )
            given = (
                workspace.catalogue,
                run.scope.user_id,
                self.sources,
                workspace.embeddings,
                self.conversation_id,
            )
            others = workspace.libraries.of(run.scope.user_id)
            sources = Sources(*given, memories, vectors=workspace.vectors, others=others)
            found, failures = yield from search(sources, query, limit, conversation)
            for failure in (*problems, *failures):
                _log.warning("%s", failure)
            return found

        yield from engine.ready()
        if self.conversation_id is None:
            return (yield from body(None))
        return (yield from engine.recall(Scope(run.scope.user_id, self.conversation_id), body))


def _require_limits(given: Mapping[str, object]) -> None:
    """Raises `InvalidSettingsError` for a limit of a call that there is none of, or that is no number of at least 1."""
    require_names(given, ("k", "max_tokens"), "BudgetedRetriever.invoke")
    for name, value in given.items():
        if value is not None:
            require_count(name, value, kind=InvalidSettingsError)


def _fitting(
    ranked: Sequence[Document], count: Count, k: int | None, max_tokens: int | None
) -> list[Document]:
    """Returns the first `k` of some documents that fit, one after the other, into a number of tokens."""
    taken: list[Document] = []
    for one in ranked:
        joined = SEPARATOR.join(each.page_content for each in (*taken, one))
        if (k is None or len(taken) < k) and (max_tokens is None or count(joined) <= max_tokens):
            taken.append(one)
    return taken
