"""`LocalEmbeddings`: unit vectors, offline, without touching anything of the user's process."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_ctxbudget.errors import EmbeddingsUnavailableError
from langchain_ctxbudget.search import LocalEmbeddings, local_embeddings_available, vectors

LOCAL = LocalEmbeddings()


def similarity(first: str, second: str) -> float:
    one, two = LOCAL.embed_documents([first, second])
    return float(np.dot(one, two))


@example(["\ud800", "the"])
@given(st.lists(st.text(st.characters(exclude_categories=[])), max_size=5))
def test_every_text_has_a_vector_of_length_1_or_0(texts: list[str]) -> None:
    vectors = LOCAL.embed_documents(texts)
    assert [len(vector) for vector in vectors] == [LOCAL.dimensions] * len(texts)
    for text, vector in zip(texts, vectors, strict=True):
        assert all(type(value) is float for value in vector)
        assert np.linalg.norm(vector) == pytest.approx(1 if text else 0, abs=1e-5)


def test_where_they_are_not_installed_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vectors, "find_spec", lambda _: None)
    assert not local_embeddings_available()
    with pytest.raises(EmbeddingsUnavailableError, match="pip install wordllama"):
        LocalEmbeddings()


def test_a_long_text_is_embedded_in_pieces_and_means_what_it_says() -> None:
    said = "The ferry to Naxos leaves at nine, and the harbour is far. "
    long = said * 2_000
    assert similarity(long, said) > 0.999
    assert similarity(long, "Steel rusts where the paint is scratched.") < 0.5
    assert LOCAL.embed_documents([said, long, said])[1] == LOCAL.embed_query(long)
