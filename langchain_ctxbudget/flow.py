"""Sync and async from one description.

A step that needs I/O is a generator that yields a `Call` for its result.

`drive` runs it with the blocking form of every call, `adrive` with the awaitable one, as httpx does
with its `auth_flow`.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias, TypeVar, cast

from langchain_core.embeddings import Embeddings
from langgraph.store.base import BaseStore, Op, PutOp, Result

from langchain_ctxbudget.errors import BlockedLoopError, CtxBudgetError, StoreError

T = TypeVar("T")
F = TypeVar("F")
_log = logging.getLogger(__name__)
_MOST_COLLISIONS = 100
"""How often a batch is tried again that met another thread's write."""
_NO_DRIVERS = ("builtins", "asyncio", "langgraph")
"""Packages whose errors are passed on: they tell of a wrong call, or a store of the application
chose them."""


@dataclass(frozen=True, slots=True)
class Call:
    """One piece of I/O, in its blocking and its awaitable form."""

    sync: Callable[[], Any]
    asynchronous: Callable[[], Awaitable[Any]]
    writes: bool = False
    """True for a write: once begun it is waited for, also when its task is cancelled."""


Flow: TypeAlias = Generator[Call, Any, T]
"""A description of work with I/O in it that ends with a `T`."""


def in_thread(work: Callable[[], Any]) -> Call:
    """Returns a call that runs long work, or the application's, out of the way of an event loop."""

    def call() -> object:
        try:
            return work()
        except StopIteration as error:  # neither a generator nor a future can carry it
            raise RuntimeError(
                "the function raised StopIteration, as `next` does where nothing is left"
            ) from error

    return Call(call, lambda: asyncio.to_thread(call))


def batch(store: BaseStore, operations: Iterable[Op]) -> Flow[list[Result]]:
    """Runs store operations as one batch; none at all costs nothing."""
    todo = list(operations)
    if not todo:
        return []
    writes = any(isinstance(operation, PutOp) for operation in todo)
    call = Call(lambda: store.batch(todo), lambda: store.abatch(todo), writes)
    for collisions in count():
        try:
            result: list[Result] = yield call
        except RuntimeError as error:
            # LangGraph's `InMemoryStore` notices in the middle of a read that another thread
            # writes; nothing is done.
            if collisions == _MOST_COLLISIONS or "changed size during iteration" not in str(error):
                raise
        except CtxBudgetError:
            raise
        except Exception as error:
            if not _is_of_a_backend(error):
                raise
            raise _backend_failure(store, error) from error
        else:
            break
    return result


def _backend_failure(store: BaseStore, error: Exception) -> StoreError:
    reason = " ".join(str(error).split())
    return StoreError(
        f"The store {type(store).__name__}, or the embeddings of its index, failed "
        f"({type(error).__name__}: {reason}). Check that its database runs, can be reached and has "
        "room. A store with a connection pool connects again by itself; one with a single "
        "connection has to be opened again"
    )


def _is_of_a_backend(error: Exception) -> bool:
    """Returns whether an error is one of a database's driver, such as psycopg's.

    Else it is one of a wrong call.
    """
    return type(error).__module__.partition(".")[0] not in _NO_DRIVERS


def embed(embeddings: Embeddings, texts: list[str]) -> Flow[list[list[float]]]:
    """Embeds texts as documents; none at all costs nothing.

    `ValueError` where it is not one vector per text.
    """
    if not texts:
        return []
    vectors: list[list[float]] = yield Call(
        lambda: embeddings.embed_documents(texts), lambda: embeddings.aembed_documents(texts)
    )
    if len(vectors) != len(texts):
        raise ValueError(f"the embeddings gave {len(vectors)} vectors for {len(texts)} texts")
    return vectors


def embed_query(embeddings: Embeddings, text: str) -> Flow[list[float]]:
    """Embeds one text as a query."""
    vector: list[float] = yield Call(
        lambda: embeddings.embed_query(text), lambda: embeddings.aembed_query(text)
    )
    return vector


def with_fallback(flow: Flow[T], fallback: F, what: str, failures: list[str]) -> Flow[T | F]:
    """Runs a flow that a prompt can do without.

    Where it fails, `failures` gets a line, and the fallback stands in.
    """
    try:
        return (yield from flow)
    except Exception as error:  # noqa: BLE001
        failures.append(f"{what}: {type(error).__name__}: {error}")
        return fallback


def drive(flow: Flow[T]) -> T:
    """Runs a flow to its end in this thread."""
    result = None
    error = None
    try:
        while True:
            call = flow.send(result) if error is None else flow.throw(error)
            try:
                result = call.sync()
                error = None
            except Exception as caught:  # noqa: BLE001 - the flow decides what an error means
                result = None
                error = caught
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        flow.close()


async def adrive(flow: Flow[T]) -> T:
    """Runs a flow to its end in this task."""
    result = None
    error = None
    try:
        while True:
            call = flow.send(result) if error is None else flow.throw(error)
            try:
                result = await (_to_its_end(call) if call.writes else call.asynchronous())
                error = None
            except Exception as caught:  # noqa: BLE001 - the flow decides what an error means
                result = None
                error = caught
    except StopIteration as done:
        return cast("T", done.value)
    finally:
        flow.close()


async def _to_its_end(call: Call) -> Any:  # noqa: ANN401 - a call gives anything
    """Awaits a call.

    When cancelled, waits for its end first, or it would go on after its lock is let go.
    """
    task = asyncio.ensure_future(call.asynchronous())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):  # again: it is waited for all the same
                await asyncio.wait([task])
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.warning(
                "a write has failed whose caller was cancelled: %s: %s", type(error).__name__, error
            )
        raise


class Lock:
    """A lock that threads wait for and tasks await, first come, first served."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.holder: object = None
        self._held = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the task that holds it; None where a thread does."""
        self._waiting: deque[tuple[Future[None], asyncio.AbstractEventLoop | None]] = deque()

    def _request(self, loop: asyncio.AbstractEventLoop | None = None) -> Future[None]:
        turn: Future[None] = Future()
        with self._mutex:
            if self._held:
                self._waiting.append((turn, loop))
            else:
                self._held = True
                self._loop = loop
                turn.set_result(None)
        return turn

    def acquire(self) -> None:
        """Waits in this thread.

        `BlockedLoopError` where a task of its event loop holds it, so that it never ends.
        """
        turn = self._request()
        here = running_loop()
        with self._mutex:
            ahead = {self._loop, *(loop for _, loop in self._waiting)}
        if here is not None and here in ahead and not turn.done():
            self._withdraw(turn)
            raise BlockedLoopError(
                "A task of this event loop works on the conversation, and a blocking call would "
                "stop it for ever. Await the async method instead, for instance `aassemble`"
            )
        try:
            turn.result()
        except BaseException:
            self._withdraw(turn)
            raise

    async def aacquire(self) -> None:
        """Waits in this task; a cancelled wait does not keep the lock."""
        turn = self._request(asyncio.get_running_loop())
        try:
            await asyncio.wrap_future(turn)
        except BaseException:
            self._withdraw(turn)
            raise

    def _withdraw(self, turn: Future[None]) -> None:
        if not turn.cancel():
            self.release()

    def release(self) -> None:
        """Hands the lock to the next that waits."""
        with self._mutex:
            self._loop = None
            while self._waiting:
                turn, loop = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    self._loop = loop
                    turn.set_result(None)
                    return
            self._held = False


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Returns the event loop that this thread runs, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_held: ContextVar[tuple[object, ...]] = ContextVar(
    "holders of locks for which this code works", default=()
)


def locked(lock: Lock, flow: Flow[T]) -> Flow[T]:
    """Runs a flow under a lock; raises `BlockedLoopError` if the caller itself already holds it."""
    before = _held.get()
    if lock.holder in before:
        raise BlockedLoopError(
            "A function that is called while a prompt is assembled used the same conversation, and "
            "would wait for itself. Read the conversation before, or with a pipeline over another "
            "store"
        )
    yield Call(lock.acquire, lock.aacquire)
    lock.holder = object()
    _held.set((*before, lock.holder))
    try:
        return (yield from flow)
    finally:
        _held.set(before)
        lock.holder = None
        lock.release()
