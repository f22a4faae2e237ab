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
from langchain_ctxbudget.knowledge import Knowledge, detect, facts
from langchain_ctxbudget.layers import memory_fragments
from langchain_ctxbudget.messages import Count
from langchain_ctxbudget.pipeline import (
    ContextPipeline,
    Engine,
    Prompter,
    Run,
    current_runtime,
    run_of,
    searched,
)
from langchain_ctxbudget.prompt import Request
from langchain_ctxbudget.retrieval import Ordering, search
from langchain_ctxbudget.settings import SOURCES, ContextSettings, Source
from langchain_ctxbudget.stores import Scope, require_id

SEPARATOR = "\n\n"
"""Stands between two documents where they are joined, as in `create_retriever_tool`; counted with
them."""
RANKED_DOCUMENTS = 50
"""The least number of documents that are ranked."""
_log = logging.getLogger(__name__)


class BudgetedRetriever(BaseRetriever):
    """Searches a user's conversations, memories and documents, limited by number and by tokens.

    It is the search that prompts retrieve with, in the order in which they take texts. Metadata are
    `id`, `found_in` (`conversations`, `memories` or `documents`), `source`, `title`, `date`,
    `speaker`, `score`, its parts as `scores`, and `tokens`; of a message `conversation_id` and
    `reference`, too; of a document its own. The user is `user_id`, else the run's, else
    `default_user`; a run that names another user than `user_id` is refused. A call may have its own
    limits: `invoke(query, k=1)`.

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
    """The conversation that is open; None: all conversations of the user are alike."""
    persona_id: str | None = None
    """The persona whose saved settings apply; None: that of the run."""
    device_id: str | None = None
    """The device of the user; None: that of the run. What is found is the same on all devices."""
    k: int | None = Field(default=4, strict=True, ge=1)
    """The most documents; None: as many as fit."""
    max_tokens: int | None = Field(default=None, strict=True, ge=1)
    """The most tokens of all documents, with a blank line between two; a document that does not fit
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
                f"The query must be a string, not {type(query).__name__}: put a step in front that "
                "picks it, for instance itemgetter('question') | retriever"
            )
        if k is None:
            k = self.k
        if max_tokens is None:
            max_tokens = self.max_tokens
        run = run_of(
            _without_thread(ensure_config(run_config)),
            self.default_user,
            current_runtime(),
            only_user=self.user_id,
        )
        if not query.strip():
            return []
        engine = self.pipeline.engine.over_store(run.store if self.runtime_store else None)
        ranking = self._ranked(engine, run, query, max(RANKED_DOCUMENTS, k or 0))
        ranked = yield from searched(ranking, engine, self.conversation_id, len, query=query)
        count = self.pipeline.token_counter.count_text
        documents = _fitting(ranked, count, k, max_tokens)
        for document in documents:
            document.metadata = beside(document.metadata, {"tokens": count(document.page_content)})
        return documents

    def _ranked(self, engine: Engine, run: Run, query: str, limit: int) -> Flow[list[Document]]:
        """Returns the best documents; an open conversation is searched whole, beside the others."""

        def body(conversation: Conversation | None) -> Flow[list[Document]]:
            workspace = engine.workspace
            count = engine.target.counter.count_text
            request = Request(
                settings=run.settings,
                persona_id=self.persona_id or run.persona_id,
                device_id=self.device_id or run.device_id,
            )
            problems: list[str] = []
            stored = yield from workspace.read_stored(
                OpenConversation(run.scope), request, problems
            )
            memories = facts.as_candidates(
                memory_fragments(stored.settings, count), stored.knowledge.facts
            )
            sources = workspace.sources(
                run.scope.user_id,
                self.sources,
                without_conversation=self.conversation_id,
                memories=memories,
            )
            ordering = Ordering(
                settings=stored.settings.retrieval,
                names=_entity_names(query, stored.settings, stored.knowledge, stored.places),
                today=workspace.clock().date(),
                reranker=engine.reranker,
            )
            documents, failures = yield from search(sources, query, limit, conversation, ordering)
            for failure in (*problems, *failures):
                _log.warning("%s", failure)
            return documents

        yield from engine.ready()
        if self.conversation_id is None:
            return (yield from body(None))
        scope = Scope(run.scope.user_id, self.conversation_id)
        return (yield from Prompter(engine, scope).read(body))


def _entity_names(
    query: str, settings: ContextSettings, knowledge: Knowledge, places: Sequence[str]
) -> list[str]:
    """Returns the names of the entities that a query is about, where they raise texts."""
    if not settings.retrieval.entity_weight:
        return []
    detected = detect(query, settings, knowledge, places=places)
    return detected.entity_names(knowledge)


def _without_thread(config: RunnableConfig) -> RunnableConfig:
    """Returns a config that says whose run it is, but not in which conversation.

    A retriever has the conversation that it was made with.
    """
    configurable = {**(config.get("configurable") or {}), "thread_id": "-"}
    return {**config, "configurable": configurable}


def _require_limits(limits: Mapping[str, object]) -> None:
    """Raises an `InvalidSettingsError` for a limit that does not exist, or that is below 1."""
    require_names(limits, ("k", "max_tokens"), "BudgetedRetriever.invoke")
    for name, value in limits.items():
        if value is not None:
            require_count(name, value, kind=InvalidSettingsError)


def _fitting(
    ranked: Sequence[Document], count: Count, k: int | None, max_tokens: int | None
) -> list[Document]:
    """Returns the first `k` documents that fit, one after the other, into a number of tokens."""
    taken: list[Document] = []
    for document in ranked:
        if k is not None and len(taken) >= k:
            break
        text = SEPARATOR.join(part.page_content for part in (*taken, document))
        if max_tokens is None or count(text) <= max_tokens:
            taken.append(document)
    return taken
