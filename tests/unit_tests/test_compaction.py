"""Where verbatim history begins."""

from collections.abc import Sequence

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from langchain_ctxbudget.core.compaction import SLACK, plan_cut


@st.composite
def histories(draw, max_cost=60):
    costs = draw(st.lists(st.integers(1, max_cost), max_size=60))
    safe = draw(st.lists(st.booleans(), min_size=len(costs), max_size=len(costs)))
    return costs, safe


def plan(costs, safe=None, *, cut=0, room=100, trigger=0.8, target=0.4, keep=0):
    safe = [True] * len(costs) if safe is None else safe
    return plan_cut(costs, safe, cut=cut, room_tokens=room, trigger=trigger, target=target, keep=keep)


def test_a_short_history_is_verbatim():
    assert plan([10] * 8) == 0


def test_past_the_trigger_the_cut_moves_to_the_target():
    assert plan([10] * 9) == 5


def test_the_cut_falls_at_a_safe_place():
    safe = [True] * 9
    safe[5] = safe[6] = False
    assert plan([10] * 9, safe) == 7


def test_the_newest_messages_stay_where_they_are_kept():
    assert plan([10] * 9, keep=6) == 3


def test_the_cut_moves_back_where_the_room_has_grown():
    assert plan([10] * 100, cut=97, room=1000) == 60


def test_a_cut_past_the_end_is_made_anew():
    assert plan([10] * 9, cut=12, room=1000) == 0


def test_no_messages_have_no_cut():
    assert plan([]) == 0


@settings(deadline=None)
@given(histories(), st.integers(0, 70), st.integers(0, 500), st.integers(0, 70))
def test_the_cut_is_within_the_history(history, cut, room, keep):
    assert 0 <= plan(*history, cut=cut, room=room, keep=keep) <= len(history[0])


@settings(deadline=None)
@given(histories(), st.floats(0.4 * SLACK, 0.8), st.integers(0, 10), st.data())
def test_the_cut_stays_while_what_is_behind_it_is_within_the_trigger(history, filled, keep, data):
    costs, safe = history
    cut = data.draw(st.integers(0, max(0, len(costs) - 1)))
    behind = sum(costs[cut:])
    room = round(behind / filled)
    assume(cut == 0 or room * 0.4 * SLACK <= behind)
    assume(behind <= room * 0.8)
    assert plan(costs, safe, cut=cut, room=room, keep=keep) == cut


@settings(deadline=None)
@given(histories(), st.integers(0, 60), st.integers(1, 500), st.integers(0, 10))
def test_after_a_move_what_is_behind_the_cut_is_within_the_target_or_kept(history, cut, room, keep):
    costs, safe = history
    moved = plan(costs, safe, cut=cut, room=room, keep=keep)
    assume(moved != cut)
    assert sum(costs[moved:]) <= room * 0.4 or moved >= len(costs) - keep


@settings(deadline=None)
@given(histories(), st.integers(1, 500), st.integers(0, 10))
def test_a_moved_cut_is_safe_or_where_the_newest_begin(history, room, keep):
    costs, safe = history
    moved = plan(costs, safe, room=room, keep=keep)
    assert moved in (0, len(costs), len(costs) - keep) or safe[moved]


def test_where_no_place_is_safe_the_newest_stay_all_the_same():
    assert plan([10] * 8, [True] + [False] * 7, room=20, keep=3) == 5


@settings(deadline=None)
@given(st.lists(st.integers(5, 20), min_size=20, max_size=60), st.integers(100, 120), st.data())
def test_cheap_messages_leave_the_cut_where_it_is(costs, room, data):
    safe = [True] * len(costs)
    cut = plan(costs, safe, room=room)
    spare = int(room * 0.8) - sum(costs[cut:])
    appended = data.draw(st.lists(st.integers(1, 5), max_size=spare // 5))
    assert plan(costs + appended, safe + [True] * len(appended), cut=cut, room=room) == cut


@settings(deadline=None)
@given(histories(), st.integers(1, 500), st.integers(0, 10))
def test_planning_again_changes_nothing(history, room, keep):
    cut = plan(*history, room=room, keep=keep)
    again = plan(*history, cut=cut, room=room, keep=keep)
    assert plan(*history, cut=again, room=room, keep=keep) == again


class Counted(Sequence):
    def __init__(self, length):
        self.length = length
        self.reads = 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.reads += 1
        return 10


def test_work_is_bounded_by_the_room_and_not_by_the_conversation():
    reads = []
    for length in (1_000, 100_000):
        costs = Counted(length)
        plan_cut(costs, [True] * length, cut=0, room_tokens=1_000, trigger=0.8, target=0.4, keep=6)
        reads.append(costs.reads)
    assert reads[0] == reads[1] < 200


def test_each_new_message_costs_bounded_work():
    costs = Counted(100_000)
    plan_cut(costs, [True] * 100_000, cut=99_950, room_tokens=1_000, trigger=0.8, target=0.4, keep=6)
    assert costs.reads <= 50
