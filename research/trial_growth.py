"""How the time of a prompt grows with its conversation, once the conversation has been read.

Messages are generated: words of a vocabulary with frequent and rare ones. For every length a conversation is filled,
a first prompt reads it, and then exchanges are added and prompts are made in turn. The last column compares with the
shortest conversation of the same run.

    PYTHONPATH=benchmarks python research/trial_growth.py
    PYTHONPATH=benchmarks python research/trial_growth.py --lengths 1000,10000,100000 --words 35 --budget 8000
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.memory import InMemoryStore
from rich.console import Console
from rich.progress import track
from rich.table import Table
from langchain_ctxbudget import ContextPipeline, ContextSettings

USER, CONVERSATION = "ada", "c1"
WARM_UP = 3
STEPS = {
    "compute_budget": "budget",
    "compact_history": "compact",
    "retrieve": "retrieve",
    "assemble": "assemble",
}


class Growth(NamedTuple):
    """What prompts of one conversation took; milliseconds of CPU, seconds for the first, wall time for steps."""

    messages: int
    tokens: int
    first_seconds: float
    steps: dict[str, float]
    total: float
    append: float


def spoken(chosen: random.Random, words: list[str], weights: list[float], count: int) -> str:
    return " ".join(chosen.choices(words, weights, k=count)) + "."


def measured(length: int, words_each: int, budget: int, prompts: int) -> Growth:
    chosen = random.Random(length)
    words = [f"{chosen.choice('bcdfgklmnprst')}{chosen.choice('aeiou')}{n:x}" for n in range(5_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    kinds = (HumanMessage, AIMessage)
    said: list[BaseMessage] = [
        kinds[n % 2](spoken(chosen, words, weights, chosen.randint(2, 2 * words_each - 2)))
        for n in range(length)
    ]
    pipeline = ContextPipeline(ContextSettings(max_context_tokens=budget), store=InMemoryStore())
    pipeline.add_messages(said, user_id=USER, conversation_id=CONVERSATION)
    started = time.process_time()
    pipeline.assemble("Where do we begin?", user_id=USER, conversation_id=CONVERSATION)
    first = time.process_time() - started
    pipeline.flush()  # learned from everything: what it learns of the next ones is part of them
    timings: list[dict[str, float]] = []
    totals, appends = [], []
    for _ in track(range(prompts + WARM_UP), f"{length:,} messages", transient=True):
        started = time.process_time()
        pipeline.add_messages(
            [HumanMessage(spoken(chosen, words, weights, words_each)) for _ in range(2)],
            user_id=USER,
            conversation_id=CONVERSATION,
        )
        appends.append((time.process_time() - started) * 1000)
        started = time.process_time()
        context = pipeline.assemble(
            f"What about {chosen.choice(said).text[:80]}?",
            user_id=USER,
            conversation_id=CONVERSATION,
        )
        totals.append((time.process_time() - started) * 1000)
        timings.append(context.report.timings_ms)
    steps = {
        name: statistics.median(timing[name] for timing in timings[WARM_UP:])
        for name in timings[-1]
    }
    total, append = statistics.median(totals[WARM_UP:]), statistics.median(appends[WARM_UP:])
    return Growth(
        length,
        pipeline.token_counter.count_messages(
            pipeline.get_messages(user_id=USER, conversation_id=CONVERSATION)
        ),
        first,
        steps,
        total,
        append,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", default="10000,100000", help="messages, comma-separated")
    parser.add_argument("--words", type=int, default=12, help="words of a message, on average")
    parser.add_argument("--budget", type=int, default=8_000, help="tokens")
    parser.add_argument("--prompts", type=int, default=30)
    options = parser.parse_args()
    rows = [
        measured(int(n), options.words, options.budget, options.prompts)
        for n in options.lengths.split(",")
    ]
    table = Table(
        "messages",
        "tokens",
        "first, s",
        "append",
        *STEPS.values(),
        "prompt",
        "ratio",
        title="Milliseconds",
    )
    for column in table.columns:
        column.justify = "right"
    for row in rows:
        steps = [f"{row.steps[name]:.1f}" for name in STEPS]
        cells = [
            f"{row.messages:,}",
            f"{row.tokens:,}",
            f"{row.first_seconds:.1f}",
            f"{row.append:.1f}",
            *steps,
        ]
        table.add_row(*cells, f"{row.total:.1f}", f"{row.total / rows[0].total:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
