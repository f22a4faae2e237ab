"""The demo conversation is what the demo says of it."""

from datetime import datetime
from itertools import pairwise

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget import demo

MESSAGES = demo.demo_messages()
TIMES = [datetime.fromisoformat(m.additional_kwargs["created_at"]) for m in MESSAGES]
ANSWER = ("Etch & Field", "38p", "16 October")


def test_it_has_at_least_200_messages_with_unique_ids() -> None:
    assert len(MESSAGES) >= 200
    assert len({m.id for m in MESSAGES}) == len(MESSAGES)


def test_user_and_assistant_take_turns_and_the_user_begins() -> None:
    assert {type(m) for m in MESSAGES[::2]} == {HumanMessage}
    assert {type(m) for m in MESSAGES[1::2]} == {AIMessage}
    assert {m.name for m in MESSAGES[::2]} == {"Maya"}


def test_times_rise_strictly_over_about_six_weeks_in_eight_to_twelve_sessions() -> None:
    assert all(earlier < later for earlier, later in pairwise(TIMES))
    assert 40 <= (TIMES[-1] - TIMES[0]).days <= 45
    assert 8 <= len({time.date() for time in TIMES}) <= 12


@pytest.mark.parametrize("part", ANSWER)
def test_the_evidence_holds_the_answer_and_no_later_message_does(part: str) -> None:
    evidence = [i for i, m in enumerate(MESSAGES) if m.id in demo.DEMO_EVIDENCE_IDS]
    assert any(part in str(MESSAGES[i].content) for i in evidence)
    assert not [m.id for m in MESSAGES[max(evidence) + 1 :] if part in str(m.content)]
