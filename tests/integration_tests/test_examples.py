"""Every example runs, offline."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from langgraph.graph.state import CompiledStateGraph

from tests.warm import Ran, run_all

ROOT = Path(__file__).parents[2]
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
def ran() -> dict[str, Ran]:
    return {path.name: done for path, done in zip(PATHS, run_all(PATHS), strict=True)}


@pytest.mark.parametrize("name", [path.name for path in PATHS])
def test_example_runs(ran: dict[str, Ran], name: str) -> None:
    done = ran[name]
    assert (done.code, done.err) == (0, "")
    assert done.out.strip()
    assert SAYS.get(name, "") in done.out


def test_langgraph_json_takes_its_own_folder_along() -> None:
    described = json.loads((ROOT / "examples" / "server" / "langgraph.json").read_text(encoding="utf-8"))
    assert "." in described["dependencies"]


def test_langgraph_json_names_a_graph() -> None:
    folder = ROOT / "examples" / "server"
    for target in json.loads((folder / "langgraph.json").read_text(encoding="utf-8"))["graphs"].values():
        module, _, name = target.partition(":")
        assert isinstance(runpy.run_path(str(folder / module))[name], CompiledStateGraph)
