"""Reports and replays as pictures."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.replay import ReplayResult, replay
from langchain_ctxbudget.report.plots import plot_replay, plot_turns, plot_what_if
from langchain_ctxbudget.settings import CustomLayer

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"


def exchange(question: str, answer: str) -> list[BaseMessage]:
    return [HumanMessage(question), AIMessage(answer)]


@pytest.fixture(scope="module")
def pipeline() -> Iterator[ContextPipeline]:
    """A pipeline with a layer of the application's own, in the middle of a long conversation."""
    layer = CustomLayer(name="open files", items=["lending.py: MAX_TOOLS = 5"], ideal_tokens=40)
    settings: dict[str, Any] = {"max_context_tokens": 1_200, "layers": [layer]}
    history: list[BaseMessage] = []
    for number in range(60):
        question = f"Shelf {number} holds drills and saws."
        history += exchange(question, f"Noted, shelf {number}.")

    with ContextPipeline(settings, system_prompt="You know a tool library.") as pipeline:
        pipeline.add_messages(history, user_id="maya", conversation_id="c")
        pipeline.assemble("What does shelf 3 hold?", user_id="maya", conversation_id="c")
        yield pipeline


@pytest.fixture(scope="module")
def reports(pipeline: ContextPipeline) -> list[ContextReport]:
    return pipeline.what_if([300, 1_200, 8_000])


@pytest.fixture(scope="module")
def replayed() -> ReplayResult:
    messages: list[BaseMessage] = []
    for number in range(12):
        messages.append(HumanMessage(f"Who has drill {number}?", id=f"q{number}"))
        messages.append(AIMessage("Me.", id=f"a{number}"))
    return replay(messages, ["recency", "full", "recency@60"], budget=120)


def drawn_texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def heights_of_columns(figure: Figure) -> list[float]:
    """The heights of the bars that stand on each other, from left to right as they were drawn."""
    columns: dict[float, float] = {}
    for bar in figure.axes[0].patches:
        if isinstance(bar, Rectangle):
            place = round(bar.get_x())
            columns[place] = columns.get(place, 0) + bar.get_height()
    return list(columns.values())


def values_of(line: Line2D) -> list[float]:
    return list(line.get_ydata())


def test_columns_of_a_what_if_add_up_to_the_whole_budget(reports: list[ContextReport]) -> None:
    assert heights_of_columns(plot_what_if(reports)) == pytest.approx([1, 1, 1])


def test_columns_of_turns_add_up_to_what_was_sent(reports: list[ContextReport]) -> None:
    sent = [report.total_tokens for report in reports]

    assert heights_of_columns(plot_turns(reports)) == sent


@pytest.fixture(scope="module")
def plot_of_replay(replayed: ReplayResult) -> Figure:
    return plot_replay(replayed)


def test_a_replay_shows_what_every_strategy_sent(
    replayed: ReplayResult, plot_of_replay: Figure
) -> None:
    sent, _ = plot_of_replay.axes

    for line, track in zip(sent.get_lines(), replayed.tracks, strict=True):
        assert values_of(line) == [turn.tokens for turn in track.turns]


def test_a_replay_shows_what_every_strategy_paid(
    replayed: ReplayResult, plot_of_replay: Figure
) -> None:
    _, paid = plot_of_replay.axes

    ends = [values_of(line)[-1] for line in paid.get_lines()]
    assert ends == pytest.approx([track.effective_tokens for track in replayed.tracks])


@pytest.fixture
def figure_with_dollars() -> Figure:
    """A layer's name would be a formula."""
    layer = CustomLayer(name="cost $a$ and $b", items=["A note."], ideal_tokens=20)
    with ContextPipeline({"layers": [layer]}) as pipeline:
        pipeline.assemble("Hello", user_id="ada", conversation_id="c")
        return plot_what_if(pipeline.what_if([200, 400]))


def test_any_name_is_drawn_as_it_is_written(figure_with_dollars: Figure) -> None:
    assert figure_with_dollars._repr_png_()
    texts = [text.replace("\\$", "$") for text in drawn_texts(figure_with_dollars)]
    assert any("cost $a$" in text for text in texts)


def test_without_matplotlib_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; import langchain_ctxbudget.report.plots"

    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )

    message = f"ImportError: Plots need matplotlib: {install_command('plots')}"
    assert message in process.stderr


def test_the_pages_show_every_figure() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)

    shown = set(re.findall(r"figures/([\w]+\.svg)\)", text))

    assert shown == {path.name for path in FIGURES.glob("*.svg")}
