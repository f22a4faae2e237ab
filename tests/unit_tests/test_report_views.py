"""A report as people see it: a chart in a terminal, a card in a notebook."""

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


def rows(text):
    return [match for line in text.splitlines() if (match := ROW.match(line))]


@settings(deadline=None, max_examples=40)
@given(reports(), st.integers(56, 140))
def test_a_chart_adds_up_to_its_total_within_its_columns_with_numbers_below_each_other(
    report, width
):
    drawn = render_chart(report, width)
    chart = rows(drawn)
    *parts, total = (int(row["used"].replace(",", "")) for row in chart)
    assert sum(parts) == total == report.total_tokens
    assert len({row.end("used") for row in chart}) == 1
    assert max(map(cell_len, drawn.split("\n"))) <= width


def test_the_chart_says_what_happened():
    window = {
        "window_tokens": 8_000,
        "window_source": "served",
        "window_detail": "vLLM",
        "output_reserve_tokens": 5,
    }
    for changes, line in [
        ({}, "History    full: 40 messages: 1 retrieved, 39 behind the summary"),
        ({}, "Stable     5 tokens in the stable zone; first prompt of this conversation"),
        (
            {"count_mode": "estimated"},
            "Counted    estimated, with a margin (o200k_base), 1 new text",
        ),
        (window, "Window     8,000 tokens (vLLM), 5 tokens kept free for the answer"),
        ({"forecast": True}, f"{'CONTEXT BUDGET (forecast)':<53}{'1,000 tokens':>27}"),
        (
            {"timings_ms": {"open": 1.0, "assemble": 2.5}},
            "Time       3.5 ms (open 1.0, assemble 2.5)",
        ),
    ]:
        assert line in render_chart(example(**changes), 80).splitlines()


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

    def used(self):
        """The used tokens of layers and overhead, and of the total, which comes last."""
        return [number(row["used"]) for row in rows("".join(self.texts).partition("\n\n")[0])]

    def items(self):
        """The texts of all lines behind the fold."""
        [fold] = re.findall("</summary>(.*)</details>", self.html, re.DOTALL)
        return [html.unescape(re.sub("<[^>]*>", "", line)) for line in fold.split("</div>")[:-1]]


def number(text):
    return int(text.replace(",", ""))


@settings(deadline=None, max_examples=40)
@given(reports())
def test_a_card_lists_every_item_with_numbers_that_add_up_and_has_nothing_that_acts_or_is_loaded(
    report,
):
    card = Card(render_html(report))
    *parts, total = card.used()
    assert sum(parts) == total == report.total_tokens
    items = [item for part in report.layers for item in part.items]
    more = [f"{n:,} more" for part in report.layers for n in part.more_omitted.values()]
    lines = card.items()
    assert len(lines) == len(items) + len(more)
    listed = [line for line in lines if " more: " not in line]
    assert all(
        item.status in line and f" {item.tokens:,} " in line
        for item, line in zip(items, listed, strict=True)
    )
    assert all(
        said in line
        for said, line in zip(more, (line for line in lines if " more: " in line), strict=True)
    )
    assert {name for name, _ in card.elements} <= {"pre", "span", "details", "summary", "div"}
    assert {name for _, attributes in card.elements for name in attributes} <= {"style", "title"}
    assert not any("url(" in attributes.get("style", "") for _, attributes in card.elements)


def test_hostile_texts_are_shown_as_they_are_written():
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\x1b[2J\x9b\x00\x7f\u202e\u2028\ud800"
    item = ReportItem(
        id=hostile,
        tokens=5,
        status=Status.INCLUDED,
        reason=Reason.RELEVANT,
        preview=hostile,
        source=hostile,
    )
    own = replace(example().layers[0], layer=hostile, title=hostile, items=(item,), used_tokens=5)
    report = example(
        **dict.fromkeys(("tokenizer", "allocation_strategy", "window_detail"), hostile),
        layers=(own,),
        overhead_tokens={hostile: 10},
        failures=(hostile,),
        window_tokens=5,
        timings_ms={hostile: 1.0},
    )
    card = Card(report._repr_html_())
    assert not {"script", "img"} & {name for name, _ in card.elements}
    assert "<script>alert(1)</script>" in " ".join(card.texts)
    for drawn in (card.html, render_chart(report, 80)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", drawn)


def test_a_layer_that_gives_back_tokens_has_an_empty_bar():
    card = example(overhead_tokens={"framing": -500}, total_tokens=-495)._repr_html_()
    assert Card(card).used()[-2] == -500


# In words


def one_item(**changes):
    quote = ReportItem(
        id="call-1 + doc-1",
        tokens=41,
        status=Status.INCLUDED,
        reason=Reason.RELEVANT,
        preview="- Prices of labels",
        source="documents",
        scores={"lexical": 0.5, "dense": 1.75, "length": -2.0, "date": 0.0},
    )
    items = (replace(quote, **changes),)
    return example(
        layers=tuple(
            replace(part, items=items) if part.layer == "L5" else part for part in example().layers
        )
    )


def test_an_item_and_a_message_are_explained_with_their_reason():
    assert one_item().explain("doc-1").splitlines() == [
        "call-1 + doc-1: L5 Retrieval, documents, included, 41 tokens",
        "  relevant: found for the current message, and worth its tokens.",
        "  ranked by: length -2.00, dense +1.75, lexical +0.50",
        '  "- Prices of labels"',
    ]
    assert "\x1b" not in one_item(id="<b>\x1b[2J").explain("<b>\x1b[2J")
    for position, line in [
        (30, "message 30 of 40: behind the summary, as are messages 1-30"),
        (31, "message 31 of 40: retrieved"),
    ]:
        assert example().explain(position).splitlines()[0] == line
    for unknown in (0, 41, "m2"):
        with pytest.raises(InputError, match=f"knows no {unknown!r}: it has messages 1 to 40"):
            example().explain(unknown)
