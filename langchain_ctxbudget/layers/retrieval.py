"""The layer of quotes: earlier messages, memories and documents found for the message.

What may be quoted, and how it is ranked, is decided in the room `retrieval`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from langchain_ctxbudget.budget import DEPTH_FACTOR, Emphasis, Layer, LayerSpec
from langchain_ctxbudget.layers.base import (
    NOTHING_CHOSEN,
    Chosen,
    Place,
    PromptLayer,
    Rung,
    Staying,
    View,
)
from langchain_ctxbudget.layers.groups import group_tokens, positions_of
from langchain_ctxbudget.layers.replaced import replaced_facts
from langchain_ctxbudget.layers.rules import RULES_SECTION, changes_of_rules, said_by_rules
from langchain_ctxbudget.messages import keeps_words
from langchain_ctxbudget.report import JOINED
from langchain_ctxbudget.retrieval import MIXED_SECTION, OWN_SECTION, Pool, select
from langchain_ctxbudget.search import NEED_POLICY


@dataclass(frozen=True, slots=True)
class QuotingPolicy:
    """What a quote must be worth to take room in a prompt."""

    least_worth: Mapping[Emphasis, float] = field(
        default_factory=lambda: {"balanced": 0.2, "cache": 1.0}
    )
    """The probability with which a text must be needed that takes the whole budget. For a text that
    takes a tenth of the budget, a tenth of this is enough."""
    most_standing_out_tokens: int = 600
    """The most tokens of texts that stand out, and of documents that have to do with the message,
    if the message hardly needs anything that was said."""


QUOTING_POLICY = QuotingPolicy()
CHANGED_SECTION = "## What has changed\n"
"""The line above what facts have become, where no quotes stand below it."""


class RetrievalLayer(PromptLayer):
    """Texts that are quoted because the message may need them."""

    name = Layer.RETRIEVAL
    title = Layer.RETRIEVAL.full_name
    place = Place.QUOTES
    section = MIXED_SECTION

    def wider_tokens(
        self, spec: LayerSpec, _granted_tokens: int, most_tokens: int, _view: View
    ) -> int | None:
        """Returns what other layers leave: quotes are chosen last, and get nothing before that."""
        return min(most_tokens, spec.limit_tokens)

    def items(self, view: View, tokens: int) -> Chosen:
        """Returns those of the ranked texts that are worth their tokens, within the grant.

        In front of them it tells which rules no longer hold, or hold newly, and which facts about
        the user were replaced, whatever room there is.
        """
        rules = changes_of_rules(view)
        facts = replaced_facts(view)
        count = view.counter.count_text
        notice_tokens = sum(part.tokens for part in (*rules, *facts))
        if rules:
            notice_tokens += count(RULES_SECTION)
        if facts:
            notice_tokens += count(CHANGED_SECTION)
        chosen = self._quoted(view, max(0, tokens - notice_tokens))
        section = chosen.fragments[0].section if chosen.fragments else CHANGED_SECTION
        facts = tuple(replace(notice, section=section) for notice in facts)
        return replace(chosen, fragments=(*rules, *facts, *chosen.fragments))

    def _quoted(self, view: View, tokens: int) -> Chosen:
        """Returns those of the ranked texts that are worth their tokens."""
        pool = view.pool
        if pool is None:
            return NOTHING_CHOSEN
        count = view.counter.count_text
        history = view.history
        continuation = view.continuation
        tokens = _most_tokens(view, pool, tokens)
        heading_tokens = max(map(count, (OWN_SECTION, MIXED_SECTION)))
        shown = {position for position in positions_of(history.groups) if position < history.cut}
        is_rebuild = not (continuation.mode.adds_background or view.turn.stage)
        is_cold_rebuild = continuation.grows and continuation.is_cold and is_rebuild
        rules = said_by_rules(view)
        rules_elsewhere = [other.id for other in pool.others if rules.has(other)]
        retrieved = select(
            view.conversation,
            pool,
            history.cut,
            max(0, tokens - heading_tokens),
            shown={*shown, *history.quoted, *rules.positions},
            shown_ids={*rules_elsewhere, *_ids_quoted_before(view)},
            in_short=_in_short(view).difference(history.quoted, rules.positions),
            prices=_prices(view, pool),
            transient_tokens=_transient_tokens(view, tokens, is_cold_rebuild=is_cold_rebuild),
            is_numbered=bool(view.recall_tool),
            limits=view.settings.retrieval,
        )
        return Chosen(
            fragments=retrieved.fragments,
            left_out=retrieved.omitted,
            more_left_out=retrieved.more_omitted,
            scores=retrieved.scores,
        )

    def staying(self, rung: Rung) -> Sequence[Staying]:
        """Returns how many quotes stay when a rung of the last resort is taken."""
        numbers = {Rung.MEDIUM: 3, Rung.HEAVY: 2, Rung.EXTREME: 1}
        number = numbers.get(rung)
        return () if number is None else [Staying(number=number)]


def _transient_tokens(view: View, tokens: int, *, is_cold_rebuild: bool) -> int:
    """Returns how many tokens of the quotes are sent only once.

    With `emphasis="recall"` all quotes are: each message has its own. In a cold rebuild the later
    half is, so that the next prompt can grow.
    """
    if view.settings.quotes_anew:
        return tokens
    return tokens // 2 if is_cold_rebuild else 0


def _ids_quoted_before(view: View) -> set[str]:
    """Returns the ids of all texts that earlier backgrounds of the prompt quote."""
    ids: set[str] = set()
    for background in view.history.backgrounds.values():
        for part in background.fragments:
            # Neighbouring chunks are one passage with the ids of all.
            ids.update((part.id, *part.id.split(JOINED)))
    return ids


def _in_short(view: View) -> frozenset[int]:
    """Returns the positions of messages whose words do not all stand in the prompt."""
    history = view.history
    if not history.shortened:
        return history.shortened
    entries = view.conversation.entries
    worded: list[int] = []
    for group in history.groups:
        # Messages that stand in for missing results have no positions.
        if len(group.positions) != len(group.messages):
            continue
        for position, message in zip(group.positions, group.messages, strict=True):
            is_in_short = position in history.shortened
            if is_in_short and keeps_words(message, entries[position].sent_message):
                worded.append(position)
    return history.shortened.difference(worded)


def _most_tokens(view: View, pool: Pool, tokens: int) -> int:
    """Returns how many tokens of a grant quotes may take."""
    tier = view.tier
    history = view.history
    if tier.history_messages is not None and not (pool.others or pool.named_documents):
        # The usage limit lets in a share of the conversation. What it takes from the history must
        # not come back as quotes.
        shown_tokens = sum(group_tokens(group, view.counter) for group in history.groups)
        shown_tokens += sum(part.tokens for part in (*history.summary, *history.arc))
        most_tokens = int(view.conversation.total_tokens * tier.budget_share)
        tokens = min(tokens, most_tokens - shown_tokens)
    return min(tokens, _tokens_by_need(view, pool))


def _tokens_by_need(view: View, pool: Pool) -> int:
    """Returns how many tokens quotes may take by what speaks for the message needing any.

    They rise with the probability that it needs anything that was said, with the texts that stand
    out, and with the documents that have to do with it. There is no limit if it names a document.
    """
    evidence = pool.evidence
    if pool.named_documents:
        return view.limit_tokens
    tokens = int(view.limit_tokens * NEED_POLICY.share(evidence.need))
    may_come = evidence.stands_out | evidence.asked_for
    for number, other in enumerate(pool.others):
        may_come[number] |= other.source == "documents" and evidence.are_related[number]
    standing_out_tokens = int(pool.costs[may_come].sum())
    return tokens + min(standing_out_tokens, QUOTING_POLICY.most_standing_out_tokens)


def _prices(view: View, pool: Pool) -> tuple[float, float]:
    """Returns the price of a token of a quote from this conversation, and from another one.

    A price is the probability with which a text must be needed, for each token that it costs. In a
    cold rebuild, which has nothing cached to lose, quotes from this conversation are free: they
    stand for messages that had no room. Those that the provider has compacted itself had.
    """
    continuation = view.continuation
    was_compacted = view.history.compacted > 0
    settings = view.settings
    is_free_of_charge = not continuation.grows or settings.quotes_anew
    if is_free_of_charge or (pool.question.is_broad and not was_compacted):
        return 0.0, 0.0
    worth = QUOTING_POLICY.least_worth[settings.emphasis]
    price = worth / DEPTH_FACTOR[settings.depth] / view.limit_tokens
    is_rebuild = not continuation.mode.adds_background
    is_free = (
        continuation.is_cold and is_rebuild and not pool.evidence.is_weak and not was_compacted
    )
    return (0.0 if is_free else price), price
