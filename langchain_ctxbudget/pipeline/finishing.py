"""What a finished prompt changes: its conversation's cut and background, reports, summaries."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TypeVar

from langgraph.store.base import BaseStore, Op, PutOp

from langchain_ctxbudget import history as histories
from langchain_ctxbudget import stores
from langchain_ctxbudget.flow import Flow, batch, with_fallback
from langchain_ctxbudget.history import HistoryView, OpenConversation, editing
from langchain_ctxbudget.knowledge import known, records
from langchain_ctxbudget.pipeline.last_call import LastCall, keep_call
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt import AssembledContext, Prompt, Request
from langchain_ctxbudget.report import ContextReport, Receipt
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import CutRecord, CutsRecord, put_of
from langchain_ctxbudget.tokens import NO_OWN_CALLS, OwnCalls, price_of

Account = TypeVar("Account", ContextReport, Receipt)
"""A form in which a prompt is accounted for."""


def finish(
    workspace: Workspace,
    conversation: OpenConversation,
    prompt: Prompt,
    timings_ms: dict[str, float],
    request: Request,
) -> Flow[AssembledContext]:
    """Writes what a prompt changes, remembers the prompt, and returns what its caller gets.

    Args:
        workspace: where it is written and remembered.
        conversation: the conversation, whose lock the caller holds.
        prompt: the prompt.
        timings_ms: how long each step took.
        request: the options of the call.
    """
    scope = conversation.scope
    settings = prompt.plan.request.settings
    problems = yield from _take_up_changes(workspace, conversation, prompt)
    known.note_use(workspace.store, scope.user_id, prompt.changes.used)
    summarize(workspace, conversation, settings, prompt.plan.history)
    workspace.workers.sealing.note(conversation)
    own_calls = yield from _own_calls(workspace, scope, problems)
    model = prompt.plan.request.call.model
    price = price_of(model, workspace.workers.bookkeeping.prices)
    own_tokens = own_calls.effective_tokens(price, prompt.plan.request.cache_terms)
    call = LastCall.of(request, model)

    def finished(account: Callable[[], Account]) -> Account:
        made: Account = account()
        return replace(
            made,
            timings_ms=timings_ms,
            failures=tuple(dict.fromkeys((*made.failures, *problems))),
            own_calls=own_calls,
            own_effective_tokens=own_tokens,
        )

    if scope.is_kept and settings.keep_snapshots:
        from langchain_ctxbudget.pipeline.snapshots import keep_report  # noqa: PLC0415 - few are kept

        keeping = keep_report(
            workspace.store,
            conversation,
            finished(prompt.context.account),
            workspace.clock(),
            settings.keep_snapshots,
        )
        yield from with_fallback(keeping, None, "snapshot not written", problems)
        keeping = keep_call(workspace.store, conversation, call)
        yield from with_fallback(keeping, None, "system prompt and tools not kept", problems)
    report = cache(partial(finished, prompt.context.account))
    receipt = cache(partial(finished, prompt.context.receipt))
    workspace.recent.note(prompt, report, scope, workspace.workers.bookkeeping, call)
    return replace(prompt.context, account=report, receipt=receipt)


def _own_calls(workspace: Workspace, scope: stores.Scope, problems: list[str]) -> Flow[OwnCalls]:
    """Returns what the calls that learn and sum up have used since the last prompt.

    Adds what failed to `problems`.
    """
    workers = workspace.workers
    if workers.summarizing is None or not scope.is_kept:
        return NO_OWN_CALLS
    telling = workers.bookkeeping.tell_own(scope)
    what = "what own calls have used not read"
    return (yield from with_fallback(telling, NO_OWN_CALLS, what, problems))


def _take_up_changes(
    workspace: Workspace, conversation: OpenConversation, prompt: Prompt
) -> Flow[list[str]]:
    """Takes up into a conversation what a prompt changes, stores it, and returns what failed."""
    changes = prompt.changes
    if changes.snapshot is not None:
        if changes.snapshot != conversation.snapshot:
            conversation.snapshot_unsaved = True
        conversation.snapshot = changes.snapshot
    background = prompt.plan.background
    if prompt.plan.grows and background is not None:
        conversation.backgrounds[background.position] = background
    # A snapshot that shows nothing because nothing is known is written by whoever learns something.
    is_anything_known = prompt.plan.request.user.knowledge.mark.mark != ""
    problems = yield from write(
        workspace.store,
        conversation,
        changes.cut,
        is_rebuilt=changes.is_rebuilt,
        with_snapshot=is_anything_known,
    )
    conversation.last = changes.last
    conversation.remade = ""
    return problems


def summarize(
    workspace: Workspace,
    conversation: OpenConversation,
    settings: ContextSettings,
    view: HistoryView,
) -> None:
    """Has the summary model write about the spans that the view leaves out, or soon will."""
    summarizing = workspace.workers.summarizing
    if summarizing is None:
        return
    made = conversation.table.span_digests
    made.span_messages = settings.span_messages
    made.until = max(view.cut, view.next_cut)
    summarizing.submit(conversation, is_rebuilt=view.is_rebuilt)


def write(
    store: BaseStore,
    conversation: OpenConversation,
    cut: CutRecord | None,
    *,
    is_rebuilt: bool,
    with_snapshot: bool,
) -> Flow[list[str]]:
    """Stores a new cut, which a restart continues from, and the snapshot of facts.

    Returns what failed.
    """
    scope = conversation.scope
    puts = _take_up_cut(conversation, cut, is_rebuilt=is_rebuilt)
    # Before the first message, cuts are written with it.
    has_records = bool(conversation.table) or _has_calls(cut)
    if conversation.cuts_unsaved and has_records:
        cuts = CutsRecord(cuts=tuple(conversation.cuts.values()))
        puts.append(put_of(scope.place(histories.CUTS), cuts))
    writes_snapshot = with_snapshot and conversation.snapshot_unsaved
    if writes_snapshot:
        puts.append(put_of(scope.place(records.SNAPSHOT), conversation.snapshot))

    problems: list[str] = []
    writing = batch(store, puts if scope.is_kept else [])
    yield from with_fallback(writing, None, "compaction cuts not saved", problems)
    if problems:  # the next prompt tries again
        return problems
    if has_records:
        conversation.cuts_unsaved = False
    if writes_snapshot:
        conversation.snapshot_unsaved = False
    return problems


def _has_calls(cut: CutRecord | None) -> bool:
    """Returns whether a cut was chosen in the middle of a turn, behind calls of tools."""
    return cut is not None and cut.turn_groups > 1


def _take_up_cut(
    conversation: OpenConversation, cut: CutRecord | None, *, is_rebuilt: bool
) -> list[Op]:
    """Takes up a cut into a conversation, and returns what that changes of stored backgrounds."""
    if cut is None:
        return []
    conversation.use(cut)
    if not is_rebuilt:
        return []
    conversation.cuts_unsaved = True
    operations = _let_go_of_backgrounds(conversation, cut)
    if _has_calls(cut):
        operations += _backgrounds_of_turn(conversation)
    return operations


def _let_go_of_backgrounds(conversation: OpenConversation, cut: CutRecord) -> list[Op]:
    """Lets go of the backgrounds before a new cut, and returns the deletions of stored ones."""
    outdated = [
        position
        for position, background in conversation.backgrounds.items()
        if position < cut.begun and background.cut_key == cut.cut_key
    ]
    for position in outdated:
        del conversation.backgrounds[position]
    namespace = conversation.scope.namespace(histories.SENT)
    end = len(conversation.table)
    return [PutOp(namespace, str(position), None) for position in outdated if position < end]


def _backgrounds_of_turn(conversation: OpenConversation) -> list[Op]:
    """Returns what stores the backgrounds of a turn that is under way.

    They were chosen with another cut, which is gone.
    """
    end = len(conversation.table)
    return [
        editing.put_sent(conversation.scope, background)
        for position, background in conversation.backgrounds.items()
        if position >= end
    ]
