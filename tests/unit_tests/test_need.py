"""How likely a message needs anything older, and what quotes may cost because of that."""

import numpy as np
import pytest

from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.retrieval import Pool, Searched, gather
from langchain_ctxbudget.search import LocalEmbeddings
from langchain_ctxbudget.search.need import (
    NEED_POLICY,
    SIGNS,
    TrainedNeed,
    packaged_need,
    probabilities_of,
    signs_of,
)
from tests.conversations import conversation

TALK = [
    "My sister Pia moved to Cadiz in March.",
    "How nice for her.",
    "The hopper of the mill is broken again.",
    "Shall I look for a new one?",
    "The baker wants forty loaves on Friday.",
    "Noted.",
    "Our cat Minka must not eat fish.",
    "I'll remember that.",
]
FILLER = [f"Row {number} of the field is sown." for number in range(40)]


def pool_of(text: str, *, with_vectors: bool = True) -> Pool:
    searched = Searched.of(conversation([*TALK, *FILLER]))
    embeddings = LocalEmbeddings() if with_vectors else None
    return drive(gather(searched, text, embeddings, [], []))


def need_of(text: str, *, with_vectors: bool = True) -> float:
    return pool_of(text, with_vectors=with_vectors).evidence.need


ABOUT_THE_TALK = [
    "Where does Pia live now?",
    "What must Minka not eat?",
    "How many loaves did the baker want?",
]
GENERAL = ["What is the capital of France?", "Write a poem about snow.", "How do I boil an egg?"]


@pytest.mark.parametrize("text", ABOUT_THE_TALK)
def test_a_question_about_what_was_said_needs_it(text: str) -> None:
    assert need_of(text) >= NEED_POLICY.all_from


@pytest.mark.parametrize("text", GENERAL)
def test_a_general_message_hardly_needs_anything(text: str) -> None:
    assert need_of(text) < NEED_POLICY.nothing_below


def test_words_alone_tell_them_apart() -> None:
    about_the_talk = [need_of(text, with_vectors=False) for text in ABOUT_THE_TALK]
    general = [need_of(text, with_vectors=False) for text in GENERAL]

    assert min(about_the_talk) > max(general)


def test_without_older_messages_nothing_is_needed() -> None:
    searched = Searched.of(conversation(TALK[:2]))

    pool = drive(gather(searched, "Where does Pia live now?", None, [], []))

    assert pool.evidence.need == 0.0


def test_quotes_may_cost_more_the_likelier_they_are_needed() -> None:
    shares = [NEED_POLICY.share(probability) for probability in np.linspace(0, 1, 21)]

    assert shares == sorted(shares)
    assert shares[0] == NEED_POLICY.least_share
    assert shares[-1] == 1.0


def test_signs_beyond_those_of_training_count_as_the_furthest_of_these() -> None:
    weights = packaged_need()
    far = np.full((1, len(SIGNS)), 1e6, np.float32)
    furthest = weights.highs[np.newaxis]

    assert probabilities_of(far, weights).tolist() == probabilities_of(furthest, weights).tolist()


def test_weights_are_read_as_they_were_written() -> None:
    weights = packaged_need()

    again = TrainedNeed.of_bytes(weights.to_bytes())

    assert again.to_bytes() == weights.to_bytes()


def test_each_sign_has_a_name() -> None:
    inputs = pool_of("Where does Pia live now?").need_inputs

    assert inputs is not None
    assert len(signs_of(inputs, packaged_need().wording)) == len(SIGNS)
