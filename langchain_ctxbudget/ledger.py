"""What this process has counted of usage, until it is written and after.

Counting is a sum in memory; writing is for the background. A lane holds absolute numbers, so writing one twice is
harmless. The store has the last word: a lane that was written and is no longer there was erased, by whichever process,
and what it said is neither shown nor written again.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from uuid import uuid4
from weakref import WeakKeyDictionary

from langgraph.store.base import BaseStore, GetOp, Op

from langchain_ctxbudget.core.usage import Usage, total
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores import usage
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.stores.usage import UNKNOWN_MODEL, Counted, Place, added, month_of, of_month, of_session

__all__ = ["Ledger", "month_of"]

KEPT_LANES = 1_024
"""About how many lanes of a store stay in memory once they are written; those not counted in for longest go first."""


@dataclass(slots=True)
class _Lane:
    """What was counted in one place."""

    name: str = field(default_factory=lambda: uuid4().hex)
    """Fresh for every place: whoever counts in one again after its lane has left the memory begins another."""
    written: Counted = field(default_factory=dict)
    """What the store has confirmed."""
    under_way: Counted = field(default_factory=dict)
    """What is being written on top of it."""
    new: Counted = field(default_factory=dict)

    def sum(self) -> dict[str, Usage]:
        return added(self.written, self.under_way, self.new)


_Lanes: TypeAlias = OrderedDict[Place, _Lane]
LanesByStore: TypeAlias = WeakKeyDictionary[BaseStore, _Lanes]


class Ledger:
    """Counts what calls of models use; all ledgers of a process show and write the same, for threads and tasks.

    Args:
        lanes: where this one keeps what it has counted; default: where all do.

    Example:
        >>> from langgraph.store.memory import InMemoryStore
        >>> from langchain_ctxbudget.flow import drive
        >>> store, ledger, scope = InMemoryStore(), Ledger(), Scope("ada", "c1")
        >>> ledger.note(store, scope, Usage(calls=1, input_tokens=10), "gpt-4o", "2026-11")
        >>> session, month = drive(ledger.read(store, scope, "2026-11"))
        >>> session.input_tokens, month.calls
        (10, 1)
        >>> drive(ledger.write(store, scope))
        >>> another_process = Ledger(WeakKeyDictionary())
        >>> drive(another_process.read(store, scope, "2026-11")) == (session, month)
        True
    """

    def __init__(self, lanes: LanesByStore | None = None) -> None:
        self._by_store = _shared if lanes is None else lanes

    def _of(self, store: BaseStore) -> _Lanes:
        return self._by_store.setdefault(store, OrderedDict())

    def note(self, store: BaseStore, scope: Scope, used: Usage, model: str | None, month: str) -> None:
        """Count a call for its conversation and for its user's month; does no I/O.

        Args:
            store: where it will be kept.
            scope: whose conversation.
            used: by the call.
            model: that was called; None where it is not known.
            month: of the call; see `month_of`.

        Raises:
            InputError: the month is none.
        """
        places = of_session(scope), of_month(scope.user_id, month)
        with _mutex:
            lanes = self._of(store)
            for place in places:
                lane = lanes.setdefault(place, _Lane())
                lane.new = added(lane.new, {model or UNKNOWN_MODEL: used})
                lanes.move_to_end(place)

    def known(self, store: BaseStore, scope: Scope, month: str) -> tuple[Usage, Usage]:
        """What this process has counted for a conversation and for its user's month; for when reading fails.

        Raises:
            InputError: the month is none.
        """
        session, of_user = self._seen(store, (of_session(scope), of_month(scope.user_id, month)))
        return total(session.sum().values()), total(of_user.sum().values())

    def read(self, store: BaseStore, scope: Scope, month: str) -> Flow[tuple[Usage, Usage]]:
        """What was used in a conversation, and by its user in a month, by every process as far as it is written.

        Args:
            store: where it is kept.
            scope: whose conversation.
            month: which month; see `month_of`.

        Raises:
            InputError: the month is none.
            StoreDataError: a record that cannot be read; the message names it.
        """
        session, of_user = yield from self._read(store, (of_session(scope), of_month(scope.user_id, month)))
        return session, of_user

    def of_month(self, store: BaseStore, user_id: str, month: str) -> Flow[Usage]:
        """What a user has used in a month, in all conversations; see `read`.

        Raises:
            InputError: the month is none.
            MissingScopeError: no user.
            StoreDataError: a record that cannot be read; the message names it.
        """
        [used] = yield from self._read(store, (of_month(user_id, month),))
        return used

    def _read(self, store: BaseStore, places: Sequence[Place]) -> Flow[list[Usage]]:
        # The memory first: what is written in between is then not counted twice.
        own = self._seen(store, places)
        found = yield from usage.read_lanes(store, places)
        sums = []
        for place, lanes, lane in zip(places, found, own, strict=True):
            if lane.name not in lanes:
                self._lost(store, place, lane)
                lane.written = {}
            others = [record.to_counted() for name, record in lanes.items() if name != lane.name]
            sums.append(total(added(*others, lane.sum()).values()))
        return sums

    def _seen(self, store: BaseStore, places: Sequence[Place]) -> list[_Lane]:
        """The lanes as they are now; empty ones where there are none."""
        with _mutex:
            lanes = self._of(store)
            return [replace(lanes[place]) if place in lanes else _Lane() for place in places]

    def _lost(self, store: BaseStore, place: Place, seen: _Lane) -> None:
        """Note that what a lane had written is no longer in the store; what was written since is."""
        with _mutex:
            lane = self._of(store).get(place)
            if lane is not None and lane.written is seen.written:
                lane.written = {}

    def write(self, store: BaseStore, scope: Scope, also: Sequence[Op] = ()) -> Flow[None]:
        """Write what was counted of a conversation and its user; where that fails, it is written the next time.

        Whoever writes for a user does so alone, and whoever erases something of them waits for it.

        Args:
            store: where to.
            scope: whose conversation.
            also: what else is written in the same batch.
        """
        with _mutex:
            before = [(place, replace(lane)) for place, lane in self._unwritten(store, scope) if lane.written]
        items = yield from batch(store, [GetOp(place, lane.name) for place, lane in before])
        for (place, lane), item in zip(before, items, strict=True):
            if item is None:
                self._lost(store, place, lane)
        with self._writes(store, scope) as totals:
            yield from batch(store, [*also, *totals])

    @contextmanager
    def _writes(self, store: BaseStore, scope: Scope) -> Iterator[list[Op]]:
        """The writes of what was counted; they are done where the block ends without an error."""
        with _mutex:
            todo = self._unwritten(store, scope)
            for _, lane in todo:
                lane.under_way, lane.new = lane.new, {}
            sums = [lane.sum() for _, lane in todo]
        try:
            yield [usage.writing(place, lane.name, sums[number]) for number, (place, lane) in enumerate(todo)]
        except BaseException:
            with _mutex:
                for _, lane in todo:
                    lane.new, lane.under_way = added(lane.under_way, lane.new), {}
            raise
        with _mutex:
            for (_, lane), counted in zip(todo, sums, strict=True):
                lane.written, lane.under_way = counted, {}
            self._let_go(store)

    def _unwritten(self, store: BaseStore, scope: Scope) -> list[tuple[Place, _Lane]]:
        """The lanes of a conversation, and of its user's months, that are not written."""
        session, user = of_session(scope), usage.of_user(scope.user_id)
        return [
            (place, lane)
            for place, lane in self._of(store).items()
            if lane.new and (place == session or (place[:2] == user and place[2] == usage.USAGE))
        ]

    def _let_go(self, store: BaseStore) -> None:
        """Keep the lanes that are not written, and of the others those that were counted in last."""
        lanes = self._of(store)
        over = len(lanes) - KEPT_LANES
        for place in [place for place, lane in lanes.items() if not lane.new and not lane.under_way][: max(0, over)]:
            del lanes[place]

    def forget(self, store: BaseStore, scope: Scope) -> None:
        """Never write again what was counted of a conversation; to be done before its records are deleted.

        What its user has used in a month stays.
        """
        self._drop(store, of_session(scope))

    def erase(self, store: BaseStore, user_id: str) -> None:
        """Never write again what was counted of a user; to be done before their records are deleted.

        Raises:
            MissingScopeError: no user.
        """
        self._drop(store, usage.of_user(user_id))

    def _drop(self, store: BaseStore, path: Place) -> None:
        with _mutex:
            lanes = self._of(store)
            for place in [place for place in lanes if place[: len(path)] == path]:
                del lanes[place]


_shared: LanesByStore = WeakKeyDictionary()
_mutex = threading.Lock()
"""Held while lanes are looked at or changed."""


def _begin_anew() -> None:
    """In the child of a fork, know of nothing: what was counted before is for the parent to write."""
    global _mutex  # noqa: PLW0603 - another thread may have held it
    _mutex = threading.Lock()
    _shared.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_begin_anew)
