"""Keeps prompts and reports as they are now, and tells which ones another state of the code makes differently.

    python benchmarks/goldens.py write FOLDER [--data DATA]
    python benchmarks/goldens.py compare FOLDER [--data DATA]

The bundled conversation goes through every strategy at four budgets. With `--data`, so do three
real conversations and two sessions of a coding agent (a folder with `locomo.dev.jsonl.gz`,
`realmem.dev.jsonl.gz` and `coding.dev.jsonl.gz`; prompts of these must stay outside the
repository). Only public names are used, so that it outlives what is inside.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
)

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.demo import DEMO_QUESTION, DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.errors import BudgetTooSmallError

STRATEGIES = ("elastic", "ratio", "fixed", "dynamic", "prioritized")
BUDGETS = (1_024, 2_048, 4_096, 8_192)
MOST_MESSAGES = 400
QUESTIONS = 6
STEPS = 4
NOT_COMPARED = ("timings_ms", "tokenized", "cache", "tokenizer_calls")
SCOPE: dict[str, Any] = {"user_id": "golden", "conversation_id": "c1"}

Case = tuple[str, Sequence[BaseMessage], Sequence[tuple[int, list[BaseMessage]]]]
"""A name, messages, and which turns are asked after how many of them."""


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def chat(name: str, row: dict[str, Any]) -> Case:
    turns = row["turns"]
    user = row["turns"][0]["speaker"]
    messages = [
        (HumanMessage if turn["speaker"] == user else AIMessage)(
            turn["text"],
            name=turn["speaker"],
            id=turn["id"],
            additional_kwargs={"created_at": turn["time"]} if turn["time"] else {},
        )
        for turn in turns[:MOST_MESSAGES]
    ]
    asked = sorted(row["questions"], key=lambda question: question["history"])
    within = [question for question in asked if question["history"] <= len(messages)] or asked[
        :QUESTIONS
    ]
    chosen = within[:: max(1, len(within) // QUESTIONS)][:QUESTIONS]
    return (
        name,
        messages,
        [(min(q["history"], len(messages)), [HumanMessage(q["question"])]) for q in chosen],
    )


def session(name: str, row: dict[str, Any]) -> Case:
    messages: list[BaseMessage] = []
    called: set[str] = set()
    for place, said in enumerate(row["messages"]):
        key = f"m{place}"
        text = said["text"] or "."
        if said["role"] == "user":
            messages.append(HumanMessage(text, id=key))
        elif said["role"] == "tool" and said["id"] in called:
            messages.append(ToolMessage(text, tool_call_id=said["id"], id=key))
        elif said["role"] == "assistant":
            calls = [
                {"name": call["name"], "args": call["args"], "id": call["id"]}
                for call in said["calls"]
            ]
            called |= {call["id"] for call in calls}
            messages.append(AIMessage(said["text"] or "", tool_calls=calls, id=key))
    steps = [place for place, message in enumerate(messages) if isinstance(message, ToolMessage)]
    turns = []
    for end in steps[-STEPS * 20 :: 20]:
        begin = max(
            (place for place in range(end) if isinstance(messages[place], HumanMessage)), default=0
        )
        turns.append((begin, messages[begin : end + 1]))
    return name, messages, turns


def cases(data: Path | None) -> Iterator[Case]:
    told = demo_messages()
    asked = [DEMO_QUESTION, "Good morning.", "What did we decide about the labels?"]
    yield (
        "demo",
        told,
        [(count, [HumanMessage(text)]) for count in (40, 150, len(told)) for text in asked],
    )
    if data is not None:
        yield from (
            chat(f"locomo-{n}", row)
            for n, row in enumerate(islice(lines(data / "locomo.dev.jsonl.gz"), 2))
        )
        yield chat("realmem-0", next(lines(data / "realmem.dev.jsonl.gz")))
        yield from (
            session(f"coding-{n}", row)
            for n, row in enumerate(islice(lines(data / "coding.dev.jsonl.gz"), 2))
        )


def prompts(case: Case, strategy: str, budget: int) -> list[dict[str, Any]]:
    """Every prompt of a case as data, with its report."""
    _, messages, turns = case
    settings = {"max_context_tokens": budget, "allocation": strategy, "learn": False}
    made: list[dict[str, Any]] = []
    with ContextPipeline(
        settings,
        system_prompt=DEMO_SYSTEM_PROMPT,
        writer_id="golden",
        clock=lambda: datetime(2027, 1, 1, tzinfo=UTC),
    ) as pipeline:
        done = 0
        for count, turn in sorted(turns, key=lambda one: one[0]):
            if count > done:
                pipeline.add_messages(messages[done:count], **SCOPE)
                done = count
            try:
                context = pipeline.assemble(turn, **SCOPE)
            except BudgetTooSmallError as error:
                made.append({"refused": str(error)})
                continue
            report = {
                key: value
                for key, value in context.report.to_dict().items()
                if key not in NOT_COMPARED
            }
            made.append(
                {
                    "messages": [message_to_dict(message) for message in context.messages],
                    "report": report,
                }
            )
    return made


def written(data: Path | None) -> Iterator[tuple[str, str]]:
    """Every golden: its file's name and text."""
    for case in cases(data):
        for strategy in STRATEGIES:
            for budget in BUDGETS:
                text = json.dumps(
                    prompts(case, strategy, budget), indent=1, sort_keys=True, ensure_ascii=False
                )
                yield f"{case[0]}-{strategy}-{budget}.json", text + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    differing = count = 0
    for name, text in written(options.data):
        count += 1
        path = options.folder / name
        if options.mode == "write":
            path.write_text(text, encoding="utf-8")
            continue
        before = path.read_text(encoding="utf-8")
        if before != text:
            differing += 1
            changed = [
                line
                for line in difflib.unified_diff(
                    before.splitlines(), text.splitlines(), lineterm="", n=0
                )
                if line[:1] in "+-" and line[:3] not in ("+++", "---")
            ]
            print(
                f"{name}: {len(changed)} lines differ, first: {changed[0][:100] if changed else ''}"
            )
    print(
        f"{count} goldens" + (f", {differing} differ" if options.mode == "compare" else " written")
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
