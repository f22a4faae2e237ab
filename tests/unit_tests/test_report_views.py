"""A report as people see it: in logs, in a terminal, as a card in a notebook, and in words."""

import html
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from langchain_ctxbudget.budget import Layer, Reason, Status
from langchain_ctxbudget.dashboard.colours import stylesheet
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report import CoverageRange, ReportItem, percent
from langchain_ctxbudget.report.chart import FULL, render_html
from langchain_ctxbudget.report.colours import CUSTOM_COLOURS, STATUSES, on_dark
from tests.unit_tests import test_report as made
from tests.unit_tests.test_report import example, reports

ROW = re.compile(rf"^(?P<label>\S.*?) +(?P<used>-?[\d,]+) +<?-?[\d]+ %(?:  (?P<bar>{FULL}*))?$")
CONTROL_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")


def rows(text):
    """The rows of a report that have tokens; what is free comes last."""
    _, between, _ = text.split("\n\n", 2)
    return [ROW.match(line) for line in between.splitlines()]


def used_tokens(text):
    """The tokens of layers and overhead, and those that are free, which come last."""
    return [int(row["used"].replace(",", "")) for row in rows(text)]


# In logs


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(reports(), st.integers(56, 140))
def test_rows_add_up_to_the_budget_within_the_columns(report, width):
    text = report.to_text(width)

    *parts, free = used_tokens(text)
    assert sum(parts) == report.total_tokens
    assert sum(parts) + free == report.budget_tokens
    ends_of_numbers = {row.end("used") for row in rows(text)}
    assert len(ends_of_numbers) == 1, "numbers stand below each other"
    assert max(map(cell_len, text.split("\n"))) <= width


def test_what_takes_no_tokens_has_no_row():
    assert [row["label"] for row in rows(example().to_text())] == ["History", "Framing", "Free"]


@pytest.mark.parametrize("which", Layer)
def test_a_layer_is_called_by_its_name_alone(which):
    text = example(layers=(made.layer(which, [made.item()]),)).to_text()

    assert rows(text)[0]["label"] == which.full_name
    assert not re.search(r"\bL\d\b", text)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0 %"), (0.001, "<1 %"), (0.914, "91 %"), (0.999, "99 %"), (1, "100 %")],
)
def test_a_part_is_neither_nothing_nor_all(share, words):
    assert percent(share) == words


# The sentence on top


CACHED = {"cached_tokens": 9, "effective_tokens": 7}


def sentence(**changes):
    report = example(**changes)
    return " ".join(report.to_text().partition("\n\n")[0].split())


def covered(*parts):
    """Messages in the given states, so many of each, in a row."""
    ranges = []
    last = 0
    for state, count in parts:
        ranges.append(CoverageRange(first=last + 1, last=last + count, state=state))
        last += count
    return {"coverage": tuple(ranges)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            covered(("omitted", 50), ("retrieved", 5), ("verbatim", 3)),
            ": 5 old messages looked up, 3 newest word for word, ",
        ),
        (covered(("verbatim", 3)), ": 3 messages so far, all word for word, "),
        (covered(), "15 of 1,000 tokens: nothing cached, "),
        ({"forecast": True}, "Forecast: 15 of 1,000 tokens: "),
        ({"stability": replace(example().stability, **CACHED)}, ", 60 % cached, paid like 7"),
        ({"own_effective_tokens": 5}, ", paid like 5"),
    ],
    ids=["compacted", "whole", "first", "forecast", "cached", "own calls"],
)
def test_the_first_sentence_says_what_is_sent_and_paid(changes, words):
    assert words in sentence(**changes)


def test_a_line_for_logs_begins_with_the_same_sentence():
    assert example().to_line().startswith(sentence())


# The facts


WINDOW = {
    "window_tokens": 8_000,
    "window_source": "served",
    "window_detail": "vLLM",
    "output_reserve_tokens": 5,
}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "Messages   40 messages: 1 looked up, 39 summed up"),
        (covered(), "Messages   none before this turn"),
        (
            {"stability": replace(example().stability, **CACHED, whole_effective_tokens=80)},
            "Paid       9 tokens cached, 6 new: paid like 7 new ones; every message: 80",
        ),
        (
            {"stability": replace(example().stability, turns_to_step=3, step_tokens=400)},
            "Next       rebuilt in about 3 turns, with about 400 new tokens",
        ),
        ({}, "Counted    exactly with o200k_base"),
        ({"count_mode": "estimated"}, "Counted    estimated, with a margin, with o200k_base"),
        (WINDOW, "Window     8,000 tokens (vLLM), 5 tokens kept free for the answer"),
        (
            {"timings_ms": {"open": 1.0, "compute_budget": 2.5}},
            "Time       3.5 ms (open 1.0, compute budget 2.5)",
        ),
        (
            {"settings_from": ("pipeline", "user", "call")},
            "Settings   from pipeline, then user, then call; a later one wins",
        ),
    ],
    ids=[
        "messages",
        "no messages",
        "paid",
        "next",
        "counted",
        "estimated",
        "window",
        "time",
        "settings",
    ],
)
def test_a_fact_says_what_happened(changes, line):
    assert line in example(**changes).to_text().splitlines()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            covered(("omitted", 2), ("verbatim", 1)),
            "the recall tool quotes every message; `pin` keeps one in; a larger",
        ),
        (
            {"layers": (made.layer(Layer.TOPICS, more={Reason.NO_ROOM: 3}),)},
            "3 of Topics: a larger `max_context_tokens` has room for it",
        ),
        (
            {"layers": (made.layer(Layer.TOOLS, more={Reason.TO_BE_FOUND: 40}),)},
            "40 of Tools: `find_tools` finds it; a larger `tool_tokens` binds more",
        ),
    ],
    ids=["messages", "no room", "tools"],
)
def test_what_is_left_out_is_told_with_how_to_get_it(changes, words):
    told = " ".join(example(**changes).to_text().split())

    assert f"Left out {words}" in told


def test_a_prompt_with_everything_leaves_nothing_out():
    assert "Left out" not in example(**covered(("verbatim", 3))).to_text()


# In a terminal


def printed(report, **options):
    console = Console(force_terminal=True, width=90, **options)
    with console.capture() as capture:
        console.print(report)
    return capture.get()


def test_a_terminal_shows_a_layer_in_its_colour():
    red, green, blue = bytes.fromhex(Layer.HISTORY.colour_on_dark[1:])

    assert f"38;2;{red};{green};{blue}m{FULL}" in printed(example(), color_system="truecolor")


def test_there_is_no_colour_where_none_is_wanted():
    assert "\x1b[3" not in printed(example(), color_system="truecolor", no_color=True)


def test_what_is_no_terminal_gets_the_plain_text():
    console = Console(width=90, force_terminal=False)
    with console.capture() as capture:
        console.print(example())

    assert capture.get().rstrip("\n") == example().to_text(90)


COLOURS = {f"L{number}": which.colour for number, which in enumerate(Layer)} | {
    f"own{number}": colour for number, colour in enumerate(CUSTOM_COLOURS)
}


@pytest.mark.parametrize("name", COLOURS)
def test_the_dashboard_has_the_same_colours(name):
    light = COLOURS[name]
    pair = f"light-dark({light}, {on_dark(light)})"

    assert f".layer-{name} {{ --layer: {pair}; }}" in stylesheet()


# A card in a notebook


@dataclass
class Card(HTMLParser):
    """What a card says: its elements and its texts."""

    html: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self):
        super().__init__(convert_charrefs=True)
        self.feed(self.html)
        self.close()
        assert not self.open, "every element ends"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, "elements are nested"

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    @property
    def names_of_elements(self):
        return {name for name, _ in self.elements}

    @property
    def attributes(self):
        """Names and values of all attributes."""
        pairs = []
        for _, attributes in self.elements:
            pairs += attributes.items()
        return pairs

    def used(self):
        """The tokens of layers and overhead, and those that are free, which come last."""
        return used_tokens("".join(self.texts))

    def items(self):
        """The texts of all lines behind the fold."""
        [fold] = re.findall("</summary>(.*)</details>", self.html, re.DOTALL)
        return [html.unescape(re.sub("<[^>]*>", "", line)) for line in fold.split("</div>")[:-1]]


def items_of(report):
    items = []
    for layer in report.layers:
        items += layer.items
    return items


def counts_of_more_omissions(report):
    counts = []
    for layer in report.layers:
        counts += layer.more_omitted.values()
    return counts


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
@given(reports())
def test_a_card_adds_up_and_has_nothing_that_acts_or_is_loaded(report):
    card = Card(render_html(report))

    *parts, free = card.used()
    assert sum(parts) == report.total_tokens
    assert sum(parts) + free == report.budget_tokens
    assert_every_item_is_listed(report, card.items())
    assert card.names_of_elements <= {"pre", "b", "span", "details", "summary", "div"}
    assert {name for name, _ in card.attributes} <= {"style", "title"}
    assert not any(name == "style" and "url(" in value for name, value in card.attributes)


def assert_every_item_is_listed(report, lines):
    item_lines = [line for line in lines if " more: " not in line]
    for item, line in zip(items_of(report), item_lines, strict=True):
        assert f" {STATUSES[item.status]} " in line
        assert f" {item.tokens:,} " in line

    counting_lines = [line for line in lines if " more: " in line]
    for count, line in zip(counts_of_more_omissions(report), counting_lines, strict=True):
        assert f"{count:,} more" in line


def test_a_layer_that_gives_back_tokens_has_an_empty_bar():
    card = Card(example(overhead_tokens={"framing": -500}, total_tokens=-495)._repr_html_())

    *_, framing, _ = card.used()
    assert framing == -500


# Hostile texts


HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;"
    "\x1b[2J\x9b\x00\x7f\u202e\u2028\ud800"
)


@pytest.fixture(scope="module")
def hostile_report():
    """A hostile text wherever a text may stand."""
    item = ReportItem(
        id=HOSTILE,
        tokens=5,
        status=Status.INCLUDED,
        reason=Reason.RELEVANT,
        preview=HOSTILE,
        source=HOSTILE,
    )
    layer = replace(example().layers[0], layer=HOSTILE, title=HOSTILE, items=(item,), used_tokens=5)
    return example(
        tokenizer=HOSTILE,
        allocation_strategy=HOSTILE,
        window_detail=HOSTILE,
        layers=(layer,),
        overhead_tokens={HOSTILE: 10},
        failures=(HOSTILE,),
        window_tokens=5,
        timings_ms={HOSTILE: 1.0},
    )


def test_hostile_texts_are_no_elements_of_a_card(hostile_report):
    card = Card(hostile_report._repr_html_())

    assert {"script", "img"}.isdisjoint(card.names_of_elements)


def test_hostile_texts_are_shown_as_they_are_written(hostile_report):
    card = Card(hostile_report._repr_html_())

    assert "<script>alert(1)</script>" in " ".join(card.texts)


def test_a_card_has_no_control_characters(hostile_report):
    assert not CONTROL_CHARACTERS.search(hostile_report._repr_html_())


def test_a_chart_has_no_control_characters(hostile_report):
    assert not CONTROL_CHARACTERS.search(hostile_report.to_text())


# In words


PRICES = ReportItem(
    id="call-1 + doc-1",
    tokens=41,
    status=Status.INCLUDED,
    reason=Reason.RELEVANT,
    preview="- Prices of labels",
    source="documents",
    scores={"lexical": 0.5, "dense": 1.75, "length": -2.0, "date": 0.0},
)


def report_with(item):
    """A report with one item, in the layer of retrieval."""
    layers = {layer.layer: layer for layer in example().layers}
    layers["L5"] = replace(layers["L5"], items=(item,))
    return example(layers=tuple(layers.values()))


def test_an_item_is_explained_with_its_reason():
    assert report_with(PRICES).explain("doc-1").splitlines() == [
        "call-1 + doc-1: Looked up, a document, sent, 41 tokens",
        "  relevant: found for the current message, and worth its tokens.",
        "  ranked by: length -2.00, dense +1.75, lexical +0.50",
        '  "- Prices of labels"',
    ]


def test_an_explanation_has_no_control_characters():
    hostile = replace(PRICES, id="<b>\x1b[2J")

    assert "\x1b" not in report_with(hostile).explain("<b>\x1b[2J")


@pytest.mark.parametrize(
    ("position", "line"),
    [
        (30, "message 30 of 40: summed up, as are messages 1-30"),
        (31, "message 31 of 40: looked up"),
    ],
)
def test_a_message_is_explained_by_where_it_stands(position, line):
    assert example().explain(position).splitlines()[0] == line


@pytest.mark.parametrize("unknown", [0, 41, "m2"])
def test_what_a_report_does_not_know_is_refused(unknown):
    with pytest.raises(InputError, match=f"knows no {unknown!r}: it has messages 1 to 40"):
        example().explain(unknown)
