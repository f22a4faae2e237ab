"""Holds `LocalEmbeddings` to unit vectors, offline, without touching the user's process."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_ctxbudget.errors import EmbeddingsUnavailableError
from langchain_ctxbudget.search import LocalEmbeddings, local_embeddings_available, vectors

LOCAL = LocalEmbeddings()
FERRY = "The ferry to Naxos leaves at nine, and the harbour is far. "
MANY_FERRIES = FERRY * 2_000


def similarity(first: str, second: str) -> float:
    first_vector, second_vector = LOCAL.embed_documents([first, second])
    return float(np.dot(first_vector, second_vector))


@example(["\ud800", "the", ""])
@given(st.lists(st.text(st.characters(exclude_categories=[])), max_size=5))
def test_a_vector_has_length_1_or_for_an_empty_text_0(texts: list[str]) -> None:
    embedded = LOCAL.embed_documents(texts)

    assert [len(vector) for vector in embedded] == [LOCAL.dimensions] * len(texts)
    for text, vector in zip(texts, embedded, strict=True):
        assert all(type(value) is float for value in vector)
        assert np.linalg.norm(vector) == pytest.approx(1 if text else 0, abs=1e-5)


def test_uninstalled_embeddings_are_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "find_spec", lambda _: None)

    assert not local_embeddings_available()


def test_uninstalled_embeddings_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "find_spec", lambda _: None)

    with pytest.raises(EmbeddingsUnavailableError, match="pip install wordllama"):
        LocalEmbeddings()


def test_a_long_text_means_what_it_says() -> None:
    assert similarity(MANY_FERRIES, FERRY) > 0.999


def test_a_long_text_does_not_mean_something_else() -> None:
    assert similarity(MANY_FERRIES, "Steel rusts where the paint is scratched.") < 0.5


def test_a_long_text_among_others_has_the_vector_of_a_query() -> None:
    _, vector, _ = LOCAL.embed_documents([FERRY, MANY_FERRIES, FERRY])

    assert vector == LOCAL.embed_query(MANY_FERRIES)
