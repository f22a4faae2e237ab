"""What importing costs: each statement in fresh interpreters, after `langchain_core.messages` has been imported.

python benchmarks/trial_import.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from rich.console import Console
from rich.progress import track
from rich.table import Table

RUNS = 9
BASE = "import langchain_core.messages"
STATEMENTS = [
    "import langchain_ctxbudget",
    "from langchain_ctxbudget import ContextPipeline",
    "from langchain_ctxbudget import build_context_graph",
    "from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware",
]
HEAVY = [
    "chromadb", "httpx", "langchain", "langchain_openai", "langgraph", "langsmith", "numpy", "openai", "tiktoken",
    "tokenizers", "wordllama",
]  # fmt: skip
MEASURE = """
import json, sys, time
{base}
before, start = set(sys.modules), time.perf_counter()
{statement}
seconds = time.perf_counter() - start
print(json.dumps([seconds, [name for name in {heavy} if name in sys.modules and name not in before]]))
"""


def cost(statement: str, base: str = BASE) -> tuple[float, list[str]]:
    """Seconds, and which heavy modules were loaded."""
    code = MEASURE.format(base=base, statement=statement, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, loaded = json.loads(done.stdout)
    return seconds, loaded


def main() -> None:
    table = Table("statement", "median", "fastest", "slowest", "heavy modules that it loads", title=f"{RUNS} processes")
    for column in table.columns[1:4]:
        column.justify = "right"
    rows = [(BASE, ""), *((statement, BASE) for statement in STATEMENTS)]
    for statement, base in track(rows, description="statements", console=Console(stderr=True)):
        times, loaded = zip(*(cost(statement, base) for _ in range(RUNS)), strict=True)
        figures = [f"{seconds:.3f} s" for seconds in (statistics.median(times), min(times), max(times))]
        table.add_row(statement, *figures, ", ".join(loaded[0]) or "none")
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
