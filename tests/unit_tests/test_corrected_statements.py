"""Holds sentences that are unsure alone to being learned where they contradict another one."""

import pytest
from langchain_core.messages import HumanMessage

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.knowledge import Fact


def facts_after(*texts: str) -> list[Fact]:
    """What is known of a user, ended facts included, who says some texts in one conversation."""
    with ContextPipeline({"max_context_tokens": 4_000}, system_prompt="Help.") as pipeline:
        chat = pipeline.conversation("c1", user_id="ada")
        for text in texts:
            chat.add(HumanMessage(text))
        chat.end_session()
        pipeline.flush(20)
        return pipeline.knowledge.list_facts(user_id="ada", include_ended=True)


def current_after(*texts: str) -> list[str]:
    return [fact.text[1:-1] for fact in facts_after(*texts) if fact.is_current]


def test_a_correction_of_a_known_fact_is_learned() -> None:
    texts = ("My name is Anna Berg.", "sorry, my name is Li Guosong")

    assert current_after(*texts) == ["sorry, my name is Li Guosong"]


def test_what_was_corrected_ends_as_superseded() -> None:
    facts = facts_after("My name is Anna Berg.", "sorry, my name is Li Guosong")

    assert [fact.text[1:-1] for fact in facts if fact.ended == "superseded"] == [
        "My name is Anna Berg."
    ]


def test_of_two_unsure_sentences_that_contradict_the_later_is_learned() -> None:
    texts = ("I love Chinese food.", "What is the weather?", "I hate Chinese food.")

    assert current_after(*texts) == ["I hate Chinese food."]


@pytest.mark.parametrize("text", ["I hate Chinese food.", "sorry, my name is Li Guosong"])
def test_an_unsure_sentence_alone_is_not_learned(text: str) -> None:
    assert current_after(text) == []


@pytest.mark.parametrize(
    "later",
    ["I'm not hungry.", "I need 4 tickets for Friday.", "Don't I love Chinese food?"],
)
def test_what_is_no_lasting_statement_corrects_nothing(later: str) -> None:
    texts = ("I'm hungry.", "I need 3 tickets for Friday.", "I love Chinese food.", later)

    assert current_after(*texts) == []


def test_a_dorm_of_somebody_else_is_no_other_home() -> None:
    texts = ("I live in San Francisco with my sister.", "My brother lives in a dorm.")

    assert current_after(*texts) == list(texts)
