"""What calls of models used in a conversation, and of a user in a month: counted in memory, written in the background.

No counter is shared by processes, which could overwrite it: each ledger has a lane of its own in every place, a record
of what it has counted and of the last call that is in it, so that a call that is written twice counts once. What was
used in a place is the sum of its lanes. Of a lane that somebody erased, only what was counted since is written again.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, TypeAlias
from uuid import uuid4

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.base import ROOT, Record, Scope, label, require_id, utc
from langchain_ctxbudget.tokens import Usage, total

SPENT, USAGE = "spent", "usage"
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")

Lanes: TypeAlias = tuple[str, ...]
"""A namespace with one item per lane: that of a conversation, or of a user's month."""


class UsageRecord(Record):
    """The usage that one lane has counted."""

    models: dict[str, Usage]
    """Calls that do not name their model are below an empty name."""
    last: int = 0
    """The number of the last call that is in it."""


class _Call(NamedTuple):
    number: int
    model: str
    used: Usage


def month_of(now: datetime) -> str:
    """Returns the calendar month of a moment in UTC, such as `2026-11`."""
    return utc(now).date().isoformat()[:7]


def of_session(scope: Scope) -> Lanes:
    """Returns the namespace of a conversation's usage."""
    return scope.namespace(SPENT)


def of_user(user_id: str) -> Lanes:
    """Returns the labels that the namespaces of a user begin with."""
    return (ROOT, label(require_id("user_id", user_id)))


def of_month(user_id: str, month: str) -> Lanes:
    """Returns the namespace of a user's usage in a month; clearing a conversation called "2026-11" leaves it."""
    if not isinstance(month, str) or not _MONTH.fullmatch(month):
        raise InputError(f"month must be a year and a month such as '2026-11', not {month!r}")
    return (*of_user(user_id), USAGE, month)


class Ledger:
    """Counts the usage of one pipeline's calls over its store, for threads and tasks."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._lane, self._noted = uuid4().hex, 0
        self._calls: Mapping[Lanes, tuple[_Call, ...]] = {}
        """What is not written yet."""

    def note(self, scope: Scope, used: Usage, model: str | None, month: str) -> None:
        """Counts a call for its conversation and for its user's month (see `month_of`); does no I/O."""
        places = [*([of_session(scope)] if scope.is_kept else []), of_month(scope.user_id, month)]
        with self._mutex:
            self._noted += 1
            call = _Call(self._noted, model or "", used)
            self._calls = {**self._calls, **{place: (*self._calls.get(place, ()), call) for place in places}}

    def read(self, store: BaseStore, scope: Scope, month: str) -> Flow[tuple[Usage, Usage]]:
        """Returns the usage of a conversation, and of its user in a month, by everybody as far as it is written."""
        session = yield from self._read(store, of_session(scope))
        return session, (yield from self.of_month(store, scope.user_id, month))

    def of_month(self, store: BaseStore, user_id: str, month: str) -> Flow[Usage]:
        """Returns the usage of a user in a month, in all conversations; see `read`."""
        return (yield from self._read(store, of_month(user_id, month)))

    def unwritten(self, scope: Scope, month: str) -> tuple[Usage, Usage]:
        """Returns what was counted and is not written yet; for when reading fails."""
        calls = self._calls
        session, user = (calls.get(place, ()) for place in (of_session(scope), of_month(scope.user_id, month)))
        return total(call.used for call in session), total(call.used for call in user)

    def _read(self, store: BaseStore, place: Lanes) -> Flow[Usage]:
        calls = self._calls.get(place, ())  # the memory first: what is written in between is then not counted twice
        # By name: an item that is written while pages are read may stand on two of them.
        lanes = {item.key: _record(item) for item in (yield from bulk.read_all(store, place))}
        lanes[self._lane] = _with(lanes.get(self._lane), calls)
        return total(used for record in lanes.values() for used in record.models.values())

    def write(self, store: BaseStore, scope: Scope) -> Flow[None]:
        """Writes what was counted of a conversation and its user; where that fails, it is written the next time."""
        session, months = of_session(scope), (*of_user(scope.user_id), USAGE)
        todo = {place: calls for place, calls in self._calls.items() if place == session or place[:3] == months}
        items = yield from batch(store, [GetOp(place, self._lane) for place in todo])
        puts = []
        for (place, calls), item in zip(todo.items(), items, strict=True):
            record = _with(_record(item) if isinstance(item, Item) else None, calls)
            puts.append(PutOp(place, self._lane, record.to_value(), index=False))
        yield from batch(store, puts)
        self._keep(lambda place, call: place not in todo or call.number > todo[place][-1].number)

    def forget(self, scope: Scope) -> None:
        """Never writes again what was counted of a conversation; its user's month stays."""
        self._keep(lambda place, _: place != of_session(scope))

    def erase(self, user_id: str) -> None:
        """Never writes again what was counted of a user; to be done before their records are deleted."""
        self._keep(lambda place, _: place[:2] != of_user(user_id))

    def _keep(self, wanted: Callable[[Lanes, _Call], bool]) -> None:
        with self._mutex:
            kept = ((place, tuple(it for it in calls if wanted(place, it))) for place, calls in self._calls.items())
            self._calls = {place: calls for place, calls in kept if calls}


def _record(item: Item) -> UsageRecord:
    return UsageRecord.read(item.value, f"usage {'/'.join(item.namespace)} {item.key!r}")


def _with(record: UsageRecord | None, calls: Iterable[_Call]) -> UsageRecord:
    """Adds those calls that are not in a record yet."""
    models, last = (dict(record.models), record.last) if record else ({}, 0)
    for call in calls:
        if call.number > last:
            models[call.model] = models.get(call.model, Usage()) + call.used
            last = call.number
    return UsageRecord(models=models, last=last)
