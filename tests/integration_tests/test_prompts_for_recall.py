"""With `emphasis="recall"`, only the quotes of a prompt are new."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget import AssembledContext, ContextPipeline

ADA = {"user_id": "ada", "conversation_id": "c1"}


def talk(pipeline: ContextPipeline, words: str) -> AssembledContext:
    """Makes a prompt for some words, and adds them with an answer."""
    context = pipeline.assemble(words, **ADA)
    pipeline.add_messages([*context.turn, AIMessage("I see.")], **ADA)
    return context


def about_sheds() -> ContextPipeline:
    pipeline = ContextPipeline({"emphasis": "recall", "max_context_tokens": 1_500})
    for number in range(150):
        said = HumanMessage(f"The shed of family {number} is painted in colour {number * 7}.")
        pipeline.add_messages([said, AIMessage("Noted.")], **ADA)
    return pipeline


@pytest.mark.slow
def test_all_before_the_message_stays() -> None:
    pipeline = about_sheds()

    first = talk(pipeline, "What colour is the shed of family 3?")
    second = talk(pipeline, "What colour is the shed of family 5?")

    shared = len(first.messages) - 1
    assert second.messages[:shared] == first.messages[:shared]
    assert second.report.stability.mode == "extended"


def test_the_quotes_of_the_message_before_are_gone() -> None:
    pipeline = about_sheds()

    first = talk(pipeline, "What colour is the shed of family 3?")
    second = talk(pipeline, "What colour is the shed of family 5?")

    *before, _ = second.messages
    assert "colour 21." in first.messages[-1].text
    assert "colour 21." not in "".join(message.text for message in before)
    assert "colour 35." in second.messages[-1].text
