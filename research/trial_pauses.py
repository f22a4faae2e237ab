"""Recall and cost of a conversation at the times at which its messages were really written.

For every message of the user in a stretch a prompt is made, then the message and the answer are added. The clock stands
at the time of the message, so a prompt after a pause finds no warm cache: it is paid in full, and so is sending
everything. Else what a prompt shares with the one before it, from its start, costs a tenth.

    PYTHONPATH=benchmarks python research/trial_pauses.py --data realmem.dev.jsonl.gz --budgets 4096,8192,16384

Columns:
    recall   mean share of evidence turns that stand in the prompt word by word, %
    cold     the same of prompts after a pause; warm: of the others
    pauses   share of prompts after one, %
    tokens   mean tokens of a prompt
    cost     mean effective tokens
    whole    cost against sending the whole conversation each time, %
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from context_quality import load_vocabulary
from quality.data import Conversation, Question, Turn, read
from quality.scoring import count, score
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table
from langchain_ctxbudget import ContextPipeline, ContextSettings
from langchain_ctxbudget.tokens import effective_tokens

SYSTEM_PROMPT = "You are a helpful assistant."
COLUMNS = (
    "budget",
    "prompts",
    "asked",
    "recall",
    "cold",
    "warm",
    "pauses",
    "tokens",
    "cost",
    "whole",
)


class Prompted(NamedTuple):
    """One prompt: tokens, shares from 0 to 1."""

    is_cold: bool
    tokens: int
    cost: float
    whole: float
    recalls: list[float]


def time_of(turn: Turn) -> datetime:
    """When a turn was said; a day without an hour is its midnight."""
    time = datetime.fromisoformat(turn.time)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def stretch(conversation: Conversation, turns: int) -> int:
    """Where the stretch begins that has most questions, not in the first quarter."""
    size, first = 2 * turns, len(conversation.turns) // 4
    asked = [question.history for question in conversation.questions]
    starts = range(first, max(first + 1, len(conversation.turns) - size), 10)
    return max(starts, key=lambda start: sum(start <= history < start + size for history in asked))


def prompts_of(conversation: Conversation, budget: int, turns: int) -> list[Prompted]:
    """Replay a stretch of a conversation."""
    said = conversation.turns
    costs = [count([turn.message]) for turn in said]
    questions: dict[int, list[Question]] = defaultdict(list)
    for question in conversation.questions:
        questions[question.history].append(question)
    first, clock = stretch(conversation, turns), [time_of(said[0])]
    settings = ContextSettings(max_context_tokens=budget)
    pipeline = ContextPipeline(
        settings=settings, system_prompt=SYSTEM_PROMPT, clock=lambda: clock[0]
    )
    chat = pipeline.conversation(conversation.id, user_id="pauses")
    chat.add(*(turn.message for turn in said[:first]))
    rows: list[Prompted] = []
    before, last = "", None
    for place in range(first, min(len(said), first + 2 * turns)):
        clock[0] = time_of(said[place])
        if said[place].human:
            prompt = chat.assemble(said[place].text).messages
            text, tokens = "\0".join(f"{one.type}\1{one.text}" for one in prompt), count(prompt)
            is_cold = (
                last is None or (clock[0] - last).total_seconds() > settings.cache_lifetime_seconds
            )
            shared = (
                0
                if is_cold
                else round(tokens * len(os.path.commonprefix([before, text])) / len(text))
            )
            everything = sum(costs[: place + 1])
            known = 0 if is_cold else everything - sum(costs[place - 1 : place + 1])
            recalls = [
                score(one, said[:place], prompt, budget, 0.0).recall for one in questions[place]
            ]
            paid, whole = effective_tokens(tokens, shared), effective_tokens(everything, known)
            rows.append(Prompted(is_cold, tokens, paid, whole, recalls))
            before, last = text, clock[0]
        chat.add(said[place].message)
    return rows[1:]


def cells(budget: int, rows: list[Prompted]) -> list[str]:
    """The row of a table."""
    by_cold = {
        is_cold: [recall for row in rows if row.is_cold is is_cold for recall in row.recalls]
        for is_cold in (True, False)
    }
    recalls = [*by_cold[True], *by_cold[False]]
    shares = [
        f"{100 * fmean(some):.1f}" if some else ""
        for some in (recalls, by_cold[True], by_cold[False])
    ]
    paid, whole = fmean(row.cost for row in rows), fmean(row.whole for row in rows)
    cold = f"{100 * fmean(row.is_cold for row in rows):.0f}"
    tokens = f"{fmean(row.tokens for row in rows):,.0f}"
    return [
        f"{budget:,}",
        f"{len(rows):,}",
        f"{len(recalls):,}",
        *shares,
        cold,
        tokens,
        f"{paid:,.0f}",
        f"{100 * paid / whole:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="conversations with the times of their messages"
    )
    parser.add_argument("--budgets", default="8192", help="tokens, comma-separated")
    parser.add_argument(
        "--turns", type=int, default=300, help="messages of the user in each conversation"
    )
    parser.add_argument("--limit", type=int, help="questions of each conversation")
    options = parser.parse_args()
    load_vocabulary()
    conversations = read(
        options.data, limit=options.limit, skip=frozenset({"adversarial"})
    ).conversations
    table = Table(*COLUMNS, title=options.data.name, box=SIMPLE)
    for column in table.columns:
        column.justify = "right"
    for budget in map(int, options.budgets.split(",")):
        done = track(conversations, f"{budget:,} tokens", transient=True)
        table.add_row(
            *cells(budget, [row for one in done for row in prompts_of(one, budget, options.turns)])
        )
    Console().print(table)


if __name__ == "__main__":
    main()
