"""What the setting `emphasis` buys: recall of the evidence against what the prompts of a conversation cost.

Recall comes from questions whose evidence is known, as in `context_quality.py`. The cost comes from a replay: a prompt
for every message of the user over a stretch in the middle of each conversation, its messages added afterwards. A
provider charges what a prompt shares with the one before it, from its start, a tenth: the effective cost of a prompt is
`new + 0.1 * shared` tokens, here as a share of the budget.

    PYTHONPATH=benchmarks python research/trial_emphasis.py --data FILE.jsonl.gz --limit 30 --plot emphasis.svg --json emphasis.json
    PYTHONPATH=benchmarks python research/trial_emphasis.py --data FILE.jsonl.gz --constants balanced:least_share=0.3

Columns:
    recall   mean share of evidence turns that stand in the prompt word by word, %
    recent   prompts with the last 6 messages word by word, %
    cost     effective cost of a prompt, as a share of the budget, %
    stable   mean share of the stable zone that is as in the previous prompt, %
    history  tokens of the stable zone, as a share of the prompt, %
    step     turns from one compaction step to the next, on average
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_args

from context_quality import budgets_of, data_sets, load_vocabulary
from langchain_core.embeddings import Embeddings
from langgraph.store.memory import InMemoryStore
from quality.data import Conversation, Turn
from quality.scoring import Score, score
from quality.showing import COLOURS, cell
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from langchain_ctxbudget import ContextPipeline, LocalEmbeddings
from langchain_ctxbudget.budget import Emphasis
from langchain_ctxbudget.budget.elastic import LEANS
from langchain_ctxbudget.tokens import effective_tokens

EMPHASES: tuple[Emphasis, ...] = get_args(Emphasis)
SYSTEM_PROMPT = "You are a helpful assistant."
MARKERS = {"recall": "o", "balanced": "s", "cache": "^"}


class Turned(NamedTuple):
    """What one prompt of a replay cost; shares from 0 to 1."""

    cost: float
    stable: float
    history: float
    step: bool


class Row(NamedTuple):
    """One emphasis at one budget; shares in percent."""

    data: str
    budget: int
    emphasis: str
    questions: int
    recall: float
    recent: float
    cost: float
    stable: float
    history: float
    step: float
    turns: int


class Remembered(Embeddings):
    """`LocalEmbeddings` that read no text twice: every budget and emphasis has an index of its own."""

    def __init__(self) -> None:
        self.inner, self.known = LocalEmbeddings(), dict[str, list[float]]()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known.update(zip(missing, self.inner.embed_documents(missing), strict=True))
        return [self.known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def asked(
    pipeline: ContextPipeline, conversation: Conversation, budget: int
) -> dict[Emphasis, list[Score]]:
    """What the prompts for the questions hold; each emphasis has a compaction cut of its own."""
    who = {"user_id": f"asked {budget}", "conversation_id": conversation.id}
    scores: dict[Emphasis, list[Score]] = {emphasis: [] for emphasis in EMPHASES}
    done = 0
    for question in conversation.questions:
        add(pipeline, conversation.turns[done : question.history], **who)
        done = max(done, question.history)
        for emphasis, some in scores.items():
            settings = {"max_context_tokens": budget, "emphasis": emphasis}
            prompt = pipeline.assemble(question.text, settings=settings, **who).messages
            some.append(score(question, conversation.turns[:done], prompt, budget, 0.0))
    return scores


def replay(
    pipeline: ContextPipeline,
    conversation: Conversation,
    budget: int,
    emphasis: Emphasis,
    *,
    turns: int,
    warm_up: int,
) -> list[Turned]:
    """What prompts cost in the middle of a conversation, the first ones of the stretch aside."""
    who = {"user_id": f"{emphasis} {budget}", "conversation_id": conversation.id}
    human = [place for place, turn in enumerate(conversation.turns) if turn.human]
    first = max(0, (len(human) - turns - warm_up) // 2)
    rows: list[Turned] = []
    done = 0
    for place in human[first : first + turns + warm_up]:
        add(pipeline, conversation.turns[done:place], **who)
        done = place
        settings = {"max_context_tokens": budget, "emphasis": emphasis}
        report = pipeline.assemble(conversation.turns[place].text, settings=settings, **who).report
        shared, zone = report.stability.shared_tokens, report.stability.stable_zone_share
        if shared is not None and zone is not None:
            held = report.stability.stable_zone_tokens / report.total_tokens
            cost = effective_tokens(report.total_tokens, shared) / budget
            rows.append(Turned(cost, zone, held, report.stability.compaction_step))
    return rows[-turns:]


def add(
    pipeline: ContextPipeline, turns: Sequence[Turn], *, user_id: str, conversation_id: str
) -> None:
    """Add turns, if there are any."""
    if turns:
        pipeline.add_messages(
            [turn.message for turn in turns], user_id=user_id, conversation_id=conversation_id
        )


def averaged(
    data: str,
    budget: int,
    emphasis: str,
    scores: Sequence[Score],
    replayed: Sequence[Sequence[Turned]],
) -> Row:
    """The row of a table; every conversation counts the same in what prompts cost."""

    def percent(values: Iterable[float]) -> float:
        return round(100 * statistics.fmean(values), 1)

    turns = [turn for some in replayed for turn in some]
    return Row(
        data=data,
        budget=budget,
        emphasis=emphasis,
        questions=len(scores),
        recall=percent(score.recall for score in scores),
        recent=percent(score.recent for score in scores),
        cost=percent(statistics.fmean(turn.cost for turn in some) for some in replayed),
        stable=percent(statistics.fmean(turn.stable for turn in some) for some in replayed),
        history=percent(statistics.fmean(turn.history for turn in some) for some in replayed),
        step=round(len(turns) / max(1, sum(turn.step for turn in turns)), 1),
        turns=len(turns),
    )


def change_constants(given: Sequence[str]) -> None:
    """Replace fields of `LEANS` for this run, each given as `emphasis:field=value`.

    Raises:
        SystemExit: one is not such a text.
    """
    for option in given:
        try:
            name, _, change = option.partition(":")
            field, _, value = change.partition("=")
            [emphasis] = [known for known in EMPHASES if known == name]
            LEANS[emphasis] = replace(LEANS[emphasis], **{field: float(value)})
        except (TypeError, ValueError) as error:
            raise SystemExit(f"--constants {option}: not emphasis:field=value ({error})") from error


def cells(row: Row) -> list[str]:
    """A row as it is shown."""
    return [cell(value) for value in row]


def table(rows: Sequence[Row]) -> Table:
    """All rows."""
    drawn = Table(title="recall against what prompts cost")
    for name in Row._fields:
        drawn.add_column(name, justify="left" if name in {"data", "emphasis"} else "right")
    for number, row in enumerate(rows, 1):
        drawn.add_row(*cells(row), end_section=number % len(EMPHASES) == 0)
    return drawn


def markdown(rows: Sequence[Row]) -> str:
    """The same as Markdown."""
    left = {"data", "emphasis"}
    lines = [
        "| " + " | ".join(Row._fields) + " |",
        "|" + "|".join("---" if f in left else "--:" for f in Row._fields),
    ]
    return "\n".join(
        [f"{lines[0]}\n{lines[1]}|", *("| " + " | ".join(cells(row)) + " |" for row in rows)]
    )


def plot(rows: Sequence[Row], path: Path) -> None:
    """Recall over effective cost, a line per data set and budget."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row.data for row in rows))
    figure = Figure(figsize=(4.2 * len(names) + 1.6, 4.2), dpi=100, layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
    low = 10 * math.floor(min(row.recall for row in rows) / 10 - 0.5)
    for panel, name in zip(panels, names, strict=True):
        budgets = sorted({row.budget for row in rows if row.data == name})
        for budget, colour in zip(budgets, COLOURS, strict=False):
            line = [row for row in rows if (row.data, row.budget) == (name, budget)]
            panel.plot(
                [row.cost for row in line], [row.recall for row in line], color=colour, lw=1.2
            )
            for row in line:
                panel.plot(
                    row.cost, row.recall, color=colour, marker=MARKERS[row.emphasis], ms=7, ls=""
                )
            cheapest = min(line, key=lambda row: row.cost)
            panel.annotate(
                f"{budget:,}",
                (cheapest.cost, cheapest.recall),
                xytext=(-8, -4),
                textcoords="offset points",
                ha="right",
                color=colour,
            )
        panel.set(
            title=name,
            xlabel="effective cost of a prompt, % of the budget",
            xlim=(40, 102),
            ylim=(low, 100),
        )
        panel.grid(visible=True, lw=0.4)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("evidence turns in the prompt, %")
    for emphasis, marker in MARKERS.items():
        panels[-1].plot([], [], color="black", marker=marker, ms=7, ls="", label=emphasis)
    panels[-1].legend(loc="lower left", frameon=False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, nargs="+", help="JSON-lines files, plain or compressed with gzip"
    )
    parser.add_argument("--synthetic", action="store_true", help="generated conversations instead")
    parser.add_argument(
        "--budgets", nargs="+", default=["1024,2048,4096", "realmem:2048,4096,8192"]
    )
    parser.add_argument("--limit", type=int, help="questions per conversation, spread evenly")
    parser.add_argument(
        "--skip", default="adversarial", help="question categories to leave out, comma-separated"
    )
    parser.add_argument(
        "--turns", type=int, default=60, help="turns of each conversation that are replayed"
    )
    parser.add_argument(
        "--warm-up", type=int, default=20, help="turns before them that are not counted"
    )
    parser.add_argument(
        "--constants", nargs="+", default=[], help="emphasis:field=value, in the place of a default"
    )
    parser.add_argument("--plot", type=Path, help="a picture: .svg, .png or .pdf")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    change_constants(options.constants)
    sets = data_sets(options)
    load_vocabulary()
    budgets = budgets_of(options.budgets, sets)
    rows, embeddings = list[Row](), Remembered()
    stretch = {"turns": options.turns, "warm_up": options.warm_up}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for data in sets:
            scores: defaultdict[tuple[int, Emphasis], list[Score]] = defaultdict(list)
            replayed: defaultdict[tuple[int, Emphasis], list[list[Turned]]] = defaultdict(list)
            bar = progress.add_task(
                data.name, total=len(data.conversations) * len(budgets[data.name])
            )
            for conversation, budget in product(data.conversations, budgets[data.name]):
                with ContextPipeline(
                    system_prompt=SYSTEM_PROMPT, store=InMemoryStore(), embeddings=embeddings
                ) as pipeline:
                    for emphasis, some in asked(pipeline, conversation, budget).items():
                        scores[budget, emphasis] += some
                    for emphasis in EMPHASES:
                        replayed[budget, emphasis].append(
                            replay(pipeline, conversation, budget, emphasis, **stretch)
                        )
                progress.advance(bar)
            rows += [
                averaged(
                    data.name,
                    budget,
                    emphasis,
                    scores[budget, emphasis],
                    replayed[budget, emphasis],
                )
                for budget, emphasis in product(budgets[data.name], EMPHASES)
            ]
    out = Console(width=None if sys.stdout.isatty() else 160)
    if options.markdown:
        out.print(markdown(rows), soft_wrap=True, highlight=False)
    else:
        out.print(table(rows))
    if options.json:
        options.json.write_text(
            json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8"
        )
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
