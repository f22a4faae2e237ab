"""What each part of retrieval adds: the evidence that is found, and what is lost when one part is switched off.

The questions and their evidence are those of `context_quality.py`, the prompts are the package's own. A conversation is
read once; a prompt is put together for every question, budget and part, each chosen anew as after a pause.

    PYTHONPATH=benchmarks python research/trial_retrieval.py --synthetic --limit 20
    PYTHONPATH=benchmarks python research/trial_retrieval.py --data FILE.jsonl.gz --limit 30 --markdown
    PYTHONPATH=benchmarks python research/trial_retrieval.py --data FILE.jsonl.gz --budgets 2048,4096 --parts length neighbours

The first row has the recall of everything (mean share of evidence turns that stand in the prompt word by word, %), the
others the points that are lost without one part: positive where it helps. Columns, per data set: one per budget, their
mean with its standard error over the questions, and `soft`, the mean loss in the share of the evidence's sentences.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from context_quality import budgets_of, data_sets, load_vocabulary
from langgraph.store.memory import InMemoryStore
from quality.data import Conversation, DataSet
from quality.scoring import Score, score
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
from langchain_ctxbudget import ContextPipeline, retrieval, search
from langchain_ctxbudget.history import MessageIndex
from langchain_ctxbudget.retrieval import filling, gather
from langchain_ctxbudget.search import Ranking, Scores, Texts, rank
from langchain_ctxbudget.search.ranking import RANKING_WEIGHTS

WHO = {"user_id": "trial", "conversation_id": "trial"}
SYSTEM_PROMPT = "You are a helpful assistant."
EVERYTHING = "everything"


def without_weight(*names: str) -> AbstractContextManager[object]:
    """The ranking with weights of 0."""
    weights = replace(RANKING_WEIGHTS, **dict.fromkeys(names, 0.0))
    return patch.object(search, "rank", partial(rank, weights=weights))


def without_words() -> AbstractContextManager[object]:
    """The ranking without any BM25."""

    def ranked(
        texts: Texts, question: Any, lexical: Scores, dense: Scores | None, _: Any, **more: Any
    ) -> Ranking:
        return rank(texts, question, np.zeros_like(lexical), dense, None, **more)

    return patch.object(search, "rank", ranked)


def without_subjects() -> AbstractContextManager[object]:
    """Sessions by time alone."""
    return patch.object(MessageIndex, "subjects", lambda index: index._session.values)


@contextmanager
def without_embeddings() -> Iterator[None]:
    """As in a pipeline that has none: no similarities, no subjects."""

    def gathered(searched: Any, query: Any, _: Any, *more: Any) -> Any:
        return gather(searched, query, None, *more)

    with without_subjects(), patch.object(retrieval, "gather", gathered):
        yield


def without_passages() -> AbstractContextManager[object]:
    """Whole texts, or nothing of them."""
    return patch.object(filling.Selection, "_take_passage", lambda *_: None)


def without_replies() -> AbstractContextManager[object]:
    """Questions without their replies, and the other way round."""
    return patch.object(filling.Selection, "_take_exchange", lambda *_: None)


PARTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    EVERYTHING: nullcontext,
    "words": without_words,
    "embeddings": without_embeddings,
    "likeness": partial(without_weight, "session_alike"),
    "length": partial(without_weight, "length"),
    "variety": partial(without_weight, "variety"),
    "neighbours": partial(without_weight, "neighbours"),
    "sessions, all": partial(
        without_weight, "session_best", "session", "session_alike", "opening", "recency"
    ),
    "session scores": partial(without_weight, "session_best", "session", "session_alike"),
    "opening": partial(without_weight, "opening"),
    "recency": partial(without_weight, "recency"),
    "subjects": without_subjects,
    "speaker": partial(without_weight, "speaker"),
    "speaker_length": partial(without_weight, "speaker_length"),
    "first_person": partial(without_weight, "first_person"),
    "date": partial(without_weight, "date"),
    "passages": without_passages,
    "replies": without_replies,
}


class Loss(NamedTuple):
    """What a data set loses without a part, in points; of everything, what there is to lose."""

    data: str
    part: str
    questions: int
    recall: dict[int, float]
    """By budget."""
    mean: float
    error: float
    """The standard error of the mean over the questions."""
    soft: float


Found = dict[str, dict[int, list[Score]]]


def ask(
    conversation: Conversation,
    budgets: Sequence[int],
    parts: Sequence[str],
    found: Found,
    done: Callable[[], None],
) -> None:
    """Put every question without every part, and add the scores."""
    said = 0
    with ContextPipeline(system_prompt=SYSTEM_PROMPT, store=InMemoryStore()) as pipeline:
        for question in conversation.questions:
            if question.history > said:
                pipeline.add_messages(
                    [turn.message for turn in conversation.turns[said : question.history]], **WHO
                )
                said = question.history
            for part, budget in product(parts, budgets):
                with PARTS[part]():
                    settings = {"max_context_tokens": budget, "cache_lifetime_seconds": 0}
                    context = pipeline.assemble(question.text, settings=settings, **WHO)
                found[part][budget].append(
                    score(question, conversation.turns[:said], context.messages, budget, 0.0)
                )
            done()


def losses(data: DataSet, found: Found) -> Iterator[Loss]:
    """A row per part."""
    everything = found[EVERYTHING]
    for part, by_budget in found.items():
        kept = {b: [score.recall for score in scores] for b, scores in by_budget.items()}
        soft = [score.soft for scores in by_budget.values() for score in scores]
        if part != EVERYTHING:
            kept = {
                budget: [
                    before.recall - value
                    for before, value in zip(everything[budget], values, strict=True)
                ]
                for budget, values in kept.items()
            }
            all_soft = [score.soft for scores in everything.values() for score in scores]
            soft = [before - value for before, value in zip(all_soft, soft, strict=True)]
        each = [statistics.fmean(values) for values in zip(*kept.values(), strict=True)]
        error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else 0.0
        yield Loss(
            data=data.name,
            part=part,
            questions=len(each),
            recall={
                budget: round(100 * statistics.fmean(values), 1) for budget, values in kept.items()
            },
            mean=round(100 * statistics.fmean(each), 1),
            error=round(100 * error, 1),
            soft=round(100 * statistics.fmean(soft), 1),
        )


def cells(rows: Sequence[Loss]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and a line per part."""
    by_part: dict[str, dict[str, Loss]] = {}
    for row in rows:
        by_part.setdefault(row.part, {})[row.data] = row
    header = ["without"]
    for row in by_part[EVERYTHING].values():
        header += [f"{row.data} {budget:,}" for budget in row.recall] + ["mean", "soft"]
    lines = []
    for part, by_data in by_part.items():
        line = [f"({part}: recall)" if part == EVERYTHING else part]
        for row in by_data.values():
            line += [cell(value + 0.0) for value in row.recall.values()]  # not -0.0
            line += [f"{cell(row.mean + 0.0)} ± {cell(row.error)}", cell(row.soft + 0.0)]
        lines.append(line)
    return header, lines


def table(rows: Sequence[Loss]) -> Table:
    """All rows."""
    header, lines = cells(rows)
    drawn = Table(title="points of recall that are lost without a part")
    for number, name in enumerate(header):
        drawn.add_column(name, justify="right" if number else "left")
    for number, line in enumerate(lines):
        drawn.add_row(*line, style="" if number else "bold", end_section=not number)
    return drawn


def markdown(rows: Sequence[Loss]) -> str:
    """The same as Markdown."""
    header, lines = cells(rows)
    ruler = "|---|" + "--:|" * (len(header) - 1)
    return "\n".join(
        [
            "| " + " | ".join(header) + " |",
            ruler,
            *("| " + " | ".join(line) + " |" for line in lines),
        ]
    )


def run(
    sets: Sequence[DataSet],
    budgets: Mapping[str, Sequence[int]],
    parts: Sequence[str],
    console: Console,
) -> list[Loss]:
    """All rows of all data sets."""
    rows: list[Loss] = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        for data in sets:
            questions = sum(len(conversation.questions) for conversation in data.conversations)
            bar: TaskID = progress.add_task(data.name, total=questions)
            found: Found = {part: {budget: [] for budget in budgets[data.name]} for part in parts}
            for conversation in data.conversations:
                ask(conversation, budgets[data.name], parts, found, partial(progress.advance, bar))
            rows += losses(data, found)
    return rows


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
    parser.add_argument("--parts", nargs="+", choices=list(PARTS)[1:], default=list(PARTS)[1:])
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    sets = data_sets(options)
    load_vocabulary()
    rows = run(
        sets, budgets_of(options.budgets, sets), [EVERYTHING, *options.parts], Console(stderr=True)
    )
    out = Console(width=None if sys.stdout.isatty() else 160)
    if options.markdown:
        out.print(markdown(rows), soft_wrap=True, highlight=False)
    else:
        out.print(table(rows))
    if options.json:
        options.json.write_text(
            json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
