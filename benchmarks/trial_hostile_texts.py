"""What texts that nobody wrote by hand cost: every step of a turn, at one length and at twice that.

Each text has a process of its own. A row shows the step that grew most or was slowest; `--all` shows every step.

    python benchmarks/trial_hostile_texts.py
    python benchmarks/trial_hostile_texts.py --size 1000000 --only "base64" --all
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from rich.console import Console
from rich.progress import track
from rich.table import Table

from langchain_ctxbudget import BudgetedRetriever, ContextPipeline, KnowledgeBase, create_recall_tool
from langchain_ctxbudget.errors import CtxBudgetError

SETTINGS = {"max_context_tokens": 4_000}
_CHOSEN = random.Random(1)
_LOG = "2026-03-01T12:00:0{} INFO worker-{} handled request /api/v1/items/{} in {} ms\n"
_WORDS = " ".join(f"{_CHOSEN.choice('bcdfgklm')}{_CHOSEN.choice('aeiou')}{n:x}" for n in range(2_000))


def _log_lines(size: int) -> str:
    lines = (_LOG.format(n % 10, n % 7, n, n * 37 % 900) for n in range(size // 70 + 1))
    return "".join(lines)[:size]


def _json(size: int) -> str:
    rows = [{"id": n, "name": f"item {n}", "tags": ["a", "b"], "price": n / 100} for n in range(size // 60 + 1)]
    return json.dumps(rows, separators=(",", ":"))


def _repeated(unit: str) -> Callable[[int], str]:
    return lambda size: (unit * (size // len(unit) + 1))[:size]


TEXTS: dict[str, Callable[[int], str]] = {
    "prose": _repeated(_WORDS.replace(" bo", ". Bo") + ". "),
    "log": _log_lines,
    "one word": _repeated("x"),
    "random letters": lambda size: "".join(random.Random(2).choices("abcdefghijklmnopqrstuvwxyz", k=size)),
    "capitals": _repeated("X"),
    "one emoji": _repeated("\U0001f642"),
    "joined emoji": _repeated("\U0001f469\u200d"),
    "e.g.": _repeated("e.g. "),
    "a.": _repeated("a."),
    "a. with space": _repeated("a. "),
    "dots": _repeated("."),
    "questions": _repeated("? "),
    "spaces": _repeated(" "),
    "spaces then x": lambda size: " " * (size - 1) + "x",
    "tabs and spaces": _repeated("\t "),
    "newlines": _repeated("\n"),
    "lines of x": _repeated("x\n"),
    "carriage returns": _repeated("\r\n \r\n"),
    "round brackets": _repeated("("),
    "square brackets": _repeated("["),
    "braces": _repeated('{"a":'),
    "quotes": _repeated('"'),
    "single quotes": _repeated("it's '"),
    "backticks": _repeated("```\n"),
    "table": _repeated("| a | b | c |\n|---|---|---|\n"),
    "headings": _repeated("# a\n"),
    "lists": _repeated("- a\n"),
    "base64": lambda size: base64.b64encode(random.Random(3).randbytes(size * 3 // 4)).decode(),
    "minified JSON": _json,
    "zero-width joiners": _repeated("\u200d"),
    "combining marks": lambda size: "e" + "\u0301" * (size - 1),
    "unspaced": _repeated("\u6211\u4eca\u5929\u5728\u5317\u4eac\u5403\u4e86\u5f88\u591a\u4e1c\u897f"),
    "unspaced sentences": _repeated("\u6211\u7684\u3002"),
    "look-alikes of a fence": _repeated("<\uff0fcontext"),
    "open brackets": _repeated("<"),
    "open and slashes": _repeated("</ "),
    "addresses": _repeated("https://example.com/a/b?c=d&"),
    "e-mail": _repeated("a.b@"),
    "paths": _repeated("/usr/lib/"),
    "digits": _repeated("1234567890"),
    "dates": _repeated("2026-03-01 "),
    "numbers": _repeated("1,"),
    "names": _repeated("Ada Lovelace and "),
    "capital words": _repeated("Ada "),
    "I am": _repeated("I am "),
    "I am a": _repeated("I like the "),
    "my name is": _repeated("My name is Ada and "),
    "remember that": _repeated("Remember that "),
    "and": _repeated("and "),
    "of the": _repeated("of the "),
    "commas": _repeated("a, "),
    "hyphens": _repeated("a-"),
    "underscores": _repeated("a_"),
    "camel": _repeated("aB"),
    "tags": _repeated("<b>"),
    "diff": _repeated("@@ -1,2 +1,2 @@\n-a\n+b\n"),
    "traceback": _repeated('  File "a.py", line 1, in f\n    f()\nValueError: x\n'),
    "nul": _repeated("\0"),
    "half of a pair": _repeated("\ud83d"),
    "right to left": _repeated("\u202e\u0645\u0631\u062d\u0628\u0627 "),
    "ligature": _repeated("\ufdfa"),
    "TODO": _repeated("TODO: "),
    "assignments": _repeated("a = b; "),
}


def steps(text: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is done with a text, in order."""
    scope: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
    pipeline = ContextPipeline(SETTINGS)
    call = AIMessage("", tool_calls=[{"name": "read", "args": {"path": "a"}, "id": "t"}])
    result = ToolMessage(text, tool_call_id="t", name="read")
    yield "add a user's", lambda: pipeline.add_messages([HumanMessage(text), AIMessage("Yes.")], **scope)
    yield "assemble", lambda: pipeline.assemble("And the bike?", **scope)
    other = {**scope, "conversation_id": "c2"}
    yield "add an answer", lambda: pipeline.add_messages([HumanMessage("Hello?"), AIMessage(text)], **other)
    yield "assemble on it", lambda: pipeline.assemble("And the bike?", **other)
    third = {**scope, "conversation_id": "c3"}
    given: list[BaseMessage] = [HumanMessage("Read."), call, result, AIMessage("Done.")]
    yield "add a result", lambda: pipeline.add_messages(given, **third)
    yield "assemble after it", lambda: pipeline.assemble("And the bike?", **third)
    yield "assemble the turn", lambda: pipeline.assemble(given[:3], **{**scope, "conversation_id": "c4"})
    fifth = {**scope, "conversation_id": "c5"}
    yield "ask with it", lambda: pipeline.assemble(text, settings={"max_context_tokens": 4_000_000}, **fifth)
    yield "end_session", lambda: pipeline.end_session(**scope)
    yield "flush", pipeline.flush
    yield "assemble later", lambda: pipeline.assemble("Who am I?", **{**scope, "conversation_id": "c6"})
    report = pipeline.assemble("And my bike?", **scope).report
    yield "report", lambda: (report.to_text(), report._repr_html_(), report.to_dict())
    recall = create_recall_tool(pipeline)
    run: Any = {"configurable": {"user_id": "ada", "thread_id": "c3"}}
    yield "recall by query", lambda: recall.invoke({"query": "bike"}, run)
    yield "recall by reference", lambda: recall.invoke({"reference": "3"}, run)
    retriever = BudgetedRetriever(pipeline=pipeline, user_id="ada", conversation_id="c1")
    yield "retrieve with it", lambda: retriever.invoke(text)
    base = KnowledgeBase(user_id="ada")
    yield "add a document", lambda: base.add(text)
    yield "add it as Markdown", lambda: base.add(text, metadata={"source": "a.md"})
    yield "search documents", lambda: base.search("bike")
    yield "search documents with it", lambda: base.search(text)


def measure(name: str, size: int) -> list[dict[str, Any]]:
    """Every step with one text."""
    for _ in steps("My bike is blue. I live in Rome."):
        pass  # nothing runs here: what is imported and loaded once is not the text's
    for _, action in steps("My bike is blue. I live in Rome."):
        with contextlib.suppress(CtxBudgetError):
            action()
    rows = []
    for step, action in steps(TEXTS[name](size)):
        Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak begins anew
        before = _resident("VmRSS")
        started = time.process_time()
        with contextlib.suppress(CtxBudgetError):
            action()
        taken = time.process_time() - started
        rows.append({"step": step, "ms": taken * 1000, "MB": max(0.0, _resident("VmHWM") - before)})
    return rows


def _resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def main() -> None:
    """Measure the texts, one process each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000, help="characters; measured with twice as many, too")
    parser.add_argument("--only", action="append", help="one text; may be given several times")
    parser.add_argument("--all", action="store_true", help="every step, not only the worst")
    parser.add_argument("--measure", nargs=2, metavar=("TEXT", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure[0], int(given.measure[1]))))
        return
    table = Table("text", "step", "ms", "ms at 2N", "ratio", "MB", "MB at 2N")
    for name in track(given.only or list(TEXTS), description="texts"):
        one, two = (_measured(name, size) for size in (given.size, 2 * given.size))
        rows = list(zip(one, two, strict=True))
        worst = max(rows, key=lambda row: row[1]["ms"])
        for a, b in rows if given.all else [worst]:
            ratio = f"{b['ms'] / a['ms']:.1f}" if a["ms"] > 0 else ""
            table.add_row(
                name, a["step"], f"{a['ms']:.0f}", f"{b['ms']:.0f}", ratio, f"{a['MB']:.0f}", f"{b['MB']:.0f}"
            )
    Console(width=120).print(table)


def _measured(name: str, size: int) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--measure", name, str(size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


if __name__ == "__main__":
    main()
