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


class Difference(NamedTuple):
    """What differs with us on purpose, and the tests that see it."""

    reason: str
    tests: tuple[str, ...]


class Suite(NamedTuple):
    """Tests of a package, and where this package is put for them."""

    package: str
    where: str
    chosen: tuple[str, ...]
    least: int
    """So many tests at least make an agent or a store."""
    differences: Sequence[Difference] = ()

    @property
    def different_tests(self) -> list[str]:
        tests: list[str] = []
        for difference in self.differences:
            tests += difference.tests
        return tests


TOOL_SELECTION = "middleware/implementations/test_tool_selection.py::TestMalformedSelectionResponse"
DECORATORS = "middleware/core/test_decorators.py"
TOOL_CALLS = "test_invalid_tool_calls.py"
DYNAMIC_TOOLS = (
    "middleware/core/test_dynamic_tools.py::test_dynamic_tool_without_handler_raises_error"
)
IN_LANGCHAIN = [
    Difference(
        "The agent's graph knows the tools that may be bound later, such as the one for recall, and"
        " an agent without tools has the edges of one with tools, along which a jump goes that was"
        " not declared",
        (
            "middleware/core/test_framework.py::test_jump_to_is_ephemeral",
            "middleware/core/test_tools.py::test_model_request_tools_are_base_tools",
            "middleware/core/test_tools.py::test_tools_preserved_across_multiple_middleware",
            f"{TOOL_SELECTION}::test_on_parsing_failure_all_ignores_max_tools",
        ),
    ),
    Difference(
        "The agent's graph has a node more, which stores the turn: pictures of graphs show it",
        (
            f"{DECORATORS}::test_async_middleware_with_can_jump_to_graph_snapshot",
            "middleware/core/test_diagram.py::test_create_agent_diagram",
        ),
    ),
    Difference(
        "Messages of a prompt are equal to the state's, but not the same objects",
        (f"{TOOL_CALLS}::test_create_agent_does_not_duplicate_historical_tool_messages",),
    ),
    Difference(
        "A call without an id gets one, and an answer: providers refuse a call that has neither",
        (f"{TOOL_CALLS}::test_create_agent_patches_only_invalid_tool_calls_with_ids[None-False]",),
    ),
    Difference(
        "A tool that only another middleware has added is run by ours, as those that are not bound"
        " are; LangChain refuses it where no middleware runs calls",
        (
            f"{DYNAMIC_TOOLS}[with_static_tools-False]",
            f"{DYNAMIC_TOOLS}[with_static_tools-True]",
            f"{DYNAMIC_TOOLS}[without_static_tools-False]",
            f"{DYNAMIC_TOOLS}[without_static_tools-True]",
            "middleware/core/test_tools.py::test_unknown_tool_raises_error",
        ),
    ),
]
IN_STORES = [
    Difference(
        "A query finds what has vectors, as LangGraph's SQL stores do; `InMemoryStore` fills up"
        " with the rest",
        ("test_store.py::test_embed_with_path",),
    )
]
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
    tests = sorted(set(without["passed"]) & set(without["concerned"]))
    assert len(tests) >= suite.least, without["failures"]

    failures = failures_with_us(python, folder, suite.where, tests)
    told = told_failures(failures, suite.different_tests)
    assert not told, f"Tests of {suite.package} fail with us that pass without:\n\n{told}"
    assert sorted(failures) == sorted(suite.different_tests), (
        "What does not differ any more is not to be listed"
    )


def failures_with_us(
    python: Path, folder: Path, where: str, tests: Sequence[str]
) -> dict[str, str]:
    """Of tests that pass without us, those that do not pass with us, and why."""
    names = folder / "chosen.txt"
    names.write_text("\n".join(tests), encoding="utf-8")
    within = outcomes(python, folder, where, [f"@{names}"])
    failed = set(tests) - set(within["passed"])
    return {short(test): within["failures"].get(test, "did not run") for test in failed}


def told_failures(failures: Mapping[str, str], listed: Sequence[str]) -> str:
    """The failures that are not listed, with the end of what each says."""
    texts = [f"{name}:\n{why[-2_000:]}" for name, why in failures.items() if name not in listed]
    return "\n\n".join(texts)


def short(test: str) -> str:
    return test.removeprefix("tests/").removeprefix("unit_tests/agents/")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run have in common."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "public-suites"
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
            put_over_this_environment(folder)
            constraints = folder / "constraints.txt"
            versions = [f"{name}=={version(name)}" for name in pinned]
            constraints.write_text("\n".join(versions), encoding="utf-8")
            pip(python, "install", "-c", str(constraints), *packages)
            ready.touch()
    return python


def put_over_this_environment(folder: Path) -> None:
    """Lets an environment import what the one that runs has."""
    below = sysconfig.get_path("purelib")
    bases = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", vars=bases))
    line = f"import site; site.addsitedir({below!r})\n"
    (packages / "over.pth").write_text(line, encoding="utf-8")


def unpacked(shared: Path, python: Path, package: str, folder: Path) -> Path:
    """The tests of a package in the version that is installed, with its pytest configuration."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    command = [python, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    requirement = f"{package}=={printed.strip()}"
    downloads = shared / package
    with FileLock(f"{downloads}.lock"):
        if not list(downloads.glob("*.tar.gz")):
            options = ["--no-deps", "--no-binary", package, "-d", str(downloads)]
            pip(python, "download", *options, requirement)
    with tarfile.open(next(downloads.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter=only_tests)
    return next(folder.iterdir())


def only_tests(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    """Lets through the tests of an archive and their configuration."""
    if f"{member.name}/".split("/")[1] in {"tests", "pyproject.toml"}:
        return tarfile.data_filter(member, path)
    return None


def pip(python: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "-q", "--no-input", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = process.stderr
    if "No matching distribution found" in errors and "Retrying (" not in errors:
        pytest.skip(f"the package index does not have it: {errors[-500:]}")
    if process.returncode:
        _unavailable(f"pip {' '.join(arguments)}: {errors[-2_000:]}")


def outcomes(python: Path, folder: Path, where: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What became of tests with our plugin.

    Which passed, which failed and how, which made an agent or a store.
    """
    file = folder / f"{where}.json"
    settings = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{PLUGIN}",
        "CTXBUDGET_WHERE": where,
        "CTXBUDGET_OUTCOMES": str(file),
        "NO_DOCKER": "true",
    }
    variables = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("PYTEST_") and "API_KEY" not in key
    }
    options = ["-q", "--tb=short", "-o", "addopts=", "-p", "with_ctxbudget"]
    process = subprocess.run(
        [python, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env={**variables, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert file.exists(), f"{process.stdout[-2_000:]}\n{process.stderr[-4_000:]}"
    return json.loads(file.read_text(encoding="utf-8"))
