"""Selects the found texts that are worth most per token, and accounts for the rest."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.budget import Fragment, Reason, Status
from langchain_ctxbudget.history import Conversation, saying
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.retrieval.citations import citation_of
from langchain_ctxbudget.retrieval.filling import FILLING, Selection, source_of
from langchain_ctxbudget.retrieval.passages import join_neighbours
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.retrieval.siblings import without_siblings
from langchain_ctxbudget.search import Scores, highest, z_scores
from langchain_ctxbudget.settings import RetrievalSettings


@dataclass(frozen=True, slots=True)
class SelectionPolicy:
    """Which texts are looked at, and how relevant they must be compared with the best one.

    On LoCoMo at 4,096 tokens, the comparison makes a quarter of the prompts half as long, for a
    hundredth of what they find.
    """

    most_worth: int = 2_048
    """How many of the best texts are compared with their prices."""
    candidates: int = 256
    """How many of them are looked at; in a large budget, as many as there is room for if each were
    as small as can be."""
    standing_out: float = 7.0
    """The best text stands out if its relevance is more standard deviations than this above the
    mean."""
    share_per_deviation: float = 0.05
    """For each deviation more, other texts must have so much more of its relevance, as a share."""
    most_share: float = 0.2
    """The largest share that they must have."""


SELECTION = SelectionPolicy()
GOLDEN_RATIO = (1 + 5**0.5) / 2
"""The fractions of its multiples are spread evenly, however many there are."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What is quoted, and an account of what is not."""

    fragments: tuple[Fragment, ...] = ()
    """The quotes, in the order in which they stand in the prompt."""
    more_omitted: Mapping[Reason, int] = field(default_factory=dict)
    """The number of texts left out without being listed, by reason."""
    scores: Callable[[str, str], dict[str, float]] = lambda *_: {}
    """Returns what each part of the ranking says of a quote, by its source and id; empty for one
    that was not ranked."""
    omitted: Callable[[], tuple[ReportItem, ...]] = tuple
    """Returns the best of the texts left out, and about what each would have cost. It is a function
    because only a report needs their texts, which must be decoded."""


def select(
    conversation: Conversation,
    pool: Pool,
    verbatim_from: int,
    budget_tokens: int,
    *,
    shown: Collection[int] = (),
    shown_ids: Collection[str] = (),
    in_short: Collection[int] = (),
    prices: tuple[float, float] = (0.0, 0.0),
    transient_tokens: int = 0,
    is_numbered: bool = False,
    limits: RetrievalSettings,
) -> Retrieved:
    """Fills a budget with the texts that are worth most per token, and at least their price.

    Args:
        conversation: The conversation that is open.
        pool: All texts that may be quoted, ranked.
        verbatim_from: The position from which on all messages stand in the prompt already.
        budget_tokens: What the quotes may cost.
        shown: The positions of other messages that stand in the prompt already.
        shown_ids: The ids of texts from elsewhere that stand in the prompt already.
        in_short: The positions of messages of which only a part stands in the prompt.
        prices: The probability with which a text must be needed, for each of its tokens; first of
            texts from anywhere else, then of messages of other conversations.
        transient_tokens: The quotes that the budget without so many tokens does not pay for are
            transient, the last ones in time: they stand behind the rest, and only in this prompt.
        is_numbered: Whether lines have the numbers of their messages.
        limits: The settings of retrieval.
    """
    first_message = len(pool.others)
    is_shown = _are_shown(pool, verbatim_from, shown, in_short)
    is_free = pool.may_be_quoted.copy()
    is_free[first_message:] &= ~is_shown[pool.places]
    repeats_question = pool.wordings == saying("", pool.question.text)[1]
    selection = Selection(
        conversation,
        pool,
        tokens_left=budget_tokens,
        may_come=is_free & ~repeats_question,
        most_items=len(is_free) if limits.most_items is None else limits.most_items,
        is_numbered=is_numbered,
        transient_tokens=transient_tokens,
    )
    named = selection.take_named()
    is_free[:first_message] &= ~_others_shown(pool, named, shown_ids)
    messages_shown = np.flatnonzero(is_shown & pool.searched.quotable)

    is_relevant = is_free & _are_relevant(pool, prices, limits.min_relevance)
    best = highest(np.flatnonzero(is_relevant), pool.ranking.keys, SELECTION.most_worth)
    sayings_shown = pool.searched.index.sayings.values[messages_shown]
    best = _each_said_once(pool, best[~repeats_question[best]], sayings_shown)
    best = without_siblings(pool, best)
    most_candidates = limits.candidates
    if not most_candidates:
        most_candidates = max(SELECTION.candidates, budget_tokens // FILLING.smallest_item_tokens)
    candidates = best[:most_candidates].tolist()
    if pool.question.is_broad:
        selection.take_index(_for_index(conversation, pool, best).tolist())
    selection.fill(candidates)
    join_neighbours(selection)
    selection.mark_replaced(messages_shown.tolist())

    # Of messages, also those that are not in the pool could have been quoted.
    quotable = np.count_nonzero(is_free[:first_message]) + np.count_nonzero(pool.searched.quotable)
    return _account(
        selection,
        named,
        candidates,
        quotable=int(quotable) - len(messages_shown),
        irrelevant=int(np.count_nonzero(is_free) - np.count_nonzero(is_relevant)),
    )


def _are_shown(
    pool: Pool, verbatim_from: int, shown: Collection[int], in_short: Collection[int]
) -> NDArray[np.bool_]:
    """Returns which messages of the conversation stand in the prompt whole, by position."""
    is_shown = np.zeros(len(pool.searched.quotable), np.bool_)
    is_shown[verbatim_from:] = True
    is_shown[[position for position in shown if position < verbatim_from]] = True
    is_shown[[*in_short]] = False
    return is_shown


def _others_shown(
    pool: Pool, named: Sequence[Fragment], shown_ids: Collection[str]
) -> NDArray[np.bool_]:
    """Returns which texts from elsewhere stand in the prompt, alone or within a whole document."""
    documents = {part.id for part in named if part.status is Status.INCLUDED}
    is_shown: list[bool] = []
    for other in pool.others:
        document, _, _ = other.id.rpartition("#")
        is_shown.append(other.id in shown_ids or document in documents)
    return np.array(is_shown, np.bool_)


def _are_relevant(
    pool: Pool, prices: tuple[float, float], min_relevance: float
) -> NDArray[np.bool_]:
    """Returns which texts have enough to do with the message, and are worth their price.

    To small talk, none has. To a broad message, such as one that asks for a summary, every text
    has, however little they have in common.
    """
    texts = len(pool.may_be_quoted)
    if pool.question.is_small_talk:
        return np.zeros(texts, np.bool_)
    if pool.question.is_broad:
        return np.ones(texts, np.bool_)
    is_relevant = _are_near_best(pool.ranking.relevance) | pool.evidence.asked_for
    is_relevant &= _are_worth_their_price(pool, prices, min_relevance)
    evidence = pool.evidence
    if evidence.is_weak:
        is_related_here = evidence.are_related & ~_are_of_other_conversations(pool)
        is_relevant &= evidence.stands_out | evidence.asked_for | is_related_here
    return is_relevant


def _are_near_best(relevance: Scores) -> NDArray[np.bool_]:
    """Returns which texts are not far behind the most relevant one.

    The further it stands out, the closer they must be. All are near if it does not stand out.
    """
    scores = z_scores(relevance)
    best = scores.max(initial=0.0)
    share = SELECTION.share_per_deviation * (best - SELECTION.standing_out)
    if share <= 0:
        return np.ones(len(relevance), np.bool_)
    near: NDArray[np.bool_] = scores >= best * min(SELECTION.most_share, share)
    return near


def _are_worth_their_price(
    pool: Pool, prices: tuple[float, float], min_relevance: float
) -> NDArray[np.bool_]:
    """Returns which texts are needed with a probability that is high enough.

    Args:
        pool: All texts.
        prices: The least probability for each token that a text costs, see `select`.
        min_relevance: The least probability of any text.
    """
    price, price_of_other_conversations = prices
    least_per_token = np.where(
        _are_of_other_conversations(pool), price_of_other_conversations, price
    )
    is_worth: NDArray[np.bool_] = np.maximum(least_per_token, min_relevance) <= 0
    if is_worth.all():  # nothing is asked of any text
        return is_worth
    order = highest(np.flatnonzero(pool.may_be_quoted), pool.ranking.keys, SELECTION.most_worth)
    costs = pool.costs[order]
    least = np.maximum(least_per_token[order] * costs, min_relevance)
    is_worth[order] = pool.evidence.probabilities(order, costs) >= least
    return is_worth


def _are_of_other_conversations(pool: Pool) -> NDArray[np.bool_]:
    """Returns which texts are messages of other conversations."""
    is_other = np.zeros(len(pool.may_be_quoted), np.bool_)
    is_other[: len(pool.others)] = [other.source == "conversations" for other in pool.others]
    return is_other


def _for_index(
    conversation: Conversation, pool: Pool, numbers: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Returns the texts that have to do with a question about everything, the most relevant first.

    To a question that names nothing ("Summarise our talks.") all have: they come in an order whose
    beginning is spread over all times. Of an order of events, the user's messages tell.
    """
    if pool.question.asks_for_order:
        numbers = numbers[_are_of_user(conversation, pool)[numbers]]
    if pool.question.names_matter:
        numbers = numbers[pool.evidence.are_related[numbers]]
        return highest(numbers, pool.ranking.relevance, len(numbers))
    places = np.arange(len(numbers)) * GOLDEN_RATIO % 1
    return np.sort(numbers)[np.argsort(places)]


def _are_of_user(conversation: Conversation, pool: Pool) -> NDArray[np.bool_]:
    """Returns which texts the user says, here or in other conversations."""
    elsewhere = np.array([other.from_user for other in pool.others], np.bool_)
    here = conversation.table.human.values[pool.places]
    return np.concatenate((elsewhere, here))


def _each_said_once(
    pool: Pool, numbers: NDArray[np.intp], sayings_shown: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Leaves out texts that repeat a shown message or an earlier text."""
    sayings = pool.sayings[numbers]
    firsts = np.sort(np.unique(sayings, return_index=True)[1])
    is_new = ~np.isin(sayings[firsts], sayings_shown)
    return numbers[firsts[is_new]]


def _account(
    selection: Selection,
    named: Sequence[Fragment],
    candidates: Sequence[int],
    *,
    quotable: int,
    irrelevant: int,
) -> Retrieved:
    """Returns what was selected, with an account of the texts that were left out.

    Args:
        selection: What was taken of the candidates.
        named: The documents that were taken before them.
        candidates: The texts that were looked at.
        quotable: How many texts could have been quoted.
        irrelevant: How many of these are not relevant enough.
    """
    pool = selection.pool
    chosen = selection.in_order()
    shown: set[int] = set()
    for number in selection.chosen:
        shown.update(selection.passages.get(number, (number,)))
    listed = [number for number in candidates if number not in shown][:LISTED_OMISSIONS]
    more = quotable - len(shown) - len(listed)
    # A reply that is quoted beside its question may be irrelevant: then fewer than that are left.
    low_relevance = min(irrelevant, more)
    omitted = {
        Reason.RANKED_LOWER: more - low_relevance,
        Reason.LOW_RELEVANCE: low_relevance,
    }
    numbers_of = {(part.source, part.id): number for number, part in chosen}

    def scores(source: str, item_id: str) -> dict[str, float]:
        number = numbers_of.get((source, item_id))
        return {} if number is None else pool.ranking.scores(number)

    return Retrieved(
        fragments=(*named, *(part for _, part in chosen)),
        more_omitted={reason: count for reason, count in omitted.items() if count},
        scores=scores,
        omitted=lambda: tuple(_left_out(pool, number) for number in listed),
    )


def _left_out(pool: Pool, number: int) -> ReportItem:
    """Returns what a report says of a text that was left out."""
    text = pool.text(number)
    return ReportItem(
        id=text.id,
        tokens=int(pool.costs[number]),
        status=Status.OMITTED,
        reason=Reason.RANKED_LOWER,
        preview=preview(text.text),
        source=source_of(text),
        citation=citation_of([text]),
        scores=pool.ranking.scores(number),
    )
