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
        self.begun = SimpleQueue()
        self.ended = []
        self.gate = threading.Semaphore(0)

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


# -- failures


class UntoldError(Exception):
    def __str__(self):
        raise RuntimeError


def failures_after(*outcomes):
    """The failure of a key after each of its jobs, which fail or do not."""
    remaining = list(outcomes)

    def run(key, cancelled):
        error = remaining.pop(0)
        if error is not None:
            raise error

    failures = []
    with working(run) as worker:
        for _ in outcomes:
            worker.submit("a")
            wait(worker)
            failures.append(worker.failure_of("a"))
    return failures


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ValueError("no such model"), "ValueError: no such model"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError: "),
        (UntoldError(), "UntoldError"),
    ],
)
def test_the_failure_of_a_key_names_the_error_of_its_job(error, failure):
    assert failures_after(error) == [failure]


def test_the_failure_of_a_key_is_that_of_its_last_job():
    failures = failures_after(ValueError("no such model"), SystemExit(3), None)
    assert failures == ["ValueError: no such model", "SystemExit: 3", None]


# -- the end


def test_closing_cancels_the_job_that_runs_and_no_other_begins(worker, jobs):
    worker.submit("runs")
    jobs.next_begun()
    worker.submit("waits")

    worker.close()
    jobs.let_go()
    wait(worker)

    assert jobs.ended == [("runs", True)]


def test_without_closing_every_job_runs_and_none_is_cancelled(worker, jobs):
    worker.submit("runs")
    jobs.next_begun()
    worker.submit("waits")

    jobs.let_go()
    wait(worker)

    assert jobs.ended == [("runs", False), ("waits", False)]


def test_a_closed_worker_accepts_no_job(worker):
    assert worker.submit("early")
    worker.close()
    assert not worker.submit("late")


HANGING_JOB = """
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


def test_a_job_that_hangs_does_not_hold_up_the_end_of_the_process():
    process = subprocess.run(
        [sys.executable, "-c", HANGING_JOB],
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert process.returncode == 0
    assert process.stdout == b""
    assert process.stderr == b""


# -- flushing


def test_flushing_gives_up_after_its_time(worker):
    worker.submit("a")
    assert not worker.flush(0.001)


def test_flushing_waits_for_what_runs_and_what_is_queued(worker, jobs):
    worker.submit("a")
    worker.submit("b")
    worker.submit("c")
    jobs.let_go()

    wait(worker)

    assert jobs.keys == ["a", "b", "c"]


def test_a_task_that_gives_up_flushing_leaves_no_thread_behind(worker, jobs):
    async def give_up_twice():
        threads = set(threading.enumerate())
        assert not await worker.aflush(0.02)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.aflush(), 0.02)
        assert threads.issuperset(threading.enumerate())

    worker.submit("a")
    assert jobs.next_begun() == "a"
    asyncio.run(give_up_twice())


def test_a_task_may_flush_after_one_that_gave_up(worker, jobs):
    worker.submit("a")
    jobs.next_begun()
    assert not asyncio.run(worker.aflush(0.02))
    jobs.let_go()
    assert asyncio.run(worker.aflush(PATIENCE_SECONDS))


# -- what runs, and when


class Growing:
    """Keys that grow, and jobs that note how far a key has grown when they run."""

    def __init__(self):
        self.mutex = threading.Lock()
        self.versions = Counter()
        self.versions_read = Counter()
        self.runs = Counter()
        self.running = 0
        self.most_running = 0

    def run(self, key, cancelled):
        with self.mutex:
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            self.runs[key] += 1
            self.versions_read[key] = self.versions[key]
        with self.mutex:
            self.running -= 1

    def grow(self, key):
        with self.mutex:
            self.versions[key] += 1
            return self.versions[key]


def submit_at_once(growing, submits):
    """Submits lists of growing keys from as many threads; returns what was accepted.

    Afterwards every job has run.
    """
    together = threading.Barrier(len(submits))
    accepted = []

    def submit_all(keys):
        together.wait(PATIENCE_SECONDS)
        for key in keys:
            version = growing.grow(key)
            if worker.submit(key):
                accepted.append((key, version))

    with ThreadPoolExecutor(len(submits)) as pool, working(growing.run) as worker:
        futures = [pool.submit(submit_all, keys) for keys in submits]
        for future in futures:
            future.result()
        wait(worker)
    return accepted


@settings(max_examples=50)
@given(
    submits=st.lists(st.lists(st.sampled_from("abcde"), max_size=20), min_size=1, max_size=4),
    idle_seconds=st.sampled_from([0, 1e-5, 5]),
)
def test_a_job_begins_after_the_last_accepted_submit_of_its_key(submits, idle_seconds):
    """Whoever submits, however soon an idle thread ends, and one job at a time."""
    growing = Growing()
    with patch.object(worker_module, "PATIENCE_SECONDS", idle_seconds):
        accepted = submit_at_once(growing, submits)

    newest_versions = dict(sorted(accepted))
    submit_counts = Counter(key for key, _ in accepted)
    assert growing.most_running <= 1
    assert set(growing.runs) == set(newest_versions)
    assert [
        key for key, version in newest_versions.items() if growing.versions_read[key] < version
    ] == []
    assert [key for key, runs in growing.runs.items() if runs > submit_counts[key]] == []


@pytest.fixture
def resting(jobs):
    """Opens a worker that begins no job before a pause is over."""
    jobs.let_go()
    with contextlib.ExitStack() as stack:

        def rest(pause_seconds):
            worker = Worker(jobs, pause_seconds=pause_seconds)
            stack.enter_context(contextlib.closing(worker))
            worker.rest()
            return worker

        yield rest


def test_a_job_begins_when_somebody_waits_for_it(resting, jobs):
    worker = resting(60)
    worker.submit("a")
    assert worker.flush(PATIENCE_SECONDS)
    assert jobs.next_begun() == "a"


def test_a_job_begins_after_a_pause(resting, jobs):
    worker = resting(0.1)
    worker.submit("a")
    assert jobs.keys == []
    assert jobs.next_begun() == "a"


# -- the lock


class Inside:
    """How many are inside of a lock."""

    def __init__(self):
        self.now = 0
        self.most = 0
        self.entered = 0

    def body(self):
        self.now += 1
        self.entered += 1
        self.most = max(self.most, self.now)
        yield Call(lambda: None, lambda: asyncio.sleep(0))
        self.now -= 1


def test_a_lock_excludes_threads_and_tasks_from_each_other():
    lock = Lock()
    inside = Inside()

    def enter_in_a_thread():
        for _ in range(200):
            drive(locked(lock, inside.body()))

    async def enter_in_tasks():
        await asyncio.gather(*(adrive(locked(lock, inside.body())) for _ in range(200)))

    def run_tasks():
        asyncio.run(enter_in_tasks())

    with ThreadPoolExecutor(4) as pool:
        running = [
            pool.submit(enter_in_a_thread),
            pool.submit(enter_in_a_thread),
            pool.submit(run_tasks),
            pool.submit(run_tasks),
        ]
        for future in running:
            future.result(timeout=60)

    assert inside.most == 1
    assert inside.entered == 800


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
