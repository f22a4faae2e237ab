"""The files of a ChromaStore's folder.

All items are in Chroma's SQLite database, which a killed process or a full disk leaves as it was
after its last commit. That does not help where a file is cut off, replaced or lost.
The folder's state says how many writes there were, and what the files looked like when they were
closed: a folder that looks like that is opened at once, any other is checked first.
"""

import json
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from filelock import FileLock, Timeout

from langchain_ctxbudget import errors
from langchain_ctxbudget.stores import chroma_database
from langchain_ctxbudget.stores.bulk import DATABASE_FILE

LOG_FILE = f"{DATABASE_FILE}-wal"
LOCK_FILE = "ctxbudget.lock"
STATE_FILE = "ctxbudget.state"
CLOSING_SECONDS = 2.0
"""Chroma's engine closes the database in threads of its own; mostly it takes milliseconds."""
POLL_SECONDS = 0.001
"""How often it is looked whether the database is closed."""
COUNT_WIDTH = 20
"""Digits of the count of writes, so that a new count takes the place of the last one and moves
nothing behind it."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _State:
    """What is known of how a folder was left."""

    writes: int = 0
    """The number that Chroma gave to the last write."""
    files: dict[str, list[int]] = field(default_factory=dict)
    """Size and time of the last change of each file; empty where the folder was not closed."""


class Folder:
    """The folder of a store that this process has locked."""

    def __init__(self, path: Path) -> None:
        """Makes a folder where it is missing, locks it, and checks its files if they have changed.

        Args:
            path: the folder, as an absolute path.

        Raises:
            StoreError: it cannot be written, or is open in another process (`StoreLockedError`).
            StoreDataError: its database is damaged, or not what it was.
        """
        self.path = path
        self.database = path / DATABASE_FILE
        self._lock = FileLock(
            path / LOCK_FILE,
            timeout=0,
            thread_local=False,  # garbage is collected in any thread
        )
        try:
            with _typed_errors(path, self.database):
                path.mkdir(parents=True, exist_ok=True)
                self._lock.acquire()
                self._writes = self._checked_writes()
        except BaseException:
            self._lock.release()
            raise

    def begin(self) -> None:
        """Notes that the folder is in use: from now on it counts as closed only after `leave`."""
        path = self.path / STATE_FILE
        with _typed_errors(self.path, self.database):
            path.touch()
            self._state = path.open("r+b", buffering=0)
            self._state.write(_count_line(self._writes))
            self._state.truncate()

    def wrote(self, records: int) -> None:
        """Notes that so many records were written or deleted, and that Chroma has confirmed it."""
        self._writes += records
        with suppress(OSError):  # a smaller count only means that less is known
            self._state.seek(0)
            self._state.write(_count_line(self._writes))

    def leave(self) -> None:
        """Notes how the files look once Chroma has closed them, and releases the lock."""
        try:
            with suppress(OSError):
                if self.wait_until_closed():
                    self._state.seek(0, os.SEEK_END)
                    self._state.write(json.dumps(self._files()).encode())
            self._state.close()
        finally:
            self._lock.release()

    def release(self) -> None:
        """Releases the lock of a folder that was not begun."""
        self._lock.release()

    def wait_until_closed(self) -> bool:
        """Waits until nothing in this process has the database open; False if it takes too long.

        Two copies of SQLite in one process, Python's and Chroma's, do not see each other's locks.
        """
        deadline = time.monotonic() + CLOSING_SECONDS
        while _is_open_here(self.database):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def vacuum(self) -> None:
        """Rewrites the database without what was deleted; Chroma must have closed it.

        Raises:
            StoreError: the database is in use elsewhere in this process, or the disk has no room
                for the second copy.
        """
        with _typed_errors(self.path, self.database):
            if not self.wait_until_closed():
                raise errors.StoreError(
                    f"{self.database} is in use in this process. Close other Chroma clients of it."
                )
            with self._connected() as connection:
                chroma_database.rewrite(connection)

    def _checked_writes(self) -> int:
        """Checks the files if they are not as they were left, and makes the database if it is new.

        Returns the number of the last write.
        """
        state = _read_state(self.path / STATE_FILE)
        has_data = _has_content(self.database)
        self._require_database(state)
        has_log = self._has_log()
        is_as_left = has_log and state is not None and state.files == self._files()
        writes = 0
        if state is not None:
            writes = state.writes
        if is_as_left and not self._has_index_folders():
            return writes
        if not self.wait_until_closed():
            # Another client of this process has it open, and knows what it does.
            return writes

        with self._connected() as connection:
            if has_data and not is_as_left:
                writes = self._checked_last_write(connection, state)
            if not has_log:
                chroma_database.begin_log(connection)
            self._remove_indexes(connection)
        return writes

    def _require_database(self, state: _State | None) -> None:
        """Raises `StoreDataError` where the database of a folder that was used is not there."""
        was_used = state is not None or _has_content(self.path / LOG_FILE)
        if was_used and not _has_content(self.database):
            raise errors.StoreDataError(
                f"The database {self.database} is missing or empty, and with it everything that "
                "the store held of all users. Put it back from a backup, or delete the folder to "
                "begin anew. Nothing was changed."
            )

    def _has_log(self) -> bool:
        """Returns whether the database has a write-ahead log, and makes it where it is missing."""
        with self.database.open("ab+") as file:  # shows that it can be written
            file.seek(18)
            return file.read(2) == b"\2\2"

    def _checked_last_write(self, connection: sqlite3.Connection, state: _State | None) -> int:
        """Checks a database that is not as it was left, and returns the number of its last write.

        Raises:
            StoreDataError: something cannot be read, or is not there any more.
        """
        last = chroma_database.checked_last_write(
            connection, self.database, may_be_empty=state is None
        )
        if state is not None and last < state.writes:
            raise errors.StoreDataError(
                f"The last {state.writes - last:,} of {state.writes:,} writes are not in "
                f"{self.database}: its log {LOG_FILE} was cut off, replaced or lost, or the "
                f"database is an older copy.{chroma_database.newest_record(connection)} Whose they "
                "were cannot be told: all users may be affected. Put both files back from a "
                f"backup, or delete {self.path / STATE_FILE} to go on without them. "
                "Nothing was changed."
            )
        return last

    def _remove_indexes(self, connection: sqlite3.Connection) -> None:
        """Removes the folders of indexes beside the database.

        Chroma's server and older versions keep them. They hold nothing that is not in the database,
        nothing here reads them, and a killed process leaves some that no Chroma reads
        (chroma-core/chroma#7678).
        """
        if not self._has_index_folders() or not chroma_database.has_tables(connection):
            return
        paths = [self.path / name for name in chroma_database.our_indexes(connection)]
        folders = [path for path in paths if path.is_dir()]
        for folder in folders:
            shutil.rmtree(folder)
        chroma_database.forget_indexes(connection)
        if folders:
            _log.warning(
                "Removed %d index folders of Chroma from %s: nothing here reads them",
                len(folders),
                self.path,
            )

    def _has_index_folders(self) -> bool:
        return any(_is_uuid(entry.name) and entry.is_dir() for entry in self.path.iterdir())

    def _files(self) -> dict[str, list[int]]:
        """Returns size and time of the last change of the files that hold data, by name."""
        files: dict[str, list[int]] = {}
        for name in (DATABASE_FILE, LOG_FILE):
            with suppress(FileNotFoundError):
                status = (self.path / name).stat()
                files[name] = [status.st_size, status.st_mtime_ns]
        return files

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            yield connection


def _count_line(writes: int) -> bytes:
    return f"{writes:0{COUNT_WIDTH}d}\n".encode()


def _read_state(path: Path) -> _State | None:
    """Reads how a folder was left.

    None where it was never used; where the file is damaged, nothing is known.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    count, _, files_json = content.partition(b"\n")
    if len(count) != COUNT_WIDTH or not count.isdigit():
        return _State()
    try:
        files = json.loads(files_json)
    except ValueError:  # it was not closed, and has none
        files = None
    if not isinstance(files, dict):
        return _State(writes=int(count))
    return _State(writes=int(count), files=files)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _is_uuid(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False


def _is_open_here(path: Path) -> bool:
    """Returns whether this process has a file open.

    Always False where that cannot be asked, as on Windows.
    """
    try:
        wanted = path.stat()
        descriptors = [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - names, not paths
    except OSError:
        return False
    for descriptor in descriptors:
        with suppress(OSError):  # closed in the meantime
            if os.path.samestat(os.fstat(descriptor), wanted):
                return True
    return False


@contextmanager
def _typed_errors(folder: Path, database: Path) -> Iterator[None]:
    """Turns errors of files and of SQLite into those of the package."""
    try:
        yield
    except Timeout:
        raise errors.StoreLockedError(
            f"The store in {folder} is open in another process. Close it there first, or let both "
            f"processes use one Chroma server (`chroma run --path {folder}`)."
        ) from None
    except sqlite3.DatabaseError as error:
        if chroma_database.is_disk_error(error):
            raise errors.StoreError(
                f"The folder {folder} cannot be opened and written: {error}"
            ) from error
        raise errors.StoreDataError(
            f"{database} cannot be read ({error}): all users are affected. Put it back from a "
            "backup, or move the folder away and begin anew. Nothing was changed."
        ) from error
    except OSError as error:
        raise errors.StoreError(
            f"The folder {folder} cannot be opened and written: {error}"
        ) from error
