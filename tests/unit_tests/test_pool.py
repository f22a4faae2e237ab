"""One ranking of everything that may be quoted for a message, and the search over it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
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
from langchain_ctxbudget.search import Candidate
from langchain_ctxbudget.settings import RetrievalSettings
from tests.conversations import BagOfWords, conversation

QUERY = "Where is the blue bike?"
TEXTS = st.lists(
    st.sampled_from(["blue", "bike", "kettle", "rain", "garden"]), min_size=1, max_size=5
).map(" ".join)
COUNTED_AS_RELEVANCE = ("lexical", "dense", "neighbours", "session")


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


def gathered(
    view: Conversation, others: Sequence[Candidate] = (), embeddings: Embeddings | None = None
) -> Pool:
    failures: list[str] = []
    pool = drive(gather(Searched.of(view), QUERY, embeddings, failures, others))
    assert failures == []
    return pool


def texts_of_others(pool: Pool) -> list[str]:
    return [other.text for other in pool.others]


def with_table(view: Conversation, table: MessageTable) -> Conversation:
    return Conversation(view.scope, table, view.counter)


# Texts from elsewhere


ELSEWHERE = [
    memory(1, "Likes the bike."),
    message(1, "second bike", date="2026-01-02"),
    message(0, "first bike", date="2026-01-02"),
    message(0, "The blue bike is in the cellar.", title="c3", date="2026-01-01"),
]


@pytest.fixture(scope="module")
def pool_with_others() -> Pool:
    """Four texts from elsewhere, and two messages of the conversation."""
    return gathered(conversation(["It rained.", "The bike is here."]), ELSEWHERE, BagOfWords())


def test_texts_from_elsewhere_stand_by_source_date_and_place(pool_with_others: Pool) -> None:
    assert texts_of_others(pool_with_others) == [
        "The blue bike is in the cellar.",
        "first bike",
        "second bike",
        "Likes the bike.",
    ]


def test_texts_from_elsewhere_stand_in_front_of_the_messages(pool_with_others: Pool) -> None:
    assert pool_with_others.position(3) is None
    assert pool_with_others.position(4) == 0


def test_texts_from_elsewhere_are_ranked_with_the_messages(pool_with_others: Pool) -> None:
    assert len(pool_with_others.ranking.keys) == 6
    assert len(pool_with_others.may_be_quoted) == 6


def test_the_two_most_relevant_texts_are_about_the_bike(pool_with_others: Pool) -> None:
    best = np.argsort(-pool_with_others.ranking.relevance)[:2]

    assert set(best.tolist()) < {0, 1, 2, 5}


def test_texts_from_elsewhere_are_ranked_without_a_conversation() -> None:
    pool = drive(gather(Searched(), QUERY, BagOfWords(), [], ELSEWHERE))

    assert len(pool.ranking.keys) == 4


def test_a_text_that_the_conversation_says_itself_is_not_quoted() -> None:
    view = conversation(["Hello.", "The bike is blue."])
    others = [message(0, "The bike is blue."), message(1, "The bike is red.")]

    assert texts_of_others(gathered(view, others)) == ["The bike is red."]
    without_it = with_table(view, view.table.changed(1))
    assert len(gathered(without_it, others).others) == 2


@pytest.mark.parametrize("embeddings", [None, BagOfWords()], ids=["words", "vectors"])
def test_a_text_is_meant_only_if_it_is_about_the_question(
    embeddings: Embeddings | None,
) -> None:
    others = [message(0, "The blue bike is in the cellar."), message(1, "Nothing of it.")]

    pool = gathered(conversation(["It rained."]), others, embeddings)

    assert pool.may_be_quoted.tolist() == [True, False, True]


# Vectors of texts from elsewhere


class VectorServer(DeterministicFakeEmbedding):
    """Notes what it is asked for."""

    asked: list[str] = Field(default_factory=list)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.extend(texts)
        return super().embed_documents(texts)


class BrokenServer(VectorServer):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.extend(texts)
        return [[0.0] * self.size for _ in texts]


BELLS = [message(number, f"bells {number}") for number in range(3)]
Vectors = dict[bytes, Any]


def failures_of(server: VectorServer, vectors: Vectors) -> list[str]:
    """What went wrong when three texts from elsewhere were searched with vectors that are there."""
    failures: list[str] = []
    drive(gather(Searched(elsewhere=vectors), QUERY, server, failures, BELLS))
    return failures


def test_vectors_that_cannot_be_used_are_asked_for_again() -> None:
    vectors: Vectors = {}
    broken = BrokenServer(size=4)
    server = VectorServer(size=4)

    assert failures_of(broken, vectors)
    assert failures_of(server, vectors) == []
    assert len(broken.asked) == 3
    assert len(server.asked) == 3


def test_vectors_are_asked_for_once() -> None:
    vectors: Vectors = {}
    server = VectorServer(size=4)
    failures_of(VectorServer(size=4), vectors)

    assert failures_of(server, vectors) == []
    assert server.asked == []


def test_vectors_of_another_width_are_not_mixed() -> None:
    vectors: Vectors = {}
    wider = VectorServer(size=6)
    again = VectorServer(size=4)
    failures_of(VectorServer(size=4), vectors)

    assert failures_of(wider, vectors) == []
    assert failures_of(again, vectors) == []
    assert len(wider.asked) == 3
    assert again.asked == []


# The ranking


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(TEXTS, max_size=12), st.lists(TEXTS, max_size=8), st.booleans())
def test_the_parts_add_up_to_the_value_of_every_text(
    texts: list[str], elsewhere: list[str], has_vectors: bool
) -> None:
    others = [message(number, text) for number, text in enumerate(elsewhere)]
    pool = gathered(conversation(texts), others, BagOfWords() if has_vectors else None)

    parts = dict(pool.ranking.components)
    relevance = np.zeros(len(pool.may_be_quoted))
    for name in COUNTED_AS_RELEVANCE:
        relevance = relevance + parts.pop(name, 0)
    values = np.zeros(len(pool.may_be_quoted)) + sum(parts.values())

    assert relevance == pytest.approx(pool.ranking.relevance)
    assert values == pytest.approx(pool.ranking.keys)
    assert np.isfinite(pool.ranking.keys).all()


@settings(max_examples=20)
@given(st.lists(TEXTS, max_size=12))
def test_messages_are_ranked_alike_whether_gathered_or_pooled(texts: list[str]) -> None:
    view = conversation(texts)

    by_words = pooled(Searched.of(view, MessageIndex()), QUERY)

    assert by_words.ranking.keys.tolist() == gathered(view).ranking.keys.tolist()


@dataclass
class LongConversation:
    """Pools of 3,000 messages: of all of them, and of those that may be worth it."""

    whole: Pool
    narrowed: Pool


@pytest.fixture(scope="module")
def long_conversation() -> LongConversation:
    """One message of 3,000 answers the question."""
    rng = random.Random(4)
    words = [f"w{number}" for number in range(400)]
    texts = [" ".join(rng.choices(words, k=8)) for _ in range(3_000)]
    texts[1_500] = "The blue bike is behind the shed."
    view = conversation(texts)
    others = [message(number, f"w{number} w9") for number in range(3)]

    whole = gathered(view, others, BagOfWords())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "ALL_RANKED_UP_TO", 1_000)
        narrowed = gathered(view, others, BagOfWords())
    return LongConversation(whole, narrowed)


@pytest.mark.slow
def test_of_many_messages_only_those_that_may_be_worth_it_are_ranked(
    long_conversation: LongConversation,
) -> None:
    assert len(long_conversation.whole.places) == 3_000
    assert len(long_conversation.narrowed.places) < 2_200


@pytest.mark.slow
@pytest.mark.parametrize("which", ["whole", "narrowed"])
def test_the_answer_is_the_best_of_many_messages(
    long_conversation: LongConversation, which: str
) -> None:
    pool: Pool = getattr(long_conversation, which)

    [best] = pool.best(pool.ranking.keys, 1)

    assert pool.position(best) == 1_500


def most_relevant(pool: Pool) -> set[int | None]:
    return {pool.position(number) for number in pool.best(pool.ranking.relevance, 50)}


def test_the_most_relevant_messages_are_hardly_ever_left_unranked(
    long_conversation: LongConversation,
) -> None:
    whole = most_relevant(long_conversation.whole)

    assert len(whole & most_relevant(long_conversation.narrowed)) >= 40


# The search


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """The best two texts of a memory and two messages."""
    store = Catalogue(InMemoryStore())
    sources = Sources(store, "ada", ["memories"], memories=[memory(1, "The blue bike.")])
    view = conversation(["The bike is here.", "It rained."])

    found, failures = drive(search(sources, QUERY, 2, view))

    assert failures == []
    return found


def test_the_texts_that_are_worth_most_are_found_best_first(documents: list[Document]) -> None:
    assert [document.page_content for document in documents] == [
        "The blue bike.",
        "The bike is here.",
    ]


def test_what_is_found_has_its_score_and_its_parts(documents: list[Document]) -> None:
    first, second = (document.metadata for document in documents)

    assert first["score"] > second["score"]
    assert second["scores"]["value"] == round(second["score"], 3)


# Documents


def chunk(document: str, place: int, text: str, *, title: str = "Guide") -> Candidate:
    return Candidate(
        id=f"{document}#{place}", source="documents", text=text, title=title, place=place
    )


CHUNKS = [
    chunk("b", 7, "The blue bike is in the cellar.", title="B"),
    chunk("a", 3, "A bike rack.", title="A"),
    chunk("a", 4, "Rain on the bike.", title="A"),
    chunk("b", 0, "Bikes are blue.", title="B"),
]


@pytest.fixture(scope="module")
def pool_of_chunks() -> Pool:
    """Two chunks of each of two documents."""
    return gathered(conversation([]), CHUNKS, BagOfWords())


@pytest.mark.parametrize("part", ["opening", "recency"])
def test_a_chunk_neither_opens_nor_is_older_than_others(pool_of_chunks: Pool, part: str) -> None:
    assert len(set(pool_of_chunks.ranking.components[part].tolist())) == 1


def test_parts_of_a_chunks_key_still_add_up(pool_of_chunks: Pool) -> None:
    components = pool_of_chunks.ranking.components
    parts = [components[name] for name in components if name not in COUNTED_AS_RELEVANCE]

    assert pool_of_chunks.ranking.keys == pytest.approx(sum(parts))


def test_documents_of_one_title_are_not_mixed() -> None:
    chunks = [chunk("a", 0, "bike"), chunk("b", 0, "blue bike"), chunk("a", 1, "a bike")]

    pool = gathered(conversation([]), chunks, BagOfWords())

    assert [other.id for other in pool.others] == ["a#0", "a#1", "b#0"]


def test_only_real_neighbours_of_a_chunk_lend_it_scores() -> None:
    chunks = [chunk("a", 0, "blue bike"), chunk("a", 9, "Rain, and a bike.")]

    pool = gathered(conversation([]), chunks, BagOfWords())

    assert pool.ranking.components["neighbours"].tolist() == [0, 0]


# Rerankers


class Shortest(BaseDocumentCompressor):
    """The shortest text first; with scores, the fewer characters, the better."""

    score_name: str = ""
    most: int = 100
    shown: list[str] = Field(default_factory=list)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> list[Document]:
        self.shown.extend(document.page_content for document in documents)
        ordered = sorted(documents, key=lambda document: len(document.page_content))
        if self.score_name:
            for document in ordered:
                document.metadata[self.score_name] = 100.0 - len(document.page_content)
        return ordered[: self.most]


BIKES = [f"The blue bike is here{'!' * length}" for length in range(1, 9)]
SHORTEST_FIRST = [8, 7, 6, 5, 4, 3, 2, 1]


@dataclass
class Reranked:
    """A pool before and after `Shortest` has seen it, and what it was shown."""

    before: Pool
    after: Pool
    shown: list[str]
    problems: list[str]

    @property
    def added(self) -> list[float]:
        """What the bikes have gained, the shortest first."""
        return self.after.ranking.components["reranker"][SHORTEST_FIRST].tolist()


def reranked(view: Conversation, **fields: Any) -> Reranked:
    before = gathered(view)
    reranker = Shortest(**fields)
    problems: list[str] = []
    after = drive(rerank(before, reranker, problems, view, None))
    return Reranked(before, after, reranker.shown, problems)


def reranked_bikes(**fields: Any) -> Reranked:
    """A message that may not be quoted, and eight about the bike, the longest first."""
    secret = AIMessage("The blue bike is secret.", additional_kwargs={"ctxbudget": "drop"})
    return reranked(conversation([secret, *reversed(BIKES)]), **fields)


@pytest.fixture(scope="module")
def bikes() -> Reranked:
    return reranked_bikes()


def test_a_reranker_sees_what_may_be_quoted(bikes: Reranked) -> None:
    assert sorted(bikes.shown) == sorted(f"user: {text}" for text in BIKES)


def test_a_reranker_adds_to_the_value(bikes: Reranked) -> None:
    added = bikes.after.ranking.components["reranker"]

    assert bikes.after.ranking.keys == pytest.approx(bikes.before.ranking.keys + added)


@pytest.mark.parametrize(
    "score_name", ["relevance_score", "rerank_score", "query_similarity_score", "score"]
)
def test_scores_of_a_reranker_are_standardised_and_count_half(score_name: str) -> None:
    added = reranked_bikes(score_name=score_name).added
    scores = np.arange(8, 0, -1)

    assert added == pytest.approx(0.5 * (scores - scores.mean()) / scores.std())


def test_an_order_without_scores_counts_like_normal_scores(bikes: Reranked) -> None:
    assert bikes.added == pytest.approx(
        [0.767, 0.444, 0.244, 0.079, -0.079, -0.244, -0.444, -0.767], abs=0.001
    )


@pytest.mark.parametrize("score_name", ["", "relevance_score"])
def test_what_a_reranker_leaves_out_ranks_below_and_alike(score_name: str) -> None:
    added = reranked_bikes(score_name=score_name, most=3).added

    assert added[:3] == pytest.approx([0.767, 0.444, 0.244], abs=0.001)
    assert added[3:] == pytest.approx([sum(added[:3]) / -5] * 5)


def test_what_a_reranker_leaves_out_is_told() -> None:
    assert reranked_bikes(most=3).problems == [
        "reranker Shortest: gave back 3 of 8 documents; the others count as ranked below"
    ]


def test_a_reranker_that_gives_nothing_back_changes_nothing() -> None:
    nothing = reranked_bikes(most=0)

    assert nothing.after.ranking.keys == pytest.approx(nothing.before.ranking.keys)


def test_scores_that_are_no_numbers_leave_the_order() -> None:
    class Unsure(Shortest):
        def compress_documents(
            self, documents: Sequence[Document], query: str, callbacks: Any = None
        ) -> list[Document]:
            ordered = super().compress_documents(documents, query)
            for document in ordered:
                document.metadata["relevance_score"] = float("nan")
            return ordered

    view = conversation(list(reversed(BIKES)))
    after = drive(rerank(gathered(view), Unsure(), [], view, None))

    added = after.ranking.components["reranker"].tolist()
    assert added == sorted(added)
    assert added[-1] == pytest.approx(0.767, abs=0.001)


def test_a_reranker_has_nothing_to_do_in_an_empty_conversation() -> None:
    empty = reranked(conversation([]))

    assert empty.shown == []
    assert empty.after.ranking.keys.tolist() == empty.before.ranking.keys.tolist() == []


# Memories, by the weights that an application gives


@pytest.fixture(scope="module")
def pool_of_memories() -> Pool:
    """A message from elsewhere, four memories, and a message of the conversation."""
    others = [
        memory(2, "The bike is sold.", "experience", date="2024-01-02"),
        memory(1, "The blue bike.", "experience", certainty=0.2, date="2025-01-02"),
        memory(0, "A bike, blue, or not.", "core", certainty=0.5, date="2025-01-02"),
        memory(3, "Rain, and a bike.", "experience", certainty=0.1, date="2026-01-02"),
        message(1, "A blue bike is in the rain."),
    ]
    return gathered(conversation(["A kettle."]), others, BagOfWords())


MEMORIES = slice(1, 5)
CERTAINTY = np.array([1, 0.2, 0.5, 0.1])
RECENCY = np.array([0.1350, 0.3679, 0.3679, 1])
"""Of two years and a day, of one year, and of today: exp(-days / 365)."""
KIND = np.array([0.7, 0.7, 1, 0.7])
WEIGHTS = pytest.mark.parametrize(
    "weights", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0.4, 0.3, 0.2, 0.1)]
)
MemoryWeights = tuple[float, float, float, float]


@WEIGHTS
def test_memories_stand_by_their_weighted_parts(
    pool_of_memories: Pool, weights: MemoryWeights
) -> None:
    likeness = pool_of_memories.likeness[MEMORIES]
    scores = np.column_stack((likeness, CERTAINTY, RECENCY, KIND)) @ weights

    keys = weighted(pool_of_memories, weights, date(2026, 1, 2)).ranking.keys[MEMORIES]

    best_first = np.argsort(-scores, kind="stable")
    assert np.all(np.diff(keys[best_first]) <= 0)


@WEIGHTS
def test_memories_share_their_values_among_themselves(
    pool_of_memories: Pool, weights: MemoryWeights
) -> None:
    before = pool_of_memories.ranking.keys

    after = weighted(pool_of_memories, weights, date(2026, 1, 2)).ranking.keys

    assert sorted(after[MEMORIES]) == pytest.approx(sorted(before[MEMORIES]))
    assert after[[0, 5]].tolist() == before[[0, 5]].tolist()


def test_memories_without_weights_stay_as_they_are(pool_of_memories: Pool) -> None:
    assert weighted(pool_of_memories, None, None) is pool_of_memories


# Texts that are raised because they are new, or name entities


@pytest.fixture(scope="module")
def pool_of_bikes() -> Pool:
    others = [
        message(0, "The blue bike of Rosa and Ben.", date="2026-01-02"),
        message(1, "The blue bike of Rosa.", date="2025-01-02"),
        message(2, "The blue bike."),
    ]
    return gathered(conversation(["A kettle."]), others)


def boosts(pool: Pool, settings: RetrievalSettings) -> tuple[Pool, dict[str, float]]:
    """A pool that is boosted today, and how far each text is raised, of the best to the worst."""
    after = boosted(pool, settings, ["Rosa", "BEN"], date(2026, 1, 2))
    distance = np.ptp(pool.ranking.keys[pool.best(pool.ranking.keys, 256)])
    shares = after.ranking.components["boost"] / distance
    ids = [other.id for other in pool.others]
    return after, dict(zip(ids, shares.tolist(), strict=False))


@pytest.mark.parametrize(
    ("weights", "of_both", "of_rosa"),
    [
        ({"recency_weight": 0.5}, 0.1, 0.03678794),  # 0.2 * 0.5, and that * exp(-1) after a year
        ({"entity_weight": 1.0}, 0.3, 0.15),
        ({"recency_weight": 1.0, "entity_weight": 0.5}, 0.35, 0.14857589),
    ],
    ids=["new", "with entities", "both"],
)
def test_new_texts_and_those_that_name_entities_are_raised(
    pool_of_bikes: Pool, weights: dict[str, float], of_both: float, of_rosa: float
) -> None:
    after, shares = boosts(pool_of_bikes, RetrievalSettings(**weights))

    assert shares == pytest.approx({"c2/0": of_both, "c2/1": of_rosa, "c2/2": 0.0})
    boost = after.ranking.components["boost"]
    assert after.ranking.keys == pytest.approx(pool_of_bikes.ranking.keys + boost)


def test_nothing_is_raised_unless_the_application_wants_it(pool_of_bikes: Pool) -> None:
    assert boosted(pool_of_bikes, RetrievalSettings(), ["Rosa"], date(2026, 1, 2)) is pool_of_bikes


@pytest.mark.parametrize(
    ("candidates", "raised"),
    [(2, {"c2/1", "c2/2"}), (3, {"c2/0", "c2/1", "c2/2"})],
)
def test_only_candidates_are_raised(pool_of_bikes: Pool, candidates: int, raised: set[str]) -> None:
    """All three texts name the bike; the first is the least like the question."""
    settings_of_names = RetrievalSettings(candidates=candidates, entity_weight=1.0)

    after = boosted(pool_of_bikes, settings_of_names, ["blue bike"], date(2026, 1, 2))

    boost = after.ranking.components["boost"]
    ids = {other.id for number, other in enumerate(after.others) if boost[number] > 0}
    assert ids == raised
