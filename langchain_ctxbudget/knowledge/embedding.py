"""Vectors of topics, by which a message is recognised that names none of their words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.vectors import units
from langchain_ctxbudget.flow import Flow, embed, locked
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.knowledge.records import TopicProfile
from langchain_ctxbudget.knowledge.state import read_state, save
from langchain_ctxbudget.stores.dense import identity


def embed_topics(store: BaseStore, user_id: str, embeddings: Embeddings) -> Flow[int]:
    """Give every topic of a user a vector that has none, or one of another model; how many there were.

    The model works while nobody waits: what was changed meanwhile is left as it is.
    """
    model = identity(embeddings)
    knowledge = yield from known.read(store, user_id)
    missing = [topic for topic in knowledge.topics if topic.embedding_model != model]
    rows = yield from embed(embeddings, [_text(topic) for topic in missing])
    if not missing:
        return 0
    vectors = units(np.asarray(rows, np.float32)).round(6).tolist()
    made = {_text(topic): tuple(vector) for topic, vector in zip(missing, vectors, strict=True)}
    epoch = known.epoch_of(store, user_id)

    def body() -> Flow[None]:
        if known.epoch_of(store, user_id) != epoch:
            return
        before, mark = yield from read_state(store, user_id)
        topics = tuple(
            topic.model_copy(update={"embedding": made[_text(topic)], "embedding_model": model})
            if topic.embedding_model != model and _text(topic) in made
            else topic
            for topic in before.topics
        )
        yield from save(store, user_id, before, replace(before, topics=topics), mark)

    yield from locked(known.lock_of(store, user_id), body())
    return len(missing)


def _text(topic: TopicProfile) -> str:
    """What a topic is called, in all forms."""
    return ". ".join((topic.label, *topic.aliases))
