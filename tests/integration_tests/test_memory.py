"""`BudgetedMemory`: what LangChain's chains expect of a memory, and a prompt that fits."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.memory import BudgetedMemory

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


@pytest.fixture
def pipeline() -> Iterator[ContextPipeline]:
    with ContextPipeline(
        store=InMemoryStore(), system_prompt="You are a careful assistant."
    ) as pipeline:
        yield pipeline


def load(memory: BudgetedMemory, question: Any) -> Any:
    return memory.load_memory_variables({"input": question})["history"]


def talk(memory: BudgetedMemory, turns: int) -> None:
    for number in range(turns):
        question = f"What grows in garden {number}, and who looks after it there?"
        answer = f"In garden {number} grow {number * 7} pear trees. " * 3
        memory.save_context({"input": question}, {"output": answer})


# -- Within a number of tokens


@pytest.mark.slow
@pytest.mark.parametrize(
    ("max_tokens", "whole_prompt", "newest"),
    [(300, True, -2), (300, False, -1), (2_000, True, -2), (1_000, False, -1)],
)
def test_a_long_conversation_stays_within_its_tokens(
    pipeline: ContextPipeline,
    chat_openai: ChatOpenAI,
    max_tokens: int,
    whole_prompt: bool,
    newest: int,
) -> None:
    """Counted by LangChain's own counter for OpenAI."""
    memory = BudgetedMemory(
        pipeline=pipeline, max_tokens=max_tokens, whole_prompt=whole_prompt, **SCOPE
    )
    for _ in range(3):
        talk(memory, 25)

        messages = load(memory, "Who looks after garden 3?")

        assert chat_openai.get_num_tokens_from_messages(messages) <= max_tokens
        assert "In garden 24 grow" in messages[newest].text
    assert len(pipeline.get_messages(**SCOPE)) == 150


class TestSettingsOfAPersona:
    """They hold for a whole prompt and for a window."""

    @pytest.fixture
    def pipeline(self, pipeline: ContextPipeline) -> ContextPipeline:
        talk(BudgetedMemory(pipeline=pipeline, **SCOPE), 25)
        settings = {
            "preferences": ["Answer in French."],
            "compaction_trigger": 0.4,
            "compaction_target": 0.2,
            "keep_messages": 2,
        }
        pipeline.save_settings(settings, user_id="ada", persona_id="teacher")
        return pipeline

    @pytest.mark.parametrize("whole_prompt", [True, False], ids=["whole prompt", "window"])
    def test_messages_are_others_than_without_it(
        self, pipeline: ContextPipeline, whole_prompt: bool
    ) -> None:
        usual = BudgetedMemory(
            pipeline=pipeline, max_tokens=600, whole_prompt=whole_prompt, **SCOPE
        )
        teacher = BudgetedMemory(
            pipeline=pipeline,
            max_tokens=600,
            whole_prompt=whole_prompt,
            persona_id="teacher",
            **SCOPE,
        )

        assert load(teacher, "And now?") != load(usual, "And now?")

    @pytest.mark.parametrize("whole_prompt", [True, False], ids=["whole prompt", "window"])
    def test_preferences_are_in_a_whole_prompt_alone(
        self, pipeline: ContextPipeline, whole_prompt: bool
    ) -> None:
        teacher = BudgetedMemory(
            pipeline=pipeline,
            max_tokens=600,
            whole_prompt=whole_prompt,
            persona_id="teacher",
            **SCOPE,
        )

        first = load(teacher, "And now?")[0]
        assert ("Answer in French." in first.text) is whole_prompt


# -- How it is made


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"max_tokens": "900"}, "max_tokens='900'"),
        ({"max_token_limit": 900}, "'max_token_limit' .is 'max_tokens' meant"),
        ({"memory_key": ""}, "memory_key=''"),
    ],
    ids=["no tokens", "true tokens", "text tokens", "misspelt", "no key"],
)
def test_options_that_make_no_sense_are_refused(
    pipeline: ContextPipeline, options: Any, message: str
) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        BudgetedMemory(pipeline=pipeline, **options, **SCOPE)


WITHOUT_CLASSIC = """
import sys
sys.modules["langchain_classic"] = None
from langchain_ctxbudget import *
print(ChromaStore)
import langchain_ctxbudget.integrations.memory
"""


@pytest.mark.slow
def test_without_langchain_classic_it_says_what_to_install() -> None:
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_CLASSIC], capture_output=True, text=True, check=False
    )

    assert "ChromaStore" in process.stdout, "the rest of the package works"
    assert install_command("classic") in process.stderr


@pytest.mark.parametrize("wrong", [5, None, {"text": "x"}])
def test_the_input_of_a_whole_prompt_is_text(pipeline: ContextPipeline, wrong: Any) -> None:
    memory = BudgetedMemory(pipeline=pipeline, whole_prompt=True, **SCOPE)
    with pytest.raises(InputError, match="input must be text"):
        load(memory, wrong)
