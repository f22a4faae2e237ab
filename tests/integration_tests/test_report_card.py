"""The card of a report where people see it.

In JupyterLab, with its own style sheets, and on other pages.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.demo import DEMO_QUESTION, demo_messages
from langchain_ctxbudget.report.colours import LAYER_COLOURS
from tests.integration_tests.test_dashboard_page import CONTRAST

pytestmark = pytest.mark.slow

STYLES = Path(__file__).parents[1] / "data" / "jupyterlab"
OUTPUT = "jp-RenderedHTMLCommon jp-RenderedHTML jp-mod-trusted jp-OutputArea-output"


def jupyterlab(theme: str) -> str:
    styles = "".join(
        (STYLES / f"{name}.css").read_text(encoding="utf-8") for name in (theme, "rendermime")
    )
    ground = "background: var(--jp-layout-color0)"
    return f"<style>{styles}</style><body class='jp-ThemedContainer' style='{ground}'><div class='{OUTPUT}'>"


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
def card() -> str:
    with ContextPipeline({"max_context_tokens": 2_000, "learn": False}) as pipeline:
        chat = pipeline.conversation("tools", user_id="maya")
        chat.add(demo_messages())
        return chat.assemble(DEMO_QUESTION).report._repr_html_()


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, browser: Browser, card: str) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<!doctype html>{PAGES[request.param]}{card}")
    page.locator("summary").click()
    yield page
    page.close()


def test_no_line_is_broken_and_columns_stand_below_each_other(page: Page) -> None:
    tops = page.locator("pre > span").evaluate_all(
        "nodes => nodes.map((node) => node.getClientRects().length)"
    )
    assert set(tops) == {1}
    assert (
        len(
            set(
                page.locator("pre > span").evaluate_all(
                    "nodes => nodes.map((node) => node.offsetLeft)"
                )
            )
        )
        == 1
    )
    heights = page.locator("details div").evaluate_all(
        "nodes => nodes.map((node) => node.offsetHeight)"
    )
    assert len(heights) > 50
    assert len(set(heights)) == 1
    assert (
        page.evaluate("document.documentElement.scrollWidth") <= 900
    )  # a long line scrolls in the card


def test_it_can_be_read(page: Page) -> None:
    page.locator("pre span").evaluate_all(
        "nodes => nodes.forEach((node) => node.replaceChildren())"
    )
    assert page.evaluate(CONTRAST) == []


def test_every_bar_is_seen_on_its_ground(page: Page) -> None:
    assert page.locator("pre > span").count() > len(LAYER_COLOURS)
    assert page.evaluate(CONTRAST.replace("contrast < 4.5", "contrast < 2.4")) == []
