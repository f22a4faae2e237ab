"""A worker thread for jobs off the hot path, and locks that are free in the child of a fork.

A worker's key names what is to be worked on (a conversation's scope), not the work itself: a job
reads what there is when it begins. So a key is queued once however often it is submitted, and once
more when it is submitted while it runs.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context
from math import inf
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet

from cachetools import LRUCache

from langchain_ctxbudget.errors import MOST_ERROR_CHARACTERS

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
AFTER_FORK = (
    "Make pipelines and open stores after the fork (gunicorn: without --preload or in `post_fork`; "
    "Celery: in `worker_process_init`; multiprocessing: `spawn`)."
)
_mutexes: WeakSet[Any] = WeakSet()
PATIENCE_SECONDS = 5.0
"""The longest that a job is put off, that an idle thread is kept, and that closing waits for
what is still to be written, or for a job that has begun."""
PAUSE_SECONDS = 0.25
"""Jobs that can wait, such as learning, begin once nobody has asked for something else for so
long."""
_POLL_SECONDS = 0.005
_MOST_FAILURES = 256


def new_mutex() -> threading.Lock:
    """Returns a lock that is free in the child of a fork, where no thread holds it any more."""
    mutex = threading.Lock()
    _mutexes.add(mutex)
    return mutex


def _free_mutexes() -> None:
    for mutex in list(_mutexes):
        mutex._at_fork_reinit()  # noqa: SLF001


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_free_mutexes)


def keep_newest(kept: dict[K, V], key: K, value: V, most: int) -> V:
    """Puts a value at the end of a dictionary, which lets go of its first ones beyond so many.

    Returns the value.
    """
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > most:
        del kept[next(iter(kept))]
    return value


class Cancelled(threading.Event):
    """True once the worker is closed; a job looks at it between its steps, and before it writes."""

    __bool__ = threading.Event.is_set


class Worker(Generic[K]):
    """Runs jobs in a thread of its own, first come, first served, never two at a time.

    The thread begins with the first job, and ends when it has been idle for a while or the worker
    is closed. It is a daemon: a job that hangs holds up the jobs behind it, but neither `close` nor
    the end of the process. Every job runs in an empty context (`contextvars`), and its exception
    becomes the failure of its key. A job begins once nobody has called `rest` for `pause_seconds`.
    """

    def __init__(self, run: Callable[[K, Cancelled], None], *, pause_seconds: float = 0.0) -> None:
        self._run = run
        self._pause_seconds = pause_seconds
        self._rests_until = 0.0
        self._failures: LRUCache[K, str] = LRUCache(_MOST_FAILURES)
        self._closed = Cancelled()
        # Reentrant, because the garbage collector may close the worker in the middle of anything.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: dict[K, None] = {}
        self._running: K | None = None
        self._thread: threading.Thread | None = None

    def submit(self, key: K) -> bool:
        """Asks for a job for the key that begins after this call.

        Returns False where it is not queued.
        """
        with self._changed:
            if self._closed:
                return False
            if self._thread is None and not self._start_thread():
                return False
            self._waiting[key] = None
            self._changed.notify_all()
            return True

    def _start_thread(self) -> bool:
        thread = threading.Thread(target=self._work, name="ctxbudget-background", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there are too many, or the interpreter is about to end
            return False
        self._thread = thread
        return True

    def has(self, key: K) -> bool:
        """Tells whether a job for a key is running or queued."""
        with self._changed:
            return key in self._waiting or key == self._running

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Waits in this thread until nothing is queued or running.

        Returns False when that took too long.
        """
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_seconds)

    async def aflush(self, timeout_seconds: float | None = None) -> bool:
        """Waits in this task until nothing is queued or running; see `flush`."""
        until = inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self.flush(0):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    def _is_idle(self) -> bool:
        if self._rests_until:
            self._rests_until = 0.0
            self._changed.notify_all()
        return not self._waiting and self._running is None

    def rest(self) -> None:
        """Puts jobs off for a while, because somebody waits for something else.

        A flush ends the pause.
        """
        self._rests_until = time.monotonic() + self._pause_seconds

    def wait_for_pause(self) -> None:
        """Waits, within a limit, until nobody has called `rest` for a while.

        Jobs call it between their steps.
        """
        with self._changed:
            latest = time.monotonic() + PATIENCE_SECONDS
            while not self._closed:
                seconds_left = min(self._rests_until, latest) - time.monotonic()
                if seconds_left <= 0:
                    break
                self._changed.wait(seconds_left)

    def failure_of(self, key: K) -> str | None:
        """Returns the exception of the key's last job as text.

        None where it succeeded or was never run.
        """
        with self._changed:
            return self._failures.get(key)

    def close(self) -> None:
        """Starts no more jobs and tells the running one to stop; does not wait for it."""
        with self._changed:
            self._closed.set()
            self._waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        """Runs jobs until the worker is closed, or has had nothing to do for a while."""
        while True:
            with self._changed:
                if not self._take_next():
                    self._thread = None
                    return
                key = cast("K", self._running)
            failure = self._run_one(key)
            with self._changed:
                self._running = None
                self._failures.pop(key, None)
                if failure is not None:
                    self._failures[key] = failure
                self._changed.notify_all()
            del key  # it names a user

    def _take_next(self) -> bool:
        """Waits for a job and takes it; returns False where there is none. Under the lock."""
        self._changed.wait_for(lambda: self._waiting or self._closed, PATIENCE_SECONDS)
        if self._waiting:
            self.wait_for_pause()
        if self._closed or not self._waiting:
            return False
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._running = key
        return True

    def _run_one(self, key: K) -> str | None:
        """Runs a job, and returns its exception as text; None where it succeeded."""
        try:
            Context().run(self._run, key, self._closed)
        except BaseException as error:  # noqa: BLE001 - a cancellation or an exit ends only the job
            failure = type(error).__name__
            with suppress(Exception):  # one that cannot be told is a failure, too
                failure = f"{failure}: {error}"[:MOST_ERROR_CHARACTERS]
            return failure
        return None
