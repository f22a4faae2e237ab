"""How much of what a question needs stands in the prompt: this package beside what else there is.

Real questions about long conversations, whose evidence is known: turns that hold the answer. Every system puts a
prompt together for the same questions within the same budget, with the same embeddings (`LocalEmbeddings`) and words
(`terms`: stems without stop words), and turns of a day stand under one date;
`ChatOpenAI.get_num_tokens_from_messages` counts all prompts. No language model is called and no network is used. A
system returns what it returns: a prompt over the budget is counted, not repaired.

    python benchmarks/context_quality.py --synthetic python benchmarks/context_quality.py --data
    FILE.jsonl.gz --limit 40 --plot recall.svg --json recall.json python
    benchmarks/context_quality.py --data FILE.jsonl.gz --budgets 1024,2048 --systems ctxbudget bm25

The peers, none of which the package itself needs; those that are missing are left out, and said to
be:

    pip install 'rank-bm25>=0.2.2,<1' 'langchain-chroma>=1.0,<2' 'mem0ai>=2.0,<3' 'langchain>=1.4,<2'
        'llama-index-core>=0.14,<0.15' 'llama-index-embeddings-langchain>=0.6,<1'
        'llama-index-vector-stores-chroma>=0.6,<1' 'langchain-ctxbudget[plots]'

A line of a data file is `{"id", "turns": [{"id", "time", "speaker", "text"}], "questions":
[{"question", "category", "history", "evidence"}]}`: a question comes after the first `history`
turns, its evidence are ids of turns.

Columns:
    recall   mean share of evidence turns that stand in the prompt word by word, %
    all      questions with all their evidence in the prompt, %
    soft     share of the evidence's sentences in the prompt, by length, %
    touched  share of evidence turns of which a sentence stands in the prompt, %
    words    words of the answer, without those of the question, that stand in the prompt, %
    replied  quoted questions (older than the last 8 turns) with a sentence of their reply that shares a
             word with them or has a number, %
    dated    evidence turns found whose date (YYYY-MM-DD) is in the prompt too, %
    recent   prompts with the last 6 messages word by word, %
    tokens   mean tokens of a prompt
    over     prompts over the budget
    p50/p95  milliseconds of the processor to put a prompt together (reading the conversation is not in it)
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from quality.data import Conversation, DataSet, generated, read
from quality.peers import ChromaRetriever, LlamaIndex, LlamaIndexTuned, Mem0
from quality.scoring import Row, Score, averaged, count, score
from quality.showing import markdown, plot, table
from quality.systems import Bm25, CtxBudget, Dense, Fused, FusedPerCost, Recency, System
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

SYSTEMS: dict[str, type[System]] = {
    kind.name: kind
    for kind in (
        CtxBudget,
        Recency,
        ChromaRetriever,
        LlamaIndex,
        LlamaIndexTuned,
        Mem0,
        Bm25,
        Dense,
        Fused,
        FusedPerCost,
    )
}


def run(
    sets: Sequence[DataSet],
    systems: Sequence[str],
    budgets: Mapping[str, Sequence[int]],
    console: Console,
) -> tuple[list[Row], dict[str, str]]:
    """A row per data set, system and budget, and why systems have none."""
    rows: list[Row] = []
    missing: dict[str, str] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        for data, name in product(sets, systems):
            if name in missing:
                continue
            scores: dict[int, list[Score]] = {budget: [] for budget in budgets[data.name]}
            bar = progress.add_task(f"{data.name}: {name}", total=len(data.conversations))
            try:
                for conversation in data.conversations:
                    ask(SYSTEMS[name], conversation, scores)
                    progress.advance(bar)
            except Exception as error:  # noqa: BLE001 - one system's failure is not the run's
                missing[name] = reason(SYSTEMS[name], error)
            else:
                rows += [averaged(data.name, name, budget, some) for budget, some in scores.items()]
    return rows, missing


def ask(kind: type[System], conversation: Conversation, scores: Mapping[int, list[Score]]) -> None:
    """Replay a conversation to a system, put the questions where they belong, and add the scores of each budget."""
    system = kind(list(scores))
    try:
        done = 0
        for question in conversation.questions:
            if question.history > done:
                system.add(conversation.turns[done : question.history])
                done = question.history
            for budget, some in scores.items():
                started = time.process_time()
                prompt = system.assemble(question.text, budget)
                ms = (time.process_time() - started) * 1000
                some.append(score(question, conversation.turns[:done], prompt, budget, ms))
    finally:
        system.close()


def reason(kind: type[System], error: Exception) -> str:
    """Why a system has no rows."""
    if isinstance(error, ImportError) and kind.install:
        return f"not installed: pip install {shlex.join(kind.install.split())} ({error})"
    return f"failed: {type(error).__name__}: {error}"


def data_sets(options: argparse.Namespace) -> list[DataSet]:
    """What to ask about.

    Raises:
        SystemExit: there is nothing.
    """
    if options.synthetic:
        return [generated(conversations=2, sessions=60, limit=options.limit)]
    if not options.data:
        raise SystemExit(
            "There is no data: name files with --data, or run with --synthetic, which generates some."
        )
    skip = frozenset(options.skip.split(","))
    sets = [
        data
        for path in options.data
        if (data := read(path, limit=options.limit, skip=skip)).conversations
    ]
    if not sets:
        raise SystemExit(
            f"There are no conversations with questions in {', '.join(map(str, options.data))}."
        )
    return sets


def budgets_of(given: Sequence[str], sets: Sequence[DataSet]) -> dict[str, list[int]]:
    """The budgets of every data set.

    `1024,2048` are for all, `name:1024,2048` for those that start with the name.

    Raises:
        SystemExit: a data set has none.
    """
    chosen: dict[str, list[int]] = {}
    for data in sets:
        for option in sorted(given, key=lambda option: ":" in option):
            prefix, _, numbers = option.rpartition(":")
            if data.name.startswith(prefix):
                chosen[data.name] = [int(number) for number in numbers.split(",")]
        if data.name not in chosen:
            raise SystemExit(f"--budgets {' '.join(given)} gives none for {data.name}")
    return chosen


def kept(path: Path, rows: Sequence[Row]) -> list[Row]:
    """Rows of an earlier run that this one has not measured anew."""
    new = {(row.data, row.system, row.budget) for row in rows}
    old = [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    return [row for row in old if (row.data, row.system, row.budget) not in new]


def load_vocabulary() -> None:
    """Before any time is taken.

    `ChatOpenAI` counts with tiktoken, which reads its vocabulary from a file.

    Raises:
        SystemExit: there is no such file, and it could not be fetched.
    """
    try:
        count([])
    except Exception as error:
        raise SystemExit(
            f"tiktoken could not fetch o200k_base, which it needs once ({type(error).__name__}): set "
            "TIKTOKEN_CACHE_DIR to a folder that holds it"
        ) from error


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, nargs="+", help="JSON-lines files, plain or compressed with gzip"
    )
    parser.add_argument("--synthetic", action="store_true", help="generated conversations instead")
    parser.add_argument(
        "--budgets",
        nargs="+",
        default=["1024,2048,4096", "realmem:2048,4096,8192"],
        help="for all, or name:for,it",
    )
    parser.add_argument("--limit", type=int, help="questions per conversation, spread evenly")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument(
        "--skip", default="adversarial", help="question categories to leave out, comma-separated"
    )
    parser.add_argument(
        "--plot", type=Path, help="a picture of recall over the budget: .svg, .png or .pdf"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument(
        "--beside", type=Path, help="a file of --json: show its rows too where this run has none"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    console = Console(stderr=True)
    sets = data_sets(options)
    load_vocabulary()
    rows, missing = run(sets, options.systems, budgets_of(options.budgets, sets), console)
    if options.beside:
        rows += kept(options.beside, rows)
    rows.sort(key=lambda row: (row.data, row.budget, list(SYSTEMS).index(row.system)))
    out = Console(width=None if sys.stdout.isatty() else 160)
    if options.markdown:
        out.print(markdown(rows), soft_wrap=True, highlight=False)
    else:
        out.print(table(rows))
    for name, why in missing.items():
        out.print(f"{name}: {why}", soft_wrap=True, markup=False, highlight=False)
    if options.json:
        options.json.write_text(
            json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8"
        )
    if options.plot and rows:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
