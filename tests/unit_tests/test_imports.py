"""What the package exports, what importing it loads, and which way its arrows point."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import langchain_ctxbudget

PACKAGE = Path(langchain_ctxbudget.__file__).parent

PUBLIC = """AssembledContext BudgetedChatMessageHistory BudgetedMemory BudgetedRetriever ChromaStore
    ContextBudgetMiddleware ContextPipeline ContextReport ContextSettings EstimatingCounter HuggingFaceCounter
    KnowledgeBase LocalEmbeddings ModelCounter TiktokenCounter TokenCounter __version__ build_context_graph
    create_recall_tool""".split()

FLOORS = [
    {"cli"},
    {"dashboard", "replay", "memory", "middleware"},
    {"integrations"},
    {"pipeline"},
    {"prompt"},
    {"retrieval"},
    {"knowledge", "documents"},
    {"history"},
    {"stores"},
    {"report", "search"},
    {"settings", "llm"},
    {"tokens"},
    {"budget"},
    {"messages"},
    {"flow", "demo"},
    {"worker"},
    {"errors"},
]
"""A room may import from the rooms below it."""

PURE = ("budget", "messages", "search", "prompt", "report", "history", "knowledge", "retrieval")
NO_IO = {"asyncio", "chromadb", "os", "random", "sqlite3", "threading", "time", "uuid"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "langchain_ctxbudget":
                names.update(f"langchain_ctxbudget.{alias.name}" for alias in node.names)
    return names


def room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "langchain_ctxbudget" and len(parts) > 1 else None


def floor(name: str) -> int:
    """How far down a room is; 0 is the top."""
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


def test_the_public_names_can_be_imported_and_no_other() -> None:
    assert langchain_ctxbudget.__all__ == PUBLIC
    assert {name for name in PUBLIC if not hasattr(langchain_ctxbudget, name)} == set()
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        langchain_ctxbudget.Nonsense  # noqa: B018


LARGE = {"chromadb", "openai", "wordllama"}
SLOW = LARGE | {
    *(
        "langchain",
        "langsmith",
        "langchain_core.language_models.chat_models",
        "langchain_core.runnables.base",
        "rich",
    ),
    *("langchain_core.tools.base", "langchain_core.retrievers", "langgraph.graph", "tiktoken"),
    *(
        "langchain_ctxbudget.documents",
        "langchain_ctxbudget.replay",
        "langchain_ctxbudget.knowledge.rules",
    ),
    "langchain_ctxbudget.knowledge.extraction",
}
"""What takes 10 ms or more to import, and a pipeline does without at first."""
NOT_LOADED = {
    "import langchain_ctxbudget": SLOW | {"numpy", "langgraph"},
    "from langchain_ctxbudget import ContextPipeline": SLOW,
    "from langchain_ctxbudget.cli.__main__ import main": SLOW
    | {"numpy", "langgraph", "langchain_ctxbudget.pipeline"},
    "from langchain_ctxbudget import ContextPipeline; ContextPipeline()": LARGE,
    "from langchain_ctxbudget import build_context_graph; build_context_graph(default_user='ada')": LARGE,
    "from langchain_ctxbudget.middleware import ContextBudgetMiddleware; ContextBudgetMiddleware()": LARGE,
    """
from langchain_core.messages import HumanMessage
from langchain_ctxbudget import ContextPipeline, KnowledgeBase
who = {"user_id": "ada", "conversation_id": "c1"}
with ContextPipeline() as pipeline:
    pipeline.add_messages([HumanMessage("My bike is blue.")], **who)
    pipeline.assemble("Which colour is my bike?", **who)
    KnowledgeBase(user_id="ada").add("The kettle is descaled.")
    pipeline.erase_user(user_id="ada")
    pipeline.flush()
""": {"chromadb"},
}
"""Before a turn is assembled nothing large is loaded; with the default store, Chroma never is."""


@pytest.mark.parametrize("statement", NOT_LOADED)
def test_large_packages_are_not_loaded_before_they_are_needed(statement: str) -> None:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not NOT_LOADED[statement].intersection(done.stdout.split())


def test_arrows_point_down() -> None:
    arrows = {
        f"{here} -> {there}"
        for path in modules()
        if (here := path.relative_to(PACKAGE).parts[0].removesuffix(".py")) != "__init__"
        for module in imported(path)
        if (there := room(module)) and there != here and floor(there) <= floor(here)
    }
    assert not arrows


def test_rooms_are_entered_by_their_doors() -> None:
    """What is imported when it is first used, inside a function, may be a module that its room leaves out."""
    through_walls = {
        f"{path.relative_to(PACKAGE).as_posix()}: {node.module}"
        for path in modules()
        if (here := path.relative_to(PACKAGE).parts)[0]
        not in {"__init__.py", "memory.py", "middleware.py"}
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.count(".") > 1
        if (there := room(node.module)) and there != here[0]
    }
    assert not through_walls


def test_pure_rooms_do_no_io() -> None:
    impure = {
        path.relative_to(PACKAGE).as_posix()
        for name in PURE
        for path in (PACKAGE / name).rglob("*.py")
        if {module.split(".")[0] for module in imported(path)} & NO_IO
    }
    assert not impure


def test_few_rooms_import_what_is_large_or_talks_to_others() -> None:
    for module, rooms in {
        "chromadb": {"stores"},
        "tokenizers": {"search", "tokens"},
        "httpx": {"tokens"},
    }.items():
        users = {
            path.relative_to(PACKAGE).parts[0].removesuffix(".py")
            for path in modules()
            if module in {name.split(".")[0] for name in imported(path)}
        }
        assert users == rooms, module


def test_the_page_on_the_architecture_names_every_file() -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "architecture.md").read_text(
        encoding="utf-8"
    )
    files = {
        path.relative_to(PACKAGE).as_posix() for path in modules() if path.name != "__init__.py"
    }
    assert set(re.findall(r"`((?:\w+/)?\w+\.py)`", page)) == files


@pytest.mark.parametrize(
    ("package", "statement", "extra"),
    [
        ("langchain", "from langchain_ctxbudget import ContextBudgetMiddleware", "agents"),
        ("langchain", "import langchain_ctxbudget.middleware", "agents"),
        ("langchain_classic", "from langchain_ctxbudget import BudgetedMemory", "classic"),
        ("langchain_classic", "import langchain_ctxbudget.memory", "classic"),
        ("starlette", "import langchain_ctxbudget.dashboard", "dashboard"),
        ("matplotlib", "import langchain_ctxbudget.report.plots", "plots"),
    ],
)
def test_what_needs_an_extra_names_it(package: str, statement: str, extra: str) -> None:
    code = f"import sys\nsys.modules[{package!r}] = None\n{statement}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"pip install 'langchain-ctxbudget[{extra}]'" in done.stderr.splitlines()[-1]
