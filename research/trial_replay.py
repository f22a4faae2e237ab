"""What conversations cost and what their prompts hold: the whole history, `trim_messages`, this package, usage tiers.

What is sent comes from a replay of the last turns of each conversation, everything before them being stored. What
prompts hold comes from questions whose evidence is known: the share of the evidence that stands in the prompt word by
word. Then, for every budget of the package, the smallest budget at which `trim_messages` finds as much.

    PYTHONPATH=benchmarks python research/trial_replay.py DATA_FOLDER --limit 40 --turns 60 --json replay.json --markdown

The folder holds `*.jsonl.gz` files as `context_quality.py` reads them; those without questions are left aside. No
model is called and no network is used.

Columns:
    recall     mean share of evidence turns that stand in the prompt of a question, %
    asked      mean tokens of the prompt of a question
    tokens     mean tokens of a prompt of the replay
    cached     share of them that the prompt before had, too, from its start, %
    effective  mean tokens of a prompt of the replay, a cached one counting a tenth
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from context_quality import budgets_of
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from quality.data import Conversation, DataSet, Question, read
from quality.scoring import squeezed
from quality.showing import cell
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from trial_emphasis import Remembered
from langchain_ctxbudget import TiktokenCounter
from langchain_ctxbudget.messages import is_user
from langchain_ctxbudget.replay import Turn, contender, replay
from langchain_ctxbudget.tokens import CACHED_PRICE, effective_tokens

SYSTEM_PROMPT = "You are a helpful assistant."
OURS, THEIRS, WHOLE = "elastic", "recency", "full"
NAMES = {OURS: "ctxbudget", THEIRS: "trim_messages", WHOLE: "whole history"}
COUNTER = TiktokenCounter()


class Asked(NamedTuple):
    """The prompt for one question."""

    recall: float
    tokens: int


class Row(NamedTuple):
    """One system at one budget; shares in percent."""

    data: str
    system: str
    budget: int | None
    questions: int
    recall: float
    asked: int
    prompts: int
    tokens: int
    cached: float
    effective: int


class Equal(NamedTuple):
    """What equal recall costs."""

    data: str
    budget: int
    """Of the package."""
    recall: float
    trim_budget: int
    """The smallest one at which `trim_messages` finds as much."""
    trim_recall: float
    asked_saved: float
    """How many tokens fewer the package sends with a question, %."""
    tokens_saved: float
    """The same over the replay."""
    effective_saved: float


class Work:
    """Everything that was measured, by system and budget."""

    def __init__(self, turns: int, embeddings: Remembered) -> None:
        self.most_turns = turns
        self.embeddings = embeddings
        self.asked: defaultdict[tuple[str, str], list[Asked]] = defaultdict(list)
        self.turns: defaultdict[tuple[str, str], list[Turn]] = defaultdict(list)

    def measure(self, data: str, conversation: Conversation, name: str) -> None:
        """Ask the questions of a conversation, and replay its last turns.

        Args:
            data: the name of the set.
            conversation: of it.
            name: a strategy with its budget.
        """
        messages: list[BaseMessage] = [turn.message for turn in conversation.turns]
        made = contender(name, 1, system_prompt=SYSTEM_PROMPT, embeddings=self.embeddings)
        with closing(made) as system:
            for question in conversation.questions:
                prompt = system.prompt(
                    messages[: question.history], [HumanMessage(question.text)]
                ).messages
                self.asked[data, name].append(
                    Asked(found(question, prompt), COUNTER.count_messages(prompt))
                )
        result = replay(
            messages, [name], budget=1, system_prompt=SYSTEM_PROMPT, embeddings=self.embeddings
        )
        # The first prompt of the stretch has none before it.
        self.turns[data, name] += [
            turn for track in result.tracks for turn in track.turns[-self.most_turns :][1:]
        ]

    def row(self, data: str, name: str) -> Row:
        """A row of the table."""
        asked, turns = self.asked[data, name], self.turns[data, name]
        calls, tokens = sum(turn.calls for turn in turns), sum(turn.tokens for turn in turns)
        cached = sum(turn.cached_tokens for turn in turns)
        base, _, budget = name.partition("@")
        return Row(
            data=data,
            system=NAMES[base],
            budget=int(budget) if budget else None,
            questions=len(asked),
            recall=100 * statistics.fmean(one.recall for one in asked),
            asked=round(statistics.fmean(one.tokens for one in asked)),
            prompts=calls,
            tokens=round(tokens / calls),
            cached=100 * cached / tokens,
            effective=round(effective_tokens(tokens, cached) / calls),
        )


def found(question: Question, prompt: Iterable[BaseMessage]) -> float:
    """The share of the evidence that stands in a prompt."""
    text = squeezed("\n".join(message.text for message in prompt))
    return statistics.fmean(squeezed(turn.text) in text for turn in question.evidence)


def needed(data: DataSet) -> list[list[int]]:
    """For every question and each of its evidence turns, the smallest budget at which `trim_messages` keeps it."""
    system = COUNTER.count_messages([SystemMessage(SYSTEM_PROMPT)]) + COUNTER.count_messages([])
    needs: list[list[int]] = []
    for conversation in data.conversations:
        messages = [turn.message for turn in conversation.turns]
        sums = [0, *accumulate(COUNTER.count_message(message) for message in messages)]
        begins = list(accumulate((n if is_user(m) else -1 for n, m in enumerate(messages)), max))
        places = {turn.id: place for place, turn in enumerate(conversation.turns)}
        for question in conversation.questions:
            asked = COUNTER.count_message(HumanMessage(question.text))
            before = (begins[places[turn.id]] for turn in question.evidence)
            needs.append(
                [system + asked + sums[question.history] - sums[max(0, place)] for place in before]
            )
    return needs


def trim_budget(needs: Sequence[Sequence[int]], recall: float) -> int:
    """The smallest budget at which `trim_messages` finds a share of the evidence."""
    worth = sorted((need, 1 / len(some)) for some in needs for need in some)
    reached = 0.0
    for need, share in worth:
        reached += share / len(needs)
        if reached >= recall - 1e-9:
            return need
    return worth[-1][0]


def equal(ours: Row, theirs: Row) -> Equal:
    """Both beside each other."""

    def saved(mine: float, other: float) -> float:
        return 100 * (1 - mine / other)

    return Equal(
        data=ours.data,
        budget=ours.budget or 0,
        recall=ours.recall,
        trim_budget=theirs.budget or 0,
        trim_recall=theirs.recall,
        asked_saved=saved(ours.asked, theirs.asked),
        tokens_saved=saved(ours.tokens, theirs.tokens),
        effective_saved=saved(ours.effective, theirs.effective),
    )


def run(
    work: Work, data: DataSet, budgets: Sequence[int], progress: Progress
) -> tuple[list[Row], list[Equal]]:
    """All rows of a data set, and what equal recall costs."""
    ours, theirs = ([f"{name}@{budget}" for budget in budgets] for name in (OURS, THEIRS))
    names = [WHOLE, *theirs, *ours]
    bar = progress.add_task(data.name, total=(len(names) + len(ours)) * len(data.conversations))
    rows = {name: measured(work, data, name, progress, bar) for name in names}
    needs, same = needed(data), list[Equal]()
    for name in ours:
        reached = trim_budget(needs, rows[name].recall / 100)
        same.append(equal(rows[name], measured(work, data, f"{THEIRS}@{reached}", progress, bar)))
    return list(rows.values()), same


def measured(work: Work, data: DataSet, name: str, progress: Progress, bar: TaskID) -> Row:
    """One system over a data set."""
    if (data.name, name) in work.asked:
        progress.advance(bar, len(data.conversations))
        return work.row(data.name, name)
    for conversation in data.conversations:
        progress.update(bar, description=f"{data.name}: {name}")
        work.measure(data.name, conversation, name)
        progress.advance(bar)
    return work.row(data.name, name)


def table(title: str, rows: Sequence[Row] | Sequence[Equal]) -> Table:
    """Rows as they are shown."""
    drawn = Table(title=title)
    for name in rows[0]._fields:
        drawn.add_column(name, justify="left" if name in {"data", "system"} else "right")
    for row in rows:
        drawn.add_row(*map(cell, row))
    return drawn


def markdown(rows: Sequence[Row] | Sequence[Equal]) -> str:
    """The same as Markdown."""
    names = rows[0]._fields
    rule = "|".join("---" if name in {"data", "system"} else "--:" for name in names)
    return "\n".join(
        [
            "| " + " | ".join(names) + " |",
            f"|{rule}|",
            *("| " + " | ".join(map(cell, row)) + " |" for row in rows),
        ]
    )


def data_sets(options: argparse.Namespace) -> list[DataSet]:
    """What to measure with.

    Raises:
        SystemExit: there is nothing.
    """
    skip = frozenset(options.skip.split(","))
    sets = [
        read(path, limit=options.limit, skip=skip)
        for path in sorted(options.folder.glob("*.jsonl.gz"))
    ]
    chosen = [
        DataSet(data.name, data.conversations[: options.conversations])
        for data in sets
        if data.conversations and (not options.sets or data.name in options.sets)
    ]
    if not chosen:
        raise SystemExit(f"No conversations with questions in {options.folder}")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the data is")
    parser.add_argument("--sets", nargs="+", help="only these, by name")
    parser.add_argument(
        "--budgets", nargs="+", default=["1024,2048,4096", "realmem:2048,4096,8192"]
    )
    parser.add_argument("--conversations", type=int, help="so many of each set")
    parser.add_argument("--limit", type=int, help="questions per conversation, spread evenly")
    parser.add_argument(
        "--turns", type=int, default=60, help="turns of each conversation that are replayed"
    )
    parser.add_argument(
        "--skip", default="adversarial", help="question categories to leave out, comma-separated"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args()
    sets = data_sets(options)
    budgets = budgets_of(options.budgets, sets)
    work, rows, same = Work(options.turns, Remembered()), list[Row](), list[Equal]()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for data in sets:
            more, equals = run(work, data, budgets[data.name], progress)
            rows, same = [*rows, *more], [*same, *equals]
            if options.json:  # after each set: what was measured is not lost
                kept = {
                    "rows": [row._asdict() for row in rows],
                    "equal": [row._asdict() for row in same],
                }
                options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    out = Console(width=None if sys.stdout.isatty() else 160)
    replayed = f"what is sent and what it holds; a cached token counts {CACHED_PRICE}"
    for title, some in ((replayed, rows), ("the same recall", same)):
        if options.markdown:
            out.print(
                f"{title}\n\n{markdown(some)}\n", soft_wrap=True, highlight=False, markup=False
            )
        else:
            out.print(table(title, some))


if __name__ == "__main__":
    main()
