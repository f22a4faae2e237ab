"""Counters of texts, exact, estimated, of models and corrected; and the carried vocabulary."""

import json
import subprocess
import sys
import zlib
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken.registry
import tiktoken_ext.openai_public
import wordllama
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import Field

from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError
from langchain_ctxbudget.messages import encodable
from langchain_ctxbudget.tokens import (
    CalibratedCounter,
    Calibration,
    EstimatingCounter,
    HuggingFaceCounter,
    ModelCounter,
    TiktokenCounter,
    TokenCounter,
    counter_for,
    target_key,
    vocab,
)  # fmt: skip
from langchain_ctxbudget.tokens.counters import text_pieces

EXACT = TiktokenCounter()
ESTIMATE = EstimatingCounter()
ANY_TEXT = st.text(st.characters(exclude_categories=[]))
ROOT = Path(__file__).parents[2]


@settings(max_examples=100)
@example("\ud800 \ud83d\ude00")
@given(ANY_TEXT)
def test_any_text_is_counted_and_estimated_no_lower(text: str) -> None:
    assert ESTIMATE.count_text(text) >= EXACT.count_text(text) >= bool(text)
    assert HUGGING_FACE.count_text(text) >= bool(text)
    assert encodable(text).encode().decode() == encodable(text)


@settings(max_examples=100)
@example("<|endoftext|>")
@given(st.text())
def test_counts_are_those_of_tiktoken(text: str) -> None:
    assert EXACT.count_text(text) == len(vocab.encoding().encode(text, disallowed_special=()))
    assert encodable(text) == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [" " * 1_100_000, "word " * 1_000 + "\t" * 1_000_000], ids=["spaces", "tabs"]
)
def test_white_space_beyond_what_tiktoken_can_take_is_counted(text: str) -> None:
    tokens = EXACT.count_text(text)

    assert len(text) // 128 <= tokens <= len(text), "a token has up to 128 spaces"


ENGLISH = """\
The harbour was quiet that morning, and the gulls had not yet come back from the open water.
Margaret walked along the quay with her brother's letter folded in her pocket.
"I don't think that's what she meant," said Tom. Unplug the machine before you open the cover.
Remove the two screws at the back and slide the plate to the left."""
ITEMS = [
    {"sku": f"K-{1000 + i}", "qty": i % 4, "price": 19.95 + i, "tags": ["new", "sale"]}
    for i in range(6)
]
ORDER = {"order": "A-20417", "customer": {"zip": "10115", "vip": True}, "items": ITEMS}
CODE = (
    "for index, row in enumerate(table.rows()):\n"
    "    collected[key.strip().lower()].append(float(value or 0.0))\n"
)
TABLE = "".join(f"| {i} | n{i} | {i * 3.5} |\n" for i in range(20))
TEXTS_OF_ALL_KINDS = {
    "English": ENGLISH,
    "German": "Der Bäcker an der Ecke öffnet schon um fünf Uhr, "
    "weil die Straßenbahnfahrer frühstücken möchten.",
    "Russian": "Утром мы поехали на дачу, но дорога была закрыта из-за ремонта, "
    "и пришлось возвращаться.",
    "Japanese": "今朝は駅前の喫茶店でゆっくり朝ごはんを食べました。",
    "JSON": json.dumps(ORDER, indent=2),
    "code": CODE * 3,
    "base64": b64encode(b"A letter that nobody has to read, over and over. " * 12).decode(),
    "table": "| id | name | total |\n|----|------|-------|\n" + TABLE,
}


@pytest.mark.parametrize("kind", TEXTS_OF_ALL_KINDS)
def test_an_estimate_is_no_lower_than_an_unknown_tokenizer_counts(kind: str) -> None:
    text = TEXTS_OF_ALL_KINDS[kind]

    assert ESTIMATE.count_text(text) >= HUGGING_FACE.count_text(text)


def test_english_is_estimated_at_one_and_a_half_times_at_most() -> None:
    assert ESTIMATE.count_text(ENGLISH) <= 1.5 * EXACT.count_text(ENGLISH)


# Encodings and models by name


@pytest.fixture
def no_encodings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing has been fetched by tiktoken yet, and its cache is this empty folder."""
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def other_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives tiktoken every encoding, so that nothing is fetched."""
    for name in tiktoken.list_encoding_names():
        monkeypatch.setitem(tiktoken.registry.ENCODINGS, name, vocab.encoding())


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("gpt-6", "o200k_base"),
        ("GPT-4o", "o200k_base"),
        ("openai:gpt-4o", "o200k_base"),
        ("openrouter/openai/gpt-5", "o200k_base"),
        ("ft:gpt-4o:acme::abc", "o200k_base"),
        ("gpt-oss-120b", "o200k_harmony"),
        ("gpt-4", "cl100k_base"),
        ("azure_openai:gpt-3.5-turbo", "cl100k_base"),
        ("cl100k_base", "cl100k_base"),
        ("text-davinci-003", "p50k_base"),
    ],
)
def test_a_model_or_encoding_is_found_by_its_name(
    other_encodings: None, name: str, encoding: str
) -> None:
    assert TiktokenCounter(name).name == encoding
    assert counter_for(name).name == encoding


@pytest.mark.parametrize("model", ["gpt-4", "o1", "gpt-5"])
def test_framing_is_that_of_chat_openai(other_encodings: None, model: str) -> None:
    messages = [HumanMessage("Hi", name="ada"), HumanMessage("there")]

    theirs = ChatOpenAI(model=model, api_key="x").get_num_tokens_from_messages(messages)

    assert TiktokenCounter(model).count_messages(messages) == theirs


@pytest.mark.parametrize("name", ["o200k_base", "o200k_harmony"])
def test_the_carried_encodings_need_nothing(no_encodings: Path, name: str) -> None:
    assert TiktokenCounter(name).count_text("Hello, world!") == 4


def test_another_encoding_says_what_to_do(no_encodings: Path) -> None:
    with pytest.raises(TokenizerUnavailableError, match=r"cl100k_base.*TIKTOKEN_CACHE_DIR"):
        TiktokenCounter("cl100k_base")


@pytest.mark.parametrize("name", ["o200k", "claude-sonnet-4-5", ""])
def test_what_is_no_model_of_openai_is_refused(no_encodings: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"name of a model"):
        TiktokenCounter(name)


def azure(address: str = "https://x.azure.com") -> AzureChatOpenAI:
    return AzureChatOpenAI(
        azure_deployment="team-a",
        model="gpt-4o",
        azure_endpoint=address,
        api_version="v",
        api_key="x",
    )


def bound() -> Runnable[Any, Any]:
    return ChatOpenAI(model="gpt-4o", api_key="x").bind(stop=["."]).with_config(tags=["t"])


@pytest.mark.parametrize("model", [None, azure(), bound()], ids=["no model", "azure", "bound"])
def test_a_model_of_openai_is_counted_exactly(no_encodings: Path, model: Any) -> None:
    counter = counter_for(model)

    assert counter.name == "o200k_base"
    assert counter.mode == "exact"
    assert list(no_encodings.iterdir()) == [], "nothing is downloaded"


@pytest.mark.parametrize(
    "model",
    [
        "claude-sonnet-4-5",
        "google/gemini-2.5-pro",
        "llama3.1:8b",
        "meta-llama/gpt-4o-like",
        "",
        "gpt-4",
        FakeListChatModel(responses=["x"]),
    ],
    ids=lambda model: model if isinstance(model, str) else "a class of the application",
)
def test_other_models_are_estimated_without_a_download(no_encodings: Path, model: Any) -> None:
    counter = counter_for(model)

    assert counter.name == "estimate"
    assert counter.mode == "estimated"
    assert list(no_encodings.iterdir()) == []


def test_a_model_is_known_by_its_address() -> None:
    model = azure()

    assert target_key(model) == target_key(model.model_copy())
    assert target_key(model) != target_key(azure("https://y.azure.com"))


# The carried vocabulary


@pytest.fixture(scope="module")
def packed() -> bytes:
    return (Path(vocab.__file__).parent / vocab.FILE_NAME).read_bytes()


@pytest.fixture(scope="module")
def ranks_as_text(packed: bytes) -> bytes:
    """The vocabulary in the form in which tiktoken fetches it."""
    ranks = vocab.ranks(packed)
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for token, rank in ranks.items())


def test_the_vocabulary_is_tiktokens(monkeypatch: pytest.MonkeyPatch, ranks_as_text: bytes) -> None:
    monkeypatch.setattr(
        tiktoken_ext.openai_public, "load_tiktoken_bpe", lambda _url, expected_hash: expected_hash
    )

    theirs = tiktoken_ext.openai_public.o200k_base()

    assert sha256(ranks_as_text).hexdigest() == theirs["mergeable_ranks"]
    assert theirs["pat_str"] == vocab.PATTERN
    assert theirs["special_tokens"] == vocab.SPECIAL_TOKENS


def test_the_vocabulary_is_made_by_the_script(
    tmp_path: Path, packed: bytes, ranks_as_text: bytes
) -> None:
    source = tmp_path / "o200k_base.tiktoken"
    target = tmp_path / "made.zlib"
    source.write_bytes(ranks_as_text)

    command = [sys.executable, str(ROOT / "scripts" / "build_vocab.py"), str(source), str(target)]
    subprocess.run(command, check=True, capture_output=True)

    assert zlib.decompress(target.read_bytes()) == zlib.decompress(packed)


# Tokenizers of others, and models that count


LLAMA_2 = Path(wordllama.__file__).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"
"""A tokenizer of 32,000 tokens that has nothing to do with OpenAI's; wordllama carries it."""
HUGGING_FACE = HuggingFaceCounter(LLAMA_2)
REMEDY = r"backend_tokenizer.*path of a model's tokenizer.json"


@pytest.mark.parametrize("tokenizer", ["acme/ferry", Path("gone.json"), 7], ids=str)
def test_what_is_no_tokenizer_is_refused_with_the_remedy(tokenizer: Any) -> None:
    with pytest.raises(InputError, match=REMEDY):
        HuggingFaceCounter(tokenizer)


def test_a_file_that_is_no_tokenizer_is_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")

    with pytest.raises(InputError, match=REMEDY):
        HuggingFaceCounter(file)


class CountingModel(FakeListChatModel):
    """Counts words, and refuses what is marked."""

    responses: list[str] = Field(default_factory=lambda: ["x"])
    asked: list[str] = Field(default_factory=list)

    def get_num_tokens(self, text: str) -> int:
        self.asked.append(text)
        if "?" in text:
            raise ConnectionError
        return len(text.split())


@pytest.fixture(scope="module")
def openai_counter(chat_openai: ChatOpenAI) -> ModelCounter:
    return ModelCounter(chat_openai)


def test_a_model_is_asked_about_a_text_once() -> None:
    model = CountingModel()
    counter = ModelCounter(model)
    model.asked.clear()
    history = [HumanMessage(f"message {number}") for number in range(20)]

    for length in range(1, 21):
        counter.count_messages(history[:length])

    assert len(model.asked) == 21, "every text, and the role"


def test_a_text_that_a_model_refuses_is_estimated() -> None:
    counter = ModelCounter(CountingModel())

    assert counter.count_text("why not now?") == ESTIMATE.count_text("why not now?")


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a/b.png"}}


@pytest.mark.parametrize("content", ["Look:", [IMAGE]], ids=["text", "image"])
def test_our_rule_counts_what_a_model_is_not_asked_about(
    openai_counter: ModelCounter, content: Any
) -> None:
    message = HumanMessage(content)

    assert openai_counter.count_message(message) == EXACT.count_message(message)


def test_a_model_of_openai_counts_exactly(openai_counter: ModelCounter) -> None:
    assert openai_counter.mode == "exact"


def ordinals(text: str) -> list[int]:
    return [ord(character) for character in text]


def test_a_model_that_counts_by_ids_of_its_own_estimates() -> None:
    model = FakeListChatModel(responses=["x"], custom_get_token_ids=ordinals)

    counter = ModelCounter(model)

    assert counter.mode == "estimated"
    assert counter.count_text("four") == 4


@pytest.mark.filterwarnings("ignore:Using fallback GPT-2 tokenizer")
def test_a_model_that_cannot_count_is_refused_with_what_can() -> None:
    message = r"FakeListChatModel cannot count.*EstimatingCounter\(\)"
    with pytest.raises(TokenizerUnavailableError, match=message):
        ModelCounter(FakeListChatModel(responses=["x"]))


# Corrections


TOKENS = st.integers(1, 1_000_000)
OBSERVATIONS = st.lists(st.tuples(TOKENS, TOKENS), max_size=40)
FACTORS = st.integers(10, 90).map(lambda steps: steps / 20)


def observed(observations: list[tuple[int, int]], *, exact: bool = False) -> Calibration:
    calibration = Calibration(exact=exact)
    for estimated, measured in observations:
        calibration = calibration.observe(estimated, measured)
    return calibration


class Fixed(TokenCounter):
    """Any text has the same count."""

    name = "fixed"
    mode = "estimated"

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens

    def _count(self, text: str) -> int:
        return self.tokens


@given(OBSERVATIONS, st.integers(500, 1_000_000), TOKENS, st.booleans())
def test_what_was_measured_again_and_again_is_not_counted_below(
    before: list[tuple[int, int]], estimated: int, measured: int, exact: bool
) -> None:
    calibration = observed([*before, *[(estimated, measured)] * 4], exact=exact)

    counter = CalibratedCounter(Fixed(estimated), calibration.factor)

    assert counter.count_text("any") >= measured


@given(
    st.lists(st.integers(600, 1_400), min_size=3, max_size=15),
    st.lists(st.integers(2_200, 20_000), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_accidents_change_no_factor(
    usual: list[int], sums: list[int], exact: bool, data: st.DataObject
) -> None:
    few = sums[: max(1, (len(usual) + 1) // 4 - 1)]
    mixed = data.draw(st.permutations([*usual, *few]))
    counted = [(1_000, measured) for measured in mixed]
    assert observed(counted, exact=exact).factor <= max(1.0, -(-max(usual) // 50) * 0.05) + 1e-9


@pytest.mark.parametrize(("measured", "factor"), [(1_900, 1.9), (3_400, 2.0)])
def test_one_measurement_alone_doubles_an_estimate_at_most(measured: int, factor: float) -> None:
    assert observed([(1_000, measured)]).factor == factor


@pytest.mark.parametrize(("measured", "factor"), [(1_450, 1.45), (1_600, 1.0)])
def test_one_measurement_alone_moves_an_exact_count_by_half_at_most(
    measured: int, factor: float
) -> None:
    assert observed([(1_000, measured)], exact=True).factor == factor


@given(OBSERVATIONS)
def test_a_factor_is_a_multiple_of_a_twentieth_and_at_least_a_half(
    observations: list[tuple[int, int]],
) -> None:
    factor = observed(observations).factor

    assert factor >= 0.5
    assert factor * 20 == pytest.approx(round(factor * 20))


@given(OBSERVATIONS)
def test_an_exact_count_is_never_corrected_downwards(observations: list[tuple[int, int]]) -> None:
    assert observed(observations, exact=True).factor >= 1


@pytest.mark.parametrize(
    ("factor", "tokens", "corrected"), [(1.1, 10, 11), (1.15, 20, 23), (0.55, 20, 11), (1.1, 1, 2)]
)
def test_a_count_is_rounded_up_from_the_factor_as_it_is_written(
    factor: float, tokens: int, corrected: int
) -> None:
    assert CalibratedCounter(Fixed(tokens), factor).count_text("any") == corrected


TEXT = st.text(max_size=60) | st.lists(
    st.sampled_from(["- one\n", "[a] two\n", "## three\n", "word "])
).map("".join)
TEXT_BLOCK = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT})
CALL = {"id": "c1", "name": "find", "args": {"city": "Köln"}}
MESSAGE = st.one_of(
    st.builds(HumanMessage, TEXT, name=st.none() | st.just("ada")),
    st.builds(SystemMessage, TEXT),
    st.builds(HumanMessage, st.lists(TEXT_BLOCK, max_size=3)),
    st.builds(ToolMessage, TEXT, tool_call_id=st.just("c1")),
    st.builds(AIMessage, TEXT, tool_calls=st.just([CALL])),
)


@pytest.mark.parametrize("inner", [EXACT, ESTIMATE], ids=["exact", "estimated"])
@given(st.lists(MESSAGE, max_size=4), FACTORS)
def test_a_request_is_never_corrected_to_less_than_its_share(
    inner: TokenCounter, messages: list[BaseMessage], factor: float
) -> None:
    counter = CalibratedCounter(inner, factor)

    assert counter.count_messages(messages) >= inner.count_messages(messages) * factor - 1e-6


# Lines


LINE = st.tuples(
    st.sampled_from("-[#<"), st.text(max_size=30), st.sampled_from(["\n", "\n\n"])
).map("".join)


@given(st.lists(LINE, max_size=12))
def test_lines_are_counted_in_pieces_that_make_the_text(lines: list[str]) -> None:
    text = "".join(lines)

    assert "".join(text_pieces(text)) == text


@settings(max_examples=80)
@given(st.lists(LINE, max_size=12), FACTORS)
def test_lines_cost_together_what_they_cost_one_by_one(lines: list[str], factor: float) -> None:
    corrected = CalibratedCounter(EXACT, factor)
    corrected_estimate = CalibratedCounter(ESTIMATE, factor)

    for counter in (ESTIMATE, corrected, corrected_estimate):
        assert counter.count_text("".join(lines)) == sum(map(counter.count_text, lines))
