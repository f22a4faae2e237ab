"""Jobs off the hot path, one at a time and once per key.

And the lock that threads and tasks both wait for.
"""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import worker as worker_module
from langchain_ctxbudget.flow import Call, Lock, adrive, drive, locked
from langchain_ctxbudget.worker import Worker

PATIENCE_SECONDS = 30  # nothing here takes that long; a test that would hang fails instead


class Jobs:
    """Jobs that say when they begin, and end when they are let go."""

    def __init__(self):
        self.begun, self.ended, self.gate = SimpleQueue(), [], threading.Semaphore(0)

    def __call__(self, key, cancelled):
        self.begun.put(key)
        if not self.gate.acquire(timeout=PATIENCE_SECONDS):
            raise TimeoutError
        self.ended.append((key, bool(cancelled)))

    def next_begun(self):
        return self.begun.get(timeout=PATIENCE_SECONDS)

    def let_go(self):
        self.gate.release(1_000)

    @property
    def keys(self):
        return [key for key, _ in self.ended]


@pytest.fixture
def jobs():
    return Jobs()


@pytest.fixture
def worker(jobs):
    with contextlib.closing(Worker(jobs)) as worker:
        yield worker
        jobs.let_go()


def working(run):
    return contextlib.closing(Worker(run))


def wait(worker):
    assert worker.flush(PATIENCE_SECONDS)


class UntoldError(Exception):
    def __str__(self):
        raise RuntimeError


def test_the_failure_of_a_key_is_that_of_its_last_job():
    errors = [
        ValueError("no such model"),
        SystemExit(3),
        asyncio.CancelledError(),
        UntoldError(),
        None,
    ]
    told = ["ValueError: no such model", "SystemExit: 3", "CancelledError: ", "UntoldError", None]

    def run(key, cancelled):
        if error := errors.pop(0):
            raise error

    with working(run) as worker:
        for text in told:
            worker.submit("a")
            wait(worker)
            assert worker.failure_of("a") == text


@pytest.mark.parametrize("closed", [False, True])
def test_closing_cancels_the_job_that_runs_and_lets_no_other_begin(worker, jobs, closed):
    worker.submit("runs")
    jobs.next_begun()
    worker.submit("waits")
    if closed:
        worker.close()
    jobs.let_go()
    wait(worker)
    assert jobs.ended == ([("runs", True)] if closed else [("runs", False), ("waits", False)])
    assert worker.submit("late") != closed


def test_a_job_that_hangs_does_not_hold_up_the_end_of_the_process():
    code = """
import threading, time
from langchain_ctxbudget.worker import Worker
begun = threading.Event()
def run(key, cancelled):
    begun.set()
    time.sleep(60)
worker = Worker(run)
worker.submit("a")
begun.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_flushing_waits_for_what_runs_and_what_is_queued_or_gives_up(worker, jobs):
    for key in "abc":
        worker.submit(key)
    assert not worker.flush(0.001)
    jobs.let_go()
    wait(worker)
    assert jobs.keys == ["a", "b", "c"]


@settings(max_examples=50)
@given(
    submits=st.lists(st.lists(st.sampled_from("abcde"), max_size=20), min_size=1, max_size=4),
    idle_seconds=st.sampled_from([0, 1e-5, 5]),
)
def test_a_job_begins_after_the_last_accepted_submit_of_its_key_whoever_submits(
    submits, idle_seconds
):
    version = Counter()
    read = Counter()
    runs = Counter()
    running = []
    most_running = [0]
    mutex = threading.Lock()
    together = threading.Barrier(len(submits))

    def run(key, cancelled):
        with mutex:
            running.append(key)
            most_running[0] = max(most_running[0], len(running))
            runs[key] += 1
            read[key] = version[key]
        with mutex:
            running.remove(key)

    def grow_and_submit(key):
        with mutex:
            version[key] += 1
            grown = version[key]
        return (key, grown) if worker.submit(key) else None

    def submit_all(keys):
        together.wait(PATIENCE_SECONDS)
        return [*filter(None, map(grow_and_submit, keys))]

    with (
        ThreadPoolExecutor(len(submits)) as pool,
        patch.object(worker_module, "PATIENCE_SECONDS", idle_seconds),
        working(run) as worker,
    ):
        accepted = [pair for pairs in pool.map(submit_all, submits) for pair in pairs]
        wait(worker)
    newest = dict(sorted(accepted))
    counts = Counter(key for key, _ in accepted)
    assert most_running[0] <= 1
    assert set(runs) == set(newest)
    assert all(read[key] >= grown for key, grown in newest.items())
    assert all(1 <= runs[key] <= counts[key] for key in newest)


def test_a_job_begins_after_a_pause_or_when_somebody_waits_for_it(jobs):
    jobs.let_go()
    for seconds, waits in ((60, True), (0.1, False)):
        with contextlib.closing(Worker(jobs, pause_seconds=seconds)) as worker:
            worker.rest()
            worker.submit(seconds)
            assert worker.flush(PATIENCE_SECONDS) if waits else seconds not in jobs.keys
            assert jobs.next_begun() == seconds


def test_a_lock_excludes_threads_and_tasks_from_each_other():
    lock = Lock()
    inside = [0]
    most = [0]
    entered = [0]

    def body():
        inside[0] += 1
        entered[0] += 1
        most[0] = max(most[0], inside[0])
        yield Call(lambda: None, lambda: asyncio.sleep(0))
        inside[0] -= 1

    def thread():
        for _ in range(200):
            drive(locked(lock, body()))

    async def tasks():
        await asyncio.gather(*(adrive(locked(lock, body())) for _ in range(200)))

    with ThreadPoolExecutor(4) as pool:
        running = [
            pool.submit(thread),
            pool.submit(thread),
            *(pool.submit(asyncio.run, tasks()) for _ in range(2)),
        ]
        for future in running:
            future.result(timeout=60)
    assert (most[0], entered[0]) == (1, 800)


def test_a_lock_is_given_in_the_order_in_which_it_was_asked_for():
    lock = Lock()
    order = []

    def body(name):
        order.append(name)
        yield Call(lambda: None, lambda: asyncio.sleep(0))

    async def again_and_again():
        for number in range(20):
            await adrive(locked(lock, body(f"loop {number}")))

    async def both():
        tasks = [asyncio.create_task(again_and_again())]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(adrive(locked(lock, body("waiting")))))
        await asyncio.gather(*tasks)

    asyncio.run(both())
    assert order.index("waiting") <= 3


def test_a_task_that_outlives_a_lock_may_ask_for_it():
    lock = Lock()
    tasks = []

    def asks():
        yield from ()
        return "asked"

    async def later():
        await asyncio.sleep(0.01)
        return await adrive(locked(lock, asks()))

    def body():
        yield Call(lambda: None, starts_a_task)

    async def starts_a_task():
        tasks.append(asyncio.create_task(later()))

    async def run():
        await adrive(locked(lock, body()))
        return await tasks[0]

    assert asyncio.run(run()) == "asked"


def test_a_task_that_gives_up_flushing_leaves_no_thread_behind(worker, jobs):
    async def flush():
        threads = threading.active_count()
        assert not await worker.aflush(0.02)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.aflush(), 0.02)
        assert threading.active_count() == threads

    worker.submit("a")
    assert jobs.next_begun() == "a"
    asyncio.run(flush())
    jobs.let_go()
    assert asyncio.run(worker.aflush(PATIENCE_SECONDS))
