"""What a prompt costs in time, beside what else there is.

One command, one run, each row in a process of its own.

Messages are generated: about 125 characters over a vocabulary with frequent and rare words. Times
are medians in milliseconds, wall and CPU of the whole process (learning included, which rests while
a turn waits). `calls` are texts given to the tokenizer for one prompt, `store` operations on the
store for one prompt and one append.

    python benchmarks/speed.py                                   everything, about 8 minutes on an
    idle machine python benchmarks/speed.py --lengths 1000,10000 --budgets 8192 --only prompt peers
    python benchmarks/speed.py --only open agent import --json speed.json

Peers that are not installed are left out, and said to be: `pip install langchain-chroma
llama-index-core langmem`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from langchain_ctxbudget import ContextPipeline

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
WARM_UP = 3
ADDED_TOGETHER = 2_000
"""Messages that a long conversation is made of at a time."""
LONG = 10_000
"""Of longer conversations peers, which take minutes, are measured three times, and at the middle
budget."""
PEER_SECONDS = 60
"""A peer that takes longer for its few prompts is left out."""
PARTS = ("prompt", "peers", "graph", "agent", "open", "import")
Row = dict[str, Any]


# -- What is measured


class Generator:
    """Makes the same messages for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.words = [
            f"{self.random.choice('bcdfgklmnprst')}{self.random.choice('aeiou')}{n:x}"
            for n in range(5_000)
        ]
        self.weights = [1 / (rank + 10) for rank in range(len(self.words))]

    def text(self, words: int = 23) -> str:
        return " ".join(self.random.choices(self.words, self.weights, k=words)) + "."

    def messages(self, count: int, first: int = 0) -> list[BaseMessage]:
        return [
            (HumanMessage, AIMessage)[n % 2](self.text(), id=f"m{n}")
            for n in range(first, first + count)
        ]

    def exchange(self) -> list[BaseMessage]:
        return [HumanMessage(self.text()), AIMessage(self.text())]


class Clocks:
    """Wall and CPU milliseconds of what is done within."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        wall = time.perf_counter()
        cpu = time.process_time()
        yield
        self.cpu.append((time.process_time() - cpu) * 1000)
        self.wall.append((time.perf_counter() - wall) * 1000)

    def median(self) -> tuple[float, float]:
        return statistics.median(self.wall[WARM_UP:]), statistics.median(self.cpu[WARM_UP:])


def resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cpu_seconds() -> float:
    """Returns what this process and those that it has started have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def counting_store() -> Any:  # noqa: ANN401 - a class that is made where it is measured
    """A store in memory that counts its operations."""
    from langgraph.store.memory import InMemoryStore  # noqa: PLC0415 - what is measured is imported in its own process

    class Counting(InMemoryStore):
        operations = 0

        def batch(self, ops: Iterable[Any]) -> list[Any]:
            asked = list(ops)
            type(self).operations += len(asked)
            return super().batch(asked)

    return Counting()


def fill_other_layers(pipeline: ContextPipeline, generator: Generator) -> None:
    """Documents and facts."""
    from langchain_ctxbudget import KnowledgeBase  # noqa: PLC0415

    texts = (" ".join(generator.text() for _ in range(40)) for _ in range(25))
    KnowledgeBase(pipeline.store, user_id="ada").add(
        [Document(text, id=f"d{n}") for n, text in enumerate(texts)]
    )
    for n in range(20):
        pipeline.knowledge.add_fact(
            f"Likes {generator.words[n * 50]}", category="preference", user_id="ada"
        )


def prompt_rows(length: int, budgets: list[int], prompts: int, *, full: bool = False) -> list[Row]:
    """Prompts and appends in turn, of one conversation for every budget.

    `full` with all other layers and learning.
    """
    from langchain_ctxbudget import ContextPipeline  # noqa: PLC0415

    generator = Generator(length)
    store = counting_store()
    rows: list[Row] = []
    with ContextPipeline({} if full else {"learn": False}, store=store) as pipeline:
        texts: list[str] = []  # messages would count as the package's memory
        for start in range(0, length, ADDED_TOGETHER):
            said = generator.messages(min(ADDED_TOGETHER, length - start), start)
            pipeline.add_messages(said, **SCOPE)
            texts += [message.text for message in said]
        if full:
            fill_other_layers(pipeline, generator)
        pipeline.flush()
        pipeline.assemble("Where do we begin?", **SCOPE)
        pipeline.flush()  # blocks of the messages are written once, beside the prompts
        for budget in budgets:
            appends = Clocks()
            made = Clocks()
            calls = []
            operations = []
            for _ in range(prompts + WARM_UP):
                before = store.operations
                with appends.running():
                    pipeline.add_messages(generator.exchange(), **SCOPE)
                question = f"What about {generator.random.choice(texts)[:80]}?"
                with made.running():
                    context = pipeline.assemble(
                        question, settings={"max_context_tokens": budget}, **SCOPE
                    )
                calls.append(context.report.tokenizer_calls)
                operations.append(store.operations - before)
            wall, cpu = made.median()
            rows.append(
                {
                    "messages": length,
                    "budget": budget,
                    "system": "ctxbudget, all layers" if full else "ctxbudget",
                    "wall": wall,
                    "cpu": cpu,
                    "append": appends.median()[0],
                    "slowest": max(made.wall[WARM_UP:]),
                    "calls": statistics.median(calls[WARM_UP:]),
                    "store": statistics.median(operations[WARM_UP:]),
                    "mb": resident_mb(),
                }
            )
    return rows


def timed(
    system: str,
    generator: Generator,
    said: list[BaseMessage],
    prompts: int,
    ask: Callable[[str], Any],
) -> Row:
    clocks = Clocks()
    for _ in range(prompts + WARM_UP):
        question = f"What about {generator.random.choice(said).text[:80]}?"
        with clocks.running():
            ask(question)
    wall, cpu = clocks.median()
    return {"system": system, "wall": wall, "cpu": cpu, "mb": resident_mb()}


def peer_row(name: str, length: int, budget: int, prompts: int) -> Row:
    """Another way to a prompt of the same size out of the same messages."""
    generator = Generator(length)
    said = generator.messages(length)
    return timed(name, generator, said, prompts, PEERS[name](said, budget))


def trimming(
    counter: Callable[[], Any],
) -> Callable[[list[BaseMessage], int], Callable[[str], Any]]:
    def made(said: list[BaseMessage], budget: int) -> Callable[[str], Any]:
        count = counter()
        return lambda question: trim_messages(
            [*said, HumanMessage(question)], max_tokens=budget, token_counter=count, strategy="last"
        )

    return made


def exact_counter() -> Any:  # noqa: ANN401 - every peer has a type of its own for it
    from langchain_ctxbudget import TiktokenCounter  # noqa: PLC0415

    return TiktokenCounter().count_messages


def chroma_retriever(said: list[BaseMessage], budget: int) -> Callable[[str], Any]:
    from langchain_chroma import Chroma  # type: ignore[import-not-found]  # noqa: PLC0415

    from langchain_ctxbudget import LocalEmbeddings  # noqa: PLC0415

    store: Any = Chroma(embedding_function=LocalEmbeddings())
    for start in range(0, len(said), 5_000):
        store.add_texts([message.text for message in said[start : start + 5_000]])
    ask: Callable[[str], Any] = store.as_retriever(search_kwargs={"k": budget // 40}).invoke
    return ask


def llama_index(said: list[BaseMessage], budget: int) -> Callable[[str], Any]:
    from llama_index.core.llms import ChatMessage  # type: ignore[import-not-found]  # noqa: PLC0415
    from llama_index.core.memory import ChatMemoryBuffer  # type: ignore[import-not-found]  # noqa: PLC0415

    count = exact_counter()
    memory: Any = ChatMemoryBuffer.from_defaults(
        token_limit=budget, tokenizer_fn=lambda text: range(count([HumanMessage(text)]))
    )
    memory.put_messages([ChatMessage(role="user", content=message.text) for message in said])
    ask: Callable[[str], Any] = memory.get
    return ask


def langmem(said: list[BaseMessage], budget: int) -> Callable[[str], Any]:
    from langchain_core.language_models import FakeListChatModel  # noqa: PLC0415
    from langmem.short_term import summarize_messages  # type: ignore[import-not-found]  # noqa: PLC0415

    model = FakeListChatModel(responses=["They spoke of many things."])
    count = exact_counter()
    return lambda question: summarize_messages(
        [*said, HumanMessage(question, id="q")],
        running_summary=None,
        model=model,
        max_tokens=budget,
        max_summary_tokens=256,
        token_counter=count,
    )


def summarization_middleware(said: list[BaseMessage], budget: int) -> Callable[[str], Any]:
    from langchain.agents.middleware import SummarizationMiddleware  # noqa: PLC0415
    from langchain_core.language_models import FakeListChatModel  # noqa: PLC0415

    middleware: Any = SummarizationMiddleware(
        FakeListChatModel(responses=["They spoke of many things."]),
        trigger=("tokens", budget),
        keep=("tokens", budget // 2),
        token_counter=exact_counter(),
    )
    return lambda question: middleware.before_model(
        {"messages": [*said, HumanMessage(question, id="q")]}, None
    )


PEERS: dict[str, Callable[[list[BaseMessage], int], Callable[[str], Any]]] = {
    "trim_messages, exact": trimming(exact_counter),
    "trim_messages, approximate": trimming(lambda: "approximate"),
    "Chroma retriever": chroma_retriever,
    "LlamaIndex memory": llama_index,
    "langmem": langmem,
    "SummarizationMiddleware": summarization_middleware,
}


def graph_row(length: int, budget: int, prompts: int) -> Row:
    """The same prompt through `build_context_graph`, with the state of a graph."""
    from langchain_ctxbudget import ContextPipeline, build_context_graph  # noqa: PLC0415

    generator = Generator(length)
    said = generator.messages(length)
    with ContextPipeline({"max_context_tokens": budget, "learn": False}) as pipeline:
        graph: Any = build_context_graph(pipeline)
        config: Any = {"configurable": {"thread_id": "c1", "user_id": "ada"}}
        ask = lambda question: graph.invoke(  # noqa: E731
            {"messages": [*said, HumanMessage(question, id="q")]}, config
        )
        return timed("ctxbudget, graph", generator, said, prompts, ask)


def agent_row(calls: int, messages: int, budget: int, prompts: int) -> Row:
    """The last calls of an agent's turn after some messages, less what these take without the middleware."""
    from langchain.agents import create_agent  # noqa: PLC0415
    from langchain_core.language_models import FakeMessagesListChatModel  # noqa: PLC0415
    from langchain_core.tools import tool  # noqa: PLC0415

    from langchain_ctxbudget.middleware import ContextBudgetMiddleware  # noqa: PLC0415

    generator = Generator(calls)
    rows = list[list[float]]()
    look = tool("look", description="Looks at a place.")(lambda n: f"{n}: {generator.text(60)}")
    said = [*generator.messages(messages), HumanMessage("Find it.", id="job")]
    config: Any = {
        "configurable": {"thread_id": "c1", "user_id": "ada"},
        "recursion_limit": 10 * calls,
    }
    for middleware in (
        [],
        [ContextBudgetMiddleware({"max_context_tokens": budget, "learn": False})],
    ):
        asked: list[tuple[float, float]] = []

        class Model(FakeMessagesListChatModel):
            def bind_tools(self, *_: object, **__: object) -> Any:  # noqa: ANN401
                return self

            def _generate(self, *args: Any, asked: Any = asked, **options: Any) -> Any:  # noqa: ANN401
                asked.append((time.perf_counter() * 1000, time.process_time() * 1000))
                return super()._generate(*args, **options)

        uses = ([{"name": "look", "args": {"n": n}, "id": f"t{n}"}] for n in range(calls))
        model = Model(
            responses=[*(AIMessage("", tool_calls=use) for use in uses), AIMessage("Here.")]
        )
        agent: Any = create_agent(model, [look], middleware=middleware)
        agent.invoke({"messages": said}, config)
        taken = [(two[0] - one[0], two[1] - one[1]) for one, two in pairwise(asked[-prompts:])]
        rows.append([*map(statistics.median, zip(*taken, strict=True))])
    wall, cpu = (two - one for one, two in zip(*rows, strict=True))
    return {
        "system": f"agent, call {calls}, {messages:,} before",
        "wall": wall,
        "cpu": cpu,
        "mb": resident_mb(),
    }


def fill_row(length: int, folder: str) -> Row:
    """A conversation in a Chroma folder, then single exchanges."""
    from langchain_ctxbudget import ChromaStore, ContextPipeline  # noqa: PLC0415

    generator = Generator(length)
    appends = Clocks()
    with ChromaStore(folder) as store, ContextPipeline({"learn": False}, store=store) as pipeline:
        said = generator.messages(length)
        for start in range(0, length, ADDED_TOGETHER):
            pipeline.add_messages(said[start : start + ADDED_TOGETHER], **SCOPE)
        pipeline.assemble("Where do we begin?", **SCOPE)
        pipeline.flush()
        for _ in range(20 + WARM_UP):
            with appends.running():
                pipeline.add_messages(generator.exchange(), **SCOPE)
        pipeline.flush()
    files = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
    return {"append": appends.median()[0], "disk": sum(files) / 2**20}


def open_row(length: int, folder: str, budget: int) -> Row:
    """The first prompt of a new process."""
    from langchain_ctxbudget import ChromaStore, ContextPipeline  # noqa: PLC0415

    clocks = Clocks()
    with (
        ChromaStore(folder) as store,
        ContextPipeline({"learn": False, "max_context_tokens": budget}, store=store) as made,
    ):
        for _ in range(2):
            with clocks.running():
                made.assemble(f"What about {Generator(length).text(6)}", **SCOPE)
    found = {
        "wall": clocks.wall[1],
        "cpu": clocks.cpu[1],
        "first": clocks.wall[0],
        "first_cpu": clocks.cpu[0],
    }
    return {"system": "open a folder", **found, "mb": resident_mb()}


def import_row(statement: str) -> Row:
    """Milliseconds after `langchain_core.messages` has been imported, or of a whole command."""
    started = time.perf_counter()
    before = cpu_seconds()
    if statement.startswith("ctxbudget"):
        program = Path(sys.executable).with_name("ctxbudget")
        subprocess.run([program, *statement.split()[1:]], check=True, capture_output=True)
    else:
        exec(statement)
    wall = time.perf_counter() - started
    cpu = cpu_seconds() - before
    return {"system": statement, "wall": wall * 1000, "cpu": cpu * 1000}


STATEMENTS = (
    "from langchain_ctxbudget import ContextPipeline",
    "from langchain_ctxbudget.middleware import ContextBudgetMiddleware",
    "ctxbudget --help",
    "ctxbudget demo",
)


# -- Running and showing


class Failed(Exception):  # noqa: N818 - why a row is missing
    """The last line of what a measurement printed."""


def measured(function: str, *args: object, **options: object) -> list[Row]:
    """Rows, measured in a process of their own.

    Raises:
        Failed: it could not be measured.
    """
    command = [sys.executable, __file__, "--measure", json.dumps([function, args, options])]
    limit = PEER_SECONDS if function == "peer_row" else None
    # Whoever has installed a package imports it compiled.
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit, env=environment
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"it takes more than {limit} s") from None
    if done.returncode:
        raise Failed((done.stderr.strip() or "no output").splitlines()[-1])
    found: Row | list[Row] = json.loads(done.stdout.splitlines()[-1])
    return found if isinstance(found, list) else [found]


def opened(length: int, budget: int) -> list[Row]:
    folder = tempfile.mkdtemp(prefix="speed-")
    try:
        [filled], [first] = (
            measured("fill_row", length, folder),
            measured("open_row", length, folder, budget),
        )
        return [{**first, **filled}]
    finally:
        shutil.rmtree(folder)


def median_of(count: int, statement: str) -> list[Row]:
    rows = [row for _ in range(count) for row in measured("import_row", statement)]
    return [
        {
            **rows[0],
            **{name: statistics.median(row[name] for row in rows[1:]) for name in ("wall", "cpu")},
        }
    ]


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, Row, Callable[[], list[Row]]]]:
    """A part, the row's first cells, and how it is measured."""
    lengths, budgets = (
        [int(n) for n in given.split(",")] for given in (options.lengths, options.budgets)
    )
    prompts = options.prompts
    cells = [{"messages": length, "budget": budget} for length in lengths for budget in budgets]
    for length in lengths:
        for full in (False, True):
            yield (
                "prompt",
                {"messages": length},
                partial(measured, "prompt_rows", length, budgets, prompts, full=full),
            )
    middle = budgets[len(budgets) // 2]
    for cell in cells:
        at = (cell["messages"], cell["budget"])
        is_long = cell["messages"] > LONG
        for name in (
            PEERS if cell["budget"] == middle else () if is_long else ("trim_messages, exact",)
        ):
            yield "peers", cell, partial(measured, "peer_row", name, *at, 3 if is_long else prompts)
    for length in lengths:
        cell = {"messages": length, "budget": middle}
        yield "graph", cell, partial(measured, "graph_row", length, middle, prompts)
    for calls, length in ((60, 1_000), (300, 1_000), (600, 1_000), (300, 8_000)):
        cell = {"messages": length + 2 * calls, "budget": middle}
        yield "agent", cell, partial(measured, "agent_row", calls, length, middle, 10)
    for length in lengths:
        yield "open", {"messages": length, "budget": middle}, partial(opened, length, middle)
    for statement in STATEMENTS:
        yield "import", {}, partial(median_of, 6, statement)


COLUMNS = {
    "messages": "messages", "budget": "budget", "system": "system", "wall": "wall ms", "cpu": "CPU ms",
    "slowest": "slowest ms", "append": "append ms", "first": "first ms", "first_cpu": "first CPU", "calls": "calls",
    "store": "store",
    "mb": "MB", "disk": "disk MB",
}  # fmt: skip


def table(rows: list[Row]) -> Table:
    shown = Table(title="Milliseconds are medians; every row is a process of its own")
    for name in COLUMNS.values():
        shown.add_column(name, justify="left" if name == "system" else "right")
    for row in rows:
        shown.add_row(*(_cell(row.get(key)) for key in COLUMNS), end_section=row.get("last", False))
    return shown


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", default="1000,10000,100000", help="messages, comma-separated")
    parser.add_argument("--budgets", default="4096,8192,32768", help="tokens, comma-separated")
    parser.add_argument("--prompts", type=int, default=20, help="prompts of a row")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        function, args, keywords = json.loads(options.measure)
        print(json.dumps(globals()[function](*args, **keywords)))
        return
    console = Console(stderr=True)
    out = Console(width=None if sys.stdout.isatty() else 150)
    rows: list[Row] = []
    chosen = [job for job in jobs(options) if job[0] in options.only]
    with console.status("measuring") as status:
        for number, (part, cell, run) in enumerate(chosen):
            status.update(f"{number} of {len(chosen)}: {part} {cell or ''}")
            try:
                found = [{**cell, **row} for row in run()]
                found[-1]["last"] = number + 1 < len(chosen) and chosen[number + 1][0] != part
                rows += found
                console.print(
                    f"{number + 1} of {len(chosen)}: {found}",
                    soft_wrap=True,
                    markup=False,
                    highlight=False,
                )
            except Failed as failure:
                console.print(
                    f"{part} {cell or ''}: left out, {failure}", soft_wrap=True, markup=False
                )
    out.print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
