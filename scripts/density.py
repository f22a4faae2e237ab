"""Prints how densely the code is written, beside two libraries that read well.

A mirror, not a limit.

    python scripts/density.py [FOLDER or FILE ...]

Without arguments it shows the package, each of its rooms, and the tests. No test reads the figures:
a figure can be met by code that nobody understands, so reviewers read the code.
"""  # noqa: INP001

import ast
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

MOST_BRANCHES = 10
"""A function of a higher cyclomatic complexity counts as complex."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
GRAMMAR = (ast.expr_context, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)
"""Nodes that stand for no piece of text of their own."""
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
)
NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
NEIGHBOURS = (
    ("httpx", "8,828    4.1    0.5    9.3    0.1    0.0      2      9 of 446"),
    ("starlette", "7,075    4.9    0.6    5.4    0.0    0.3     78     26 of 527"),
)
"""Their rows, measured on 2026-11-20."""
HEADING = """\
                                    lines  nodes  tuple  if-   nested   :=  number   functions
                                           /line   =     else                consts  too complex
                                                  (per 1,000 lines)"""


@dataclass
class Density:
    """What was counted in some files."""

    lines: int = 0
    code_lines: int = 0
    """Lines that are neither blank, comment nor docstring."""
    nodes: int = 0
    tuple_assignments: int = 0
    conditional_expressions: int = 0
    nested_comprehensions: int = 0
    walruses: int = 0
    number_constants: int = 0
    functions: int = 0
    complex_functions: int = 0

    def __add__(self, other: "Density") -> "Density":
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
        }
        return Density(**sums)

    def row(self, name: str) -> str:
        """Returns one line of the table."""
        thousands = max(1, self.lines) / 1_000
        cells = [
            f"{name[:34]:34}",
            f"{self.lines:7,}",
            f"{self.nodes / max(1, self.code_lines):6.1f}",
            f"{self.tuple_assignments / thousands:6.1f}",
            f"{self.conditional_expressions / thousands:6.1f}",
            f"{self.nested_comprehensions / thousands:6.1f}",
            f"{self.walruses / thousands:6.1f}",
            f"{self.number_constants:6}",
            f"{self.complex_functions:6} of {self.functions}",
        ]
        return " ".join(cells)


def density_of(path: Path) -> Density:
    """Returns the counts of one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    counted = Density(lines=len(text.splitlines()), code_lines=_code_lines(text, tree))
    for node in ast.walk(tree):
        counted.nodes += not isinstance(node, GRAMMAR)
        counted.conditional_expressions += isinstance(node, ast.IfExp)
        counted.walruses += isinstance(node, ast.NamedExpr)
        if isinstance(node, ast.Assign):
            counted.tuple_assignments += isinstance(node.targets[0], ast.Tuple) and isinstance(
                node.value, ast.Tuple
            )
        if isinstance(node, COMPREHENSIONS):
            counted.nested_comprehensions += _is_nested(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            counted.functions += 1
            counted.complex_functions += complexity(node) > MOST_BRANCHES
    counted.number_constants = sum(map(_number_constants, tree.body))
    return counted


def complexity(function: ast.AST) -> int:
    """Returns one more than the number of a function's branches, comprehensions included."""
    branches = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            branches += 1
        elif isinstance(node, ast.BoolOp):
            branches += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            branches += 1 + len(node.ifs)
    return branches


def _code_lines(text: str, tree: ast.AST) -> int:
    docstring_lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstring_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines)


def _is_nested(comprehension: ast.expr) -> bool:
    if len(getattr(comprehension, "generators", ())) > 1:
        return True
    inner = (node for node in ast.walk(comprehension) if node is not comprehension)
    return any(isinstance(node, COMPREHENSIONS) for node in inner)


def _number_constants(statement: ast.stmt) -> int:
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return 0
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return sum(
        isinstance(value, ast.Constant) and type(value.value) in (int, float) for value in values
    )


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _sum(paths: Iterable[Path]) -> Density:
    return sum(map(density_of, paths), Density())


def rows(names: list[str]) -> Iterator[str]:
    """Yields the table for some folders and files.

    Without names, for the package by room, and the tests.
    """
    yield HEADING
    for name, figures in NEIGHBOURS:
        yield f"{name:34}  {figures}"
    for name in names or ["langchain_ctxbudget", "tests"]:
        yield _sum(_python_files(Path(name))).row(name)
    if not names:
        package = Path("langchain_ctxbudget")
        rooms = sorted({path.relative_to(package).parts[0] for path in _python_files(package)})
        for room in rooms:
            yield _sum(_python_files(package / room)).row(f"  {room}")


if __name__ == "__main__":
    print("\n".join(rows(sys.argv[1:])))  # noqa: T201
