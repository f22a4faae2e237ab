"""Chroma's clients: one for memory, a folder or a server, and for a server one more for every event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from chromadb.api import ServerAPI
from chromadb.api.async_client import AsyncClient
from chromadb.api.async_fastapi import AsyncFastAPI
from chromadb.api.client import Client
from chromadb.api.fastapi import FastAPI
from chromadb.api.models.AsyncCollection import AsyncCollection
from chromadb.api.models.Collection import Collection
from chromadb.config import Settings, System
from typing_extensions import override

from langchain_ctxbudget.errors import StoreError

CLOUD_HOSTS = (".trychroma.com",)
CLOUD_CONNECTIONS = 10
"""Reads, or writes, that Chroma Cloud takes of one collection at a time."""

TIMEOUT = (10.0, 120.0, 120.0, None)
"""Seconds to connect, to read, to write, to wait for a free connection; Chroma itself would wait for ever."""


class _Client(Client):
    """A client with a Chroma of its own; `chromadb.EphemeralClient` shares one with the whole process."""

    def __init__(self, server: ServerAPI, tenant: str, database: str) -> None:
        self._server, self.tenant, self.database = server, tenant, database


class _BlockingApi(FastAPI):
    """Chroma's HTTP client, with time limits and an end."""

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self._session.timeout = TIMEOUT

    def close(self) -> None:
        self._session.close()


class _AsyncApi(AsyncFastAPI):
    """Chroma's async HTTP client, with time limits and connections of its own.

    Chroma keeps the connections of all its clients in one place: a second one would send the headers of the first.
    """

    def __init__(self, system: System) -> None:
        super().__init__(system)
        self._clients = {}

    @override
    def _get_client(self) -> Any:  # httpx's client; another room is the one that imports httpx
        client = super()._get_client()
        client.timeout = TIMEOUT
        return client

    async def aclose(self) -> None:
        await self._cleanup()


class _AsyncClient(AsyncClient):
    """An async client that belongs to one event loop; Chroma's own is never forgotten once it is made."""

    def __init__(self, server: _AsyncApi, tenant: str, database: str) -> None:
        self._server, self.tenant, self.database = server, tenant, database

    def twin(self, collection: Collection) -> AsyncCollection:
        """The same collection, to be awaited."""
        model = collection._model  # noqa: SLF001 - saves a request per event loop
        return AsyncCollection(self._server, model, embedding_function=None)


_Keeper = AsyncGenerator[None, None]
_keepers: dict[_AsyncClient, tuple[asyncio.AbstractEventLoop, _Keeper]] = {}
_closing: set[asyncio.Task[None]] = set()


async def _keep(client: _AsyncClient, api: _AsyncApi) -> _Keeper:
    """Close a client with its event loop: a loop that ends closes the async generators that it has begun."""
    try:
        yield
    finally:
        _keepers.pop(client, None)
        await api.aclose()


async def _end(keeper: _Keeper) -> None:
    await keeper.aclose()


def _end_soon(keeper: _Keeper) -> None:
    task = asyncio.get_running_loop().create_task(_end(keeper))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


class Server:
    """A Chroma server: its blocking client, and an async client for every event loop that asks for one."""

    def __init__(self, url: str, headers: Mapping[str, str], tenant: str, database: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StoreError(f"{url!r} is no URL of a Chroma server. Give one like 'http://localhost:8000'.")
        self.is_cloud = parts.hostname.endswith(CLOUD_HOSTS)
        self.where = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._about: dict[str, Any] = {
            "anonymized_telemetry": False,
            "chroma_server_host": url,
            "chroma_server_http_port": 8000,  # asked for, and not used where the host is a URL
            "chroma_server_headers": dict(headers),
            # Chroma's async client trusts every certificate unless told not to.
            "chroma_server_ssl_verify": True if parts.scheme == "https" else None,
            "chroma_http_max_connections": CLOUD_CONNECTIONS if self.is_cloud else None,
        }
        self._scope = (tenant, database)
        self._blocking = self._system().instance(_BlockingApi)
        self.client = _Client(self._blocking, *self._scope)
        self._clients: dict[asyncio.AbstractEventLoop, _AsyncClient] = {}

    def _system(self) -> System:
        return System(Settings(**self._about))

    async def here(self) -> _AsyncClient:
        """The client of the event loop that runs."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        return client if client and client in _keepers else await self._open(loop)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> _AsyncClient:
        for known, (home, _) in list(_keepers.items()):
            if home.is_closed():  # without ending its generators
                _keepers.pop(known, None)
        for each in list(self._clients):
            if each.is_closed():
                self._clients.pop(each, None)
        api = self._system().instance(_AsyncApi)
        api.pre_flight_checks = self._blocking.pre_flight_checks
        client = self._clients[loop] = _AsyncClient(api, *self._scope)
        keeper = _keep(client, api)
        _keepers[client] = (loop, keeper)
        await anext(keeper)
        return client

    async def find(self, method: str, **arguments: Any) -> Collection:  # noqa: ANN401 - Chroma's
        """Get or create a collection; what is found serves the blocking client too."""
        found = await getattr(await self.here(), method)(**arguments)
        return Collection(self._blocking, found._model, embedding_function=None)  # noqa: SLF001 - saves a request

    def close(self) -> None:
        """Close the blocking client now, the others as soon as their event loops come to it."""
        self._blocking.close()
        for loop, client in list(self._clients.items()):
            if (kept := _keepers.get(client)) and loop.is_running():
                loop.call_soon_threadsafe(_end_soon, kept[1])

    async def aclose(self) -> None:
        """Close the client of this event loop, and wait for it."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client and (kept := _keepers.get(client)):
            await kept[1].aclose()


def start(folder: Path | None) -> tuple[Client, System]:
    """A Chroma in this process: of a folder, or in memory."""
    settings = Settings(
        anonymized_telemetry=False, is_persistent=folder is not None, persist_directory=str(folder or "")
    )
    system = System(settings)
    system.start()
    return _Client(system.instance(ServerAPI), Client.tenant, Client.database), system  # type: ignore[type-abstract]
