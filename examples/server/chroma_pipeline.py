"""Two workers of a service answer in one conversation, which a Chroma server keeps.

With CHROMA_URL set they use that server; otherwise one is started here, over a folder that is
deleted at the end.

    python examples/server/chroma_pipeline.py
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget import ChromaStore, ContextPipeline
from langchain_ctxbudget.errors import StoreError

CONVERSATION: dict[str, Any] = {"user_id": "ada@example.com", "conversation_id": "trip"}


@contextlib.contextmanager
def chroma_server() -> Iterator[str]:
    """The address of a Chroma server: the one that CHROMA_URL names, else one of our own."""
    if url := os.environ.get("CHROMA_URL"):
        yield url
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    chroma = Path(sys.executable).with_name("chroma")
    with tempfile.TemporaryDirectory() as folder:
        command = [str(chroma), "run", "--path", folder, "--host", "127.0.0.1", "--port", port]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def open_store(url: str, seconds: float = 30) -> ChromaStore:
    """A store on a server, which may still be starting."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            return ChromaStore(url=url)
        except StoreError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)


async def answer(worker: ContextPipeline, request: str, question: str, reply: str) -> None:
    """What a worker does with a request.

    Its id makes the messages' ids, so that a retry stores nothing twice.
    """
    context = await worker.aassemble(question, **CONVERSATION)
    known = [message.text for message in context.messages[1:-1]]
    print(f"{question}\n  the model is told: {' | '.join(known) or 'nothing yet'}")
    said = [
        HumanMessage(question, id=f"{request}-question"),
        AIMessage(reply, id=f"{request}-answer"),
    ]
    await worker.aadd_messages(said, **CONVERSATION)


async def main() -> None:
    """Two workers with a store and a pipeline each, as two machines have them."""
    with chroma_server() as url, open_store(url) as one, open_store(url) as other:
        settings = {"max_context_tokens": 2_000}
        first, second = (
            ContextPipeline(settings, system_prompt="You plan trips.", store=s)
            for s in (one, other)
        )
        await answer(first, "r1", "I land in Lisbon on the 3rd of May.", "Noted.")
        await answer(second, "r2", "I leave on the 9th.", "Six nights, then.")
        both = (
            answer(first, "r3", "Is it warm?", "Mostly."),
            answer(second, "r4", "How long do I stay?", "Six nights."),
        )
        await asyncio.gather(*both)
        messages = await first.aget_messages(**CONVERSATION)
        print(
            f"{len(messages)} messages, in one order for both: {messages == await second.aget_messages(**CONVERSATION)}"
        )
        lines = await first.aexport_user(user_id=CONVERSATION["user_id"])
        print(f"{len(lines)} records of {CONVERSATION['user_id']} are on the server")
        print(f"{await second.aerase_user(user_id=CONVERSATION['user_id'])} were erased")


if __name__ == "__main__":
    asyncio.run(main())
