"""A layer that is one class in the list of layers takes part in everything."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Fragment, LayerSpec, Reason, Status
from langchain_ctxbudget.dashboard import create_app
from langchain_ctxbudget.dashboard.service import DashboardService
from langchain_ctxbudget.layers import LAYERS, ListedLayer, PromptLayer, Rung, Staying, View
from langchain_ctxbudget.prompt import Content
from langchain_ctxbudget.prompt.fitting import reduce
from langchain_ctxbudget.report.colours import CUSTOM_COLOURS, LAYER_COLOURS
from langchain_ctxbudget.tokens import TiktokenCounter
from tests.integration_tests.test_dashboard_page import Visitor, as_rgb, served, visit

__all__ = ["visit"]

ADA = {"user_id": "ada", "conversation_id": "sea"}
SHORT = "High tide is at noon."
LONG = "Low tide is at six. " * 20


class TidesLayer(ListedLayer):
    """When the sea is high, and when it is low."""

    name = "tides"
    title = "Tides"
    section = "## Tides\n"
    spec = LayerSpec("tides", min_tokens=5, ideal_tokens=60, max_tokens=60, priority=80)

    def texts(self, _view: View) -> Sequence[str]:
        return [SHORT, LONG]

    def staying(self, rung: Rung) -> Sequence[Staying]:
        return [Staying(number=1)] if rung is Rung.MEDIUM else ()


@pytest.fixture
def tides() -> Iterator[PromptLayer]:
    layer = TidesLayer()
    LAYERS.append(layer)
    yield layer
    LAYERS.remove(layer)


def assembled(allocation: object = "elastic", budget: int = 2_000) -> AssembledContext:
    settings: dict[str, Any] = {
        "max_context_tokens": budget,
        "allocation": allocation,
        "learn": False,
    }
    with ContextPipeline(settings, system_prompt="You know the sea.") as pipeline:
        pipeline.add_messages([HumanMessage("I live by the sea.")], **ADA)
        return pipeline.assemble("When may I swim?", **ADA)


@pytest.fixture
def report(tides: PromptLayer) -> ContextReport:
    return assembled().report


@pytest.mark.parametrize("strategy", ["elastic", "ratio", "fixed", "dynamic", "prioritized"])
def test_every_strategy_gives_it_tokens(tides: PromptLayer, strategy: str) -> None:
    layer = assembled(strategy).report.layer("tides")

    assert layer.allocated_tokens >= 5


def test_its_items_stand_in_front_of_the_users_words(tides: PromptLayer) -> None:
    message = assembled().messages[-1].text

    before, _, words = message.rpartition("</context>\n\n")
    assert f"## Tides\n- {SHORT}\n" in before
    assert words == "When may I swim?"


def test_what_does_not_fit_its_grant_is_shrunk(report: ContextReport) -> None:
    whole, shrunk = report.layer("tides").items

    assert (whole.status, whole.reason) == (Status.INCLUDED, Reason.CONFIGURED)
    assert (shrunk.status, shrunk.reason) == (Status.SHRUNK, Reason.CLIPPED)
    assert report.layer("tides").used_tokens <= 60


def test_it_stands_in_the_report_under_its_title(report: ContextReport) -> None:
    assert [layer.title for layer in report.layers][-2:] == ["Tools", "Tides"]
    assert report.explain("tides 1") == (
        f"tides 1: tides, sent, {report.layer('tides').items[0].tokens} tokens\n"
        f"  configured: {Reason.CONFIGURED.meaning}.\n"
        f'  "- {SHORT}"'
    )


def test_the_numbers_still_add_up(report: ContextReport) -> None:
    used = sum(layer.used_tokens for layer in report.layers)

    assert used + sum(report.overhead_tokens.values()) == report.total_tokens


def test_a_report_has_a_colour_for_it(report: ContextReport) -> None:
    assert f"color-mix(in srgb,{CUSTOM_COLOURS[0]} 62%,currentColor)" in report._repr_html_()
    assert CUSTOM_COLOURS[0] not in LAYER_COLOURS.values()


async def test_the_dashboard_shows_its_items_as_its_own(tides: PromptLayer) -> None:
    with ContextPipeline({"learn": False}) as pipeline:
        pipeline.add_messages([HumanMessage("I live by the sea.")], **ADA)
        status = await DashboardService(pipeline).preview("ada", "sea", message="May I swim?")

    parts = [part for part in status["prompt"][-1]["parts"] if part["layer"] == "tides"]
    assert [part["item"] for part in parts if part["item"]] == ["tides 1", "tides 2"]


BACKGROUND = "swatch => getComputedStyle(swatch).backgroundColor"


@pytest.mark.slow
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_the_page_has_a_colour_for_it(tides: PromptLayer, visit: Visitor) -> None:
    with ContextPipeline({"learn": False}) as pipeline:
        pipeline.add_messages([HumanMessage("I live by the sea.")], **ADA)
        with served(create_app(pipeline, user_id="ada")) as url:
            page = visit(color_scheme="light").opens(url, "sea")
            swatch = page.locator("#legend [data-layer=tides] .swatch")

            assert swatch.evaluate(BACKGROUND) == as_rgb(CUSTOM_COLOURS[0])


def test_what_has_no_room_is_left_out_with_its_reason(tides: PromptLayer) -> None:
    items = assembled(budget=45).report.layer("tides").items

    outcomes = {(item.status, item.reason) for item in items}
    assert outcomes == {(Status.OMITTED, Reason.NO_ROOM)}


def test_a_rung_of_the_last_resort_takes_what_the_layer_says(tides: PromptLayer) -> None:
    counter = TiktokenCounter()
    items = tuple(
        Fragment(
            layer="tides",
            id=f"tides {place}",
            text=f"- {place}\n",
            tokens=4,
            reason=Reason.CONFIGURED,
            value=-place,
        )
        for place in range(3)
    )

    smaller, rungs, gone = reduce(Content(fragments=items), counter, lambda _: 100)

    assert smaller.fragments == items[:1]
    assert gone == items[1:]
    assert rungs == ("medium",)


def test_another_pipeline_knows_nothing_of_it() -> None:
    report = assembled().report

    with pytest.raises(ValueError, match="no layer 'tides' in this report"):
        report.layer("tides")
