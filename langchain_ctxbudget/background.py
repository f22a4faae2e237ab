"""Work off the hot path: one thread that runs jobs one after the other, one job per key.

A key names what is to be worked on (a conversation's scope), not the work itself: a job reads what there is when it
begins. So a key is queued once however often it is submitted, and once more when it is submitted while it runs.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import Context, ContextVar
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from langchain_ctxbudget.errors import BlockedLoopError, InvalidSettingsError

K = TypeVar("K", bound=Hashable)

_IDLE_SECONDS = 5.0
"""How long the thread waits for work before it ends."""
_MOST_FAILURES = 256
"""Of how many keys the last failure is kept; the oldest goes first."""
_MOST_FAILURE_CHARACTERS = 500


class Cancelled:
    """Whether a job should stop; false until its worker is closed, true from then on.

    A job looks at it between its steps, and before it writes.

    Example:
        >>> closed = threading.Event()
        >>> cancelled = Cancelled(closed)
        >>> bool(cancelled)
        False
        >>> closed.set()
        >>> bool(cancelled)
        True
    """

    __slots__ = ("_event",)

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def is_set(self) -> bool:
        """Whether the worker was closed."""
        return self._event.is_set()

    def __bool__(self) -> bool:
        return self._event.is_set()


class BackgroundWorker(Generic[K]):
    """Runs jobs in a thread of its own, first come, first served, never two at a time.

    The thread begins with the first job and ends when it has been idle for a while, when the worker is closed, and when
    nothing refers to the worker any more. It is a daemon: a job that hangs holds up the jobs behind it, but neither
    `close` nor the end of the process. In the child of a fork the worker has nothing queued and begins a new thread.

    Every job runs in an empty context (`contextvars`), whoever submitted it. `run` may be a method of the worker's
    owner: only while a job runs does the thread refer to it.

    Args:
        run: does the work for a key. What it raises becomes the key's failure.
        most_waiting: how many keys may wait, beside the one that runs.
        idle_seconds: how long the thread waits for a job before it ends.

    Raises:
        InvalidSettingsError: `most_waiting` is under 1, or `idle_seconds` under 0 or more than a lock can wait.

    Example:
        >>> done = []
        >>> worker = BackgroundWorker(lambda key, cancelled: done.append(key))
        >>> worker.submit("c1")
        True
        >>> worker.flush()
        True
        >>> done
        ['c1']
        >>> worker.close()
        >>> worker.submit("c2")
        False
    """

    def __init__(
        self,
        run: Callable[[K, Cancelled], None],
        *,
        most_waiting: int = 256,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        if most_waiting < 1:
            raise InvalidSettingsError(f"most_waiting must be at least 1, not {most_waiting!r}")
        if not 0 <= idle_seconds <= threading.TIMEOUT_MAX:
            raise InvalidSettingsError(f"idle_seconds must be 0 to {threading.TIMEOUT_MAX:.0f}, not {idle_seconds!r}")
        self._run = run
        self._idle_seconds = idle_seconds
        self._jobs: _Jobs[K] = _Jobs(most_waiting)
        _jobs_of_all_workers.add(self._jobs)

    def submit(self, key: K) -> bool:
        """Ask for a job for the key that begins after this call; never waits for one.

        Returns:
            True: it is queued, or was already. False: it is not, because the worker is closed, the queue is full or no
            thread can be started. A key that runs needs a place in the queue to be run once more.
        """
        return self._jobs.add(key, self._thread)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait in this thread until nothing is queued or running; in a task, await `aflush` instead.

        Returns:
            False when that took longer than `timeout_seconds`.

        Raises:
            BlockedLoopError: it was called from within a job of this worker, which would wait for itself.
        """
        idle = self._jobs.idle()
        try:
            idle.result(timeout_seconds)
        except TimeoutError:
            return False
        finally:
            self._jobs.withdraw(idle)
        return True

    async def aflush(self, timeout_seconds: float | None = None) -> bool:
        """Wait in this task until nothing is queued or running.

        Returns:
            False when that took longer than `timeout_seconds`.

        Raises:
            BlockedLoopError: it was called from within a job of this worker, which would wait for itself.
        """
        idle = self._jobs.idle()
        if idle.done():
            return True
        try:
            done, _ = await asyncio.wait([asyncio.wrap_future(idle)], timeout=timeout_seconds)
            return bool(done)
        finally:
            self._jobs.withdraw(idle)

    def failure_of(self, key: K) -> str | None:
        """What the key's last job raised, as text; None where it succeeded, was never run, or failed long ago."""
        return self._jobs.failure_of(key)

    def close(self) -> None:
        """Begin nothing any more and tell the running job to stop; does not wait for it."""
        self._jobs.close()

    def _thread(self) -> threading.Thread:
        jobs = self._jobs
        worker = weakref.ref(self, lambda _: jobs.wake())
        arguments = (jobs, worker, self._idle_seconds)
        return threading.Thread(target=_work, args=arguments, name="ctxbudget-background", daemon=True)

    def _attempt(self, job: _Job[K]) -> str | None:
        """Run a job; gives its failure."""

        def run() -> None:
            _current_job.set(job)
            self._run(job.key, Cancelled(self._jobs.closed))

        try:
            Context().run(run)
        except BaseException as error:  # noqa: BLE001 - also a cancellation or an exit is the end of the job only
            return _described(error)
        return None


def _work(jobs: _Jobs[K], reference: weakref.ref[BackgroundWorker[K]], idle_seconds: float) -> None:
    """What the thread does. While it waits it knows the jobs, but not the worker, so that this one can be collected."""
    while jobs.wait(idle_seconds):
        worker = reference()
        if worker is None:
            jobs.close()  # nobody is left to do what waits
            return
        job = jobs.begin()
        failure = worker._attempt(job) if job else None  # noqa: SLF001 - a part of the worker
        # Before anyone learns that the job has ended: who waited for it and drops the worker means to be the last.
        del worker
        if job:
            jobs.end(job, failure)


def _described(error: BaseException) -> str:
    """An error in one bounded text, whatever its own `__str__` does."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"[:_MOST_FAILURE_CHARACTERS]
    except Exception:  # noqa: BLE001 - an error that cannot be told is still a failure
        return kind


@dataclass(frozen=True, slots=True, eq=False)
class _Job(Generic[K]):
    """One run of a key; no two are equal."""

    key: K


_current_job: ContextVar[_Job[Any] | None] = ContextVar("the background job that this code is a part of", default=None)


class _Jobs(Generic[K]):
    """What waits, what runs, and who waits for its end."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._failures: dict[K, str] = {}
        self.closed = threading.Event()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what is under way; in the child of a fork its threads are gone, and its locks may be held for ever."""
        closed, self.closed = self.closed.is_set(), threading.Event()
        if closed:
            self.closed.set()
        # Reentrant, because the garbage collector may close the worker's owner in the middle of anything.
        self._mutex = threading.RLock()
        # One for each key that waits; of all queues this is the one that a weak reference's callback may use.
        self._signals: SimpleQueue[None] = SimpleQueue()
        self._waiting: dict[K, None] = {}
        self._running: _Job[K] | None = None
        self._thread: threading.Thread | None = None
        self._flushes: dict[Future[None], None] = {}

    def add(self, key: K, new_thread: Callable[[], threading.Thread]) -> bool:
        with self._mutex:
            if key in self._waiting:
                return True
            if self.closed.is_set() or len(self._waiting) >= self._most_waiting:
                return False
            if self._thread is None:
                thread = new_thread()
                try:
                    thread.start()
                except RuntimeError:  # there are too many, or the interpreter is about to end
                    return False
                self._thread = thread
            self._waiting[key] = None
            self.wake()
            return True

    def wake(self) -> None:
        """Let the thread look what there is to do."""
        self._signals.put(None)

    def wait(self, idle_seconds: float) -> bool:
        """Wait in the worker's thread for something to do; False where the thread has to end."""
        with self._mutex:
            # Another one if its start was interrupted, or if a job forked and this is the child.
            if self._thread is not threading.current_thread():
                return False
        try:
            self._signals.get(timeout=idle_seconds)
        except Empty:
            with self._mutex:
                if not self._waiting:
                    self._thread = None
                    return False
        return not self.closed.is_set()

    def begin(self) -> _Job[K] | None:
        """The job that is to be run now, if any."""
        with self._mutex:
            if not self._waiting:
                return None
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._running = _Job(key)
            return self._running

    def end(self, job: _Job[K], failure: str | None) -> None:
        with self._mutex:
            if self._running is not job:  # it began before a fork
                return
            self._running = None
            self._failures.pop(job.key, None)
            if failure is not None:
                self._failures[job.key] = failure
                if len(self._failures) > _MOST_FAILURES:
                    del self._failures[next(iter(self._failures))]
        self._tell_flushes()

    def close(self) -> None:
        with self._mutex:
            self.closed.set()
            self._waiting.clear()
        self.wake()
        self._tell_flushes()

    def failure_of(self, key: K) -> str | None:
        with self._mutex:
            return self._failures.get(key)

    def idle(self) -> Future[None]:
        """Done as soon as nothing is queued or running."""
        idle: Future[None] = Future()
        with self._mutex:
            job = _current_job.get()
            if job is not None and job is self._running:
                raise BlockedLoopError(
                    f"A background job (of {job.key!r}) waits for all background jobs, and so for itself. Flush from "
                    "outside of the job, for instance after the call that submitted it"
                )
            self._flushes[idle] = None
        self._tell_flushes()
        return idle

    def withdraw(self, idle: Future[None]) -> None:
        """Wait no more. Without the lock: a task that was never finished comes here from the garbage collector."""
        self._flushes.pop(idle, None)

    def _tell_flushes(self) -> None:
        with self._mutex:
            if self._waiting or self._running:
                return
            flushes, self._flushes = self._flushes, {}
        for idle in list(flushes):  # `withdraw` may take one out
            if idle.set_running_or_notify_cancel():
                idle.set_result(None)


_jobs_of_all_workers: weakref.WeakSet[_Jobs[Any]] = weakref.WeakSet()


def _begin_all_anew() -> None:
    for jobs in list(_jobs_of_all_workers):
        jobs.begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_begin_all_anew)
