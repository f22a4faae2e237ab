"""One call of a model learns and sums up, where both are due at once."""

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import ContextPipeline
from tests.integration_tests.learning_models import Reader, asks_to_learn, fact, new_messages
from tests.integration_tests.summary_models import USER, summary

ADA: Any = {"user_id": "ada"}
WRITTEN = "They talked about things to drink."
PADDING = " It is a good one, and so it has been for many years in our house." * 4


def sums_up(prompt: str) -> bool:
    return "key_decisions" in prompt


def read(prompt: str) -> str:
    """What a careful reader answers to either task, and to both."""
    reply: dict[str, Any] = {}
    if asks_to_learn(prompt):
        likings = [
            fact(f"Likes {text.split()[2]}", number)
            for number, text in new_messages(prompt)
            if text.startswith("I like")
        ]
        reply = {"facts": likings[:8], "topics": [], "entities": []}
    if sums_up(prompt):
        reply |= json.loads(summary(WRITTEN))
    return json.dumps(reply)


class Model(Reader):
    @property
    def joint(self) -> list[str]:
        return [prompt for prompt in self.read if asks_to_learn(prompt) and sums_up(prompt)]


def exchange(number: int) -> list[BaseMessage]:
    said = HumanMessage(f"I like tea{number}, always.{PADDING}", id=f"q{number}")
    return [said, AIMessage(f"Noted, number {number}.{PADDING}", id=f"a{number}")]


def talk(pipeline: ContextPipeline, numbers: range) -> None:
    """Has a conversation, with a prompt for every question."""
    for number in numbers:
        question, answer = exchange(number)
        pipeline.assemble(question, **USER)
        assert pipeline.flush(30)
        pipeline.add_messages([question, answer], **USER)
        assert pipeline.flush(30)


def opened(model: Reader) -> ContextPipeline:
    return ContextPipeline({"max_context_tokens": 2_000, "span_messages": 8}, summary_model=model)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(answer=read)


@pytest.fixture(scope="module")
def pipeline(model: Model) -> Any:
    with opened(model) as pipeline:
        talk(pipeline, range(24))
        yield pipeline


@pytest.mark.slow
def test_a_conversation_that_is_summed_up_is_read_in_joint_calls(
    pipeline: ContextPipeline, model: Model
) -> None:
    assert len(model.joint) >= 2


@pytest.mark.slow
def test_what_a_joint_call_learns_is_known(pipeline: ContextPipeline, model: Model) -> None:
    [(_, text), *_] = new_messages(model.joint[-1])
    liked = text.split()[2]

    assert f"Likes {liked}" in {known.text for known in pipeline.knowledge.list_facts(**ADA)}


def test_what_a_joint_call_sums_up_is_the_summary(pipeline: ContextPipeline) -> None:
    summaries = [one for one in pipeline.get_compactions(**USER) if one.compaction_level == 1]

    assert {one.summary for one in summaries} == {WRITTEN}


def test_no_span_is_summed_up_twice(pipeline: ContextPipeline, model: Model) -> None:
    summaries = pipeline.get_compactions(**USER)
    written = [prompt for prompt in model.read if sums_up(prompt)]

    assert len(written) - len(summaries) in (0, 1), "one span may stand behind the cut"


def test_every_message_is_learned_from_once(pipeline: ContextPipeline, model: Model) -> None:
    shown = [text for prompt in model.learned for _, text in new_messages(prompt)]

    assert len(shown) == len(set(shown))


def test_learning_waits_for_no_end_of_a_span(pipeline: ContextPipeline, model: Model) -> None:
    read_at_once = [len(new_messages(prompt)) for prompt in model.learned]

    assert max(read_at_once) == 3, "three of the user's in six messages"


@pytest.mark.slow
def test_the_end_of_a_session_reads_the_rest() -> None:
    model = Model(answer=read)
    with opened(model) as pipeline:
        talk(pipeline, range(15))
        pipeline.end_session(**USER)
        assert pipeline.flush(30)

    shown = [text for prompt in model.learned for _, text in new_messages(prompt)]
    assert len(shown) == 15


@pytest.mark.slow
def test_what_tools_say_is_in_no_call_that_learns() -> None:
    model = Model(answer=read)
    with opened(model) as pipeline:
        for number in range(15):
            call = {"name": "look", "args": {}, "id": f"call{number}"}
            question, answer = exchange(number)
            seen = [AIMessage("", tool_calls=[call], id=f"c{number}")]
            result = ToolMessage("I like papaya.", tool_call_id=f"call{number}", id=f"t{number}")
            pipeline.assemble(question, **USER)
            pipeline.add_messages([question, *seen, result, answer], **USER)
            assert pipeline.flush(30)

    assert model.joint == []
    assert not any("papaya" in prompt for prompt in model.learned)


@pytest.mark.slow
def test_after_a_joint_reply_of_no_use_both_are_asked_for_apart() -> None:
    def answer(prompt: str) -> str:
        if asks_to_learn(prompt) and sums_up(prompt):
            return '{"facts": '
        return read(prompt)

    model = Model(answer=answer)
    with opened(model) as pipeline:
        talk(pipeline, range(24))
        summaries = [one.summary for one in pipeline.get_compactions(**USER)]

    assert len(model.joint) == 2, "two attempts, then the wait of an outage"
    assert WRITTEN in summaries


@pytest.mark.slow
def test_a_model_of_a_small_window_is_asked_for_both_apart() -> None:
    model = Model(answer=read, profile={"max_input_tokens": 4_500})
    with opened(model) as pipeline:
        talk(pipeline, range(15))

    assert model.joint == []
    assert len(model.learned) > 0
