"""What a call used and costs, prices as data.

And that nothing that was noted is lost or counted twice.
"""

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from langgraph.store.base import Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget.errors import InputError, InvalidSettingsError
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.pipeline.usage import Ledger, month_of, of_month, of_session
from langchain_ctxbudget.stores import ROOT, Scope, bulk, label
from langchain_ctxbudget.tokens import PRICES, Price, Usage, load_prices, price_of, total, usage_of

ROUND = {"m": Price(input=100, cached_input=10, cache_write=125, output=1_000)}
"""In ten-thousandths of a dollar: 1 a token of input, 0.1 cached, 1.25 cached now, 10 of output."""
A_TOKEN = 0.0001

COUNTS = st.integers(0, 10**9)
USAGES = st.builds(
    Usage,
    calls=COUNTS,
    input_tokens=COUNTS,
    cached_tokens=COUNTS,
    output_tokens=COUNTS,
    cost=st.floats(0, 10_000),
    unpriced_calls=COUNTS,
)


def metadata(input_tokens: int, output_tokens: int = 0, **details: Any) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "input_token_details": details,
    }


def cost(used: dict[str, Any], prices: dict[str, Price] = ROUND) -> float:
    return usage_of(used, "m", prices).cost / A_TOKEN


COSTS: list[tuple[dict[str, Any], float]] = [
    (metadata(7, 3), 7 + 30),
    (metadata(100, cache_read=60), 40 + 6),
    (metadata(100, cache_read=60, cache_creation=20), 20 + 6 + 25),
    (
        metadata(10, cache_read=6, cache_creation=20),
        0.6 + 4 * 1.25,
    ),  # no more is cached now than was left
    (metadata(10, cache_read=60, cache_creation=20), 1),
    # Anthropic's parts are not counted beside the whole, and the whole may be 0 where they are
    # given.
    (
        metadata(
            100, cache_creation=40, ephemeral_5m_input_tokens=30, ephemeral_1h_input_tokens=10
        ),
        60 + 50,
    ),
    (
        metadata(100, cache_creation=0, ephemeral_5m_input_tokens=30, ephemeral_1h_input_tokens=10),
        60 + 50,
    ),
    ({"input_tokens": 5}, 5),
    ({"input_tokens": 5, "total_tokens": 12}, 5 + 70),
    ({"input_tokens": 5, "output_tokens": 0, "input_token_details": None}, 5),
    ({"input_tokens": 5, "output_tokens": 0, "input_token_details": {"cache_read": None}}, 5),
]


def test_every_kind_of_tokens_has_its_price() -> None:
    for used, tokens in COSTS:
        assert cost(used) == pytest.approx(tokens), used
    cached = metadata(100, cache_read=60, cache_creation=20)
    assert cost(cached, {"m": Price(input=100, output=1_000)}) == pytest.approx(100)
    assert cost(
        cached, {"m": Price(input=100, cached_input=0, cache_write=0, output=0)}
    ) == pytest.approx(20)


def test_of_a_model_without_a_price_tokens_alone_are_counted() -> None:
    assert usage_of(metadata(100, 5, cache_read=60), "unheard-of", ROUND) == Usage(
        calls=1, input_tokens=100, cached_tokens=60, output_tokens=5, unpriced_calls=1
    )
    assert usage_of(metadata(1), None, ROUND).unpriced_calls == 1
    assert usage_of(metadata(1), "m", {"m": Price(input=0, output=0)}).unpriced_calls == 0


@given(USAGES, USAGES, USAGES)
def test_in_which_order_usages_are_added_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c) == (c + a) + b == total([a, b, c])
    assert total([a, b]).total_tokens == a.total_tokens + b.total_tokens


PRICED = {
    "gpt-4o": "gpt-4o openai/gpt-4o openai:gpt-4o openrouter/openai/gpt-4o gpt-4o-2024-08-06 openai/gpt-4o-2024-08-06",
    "gpt-4o-2024-05-13": "gpt-4o-2024-05-13",
    "claude-opus-4-5": "claude-opus-4-5-20251101 vertex_ai/claude-opus-4-5@20251101",
    "gemini-2.5-pro": "models/gemini-2.5-pro gemini-2.5-pro-001",
    "openai/gpt-oss-20b": "openai/gpt-oss-20b groq/openai/gpt-oss-20b",
}
UNPRICED = """/ openai/ gpt-4o-audio-preview gpt-4o-mini-search-preview-2025-03-11 ft:gpt-4o-2024-08-06:us::1 ft:gpt-4o
    somewhere-else/gpt-4o gpt-4o-20240 gpt-4o-2024-08-06-audio llama3.3:70b mistral-large-2411 GPT-4o"""
REFUSED: list[tuple[Any, str]] = [
    ({"mine": {"input": 1}}, r"prices\['mine'\].*output"),
    ({"": {"input": 1, "output": 2}}, "must be a mapping"),
    ("gpt-4o", "must be a mapping"),
]


def test_a_model_has_the_price_of_its_name_and_none_is_guessed() -> None:
    for priced_as, models in PRICED.items():
        assert {price_of(model, PRICES) for model in models.split()} == {PRICES[priced_as]}
    assert {price_of(model, PRICES) for model in [None, "", *UNPRICED.split()]} == {None}


def test_the_prices_of_an_application_lie_over_the_packaged_ones() -> None:
    before = PRICES["gpt-4o"]
    prices = load_prices({"gpt-4o": {"input": 1, "output": 2}, "mine": Price(input=3, output=4)})
    assert prices["gpt-4o"] == Price(input=1, output=2)
    assert (prices["mine"].input, prices["gpt-5"]) == (3, PRICES["gpt-5"])
    assert price_of("gpt-4o-2024-05-13", prices) is PRICES["gpt-4o-2024-05-13"]
    assert price_of("gpt-4o-2024-08-06", prices) is prices["gpt-4o"]
    assert load_prices()["gpt-4o"] is before
    with pytest.raises(TypeError):
        PRICES["gpt-4o"] = Price(input=1, output=2)  # type: ignore[index]


def test_prices_that_cannot_be_used_are_refused_by_name() -> None:
    for value in (-0.01, math.nan, "2.5", True, 1_000_001):
        with pytest.raises(
            InvalidSettingsError, match=r"prices\['mine'\].* cached_input must be .*, not "
        ):
            load_prices({"mine": {"input": 1, "output": 2, "cached_input": value}})
    for wrong, says in REFUSED:
        with pytest.raises(InvalidSettingsError, match=says):
            load_prices(wrong)


MONTH = "2026-11"
LATER = "2026-12"
ADA = Scope("ada", "c1")
SCOPES = (ADA, Scope("ada", "c2"), Scope("ada2", "c1"))
USERS = ("ada", "ada2")
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
            happens = self.on_write
            self.on_write = None
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
    new.note(ADA, ONE, MONTH)
    return new


def of_user(user_id: str) -> tuple[str, ...]:
    return ROOT, label(user_id)


def read(
    ledger: Ledger, store: InMemoryStore, scope: Scope = ADA, month: str = MONTH
) -> tuple[Usage, Usage]:
    session = of_session(scope)
    user = of_month(scope.user_id, month)
    return drive(ledger.read(store, scope.user_id, session)), drive(
        ledger.read(store, scope.user_id, user)
    )


def write(ledger: Ledger, store: InMemoryStore) -> None:
    for user in USERS:
        drive(ledger.write(store, user))


def test_what_is_noted_is_written_once(store: Failing, ledger: Ledger) -> None:
    drive(ledger.write(store, "ada"))
    write(ledger, store)
    assert store.writes == 1
    assert read(Ledger(), store) == (ONE, ONE)


def test_what_is_noted_while_others_are_being_written_is_written_the_next_time(
    store: Failing, ledger: Ledger
) -> None:
    store.on_write = lambda: ledger.note(ADA, ONE, MONTH)
    for _ in range(2):
        drive(ledger.write(store, "ada"))
    assert read(Ledger(), store) == (ONE + ONE, ONE + ONE)


def test_what_is_erased_while_it_is_being_written_is_not_written_again(
    store: Failing, ledger: Ledger
) -> None:
    store.on_write = lambda: ledger.erase("ada")
    drive(ledger.write(store, "ada"))
    drive(bulk.delete_below(store, of_user("ada"), "", ""))
    write(ledger, store)
    assert not store.search((ROOT,))


class TwoLedgers(RuleBasedStateMachine):
    """Two processes on one store, in any order, also where writes fail and processes begin anew."""

    scopes = st.sampled_from(SCOPES)
    who = st.sampled_from([0, 1])
    months = st.sampled_from([MONTH, LATER])
    users = st.sampled_from(USERS)

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
        self.ledgers[who].note(scope, used, month)
        for place in (of_session(scope), of_month(scope.user_id, month)):
            self.noted[who].setdefault(place, []).append(used)

    @rule(who=who, user=users)
    def write(self, who: int, user: str) -> None:
        drive(self.ledgers[who].write(self.store, user))
        for place in self._unwritten(who, user):
            self.written.setdefault(place, []).extend(self.noted[who].pop(place))

    def _unwritten(self, who: int, user: str) -> list[tuple[str, ...]]:
        return [place for place in self.noted[who] if place[:2] == of_user(user)]

    @rule(who=who, user=users, fails=st.sampled_from(["before", "after"]))
    def write_and_fail(self, who: int, user: str, fails: str) -> None:
        if not self.ledgers[who].unwritten.get(user):
            return
        setattr(self.store, fails, 1)
        with pytest.raises(ConnectionError):
            drive(self.ledgers[who].write(self.store, user))
        if fails == "after":
            self.write(who, user)

    @rule(who=who)
    def write_all_and_begin_anew(self, who: int) -> None:
        for user in USERS:
            self.write(who, user)
        self.ledgers[who] = Ledger()

    @rule(who=who, scope=scopes)
    def clear(self, who: int, scope: Scope) -> None:
        place = of_session(scope)
        self.ledgers[who].forget(scope)
        drive(bulk.delete_below(self.store, place, "", ""))
        self.noted[who].pop(place, None)
        self.written.pop(place, None)

    @rule(who=who, user=users)
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
                    expected = [
                        total([*self.written.get(it, []), *noted.get(it, [])]) for it in places
                    ]
                    assert [*read(ledger, self.store, scope, month)] == expected


TestTwoLedgers = TwoLedgers.TestCase
TestTwoLedgers.settings = settings(
    max_examples=25, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)


def test_every_lane_is_read_where_there_are_more_than_a_page(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 4)
    for _ in range(11):
        ledger = Ledger()
        ledger.note(ADA, ONE, MONTH)
        write(ledger, store)
    assert read(Ledger(), store) == (total([ONE] * 11),) * 2


def test_a_month_is_that_of_utc() -> None:
    for moment, month in (("2026-12-01T00:30+01:00", "2026-11"), ("2026-11-30T23:59", "2026-11")):
        assert month_of(datetime.fromisoformat(moment)) == month
    wrong: list[Any] = ["", "2026-13", "2026-11-01", "2026-11\n", None, 202611]
    for it in wrong:
        with pytest.raises(InputError, match="2026-11"):
            of_month("ada", it)
