"""Chroma's SQLite database: checking what is in it, and cleaning it.

Collections of the application's own may lie in the same database: their records, index folders and
log entries are not ours to touch.
"""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from langchain_ctxbudget import errors
from langchain_ctxbudget.stores.base import ROOT, unlabelled

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

_OUR_COLLECTIONS = "SELECT id FROM collections WHERE name LIKE 'ctxbudget-%'"
_OUR_SEGMENTS = (
    f"SELECT id FROM segments WHERE scope = 'METADATA' AND collection IN ({_OUR_COLLECTIONS})"  # noqa: S608
)
_OUR_INDEXES = (
    f"SELECT id FROM segments WHERE scope = 'VECTOR' AND collection IN ({_OUR_COLLECTIONS})"  # noqa: S608
)
_LAST_WRITE = """
    SELECT coalesce(max(seq_id), 0)
    FROM (SELECT seq_id FROM max_seq_id UNION SELECT max(seq_id) FROM embeddings_queue)
"""
_APPLIED_ENTRIES = f"""
    SELECT entry.seq_id FROM embeddings_queue AS entry
    JOIN segments ON entry.topic LIKE '%/' || segments.collection AND segments.scope = 'METADATA'
    JOIN max_seq_id ON max_seq_id.segment_id = segments.id AND entry.seq_id <= max_seq_id.seq_id
    WHERE segments.collection IN ({_OUR_COLLECTIONS})
"""  # noqa: S608
# Chroma's log says with a 3 that a record was deleted.
_TURN_INTO_A_DELETION = """
    UPDATE embeddings_queue
    SET id = '[]', operation = 3, vector = NULL, encoding = NULL, metadata = '{}' WHERE seq_id = ?
"""
# A stored value is JSON behind its times and vectors; in old records it is JSON alone. An index has
# a copy of it.
_DOUBTFUL_VALUES = """
    SELECT id FROM embedding_metadata NOT INDEXED WHERE key = 'value' AND string_value IS NOT NULL
    AND NOT json_valid(CASE WHEN string_value LIKE '{%' THEN string_value
                       ELSE substr(string_value, instr(string_value, ' {') + 1) END)
"""


def has_tables(connection: sqlite3.Connection) -> bool:
    """Returns whether Chroma has set up the database; False where it was interrupted before."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    required = {"segments", "max_seq_id", "embeddings_queue", "embedding_metadata"}
    return required <= {name for (name,) in rows}


def is_disk_error(error: Exception) -> bool:
    """Returns whether an error of SQLite is about the disk, not about what is on it."""
    if not isinstance(error, sqlite3.Error):
        return False
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_ERRORS


# Checking


def checked_last_write(
    connection: sqlite3.Connection, database: Path, *, may_be_empty: bool
) -> int:
    """Checks a database that is not as it was left, and returns the number of the last write in it.

    Args:
        connection: to the database.
        database: its file, for errors.
        may_be_empty: True where nobody has used the folder before, so that Chroma may not have set
            up the database.

    Raises:
        StoreDataError: something cannot be read.
    """
    last = 0
    try:
        if may_be_empty and not has_tables(connection):
            return 0
        problem = _problem_of(connection)
        last = int(connection.execute(_LAST_WRITE).fetchone()[0])
    except (sqlite3.DatabaseError, ValueError) as error:
        if is_disk_error(error):
            raise
        problem = str(error)
    if problem is not None:
        raise errors.StoreDataError(
            f"{database} is damaged ({problem}). {_affected(connection)} Put the folder back from "
            "a backup, or move it away and begin anew; "
            f'`sqlite3 {database} ".recover"` shows what is left. Nothing was changed.'
        )
    return last


def _problem_of(connection: sqlite3.Connection) -> str | None:
    """Returns what is wrong with the database or a value in it; None where all is well."""
    segments = _our_segments(connection)
    problems = [str(problem) for (problem,) in connection.execute("PRAGMA quick_check(1)")]
    doubtful = [int(row) for (row,) in connection.execute(_DOUBTFUL_VALUES)]
    for row in doubtful:
        if _item_of(connection, row, segments) and _is_damaged(connection, row):
            return "a value is not as it was written"
    if problems == ["ok"]:
        return None
    return problems[0]


def _our_segments(connection: sqlite3.Connection) -> set[str]:
    """Returns the ids of the parts of the database that hold the store's records."""
    return {str(name) for (name,) in connection.execute(_OUR_SEGMENTS)}


def _item_of(connection: sqlite3.Connection, row: int, segments: set[str]) -> str | None:
    """Returns the id of the item in a row of the database; None where it is none of the store's."""
    query = "SELECT embedding_id, segment_id FROM embeddings WHERE id = ?"
    record = connection.execute(query, (row,)).fetchone()
    if record is None or record[1] not in segments:
        return None
    return str(record[0])


def _is_damaged(connection: sqlite3.Connection, row: int) -> bool:
    """Returns whether a record's value cannot be read."""
    query = "SELECT string_value FROM embedding_metadata WHERE id = ? AND key = 'value'"
    try:
        value = str(connection.execute(query, (row,)).fetchone()[0])
        if not value.startswith("{"):
            value = value[value.find(" {") + 1 :]
        json.loads(value)
    except (sqlite3.Error, TypeError, ValueError, RecursionError):
        return True
    return False


def newest_record(connection: sqlite3.Connection) -> str:
    """Returns a sentence on when the newest record was written; empty where that is not known."""
    query = "SELECT created_at FROM embeddings_queue ORDER BY seq_id DESC LIMIT 1"
    try:
        record = connection.execute(query).fetchone()
    except sqlite3.Error:
        return ""
    if record is None:
        return ""
    return f" The newest that is there was written at {record[0]} UTC."


# Who is affected


def _affected(connection: sqlite3.Connection) -> str:
    """Returns a sentence on whose records cannot be read, as far as that can be found out."""
    try:
        segments = _our_segments(connection)
        last_row = int(connection.execute("SELECT max(id) FROM embeddings").fetchone()[0] or 0)
    except (sqlite3.Error, TypeError):
        return "Nothing in it can be read: all users are affected."

    users: set[str] = set()
    damaged = 0
    without_id = 0
    for row in range(1, last_row + 1):
        try:
            item_id = _item_of(connection, row, segments)
            if item_id is None:
                continue
            user = _user_of(item_id)
        except (sqlite3.Error, TypeError, ValueError):
            without_id += 1
            continue
        if _is_damaged(connection, row):
            damaged += 1
            users.add(user)

    if without_id:
        return (
            f"{damaged + without_id:,} records cannot be read. {without_id:,} have lost their ids: "
            "all users may be affected."
        )
    if not damaged:
        return (
            "Every record can be read, but not everything that finds them: all users may be "
            "affected."
        )
    return f"{damaged:,} records cannot be read, of {_names(users)}."


def _user_of(item_id: str) -> str:
    """Returns the user of an item; its namespace where it is none of a pipeline's."""
    labels = json.loads(item_id)[:-1]
    if labels[0] == ROOT and len(labels) > 1:
        return unlabelled(labels[1])
    return "/".join(labels)


def _names(users: set[str]) -> str:
    names = ", ".join(repr(user) for user in sorted(users)[:NAMED_USERS])
    if len(users) > NAMED_USERS:
        return f"the users {names} and {len(users) - NAMED_USERS:,} more"
    return f"the users {names}"


# Cleaning


def begin_log(connection: sqlite3.Connection) -> None:
    """Gives a database a write-ahead log, with which a write takes 4 ms instead of 30.

    It must happen before Chroma opens the file (chroma-core/chroma#7040).
    """
    connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.execute("PRAGMA journal_mode=WAL")


def _forget_log(connection: sqlite3.Connection) -> None:
    """Removes what Chroma's log says of writes that are done, but for the number of the last one.

    Chroma counts on from the greatest number in the log: its entry stays, as the deletion of a
    record that never was.
    """
    applied: list[Any] = connection.execute(_APPLIED_ENTRIES).fetchall()
    connection.execute("BEGIN IMMEDIATE")
    last = connection.execute("SELECT max(seq_id) FROM embeddings_queue").fetchone()
    connection.executemany(
        "DELETE FROM embeddings_queue WHERE seq_id = ?",
        [entry for entry in applied if entry != last],
    )
    if last in applied:
        connection.execute(_TURN_INTO_A_DELETION, last)
    connection.execute("COMMIT")


def rewrite(connection: sqlite3.Connection) -> None:
    """Rewrites the database without what was deleted."""
    _forget_log(connection)
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def our_indexes(connection: sqlite3.Connection) -> Iterable[str]:
    """Returns the names of the folders in which Chroma may keep indexes of the store's records."""
    return [str(name) for (name,) in connection.execute(_OUR_INDEXES)]


def forget_indexes(connection: sqlite3.Connection) -> None:
    """Notes that the indexes of the store's records have seen nothing, as they have no files."""
    connection.execute(f"DELETE FROM max_seq_id WHERE segment_id IN ({_OUR_INDEXES})")  # noqa: S608
