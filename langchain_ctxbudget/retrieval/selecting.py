"""Selects the found texts that are worth most per token, and accounts for the rest."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from langchain_ctxbudget.budget import Fragment, Reason, Status
from langchain_ctxbudget.history import Conversation, saying
from langchain_ctxbudget.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.retrieval.filling import FILLING, Selection, source_of
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.retrieval.siblings import without_siblings
from langchain_ctxbudget.search import Scores, highest, z_scores
from langchain_ctxbudget.settings import RetrievalSettings


@dataclass(frozen=True, slots=True)
class SelectionPolicy:
    """Which texts are looked at, and how close they must be to the best one.

    The latter, on LoCoMo at 4,096 tokens: a quarter of the prompts get half as long, and a
    hundredth of what they find goes.
    """

    most_worth: int = 2_048
    """The best texts that may be worth their tokens."""
    candidates: int = 256
    """Those of them that are looked at; in a large budget, as many as the smallest items fit in."""
    standing_out: float = 7.0
    """Standard deviations of relevance above the mean from which the best text stands out."""
    share_per_deviation: float = 0.05
    """Share of its relevance that others must have, for each deviation more."""
    most_share: float = 0.2
    """The largest share that others must have."""


SELECTION = SelectionPolicy()


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Items in the order in which they stand, and the account of the rest."""

    fragments: tuple[Fragment, ...] = ()
    more_omitted: Mapping[Reason, int] = field(default_factory=dict)
    """The number of texts left out without being listed, by reason."""
    scores: Callable[[str, str], dict[str, float]] = lambda *_: {}
    """Tells what every part of the ranking says of an item, by source and id; nothing of one that
    was not ranked."""
    omitted: Callable[[], tuple[ReportItem, ...]] = tuple
    """Tells the best of those left out, and about what each would have cost; only a report decodes
    them."""


def select(
    conversation: Conversation,
    pool: Pool,
    end: int,
    budget_tokens: int,
    *,
    shown: Collection[int] = (),
    given: Collection[str] = (),
    in_short: Collection[int] = (),
    prices: tuple[float, float] = (0.0, 0.0),
    transient_tokens: int = 0,
    numbered: bool = False,
    limits: RetrievalSettings,
) -> Retrieved:
    """Fills a budget with the texts that are worth most per token, and at least their price.

    Args:
        conversation: The conversation that is open.
        pool: All texts, ranked.
        end: The position from which on all messages stand in the prompt already.
        budget_tokens: What the quotes may cost.
        shown: The positions of other messages that stand in the prompt already.
        given: The ids of texts from elsewhere that stand in the prompt already.
        in_short: The positions of messages of which the prompt has only a part.
        prices: How likely a text must be needed for each of its tokens, and one of another
            conversation.
        transient_tokens: What is taken with the last so many tokens of the budget stands behind
            the rest, and only in this prompt.
        numbered: Whether lines have the numbers of their messages.
        limits: The settings of retrieval.
    """
    first = len(pool.others)  # the number of the first message
    stands = _standing(pool, end, shown, in_short)
    free = pool.may_be_quoted.copy()
    free[first:] &= ~stands[pool.places]
    repeats_question = pool.wordings == saying("", pool.question.text)[1]
    selection = Selection(
        conversation,
        pool,
        tokens_left=budget_tokens,
        may_come=free & ~repeats_question,
        most_items=len(free) if limits.most_items is None else limits.most_items,
        is_numbered=numbered,
        transient_tokens=transient_tokens,
    )
    named = selection.take_named()
    free[:first] &= ~_is_given(pool, named, given)
    messages_above = np.flatnonzero(stands & pool.searched.quotable)

    relevant = free & _is_relevant(pool, prices, limits.min_relevance)
    best = highest(np.flatnonzero(relevant), pool.ranking.keys, SELECTION.most_worth)
    sayings_above = pool.searched.index.sayings.values[messages_above]
    best = _each_said_once(pool, best[~repeats_question[best]], sayings_above)
    best = without_siblings(pool, best)
    most_candidates = limits.candidates
    if not most_candidates:
        most_candidates = max(SELECTION.candidates, budget_tokens // FILLING.smallest_item_tokens)
    candidates = best[:most_candidates].tolist()
    selection.fill(candidates)
    selection.mark_replaced(messages_above.tolist())

    quotable = np.count_nonzero(free[:first]) + np.count_nonzero(pool.searched.quotable)
    return _account(
        selection,
        named,
        candidates,
        free=int(quotable) - len(messages_above),
        irrelevant=int(np.count_nonzero(free) - np.count_nonzero(relevant)),
    )


def _standing(
    pool: Pool, end: int, shown: Collection[int], in_short: Collection[int]
) -> NDArray[np.bool_]:
    """Returns which messages stand in the prompt whole."""
    stands = np.zeros(len(pool.searched.quotable), np.bool_)
    stands[end:] = True
    stands[[position for position in shown if position < end]] = True
    stands[[*in_short]] = False
    return stands


def _is_given(pool: Pool, named: Sequence[Fragment], given: Collection[str]) -> NDArray[np.bool_]:
    """Returns which texts from elsewhere the prompt has, alone or as a part of a whole document."""
    whole = {part.id for part in named if part.status is Status.INCLUDED}
    is_given = [other.id in given or other.id.rpartition("#")[0] in whole for other in pool.others]
    return np.array(is_given, np.bool_)


def _is_relevant(
    pool: Pool, prices: tuple[float, float], min_relevance: float
) -> NDArray[np.bool_]:
    """Returns which texts have enough to do with the message.

    Small talk is about none. A broad message, such as one that asks for a summary, is about each
    text, however little they have in common.
    """
    texts = len(pool.may_be_quoted)
    if pool.question.is_small_talk:
        return np.zeros(texts, np.bool_)
    if pool.question.is_broad:
        return np.ones(texts, np.bool_)
    relevant = _is_near_best(pool.ranking.relevance) | pool.evidence.asked_for
    relevant &= _is_worth_its_price(pool, prices, min_relevance)
    if pool.evidence.is_weak:
        relevant &= ~_is_of_other_conversation(pool)
    return relevant


def _is_near_best(relevance: Scores) -> NDArray[np.bool_]:
    """Returns which texts are not far behind the best one.

    The further that stands out, the closer they must be.
    """
    scores = z_scores(relevance)
    best = scores.max(initial=0.0)
    share = SELECTION.share_per_deviation * (best - SELECTION.standing_out)
    if share <= 0:
        return np.ones(len(relevance), np.bool_)
    near: NDArray[np.bool_] = scores >= best * min(SELECTION.most_share, share)
    return near


def _is_worth_its_price(
    pool: Pool, prices: tuple[float, float], min_relevance: float
) -> NDArray[np.bool_]:
    """Returns which texts are needed with at least a probability, and that of their price.

    Args:
        pool: All texts.
        prices: The least probability for each token of a text, and of one of another conversation.
        min_relevance: The least probability of any text.
    """
    price, price_elsewhere = prices
    least_per_token = np.where(_is_of_other_conversation(pool), price_elsewhere, price)
    is_worth: NDArray[np.bool_] = np.maximum(least_per_token, min_relevance) <= 0
    if is_worth.all():
        return is_worth
    order = highest(np.flatnonzero(pool.may_be_quoted), pool.ranking.keys, SELECTION.most_worth)
    costs = pool.costs[order]
    least = np.maximum(least_per_token[order] * costs, min_relevance)
    is_worth[order] = pool.evidence.probabilities(order, costs) >= least
    return is_worth


def _is_of_other_conversation(pool: Pool) -> NDArray[np.bool_]:
    """Returns which texts are messages of other conversations."""
    is_other = np.zeros(len(pool.may_be_quoted), np.bool_)
    is_other[: len(pool.others)] = [other.source == "conversations" for other in pool.others]
    return is_other


def _each_said_once(
    pool: Pool, numbers: NDArray[np.intp], sayings_above: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Leaves out texts that the prompt has already, and repetitions of other texts."""
    sayings = pool.sayings[numbers]
    firsts = np.sort(np.unique(sayings, return_index=True)[1])
    is_new = ~np.isin(sayings[firsts], sayings_above)
    return numbers[firsts[is_new]]


def _account(
    selection: Selection,
    named: Sequence[Fragment],
    candidates: Sequence[int],
    *,
    free: int,
    irrelevant: int,
) -> Retrieved:
    """Returns what was selected, and tells of each other text that it was left out.

    Args:
        selection: What was taken of the candidates.
        named: What was taken before them.
        candidates: The texts that were looked at.
        free: The number of texts that could have been quoted.
        irrelevant: The number of those that are not relevant enough.
    """
    pool = selection.pool
    chosen = selection.in_order()
    listed = [number for number in candidates if number not in selection.chosen]
    listed = listed[:LISTED_OMISSIONS]
    more = free - len(chosen) - len(listed)
    # A reply is quoted for its question, however irrelevant it is.
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
        scores=pool.ranking.scores(number),
    )
