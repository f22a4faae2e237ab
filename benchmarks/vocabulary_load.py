"""What the first exact count costs: the import, the vocabulary, the encoding; each in new processes.

python benchmarks/vocabulary_load.py
"""

from __future__ import annotations

import subprocess
import sys

RUNS = 9
STEPS = {
    "import of the counters": "import langchain_ctxbudget.tokens.counters",
    "import of tiktoken": "import tiktoken",
    "ranks from the packed file": "vocab.ranks(vocab._read())",
    "encoding, all in all": "vocab.encoding()",
    "characters for the estimate": "vocab.single_characters()",
    "local embeddings": "LocalEmbeddings().embed_query('x')",
}
SETUP = {
    "import of the counters": "import langchain_core.messages",
    "import of tiktoken": "",
    "local embeddings": "from langchain_ctxbudget import LocalEmbeddings",
}
DEFAULT_SETUP = "import tiktoken; from langchain_ctxbudget.core import vocab"


def milliseconds(setup: str, step: str) -> float:
    code = f"{setup}\nimport time\nstart = time.perf_counter()\n{step}\nprint((time.perf_counter() - start) * 1000)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    print(f"{'step':<30}{'best':>8}{'median':>9}  ms, of {RUNS} processes")
    for name, step in STEPS.items():
        times = sorted(milliseconds(SETUP.get(name, DEFAULT_SETUP), step) for _ in range(RUNS))
        print(f"{name:<30}{times[0]:>8.1f}{times[RUNS // 2]:>9.1f}")


if __name__ == "__main__":
    main()
