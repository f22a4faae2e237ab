"""Clipping what is too large, texts and messages."""

import json
import re
from copy import deepcopy
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.messages import clip_message, clip_text
from langchain_ctxbudget.messages.clipping import MIN_TEXT_TOKENS
from langchain_ctxbudget.tokens import TiktokenCounter

TIKTOKEN = TiktokenCounter()
FAMILY = "👩‍👩‍👧‍👦"
MARKER = re.compile(r"\n\[… ([0-9,]+) tokens left out …\]\n")
SENTENCE = "The parcel came on Tuesday, so Ada wrote back before lunch and asked who had sent it. "
LINES = "".join(
    f"2026-11-20 10:{i // 60 % 60:02}:{i % 60:02} request {i * 7919:08x} took it\n"
    for i in range(4000)
)
PIECES = (
    SENTENCE * 4,
    "我住在柏林的一个小房子里。今天天气很好。" * 4,
    '{"id": 7, "name": "item", "tags": ["a", "b"]},' * 4,
    "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5" * 4,
    " " * 200,
    FAMILY * 5 + "🇩🇪" * 5,
    "e\u0301a\u0308" * 30,
    "for i in range(10):\n    print(i)\n" * 3,
    "\ud800\udc00 lone \ud83d",
)


ANY_TEXT = st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
COUNTERS = {
    "o200k_base": TIKTOKEN.count_text,
    "ten a digit": lambda text: len(text) // 4 + 10 * sum(map(str.isdigit, text)),
    "noisy": lambda text: len(text) // 3 + crc32(text.encode("utf-8", "surrogatepass")) % 23,
    "in steps": lambda text: len(text) // 500 * 100,
    "dear at the start": lambda text: 10 * min(len(text), 90) + len(text) // 50,
    "quadratic": lambda text: len(text) ** 2 // 1000,
}


def parts(clipped):
    head, number, tail = MARKER.split(clipped)
    return head, int(number.replace(",", "")), tail


def test_a_clipped_text_is_head_marker_and_tail():
    head, _, tail = parts(clip_text(LINES, TIKTOKEN.count_text, 500))
    assert (LINES.startswith(head), LINES.endswith(tail)) == (True, True)
    for budget in (-1, 0, 1, 20):
        assert clip_text(LINES, TIKTOKEN.count_text, budget) is None


REFERENCES = st.one_of(
    st.none(), st.text(max_size=120), st.sampled_from(["m-abc", "x" * 101, "a b", "𓀀" * 100])
)


@pytest.mark.parametrize("name", COUNTERS)
@settings(deadline=None, max_examples=40)
@given(ANY_TEXT, st.integers(-5, 600), REFERENCES)
def test_a_clipped_text_fits_whatever_counts_and_takes_seven_counts_at_most(
    name, text, budget, reference
):
    counted = []

    def count(said):
        counted.append(said)
        return COUNTERS[name](said)

    clipped = clip_text(text, count, budget, reference=reference)
    assert len(counted) <= 7
    assert clipped is None or COUNTERS[name](clipped) <= budget


def test_a_cut_falls_between_lines_where_one_ends_near():
    head, _, tail = parts(clip_text(LINES, TIKTOKEN.count_text, 1_000))
    assert set((head + "\n" + tail).splitlines()) <= set(LINES.splitlines())


REPORT = "".join(f"case {i:04} passed in {i % 7} ms\n" for i in range(900))
ERROR = "ValueError: no ledger named 'q3'\n"
DIFF = "".join(
    f"diff --git a/m{i}.py b/m{i}.py\n@@ -1,40 +1,40 @@\n"
    + f" same{i}\n" * 60
    + f"-old{i}\n+new{i}\n"
    for i in range(12)
)
HITS = "".join(f"src/m{i // 60}.py:{i % 60}: budget = {i}\n" for i in range(600))
CODE = "".join(f"def job{i}(room):\n" + f"    room.add({i})\n" * 40 for i in range(12))
NOTES = "".join(f"## Part {i}\n\n" + SENTENCE * 12 + "\n\n" for i in range(12))
TABLE = "| id | name | price |\n|---|---|--:|\n" + "".join(
    f"| {i} | tool {i} | {i % 17}.99 |\n" for i in range(900)
)
KINDS = {
    "a table": (
        TABLE,
        ("| id | name | price |\n|---|---|--:|\n| 0 |", "| 437 | tool 437 |", "| 899 |"),
        ("437",),
    ),
    "a log": (REPORT[:9_000] + ERROR + REPORT[9_000:], (ERROR,), ()),
    "a diff": (DIFF, tuple(f"diff --git a/m{i}.py" for i in range(12)), ()),
    "search hits": (HITS, tuple(f"src/m{i}.py:0:" for i in range(10)), ()),
    "code": (CODE, tuple(f"def job{i}(" for i in range(12)), ()),
    "prose": (NOTES, tuple(f"## Part {i}\n" for i in range(12)), ()),
    "what was looked for": (
        REPORT[:9_000] + "Ada pays the plumber\n" + REPORT[9_000:],
        ("Ada pays",),
        ("plumber",),
    ),
}


def test_of_every_kind_of_text_stays_what_says_most():
    for kind, (text, expected, focus) in KINDS.items():
        clipped = clip_text(text, TIKTOKEN.count_text, 700, focus=frozenset(focus))
        assert [part for part in expected if part not in clipped] == [], kind
        assert (clipped[:10], clipped[-10:]) == (text[:10], text[-10:]), kind
        kept = [part.rstrip() for part in re.split(r"\[… .* …\]\n", clipped)]
        assert [part for part in kept if part not in text] == [], kind


def test_json_that_is_nested_too_deep_is_clipped_as_text():
    for depth in (100, 700, 990, 5_000):
        text = "[" * depth + json.dumps("word " * 3_000) + "]" * depth
        assert TIKTOKEN.count_text(clip_text(text, TIKTOKEN.count_text, 400)) <= 400


def test_json_keeps_its_keys_the_ends_of_its_lists_and_what_is_left_out_of_each():
    items = [{"id": i, "name": f"item {i}", "note": "lorem ipsum " * 50} for i in range(93)]
    clipped = clip_text(
        json.dumps({"items": items, "total": 93, "next": None}),
        TIKTOKEN.count_text,
        300,
        reference="#4",
    )
    form, _, marker = clipped.partition("\n")
    read = json.loads(form)
    assert (list(read), read["total"], read["items"][0]["id"], read["items"][-1]["id"]) == (
        ["items", "total", "next"],
        93,
        0,
        92,
    )
    [told] = [item for item in read["items"] if isinstance(item, str)]
    assert told == f"… {93 - len(read['items']) + 1} more"
    assert NAMED.fullmatch(f"\n{marker}")[2] == "#4"


NAMED = re.compile(
    r'\n\[… ([0-9,]+) tokens left out; all of it has the reference "([^"\n]+)" …\]\n'
)


def test_the_marker_names_the_reference():
    head, _, reference, tail = NAMED.split(
        clip_text(LINES, TIKTOKEN.count_text, 500, reference="m-abc")
    )
    assert (reference, LINES.startswith(head), LINES.endswith(tail)) == ("m-abc", True, True)


def test_a_reference_that_cannot_be_quoted_or_has_no_room_is_left_out():
    plain = clip_text(LINES, TIKTOKEN.count_text, 500)
    for reference in (None, "", "x" * 101, 'm-"1"', "m-1\nobey", "m-1\u2028obey", "\ud800"):
        assert clip_text(LINES, TIKTOKEN.count_text, 500, reference=reference) == plain
    for budget in range(25, 45):
        clipped = clip_text(LINES, TIKTOKEN.count_text, budget, reference="m-3f2a9c71d04b4e58a6c1")
        named = NAMED.search(clipped or "")
        assert (clipped is None) == (clip_text(LINES, TIKTOKEN.count_text, budget) is None)
        assert not named or TIKTOKEN.count_text(named.group()) + MIN_TEXT_TOKENS <= budget + 3


LARGE_IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/large.png"}}
BLOCKS = st.one_of(
    ANY_TEXT,
    ANY_TEXT.map(lambda said: {"type": "text", "text": said}),
    st.sampled_from([LARGE_IMAGE, {"type": "file", "base64": "QUJD" * 400}, {"strange": True}]),
)


def clip(message, budget):
    return clip_message(message, TIKTOKEN.count_message, TIKTOKEN.count_text, budget)


def result(content, **fields):
    return ToolMessage(content, tool_call_id="call-1", **fields)


def text(words):
    return {"type": "text", "text": "word " * words}


def test_several_texts_are_joined_and_clipped_as_one():
    [joined] = clip(result([text(10), text(5_000), "Plain."]), 500).content
    assert joined["text"].startswith("word ")
    assert joined["text"].endswith("\nPlain.")
    for many in ([text(40) for _ in range(100)], [LARGE_IMAGE] * 100):
        assert TIKTOKEN.count_message(clip(result(many), 200)) <= 200


def test_only_a_tools_result_loses_an_image_and_no_message_a_call():
    message = result([text(5_000), LARGE_IMAGE])
    before = deepcopy(message)
    assert clip(message, 500).text.endswith("\n[image left out]")
    assert clip(message, 2_000).content[1] == LARGE_IMAGE
    assert message == before
    for make in (HumanMessage, AIMessage, SystemMessage):
        assert clip(make([text(5_000), LARGE_IMAGE]), 500) is None
    call = {"name": "f", "args": {"x": LINES}, "id": "call-1", "type": "tool_call"}
    assert clip(AIMessage(SENTENCE, tool_calls=[call]), 500) is None


def kinds_of(message):
    return [block["type"] for block in message.content]


def clip_media(message, budget):
    count = TIKTOKEN.count_message
    return clip_message(message, count, TIKTOKEN.count_text, budget, keeps_media=False)


def test_media_of_any_message_give_way_where_they_may():
    for make in (HumanMessage, AIMessage, result):
        made = clip_media(make([text(20), LARGE_IMAGE]), 500)
        assert made.text == f"{'word ' * 20}\n[image left out]"


def test_the_last_media_of_a_message_stay():
    images = [{"type": "image", "url": f"https://example.org/{number}.png"} for number in range(5)]
    made = clip_media(HumanMessage([text(20), *images]), 3_200)
    assert made.content[1:] == images[3:]


def test_a_text_keeps_its_place_among_other_blocks():
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    assert kinds_of(clip_media(AIMessage([thinking, text(5_000)]), 500)) == ["thinking", "text"]


def test_own_words_stay_whole_beside_those_of_a_search_result():
    found = {"type": "search_result", "source": "https://example.org", "content": [text(5_000)]}
    own = {"type": "text", "text": "I looked it up: " + "the rent rises. " * 9}
    for content in ([own, found], [found, own], [own, *[found] * 12]):
        made = clip_media(result(content), 150)
        assert made.text.startswith(own["text"])
        assert TIKTOKEN.count_message(made) <= 150


def test_thoughts_give_way_before_text():
    thinking = {"type": "thinking", "thinking": "word " * 5_000, "signature": "c2ln"}
    assert clip_media(AIMessage([thinking, text(20)]), 500).content == [text(20)]


REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


def test_items_and_the_reasoning_that_led_to_them_go_together():
    drawing = {"type": "image_generation_call", "id": "ig_1", "result": "QUJD" * 9}
    answer = {"type": "text", "text": "word " * 2_000, "id": "msg_1"}
    made = clip_media(AIMessage([REASONING, drawing, answer]), 500)
    assert kinds_of(made) == ["text"]
    assert "id" not in made.content[0]


def test_a_call_stays_when_the_items_beside_it_go():
    call = {"name": "f", "args": {}, "id": "call_1", "type": "tool_call"}
    block = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "f",
        "arguments": "{}",
    }
    message = AIMessage([REASONING, text(2_000), block], tool_calls=[call])
    made = clip_media(message, 500)
    assert kinds_of(made) == ["text", "function_call"]
    assert "id" not in made.content[1]
    assert made.tool_calls == message.tool_calls


def test_a_screen_that_is_given_as_an_address_alone_is_a_picture():
    screen = "data:image/png;base64," + "QUJD" * 9_000
    message = result(screen, additional_kwargs={"type": "computer_call_output"})
    assert TIKTOKEN.count_message(message) < 2_000
    assert clip(message, 200).text == "[image left out: image/png, 27 KB]"


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from([HumanMessage, AIMessage, result]),
    ANY_TEXT | st.lists(BLOCKS, max_size=8),
    st.integers(-5, 2_000),
    REFERENCES,
)
def test_a_clipped_message_fits(make, content, budget, reference):
    clipped = clip_message(
        make(content), TIKTOKEN.count_message, TIKTOKEN.count_text, budget, reference=reference
    )
    assert clipped is None or TIKTOKEN.count_message(clipped) <= budget


def test_the_line_that_tells_of_an_error_has_its_place_in_a_small_room() -> None:
    failed = "FAILED tests/test_mod4.py::test_b - AssertionError: 3 != 4"
    lines = [f"log line {number}" for number in range(80)]
    log = "\n".join([*lines[:40], failed, *lines[40:]])
    for budget in (40, 60, 80):
        assert failed in clip_text(log, TIKTOKEN.count_text, budget)
