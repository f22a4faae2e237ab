"""The store of the agent on LangGraph Server: Chroma, in place of the server's own.

`langgraph.json` names `generate_store`; the server opens the store when it starts, gives it to every run, and closes it
at its end. CHROMA_URL names a Chroma server, for several server processes; CHROMA_FOLDER a folder, for one; without
either it is in memory. As a script it writes an item and reads it.

For PostgreSQL nothing of this is needed: leave `"store"` out of `langgraph.json`, and the server gives its own store to
every run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_ctxbudget import ChromaStore


@asynccontextmanager
async def generate_store() -> AsyncIterator[ChromaStore]:
    """Open the store, and close it when the server ends."""
    where: dict[str, Any] = {}
    if url := os.environ.get("CHROMA_URL"):
        where["url"] = url
    elif folder := os.environ.get("CHROMA_FOLDER"):
        where["path"] = folder
    store = await asyncio.to_thread(ChromaStore, **where)  # it blocks while it opens
    try:
        yield store
    finally:
        await asyncio.to_thread(store.close)


async def main() -> None:
    """Write an item and read it, as a run of the agent does."""
    async with generate_store() as store:
        await store.aput(("notes", "developer"), "home", {"city": "Lisbon"})
        item = await store.aget(("notes", "developer"), "home")
        print(f"{store!r} has {item.value if item else 'nothing'}")


if __name__ == "__main__":
    asyncio.run(main())
