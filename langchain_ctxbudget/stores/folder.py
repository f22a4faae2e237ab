"""A folder that belongs to one process: made, checked and locked before anything opens it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from filelock import FileLock, Timeout

from langchain_ctxbudget.errors import StoreDataError, StoreError, StoreLockedError, StoreReadOnlyError

LOCK_FILE = "ctxbudget.lock"
DATABASE_FILE = "chroma.sqlite3"


def lock_folder(folder: Path) -> FileLock:
    """Make the folder where it is missing, and keep other processes out until the lock is released.

    Raises:
        StoreError: the path is a file.
        StoreReadOnlyError: the folder or its database cannot be written.
        StoreLockedError: another process has the folder open.
        StoreDataError: the database file is not a database.
    """
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file; a store needs a folder. Give another path.")
    # Threads share the lock, and the garbage collector may release it from any of them.
    lock = FileLock(folder / LOCK_FILE, timeout=0, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _require_writable(folder)
        lock.acquire()
    except Timeout:
        raise StoreLockedError(
            f"The store in {folder} is open in another process. Close it there first, or let both "
            f"processes use one Chroma server (`chroma run --path {folder}`)."
        ) from None
    except OSError as error:
        raise StoreReadOnlyError(
            f"The store in {folder} cannot be written ({error.strerror or error}). "
            "Make the folder writable, or give another path."
        ) from error
    try:
        _require_database(folder / DATABASE_FILE)
    except StoreDataError:
        lock.release()
        raise
    return lock


def _require_writable(folder: Path) -> None:
    """Respect write protection for root too, whom the system lets write anywhere."""
    for path in (folder, folder / DATABASE_FILE):
        if path.exists() and not (path.stat().st_mode & 0o222 and os.access(path, os.W_OK)):
            raise PermissionError(None, f"{path.name} is read-only")


def _require_database(path: Path) -> None:
    """Read the list of tables, which a damaged file does not have; what a killed process left half done is undone."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as connection:
            connection.execute("SELECT name FROM sqlite_master").fetchall()
    except sqlite3.DatabaseError as error:
        raise StoreDataError(
            f"{path} is not a database that can be read ({error}). Nothing was changed: restore it from a "
            "copy, or move the folder away to start a new store."
        ) from error
