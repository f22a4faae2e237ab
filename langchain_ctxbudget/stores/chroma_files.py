"""The files of a ChromaStore's folder.

The lock, the database, and what is known of how they were left.

All items are in Chroma's SQLite database, which a killed process or a full disk leaves as it was
after its last commit. What they do not protect from is a file that is cut off, replaced or lost.
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
from typing import Any
from uuid import UUID

from filelock import FileLock, Timeout

from langchain_ctxbudget import errors
from langchain_ctxbudget.stores.base import ROOT, unlabelled
from langchain_ctxbudget.stores.bulk import DATABASE_FILE

LOG_FILE = f"{DATABASE_FILE}-wal"
LOCK_FILE = "ctxbudget.lock"
STATE_FILE = "ctxbudget.state"
CLOSING_SECONDS = 2.0
"""Chroma's engine closes the database in threads of its own; mostly it takes milliseconds."""
POLL_SECONDS = 0.001
COUNT_WIDTH = 20
"""Digits of the count of writes, so that a new count takes the place of the last one and moves
nothing behind it."""
NAMED_USERS = 10
"""Users that an error names."""
_DISK_ERRORS = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)
_log = logging.getLogger(__name__)

# Index folders and log entries of the application's own collections in the same database are not
# ours to touch.
_OUR_COLLECTIONS = "SELECT id FROM collections WHERE name LIKE 'ctxbudget-%'"
_OUR_INDEXES = (
    f"SELECT id FROM segments WHERE scope = 'VECTOR' AND collection IN ({_OUR_COLLECTIONS})"  # noqa: S608
)
_LAST_WRITE = """
    SELECT coalesce(max(seq_id), 0) FROM (SELECT seq_id FROM max_seq_id UNION SELECT max(seq_id) FROM embeddings_queue)
"""
_APPLIED_ENTRIES = f"""
    SELECT entry.seq_id FROM embeddings_queue AS entry
    JOIN segments ON entry.topic LIKE '%/' || segments.collection AND segments.scope = 'METADATA'
    JOIN max_seq_id ON max_seq_id.segment_id = segments.id AND entry.seq_id <= max_seq_id.seq_id
    WHERE segments.collection IN ({_OUR_COLLECTIONS})
"""  # noqa: S608
_TURN_INTO_A_DELETION = """
    UPDATE embeddings_queue
    SET id = '[]', operation = 3, vector = NULL, encoding = NULL, metadata = '{}' WHERE seq_id = ?
"""  # 3 is how Chroma's log says that a record was deleted
# A stored value is JSON behind its times and vectors; in old records it is JSON alone. An index has
# a copy of it.
_DOUBTFUL_VALUES = """
    SELECT id FROM embedding_metadata NOT INDEXED WHERE key = 'value' AND string_value IS NOT NULL
    AND NOT json_valid(CASE WHEN string_value LIKE '{%' THEN string_value
                       ELSE substr(string_value, instr(string_value, ' {') + 1) END)
"""


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
        """Makes a folder where it is missing, locks it, and checks its files where they are not as they were left."""
        self.path = path
        self.database = path / DATABASE_FILE
        self._lock = FileLock(
            path / LOCK_FILE, timeout=0, thread_local=False
        )  # garbage is collected in any thread
        try:
            with _typed_errors(path, self.database):
                path.mkdir(parents=True, exist_ok=True)
                self._lock.acquire()
                self._writes = self._checked()
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
        """Waits until nothing in this process has the database open.

        False where that takes too long.

        Two copies of SQLite in one process, Python's and Chroma's, do not see each other's locks.
        """
        give_up = time.monotonic() + CLOSING_SECONDS
        while _is_open_here(self.database):
            if time.monotonic() > give_up:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def vacuum(self) -> None:
        """Rewrites the database without what was deleted; Chroma must have closed it.

        Raises:
            StoreError: the database is in use elsewhere in this process, or the disk has no room for the second copy.
        """
        with _typed_errors(self.path, self.database):
            if not self.wait_until_closed():
                raise errors.StoreError(
                    f"{self.database} is in use in this process. Close other Chroma clients of it."
                )
            with closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
                _forget_log(connection)
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _checked(self) -> int:
        """Checks the files where they are not as they were left.

        Returns the number of the last write.
        """
        state = _read_state(self.path / STATE_FILE)
        has_data = self.database.exists() and self.database.stat().st_size > 0
        log = self.path / LOG_FILE
        was_used = state is not None
        if not has_data and (was_used or (log.exists() and log.stat().st_size > 0)):
            raise errors.StoreDataError(
                f"The database {self.database} is missing or empty, and with it everything that the store held of all "
                f"users. Put it back from a backup, or delete the folder to begin anew. Nothing was changed."
            )
        with self.database.open("ab+") as file:  # makes it, and shows that it can be written
            has_log = file.seek(18) and file.read(2) == b"\2\2"
        state = state or _State()
        is_as_left = has_log and state.files == self._files()
        if is_as_left and not self._has_index_folders():
            return state.writes
        if (
            not self.wait_until_closed()
        ):  # another client of this process has it open, and knows what it does
            return state.writes
        with closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            writes = state.writes
            if has_data and not is_as_left:
                writes = _check(connection, self.database, state, was_used=was_used)
            if not has_log:
                # Set before Chroma opens the file (chroma-core/chroma#7040): a write takes 4 ms
                # instead of 30.
                connection.execute("SELECT name FROM sqlite_master").fetchall()
                connection.execute("PRAGMA journal_mode=WAL")
            self._remove_indexes(connection)
        return writes

    def _remove_indexes(self, connection: sqlite3.Connection) -> None:
        """Removes the index files that Chroma's server, and older versions, keep beside the database.

        They hold nothing that is not in the database, nothing here reads them, and a killed process
        leaves some that no Chroma reads (chroma-core/chroma#7678).
        """
        if not self._has_index_folders() or not _has_tables(connection):
            return
        names = [str(name) for (name,) in connection.execute(_OUR_INDEXES)]
        found = [self.path / name for name in names if (self.path / name).is_dir()]
        for folder in found:
            shutil.rmtree(folder)
        # Without its files an index has seen nothing.
        connection.execute(f"DELETE FROM max_seq_id WHERE segment_id IN ({_OUR_INDEXES})")  # noqa: S608
        if found:
            _log.warning(
                "Removed %d index folders of Chroma from %s: nothing here reads them",
                len(found),
                self.path,
            )

    def _has_index_folders(self) -> bool:
        return any(_is_uuid(entry.name) and entry.is_dir() for entry in self.path.iterdir())

    def _files(self) -> dict[str, list[int]]:
        """Returns size and time of change of the files that hold data."""
        found: dict[str, list[int]] = {}
        for name in (DATABASE_FILE, LOG_FILE):
            with suppress(FileNotFoundError):
                status = (self.path / name).stat()
                found[name] = [status.st_size, status.st_mtime_ns]
        return found


def _count_line(writes: int) -> bytes:
    return f"{writes:0{COUNT_WIDTH}d}\n".encode()


def _read_state(path: Path) -> _State | None:
    """Reads how a folder was left.

    None where it was never used, and nothing known where the file is damaged.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    count, _, files = content.partition(b"\n")
    if len(count) != COUNT_WIDTH or not count.isdigit():
        return _State()
    try:
        known = json.loads(files) if files else {}
    except ValueError:
        known = {}
    return _State(int(count), known if isinstance(known, dict) else {})


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


# The check


def _check(connection: sqlite3.Connection, database: Path, state: _State, *, was_used: bool) -> int:
    """Checks a database that is not as it was left; returns the number of the last write.

    Raises:
        StoreDataError: something cannot be read, or is not there any more.
    """
    try:
        if not was_used and not _has_tables(connection):
            return 0
        our_records = _our_segments(connection)
        problems = [str(problem) for (problem,) in connection.execute("PRAGMA quick_check(1)")]
        doubtful = [int(row) for (row,) in connection.execute(_DOUBTFUL_VALUES)]
        is_whole = problems == ["ok"]
        for row in doubtful:
            if _item_of(connection, row, our_records) and _is_damaged(connection, row):
                is_whole = False
                problems = ["a value is not as it was written"]
        last = int(connection.execute(_LAST_WRITE).fetchone()[0])
        problem = problems[0]
    except (sqlite3.DatabaseError, ValueError) as error:
        if _is_disk_error(error):
            raise
        is_whole = False
        last = 0
        problem = str(error)
    if not is_whole:
        raise errors.StoreDataError(
            f"{database} is damaged ({problem}). {_affected(connection)} Put the folder back from a backup, or move it "
            f'away and begin anew; `sqlite3 {database} ".recover"` shows what is left. Nothing was changed.'
        )
    if last < state.writes:
        raise errors.StoreDataError(
            f"The last {state.writes - last:,} of {state.writes:,} writes are not in {database}: its log {LOG_FILE} "
            f"was cut off, replaced or lost, or the database is an older copy.{_newest(connection)} Whose they were "
            f"cannot be told: all users may be affected. Put both files back from a backup, or delete "
            f"{database.with_name(STATE_FILE)} to go on without them. Nothing was changed."
        )
    return last


def _has_tables(connection: sqlite3.Connection) -> bool:
    """Returns whether Chroma has set up the database; False where it was interrupted before."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {"segments", "max_seq_id", "embeddings_queue", "embedding_metadata"} <= {
        name for (name,) in found
    }


def _our_segments(connection: sqlite3.Connection) -> set[str]:
    """Returns the segments of the store's records.

    An application may keep collections of its own beside them.
    """
    query = (
        f"SELECT id FROM segments WHERE scope = 'METADATA' AND collection IN ({_OUR_COLLECTIONS})"  # noqa: S608
    )
    return {str(name) for (name,) in connection.execute(query)}


def _item_of(connection: sqlite3.Connection, row: int, segments: set[str]) -> str | None:
    """Returns the id of the item in a row of the database.

    None where there is none of the store's.
    """
    found = connection.execute(
        "SELECT embedding_id, segment_id FROM embeddings WHERE id = ?", (row,)
    ).fetchone()
    return str(found[0]) if found and found[1] in segments else None


def _is_damaged(connection: sqlite3.Connection, row: int) -> bool:
    """Returns whether a record's value cannot be read."""
    query = "SELECT string_value FROM embedding_metadata WHERE id = ? AND key = 'value'"
    try:
        found = connection.execute(query, (row,)).fetchone()
        value = str(found[0])
        json.loads(value if value.startswith("{") else value[value.find(" {") + 1 :])
    except (sqlite3.Error, TypeError, ValueError, RecursionError):
        return True
    return False


def _affected(connection: sqlite3.Connection) -> str:
    """Says which users have records that cannot be read, as far as that can be found out."""
    try:
        our_records = _our_segments(connection)
        last = int(connection.execute("SELECT max(id) FROM embeddings").fetchone()[0] or 0)
    except (sqlite3.Error, TypeError):
        return "Nothing in it can be read: all users are affected."
    users: set[str] = set()
    damaged = 0
    unknown = 0
    for row in range(1, last + 1):
        try:
            item_id = _item_of(connection, row, our_records)
            user = None if item_id is None else _user_of(item_id)
        except (sqlite3.Error, TypeError, ValueError):
            unknown += 1
            continue
        if user is not None and _is_damaged(connection, row):
            damaged += 1
            users.add(user)
    if unknown:
        return f"{damaged + unknown:,} records cannot be read. {unknown:,} have lost their ids: all users may be affected."
    if not damaged:
        return "Every record can be read, but not everything that finds them: all users may be affected."
    return f"{damaged:,} records cannot be read, of {_names(users)}."


def _names(users: set[str]) -> str:
    named = ", ".join(repr(user) for user in sorted(users)[:NAMED_USERS])
    if len(users) > NAMED_USERS:
        return f"the users {named} and {len(users) - NAMED_USERS:,} more"
    return f"the users {named}"


def _user_of(item_id: str) -> str:
    """Returns the user of an item; its namespace where it is none of a pipeline's."""
    labels = json.loads(item_id)[:-1]
    if labels[0] == ROOT and len(labels) > 1:
        return unlabelled(labels[1])
    return "/".join(labels)


def _newest(connection: sqlite3.Connection) -> str:
    """Says when the newest record that is there was written."""
    query = "SELECT created_at FROM embeddings_queue ORDER BY seq_id DESC LIMIT 1"
    try:
        found = connection.execute(query).fetchone()
    except sqlite3.Error:
        return ""
    return f" The newest that is there was written at {found[0]} UTC." if found else ""


# Cleaning


def _forget_log(connection: sqlite3.Connection) -> None:
    """Removes what Chroma's log says of writes that are done, but for the number of the last one.

    Chroma counts on from the greatest number in the log: its entry stays, as the deletion of a
    record that never was.
    """
    applied: list[Any] = connection.execute(_APPLIED_ENTRIES).fetchall()
    connection.execute("BEGIN IMMEDIATE")
    last = connection.execute("SELECT max(seq_id) FROM embeddings_queue").fetchone()[0]
    connection.executemany(
        "DELETE FROM embeddings_queue WHERE seq_id = ?", [row for row in applied if row != (last,)]
    )
    if (last,) in applied:
        connection.execute(_TURN_INTO_A_DELETION, (last,))
    connection.execute("COMMIT")


# Errors


def _is_disk_error(error: Exception) -> bool:
    """Returns whether an error of SQLite is about the disk, not about what is on it."""
    return (
        isinstance(error, sqlite3.Error)
        and getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_ERRORS
    )


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
        if _is_disk_error(error):
            raise errors.StoreError(
                f"The folder {folder} cannot be opened and written: {error}"
            ) from error
        raise errors.StoreDataError(
            f"{database} cannot be read ({error}): all users are affected. Put it back from a backup, or move the "
            f"folder away and begin anew. Nothing was changed."
        ) from error
    except OSError as error:
        raise errors.StoreError(
            f"The folder {folder} cannot be opened and written: {error}"
        ) from error
