"""`BudgetedMemory`: what LangChain's chains expect of a memory, and a prompt that fits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from langchain_classic.chains import ConversationChain, LLMChain
from langchain_classic.memory import CombinedMemory
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_openai import ChatOpenAI
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore
from pydantic import PrivateAttr, ValidationError

from langchain_ctxbudget import BudgetedChatMessageHistory, ChromaStore, ContextPipeline
from langchain_ctxbudget.demo import DEMO_QUESTION, demo_messages
from langchain_ctxbudget.errors import (
    BudgetTooSmallError,
    EmptyMessageError,
    InputError,
    InvalidSettingsError,
    MissingScopeError,
    UnsupportedContentError,
)
from langchain_ctxbudget.memory import BudgetedMemory
from tests.integration_tests.conftest import Call
from tests.integration_tests.provider_rules import check_anthropic, check_openai

Messages = list[BaseMessage]
SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SYSTEM = SystemMessage("You are a careful assistant.")
SEARCH = {"name": "search", "args": {"query": "pump"}, "id": "call-1", "type": "tool_call"}
TURN: Messages = [
    HumanMessage("Find the pump.", id="m1"),
    AIMessage("Let me see.", id="m2", tool_calls=[SEARCH]),
    ToolMessage("3 found", id="m3", tool_call_id="call-1", name="search"),
]
ANSWER = AIMessage("There are three.", id="m4")

# They warn once in a process, whoever makes the first one: no test can expect it.
deprecated_chains = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")


class Listener(FakeListChatModel):
    """Says its lines, and remembers what it was sent."""

    _sent: list[Messages] = PrivateAttr(default_factory=list)

    @property
    def sent(self) -> list[Messages]:
        return self._sent

    def _call(self, messages: Messages, *args: Any, **kwargs: Any) -> str:
        self._sent.append(messages)
        return super()._call(messages, *args, **kwargs)


@pytest.fixture
def pipeline() -> Iterator[ContextPipeline]:
    with ContextPipeline(store=InMemoryStore(), system_prompt="You are a careful assistant.") as made:
        yield made


@pytest.fixture
def memory(pipeline: ContextPipeline) -> BudgetedMemory:
    return BudgetedMemory(pipeline=pipeline, **SCOPE)


def load(call: Call, memory: BudgetedMemory, **inputs: Any) -> Any:
    return call(memory, "load_memory_variables", inputs)["history"]


def said(messages: Messages) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in messages]


def talk(call: Call, memory: BudgetedMemory, turns: int) -> None:
    for number in range(turns):
        inputs = {"input": f"What grows in garden {number}, and who looks after it there?"}
        call(memory, "save_context", inputs, {"output": f"In garden {number} grow {number * 7} pear trees. " * 3})


# -- What LangChain expects of a memory


def test_what_was_said_is_loaded_in_its_roles(memory: BudgetedMemory, call: Call) -> None:
    call(memory, "save_context", {"input": "My bike is blue."}, {"output": "Nice!"})
    assert said(load(call, memory)) == [("human", "My bike is blue."), ("ai", "Nice!")]


def test_nothing_was_said_yet(memory: BudgetedMemory, call: Call) -> None:
    assert call(memory, "load_memory_variables", {}) == {"history": []}


def test_the_variable_has_the_name_that_was_given(pipeline: ContextPipeline, call: Call) -> None:
    memory = BudgetedMemory(pipeline=pipeline, memory_key="chat_history", **SCOPE)
    assert memory.memory_variables == ["chat_history"]
    assert call(memory, "load_memory_variables", {}) == {"chat_history": []}


def test_the_same_words_twice_are_two_messages(memory: BudgetedMemory, call: Call) -> None:
    for _ in range(2):
        call(memory, "save_context", {"input": "yes"}, {"output": "sure"})
    assert [text for _, text in said(load(call, memory))] == ["yes", "sure", "yes", "sure"]


def test_loading_stores_nothing(pipeline: ContextPipeline, call: Call) -> None:
    for whole_prompt in (True, False):
        memory = BudgetedMemory(pipeline=pipeline, whole_prompt=whole_prompt, **SCOPE)
        load(call, memory, input="My bike is blue.")
    assert pipeline.get_messages(**SCOPE) == []


def test_a_string_is_that_of_other_memories(pipeline: ContextPipeline, call: Call) -> None:
    memory = BudgetedMemory(pipeline=pipeline, return_messages=False, human_prefix="Ada", ai_prefix="Bot", **SCOPE)
    call(memory, "save_context", {"input": "My bike is blue."}, {"output": "Nice!"})
    assert load(call, memory) == "Ada: My bike is blue.\nBot: Nice!"


def test_clear_removes_the_conversation_and_no_other(pipeline: ContextPipeline, call: Call) -> None:
    mine = BudgetedMemory(pipeline=pipeline, **SCOPE)
    other = BudgetedMemory(pipeline=pipeline, user_id="ada", conversation_id="c2")
    for each in (mine, other):
        call(each, "save_context", {"input": "My bike is blue."}, {"output": "Nice!"})
    call(mine, "clear")
    assert load(call, mine) == []
    assert len(load(call, other)) == 2


def test_users_do_not_see_each_other(pipeline: ContextPipeline, call: Call) -> None:
    users = {user: BudgetedMemory(pipeline=pipeline, user_id=user, conversation_id="c1") for user in ("ada", "bob")}
    for user, each in users.items():
        call(each, "save_context", {"input": f"I am {user}."}, {"output": "Welcome."})
    for user, each in users.items():
        assert said(load(call, each)) == [("human", f"I am {user}."), ("ai", "Welcome.")]


def test_a_failed_write_is_raised(call: Call) -> None:
    class Full(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            ops = list(ops)
            if any(isinstance(op, PutOp) for op in ops):
                raise OSError("disk full")
            return super().batch(ops)

        async def abatch(self, ops: Any) -> Any:
            return self.batch(ops)

    memory = BudgetedMemory(pipeline=ContextPipeline(store=Full()), **SCOPE)
    with pytest.raises(OSError, match="disk full"):
        call(memory, "save_context", {"input": "My bike is blue."}, {"output": "Nice!"})


@pytest.mark.parametrize("whole_prompt", [True, False])
def test_a_conversation_survives_a_restart(tmp_path: Path, call: Call, whole_prompt: bool) -> None:
    loaded = []
    for run in range(2):
        with ChromaStore(path=tmp_path / "store") as store, ContextPipeline(store=store) as pipeline:
            memory = BudgetedMemory(pipeline=pipeline, max_tokens=900, whole_prompt=whole_prompt, **SCOPE)
            if run == 0:
                talk(call, memory, 30)
            loaded.append(load(call, memory, input="Who looks after garden 3?"))
    assert loaded[0] == loaded[1]
    assert "In garden 29 grow" in loaded[1][-2 if whole_prompt else -1].text


# -- Within a number of tokens


@pytest.mark.parametrize("max_tokens", [300, 1_000, 3_000])
@pytest.mark.parametrize("whole_prompt", [True, False])
def test_a_long_conversation_stays_within_its_tokens(
    pipeline: ContextPipeline, chat_openai: ChatOpenAI, call: Call, max_tokens: int, whole_prompt: bool
) -> None:
    """Counted by LangChain's own counter for OpenAI."""
    memory = BudgetedMemory(pipeline=pipeline, max_tokens=max_tokens, whole_prompt=whole_prompt, **SCOPE)
    for _ in range(6):
        talk(call, memory, 25)
        loaded = load(call, memory, input="Who looks after garden 3?")
        assert chat_openai.get_num_tokens_from_messages(loaded) <= max_tokens
        assert "In garden 24 grow" in loaded[-2 if whole_prompt else -1].text
    assert len(pipeline.get_messages(**SCOPE)) == 300


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
    offline_tiktoken: None, call: Call, conversation: Messages, human_prefix: str, share: float
) -> None:
    """Calls and long prefixes cost more in a string than in messages."""
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(conversation, **SCOPE)
    options: dict[str, Any] = {"return_messages": False, "human_prefix": human_prefix}
    max_tokens = int(pipeline.token_counter.count_messages(conversation) * share)
    text = load(call, BudgetedMemory(pipeline=pipeline, max_tokens=max_tokens, **options, **SCOPE))
    assert max_tokens / 3 < len(tiktoken.get_encoding("o200k_base").encode_ordinary(text)) <= max_tokens
    assert text.endswith(conversation[-1].text)


def test_without_a_number_the_window_has_what_the_settings_say(call: Call) -> None:
    pipeline = ContextPipeline({"max_context_tokens": 900}, store=InMemoryStore())
    pipeline.add_messages(demo_messages(), **SCOPE)
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    assert load(call, BudgetedMemory(pipeline=pipeline, **SCOPE)) == history.window(900)


@pytest.mark.parametrize("options", [{}, {"whole_prompt": True}, {"return_messages": False}])
def test_a_budget_that_cannot_be_kept_is_an_error(
    pipeline: ContextPipeline, call: Call, options: dict[str, Any]
) -> None:
    pipeline.add_messages(demo_messages(), **SCOPE)
    memory = BudgetedMemory(pipeline=pipeline, max_tokens=5, **options, **SCOPE)
    with pytest.raises(BudgetTooSmallError):
        load(call, memory, input=DEMO_QUESTION)


# -- The whole prompt


def test_a_whole_prompt_is_what_the_pipeline_assembles(pipeline: ContextPipeline, call: Call) -> None:
    pipeline.add_messages(demo_messages(), **SCOPE)
    memory = BudgetedMemory(pipeline=pipeline, whole_prompt=True, max_tokens=2_000, **SCOPE)
    expected = pipeline.assemble(DEMO_QUESTION, **SCOPE, settings={"max_context_tokens": 2_000})
    assert load(call, memory, input=DEMO_QUESTION) == expected.messages


@pytest.mark.parametrize(
    "turn", [HumanMessage("And now?"), [HumanMessage("And now?")], TURN], ids=["one", "list", "loop"]
)
def test_a_whole_prompt_is_for_messages_as_well(pipeline: ContextPipeline, call: Call, turn: Any) -> None:
    memory = BudgetedMemory(pipeline=pipeline, whole_prompt=True, **SCOPE)
    assert load(call, memory, input=turn) == pipeline.assemble(turn, **SCOPE).messages


def test_the_last_report_is_of_the_last_whole_prompt(pipeline: ContextPipeline, call: Call) -> None:
    memory = BudgetedMemory(pipeline=pipeline, whole_prompt=True, **SCOPE)
    assert memory.last_report is None
    for question in ("Hello", "Which colour is my bike, and when did I buy it?"):
        loaded = load(call, memory, input=question)
        assert memory.last_report is not None
        assert memory.last_report.total_tokens == pipeline.token_counter.count_messages(loaded)


def test_a_window_has_no_report(memory: BudgetedMemory, pipeline: ContextPipeline, call: Call) -> None:
    load(call, BudgetedMemory(pipeline=pipeline, whole_prompt=True, **SCOPE), input="Hello")
    load(call, memory)
    assert memory.last_report is None


def test_a_whole_prompt_for_nothing_is_an_error(pipeline: ContextPipeline, call: Call) -> None:
    memory = BudgetedMemory(pipeline=pipeline, whole_prompt=True, **SCOPE)
    with pytest.raises(EmptyMessageError):
        load(call, memory, input="")


# -- In a chain


@deprecated_chains
def test_a_conversation_chain_sends_what_was_said(memory: BudgetedMemory, call: Call) -> None:
    model = Listener(responses=["Nice!", "Blue."])
    prompt = ChatPromptTemplate([SYSTEM, MessagesPlaceholder("history"), ("human", "{input}")])
    chain = ConversationChain(llm=model, prompt=prompt, memory=memory)
    call(chain, "invoke", "My bike is blue.")
    assert call(chain, "invoke", "Which colour is it?")["response"] == "Blue."
    assert said(model.sent[-1]) == [
        ("system", SYSTEM.text),
        ("human", "My bike is blue."),
        ("ai", "Nice!"),
        ("human", "Which colour is it?"),
    ]


@deprecated_chains
def test_a_conversation_chain_as_it_comes_has_the_string_in_its_prompt(pipeline: ContextPipeline, call: Call) -> None:
    model = Listener(responses=["Nice!", "Blue."])
    memory = BudgetedMemory(pipeline=pipeline, return_messages=False, **SCOPE)
    chain = ConversationChain(llm=model, memory=memory)
    call(chain, "invoke", "My bike is blue.")
    call(chain, "invoke", "Which colour is it?")
    assert "\nHuman: My bike is blue.\nAI: Nice!\nHuman: Which colour is it?" in model.sent[-1][0].text


@deprecated_chains
def test_a_chain_whose_prompt_is_the_memory_sends_the_whole_prompt(pipeline: ContextPipeline, call: Call) -> None:
    pipeline.add_messages(demo_messages(), **SCOPE)
    model = Listener(responses=["Etch & Field.", "Till October."])
    memory = BudgetedMemory(pipeline=pipeline, whole_prompt=True, max_tokens=2_000, **SCOPE)
    chain = LLMChain(llm=model, prompt=ChatPromptTemplate([MessagesPlaceholder("history")]), memory=memory)
    for question in (DEMO_QUESTION, "Until when?"):
        expected = pipeline.assemble(question, **SCOPE, settings={"max_context_tokens": 2_000}).messages
        call(chain, "invoke", {"input": question, "stop": ["\n\n"]})
        assert model.sent[-1] == expected
    assert said(pipeline.get_messages(**SCOPE))[-4:] == [
        ("human", DEMO_QUESTION),
        ("ai", "Etch & Field."),
        ("human", "Until when?"),
        ("ai", "Till October."),
    ]


@deprecated_chains
def test_two_memories_go_together(pipeline: ContextPipeline, call: Call) -> None:
    both = CombinedMemory(
        memories=[
            BudgetedMemory(pipeline=pipeline, input_key="input", memory_key=key, conversation_id=key, user_id="ada")
            for key in ("work", "home")
        ]
    )
    call(both, "save_context", {"input": "Hi", "mood": "good"}, {"output": "Hello"})
    assert {key: len(value) for key, value in call(both, "load_memory_variables", {}).items()} == {"work": 2, "home": 2}


# -- What was said


def test_calls_and_results_are_kept(memory: BudgetedMemory, call: Call) -> None:
    call(memory, "save_context", {"input": TURN}, {"output": ANSWER})
    loaded = load(call, memory)
    assert loaded == [*TURN, ANSWER]
    assert check_openai([SYSTEM, *loaded, HumanMessage("And now?")]) == []
    assert check_anthropic([SYSTEM, *loaded, HumanMessage("And now?")]) == []


def test_messages_are_kept_as_they_are(memory: BudgetedMemory, pipeline: ContextPipeline, call: Call) -> None:
    picture = HumanMessage(
        [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}},
        ],
        id="m1",
        name="Ada",
        additional_kwargs={"created_at": "2026-03-01T08:00:00"},
    )
    answer = AIMessage("A bike.", id="m2", usage_metadata={"input_tokens": 9, "output_tokens": 2, "total_tokens": 11})
    call(memory, "save_context", {"input": picture}, {"output": answer})
    assert pipeline.get_messages(**SCOPE) == [picture, answer]


def test_an_answer_of_several_messages_is_kept(memory: BudgetedMemory, call: Call) -> None:
    call(memory, "save_context", {"input": TURN[0]}, {"output": [*TURN[1:], ANSWER]})
    assert load(call, memory) == [*TURN, ANSWER]


@pytest.mark.parametrize("turn", [{"answer": 42}, None, 7, ["What is it?"], [{"type": "text", "text": "What is it?"}]])
def test_what_is_no_message_is_refused(
    memory: BudgetedMemory, pipeline: ContextPipeline, call: Call, turn: Any
) -> None:
    for inputs, outputs in (({"input": turn}, {"output": "Yes."}), ({"input": "Well?"}, {"output": turn})):
        with pytest.raises(UnsupportedContentError, match=type(turn).__name__):
            call(memory, "save_context", inputs, outputs)
    assert pipeline.get_messages(**SCOPE) == []


# -- Which of the inputs and outputs


def test_the_memory_itself_and_stop_are_no_input(memory: BudgetedMemory, call: Call) -> None:
    inputs = {"history": [HumanMessage("earlier")], "stop": ["\n"], "question": "Well?"}
    call(memory, "save_context", inputs, {"output": "Yes."})
    assert said(load(call, memory)) == [("human", "Well?"), ("ai", "Yes.")]


def test_of_several_the_named_ones_are_kept(pipeline: ContextPipeline, call: Call) -> None:
    memory = BudgetedMemory(pipeline=pipeline, input_key="question", output_key="answer", **SCOPE)
    inputs, outputs = {"question": "Well?", "today": "Monday"}, {"answer": "Yes.", "sources": ["a.txt"]}
    call(memory, "save_context", inputs, outputs)
    assert said(load(call, memory)) == [("human", "Well?"), ("ai", "Yes.")]


def test_of_several_outputs_the_one_named_output_is_the_answer(memory: BudgetedMemory, call: Call) -> None:
    call(memory, "save_context", {"input": "Well?"}, {"intermediate_steps": [], "output": "Yes."})
    assert said(load(call, memory)) == [("human", "Well?"), ("ai", "Yes.")]


@pytest.mark.parametrize(
    ("named", "turn", "message"),
    [
        ({}, ({"question": "Well?", "today": "Monday"}, {"output": "Yes."}), r"\['question', 'today'\].*input_key"),
        ({}, ({}, {"output": "Yes."}), r"one input.*not 0 \[\].*input_key"),
        ({"input_key": "text"}, ({"question": "Well?"}, {"output": "Yes."}), r"'text'.*\['question'\]"),
        ({}, ({"input": "Well?"}, {"answer": "Yes.", "sources": []}), r"\['answer', 'sources'\].*output_key"),
        ({}, ({"input": "Well?"}, {}), r"one output.*not 0 \[\].*output_key"),
        ({"output_key": "text"}, ({"input": "Well?"}, {"answer": "Yes."}), r"'text'.*\['answer'\]"),
    ],
)
def test_what_was_said_must_be_clear(
    pipeline: ContextPipeline, call: Call, named: dict[str, str], turn: tuple[dict[str, Any], ...], message: str
) -> None:
    memory = BudgetedMemory(pipeline=pipeline, **named, **SCOPE)
    with pytest.raises(InputError, match=message):
        call(memory, "save_context", *turn)
    assert pipeline.get_messages(**SCOPE) == []


@pytest.mark.parametrize("inputs", [{}, {"history": []}, {"question": "Well?", "today": "Monday"}])
def test_a_whole_prompt_must_be_for_something(pipeline: ContextPipeline, call: Call, inputs: dict[str, Any]) -> None:
    memory = BudgetedMemory(pipeline=pipeline, whole_prompt=True, **SCOPE)
    with pytest.raises(InputError, match="input_key"):
        load(call, memory, **inputs)


def test_a_window_is_for_any_inputs(memory: BudgetedMemory, call: Call) -> None:
    assert load(call, memory, question="Well?", today="Monday") == []


# -- How it is made


@pytest.mark.parametrize(("user", "conversation"), [("", "c1"), (None, "c1"), ("ada", ""), ("ada", None), ("ada", 7)])
def test_a_missing_scope_is_refused_at_once(pipeline: ContextPipeline, user: Any, conversation: Any) -> None:
    with pytest.raises(MissingScopeError):
        BudgetedMemory(pipeline=pipeline, user_id=user, conversation_id=conversation)


def test_a_scope_that_is_not_given_is_refused_at_once(pipeline: ContextPipeline) -> None:
    with pytest.raises(MissingScopeError):
        BudgetedMemory(pipeline=pipeline, user_id="ada")


@pytest.mark.parametrize("pipeline", [None, InMemoryStore(), "pipeline"])
def test_a_memory_needs_a_pipeline(pipeline: Any) -> None:
    with pytest.raises(InvalidSettingsError, match="ContextPipeline"):
        BudgetedMemory(pipeline=pipeline, **SCOPE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"max_tokens": True}, "max_tokens=True"),
        ({"max_tokens": "900"}, "max_tokens='900'"),
        ({"max_token_limit": 900}, "max_token_limit=900"),
        ({"memory_key": ""}, "memory_key=''"),
        ({"input_key": "history"}, "input_key and memory_key"),
        ({"whole_prompt": True, "return_messages": False}, "return_messages"),
    ],
)
def test_what_makes_no_sense_is_refused(pipeline: ContextPipeline, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        BudgetedMemory(pipeline=pipeline, **options, **SCOPE)


def test_it_cannot_be_changed(memory: BudgetedMemory) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        memory.user_id = "bob"


def test_without_langchain_classic_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['langchain_classic'] = None; import langchain_ctxbudget.memory"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'langchain-ctxbudget[classic]'" in done.stderr
