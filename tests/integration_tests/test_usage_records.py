"""What was used is kept on every store: by conversation, by user and month, in as many lanes as there are writers."""

from __future__ import annotations

from langgraph.store.base import BaseStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.stores import Ledger, Scope, bulk
from langchain_ctxbudget.stores.usage_ledger import of_user
from langchain_ctxbudget.tokens import Usage, total
from langchain_ctxbudget.tokens.prices import NO_USAGE

MONTH = "2026-11"
SCOPE = Scope("ada", "c1")
ONE = Usage(calls=1, input_tokens=1_000_000, cached_tokens=3, output_tokens=7, cost=0.123456789, unpriced_calls=1)
USERS = ["ada", "ad", "ada2", "ada@example.com", "a_a", "a%a", "nul \0", "half \ud800", "\U0001f642", "x" * 500]


def used(ledger: Ledger, store: BaseStore, scope: Scope = SCOPE, usage: Usage = ONE) -> None:
    ledger.note(scope, usage, "gpt-4o", MONTH)
    drive(ledger.write(store, scope))


def read(ledger: Ledger, store: BaseStore, scope: Scope = SCOPE) -> tuple[Usage, Usage]:
    return drive(ledger.read(store, scope, MONTH))


def test_two_processes_lose_nothing_and_no_user_reads_what_another_has_used(store: BaseStore) -> None:
    first, second = Ledger(), Ledger()
    for _ in range(3):
        for ledger in (first, second):
            used(ledger, store)
    for ledger in (first, second, Ledger()):
        assert read(ledger, store) == (total([ONE] * 6),) * 2
    for number, user in enumerate(USERS, 1):
        used(first, store, Scope(user, "c2"), Usage(calls=number))
    found = [read(Ledger(), store, Scope(user, "c2"))[0] for user in USERS]
    assert found == [Usage(calls=number) for number in range(1, len(USERS) + 1)]


def test_clearing_leaves_the_month_and_erasing_nothing(store: BaseStore) -> None:
    with ContextPipeline(store=store) as pipeline:
        for conversation in ("c1", MONTH):
            scope, ledger = Scope("ada", conversation), Ledger()
            used(ledger, store, scope)
            ledger.forget(scope)
            pipeline.clear(user_id="ada", conversation_id=conversation)
            drive(ledger.write(store, scope))
            assert read(ledger, store, scope)[0] == NO_USAGE
        assert read(Ledger(), store) == (NO_USAGE, ONE + ONE)
        used(ledger := Ledger(), store)
        used(ledger, store, Scope("ada2", "c1"))
        lines = pipeline.export_user(user_id="ada")
        assert [sum(kind in line for line in lines) for kind in ('"usage", "2026-11"', '"spent", "c1~"')] == [3, 1]
        ledger.erase("ada")
        pipeline.erase_user(user_id="ada")
        drive(ledger.write(store, SCOPE))
        assert not drive(bulk.read_below(store, of_user("ada")))
        assert read(ledger, store, Scope("ada2", "c1")) == (ONE, ONE)
