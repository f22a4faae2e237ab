"""The thread that deletes what has expired, again and again."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future

_logger = logging.getLogger(__name__)

DEFAULT_MINUTES = 5.0
"""Between two sweeps, as in LangGraph's stores."""


class Sweeper:
    """Calls a method from time to time, in a thread that does not keep the method's object alive."""

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = weakref.WeakMethod(sweep)
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self, minutes: float) -> Future[None]:
        """Begin, unless it has; cancelling the future ends it."""
        if self._thread is None or not self._thread.is_alive():
            self._stop = threading.Event()
            arguments = (self._sweep, self._stop, minutes * 60)
            self._thread = threading.Thread(target=_run, args=arguments, daemon=True, name="ttl-sweeper")
            self._thread.start()
        stop = self._stop
        running: Future[None] = Future()
        running.add_done_callback(lambda ended: stop.set() if ended.cancelled() else None)
        return running

    def tell(self) -> None:
        """Let it end soon, without waiting for it."""
        self._stop.set()

    def stop(self, timeout: float | None = None) -> bool:
        """Let it end, and wait for it; whether it did within the timeout (seconds)."""
        self.tell()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()


def _run(sweep: weakref.WeakMethod[Callable[[], int]], stop: threading.Event, seconds: float) -> None:
    while not stop.wait(seconds):
        method = sweep()
        if method is None:
            return
        try:
            if swept := method():
                _logger.info("Swept %d expired items", swept)
        except Exception:
            if not stop.is_set():
                _logger.exception("A sweep failed; the next one follows in %g seconds", seconds)
        del method
