"""Requirements of providers: one function each, in one list; profiles are data."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_ctxbudget.providers import (
    ANTHROPIC,
    COMMON,
    GOOGLE,
    OPENAI,
    CallIds,
    Change,
    Profile,
    Repair,
    Requirement,
    Stage,
    Stretch,
    accepted_history,
    each,
    finished,
    grouped,
    in_accepted_form,
    joined_repairs,
    opening_before,
    requirements,
    with_accepted_name,
)

NARROW = replace(
    COMMON, name="narrow", call_ids=CallIds(longest=39), longest_name=5, refused_in_names="[a-f]"
)
CALL = {"name": "look", "args": {}, "id": "c" * 40}
ROUND = [AIMessage("", tool_calls=[CALL], id="a1"), ToolMessage("5 m.", tool_call_id=CALL["id"])]


# A profile is data


def test_a_profile_of_the_applications_own_limits_ids() -> None:
    [group], repairs = grouped(ROUND, NARROW)

    [call] = group.messages[0].tool_calls
    assert len(call["id"]) <= 39
    assert group.messages[1].tool_call_id == call["id"]
    assert [repair.kind for repair in repairs] == ["call_id"]


def test_of_two_repairs_of_an_id_the_later_one_is_told() -> None:
    first = Repair("call_id", "a1", "sent as a digest")
    other = Repair("call_name", "a1", "sent as `look`")
    later = Repair("call_id", "a1", "sent as another digest")

    assert joined_repairs([first, other], [later]) == [other, later]


def test_another_profile_takes_the_same_ids() -> None:
    [group], repairs = grouped(ROUND, COMMON)

    assert list(group.messages) == ROUND
    assert repairs == []


def test_a_profile_says_what_a_name_may_be() -> None:
    assert with_accepted_name(HumanMessage("x", name="grace"), NARROW).name == "gr___"


def test_the_list_has_names_accepted() -> None:
    [group], _ = grouped([HumanMessage("x", name="grace")], NARROW)

    assert group.messages[0].name == "gr___"


@pytest.mark.parametrize(
    ("first", "opening"),
    [(AIMessage("Hi"), "[The conversation begins.]"), (HumanMessage("Hi"), ""), (None, "")],
)
def test_what_stands_before_a_first_answer(first: BaseMessage | None, opening: str) -> None:
    assert opening_before(first, COMMON) == opening


def test_a_provider_may_let_an_answer_stand_first() -> None:
    assert opening_before(AIMessage("Hi"), replace(COMMON, begins_with_user=False)) == ""


PICTURE = {"type": "image", "base64": "aaaa", "mime_type": "image/png"}


@pytest.mark.parametrize(
    ("provider", "stays"), [("google_genai", True), ("openai", False), ("", False)]
)
def test_a_picture_of_an_assistant_stays_where_its_provider_reads_it(
    provider: str, stays: bool
) -> None:
    answer = AIMessage([PICTURE], response_metadata={"model_provider": provider})

    assert (in_accepted_form(answer).content == [PICTURE]) is stays


@pytest.mark.parametrize("profile", [OPENAI, GOOGLE])
def test_no_other_known_provider_takes_marks_for_its_cache(profile: Profile) -> None:
    assert profile.cache.most_marks == 0


def test_anthropic_takes_four_marks() -> None:
    assert ANTHROPIC.cache.most_marks == 4


# The list


def quiet(message: BaseMessage, _profile: Profile) -> tuple[BaseMessage | None, Sequence[Change]]:
    if not message.text.endswith("!"):
        return message, ()
    change = Change("shout", "sent without the mark at its end")
    return message.model_copy(update={"content": message.text[:-1]}), [change]


def silent(message: BaseMessage, _profile: Profile) -> tuple[BaseMessage | None, Sequence[Change]]:
    return (None if message.text.endswith("!") else message), ()


def with_requirement(monkeypatch: pytest.MonkeyPatch, requirement: Requirement) -> None:
    monkeypatch.setattr(requirements, "REQUIREMENTS", (*requirements.REQUIREMENTS, requirement))


def test_a_requirement_of_single_messages_changes_each(monkeypatch: pytest.MonkeyPatch) -> None:
    with_requirement(monkeypatch, Requirement(each(quiet)))

    groups, repairs = grouped([HumanMessage("Oh!", id="h1"), AIMessage("Hm.")], COMMON, [7, 9])

    assert [group.messages[0].text for group in groups] == ["Oh", "Hm."]
    assert [group.positions for group in groups] == [(7,), (9,)]
    assert [(repair.kind, repair.message_id) for repair in repairs] == [("shout", "h1")]


def test_a_message_that_is_left_out_takes_its_position_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_requirement(monkeypatch, Requirement(each(silent)))

    groups, _ = grouped([HumanMessage("Oh!"), HumanMessage("Hm.")], COMMON)

    assert [group.positions for group in groups] == [(1,)]


def test_a_stand_in_has_no_position() -> None:
    [group], _ = grouped(ROUND[:1], COMMON, [4])

    assert len(group.messages) == 2
    assert group.positions == (4,)


def test_a_whole_history_meets_all_requirements() -> None:
    sent = accepted_history([*ROUND, HumanMessage("Oh!", name="grace")], NARROW)

    [call] = sent[0].tool_calls
    assert len(call["id"]) <= 39
    assert sent[2].name == "gr___"


def test_system_messages_in_front_of_a_whole_history_stay() -> None:
    history = [SystemMessage("Be brief."), HumanMessage("Hi")]
    assert accepted_history(history, COMMON) == history


def test_a_call_at_the_end_of_a_whole_history_stays_open() -> None:
    history = [HumanMessage("Hi"), *ROUND[:1]]
    assert [message.type for message in accepted_history(history, COMMON)] == ["human", "ai"]


def test_what_a_whole_history_leaves_as_it_is_are_the_objects_given() -> None:
    history = [HumanMessage("Hi"), AIMessage("Hello!", id="a1"), HumanMessage("Bye")]
    sent = accepted_history(history, OPENAI)
    assert all(one is other for one, other in zip(sent, history, strict=True))


def test_a_requirement_of_the_finished_request_is_not_met_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_requirement(monkeypatch, Requirement(each(quiet), Stage.SENDING))

    [group], _ = grouped([HumanMessage("Oh!")], COMMON)
    [sent], repairs = finished([HumanMessage("Oh!")], COMMON)

    assert group.messages[0].text == "Oh!"
    assert sent.text == "Oh"
    assert [repair.kind for repair in repairs] == ["shout"]


@pytest.mark.parametrize("stage", Stage)
def test_accepted_messages_stay_the_objects_that_they_are(stage: Stage) -> None:
    messages = [HumanMessage("Oh?", id="h1"), *ROUND, AIMessage("It is 5 m long.")]

    accepted, repairs = requirements.met(Stretch.of(messages), COMMON, stage)

    assert all(sent is given for sent, given in zip(accepted.messages, messages, strict=True))
    assert repairs == []


# What is sent of single messages


def test_half_a_character_is_replaced_and_told() -> None:
    [sent], [repair] = finished([HumanMessage("a\ud83d", id="h1")], COMMON)

    assert sent.text == "a�"
    assert (repair.kind, repair.message_id) == ("characters", "h1")


def test_the_id_of_a_kept_response_is_not_sent() -> None:
    answer = AIMessage("x", response_metadata={"id": "resp_1", "model_name": "gpt-5"})

    [sent], _ = finished([answer], COMMON)

    assert sent.response_metadata == {"model_name": "gpt-5"}


def test_a_later_system_message_is_a_note() -> None:
    assert in_accepted_form(SystemMessage("Be brief.")) == HumanMessage(
        "[Note from the application]\nBe brief."
    )


def test_an_earlier_result_of_a_call_is_left_out_and_told() -> None:
    pending = ToolMessage("Pending.", tool_call_id=CALL["id"], id="t0")

    [group], repairs = grouped([ROUND[0], pending, ROUND[1]], COMMON)

    assert list(group.messages) == ROUND
    assert [(repair.kind, repair.message_id) for repair in repairs] == [("replaced_result", "t0")]
