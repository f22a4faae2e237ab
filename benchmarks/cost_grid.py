"""What conversations cost at the prices of providers, beside sending everything and hindsight.

A grid: how providers cache and charge, how long a conversation is, the budget, and the pauses
between its turns. Conversations go through the package turn by turn, on a clock of their own; no
model is called. Costs are effective tokens: tokens of input that no cache has to do with. They are
measured here, by the messages that were sent, not taken from the reports.

    python benchmarks/cost_grid.py                                   what is bundled and generated
    python benchmarks/cost_grid.py --data FOLDER                     and RealMem, coding sessions
    python benchmarks/cost_grid.py --data FOLDER --json runs.jsonl  and keeps what was measured
    python benchmarks/cost_grid.py --from runs.jsonl                 prints that again

`--data` names a folder with `realmem.dev.jsonl.gz` (chats over months, each session with its day)
and `coding.dev.jsonl.gz` (sessions of coding agents). What is not there is skipped.

The provider: a cache holds what was sent until its lifetime has passed since it was used last. What a
request has in common with any of that, from its beginning on, is read, if it is large enough; the
rest is written. Pauses:

    none       a turn a minute, a call of an agent ten seconds after the one before it
    some       the same, and twenty minutes before every sixth turn
    always     ten minutes before every turn
    as dated   the days and times of the conversation itself; agents have none

*everything* is what sending the whole conversation costs. *hindsight* is the least that a
conversation could have cost if at every request somebody who knows all that follows had chosen
between extending the last prompt and rebuilding it. It is found by dynamic programming over the
request at which the prompt was rebuilt last, with these sizes:

    - rebuilt: what a rebuild of ours has filled of the budget at the same request, or, where ours
      was not rebuilt there, what its rebuilds with the same state of the cache filled in the mean
      (without any: 0.4 of the budget from a warm cache, all of it from a cold one); never more
      than everything. Of a warm cache it reads the system prompt.
    - extended: the last prompt, what was said since, and as large a background as ours has added
      there, or in the mean; not if that is over the budget.

Hindsight is free in when to rebuild, and in nothing else. *any size* may also rebuild to the
smaller size of the two states of the cache, whichever it is in: it shows what filling a cold prompt
costs. Ours has a third choice, to leave out the middle of a prompt, so it may cost less than
hindsight.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget import ContextPipeline, LocalEmbeddings, TiktokenCounter
from langchain_ctxbudget.demo import DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.errors import BudgetError
from langchain_ctxbudget.messages import fingerprint, time_of
from langchain_ctxbudget.providers import ANTHROPIC, COMMON, GOOGLE, OPENAI, CacheTerms
from langchain_ctxbudget.providers.compatible import COMPATIBLE
from langchain_ctxbudget.replay import split_turns

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
HOUR = 3_600
PROVIDERS: dict[str, CacheTerms] = {
    "GPT-5": OPENAI.cache_terms_for("gpt-5"),
    "GPT-5.6": OPENAI.cache_terms_for("gpt-5.6"),
    "Claude, 5 minutes": ANTHROPIC.cache_terms_for("claude-opus-5"),
    "Claude, an hour": ANTHROPIC.cache_terms_for("claude-opus-5").lasting(HOUR),
    "Gemini": GOOGLE.cache_terms_for("gemini-3.8-flash"),
    "DeepSeek": COMPATIBLE.cache_terms_for("deepseek-v4"),
    "no cache": OPENAI.cache_terms_for("gpt-4-turbo"),
}
CHAT_BUDGETS = (4_000, 16_000)
AGENT_BUDGETS = (8_000, 32_000)
LENGTHS = (20, 40, 60)
"""Requests after which a conversation is looked at."""
PAUSES = ("none", "some", "always", "as dated")
MINUTE = 60.0
CALL_SECONDS = 10.0
WARM_SHARE = 0.4
SYSTEM_PROMPT = "You are a helpful assistant."


@dataclass(frozen=True)
class Talk:
    """A conversation."""

    name: str
    kind: str
    """`chat` or `agent`."""
    messages: Sequence[BaseMessage]
    system_prompt: str = SYSTEM_PROMPT

    @property
    def is_dated(self) -> bool:
        return any(time_of(message) for message in self.messages)


@dataclass(frozen=True)
class Step:
    """One request, as it was measured."""

    tokens: int
    cost: float
    whole: int
    """The tokens of everything."""
    mode: str
    cause: str
    is_warm: bool
    """Whether a cache still holds the last request."""


@dataclass(frozen=True)
class Run:
    """One conversation with one provider, budget and kind of pauses."""

    talk: str
    kind: str
    provider: str
    budget: int
    pauses: str
    system_tokens: int
    steps: Sequence[Step]


# -- Conversations


def bundled() -> Talk:
    """The bundled conversation, which has its days."""
    return Talk("bundled", "chat", demo_messages(), DEMO_SYSTEM_PROMPT)


def generated() -> Talk:
    """An agent that reads, changes and tests the files of a made-up program."""
    rng = random.Random(5)
    parts = ["order", "invoice", "cart", "stock", "parcel", "label", "rate", "refund", "shelf"]
    verbs = ["read", "write", "parse", "check", "merge", "split", "store", "load", "count", "send"]
    files: dict[str, list[str]] = {}
    for part in parts:
        lines = []
        for number in range(rng.randint(40, 160)):
            verb, other = rng.choice(verbs), rng.choice(parts)
            lines.append(
                f"{number:>4}  def {verb}_{other}_{number}(self): return self.{other}.{verb}()"
            )
        files[f"src/{part}.py"] = lines
    messages: list[BaseMessage] = []
    for turn in range(12):
        part = rng.choice(parts)
        messages.append(
            HumanMessage(f"The {part} of customers with two addresses is wrong, mend it ({turn}).")
        )
        for call in range(rng.randint(5, 14)):
            path = rng.choice([f"src/{part}.py", *files])
            name, text = "read_file", "\n".join(files[path])
            if call % 4 == 3:
                name, text = (
                    "run_tests",
                    f"{rng.randint(1, 40)} passed, 1 failed: tests/test_{part}.py",
                )
            key = f"call_{turn}_{call}"
            calls = [{"name": name, "args": {"path": path}, "id": key}]
            messages.append(AIMessage(f"I look at {path}.", tool_calls=calls))
            messages.append(ToolMessage(text, tool_call_id=key, name=name))
        messages.append(AIMessage(f"The {part} takes the address of the delivery now."))
    return Talk("generated", "agent", messages)


def realmem(folder: Path, number: int) -> Iterator[Talk]:
    """Chats of RealMem, with the days of their sessions."""
    for row in lines_of(folder / "realmem.dev.jsonl.gz", number):
        messages: list[BaseMessage] = []
        for turn in row["turns"]:
            kind = HumanMessage if turn["speaker"] == "user" else AIMessage
            messages.append(kind(turn["text"], additional_kwargs={"created_at": turn["time"]}))
        yield Talk(f"RealMem {row['id']}", "chat", messages)


def coding(folder: Path, number: int) -> Iterator[Talk]:
    """Sessions of coding agents."""
    for row in lines_of(folder / "coding.dev.jsonl.gz", number):
        messages: list[BaseMessage] = []
        for message in row["messages"]:
            text = message.get("text", "")
            if message["role"] == "user":
                messages.append(HumanMessage(text))
            elif message["role"] == "tool":
                messages.append(ToolMessage(text, tool_call_id=message["id"]))
            else:
                calls = message.get("calls", [])
                messages.append(AIMessage(text, tool_calls=calls))
        yield Talk(f"coding {row['id'][:8]}", "agent", messages)


def lines_of(file: Path, number: int) -> list[dict[str, Any]]:
    """The first rows of a file; none, and a line that says so, where it is not there."""
    if not file.exists():
        print(f"skipped: there is no {file.name} in the folder", file=sys.stderr)
        return []
    with gzip.open(file, "rt", encoding="utf-8") as rows:
        return [json.loads(row) for row, _ in zip(rows, range(number), strict=False)]


def seconds_before_turns(turns: Sequence[Sequence[BaseMessage]], pauses: str) -> list[float]:
    """The seconds between the end of a turn and the next one."""
    if pauses == "always":
        return [10 * MINUTE] * len(turns)
    if pauses == "some":
        return [20 * MINUTE if number % 6 == 5 else MINUTE for number in range(len(turns))]
    seconds = [MINUTE] * len(turns)
    if pauses == "none":
        return seconds
    for number in range(1, len(turns)):
        before = time_of(turns[number - 1][-1])
        now = time_of(turns[number][0])
        if before and now:
            seconds[number] = max(MINUTE, (now - before).total_seconds())
    return seconds


# -- Measuring


class Known(Embeddings):
    """The package's own vectors, each made once for all runs."""

    def __init__(self) -> None:
        self.inner = LocalEmbeddings()
        self.vectors: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        new = [text for text in dict.fromkeys(texts) if text not in self.vectors]
        if new:
            self.vectors |= zip(new, self.inner.embed_documents(new), strict=True)
        return [self.vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.inner.embed_query(text)


class Counts:
    """Counts messages, each once."""

    def __init__(self) -> None:
        self.counter = TiktokenCounter()
        self.known: dict[str, int] = {}

    def of(self, message: BaseMessage) -> int:
        key = fingerprint(message)
        if key not in self.known:
            self.known[key] = self.counter.count_message(message)
        return self.known[key]


EMBEDDINGS = Known()
COUNTS = Counts()


class Cache:
    """What a provider's cache holds: the beginnings of requests, message by message."""

    def __init__(self, lifetime_seconds: float) -> None:
        self.lifetime_seconds = lifetime_seconds
        self.used: dict[tuple[str, ...], datetime] = {}

    def read(self, messages: Sequence[BaseMessage], now: datetime) -> int:
        """How many messages of a request it holds, from the first on; then it holds them all."""
        prints = tuple(map(fingerprint, messages))
        held = 0
        for number in range(1, len(prints) + 1):
            used = self.used.get(prints[:number])
            if used is not None and (now - used).total_seconds() <= self.lifetime_seconds:
                held = number
        for number in range(1, len(prints) + 1):
            self.used[prints[:number]] = now
        return held


def measure(talk: Talk, provider: str, budget: int, pauses: str, most: int) -> Run:
    """Takes a conversation through the package, and measures each request."""
    terms = PROVIDERS[provider]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    pipeline = ContextPipeline(
        {
            "max_context_tokens": budget,
            "learn": False,
            "cache_lifetime_seconds": terms.lifetime_seconds,
        },
        system_prompt=talk.system_prompt,
        provider=replace(COMMON, cache=terms),
        token_counter=COUNTS.counter,
        embeddings=EMBEDDINGS,
        writer_id="grid",
        clock=lambda: now,
    )
    system_tokens = COUNTS.of(SystemMessage(talk.system_prompt))
    framing = COUNTS.counter.count_messages([])
    turns = split_turns(talk.messages)
    steps: list[Step] = []
    said = system_tokens + framing
    cache = Cache(terms.lifetime_seconds)
    sent_at: datetime | None = None
    with pipeline:
        for turn, seconds in zip(turns, seconds_before_turns(turns, pauses), strict=True):
            now += timedelta(seconds=seconds)
            for position, message in enumerate(turn):
                if not position or not isinstance(message, AIMessage):
                    continue
                context = pipeline.assemble(turn[:position], **SCOPE)
                is_warm = (
                    sent_at is not None
                    and (now - sent_at).total_seconds() <= terms.lifetime_seconds
                )
                costs = [COUNTS.of(each) for each in context.messages]
                shared = sum(costs[: cache.read(context.messages, now)])
                tokens = sum(costs) + framing
                stability = context.report.stability
                steps.append(
                    Step(
                        tokens=tokens,
                        cost=terms.cost(tokens, shared),
                        whole=said + sum(map(COUNTS.of, turn[:position])),
                        mode=stability.mode,
                        cause=stability.cause,
                        is_warm=is_warm,
                    )
                )
                sent_at = now
                now += timedelta(seconds=CALL_SECONDS)
                if len(steps) == most:
                    return Run(talk.name, talk.kind, provider, budget, pauses, system_tokens, steps)
            pipeline.add_messages(turn, **SCOPE)
            said += sum(map(COUNTS.of, turn))
    return Run(talk.name, talk.kind, provider, budget, pauses, system_tokens, steps)


# -- What other choices would have cost


def cost_of_everything(run: Run, length: int) -> float:
    """What the first requests cost if each has everything."""
    terms = PROVIDERS[run.provider]
    cost = 0.0
    before = 0
    for step in run.steps[:length]:
        cost += terms.cost(step.whole, before if step.is_warm else 0)
        before = step.whole
    return cost


def cost_of_ours(run: Run, length: int) -> float:
    return sum(step.cost for step in run.steps[:length])


class Hindsight:
    """The least that the requests of a run could have cost; see the text of this module."""

    def __init__(self, run: Run, *, any_size: bool) -> None:
        self.run = run
        self.terms = PROVIDERS[run.provider]
        self.added = self._added_tokens()
        self.rebuilt = self._rebuilt_tokens(any_size=any_size)
        self.costs = self._costs()
        """By request, the least cost of all up to it."""

    def _added_tokens(self) -> list[int]:
        """By request, the tokens by which an extended prompt is longer than the last one."""
        steps = self.run.steps
        said = [step.whole - before.whole for before, step in pairwise(steps)]
        backgrounds = []
        for number, (before, step) in enumerate(pairwise(steps)):
            if step.mode == "extended":
                backgrounds.append(max(0, step.tokens - before.tokens - said[number]))
        mean = round(statistics.fmean(backgrounds)) if backgrounds else 0
        added = [0]
        for number, (before, step) in enumerate(pairwise(steps)):
            if step.mode == "extended":
                added.append(step.tokens - before.tokens)
            else:
                added.append(said[number] + mean)
        return added

    def _rebuilt_tokens(self, *, any_size: bool) -> list[int]:
        """By request, the tokens of a prompt that is rebuilt there."""
        steps = self.run.steps
        budget = self.run.budget
        filled: dict[bool, list[float]] = {True: [], False: []}
        for step in steps:
            if step.mode == "rebuilt" and step.whole > budget:
                filled[step.is_warm].append(step.tokens / budget)
        shares = {True: WARM_SHARE, False: 1.0}
        for is_warm, found in filled.items():
            if found:
                shares[is_warm] = statistics.fmean(found)
        rebuilt = []
        for step in steps:
            share = min(shares.values()) if any_size else shares[step.is_warm]
            tokens = min(step.whole, round(share * budget))
            if step.mode == "rebuilt":
                tokens = min(tokens, step.tokens) if any_size else step.tokens
            rebuilt.append(tokens)
        return rebuilt

    def _costs(self) -> list[float]:
        """Goes through the requests; keeps, by the last rebuild, the size and the least cost."""
        least: list[float] = []
        open_prompts: list[tuple[int, float]] = []
        for number, step in enumerate(self.run.steps):
            extended: list[tuple[int, float]] = []
            for size, cost in open_prompts:
                longer = size + self.added[number]
                if longer <= self.run.budget:
                    shared = size if step.is_warm else 0
                    extended.append((longer, cost + self.terms.cost(longer, min(longer, shared))))
            tokens = self.rebuilt[number]
            shared = min(tokens, self.run.system_tokens) if step.is_warm else 0
            before = least[-1] if least else 0.0
            extended.append((tokens, before + self.terms.cost(tokens, shared)))
            open_prompts = extended
            least.append(min(cost for _, cost in open_prompts))
        return least


# -- The grid


@dataclass(frozen=True)
class Cell:
    """One conversation, provider, budget, kind of pauses and length, with its costs."""

    run: Run
    length: int
    ours: float
    everything: float
    hindsight: float
    any_size: float

    @property
    def over_everything(self) -> float:
        return self.ours / self.everything

    @property
    def over_hindsight(self) -> float:
        return self.ours / self.hindsight

    @property
    def over_any_size(self) -> float:
        return self.ours / self.any_size

    def __str__(self) -> str:
        run = self.run
        return (
            f"{run.provider}, {run.talk}, {run.budget:,} tokens, pauses: {run.pauses}, "
            f"{self.length} requests"
        )


def cells_of(run: Run) -> Iterator[Cell]:
    """The cells of a run: one for each length that it has."""
    timed = Hindsight(run, any_size=False)
    sized = Hindsight(run, any_size=True)
    for length in LENGTHS:
        if length <= len(run.steps):
            yield Cell(
                run,
                length,
                ours=cost_of_ours(run, length),
                everything=cost_of_everything(run, length),
                hindsight=timed.costs[length - 1],
                any_size=sized.costs[length - 1],
            )


def runs_of(
    talks: Iterable[Talk], providers: Sequence[str], kinds_of_pauses: Sequence[str], most: int
) -> Iterator[Run]:
    """Measures all runs of the grid, and says how far it is."""
    for talk in talks:
        for pauses in kinds_of_pauses:
            if pauses == "as dated" and not talk.is_dated:
                continue
            for budget in CHAT_BUDGETS if talk.kind == "chat" else AGENT_BUDGETS:
                for provider in providers:
                    print(
                        f"\r{talk.name}: {pauses}, {budget:,}, {provider} ".ljust(78),
                        end="",
                        file=sys.stderr,
                    )
                    try:
                        yield measure(talk, provider, budget, pauses, most)
                    except BudgetError as error:
                        print(f"\nskipped: {error}", file=sys.stderr)
    print(file=sys.stderr)


def told(cells: Sequence[Cell]) -> None:
    """Prints the grid, and what is to be known of it."""
    for kind in ("chat", "agent"):
        of_kind = [cell for cell in cells if cell.run.kind == kind]
        if of_kind:
            print_grid(kind, of_kind)
    print()
    print("| against | cells | mean | worst | of |")
    print("|---|--:|--:|--:|---|")
    ratios: dict[str, Callable[[Cell], float]] = {
        "sending everything": lambda cell: cell.over_everything,
        "hindsight": lambda cell: cell.over_hindsight,
        "hindsight, any size": lambda cell: cell.over_any_size,
    }
    for name, ratio in ratios.items():
        worst = max(cells, key=ratio)
        mean = statistics.fmean(map(ratio, cells))
        print(f"| {name} | {len(cells)} | {mean:.2f} | {ratio(worst):.2f} | {worst} |")
    above = sorted(
        (cell for cell in cells if cell.over_everything > 1), key=lambda cell: -cell.over_everything
    )
    print(f"\n{len(above)} of {len(cells)} cells are above sending everything:")
    for cell in above[:25]:
        print(f"  {cell.over_everything:.3f}  {cell}")


def print_grid(kind: str, cells: Sequence[Cell]) -> None:
    """Prints, for each provider and pauses, our cost as a share of everything and of hindsight."""
    budgets = sorted({cell.run.budget for cell in cells})
    columns = [(length, budget) for length in LENGTHS for budget in budgets]
    print(
        f"\n{kind}: cost as a share of sending everything / of hindsight, mean of the conversations\n"
    )
    heads = [f"{length} req., {budget // 1_000}K" for length, budget in columns]
    print(f"| | pauses | {' | '.join(heads)} |")
    print(f"|---|---|{'--:|' * len(heads)}")
    keys = sorted(
        {(cell.run.provider, cell.run.pauses) for cell in cells},
        key=lambda key: (list(PROVIDERS).index(key[0]), PAUSES.index(key[1])),
    )
    for provider, pauses in keys:
        texts = []
        for length, budget in columns:
            found = [
                cell
                for cell in cells
                if (cell.run.provider, cell.run.pauses, cell.length, cell.run.budget)
                == (provider, pauses, length, budget)
            ]
            if not found:
                texts.append("")
                continue
            everything = statistics.fmean(cell.over_everything for cell in found)
            hindsight = statistics.fmean(cell.over_hindsight for cell in found)
            texts.append(f"{everything:.2f} / {hindsight:.2f}")
        print(f"| {provider} | {pauses} | {' | '.join(texts)} |")


def kept_runs(file: Path) -> list[Run]:
    """The runs of a file, a line each."""
    runs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        runs.append(Run(**{**row, "steps": [Step(**step) for step in row["steps"]]}))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the folder with RealMem and the coding sessions")
    parser.add_argument(
        "--talks", type=int, default=2, help="conversations of each file (default: 2)"
    )
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, default=[*PROVIDERS])
    parser.add_argument("--pauses", nargs="+", choices=PAUSES, default=PAUSES)
    parser.add_argument("--only", default="", help="the conversations whose names have this")
    parser.add_argument(
        "--requests", type=int, default=max(LENGTHS), help="the most of a conversation"
    )
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    parser.add_argument("--from", dest="kept", type=Path, help="what was kept")
    options = parser.parse_args()
    if options.kept:
        runs = kept_runs(options.kept)
    else:
        talks = [bundled(), generated()]
        if options.data:
            talks += [*realmem(options.data, options.talks), *coding(options.data, options.talks)]
        else:
            print(
                "skipped: RealMem and the coding sessions (--data names no folder)", file=sys.stderr
            )
        talks = [talk for talk in talks if options.only in talk.name]
        runs = []
        for run in runs_of(talks, options.providers, options.pauses, options.requests):
            runs.append(run)
            if options.json:
                with options.json.open("a", encoding="utf-8") as lines:
                    lines.write(f"{json.dumps(asdict(run))}\n")
    told([cell for run in runs for cell in cells_of(run)])


if __name__ == "__main__":
    main()
