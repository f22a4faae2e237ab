"""One ranking of everything that may be quoted for a message, and the search over it."""

import random
from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore
from pydantic import Field

from langchain_ctxbudget.documents import Catalogue
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.history import Conversation, MessageIndex, MessageTable
from langchain_ctxbudget.retrieval import (
    Pool,
    Searched,
    Sources,
    boosted,
    gather,
    pooled,
    rerank,
    search,
    weighted,
)
from langchain_ctxbudget.retrieval import pool as pools
from langchain_ctxbudget.retrieval.similarity import RENEWED
from langchain_ctxbudget.search import Candidate
from langchain_ctxbudget.settings import RetrievalSettings
from tests.conversations import BagOfWords, conversation

QUERY = "Where is the blue bike?"
TEXTS = st.lists(
    st.sampled_from(["blue", "bike", "kettle", "rain", "garden"]), min_size=1, max_size=5
).map(" ".join)
BIKES = [f"The blue bike is here{'!' * (number + 1)}" for number in range(8)]


def message(number: int, text: str, *, title: str = "c2", **fields: Any) -> Candidate:
    return Candidate(
        id=f"{title}/{number}",
        source="conversations",
        text=text,
        title=title,
        place=number,
        **fields,
    )


def memory(number: int, text: str, kind: Any = "fact", **fields: Any) -> Candidate:
    return Candidate(id=f"memory {number}", source="memories", text=text, kind=kind, **fields)


def ranked(
    view: Conversation, others: Any = (), embeddings: Embeddings | None = None
) -> tuple[Pool, list[str]]:
    failures = list[str]()
    return drive(gather(Searched.of(view), QUERY, embeddings, failures, others)), failures


def gathered(view: Conversation, others: Any = (), embeddings: Embeddings | None = None) -> Pool:
    pool, failures = ranked(view, others, embeddings)
    assert failures == []
    return pool


def over(view: Conversation, table: MessageTable) -> Conversation:
    return Conversation(view.scope, table, view.counter)


def test_texts_from_elsewhere_are_ranked_in_front_of_the_messages_by_source_date_and_place() -> (
    None
):
    others = [
        memory(1, "Likes the bike."),
        message(1, "second bike", date="2026-01-02"),
        message(0, "first bike", date="2026-01-02"),
        message(0, "The blue bike is in the cellar.", title="c3", date="2026-01-01"),
    ]
    pool = gathered(conversation(["It rained.", "The bike is here."]), others, BagOfWords())
    assert [other.text for other in pool.others] == [others[place].text for place in (3, 2, 1, 0)]
    assert (pool.position(4), pool.position(3)) == (0, None)
    assert len(pool.ranking.keys) == len(pool.may_be_quoted) == 6
    assert set(np.argsort(-pool.ranking.relevance)[:2].tolist()) < {0, 1, 2, 5}
    pool = drive(gather(Searched(), QUERY, BagOfWords(), [], others))  # without a conversation, too
    assert len(pool.ranking.keys) == 4


def test_vectors_that_cannot_be_used_are_asked_for_again_and_those_of_another_width_are_not_mixed() -> (
    None
):
    others = [message(number, f"bells {number}") for number in range(3)]
    known = dict[bytes, Any]()
    for width, is_broken, wanted in ((4, True, 3), (4, False, 3), (6, False, 3), (4, False, 0)):
        asked = list[str]()

        class Server(DeterministicFakeEmbedding):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                asked.extend(texts)  # noqa: B023 - called within the round
                return (
                    [[0.0] * width for _ in texts] if is_broken else super().embed_documents(texts)  # noqa: B023
                )

        failures: list[str] = []
        drive(gather(Searched(elsewhere=known), QUERY, Server(size=width), failures, others))
        assert (len(asked), bool(failures)) == (wanted, is_broken), (width, failures)


def test_a_text_from_elsewhere_is_not_quoted_while_the_conversation_says_it_itself() -> None:
    view = conversation(["Hello.", "The bike is blue."])
    others = [message(0, "The bike is blue."), message(1, "The bike is red.")]
    assert [other.text for other in gathered(view, others).others] == ["The bike is red."]
    assert len(gathered(over(view, view.table.changed(1)), others).others) == 2


def by_words(view: Conversation) -> list[float]:
    keys: list[float] = pooled(Searched.of(view, MessageIndex()), QUERY).ranking.keys.tolist()
    return keys


class Named(DeterministicFakeEmbedding):
    model: str


@pytest.mark.parametrize("size", [16, 8])
def test_other_embeddings_embed_all_messages_again(size: int) -> None:
    view = conversation(["The blue bike is here.", "It rained."])
    ranked(view, embeddings=Named(model="one", size=16))
    _, failures = ranked(view, embeddings=Named(model="two", size=size))
    assert failures == [RENEWED]
    vectors = view.table.search_index.vectors
    assert (len(vectors), vectors.width) == (2, size)


def test_a_text_from_elsewhere_is_meant_only_if_it_has_to_do_with_the_question() -> None:
    others = [message(0, "The blue bike is in the cellar."), message(1, "Nothing of it.")]
    for embeddings in (None, BagOfWords()):
        assert gathered(
            conversation(["It rained."]), others, embeddings
        ).may_be_quoted.tolist() == [
            True,
            False,
            True,
        ]


@settings(max_examples=50)
@given(st.lists(TEXTS, max_size=12), st.lists(TEXTS, max_size=8), st.booleans())
def test_the_parts_add_up_to_the_value_of_every_text(
    said: list[str], elsewhere: list[str], dense: bool
) -> None:
    others = [message(number, text) for number, text in enumerate(elsewhere)]
    pool = gathered(conversation(said), others, BagOfWords() if dense else None)
    parts = dict(pool.ranking.components)
    about = sum(
        (parts.pop(name, 0) for name in ("lexical", "dense", "neighbours", "session")), np.zeros(())
    )
    assert about == pytest.approx(pool.ranking.relevance)
    assert sum(parts.values(), np.zeros(len(pool.may_be_quoted))) == pytest.approx(
        pool.ranking.keys
    )
    assert np.isfinite(pool.ranking.keys).all()
    if not (dense or others):
        assert by_words(conversation(said)) == pool.ranking.keys.tolist()


def test_of_many_messages_only_those_that_may_be_worth_it_are_ranked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(4)
    words = [f"w{number}" for number in range(400)]
    said = [" ".join(rng.choices(words, k=8)) for _ in range(3_000)]
    said[1_500] = "The blue bike is behind the shed."
    view = conversation(said)
    others = [message(number, f"w{number} w9") for number in range(3)]
    every = gathered(view, others, BagOfWords())
    monkeypatch.setattr(pools, "ALL_RANKED_UP_TO", 1_000)
    some = gathered(view, others, BagOfWords())
    assert len(every.places) == 3_000
    assert len(some.places) < 2_200
    for pool in (every, some):
        [best] = pool.best(pool.ranking.keys, 1)
        assert pool.position(best) == 1_500
    chosen = [
        {pool.position(number) for number in pool.best(pool.ranking.relevance, 50)}
        for pool in (every, some)
    ]
    assert len(chosen[0] & chosen[1]) >= 40


def test_the_most_relevant_texts_are_found_best_first_whatever_they_cost() -> None:
    sources = Sources(
        Catalogue(InMemoryStore()), "ada", ["memories"], memories=[memory(1, "The blue bike.")]
    )
    found, failures = drive(
        search(sources, QUERY, 2, conversation(["It rained.", "The bike is here, somewhere."]))
    )
    assert [one.page_content for one in found] == ["The blue bike.", "The bike is here, somewhere."]
    assert found[0].metadata["score"] > found[1].metadata["score"]
    assert "value" in found[1].metadata["scores"]
    assert failures == []


class Shortest(BaseDocumentCompressor):
    """The shortest text first."""

    shown: list[str] = Field(default_factory=list)

    def compress_documents(
        self, documents: Any, query: str, callbacks: Any = None
    ) -> list[Document]:
        self.shown.extend(document.page_content for document in documents)
        return sorted(documents, key=lambda document: len(document.page_content))


def test_a_reranker_hands_the_values_of_the_best_that_may_be_quoted_out_in_its_order() -> None:
    dropped = AIMessage("The blue bike is secret.", additional_kwargs={"ctxbudget": "drop"})
    for view in (conversation([dropped, *reversed(BIKES)]), conversation([])):
        pool = gathered(view)
        reranker = Shortest()
        problems = list[str]()
        new = drive(rerank(pool, reranker, problems, view, None))
        assert sorted(reranker.shown) == [
            f"user: {text}" for text in sorted(BIKES[: len(view.entries)])
        ]
        best = sorted(
            range(1, len(view.entries)), key=lambda place: (len(view.entries[place].text), place)
        )
        assert new.ranking.keys[best].tolist() == sorted(
            new.ranking.keys[best].tolist(), reverse=True
        )
        assert sorted(new.ranking.keys) == pytest.approx(sorted(pool.ranking.keys))
        assert new.ranking.keys == pytest.approx(
            pool.ranking.keys + new.ranking.components.get("reranker", 0)
        )
        assert problems == []


def test_memories_stand_in_their_places_by_the_weights_of_seed_002() -> None:
    others = [
        memory(2, "The bike is sold.", "experience", date="2024-01-02"),
        memory(1, "The blue bike.", "experience", certainty=0.2, date="2025-01-02"),
        memory(0, "A bike, blue, or not.", "core", certainty=0.5, date="2025-01-02"),
        memory(3, "Rain, and a bike.", "experience", certainty=0.1, date="2026-01-02"),
        message(1, "A blue bike is in the rain."),
    ]
    pool = gathered(conversation(["A kettle."]), others, BagOfWords())
    first = range(1, 5)
    parts = np.array(
        [[1, np.exp(-731 / 365), 0.7], [0.2, 1 / np.e, 0.7], [0.5, 1 / np.e, 1], [0.1, 1, 0.7]]
    )
    for weights in (*np.eye(4), (0.4, 0.3, 0.2, 0.1)):
        scores = np.column_stack((pool.likeness[first], parts)) @ weights
        new = weighted(pool, weights, date(2026, 1, 2)).ranking
        assert np.all(np.diff(new.keys[first][np.argsort(-scores, kind="stable")]) <= 0)
        assert sorted(new.keys[first]) == pytest.approx(sorted(pool.ranking.keys[first]))
        assert new.keys[[0, 5]].tolist() == pool.ranking.keys[[0, 5]].tolist()
    assert weighted(pool, None, None) is pool


def test_new_texts_and_those_that_name_entities_are_raised_by_the_formula_of_seed_004() -> None:
    today = date(2026, 1, 2)
    others = [
        message(0, "The blue bike of Rosa and Ben.", date="2026-01-02"),
        message(1, "The blue bike of Rosa.", date="2025-01-02"),
        message(2, "The blue bike."),
    ]
    pool = gathered(conversation(["A kettle."]), others)
    distance = float(np.ptp(pool.ranking.keys[pool.best(pool.ranking.keys, 256)]))
    places = [[other.id for other in pool.others].index(f"c2/{number}") for number in range(3)]
    for settings_, expected in (
        ({"recency_weight": 0.5}, [0.1, 0.1 * np.exp(-1), 0.0]),
        ({"entity_weight": 1.0}, [0.3, 0.15, 0.0]),
        (
            {"recency_weight": 1.0, "entity_weight": 0.5},
            [0.2 + 0.15, 0.2 * np.exp(-1) + 0.075, 0.0],
        ),
    ):
        found = boosted(pool, RetrievalSettings(**settings_), ["Rosa", "BEN"], today)
        assert found.ranking.components["boost"][places] == pytest.approx(
            np.array(expected) * distance
        )
        assert found.ranking.keys == pytest.approx(
            pool.ranking.keys + found.ranking.components["boost"]
        )
    assert boosted(pool, RetrievalSettings(), ["Rosa"], today) is pool
    few = boosted(pool, RetrievalSettings(candidates=1, entity_weight=1.0), ["Rosa"], today)
    assert np.count_nonzero(few.ranking.components["boost"]) <= 1


def test_a_question_about_the_speakers_is_about_the_conversation_though_it_shares_no_word() -> None:
    view = conversation(["It rained.", "The bike is here.", "Fine."] * 20)
    asked = ("Which day do I fly out?", "How do I boil an egg?")
    assert [pooled(Searched.of(view), one).evidence.is_weak for one in asked] == [False, True]
