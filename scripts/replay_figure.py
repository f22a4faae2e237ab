"""Makes the figure of `docs/replay.md`; offline, and the same bytes every time.

    python scripts/replay_figure.py [FILE]

The file is `docs/figures/replay.svg` where none is given.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import matplotlib as mpl
from budgeting_figures import FOLDER, REPRODUCIBLE, shortened

from langchain_ctxbudget.demo import DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.replay import replay
from langchain_ctxbudget.report.plots import plot_replay

BUDGET_TOKENS = 4_000
STRATEGIES = ("elastic", "recency", "prioritized", "full")


def main(path: Path = FOLDER / "replay.svg") -> None:
    """Draws the figure and prints its size."""
    result = replay(demo_messages(), STRATEGIES, budget=BUDGET_TOKENS, system_prompt=DEMO_SYSTEM_PROMPT)
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(REPRODUCIBLE)
        drawn = StringIO()
        plot_replay(result).savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(shortened(drawn.getvalue()), encoding="utf-8")
    sys.stdout.write(f"{path.stat().st_size:>8,} bytes  {path.name}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
