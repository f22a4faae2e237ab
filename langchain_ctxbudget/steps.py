"""The six steps from a message to a prompt, each a flow over one draft.

detect_topics -> compute_budget -> fetch_bundles -> compact_history -> retrieve -> assemble
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from langchain_core.embeddings import Embeddings
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.accounting import account
from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.allocation import Situation, elastic
from langchain_ctxbudget.core.assembly import (
    CONTEXT_INTRO,
    NO_FIRST_QUESTION,
    SECTION,
    build,
    group_tokens,
    has_human,
    measure,
    without_least,
)
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.messages import as_sent
from langchain_ctxbudget.core.turns import group, newest_that_fit
from langchain_ctxbudget.draft import AssembledContext, Draft
from langchain_ctxbudget.errors import BudgetTooSmallError, SystemPromptTooLargeError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history import compact
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge.declared import (
    bundles,
    detect,
    entity_line,
    fitting,
    preference_fragments,
    topic_line,
)
from langchain_ctxbudget.retrieval import evicted
from langchain_ctxbudget.stores.message_log import CUTS
from langchain_ctxbudget.stores.records import CutRecord

CONTEXT_FRAME = (fences.opening(fences.CONTEXT), CONTEXT_INTRO, fences.closing(fences.CONTEXT))
TURN_SHARE = 0.75
"""Of what the system prompt leaves, what a long current turn may take before its oldest calls give way."""


Step = Callable[[Draft, BaseStore, Embeddings | None], Flow[None]]


def detect_topics(draft: Draft) -> None:
    """Find the declared topics and entities that the message names."""
    draft.detected = detect(draft.query, draft.settings)


def compute_budget(draft: Draft) -> None:
    """Measure what must be sent, refuse what cannot fit, and divide the rest.

    Raises:
        BudgetTooSmallError: system prompt, current turn and tool schemas alone are over the budget.
        SystemPromptTooLargeError: the system prompt takes more than its share of the model's window.
    """
    settings, counter, conversation = draft.settings, draft.counter, draft.conversation
    draft.limit_tokens = _limit(draft)
    draft.extras = {
        name: tokens
        for name, tokens in (
            ("tool schemas", counter.count_tools(draft.tools)),
            ("response format", counter.count_response_format(draft.response_format)),
        )
        if tokens
    }
    identity = _identity_tokens(draft)
    framing = counter.count_messages([]) + (counter.count_message(SystemMessage("")) if identity else 0)
    if not isinstance(draft.turn[0], HumanMessage):
        framing += counter.count_message(HumanMessage(NO_FIRST_QUESTION))
    fixed = identity + framing + sum(draft.extras.values())
    _fit_turn(draft, fixed, identity, framing)
    draft.keep = compact.keep_count(conversation, settings, draft.limit_tokens)
    draft.preferences = preference_fragments(settings, counter.count_text)
    fence = sum(counter.count_text(text) for text in _fence_texts(draft))
    preferences = sum(fragment.tokens for fragment in draft.preferences)
    topics, entities = draft.detected.topics, draft.detected.entities if settings.include_entities else ()
    draft.allocation = elastic(
        Situation(
            total_tokens=draft.limit_tokens,
            overhead_tokens=framing + sum(draft.extras.values()) + fence,
            identity_tokens=identity,
            preferences_tokens=preferences,
            message_tokens=sum(group_tokens(part, counter) for part in draft.turn_groups),
            message_count=len(conversation.entries),
            history_tokens=conversation.total_tokens,
            keep_tokens=sum(conversation.costs[len(conversation.costs) - draft.keep :]),
            topic_count=len(topics),
            topic_tokens=sum(counter.count_text(topic_line(topic)) for topic in topics),
            entity_count=len(entities),
            entity_tokens=sum(counter.count_text(entity_line(entity)) for entity in entities),
            # A cut that was made for a smaller budget says nothing about this one.
            compacted=conversation.cut is not None and conversation.cut.budget_tokens >= draft.limit_tokens,
            depth=settings.depth,
            prioritize_history=settings.prioritize_history,
        )
    )


def _limit(draft: Draft) -> int:
    window = draft.target.window_tokens
    if window is None:
        return draft.settings.max_context_tokens
    return min(draft.settings.max_context_tokens, max(0, window - draft.output_reserve_tokens))


def _identity_tokens(draft: Draft) -> int:
    if not draft.system_prompt:
        return 0
    tokens = draft.counter.count_text(draft.system_prompt)
    window, share = draft.target.window_tokens, draft.settings.max_system_share
    if window is not None and tokens > window * share:
        raise SystemPromptTooLargeError(
            f"The system prompt is {tokens:,} tokens, over {share:.0%} of the model's window of {window:,}. "
            f"Shorten it, use a model with a larger window, or raise max_system_share"
        )
    return tokens


def _fit_turn(draft: Draft, fixed: int, identity: int, framing: int) -> None:
    """Keep the human message and the newest group of the turn; older groups as far as they fit.

    Raises:
        BudgetTooSmallError: not even those fit.
    """
    groups, repairs = group([as_sent(message) for message in draft.turn])
    draft.turn_repairs = tuple(repairs)
    costs = [group_tokens(part, draft.counter) for part in groups]
    needed = {
        i
        for i, part in enumerate(groups)
        if i == len(groups) - 1 or any(isinstance(message, HumanMessage) for message in part.messages)
    }
    floor = sum(costs[i] for i in needed)
    if fixed + floor > draft.limit_tokens:
        raise BudgetTooSmallError(
            draft.limit_tokens,
            {
                "L0 system prompt": identity,
                "L7 current message": floor,
                **draft.extras,
                "framing": framing,
            },
            _advice(draft),
        )
    room = max(0, int((draft.limit_tokens - fixed) * TURN_SHARE) - floor)
    optional = [i for i in range(len(groups)) if i not in needed]
    fit = newest_that_fit([costs[i] for i in optional], room)
    kept = needed | set(optional[len(optional) - fit :])
    draft.turn_groups = tuple(part for i, part in enumerate(groups) if i in kept)
    draft.turn_left_out = tuple(part for i, part in enumerate(groups) if i not in kept)


def _advice(draft: Draft) -> str:
    window = draft.target.window_tokens
    if window is not None and draft.limit_tokens < draft.settings.max_context_tokens:
        return (
            f"The model's window of {window:,} tokens less the output reserve of "
            f"{draft.output_reserve_tokens:,} is the limit: use a model with a larger window, lower "
            f"output_reserve_tokens, or shorten these parts."
        )
    return (
        f"Raise max_context_tokens (now {draft.settings.max_context_tokens:,}) to at least the sum, "
        f"or shorten these parts; none of them is ever cut silently."
    )


def _fence_texts(draft: Draft) -> list[str]:
    """The fences that this prompt may need, so that what they cost is not promised to a layer."""
    texts = [*CONTEXT_FRAME]
    if draft.detected.topics:
        texts.append(SECTION[Layer.TOPICS])
    if draft.detected.entities:
        texts.append(SECTION[Layer.ENTITIES])
    if draft.settings.preferences:
        texts += [fences.opening(fences.PREFERENCES), fences.closing(fences.PREFERENCES)]
    return texts


def fetch_bundles(draft: Draft) -> None:
    """Make the text of preferences, topics and entities within what they were given."""
    tokens = draft.allocated.tokens
    preferences = draft.preferences
    draft.preferences = fitting(preferences, tokens[Layer.PREFERENCES])
    draft.preferences_left_out = preferences[len(draft.preferences) :]
    draft.bundles = bundles(
        draft.detected,
        draft.settings,
        draft.counter.count_text,
        topic_tokens=tokens[Layer.TOPICS],
        entity_tokens=tokens[Layer.ENTITIES],
    )


def compact_history(draft: Draft, store: BaseStore, _embeddings: Embeddings | None) -> Flow[None]:
    """Choose what of the history is verbatim; a new cut is stored, so that a restart goes on with it."""
    conversation, tokens = draft.conversation, draft.allocated.tokens
    draft.history = compact.view(
        conversation,
        draft.settings,
        fits_whole=draft.allocated.fits_whole,
        budget_tokens=draft.limit_tokens,
        history_tokens=tokens[Layer.HISTORY],
        arc_tokens=tokens[Layer.ARC],
        keep=draft.keep,
    )
    if draft.history.step and conversation.cut is not None:
        namespace = conversation.scope.namespace(CUTS)
        record = conversation.cut.model_dump(mode="json")
        try:
            yield from batch(store, [PutOp(namespace, "cut", record, index=False)])
        except Exception as error:  # noqa: BLE001 - derived data: the next step writes it again
            draft.failures.append(f"compaction cut not saved: {type(error).__name__}: {error}")


def read_cut(conversation: Conversation, store: BaseStore) -> Flow[str | None]:
    """Take up the stored cut if it was made for these messages; what failed, if anything."""
    failure = None
    try:
        [found] = yield from batch(store, [GetOp(conversation.scope.namespace(CUTS), "cut")])
        stored = CutRecord.read(found.value, "the compaction cut") if isinstance(found, Item) else None
        if stored is not None and conversation.cut_is_valid(stored):
            conversation.cut = stored
    except Exception as error:  # noqa: BLE001 - derived data: it is made again
        failure = f"compaction cut not read: {type(error).__name__}: {error}"
    if conversation.cut is not None and not conversation.cut_is_valid(conversation.cut):
        conversation.cut = None
    return failure


def retrieve(draft: Draft, _store: BaseStore, embeddings: Embeddings | None) -> Flow[None]:
    """Fill what is left of the budget with messages that are no longer verbatim and answer this one."""
    end = draft.history.cut
    if not end or not has_human(draft.turn_groups):
        return
    content = draft.content
    counter = draft.counter
    spent = counter.count_messages(build(content).messages) + sum(draft.extras.values())
    opening = [] if content.volatile else [*CONTEXT_FRAME]
    frame = sum(counter.count_text(text) for text in (*opening, SECTION[Layer.RETRIEVAL]))
    left = draft.limit_tokens - spent - frame - 2  # two for tokens that join at the block's end
    relevances, failure = yield from evicted.rank(draft.conversation, end, draft.query, embeddings)
    if failure:
        draft.failures.append(failure)
    draft.retrieved = evicted.select(draft.conversation, relevances, max(0, left))


def assemble(draft: Draft) -> None:
    """Build the messages, recount them exactly, prune what is over, and give the account."""
    content = draft.content
    prompt = build(content)
    measured = measure(content, prompt, draft.counter, draft.extras)
    while measured.total_tokens > draft.limit_tokens:
        excess = measured.total_tokens - draft.limit_tokens
        smaller, gone = without_least(content, draft.counter, excess)
        if smaller == content:
            raise BudgetTooSmallError(
                draft.limit_tokens, {"everything that must be sent": measured.total_tokens}, _advice(draft)
            )
        draft.pruned += [replace(f, status=Status.OMITTED, reason=Reason.PRUNED) for f in gone]
        content = smaller
        prompt = build(content)
        measured = measure(content, prompt, draft.counter, draft.extras)
    report = account(draft, content, prompt, measured)
    costs = [draft.counter.count_message(message) for message in prompt.messages]
    draft.conversation.previous = list(zip(prompt.messages, costs, strict=True))
    # Copies: what a caller does to its prompt must not change the next one.
    draft.context = AssembledContext(messages=[m.model_copy(deep=True) for m in prompt.messages], report=report)


def _without_io(step: Callable[[Draft], None]) -> Step:
    def flow(draft: Draft, _store: BaseStore, _embeddings: Embeddings | None) -> Flow[None]:
        step(draft)
        yield from ()

    return flow


STEPS: dict[str, Step] = {
    "detect_topics": _without_io(detect_topics),
    "compute_budget": _without_io(compute_budget),
    "fetch_bundles": _without_io(fetch_bundles),
    "compact_history": compact_history,
    "retrieve": retrieve,
    "assemble": _without_io(assemble),
}


def run(name: str, draft: Draft, store: BaseStore, embeddings: Embeddings | None) -> Flow[None]:
    """Run one step by its name and note how long it took."""
    started = time.perf_counter()
    yield from STEPS[name](draft, store, embeddings)
    draft.timings_ms[name] = (time.perf_counter() - started) * 1000
    if draft.context is not None:
        report = replace(draft.context.report, timings_ms=dict(draft.timings_ms))
        draft.context = replace(draft.context, report=report)
