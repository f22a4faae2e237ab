"""Threads: one that runs jobs off the hot path, and what a fork must not break.

In the child of a fork only the thread that forked goes on: a lock that another one held would be held there for ever,
and its work is half done. So locks, objects and names begin anew.

A worker's key names what is to be worked on (a conversation's scope), not the work itself: a job reads what there is
when it begins. So a key is queued once however often it is submitted, and once more when it is submitted while it runs.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import nullcontext
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

from langchain_ctxbudget.errors import BlockedLoopError, InvalidSettingsError

K = TypeVar("K", bound=Hashable)

_IDLE_SECONDS = 5.0
_MOST_FAILURES = 256
"""The most keys whose last failure is kept; the oldest goes first."""
_MOST_FAILURE_CHARACTERS = 500


class Cancelled:
    """True once the worker is closed; a job looks at it between its steps, and before it writes."""

    __slots__ = ("_event",)

    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def __bool__(self) -> bool:
        return self._event.is_set()


class BackgroundWorker(Generic[K]):
    """Runs jobs in a thread of its own, first come, first served, never two at a time.

    The thread begins with the first job and ends when it has been idle for a while, when the worker is closed, and when
    nothing refers to the worker any more. It is a daemon: a job that hangs holds up the jobs behind it, but neither
    `close` nor the end of the process. In the child of a fork the worker has nothing queued and begins a new thread.
    Every job runs in an empty context (`contextvars`).

    Args:
        run: does the work for a key; its exception becomes the key's failure.
        most_waiting: the most keys that wait, beside the one that runs.
        idle_seconds: how long the thread waits for a job before it ends.

    Raises:
        InvalidSettingsError: `most_waiting` is under 1, or `idle_seconds` under 0 or more than a lock can wait.

    Example:
        >>> done = []
        >>> worker = BackgroundWorker(lambda key, cancelled: done.append(key))
        >>> worker.submit("c1"), worker.flush(), done
        (True, True, ['c1'])
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
        self._run, self._idle_seconds = run, idle_seconds
        self._jobs: _Jobs[K] = _Jobs(most_waiting)

    def submit(self, key: K) -> bool:
        """Asks for a job for the key that begins after this call; never waits for one.

        Returns:
            False where it is not queued: the worker is closed, the queue is full or no thread can be started.
        """
        return self._jobs.add(key, self._thread)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Waits in this thread until nothing is queued or running; returns False when that took too long.

        Raises:
            BlockedLoopError: a job of this worker calls it, and would wait for itself.
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
        """Waits in this task until nothing is queued or running; see `flush`."""
        idle = self._jobs.idle()
        if idle.done():
            return True
        try:
            done, _ = await asyncio.wait([asyncio.wrap_future(idle)], timeout=timeout_seconds)
            return bool(done)
        finally:
            self._jobs.withdraw(idle)

    def failure_of(self, key: K) -> str | None:
        """Returns the exception of the key's last job as text; None where it succeeded or was never run."""
        return self._jobs.failures.get(key)

    def close(self) -> None:
        """Begins nothing any more and tells the running job to stop; does not wait for it."""
        self._jobs.close()

    def _thread(self) -> threading.Thread:
        jobs = self._jobs
        arguments = (jobs, weakref.ref(self, lambda _: jobs.close()), self._idle_seconds)
        return threading.Thread(target=_work, args=arguments, name="ctxbudget-background", daemon=True)

    def attempt(self, job: _Job[K]) -> str | None:
        """Runs a job in the worker's thread; returns its failure."""

        def run() -> None:
            _current_job.set(job)
            self._run(job.key, Cancelled(self._jobs.closed))

        try:
            Context().run(run)
        except BaseException as error:  # noqa: BLE001 - also a cancellation or an exit is the end of the job only
            try:
                return f"{type(error).__name__}: {error}"[:_MOST_FAILURE_CHARACTERS]
            except Exception:  # noqa: BLE001 - an error that cannot be told is still a failure
                return type(error).__name__
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Job(Generic[K]):
    """One run of a key; no two are equal."""

    key: K


_current_job: ContextVar[_Job[Any] | None] = ContextVar("the background job that this code is a part of", default=None)


def _work(jobs: _Jobs[K], reference: weakref.ref[BackgroundWorker[K]], idle_seconds: float) -> None:
    """Runs jobs; while the thread waits it does not refer to the worker, so that this one can be collected."""
    while job := jobs.next(idle_seconds):
        worker = reference()
        failure = worker.attempt(job) if worker else None
        del worker  # before anyone learns that the job has ended: it may be the last reference
        jobs.end(job, failure)
        del job  # its key names a user


class _Jobs(Generic[K]):
    """The state of a worker: what waits, what runs, and who waits for its end."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self.failures: dict[K, str] = {}
        self.closed = threading.Event()
        self.begin_anew()
        _jobs_of_all_workers.add(beginning_anew(self))

    def begin_anew(self) -> None:
        """Forgets what is under way; in the child of a fork its threads are gone, and its locks may be held."""
        closed, self.closed = self.closed.is_set(), threading.Event()
        if closed:
            self.closed.set()
        # Reentrant, because the garbage collector may close the worker in the middle of anything.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: dict[K, None] = {}
        self._running: _Job[K] | None = None
        self._thread: threading.Thread | None = None
        self._flushes: dict[Future[None], None] = {}

    def add(self, key: K, new_thread: Callable[[], threading.Thread]) -> bool:
        with self._changed:
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
            self._changed.notify_all()
            return True

    def next(self, idle_seconds: float) -> _Job[K] | None:
        """Waits in the worker's thread for a job; None where the thread has to end."""
        with self._changed:
            # Another thread if the start of this one was interrupted, or if a job forked and this is the child.
            if self._thread is not threading.current_thread():
                return None
            self._changed.wait_for(lambda: self._waiting or self.closed.is_set(), idle_seconds)
            if self.closed.is_set() or not self._waiting:
                self._thread = None
                return None
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._running = _Job(key)
            return self._running

    def end(self, job: _Job[K], failure: str | None) -> None:
        with self._changed:
            if self._running is not job:  # it began before a fork
                return
            self._running = None
            self.failures.pop(job.key, None)
            if failure is not None:
                self.failures[job.key] = failure
                if len(self.failures) > _MOST_FAILURES:
                    del self.failures[next(iter(self.failures))]
        self._tell_flushes()

    def close(self) -> None:
        with self._changed:
            self.closed.set()
            self._waiting.clear()
            self._changed.notify_all()
        self._tell_flushes()

    def idle(self) -> Future[None]:
        """Returns a future that is done as soon as nothing is queued or running."""
        idle: Future[None] = Future()
        with self._changed:
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
        """Waits no more; without the lock, as a task that was never finished is withdrawn by the garbage collector."""
        self._flushes.pop(idle, None)

    def _tell_flushes(self) -> None:
        with self._changed:
            if self._waiting or self._running:
                return
            flushes, self._flushes = self._flushes, {}
        for idle in list(flushes):  # `withdraw` may take one out
            if idle.set_running_or_notify_cancel():
                idle.set_result(None)


_jobs_of_all_workers: weakref.WeakSet[_Jobs[Any]] = weakref.WeakSet()


# Forks


class _BeginsAnew(Protocol):
    def begin_anew(self) -> None:
        """Resets the object."""


T = TypeVar("T")
B = TypeVar("B", bound=_BeginsAnew)
F = TypeVar("F", bound=Callable[[], None])


class cached_property(functools.cached_property[T]):  # noqa: N801 - as it is known
    """The standard library's without its lock of Python 3.11, which no child of a fork could let go."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()


_mutexes: weakref.WeakSet[Any] = weakref.WeakSet()
_objects: weakref.WeakSet[_BeginsAnew] = weakref.WeakSet()
_functions: list[Callable[[], None]] = []
_kept: list[object] = []
_name: list[str] = []


def new_mutex() -> threading.Lock:
    """Returns a lock that is free in the child of a fork, whoever held it."""
    mutex = threading.Lock()
    _mutexes.add(mutex)
    return mutex


def new_import_lock() -> threading.RLock:
    """Returns a lock for large imports, which a fork waits for: the child could never finish one that is half done."""
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


def beginning_anew(owner: B) -> B:
    """Registers an object whose `begin_anew` is called in the child of a fork, with all mutexes free."""
    _objects.add(owner)
    return owner


def in_child(function: F) -> F:
    """Registers a function that is called in the child of a fork, before any object begins anew."""
    _functions.append(function)
    return function


def keep_for_ever(thing: object) -> None:
    """Keeps a parent's object from being closed in the child: its threads are gone, its connections are shared."""
    _kept.append(thing)


def renamed(writer: str) -> str:
    """Returns the name of the parent's writer in this child; no two processes may write under one."""
    return f"{writer}.{_name[0]}"


def _begin_anew() -> None:
    for mutex in list(_mutexes):
        mutex._at_fork_reinit()  # noqa: SLF001 - as the standard library does with its own
    _name[:] = [uuid4().hex]
    for function in _functions:
        function()
    for each in list(_objects):
        each.begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_begin_anew)
