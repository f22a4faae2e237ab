"""Reports of prompts that are kept in the store, and what they add up to."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from langgraph.store.base import BaseStore, GetOp, Item

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import StoreDataError, checks_names, require_count
from langchain_ctxbudget.flow import Flow, adrive, batch, drive
from langchain_ctxbudget.report import ContextReport

SNAPSHOTS = "reports"
NEARLY_FULL_SHARE = 0.98
"""A prompt that fills more of its budget than this counts as exhausted."""
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSnapshot:
    """The report of one prompt, as it was kept."""

    id: str
    """They sort in the order in which they were made."""
    created_at: datetime
    conversation_id: str
    messages: int
    report: ContextReport
    """Without previews."""

    @classmethod
    def of_item(cls, scope: stores.Scope, item: Item) -> "ContextSnapshot":
        """Reads a snapshot of a conversation."""
        record = ReportRecord.read(item.value, f"the snapshot {item.key!r}")
        ids = {"user_id": scope.user_id, "conversation_id": scope.conversation_id}
        try:
            report = ContextReport.from_dict({**record.report, **ids})
        except ValueError as error:
            raise StoreDataError(
                f"the report of the snapshot {item.key!r} cannot be read: {error}"
            ) from error
        return cls(
            id=item.key,
            created_at=record.created_at,
            conversation_id=scope.conversation_id,
            messages=record.messages,
            report=report,
        )


Snapshots: TypeAlias = list[ContextSnapshot]
"""A list of snapshots; `SnapshotBook` has a method `list`, which hides the type."""


class BudgetAnalytics(NamedTuple):
    """How budgets were used over some prompts."""

    prompts: int
    mean_share: float
    exhausted: int
    """Prompts that left less than a fiftieth of their budget free, or for which something gave way
    as a last resort."""
    saved_tokens: int
    layers: Mapping[str, tuple[float, float]]
    """By layer, the tokens that were used and those that were planned, on average."""

    @classmethod
    def of_reports(cls, reports: Sequence[ContextReport]) -> "BudgetAnalytics":
        """Adds up the reports of some prompts."""
        divisor = max(1, len(reports))
        exhausted = 0
        total_share = 0.0
        saved_tokens = 0
        used: Counter[str] = Counter()
        allocated: Counter[str] = Counter()
        for report in reports:
            share = report.total_tokens / report.budget_tokens
            total_share += share
            if report.last_resort or share > NEARLY_FULL_SHARE:
                exhausted += 1
            saved_tokens += report.stability.saved_tokens
            for layer in report.layers:
                used[layer.layer] += layer.used_tokens
                allocated[layer.layer] += layer.allocated_tokens
        return cls(
            prompts=len(reports),
            mean_share=total_share / divisor,
            exhausted=exhausted,
            saved_tokens=saved_tokens,
            layers={name: (used[name] / divisor, allocated[name] / divisor) for name in used},
        )


class ReportRecord(stores.Record):
    """A snapshot in the store.

    It quotes nothing, so erasing a message leaves nothing of it there.
    """

    created_at: datetime
    messages: int
    report: dict[str, Any]
    """Without the user and the conversation: its namespace says whose it is."""


def read_snapshot_items(store: BaseStore, scope: stores.Scope) -> Flow[list[Item]]:
    """Returns the stored snapshots of a conversation, oldest first."""
    items = yield from stores.read_all(store, scope.namespace(SNAPSHOTS))
    return sorted(items, key=lambda item: item.key)


def keep_report(
    store: BaseStore,
    conversation: history.OpenConversation,
    report: ContextReport,
    now: datetime,
    keep: int,
) -> Flow[None]:
    """Keeps the report of a prompt as one of the latest `keep` snapshots of its conversation."""
    if conversation.snapshots is None:
        items = yield from read_snapshot_items(store, conversation.scope)
        conversation.snapshots = [item.key for item in items]

    record = ReportRecord(
        created_at=now, messages=len(conversation.table), report=_without_quotes(report)
    )
    key = f"{stores.utc(now):%Y%m%dT%H%M%S%f}-{next(_numbers):08d}-{stores.new_token()[:8]}"
    keys = sorted((*conversation.snapshots, key))
    conversation.snapshots = keys[-keep:]

    namespace = conversation.scope.namespace(SNAPSHOTS)
    put = stores.put_of(GetOp(namespace, key), record)
    deletions = [stores.put_of(GetOp(namespace, outdated), None) for outdated in keys[:-keep]]
    yield from batch(store, [put, *deletions])


def _without_quotes(report: ContextReport) -> dict[str, Any]:
    """Returns a report as plain data, without its ids, previews of texts and lost values."""
    data = report.to_dict()
    del data["user_id"], data["conversation_id"]
    for layer in data["layers"]:
        layer["items"] = [{**item, "preview": ""} for item in layer["items"]]
    data["lost_values"] = [{**lost, "value": ""} for lost in data["lost_values"]]
    return data


@checks_names()
class SnapshotBook:
    """The reports of earlier prompts, where `keep_snapshots` says that they are kept.

    Every method has an async form, and raises `MissingScopeError` without its scope.
    """

    def __init__(self, store: Callable[[], BaseStore]) -> None:
        self._store = store

    def get(
        self, snapshot_id: str, *, user_id: str, conversation_id: str
    ) -> ContextSnapshot | None:
        """Returns one snapshot; None where the conversation has none of this id."""
        return drive(self._get(stores.Scope(user_id, conversation_id), snapshot_id))

    async def aget(
        self, snapshot_id: str, *, user_id: str, conversation_id: str
    ) -> ContextSnapshot | None:
        """Returns one snapshot; the async form of `get`."""
        return await adrive(self._get(stores.Scope(user_id, conversation_id), snapshot_id))

    def list(self, *, user_id: str, conversation_id: str, limit: int = 100) -> Snapshots:
        """Returns the newest snapshots of a conversation, oldest first.

        Args:
            user_id: the user.
            conversation_id: the conversation.
            limit: the most that are returned.
        """
        return drive(self._list(stores.Scope(user_id, conversation_id), limit))

    async def alist(self, *, user_id: str, conversation_id: str, limit: int = 100) -> Snapshots:
        """Returns the newest snapshots of a conversation; the async form of `list`."""
        return await adrive(self._list(stores.Scope(user_id, conversation_id), limit))

    def analytics(self, *, user_id: str, conversation_id: str | None) -> BudgetAnalytics:
        """Adds up the kept reports of a conversation, or with None of all of a user's."""
        return drive(self._analytics(user_id, conversation_id))

    async def aanalytics(self, *, user_id: str, conversation_id: str | None) -> BudgetAnalytics:
        """Adds up the kept reports of a conversation or a user; the async form of `analytics`."""
        return await adrive(self._analytics(user_id, conversation_id))

    def _get(self, scope: stores.Scope, snapshot_id: str) -> Flow[ContextSnapshot | None]:
        operation = GetOp(scope.namespace(SNAPSHOTS), snapshot_id)
        [item] = yield from batch(self._store(), [operation])
        return ContextSnapshot.of_item(scope, item) if isinstance(item, Item) else None

    def _list(self, scope: stores.Scope, limit: int) -> Flow[Snapshots]:
        require_count("limit", limit)
        snapshots = yield from self._all(scope)
        return snapshots[-limit:]

    def _all(self, scope: stores.Scope) -> Flow[Snapshots]:
        items = yield from read_snapshot_items(self._store(), scope)
        return [ContextSnapshot.of_item(scope, item) for item in items]

    def _analytics(self, user_id: str, conversation_id: str | None) -> Flow[BudgetAnalytics]:
        stores.require_id("user_id", user_id)
        if conversation_id is None:
            ids = yield from history.log.read_conversations(self._store(), user_id)
        else:
            ids = [conversation_id]
        reports: list[ContextReport] = []
        for one_id in ids:
            snapshots = yield from self._all(stores.Scope(user_id, one_id))
            reports += [snapshot.report for snapshot in snapshots]
        return BudgetAnalytics.of_reports(reports)
