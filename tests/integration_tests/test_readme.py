"""What the README and the pages say is what happens."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from langchain_ctxbudget import ContextSettings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in (
        "agents",
        "budgeting",
        "dashboard",
        "history",
        "knowledge",
        "moving_from_trim_messages",
        "replay",
        "reports",
        "retrieval",
        "usage",
    )
}
SLOW = ("budgeting", "history", "replay")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
END_OF_BLOCK = "\x1e"


class Block(NamedTuple):
    """A block of Python, and what stands below it."""

    code: str
    printed: str | None
    """A `text` block: what it prints."""
    settings: str | None
    """A `json` block: the settings that it makes."""


def python_blocks(page: str) -> list[Block]:
    found = re.findall(r"```python\n(.*?)```(?:\n\n```(text|json)\n(.*?)```)?", page, re.DOTALL)
    return [
        Block(code, below if kind == "text" else None, below if kind == "json" else None) for code, kind, below in found
    ]


def run(code: str, path: Path) -> str:
    """What a program prints; offline, with every warning an error."""
    path.write_text(code, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=path.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BLOCKS = {name: python_blocks(page) for name, page in PAGES.items()}
PRINTING = {
    name: [number for number, block in enumerate(blocks) if block.printed is not None]
    for name, blocks in BLOCKS.items()
}


def speed(name: str) -> list[pytest.MarkDecorator]:
    """The marks of a page's tests."""
    return [pytest.mark.slow] if name in SLOW else []


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """What every Python block of a page prints; they run one after the other."""

    @cache
    def printed(name: str) -> list[str]:
        parts: list[str] = []
        for block in BLOCKS[name]:
            parts.append(block.code)
            if block.settings is not None:
                parts.append(
                    f"import json\nassert settings == ContextSettings().override(json.loads({block.settings!r}))"
                )
            parts.append(f"print({END_OF_BLOCK!r})")
        return run("\n".join(parts), tmp_path_factory.mktemp(name) / "page.py").split(f"{END_OF_BLOCK}\n")

    return printed


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_its_code_runs_as_it_stands(code: str, tmp_path: Path) -> None:
    run(code, tmp_path / "readme.py")


def test_the_code_of_the_page_on_scaling_runs_as_it_stands(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    run("\n".join(block.code for block in python_blocks(page)), tmp_path / "page.py")


def test_its_first_code_is_ten_lines() -> None:
    assert len([line for line in PYTHON[0].splitlines() if line]) <= 10


def test_ci_runs_its_test_command() -> None:
    [command] = [line for line in COMMANDS if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_its_first_screen_has_exactly_two_commands_that_set_themselves_up() -> None:
    assert len([line for line in COMMANDS if line.startswith("python3 -m venv .venv && ")]) == 2


@pytest.mark.parametrize(
    ("name", "number"),
    [pytest.param(name, number, marks=speed(name)) for name in PAGES for number in PRINTING[name]],
)
def test_a_block_of_a_page_prints_what_stands_below_it(
    name: str, number: int, outputs: Callable[[str], list[str]]
) -> None:
    assert outputs(name)[number] == BLOCKS[name][number].printed


@pytest.mark.parametrize("name", [pytest.param(name, marks=speed(name)) for name in PAGES])
def test_every_block_of_a_page_that_prints_shows_what(name: str, outputs: Callable[[str], list[str]]) -> None:
    assert [number for number, printed in enumerate(outputs(name)) if printed] == PRINTING[name]


def test_every_json_block_of_the_budgeting_page_is_settings() -> None:
    found = re.findall(r"```json\n(.*?)```", PAGES["budgeting"], re.DOTALL)
    assert len(found) > sum(block.settings is not None for block in BLOCKS["budgeting"])
    for text in found:
        ContextSettings().override(json.loads(text))


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", PAGES[name])
    assert targets
    for target in targets:
        path, _, place = target.partition("#")
        page = ROOT / "docs" / (path or f"{name}.md")
        assert page.is_file(), target
        if place:
            assert place in headings(page), target


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}
