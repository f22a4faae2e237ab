"""Making a prompt that nobody sends, so that nothing but its report is left of it."""

from __future__ import annotations

from dataclasses import replace

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.report import ContextReport
from langchain_ctxbudget.draft import Draft
from langchain_ctxbudget.flow import Flow, T
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.steps import STEPS, run
from langchain_ctxbudget.what_if import Rerun


def forecast(draft: Draft, store: BaseStore, embeddings: Embeddings | None) -> Flow[ContextReport]:
    """The report of the prompt that a draft would become; store and conversation stay as they are.

    Args:
        draft: as it was opened, by whoever holds its conversation's lock.
        store: where the conversation is kept.
        embeddings: for retrieval.
    """
    draft.conversation, draft.write_summaries = _aside(draft.conversation), None
    for name in STEPS:
        yield from _without_writes(run(name, draft, store, embeddings))
    assert draft.context is not None  # noqa: S101 - the last step sets it
    draft.cuts = draft.conversation.cuts
    return draft.context.report.attach_candidates(Rerun(draft))


def _aside(conversation: Conversation) -> Conversation:
    """A conversation to make a prompt of that is no step of it.

    What is worked out of its messages is shared, as it is the same for every prompt; what a prompt decides is not.
    """
    return replace(
        conversation,
        entries=[replace(entry) for entry in conversation.entries],
        cuts=dict(conversation.cuts),
        made=conversation.made.copy(),
    )


def _without_writes(flow: Flow[T]) -> Flow[T]:
    """Run a flow to its end, but for what it would write: that is taken for done, and gives nothing."""
    try:
        call = next(flow)
        while True:
            if call.writes:
                call = flow.send([])
                continue
            try:
                result = yield call
            except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                call = flow.throw(error)
            else:
                call = flow.send(result)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        flow.close()
