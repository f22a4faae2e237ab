"""What the README says is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("code", PYTHON, ids=["pipeline", "graph"])
def test_its_code_runs_as_it_stands(code: str, tmp_path: Path) -> None:
    path = tmp_path / "readme.py"
    path.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_its_first_code_is_ten_lines() -> None:
    assert len([line for line in PYTHON[0].splitlines() if line]) <= 10


def test_ci_runs_its_test_command() -> None:
    [command] = [line for line in COMMANDS if "pytest" in line]
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_its_first_screen_has_exactly_two_commands_that_set_themselves_up() -> None:
    assert len([line for line in COMMANDS if line.startswith("python3 -m venv .venv && ")]) == 2
