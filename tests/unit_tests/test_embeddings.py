"""`LocalEmbeddings`: unit vectors, offline, without touching anything of the user's process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from langchain_ctxbudget import embeddings
from langchain_ctxbudget.embeddings import LocalEmbeddings, local_embeddings_available
from langchain_ctxbudget.errors import EmbeddingsUnavailableError

LOCAL = LocalEmbeddings()


def similarity(first: str, second: str) -> float:
    one, two = LOCAL.embed_documents([first, second])
    return float(np.dot(one, two))


@settings(deadline=None)
@example(["\ud800", "the"])
@given(st.lists(st.text(st.characters(exclude_categories=[])), max_size=5))
def test_every_text_has_a_vector_of_length_1_or_0(texts: list[str]) -> None:
    vectors = LOCAL.embed_documents(texts)
    assert [len(vector) for vector in vectors] == [LOCAL.dimensions] * len(texts)
    for text, vector in zip(texts, vectors, strict=True):
        assert all(type(value) is float for value in vector)
        assert np.linalg.norm(vector) == pytest.approx(1 if text else 0, abs=1e-5)


def test_no_texts_have_no_vectors() -> None:
    assert LOCAL.embed_documents([]) == []


def test_an_empty_text_among_others_has_the_zero_vector() -> None:
    vectors = LOCAL.embed_documents(["", "umbrella", "", ""])
    assert [any(vector) for vector in vectors] == [False, True, False, False]
    assert vectors[1] == LOCAL.embed_query("umbrella")


def test_a_vector_does_not_depend_on_the_texts_around_it() -> None:
    texts = [f"sentence number {number} about the weather" for number in range(600)]
    together = LOCAL.embed_documents(texts)
    assert together[::100] == [LOCAL.embed_query(text) for text in texts[::100]]


async def test_the_async_twins_give_the_same() -> None:
    assert await LOCAL.aembed_query("umbrella") == LOCAL.embed_query("umbrella")
    assert await LOCAL.aembed_documents(["umbrella"]) == [LOCAL.embed_query("umbrella")]


def test_related_texts_are_closer_than_unrelated_ones() -> None:
    question = "Which animal does she keep at home?"
    assert similarity(question, "Her cat sleeps on the sofa.") > similarity(question, "The invoice is due on Friday.")


def test_a_text_is_the_mean_of_its_tokens_by_weight() -> None:
    tokenizer, _ = embeddings._load()
    vectors = load_file(embeddings._folder() / embeddings._WEIGHTS)[embeddings._TENSOR].astype(np.float32)
    ids = tokenizer.encode("the umbrella is mine", add_special_tokens=False).ids
    mean = embeddings._token_weights(len(vectors))[ids] @ vectors[ids]
    assert np.allclose(LOCAL.embed_query("the umbrella is mine"), mean / np.linalg.norm(mean), atol=1e-5)


def test_frequent_words_weigh_less_than_rare_ones() -> None:
    words = "the umbrella of the and to in it is"
    assert similarity(words, "umbrella") > similarity(words, "the of and to in it is")


def test_the_most_frequent_tokens_have_the_least_weight() -> None:
    weights = embeddings._token_weights(32_000)
    merged, characters = weights[259:29_871], weights[29_871:]
    assert np.all(np.diff(merged) > 0)
    assert np.all(np.diff(characters) > 0)
    assert merged[0] == characters[0] == weights.min() > 0
    assert weights.max() < 1
    assert np.all(weights[:259] > 0.9)


def test_it_names_its_model_and_dimensions() -> None:
    assert (LOCAL.model, LOCAL.dimensions) == ("wordllama-l2-supercat-256-sif", 256)


def test_threads_share_one_model() -> None:
    embeddings._loaded.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        vectors = list(threads.map(lambda _: tuple(LocalEmbeddings().embed_query("umbrella")), range(8)))
    assert len(set(vectors)) == 1
    assert embeddings._loaded.cache_info().misses == 1


def test_where_they_are_not_installed_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "find_spec", lambda _: None)
    assert not local_embeddings_available()
    with pytest.raises(EmbeddingsUnavailableError, match="pip install wordllama"):
        LocalEmbeddings()


def test_a_package_without_its_files_counts_as_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "find_spec", lambda _: importlib.util.find_spec("email"))
    assert not local_embeddings_available()


def in_a_new_process(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_logging_stays_as_the_user_configured_it() -> None:
    in_a_new_process(
        "import logging; before = (logging.root.level, list(logging.root.handlers));"
        "from langchain_ctxbudget import LocalEmbeddings; LocalEmbeddings().embed_query('umbrella');"
        "assert (logging.root.level, list(logging.root.handlers)) == before"
    )


def test_wordllama_itself_is_never_imported() -> None:
    in_a_new_process(
        "import sys; from langchain_ctxbudget import LocalEmbeddings; LocalEmbeddings().embed_query('umbrella');"
        "assert 'wordllama' not in sys.modules"
    )


def test_nothing_is_loaded_before_it_is_used() -> None:
    in_a_new_process(
        "import sys; from langchain_ctxbudget import LocalEmbeddings; LocalEmbeddings();"
        "assert not {'tokenizers', 'safetensors'} & set(sys.modules)"
    )


def test_it_works_where_every_connection_is_refused() -> None:
    in_a_new_process(
        "import socket\n"
        "def refuse(*_): raise AssertionError('a connection was tried')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "from langchain_ctxbudget import LocalEmbeddings\n"
        "assert any(LocalEmbeddings().embed_query('umbrella'))\n"
    )
