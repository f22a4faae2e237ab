"""Threads: one that runs jobs off the hot path, and what a fork must not break.

A worker's key names what is to be worked on (a conversation's scope), not the work itself: a job reads what there is
when it begins. So a key is queued once however often it is submitted, and once more when it is submitted while it runs.

In the child of a fork only the thread that forked goes on: a lock that another one held would be held there for ever,
and its work is half done. So locks, objects and names begin anew.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from contextvars import Context, ContextVar
from typing import Any, Generic, TypeVar
from uuid import uuid4
from weakref import WeakSet

from langchain_ctxbudget.errors import BlockedLoopError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
B = TypeVar("B")
F = TypeVar("F", bound=Callable[[], None])

_mutexes: WeakSet[Any] = WeakSet()
_objects: WeakSet[Any] = WeakSet()
_functions: list[Callable[[], None]] = []
_kept: list[object] = []
_name = ""


class cached_property(functools.cached_property[T]):  # noqa: N801 - as it is known
    """The standard library's without its lock of Python 3.11, which no child of a fork could let go."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()


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
    return f"{writer}.{_name}"


def _begin_anew() -> None:
    global _name  # noqa: PLW0603 - of this process
    for mutex in list(_mutexes):
        mutex._at_fork_reinit()  # noqa: SLF001 - as the standard library does with its own
    _name = uuid4().hex
    for function in _functions:
        function()
    for each in list(_objects):
        each.begin_anew()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_begin_anew)


class Cancelled(threading.Event):
    """True once the worker is closed; a job looks at it between its steps, and before it writes."""

    __bool__ = threading.Event.is_set


_job: ContextVar[object] = ContextVar("the background worker that this code is a job of", default=None)
_MOST_FAILURES, _MOST_FAILURE_CHARACTERS = 256, 500
"""Keys whose last failure is kept, the oldest going first, and characters of one."""
_LONGEST_REST_SECONDS = 5.0
"""Jobs begin after this, however much else there is to do."""
_LOOK_SECONDS = 0.005
"""How often a task that flushes looks if everything is done."""


class BackgroundWorker(Generic[K]):
    """Runs jobs in a thread of its own, first come, first served, never two at a time.

    The thread begins with the first job and ends when it has been idle for a while, and when the worker is closed. It
    is a daemon: a job that hangs holds up the jobs behind it, but neither `close` nor the end of the process. In the
    child of a fork the worker has nothing queued. Every job runs in an empty context (`contextvars`).

    Args:
        run: does the work for a key; its exception becomes the key's failure.
        most_waiting: the most keys that wait, beside the one that runs.
        idle_seconds: how long the thread waits for a job before it ends.
        pause_seconds: how long nobody must have called `rest` before a job begins.

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
        idle_seconds: float = 5.0,
        pause_seconds: float = 0.0,
    ) -> None:
        self._run, self._most_waiting, self._idle_seconds = run, most_waiting, idle_seconds
        self._pause_seconds, self._rests_until = pause_seconds, 0.0
        self._failures: dict[K, str] = {}
        self._closed = Cancelled()
        self.begin_anew()
        beginning_anew(self)

    def begin_anew(self) -> None:
        """Forgets what is under way; in the child of a fork its thread is gone, and its locks may be held."""
        closed, self._closed = bool(self._closed), Cancelled()
        if closed:
            self._closed.set()
        # Reentrant, because the garbage collector may close the worker in the middle of anything.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: dict[K, None] = {}
        self._running: list[K] = []
        self._thread: threading.Thread | None = None

    def submit(self, key: K) -> bool:
        """Asks for a job for the key that begins after this call; never waits for one.

        Returns:
            False where it is not queued: the worker is closed, the queue is full or no thread can be started.
        """
        with self._changed:
            if key in self._waiting:
                return True
            if self._closed or len(self._waiting) >= self._most_waiting:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="ctxbudget-background", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # there are too many, or the interpreter is about to end
                    return False
                self._thread = thread
            self._waiting[key] = None
            self._changed.notify_all()
            return True

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Waits in this thread until nothing is queued or running; returns False when that took too long.

        Raises:
            BlockedLoopError: a job of this worker calls it, and would wait for itself.
        """
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_seconds)

    async def aflush(self, timeout_seconds: float | None = None) -> bool:
        """Waits in this task until nothing is queued or running; see `flush`."""
        until = time.monotonic() + (float("inf") if timeout_seconds is None else timeout_seconds)
        while not self._is_idle():
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    def _is_idle(self) -> bool:
        with self._changed:
            if self._running and _job.get() is self._running:
                raise BlockedLoopError(
                    f"A background job (of {self._running[0]!r}) waits for all background jobs, and so for itself. "
                    "Flush from outside of the job, for instance after the call that submitted it"
                )
            if self._rests_until:
                self._rests_until = 0.0
                self._changed.notify_all()
            return not (self._waiting or self._running)

    def rest(self) -> None:
        """Begins no job for a while, because somebody waits for something else; whoever flushes ends that."""
        self._rests_until = time.monotonic() + self._pause_seconds

    def wait_for_pause(self) -> None:
        """Waits until nobody has asked for `rest` for a while, but not for ever; for jobs between their steps."""
        with self._changed:
            end = time.monotonic() + _LONGEST_REST_SECONDS
            while not self._closed:
                left = min(self._rests_until, end) - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def failure_of(self, key: K) -> str | None:
        """Returns the exception of the key's last job as text; None where it succeeded or was never run."""
        return self._failures.get(key)

    def close(self) -> None:
        """Begins nothing any more and tells the running job to stop; does not wait for it."""
        with self._changed:
            self._closed.set()
            self._waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while running := self._next():
            failure = self._attempt(running)
            with self._changed:
                if self._running is not running:  # it began before a fork
                    return
                self._running = []
                self._failures.pop(running[0], None)
                if failure is not None:
                    self._failures[running[0]] = failure
                    if len(self._failures) > _MOST_FAILURES:
                        del self._failures[next(iter(self._failures))]
                self._changed.notify_all()
            del running  # its key names a user

    def _next(self) -> list[K]:
        """Waits for a job and returns its key in a list of its own; an empty one where the thread has to end."""
        with self._changed:
            # Another thread if the start of this one was interrupted, or if a job forked and this is the child.
            if self._thread is not threading.current_thread():
                return []
            self._changed.wait_for(lambda: self._waiting or self._closed, self._idle_seconds)
            if self._waiting:
                self.wait_for_pause()
            if self._closed or not self._waiting:
                self._thread = None
                return []
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._running = [key]
            return self._running

    def _attempt(self, running: list[K]) -> str | None:
        """Runs a job; returns its failure."""

        def run() -> None:
            _job.set(running)
            self._run(running[0], self._closed)

        try:
            Context().run(run)
        except BaseException as error:  # noqa: BLE001 - also a cancellation or an exit is the end of the job only
            try:
                return f"{type(error).__name__}: {error}"[:_MOST_FAILURE_CHARACTERS]
            except Exception:  # noqa: BLE001 - an error that cannot be told is still a failure
                return type(error).__name__
        return None
