"""Holds the package to what it exports, to what importing it loads, and to its arrows."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import langchain_ctxbudget
from langchain_ctxbudget.installing import install_command

PACKAGE = Path(langchain_ctxbudget.__file__).parent

PUBLIC = [
    "AssembledContext",
    "BudgetedChatMessageHistory",
    "BudgetedMemory",
    "BudgetedRetriever",
    "ChromaStore",
    "ContextBudgetMiddleware",
    "ContextPipeline",
    "ContextReport",
    "ContextSettings",
    "CostForecast",
    "EstimatingCounter",
    "HuggingFaceCounter",
    "KnowledgeBase",
    "LocalEmbeddings",
    "ModelCounter",
    "RetentionPolicy",
    "SweepResult",
    "TiktokenCounter",
    "TokenCounter",
    "__version__",
    "build_context_graph",
    "build_remember_node",
    "create_recall_tool",
    "create_tool_search",
]

FLOORS = [
    {"__main__"},
    {"cli"},
    {"demo"},
    {"dashboard", "replay", "readers", "memory", "middleware"},
    {"integrations"},
    {"pipeline"},
    {"prompt"},
    {"layers"},
    {"retrieval"},
    {"knowledge", "documents"},
    {"history", "tools"},
    {"stores"},
    {"report", "search"},
    {"settings", "llm"},
    {"tokens"},
    {"providers", "budget", "sentences"},
    {"messages"},
    {"content"},
    {"receipts"},
    {"flow"},
    {"worker"},
    {"errors", "installing"},
]
"""A room may import from the rooms below it."""

PURE = (
    "budget",
    "content",
    "messages",
    "providers",
    "search",
    "prompt",
    "layers",
    "report",
    "history",
    "knowledge",
    "retrieval",
    "tools",
)
NO_IO = {"asyncio", "chromadb", "os", "random", "sqlite3", "threading", "time", "uuid"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Every node of a file; to read all files takes seconds."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "langchain_ctxbudget":
                names.update(f"langchain_ctxbudget.{alias.name}" for alias in node.names)
    return names


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def rooms_imported(path: Path) -> set[str]:
    """The other rooms of this package that a file imports from."""
    rooms = set()
    for module in imported(path):
        package, _, rest = module.partition(".")
        if package == "langchain_ctxbudget" and rest:
            rooms.add(rest.split(".")[0])
    return rooms - {room_of(path)}


def packages_imported(path: Path) -> set[str]:
    return {module.split(".")[0] for module in imported(path)}


def floor(name: str) -> int:
    """How far down a room is; 0 is the top."""
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


def test_the_public_names_are_these() -> None:
    assert langchain_ctxbudget.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert hasattr(langchain_ctxbudget, name)


def test_no_other_name_can_be_imported() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        langchain_ctxbudget.Nonsense  # noqa: B018


LARGE = {"chromadb", "openai", "wordllama"}
SLOW = LARGE | {
    "langchain",
    "langsmith",
    "langchain_core.language_models.chat_models",
    "langchain_core.runnables.base",
    "langchain_core.tools.base",
    "langchain_core.retrievers",
    "langgraph.graph",
    "rich",
    "tiktoken",
    "langchain_ctxbudget.documents",
    "langchain_ctxbudget.replay",
    "langchain_ctxbudget.knowledge.extraction",
}
"""What takes 10 ms or more to import, and a pipeline does without at first."""
A_TURN = """
from langchain_core.messages import HumanMessage
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget import ContextPipeline, KnowledgeBase
who = {"user_id": "ada", "conversation_id": "c1"}
with ContextPipeline() as pipeline:
    pipeline.add_messages([HumanMessage("My bike is blue.")], **who)
    pipeline.assemble("Which colour is my bike?", **who)
    KnowledgeBase(user_id="ada").add("The kettle is descaled.")
    pipeline.erase_user(user_id="ada")
    pipeline.flush()
"""
COMMAND_LINE = SLOW | {"numpy", "langgraph", "langchain_ctxbudget.pipeline"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        pytest.param("import langchain_ctxbudget", SLOW | {"numpy", "langgraph"}, id="the package"),
        pytest.param("from langchain_ctxbudget import ContextPipeline", SLOW, id="the pipeline"),
        pytest.param(
            "from langchain_ctxbudget.cli.__main__ import main", COMMAND_LINE, id="the command line"
        ),
        pytest.param(
            "from langchain_ctxbudget import ContextPipeline; ContextPipeline()",
            LARGE,
            id="a pipeline",
        ),
        pytest.param(
            "from langchain_ctxbudget import build_context_graph\n"
            "build_context_graph(default_user='ada')",
            LARGE,
            id="a graph",
        ),
        pytest.param(
            "from langchain_ctxbudget.middleware import ContextBudgetMiddleware\n"
            "ContextBudgetMiddleware()",
            LARGE,
            id="a middleware",
        ),
        pytest.param(A_TURN, {"chromadb"}, id="a turn in the default store"),
    ],
)
def test_large_packages_are_not_loaded_before_they_are_needed(
    statement: str, not_loaded: set[str]
) -> None:
    code = f"import sys\n{statement}\nprint(*sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert not_loaded.intersection(done.stdout.split()) == set()


def test_arrows_point_down() -> None:
    wrong = set()
    for path in modules():
        here = room_of(path)
        if here == "__init__":
            continue
        for there in rooms_imported(path):
            if floor(there) <= floor(here):
                wrong.add(f"{here} -> {there}")

    assert wrong == set()


def modules_imported_at_the_top(path: Path) -> set[str]:
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    return {
        statement.module
        for statement in statements
        if isinstance(statement, ast.ImportFrom) and statement.module
    }


def is_behind_a_door(module: str, room: str) -> bool:
    """Whether this is a module inside another room of this package."""
    package, *rest = module.split(".")
    return package == "langchain_ctxbudget" and len(rest) > 1 and rest[0] != room


def test_rooms_are_entered_by_their_doors() -> None:
    """What a function imports when it is first used may be a module that its room leaves out."""
    through_walls = set()
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        if name in {"__init__.py", "__main__.py", "memory.py", "middleware.py"}:
            continue
        # A file beside the rooms is no room: whatever has its name is behind a door.
        room = path.relative_to(PACKAGE).parts[0]
        for module in modules_imported_at_the_top(path):
            if is_behind_a_door(module, room):
                through_walls.add(f"{name}: {module}")

    assert through_walls == set()


READS_BLOCKS = ("content", "providers", "readers")
"""The rooms that look into content blocks, and into files of others; everybody else asks parts."""
OF_BLOCKS = {
    "blocks_of",
    "is_raw",
    "raw_text",
    "says_something",
    "text_block",
    "without_trailing_thoughts",
}
"""What the room `content` has for `providers` alone."""
OTHER_TYPES = {
    "budget/parameters.py": "errors of pydantic",
    "messages/accepting.py": "roles of messages",
    "documents/reading.py": "metadata of documents",
    "knowledge/control_flows.py": "kinds of entities",
    "tokens/schemas.py": "JSON schemas",
    "tools/known.py": "tools as their providers define them",
    "tools/signatures.py": "JSON schemas",
    "tokens/window.py": "a server's list of models",
}
"""Files that look at a `type` which is no content block's."""


def files_that_ask_parts() -> list[Path]:
    return [path for path in modules() if room_of(path) not in READS_BLOCKS]


def asks_for_type(node: ast.AST) -> bool:
    """Whether this is `x["type"]` or `x.get("type")`."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "type"
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    keys = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    return node.func.attr == "get" and keys[:1] == ["type"]


def goes_through_content(node: ast.AST) -> bool:
    """Whether this goes through `x.content`, block by block."""
    if not isinstance(node, ast.For | ast.comprehension):
        return False
    names = [inner.attr for inner in ast.walk(node.iter) if isinstance(inner, ast.Attribute)]
    return names == ["content"]


@pytest.mark.parametrize("looks", [asks_for_type, goes_through_content])
def test_nobody_else_looks_into_content_blocks(looks: Callable[[ast.AST], bool]) -> None:
    looking = set()
    for path in files_that_ask_parts():
        if any(map(looks, nodes_of(path))):
            looking.add(path.relative_to(PACKAGE).as_posix())

    assert looking - OTHER_TYPES.keys() == set()


def test_nobody_else_imports_what_is_for_blocks() -> None:
    importing = set()
    for path in files_that_ask_parts():
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module == "langchain_ctxbudget.content":
                names = {alias.name for alias in node.names}
                importing |= {f"{room_of(path)}: {name}" for name in names & OF_BLOCKS}

    assert importing == set()


@pytest.mark.parametrize("room", PURE)
def test_a_pure_room_does_no_io(room: str) -> None:
    impure = [
        path.relative_to(PACKAGE).as_posix()
        for path in (PACKAGE / room).rglob("*.py")
        if packages_imported(path) & NO_IO
    ]

    assert impure == []


@pytest.mark.parametrize(
    ("package", "rooms"),
    [("chromadb", {"stores"}), ("tokenizers", {"search", "tokens"}), ("httpx", {"tokens"})],
)
def test_few_rooms_import_what_is_large_or_talks_to_others(package: str, rooms: set[str]) -> None:
    users = {room_of(path) for path in modules() if package in packages_imported(path)}

    assert users == rooms


ARCHITECTURE = Path(__file__).parents[2] / "docs" / "internals" / "architecture.md"


def modules_listed() -> set[str]:
    """Returns the paths of the modules in the table of the page on the architecture."""
    page = ARCHITECTURE.read_text(encoding="utf-8")
    listed: set[str] = set()
    for room, names in re.findall(r"^\| (?:`(\w+/)`|\(top\)) \| ([`\w ]+) \|$", page, re.MULTILINE):
        listed |= {f"{room}{name}.py" for name in re.findall(r"\w+", names)}
    return listed


def test_the_page_on_the_architecture_lists_every_module() -> None:
    paths = {path.relative_to(PACKAGE).as_posix() for path in modules()}
    assert modules_listed() == {path for path in paths if not path.endswith("__init__.py")}


def test_every_path_on_the_page_on_the_architecture_exists() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+\w+\.\w+)`", page)
    places = (PACKAGE, PACKAGE.parent)
    assert [path for path in named if not any((place / path).exists() for place in places)] == []


@pytest.mark.slow
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
    assert install_command(extra) in done.stderr.splitlines()[-1]
