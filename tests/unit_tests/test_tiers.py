"""Usage limits, what is left of them, and the tiers of seed 003."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.core.tiers import (
    LIMITS,
    TIERS,
    Forced,
    Standing,
    TierName,
    UsageLimits,
    relaxed,
    require_forced,
    standing,
    tier_of,
)
from langchain_ctxbudget.errors import InvalidSettingsError

COUNTS = st.integers(1, 10**9)


@pytest.mark.parametrize(
    ("left", "name"),
    [
        *((1.0, "healthy"), (0.8, "healthy"), (0.79, "caution"), (0.6, "caution"), (0.59, "warning")),
        *((0.4, "warning"), (0.39, "critical"), (0.0, "critical")),
    ],
)
def test_the_tier_is_that_of_what_is_left_and_not_of_what_is_used(left: float, name: TierName) -> None:
    assert tier_of(left).name == name


def test_the_tiers_are_those_of_the_seed() -> None:
    shown = [(tier.name, tier.knowledge_items, tier.documents, tier.history_messages) for tier in TIERS]
    assert shown == [
        ("healthy", None, "full", None),
        ("caution", None, "full", 5),
        ("warning", 3, "summary", 2),
        ("critical", 1, "none", 0),
    ]


def test_each_tier_lets_in_no_more_than_the_one_before() -> None:
    shares = [tier.budget_share for tier in TIERS]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1


def test_other_thresholds_move_the_tiers() -> None:
    assert [tier_of(left, (0.5, 0.3, 0.1)).name for left in (0.5, 0.4, 0.2, 0.05)] == list(get_args(TierName))


@given(limits=st.dictionaries(st.sampled_from(LIMITS), COUNTS, min_size=1), used=st.data())
def test_the_most_restrictive_limit_counts(limits: dict[str, int], used: Any) -> None:
    amounts = {name: used.draw(st.integers(0, 2 * 10**9)) for name in LIMITS}
    found = standing(UsageLimits(**limits), amounts)
    assert found is not None
    least = min(max(0, allowed - amounts[name]) / allowed for name, allowed in limits.items())
    assert found.left == pytest.approx(least, abs=1e-12)


@pytest.mark.parametrize(
    ("used", "allowed", "left"), [(80, 100, 0.2), (50, 100, 0.5), (10, 100, 0.9), (0.8, 1.0, 0.2), (0.15, 0.3, 0.5)]
)
def test_what_is_left_on_a_threshold_is_not_below_it(used: float, allowed: float, left: float) -> None:
    found = Standing(limit="session_cost", used=used, allowed=allowed).left
    assert found == left
    assert tier_of(found, (0.9, 0.5, 0.2)) == tier_of(left, (0.9, 0.5, 0.2))


@given(used=st.integers(0, 10**9), more=st.integers(0, 10**9), allowed=COUNTS)
def test_using_more_never_leaves_more(used: int, more: int, allowed: int) -> None:
    before = Standing(limit="month_tokens", used=used, allowed=allowed).left
    after = Standing(limit="month_tokens", used=used + more, allowed=allowed).left
    assert 0 <= after <= before <= 1
    assert TIERS.index(tier_of(after)) >= TIERS.index(tier_of(before))


def test_without_limits_nothing_stands() -> None:
    assert standing(UsageLimits(), {"month_tokens": 5}) is None


@pytest.mark.parametrize("forced", get_args(Forced))
def test_what_is_forced_is_as_in_the_first_tier(forced: Forced) -> None:
    field = {
        "knowledge": "knowledge_items",
        "documents": "documents",
        "history": "history_messages",
        "budget": "budget_share",
    }[forced]
    for tier in TIERS:
        free = relaxed(tier, [forced])
        assert getattr(free, field) == getattr(TIERS[0], field)
        assert {**asdict(free), field: 0} == {**asdict(tier), field: 0}, "nothing else changes"


@pytest.mark.parametrize(
    "limits",
    [
        {"month_tokens": 0},
        {"month_tokens": -5},
        {"month_tokens": 1.5},
        {"month_tokens": True},
        {"session_cost": float("nan")},
        {"session_cost": float("inf")},
        {"session_cost": "1"},
        {"session_cost": 10**400},
        {"month_tokens": 10**16},
        {"thresholds": (0.8, 0.6)},
        {"thresholds": (0.4, 0.6, 0.8)},
        {"thresholds": (1.1, 0.6, 0.4)},
        {"thresholds": "0.8"},
        {"thresholds": 5},
        {"per_day": 5},
        5,
        "much",
    ],
)
def test_limits_that_cannot_be_are_refused(limits: object) -> None:
    with pytest.raises(InvalidSettingsError, match=r"usage_limits|usage limits"):
        UsageLimits.of(limits)


@pytest.mark.parametrize("forced", ["documents", ["everything"], 5, {"documents": True}, [None]])
def test_only_known_parts_can_be_forced(forced: object) -> None:
    with pytest.raises(InvalidSettingsError, match="force_include must be a list of 'knowledge'"):
        require_forced(forced)
