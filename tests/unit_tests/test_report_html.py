"""The card of a report in a notebook: nothing in it acts, and a program reads its numbers back."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from hypothesis import given, settings

from langchain_ctxbudget.budget.layers import Reason, Status
from langchain_ctxbudget.report.html import MOST_CELLS, render_html
from langchain_ctxbudget.report.palette import STATES
from langchain_ctxbudget.report.report import ContextReport, CoverageRange, ReportItem
from tests.unit_tests.test_report import example, reports

everything = settings(deadline=None, max_examples=40)


@dataclass
class Card(HTMLParser):
    """What a program reads in a card."""

    html: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.html)
        self.close()
        assert not self.open, "every element ends"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "elements are nested"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def having(self, name: str) -> list[dict[str, str]]:
        """The attributes of the elements with this one."""
        return [attributes for _, attributes in self.elements if name in attributes]

    def layers(self) -> dict[str, tuple[int, int, int]]:
        """Items, overhead and what was used, by layer; in tokens."""
        items: Counter[str] = Counter()
        for item in self.having("data-item"):
            if item["data-status"] != "omitted":
                items[item["data-item-layer"]] += int(item["data-tokens"])
        return {
            row["data-layer"]: (
                items[row["data-layer"]],
                int(row["data-layer-overhead-tokens"]),
                int(row["data-used-tokens"]),
            )
            for row in self.having("data-layer")
        }

    def overhead(self) -> dict[str, int]:
        """What no layer owns."""
        return {row["data-overhead"]: int(row["data-used-tokens"]) for row in self.having("data-overhead")}

    def total(self) -> int:
        """Of the whole prompt."""
        [row] = self.having("data-total")
        return int(row["data-total"])


@everything
@given(reports())
def test_its_numbers_add_up(report: ContextReport) -> None:
    card = Card(render_html(report.to_dict()))
    assert all(items + overhead == used for items, overhead, used in card.layers().values())
    assert sum(used for _, _, used in card.layers().values()) + sum(card.overhead().values()) == card.total()
    assert card.total() == report.total_tokens


@everything
@given(reports())
def test_every_item_is_listed(report: ContextReport) -> None:
    card = Card(render_html(report.to_dict()))
    assert len(card.having("data-item")) == sum(len(part.items) for part in report.layers)
    more = sum(int(row["data-more"]) for row in card.having("data-more"))
    assert more == sum(sum(part.more_omitted.values()) for part in report.layers)


@everything
@given(reports())
def test_it_has_nothing_that_acts_or_is_loaded(report: ContextReport) -> None:
    card = Card(render_html(report.to_dict()))
    assert {name for name, _ in card.elements} <= {
        *("div", "b", "span", "table", "thead", "tbody", "tr", "th", "td", "details", "summary")
    }
    allowed = re.compile("style|title|colspan|data-[a-z-]+")
    names = {name for _, attributes in card.elements for name in attributes}
    assert all(allowed.fullmatch(name) for name in names)
    assert not any("url(" in attributes.get("style", "") for _, attributes in card.elements)


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;\x1b[2J\x00\u202e"


def hostile_report() -> ContextReport:
    item = ReportItem(
        id=HOSTILE, tokens=5, status=Status.INCLUDED, reason=Reason.RELEVANT, preview=HOSTILE, source=HOSTILE
    )
    own = replace(example().layers[0], layer=HOSTILE, title=HOSTILE, items=(item,), used_tokens=5)
    return example(
        layers=(own,),
        overhead_tokens={HOSTILE: 10},
        failures=(HOSTILE,),
        tokenizer=HOSTILE,
        allocation_strategy=HOSTILE,
        window_tokens=5,
        window_detail=HOSTILE,
        timings_ms={HOSTILE: 1.0},
        user_id=HOSTILE,
    )


def test_hostile_texts_are_shown_as_they_are_written() -> None:
    card = Card(hostile_report()._repr_html_())
    assert not {"script", "img"} & {name for name, _ in card.elements}
    assert "<script>alert(1)</script>" in card.text
    assert not re.search("[\x00-\x08\x1b\u202e]", card.html)


def test_a_hundred_thousand_messages_in_as_many_ranges_are_a_strip_of_few_cells() -> None:
    states = list(STATES)
    ranges = tuple(CoverageRange(first=n, last=n, state=states[n % 4]) for n in range(1, 100_001))  # type: ignore[arg-type]
    card = Card(example(coverage=ranges)._repr_html_())
    cells = card.having("data-first")
    assert len(cells) == MOST_CELLS
    assert {state: sum(int(cell[f"data-{state}"]) for cell in cells) for state in states} == dict.fromkeys(
        states, 25_000
    )
    assert cells[0]["title"] == ("messages 1-500: 125 verbatim, 125 retrieved, 125 behind the summary, 125 left out")
    assert len(card.html) < 200_000


def test_failures_and_repairs_are_told() -> None:
    card = Card(example(failures=("embeddings: gone",), last_resort=("light",))._repr_html_())
    assert {row["data-fact"] for row in card.having("data-fact")} >= {"Failed", "Squeezed", "History", "Stable"}
    assert "embeddings: gone" in card.text


def test_a_layer_that_gives_back_tokens_has_an_empty_bar() -> None:
    report = example(overhead_tokens={"framing": -500}, total_tokens=-495)
    assert Card(report._repr_html_()).overhead() == {"framing": -500}
    assert "flex:-" not in report._repr_html_()
    assert "width:-" not in report._repr_html_()
