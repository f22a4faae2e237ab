"""Nothing that was noted is lost or counted twice, whoever writes when, and what was erased stays erased."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from langgraph.store.base import Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.stores import ROOT, Ledger, Scope, bulk, month_of
from langchain_ctxbudget.stores.usage_ledger import Lanes, of_month, of_session, of_user
from langchain_ctxbudget.tokens import Usage, total

MONTH, LATER = "2026-11", "2026-12"
ADA = Scope("ada", "c1")
SCOPES = (ADA, Scope("ada", "c2"), Scope("ada2", "c1"))
ONE = Usage(calls=1, input_tokens=100, cached_tokens=40, output_tokens=10, cost=0.001)


class Failing(InMemoryStore):
    """Fails to write as often as it is told, before or after the write has landed."""

    def __init__(self) -> None:
        super().__init__()
        self.before = self.after = self.writes = 0
        self.on_write: Callable[[], None] | None = None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        todo = list(ops)
        writes = any(isinstance(op, PutOp) for op in todo)
        self.writes += writes
        if writes and self.before:
            self.before -= 1
            raise ConnectionError("not reached")
        if writes and self.on_write is not None:
            happens, self.on_write = self.on_write, None
            happens()
        result = super().batch(todo)
        if writes and self.after:
            self.after -= 1
            raise ConnectionError("no answer")
        return result


@pytest.fixture
def store() -> Failing:
    return Failing()


@pytest.fixture
def ledger() -> Ledger:
    """Has noted a call of Ada's."""
    new = Ledger()
    new.note(ADA, ONE, None, MONTH)
    return new


def read(ledger: Ledger, store: InMemoryStore, scope: Scope = ADA, month: str = MONTH) -> tuple[Usage, Usage]:
    return drive(ledger.read(store, scope, month))


def write(ledger: Ledger, store: InMemoryStore) -> None:
    for scope in SCOPES:
        drive(ledger.write(store, scope))


def test_what_is_noted_is_written_once_with_what_else_is_to_be_written(store: Failing, ledger: Ledger) -> None:
    drive(ledger.write(store, ADA, [PutOp((ROOT, "else"), "key", {"x": 1})]))
    write(ledger, store)
    assert store.writes == 1
    assert store.get((ROOT, "else"), "key") is not None
    assert read(Ledger(), store) == (ONE, ONE)


def test_what_is_erased_while_it_is_being_written_is_not_written_again(store: Failing, ledger: Ledger) -> None:
    store.on_write = lambda: ledger.erase("ada")
    drive(ledger.write(store, ADA))
    drive(bulk.delete_below(store, of_user("ada"), "", ""))
    write(ledger, store)
    assert not store.search((ROOT,))


class TwoLedgers(RuleBasedStateMachine):
    """Two processes on one store, in any order, also where writes fail and processes begin anew."""

    scopes = st.sampled_from(SCOPES)
    who = st.sampled_from([0, 1])
    months = st.sampled_from([MONTH, LATER])

    @initialize()
    def begin(self) -> None:
        self.store = Failing()
        self.ledgers = [Ledger(), Ledger()]
        self.noted: list[dict[Any, list[Usage]]] = [{}, {}]
        """What each has noted and not written, by place."""
        self.written: dict[Any, list[Usage]] = {}

    @rule(who=who, scope=scopes, month=months, tokens=st.integers(0, 1_000), cost=st.floats(0, 1))
    def note(self, who: int, scope: Scope, month: str, tokens: int, cost: float) -> None:
        used = Usage(calls=1, input_tokens=tokens, cost=cost)
        self.ledgers[who].note(scope, used, f"model {tokens % 3}", month)
        for place in (of_session(scope), of_month(scope.user_id, month)):
            self.noted[who].setdefault(place, []).append(used)

    @rule(who=who, scope=scopes)
    def write(self, who: int, scope: Scope) -> None:
        drive(self.ledgers[who].write(self.store, scope))
        for place in self._unwritten(who, scope):
            self.written.setdefault(place, []).extend(self.noted[who].pop(place))

    def _unwritten(self, who: int, scope: Scope) -> list[Lanes]:
        session, months = of_session(scope), of_month(scope.user_id, MONTH)[:-1]
        return [place for place in self.noted[who] if place == session or place[:-1] == months]

    @rule(who=who, scope=scopes, fails=st.sampled_from(["before", "after"]))
    def write_and_fail(self, who: int, scope: Scope, fails: str) -> None:
        if not self._unwritten(who, scope):
            return
        setattr(self.store, fails, 1)
        with pytest.raises(ConnectionError):
            drive(self.ledgers[who].write(self.store, scope))
        if fails == "after":
            self.write(who, scope)

    @rule(who=who)
    def write_all_and_begin_anew(self, who: int) -> None:
        for scope in SCOPES:
            self.write(who, scope)
        self.ledgers[who] = Ledger()

    @rule(who=who, scope=scopes)
    def clear(self, who: int, scope: Scope) -> None:
        place = of_session(scope)
        self.ledgers[who].forget(scope)
        drive(bulk.delete_below(self.store, place, "", ""))
        self.noted[who].pop(place, None)
        self.written.pop(place, None)

    @rule(who=who, user=st.sampled_from(["ada", "ada2"]))
    def erase(self, who: int, user: str) -> None:
        self.ledgers[who].erase(user)
        drive(bulk.delete_below(self.store, of_user(user), "", ""))
        for counted in (self.noted[who], self.written):
            for place in [place for place in counted if place[:2] == of_user(user)]:
                del counted[place]

    @invariant()
    def everybody_reads_what_they_noted_and_what_was_written(self) -> None:
        for scope in SCOPES:
            for month in (MONTH, LATER):
                places = of_session(scope), of_month(scope.user_id, month)
                for noted, ledger in zip(self.noted, self.ledgers, strict=True):
                    expected = [total([*self.written.get(it, []), *noted.get(it, [])]) for it in places]
                    assert [*read(ledger, self.store, scope, month)] == expected


TestTwoLedgers = TwoLedgers.TestCase
TestTwoLedgers.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_every_lane_is_read_where_there_are_more_than_a_page(store: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 4)
    for _ in range(11):
        ledger = Ledger()
        ledger.note(ADA, ONE, None, MONTH)
        write(ledger, store)
    assert read(Ledger(), store) == (total([ONE] * 11),) * 2


def test_a_month_is_that_of_utc() -> None:
    for moment, month in (("2026-12-01T00:30+01:00", "2026-11"), ("2026-11-30T23:59", "2026-11")):
        assert month_of(datetime.fromisoformat(moment)) == month
    wrong: list[Any] = ["", "2026-13", "2026-11-01", "2026-11\n", None, 202611]
    for it in wrong:
        with pytest.raises(InputError, match="2026-11"):
            of_month("ada", it)
