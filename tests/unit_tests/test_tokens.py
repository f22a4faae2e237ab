"""Counters: which one is chosen, what it caches, what it refuses."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha1
from pathlib import Path

import pytest
import tiktoken
import tiktoken.registry
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_openai import AzureChatOpenAI, ChatOpenAI

from langchain_ctxbudget.core import tokens, vocab
from langchain_ctxbudget.core.message_cost import Framing
from langchain_ctxbudget.core.tokens import EstimatingCounter, TiktokenCounter, TokenCounter, counter_for, encodable
from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError


class Characters(TokenCounter):
    name = "characters"
    mode = "estimated"

    def _count(self, text: str) -> int:
        return len(text)


@pytest.fixture
def other_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives tiktoken every encoding, so that nothing is fetched; how many tokens a text has is not the point."""
    for name in tiktoken.list_encoding_names():
        monkeypatch.setitem(tiktoken.registry.ENCODINGS, name, vocab.encoding())


@pytest.fixture
def no_encodings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing has been fetched by tiktoken yet, and its cache is this empty folder."""
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


# -- texts and the cache


def test_an_empty_text_costs_nothing_and_is_no_call() -> None:
    counter = TiktokenCounter()
    assert counter.count_text("") == 0
    assert counter.calls == 0


@pytest.mark.parametrize("text", ["short", "long " * 1_000])
def test_a_text_is_tokenized_once(text: str) -> None:
    counter = TiktokenCounter()
    assert counter.count_text(text) == counter.count_text("".join(text))
    assert counter.calls == 1


def test_counters_do_not_share_their_cache() -> None:
    first, second = Characters(), Characters()
    first.count_text("text")
    second.count_text("text")
    assert (first.calls, second.calls) == (1, 1)


def test_long_texts_that_differ_in_one_character_have_their_own_counts() -> None:
    counter = Characters()
    text = "x" * 10_000
    assert [counter.count_text(text), counter.count_text(text + "y")] == [10_000, 10_001]


def test_the_cache_does_not_keep_long_texts_alive() -> None:
    counter = Characters()
    counter.count_text("x" * 1_000_000)
    assert sum(map(sys.getsizeof, counter._cache)) < 1_000


def test_the_cache_forgets_what_was_used_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_CACHED_TEXTS", 2)
    counter = Characters()
    for text in ("one", "two", "one", "three", "one", "two"):
        counter.count_text(text)
    assert counter.calls == 4  # "two" was forgotten for "three", "one" never
    assert len(counter._cache) == 2


def test_threads_get_the_right_counts_from_one_counter() -> None:
    counter, start = Characters(), threading.Barrier(8)

    def count(_: int) -> list[int]:
        start.wait()
        return [counter.count_text("x" * length) for length in range(1, 400)]

    with ThreadPoolExecutor(8) as threads:
        assert all(counts == list(range(1, 400)) for counts in threads.map(count, range(8)))


@settings(deadline=None, max_examples=300)
@example("\ud800 \ud83d\ude00")
@given(st.text(st.characters(exclude_categories=[])))
def test_no_text_raises(text: str) -> None:
    for counter in (TiktokenCounter(), EstimatingCounter()):
        assert counter.count_text(text) >= bool(text)


@settings(deadline=None, max_examples=300)
@given(st.text())
def test_counts_are_those_of_tiktoken(text: str) -> None:
    assert TiktokenCounter().count_text(text) == len(vocab.encoding().encode(text, disallowed_special=()))


def test_a_special_token_counts_as_the_text_it_is_written_as() -> None:
    assert TiktokenCounter().count_text("<|endoftext|>") == 7


@pytest.mark.parametrize("text", [" " * 2_000_000, "x" + "\t" * 1_200_000 + "y", "word " * 300_000 + " " * 1_000_000])
def test_white_space_beyond_what_tiktoken_can_take_is_counted(text: str) -> None:
    # Tokens of up to 128 spaces, or 16 tabs.
    assert len(text) // 128 <= TiktokenCounter().count_text(text) <= len(text)


@given(st.text())
def test_a_text_without_surrogates_is_encodable_as_it_is(text: str) -> None:
    assert encodable(text) == text


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_becomes_encodable(text: str) -> None:
    assert encodable(text).encode().decode() == encodable(text)


def test_halves_of_a_character_are_joined() -> None:
    assert encodable("\ud83d\ude00 \ud800") == "\N{GRINNING FACE} \N{REPLACEMENT CHARACTER}"


def test_a_count_that_raises_is_not_kept() -> None:
    class Shy(Characters):
        def _count(self, text: str) -> int:
            if self.calls == 1:
                raise ConnectionError
            return len(text)

    counter = Shy()
    with pytest.raises(ConnectionError):
        counter.count_text("text")
    assert counter.count_text("text") == 4


# -- which tokenizer


@pytest.mark.parametrize("name", ["o200k_base", "o200k_harmony"])
def test_the_carried_encodings_need_nothing_from_tiktoken(name: str, no_encodings: Path) -> None:
    counter = TiktokenCounter(name)
    assert (counter.name, counter.mode, counter.count_text("Hello, world!")) == (name, "exact", 4)


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("gpt-5.1-codex", "o200k_base"),
        ("gpt-6", "o200k_base"),
        ("GPT-4o", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-oss-120b", "o200k_harmony"),
        ("openai:gpt-4o", "o200k_base"),
        ("openai/gpt-4.1", "o200k_base"),
        ("openrouter/openai/gpt-5", "o200k_base"),
        ("ft:gpt-4o:acme::abc", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("azure_openai:gpt-3.5-turbo", "cl100k_base"),
        ("text-davinci-003", "p50k_base"),
        ("cl100k_base", "cl100k_base"),
        ("gpt2", "gpt2"),
    ],
)
def test_a_model_or_encoding_is_found_by_its_name(model: str, encoding: str, other_encodings: None) -> None:
    assert TiktokenCounter(model).name == encoding
    assert counter_for(model).name == encoding


@pytest.mark.parametrize("name", ["o200k", "claude-sonnet-4-5", ""])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match=r"o200k_base.*cl100k_base|cl100k_base.*o200k_base") as error:
        TiktokenCounter(name)
    assert "name of a model" in str(error.value)


def test_an_encoding_that_cannot_be_fetched_says_what_to_do(no_encodings: Path) -> None:
    with pytest.raises(TokenizerUnavailableError, match=r"cl100k_base.*TIKTOKEN_CACHE_DIR"):
        TiktokenCounter("cl100k_base")


def test_an_openai_model_whose_encoding_cannot_be_fetched_is_estimated(no_encodings: Path) -> None:
    assert counter_for("gpt-4").mode == "estimated"


def test_another_encoding_comes_from_the_cache_of_tiktoken(no_encodings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = Path(__file__).parents[3] / "shared" / "eval" / "tiktoken_cache"
    url = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
    if not (cached / sha1(url.encode()).hexdigest()).exists():
        pytest.skip("../shared/eval/tiktoken_cache is not here")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(cached))
    counter = counter_for("gpt-4")
    assert (counter.name, counter.mode) == ("cl100k_base", "exact")
    assert counter.count_text("Grüße aus 東京") == len(tiktoken.get_encoding("cl100k_base").encode("Grüße aus 東京"))


# -- counters for models


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-5",
        "anthropic:claude-3",
        "google/gemini-2.5-pro",
        "llama3.1:8b",
        "meta-llama/gpt-4o-like",
        "",
        "x",
    ],
)
def test_a_model_that_is_not_of_openai_is_estimated_without_a_download(model: str, no_encodings: Path) -> None:
    counter = counter_for(model)
    assert (counter.name, counter.mode) == ("estimate", "estimated")
    assert list(no_encodings.iterdir()) == []


def test_no_model_is_exact_o200k_base() -> None:
    counter = counter_for(None)
    assert (counter.name, counter.mode) == ("o200k_base", "exact")


def test_a_chat_model_is_known_by_its_name() -> None:
    assert counter_for(ChatOpenAI(model="gpt-4.1", api_key="x")).name == "o200k_base"


def test_a_bound_chat_model_is_unwrapped() -> None:
    model = ChatOpenAI(model="gpt-4o", api_key="x").bind(stop=["."]).with_config(tags=["t"])
    assert counter_for(model).name == "o200k_base"


def test_an_azure_deployment_is_known_by_the_model_it_serves() -> None:
    model = AzureChatOpenAI(
        azure_deployment="team-a", model="gpt-4o", azure_endpoint="https://x.example", api_version="v", api_key="x"
    )
    assert counter_for(model).name == "o200k_base"


def test_a_chat_model_without_a_name_is_estimated() -> None:
    assert counter_for(FakeListChatModel(responses=["x"])).mode == "estimated"


def test_framing_of_the_first_turbo_model(other_encodings: None) -> None:
    assert TiktokenCounter("gpt-3.5-turbo-0301").framing == Framing(4, -1, 10)
    assert TiktokenCounter("gpt-3.5-turbo").framing == Framing(3, 1, 10)


@pytest.mark.parametrize("model", ["gpt-3.5-turbo-0301", "gpt-4", "o1", "gpt-5"])
def test_framing_is_that_of_chat_openai(model: str, other_encodings: None) -> None:
    messages = [HumanMessage("Hi", name="ada"), HumanMessage("there")]
    theirs = ChatOpenAI(model=model, api_key="x").get_num_tokens_from_messages(messages)
    assert TiktokenCounter(model).count_messages(messages) == theirs
