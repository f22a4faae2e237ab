"""Every example runs, offline, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_example_runs(path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not done.stderr
