"""Just-in-time retrieval from the conversation's own messages that are no longer verbatim."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget.core import fences
from langchain_ctxbudget.core.assembly import Fragment
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.packing import pack
from langchain_ctxbudget.core.ranking import RELEVANCE_FLOOR, Scores, cosine, relevance, value_per_token
from langchain_ctxbudget.core.report import LISTED_OMISSIONS, ReportItem, preview
from langchain_ctxbudget.core.text import terms
from langchain_ctxbudget.flow import Flow, embed, embed_query
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.history.entry import Entry

SECTION = "## Said earlier in this conversation\n"
SMALLEST_ITEM_TOKENS = 8
UNLIKE_TOKENS = 24
"""A message may cost this much more than its line: role, name, a date above it."""
LINE_OVERHEAD_TOKENS = 4
"""About what a line costs on top of its message: the dash, the colon, the line break."""


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What was found, in the order of time, and the account of the rest."""

    fragments: tuple[Fragment, ...] = ()
    positions: tuple[int, ...] = ()
    omitted: tuple[ReportItem, ...] = ()
    """The best of those left out."""
    more_omitted: Mapping[Reason, int] = field(default_factory=dict)
    """How many more were left out, per reason."""


class Ranked(NamedTuple):
    """How relevant messages are to a query, from the first one on."""

    relevances: Scores
    """One score per message."""
    distinct_terms: Sequence[int]
    """How many different terms each has."""


def rank(
    conversation: Conversation, end: int, query: str, embeddings: Embeddings | None
) -> Flow[tuple[Ranked, str | None]]:
    """How relevant every message before `end` is to a query, and what failed on the way.

    Lexical and dense scores over all of them; without embeddings, or where they fail, lexical alone. Who said it
    is left to the lexical score: a name outweighs everything else in a mean of word vectors.
    """
    conversation.index_until(end)
    lexical = conversation.lexical.scores(terms(query))[:end]
    distinct = conversation.lexical.distinct_terms(end)
    if embeddings is None:
        return Ranked(relevance(lexical, None), distinct), None
    try:
        while texts := conversation.texts_to_embed(end):
            conversation.add_vectors((yield from embed(embeddings, texts)))
        target = yield from embed_query(embeddings, without_names(query, conversation.names))
        vectors = conversation.vectors
        dense = None if vectors is None else cosine(vectors[:end], np.asarray(target, dtype=np.float32))
    except Exception as error:  # noqa: BLE001 - whatever embeddings raise, lexical search still works
        return Ranked(relevance(lexical, None), distinct), f"embeddings: {type(error).__name__}: {error}"
    return Ranked(relevance(lexical, dense), distinct), None


def without_names(query: str, names: Iterable[str]) -> str:
    """A query without the speakers' names; the query itself where nothing else is in it."""
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    rest = re.sub(rf"(?<!\w)(?:{pattern})(?:['’]s)?(?!\w)", "", query) if pattern else query  # noqa: RUF001
    return rest if rest.strip() else query


def select(conversation: Conversation, found: Ranked, budget_tokens: int, shown: Collection[int] = ()) -> Retrieved:
    """Fill a budget with the messages that are worth most per token.

    Args:
        conversation: an open conversation.
        found: scores of the messages before the cut.
        budget_tokens: what the items and their date headings may cost together.
        shown: positions of messages before the cut that the prompt has already.
    """
    relevances, distinct = found
    end = len(relevances)
    entries = conversation.entries
    keys = value_per_token(relevances, conversation.costs[:end], distinct)
    relevant = (relevances >= RELEVANCE_FLOOR).tolist()
    ranked = [i for i in np.argsort(-keys, kind="stable").tolist() if i not in shown and entries[i].is_quotable]
    order = [i for i in ranked if relevant[i]]
    count = conversation.counter.count_text
    count_heading = cache(count)  # of many messages there are few days
    dated: set[str] = set()
    remaining = budget_tokens

    def cost(position: int) -> int:
        nonlocal remaining
        entry = entries[position]
        heading = 0 if not entry.date or entry.date in dated else count_heading(date_heading(entry))
        if entry.tokens - UNLIKE_TOKENS > remaining and isinstance(entry.message.content, str):
            return entry.tokens + heading  # too large by its message's cost: not worth tokenizing
        if entry.line_tokens is None:
            entry.line_tokens = count(line(entry))
        price = entry.line_tokens + heading
        if price <= remaining:
            remaining -= price
            if entry.date:
                dated.add(entry.date)
        return price

    taken = set(pack(order, cost, budget_tokens, SMALLEST_ITEM_TOKENS))
    in_time = sorted(taken, key=lambda i: (entries[i].date or "", i))  # a merged log goes back and forth in time
    left_out = [i for i in ranked if i not in taken]
    listed, more = left_out[:LISTED_OMISSIONS], left_out[LISTED_OMISSIONS:]
    return Retrieved(
        fragments=tuple(_fragment(entries[i], float(keys[i]), count(line(entries[i]))) for i in in_time),
        positions=tuple(sorted(taken)),
        omitted=tuple(_omitted(entries[i], _reason(relevant=relevant[i])) for i in listed),
        more_omitted={_reason(relevant=kind): number for kind, number in Counter(relevant[i] for i in more).items()},
    )


def _reason(*, relevant: bool) -> Reason:
    return Reason.RANKED_LOWER if relevant else Reason.LOW_RELEVANCE


def date_heading(entry: Entry) -> str:
    """The line that items of one day stand under."""
    return f"[{entry.date}]\n" if entry.date else ""


def line(entry: Entry) -> str:
    """A past message as an item."""
    return f"- {entry.speaker}: {fences.as_item(entry.text)}\n"


def _fragment(entry: Entry, value: float, tokens: int) -> Fragment:
    return Fragment(
        layer=Layer.RETRIEVAL,
        id=entry.id,
        text=line(entry),
        tokens=tokens,
        reason=Reason.RELEVANT,
        section=SECTION,
        heading=date_heading(entry),
        value=value,
    )


def _omitted(entry: Entry, reason: Reason) -> ReportItem:
    return ReportItem(
        id=entry.id,
        tokens=entry.tokens + LINE_OVERHEAD_TOKENS,
        status=Status.OMITTED,
        reason=reason,
        preview=preview(entry.text),
    )
