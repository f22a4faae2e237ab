"""Holds clipping to its budget, and to what says most of a text or a message."""

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
NAMED_MARKER = re.compile(
    r'\n\[… ([0-9,]+) tokens left out; all of it has the reference "([^"\n]+)" …\]\n'
)
SENTENCE = "The parcel came on Tuesday, so Ada wrote back before lunch and asked who had sent it. "


def request_line(number):
    minute = number // 60 % 60
    second = number % 60
    return f"2026-11-20 10:{minute:02}:{second:02} request {number * 7919:08x} took it\n"


LINES = "".join(request_line(number) for number in range(4000))
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
REFERENCES = st.one_of(
    st.none(), st.text(max_size=120), st.sampled_from(["m-abc", "x" * 101, "a b", "𓀀" * 100])
)


def ten_a_digit(text):
    return len(text) // 4 + 10 * sum(map(str.isdigit, text))


def noisy(text):
    return len(text) // 3 + crc32(text.encode("utf-8", "surrogatepass")) % 23


def in_steps(text):
    return len(text) // 500 * 100


def dear_at_the_start(text):
    return 10 * min(len(text), 90) + len(text) // 50


def quadratic(text):
    return len(text) ** 2 // 1000


def clip(text, budget, *, reference=None, focus=()):
    return clip_text(text, TIKTOKEN.count_text, budget, reference=reference, focus=frozenset(focus))


def test_a_clipped_text_is_head_marker_and_tail():
    head, _, tail = MARKER.split(clip(LINES, 500))

    assert LINES.startswith(head)
    assert LINES.endswith(tail)


@pytest.mark.parametrize("budget", [-1, 0, 1, 20])
def test_without_room_nothing_is_left_of_a_text(budget):
    assert clip(LINES, budget) is None


@pytest.mark.parametrize(
    "counter",
    [
        pytest.param(TIKTOKEN.count_text, id="o200k_base"),
        ten_a_digit,
        noisy,
        in_steps,
        dear_at_the_start,
        quadratic,
    ],
)
@settings(deadline=None, max_examples=40)
@given(ANY_TEXT, st.integers(-5, 600), REFERENCES)
def test_a_clipped_text_fits_after_at_most_seven_counts(counter, text, budget, reference):
    counted = []

    def count(part):
        counted.append(part)
        return counter(part)

    clipped = clip_text(text, count, budget, reference=reference)

    assert len(counted) <= 7
    assert clipped is None or counter(clipped) <= budget


def test_a_text_is_cut_between_lines_where_one_ends_near():
    head, _, tail = MARKER.split(clip(LINES, 1_000))

    assert set(f"{head}\n{tail}".splitlines()) <= set(LINES.splitlines())


REPORT = "".join(f"case {number:04} passed in {number % 7} ms\n" for number in range(900))
HALF_REPORT = REPORT[:9_000]
OTHER_HALF = REPORT[9_000:]
ERROR = "ValueError: no ledger named 'q3'\n"
DIFF = "".join(
    f"diff --git a/m{number}.py b/m{number}.py\n@@ -1,40 +1,40 @@\n"
    + f" same{number}\n" * 60
    + f"-old{number}\n+new{number}\n"
    for number in range(12)
)
HITS = "".join(
    f"src/m{number // 60}.py:{number % 60}: budget = {number}\n" for number in range(600)
)
CODE = "".join(
    f"def job{number}(room):\n" + f"    room.add({number})\n" * 40 for number in range(12)
)
NOTES = "".join(f"## Part {number}\n\n" + SENTENCE * 12 + "\n\n" for number in range(12))
TABLE = "| id | name | price |\n|---|---|--:|\n" + "".join(
    f"| {number} | tool {number} | {number % 17}.99 |\n" for number in range(900)
)


def missing(parts, text):
    return [part for part in parts if part not in text]


@pytest.mark.parametrize(
    ("text", "expected", "focus"),
    [
        pytest.param(
            TABLE,
            ["| id | name | price |\n|---|---|--:|\n| 0 |", "| 437 | tool 437 |", "| 899 |"],
            ["437"],
            id="a table",
        ),
        pytest.param(HALF_REPORT + ERROR + OTHER_HALF, [ERROR], [], id="a log"),
        pytest.param(DIFF, [f"diff --git a/m{number}.py" for number in range(12)], [], id="a diff"),
        pytest.param(HITS, [f"src/m{number}.py:0:" for number in range(10)], [], id="search hits"),
        pytest.param(CODE, [f"def job{number}(" for number in range(12)], [], id="code"),
        pytest.param(NOTES, [f"## Part {number}\n" for number in range(12)], [], id="prose"),
        pytest.param(
            HALF_REPORT + "Ada pays the plumber\n" + OTHER_HALF,
            ["Ada pays"],
            ["plumber"],
            id="what was looked for",
        ),
    ],
)
def test_of_every_kind_of_text_stays_what_says_most(text, expected, focus):
    clipped = clip(text, 700, focus=focus)

    kept = [part.rstrip() for part in re.split(r"\[… .* …\]\n", clipped)]
    assert missing(expected, clipped) == []
    assert missing(kept, text) == []
    assert clipped[:10] == text[:10]
    assert clipped[-10:] == text[-10:]


@pytest.mark.parametrize("budget", [40, 60, 80])
def test_a_line_that_tells_of_an_error_stays_in_a_small_room(budget):
    failed = "FAILED tests/test_mod4.py::test_b - AssertionError: 3 != 4"
    lines = [f"log line {number}" for number in range(80)]
    lines.insert(40, failed)

    assert failed in clip("\n".join(lines), budget)


@pytest.mark.parametrize("depth", [100, 700, 990, 5_000])
def test_json_that_is_nested_too_deep_is_clipped_as_text(depth):
    text = "[" * depth + json.dumps("word " * 3_000) + "]" * depth

    assert TIKTOKEN.count_text(clip(text, 400)) <= 400


def item(number):
    return {"id": number, "name": f"item {number}", "note": "lorem ipsum " * 50}


@pytest.fixture(scope="module")
def clipped_json():
    """A list of 93 items in JSON, clipped: the JSON, and the marker below it."""
    data = {"items": [item(number) for number in range(93)], "total": 93, "next": None}
    form, _, marker = clip(json.dumps(data), 300, reference="#4").partition("\n")
    return json.loads(form), marker


def test_clipped_json_keeps_its_keys(clipped_json):
    data, _ = clipped_json

    assert list(data) == ["items", "total", "next"]
    assert data["total"] == 93


def test_clipped_json_keeps_the_ends_of_its_lists(clipped_json):
    data, _ = clipped_json

    assert data["items"][0]["id"] == 0
    assert data["items"][-1]["id"] == 92


def test_clipped_json_says_how_many_items_are_left_out(clipped_json):
    data, _ = clipped_json

    notes = [entry for entry in data["items"] if isinstance(entry, str)]
    kept = len(data["items"]) - 1
    assert notes == [f"… {93 - kept} more"]


def test_clipped_json_names_the_reference(clipped_json):
    _, marker = clipped_json

    assert NAMED_MARKER.fullmatch(f"\n{marker}")[2] == "#4"


def test_the_marker_names_the_reference():
    head, _, reference, tail = NAMED_MARKER.split(clip(LINES, 500, reference="m-abc"))

    assert reference == "m-abc"
    assert LINES.startswith(head)
    assert LINES.endswith(tail)


@pytest.mark.parametrize(
    "reference",
    [
        pytest.param(None, id="none"),
        pytest.param("", id="empty"),
        pytest.param("x" * 101, id="too long"),
        pytest.param('m-"1"', id="quotation marks"),
        pytest.param("m-1\nobey", id="line break"),
        pytest.param("m-1\u2028obey", id="line separator"),
        pytest.param("\ud800", id="half a character"),
    ],
)
def test_a_reference_that_cannot_be_quoted_is_left_out(reference):
    assert clip(LINES, 500, reference=reference) == clip(LINES, 500)


@pytest.mark.parametrize("budget", range(25, 45))
def test_a_reference_takes_no_room_from_the_text(budget):
    clipped = clip(LINES, budget, reference="m-3f2a9c71d04b4e58a6c1")

    marker = NAMED_MARKER.search(clipped or "")
    assert (clipped is None) == (clip(LINES, budget) is None)
    assert not marker or TIKTOKEN.count_text(marker.group()) + MIN_TEXT_TOKENS <= budget + 3


LARGE_IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/large.png"}}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
BLOCKS = st.one_of(
    ANY_TEXT,
    ANY_TEXT.map(lambda words: {"type": "text", "text": words}),
    st.sampled_from([LARGE_IMAGE, {"type": "file", "base64": "QUJD" * 400}, {"strange": True}]),
)


def clip_result(message, budget):
    """Clips as a tool's result is clipped: media of other messages stay."""
    return clip_message(message, TIKTOKEN.count_message, TIKTOKEN.count_text, budget)


def clip_media(message, budget):
    """Clips where media of any message may give way."""
    return clip_message(
        message, TIKTOKEN.count_message, TIKTOKEN.count_text, budget, keeps_media=False
    )


def result(content, **fields):
    return ToolMessage(content, tool_call_id="call-1", **fields)


def text_block(words):
    return {"type": "text", "text": "word " * words}


def kinds_of(message):
    return [block["type"] for block in message.content]


def test_several_texts_are_joined_and_clipped_as_one():
    message = result([text_block(10), text_block(5_000), "Plain."])

    [joined] = clip_result(message, 500).content

    assert joined["text"].startswith("word ")
    assert joined["text"].endswith("\nPlain.")


@pytest.mark.parametrize(
    "blocks", [[text_block(40)] * 100, [LARGE_IMAGE] * 100], ids=["texts", "images"]
)
def test_a_hundred_blocks_are_clipped_to_their_room(blocks):
    assert TIKTOKEN.count_message(clip_result(result(blocks), 200)) <= 200


def test_an_image_of_a_result_gives_way_to_a_line():
    clipped = clip_result(result([text_block(5_000), LARGE_IMAGE]), 500)

    assert clipped.text.endswith("\n[image left out]")


def test_an_image_stays_where_it_has_room():
    clipped = clip_result(result([text_block(5_000), LARGE_IMAGE]), 2_000)

    assert clipped.content[1] == LARGE_IMAGE


def test_clipping_does_not_change_the_message():
    message = result([text_block(5_000), LARGE_IMAGE])
    before = deepcopy(message)

    clip_result(message, 500)

    assert message == before


@pytest.mark.parametrize("kind", [HumanMessage, AIMessage, SystemMessage])
def test_only_a_tools_result_loses_an_image(kind):
    assert clip_result(kind([text_block(5_000), LARGE_IMAGE]), 500) is None


def test_no_message_loses_a_call():
    call = {"name": "f", "args": {"x": LINES}, "id": "call-1", "type": "tool_call"}

    assert clip_result(AIMessage(SENTENCE, tool_calls=[call]), 500) is None


@pytest.mark.parametrize("kind", [HumanMessage, AIMessage, result])
def test_media_of_any_message_give_way_where_they_may(kind):
    clipped = clip_media(kind([text_block(20), LARGE_IMAGE]), 500)

    assert clipped.text == f"{'word ' * 20}\n[image left out]"


def test_the_last_media_of_a_message_stay():
    images = [{"type": "image", "url": f"https://example.org/{number}.png"} for number in range(5)]

    clipped = clip_media(HumanMessage([text_block(20), *images]), 3_200)

    assert clipped.content[1:] == images[3:]


def test_a_text_keeps_its_place_among_other_blocks():
    clipped = clip_media(AIMessage([THINKING, text_block(5_000)]), 500)

    assert kinds_of(clipped) == ["thinking", "text"]


FOUND = {"type": "search_result", "source": "https://example.org", "content": [text_block(5_000)]}
OWN_WORDS = {"type": "text", "text": "I looked it up: " + "the rent rises. " * 9}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([OWN_WORDS, FOUND], id="before"),
        pytest.param([FOUND, OWN_WORDS], id="behind"),
        pytest.param([OWN_WORDS, *[FOUND] * 12], id="before twelve"),
    ],
)
def test_own_words_stay_whole_beside_those_of_a_search_result(content):
    clipped = clip_media(result(content), 150)

    assert OWN_WORDS["text"].strip() in clipped.text
    assert TIKTOKEN.count_message(clipped) <= 150


def test_own_words_and_others_keep_their_order():
    behind = {"type": "text", "text": "So it does not fall."}

    clipped = clip_media(result([OWN_WORDS, FOUND, behind]), 200)

    places = [clipped.text.index(text) for text in ("I looked", "[search_result]", "So it")]
    assert places == sorted(places)


ENCRYPTED = "EqQB" + "x7Qz" * 4_500
SEARCH = [
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "foxes"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "s1",
        "content": [
            {
                "type": "web_search_result",
                "title": "Foxes",
                "url": "https://example.org",
                "encrypted_content": ENCRYPTED,
            }
        ],
    },
]


def test_a_text_that_is_cut_where_it_cites_stays_one():
    source = {"title": "Foxes", "url": "https://example.org"}
    texts = ["It is ", "red", ", as the page says."]
    answer = [{"type": "text", "text": text, "citations": [source]} for text in texts]

    clipped = clip_media(AIMessage([*SEARCH, *answer]), 60)

    assert clipped.text.endswith("\nIt is red, as the page says.")


def test_a_line_in_place_of_a_search_says_what_a_reader_calls_it():
    clipped = clip_media(AIMessage([*SEARCH, text_block(5_000)]), 100)

    assert clipped.text.endswith("[web search left out]\n[results of a web search left out]")


def test_thoughts_give_way_before_text():
    long_thoughts = {"type": "thinking", "thinking": "word " * 5_000, "signature": "c2ln"}

    clipped = clip_media(AIMessage([long_thoughts, text_block(20)]), 500)

    assert clipped.content == [text_block(20)]


def test_items_and_the_reasoning_that_led_to_them_go_together():
    drawing = {"type": "image_generation_call", "id": "ig_1", "result": "QUJD" * 9}
    answer = {"type": "text", "text": "word " * 2_000, "id": "msg_1"}

    clipped = clip_media(AIMessage([REASONING, drawing, answer]), 500)

    assert kinds_of(clipped) == ["text"]
    assert "id" not in clipped.content[0]


def test_a_call_stays_when_the_items_beside_it_go():
    call = {"name": "f", "args": {}, "id": "call_1", "type": "tool_call"}
    block = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "f",
        "arguments": "{}",
    }
    message = AIMessage([REASONING, text_block(2_000), block], tool_calls=[call])

    clipped = clip_media(message, 500)

    assert kinds_of(clipped) == ["text", "function_call"]
    assert "id" not in clipped.content[1]
    assert clipped.tool_calls == message.tool_calls


SCREEN = result(
    "data:image/png;base64," + "QUJD" * 9_000,
    additional_kwargs={"type": "computer_call_output"},
)


def test_a_screen_given_as_an_address_costs_as_a_picture():
    assert TIKTOKEN.count_message(SCREEN) < 2_000


def test_a_screen_given_as_an_address_gives_way_as_a_picture():
    assert clip_result(SCREEN, 200).text == "[image left out: image/png, 27 KB]"


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from([HumanMessage, AIMessage, result]),
    ANY_TEXT | st.lists(BLOCKS, max_size=8),
    st.integers(-5, 2_000),
    REFERENCES,
)
def test_a_clipped_message_fits(kind, content, budget, reference):
    clipped = clip_message(
        kind(content), TIKTOKEN.count_message, TIKTOKEN.count_text, budget, reference=reference
    )

    assert clipped is None or TIKTOKEN.count_message(clipped) <= budget
