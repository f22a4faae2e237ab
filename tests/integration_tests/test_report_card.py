"""The card of a report where people see it.

In JupyterLab, with its own style sheets, and on other pages.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.demo import DEMO_QUESTION, demo_messages
from langchain_ctxbudget.report.chart import parts_of
from tests.integration_tests.test_dashboard_page import CONTRAST

pytestmark = pytest.mark.slow

STYLES = Path(__file__).parents[1] / "data" / "jupyterlab"
OUTPUT = "jp-RenderedHTMLCommon jp-RenderedHTML jp-mod-trusted jp-OutputArea-output"


def jupyterlab(theme: str) -> str:
    """The beginning of a page of JupyterLab, up to where a card is shown."""
    colours = (STYLES / f"{theme}.css").read_text(encoding="utf-8")
    outputs = (STYLES / "rendermime.css").read_text(encoding="utf-8")
    return (
        f"<style>{colours}{outputs}</style>"
        "<body class='jp-ThemedContainer' style='background: var(--jp-layout-color0)'>"
        f"<div class='{OUTPUT}'>"
    )


PAGES = {
    "JupyterLab, light": jupyterlab("light"),
    "JupyterLab, dark": jupyterlab("dark"),
    # VS Code and Colab set a colour, a ground and a font, and nothing for what is preformatted.
    "VS Code, light": "<body style='background: #ffffff; color: #3b3b3b; font: 13px system-ui'>",
    "VS Code, dark": "<body style='background: #1f1f1f; color: #cccccc; font: 13px system-ui'>",
    "Colab, light": "<body style='background: #ffffff; color: #212121; font: 14px Roboto'>",
    "Colab, dark": "<body style='background: #383838; color: #d5d5d5; font: 14px Roboto'>",
}


@pytest.fixture(scope="module")
def report() -> ContextReport:
    with ContextPipeline({"max_context_tokens": 2_000, "learn": False}) as pipeline:
        chat = pipeline.conversation("tools", user_id="maya")
        chat.add(demo_messages())
        return chat.assemble(DEMO_QUESTION).report


@pytest.fixture(scope="module")
def card(report: ContextReport) -> str:
    return report._repr_html_()


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, browser: Browser, card: str) -> Iterator[Page]:
    """A page with the card, which is open."""
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<!doctype html>{PAGES[request.param]}{card}")
    page.locator("summary").click()
    yield page
    page.close()


def numbers_of(page: Page, selector: str, property_of_node: str) -> list[int]:
    """A property of every node that a selector finds."""
    numbers: list[int] = page.locator(selector).evaluate_all(
        f"nodes => nodes.map((node) => node.{property_of_node})"
    )
    return numbers


def test_no_line_is_broken(page: Page) -> None:
    assert set(numbers_of(page, "pre > span", "getClientRects().length")) == {1}


def test_columns_stand_below_each_other(page: Page) -> None:
    assert len(set(numbers_of(page, "pre > span", "offsetLeft"))) == 1


def test_all_lines_are_equally_high(page: Page) -> None:
    heights = numbers_of(page, "details div", "offsetHeight")
    assert len(heights) > 50
    assert len(set(heights)) == 1


def test_a_long_line_scrolls_in_the_card(page: Page) -> None:
    """And not the page, which is 900 pixels wide."""
    assert page.evaluate("document.documentElement.scrollWidth") <= 900


def test_every_part_of_a_prompt_has_a_bar_in_colour(page: Page, report: ContextReport) -> None:
    parts = [part for part in parts_of(report) if part.tokens]
    assert page.locator("pre > span").count() >= len(parts) > 3


def test_every_bar_is_seen_on_its_ground(page: Page) -> None:
    assert page.evaluate(CONTRAST.replace("contrast < 4.5", "contrast < 2.4")) == []


@pytest.fixture
def page_without_bars(page: Page) -> Iterator[Page]:
    whole = page.locator("body").inner_html()
    page.locator("pre span").evaluate_all(
        "nodes => nodes.forEach((node) => node.replaceChildren())"
    )
    yield page
    page.locator("body").evaluate("(body, whole) => { body.innerHTML = whole; }", whole)


def test_it_can_be_read(page_without_bars: Page) -> None:
    assert page_without_bars.evaluate(CONTRAST) == []
