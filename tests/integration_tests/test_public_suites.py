"""The tests of other packages, from their source distributions, with this package put into them."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from filelock import FileLock

from tests.servers import _unavailable

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tests" / "public_suites"
PINNED = ("langchain", "langchain-core", "langgraph", "langgraph-checkpoint", "langgraph-prebuilt")
"""What is tested is what is installed."""
TEST_TOOLS = (
    "blockbuster",
    "langgraph-checkpoint-sqlite",
    "pycryptodome",
    "pytest-mock",
    "redis",
    "syrupy",
)
PROGRAMS = ("langgraph-supervisor", "langgraph-swarm")

IN_LANGCHAIN = {
    "The agent gets a tool more, for recall: it is bound, sent and counted with the others, and an agent without tools "
    "has the edges of one with tools, along which a jump goes that was not declared": """
        middleware/core/test_framework.py::test_jump_to_is_ephemeral
        middleware/core/test_tools.py::test_model_request_tools_are_base_tools
        middleware/core/test_tools.py::test_tools_preserved_across_multiple_middleware
        middleware/implementations/test_tool_selection.py::TestMalformedSelectionResponse::test_on_parsing_failure_all_ignores_max_tools
        test_response_format.py::test_wrap_model_call_narrows_response_format_tools
        test_response_format_integration.py::test_inference_to_native_output[False]
        test_response_format_integration.py::test_inference_to_native_output[True]
        test_response_format_integration.py::test_inference_to_tool_output[False]
        test_response_format_integration.py::test_inference_to_tool_output[True]
        test_response_format_integration.py::test_strict_mode[False]
        test_response_format_integration.py::test_strict_mode[True]
    """,
    "The agent's graph has a node more, which stores the turn: pictures of graphs show it": """
        middleware/core/test_decorators.py::test_async_middleware_with_can_jump_to_graph_snapshot
        middleware/core/test_diagram.py::test_create_agent_diagram
    """,
    "Messages of a prompt are equal to the state's, but not the same objects": """
        test_invalid_tool_calls.py::test_create_agent_does_not_duplicate_historical_tool_messages
    """,
    "A call without an id gets one, and an answer: providers refuse a call that has neither": """
        test_invalid_tool_calls.py::test_create_agent_patches_only_invalid_tool_calls_with_ids[None-False]
    """,
}
IN_STORES = {
    "A query finds what has vectors, as LangGraph's SQL stores do; `InMemoryStore` fills up with the rest": """
        test_store.py::test_embed_with_path
    """
}


class Suite(NamedTuple):
    package: str
    where: str
    chosen: tuple[str, ...]
    least: int
    differences: Mapping[str, str] = {}


STORE_TESTS = ("-k", "store or injectable or injected")
SUITES = [
    Suite("langchain", "middleware", ("tests/unit_tests/agents",), 400, IN_LANGCHAIN),
    Suite("langgraph-checkpoint", "store", ("tests/test_store.py",), 20, IN_STORES),
    Suite(
        "langgraph",
        "store",
        (
            "tests/test_pregel.py",
            "tests/test_pregel_async.py",
            "tests/test_runtime.py",
            *STORE_TESTS,
        ),
        6,
    ),
    Suite("langgraph-prebuilt", "store", ("tests", *STORE_TESTS), 10),
    Suite(
        "langgraph-prebuilt",
        "hook",
        ("tests/test_react_agent.py", "tests/test_react_agent_graph.py"),
        50,
    ),
    Suite("langgraph-supervisor", "hook", ("tests",), 5),
    Suite("langgraph-swarm", "middleware", ("tests",), 2),
]


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: f"{suite.package}-{suite.where}")
def test_tests_of_other_packages_pass_with_us_as_without(
    suite: Suite, shared: Path, tmp_path: Path
) -> None:
    python = environment(shared / "suites", [*TEST_TOOLS, *PROGRAMS], PINNED)
    folder = unpacked(shared, python, suite.package, tmp_path)
    without = outcomes(python, folder, "nowhere", suite.chosen)
    chosen = sorted(set(without["passed"]) & set(without["concerned"]))
    assert len(chosen) >= suite.least, without["failures"]
    names = folder / "chosen.txt"
    names.write_text("\n".join(chosen), encoding="utf-8")
    within = outcomes(python, folder, suite.where, [f"@{names}"])
    different = {
        short(test): within["failures"].get(test, "did not run")
        for test in set(chosen) - set(within["passed"])
    }
    listed = [name for names in suite.differences.values() for name in names.split()]
    unknown = "\n\n".join(
        f"{name}:\n{why[-2_000:]}" for name, why in different.items() if name not in listed
    )
    assert not unknown, f"Tests of {suite.package} fail with us that pass without:\n\n{unknown}"
    assert sorted(different) == sorted(listed), "What does not differ any more is not to be listed"


def short(test: str) -> str:
    return test.removeprefix("tests/").removeprefix("unit_tests/agents/")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run have in common."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "public-suites"
    folder.mkdir(exist_ok=True)
    return folder


def environment(folder: Path, packages: Iterable[str], pinned: Iterable[str] = ()) -> Path:
    """The Python of an environment over the one that runs.

    It has what that has, and some packages more.
    """
    with FileLock(f"{folder}.lock"):
        python = folder / "bin" / "python"
        ready = folder / "ready"
        if not ready.exists():
            venv.create(folder, clear=True)
            below = sysconfig.get_path("purelib")
            own = Path(
                sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
            )
            (own / "over.pth").write_text(
                f"import site; site.addsitedir({below!r})\n", encoding="utf-8"
            )
            constraints = folder / "constraints.txt"
            constraints.write_text(
                "\n".join(f"{name}=={version(name)}" for name in pinned), encoding="utf-8"
            )
            pip(python, "install", "-c", str(constraints), *packages)
            ready.touch()
    return python


def unpacked(shared: Path, python: Path, package: str, folder: Path) -> Path:
    """The tests of a package in the version that is installed, with its pytest configuration."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    number = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    kept = shared / package
    with FileLock(f"{kept}.lock"):
        if not list(kept.glob("*.tar.gz")):
            pip(
                python,
                "download",
                "--no-deps",
                "--no-binary",
                package,
                "-d",
                str(kept),
                f"{package}=={number}",
            )
    with tarfile.open(next(kept.glob("*.tar.gz"))) as archive:
        archive.extractall(
            folder,
            filter=lambda member, path: (
                tarfile.data_filter(member, path)
                if f"{member.name}/".split("/")[1] in {"tests", "pyproject.toml"}
                else None
            ),
        )
    return next(folder.iterdir())


def pip(python: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "-q", "--no-input", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution found" in done.stderr and "Retrying (" not in done.stderr:
        pytest.skip(f"the package index does not have it: {done.stderr[-500:]}")
    if done.returncode:
        _unavailable(f"pip {' '.join(arguments)}: {done.stderr[-2_000:]}")


def outcomes(python: Path, folder: Path, where: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What became of tests with our plugin.

    Which passed, which failed and how, which made an agent or a store.
    """
    written = folder / f"{where}.json"
    settings = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{PLUGIN}",
        "CTXBUDGET_WHERE": where,
        "CTXBUDGET_OUTCOMES": str(written),
        "NO_DOCKER": "true",
    }
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("PYTEST_") and "API_KEY" not in key
    }
    done = subprocess.run(
        [
            python,
            "-m",
            "pytest",
            "-q",
            "--tb=short",
            "-o",
            "addopts=",
            "-p",
            "with_ctxbudget",
            *arguments,
        ],
        cwd=folder,
        env={**kept, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert written.exists(), f"{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    return json.loads(written.read_text(encoding="utf-8"))
