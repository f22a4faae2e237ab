"""`BudgetedMemory`: what LangChain's chains expect of a memory, and a prompt that fits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tiktoken
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import (
    InputError,
    InvalidSettingsError,
)
from langchain_ctxbudget.integrations.memory import BudgetedMemory

Messages = list[BaseMessage]
SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SEARCH = {"name": "search", "args": {"query": "pump"}, "id": "call-1", "type": "tool_call"}


@pytest.fixture
def pipeline() -> Iterator[ContextPipeline]:
    with ContextPipeline(store=InMemoryStore(), system_prompt="You are a careful assistant.") as made:
        yield made


@pytest.fixture
def memory(pipeline: ContextPipeline) -> BudgetedMemory:
    return BudgetedMemory(pipeline=pipeline, **SCOPE)


def load(memory: BudgetedMemory, **inputs: Any) -> Any:
    return memory.load_memory_variables(inputs)["history"]


def talk(memory: BudgetedMemory, turns: int) -> None:
    for number in range(turns):
        inputs = {"input": f"What grows in garden {number}, and who looks after it there?"}
        memory.save_context(inputs, {"output": f"In garden {number} grow {number * 7} pear trees. " * 3})


# -- What LangChain expects of a memory


def test_a_string_is_that_of_other_memories(pipeline: ContextPipeline) -> None:
    memory = BudgetedMemory(pipeline=pipeline, return_messages=False, human_prefix="Ada", ai_prefix="Bot", **SCOPE)
    memory.save_context({"input": "My bike is blue."}, {"output": "Nice!"})
    assert load(memory) == "Ada: My bike is blue.\nBot: Nice!"


# -- Within a number of tokens


@pytest.mark.parametrize(("max_tokens", "whole_prompt"), [(300, True), (300, False), (2_000, True), (1_000, False)])
def test_a_long_conversation_stays_within_its_tokens(
    pipeline: ContextPipeline, chat_openai: ChatOpenAI, max_tokens: int, whole_prompt: bool
) -> None:
    """Counted by LangChain's own counter for OpenAI."""
    memory = BudgetedMemory(pipeline=pipeline, max_tokens=max_tokens, whole_prompt=whole_prompt, **SCOPE)
    for _ in range(3):
        talk(memory, 25)
        loaded = load(memory, input="Who looks after garden 3?")
        assert chat_openai.get_num_tokens_from_messages(loaded) <= max_tokens
        assert "In garden 24 grow" in loaded[-2 if whole_prompt else -1].text
    assert len(pipeline.get_messages(**SCOPE)) == 150


CALLS: Messages = [
    message
    for number in range(20)
    for message in (
        HumanMessage(f"Find {number}."),
        AIMessage("", tool_calls=[{**SEARCH, "id": f"call-{number}"}]),
        ToolMessage("found", tool_call_id=f"call-{number}"),
        AIMessage(f"Found {number}."),
    )
]


@pytest.mark.parametrize("conversation", [demo_messages()[:60], CALLS], ids=["words", "calls"])
@pytest.mark.parametrize("human_prefix", ["Human", "The visitor at the desk of the Harrow Lane Tool Library says"])
@pytest.mark.parametrize("share", [0.3, 1])
def test_a_string_stays_within_its_tokens(
    offline_tiktoken: None, conversation: Messages, human_prefix: str, share: float
) -> None:
    """Calls and long prefixes cost more in a string than in messages."""
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(conversation, **SCOPE)
    options: dict[str, Any] = {"return_messages": False, "human_prefix": human_prefix}
    max_tokens = int(pipeline.token_counter.count_messages(conversation) * share)
    text = load(BudgetedMemory(pipeline=pipeline, max_tokens=max_tokens, **options, **SCOPE))
    assert max_tokens / 4 < len(tiktoken.get_encoding("o200k_base").encode_ordinary(text)) <= max_tokens
    assert text.endswith(conversation[-1].text)


# -- In a chain


# -- What was said


# -- Which of the inputs and outputs


def test_what_was_said_must_be_clear(pipeline: ContextPipeline) -> None:
    for named, turn, message in [
        ({}, ({"question": "Well?", "today": "Monday"}, {"output": "Yes."}), r"\['question', 'today'\].*input_key"),
        ({}, ({}, {"output": "Yes."}), r"one input.*not 0 \[\].*input_key"),
        ({"input_key": "text"}, ({"question": "Well?"}, {"output": "Yes."}), r"'text'.*\['question'\]"),
        ({}, ({"input": "Well?"}, {"answer": "Yes.", "sources": []}), r"\['answer', 'sources'\].*output_key"),
        ({}, ({"input": "Well?"}, {}), r"one output.*not 0 \[\].*output_key"),
        ({"output_key": "text"}, ({"input": "Well?"}, {"answer": "Yes."}), r"'text'.*\['answer'\]"),
    ]:
        memory = BudgetedMemory(pipeline=pipeline, **named, **SCOPE)
        with pytest.raises(InputError, match=message):
            memory.save_context(*turn)
        assert pipeline.get_messages(**SCOPE) == []


# -- How it is made


def test_what_makes_no_sense_is_refused(pipeline: ContextPipeline) -> None:
    for options, message in [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"max_tokens": "900"}, "max_tokens='900'"),
        ({"max_token_limit": 900}, "max_token_limit=900"),
        ({"memory_key": ""}, "memory_key=''"),
        ({"input_key": "history"}, "input_key and memory_key"),
        ({"whole_prompt": True, "return_messages": False}, "return_messages"),
    ]:
        with pytest.raises(InvalidSettingsError, match=message):
            BudgetedMemory(pipeline=pipeline, **options, **SCOPE)


def test_without_langchain_classic_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['langchain_classic'] = None; import langchain_ctxbudget.integrations.memory"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'langchain-ctxbudget[classic]'" in done.stderr
