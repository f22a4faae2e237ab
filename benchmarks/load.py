"""What a service for many users asks of one PostgreSQL: how long, how much memory, how it grows.

    python benchmarks/load.py                          2,000 users x 10 conversations x 20 messages
    python benchmarks/load.py --users 100 --written 100 --processes 4 --json load.json
    python benchmarks/load.py --uri postgresql://postgres@localhost/load

The conversations of the first `--written` users are written whole by the processes, as a service
moves in that had them elsewhere. Those of all other users are copies of them that the database
makes itself: one exchange at a time, 400,000 messages would take hours.

Once a tenth of the conversations is there, then a half, then all, the processes visit random ones,
as users who come back: three times a prompt, and then an append of the question with its answer.
The first prompt of a visit opens the conversation, and searches the user's others. Only visits are
measured: wall and CPU milliseconds, and round trips to the database.

Without `--uri` a PostgreSQL is started in a folder of its own, with its default settings. Its
programs are those on the PATH, else those of the package pgserver; `--programs` names others.
Nothing is deleted in a database that `--uri` names, and none of the users should be there yet.

Messages are those of `speed.py`: about 125 characters over a vocabulary, so they teach nothing
about a user.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import Op, Result
from langgraph.store.postgres import PostgresStore
from rich.console import Console
from rich.table import Table
from speed import Generator

from langchain_ctxbudget import ContextPipeline

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SHARES = (0.1, 0.5, 1.0)
"""The share of the conversations that are there when a stage ends."""
TURNS = 3
"""Turns of a visit."""
OPENED_FIRST = 16
"""Conversations that a process opens before its memory is looked at first."""
OPENED = 256
"""Conversations that it has open then: as many as a pipeline keeps."""
START_SECONDS = 60
MEGABYTE = 2**20
FIRST_PROMPT = "first prompt of a visit"
LATER_PROMPT = "later prompt"
APPEND = "append of an exchange"


@dataclass(frozen=True)
class Load:
    """How much is written, by how many."""

    users: int
    conversations: int
    """Of each user."""
    messages: int
    """Of each conversation."""
    processes: int
    written: int
    """Users whose conversations are written by the processes; those of the others are copies."""
    visits: int
    """Of all processes in each stage."""
    budget: int
    """Tokens of a prompt at most."""

    @property
    def all_conversations(self) -> int:
        return self.users * self.conversations

    @property
    def written_conversations(self) -> int:
        return min(self.written, self.users) * self.conversations

    def scope(self, number: int) -> dict[str, Any]:
        """Returns the user and the conversation that a number stands for."""
        user, conversation = divmod(number, self.conversations)
        return {"user_id": f"user {user}", "conversation_id": f"conversation {conversation}"}


@dataclass(frozen=True)
class Writing:
    """An order to write the conversations in a range of numbers."""

    first: int
    end: int


@dataclass(frozen=True)
class Visiting:
    """An order to visit some conversations."""

    conversations: int
    """The number of conversations that are there."""


@dataclass(frozen=True)
class Measured:
    """One operation of a visit."""

    operation: str
    wall_ms: float
    cpu_ms: float
    round_trips: int


@dataclass(frozen=True)
class Done:
    """What a process has done in one order."""

    operations: list[Measured]
    peak_mb: float
    cpu_seconds: float


class CountingStore(PostgresStore):
    """A PostgreSQL store that counts its round trips."""

    round_trips = 0

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        type(self).round_trips += 1
        return super().batch(ops)


@contextmanager
def opened_pipeline(uri: str, budget: int) -> Iterator[ContextPipeline]:
    with (
        CountingStore.from_conn_string(uri, pool_config={"min_size": 1, "max_size": 4}) as store,
        ContextPipeline({"max_context_tokens": budget}, store=store) as pipeline,
    ):
        yield pipeline


# -- One process of the service


@dataclass
class Process:
    """A process of the service."""

    load: Load
    number: int
    """Its number, from 0."""
    pipeline: ContextPipeline
    operations: list[Measured] = field(default_factory=list)

    @cached_property
    def generator(self) -> Generator:
        return Generator(self.number)

    @cached_property
    def random(self) -> random.Random:
        return random.Random(self.number)

    def run(self, order: Writing | Visiting) -> Done:
        """Does its part of an order."""
        self.operations = []
        if isinstance(order, Writing):
            for conversation in range(order.first + self.number, order.end, self.load.processes):
                messages = self.generator.messages(self.load.messages)
                self.pipeline.add_messages(messages, **self.load.scope(conversation))
        else:
            for _ in range(self.load.visits // self.load.processes):
                self._visit(self.random.randrange(order.conversations))
        self.pipeline.flush()
        return Done(self.operations, peak_mb(), time.process_time())

    def _visit(self, conversation: int) -> None:
        scope = self.load.scope(conversation)
        prompt = FIRST_PROMPT
        for _ in range(TURNS):
            question = f"What about {self.generator.text(6)}"
            with self._measuring(prompt):
                self.pipeline.assemble(question, **scope)
            exchange: list[BaseMessage] = [
                HumanMessage(question),
                AIMessage(self.generator.text()),
            ]
            with self._measuring(APPEND):
                self.pipeline.add_messages(exchange, **scope)
            prompt = LATER_PROMPT

    @contextmanager
    def _measuring(self, operation: str) -> Iterator[None]:
        round_trips = CountingStore.round_trips
        wall = time.perf_counter()
        cpu = time.process_time()
        yield
        self.operations.append(
            Measured(
                operation,
                wall_ms=(time.perf_counter() - wall) * 1000,
                cpu_ms=(time.process_time() - cpu) * 1000,
                round_trips=CountingStore.round_trips - round_trips,
            )
        )


def peak_mb() -> float:
    """Returns the most memory that this process has had so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE


def work(load: Load, uri: str, number: int, orders: Connection) -> None:
    """Follows orders until there is none."""
    with opened_pipeline(uri, load.budget) as pipeline:
        pipeline.assemble("Hello", user_id="nobody", conversation_id=f"warm-up {number}")
        process = Process(load, number, pipeline)
        while (order := orders.recv()) is not None:
            orders.send(process.run(order))


def measure_open(load: Load, uri: str, _: int, orders: Connection) -> None:
    """Tells the memory that an open conversation takes, in KB."""
    most = min(OPENED, load.all_conversations)
    conversations = random.Random(0).sample(range(load.all_conversations), most)
    with opened_pipeline(uri, load.budget) as pipeline:
        before = 0.0
        for opened, conversation in enumerate(conversations):
            if opened == OPENED_FIRST:
                before = peak_mb()
            pipeline.assemble("What do you know of it?", **load.scope(conversation))
        orders.send((peak_mb() - before) * 1024 / max(1, most - OPENED_FIRST))


@contextmanager
def started(target: Any, load: Load, uri: str, number: int) -> Iterator[Connection]:  # noqa: ANN401 - one of the two functions above
    """A process of its own, from its start to its end; yields the way to talk to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(load, uri, number, theirs))
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join()


# -- The database


@contextmanager
def own_server(programs: Path) -> Iterator[str]:
    """A PostgreSQL with its default settings in a folder of its own; yields its URI."""
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        folder = Path(name)
        user = None
        if os.geteuid() == 0:  # PostgreSQL does not run as root
            user = "nobody"
            shutil.chown(folder, user)
            folder.chmod(0o755)
        data = folder / "data"
        setup = [
            str(programs / "initdb"),
            f"--pgdata={data}",
            "--username=postgres",
            "--auth=trust",
        ]
        subprocess.run(
            [*setup, "--encoding=utf8", "--locale=C"],
            check=True,
            user=user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", folder, "-clisten_addresses="],
                user=user,
                cwd=folder,
                stdout=log,
                stderr=log,
            )
        uri = f"postgresql://postgres@/postgres?host={folder}"
        try:
            wait_for(uri)
            yield uri
        finally:
            server.send_signal(signal.SIGINT)  # it does not wait for its clients to leave
            server.wait()


def wait_for(uri: str) -> None:
    """Waits until a server answers."""
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(uri).close()
        except psycopg.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)
        else:
            return


class Copies:
    """Copies conversations in the database to users that have none yet."""

    def __init__(self, load: Load, connection: psycopg.Connection[Any]) -> None:
        """Remembers the conversations as they were written; visits add to some of them later."""
        self._load = load
        self._connection = connection
        connection.execute(
            "CREATE TEMPORARY TABLE written AS "
            "SELECT substring(prefix FROM 'user (\\d+)~')::int * %s "
            "+ substring(prefix FROM 'conversation (\\d+)~')::int AS number, "
            "split_part(prefix, '.', 3) AS kind, split_part(prefix, '.', 4) AS conversation, "
            "key, value, created_at, updated_at "
            "FROM store WHERE split_part(prefix, '.', 4) LIKE 'conversation %%'",
            [load.conversations],
        )
        connection.execute("CREATE INDEX ON written (number)")
        connection.execute("ANALYZE written")

    def make(self, first: int, end: int) -> None:
        """Makes the conversations in a range of numbers."""
        self._connection.execute(
            "INSERT INTO store (prefix, key, value, created_at, updated_at) "
            "SELECT concat('ctxbudget.user ', copied / %s::int, '~.', kind, '.', conversation), "
            "key, value, created_at, updated_at "
            "FROM generate_series(%s::int, %s::int) AS copied JOIN written ON number = copied %% %s::int",
            [self._load.conversations, first, end - 1, self._load.written_conversations],
        )


def programs_of_postgres() -> Path:
    """Returns the folder with the programs of PostgreSQL."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = importlib.util.find_spec("pgserver")
    if found is None or found.origin is None:
        sys.exit("There is no PostgreSQL: name one with --uri, or its programs with --programs")
    return Path(found.origin).parent / "pginstall" / "bin"


@dataclass(frozen=True)
class Size:
    """How large the database is."""

    messages: int
    rows: int
    table_bytes: int
    index_bytes: dict[str, int]
    rows_by_kind: dict[str, int]
    bytes_by_kind: dict[str, int]
    """Of the values alone, as they are kept, compressed."""


def size_of(uri: str) -> Size:
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE store")
        [table_bytes] = _row(connection, "SELECT pg_table_size('store')")
        indexes = connection.execute(
            "SELECT indexrelname, pg_relation_size(indexrelid) FROM pg_stat_user_indexes "
            "WHERE relname = 'store'"
        ).fetchall()
        kinds = connection.execute(
            "SELECT split_part(prefix, '.', 3), count(*), sum(pg_column_size(value))::bigint "
            "FROM store GROUP BY 1 ORDER BY 1"
        ).fetchall()
    rows_by_kind = {kind: rows for kind, rows, _ in kinds}
    return Size(
        messages=rows_by_kind.get("messages", 0),
        rows=sum(rows_by_kind.values()),
        table_bytes=table_bytes,
        index_bytes=dict(indexes),
        rows_by_kind=rows_by_kind,
        bytes_by_kind={kind: value_bytes for kind, _, value_bytes in kinds},
    )


def _row(connection: psycopg.Connection[Any], query: str) -> Any:  # noqa: ANN401 - as psycopg gives it
    return connection.execute(query).fetchone()


# -- Running and showing


@dataclass(frozen=True)
class StageRow:
    """What was measured in one stage."""

    share: float
    seconds: float
    """How long it took to fill the database from the last stage's share to this one."""
    size: Size
    operations: dict[str, dict[str, float]]
    """By operation: how many there were, p50 and p99."""
    peak_mb: list[float]
    """Of each process."""
    cpu_seconds: float
    """Of all processes since they began, the database not counted."""


def run(load: Load, uri: str) -> dict[str, Any]:
    """Writes the load in stages, and returns what was measured."""
    with PostgresStore.from_conn_string(uri) as store:
        store.setup()
    rows: list[StageRow] = []
    with ExitStack() as stack:
        processes = [
            stack.enter_context(started(work, load, uri, number))
            for number in range(load.processes)
        ]
        connection = stack.enter_context(psycopg.connect(uri, autocommit=True))
        copies: Copies | None = None
        first = 0
        for share in SHARES:
            begun = time.perf_counter()
            end = round(share * load.all_conversations)
            end_written = min(end, load.written_conversations)
            if first < end_written:
                all_do(processes, Writing(first, end_written))
                first = end_written
            if copies is None and first == load.written_conversations:
                copies = Copies(load, connection)
            if copies is not None and first < end:
                copies.make(first, end)
                first = end
            connection.execute("VACUUM ANALYZE store")
            filled_after = time.perf_counter() - begun
            done = all_do(processes, Visiting(end))
            rows.append(row_of(share, filled_after, done, size_of(uri)))
            print(
                f"{share:.0%}: filled after {filled_after:,.0f} s, "
                f"visited after {time.perf_counter() - begun:,.0f} s",
                file=sys.stderr,
            )
        for process in processes:
            process.send(None)
    with started(measure_open, load, uri, 0) as process:
        open_kb = process.recv()
    return {
        "load": asdict(load),
        "stages": [asdict(row) for row in rows],
        "open_conversation_kb": open_kb,
        "other_load": os.getloadavg(),
    }


def all_do(processes: Sequence[Connection], order: Writing | Visiting) -> list[Done]:
    """Gives an order to all processes, and returns what each has done."""
    for process in processes:
        process.send(order)
    return [process.recv() for process in processes]


def row_of(share: float, seconds: float, done: Sequence[Done], size: Size) -> StageRow:
    by_operation: defaultdict[str, list[Measured]] = defaultdict(list)
    for of_process in done:
        for measured in of_process.operations:
            by_operation[measured.operation].append(measured)
    return StageRow(
        share=share,
        seconds=seconds,
        size=size,
        operations={name: summary(of_name) for name, of_name in by_operation.items()},
        peak_mb=[of_process.peak_mb for of_process in done],
        cpu_seconds=sum(of_process.cpu_seconds for of_process in done),
    )


def summary(measured: Sequence[Measured]) -> dict[str, float]:
    walls = [one.wall_ms for one in measured]
    cpus = [one.cpu_ms for one in measured]
    return {
        "count": len(measured),
        "wall_p50": percentile(walls, 0.5),
        "wall_p99": percentile(walls, 0.99),
        "cpu_p50": percentile(cpus, 0.5),
        "cpu_p99": percentile(cpus, 0.99),
        "round_trips": statistics.mean(one.round_trips for one in measured),
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the least of some values that is not exceeded by this share of them."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table_of_times(stages: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title="Operations of visits, in milliseconds")
    for name in ("messages", "operation", "n", "p50", "p99", "CPU p50", "CPU p99", "round trips"):
        shown.add_column(name, justify="left" if name == "operation" else "right")
    for stage in stages:
        for operation in (FIRST_PROMPT, LATER_PROMPT, APPEND):
            figures = stage["operations"].get(operation)
            if figures is None:
                continue
            shown.add_row(
                f"{stage['size']['messages']:,}",
                operation,
                f"{figures['count']:,}",
                f"{figures['wall_p50']:,.1f}",
                f"{figures['wall_p99']:,.1f}",
                f"{figures['cpu_p50']:,.1f}",
                f"{figures['cpu_p99']:,.1f}",
                f"{figures['round_trips']:.1f}",
                end_section=operation == APPEND,
            )
    return shown


def table_of_sizes(stages: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title="The database, and the memory of each process")
    names = ("messages", "rows", "rows a message", "table MB", "indexes MB", "bytes a message")
    for name in (*names, "process MB", "filled in s"):
        shown.add_column(name, justify="right")
    for stage in stages:
        size = stage["size"]
        index_bytes = sum(size["index_bytes"].values())
        shown.add_row(
            f"{size['messages']:,}",
            f"{size['rows']:,}",
            f"{size['rows'] / size['messages']:.2f}",
            f"{size['table_bytes'] / MEGABYTE:,.0f}",
            f"{index_bytes / MEGABYTE:,.0f}",
            f"{(size['table_bytes'] + index_bytes) / size['messages']:,.0f}",
            ", ".join(f"{peak:,.0f}" for peak in stage["peak_mb"]),
            f"{stage['seconds']:,.0f}",
        )
    return shown


def table_of_kinds(size: dict[str, Any]) -> Table:
    shown = Table(title="Rows at the end")
    for name in ("kind", "rows", "bytes of a value"):
        shown.add_column(name, justify="left" if name == "kind" else "right")
    for kind, rows in size["rows_by_kind"].items():
        shown.add_row(kind, f"{rows:,}", f"{size['bytes_by_kind'][kind] / rows:,.0f}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--conversations", type=int, default=10, help="of each user")
    parser.add_argument("--messages", type=int, default=20, help="of each conversation")
    parser.add_argument(
        "--written", type=int, default=50, help="users who are written; the others are copies"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--visits", type=int, default=300, help="in each of the three stages")
    parser.add_argument("--budget", type=int, default=8_000, help="tokens of a prompt")
    parser.add_argument("--uri", help="a PostgreSQL to use; without it one is started")
    parser.add_argument("--programs", type=Path, help="the folder with PostgreSQL's programs")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    options = parser.parse_args()
    load = Load(
        users=options.users,
        conversations=options.conversations,
        messages=options.messages,
        written=options.written,
        processes=options.processes,
        visits=options.visits,
        budget=options.budget,
    )
    if options.uri:
        found = run(load, options.uri)
    else:
        with own_server(options.programs or programs_of_postgres()) as uri:
            found = run(load, uri)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table_of_times(found["stages"]))
    console.print(table_of_sizes(found["stages"]))
    console.print(table_of_kinds(found["stages"][-1]["size"]))
    copied = found["load"]["users"] - found["load"]["written"]
    if copied > 0:
        console.print(f"Of the users, {copied:,} are copies that the database made of the others.")
    console.print(f"An open conversation takes {found['open_conversation_kb']:,.0f} KB.")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
