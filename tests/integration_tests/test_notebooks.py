"""The notebooks are committed as they ran: in order, without errors, and with what the code says now."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.warm import Ran, run_all

ROOT = Path(__file__).parents[2]
NAMES = ("01_quickstart", "02_budget_playground", "03_history_and_recall", "04_agent", "05_your_own_chatgpt_export")
MOST_LINES = 50
"""Of one cell; more of it nobody reads."""
PATHS = re.compile(r"(?<![\w.~/])/(?:home|root|tmp|usr|var|opt|mnt|work|Users|private)/\w|[A-Z]:\\Users")

PROGRAM = """
import ast, contextlib, io, json, sys

shown = []
for code in json.loads({codes!r}):
    tree, out, html = ast.parse(code), io.StringIO(), ""
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), globals())
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), globals()) if last else None
    if hasattr(value, "_repr_html_"):
        html = value._repr_html_() or ""
    shown.append({{"text": out.getvalue(), "html": html, "picture": hasattr(value, "_repr_png_")}})
print(json.dumps(shown))
"""


@cache
def cells(name: str, kind: str = "code") -> list[dict[str, Any]]:
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def printed(cell: dict[str, Any]) -> str:
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


def displayed(cell: dict[str, Any], kind: str) -> str:
    return "".join("".join(output.get("data", {}).get(kind, "")) for output in cell["outputs"])


def without_timings(card: str) -> str:
    return re.sub(r'<tr [^>]*data-fact="Time">.*?</tr>', "", card)


def test_there_are_these_notebooks_and_no_others() -> None:
    assert tuple(sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_is_committed_as_it_ran(name: str) -> None:
    """From the first cell to the last, without errors, warnings, paths of a machine and long lists."""
    code = cells(name)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert {output["name"] for output in outputs if output["output_type"] == "stream"} <= {"stdout"}
    for cell in code:
        assert not PATHS.search(printed(cell) + displayed(cell, "text/html") + displayed(cell, "text/plain"))
        assert printed(cell).count("\n") <= MOST_LINES
    assert any(displayed(cell, "image/png") for cell in code)
    assert any("## The decision" in source(cell) for cell in cells(name, "markdown")[-3:])
    assert f"notebooks/{name}.ipynb" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def ran() -> dict[str, Ran]:
    programs = [PROGRAM.format(codes=json.dumps([source(cell) for cell in cells(name)])) for name in NAMES]
    return dict(zip(NAMES, run_all(programs), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_its_outputs_are_what_its_code_gives_now(ran: dict[str, Ran], name: str) -> None:
    """Texts and cards to the character, timings aside; of pictures only that there is one."""
    assert ran[name].code == 0, ran[name].err
    for cell, now in zip(cells(name), json.loads(ran[name].out), strict=True):
        rerun = f"run it again: pytest --nbmake --overwrite notebooks/{name}.ipynb"
        assert printed(cell) == now["text"], rerun
        assert without_timings(displayed(cell, "text/html")) == without_timings(now["html"]), rerun
        assert bool(displayed(cell, "image/png")) == now["picture"], rerun
