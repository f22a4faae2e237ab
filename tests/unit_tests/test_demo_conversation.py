"""The demo conversation is what the demo says of it."""

import json
from datetime import datetime
from importlib.resources import files
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


def test_no_message_is_empty_or_said_twice() -> None:
    said = [m.content for m in MESSAGES]
    assert all(isinstance(text, str) and text.strip() for text in said)
    assert len(set(map(str, said))) == len(said)


def test_times_rise_strictly_over_about_six_weeks_in_eight_to_twelve_sessions() -> None:
    assert all(earlier < later for earlier, later in pairwise(TIMES))
    assert 40 <= (TIMES[-1] - TIMES[0]).days <= 45
    assert 8 <= len({time.date() for time in TIMES}) <= 12


def test_nothing_happens_on_the_users_day_off() -> None:
    assert "Thursday" not in {f"{time:%A}" for time in TIMES}


def test_the_evidence_stands_in_the_first_tenth() -> None:
    positions = [i for i, m in enumerate(MESSAGES) if m.id in demo.DEMO_EVIDENCE_IDS]
    assert len(positions) == len(demo.DEMO_EVIDENCE_IDS)
    assert max(positions) < len(MESSAGES) / 10


@pytest.mark.parametrize("part", ANSWER)
def test_the_evidence_holds_the_answer_and_no_later_message_does(part: str) -> None:
    evidence = [i for i, m in enumerate(MESSAGES) if m.id in demo.DEMO_EVIDENCE_IDS]
    assert any(part in str(MESSAGES[i].content) for i in evidence)
    assert not [m.id for m in MESSAGES[max(evidence) + 1 :] if part in str(m.content)]


@pytest.mark.parametrize("part", [*ANSWER, "Halifax", "Rowan", "570"])
def test_what_is_told_beside_the_conversation_does_not_give_the_answer(part: str) -> None:
    beside = [demo.DEMO_SYSTEM_PROMPT, demo.DEMO_QUESTION, *demo.DEMO_PREFERENCES]
    told = json.dumps([beside, demo.DEMO_TOPICS, demo.DEMO_ENTITIES], ensure_ascii=False)
    assert part not in told


@pytest.mark.parametrize("about", [*demo.DEMO_TOPICS, *demo.DEMO_ENTITIES], ids=lambda a: a.get("label") or a["name"])
def test_topics_and_entities_are_talked_about(about: dict[str, str | tuple[str, ...]]) -> None:
    spoken = " ".join(str(m.content) for m in MESSAGES)
    assert any(alias in spoken for alias in about["aliases"])


def test_the_assistant_keeps_to_the_users_preferences() -> None:
    said = " ".join(str(m.content) for m in MESSAGES[1::2])
    assert not [word for word in said.split() if word.endswith("!")]


def test_the_file_itself_is_openai_messages_in_json_lines() -> None:
    text = files(demo).joinpath("conversation.jsonl").read_text(encoding="utf-8")
    for line in text.splitlines():
        assert {"id", "role", "content", "created_at"} <= json.loads(line).keys()
