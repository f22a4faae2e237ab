"""Which messages of a transcript a query is about, read once and then searched again and again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from weakref import WeakKeyDictionary

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_ctxbudget.core.ranking import RELEVANCE_FLOOR, LexicalIndex, Scores, cosine, relevance
from langchain_ctxbudget.core.text import terms
from langchain_ctxbudget.flow import Flow, embed, embed_query
from langchain_ctxbudget.retrieval.evicted import without_names
from langchain_ctxbudget.retrieval.transcript import Quotable, Transcript


@dataclass(slots=True)
class _Read:
    """What the last search has read of a transcript."""

    lexical: LexicalIndex
    digest: str
    """A digest of the messages in it."""
    vectors: dict[str, list[float]] = field(default_factory=dict)
    """Of texts that are not stored."""


_read: WeakKeyDictionary[LexicalIndex, _Read] = WeakKeyDictionary()
"""By the index that prompts search, which goes when its conversation is closed, erased or changed where it has read."""


def ranked(transcript: Transcript, query: str, embeddings: Embeddings | None) -> Flow[list[int]]:
    """The positions of the messages that a query is about, the most relevant first.

    Args:
        transcript: of a conversation whose lock is held.
        query: what to look for.
        embeddings: None, or embeddings that fail, leave the search to the words.
    """
    searched = [at for at in range(transcript.stored, len(transcript)) if transcript.is_searched(at)]
    rest = [transcript[at] for at in searched]
    read = _up_to_date(transcript, rest)
    shared = read.lexical.scores(terms(query))
    dense = None
    if embeddings is not None:
        with suppress(Exception):  # whatever embeddings raise, the words are still searched
            dense = yield from _similarities(transcript, [item.text for item in rest], read, query, embeddings)
    relevances = relevance(shared, dense)
    # Where all messages are equally relevant, as in a conversation of one, those with a word of the query are meant.
    meant = (relevances > RELEVANCE_FLOOR) | ((relevances == RELEVANCE_FLOOR) & (shared > 0))
    order = [place for place in np.argsort(-relevances, kind="stable").tolist() if meant[place]]
    positions = (place if place < transcript.stored else searched[place - transcript.stored] for place in order)
    return [position for position in positions if transcript.is_searched(position)]


def _up_to_date(transcript: Transcript, rest: Sequence[Quotable]) -> _Read:
    """The index of a transcript: that of the last search where it goes on with it, else a new one.

    The index that prompts search ends where verbatim history begins. It stays as it is, or it would be made anew.
    """
    entries, prompts, stored = transcript.conversation.entries, transcript.conversation.lexical, transcript.stored
    digests = [transcript.conversation.digest]
    for item in rest:
        digests.append(_digest(digests[-1], item))

    def digest(length: int) -> str:
        return entries[length - 1].digest if 0 < length < stored else digests[max(0, length - stored)]

    size, read = stored + len(rest), _read.get(prompts)
    if read is None or len(read.lexical) > size or digest(len(read.lexical)) != read.digest:
        read = _read[prompts] = _Read(prompts.copy(), "", read.vectors if read else {})
    start = len(read.lexical)
    new = [*entries[start:], *rest[max(0, start - stored) :]]
    read.lexical.extend(terms(f"{item.speaker} {item.text}") for item in new)
    read.digest = digest(size)
    return read


def _digest(before: str, item: Quotable) -> str:
    said = f"{before}\0{item.speaker}\0{item.text}".encode(errors="surrogatepass")
    return blake2b(said, digest_size=16).hexdigest()


def _similarities(
    transcript: Transcript, rest: Sequence[str], read: _Read, query: str, embeddings: Embeddings
) -> Flow[Scores]:
    """How alike the vectors of the messages are to that of a query; no text is embedded twice."""
    conversation = transcript.conversation
    while texts := conversation.texts_to_embed(transcript.stored):
        conversation.add_vectors((yield from embed(embeddings, texts)))
    missing = [text for text in dict.fromkeys(rest) if text not in read.vectors]
    made = dict(zip(missing, (yield from embed(embeddings, missing)), strict=True))
    read.vectors = {text: made[text] if text in made else read.vectors[text] for text in rest}
    target = np.asarray((yield from embed_query(embeddings, without_names(query, conversation.names))), np.float32)
    rows = [] if conversation.vectors is None else [conversation.vectors]
    rows += [np.asarray([read.vectors[text] for text in rest], np.float32)] if rest else []
    return cosine(rows[0] if len(rows) == 1 else np.concatenate(rows), target)
