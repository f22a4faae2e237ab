"""A report as people see it: a chart in a terminal, a card in a notebook, and in words."""

import html
import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.report import ReportItem
from langchain_ctxbudget.report.chart import EMPTY, FULL, render_chart, render_html
from tests.unit_tests.test_report import example, reports

ROW = re.compile(
    rf"^(?P<label>[^{FULL}{EMPTY}]+)(?P<bar>[{FULL}{EMPTY}]+) "
    r"+(?P<used>-?[\d,]+)(?: +-?[\d.]+%)?(?: +(?P<given>[\d,]+))?$"
)
CONTROL_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]")


def rows(text):
    """The rows of a chart that have a bar."""
    matches = map(ROW.match, text.splitlines())
    return [match for match in matches if match]


def used_tokens(text):
    """The used tokens of layers and overhead, and of the total, which comes last."""
    return [int(row["used"].replace(",", "")) for row in rows(text)]


# A chart in a terminal


@settings(deadline=None, max_examples=15)
@given(reports(), st.integers(56, 140))
def test_a_chart_adds_up_to_its_total_within_its_columns(report, width):
    chart = render_chart(report, width)

    *parts, total = used_tokens(chart)
    assert sum(parts) == report.total_tokens
    assert total == report.total_tokens
    ends_of_numbers = {row.end("used") for row in rows(chart)}
    assert len(ends_of_numbers) == 1, "numbers stand below each other"
    assert max(map(cell_len, chart.split("\n"))) <= width


WINDOW = {
    "window_tokens": 8_000,
    "window_source": "served",
    "window_detail": "vLLM",
    "output_reserve_tokens": 5,
}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "History    full: 40 messages: 1 retrieved, 39 behind the summary"),
        ({}, "Stable     5 tokens in the stable zone; first prompt of this conversation"),
        (
            {"count_mode": "estimated"},
            "Counted    estimated, with a margin (o200k_base), 1 new text",
        ),
        (WINDOW, "Window     8,000 tokens (vLLM), 5 tokens kept free for the answer"),
        (
            {"forecast": True},
            "CONTEXT BUDGET (forecast)                                           1,000 tokens",
        ),
        (
            {"timings_ms": {"open": 1.0, "assemble": 2.5}},
            "Time       3.5 ms (open 1.0, assemble 2.5)",
        ),
    ],
    ids=["history", "stable zone", "counting", "window", "forecast", "time"],
)
def test_the_chart_says_what_happened(changes, line):
    assert line in render_chart(example(**changes), 80).splitlines()


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
        """The used tokens of layers and overhead, and of the total, which comes last."""
        chart, _, _ = "".join(self.texts).partition("\n\n")
        return used_tokens(chart)

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


@settings(deadline=None, max_examples=15)
@given(reports())
def test_a_card_adds_up_and_has_nothing_that_acts_or_is_loaded(report):
    card = Card(render_html(report))

    *parts, total = card.used()
    assert sum(parts) == report.total_tokens
    assert total == report.total_tokens
    assert_every_item_is_listed(report, card.items())
    assert card.names_of_elements <= {"pre", "span", "details", "summary", "div"}
    assert {name for name, _ in card.attributes} <= {"style", "title"}
    assert not any(name == "style" and "url(" in value for name, value in card.attributes)


def assert_every_item_is_listed(report, lines):
    item_lines = [line for line in lines if " more: " not in line]
    for item, line in zip(items_of(report), item_lines, strict=True):
        assert item.status in line
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
    assert not CONTROL_CHARACTERS.search(render_chart(hostile_report, 80))


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
        "call-1 + doc-1: L5 Retrieval, documents, included, 41 tokens",
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
        (30, "message 30 of 40: behind the summary, as are messages 1-30"),
        (31, "message 31 of 40: retrieved"),
    ],
)
def test_a_message_is_explained_by_where_it_stands(position, line):
    assert example().explain(position).splitlines()[0] == line


@pytest.mark.parametrize("unknown", [0, 41, "m2"])
def test_what_a_report_does_not_know_is_refused(unknown):
    with pytest.raises(InputError, match=f"knows no {unknown!r}: it has messages 1 to 40"):
        example().explain(unknown)
