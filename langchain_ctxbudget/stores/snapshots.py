"""Reports of a conversation's prompts, kept without quotes: erasing a message leaves nothing of it in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.errors import InputError, StoreDataError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.report import ContextReport
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.clock import utc
from langchain_ctxbudget.stores.records import Record, Scope

SNAPSHOTS = "reports"
_KEY = re.compile(r"(?P<moment>[0-9T]+)-(?P<number>[0-9]+)-[^-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSnapshot:
    """The report of one prompt, as it was kept (seed 003).

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> pipeline = ContextPipeline({"keep_snapshots": 10})
        >>> context = pipeline.assemble("Hello", user_id="ada", conversation_id="c1")
        >>> pipeline.flush()
        True
        >>> pipeline.snapshots.latest(user_id="ada", conversation_id="c1").report.total_tokens
        8
    """

    id: str
    """They sort in the order in which they were made."""
    created_at: datetime
    conversation_id: str
    messages: int
    """How many messages the conversation had."""
    report: ContextReport
    """Without previews."""


class ReportRecord(Record):
    """A snapshot in the store."""

    created_at: datetime
    messages: int
    report: dict[str, Any]


def without_previews(report: ContextReport) -> ContextReport:
    """Returns a report that quotes nothing."""
    layers = tuple(
        replace(layer, items=tuple(replace(item, preview="") for item in layer.items)) for layer in report.layers
    )
    return replace(report, layers=layers)


def record_of(report: ContextReport, created_at: datetime, messages: int) -> ReportRecord:
    """Returns the record of a prompt; its place says whose it is."""
    whose = ("user_id", "conversation_id")
    said = {name: value for name, value in without_previews(report).to_dict().items() if name not in whose}
    return ReportRecord(created_at=created_at, messages=messages, report=said)


def key_of(made_at: datetime, number: int, lane: str) -> str:
    """Returns the id of a snapshot; ids sort in the order in which their prompts were made."""
    return f"{utc(made_at):%Y%m%dT%H%M%S%f}-{number:08d}-{lane}"


def key_behind(keys: Sequence[str], key: str) -> str:
    """Returns the id of a new snapshot: as it is, or, where the clock was set back, one behind those there are.

    >>> key_behind(["20261101T120000000000-00000007-a"], "20261101T110000000000-00000008-b")
    '20261101T120000000000-00000008-b'
    """
    last = _KEY.fullmatch(keys[-1]) if keys and key not in keys and key < keys[-1] else None
    return f"{last['moment']}-{int(last['number']) + 1:08d}-{key.rpartition('-')[2]}" if last else key


def write(scope: Scope, key: str, record: ReportRecord | None) -> PutOp:
    """Returns the write of a report; without one, its deletion."""
    return PutOp(scope.namespace(SNAPSHOTS), key, record.to_value() if record else None, index=False)


def read_keys(store: BaseStore, scope: Scope) -> Flow[list[str]]:
    """Returns the ids of a conversation's snapshots, oldest first."""
    return sorted(item.key for item in (yield from bulk.read_all(store, scope.namespace(SNAPSHOTS))))


def read_last(store: BaseStore, scope: Scope, limit: int) -> Flow[list[ContextSnapshot]]:
    """Returns the latest snapshots of a conversation, oldest first."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InputError(f"limit must be a whole number of at least 1, not {limit!r}")
    items: Sequence[Item] = yield from bulk.read_all(store, scope.namespace(SNAPSHOTS))
    return [_snapshot(scope, item) for item in sorted(items, key=lambda item: item.key)[-limit:]]


def read_one(store: BaseStore, scope: Scope, key: str) -> Flow[ContextSnapshot | None]:
    """Returns one snapshot; None where there is none of this id."""
    [found] = yield from batch(store, [GetOp(scope.namespace(SNAPSHOTS), key)])
    return _snapshot(scope, found) if isinstance(found, Item) else None


def _snapshot(scope: Scope, item: Item) -> ContextSnapshot:
    record = ReportRecord.read(item.value, f"the snapshot {item.key!r}")
    try:
        ids = {"user_id": scope.user_id, "conversation_id": scope.conversation_id}
        report = ContextReport.from_dict(record.report | ids)
    except ValueError as error:
        raise StoreDataError(f"the report of the snapshot {item.key!r} cannot be read: {error}") from error
    return ContextSnapshot(
        id=item.key,
        created_at=record.created_at,
        conversation_id=scope.conversation_id,
        messages=record.messages,
        report=report,
    )
