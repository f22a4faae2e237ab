"""The lexical reranker, and what a search makes of any reranker's answer, good or bad."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document

from langchain_ctxbudget.core.candidates import Candidate
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.rerankers import LexicalReranker
from langchain_ctxbudget.retrieval.reranking import reranked
from langchain_ctxbudget.retrieval.search import Hit

Rerank = Callable[..., tuple[list[Hit], str | None]]


def texts(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]


def order(query: str, *contents: str, **fields: Any) -> list[str]:
    return texts(LexicalReranker(**fields).compress_documents([Document(text) for text in contents], query))


# The lexical reranker


def test_what_shares_a_word_comes_first() -> None:
    assert order("Where is the bicycle?", "The garden is wet.", "The bicycle is blue.")[0] == "The bicycle is blue."


def test_words_are_compared_by_their_stems() -> None:
    assert order("Which painter painted?", "We cycled home.", "He paints.")[0] == "He paints."


def test_a_rare_word_outweighs_a_common_one() -> None:
    garden = [f"The garden in spring {number}." for number in range(6)]
    assert order("heron garden", *garden, "A heron came by today.")[0] == "A heron came by today."


@pytest.mark.parametrize(
    ("query", "wanted", "other"),
    [
        ("自転車の色", "私の自転車は青いです。", "庭に水をやります。"),
        ("Какой велосипед?", "Мой велосипед синий.", "Сад сухой."),
        ("दुकान कहाँ है", "दुकान बंद है", "बारिश आई"),
        ("จักรยานสีอะไร", "จักรยานของฉัน", "ฝนตกหนัก"),
    ],
)
def test_it_reads_any_script(query: str, wanted: str, other: str) -> None:
    assert order(query, other, wanted)[0] == wanted


@pytest.mark.parametrize("query", ["zebra", "", "the of and"])
def test_where_no_word_is_shared_the_order_stays(query: str) -> None:
    assert order(query, "One.", "Two.", "Three.") == ["One.", "Two.", "Three."]


def test_of_equal_texts_the_first_stays_first() -> None:
    documents = [Document("The bike.", id=str(number)) for number in range(5)]
    assert [d.id for d in LexicalReranker().compress_documents(documents, "bike")] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("others", [1, 7, 49])
def test_the_only_one_that_shares_a_word_comes_first_wherever_it_stood(others: int) -> None:
    garden = [f"The garden is wet, {number}." for number in range(others)]
    assert order("blue bike", *garden, "The bike is in the cellar.")[0] == "The bike is in the cellar."


def test_of_two_that_match_much_alike_the_better_place_decides() -> None:
    filler = [f"Nothing here {number}." for number in range(20)]
    assert order("bike", "The bike is red.", *filler, "The bike.")[:2] == ["The bike is red.", "The bike."]


def test_top_n_is_the_best_of_them() -> None:
    assert order("bike", "Garden.", "The bike.", "Water.", top_n=1) == ["The bike."]


def test_of_no_documents_there_are_none() -> None:
    assert LexicalReranker().compress_documents([], "bike") == []


def test_the_given_documents_stay_as_they_are() -> None:
    document = Document("The bike.", metadata={"source": "a"})
    [found] = LexicalReranker().compress_documents([document], "bike")
    assert document.metadata == {"source": "a"}
    assert found.metadata.keys() == {"source", "relevance_score"}


def test_its_async_form_gives_the_same() -> None:
    documents = [Document(text) for text in ("Garden.", "The bike.", "A bike lane in the garden.")]
    blocking = LexicalReranker().compress_documents(documents, "bike garden")
    assert asyncio.run(LexicalReranker().acompress_documents(documents, "bike garden")) == blocking


@pytest.mark.parametrize("fields", [{"top_n": 0}, {"top_n": True}, {"top_n": "3"}, {"top_k": 3}])
def test_a_wrong_field_is_an_error_that_names_it(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingsError, match=next(iter(fields))):
        LexicalReranker(**fields)


# What a search makes of a reranker's answer


class Answering(BaseDocumentCompressor):
    """A reranker that answers what a function makes of the documents."""

    answer: Callable[[Sequence[Document]], Any]

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        result: Sequence[Document] = self.answer(documents)
        return result


def hit(number: int, text: str = "", **fields: Any) -> Hit:
    candidate = Candidate(id=f"c1/m{number}", source="conversations", title="c1", text=text or f"T{number}.", **fields)
    return Hit(candidate=candidate, score=1.0 - number / 10, scores={"lexical": float(number)})


HITS = [hit(number) for number in range(4)]
IDS = ["c1/m0", "c1/m1", "c1/m2", "c1/m3"]


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.candidate.id for hit in hits]


@pytest.fixture(params=["sync", "async"])
def rerank(request: pytest.FixtureRequest) -> Rerank:
    """Reranks hits by what a function makes of the documents, in a blocking or an awaited call."""

    def call(answer: Any, hits: Sequence[Hit] = HITS, query: str = "q") -> tuple[list[Hit], str | None]:
        reranker = answer if isinstance(answer, BaseDocumentCompressor) else Answering(answer=answer)
        flow = reranked(hits, query, reranker)
        return drive(flow) if request.param == "sync" else asyncio.run(adrive(flow))

    return call


def test_hits_come_in_the_order_of_the_reranker(rerank: Rerank) -> None:
    hits, problem = rerank(lambda documents: list(reversed(documents)))
    assert ids(hits) == IDS[::-1]
    assert problem is None


def test_the_first_has_the_highest_score(rerank: Rerank) -> None:
    hits, _ = rerank(lambda documents: list(reversed(documents)))
    assert [hit.score for hit in hits] == [hit.score for hit in HITS]


def test_the_score_of_the_reranker_joins_the_scores(rerank: Rerank) -> None:
    hits, _ = rerank(LexicalReranker(), [hit(0, "The garden."), hit(1, "The bike.")], "bike")
    assert hits[0].scores["reranker"] > hits[1].scores["reranker"]
    assert hits[0].scores["lexical"] == 1.0


def test_documents_that_were_copied_without_their_id_are_known(rerank: Rerank) -> None:
    def copies(documents: Sequence[Document]) -> list[Document]:
        return [Document(each.page_content, metadata=dict(each.metadata)) for each in reversed(documents)]

    hits, problem = rerank(copies)
    assert (ids(hits), problem) == (IDS[::-1], None)


def test_a_text_that_the_reranker_changed_is_quoted_as_it_was(rerank: Rerank) -> None:
    def shout(documents: Sequence[Document]) -> list[Document]:
        for document in documents:
            document.page_content = "CHANGED"
        return list(documents)

    assert [hit.candidate for hit in rerank(shout)[0]] == [hit.candidate for hit in HITS]


def test_the_reranker_reads_who_said_it(rerank: Rerank) -> None:
    hits, _ = rerank(LexicalReranker(), [hit(0, "I cycle.", speaker="Bob"), hit(1, "I cycle.", speaker="Ada")], "ada")
    assert ids(hits) == ["c1/m1", "c1/m0"]


def test_those_that_are_left_out_follow_and_it_is_said(rerank: Rerank) -> None:
    hits, problem = rerank(lambda documents: [documents[3], documents[1]])
    assert ids(hits) == ["c1/m3", "c1/m1", "c1/m0", "c1/m2"]
    assert problem == "reranker Answering: gave back 2 of 4 documents; the others follow as found"


def raises(_documents: Sequence[Document]) -> Any:
    raise ConnectionError("no route to the model")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (raises, "ConnectionError: no route to the model"),
        (lambda documents: [], "gave back no documents"),
        (lambda documents: None, "NoneType in place of documents"),
        (lambda documents: [each.page_content for each in documents], "str in place of documents"),
        (lambda documents: documents[0], "in place of documents"),
        (lambda documents: [*documents, Document("Made up.")], "that it was not given"),
        (lambda documents: [*documents, Document("Made up.", metadata={"id": ["c1/m0"]})], "that it was not given"),
        (lambda documents: [documents[2], documents[2]], "the document 'c1/m2' twice"),
    ],
)
def test_a_wrong_answer_leaves_the_order_as_it_was_and_is_told(rerank: Rerank, answer: Any, says: str) -> None:
    hits, problem = rerank(answer)
    assert hits == HITS
    assert problem is not None
    assert problem.startswith("reranker Answering: ")
    assert says in problem


def test_without_hits_the_reranker_is_not_asked(rerank: Rerank) -> None:
    assert rerank(raises, []) == ([], None)


@given(st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["unknown", "text", "copy"])), max_size=8))
def test_whatever_it_answers_every_hit_is_there_once(picked: list[Any]) -> None:
    def answer(documents: Sequence[Document]) -> list[Any]:
        others = {"unknown": Document("?"), "text": "?", "copy": Document("?", metadata=documents[0].metadata)}
        return [others[each] if isinstance(each, str) else documents[each] for each in picked]

    hits, problem = drive(reranked(HITS, "q", Answering(answer=answer)))
    assert sorted(ids(hits)) == IDS
    meant = [0 if each == "copy" else each for each in picked]
    assert (problem is None) == (len(meant) == 4 and set(meant) == {0, 1, 2, 3})


def test_a_blocking_reranker_does_not_stop_the_event_loop() -> None:
    def slow(documents: Sequence[Document]) -> Sequence[Document]:
        time.sleep(0.3)
        return documents

    async def ticks() -> int:
        waiting = asyncio.ensure_future(adrive(reranked(HITS, "q", Answering(answer=slow))))
        count = 0
        while not waiting.done():
            await asyncio.sleep(0.01)
            count += 1
        return count

    assert asyncio.run(ticks()) > 5


def test_a_reranker_with_a_native_async_form_is_awaited() -> None:
    class Native(Answering):
        async def acompress_documents(
            self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
        ) -> Sequence[Document]:
            await asyncio.sleep(0)
            return list(reversed(documents))

    hits, problem = asyncio.run(adrive(reranked(HITS, "q", Native(answer=raises))))
    assert (ids(hits), problem) == (IDS[::-1], None)
