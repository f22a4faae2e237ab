"""Jobs off the hot path: one at a time, once per key, and nothing that outlives its use."""

import asyncio
import contextlib
import doctest
import gc
import math
import os
import subprocess
import sys
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxbudget import background
from langchain_ctxbudget.background import BackgroundWorker, Cancelled
from langchain_ctxbudget.errors import BlockedLoopError, InvalidSettingsError

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

    def let_go(self, jobs=1_000):
        self.gate.release(jobs)

    @property
    def keys(self):
        return [key for key, _ in self.ended]


@pytest.fixture
def jobs():
    return Jobs()


@pytest.fixture
def worker(jobs):
    with contextlib.closing(BackgroundWorker(jobs, most_waiting=3)) as worker:
        yield worker
        jobs.let_go()


def working(run, **options):
    return contextlib.closing(BackgroundWorker(run, **options))


def wait(worker):
    assert worker.flush(PATIENCE_SECONDS)


def flush_in_thread(worker, timeout_seconds=PATIENCE_SECONDS):
    return worker.flush(timeout_seconds)


def flush_in_task(worker, timeout_seconds=PATIENCE_SECONDS):
    return asyncio.run(worker.aflush(timeout_seconds))


BOTH = pytest.mark.parametrize("flush", [flush_in_thread, flush_in_task])


# Order, and one job per key.


def test_jobs_run_in_the_order_they_were_submitted():
    done = []
    with working(lambda key, _: done.append(key)) as worker:
        assert [worker.submit(key) for key in "cab"] == [True, True, True]
        wait(worker)
    assert done == ["c", "a", "b"]


def test_a_key_that_waits_is_queued_once(worker, jobs):
    worker.submit("runs")
    jobs.next_begun()
    assert [worker.submit(key) for key in ("a", "b", "a")] == [True, True, True]
    jobs.let_go()
    wait(worker)
    assert jobs.keys == ["runs", "a", "b"]


def test_a_key_submitted_while_it_runs_is_run_once_more_behind_those_that_wait(worker, jobs):
    worker.submit("a")
    jobs.next_begun()
    assert [worker.submit(key) for key in ("b", "a", "a")] == [True, True, True]
    jobs.let_go()
    wait(worker)
    assert jobs.keys == ["a", "b", "a"]


def test_none_is_a_key_as_any_other():
    done = []
    with working(lambda key, _: done.append(key)) as worker:
        worker.submit(None)
        wait(worker)
    assert done == [None]


def test_a_full_queue_refuses_a_key_and_loses_none(worker, jobs):
    worker.submit("runs")
    jobs.next_begun()
    assert [worker.submit(key) for key in "abcd"] == [True, True, True, False]
    jobs.let_go()
    wait(worker)
    assert jobs.keys == ["runs", "a", "b", "c"]


def test_a_full_queue_accepts_a_key_that_waits_in_it(worker, jobs):
    worker.submit("runs")
    jobs.next_begun()
    assert [worker.submit(key) for key in "abca"] == [True, True, True, True]


def test_a_key_that_runs_needs_a_place_in_the_queue(worker, jobs):
    worker.submit("runs")
    jobs.next_begun()
    assert [worker.submit(key) for key in ("a", "b", "c", "runs")] == [True, True, True, False]


def test_a_queue_that_was_full_accepts_again(worker, jobs):
    worker.submit("runs")
    jobs.next_begun()
    for key in "abcd":
        worker.submit(key)
    jobs.let_go()
    wait(worker)
    assert worker.submit("d")


def test_a_key_that_cannot_be_hashed_changes_nothing(worker, jobs):
    jobs.let_go()
    with pytest.raises(TypeError):
        worker.submit([])
    worker.submit("a")
    wait(worker)
    assert jobs.keys == ["a"]


async def test_tasks_submit_without_waiting(worker, jobs):
    async def submit(key):
        return worker.submit(key)

    assert await asyncio.gather(*map(submit, "abc")) == [True, True, True]
    assert jobs.ended == []
    jobs.let_go()
    assert await worker.aflush(PATIENCE_SECONDS)
    assert jobs.keys == ["a", "b", "c"]


@pytest.mark.parametrize("options", [{"most_waiting": 0}, {"idle_seconds": -1}, {"idle_seconds": math.inf}])
def test_a_limit_outside_its_range_is_an_error(jobs, options):
    with pytest.raises(InvalidSettingsError, match=next(iter(options))):
        BackgroundWorker(jobs, **options)


# Failures.


def failing(error):
    def run(key, cancelled):
        raise error

    return run


def failure(error):
    with working(failing(error)) as worker:
        worker.submit("a")
        wait(worker)
        return worker.failure_of("a")


class UntellableError(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such model"), "ValueError: no such model"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError: "),
        (UntellableError(), "UntellableError"),
    ],
)
def test_what_a_job_raises_is_the_failure_of_its_key(error, text):
    assert failure(error) == text


def test_a_failure_is_cut_to_500_characters():
    assert failure(ValueError("x" * 10_000)) == "ValueError: " + "x" * 488


def test_a_failure_is_not_that_of_another_key():
    with working(failing(ValueError())) as worker:
        worker.submit("a")
        wait(worker)
        assert worker.failure_of("b") is None


def test_jobs_run_after_one_that_failed():
    done = []

    def run(key, cancelled):
        if key == "fails":
            raise SystemExit
        done.append(key)

    with working(run) as worker:
        worker.submit("fails")
        worker.submit("a")
        wait(worker)
    assert done == ["a"]


def test_the_next_success_clears_a_failure():
    errors = [ValueError("once")]

    def run(key, cancelled):
        if errors:
            raise errors.pop()

    with working(run) as worker:
        worker.submit("a")
        wait(worker)
        assert worker.failure_of("a") == "ValueError: once"
        worker.submit("a")
        wait(worker)
        assert worker.failure_of("a") is None


def test_the_oldest_of_more_than_256_failures_is_forgotten():
    with working(failing(ValueError()), most_waiting=1_000) as worker:
        for key in [*range(256), 0, 256]:  # key 0 fails again, so that key 1 is the oldest
            worker.submit(key)
            wait(worker)
        kept = [key for key in range(257) if worker.failure_of(key)]
    assert kept == [0, *range(2, 257)]


# The end of a job, of the worker, of its thread, of its owner and of the process.


def test_closing_lets_nothing_that_waits_begin(worker, jobs):
    worker.submit("runs")
    jobs.next_begun()
    worker.submit("waits")
    worker.close()
    jobs.let_go()
    wait(worker)
    assert jobs.keys == ["runs"]


@pytest.mark.parametrize("closed", [False, True])
def test_a_job_is_cancelled_by_closing(worker, jobs, closed):
    worker.submit("a")
    jobs.next_begun()
    if closed:
        worker.close()
    jobs.let_go()
    wait(worker)
    assert jobs.ended == [("a", closed)]


def test_closing_does_not_wait_for_the_running_job(worker, jobs):
    worker.submit("a")
    jobs.next_begun()
    worker.close()
    assert jobs.ended == []


def test_a_closed_worker_accepts_nothing(worker):
    worker.close()
    worker.close()
    assert not worker.submit("a")


def test_a_worker_can_be_closed_by_its_own_job():
    with working(lambda key, _: worker.close()) as worker:
        worker.submit("a")
        wait(worker)
        assert worker.failure_of("a") is None
        assert not worker.submit("a")


def test_a_failure_can_be_asked_for_after_closing():
    with working(failing(ValueError("late"))) as worker:
        worker.submit("a")
        wait(worker)
    assert worker.failure_of("a") == "ValueError: late"


def test_cancelled_is_a_view_of_its_event():
    event = threading.Event()
    cancelled = Cancelled(event)
    assert (bool(cancelled), cancelled.is_set()) == (False, False)
    event.set()
    assert (bool(cancelled), cancelled.is_set()) == (True, True)


def test_no_thread_begins_before_the_first_job(jobs):
    before = threading.active_count()
    with working(jobs):
        assert threading.active_count() == before


def thread_of_a_job(worker, threads):
    worker.submit("a")
    thread = threads.get(timeout=PATIENCE_SECONDS)
    wait(worker)
    return thread


def record_thread(threads):
    return lambda key, cancelled: threads.put(threading.current_thread())


def has_ended(thread):
    thread.join(PATIENCE_SECONDS)
    return not thread.is_alive()


def test_jobs_share_a_thread():
    threads = SimpleQueue()
    with working(record_thread(threads), idle_seconds=PATIENCE_SECONDS) as worker:
        assert thread_of_a_job(worker, threads) is thread_of_a_job(worker, threads)


def test_an_idle_thread_ends_and_another_one_begins_when_there_is_work():
    threads = SimpleQueue()
    with working(record_thread(threads), idle_seconds=0) as worker:
        first = thread_of_a_job(worker, threads)
        assert has_ended(first)
        assert thread_of_a_job(worker, threads) is not first


class Signals:
    """The signals to a worker's thread, which waits for the gate as well; `late` comes when it has just given up."""

    def __init__(self, worker, late=None):
        self.gate = threading.Event()
        self.worker, self.late = worker, late
        self.signals, worker._jobs._signals = worker._jobs._signals, self

    def put(self, signal):
        self.signals.put(signal)

    def get(self, timeout):
        self.gate.wait(PATIENCE_SECONDS)
        try:
            return self.signals.get(timeout=timeout)
        except Empty:
            late, self.late = self.late, None
            if late:
                self.worker.submit(late)
            raise


def test_a_key_submitted_when_the_idle_thread_is_about_to_end_is_run():
    done = []
    with working(lambda key, _: done.append(key), idle_seconds=0) as worker:
        signals = Signals(worker, late="late")
        worker.submit("a")
        thread = worker._jobs._thread
        signals.gate.set()
        assert has_ended(thread)
    assert done == ["a", "late"]


def test_the_thread_ends_when_the_worker_is_closed():
    threads = SimpleQueue()
    with working(record_thread(threads), idle_seconds=10_000) as worker:
        thread = thread_of_a_job(worker, threads)
    assert has_ended(thread)


def test_the_thread_ends_when_the_owner_of_the_worker_is_collected():
    class Owner:
        def __init__(self):
            self.threads = SimpleQueue()
            self.worker = BackgroundWorker(self.run, idle_seconds=10_000)

        def run(self, key, cancelled):
            self.threads.put(threading.current_thread())

    owner = Owner()
    thread = thread_of_a_job(owner.worker, owner.threads)
    reference = weakref.ref(owner)
    del owner
    gc.collect()
    assert reference() is None
    assert has_ended(thread)


def test_an_owner_that_closes_its_worker_may_be_deleted_by_a_job():
    class Owner:
        def __init__(self):
            self.worker = BackgroundWorker(lambda key, cancelled: owners.clear(), idle_seconds=10_000)

        def __del__(self):
            self.worker.close()
            deleting.put(threading.current_thread())

    deleting = SimpleQueue()
    owners = [Owner()]
    worker = owners[0].worker
    worker.submit("a")
    thread = deleting.get(timeout=PATIENCE_SECONDS)
    assert thread is not threading.current_thread()
    assert has_ended(thread)
    assert worker.failure_of("a") is None


def test_a_worker_that_nothing_refers_to_ends_its_job_and_begins_no_other(jobs):
    worker = BackgroundWorker(jobs)
    worker.submit("runs")
    jobs.next_begun()
    worker.submit("waits")
    thread = worker._jobs._thread
    del worker
    jobs.let_go()
    assert has_ended(thread)
    assert jobs.keys == ["runs"]


def test_a_key_is_refused_while_no_thread_can_be_started(jobs, monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    jobs.let_go()
    with working(jobs) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            assert not worker.submit("a")
            assert worker.flush(0)
        assert worker.submit("b")
        wait(worker)
    assert jobs.keys == ["b"]


def test_a_thread_whose_start_was_interrupted_ends(jobs, monkeypatch):
    started = []
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        started.append(thread)
        raise KeyboardInterrupt

    jobs.let_go()
    with working(jobs, idle_seconds=10_000) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                worker.submit("a")
        assert has_ended(*started)
        worker.submit("b")
        wait(worker)
    assert jobs.keys == ["b"]


def outcome(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def test_a_job_that_hangs_does_not_hold_up_the_end_of_the_process():
    done = outcome("""
import threading, time
from langchain_ctxbudget.background import BackgroundWorker
begun = threading.Event()
def run(key, cancelled):
    begun.set()
    time.sleep(60)
worker = BackgroundWorker(run)
worker.submit("a")
begun.wait()
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


FORK = """
import os, threading
from langchain_ctxbudget.background import BackgroundWorker
begun, gate, done = threading.Event(), threading.Event(), []
def run(key, cancelled):
    begun.set()
    if key == "hangs":
        gate.wait()
    done.append(key)
worker = BackgroundWorker(run)
worker.submit("hangs")
begun.wait()
worker.submit("waits")
with worker._jobs._mutex:  # a lock that some thread of the parent may hold
    if CLOSED:
        worker.close()
    child = os.fork()
if child == 0:
    accepted = worker.submit("child")
    flushed = worker.flush(20)
    print(accepted, flushed, done, flush=True)
    os._exit(0)
os.waitpid(child, 0)
gate.set()
worker.flush(20)
print(done)
"""


if hasattr(os, "fork"):

    @pytest.mark.parametrize(
        ("closed", "child", "parent"),
        [(False, "True True ['child']", "['hangs', 'waits']"), (True, "False True []", "['hangs']")],
    )
    def test_the_child_of_a_fork_begins_anew_and_the_parent_goes_on(closed, child, parent):
        done = outcome(FORK.replace("CLOSED", str(closed)))
        assert done.stdout.splitlines() == [child, parent], done.stderr


# Waiting for the end of all.


@BOTH
def test_flushing_an_idle_worker_does_not_wait(worker, flush):
    assert flush(worker, 0)


def test_flushing_an_idle_worker_takes_no_turn_of_the_event_loop(worker):
    with pytest.raises(StopIteration) as done:
        worker.aflush().send(None)
    assert done.value.value is True


@BOTH
def test_flushing_waits_for_what_runs_and_what_is_queued(worker, jobs, flush):
    for key in "abc":
        worker.submit(key)
    jobs.let_go()
    assert flush(worker)
    assert jobs.keys == ["a", "b", "c"]


@BOTH
def test_flushing_gives_up_when_its_time_is_over(worker, jobs, flush):
    worker.submit("a")
    jobs.next_begun()
    assert not flush(worker, 0.001)


@BOTH
def test_flushing_that_gave_up_leaves_nothing_behind(worker, jobs, flush):
    worker.submit("a")
    flush(worker, 0)
    assert worker._jobs._flushes == {}


@BOTH
def test_flushing_a_closed_worker_waits_for_its_last_job(worker, jobs, flush):
    worker.submit("runs")
    jobs.next_begun()
    worker.submit("waits")
    worker.close()
    assert not flush(worker, 0)
    jobs.let_go()
    assert flush(worker)


@BOTH
def test_flushing_ends_when_a_closed_worker_has_nothing_to_run(flush):
    with working(failing(ValueError())) as worker:
        worker.close()
        assert flush(worker)


async def test_flushing_ends_when_the_worker_is_closed_before_it_began_a_job():
    with working(failing(ValueError())) as worker:
        signals = Signals(worker)
        worker.submit("a")
        flush = asyncio.create_task(worker.aflush(PATIENCE_SECONDS))
        await asyncio.sleep(0)  # the task waits now
        worker.close()
        assert await flush
        signals.gate.set()
    assert worker.failure_of("a") is None


def test_a_wait_that_ends_while_it_is_told_hurts_nobody(worker, jobs):
    worker.submit("a")
    worker._jobs.idle().cancel()
    jobs.let_go()
    wait(worker)
    worker.submit("b")
    wait(worker)
    assert jobs.keys == ["a", "b"]


def test_a_task_that_flushes_in_a_loop_that_was_closed_hurts_nobody(worker, jobs):
    loop = asyncio.new_event_loop()
    flush = loop.create_task(worker.aflush())
    worker.submit("a")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert not flush.done()
    jobs.let_go()
    wait(worker)
    worker.submit("b")
    wait(worker)
    assert (jobs.keys, worker._jobs._flushes) == (["a", "b"], {})
    del flush
    gc.collect()


def test_all_that_flush_are_told(worker, jobs):
    worker.submit("a")
    with ThreadPoolExecutor(6) as pool:
        flushes = [pool.submit(flush, worker) for flush in [flush_in_thread, flush_in_task] * 3]
        jobs.next_begun()
        jobs.let_go()
        assert [flush.result() for flush in flushes] == [True] * 6


async def test_the_event_loop_goes_on_while_a_task_flushes(worker, jobs):
    worker.submit("a")
    flush = asyncio.create_task(worker.aflush(PATIENCE_SECONDS))
    await asyncio.to_thread(jobs.next_begun)
    assert not flush.done()
    jobs.let_go()  # by this loop, which would never come here if the flush blocked it
    assert await flush


async def test_a_task_cancelled_while_it_flushes_leaves_nothing_behind(worker, jobs):
    worker.submit("a")
    flush = asyncio.create_task(worker.aflush())
    await asyncio.to_thread(jobs.next_begun)
    flush.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flush
    assert worker._jobs._flushes == {}
    jobs.let_go()
    assert await worker.aflush(PATIENCE_SECONDS)
    assert jobs.keys == ["a"]


def flush_in_another_thread(worker):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, worker.flush, PATIENCE_SECONDS).result()


@pytest.mark.parametrize("flush", [flush_in_thread, flush_in_task, flush_in_another_thread])
def test_a_job_cannot_wait_for_itself(flush):
    errors = []

    def run(key, cancelled):
        with pytest.raises(BlockedLoopError, match="'a'") as error:
            flush(worker)
        errors.append(error.value)

    with working(run) as worker:
        worker.submit("a")
        wait(worker)
    assert len(errors) == 1


@BOTH
def test_a_job_can_wait_for_another_worker(worker, jobs, flush):
    flushed = []
    worker.submit("a")
    with working(lambda key, _: flushed.append(flush(worker))) as other:
        other.submit("b")
        jobs.let_go()
        wait(other)
    assert (flushed, jobs.keys) == ([True], ["a"])


def test_what_a_job_leaves_running_may_flush_afterwards():
    with ThreadPoolExecutor(1) as pool:
        gate, late = threading.Event(), []

        def flush():
            return gate.wait(PATIENCE_SECONDS) and worker.flush(PATIENCE_SECONDS)

        with working(lambda key, _: late.append(pool.submit(copy_context().run, flush))) as worker:
            worker.submit("a")
            wait(worker)
            gate.set()
            assert late[0].result()


def test_a_job_sees_no_context_of_its_submitter_or_of_another_job():
    user = ContextVar("user", default="nobody")
    seen = []

    def run(key, cancelled):
        seen.append(user.get())
        user.set(key)

    user.set("ada")
    with working(run) as worker:
        worker.submit("bob")
        worker.submit("eve")
        wait(worker)
    assert seen == ["nobody", "nobody"]


# Any order of events.


@settings(deadline=None, max_examples=200)
@given(
    events=st.lists(st.sampled_from([*"abcde", "let go"]), max_size=40),
    most_waiting=st.integers(1, 4),
)
def test_any_order_of_submitting_and_ending_is_that_of_a_queue_without_repeats(events, most_waiting):
    jobs, running, waiting, expected = Jobs(), None, [], []
    with working(jobs, most_waiting=most_waiting) as worker:
        for event in events:
            if event == "let go" and running is not None:
                jobs.let_go(1)
                expected.append(running)
                running = None
            elif event != "let go":
                accepted = event in waiting or len(waiting) < most_waiting
                assert worker.submit(event) == accepted
                if accepted and event not in waiting:
                    waiting.append(event)
            if running is None and waiting:
                running = waiting.pop(0)
                assert jobs.next_begun() == running
        jobs.let_go()
        wait(worker)
    assert jobs.keys == expected + ([running] if running is not None else []) + waiting


class Documents:
    """Something that grows, and jobs that read how far it has grown."""

    def __init__(self):
        self.lock = threading.Lock()
        self.version = Counter()
        self.read = Counter()
        self.runs = Counter()
        self.running = Counter()
        self.most_running = 0

    def grow(self, key):
        with self.lock:
            self.version[key] += 1
            return self.version[key]

    def run(self, key, cancelled):
        with self.lock:
            self.running[key] += 1
            self.most_running = max(self.most_running, self.running.total())
            self.runs[key] += 1
            self.read[key] = self.version[key]
            version = self.version[key]
        with self.lock:
            self.running[key] -= 1
        if version % 3 == 0:
            raise ValueError(version)


@settings(deadline=None, max_examples=200)
@given(
    submits=st.lists(st.lists(st.sampled_from("abcde"), max_size=20), min_size=1, max_size=4),
    most_waiting=st.integers(1, 6),
    idle_seconds=st.sampled_from([0, 1e-5, 5]),
)
def test_a_job_begins_after_the_last_accepted_submit_of_its_key_whoever_submits(submits, most_waiting, idle_seconds):
    documents = Documents()
    together = threading.Barrier(len(submits))

    def submit_all(keys):
        together.wait(PATIENCE_SECONDS)
        versions = [(key, documents.grow(key), worker.submit(key)) for key in keys]
        return [(key, version) for key, version, accepted in versions if accepted]

    with (
        ThreadPoolExecutor(len(submits)) as pool,
        working(documents.run, most_waiting=most_waiting, idle_seconds=idle_seconds) as worker,
    ):
        accepted = [pair for pairs in pool.map(submit_all, submits) for pair in pairs]
        wait(worker)
        failed = {key for key in "abcde" if worker.failure_of(key)}

    newest = dict(sorted(accepted))  # the last of each key wins
    counts = Counter(key for key, _ in accepted)
    assert documents.most_running <= 1
    assert set(documents.runs) == set(newest)
    assert all(documents.read[key] >= version for key, version in newest.items())
    assert all(1 <= documents.runs[key] <= counts[key] for key in newest)
    assert failed == {key for key in newest if documents.read[key] % 3 == 0}


def test_the_examples_of_the_module_are_true():
    assert doctest.testmod(background).failed == 0
