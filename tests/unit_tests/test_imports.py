"""What the package exports, what importing it loads, and which way its arrows point."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import langchain_ctxbudget

PACKAGE = Path(langchain_ctxbudget.__file__).parent

PUBLIC = [
    "AssembledContext",
    "BudgetedChatMessageHistory",
    "BudgetedRetriever",
    "ChromaStore",
    "ContextPipeline",
    "ContextReport",
    "ContextSettings",
    "EstimatingCounter",
    "HuggingFaceCounter",
    "KnowledgeBase",
    "LocalEmbeddings",
    "ModelCounter",
    "TiktokenCounter",
    "TokenCounter",
    "build_context_graph",
    "create_recall_tool",
]

# A room may import from the rooms below it and from its own floor.
FLOORS = [
    {
        "callbacks",
        "chat_history",
        "cli",
        "dashboard",
        "dashboard_command",
        "graph",
        "importing",
        "inspecting",
        "knowledge_base",
        "knowledge_tables",
        "memory",
        "middleware",
        "replay",
        "replay_command",
        "replay_result",
        "replay_strategies",
        "rerankers",
        "retrievers",
        "terminal",
        "tools",
    },
    {"pipeline_options"},
    {"pipeline"},
    {
        "history_window",
        "runnable",
        "snapshot_book",
        "stored_conversations",
        "stored_settings",
        "usage_book",
        "user_knowledge",
    },
    {"engine"},
    {"keeper"},
    {"forecasting", "learning", "what_if", "summarizing"},
    {"steps"},
    {"accounting", "filling"},
    {"budgeting"},
    {"progress", "recent", "tracing"},
    {"bookkeeping"},
    {"draft", "ledger", "target", "opening", "runs"},
    {"documents", "history", "knowledge", "retrieval", "formats", "demo"},
    {"stores", "embeddings", "counters", "windows", "serving", "flow", "background", "kin"},
    {"settings"},
    {"core"},
    {"errors", "reporting"},
]

PURE_MUST_NOT_IMPORT = {
    "asyncio", "chromadb", "datetime", "langgraph", "logging", "os", "random", "sqlite3", "threading", "time", "uuid",
}  # fmt: skip
NEEDS_A_LOCK = {"core/tokens.py": {"threading"}, "core/vocab/__init__.py": {"threading"}}
"""Caches that threads share: the values are pure, the cache is not."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


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
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


def test_all_is_the_public_list() -> None:
    assert langchain_ctxbudget.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(langchain_ctxbudget, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        langchain_ctxbudget.Nonsense  # noqa: B018


@pytest.mark.parametrize("heavy", ["chromadb", "langchain", "openai", "wordllama", "tiktoken", "numpy"])
def test_importing_the_package_does_not_load(heavy: str) -> None:
    code = f"import sys, langchain_ctxbudget; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("heavy", ["chromadb", "openai", "wordllama"])
@pytest.mark.parametrize(
    "statement",
    [
        "from langchain_ctxbudget import ContextPipeline; ContextPipeline()",
        "from langchain_ctxbudget import build_context_graph; build_context_graph(default_user='ada')",
        "from langchain_ctxbudget.middleware import ContextBudgetMiddleware; ContextBudgetMiddleware()",
    ],
    ids=["pipeline", "graph", "middleware"],
)
def test_before_a_turn_is_assembled_it_does_not_load(statement: str, heavy: str) -> None:
    code = f"import sys; {statement}; print({heavy!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if here == "__init__":
        return
    above = {module for module in imported(path) if (to := room(module)) and floor(to) < floor(here)}
    assert not above, f"{here} imports from above itself: {sorted(above)}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").rglob("*.py")), ids=lambda path: path.name)
def test_the_core_does_no_io(path: Path) -> None:
    allowed = NEEDS_A_LOCK.get(str(path.relative_to(PACKAGE)), set())
    top = {module.split(".")[0] for module in imported(path)}
    assert not top & (PURE_MUST_NOT_IMPORT - allowed)


@pytest.mark.parametrize(
    ("module", "only"),
    [("chromadb", ("stores/",)), ("tokenizers", ("embeddings.py", "counters.py")), ("httpx", ("serving.py",))],
)
def test_few_rooms_import(module: str, only: tuple[str, ...]) -> None:
    users = [
        str(path.relative_to(PACKAGE)) for path in modules() if module in {m.split(".")[0] for m in imported(path)}
    ]
    assert users
    assert all(user.startswith(only) for user in users)


def test_no_module_is_longer_than_its_room() -> None:
    long = {path.name: n for path in modules() if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not long
