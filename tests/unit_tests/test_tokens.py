"""Counters of texts, exact, estimated, of models and corrected; and the carried vocabulary."""

import json
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pytest
import tiktoken
import tiktoken.registry
import tiktoken_ext.openai_public
import wordllama
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import Field

from langchain_ctxbudget.errors import InputError, TokenizerUnavailableError
from langchain_ctxbudget.tokens import (
    CalibratedCounter,
    Calibration,
    EstimatingCounter,
    HuggingFaceCounter,
    ModelCounter,
    TiktokenCounter,
    TokenCounter,
    counter_for,
    encodable,
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


def test_white_space_beyond_what_tiktoken_can_take_is_counted() -> None:
    for text in (" " * 1_100_000, "word " * 1_000 + "\t" * 1_000_000):
        assert len(text) // 128 <= EXACT.count_text(text) <= len(text)  # tokens of up to 128 spaces


ENGLISH = """The harbour was quiet that morning, and the gulls had not yet come back from the open water. Margaret
walked along the quay with her brother's letter folded in her pocket. "I don't think that's what she meant," said Tom.
Unplug the machine before you open the cover. Remove the two screws at the back and slide the plate to the left."""
ITEMS = [
    {"sku": f"K-{1000 + i}", "qty": i % 4, "price": 19.95 + i, "tags": ["new", "sale"]}
    for i in range(6)
]
KINDS = (
    ENGLISH,
    "Der Bäcker an der Ecke öffnet schon um fünf Uhr, weil die Straßenbahnfahrer frühstücken möchten.",
    "Утром мы поехали на дачу, но дорога была закрыта из-за ремонта, и пришлось возвращаться.",
    "今朝は駅前の喫茶店でゆっくり朝ごはんを食べました。",
    json.dumps(
        {"order": "A-20417", "customer": {"zip": "10115", "vip": True}, "items": ITEMS}, indent=2
    ),
    "for index, row in enumerate(table.rows()):\n    collected[key.strip().lower()].append(float(value or 0.0))\n"
    * 3,
    b64encode(b"A letter that nobody has to read, over and over. " * 12).decode(),
    "| id | name | total |\n|----|------|-------|\n"
    + "".join(f"| {i} | n{i} | {i * 3.5} |\n" for i in range(20)),
)


def test_all_kinds_of_text_are_estimated_no_lower_than_a_tokenizer_that_is_not_known() -> None:
    assert [
        text for text in KINDS if ESTIMATE.count_text(text) < HUGGING_FACE.count_text(text)
    ] == []
    assert ESTIMATE.count_text(ENGLISH) <= 1.5 * EXACT.count_text(ENGLISH)


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


def test_a_model_or_encoding_is_found_by_its_name(other_encodings: None) -> None:
    known = {
        "o200k_base": "gpt-4o-mini-2024-07-18 gpt-6 GPT-4o openai:gpt-4o openrouter/openai/gpt-5 ft:gpt-4o:acme::abc",
        "o200k_harmony": "gpt-oss-120b",
        "cl100k_base": "gpt-4 azure_openai:gpt-3.5-turbo cl100k_base",
        "p50k_base": "text-davinci-003",
    }
    for encoding, names in known.items():
        for name in names.split():
            assert (TiktokenCounter(name).name, counter_for(name).name) == (encoding, encoding)


def test_framing_is_that_of_chat_openai(other_encodings: None) -> None:
    messages = [HumanMessage("Hi", name="ada"), HumanMessage("there")]
    for model in ("gpt-4", "o1", "gpt-5"):
        theirs = ChatOpenAI(model=model, api_key="x").get_num_tokens_from_messages(messages)
        assert TiktokenCounter(model).count_messages(messages) == theirs


def test_the_carried_encodings_need_nothing_and_others_say_what_to_do(no_encodings: Path) -> None:
    for name in ("o200k_base", "o200k_harmony"):
        assert TiktokenCounter(name).count_text("Hello, world!") == 4
    with pytest.raises(TokenizerUnavailableError, match=r"cl100k_base.*TIKTOKEN_CACHE_DIR"):
        TiktokenCounter("cl100k_base")
    for name in ("o200k", "claude-sonnet-4-5", ""):
        with pytest.raises(InputError, match=r"name of a model"):
            TiktokenCounter(name)


def test_a_model_is_known_by_names_and_address_or_estimated_without_a_download(
    no_encodings: Path,
) -> None:
    names = [
        "claude-sonnet-4-5",
        "google/gemini-2.5-pro",
        "llama3.1:8b",
        "meta-llama/gpt-4o-like",
        "",
        "gpt-4",
    ]
    azure = AzureChatOpenAI(
        azure_deployment="team-a",
        model="gpt-4o",
        azure_endpoint="https://x.azure.com",
        api_version="v",
        api_key="x",
    )
    bound = ChatOpenAI(model="gpt-4o", api_key="x").bind(stop=["."]).with_config(tags=["t"])
    for known in (None, azure, bound):
        assert (counter_for(known).name, counter_for(known).mode) == ("o200k_base", "exact")
    for model in (*names, FakeListChatModel(responses=["x"])):
        assert (counter_for(model).name, counter_for(model).mode) == ("estimate", "estimated")
    assert target_key(azure) == target_key(azure.model_copy())
    assert target_key(azure) != target_key(
        azure.model_copy(update={"azure_endpoint": "https://y.azure.com"})
    )
    assert list(no_encodings.iterdir()) == []


def test_the_vocabulary_is_tiktokens_and_made_by_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        tiktoken_ext.openai_public, "load_tiktoken_bpe", lambda _url, expected_hash: expected_hash
    )
    theirs = tiktoken_ext.openai_public.o200k_base()
    packed = (Path(vocab.__file__).parent / vocab.FILE_NAME).read_bytes()
    text = b"".join(
        b"%b %d\n" % (b64encode(token), rank) for token, rank in vocab.ranks(packed).items()
    )
    assert sha256(text).hexdigest() == theirs["mergeable_ranks"]
    assert (theirs["pat_str"], theirs["special_tokens"]) == (vocab.PATTERN, vocab.SPECIAL_TOKENS)
    source = tmp_path / "o200k_base.tiktoken"
    target = tmp_path / "made.zlib"
    source.write_bytes(text)
    script = str(ROOT / "scripts" / "build_vocab.py")
    subprocess.run(
        [sys.executable, script, str(source), str(target)], check=True, capture_output=True
    )
    assert vocab.zlib.decompress(target.read_bytes()) == vocab.zlib.decompress(packed)


LLAMA_2 = Path(wordllama.__file__).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"
"""A tokenizer of 32,000 tokens that has nothing to do with OpenAI's; wordllama carries it."""
HUGGING_FACE = HuggingFaceCounter(LLAMA_2)


def test_what_is_no_tokenizer_is_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    for wrong in ("acme/ferry", tmp_path / "gone.json", file, 7):
        with pytest.raises(
            InputError, match=r"backend_tokenizer.*path of a model's tokenizer.json"
        ):
            HuggingFaceCounter(wrong)  # type: ignore[arg-type]


class Texts(FakeListChatModel):
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


def test_a_model_is_asked_about_a_text_once_and_our_rule_counts_the_rest(
    openai_counter: ModelCounter,
) -> None:
    model = Texts()
    counter = ModelCounter(model)
    asked = len(model.asked)
    history = [HumanMessage(f"message {number}") for number in range(20)]
    for length in range(1, 21):
        counter.count_messages(history[:length])
    assert len(model.asked) - asked == 21, "every text, and the role"
    assert counter.count_text("why not now?") == EstimatingCounter().count_text("why not now?"), (
        "what it refuses"
    )
    for content in (
        "Look:",
        [{"type": "image_url", "image_url": {"url": "https://example.org/a/b.png"}}],
    ):
        message = HumanMessage(content)
        assert openai_counter.count_message(message) == EXACT.count_message(message)


@pytest.mark.filterwarnings("ignore:Using fallback GPT-2 tokenizer")
def test_a_model_is_exact_estimated_or_refused_with_what_can_count(
    openai_counter: ModelCounter,
) -> None:
    assert openai_counter.mode == "exact"
    counter = ModelCounter(
        FakeListChatModel(responses=["x"], custom_get_token_ids=lambda text: list(map(ord, text)))
    )
    assert (counter.mode, counter.count_text("four")) == ("estimated", 4)
    with pytest.raises(
        TokenizerUnavailableError, match=r"FakeListChatModel cannot count.*EstimatingCounter\(\)"
    ):
        ModelCounter(FakeListChatModel(responses=["x"]))


TOKENS = st.integers(1, 1_000_000)
OBSERVATIONS = st.lists(st.tuples(TOKENS, TOKENS), max_size=40)
FACTORS = st.integers(10, 90).map(lambda steps: steps / 20)


def observed(observations: list[tuple[int, int]], *, exact: bool = False) -> Calibration:
    calibration = Calibration(exact=exact)
    for estimated, measured in observations:
        calibration = calibration.observe(estimated, measured)
    return calibration


TEXT = st.text(max_size=60) | st.lists(
    st.sampled_from(["- one\n", "[a] two\n", "## three\n", "word "])
).map("".join)
MESSAGE = st.one_of(
    st.builds(HumanMessage, TEXT, name=st.none() | st.just("ada")),
    st.builds(SystemMessage, TEXT),
    st.builds(
        HumanMessage,
        st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=3),
    ),
    st.builds(ToolMessage, TEXT, tool_call_id=st.just("c1")),
    st.builds(
        AIMessage,
        TEXT,
        tool_calls=st.just([{"id": "c1", "name": "find", "args": {"city": "Köln"}}]),
    ),
)


@given(OBSERVATIONS, st.integers(500, 1_000_000), TOKENS, st.booleans())
def test_what_was_measured_again_and_again_is_not_counted_below(
    before: list[tuple[int, int]], estimated: int, measured: int, exact: bool
) -> None:
    calibration = observed([*before, *[(estimated, measured)] * 4], exact=exact)
    assert CalibratedCounter(Fixed(estimated), calibration.factor).count_text("any") >= measured


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


def test_one_measurement_alone_doubles_an_estimate_at_most_and_moves_an_exact_count_by_half() -> (
    None
):
    assert [observed([(1_000, measured)]).factor for measured in (1_900, 3_400)] == [1.9, 2.0]
    assert [observed([(1_000, measured)], exact=True).factor for measured in (1_450, 1_600)] == [
        1.45,
        1.0,
    ]


@given(OBSERVATIONS)
def test_the_factor_is_a_multiple_of_a_twentieth_and_at_least_a_half(
    observations: list[tuple[int, int]],
) -> None:
    factor = observed(observations).factor
    assert observed(observations, exact=True).factor >= 1, (
        "an exact count is never corrected downwards"
    )
    assert factor >= 0.5
    assert factor * 20 == pytest.approx(round(factor * 20))


class Fixed(TokenCounter):
    """Any text has the same count."""

    name = "fixed"
    mode = "estimated"

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens

    def _count(self, text: str) -> int:
        return self.tokens


def test_a_count_is_rounded_up_from_the_factor_as_it_is_written() -> None:
    for factor, tokens, expected in ((1.1, 10, 11), (1.15, 20, 23), (0.55, 20, 11), (1.1, 1, 2)):
        assert CalibratedCounter(Fixed(tokens), factor).count_text("any") == expected


@given(st.lists(MESSAGE, max_size=4), FACTORS)
def test_a_request_is_never_corrected_to_less_than_its_share(
    messages: list[BaseMessage], factor: float
) -> None:
    for inner in (EXACT, ESTIMATE):
        counter = CalibratedCounter(inner, factor)
        assert counter.count_messages(messages) >= inner.count_messages(messages) * factor - 1e-6


LINE = st.tuples(
    st.sampled_from("-[#<"), st.text(max_size=30), st.sampled_from(["\n", "\n\n"])
).map("".join)


@settings(max_examples=80)
@given(st.lists(LINE, max_size=12), FACTORS)
def test_lines_cost_together_what_they_cost_one_by_one(lines: list[str], factor: float) -> None:
    assert "".join(text_pieces("".join(lines))) == "".join(lines)
    for counter in (ESTIMATE, *(CalibratedCounter(inner, factor) for inner in (EXACT, ESTIMATE))):
        assert counter.count_text("".join(lines)) == sum(map(counter.count_text, lines))
