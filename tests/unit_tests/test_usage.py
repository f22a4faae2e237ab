"""What a call used and costs, prices as data, and usage that is noted and counted once."""

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import product
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
from langchain_ctxbudget.tokens import (
    PRICES,
    Price,
    Usage,
    load_prices,
    price_of,
    total,
    usage_of,
    with_time,
)

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
    timed_calls=COUNTS,
    seconds=st.floats(0, 86_400),
)


def metadata(input_tokens: int, output_tokens: int = 0, **details: Any) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "input_token_details": details,
    }


def cost(used: dict[str, Any], price: Price = ROUND["m"]) -> float:
    """What a call costs, in tokens of input."""
    return usage_of(used, "m", {"m": price}).cost / A_TOKEN


# How long a call took


def test_a_call_without_a_time_is_not_timed() -> None:
    assert with_time(Usage(calls=1), None) == Usage(calls=1)


def test_the_mean_leaves_out_calls_that_were_not_timed() -> None:
    used = with_time(Usage(calls=1), 2) + with_time(Usage(calls=1), 4) + Usage(calls=1)
    assert used.seconds_per_call == 3


def test_calls_that_were_not_timed_have_no_mean() -> None:
    assert Usage(calls=1).seconds_per_call is None


@pytest.mark.parametrize("seconds", [-1, 86_401, math.nan, math.inf, True, "2"])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(InputError, match="seconds must be a number from 0 to 86,400"):
        with_time(Usage(calls=1), seconds)


# What a call costs


@pytest.mark.parametrize(
    ("used", "tokens"),
    [
        pytest.param(metadata(7, 3), 37, id="input and output"),
        pytest.param(metadata(100, cache_read=60), 46, id="cached"),
        pytest.param(metadata(100, cache_read=60, cache_creation=20), 51, id="cached now"),
        pytest.param(
            metadata(10, cache_read=6, cache_creation=20),
            5.6,  # 6 * 0.1 + 4 * 1.25
            id="no more is cached now than was left",
        ),
        pytest.param(metadata(10, cache_read=60, cache_creation=20), 1, id="all was cached"),
        pytest.param(
            metadata(
                100, cache_creation=40, ephemeral_5m_input_tokens=30, ephemeral_1h_input_tokens=10
            ),
            110,  # 60 + 40 * 1.25
            id="Anthropic's parts are not counted beside the whole",
        ),
        pytest.param(
            metadata(
                100, cache_creation=0, ephemeral_5m_input_tokens=30, ephemeral_1h_input_tokens=10
            ),
            110,
            id="the whole is 0 where Anthropic's parts are given",
        ),
        pytest.param({"input_tokens": 5}, 5, id="input alone"),
        pytest.param({"input_tokens": 5, "total_tokens": 12}, 75, id="output from the total"),
        pytest.param(
            {"input_tokens": 5, "output_tokens": 0, "input_token_details": None},
            5,
            id="no details",
        ),
        pytest.param(
            {"input_tokens": 5, "output_tokens": 0, "input_token_details": {"cache_read": None}},
            5,
            id="empty details",
        ),
    ],
)
def test_every_kind_of_tokens_has_its_price(used: dict[str, Any], tokens: float) -> None:
    assert cost(used) == pytest.approx(tokens)


@pytest.mark.parametrize(
    ("price", "tokens"),
    [
        (Price(input=100, output=1_000), 100),
        (Price(input=100, cached_input=0, cache_write=0, output=0), 20),
    ],
    ids=["as other input where nothing is said", "nothing where it is free"],
)
def test_cached_tokens_cost_what_the_price_says(price: Price, tokens: float) -> None:
    used = metadata(100, cache_read=60, cache_creation=20)

    assert cost(used, price) == pytest.approx(tokens)


def test_of_a_model_without_a_price_tokens_alone_are_counted() -> None:
    assert usage_of(metadata(100, 5, cache_read=60), "unheard-of", ROUND) == Usage(
        calls=1, input_tokens=100, cached_tokens=60, output_tokens=5, unpriced_calls=1
    )


def test_a_call_of_no_model_is_unpriced() -> None:
    assert usage_of(metadata(1), None, ROUND).unpriced_calls == 1


def test_a_model_that_is_free_is_not_unpriced() -> None:
    free = {"m": Price(input=0, output=0)}

    assert usage_of(metadata(1), "m", free).unpriced_calls == 0


@given(USAGES, USAGES, USAGES)
def test_the_order_in_which_usages_are_added_does_not_matter(a: Usage, b: Usage, c: Usage) -> None:
    assert (a + b) + c == a + (b + c) == (c + a) + b == total([a, b, c])


@given(USAGES, USAGES)
def test_tokens_add_up(a: Usage, b: Usage) -> None:
    assert total([a, b]).total_tokens == a.total_tokens + b.total_tokens


# Prices


@pytest.mark.parametrize(
    ("model", "priced_as"),
    [
        ("gpt-4o", "gpt-4o"),
        ("openai/gpt-4o", "gpt-4o"),
        ("openai:gpt-4o", "gpt-4o"),
        ("openrouter/openai/gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("openai/gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("vertex_ai/claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini-2.5-pro-001", "gemini-2.5-pro"),
        ("openai/gpt-oss-20b", "openai/gpt-oss-20b"),
        ("groq/openai/gpt-oss-20b", "openai/gpt-oss-20b"),
    ],
)
def test_a_model_has_the_price_of_its_name(model: str, priced_as: str) -> None:
    assert price_of(model, PRICES) == PRICES[priced_as]


@pytest.mark.parametrize(
    "model",
    [
        None,
        "",
        "/",
        "openai/",
        "gpt-4o-audio-preview",
        "gpt-4o-mini-search-preview-2025-03-11",
        "ft:gpt-4o-2024-08-06:us::1",
        "ft:gpt-4o",
        "somewhere-else/gpt-4o",
        "gpt-4o-20240",
        "gpt-4o-2024-08-06-audio",
        "llama3.3:70b",
        "mistral-large-2411",
        "GPT-4o",
    ],
)
def test_no_price_is_guessed(model: str | None) -> None:
    assert price_of(model, PRICES) is None


@pytest.fixture(scope="module")
def own_prices() -> Mapping[str, Price]:
    """Prices of an application, over the packaged ones."""
    return load_prices({"gpt-4o": {"input": 1, "output": 2}, "mine": Price(input=3, output=4)})


def test_the_prices_of_an_application_lie_over_the_packaged_ones(
    own_prices: Mapping[str, Price],
) -> None:
    assert own_prices["gpt-4o"] == Price(input=1, output=2)
    assert own_prices["mine"].input == 3
    assert own_prices["gpt-5"] == PRICES["gpt-5"]


def test_a_version_that_has_a_price_keeps_it(own_prices: Mapping[str, Price]) -> None:
    assert price_of("gpt-4o-2024-05-13", own_prices) is PRICES["gpt-4o-2024-05-13"]


def test_a_version_without_a_price_has_that_of_the_application(
    own_prices: Mapping[str, Price],
) -> None:
    assert price_of("gpt-4o-2024-08-06", own_prices) is own_prices["gpt-4o"]


def test_packaged_prices_stay_as_they_are(own_prices: Mapping[str, Price]) -> None:
    packaged = load_prices()

    assert packaged["gpt-4o"] is PRICES["gpt-4o"]
    assert packaged["gpt-4o"] != own_prices["gpt-4o"]
    with pytest.raises(TypeError):
        PRICES["gpt-4o"] = Price(input=1, output=2)  # type: ignore[index]


@pytest.mark.parametrize("value", [-0.01, math.nan, "2.5", True, 1_000_001])
def test_a_price_that_cannot_be_used_is_refused_by_name(value: Any) -> None:
    message = r"prices\['mine'\].* cached_input must be .*, not "
    with pytest.raises(InvalidSettingsError, match=message):
        load_prices({"mine": {"input": 1, "output": 2, "cached_input": value}})


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({"mine": {"input": 1}}, r"prices\['mine'\].*output"),
        ({"": {"input": 1, "output": 2}}, "must be a mapping"),
        ("gpt-4o", "must be a mapping"),
    ],
    ids=["no output", "no name", "no mapping"],
)
def test_what_are_no_prices_is_refused(prices: Any, message: str) -> None:
    with pytest.raises(InvalidSettingsError, match=message):
        load_prices(prices)


# What was noted


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
        self.failures_before = 0
        self.failures_after = 0
        self.writes = 0
        self.on_write: Callable[[], None] | None = None
        """What happens once, while the next write is under way."""

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        operations = list(ops)
        if any(isinstance(operation, PutOp) for operation in operations):
            return self.written(operations)
        return super().batch(operations)

    def written(self, operations: list[Op]) -> list[Result]:
        self.writes += 1
        if self.failures_before:
            self.failures_before -= 1
            raise ConnectionError("not reached")

        if self.on_write is not None:
            happens = self.on_write
            self.on_write = None
            happens()
        results = super().batch(operations)

        if self.failures_after:
            self.failures_after -= 1
            raise ConnectionError("no answer")
        return results


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
    """What is known of a conversation, and of its user's month."""
    session = drive(ledger.read(store, scope.user_id, of_session(scope))).used
    whole_month = drive(ledger.read(store, scope.user_id, of_month(scope.user_id, month))).used
    return session, whole_month


def write(ledger: Ledger, store: InMemoryStore) -> None:
    for user in USERS:
        drive(ledger.write(store, user))


def test_what_is_noted_is_written_once(store: Failing, ledger: Ledger) -> None:
    drive(ledger.write(store, "ada"))
    write(ledger, store)

    assert store.writes == 1
    assert read(Ledger(), store) == (ONE, ONE)


def test_what_is_noted_during_a_write_is_written_the_next_time(
    store: Failing, ledger: Ledger
) -> None:
    store.on_write = lambda: ledger.note(ADA, ONE, MONTH)

    drive(ledger.write(store, "ada"))
    drive(ledger.write(store, "ada"))

    assert read(Ledger(), store) == (ONE + ONE, ONE + ONE)


def test_what_is_erased_during_a_write_is_not_written_again(store: Failing, ledger: Ledger) -> None:
    store.on_write = lambda: ledger.erase("ada")

    drive(ledger.write(store, "ada"))
    drive(bulk.delete_below(store, of_user("ada"), "", ""))
    write(ledger, store)

    assert not store.search((ROOT,))


Noted = dict[tuple[str, ...], list[Usage]]
"""Usages by their place in the store."""


def places_of(user: str, noted: Noted) -> list[tuple[str, ...]]:
    return [place for place in noted if place[:2] == of_user(user)]


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
        self.noted: list[Noted] = [{}, {}]
        """What each has noted and not written, by place."""
        self.written: Noted = {}

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
        return places_of(user, self.noted[who])

    @rule(who=who, user=users)
    def fail_before_a_write_lands(self, who: int, user: str) -> None:
        if self.ledgers[who].unwritten.get(user):
            self.store.failures_before = 1
            with pytest.raises(ConnectionError):
                drive(self.ledgers[who].write(self.store, user))

    @rule(who=who, user=users)
    def fail_after_a_write_has_landed(self, who: int, user: str) -> None:
        if self.ledgers[who].unwritten.get(user):
            self.store.failures_after = 1
            with pytest.raises(ConnectionError):
                drive(self.ledgers[who].write(self.store, user))
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
        for place in places_of(user, self.noted[who]):
            del self.noted[who][place]
        for place in places_of(user, self.written):
            del self.written[place]

    def expected(self, who: int, place: tuple[str, ...]) -> Usage:
        written = self.written.get(place, [])
        noted = self.noted[who].get(place, [])
        return total([*written, *noted])

    @invariant()
    def everybody_reads_what_they_noted_and_what_was_written(self) -> None:
        for who, scope, month in product((0, 1), SCOPES, (MONTH, LATER)):
            session, whole_month = read(self.ledgers[who], self.store, scope, month)
            assert session == self.expected(who, of_session(scope))
            assert whole_month == self.expected(who, of_month(scope.user_id, month))


TestTwoLedgers = TwoLedgers.TestCase
TestTwoLedgers.settings = settings(
    max_examples=10, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow]
)


def test_every_lane_is_read_where_there_are_more_than_a_page(
    store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 4)
    for _ in range(11):
        ledger = Ledger()
        ledger.note(ADA, ONE, MONTH)
        write(ledger, store)

    eleven = total([ONE] * 11)
    assert read(Ledger(), store) == (eleven, eleven)


# Months


@pytest.mark.parametrize("moment", ["2026-12-01T00:30+01:00", "2026-11-30T23:59"])
def test_a_month_is_that_of_utc(moment: str) -> None:
    assert month_of(datetime.fromisoformat(moment)) == "2026-11"


@pytest.mark.parametrize(
    "month", ["", "2026-13", "2026-11-01", "2026-11\n", None, 202611], ids=repr
)
def test_what_is_no_month_is_refused(month: Any) -> None:
    with pytest.raises(InputError, match="2026-11"):
        of_month("ada", month)
