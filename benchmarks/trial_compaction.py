"""What compaction costs, and what stays as it is: a generated conversation, one exchange at a time.

Counts per exchange size: calls of the summary model (a scripted one), turns per compaction step, the share of the
stable zone that the previous prompt had, texts tokenized per turn, and the time per turn late against early.

    python benchmarks/trial_compaction.py --exchanges 1000 --budget 8192
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from rich.console import Console
from rich.progress import track
from rich.table import Table

from langchain_ctxbudget import ContextPipeline

WORDS = ["river", "stone", "cloud", "garden", "window", "letter", "coffee", "train", "ticket", "paper", "music"]


def words(number: int, count: int) -> str:
    """So many words, other ones for every number."""
    return " ".join(WORDS[(number * 7 + place * (number % 5 + 1)) % len(WORDS)] for place in range(count))


class Replies:
    """Endless summaries, counted."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Replies:
        return self

    def __next__(self) -> AIMessage:
        self.count += 1
        said: dict[str, Any] = {"summary": f"{words(self.count, 40)}.", "narrative": f"{words(self.count, 12)}."}
        return AIMessage(json.dumps({**said, "key_decisions": [], "open_questions": [], "code_artifacts": []}))


def replay(size: int, exchanges: int, budget: int) -> list[str]:
    """One row of the table."""
    replies = Replies()
    model = GenericFakeChatModel(messages=iter(replies))
    shares: list[float] = []
    tokenized: list[int] = []
    seconds: list[float] = []
    steps = 0
    user, key = "replay", str(size)
    with ContextPipeline({"max_context_tokens": budget}, system_prompt="You help.", summary_model=model) as pipeline:
        for number in track(range(exchanges), description=f"exchanges of {size} tokens", console=Console(stderr=True)):
            started = time.perf_counter()
            context = pipeline.assemble(f"What of the {words(number, 4)}?", user_id=user, conversation_id=key)
            report = context.report
            seconds.append(time.perf_counter() - started)
            tokenized.append(report.tokenizer_calls)
            steps += report.stability.compaction_step
            if report.stability.stable_zone_share is not None:
                shares.append(report.stability.stable_zone_share)
            question = HumanMessage(f"Question {number}: {words(number, size // 3)}?")
            answer = AIMessage(f"Answer {number}: {words(number + 3, size * 2 // 3)}.")
            pipeline.add_messages([question, answer], user_id=user, conversation_id=key)
            pipeline.flush()
    quarter = len(seconds) // 4
    growth = statistics.median(seconds[-quarter:]) / statistics.median(seconds[quarter : 2 * quarter])
    return [
        str(size),
        f"{replies.count} (1 in {2 * exchanges / max(1, replies.count):.1f} messages)",
        f"1 in {exchanges / max(1, steps):.1f} turns",
        f"{statistics.fmean(shares):.1%}",
        f"{statistics.median(tokenized):.0f} / {max(tokenized)}",
        f"{growth:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=1_000)
    parser.add_argument("--budget", type=int, default=8_192)
    parser.add_argument("--sizes", default="60,100,150,300", help="tokens of an exchange, about; comma-separated")
    options = parser.parse_args()
    table = Table(
        "tokens of an exchange",
        "calls of the model",
        "steps",
        "stable zone as before",
        "tokenized, median / most",
        "time of the last quarter / of the second",
        title=f"{options.exchanges:,} exchanges, budget {options.budget:,}",
    )
    for column in table.columns:
        column.justify = "right"
    for size in map(int, options.sizes.split(",")):
        table.add_row(*replay(size, options.exchanges, options.budget))
    Console().print(table)


if __name__ == "__main__":
    main()
