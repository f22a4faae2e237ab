"""What the README and the pages say is what happens."""

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from langgraph.graph.state import CompiledStateGraph

import langchain_ctxbudget
from langchain_ctxbudget import ContextSettings
from langchain_ctxbudget.budget import Reason
from tests.warm import Ran, run_all

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if path.stem not in ("architecture", "decisions", "api")
}
MOST_WORDS = 15_000
INSIDE = "internals/"
"""Of pages for those who work on the package; all others are for its users."""
[DIFF] = re.findall(r"```diff\n(.*?)```", README, re.DOTALL)
GIVEN = """from langchain_core.language_models import FakeListChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver

model, tools, checkpointer = FakeListChatModel(responses=["Hello!"]), list[BaseTool](), InMemorySaver()
"""
"""What the diff of the README takes as there."""
PYTHON = [
    *re.findall(r"```python\n(.*?)```", README, re.DOTALL),
    GIVEN + "".join(f"{line[1:]}\n" for line in DIFF.splitlines()),
]
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]
END_OF_BLOCK = "\x1e"


class Block(NamedTuple):
    code: str
    printed: str | None
    settings: str | None


def python_blocks(page: str) -> list[Block]:
    found = re.findall(r"```python\n(.*?)```(?:\n\n```(text|json)\n(.*?)```)?", page, re.DOTALL)
    return [
        Block(code, *(below if kind == own else None for own in ("text", "json")))
        for code, kind, below in found
    ]


BLOCKS = {name: blocks for name, page in PAGES.items() if (blocks := python_blocks(page))}


def program(name: str) -> str:
    parts: list[str] = []
    for block in BLOCKS[name]:
        parts.append(block.code)
        if block.settings is not None:
            parts.append(
                f"import json\nassert settings == ContextSettings().override(json.loads({block.settings!r}))"
            )
        parts.append(f"print({END_OF_BLOCK!r})")
    return "\n".join(parts)


@cache
def ran(*names: str) -> dict[str, Ran]:
    programs = {name: program(name) for name in names if name in BLOCKS}
    if "README" in names:
        programs |= {f"README {number}": code for number, code in enumerate(PYTHON)}
    return dict(zip(programs, run_all(list(programs.values())), strict=True))


def outcome(name: str) -> Ran:
    return ran(*(["README"] if name.startswith("README") else BLOCKS))[name]


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_its_code_runs_as_it_stands(number: int) -> None:
    done = outcome(f"README {number}")
    assert done.code == 0, done.err


# As a user has it: without the plugin for pydantic, and without what is wrong in other people's
# packages.
FOREIGN = ("--follow-imports=silent", "--disable-error-code=import-untyped")
CHECKERS = {
    "mypy": ("--strict", "--config-file=", *FOREIGN),
    "pyright": ("--pythonpath", sys.executable),
}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_its_code_has_types(tmp_path: Path, checker: str) -> None:
    pytest.importorskip(
        checker, reason="only CI installs it, as it fetches itself from another registry"
    )
    codes = [*PYTHON, *("\n\n".join(block.code for block in blocks) for blocks in BLOCKS.values())]
    paths = [tmp_path / f"block_{number}.py" for number in range(len(codes))]
    for path, code in zip(paths, codes, strict=True):
        path.write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", checker, *CHECKERS[checker], *map(str, paths)]
    given = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_its_table_is_what_the_benchmark_says() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "readme_figure.py")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said in PAGES["explanation/benchmark"]
    rows = [[cell.strip(" *`") for cell in line.split("|")[1:-1]] for line in said.splitlines()[2:]]
    measured = {name: others for name, budget, *others in rows if budget in ("4,000", "-")}
    table = README.partition("messages kept |")[2].partition("\n\n")[0].splitlines()[2:]
    for line in table:
        name, *cells = (cell.strip(" *`") for cell in line.split("|")[1:-1])
        assert measured[name.removesuffix(" (no budget)")] == cells


def test_ci_runs_its_test_command() -> None:
    [command] = [line for line in COMMANDS if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_the_blocks_of_a_page_print_what_stands_below_them(name: str) -> None:
    done = outcome(name)
    assert done.code == 0, done.err
    printed = done.out.split(f"{END_OF_BLOCK}\n")
    for block, found in zip(BLOCKS[name], printed, strict=False):
        assert (block.printed or "") == found


def test_every_json_block_of_the_budgeting_page_is_settings() -> None:
    found = re.findall(r"```json\n(.*?)```", PAGES["internals/budgeting"], re.DOTALL)
    assert len(found) >= sum(block.settings is not None for block in BLOCKS["internals/budgeting"])
    for text in found:
        ContextSettings().override(json.loads(text))


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    here = DOCS / f"{name}.md"
    targets = [
        target for target in re.findall(r"\]\(([^)]+)\)", PAGES[name]) if "://" not in target
    ]
    for target in targets:
        path, _, place = target.partition("#")
        page = next(
            (found for folder in (here.parent, DOCS) if (found := folder / path).is_file()), here
        )
        assert page != here or not path or path == here.name, target
        if place:
            assert place in headings(page), target


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING", "SECURITY", "CHANGELOG"])
def test_links_of_the_project_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", (ROOT / f"{name}.md").read_text(encoding="utf-8")):
        path, _, place = target.partition("#")
        assert "://" in target or (ROOT / path).exists(), target
        assert "://" in target or not place or place in headings(ROOT / path), target


def test_a_release_has_the_version_of_its_tag_and_links_that_lead_somewhere_from_elsewhere() -> (
    None
):
    release = runpy.run_path(str(ROOT / "scripts" / "release.py"))
    address = "https://example.org/repository"
    project = tomllib.loads(
        release["with_version"](
            (ROOT / "pyproject.toml").read_text(encoding="utf-8"), "1.2.3", address
        )
    )["project"]
    assert (project["version"], project["urls"]["Issues"]) == ("1.2.3", f"{address}/issues")
    page = release["with_addresses"](README, "1.2.3", address)
    assert f"({address}/raw/v1.2.3/docs/figures/peers.svg)" in page
    assert all("://" in target for target in re.findall(r"\]\(([^)]+)\)", page))


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_the_site_has_every_page() -> None:
    listed = re.findall(
        r"- ([\w/-]+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(
        [*PAGES, "internals/architecture", "internals/decisions", "reference/api"]
    )


def test_the_guides_are_short() -> None:
    assert (
        sum(len(page.split()) for name, page in PAGES.items() if not name.startswith(INSIDE))
        <= MOST_WORDS
    )


def test_the_reference_leaves_nothing_out() -> None:
    for name in ContextSettings.model_fields:
        assert f"`{name}`" in PAGES["reference/settings"], name
    for reason in Reason:
        assert f"| `{reason.value}` | {reason.meaning} |" in PAGES["reference/reports"]
    api = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    for name in set(langchain_ctxbudget.__all__) - {"__version__"}:
        assert f"::: langchain_ctxbudget.{name}\n" in api


# -- Every example runs, offline


SAYS = {
    "chain_with_history.py": "-> Number 214.",
    "from_summarization_middleware.py": "after:                  Etch & Field, 38p, 16 October (3 of 3 facts sent",
    "from_summary_buffer_memory.py": "after:                  Etch & Field, 38p, 16 October",
    "knows_its_user.py": "superseded identity   Lives in Lisbon",
    "middleware_agent.py": "-> Ines cannot.",
    "react_agent.py": "ai:    On shelf 28-F.",
    "recall_agent.py": "-> Yes: 03:15:00 INFO copied photos/7100.jpg",
    "agent.py": "agent: You are Ada.",
    "auth.py": "refused  {'config': {'configurable': {'user_id': 'bo'}}}",
    "service.py": "no token:   401",
    "usage_limits.py": "  critical      250",
}
"""What shows that an example still does what it is for."""

PATHS = sorted((ROOT / "examples").rglob("*.py"))


@pytest.fixture(scope="module")
def examples() -> dict[str, Ran]:
    return {path.name: done for path, done in zip(PATHS, run_all(PATHS), strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.name for path in PATHS])
def test_example_runs(examples: dict[str, Ran], name: str) -> None:
    done = examples[name]
    assert (done.code, done.err) == (0, "")
    assert done.out.strip()
    assert SAYS.get(name, "") in done.out


@pytest.mark.slow
def test_langgraph_json_takes_its_own_folder_along_and_names_a_graph() -> None:
    folder = ROOT / "examples" / "server"
    described = json.loads((folder / "langgraph.json").read_text(encoding="utf-8"))
    assert "." in described["dependencies"]
    for target in described["graphs"].values():
        module, _, name = target.partition(":")
        assert isinstance(runpy.run_path(str(folder / module))[name], CompiledStateGraph)


# -- The notebooks are committed as they ran: in order, without errors, and with what the code says
# now


NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
MOST_LINES = 50
"""Of one cell; more of it nobody reads."""
MACHINE_PATHS = re.compile(
    r"(?<![\w.~/])/(?:home|root|tmp|usr|var|opt|mnt|work|Users|private)/\w|[A-Z]:\\Users"
)

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
    return "".join(
        "".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream"
    )


def displayed(cell: dict[str, Any], kind: str) -> str:
    return "".join("".join(output.get("data", {}).get(kind, "")) for output in cell["outputs"])


def without_timings(card: str) -> str:
    return re.sub(r"[\d.,]+ ms \(.*?\)", "", card, flags=re.DOTALL)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_committed_as_it_ran(name: str) -> None:
    """From the first cell to the last, without errors, warnings, paths of a machine and long lists."""
    code = cells(name)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {
        "stream",
        "execute_result",
        "display_data",
    }
    assert {output["name"] for output in outputs if output["output_type"] == "stream"} <= {"stdout"}
    for cell in code:
        assert not MACHINE_PATHS.search(
            printed(cell) + displayed(cell, "text/html") + displayed(cell, "text/plain")
        )
        assert printed(cell).count("\n") <= MOST_LINES
    assert any(displayed(cell, "image/png") for cell in code)
    assert any("## The decision" in source(cell) for cell in cells(name, "markdown")[-3:])
    assert f"notebooks/{name}.ipynb" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def notebooks() -> dict[str, Ran]:
    programs = [
        PROGRAM.format(codes=json.dumps([source(cell) for cell in cells(name)])) for name in NAMES
    ]
    return dict(zip(NAMES, run_all(programs), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_its_outputs_are_what_its_code_gives_now(notebooks: dict[str, Ran], name: str) -> None:
    """Texts and cards to the character, timings aside; of pictures only that there is one."""
    assert notebooks[name].code == 0, notebooks[name].err
    for cell, now in zip(cells(name), json.loads(notebooks[name].out), strict=True):
        rerun = f"run it again: pytest --nbmake --overwrite notebooks/{name}.ipynb"
        assert printed(cell) == now["text"], rerun
        assert without_timings(displayed(cell, "text/html")) == without_timings(now["html"]), rerun
        assert bool(displayed(cell, "image/png")) == now["picture"], rerun
