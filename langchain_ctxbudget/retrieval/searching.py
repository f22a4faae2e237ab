"""Which messages of a transcript a query is about."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history.message_index import searched_text
from langchain_ctxbudget.messages.text import terms
from langchain_ctxbudget.retrieval.pool import Searched, similarities
from langchain_ctxbudget.retrieval.transcript import Transcript
from langchain_ctxbudget.search.lexical import LexicalIndex
from langchain_ctxbudget.search.ranking import z_scores


def ranked(transcript: Transcript, query: str, embeddings: Embeddings | None) -> Flow[list[int]]:
    """The positions of the messages that a query is about, the most relevant first.

    Args:
        transcript: of a conversation whose lock is held.
        query: what to look for.
        embeddings: None, or embeddings that fail, leave the search to the words.
    """
    searched, stored = Searched.of(transcript.conversation), transcript.stored
    index = searched.index
    rest = [at for at in range(stored, len(transcript)) if transcript.is_searched(at)]
    others = LexicalIndex()
    others.extend(terms(searched_text(transcript[at].speaker, transcript[at].text)) for at in rest)
    wanted = terms(query)
    words = np.concatenate(
        (others.scores(wanted, background=index.lexical), index.lexical.scores(wanted, background=others))
    )
    relevances = z_scores(words)
    if embeddings is not None:
        texts = [transcript[at].text for at in rest]
        with suppress(Exception):  # whatever embeddings raise, the words are still searched
            meanings = yield from similarities(searched, query, embeddings, texts)
            relevances = relevances + z_scores(meanings.scores)
    # Where all messages are equally relevant, as in a conversation of one, those with a word of the query are meant.
    meant = (relevances > 0) | ((relevances == 0) & (words > 0))
    order = [place for place in np.argsort(-relevances, kind="stable").tolist() if meant[place]]
    positions = (rest[place] if place < len(rest) else place - len(rest) for place in order)
    return [position for position in positions if transcript.is_searched(position)]
