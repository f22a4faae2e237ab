"""Sweeps the store of a pipeline in the background, where its settings say how often."""

import logging
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from langgraph.store.base import GetOp

from langchain_ctxbudget import stores
from langchain_ctxbudget.errors import StoreDataError
from langchain_ctxbudget.flow import Flow, batch, drive
from langchain_ctxbudget.worker import PAUSE_SECONDS, Cancelled, Worker

if TYPE_CHECKING:
    from langchain_ctxbudget.pipeline.workspace import Workspace

LAST_SWEEP = "retention"
"""The kind, and the key, of the record of the last sweep in the background."""
_log = logging.getLogger(__name__)


class SweepRecord(stores.Record):
    """When the pipelines over a store have swept it last, of their own accord."""

    at: datetime


class Sweeping:
    """Sweeps the store of a workspace in the background, where its settings say how often."""

    def __init__(self, workspace: "Workspace") -> None:
        self._workspace = workspace
        self._looks_again_at = 0.0
        """When it is looked next whether a sweep is due, by the monotonic clock."""
        self.worker: Worker[str] = Worker(self._run, pause_seconds=PAUSE_SECONDS)

    @property
    def _pause(self) -> timedelta | None:
        hours = self._workspace.settings.retention.every_hours
        return None if hours is None else timedelta(hours=hours)

    def note(self) -> None:
        """Has the store swept if that is due; called whenever somebody uses a conversation."""
        pause = self._pause
        if pause is not None and time.monotonic() >= self._looks_again_at:
            self._looks_again_at = time.monotonic() + pause.total_seconds()
            self.worker.submit(LAST_SWEEP)

    def _run(self, _key: str, cancelled: Cancelled) -> None:
        workspace = self._workspace
        pause = self._pause
        if pause is None or not drive(self._claim(pause)):
            return
        from langchain_ctxbudget.pipeline import retention  # noqa: PLC0415 - few have it swept

        users = drive(retention.users_of(workspace))
        failures = list(users.failures)
        for user_id in users.ids:
            self.worker.wait_for_pause()
            if cancelled:
                break
            sweep = retention.sweep_if_readable(workspace, None, user_id, is_dry_run=False)
            failures += drive(sweep).failures
        for failure in failures:
            _log.warning("retention: %s", failure)

    def _claim(self, pause: timedelta) -> Flow[bool]:
        """Notes that the store is swept now, unless some pipeline has done so a short time ago."""
        workspace = self._workspace
        namespace = (stores.ROOT, stores.owners.OUTSIDE_OF_USERS, LAST_SWEEP)
        place = GetOp(namespace, LAST_SWEEP)
        [item] = yield from batch(workspace.store, [place])
        last_at = _time_of_sweep(item)
        now = stores.utc(workspace.clock())
        # A time to come is that of a process whose clock was wrong: it must not end all sweeps.
        if last_at is not None and last_at <= now < last_at + pause:
            return False
        yield from batch(workspace.store, [stores.put_of(place, SweepRecord(at=now))])
        return True


def _time_of_sweep(item: object) -> datetime | None:
    """Returns the time of the last sweep; None where nothing, or nothing readable, tells it."""
    try:
        record = SweepRecord.of_item(item)
    except StoreDataError:
        return None
    return None if record is None else stores.utc(record.at)
