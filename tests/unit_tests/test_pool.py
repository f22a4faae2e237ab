"""One ranking of everything that may be quoted for a message, and the search over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.core.candidates import PRIORITIES, Candidate
from langchain_ctxbudget.core.tokens import TiktokenCounter
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.history import editing
from langchain_ctxbudget.retrieval import pool as pools
from langchain_ctxbudget.retrieval.pool import Searched, by_words, gather, similarities, without_names
from langchain_ctxbudget.retrieval.search import RERANKED, Sources, rerank, search
from langchain_ctxbudget.stores.records import Scope
from tests.log_contract import Elsewhere
from tests.store_contract import embed

QUERY = "Where is the blue bike?"
TEXTS = st.lists(st.sampled_from(["blue", "bike", "kettle", "rain", "garden"]), min_size=1, max_size=5).map(" ".join)

Flows = Callable[[Any], Any]


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Flows:
    return drive if request.param == "sync" else lambda flow: asyncio.run(adrive(flow))


class BagOfWords(Embeddings):
    """Embeddings that note what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return embed(texts)

    def embed_query(self, text: str) -> list[float]:
        return embed([text])[0]


class Broken(BagOfWords):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise ConnectionError("down")


class Spoilt(BagOfWords):
    """Gives no usable vector for texts about the kettle."""

    def __init__(self, instead: list[float]) -> None:
        super().__init__()
        self.instead = instead

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        rows = super().embed_documents(texts)
        return [self.instead if "kettle" in text else row for text, row in zip(texts, rows, strict=True)]


UNUSABLE = pytest.mark.parametrize(
    "instead", [[float("nan")] * 64, [float("inf")] * 64, [1.0] * 32], ids=["nan", "infinite", "width"]
)


def conversation(*texts: str, name: str | None = None) -> Any:
    said = [HumanMessage(text, id=f"m{place}", name=name) for place, text in enumerate(texts)]
    return editing.detached(Scope("ada", "c1"), TiktokenCounter(), said)


def message(number: int, text: str, *, title: str = "c2", **fields: Any) -> Candidate:
    return Candidate(id=f"{title}/{number}", source="conversations", text=text, title=title, place=number, **fields)


def memory(number: int, text: str, kind: Any = "fact") -> Candidate:
    return Candidate(id=f"memory {number}", source="memories", text=text, kind=kind)


def gathered(run: Flows, open_conversation: Any, others: Any = (), embeddings: Embeddings | None = None) -> Any:
    pool, failure = run(gather(Searched.of(open_conversation), QUERY, embeddings, others))
    assert failure is None
    return pool


# One ranking


def test_messages_of_the_conversation_and_texts_from_elsewhere_are_ranked_together(run: Flows) -> None:
    given = conversation("It rained.", "The bike is here.", "We slept.")
    others = [message(0, "The blue bike is in the cellar."), message(1, "The kettle is loud.")]
    pool = gathered(run, given, others, BagOfWords())
    assert len(pool.ranking.keys) == len(pool.meant) == 5
    assert set(np.argsort(-pool.ranking.relevance)[:2].tolist()) == {0, pool.number(1)}


def test_others_stand_in_front_by_source_date_and_place(run: Flows) -> None:
    others = [
        memory(1, "Likes the bike."),
        message(1, "second bike", date="2026-01-02"),
        message(0, "first bike", date="2026-01-02"),
        message(0, "oldest bike", title="c3", date="2026-01-01"),
    ]
    pool = gathered(run, conversation("The bike."), others)
    assert [other.text for other in pool.others] == ["oldest bike", "first bike", "second bike", "Likes the bike."]
    assert pool.number(0) == 4


def test_what_the_conversation_says_itself_is_not_quoted_from_a_fork_of_it(run: Flows) -> None:
    others = [message(0, "The bike is blue."), message(1, "The bike is red.")]
    assert [other.text for other in gathered(run, conversation("The bike is blue."), others).others] == [
        "The bike is red."
    ]


def test_what_was_said_and_taken_back_may_be_quoted_from_elsewhere(run: Flows) -> None:
    given = conversation("Hello.", "The bike is blue.")
    gathered(run, given)
    given._truncate(1)
    assert len(gathered(run, given, [message(0, "The bike is blue.")]).others) == 1


def test_of_texts_that_are_alike_the_one_of_the_more_important_kind_is_worth_more(run: Flows) -> None:
    others = [memory(number, f"bike {number}", kind) for number, kind in enumerate(PRIORITIES)]
    pool = gathered(run, conversation("It rained.", "The bike."), others)
    by_kind = {other.kind: pool.scores(number)["priority"] for number, other in enumerate(pool.others)}
    assert by_kind == {"core": 1, "explicit": 0.667, "fact": 0.333, "project": 0.167, "experience": 0}
    assert pool.scores(pool.number(0))["priority"] == 0


def test_of_what_lies_elsewhere_only_what_has_to_do_with_the_question_is_meant(run: Flows) -> None:
    others = [message(0, "The blue bike is in the cellar."), message(1, "Nothing of it.")]
    given = conversation("It rained.")
    for embeddings in (None, BagOfWords()):
        assert gathered(run, given, others, embeddings).meant.tolist() == [True, False, True]


def test_what_says_the_same_as_something_better_is_worth_less(run: Flows) -> None:
    given = conversation(*[f"rain {number}" for number in range(6)], "the blue bike is here")
    pool = gathered(run, given, [message(0, "the blue bike is here now")], BagOfWords())
    repetition = [pool.scores(number)["repetition"] for number in (0, pool.number(6))]
    assert min(repetition) < 0 == max(repetition)


@settings(deadline=None, max_examples=50)
@given(st.lists(TEXTS, max_size=12), st.lists(TEXTS, max_size=8), st.booleans())
def test_the_parts_add_up_to_what_every_text_is_worth(said: list[str], elsewhere: list[str], dense: bool) -> None:
    given = conversation(*said)
    others = [message(number, text) for number, text in enumerate(elsewhere)]
    pool, _ = drive(gather(Searched.of(given), QUERY, BagOfWords() if dense else None, others))
    parts = dict(pool.ranking.components)
    about = sum((parts.pop(name, 0) for name in ("lexical", "dense", "neighbours", "session")), np.zeros(()))
    assert about == pytest.approx(pool.ranking.relevance)
    assert sum(parts.values(), np.zeros(len(pool.meant))) == pytest.approx(pool.ranking.keys)
    assert np.isfinite(pool.ranking.keys).all()


@settings(deadline=None, max_examples=50)
@given(st.lists(TEXTS, max_size=12))
def test_without_embeddings_and_others_the_ranking_is_the_one_by_words(said: list[str]) -> None:
    given = conversation(*said)
    pool, _ = drive(gather(Searched.of(given), QUERY, None))
    assert by_words(given, QUERY).ranking.keys.tolist() == pool.ranking.keys.tolist()


@pytest.mark.parametrize("others", [[], [message(0, "The blue bike.")]], ids=["none", "one"])
def test_without_a_conversation_what_lies_elsewhere_is_ranked(run: Flows, others: list[Candidate]) -> None:
    for embeddings in (None, BagOfWords()):
        pool, failure = run(gather(Searched(), QUERY, embeddings, others))
        assert (len(pool.ranking.keys), failure) == (len(others), None)


# Embeddings


def test_embeddings_that_fail_leave_the_words_and_are_told_of(run: Flows) -> None:
    given = conversation("It rained.", "The bike is blue.")
    pool, failure = run(gather(Searched.of(given), QUERY, Broken(), [message(0, "The bike.")]))
    assert failure == "embeddings: ConnectionError: down"
    assert pool.ranking.keys.tolist() == gathered(run, given, [message(0, "The bike.")]).ranking.keys.tolist()


def test_vectors_that_are_no_numbers_leave_the_words_and_are_told_of(run: Flows) -> None:
    class NotNumbers(BagOfWords):
        def embed_query(self, text: str) -> list[float]:
            return [float("nan")] * 64

    _, failure = run(gather(Searched.of(conversation("The bike.")), QUERY, NotNumbers()))
    assert failure is not None
    assert "not numbers" in failure


@UNUSABLE
def test_a_text_without_a_usable_vector_leaves_the_others_theirs(run: Flows, instead: list[float]) -> None:
    given = conversation("It rained.", "The kettle is loud.", "The bike is blue.")
    others = [message(0, "A kettle bike."), message(1, "A bike.")]
    for _ in range(2):
        pool, failure = run(gather(Searched.of(given), QUERY, Spoilt(instead), others))
        assert failure == "embeddings: no usable vector for 2 of 5 texts, found by their words alone"
        assert np.ptp(pool.ranking.components["dense"]) > 0
        assert np.isfinite(pool.ranking.keys).all()


@UNUSABLE
def test_a_text_without_a_usable_vector_is_not_embedded_again(run: Flows, instead: list[float]) -> None:
    given, embeddings = conversation("It rained.", "The kettle is loud."), Spoilt(instead)
    others = [message(0, "A kettle bike."), message(1, "A bike.")]
    for _ in range(3):
        run(gather(Searched.of(given), QUERY, embeddings, others))
    assert sorted(embeddings.asked) == ["A bike.", "A kettle bike.", "It rained.", "The kettle is loud."]


def test_what_has_no_usable_vector_is_similar_to_nothing(run: Flows) -> None:
    given = conversation("It rained.", "The kettle is loud.", "We slept.")
    others = ["A kettle bike.", "A boat.", "A garden."]
    found = run(similarities(Searched.of(given), "stone", Spoilt([float("nan")] * 64), others))
    assert found.scores[[0, 4]].tolist() == [0, 0]


def test_a_blank_message_without_a_vector_is_no_failure(run: Flows) -> None:
    class Blank(BagOfWords):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [row if text else [float("nan")] * 64 for text, row in zip(texts, embed(texts), strict=True)]

    gathered(run, conversation("", "The bike is blue."), embeddings=Blank())


def test_a_query_with_a_vector_of_another_width_does_no_harm(run: Flows) -> None:
    class Narrow(BagOfWords):
        def embed_query(self, text: str) -> list[float]:
            return [1.0] * 32

    given = conversation("It rained.")
    gathered(run, given, [message(0, "A bike.")], BagOfWords())
    _, failure = run(gather(Searched.of(given), QUERY, Narrow(), [message(1, "A boat.")]))
    assert failure is not None
    assert "the vector of the query has 32 dimensions, and those of the texts have 64" in failure
    gathered(run, given, [message(0, "A bike."), message(1, "A boat.")], BagOfWords())


def test_no_text_is_embedded_twice(run: Flows) -> None:
    given, embeddings = conversation("It rained.", "The bike is blue."), BagOfWords()
    others = [message(0, "The bike."), message(1, "The bike."), message(2, "A boat.")]
    for _ in range(3):
        gathered(run, given, others, embeddings)
    assert sorted(embeddings.asked) == ["A boat.", "It rained.", "The bike is blue.", "The bike."]


def test_no_more_vectors_from_elsewhere_are_kept_than_the_limit(run: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "REMEMBERED_TEXTS", 3)
    given = conversation("It rained.")
    for start in (0, 2, 4):
        gathered(run, given, [message(n, f"bike {n}") for n in range(start, start + 3)], BagOfWords())
        assert len(given.search.elsewhere) <= 3


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("What did Ann say about the bike?", "What did  say about the bike?"),
        ("Ann's bike", " bike"),
        ("Ann", "Ann"),
        ("Anna's bike", "Anna's bike"),
    ],
)
def test_names_are_left_to_the_words(query: str, rest: str) -> None:
    assert without_names(query, {"Ann"}) == rest


# The search


def sources(**fields: Any) -> Sources:
    return Sources(**{"store": InMemoryStore(), "user_id": "ada", "names": ("memories",), **fields})


def test_hits_are_the_most_relevant_texts_best_first(run: Flows) -> None:
    given = conversation("It rained.", "The bike is here, somewhere.", "We slept.")
    hits, failures = run(search(sources(memories=[memory(1, "The blue bike.")]), QUERY, 2, given))
    assert [hit.candidate.text for hit in hits] == ["The blue bike.", "The bike is here, somewhere."]
    assert hits[0].score > hits[1].score
    assert failures == []


def test_what_a_hit_costs_does_not_count(run: Flows) -> None:
    long = "The blue bike is here." + " It is a bike, blue as a bike can be." * 60
    hits, _ = run(search(sources(), QUERY, 1, conversation("Bike.", "It rained.", long)))
    assert hits[0].candidate.text == long


def test_a_hit_of_the_conversation_has_the_reference_of_its_message(run: Flows) -> None:
    [hit], _ = run(search(sources(), QUERY, 1, conversation("The blue bike.")))
    assert (hit.candidate.id, hit.candidate.source, hit.candidate.title) == ("c1/m0", "conversations", "c1")
    assert "value" in hit.scores


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_no_more_hits_are_given_than_asked_for(run: Flows, limit: int) -> None:
    hits, _ = run(search(sources(), QUERY, limit, conversation(*(f"bike {n}" for n in range(9)))))
    assert len(hits) == limit


def test_where_nothing_is_there_nothing_is_found(run: Flows) -> None:
    assert run(search(sources(names=("conversations", "memories", "documents")), QUERY, 5)) == ([], [])


class Gone(Elsewhere):
    def batch(self, ops: Any) -> Any:
        raise OSError("gone")

    async def abatch(self, ops: Any) -> Any:
        raise OSError("gone")


def test_a_source_that_fails_is_told_of_and_the_others_are_searched(run: Flows) -> None:
    broken = sources(
        store=Gone(InMemoryStore()),
        names=("conversations", "memories", "documents"),
        memories=[memory(1, "The blue bike.")],
    )
    hits, failures = run(search(broken, QUERY, 5))
    assert [hit.candidate.text for hit in hits] == ["The blue bike."]
    assert failures == ["other conversations not searched: OSError: gone", "documents not searched: OSError: gone"]


def test_a_source_that_is_not_named_is_not_searched(run: Flows) -> None:
    assert run(search(sources(store=Gone(InMemoryStore()), memories=[memory(1, "The bike.")]), QUERY, 5))[1] == []
    assert run(search(sources(names=(), memories=[memory(1, "The bike.")]), QUERY, 5)) == ([], [])


# Reranking


class Shortest(BaseDocumentCompressor):
    """The shortest text first."""

    most: int = 1_000
    fails: bool = False

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> list[Document]:
        if self.fails:
            raise TimeoutError("too slow")
        return sorted(documents, key=lambda document: len(document.page_content))[: self.most]


BIKES = [f"The blue bike is here{'!' * (number + 1)}" for number in range(8)]


def test_a_reranker_hands_the_same_keys_out_in_its_order(run: Flows) -> None:
    given = conversation("It rained.", *reversed(BIKES))
    pool = gathered(run, given)
    new, problem = run(rerank(pool, QUERY, Shortest(), given))
    assert problem is None
    assert sorted(new.ranking.keys) == pytest.approx(sorted(pool.ranking.keys))
    keys = sorted(new.ranking.keys.tolist(), reverse=True)
    shortest_first = sorted(range(len(given.entries)), key=lambda place: len(given.entries[place].text))
    assert new.ranking.keys[shortest_first].tolist() == keys
    assert new.ranking.keys == pytest.approx(pool.ranking.keys + new.ranking.components["reranker"])


def test_only_the_best_texts_are_reranked(run: Flows) -> None:
    given = conversation(*(f"The blue bike {'x' * number}" for number in range(RERANKED + 10)))
    pool = gathered(run, given)
    new, _ = run(rerank(pool, QUERY, Shortest(), given))
    rest = np.argsort(-pool.ranking.keys, kind="stable")[RERANKED:]
    assert new.ranking.keys[rest].tolist() == pool.ranking.keys[rest].tolist()


def test_a_reranker_that_fails_leaves_the_order_and_is_told_of(run: Flows) -> None:
    given = conversation(*BIKES)
    pool = gathered(run, given)
    new, problem = run(rerank(pool, QUERY, Shortest(fails=True), given))
    assert problem == "reranker Shortest: TimeoutError: too slow"
    assert new.ranking.keys.tolist() == pool.ranking.keys.tolist()


def test_where_a_reranker_gives_back_fewer_the_others_follow(run: Flows) -> None:
    given = conversation(*BIKES)
    pool = gathered(run, given)
    new, problem = run(rerank(pool, QUERY, Shortest(most=1), given))
    assert problem is not None
    assert new.ranking.keys.argmax() == 0
    assert sorted(new.ranking.keys) == pytest.approx(sorted(pool.ranking.keys))


def test_a_text_that_may_not_be_quoted_is_not_shown_to_a_reranker(run: Flows) -> None:
    shown: list[str] = []

    class Watching(BaseDocumentCompressor):
        def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
            shown.extend(document.page_content for document in documents)
            return documents

    dropped = AIMessage("The blue bike is secret.", additional_kwargs={"ctxbudget": "drop"})
    given = editing.detached(Scope("ada", "c1"), TiktokenCounter(), [dropped, HumanMessage("The bike.")])
    run(rerank(gathered(run, given), QUERY, Watching(), given))
    assert shown == ["user: The bike."]


def test_a_pool_without_anything_is_not_reranked(run: Flows) -> None:
    given = conversation()
    pool = gathered(run, given)
    new, problem = run(rerank(replace(pool), QUERY, Shortest(fails=True), given))
    assert (len(new.ranking.keys), problem) == (0, None)
