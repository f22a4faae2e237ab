"""The six steps from a message to a prompt, each a flow over one draft.

detect_topics -> compute_budget -> fetch_bundles -> compact_history -> retrieve -> assemble
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, Op, PutOp

from langchain_ctxbudget.accounting import account, is_squeezed, left_out
from langchain_ctxbudget.budgeting import advice, compute_budget, excess_tokens, floors
from langchain_ctxbudget.core.assembly import (
    Content,
    Measure,
    Prompt,
    asking,
    build,
    has_human,
    measure,
    without_least,
)
from langchain_ctxbudget.core.block import TurnBlock
from langchain_ctxbudget.core.cache_markers import with_cache_marker
from langchain_ctxbudget.core.candidates import Candidate
from langchain_ctxbudget.core.last_resort import reduce
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.messages import request_copy
from langchain_ctxbudget.draft import AssembledContext, Draft
from langchain_ctxbudget.errors import BudgetError, BudgetTooSmallError, InputError
from langchain_ctxbudget.filling import fill_bundles, fill_history, fill_leftovers, fill_preferences, shrink_fixed
from langchain_ctxbudget.flow import Flow, batch, embed_query
from langchain_ctxbudget.history import summaries
from langchain_ctxbudget.knowledge import custom, remembered, subjects
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.opening import cuts_place
from langchain_ctxbudget.retrieval.pool import Named, Searched, gather, without_names
from langchain_ctxbudget.retrieval.search import rerank
from langchain_ctxbudget.retrieval.selecting import Retrieved
from langchain_ctxbudget.settings import LayerRequest
from langchain_ctxbudget.stores.records import CutsRecord

SMALL_EXCESS_TOKENS, SMALL_EXCESS_SHARE = 64, 0.02
"""Up to this, in tokens or of the budget, an excess is a matter of a few items, not of the last resort."""
NAMING_MESSAGES = 6
"""The newest messages in which a document may be named."""

Step = Callable[[Draft, BaseStore, Embeddings | None], Flow[None]]


def detect_topics(draft: Draft, _store: BaseStore, embeddings: Embeddings | None) -> Flow[None]:
    """Find the topics and entities that the message is about, declared and learned."""
    if embeddings is not None and draft.query and draft.knowledge.has_vectors:
        text = without_names(draft.query, list(draft.conversation.names))
        try:
            draft.asked = text, (yield from embed_query(embeddings, text))
        except Exception as error:  # noqa: BLE001 - names and words find topics, too
            draft.failures.append(f"topics not compared by vectors: {type(error).__name__}: {error}")
    detected = subjects.detect(
        draft.query,
        draft.settings,
        draft.knowledge,
        now=draft.now,
        recent=draft.recent,
        query=None if draft.asked is None else np.asarray(draft.asked[1], np.float32),
        expected=draft.expected,
        count=draft.counter.count_text,
    )
    draft.detected = subjects.within(detected, draft.tier, draft.counter.count_text)


def allocate(draft: Draft) -> None:
    """Divide the budget, and make the text of preferences: a compaction step, beside `fetch_bundles`, needs it made."""
    compute_budget(draft)
    fill_preferences(draft)


def fetch_bundles(draft: Draft, _store: BaseStore, _embeddings: Embeddings | None) -> Flow[None]:
    """Ask the application's own layers for their items, and make the text of these, and of topics and entities."""
    scope = draft.conversation.scope
    for layer in draft.settings.layers if draft.fixed is None else ():
        request = LayerRequest(
            query=draft.query,
            budget_tokens=draft.allocated.tokens[layer.name],
            user_id=scope.user_id,
            conversation_id=scope.conversation_id,
        )
        try:
            draft.own_items[layer.name] = yield from custom.fetch(layer, request, draft.conversation.lock)
        except Exception as error:  # noqa: BLE001 - whatever an application's function raises
            draft.own_items[layer.name] = ()
            draft.layer_failures.append(f"layer {layer.name!r}: {type(error).__name__}: {error}")
    fill_bundles(draft)


def compact_history(draft: Draft, store: BaseStore, _embeddings: Embeddings | None) -> Flow[None]:
    """Choose what of the history is verbatim; a new cut is stored, so that a restart goes on with it.

    So is what is shown of the facts about the user, which is chosen anew with a cut.
    """
    fill_history(draft)
    conversation = draft.conversation
    if conversation.made.maker:
        yield from _use_summaries(draft, store)
    puts: list[Op] = []
    if conversation.cuts_unsaved:
        place = cuts_place(conversation.scope)
        record = CutsRecord(cuts=tuple(conversation.cuts.values())).to_value()
        puts.append(PutOp(place.namespace, place.key, record, index=False))
    if draft.remembered.due:
        snapshot = remembered.snapshot_of(draft.facts_shown, draft.remembered.edited)
        conversation.snapshot_unsaved |= snapshot != conversation.snapshot
        conversation.snapshot = snapshot
    # One that shows nothing because nothing is known is written by whoever learns something.
    if told := conversation.snapshot_unsaved and draft.knowledge.mark.mark != "":
        puts.append(repos.snapshot_write(conversation.scope, conversation.snapshot))
    try:
        yield from batch(store, puts)
        conversation.cuts_unsaved = False
        conversation.snapshot_unsaved &= not told
    except Exception as error:  # noqa: BLE001 - derived data: the next step writes it again
        draft.failures.append(f"compaction cuts not saved: {type(error).__name__}: {error}")


def _use_summaries(draft: Draft, store: BaseStore) -> Flow[None]:
    """Take up what a model has written about the spans before a new cut, and say which are to be written about."""
    conversation, made = draft.conversation, draft.conversation.made
    made.segment_messages = draft.settings.segment_messages
    made.until = draft.history.cut if draft.write_summaries else max(draft.history.cut, draft.history.next_cut)
    due = draft.history.step or (draft.write_summaries is not None and made.asked_until < made.until)
    if due and draft.history.waiting:
        try:
            found = yield from summaries.look_up(store, conversation, draft.history.waiting)
            if draft.write_summaries:
                yield from draft.write_summaries(store, conversation)
                made.asked_until, found = made.until, True
        except Exception as error:  # noqa: BLE001 - extraction stands
            draft.failures.append(f"summaries: {type(error).__name__}: {error}")
            found = True
        if found:
            fill_history(draft, renew=True)
    problems = [failure.problem for failure in made.failures.values()] if draft.history.waiting else []
    draft.failures += [f"summaries: {problem}; extraction stands instead" for problem in dict.fromkeys(problems)]


def retrieve(draft: Draft, _store: BaseStore, embeddings: Embeddings | None) -> Flow[None]:
    """Fill what is left of the budget, above all with messages that are no longer verbatim and answer this one."""
    draft.failures += draft.layer_failures
    if draft.fixed is not None:
        shrink_fixed(draft)
        return
    if has_human(draft.turn_groups):
        conversation = draft.conversation
        others: tuple[Candidate, ...] = ()
        named: tuple[Named, ...] = ()
        if draft.sources is not None:
            known = remembered.as_candidates(
                draft.preferences_left_out,
                draft.facts_left_out,
                conversation_id=conversation.scope.conversation_id,
            )
            sources = replace(draft.sources, memories=() if draft.tier.knowledge_items is not None else known)
            others = yield from sources.read(draft.query, draft.failures, elsewhere=conversation.elsewhere)
            recent = [entry.text for entry in conversation.entries[-NAMING_MESSAGES:]]
            named = yield from sources.read_named([*recent, draft.query], draft.limit_tokens, draft.failures)
        if draft.history.cut or draft.history.shortened or others or named:
            searched = replace(Searched.of(conversation), asked=draft.asked)
            pool, failure = yield from gather(searched, draft.query, embeddings, others)
            draft.pool = replace(pool, named=named)
            draft.failures += [failure] if failure else []
            if draft.reranker is not None:
                draft.pool, problem = yield from rerank(draft.pool, draft.query, draft.reranker, conversation)
                draft.failures += [problem] if problem else []
    fill_leftovers(draft)


def take_up_block(draft: Draft, given: object, store: BaseStore, embeddings: Embeddings | None) -> Flow[None]:
    """Where an agent is in the middle of a turn, go on with the context block that was chosen when the turn began.

    It is what the agent's state has, else what this process remembers, else what is chosen for the human message alone:
    that follows from what was stored before it, as it did when the turn began.

    Args:
        draft: as it was opened.
        given: the block as an agent's state has it; None where there is none.
        store: where the conversation is kept.
        embeddings: for retrieval.
    """
    first = asking(draft.turn)
    if first is None or first + 1 == len(draft.turn):
        return
    message, conversation = draft.turn[first], draft.conversation
    block: TurnBlock | None = None
    if given is not None:
        try:
            block = TurnBlock.from_dict(given)
        except InputError as error:  # derived: it is chosen again
            draft.failures.append(str(error))
    history = draft.begun_with
    if (block is None or not block.is_for(message, history)) and conversation.chosen:
        chosen, settings = conversation.chosen
        block = chosen if settings == draft.settings else None
    if block is None or not block.is_for(message, history):
        begun = replace(draft, turn=draft.turn[: first + 1], own_items={}, own={}, pruned=[])
        begun.failures, begun.layer_failures = [], []
        try:
            for step in list(STEPS.values())[:-1]:
                yield from step(begun, store, embeddings)
            settle(begun)
        except BudgetError:  # the prompt itself tells what it needs
            begun.block = None
        block = begun.block or TurnBlock.of(message, history, (), {})
        draft.failures += begun.failures
    draft.block, draft.fixed = block, block.counted(draft.counter)
    known = conversation.positions
    whole = (part for part in draft.fixed if part.layer == Layer.RETRIEVAL and part.status is Status.INCLUDED)
    quoted = (known[part.id] for part in whole if part.id in known)
    draft.retrieved = Retrieved(positions=tuple(sorted(quoted)))


def settle(draft: Draft) -> tuple[Content, Prompt, Measure]:
    """Build the messages, recount them exactly, and take back what is over, or what the turn's steps will need.

    A little by the strategy's priorities; much, as where a strategy of the application's own leaves no room, first by
    the steps of the last resort, each as far as needed.

    Raises:
        BudgetTooSmallError: nothing is left that could give way.
    """
    allocation = draft.allocated
    limit = draft.limit_tokens - allocation.reserve_tokens
    over = partial(excess_tokens, draft)
    content = draft.content
    if over(content) > max(SMALL_EXCESS_TOKENS, int(limit * SMALL_EXCESS_SHARE)):
        content, draft.last_resort, taken = reduce(content, draft.counter, over)
        draft.pruned += [replace(f, status=Status.OMITTED, reason=Reason.COMPRESSED) for f in taken]
    prompt = build(content)
    measured = measure(content, prompt, draft.counter, draft.extras)
    order = sorted(
        (layer for layer in allocation.tokens if layer not in (Layer.IDENTITY, Layer.MESSAGE)),
        key=lambda layer: (allocation.priority_of(layer), layer),
    )
    while (excess := over(content)) > 0:
        smaller, gone = without_least(content, draft.counter, excess, order)
        if smaller == content:
            if measured.total_tokens <= limit:
                break
            identity, message = measured.items_tokens[Layer.IDENTITY], measured.items_tokens[Layer.MESSAGE]
            rest = measured.total_tokens - identity - message - sum(draft.extras.values())
            raise BudgetTooSmallError(limit, floors(identity, message, draft.extras, rest), advice(draft))
        draft.pruned += [replace(f, status=Status.OMITTED, reason=Reason.PRUNED) for f in gone]
        content = smaller
        prompt = build(content)
        measured = measure(content, prompt, draft.counter, draft.extras)
    if draft.block is None and (asked := asking(draft.turn)) is not None:
        draft.block = TurnBlock.of(draft.turn[asked], draft.begun_with, content.volatile, left_out(draft))
    return content, prompt, measured


def assemble(draft: Draft) -> None:
    """Make the messages that are sent, and their account."""
    content, prompt, measured = settle(draft)
    report = account(draft, content, prompt, measured)
    costs = [draft.counter.count_message(message) for message in prompt.messages]
    draft.conversation.squeezed = is_squeezed(draft, content)
    draft.conversation.previous_stable = prompt.stable
    draft.conversation.previous = list(zip(prompt.messages, costs, strict=True))
    draft.conversation.previous_long = draft.long_turn
    marked = draft.settings.cache_markers == "anthropic"
    sent = with_cache_marker(prompt.messages, prompt.stable) if marked else prompt.messages
    # Copies: what a caller does to its prompt must not change the next one.
    draft.context = AssembledContext(messages=[*map(request_copy, sent)], report=report)


def _without_io(step: Callable[[Draft], None]) -> Step:
    def flow(draft: Draft, _store: BaseStore, _embeddings: Embeddings | None) -> Flow[None]:
        step(draft)
        yield from ()

    return flow


STEPS: dict[str, Step] = {
    "detect_topics": detect_topics,
    "compute_budget": _without_io(allocate),
    "fetch_bundles": fetch_bundles,
    "compact_history": compact_history,
    "retrieve": retrieve,
    "assemble": _without_io(assemble),
}


WITHOUT_LOCK = frozenset({"detect_topics", "fetch_bundles"})
"""Steps that need nothing of the conversation: in the graph a slow layer of the application's own holds nobody up."""


def run(name: str, draft: Draft, store: BaseStore, embeddings: Embeddings | None) -> Flow[None]:
    """Run one step by its name and note how long it took."""
    started = time.perf_counter()
    yield from STEPS[name](draft, store, embeddings)
    draft.timings_ms[name] = (time.perf_counter() - started) * 1000
    if draft.context is not None:
        timings = {step: draft.timings_ms[step] for step in ("open", *STEPS) if step in draft.timings_ms}
        report = replace(draft.context.report, timings_ms=timings)
        draft.context = replace(draft.context, report=report)
