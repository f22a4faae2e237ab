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
from langchain_ctxbudget.memory import BudgetedMemory

SCOPE = {"user_id": "ada", "conversation_id": "c1"}


@pytest.fixture
def pipeline() -> Iterator[ContextPipeline]:
    with ContextPipeline(
        store=InMemoryStore(), system_prompt="You are a careful assistant."
    ) as made:
        yield made


def load(memory: BudgetedMemory, **inputs: Any) -> Any:
    return memory.load_memory_variables(inputs)["history"]


def talk(memory: BudgetedMemory, turns: int) -> None:
    for number in range(turns):
        inputs = {"input": f"What grows in garden {number}, and who looks after it there?"}
        memory.save_context(
            inputs, {"output": f"In garden {number} grow {number * 7} pear trees. " * 3}
        )


# -- Within a number of tokens


@pytest.mark.parametrize(
    ("max_tokens", "whole_prompt"), [(300, True), (300, False), (2_000, True), (1_000, False)]
)
def test_a_long_conversation_stays_within_its_tokens(
    pipeline: ContextPipeline, chat_openai: ChatOpenAI, max_tokens: int, whole_prompt: bool
) -> None:
    """Counted by LangChain's own counter for OpenAI."""
    memory = BudgetedMemory(
        pipeline=pipeline, max_tokens=max_tokens, whole_prompt=whole_prompt, **SCOPE
    )
    for _ in range(3):
        talk(memory, 25)
        loaded = load(memory, input="Who looks after garden 3?")
        assert chat_openai.get_num_tokens_from_messages(loaded) <= max_tokens
        assert "In garden 24 grow" in loaded[-2 if whole_prompt else -1].text
    assert len(pipeline.get_messages(**SCOPE)) == 150


def test_settings_of_a_persona_hold_for_a_whole_prompt_and_for_a_window(
    pipeline: ContextPipeline,
) -> None:
    talk(BudgetedMemory(pipeline=pipeline, **SCOPE), 25)
    saved = {
        "preferences": ["Answer in French."],
        "compaction_trigger": 0.4,
        "compaction_target": 0.2,
        "keep_messages": 2,
    }
    pipeline.save_settings(saved, user_id="ada", persona_id="teacher")
    for whole_prompt in (True, False):
        options: Any = {
            "pipeline": pipeline,
            "max_tokens": 600,
            "whole_prompt": whole_prompt,
            **SCOPE,
        }
        usual, own = (
            load(BudgetedMemory(**options, persona_id=persona), input="And now?")
            for persona in (None, "teacher")
        )
        assert own != usual
        assert ("Answer in French." in own[0].text) is whole_prompt


# -- How it is made


def test_what_makes_no_sense_is_refused(pipeline: ContextPipeline) -> None:
    for options, message in [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"max_tokens": "900"}, "max_tokens='900'"),
        ({"max_token_limit": 900}, "'max_token_limit' .is 'max_tokens' meant"),
        ({"memory_key": ""}, "memory_key=''"),
    ]:
        with pytest.raises(InvalidSettingsError, match=message):
            BudgetedMemory(pipeline=pipeline, **options, **SCOPE)


def test_without_langchain_classic_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['langchain_classic'] = None; from langchain_ctxbudget import *; print(ChromaStore)"
    code = f"{code}; import langchain_ctxbudget.integrations.memory"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ChromaStore" in done.stdout
    assert "pip install 'langchain-ctxbudget[classic]'" in done.stderr


@pytest.mark.parametrize("wrong", [5, None, {"text": "x"}])
def test_the_input_of_a_whole_prompt_is_text(pipeline: ContextPipeline, wrong: Any) -> None:
    memory = BudgetedMemory(pipeline=pipeline, whole_prompt=True, **SCOPE)
    with pytest.raises(InputError, match="input must be text"):
        load(memory, input=wrong)
