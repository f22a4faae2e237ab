"""Reports and allocations as pictures."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.text import Text

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.core.allocation import (
    AllocationStrategy,
    DynamicAllocation,
    ElasticAllocation,
    FixedAllocation,
    LayerSpec,
    PrioritizedAllocation,
    RatioAllocation,
    Situation,
)
from langchain_ctxbudget.core.layers import TITLES
from langchain_ctxbudget.core.report import CoverageState
from langchain_ctxbudget.replay import ReplayResult, replay
from langchain_ctxbudget.reporting.parts import (
    FREE,
    LAYERS,
    OTHERS,
    OVERHEAD,
    OWN_COLOURS,
    STATES,
    STRATEGY_COLOURS,
    divided,
)
from langchain_ctxbudget.reporting.plots import (
    plot_allocation,
    plot_frontier,
    plot_replay,
    plot_report,
    plot_strategies,
    plot_turns,
    plot_what_if,
)
from langchain_ctxbudget.settings import CustomLayer

ROOT = Path(__file__).parents[2]
SCRIPT, FIGURES = ROOT / "scripts" / "budgeting_figures.py", ROOT / "docs" / "figures"
LARGEST_BYTES = 100_000
SITUATION = Situation(
    total_tokens=8_000,
    overhead_tokens=150,
    identity_tokens=300,
    preferences_tokens=100,
    message_tokens=80,
    message_count=200,
    history_tokens=15_000,
    keep_tokens=450,
    topic_count=1,
    topic_tokens=450,
)
STRATEGIES: list[AllocationStrategy] = [
    ElasticAllocation(),
    ElasticAllocation("seed"),
    RatioAllocation(),
    FixedAllocation(),
    DynamicAllocation(),
    PrioritizedAllocation(),
]
CANNOT = RatioAllocation(max_system_share=0.01)

# Machado, Oliveira and Fernandes 2009: full colour blindness of each kind, on linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}
APART = 14
"""CIE76; below 2.3 no difference is seen, and in a legend of twelve, 10 is told apart with ease."""


@pytest.fixture(scope="module")
def pipeline() -> Iterator[ContextPipeline]:
    layer = CustomLayer(name="open files", items=["lending.py: MAX_TOOLS = 5"], ideal_tokens=40)
    settings: dict[str, Any] = {"max_context_tokens": 1_200, "layers": [layer]}
    with ContextPipeline(settings, system_prompt="You know a tool library.") as made:
        history = [
            turn
            for number in range(60)
            for turn in (HumanMessage(f"Shelf {number} holds drills and saws."), AIMessage(f"Noted, shelf {number}."))
        ]
        made.add_messages(history, user_id="maya", conversation_id="c")
        made.assemble("What does shelf 3 hold?", user_id="maya", conversation_id="c")
        yield made


@pytest.fixture(scope="module")
def reports(pipeline: ContextPipeline) -> list[ContextReport]:
    return pipeline.what_if([300, 1_200, 8_000])


@pytest.fixture(scope="module")
def turns() -> list[ContextReport]:
    """The prompts of 60 turns, the first of which need no compaction."""
    found = []
    with ContextPipeline({"max_context_tokens": 900, "learn": False}, system_prompt="You know a tool library.") as made:
        for number in range(60):
            asked = HumanMessage(f"Where are the drills of shelf {number}, and who took one?", id=f"q{number}")
            found.append(made.assemble(asked, user_id="maya", conversation_id="c").report)
            answer = AIMessage(f"On shelf {number}; member {number * 3} took one on day {number}.", id=f"a{number}")
            made.add_messages([asked, answer], user_id="maya", conversation_id="c")
    return found


@pytest.fixture(scope="module")
def replayed() -> ReplayResult:
    said = [
        part
        for number in range(12)
        for part in (HumanMessage(f"Who has drill {number}?", id=f"q{number}"), AIMessage("Me.", id=f"a{number}"))
    ]
    return replay(said, ["recency", "full", "recency@60"], budget=120)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]


def bars(axes: Axes) -> list[tuple[str, float, float]]:
    """Every bar: its colour, its breadth, its height."""
    return [(to_hex(bar.get_facecolor()).upper(), bar.get_width(), bar.get_height()) for bar in axes.patches]


# What is shown


def test_layers_are_called_what_the_package_calls_them() -> None:
    assert {layer: title for layer, (title, _) in LAYERS.items()} == {str(k): title for k, title in TITLES.items()}


def test_every_state_of_a_message_has_a_colour() -> None:
    assert set(STATES) == set(get_args(CoverageState))


def test_a_report_is_shown_with_all_its_numbers(reports: list[ContextReport]) -> None:
    shown = texts(plot_report(reports[1]))
    for layer in reports[1].layers:
        assert f"{layer.used_tokens:,}" in shown
        assert f"{layer.allocated_tokens:,}" in shown
    assert f"{reports[1].total_tokens:,} of 1,200 tokens used, forecast" in shown


def test_bars_of_a_report_are_as_long_as_what_was_used(reports: list[ContextReport]) -> None:
    drawn = bars(plot_report(reports[1]).axes[0])
    for layer in reports[1].layers:
        colour = LAYERS[layer.layer][1] if layer.layer in LAYERS else OWN_COLOURS[0]
        assert {breadth for shade, breadth, _ in drawn if shade == colour} == {
            layer.allocated_tokens,
            layer.used_tokens,
        }


def test_a_report_and_its_data_give_the_same_picture(reports: list[ContextReport]) -> None:
    assert texts(plot_report(reports[0])) == texts(plot_report(reports[0].to_dict()))


def test_numbers_have_thousands_separators(reports: list[ContextReport]) -> None:
    assert "8,000" in texts(plot_what_if(reports))


def test_columns_of_a_what_if_add_up_to_the_budget(reports: list[ContextReport]) -> None:
    columns: dict[float, float] = {}
    for bar in plot_what_if(reports).axes[0].patches:
        columns[round(bar.get_x())] = columns.get(round(bar.get_x()), 0) + bar.get_height()
    assert list(columns.values()) == pytest.approx([300, 1_200, 8_000])


def test_columns_of_shares_add_up_to_one(reports: list[ContextReport]) -> None:
    heights = [height for _, _, height in bars(plot_what_if(reports, shares=True).axes[0])]
    assert sum(heights) == pytest.approx(len(reports))


def test_every_message_is_in_a_column(reports: list[ContextReport]) -> None:
    assert sum(height for _, _, height in bars(plot_what_if(reports).axes[1])) == 120 * len(reports)


def test_a_what_if_without_messages_is_drawn() -> None:
    with ContextPipeline() as made:
        context = made.assemble("Hello", user_id="ada", conversation_id="c")
    assert plot_what_if([context.report])._repr_png_()


def test_a_what_if_needs_a_report() -> None:
    with pytest.raises(ValueError, match="at least one report"):
        plot_what_if([])


def test_every_message_has_its_place_in_the_strip(reports: list[ContextReport]) -> None:
    [axes] = plot_frontier(reports[1]).axes
    drawn = {to_hex(spans.get_facecolor()[0]).upper(): spans.get_paths() for spans in axes.collections}
    for state, count in reports[1].coverage_counts().items():
        places = [path.vertices[:, 0] for path in drawn.get(STATES[state][1], [])]
        assert sum(place.max() - place.min() for place in places) == count
    [first, *_, last] = reports[1].coverage
    assert axes.get_xlim() == (first.first - 0.5, last.last + 0.5)


def test_the_newest_messages_are_at_the_right_of_the_strip(reports: list[ContextReport]) -> None:
    [axes] = plot_frontier(reports[1]).axes
    colour = STATES["verbatim"][1]
    [verbatim] = [spans for spans in axes.collections if to_hex(spans.get_facecolor()[0]).upper() == colour]
    assert max(path.vertices[:, 0].max() for path in verbatim.get_paths()) == 120.5


def test_a_strip_says_how_many_messages_are_where(reports: list[ContextReport]) -> None:
    counts = reports[1].coverage_counts()
    [title] = [text for text in texts(plot_frontier(reports[1])) if text.startswith("120 messages in 1,200 tokens")]
    assert f"{counts['verbatim']:,} verbatim" in title
    assert f"{counts['retrieved']:,} retrieved" in title


def test_several_prompts_have_a_strip_each(reports: list[ContextReport]) -> None:
    [axes] = plot_frontier(reports).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["300", "1,200", "8,000"]


def test_a_strip_without_messages_says_so(turns: list[ContextReport]) -> None:
    figure = plot_frontier(turns[0])
    assert "No messages yet" in texts(figure)
    assert figure._repr_png_()


def test_a_strip_needs_a_report() -> None:
    with pytest.raises(ValueError, match="at least one report"):
        plot_frontier([])


def test_columns_of_turns_are_what_each_prompt_used(turns: list[ContextReport]) -> None:
    columns: dict[int, float] = {}
    for bar in plot_turns(turns).axes[0].patches:
        if isinstance(bar, Rectangle):
            place = round(bar.get_x() + bar.get_width() / 2)
            columns[place] = columns.get(place, 0) + bar.get_height()
    assert list(columns.values()) == [report.total_tokens for report in turns]


def test_every_compaction_step_is_marked(turns: list[ContextReport]) -> None:
    figure = plot_turns(turns)
    steps = [place for place, report in enumerate(turns) if report.stability.compaction_step]
    [marks] = figure.axes[0].lines
    assert list(marks.get_xdata()) == steps
    assert 0 < len(steps) < len(turns)
    assert any(text.startswith(f"60 prompts, {len(steps)} compaction step") for text in texts(figure))


def test_where_nothing_was_compacted_there_is_no_mark(turns: list[ContextReport]) -> None:
    figure = plot_turns(turns[:3])
    assert not figure.axes[0].lines
    assert "compaction step" not in texts(figure)


def test_below_the_turns_stands_what_each_shares_with_the_last(turns: list[ContextReport]) -> None:
    [stairs] = [patch for patch in plot_turns(turns).axes[1].patches if isinstance(patch, StepPatch)]
    assert list(stairs.get_data().values) == [report.stability.prompt_share or 0 for report in turns]


def test_turns_need_one() -> None:
    with pytest.raises(ValueError, match="at least one report"):
        plot_turns([])


def steps_of(axes: Axes) -> list[StepPatch]:
    return [patch for patch in axes.patches if isinstance(patch, StepPatch)]


def test_a_replay_has_a_panel_per_strategy_as_high_as_what_it_sent(replayed: ReplayResult) -> None:
    figure = plot_replay(replayed)
    *panels, _ = figure.axes
    assert len(panels) == len(replayed.tracks)
    for axes, track, colour in zip(panels, replayed.tracks, STRATEGY_COLOURS, strict=False):
        assert {to_hex(steps.get_facecolor()).upper() for steps in steps_of(axes)} == {colour}
        assert list(steps_of(axes)[-1].get_data().values) == [turn.tokens for turn in track.turns]
        assert any(f"{track.tokens:,} sent" in text for text in texts(figure))


def test_what_a_cache_has_is_pale(replayed: ReplayResult) -> None:
    for axes, track in zip(plot_replay(replayed).axes, replayed.tracks, strict=False):
        [pale] = [steps for steps in steps_of(axes) if steps.get_alpha()]
        high, _, low = pale.get_data()
        assert list(high - low) == [turn.cached_tokens for turn in track.turns]


def test_a_turn_without_an_answer_is_a_gap() -> None:
    said = [HumanMessage("a"), AIMessage("b"), HumanMessage("c"), HumanMessage("d"), AIMessage("e")]
    panel, _ = plot_replay(replay(said, ["full"], budget=100)).axes
    first, gap, third = steps_of(panel)[-1].get_data().values
    assert gap == 0 < first < third


def test_the_line_of_a_strategy_ends_at_what_it_costs(replayed: ReplayResult) -> None:
    figure = plot_replay(replayed)
    ends = [line.get_ydata()[-1] for line in figure.axes[-1].lines]
    assert ends == pytest.approx([track.effective_tokens for track in replayed.tracks])
    assert all(f"{track.name}: {track.effective_tokens:,.0f}" in texts(figure) for track in replayed.tracks)


def test_a_budget_is_drawn_where_there_is_one(replayed: ReplayResult) -> None:
    limits = [[line.get_ydata()[0] for line in axes.lines] for axes in plot_replay(replayed).axes[:-1]]
    assert limits == [[120], [], [60]]


def test_a_replay_in_which_no_prompt_could_be_made_is_drawn() -> None:
    said = [HumanMessage("word " * 200, id="q"), AIMessage("Yes.", id="a")]
    assert plot_replay(replay(said, ["elastic"], budget=50))._repr_png_()


def test_bars_of_strategies_add_up_to_the_budget() -> None:
    axes = plot_strategies(SITUATION, STRATEGIES).axes[0]
    assert sum(breadth for _, breadth, _ in bars(axes)) == len(STRATEGIES) * SITUATION.total_tokens


def test_a_bar_of_a_strategy_is_as_long_as_its_allocation() -> None:
    planned = ElasticAllocation().allocate(SITUATION).tokens
    drawn = {shade: breadth for shade, breadth, _ in bars(plot_strategies(SITUATION, [ElasticAllocation()]).axes[0])}
    assert {layer: drawn.get(colour, 0) for layer, (_, colour) in LAYERS.items()} == planned


def test_a_strategy_that_refuses_says_so() -> None:
    assert "  refuses this situation" in texts(plot_strategies(SITUATION, [ElasticAllocation(), CANNOT]))


def test_strategies_need_one() -> None:
    with pytest.raises(ValueError, match="at least one strategy"):
        plot_strategies(SITUATION, [])


def test_areas_reach_from_nothing_to_the_budget() -> None:
    lengths = [replace(SITUATION, message_count=n, history_tokens=75 * n) for n in range(0, 200, 20)]
    for axes in plot_allocation(STRATEGIES[:2], lengths, x="message_count").axes:
        heights = np.concatenate([area.get_paths()[0].vertices[:, 1] for area in axes.collections])
        assert (heights.min(), heights.max()) == (0, SITUATION.total_tokens)


def test_every_strategy_has_a_panel() -> None:
    budgets = [replace(SITUATION, total_tokens=tokens) for tokens in (1_000, 2_000, 4_000)]
    titles = [axes.get_title(loc="left") for axes in plot_allocation(STRATEGIES, budgets).axes]
    assert titles == [strategy.name for strategy in STRATEGIES]


def test_one_strategy_needs_no_list() -> None:
    budgets = [replace(SITUATION, total_tokens=tokens) for tokens in (1_000, 2_000)]
    assert len(plot_allocation(ElasticAllocation(), budgets).axes) == 1


def test_areas_have_a_gap_where_a_strategy_refuses() -> None:
    budgets = [replace(SITUATION, total_tokens=tokens) for tokens in (1_000, 1_100, 1_300, 1_500)]
    [axes] = plot_allocation(RatioAllocation(), budgets).axes
    places = np.concatenate([area.get_paths()[0].vertices[:, 0] for area in axes.collections])
    assert places.min() == 1_300  # the system prompt of 300 tokens is over a quarter of the others


def test_budgets_over_a_wide_range_have_a_logarithmic_axis() -> None:
    budgets = [replace(SITUATION, total_tokens=tokens) for tokens in (1_000, 4_000, 16_000)]
    [axes] = plot_allocation(ElasticAllocation(), budgets, shares=True).axes
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1,000", "2,000", "4,000", "8,000", "16,000"]


def test_areas_need_two_situations() -> None:
    with pytest.raises(ValueError, match="two situations"):
        plot_allocation(ElasticAllocation(), [SITUATION])


@given(
    budget=st.integers(800, 40_000),
    messages=st.integers(0, 500),
    own=st.integers(0, 900),
    strategy=st.sampled_from(STRATEGIES),
)
def test_the_parts_of_an_allocation_add_up_to_the_budget(
    budget: int, messages: int, own: int, strategy: AllocationStrategy
) -> None:
    layer = LayerSpec(layer="open files", min_tokens=0, ideal_tokens=own, max_tokens=own, priority=70)
    situation = replace(
        SITUATION,
        total_tokens=budget,
        identity_tokens=100,
        message_count=messages,
        history_tokens=75 * messages,
        keep_tokens=75 * min(6, messages),
        custom=(layer,),
    )
    parts = divided(strategy, situation)
    assert parts is not None
    assert sum(parts.values()) == budget
    assert min(parts.values()) >= 0


# How it looks


def lab(colour: str, sight: np.ndarray) -> np.ndarray:
    """A colour in CIE L*a*b* as it is seen."""
    values = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(sight @ linear, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_are_told_apart_by(sight: str) -> None:
    colours = [*(colour for _, colour in LAYERS.values()), *OWN_COLOURS, OTHERS[OVERHEAD], OTHERS[FREE]]
    seen = {colour: lab(colour, SIGHTS[sight]) for colour in colours}
    close = [pair for pair in combinations(colours, 2) if np.linalg.norm(seen[pair[0]] - seen[pair[1]]) < APART]
    assert not close


@pytest.mark.parametrize("sight", SIGHTS)
def test_lines_of_strategies_are_told_apart_by(sight: str) -> None:
    seen = {colour: lab(colour, SIGHTS[sight]) for colour in STRATEGY_COLOURS}
    close = [pair for pair in combinations(seen, 2) if np.linalg.norm(seen[pair[0]] - seen[pair[1]]) < APART]
    assert not close


def test_a_layer_has_the_same_colour_in_every_figure(reports: list[ContextReport]) -> None:
    retrieval = LAYERS["L5"][1]
    figures = [plot_report(reports[1]), plot_what_if(reports), plot_strategies(SITUATION, STRATEGIES)]
    assert all(retrieval in {shade for shade, _, _ in bars(figure.axes[0])} for figure in figures)


@pytest.mark.parametrize("name", ["cost $a$ and $b", "_private", "a name that is far too long for its place"])
def test_any_name_is_drawn_as_it_is_written(name: str) -> None:
    layer = CustomLayer(name=name, items=["A note."], ideal_tokens=20)
    with ContextPipeline({"layers": [layer]}) as made:
        made.assemble("Hello", user_id="ada", conversation_id="c")
        reports = made.what_if([200, 400])
    for figure in (plot_report(reports[0]), plot_what_if(reports)):
        assert figure._repr_png_()
        assert any(name[:15] in text.replace("\\$", "$") for text in texts(figure))


def test_a_notebook_shows_800_pixels(reports: list[ContextReport]) -> None:
    png = plot_report(reports[0])._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">I", png[16:20]) == (800,)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)


def test_pyplot_is_not_touched() -> None:
    done = python(
        "import sys\n"
        "from langchain_ctxbudget import ContextPipeline\n"
        "from langchain_ctxbudget.reporting.plots import plot_report\n"
        "report = ContextPipeline().assemble('Hello', user_id='ada', conversation_id='c').report\n"
        "plot_report(report)._repr_png_()\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert done.returncode == 0, done.stderr


def test_importing_the_package_does_not_load_matplotlib() -> None:
    code = "import sys, langchain_ctxbudget.core.report; sys.exit('matplotlib' in sys.modules)"
    assert python(code).returncode == 0


def test_without_matplotlib_the_error_says_what_to_install() -> None:
    done = python("import sys; sys.modules['matplotlib'] = None; import langchain_ctxbudget.reporting.plots")
    assert "ImportError: Plots need matplotlib: pip install 'langchain-ctxbudget[plots]'" in done.stderr


# The figures of the page


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All figures, drawn by two processes whose sets and dicts are in other orders."""
    folders = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    for seed, folder in enumerate(folders):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(
            [sys.executable, "-W", "error", str(SCRIPT), str(folder)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    return folders


def words(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_script_draws_the_same_bytes_every_time(drawn: tuple[Path, Path]) -> None:
    first, second = drawn
    assert {name: (first / name).read_bytes() for name in names(first)} == {
        name: (second / name).read_bytes() for name in names(second)
    }


def test_the_figures_of_the_page_are_up_to_date(drawn: tuple[Path, Path]) -> None:
    # Their words and numbers, as another version of matplotlib may place them elsewhere.
    fresh = {name: words(drawn[0] / name) for name in names(drawn[0])}
    assert all(fresh.values())
    assert {name: words(FIGURES / name) for name in fresh} == fresh, f"run python scripts/{SCRIPT.name}"


def test_figures_are_small() -> None:
    assert max(path.stat().st_size for path in FIGURES.iterdir()) < LARGEST_BYTES


def test_the_pages_show_every_figure_once() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
    drawings = [name for name in names(FIGURES) if name.endswith(".svg")]
    assert sorted(re.findall(r"\(figures/([^)]+\.svg)\)", pages)) == drawings
