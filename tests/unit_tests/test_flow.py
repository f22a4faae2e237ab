"""One description of work for threads and tasks, and the lock that both wait for."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langgraph.store.base import GetOp, PutOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.flow import Call, Lock, adrive, batch, drive, embed, embed_query, locked


def run_in_task(flow):
    return asyncio.run(adrive(flow))


BOTH = pytest.mark.parametrize("run", [drive, run_in_task])


def give(value):
    async def asynchronous():
        return value

    return Call(lambda: value, asynchronous)


def fail(error):
    def sync():
        raise error

    async def asynchronous():
        raise error

    return Call(sync, asynchronous)


@BOTH
def test_a_flow_receives_what_its_calls_give(run):
    def flow():
        first = yield give(1)
        second = yield give(2)
        return first, second

    assert run(flow()) == (1, 2)


@BOTH
def test_a_flow_without_calls_gives_its_result(run):
    def flow():
        yield from ()
        return "done"

    assert run(flow()) == "done"


@BOTH
def test_an_error_of_a_call_is_raised_in_the_flow(run):
    def flow():
        try:
            yield fail(KeyError("lost"))
        except KeyError:
            return (yield give("recovered"))

    assert run(flow()) == "recovered"


@BOTH
def test_an_error_that_the_flow_does_not_catch_comes_out(run):
    def flow():
        yield fail(KeyError("lost"))

    with pytest.raises(KeyError, match="lost"):
        run(flow())


@BOTH
def test_a_flow_cleans_up_after_an_error(run):
    cleaned = []

    def flow():
        try:
            yield fail(KeyError("lost"))
        finally:
            cleaned.append(True)

    with pytest.raises(KeyError):
        run(flow())
    assert cleaned == [True]


def test_a_flow_cleans_up_after_an_interrupt():
    cleaned = []

    def flow():
        try:
            yield fail(KeyboardInterrupt())
        finally:
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        drive(flow())
    assert cleaned == [True]


async def test_a_flow_cleans_up_when_its_task_is_cancelled():
    started, cleaned = asyncio.Event(), []

    async def forever():
        started.set()
        await asyncio.Event().wait()

    def flow():
        try:
            yield Call(lambda: None, forever)
        finally:
            cleaned.append(True)

    task = asyncio.create_task(adrive(flow()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


@BOTH
def test_a_batch_runs_its_operations(run):
    store = InMemoryStore()
    run(batch(store, [PutOp(("a",), "k", {"v": 1})]))
    [item] = run(batch(store, [GetOp(("a",), "k")]))
    assert item.value == {"v": 1}


@BOTH
def test_an_empty_batch_asks_the_store_nothing(run):
    assert run(batch(None, [])) == []


@BOTH
def test_texts_are_embedded(run):
    embeddings = DeterministicFakeEmbedding(size=4)
    assert run(embed(embeddings, ["a", "b"])) == embeddings.embed_documents(["a", "b"])


@BOTH
def test_a_query_is_embedded(run):
    embeddings = DeterministicFakeEmbedding(size=4)
    assert run(embed_query(embeddings, "a")) == embeddings.embed_query("a")


@BOTH
def test_no_texts_ask_the_embeddings_nothing(run):
    assert run(embed(None, [])) == []


class Forgetful(Embeddings):
    def embed_documents(self, texts):
        return [[1.0]] * (len(texts) - 1)

    def embed_query(self, text):
        return [1.0]


@BOTH
def test_a_vector_too_few_is_an_error(run):
    with pytest.raises(ValueError, match="2 vectors for 3 texts"):
        run(embed(Forgetful(), ["a", "b", "c"]))


def test_a_lock_excludes_threads_and_tasks_from_each_other():
    lock, inside, most, entered = Lock(), [0], [0], [0]

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
        async def one():
            for _ in range(50):
                await adrive(locked(lock, body()))

        await asyncio.gather(*(one() for _ in range(4)))

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(thread), pool.submit(thread), *(pool.submit(asyncio.run, tasks()) for _ in range(2))]
        for future in running:
            future.result(timeout=60)
    assert (most[0], entered[0]) == (1, 800)


@BOTH
def test_a_locked_flow_gives_the_lock_back(run):
    lock = Lock()

    def body():
        return (yield give(1))

    assert [run(locked(lock, body())) for _ in range(2)] == [1, 1]


@BOTH
def test_a_locked_flow_that_fails_gives_the_lock_back(run):
    lock = Lock()

    def body():
        yield fail(KeyError("lost"))

    for _ in range(2):
        with pytest.raises(KeyError):
            run(locked(lock, body()))


async def test_tasks_get_the_lock_in_the_order_in_which_they_came():
    lock, order = Lock(), []
    lock.acquire()

    async def one(number):
        await lock.aacquire()
        order.append(number)
        lock.release()

    tasks = []
    for number in range(5):
        tasks.append(asyncio.create_task(one(number)))
        await asyncio.sleep(0)
    lock.release()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]


def test_a_thread_that_came_first_is_served_before_a_task():
    lock, order = Lock(), []
    lock.acquire()

    def thread():
        lock.acquire()
        order.append("thread")
        lock.release()

    async def task():
        await lock.aacquire()
        order.append("task")
        lock.release()

    async def late():
        waiting = asyncio.create_task(task())
        await asyncio.sleep(0)
        lock.release()
        await waiting

    worker = threading.Thread(target=thread)
    worker.start()
    while not lock._waiting:
        pass
    asyncio.run(late())
    worker.join(timeout=10)
    assert order == ["thread", "task"]


async def test_a_cancelled_wait_does_not_keep_the_lock():
    lock = Lock()
    lock.acquire()
    waiting = asyncio.create_task(lock.aacquire())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    lock.release()
    await asyncio.wait_for(lock.aacquire(), timeout=10)


async def test_a_wait_that_is_cancelled_when_its_turn_has_come_hands_the_lock_on():
    lock = Lock()
    lock.acquire()
    first = asyncio.create_task(lock.aacquire())
    second = asyncio.create_task(lock.aacquire())
    await asyncio.sleep(0)
    lock.release()  # hands it to `first`, which has not run yet
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, timeout=10)


async def test_a_locked_flow_that_is_cancelled_while_it_waits_never_runs():
    lock, ran = Lock(), []
    lock.acquire()

    def body():
        ran.append(True)
        yield give(1)

    waiting = asyncio.create_task(adrive(locked(lock, body())))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    lock.release()
    assert (ran, lock._held) == ([], False)


async def test_a_locked_flow_that_is_cancelled_inside_gives_the_lock_back():
    lock, started = Lock(), asyncio.Event()

    async def forever():
        started.set()
        await asyncio.Event().wait()

    def body():
        yield Call(lambda: None, forever)

    inside = asyncio.create_task(adrive(locked(lock, body())))
    await started.wait()
    inside.cancel()
    with pytest.raises(asyncio.CancelledError):
        await inside
    await asyncio.wait_for(lock.aacquire(), timeout=10)


def test_an_interrupted_wait_of_a_thread_does_not_keep_the_lock(monkeypatch):
    lock = Lock()
    lock.acquire()
    request = lock._request

    def interrupted():
        turn = request()
        turn.result = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        return turn

    monkeypatch.setattr(lock, "_request", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    lock.release()
    assert not lock._held


def test_cancelling_at_any_moment_leaves_the_lock_free():
    lock = Lock()

    async def main():
        async def one(turns):
            await lock.aacquire()
            for _ in range(turns):
                await asyncio.sleep(0)
            lock.release()

        for delay in range(30):
            tasks = [asyncio.create_task(one(0)) for _ in range(6)]
            for _ in range(delay % 6):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert not lock._held
