"""Trial: how messages get one order when eight processes append to one conversation.

`BaseStore.put` is last-writer-wins and Chroma has no transactions. A real Chroma server is started on
loopback; eight writer processes append to one conversation, by three protocols; three fresh readers
then say in which order they see it:

    python benchmarks/trial_message_order.py [--writers 8] [--messages 100]

Decision and figures: `docs/decisions.md`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, cast

import chromadb
import numpy as np
from chromadb.config import Settings
from rich.console import Console
from rich.table import Table


class Protocol(ABC):
    """One writer's end of a conversation; `operations` counts its calls to the server."""

    def __init__(self, collection: chromadb.Collection, lane: int, lanes: int) -> None:
        self.collection, self.lane, self.lanes = collection, lane, lanes
        self.operations = 0

    def get(self, **arguments: object) -> list[dict[str, Any]]:
        """Read messages or counters, as dicts with their id."""
        self.operations += 1
        found = self.collection.get(include=["metadatas"], **cast("Any", arguments))
        return [
            {"id": key, **(fields or {})} for key, fields in zip(found["ids"], found["metadatas"] or [], strict=True)
        ]

    def write(self, key: str, **fields: str | int) -> None:
        """Write one record, over whatever has its id."""
        self.operations += 1
        self.collection.upsert(ids=[key], embeddings=np.ones((1, 1), np.float32), metadatas=[cast("Any", fields)])

    @abstractmethod
    def append(self, text: str) -> None:
        """Append one message, with the last message this writer has seen as its cause."""

    @abstractmethod
    def conversation(self) -> list[dict[str, Any]]:
        """Every message, in the order a reader sees."""


class SharedCounter(Protocol):
    """The next position stands in one record that every writer reads and writes."""

    position = 0

    def append(self, text: str) -> None:
        found = {record["id"]: record for record in self.get(ids=["counter", f"m{self.position}"])}
        cause = found.get(f"m{self.position}", {"text": ""})["text"]
        self.position = found.get("counter", {"position": 0})["position"] + 1
        self.write("counter", position=self.position)
        self.write(f"m{self.position}", position=self.position, text=text, cause=cause, lane=self.lane)

    def conversation(self) -> list[dict[str, Any]]:
        messages = self.get(where={"position": {"$gt": 0}})
        return sorted((m for m in messages if "text" in m), key=lambda m: m["position"])


class LanesByFilter(Protocol):
    """A lane per writer and a Lamport clock; what is new is found by a metadata filter on the clock."""

    clock, count, cause = 0, 0, ""

    @staticmethod
    def key(message: dict[str, Any]) -> tuple[int, int, int]:
        """The place of a message in the one order."""
        return message["clock"], message["lane"], message["n"]

    def see(self) -> None:
        """Learn the largest clock, and its message."""
        if new := self.get(where={"clock": {"$gt": self.clock}}):
            last = max(new, key=self.key)
            self.clock, self.cause = last["clock"], last["text"]

    def append(self, text: str) -> None:
        self.see()
        self.clock, self.count = self.clock + 1, self.count + 1
        place = {"clock": self.clock, "lane": self.lane, "n": self.count}
        self.write(f"{self.lane}:{self.count}", text=text, cause=self.cause, **place)
        self.cause = text

    def conversation(self) -> list[dict[str, Any]]:
        return sorted(self.get(where={"clock": {"$gt": 0}}), key=self.key)


class LanesById(LanesByFilter):
    """The same lanes and clocks; what is new is found by id, for a lane's next ids are known."""

    ahead = 4

    def __init__(self, collection: chromadb.Collection, lane: int, lanes: int) -> None:
        super().__init__(collection, lane, lanes)
        self.read = dict.fromkeys(range(lanes), 0)

    def see(self) -> None:
        self.read[self.lane] = self.count
        open_lanes = set(self.read)
        while open_lanes:
            ids = [f"{lane}:{self.read[lane] + n}" for lane in open_lanes for n in range(1, self.ahead + 1)]
            new = self.get(ids=ids)
            counts = {lane: sum(m["lane"] == lane for m in new) for lane in open_lanes}
            for lane, count in counts.items():
                self.read[lane] += count
            open_lanes = {lane for lane, count in counts.items() if count == self.ahead}
            for last in sorted(new, key=self.key)[-1:]:
                if last["clock"] > self.clock:
                    self.clock, self.cause = last["clock"], last["text"]


PROTOCOLS: dict[str, type[Protocol]] = {
    "shared counter": SharedCounter,
    "lanes, by filter": LanesByFilter,
    "lanes, by id": LanesById,
}


@dataclass(frozen=True)
class Conversation:
    """Where processes meet: a server, a protocol, and how many lanes it has."""

    port: int
    name: str
    lanes: int

    def open(self, lane: int = 0) -> Protocol:
        """One process's end of it."""
        client = chromadb.HttpClient("127.0.0.1", self.port, settings=Settings(anonymized_telemetry=False))
        name = self.name.replace(", ", "-").replace(" ", "-")
        collection = client.get_or_create_collection(name, embedding_function=None)
        return PROTOCOLS[self.name](collection, lane, self.lanes)


def writer(conversation: Conversation, lane: int, messages: int, start: Barrier, out: Queue[Any]) -> None:
    """A writer process: append, and report milliseconds and operations of each append."""
    protocol = conversation.open(lane)
    start.wait()
    times = []
    for n in range(messages):
        began = time.perf_counter()
        protocol.append(f"{lane}/{n}")
        times.append((time.perf_counter() - began) * 1000)
    out.put((times, protocol.operations / messages))


def reader(conversation: Conversation, out: Queue[Any]) -> None:
    """A fresh reader process: report the conversation."""
    out.put(conversation.open().conversation())


@contextmanager
def chroma_server() -> Iterator[int]:
    """A Chroma server over a temporary folder on a free port of loopback."""
    program = shutil.which("chroma", path=str(Path(sys.executable).parent)) or shutil.which("chroma")
    if program is None:
        raise SystemExit("The chroma command of the chromadb package was not found.")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "run", "--path", folder, "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(100):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield port
        finally:
            server.terminate()
            server.wait(10)


def processes(target: Callable[..., None], arguments: list[tuple[Any, ...]], out: Queue[Any]) -> list[Any]:
    """Run one process per argument tuple; what each put into the queue."""
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=target, args=(*each, out)) for each in arguments]
    for process in started:
        process.start()
    results = [out.get(timeout=120) for _ in started]
    for process in started:
        process.join()
    return results


def measure(port: int, name: str, writers: int, messages: int) -> list[str]:
    """Let the writers write and the readers read; one row of the table."""
    context = multiprocessing.get_context("spawn")
    out: Queue[Any] = context.Queue()
    start = context.Barrier(writers)
    conversation = Conversation(port, name, writers)
    conversation.open()
    written = processes(writer, [(conversation, lane, messages, start) for lane in range(writers)], out)
    orders = processes(reader, [(conversation,)] * 3, out)

    texts = [message["text"] for message in orders[0]]
    place = {text: index for index, text in enumerate(texts)}
    expected = [[f"{lane}/{n}" for n in range(messages)] for lane in range(writers)]
    stored = [[text for text in lane if text in place] for lane in expected]
    own_order = all(lane == sorted(lane, key=place.__getitem__) for lane in stored)
    effects = [message for message in orders[0] if message["cause"]]
    broken = sum(place.get(message["cause"], len(texts)) >= place[message["text"]] for message in effects)
    times = [time for writer_times, _ in written for time in writer_times]
    return [
        name,
        f"{writers * messages:,}",
        f"{len(place):,}",
        f"{writers * messages - len(place):,}",
        f"{len(texts) - len(place):,}",
        "yes" if orders[0] == orders[1] == orders[2] else "no",
        "yes" if own_order else "no",
        f"{broken:,} of {len(effects):,}",
        f"{statistics.median(times):.1f}",
        f"{statistics.mean(operations for _, operations in written):.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare ways to order concurrent appends.")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--messages", type=int, default=100, help="per writer")
    options = parser.parse_args()
    table = Table(title=f"{options.writers} processes append {options.messages} messages each")
    headings = ["appended", "stored", "lost", "doubled", "one order", "own order", "effect before cause"]
    table.add_column("protocol", no_wrap=True)
    for heading in [*headings, "ms per append", "operations"]:
        table.add_column(heading, justify="right")
    with chroma_server() as port:
        for name in PROTOCOLS:
            table.add_row(*measure(port, name, options.writers, options.messages))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
