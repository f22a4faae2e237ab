"""A pipeline for an adapter: one that is given, or one that is made of settings and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langgraph.store.base import BaseStore
from typing_extensions import TypedDict

from langchain_ctxbudget.bookkeeping import Prices
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.settings import ContextSettings


class PipelineOptions(TypedDict, total=False):
    """What `ContextPipeline` takes beside its settings."""

    system_prompt: str
    model: BaseChatModel | str | None
    store: BaseStore | None
    embeddings: Embeddings | None
    token_counter: TokenCounter | None
    summary_model: BaseChatModel | None
    reranker: BaseDocumentCompressor | None
    writer_id: str | None
    clock: Callable[[], datetime] | None
    prices: Prices | None


def pipeline_of(
    given: ContextPipeline | ContextSettings | Mapping[str, Any] | None, options: PipelineOptions
) -> ContextPipeline:
    """A pipeline that is given, or one that is made of settings and options.

    Args:
        given: the pipeline, or settings; None: the default ones.
        options: what else `ContextPipeline` takes.

    Raises:
        InvalidSettingsError: a pipeline and options, an option that there is not, or something else.
    """
    if isinstance(given, ContextPipeline):
        if options:
            raise InvalidSettingsError(
                f"Options of a pipeline ({', '.join(sorted(options))}) come with a pipeline that is made already: give "
                f"them to ContextPipeline(...)"
            )
        return given
    known = PipelineOptions.__annotations__
    if unknown := sorted(set(options) - set(known)):
        raise InvalidSettingsError(
            f"Unknown options {', '.join(unknown)}; known are {', '.join(known)}, and settings as the first argument"
        )
    return ContextPipeline(given, **options)
