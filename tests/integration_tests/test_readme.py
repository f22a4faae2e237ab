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
from langchain_ctxbudget.content import Kind
from tests.warm import Ran, run_all

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langchain_ctxbudget"
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(DOCS).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if path.stem not in ("architecture", "decisions", "api")
}
MOST_WORDS = 8_960
INSIDE = "internals/"
LOOKED_UP = "reference/"
"""Of pages for those who work on the package; all others are for its users."""
END_OF_BLOCK = "\x1e"


def blocks_of(page: str, language: str) -> list[str]:
    """Returns the code blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def commands_of(page: str) -> list[str]:
    """Returns the commands of the shell blocks of a page; a backslash joins two lines."""
    commands: list[str] = []
    for block in blocks_of(page, "bash"):
        commands += re.sub(r"\\\n *", "", block).splitlines()
    return commands


def links_of(page: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", page)


def without_signs(diff: str) -> str:
    """Returns the lines of a diff as code."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines())


[DIFF] = blocks_of(README, "diff")
SETUP_OF_DIFF = """from langchain_core.language_models import FakeListChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver

model = FakeListChatModel(responses=["Hello!"])
tools = list[BaseTool]()
checkpointer = InMemorySaver()
"""
"""What the diff of the README takes as there."""
PYTHON = [*blocks_of(README, "python"), SETUP_OF_DIFF + without_signs(DIFF)]


class Block(NamedTuple):
    """A block of Python, and the block of text or of JSON below it."""

    code: str
    printed: str | None
    settings: str | None


def python_blocks(page: str) -> list[Block]:
    pattern = r"```python\n(.*?)```(?:\n\n```(text|json)\n(.*?)```)?"
    blocks: list[Block] = []
    for code, kind, below in re.findall(pattern, page, re.DOTALL):
        printed = None
        settings = None
        if kind == "text":
            printed = below
        if kind == "json":
            settings = below
        blocks.append(Block(code, printed, settings))
    return blocks


def pages_with_python() -> dict[str, list[Block]]:
    pages = {name: python_blocks(page) for name, page in PAGES.items()}
    return {name: blocks for name, blocks in pages.items() if blocks}


BLOCKS = pages_with_python()


def program(name: str) -> str:
    """Returns the blocks of a page as one program, which marks where each of them ends."""
    parts: list[str] = []
    for block in BLOCKS[name]:
        parts.append(block.code)
        if block.settings is not None:
            overridden = f"ContextSettings().override(json.loads({block.settings!r}))"
            parts.append(f"import json\nassert settings == {overridden}")
        parts.append(f"print({END_OF_BLOCK!r})")
    return "\n".join(parts)


@cache
def outcomes_of_pages() -> dict[str, Ran]:
    return dict(zip(BLOCKS, run_all([program(name) for name in BLOCKS]), strict=True))


@cache
def outcomes_of_readme() -> dict[str, Ran]:
    names = [f"README {number}" for number in range(len(PYTHON))]
    return dict(zip(names, run_all(PYTHON), strict=True))


def outcome(name: str) -> Ran:
    """Returns what came of a page's blocks, or of a block of the README, such as `README 0`."""
    if name.startswith("README"):
        return outcomes_of_readme()[name]
    return outcomes_of_pages()[name]


# -- The code of the README and of the pages


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_the_readme_s_code_runs_as_it_stands(number: int) -> None:
    done = outcome(f"README {number}")
    assert done.code == 0, done.err


# As a user has it: without the plugin for pydantic, and without what is wrong in other people's
# packages.
FOREIGN = ("--follow-imports=silent", "--disable-error-code=import-untyped")
CHECKERS = {
    "mypy": ("--strict", "--config-file=", *FOREIGN),
    "pyright": ("--pythonpath", sys.executable),
}


def code_of_page(name: str) -> str:
    return "\n\n".join(block.code for block in BLOCKS[name])


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_its_code_has_types(tmp_path: Path, checker: str) -> None:
    reason = "only CI installs it, as it fetches itself from another registry"
    pytest.importorskip(checker, reason=reason)
    codes = [*PYTHON, *map(code_of_page, BLOCKS)]
    paths: list[str] = []
    for number, code in enumerate(codes):
        path = tmp_path / f"block_{number}.py"
        path.write_text(code, encoding="utf-8")
        paths.append(str(path))

    done = subprocess.run(
        [sys.executable, "-m", checker, *CHECKERS[checker], *paths],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_the_blocks_of_a_page_print_what_stands_below(name: str) -> None:
    done = outcome(name)
    assert done.code == 0, done.err

    outputs = done.out.split(f"{END_OF_BLOCK}\n")

    assert outputs[: len(BLOCKS[name])] == [block.printed or "" for block in BLOCKS[name]]


BUDGETING_JSON = blocks_of(PAGES["internals/budgeting"], "json")


@pytest.mark.parametrize("text", BUDGETING_JSON)
def test_a_json_block_of_the_budgeting_page_is_settings(text: str) -> None:
    ContextSettings().override(json.loads(text))


def test_every_json_block_below_python_is_found() -> None:
    below = [block for block in BLOCKS["internals/budgeting"] if block.settings is not None]
    assert len(BUDGETING_JSON) >= len(below)


def cells_of(row: str) -> list[str]:
    """Returns the cells of a line of a table, without their marks."""
    return [cell.strip(" *`") for cell in row.split("|")[1:-1]]


@pytest.fixture(scope="module")
def measured_table() -> str:
    """The table of the benchmark, as its script prints it now."""
    command = [sys.executable, str(ROOT / "benchmarks" / "readme_figure.py")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_benchmark_s_page_has_what_it_measures(measured_table: str) -> None:
    assert measured_table in PAGES["explanation/benchmark"]


@pytest.mark.slow
def test_the_readme_s_table_is_what_the_benchmark_says(measured_table: str) -> None:
    measured: dict[str, list[str]] = {}
    for row in measured_table.splitlines()[2:]:
        name, budget, *figures = cells_of(row)
        if budget in ("4,000", "-"):
            measured[name] = figures
    table = README.partition("messages kept |")[2].partition("\n\n")[0]
    shown: dict[str, list[str]] = {}
    for row in table.splitlines()[2:]:
        name, *figures = cells_of(row)
        shown[name.removesuffix(" (no budget)")] = figures

    assert shown == {name: measured[name] for name in shown}


def found_at_4_000(system: str) -> str:
    """Returns how many questions find their answer, as the benchmark's table has it."""
    [row] = re.findall(rf"\| {system} \| 4,000 \| (\d+) of 28 \|", PAGES["explanation/benchmark"])
    return str(row)


def test_the_readme_tells_what_the_benchmark_measured() -> None:
    ours, trimmed = map(found_at_4_000, ["ctxbudget", "`trim_messages`"])
    told = f"28 questions about the first weeks of this chat {ours} find their answer"
    assert told in README
    assert f"prompt, {trimmed} in that of `trim_messages`" in README


def test_ci_runs_its_test_command() -> None:
    [command] = [line for line in commands_of(README) if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


# -- Links


def linked_page(page: Path, path: str) -> Path | None:
    """Returns the page of the documentation that a relative path of a link leads to."""
    for folder in (page.parent, DOCS):
        if (folder / path).is_file():
            return folder / path
    if path in ("", page.name):
        return page
    return None


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = linked_page(page, path)
    if target is None:
        return False
    return not heading or heading in headings(target)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    page = DOCS / f"{name}.md"
    links = [link for link in links_of(PAGES[name]) if "://" not in link]
    assert [link for link in links if not leads_somewhere(page, link)] == []


def leads_somewhere_in_the_project(link: str) -> bool:
    path, _, heading = link.partition("#")
    if not (ROOT / path).exists():
        return False
    return not heading or heading in headings(ROOT / path)


@pytest.mark.parametrize("name", ["README", "CONTRIBUTING", "SECURITY", "CHANGELOG"])
def test_links_of_the_project_lead_somewhere(name: str) -> None:
    page = (ROOT / f"{name}.md").read_text(encoding="utf-8")
    links = [link for link in links_of(page) if "://" not in link]
    assert [link for link in links if not leads_somewhere_in_the_project(link)] == []


ADDRESS = "https://example.org/repository"


@pytest.fixture(scope="module")
def release() -> dict[str, Any]:
    """What the script of a release defines."""
    return runpy.run_path(str(ROOT / "scripts" / "release.py"))


def test_a_release_has_the_version_of_its_tag(release: dict[str, Any]) -> None:
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(release["with_version"](metadata, "1.2.3", ADDRESS))["project"]
    assert project["version"] == "1.2.3"
    assert project["urls"]["Issues"] == "https://example.org/repository/issues"


def test_links_of_a_release_lead_somewhere_from_elsewhere(release: dict[str, Any]) -> None:
    page = release["with_addresses"](README, "1.2.3", ADDRESS)
    assert "(https://example.org/repository/raw/v1.2.3/docs/figures/peers.svg)" in page
    assert [link for link in links_of(page) if "://" not in link] == []


def headings(page: Path) -> set[str]:
    """Returns the anchors of the headings of a page."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


# -- What the pages contain


def test_the_site_s_navigation_has_every_page_for_users() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"- ([\w/-]+)\.md$", site, re.MULTILINE)
    pages = [name for name in PAGES if not name.startswith(INSIDE)]
    assert sorted(listed) == sorted([*pages, "reference/api"])


def words_of(page: str) -> int:
    """Returns the number of words of a page, without its code."""
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    return len(re.findall(r"\S*\w\S*", prose))


def test_the_guides_are_short() -> None:
    guides = [page for name, page in PAGES.items() if not name.startswith((INSIDE, LOOKED_UP))]
    assert sum(map(words_of, guides)) <= MOST_WORDS


@pytest.mark.parametrize("name", ContextSettings.model_fields)
def test_the_reference_has_every_setting(name: str) -> None:
    assert f"`{name}`" in PAGES["reference/settings"]


@pytest.mark.parametrize("reason", Reason)
def test_the_reference_has_every_reason(reason: Reason) -> None:
    assert f"| `{reason.value}` | {reason.meaning} |" in PAGES["reference/reports"]


@pytest.mark.parametrize("kind", Kind)
def test_the_reference_has_every_kind_of_part(kind: Kind) -> None:
    assert f"\n| `{kind.value}` |" in PAGES["reference/content"]


def kinds_of_repairs() -> list[str]:
    """Returns the kinds of all repairs that the package makes."""
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return sorted(set(re.findall(r'\b(?:Change|Repair)\(\s*"(\w+)"', source)))


@pytest.mark.parametrize("kind", kinds_of_repairs())
def test_the_reference_has_every_repair(kind: str) -> None:
    assert f"\n| `{kind}` |" in PAGES["reference/content"]


@pytest.mark.parametrize("name", sorted(set(langchain_ctxbudget.__all__) - {"__version__"}))
def test_the_reference_has_every_public_name(name: str) -> None:
    api = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    assert f"::: langchain_ctxbudget.{name}\n" in api


# -- Every example runs, offline


OUTPUTS = {
    "chain_with_history.py": "-> Number 214.",
    "from_summarization_middleware.py": "Etch & Field, 38p, 16 October (3 of 3 facts sent",
    "from_summary_buffer_memory.py": "after:                  Etch & Field, 38p, 16 October",
    "knows_its_user.py": 'superseded identity   "I live in Lisbon with my two cats."',
    "many_tools_graph.py": "tool: done: order 4471",
    "middleware_agent.py": "-> Ines cannot.",
    "onnx_embeddings.py": "default: 2 of 2 messages found",
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
    assert OUTPUTS.get(name, "") in done.out


SERVER = ROOT / "examples" / "server"
LANGGRAPH_JSON = json.loads((SERVER / "langgraph.json").read_text(encoding="utf-8"))


def test_langgraph_json_takes_its_own_folder_along() -> None:
    assert "." in LANGGRAPH_JSON["dependencies"]


@pytest.mark.slow
@pytest.mark.parametrize("target", LANGGRAPH_JSON["graphs"].values())
def test_langgraph_json_names_a_graph(target: str) -> None:
    module, _, name = target.partition(":")
    assert isinstance(runpy.run_path(str(SERVER / module))[name], CompiledStateGraph)


# -- The notebooks are committed as they ran: in order, without errors, and with what the code says
# now


NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
SKIPPED = "skip-execution"
"""The tag of a cell that nbclient, and with it nbmake, does not run."""
INSTALLED = re.compile(r"(langchain-ctxbudget|\.\.)\[([\w,]+)\]")
HOW_TO_RENEW = "run it again: pytest --nbmake --overwrite on this notebook"
MOST_LINES = 50
"""Of one cell; more of it nobody reads."""
MACHINE_PATHS = re.compile(
    r"(?<![\w.~/])/(?:home|root|tmp|usr|var|opt|mnt|work|Users|private)/\w|[A-Z]:\\Users"
)

PROGRAM = """
import ast, contextlib, io, json, sys

shown = []
names = {{"__name__": "__main__"}}
for code in json.loads({codes!r}):
    tree, out, html = ast.parse(code), io.StringIO(), ""
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), names)
        value = None
        if last:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    if hasattr(value, "_repr_html_"):
        html = value._repr_html_() or ""
    shown.append({{"text": out.getvalue(), "html": html, "picture": hasattr(value, "_repr_png_")}})
print(json.dumps(shown))
"""


@cache
def cells(name: str, kind: str = "code") -> list[dict[str, Any]]:
    """Returns the cells of one kind, without the one that installs the package."""
    return [
        cell
        for cell in all_cells(name)
        if cell["cell_type"] == kind and SKIPPED not in cell["metadata"].get("tags", [])
    ]


def all_cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    parts: list[dict[str, Any]] = notebook["cells"]
    return parts


def install_lines(name: str) -> list[str]:
    """Returns the requirements that a notebook asks `%pip` for, the published one first."""
    sources = "\n".join(source(cell) for cell in all_cells(name) if cell["cell_type"] == "code")
    return re.findall(r'%pip install -q "(.+?)"', sources)


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def printed(cell: dict[str, Any]) -> str:
    streams = [output for output in cell["outputs"] if output["output_type"] == "stream"]
    return "".join("".join(output["text"]) for output in streams)


def displayed(cell: dict[str, Any], kind: str) -> str:
    return "".join("".join(output.get("data", {}).get(kind, "")) for output in cell["outputs"])


def without_timings(card: str) -> str:
    return re.sub(r"[\d.,]+ ms \(.*?\)", "", card, flags=re.DOTALL)


every_notebook = pytest.mark.parametrize("name", NAMES)


def outputs_of(name: str) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    for cell in cells(name):
        outputs += cell["outputs"]
    return outputs


@every_notebook
def test_a_notebook_ran_from_its_first_cell_to_its_last(name: str) -> None:
    counts = [cell["execution_count"] for cell in cells(name)]
    assert counts == list(range(1, len(counts) + 1))


@every_notebook
def test_a_notebook_has_no_errors(name: str) -> None:
    kinds = {output["output_type"] for output in outputs_of(name)}
    assert kinds <= {"stream", "execute_result", "display_data"}


@every_notebook
def test_a_notebook_has_no_warnings(name: str) -> None:
    streams = [output for output in outputs_of(name) if output["output_type"] == "stream"]
    assert {stream["name"] for stream in streams} <= {"stdout"}


@every_notebook
def test_a_notebook_has_no_paths_of_a_machine(name: str) -> None:
    shown = [
        printed(cell) + displayed(cell, "text/html") + displayed(cell, "text/plain")
        for cell in cells(name)
    ]
    assert [text for text in shown if MACHINE_PATHS.search(text)] == []


@every_notebook
def test_a_notebook_prints_no_long_lists(name: str) -> None:
    outputs = [printed(cell) for cell in cells(name)]
    assert [text for text in outputs if text.count("\n") > MOST_LINES] == []


@every_notebook
def test_a_notebook_has_a_picture(name: str) -> None:
    assert any(displayed(cell, "image/png") for cell in cells(name))


@every_notebook
def test_a_notebook_ends_with_a_decision(name: str) -> None:
    last_texts = [source(cell) for cell in cells(name, "markdown")[-3:]]
    assert "## The decision" in "\n".join(last_texts)


@every_notebook
def test_the_page_of_the_notebooks_names_it(name: str) -> None:
    page = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert f"({name}.ipynb)" in page


@every_notebook
def test_a_notebook_installs_from_the_index_or_its_clone(name: str) -> None:
    asked = [INSTALLED.fullmatch(line) for line in install_lines(name)]
    assert [found[1] for found in asked if found] == ["langchain-ctxbudget", ".."]


@every_notebook
def test_a_notebook_installs_extras_that_there_are(name: str) -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = {
        extra
        for line in install_lines(name)
        for extra in line.partition("[")[2].removesuffix("]").split(",")
    }
    assert extras <= set(described["project"]["optional-dependencies"])


@every_notebook
def test_links_of_a_notebook_lead_somewhere(name: str) -> None:
    texts = "\n".join(source(cell) for cell in cells(name, "markdown"))
    missing = [link for link in links_of(texts) if not (ROOT / "notebooks" / link).exists()]
    assert missing == []


def rerun(name: str) -> str:
    """Returns a program that runs the cells of a notebook and prints what each of them shows."""
    return PROGRAM.format(codes=json.dumps([source(cell) for cell in cells(name)]))


@pytest.fixture(scope="module")
def notebooks() -> dict[str, Ran]:
    return dict(zip(NAMES, run_all([rerun(name) for name in NAMES]), strict=True))


def shown_now(notebooks: dict[str, Ran], name: str) -> list[dict[str, Any]]:
    """Returns what each cell of a notebook shows now."""
    done = notebooks[name]
    assert done.code == 0, done.err
    shown: list[dict[str, Any]] = json.loads(done.out)
    return shown


@pytest.mark.slow
@every_notebook
def test_a_notebook_s_texts_are_what_its_code_gives_now(
    notebooks: dict[str, Ran], name: str
) -> None:
    now = [cell["text"] for cell in shown_now(notebooks, name)]
    assert [printed(cell) for cell in cells(name)] == now, HOW_TO_RENEW


@pytest.mark.slow
@every_notebook
def test_a_notebook_s_cards_are_what_its_code_gives_now(
    notebooks: dict[str, Ran], name: str
) -> None:
    """To the character, timings aside."""
    cards = [without_timings(displayed(cell, "text/html")) for cell in cells(name)]
    now = [without_timings(cell["html"]) for cell in shown_now(notebooks, name)]
    assert cards == now, HOW_TO_RENEW


@pytest.mark.slow
@every_notebook
def test_a_notebook_s_pictures_are_where_its_code_draws_now(
    notebooks: dict[str, Ran], name: str
) -> None:
    has_picture = [bool(displayed(cell, "image/png")) for cell in cells(name)]
    now = [cell["picture"] for cell in shown_now(notebooks, name)]
    assert has_picture == now, HOW_TO_RENEW
