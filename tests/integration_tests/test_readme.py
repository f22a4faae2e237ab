"""What the README and the pages say is what happens."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from langchain_ctxbudget import ContextSettings
from tests.warm import Ran, run_all

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
        "scaling",
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


BLOCKS = {name: python_blocks(page) for name, page in PAGES.items()}


def program(name: str) -> str:
    """All Python blocks of a page, one after the other."""
    parts: list[str] = []
    for block in BLOCKS[name]:
        parts.append(block.code)
        if block.settings is not None:
            parts.append(f"import json\nassert settings == ContextSettings().override(json.loads({block.settings!r}))")
        parts.append(f"print({END_OF_BLOCK!r})")
    return "\n".join(parts)


@cache
def ran(*names: str) -> dict[str, Ran]:
    """What became of the pages with these names; of `README`, of each of its blocks."""
    programs = {name: program(name) for name in names if name in PAGES}
    if "README" in names:
        programs |= {f"README {number}": code for number, code in enumerate(PYTHON)}
    return dict(zip(programs, run_all(list(programs.values())), strict=True))


def outcome(name: str) -> Ran:
    return ran(*SLOW)[name] if name in SLOW else ran("README", *(page for page in PAGES if page not in SLOW))[name]


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_its_code_runs_as_it_stands(number: int) -> None:
    done = outcome(f"README {number}")
    assert done.code == 0, done.err


def test_ci_runs_its_test_command() -> None:
    [command] = [line for line in COMMANDS if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PAGES])
def test_the_blocks_of_a_page_print_what_stands_below_them(name: str) -> None:
    done = outcome(name)
    assert done.code == 0, done.err
    printed = done.out.split(f"{END_OF_BLOCK}\n")
    for block, found in zip(BLOCKS[name], printed, strict=False):
        assert (block.printed or "") == found


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
