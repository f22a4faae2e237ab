"""Opening a Chroma: in memory, in a folder that the stores of one process share, or on a server."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from urllib.parse import urlsplit

import chromadb_rust_bindings as engine  # type: ignore[import-untyped]
from chromadb.api import ServerAPI
from chromadb.api.client import Client
from chromadb.api.rust import RustBindingsAPI
from chromadb.config import Settings, System
from overrides import override

from langchain_ctxbudget import errors
from langchain_ctxbudget.stores.bulk import DATABASE_FILE
from langchain_ctxbudget.stores.chroma_files import Folder
from langchain_ctxbudget.stores.chroma_records import Records
from langchain_ctxbudget.worker import AFTER_FORK

TIMEOUT = (10.0, 120.0, 120.0, None)
"""Seconds to connect, to read, to write, to wait for a free connection; Chroma itself would wait
for ever."""

_opened: "list[OpenChroma]" = []
"""All that are open. In the child of a fork those of the parent stay here for ever: its threads are
not there, and its locks and connections are shared."""
_opening = threading.RLock()  # a garbage collection inside the lock may release another store
_started_in: set[int] = set()
"""The processes in which Chroma's engine was started: this one, and those it was forked from."""


class OpenChroma:
    """An open Chroma, which the stores of one process over one folder share.

    A Chroma in this process does one thing at a time, under `lock`; a server does many.
    """

    def __init__(
        self,
        client: "OwnClient",
        where: str,
        *,
        folder: Folder | None = None,
        disconnect: Callable[[], object] | None = None,
    ) -> None:
        """Notes that a Chroma is open.

        Args:
            client: the client of the engine, or of the server.
            where: its folder or URL, for errors.
            folder: the folder; None for a Chroma in memory or on a server.
            disconnect: closes the connections to a server; None for a Chroma in this process.
        """
        self.where = where
        self.is_server = disconnect is not None
        self.process = os.getpid()
        self.stores = 1
        self.client = client
        self.lock: AbstractContextManager[object] = threading.RLock()
        if self.is_server:
            self.lock = nullcontext()
        self.records = Records(client, is_private=not self.is_server, note_writes=self._note_writes)
        self._folder = folder
        self._disconnect = disconnect
        self._has_failed = False
        """True after an error of the engine over a folder, whose connections may then hold on to
        what they had begun."""
        _opened.append(self)

    @property
    def place(self) -> str:
        """The folder or the server as an argument of `ChromaStore`; empty for a store in memory."""
        if self._folder is not None:
            return repr(self.where)
        if self._disconnect is not None:
            return f"url={self.where!r}"
        return ""

    def is_over(self, path: Path) -> bool:
        """Returns whether this process has opened it over a folder."""
        is_there = self._folder is not None and self._folder.path == path
        return is_there and self.process == os.getpid()

    def release(self) -> None:
        """Lets go of it; the last store of a folder closes it, but not in the child of a fork."""
        if self.process != os.getpid():
            return
        with _opening:
            self.stores -= 1
            if not self.stores:
                _opened.remove(self)
                self._close()

    def _close(self) -> None:
        """Stops the engine, or closes the connections, and leaves the folder."""
        if self._disconnect:
            self._disconnect()
        else:
            self.client.own_system.stop()
        if self._folder:
            self._folder.leave()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Notes whether the engine fails, as on a full disk; starts it anew if it has failed."""
        if self._folder and self._has_failed:
            self.client.own_system.stop()
            self._folder.wait_until_closed()
            self._restart(self._folder)
        try:
            yield
        except errors.CtxBudgetError:
            raise
        except BaseException:
            self._has_failed = True
            raise

    def vacuum(self) -> None:
        """Rewrites a folder's database without what was deleted, while the engine is stopped."""
        if self._folder is None:
            return
        self.client.own_system.stop()
        self._has_failed = True  # until it runs again
        try:
            self._folder.vacuum()
        finally:
            self._restart(self._folder)

    def _restart(self, folder: Folder) -> None:
        self.client = _start(folder.path)
        self.records.use(self.client)
        self._has_failed = False

    def _note_writes(self, count: int) -> None:
        if self._folder:
            self._folder.wrote(count)


# The engine and its client


class Engine(RustBindingsAPI):
    """Chroma's engine over a folder, with its index in memory.

    Nothing searches that index. In files, which Chroma rewrites in place, it makes a folder
    unreadable where a process is killed or the disk is full in that moment, and keeps the ids of
    deleted records.
    """

    @override
    def start(self) -> None:
        """Opens the database of the folder."""
        folder = Path(self._system.settings.require("persist_directory"))
        database = engine.SqliteDBConfig(
            hash_type=engine.MigrationHash.MD5,
            migration_mode=engine.MigrationMode.Apply,
            url=str(folder / DATABASE_FILE),
        )
        self.bindings = engine.Bindings(
            allow_reset=False,
            sqlite_db_config=database,
            persist_path=None,
            hnsw_cache_size=self.hnsw_cache_size,
        )

    @override
    def stop(self) -> None:
        """Closes the database."""
        vars(self).pop("bindings", None)  # it may be stopped twice


class OwnClient(Client):
    """A client with a Chroma of its own.

    Chroma's share one in a process, and ask a server three times to open.
    """

    def __init__(
        self, settings: Settings, tenant: str = "default_tenant", database: str = "default_database"
    ) -> None:
        """Starts an engine, or connects to a server, as the settings say."""
        self.own_system = System(settings)
        self.own_system.start()
        self._server = self.own_system.instance(ServerAPI)  # type: ignore[type-abstract]
        self.tenant = tenant
        self.database = database


def _start(folder: Path | None) -> OwnClient:
    """Starts Chroma's engine over a folder, or in memory."""
    settings = Settings(anonymized_telemetry=False)
    if folder:
        settings = Settings(
            anonymized_telemetry=False,
            chroma_api_impl=f"{Engine.__module__}.{Engine.__qualname__}",
            is_persistent=True,
            persist_directory=str(folder),
        )
    with typed_errors(_name_of(folder)):
        return OwnClient(settings)


def _name_of(folder: Path | None) -> str:
    return str(folder or "in memory")


# Opening


def open_local(path: Path | None) -> OpenChroma:
    """Opens a folder, or returns it where this process has it open.

    Without one, makes a Chroma in memory.
    """
    with _opening:
        if path is None:
            _begin_in_this_process()
            return OpenChroma(_start(None), _name_of(None))
        for chroma in _opened:
            if chroma.is_over(path):
                chroma.stores += 1
                return chroma
        return _open_folder(path)


def _open_folder(path: Path) -> OpenChroma:
    with ExitStack() as undo:
        folder = Folder(path)
        undo.callback(folder.release)
        _begin_in_this_process()
        client = _start(path)
        undo.callback(client.own_system.stop)
        folder.begin()
        undo.pop_all()
    return OpenChroma(client, _name_of(path), folder=folder)


def _begin_in_this_process() -> None:
    """Notes that the engine starts in this process.

    Raises:
        StoreError: it was used before a fork; in the child it would hang.
    """
    if _started_in - {os.getpid()}:
        raise errors.StoreError(
            f"Chroma was in use in this process before it was forked. {AFTER_FORK}"
        )
    _started_in.add(os.getpid())


def open_server(url: str, headers: Mapping[str, str], tenant: str, database: str) -> OpenChroma:
    """Connects to a Chroma server."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise errors.StoreError(
            f"{url!r} is no URL of a Chroma server. Give one like 'http://localhost:8000'."
        )
    settings = Settings(
        anonymized_telemetry=False,
        chroma_api_impl="chromadb.api.fastapi.FastAPI",
        chroma_server_host=url,
        chroma_server_http_port=8000,  # asked for, and not used where the host is a URL
        chroma_server_headers=dict(headers),
    )
    client = OwnClient(settings, tenant, database)
    session = client._server._session  # type: ignore[attr-defined]  # noqa: SLF001 - it has no time limit
    session.timeout = TIMEOUT
    url_without_password = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return OpenChroma(client, url_without_password, disconnect=session.close)


# Errors


@contextmanager
def typed_errors(where: str) -> Iterator[None]:
    """Turns the errors of Chroma, in a folder or at a URL, into those of the package."""
    try:
        yield
    except errors.CtxBudgetError:
        raise
    except BaseException as error:  # the engine panics on some damage, and a panic is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if type(error).__module__.startswith("httpx"):
            raise errors.StoreError(
                f"The Chroma server {where} cannot be reached, or does not answer "
                f"({type(error).__name__}: {error}). "
                "Check the URL, or start a server: `chroma run --path FOLDER`."
            ) from error
        message = f"Chroma failed on the store {where}: {error}"
        if _is_about_damage(error):
            raise errors.StoreDataError(message) from error
        raise errors.StoreError(message) from error


def _is_about_damage(error: BaseException) -> bool:
    text = str(error)
    return "disk image is malformed" in text or "file is not a database" in text
