"""Reports and replays as pictures."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.replay import ReplayResult, replay
from langchain_ctxbudget.report.plots import plot_replay, plot_turns, plot_what_if
from langchain_ctxbudget.settings import CustomLayer

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"


@pytest.fixture(scope="module")
def pipeline() -> Iterator[ContextPipeline]:
    layer = CustomLayer(name="open files", items=["lending.py: MAX_TOOLS = 5"], ideal_tokens=40)
    settings: dict[str, Any] = {"max_context_tokens": 1_200, "layers": [layer]}
    with ContextPipeline(settings, system_prompt="You know a tool library.") as made:
        history = [
            turn
            for number in range(60)
            for turn in (
                HumanMessage(f"Shelf {number} holds drills and saws."),
                AIMessage(f"Noted, shelf {number}."),
            )
        ]
        made.add_messages(history, user_id="maya", conversation_id="c")
        made.assemble("What does shelf 3 hold?", user_id="maya", conversation_id="c")
        yield made


@pytest.fixture(scope="module")
def reports(pipeline: ContextPipeline) -> list[ContextReport]:
    return pipeline.what_if([300, 1_200, 8_000])


@pytest.fixture(scope="module")
def replayed() -> ReplayResult:
    said = [
        part
        for number in range(12)
        for part in (
            HumanMessage(f"Who has drill {number}?", id=f"q{number}"),
            AIMessage("Me.", id=f"a{number}"),
        )
    ]
    return replay(said, ["recency", "full", "recency@60"], budget=120)


def texts(figure: Figure) -> list[str]:
    return [
        text.get_text()
        for text in figure.findobj(Text)
        if isinstance(text, Text) and text.get_text()
    ]


def test_columns_of_a_what_if_add_up_to_the_whole_budget(reports: list[ContextReport]) -> None:
    columns: dict[float, float] = {}
    for bar in plot_what_if(reports).axes[0].patches:
        columns[round(bar.get_x())] = columns.get(round(bar.get_x()), 0) + bar.get_height()
    assert list(columns.values()) == pytest.approx([1, 1, 1])


def test_columns_of_turns_add_up_to_what_was_sent(reports: list[ContextReport]) -> None:
    columns: dict[float, float] = {}
    for bar in plot_turns(reports).axes[0].patches:
        if isinstance(bar, Rectangle):
            columns[round(bar.get_x())] = columns.get(round(bar.get_x()), 0) + bar.get_height()
    assert list(columns.values()) == [report.total_tokens for report in reports]


def test_a_replay_has_what_every_strategy_sent_and_paid(replayed: ReplayResult) -> None:
    sent, paid = plot_replay(replayed).axes
    assert [list(line.get_ydata()) for line in sent.get_lines()] == [
        [turn.tokens for turn in track.turns] for track in replayed.tracks
    ]
    ends = [list(line.get_ydata())[-1] for line in paid.get_lines()]
    assert ends == pytest.approx([track.effective_tokens for track in replayed.tracks])


def test_any_name_is_drawn_as_it_is_written() -> None:
    layer = CustomLayer(name="cost $a$ and $b", items=["A note."], ideal_tokens=20)
    with ContextPipeline({"layers": [layer]}) as made:
        made.assemble("Hello", user_id="ada", conversation_id="c")
        figure = plot_what_if(made.what_if([200, 400]))
    assert figure._repr_png_()
    assert any("cost $a$" in text.replace("\\$", "$") for text in texts(figure))


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )


def test_without_matplotlib_the_error_says_what_to_install() -> None:
    done = python(
        "import sys; sys.modules['matplotlib'] = None; import langchain_ctxbudget.report.plots"
    )
    assert (
        "ImportError: Plots need matplotlib: pip install 'langchain-ctxbudget[plots]'"
        in done.stderr
    )


def test_the_pages_show_every_figure() -> None:
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = re.findall(
        r"figures/([\w]+\.svg)\)", "".join(path.read_text(encoding="utf-8") for path in paths)
    )
    assert set(shown) == {path.name for path in FIGURES.glob("*.svg")}
