"""A ledger of the usage of a conversation, and of a user in a month: counted in memory, written in the background.

Each ledger has a lane of its own in every place: a record of what it has counted, and of the last call that is in it,
so that no call counts twice. What was used in a place is the sum of its lanes. An erased lane begins anew.
"""

import re
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple, TypeAlias

from langgraph.store.base import BaseStore, GetOp

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.base import ROOT, Record, Scope, label, new_token, require_id, utc, written
from langchain_ctxbudget.tokens import Usage, total

_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")

Lanes: TypeAlias = tuple[str, ...]
"""A namespace with one item per lane: that of a conversation, or of a user's month."""


class UsageRecord(Record):
    """The usage that one lane has counted."""

    used: Usage
    last: int = 0
    """The number of the last call that is in it."""


class _ModelCall(NamedTuple):
    number: int
    places: tuple[Lanes, ...]
    used: Usage


def month_of(now: datetime) -> str:
    """Returns the calendar month of a moment in UTC, such as `2026-11`."""
    return utc(now).date().isoformat()[:7]


def of_session(scope: Scope) -> Lanes:
    """Returns the namespace of a conversation's usage."""
    return scope.namespace("spent")


def of_month(user_id: str, month: str) -> Lanes:
    """Returns the namespace of a user's usage in a month; clearing a conversation called "2026-11" leaves it."""
    if not isinstance(month, str) or not _MONTH.fullmatch(month):
        raise InputError(f"month must be a year and a month such as '2026-11', not {month!r}")
    return (ROOT, label(require_id("user_id", user_id)), "usage", month)


class Ledger:
    """Counts the usage of one pipeline's calls over its store, for threads and tasks."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._lane, self._noted = new_token(), 0
        self.unwritten: dict[str, tuple[_ModelCall, ...]] = {}
        """The calls of each user that are not written yet, oldest first."""

    def note(self, scope: Scope, used: Usage, month: str) -> None:
        """Counts a call for its conversation and for its user's month (see `month_of`); does no I/O."""
        places = (*([of_session(scope)] if scope.is_kept else []), of_month(scope.user_id, month))
        with self._mutex:
            self._noted += 1
            call = _ModelCall(self._noted, places, used)
            self.unwritten[scope.user_id] = (*self.unwritten.get(scope.user_id, ()), call)

    def read(self, store: BaseStore, user_id: str, place: Lanes) -> Flow[Usage]:
        """Returns what was used in a place of a user, by everybody as far as it is written."""
        calls = self.unwritten.get(user_id, ())  # the memory first: what is written in between is not counted twice
        # By name: an item that is written while pages are read may stand on two of them.
        lanes = {item.key: UsageRecord.found(item) for item in (yield from bulk.read_all(store, place))}
        lanes[self._lane] = _with(lanes.get(self._lane), place, calls)
        return total(record.used for record in lanes.values() if record)

    def write(self, store: BaseStore, user_id: str) -> Flow[None]:
        """Writes what was counted of a user; where that fails, it is written the next time."""
        if not (calls := self.unwritten.get(user_id, ())):
            return
        places = list(dict.fromkeys(place for call in calls for place in call.places))
        items = yield from batch(store, [GetOp(place, self._lane) for place in places])
        pairs = zip(places, items, strict=True)
        records = ((place, _with(UsageRecord.found(item), place, calls)) for place, item in pairs)
        yield from batch(store, [written(GetOp(place, self._lane), record) for place, record in records])
        self._change(user_id, lambda call: None if call.number <= calls[-1].number else call)

    def forget(self, scope: Scope) -> None:
        """Never writes again what was counted of a conversation; its user's month stays."""
        gone = of_session(scope)
        self._change(scope.user_id, lambda it: it._replace(places=tuple(one for one in it.places if one != gone)))

    def erase(self, user_id: str) -> None:
        """Never writes again what was counted of a user; to be done before their records are deleted."""
        self._change(user_id, lambda _: None)

    def _change(self, user_id: str, change: Callable[[_ModelCall], _ModelCall | None]) -> None:
        with self._mutex:
            self.unwritten[user_id] = tuple(filter(None, map(change, self.unwritten.pop(user_id, ()))))
            if not self.unwritten[user_id]:
                del self.unwritten[user_id]


def _with(record: UsageRecord | None, place: Lanes, calls: Iterable[_ModelCall]) -> UsageRecord:
    """Adds those calls of a place that are not in its record yet."""
    used, last = (record.used, record.last) if record else (Usage(), 0)
    new = [call for call in calls if place in call.places and call.number > last]
    return UsageRecord(used=total([used, *(call.used for call in new)]), last=new[-1].number if new else last)
