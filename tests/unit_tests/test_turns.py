"""Groups that live or die together, and the repairs that make a sequence valid."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from langchain_ctxbudget.core.turns import (
    NO_RESULT,
    SYSTEM_NOTE,
    call_ids,
    group,
    is_empty,
    newest_that_fit,
    provider_name,
    safe_cuts,
)


def call(call_id, name="search"):
    return {"name": name, "args": {}, "id": call_id, "type": "tool_call"}


def invalid(call_id):
    return {"name": "search", "args": "{", "id": call_id, "error": "cut off", "type": "invalid_tool_call"}


def ai(*ids, content="", **rest):
    return AIMessage(content, tool_calls=[call(i) for i in ids], **rest)


def result(call_id, content="found", **rest):
    return ToolMessage(content, tool_call_id=call_id, **rest)


def sent(messages):
    return [message for part in group(messages)[0] for message in part.messages]


def kinds(messages):
    return [repair.kind for repair in group(messages)[1]]


# What OpenAI ("an assistant message with tool_calls must be followed by tool messages responding to each
# tool_call_id"; "messages with role tool must be a response to a preceding message with tool_calls") and
# Anthropic ("tool_use ids must be unique"; "text content blocks must be non-empty"; no system role) refuse.
def refusals(messages: list[BaseMessage]) -> list[str]:
    found = []
    ids = Counter()
    waiting = []
    for position, message in enumerate(messages):
        if message.type == "tool":
            if message.tool_call_id not in waiting:
                found.append(f"{position}: result without a call right before it")
            else:
                waiting.remove(message.tool_call_id)
            continue
        if waiting:
            found.append(f"{position}: calls {waiting} have no result")
        waiting = []
        if message.type == "system":
            found.append(f"{position}: system message")
        if message.type == "ai":
            waiting = [c["id"] for c in message.tool_calls + message.invalid_tool_calls]
            ids.update(waiting)
        blocks = [message.content] if isinstance(message.content, str) else message.content
        texts = [b if isinstance(b, str) else b.get("text") or "" for b in blocks]
        other = any(not isinstance(b, str) and b.get("type") != "text" for b in blocks)
        if not waiting and not other and not "".join(texts).strip():
            found.append(f"{position}: empty message")
    if waiting:
        found.append(f"end: calls {waiting} have no result")
    return found + [f"call id {i!r} used {n} times" for i, n in ids.items() if n > 1 or not i]


IDS = st.sampled_from(["a", "b", "c", "", None])
CONTENTS = st.one_of(
    st.sampled_from(["", " \n", "hello", "wait"]),
    st.lists(
        st.sampled_from(
            [
                "hi",
                " ",
                {"type": "text", "text": "hello"},
                {"type": "text", "text": ""},
                {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}},
            ]
        ),
        max_size=3,
    ),
)
MESSAGES = st.one_of(
    st.builds(HumanMessage, CONTENTS),
    st.builds(SystemMessage, CONTENTS),
    st.builds(lambda c, ids: AIMessage(c, tool_calls=[call(i) for i in ids]), CONTENTS, st.lists(IDS, max_size=3)),
    st.builds(
        lambda c, ids: AIMessage(c, invalid_tool_calls=[invalid(i) for i in ids]), CONTENTS, st.lists(IDS, max_size=2)
    ),
    st.builds(lambda c, i: ToolMessage(c, tool_call_id=i or ""), CONTENTS, IDS),
)
TRANSCRIPTS = st.lists(MESSAGES, max_size=14).map(
    lambda messages: [m.model_copy(update={"id": f"m{i}"}) for i, m in enumerate(messages)]
)


@st.composite
def well_formed(draw):
    """Human messages, answers and rounds of parallel calls, every call answered, ids unique."""
    messages = []
    for number in range(draw(st.integers(0, 8))):
        shape = draw(st.sampled_from(["human", "ai", "calls"]))
        if shape == "human":
            messages.append(HumanMessage("hello"))
        elif shape == "ai":
            messages.append(AIMessage("hello"))
        else:
            ids = [f"{number}-{i}" for i in range(draw(st.integers(1, 3)))]
            messages += [ai(*ids), *(result(i) for i in draw(st.permutations(ids)))]
    return messages


@settings(deadline=None, max_examples=1000)
@given(TRANSCRIPTS)
def test_every_transcript_becomes_one_that_providers_accept(messages):
    assert refusals(sent(messages)) == []


@settings(deadline=None, max_examples=500)
@given(TRANSCRIPTS)
def test_no_message_is_lost_without_a_repair(messages):
    groups, repairs = group(messages)
    kept = {position for part in groups for position in part.positions}
    left_out = {r.message_id for r in repairs if r.kind in ("orphan_result", "empty_message")}
    assert {m.id for i, m in enumerate(messages) if i not in kept} == left_out


@settings(deadline=None, max_examples=500)
@given(TRANSCRIPTS)
def test_no_message_is_sent_twice(messages):
    positions = [position for part in group(messages)[0] for position in part.positions]
    assert len(positions) == len(set(positions))


@settings(deadline=None)
@given(TRANSCRIPTS)
def test_groups_stand_in_order(messages):
    firsts = [part.positions[0] for part in group(messages)[0]]
    assert firsts == sorted(firsts)


@settings(deadline=None)
@given(TRANSCRIPTS)
def test_whatever_was_made_up_is_a_repair(messages):
    made_up = sum(m.type == "tool" and m.content == NO_RESULT for m in sent(messages))
    assert made_up == kinds(messages).count("missing_result")


@settings(deadline=None)
@given(TRANSCRIPTS)
def test_a_repaired_transcript_needs_no_more_repairs(messages):
    assert kinds(sent(messages)) == []


@settings(deadline=None)
@given(TRANSCRIPTS)
def test_the_given_messages_are_not_changed(messages):
    before = [m.model_copy(deep=True) for m in messages]
    group(messages)
    assert messages == before


@settings(deadline=None)
@given(well_formed())
def test_a_well_formed_transcript_stays_as_it_is(messages):
    groups, repairs = group(messages)
    assert repairs == []
    assert sorted(p for part in groups for p in part.positions) == list(range(len(messages)))
    assert {id(m) for part in groups for m in part.messages} == {id(m) for m in messages}


@settings(deadline=None)
@given(well_formed())
def test_a_cut_at_a_safe_place_needs_no_repairs_on_either_side(messages):
    for position, safe in enumerate(safe_cuts(messages)):
        if safe:
            assert kinds(messages[:position]) == kinds(messages[position:]) == []


@settings(deadline=None)
@given(well_formed())
def test_every_group_begins_at_a_safe_place(messages):
    safe = safe_cuts(messages)
    assert all(safe[part.positions[0]] for part in group(messages)[0])


@settings(deadline=None)
@given(TRANSCRIPTS)
def test_safe_places_are_the_same_one_by_one(messages):
    waiting = set()
    assert [safe_cuts([message], waiting)[0] for message in messages] == safe_cuts(messages)


def test_no_cut_is_safe_before_a_result():
    assert safe_cuts([ai("a"), result("a"), HumanMessage("hi")]) == [True, False, True]


def test_an_unanswered_call_makes_cuts_unsafe_until_the_user_speaks():
    assert safe_cuts([ai("a"), AIMessage("x"), HumanMessage("hi"), AIMessage("y")]) == [True, False, True, True]


def test_parallel_results_come_in_the_order_of_their_calls():
    assert [m.content for m in sent([ai("a", "b"), result("b", "B"), result("a", "A")])[1:]] == ["A", "B"]


def test_results_of_parallel_calls_with_one_id_come_in_their_own_order():
    assert [m.content for m in sent([ai("a", "a"), result("a", "one"), result("a", "two")])[1:]] == ["one", "two"]


def test_an_interleaved_result_moves_behind_its_call():
    assert [m.type for m in sent([ai("a"), HumanMessage("hi"), result("a")])] == ["ai", "tool", "human"]


def test_a_result_before_its_call_moves_behind_it():
    assert [m.type for m in sent([result("a"), ai("a")])] == ["ai", "tool"]


def test_a_call_without_a_result_gets_a_stand_in():
    assert [m.content for m in sent([ai("a", id="m")])] == ["", NO_RESULT]


def test_an_invalid_call_is_answered_as_well():
    messages = [AIMessage("", invalid_tool_calls=[invalid("a")]), result("a")]
    assert sent(messages) == messages


def test_a_second_result_of_a_call_is_left_out():
    messages = [ai("a"), result("a", "first", id="r1"), result("a", "second", id="r2")]
    assert [m.content for m in sent(messages)] == ["", "first"]
    assert kinds(messages) == ["orphan_result"]


def test_a_repeated_call_id_keeps_each_result_with_its_call():
    messages = [ai("a", content="1"), result("a", "one"), ai("a", content="2"), result("a", "two")]
    assert [m.content for m in sent(messages)] == ["1", "one", "2", "two"]


def test_an_unanswered_call_does_not_take_the_result_of_a_later_one_with_its_id():
    messages = [ai("a", content="1"), HumanMessage("stop"), ai("a", content="2"), result("a", "two")]
    assert [m.content for m in sent(messages)] == ["1", NO_RESULT, "stop", "2", "two"]


def test_a_surplus_result_does_not_answer_a_later_call_that_has_its_own():
    messages = [ai("a"), result("a", "one"), result("a", "again"), ai("a", content="2"), result("a", "two")]
    assert [m.content for m in sent(messages)] == ["", "one", "2", "two"]


def test_a_repeated_call_id_is_replaced_in_the_call_and_its_result():
    first, one, second, two = sent([ai("a"), result("a"), ai("a"), result("a")])
    assert first.tool_calls[0]["id"] == one.tool_call_id == "a"
    assert second.tool_calls[0]["id"] == two.tool_call_id == "a-2"


def test_a_replaced_call_id_is_reported():
    assert group([ai("a", "a", id="m")])[1][0].detail == "calls ['a', 'a'] are sent as ['a', 'a-2']"


@pytest.mark.parametrize("missing", [None, ""])
def test_a_missing_call_id_is_made_up(missing):
    calls, answer = sent([ai(missing), result("", "found")])
    assert answer.tool_call_id == calls.tool_calls[0]["id"] == "call-1"
    assert answer.content == "found"


def test_a_call_id_that_is_made_up_is_not_one_that_is_used():
    assert len({m.tool_call_id for m in sent([ai("a-2"), ai("a", "a"), ai("", "call-1")]) if m.type == "tool"}) == 5


def test_a_replaced_call_id_is_replaced_in_the_content_as_well():
    block = {"type": "tool_use", "id": "a", "name": "search", "input": {}}
    repeated = AIMessage([block], tool_calls=[call("a")])
    [*_, second, answer] = sent([ai("a"), result("a"), repeated, result("a")])
    assert second.content[0]["id"] == answer.tool_call_id


def test_a_system_message_in_the_middle_becomes_a_note():
    assert sent([SystemMessage("Be brief.", id="s")]) == [HumanMessage(SYSTEM_NOTE + "Be brief.", id="s")]


def test_many_messages_with_one_call_id_are_grouped_in_one_pass():
    messages = [m for _ in range(10_000) for m in (result("x"), ai("x"), ai(None), result("x"))]
    assert refusals(sent(messages)) == []


def test_what_is_sent_can_be_converted_for_openai():
    messages = sent([ai("a", None), result("a"), HumanMessage([{"type": "text", "text": "hi"}])])
    assert [m["role"] for m in convert_to_openai_messages(messages)] == ["assistant", "tool", "tool", "user"]


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage(""),
        HumanMessage(" \n"),
        AIMessage([]),
        HumanMessage([" ", {"type": "text", "text": " "}]),
        HumanMessage([{"type": "text", "text": None}]),
        HumanMessage([{"type": "text"}]),
    ],
)
def test_a_message_without_content_is_empty(message):
    assert is_empty(message)


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("x"),
        HumanMessage([{"type": "image_url", "image_url": {"url": "https://x.invalid"}}]),
        ai("a"),
        AIMessage("", invalid_tool_calls=[invalid("a")]),
        AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}}),
        result("a", ""),
    ],
)
def test_a_message_that_says_or_does_something_is_not_empty(message):
    assert not is_empty(message)


def test_call_ids_are_those_of_valid_and_invalid_calls():
    message = AIMessage("", tool_calls=[call("a"), call(None)], invalid_tool_calls=[invalid("b")])
    assert call_ids(message) == ("a", "", "b")


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("ada", "ada"),
        ("Ada Lovelace", "Ada_Lovelace"),
        ("a@b.c", "a_b_c"),
        ("x" * 80, "x" * 64),
        ("李", None),
        ("...", None),
        ("", None),
        ("--", None),
    ],
)
def test_a_name_is_made_acceptable(name, clean):
    assert provider_name(name) == clean


@settings(deadline=None)
@given(st.lists(st.integers(0, 30)), st.integers(-5, 200))
def test_the_newest_that_fit_are_as_many_as_fit(costs, budget):
    count = newest_that_fit(costs, budget)
    assert sum(costs[len(costs) - count :]) <= max(0, budget)
    assert count == len(costs) or sum(costs[len(costs) - count - 1 :]) > budget
