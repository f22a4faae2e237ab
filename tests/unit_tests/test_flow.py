"""One description of work for threads and tasks, and the lock that both wait for."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from langchain_ctxbudget.flow import Call, Lock, adrive, drive, locked


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
