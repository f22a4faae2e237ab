"""Clipping what is too large, texts and messages."""

from __future__ import annotations

import random
import re
from copy import deepcopy
from zlib import crc32

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.core.clipping import MIN_TEXT_TOKENS, clip_message, clip_text
from langchain_ctxbudget.core.tokens import EstimatingCounter, TiktokenCounter

TIKTOKEN = TiktokenCounter()
ESTIMATING = EstimatingCounter()
FAMILY = "👩‍👩‍👧‍👦"
MARKER = re.compile(r"\n\[… ([0-9,]+) tokens left out …\]\n")
SENTENCE = "The parcel came on Tuesday, so Ada wrote back before lunch and asked who had sent it. "
LINES = "".join(
    f"2026-11-20 10:{i // 60 % 60:02}:{i % 60:02} INFO request {i * 7919:08x} took {i} ms\n" for i in range(4000)
)
PIECES = (
    SENTENCE * 4,
    "我住在柏林的一个小房子里。今天天气很好。" * 4,
    '{"id": 7, "name": "item", "tags": ["a", "b"]},' * 4,
    "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5" * 4,
    " " * 200,
    "\n" * 20,
    FAMILY * 5 + "🇩🇪" * 5,
    "e\u0301a\u0308" * 30,
    "for i in range(10):\n    print(i)\n" * 3,
    "\ud800\udc00 lone \ud83d",
)
ANY_TEXT = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from(PIECES), max_size=30).map("".join),
)
LONG_TEXT = st.lists(
    st.sampled_from(PIECES), max_size=30
).map(  # more than 600 tokens, whatever counts
    lambda pieces: "".join([*pieces[::2], SENTENCE * 40, *pieces[1::2]])
)
COUNTERS = {
    "o200k_base": TIKTOKEN.count_text,
    "estimate": ESTIMATING.count_text,
    "characters": len,
    "bytes": lambda text: len(text.encode("utf-8", "surrogatepass")),
    "words": lambda text: len(text.split()),
    "ten a digit": lambda text: len(text) // 4 + 10 * sum(map(str.isdigit, text)),
    "noisy": lambda text: len(text) // 3 + crc32(text.encode("utf-8", "surrogatepass")) % 23,
    "in steps": lambda text: len(text) // 500 * 100,
    "dear at the start": lambda text: 10 * min(len(text), 90) + len(text) // 50,
    "quadratic": lambda text: len(text) ** 2 // 1000,
    "constant": lambda _: 1_000,
}


class Watched:
    """A counter that remembers what it counted."""

    def __init__(self, count):
        self.count = count
        self.texts = []

    def __call__(self, text):
        self.texts.append(text)
        return self.count(text)


def parts(clipped):
    head, number, tail = MARKER.split(clipped)
    return head, int(number.replace(",", "")), tail


def mixed(seed, characters=1_000_000):
    choose = random.Random(seed)
    text = ""
    while len(text) < characters:
        text += choose.choice(PIECES[:-1]) * choose.randint(1, 100)
    return text


def test_a_text_that_fits_is_the_same_object():
    assert clip_text(LINES, len, len(LINES)) is LINES


def test_a_clipped_text_is_head_marker_and_tail():
    head, _, tail = parts(clip_text(LINES, TIKTOKEN.count_text, 500))
    assert LINES.startswith(head)
    assert LINES.endswith(tail)


def test_head_and_tail_are_about_equal():
    head, _, tail = parts(clip_text(LINES, TIKTOKEN.count_text, 2_000))
    assert len(head) == pytest.approx(len(tail), rel=0.05)


@pytest.mark.parametrize("budget", [-1, 0, 1, 20])
def test_a_text_of_which_the_marker_and_a_little_do_not_fit_is_none(budget):
    assert clip_text(LINES, TIKTOKEN.count_text, budget) is None


def test_the_marker_and_sixteen_tokens_are_enough():
    marker = "\n[… 99,999 tokens left out …]\n"
    budget = TIKTOKEN.count_text(marker) + MIN_TEXT_TOKENS
    assert clip_text(LINES, TIKTOKEN.count_text, budget - 1) is None
    assert clip_text(LINES, TIKTOKEN.count_text, budget) is not None


@pytest.mark.parametrize("name", COUNTERS)
@settings(deadline=None, max_examples=60)
@given(ANY_TEXT, st.integers(-5, 600))
def test_a_clipped_text_fits_whatever_counts(name, text, budget):
    clipped = clip_text(text, COUNTERS[name], budget)
    assert clipped is None or COUNTERS[name](clipped) <= budget


@pytest.mark.parametrize("name", ["o200k_base", "estimate", "characters", "bytes", "words"])
@settings(deadline=None, max_examples=60)
@given(LONG_TEXT, st.integers(60, 600))
def test_what_is_clipped_is_shorter_but_for_its_marker(name, text, budget):
    head, number, tail = parts(clip_text(text, COUNTERS[name], budget))
    assert text.startswith(head)
    assert text.endswith(tail)
    assert 0 < len(head) + len(tail) < len(text)
    assert number > 0


@pytest.mark.parametrize("name", ["o200k_base", "estimate", "characters", "bytes"])
@settings(deadline=None, max_examples=60)
@given(LONG_TEXT, st.integers(60, 600))
def test_a_text_over_a_budget_of_sixty_tokens_is_clipped_not_refused(name, text, budget):
    assert clip_text(text, COUNTERS[name], budget) is not None


@pytest.mark.parametrize("budget", [60, 300, 1_000, 5_000])
def test_a_text_that_is_ever_denser_towards_its_ends_is_clipped_not_refused(budget):
    head = ["👍🏽" * 40, PIECES[1] * 10, SENTENCE * 100]
    text = "".join([*head, "=" * 100_000, "x7" * 10_000, *reversed(head)])
    assert clip_text(text, TIKTOKEN.count_text, budget) is not None


@pytest.mark.parametrize("name", ["o200k_base", "estimate", "characters", "bytes"])
@settings(deadline=None, max_examples=60)
@given(LONG_TEXT, st.integers(60, 600))
def test_the_number_in_the_marker_is_true_to_a_few_tokens(name, text, budget):
    count = COUNTERS[name]
    head, number, tail = parts(clip_text(text, count, budget))
    assert number == pytest.approx(count(text) - count(head) - count(tail), abs=5)


@pytest.mark.parametrize("text", [SENTENCE * 3000, LINES, PIECES[1] * 3000, PIECES[2] * 3000, PIECES[8] * 1000])
@pytest.mark.parametrize("name", ["o200k_base", "estimate", "characters"])
@pytest.mark.parametrize("budget", [100, 300, 1_000, 5_000])
def test_ordinary_text_uses_85_percent_of_the_budget(text, name, budget):
    assert COUNTERS[name](clip_text(text, COUNTERS[name], budget)) >= 0.85 * budget


@pytest.mark.parametrize("budget", [300, 1_000, 5_000])
def test_a_text_with_dense_ends_uses_85_percent_of_the_budget(budget):
    text = PIECES[1] * 75 + SENTENCE * 8_000 + "👍🏽🇩🇪" * 3_000
    assert TIKTOKEN.count_text(clip_text(text, TIKTOKEN.count_text, budget)) >= 0.85 * budget


@pytest.mark.parametrize("budget", range(30, 34))
def test_a_number_with_a_digit_more_than_foreseen_fits(budget):
    texts = ["word" + " word" * words for words in range(1_000, 1_030)]
    assert all(clip_text(text, TIKTOKEN.count_text, budget) for text in texts)


def test_a_sparse_middle_is_counted_once():
    text = SENTENCE * 100 + " " * 900_000 + SENTENCE * 100
    count = Watched(TIKTOKEN.count_text)
    clip_text(text, count, 300)
    assert max(map(len, count.texts[1:])) <= 20 * 300


def dear_x(text):
    return 100 * text.count("x") + len(text) // 4


def test_a_text_of_which_not_one_character_fits_is_none():
    assert clip_text("x" * 100, dear_x, 60) is None


@pytest.mark.parametrize("budget", [60, 1_000, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_megabyte_is_counted_once_and_then_six_texts_of_the_budgets_size(seed, budget):
    text = mixed(seed)
    count = Watched(TIKTOKEN.count_text)
    clip_text(text, count, budget)
    assert count.texts[0] is text
    assert len(count.texts) <= 7
    assert max(map(len, count.texts[1:])) <= 20 * budget


@pytest.mark.parametrize("name", COUNTERS)
@settings(deadline=None, max_examples=60)
@given(ANY_TEXT, st.integers(-5, 600))
def test_nothing_takes_more_than_seven_counts(name, text, budget):
    count = Watched(COUNTERS[name])
    clip_text(text, count, budget)
    assert len(count.texts) <= 7


def test_a_cut_falls_between_lines_where_one_ends_near():
    head, _, tail = parts(clip_text(LINES, TIKTOKEN.count_text, 1_000))
    assert set((head + "\n" + tail).splitlines()) <= set(LINES.splitlines())


def test_a_line_break_of_two_characters_stays_together():
    head, _, tail = parts(clip_text(LINES.replace("\n", "\r\n"), TIKTOKEN.count_text, 1_000))
    assert not head.endswith("\r")
    assert not tail.startswith("\n")


def test_a_cut_falls_between_words_where_no_line_ends():
    head, _, tail = parts(clip_text(SENTENCE * 300, TIKTOKEN.count_text, 300))
    assert {head.split()[-1], tail.split()[0]} <= set(SENTENCE.split())


def test_a_line_break_that_is_far_away_is_not_waited_for():
    text = "word " * 50 + "\n" + "word " * 5_000 + "\n" + "word " * 50
    head, _, tail = parts(clip_text(text, TIKTOKEN.count_text, 1_000))
    assert "\n" in head
    assert "\n" in tail


@pytest.mark.parametrize(
    "unit",
    [
        "e\u0301",
        FAMILY,
        "🇩🇪",
        "👍🏽",
        "❤\ufe0f",
        "\ud83d\ude00",
        "की",
        "1\ufe0f\u20e3",
        "🏴\U000e0067\U000e0062\U000e007f",
    ],
    ids=["accent", "family", "flag", "skin tone", "heart", "surrogates", "vowel sign", "keycap", "tags"],
)
@pytest.mark.parametrize("budget", range(100, 110))
def test_a_character_of_several_code_points_is_not_cut(unit, budget):
    head, _, tail = parts(clip_text(unit * 1_000, len, budget))
    assert (head.replace(unit, ""), tail.replace(unit, "")) == ("", "")


def test_a_letter_with_endless_marks_is_cut_all_the_same():
    text = "e" + "\u0301" * 2_000
    assert len(clip_text(text, len, 200)) <= 200


# References

NAMED = re.compile(r'\n\[… ([0-9,]+) tokens left out; all of it has the reference "([^"\n]+)" …\]\n')
EITHER = re.compile(r"\n\[… [0-9,]+ tokens left out.* …\]\n")
REFERENCES = st.one_of(
    st.none(), st.text(max_size=120), st.sampled_from(["m-abc", "x" * 100, "x" * 101, "a b", "𓀀" * 100, "m" * 5_000])
)


def test_the_marker_names_the_reference():
    head, _, reference, tail = NAMED.split(clip_text(LINES, TIKTOKEN.count_text, 500, reference="m-abc"))
    assert reference == "m-abc"
    assert LINES.startswith(head)
    assert LINES.endswith(tail)


@pytest.mark.parametrize("reference", [None, "", "x" * 101, 'm-"1"', "m-1\nobey", "m-1\u2028obey", "\ud800"])
def test_a_reference_that_cannot_be_quoted_is_left_out(reference):
    clipped = clip_text(LINES, TIKTOKEN.count_text, 500, reference=reference)
    assert clipped == clip_text(LINES, TIKTOKEN.count_text, 500)


def test_a_reference_of_a_hundred_characters_is_named():
    assert NAMED.search(clip_text(LINES, TIKTOKEN.count_text, 500, reference="x" * 100))[2] == "x" * 100


def test_a_text_that_fits_needs_no_reference():
    assert clip_text(LINES, len, len(LINES), reference="m-abc") is LINES


@pytest.mark.parametrize("budget", range(25, 45))
def test_where_there_is_no_room_for_the_reference_the_plain_marker_stands(budget):
    clipped = clip_text(LINES, TIKTOKEN.count_text, budget, reference="m-3f2a9c71d04b4e58a6c1")
    named, plain = NAMED.search(clipped or ""), clip_text(LINES, TIKTOKEN.count_text, budget)
    assert (clipped is None) == (plain is None)
    assert not named or TIKTOKEN.count_text(named.group()) + MIN_TEXT_TOKENS <= budget + 3


@pytest.mark.parametrize("name", COUNTERS)
@settings(deadline=None, max_examples=60)
@given(ANY_TEXT, st.integers(-5, 600), REFERENCES)
def test_a_text_clipped_with_a_reference_fits(name, text, budget, reference):
    clipped = clip_text(text, COUNTERS[name], budget, reference=reference)
    assert clipped is None or COUNTERS[name](clipped) <= budget


@pytest.mark.parametrize("name", COUNTERS)
@settings(deadline=None, max_examples=60)
@given(ANY_TEXT, st.integers(-5, 600), REFERENCES)
def test_nothing_with_a_reference_takes_more_than_seven_counts(name, text, budget, reference):
    count = Watched(COUNTERS[name])
    clip_text(text, count, budget, reference=reference)
    assert len(count.texts) <= 7


@settings(deadline=None, max_examples=60)
@given(LONG_TEXT, st.integers(40, 600), REFERENCES)
def test_a_reference_never_takes_the_place_of_the_clipped_text(text, budget, reference):
    assert clip_text(text, TIKTOKEN.count_text, budget, reference=reference) is not None


@pytest.mark.parametrize("budget", [100, 300, 1_000])
def test_a_text_with_a_reference_uses_85_percent_of_the_budget(budget):
    assert TIKTOKEN.count_text(clip_text(LINES, TIKTOKEN.count_text, budget, reference="m-abc")) >= 0.85 * budget


# Messages

PNG = (  # 1 x 1 pixel: 255 tokens
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SMALL_IMAGE = {"type": "image", "base64": PNG, "mime_type": "image/png"}
LARGE_IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/large.png"}}
IMAGE_TOKENS = TIKTOKEN.count_message(HumanMessage([SMALL_IMAGE])) - TIKTOKEN.count_message(HumanMessage([]))


def clip(message, budget):
    return clip_message(message, TIKTOKEN.count_message, TIKTOKEN.count_text, budget)


def result(content, **fields):
    return ToolMessage(content, tool_call_id="call-1", **fields)


def texts_of(message):
    return [block if isinstance(block, str) else block.get("text") for block in message.content]


def text(words):
    return {"type": "text", "text": "word " * words}


def test_a_message_that_fits_is_the_same_object():
    message = HumanMessage(SENTENCE)
    assert clip(message, TIKTOKEN.count_message(message)) is message


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage(LINES),
        result(LINES),
        AIMessage(LINES),
        SystemMessage(LINES),
        ChatMessage(LINES, role="critic"),
    ],
    ids=lambda message: message.type,
)
def test_a_message_of_any_kind_is_clipped(message):
    clipped = clip(message, 500)
    assert type(clipped) is type(message)
    assert 425 <= TIKTOKEN.count_message(clipped) <= 500
    assert MARKER.search(clipped.content)


def test_everything_but_the_content_is_kept():
    message = result(
        LINES, id="m-1", name="logs", status="error", artifact={"rows": [1]}, additional_kwargs={"created_at": "2026"}
    )
    clipped = clip(message, 500)
    assert clipped.model_copy(update={"content": LINES}) == message


def test_calls_are_kept():
    call = {"name": "f", "args": {"x": 1}, "id": "call-1", "type": "tool_call"}
    block = {"type": "tool_use", "id": "call-1", "name": "f", "input": {"x": 1}}
    clipped = clip(AIMessage([{"type": "text", "text": LINES}, block], tool_calls=[call]), 500)
    assert clipped.tool_calls == [call]
    assert clipped.content[1] == block


def test_the_given_message_is_not_changed():
    message = result([{"type": "text", "text": LINES}, LARGE_IMAGE, LINES])
    before = deepcopy(message)
    clip(message, 500)
    assert message == before


def test_a_message_whose_frame_alone_is_over_is_none():
    assert clip(HumanMessage(LINES, name="ada"), 6) is None


def test_a_call_is_never_cut():
    call = {"name": "f", "args": {"x": LINES}, "id": "call-1", "type": "tool_call"}
    assert clip(AIMessage(SENTENCE, tool_calls=[call]), 500) is None


def test_an_empty_message_that_does_not_fit_is_none():
    assert clip(HumanMessage(""), 1) is None


def test_small_texts_stay_whole():
    clipped = clip(result([text(10), text(5_000), "Plain."]), 500)
    assert texts_of(clipped)[0] == text(10)["text"]
    assert texts_of(clipped)[2] == "Plain."
    assert TIKTOKEN.count_message(clipped) >= 0.85 * 500


def test_the_largest_text_is_clipped_first():
    message = HumanMessage([text(300), text(1_000)])
    clipped = clip(message, TIKTOKEN.count_message(message) - 300)
    assert texts_of(clipped)[0] == text(300)["text"]
    assert MARKER.search(texts_of(clipped)[1])


def test_large_texts_are_clipped_to_the_same_size():
    clipped = clip(HumanMessage([text(5_000), text(50_000), text(500_000 // 100)]), 900)
    sizes = [TIKTOKEN.count_text(part) for part in texts_of(clipped)]
    assert max(sizes) - min(sizes) <= 30


def test_the_other_keys_of_a_text_block_are_kept():
    block = {**text(5_000), "cache_control": {"type": "ephemeral"}}
    [clipped] = clip(HumanMessage([block]), 500).content
    assert clipped["cache_control"] == {"type": "ephemeral"}


def test_of_too_many_texts_the_first_and_the_last_stay():
    blocks = [{"type": "text", "text": f"Result {i}. " + SENTENCE * 3} for i in range(300)]
    clipped = clip(result(blocks), 1_000)
    texts = texts_of(clipped)
    assert texts[0].startswith("Result 0.")
    assert texts[-1].startswith("Result 299.")
    assert 850 <= TIKTOKEN.count_message(clipped) <= 1_000


def test_of_too_many_texts_one_marker_tells_what_is_left_out():
    blocks = [f"Result {i}. " + SENTENCE * 3 for i in range(300)]
    texts = texts_of(clip(result(blocks), 1_000))
    [place] = [i for i, part in enumerate(texts) if MARKER.fullmatch(part)]
    last_before = int(texts[place - 1].split()[1].rstrip("."))
    first_after = int(texts[place + 1].split()[1].rstrip("."))
    missing = sum(map(TIKTOKEN.count_text, blocks[last_before + 1 : first_after]))
    assert int(MARKER.fullmatch(texts[place])[1].replace(",", "")) == missing


@pytest.mark.parametrize("size", [100, 150, 300, 1_000])
def test_markers_are_never_most_of_many_texts(size):
    clipped = clip(HumanMessage([text(size)] * 100), 2_000)
    markers = [found.group() for part in texts_of(clipped) for found in MARKER.finditer(part)]
    assert sum(map(TIKTOKEN.count_text, markers)) <= 500


def test_two_texts_share_the_least_room_there_is():
    [first, second] = texts_of(clip(HumanMessage([text(5_000), text(5_000)]), 70))
    assert MARKER.search(first)
    assert MARKER.search(second)


def test_an_empty_text_block_stays():
    assert texts_of(clip(HumanMessage(["", text(5_000), ""]), 500))[::2] == ["", ""]


def test_a_block_that_is_no_text_stays_where_it_fits():
    clipped = clip(result([text(5_000), SMALL_IMAGE]), 500)
    assert clipped.content[1] == SMALL_IMAGE


def test_an_image_too_large_for_a_result_is_replaced_by_a_note():
    clipped = clip(result([text(5_000), LARGE_IMAGE]), 500)
    assert clipped.content[1] == {"type": "text", "text": "[image left out]"}


@pytest.mark.parametrize(
    ("block", "note"),
    [
        ({"type": "input_image", "image_url": "https://example.org/a.png"}, "[image left out]"),
        ({"type": "file", "base64": "QUJD" * 4_000, "mime_type": "application/pdf"}, "[file left out]"),
        ({"type": "input_audio", "input_audio": {"data": "QUJD" * 4_000, "format": "wav"}}, "[audio left out]"),
        ({"data": "QUJD" * 4_000}, "[content left out]"),
        ({"type": "text", "text": ["QUJD" * 4_000]}, "[text left out]"),
    ],
)
def test_the_note_names_what_is_left_out(block, note):
    assert clip(result([text(10), block]), 500).content[1] == {"type": "text", "text": note}


def test_the_dearest_blocks_of_a_result_are_left_out_first():
    clipped = clip(result([SMALL_IMAGE, LARGE_IMAGE, text(10)]), IMAGE_TOKENS + 100)
    assert clipped.content == [SMALL_IMAGE, {"type": "text", "text": "[image left out]"}, text(10)]


def test_a_block_cheaper_than_its_note_is_not_replaced():
    block = {"type": "a_very_long_name_of_a_kind_of_block_that_nobody_knows" * 3}
    message = result([block, text(5_000)])
    assert clip(message, 200).content[0] == block


@pytest.mark.parametrize("make", [HumanMessage, AIMessage, SystemMessage])
def test_only_a_tools_result_loses_an_image(make):
    assert clip(make([text(5_000), LARGE_IMAGE]), 500) is None


def test_a_call_block_in_a_result_is_not_replaced():
    block = {"type": "tool_use", "id": "x", "name": "f", "input": {"text": SENTENCE * 100}}
    assert clip(result([block, text(10)]), 500) is None


BLOCKS = st.one_of(
    ANY_TEXT,
    ANY_TEXT.map(lambda said: {"type": "text", "text": said}),
    st.sampled_from([SMALL_IMAGE, LARGE_IMAGE, {"type": "file", "base64": "QUJD" * 400}, {"strange": True}]),
)
MESSAGES = st.builds(
    lambda make, content: make(content),
    st.sampled_from([HumanMessage, AIMessage, SystemMessage, result]),
    st.one_of(ANY_TEXT, st.lists(BLOCKS, max_size=8)),
)


def at_words(message):
    """Costs more than the sum of its parts."""
    return 5 + len(str(message.content).split()) + len(str(message.content)) // 50


@pytest.mark.parametrize("counter", [TIKTOKEN, ESTIMATING], ids=lambda counter: counter.name)
@settings(deadline=None, max_examples=150)
@given(MESSAGES, st.integers(-5, 2_000))
def test_a_clipped_message_fits(counter, message, budget):
    clipped = clip_message(message, counter.count_message, counter.count_text, budget)
    assert clipped is None or counter.count_message(clipped) <= budget


@settings(deadline=None, max_examples=150)
@given(MESSAGES, st.integers(-5, 2_000), REFERENCES)
def test_a_message_clipped_with_a_reference_fits(message, budget, reference):
    clipped = clip_message(message, TIKTOKEN.count_message, TIKTOKEN.count_text, budget, reference=reference)
    assert clipped is None or TIKTOKEN.count_message(clipped) <= budget


@settings(deadline=None, max_examples=150)
@given(MESSAGES, st.integers(0, 600), REFERENCES)
def test_every_message_that_can_be_clipped_can_be_with_a_reference(message, budget, reference):
    assume(clip(message, budget) is not None)
    assert clip_message(message, TIKTOKEN.count_message, TIKTOKEN.count_text, budget, reference=reference) is not None


@pytest.mark.parametrize("content", [LINES, [LINES], [text(5_000), text(5_000)], [SENTENCE * 3] * 300])
def test_every_marker_of_a_message_names_the_reference(content):
    clipped = clip_message(result(content), TIKTOKEN.count_message, TIKTOKEN.count_text, 1_000, reference="m-abc")
    shown = clipped.content if isinstance(clipped.content, str) else "".join(texts_of(clipped))
    assert NAMED.search(shown)
    assert len(EITHER.findall(shown)) == len(NAMED.findall(shown))


@settings(deadline=None, max_examples=150)
@given(MESSAGES, st.integers(0, 300))
def test_a_clipped_message_fits_where_it_costs_more_than_its_parts(message, budget):
    clipped = clip_message(message, at_words, lambda said: len(said.split()), budget)
    assert clipped is None or at_words(clipped) <= budget


def test_a_message_that_costs_more_than_its_parts_is_clipped_all_the_same():
    assert clip_message(result(LINES), at_words, lambda said: len(said.split()), 100) is not None


def test_a_message_with_a_text_that_cannot_be_clipped_is_none():
    message = HumanMessage(["x" * 100, "y"])
    assert clip_message(message, lambda m: sum(map(dear_x, m.content)), dear_x, 60) is None


@settings(deadline=None, max_examples=150)
@given(st.lists(BLOCKS, max_size=8), st.integers(0, 2_000))
def test_blocks_that_are_no_text_all_stay_in_order_in_a_human_message(blocks, budget):
    clipped = clip(HumanMessage(blocks), budget)
    assume(clipped is not None)
    others = [block for block in blocks if isinstance(block, dict) and block.get("type") != "text"]
    assert [block for block in clipped.content if isinstance(block, dict) and block.get("type") != "text"] == others


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=4), st.integers(600, 3_000))
def test_where_a_text_is_clipped_every_larger_one_is_too(sizes, budget):
    blocks = [text(size) for size in sorted(sizes)]
    clipped = clip(HumanMessage(blocks), budget)
    whole = [after == before for after, before in zip(clipped.content, blocks, strict=True)]
    assert whole == sorted(whole, reverse=True)


def test_a_texts_cost_is_counted_whole_a_few_times_only():
    count = Watched(TIKTOKEN.count_text)
    clip_message(result(LINES), lambda message: 5 + count(message.content), count, 1_000)
    assert sum(map(len, count.texts)) <= 2 * len(LINES) + 8 * 6 * 1_000
