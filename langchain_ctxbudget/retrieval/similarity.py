"""Vectors of a query and of everything that it is compared with; no text is embedded twice."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_ctxbudget import search
from langchain_ctxbudget.flow import Flow, embed, embed_query, in_thread, with_fallback
from langchain_ctxbudget.history import OtherMessage
from langchain_ctxbudget.messages import digest, terms
from langchain_ctxbudget.retrieval.searched import (
    REMEMBERED_TEXTS,
    Other,
    Searched,
    spoken_query,
)
from langchain_ctxbudget.stores import embeddings_name

RARE_SHARE = 0.5
"""How much the vector of a query is that of its words by how rare they are in the conversation.

The rest is that of the embeddings, which know how rare words are in general.
"""
MOST_WORDS = 256
"""Words of a query, from its beginning, whose rarity counts."""
MOST_SHARED = REMEMBERED_TEXTS // 8
"""Messages embedded at once up to which other conversations may find their vectors."""
MOST_ENCODED = 8
"""Messages without a sentence vector that a prompt encodes itself; of more, the background encodes
them, and a prompt waits for none."""
MOST_OTHERS_ENCODED = 16
"""Texts from elsewhere that get a sentence vector: those whose words are nearest to the query."""
RENEWED = (
    "embeddings: the stored vectors of the messages were made by others; "
    "all messages were embedded again"
)
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Similar:
    """The vectors of a query, of the messages, and of texts from elsewhere."""

    target: search.Vectors
    own_vectors: search.CentredVectors
    others: search.Vectors
    encoded: search.Encoded | None = None
    """Their sentence vectors, where there is an encoder."""

    def compared(self, places: NDArray[np.intp]) -> "ComparedTexts":
        """Returns what can be compared: texts from elsewhere, then the messages at some places."""
        sentences = None if self.encoded is None else self.encoded.compared(places)
        return ComparedTexts(self, self.own_vectors.compared(self.others, places), sentences)

    def likeness(self) -> list[NDArray[np.int16]]:
        """Returns how like the query every message is, for each kind of vectors."""
        alike = [self.own_vectors.likeness(self.target)]
        if self.encoded is not None:
            alike.append(self.encoded.likeness(len(self.own_vectors)))
        return alike


@dataclass(frozen=True, slots=True)
class ComparedTexts:
    """Texts that are compared by their words and, those that are encoded, by their sentences."""

    similar: Similar
    words: search.Compared
    sentences: search.ComparedSentences | None

    def cosines(self) -> search.Scores:
        """Returns how near every text is to the query."""
        cosines = self.words.cosines(self.similar.target)
        if self.sentences is None or self.similar.encoded is None:
            return cosines
        return self.sentences.beside_cosines(cosines, self.similar.encoded.target)

    def to_mean(self, numbers: NDArray[np.intp], weights: search.Scores) -> search.Scores:
        """Returns how near every text is to the mean of some, by number and weight."""
        cosines = self.words.to_mean(numbers, weights)
        if self.sentences is None:
            return cosines
        return self.sentences.beside_means(cosines, numbers, weights)


def similarities(
    searched: Searched,
    query: str,
    embeddings: Embeddings,
    failures: list[str],
    others: Sequence[Other],
) -> Flow[Similar]:
    """Returns the vectors of a query and of all texts, and embeds those that have none.

    Args:
        searched: The messages of the conversation.
        query: What is asked.
        embeddings: Make the vectors.
        failures: Gets a line if some texts have no usable vector.
        others: Texts from elsewhere.
    """
    index = searched.index
    spoken = spoken_query(searched, query)
    vector = yield from _vector_of_query(searched, spoken, embeddings)
    name = f"{embeddings_name(embeddings)} {len(vector)}"
    is_renewed = index.embedded_by(name)
    vectors = _vectors_of_others(others, name, searched.elsewhere)
    target = search.as_query(vector, index.vectors.width or vectors.width)
    if isinstance(embeddings, search.LocalEmbeddings):
        target = _weighted_by_rarity(target, spoken, embeddings, index.lexical)

    lost = yield from _embed_messages(searched, embeddings, name, target.size)
    lost += yield from _embed_others(vectors, searched, embeddings, target.size)
    if lost:
        failures.append(
            f"embeddings: no usable vector for {lost} texts, found by their words alone"
        )
    elif is_renewed:
        failures.append(RENEWED)
    similar = Similar(target=target, own_vectors=index.vectors, others=vectors.rows(target.size))
    if searched.encoder is None:
        return similar
    encoding = _encoded(
        searched, searched.encoder, spoken, similar=similar, others=others, failures=failures
    )
    encoded = yield from with_fallback(encoding, None, "encoder", failures)
    return replace(similar, encoded=encoded)


def _encoded(
    searched: Searched,
    encoder: search.Encoder,
    spoken: str,
    *,
    similar: Similar,
    others: Sequence[Other],
    failures: list[str],
) -> Flow[search.Encoded]:
    """Returns the sentence vectors of a query and of those texts that have one.

    A few messages that have none yet are encoded first, and so are the nearest texts from
    elsewhere.
    """
    index = searched.index
    index.encoded_with(encoder.model)
    missing = len(searched.entries) - len(index.encoded)
    if missing <= MOST_ENCODED:
        texts = index.texts_to_encode(searched.entries, MOST_ENCODED)
        index.encoded.extend((yield in_thread(partial(encoder.encode, texts))))
    else:
        failures.append(
            f"encoder: {missing:,} messages have no sentence vector yet; their words serve"
        )
    [target] = yield in_thread(partial(encoder.encode, [spoken]))
    rows = np.zeros((len(others), encoder.dimensions), np.float32)
    nearest = similar.own_vectors.compared(similar.others, np.arange(0)).cosines(similar.target)
    for number in search.chosen_to_encode(nearest, MOST_OTHERS_ENCODED).tolist():
        text = others[number].text
        key = _key_of(encoder.model, text)
        if key not in searched.elsewhere:
            [searched.elsewhere[key]] = yield in_thread(partial(encoder.encode, [text]))
        rows[number] = searched.elsewhere[key]
    return search.Encoded(target, index.encoded, rows)


def _vector_of_query(
    searched: Searched, spoken: str, embeddings: Embeddings
) -> Flow[Sequence[float]]:
    """Returns the vector of a query, the one that is known if it is of the same words."""
    if searched.embedded_query and searched.embedded_query[0] == spoken:
        return searched.embedded_query[1]
    return (yield from embed_query(embeddings, spoken))


def _weighted_by_rarity(
    target: search.Vectors,
    query: str,
    embeddings: search.LocalEmbeddings,
    lexical: search.LexicalIndex,
) -> search.Vectors:
    """Returns the vector of a query in which words count that are rare in the conversation."""
    rarities: dict[str, float] = {}
    for word in islice(dict.fromkeys(_WORD.findall(query)), MOST_WORDS):
        stems = terms(word)
        if stems:
            rarities[word] = max(lexical.rarities(stems).values())
    if not rarities:
        return target
    by_words = search.units(np.asarray(embeddings.embed_words(rarities), np.float32))
    return RARE_SHARE * by_words + (1 - RARE_SHARE) * search.units(target)


def _embed_messages(searched: Searched, embeddings: Embeddings, name: str, width: int) -> Flow[int]:
    """Embeds the messages that have no vector yet, and returns how many get no usable one."""
    index = searched.index
    lost = 0
    while texts := index.texts_to_embed(searched.entries):
        rows = search.comparable((yield from embed(embeddings, texts)), width)
        lost += _without_vector(texts, rows)
        index.vectors.extend(rows)
        if len(texts) > MOST_SHARED:
            continue
        for text, row in zip(texts, rows, strict=True):
            if row.any():
                searched.elsewhere[_key_of(name, text)] = row
    return lost


@dataclass(slots=True)
class _OtherVectors:
    """The vectors of texts from elsewhere, as far as they are known."""

    keys: list[int | bytes] = field(default_factory=list)
    """A key for every text: its number where its conversation knows its vector, else a digest."""
    texts: dict[int | bytes, str] = field(default_factory=dict)
    """The texts, by key, whose vectors their conversations do not know."""
    vectors: dict[int | bytes, search.Vectors] = field(default_factory=dict)
    """The known vectors, by key."""

    @property
    def width(self) -> int:
        """The number of values of a vector, 0 if none is known."""
        return next((len(vector) for vector in self.vectors.values()), 0)

    def rows(self, width: int) -> search.Vectors:
        """Returns the vectors of all texts in order, once all are known."""
        rows = np.array([self.vectors[key] for key in self.keys], np.float32)
        return rows.reshape(len(self.keys), width)


def _vectors_of_others(
    others: Sequence[Other], name: str, remembered: Mapping[bytes, search.Vectors]
) -> _OtherVectors:
    """Returns what is known of the vectors of texts from elsewhere that some embeddings made."""
    known = _OtherVectors()
    for number, other in enumerate(others):
        own_vector = _vector_in_conversation(other, name)
        if own_vector is not None:
            known.keys.append(number)
            known.vectors[number] = own_vector
            continue
        key = _key_of(name, other.text)
        known.keys.append(key)
        known.texts[key] = other.text
        row = remembered.get(key)
        if row is not None:
            known.vectors[key] = row
    return known


def _vector_in_conversation(other: Other, name: str) -> search.Vectors | None:
    """Returns the vector that its conversation knows of a text, if some embeddings made it."""
    if isinstance(other, OtherMessage) and other.vectors_by == name:
        return other.vector
    return None


def _embed_others(
    others: _OtherVectors, searched: Searched, embeddings: Embeddings, width: int
) -> Flow[int]:
    """Embeds the texts from elsewhere without a vector, and returns how many get no usable one."""
    missing = {key: text for key, text in others.texts.items() if key not in others.vectors}
    texts = list(missing.values())
    rows = search.comparable((yield from embed(embeddings, texts)), width)
    remembered = searched.elsewhere
    if len(remembered) > REMEMBERED_TEXTS:
        remembered.clear()
    for key, row in zip(missing, rows, strict=True):
        others.vectors[key] = row
        if isinstance(key, bytes) and row.any():
            remembered[key] = row
    return _without_vector(texts, rows)


def _key_of(name: str, text: str) -> bytes:
    """Returns the key of the vector that some embeddings make of a text."""
    return digest(f"{name} {text}")


def _without_vector(texts: Sequence[str], rows: search.Vectors) -> int:
    """Returns how many texts have no vector though they say something."""
    without = np.flatnonzero(~rows.any(axis=1)).tolist()
    return sum(bool(texts[number].strip()) for number in without)
