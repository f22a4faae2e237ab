"""What calls of models used in a conversation, and of a user in a month: counted in memory, written in the background.

There is no counter that several processes share and could overwrite. Each ledger has a lane of its own in every place,
a record of what it has counted there in absolute numbers, so that writing it twice is harmless; what was used in a
place is the sum of its lanes. The store has the last word: a lane that was written and is no longer there was erased,
by whichever process, and what it said is neither shown nor written again.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias, cast
from uuid import uuid4

from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, SearchOp

from langchain_ctxbudget.background import beginning_anew, new_mutex
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores import bulk
from langchain_ctxbudget.stores.records import ROOT, Record, Scope, label, require_id, utc
from langchain_ctxbudget.tokens import Usage, total

SPENT, USAGE = "spent", "usage"
KEPT_LANES = 1_024
"""About how many lanes stay in memory once they are written; those not counted in for longest go first."""
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")

Lanes: TypeAlias = tuple[str, ...]
"""A namespace with one item per lane: that of a conversation, or of a user's month."""
Counted: TypeAlias = Mapping[str, Usage]
"""By model; calls that do not name theirs are below an empty name."""


class UsageRecord(Record):
    """The usage that one lane has counted."""

    models: dict[str, Usage]


def month_of(now: datetime) -> str:
    """Returns the calendar month of a moment, in UTC, which a moment without a time zone is taken for.

    >>> month_of(datetime.fromisoformat("2026-12-01T00:30:00+01:00"))
    '2026-11'
    """
    return utc(now).date().isoformat()[:7]


def of_session(scope: Scope) -> Lanes:
    """Returns the namespace of a conversation's usage."""
    return scope.namespace(SPENT)


def of_user(user_id: str) -> Lanes:
    """Returns the labels that the namespaces of a user begin with."""
    return (ROOT, label(require_id("user_id", user_id)))


def of_month(user_id: str, month: str) -> Lanes:
    """Returns the namespace of a user's usage in a month, in all conversations.

    A month is no label of a conversation: clearing one called "2026-11" leaves it.
    """
    if not isinstance(month, str) or not _MONTH.fullmatch(month):
        raise InputError(f"month must be a year and a month such as '2026-11', not {month!r}")
    return (*of_user(user_id), USAGE, month)


def _added(parts: Iterable[Counted]) -> dict[str, Usage]:
    known = list(parts)
    models = dict.fromkeys(model for part in known for model in part)
    return {model: total(part[model] for part in known if model in part) for model in models}


@dataclass(slots=True)
class _Lane:
    name: str = field(default_factory=lambda: uuid4().hex)
    """Fresh for every place: whoever counts in one again after its lane has left the memory begins another."""
    written: Counted = field(default_factory=dict)
    """What the store has confirmed."""
    calls: tuple[Counted, ...] = ()
    """What was counted since, one after the other."""

    @property
    def counted(self) -> dict[str, Usage]:
        return _added([self.written, *self.calls])


class Ledger:
    """Counts the usage of one pipeline's calls over its store, for threads and tasks.

    Example:
        >>> from langgraph.store.memory import InMemoryStore
        >>> from langchain_ctxbudget.flow import drive
        >>> store, ledger, scope = InMemoryStore(), Ledger(), Scope("ada", "c1")
        >>> ledger.note(scope, Usage(calls=1, input_tokens=10), "gpt-4o", "2026-11")
        >>> session, month = drive(ledger.read(store, scope, "2026-11"))
        >>> session.input_tokens, month.calls
        (10, 1)
        >>> drive(ledger.write(store, scope))
        >>> drive(Ledger().read(store, scope, "2026-11")) == (session, month)  # as another process does
        True
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        """Held while lanes are looked at or changed."""
        self._lanes: OrderedDict[Lanes, _Lane] = OrderedDict()
        beginning_anew(self)

    def begin_anew(self) -> None:
        """Knows of nothing in the child of a fork: what was counted before is for the parent to write."""
        self._lanes = OrderedDict()

    def note(self, scope: Scope, used: Usage, model: str | None, month: str) -> None:
        """Counts a call for its conversation and for its user's month (see `month_of`); does no I/O."""
        places = [*([of_session(scope)] if scope.is_kept else []), of_month(scope.user_id, month)]
        with self._mutex:
            for place in places:
                lane = self._lanes.setdefault(place, _Lane())
                lane.calls = (*lane.calls, {model or "": used})
                self._lanes.move_to_end(place)

    def known(self, scope: Scope, month: str) -> tuple[Usage, Usage]:
        """Returns what this ledger has counted for a conversation and its user's month; for when reading fails."""
        session, user = self._seen((of_session(scope), of_month(scope.user_id, month)))
        return total(session.counted.values()), total(user.counted.values())

    def read(self, store: BaseStore, scope: Scope, month: str) -> Flow[tuple[Usage, Usage]]:
        """Returns the usage of a conversation, and of its user in a month, by everybody as far as it is written."""
        session, user = yield from self._read(store, (of_session(scope), of_month(scope.user_id, month)))
        return session, user

    def of_month(self, store: BaseStore, user_id: str, month: str) -> Flow[Usage]:
        """Returns the usage of a user in a month, in all conversations; see `read`."""
        [used] = yield from self._read(store, (of_month(user_id, month),))
        return used

    def _read(self, store: BaseStore, places: Sequence[Lanes]) -> Flow[list[Usage]]:
        own = self._seen(places)  # the memory first: what is written in between is then not counted twice
        results = yield from batch(store, [SearchOp(place, limit=bulk.PAGE) for place in places])
        sums = []
        for place, result, lane in zip(places, results, own, strict=True):
            items = cast("list[Item]", result)
            if len(items) == bulk.PAGE:
                items = yield from bulk.read_all(store, place)
            # By name: an item that is written while pages are read may stand on two of them.
            values = {item.key: item.value for item in items if item.namespace == place}
            if values.pop(lane.name, None) is None:
                self._lost(place, lane)
                lane.written = {}
            others = [UsageRecord.read(it, f"usage {'/'.join(place)} {name!r}").models for name, it in values.items()]
            sums.append(total(_added([*others, lane.counted]).values()))
        return sums

    def _seen(self, places: Sequence[Lanes]) -> list[_Lane]:
        """Returns copies of the lanes as they are now; empty ones where there are none."""
        with self._mutex:
            return [replace(self._lanes[place]) if place in self._lanes else _Lane() for place in places]

    def _lost(self, place: Lanes, seen: _Lane) -> None:
        """Notes that what a lane had written is no longer in the store; what was written since is."""
        with self._mutex:
            lane = self._lanes.get(place)
            if lane is not None and lane.written is seen.written:
                lane.written = {}

    def write(self, store: BaseStore, scope: Scope, also: Sequence[Op] = ()) -> Flow[None]:
        """Writes what was counted of a conversation and its user; where that fails, it is written the next time.

        Whoever writes for a user does so alone, and whoever erases something of them waits for it.
        """
        before = [(place, replace(lane)) for place, lane in self._unwritten(scope) if lane.written]
        items = yield from batch(store, [GetOp(place, lane.name) for place, lane in before])
        for (place, lane), item in zip(before, items, strict=True):
            if item is None:
                self._lost(place, lane)
        todo = [(place, lane, replace(lane)) for place, lane in self._unwritten(scope)]
        puts = [
            PutOp(place, lane.name, UsageRecord(models=seen.counted).to_value(), index=False)
            for place, lane, seen in todo
        ]
        yield from batch(store, [*also, *puts])
        with self._mutex:
            for _, lane, seen in todo:
                lane.written, lane.calls = seen.counted, lane.calls[len(seen.calls) :]
            done = [place for place, lane in self._lanes.items() if not lane.calls]
            for place in done[: max(0, len(self._lanes) - KEPT_LANES)]:
                del self._lanes[place]

    def _unwritten(self, scope: Scope) -> list[tuple[Lanes, _Lane]]:
        """Returns the lanes of a conversation, and of its user's months, that are not written."""
        session, months = of_session(scope), (*of_user(scope.user_id), USAGE)
        with self._mutex:
            lanes = self._lanes.items()
            return [(place, lane) for place, lane in lanes if lane.calls and (place == session or place[:3] == months)]

    def forget(self, scope: Scope) -> None:
        """Never writes again what was counted of a conversation; to be done before its records are deleted.

        What its user has used in a month stays.
        """
        self._drop(of_session(scope))

    def erase(self, user_id: str) -> None:
        """Never writes again what was counted of a user; to be done before their records are deleted."""
        self._drop(of_user(user_id))

    def _drop(self, path: Lanes) -> None:
        with self._mutex:
            for place in [place for place in self._lanes if place[: len(path)] == path]:
                del self._lanes[place]
