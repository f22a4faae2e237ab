"""How the package grows: one long conversation, and many users with many conversations.

Each measurement runs in a process of its own, as after a restart. Times are CPU of the whole process, as others may use
the machine, too; a wait for the disk is not in them.

    PYTHONPATH=benchmarks python research/trial_scaling.py --store FOLDER                     a Chroma folder
    PYTHONPATH=benchmarks python research/trial_scaling.py --store http://localhost:8000      a Chroma server
    PYTHONPATH=benchmarks python research/trial_scaling.py --store postgresql://...           LangGraph's PostgresStore
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.store.base import BaseStore, Op, PutOp
from rich.console import Console
from rich.progress import track
from rich.table import Table
from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.history import LANES
from langchain_ctxbudget.history.log import MESSAGES
from langchain_ctxbudget.stores import LaneRecord, MessageRecord, Place, Scope

SETTINGS = {"max_context_tokens": 8_000}
BATCH = 2_000


@contextlib.contextmanager
def opened(where: str) -> Iterator[BaseStore]:
    """The store of an address."""
    if where.startswith("postgres"):
        from langgraph.store.postgres import PostgresStore

        with PostgresStore.from_conn_string(where) as postgres:
            postgres.setup()
            yield postgres
        return
    with ChromaStore(url=where) if where.startswith("http") else ChromaStore(where) as chroma:
        yield chroma


def generated(count: int, seed: int) -> list[BaseMessage]:
    """Messages of about 200 characters over a vocabulary with frequent and rare words."""
    chosen = random.Random(seed)
    words = [f"{chosen.choice('bcdfgklmnprst')}{chosen.choice('aeiou')}{n:x}" for n in range(5_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    kinds = (HumanMessage, AIMessage)
    texts = (" ".join(chosen.choices(words, weights, k=35)) + "." for _ in range(count))
    return [kinds[n % 2](text, id=f"{seed}-{n}") for n, text in enumerate(texts)]


def records(scope: Scope, messages: list[BaseMessage]) -> Iterator[Op]:
    """What a conversation is in a store, as a pipeline would have left it."""
    for number, message in enumerate(messages):
        record = MessageRecord.of(message, Place(clock=1 + number // 2, lane="w", number=number))
        yield PutOp(scope.namespace(MESSAGES), record.place.key, record.to_value(), index=False)
    head = LaneRecord(born="w", clock=1 + len(messages) // 2, count=len(messages))
    yield PutOp(scope.namespace(LANES), "w", head.to_value(), index=False)


def write(where: str, users: int, conversations: int, length: int) -> dict[str, Any]:
    """Fill a store with conversations."""
    started = time.process_time()
    waiting: list[Op] = []
    with opened(where) as store:
        for user in track(
            range(users), description=f"{users} x {conversations} x {length}", disable=users == 1
        ):
            for conversation in range(conversations):
                scope = Scope(f"user-{user}", f"c{conversation}")
                waiting += records(scope, generated(length, conversation))
                while len(waiting) >= BATCH:
                    store.batch(waiting[:BATCH])
                    del waiting[:BATCH]
        store.batch(waiting)
    return {"write s": time.process_time() - started}


def milliseconds(action: Callable[[], object], times: int = 1) -> float:
    """The median CPU time of an action."""
    taken = []
    for _ in range(times):
        started = time.process_time()
        action()
        taken.append((time.process_time() - started) * 1000)
    return statistics.median(taken)


def use(where: str, users: int, conversations: int, _length: int) -> dict[str, Any]:
    """What a process does with them: its first turns, later turns, and what that takes of memory."""
    chosen = random.Random(7)
    with opened(where) as store, ContextPipeline(SETTINGS, store=store) as pipeline:
        scopes = {(chosen.randrange(users), chosen.randrange(conversations)) for _ in range(5)}
        who: list[dict[str, Any]] = [
            {"user_id": f"user-{user}", "conversation_id": f"c{number}"}
            for user, number in sorted(scopes)
        ]
        question = generated(1, 99)[0].text
        page = statistics.median(
            milliseconds(partial(pipeline.get_page, limit=50, **scope)) for scope in who
        )
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        first = statistics.median(
            milliseconds(partial(pipeline.assemble, question, **scope)) for scope in who
        )
        pipeline.flush()  # what it learns and seals beside the first prompt is no part of the next ones
        exchange = iter(generated(200, time.time_ns()))  # new ones each time
        append = milliseconds(
            lambda: pipeline.add_messages([next(exchange), next(exchange)], **who[0]), 20
        )
        later = milliseconds(lambda: pipeline.assemble(question, **who[0]), 20)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "page of 50 ms": page,
        "first prompt ms": first,
        "append ms": append,
        "prompt ms": later,
        "before MB": base,
        "peak MB": peak,
    }


def in_a_process(task: str, where: str, *size: int) -> dict[str, Any]:
    """Run a task as after a restart."""
    command = [
        sys.executable,
        __file__,
        "--task",
        task,
        "--store",
        where,
        "--size",
        *map(str, size),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def on_disk(where: str) -> float | None:
    """Megabytes of a folder."""
    files = Path(where).rglob("*") if Path(where).is_dir() else ()
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6 or None


def main() -> None:
    """Measure every size, each over a store of its own where it is a folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", required=True)
    parser.add_argument(
        "--size", type=int, nargs=3, action="append", metavar=("USERS", "CONVERSATIONS", "MESSAGES")
    )
    parser.add_argument("--task", choices=["write", "use"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(
            json.dumps((write if options.task == "write" else use)(options.store, *options.size[0]))
        )
        return
    sizes = options.size or [[1, 1, 1_000], [1, 1, 10_000], [1, 1, 100_000], [1_000, 100, 4]]
    rows = []
    for size in sizes:
        where = options.store
        if not where.startswith(("http", "postgres")):
            where = str(Path(where) / "x".join(map(str, size)))
        row: dict[str, Any] = {
            "users x conversations x messages": " x ".join(f"{n:,}" for n in size)
        }
        row |= in_a_process("write", where, *size)
        row |= {"restart": "first", **in_a_process("use", where, *size)}
        rows.append(row | {"disk MB": on_disk(where)})
        rows.append(
            row | {"restart": "second", "write s": None, **in_a_process("use", where, *size)}
        )
        Console(stderr=True).print(rows[-2:])
    table = Table()
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(
                f"{value:,.1f}" if isinstance(value, float) else str(value or "")
                for value in row.values()
            )
        )
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
