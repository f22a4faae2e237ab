"""The cards of reports as JupyterLab shows them, in a real browser: its styles for tables do not reach them."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.demo import DEMO_QUESTION, DEMO_SYSTEM_PROMPT, demo_messages

pytestmark = [pytest.mark.slow, pytest.mark.allow_hosts(["127.0.0.1"])]

JUPYTERLAB = """
body { margin: 0; background: %s }
.jp-RenderedHTMLCommon { color: %s; font: 14px/1.6 sans-serif; padding-right: 20px }
.jp-RenderedHTMLCommon table { table-layout: fixed; border: none; border-collapse: collapse; border-spacing: 0;
  margin-left: auto; margin-right: auto; margin-bottom: 1em; color: inherit; font-size: 13px }
.jp-RenderedHTMLCommon thead { border-bottom: 1px solid gray; vertical-align: bottom }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr { vertical-align: middle;
  padding: 0.5em; line-height: normal; white-space: normal; max-width: none; border: none }
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon td, :not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon th,
:not(.jp-RenderedMarkdown).jp-RenderedHTMLCommon tr { text-align: right }
.jp-RenderedHTMLCommon th { font-weight: bold }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: #888 }
.jp-RenderedHTMLCommon tbody tr:nth-child(even) { background: #ccc }
.jp-OutputArea-output.jp-RenderedHTMLCommon table { margin-left: 0; margin-right: 0 }
"""
"""What JupyterLab 4 says of tables in outputs, in short."""
COLOURS = {"light": ("white", "black"), "dark": ("#111", "white")}
FAULTS = """() => {
  const faults = [], cards = document.querySelector("#output");
  for (const row of cards.querySelectorAll("tr")) {
    const texts = [];
    for (const cell of row.cells) {
      const range = document.createRange();
      range.selectNodeContents(cell);
      const said = range.getBoundingClientRect(), box = cell.getBoundingClientRect();
      if (!cell.textContent) continue;
      if (said.left < box.left - 1 || said.right > box.right + 1) faults.push("clipped: " + cell.textContent);
      texts.push([said.left, said.right, cell.textContent]);
    }
    for (let i = 1; i < texts.length; i++)
      if (texts[i][0] < texts[i - 1][1]) faults.push(texts[i - 1][2] + " over " + texts[i][2]);
    if (getComputedStyle(row).backgroundColor !== "rgba(0, 0, 0, 0)") faults.push("striped: " + row.textContent);
  }
  for (const part of cards.querySelectorAll("div"))
    if (part.scrollWidth > part.clientWidth + 1) faults.push("too wide: " + part.textContent.slice(0, 40));
  return faults;
}"""


@pytest.fixture(scope="module")
def cards() -> str:
    """A report with everything in it, what changed in it, and what became of a message."""
    where = {"user_id": "maya", "conversation_id": "tools"}
    with ContextPipeline(
        {"max_context_tokens": 3_000, "usage_limits": {"month_tokens": 2_000_000}}, system_prompt=DEMO_SYSTEM_PROMPT
    ) as pipeline:
        offer = "Steel labels with a QR code: 0.62 pounds each."
        KnowledgeBase(pipeline.store, user_id="maya").add(offer, metadata={"source": "label-offer.md"})
        pipeline.add_messages(demo_messages(), **where)
        first = pipeline.assemble("Hello", **where).report
        report = pipeline.assemble(DEMO_QUESTION, **where).report
        shown = (report, report.diff(first), report.explain(1))
        return "<hr>".join(card._repr_html_() for card in shown).replace("<details>", "<details open>")


@pytest.mark.parametrize("theme", COLOURS)
@pytest.mark.parametrize("width", [500, 1_200])
def test_no_text_of_a_card_is_printed_over_another_or_cut(cards: str, browser: Browser, theme: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_content(
        f"<style>{JUPYTERLAB % COLOURS[theme]}</style>"
        f'<div id="output" class="jp-RenderedHTMLCommon jp-RenderedHTML jp-OutputArea-output">{cards}</div>'
    )
    rows = page.locator("tr").count()
    assert rows > 50
    assert page.evaluate(FAULTS) == []
    page.close()
