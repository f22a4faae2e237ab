"""Trial: which bounded partition of namespaces to Chroma collections.

A collection costs memory, a metadata filter costs a scan, so neither one collection for everything
nor one per conversation will do. Every variant runs in its own process over its own folder:

    python benchmarks/trial_namespace_partition.py [--quick] [--long]

`--long` adds vectors in other partitions, and one user with 100,000 messages (seven minutes).
Decision and figures: `docs/decisions.md`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import chromadb
import numpy as np
from chromadb.config import Settings
from rich.console import Console
from rich.table import Table

PARTITIONS: dict[str, Callable[[int, int], str]] = {
    "one collection": lambda _user, _conversation: "all",
    "16 buckets": lambda user, _: f"bucket-{user % 16}",
    "64 buckets": lambda user, _: f"bucket-{user % 64}",
    "256 buckets": lambda user, _: f"bucket-{user % 256}",
    "one per user": lambda user, _: f"user-{user}",
    "one per conversation": lambda user, conversation: f"user-{user}-{conversation}",
}
CONVERSATIONS = 5
DIMS = 256
READ_SIZE = 2_000
# The store ranks exactly, so the graph is as small as Chroma makes it.
CONFIGURATION: Any = {"hnsw": {"space": "l2", "max_neighbors": 2, "ef_construction": 2, "sync_threshold": 100}}


def resident_mb() -> float:
    """Resident memory of this process, in MB."""
    gc.collect()
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def milliseconds(action: Callable[[int], object], times: int) -> float:
    """Median time of a call, in milliseconds."""
    seconds = []
    for n in range(times):
        start = time.perf_counter()
        action(n)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1000


Row = tuple[str, dict[str, int]]


def row(user: int, n: int) -> Row:
    """The id and the metadata of a message; `p1` to `p3` are the prefixes of its namespace."""
    conversation = n % CONVERSATIONS
    prefixes = {"p1": 0, "p2": user, "p3": user * 1_000_003 + conversation}
    return f'["app","{user}","{conversation}","{n}"]', {**prefixes, "created": n, "updated": n}


class Folder:
    """A Chroma folder under one partition."""

    text = json.dumps({"role": "human", "content": "and the train to Lisbon leaves at nine, " * 7})

    def __init__(self, path: str, partition: str, *, vectors: bool) -> None:
        self.client = chromadb.PersistentClient(path, settings=Settings(anonymized_telemetry=False))
        self.name_of, self.vectors = PARTITIONS[partition], vectors
        self.random = np.random.default_rng(7)
        self.collections: dict[str, chromadb.Collection] = {}

    def collection(self, name: str, *, dense: bool = False) -> chromadb.Collection:
        full = f"{'vectors' if dense else 'items'}-{name}"
        if full not in self.collections:
            self.collections[full] = self.client.get_or_create_collection(
                full, configuration=CONFIGURATION, embedding_function=None
            )
        return self.collections[full]

    def add(self, name: str, rows: list[Row]) -> None:
        ids = [key for key, _ in rows]
        metadatas: Any = [{**fields, "value": self.text} for _, fields in rows]
        constant = np.ones((len(ids), 1), np.float32)
        self.collection(name).upsert(ids=ids, embeddings=constant, metadatas=metadatas)
        if self.vectors:
            embeddings = self.random.normal(size=(len(ids), DIMS)).astype(np.float32)
            plain: Any = [fields for _, fields in rows]
            self.collection(name, dense=True).upsert(ids=ids, embeddings=embeddings, metadatas=plain)

    def fill(self, users: int, messages: int) -> None:
        rows: dict[str, list[Row]] = defaultdict(list)
        for user in range(users):
            for n in range(messages):
                rows[self.name_of(user, n % CONVERSATIONS)].append(row(user, n))
        for name, some in rows.items():
            for first in range(0, len(some), READ_SIZE):
                self.add(name, some[first : first + READ_SIZE])

    def list_user(self, user: int) -> None:
        """Read what a user has, in pages that SQLite can take, newest first."""
        found: list[Any] = []
        for name in {self.name_of(user, conversation) for conversation in range(CONVERSATIONS)}:
            ids = self.collection(name).get(where={"p2": user}, include=[])["ids"]
            for first in range(0, len(ids), READ_SIZE):
                some = self.collection(name).get(ids=ids[first : first + READ_SIZE], include=["metadatas"])
                found += some["metadatas"] or []
        found.sort(key=lambda fields: -int(fields["updated"]))


def measure(partition: str, users: int, messages: int, *, vectors: bool) -> dict[str, float]:
    """Fill a folder with one partition and time the operations of a conversation on it."""
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(path, partition, vectors=vectors)
        empty = resident_mb()
        start = time.perf_counter()
        folder.fill(users, messages)
        build = time.perf_counter() - start
        picked = [int(user) for user in folder.random.integers(0, users, 60)]

        def get(n: int, **where: object) -> None:
            folder.collection(folder.name_of(picked[n], 0)).get(include=["metadatas"], **cast("Any", where))

        def append(n: int) -> None:
            new = row(picked[n], messages + n * CONVERSATIONS)
            folder.add(folder.name_of(picked[n], 0), [new])

        def get_ids(n: int) -> None:
            get(n, ids=[row(picked[n], m)[0] for m in range(0, messages, CONVERSATIONS)][:30])

        def get_conversation(n: int) -> None:
            get(n, where={"p3": picked[n] * 1_000_003})

        few = 5 if messages > 10_000 else 30
        return {
            "collections": float(len(folder.collections)),
            "build s": build,
            "append ms": milliseconds(append, 60),
            "get 30 ids ms": milliseconds(get_ids, few),
            "conversation ms": milliseconds(get_conversation, few),
            "list ms": milliseconds(lambda n: folder.list_user(picked[n]), few),
            "MB": resident_mb() - empty,
        }


def report(title: str, cases: list[tuple[str, int, int, bool]]) -> None:
    """Run each case in a process of its own and print one table."""
    table = Table(title=title)
    for number, (partition, users, messages, vectors) in enumerate(cases):
        case = json.dumps([partition, users, messages, vectors])
        done = subprocess.run([sys.executable, __file__, "--case", case], check=True, capture_output=True, text=True)
        figures = json.loads(done.stdout)
        if not number:
            for heading in ("partition", "users", "messages each", "vectors", *figures):
                table.add_column(heading, justify="left" if heading == "partition" else "right")
        cells = [f"{users:,}", f"{messages:,}", f"{DIMS}" if vectors else "none"]
        table.add_row(partition, *cells, *(f"{value:,.1f}" for value in figures.values()))
    Console(width=160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare partitions of namespaces to collections.")
    parser.add_argument("--quick", action="store_true", help="100 users at most, one minute")
    parser.add_argument("--long", action="store_true", help="add vectors to other partitions, and one user")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        partition, users, messages, vectors = json.loads(options.case)
        sys.stdout.write(json.dumps(measure(partition, users, messages, vectors=vectors)))
        return
    largest = 100 if options.quick else 1_000
    report(
        "Items only (a constant vector of one dimension)",
        [("one collection", 1, 100, False)]
        + [(name, 100, 100, False) for name in PARTITIONS]
        + [(name, largest, 100, False) for name in PARTITIONS if largest > 100 and name != "one per conversation"],
    )
    dense = ("one collection", "16 buckets", "64 buckets") if options.long else ("16 buckets",)
    report("Items and a vector for each", [(name, largest, 100, True) for name in dense])
    if options.long:
        report("One user with everything", [("16 buckets", 1, 100_000, vectors) for vectors in (False, True)])


if __name__ == "__main__":
    main()
