"""`ModelCounter`: the model's own counts, one call per new message, nothing fetched, never below our own rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import tiktoken.registry
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langchain_openai.chat_models import base as chat_models
from pydantic import Field

from langchain_ctxbudget.core.tokens import TiktokenCounter
from langchain_ctxbudget.counters import ModelCounter
from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError

OWN = TiktokenCounter()


class Words(FakeListChatModel):
    """Counts words: one per message for its frame, two per request; it says which messages it was asked about."""

    responses: list[str] = Field(default_factory=lambda: ["x"])
    asked: list[int] = Field(default_factory=list)

    def get_num_tokens(self, text: str) -> int:
        return len(text.split())

    def get_num_tokens_from_messages(self, messages: Sequence[BaseMessage], tools: Any = None) -> int:
        self.asked.append(len(messages))
        return sum(len(str(message.content).split()) + 1 for message in messages) + 2


class MessagesOnly(FakeListChatModel):
    """Counts messages by words, and texts not at all, as models do that count over the network."""

    responses: list[str] = Field(default_factory=lambda: ["x"])

    def get_num_tokens_from_messages(self, messages: Sequence[BaseMessage], tools: Any = None) -> int:
        return sum(len(str(message.content).split()) + 4 for message in messages) + 3


class Moody(Words):
    """Refuses what is marked."""

    def get_num_tokens(self, text: str) -> int:
        if "!" in text:
            raise ConnectionError(text)
        return super().get_num_tokens(text)

    def get_num_tokens_from_messages(self, messages: Sequence[BaseMessage], tools: Any = None) -> int:
        if any("?" in str(message.content) for message in messages):
            raise ConnectionError
        return super().get_num_tokens_from_messages(messages)


@pytest.fixture(scope="module")
def openai_counter(chat_openai: ChatOpenAI) -> ModelCounter:
    return ModelCounter(chat_openai)


TEXT = st.text(max_size=40).filter(lambda text: "<|" not in text)  # ChatOpenAI raises on special tokens
MESSAGE = st.one_of(
    st.builds(HumanMessage, TEXT, name=st.none() | st.just("ada")),
    st.builds(SystemMessage, TEXT),
    st.builds(AIMessage, TEXT),
    st.builds(AIMessage, TEXT, tool_calls=st.just([{"id": "c1", "name": "find", "args": {"city": "Köln"}}])),
    st.builds(ToolMessage, TEXT, tool_call_id=st.just("c1")),
    st.builds(HumanMessage, st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=3)),
)


# -- the same as the model


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(MESSAGE, max_size=5))
def test_a_request_costs_what_chat_openai_says(
    messages: list[BaseMessage], openai_counter: ModelCounter, chat_openai: ChatOpenAI
) -> None:
    assert openai_counter.count_messages(messages) == chat_openai.get_num_tokens_from_messages(messages)


@pytest.mark.parametrize("text", ["", "one", "one two three"])
def test_a_text_costs_what_the_model_says(text: str) -> None:
    assert ModelCounter(Words()).count_text(text) == len(text.split())


def test_a_request_costs_what_any_model_that_adds_up_says() -> None:
    model, messages = Words(), [HumanMessage("Where is my umbrella"), AIMessage("In the hall"), HumanMessage("Thanks")]
    assert ModelCounter(model).count_messages(messages) == model.get_num_tokens_from_messages(messages)


def test_no_messages_cost_the_priming_of_the_reply(openai_counter: ModelCounter) -> None:
    assert openai_counter.count_messages([]) == 3
    assert ModelCounter(Words()).count_messages([]) == 2


def test_a_model_that_counts_messages_only_counts_texts_through_them() -> None:
    counter = ModelCounter(MessagesOnly())
    assert counter.count_text("one two three") == 3
    assert counter.count_messages([HumanMessage("one two three")]) == 10


def test_a_bound_model_counts_as_the_model_itself(chat_openai: ChatOpenAI, openai_counter: ModelCounter) -> None:
    bound = ModelCounter(chat_openai.bind(stop=["."]))  # type: ignore[arg-type]
    assert bound.name == openai_counter.name == "model:gpt-4o"
    assert bound.count_text("Hello, world!") == 4


def test_a_model_without_a_name_is_named_by_its_class() -> None:
    assert ModelCounter(Words()).name == "model:Words"


# -- calls


def test_a_message_is_asked_about_once() -> None:
    model = Words()
    counter = ModelCounter(model)
    before, asked = counter.calls, len(model.asked)
    history = [HumanMessage(f"message {number}") for number in range(20)]
    for length in range(1, 21):
        counter.count_messages(history[:length])
    assert model.asked[asked:] == [1] * 20
    assert counter.calls - before == 20


def test_messages_that_say_the_same_are_asked_about_once() -> None:
    counter = ModelCounter(Words())
    before = counter.calls
    counter.count_messages([HumanMessage("yes", id="1"), HumanMessage("yes", id="2"), AIMessage("yes", id="3")])
    assert counter.calls - before == 2


def test_a_message_that_the_model_refuses_is_asked_about_once() -> None:
    counter = ModelCounter(Moody())
    message = HumanMessage("why?")
    counter.count_message(message)
    before = counter.calls
    counter.count_message(message)
    assert counter.calls == before


def test_a_text_is_not_taken_for_a_message() -> None:
    counter = ModelCounter(Words())
    assert counter.count_message(HumanMessage("message")) == 2
    assert counter.count_text("message") == 1


# -- what the model does not know


PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
BLOCKS = {
    "link to an image": {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
    "image": {"type": "image_url", "image_url": {"url": PIXEL}},
    "audio": {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"},
    "reasoning": {"type": "reasoning", "reasoning": "The user wants a picture of a cat."},
    "unknown": {"type": "hologram", "data": "x" * 50},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_costs_at_least_what_our_own_rule_says(name: str, openai_counter: ModelCounter) -> None:
    message = HumanMessage([{"type": "text", "text": "Look:"}, BLOCKS[name]])
    assert openai_counter.count_message(message) >= OWN.count_message(message)
    assert ModelCounter(Words()).count_message(message) > 8


def test_a_linked_image_is_not_fetched(openai_counter: ModelCounter, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(chat_models, "_url_to_size", fetched.append)
    message = HumanMessage([{"type": "image_url", "image_url": {"url": "https://example.org/a/b.png"}}])
    assert openai_counter.count_message(message) > 1_000
    assert fetched == []


def test_calls_that_a_model_leaves_out_cost_what_our_own_rule_says() -> None:
    call = {"id": "c1", "name": "find_flight", "args": {"city": "Lisbon", "days": list(range(40))}}
    counter = ModelCounter(Words())
    assert counter.count_message(AIMessage("", tool_calls=[call])) > counter.count_text("[0, 1, 2]")
    assert counter.count_message(AIMessage("", tool_calls=[call])) >= 40


@pytest.mark.parametrize("text", ["<|endoftext|>", "say <|endofprompt|> and <|endoftext|> twice"])
def test_a_special_token_counts_as_the_text_it_is_written_as(text: str, openai_counter: ModelCounter) -> None:
    assert OWN.count_text(text) <= openai_counter.count_text(text) <= OWN.count_text(text) + text.count("<|")
    message = HumanMessage(text)
    assert OWN.count_message(message) <= openai_counter.count_message(message)


def test_white_space_beyond_what_tiktoken_can_take_is_counted(openai_counter: ModelCounter) -> None:
    assert 2_000_000 // 128 <= openai_counter.count_text(" " * 2_000_000) <= 2_000_000


@pytest.mark.parametrize("text", ["\ud800", "\ud83d\ude00 \udc00"])
def test_lone_surrogates_do_not_raise(text: str, openai_counter: ModelCounter) -> None:
    assert openai_counter.count_text(text) == OWN.count_text(text)
    assert openai_counter.count_message(HumanMessage(text)) == OWN.count_message(HumanMessage(text))


def test_a_text_that_the_model_refuses_is_estimated() -> None:
    assert ModelCounter(Moody()).count_text("so long!") >= 3


def test_a_message_that_the_model_refuses_costs_our_own_rule() -> None:
    counter = ModelCounter(Moody())
    assert counter.count_message(HumanMessage("why not now?")) == 3 + 1 + 3  # frame, role, words


# -- exact, estimated, not at all


def test_a_model_with_a_function_of_its_own_is_exact(openai_counter: ModelCounter) -> None:
    assert openai_counter.mode == "exact"


def test_the_function_of_langchain_is_an_estimate() -> None:
    model = FakeListChatModel(responses=["x"], custom_get_token_ids=lambda text: list(map(ord, text)))
    counter = ModelCounter(model)
    assert counter.mode == "estimated"
    assert counter.count_text("four") == 4
    assert counter.count_message(HumanMessage("four")) == 3 + len("user") + 4


def test_a_model_that_chat_openai_cannot_count_messages_for_is_an_estimate(
    offline_tiktoken: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "cl100k_base", tiktoken.registry.ENCODINGS["o200k_base"])
    counter = ModelCounter(ChatOpenAI(model="another-model", api_key="not-used"))
    message = HumanMessage("Hello, world!", name="ada")
    assert (counter.mode, counter.count_messages([message])) == ("estimated", OWN.count_messages([message]))


@pytest.mark.filterwarnings("ignore:Using fallback GPT-2 tokenizer")
def test_a_model_that_cannot_count_is_refused_with_what_can() -> None:
    with pytest.raises(TokenizerUnavailableError, match=r"FakeListChatModel cannot count.*EstimatingCounter\(\)"):
        ModelCounter(FakeListChatModel(responses=["x"]))


def test_a_model_whose_encoding_cannot_be_fetched_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(TokenizerUnavailableError, match=r"ChatOpenAI cannot count.*TiktokenCounter"):
        ModelCounter(ChatOpenAI(model="gpt-4o", api_key="not-used"))


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InputError, match="must be a LangChain chat model, not str"):
        ModelCounter("gpt-4o")  # type: ignore[arg-type]
