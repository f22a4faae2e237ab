"""Groups that live or die together, and the repairs that make a sequence valid."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)

from langchain_ctxbudget.core.calls import result_ids
from langchain_ctxbudget.core.turns import (
    HELD_MESSAGES,
    NO_RESULT,
    SYSTEM_NOTE,
    as_note,
    call_ids,
    distinct,
    group,
    is_empty,
    newest_that_fit,
    provider_name,
    safe_cuts,
    split_turn,
)
from tests.integration_tests.provider_rules import check_anthropic, check_openai


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


def refusals(messages):
    """What providers refuse of messages that a conversation begins with."""
    request = [HumanMessage("hello"), *messages]
    return [*check_openai(request), *check_anthropic(request)]


def use(call_id, name="search"):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"page": 1}}


def answer(call_id, content="found", **rest):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **rest}


def function_call(call_id):
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "search", "arguments": "{}"}


def output(call_id):
    return {"type": "function_call_output", "call_id": call_id, "output": "found"}


def spoken():
    return AIMessage(
        [
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "text", "text": "hello", "id": "msg_1"},
        ]
    )


def custom_call(call_id):
    return {"type": "custom_tool_call", "id": "ctc_1", "call_id": call_id, "name": "run", "input": "print(1)"}


def wrapped(block):
    return {"type": "non_standard", "value": block}


def legacy(name="search", **rest):
    return AIMessage("", additional_kwargs={"function_call": {"name": name, "arguments": '{"page": 1}'}}, **rest)


IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}
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
                IMAGE,
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
    st.builds(lambda ids: AIMessage([use(i or "") for i in ids]), st.lists(IDS, max_size=3)),
    st.builds(
        lambda ids, words: HumanMessage([*words, *(answer(i or "") for i in ids)]),
        st.lists(IDS, min_size=1, max_size=3),
        st.lists(st.sampled_from(["so?", " "]), max_size=1),
    ),
    st.builds(lambda ids: AIMessage([function_call(i or "") for i in ids]), st.lists(IDS, max_size=2)),
    st.builds(
        lambda ids: AIMessage([*spoken().content, *(custom_call(i or "") for i in ids)]), st.lists(IDS, max_size=2)
    ),
    st.builds(lambda ids: HumanMessage([output(i or "") for i in ids]), st.lists(IDS, min_size=1, max_size=2)),
    st.builds(legacy, st.sampled_from(["search", "web search"])),
    st.builds(lambda name: FunctionMessage("found", name=name), st.sampled_from(["search", "web search"])),
    st.builds(
        ChatMessage, st.sampled_from(["", "hm"]), role=st.sampled_from(["user", "assistant", "system", "critic"])
    ),
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
    assert {m.id for i, m in enumerate(messages) if i not in kept} <= left_out


@settings(deadline=None, max_examples=500)
@given(TRANSCRIPTS)
def test_no_message_without_results_in_it_is_sent_twice(messages):
    whole = {position for position, message in enumerate(messages) if not result_ids(message)}
    positions = [position for part in group(messages)[0] for position in part.positions if position in whole]
    assert len(positions) == len(set(positions))


@settings(deadline=None, max_examples=500)
@given(TRANSCRIPTS)
def test_every_result_is_sent_once_or_reported(messages):
    given_results = sum(len(result_ids(message)) for message in messages)
    answers = sum(message.type == "tool" and message.content != NO_RESULT for message in sent(messages))
    assert answers + kinds(messages).count("orphan_result") == given_results


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


def test_an_unanswered_call_makes_cuts_unsafe_for_some_messages_only():
    messages = [ai("a"), *[AIMessage("x")] * HELD_MESSAGES, AIMessage("y"), AIMessage("z")]
    assert safe_cuts(messages) == [True, *[False] * HELD_MESSAGES, True, True]


def test_results_do_not_make_an_unanswered_call_older():
    ids = [f"{number}" for number in range(50)]
    assert safe_cuts([ai("dead", *ids), *map(result, ids), AIMessage("x")]) == [True, *[False] * 51]


def test_a_loop_that_leaves_a_call_open_at_every_step_can_be_cut():
    safe = safe_cuts([m for number in range(100) for m in (ai(f"dead-{number}", f"{number}"), result(f"{number}"))])
    assert all(any(safe[start : start + 2 * HELD_MESSAGES + 2]) for start in range(180))


@settings(deadline=None, max_examples=500)
@given(TRANSCRIPTS)
def test_no_cut_is_unsafe_for_long(messages):
    safe = [cut for message, cut in zip(messages, safe_cuts(messages), strict=True) if not result_ids(message)]
    assert all(any(safe[at : at + HELD_MESSAGES + 1]) for at in range(len(safe) - HELD_MESSAGES))


def test_a_pending_call_stays_with_its_message_while_it_is_the_newest():
    waiting = set()
    assert safe_cuts([HumanMessage("hi"), ai("a")], waiting) == [True, True]
    assert safe_cuts([result("a")], waiting) == [False]
    assert safe_cuts([AIMessage("done")], waiting) == [True]


def test_a_call_that_is_answered_after_the_user_spoke_holds_nothing_back():
    messages = [ai("a"), HumanMessage("go on"), AIMessage("x"), result("a"), AIMessage("y")]
    assert safe_cuts(messages) == [True] * 5


def test_no_cut_is_safe_between_two_results_of_one_id():
    assert safe_cuts([ai("a", "a"), result("a"), result("a"), AIMessage("x")]) == [True, False, False, True]


def test_no_cut_is_safe_between_results_and_the_calls_right_behind_them():
    assert safe_cuts([HumanMessage("hi"), result("a"), result("b"), ai("a", "b"), AIMessage("x")]) == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_many_results_of_no_call_can_be_cut():
    assert sum(safe_cuts([result(f"{number}") for number in range(1_000)])) > 50


def test_results_in_a_human_message_are_the_call_s():
    assert safe_cuts([AIMessage([use("a")]), HumanMessage([answer("a")]), AIMessage("x")]) == [True, False, True]


def test_a_human_message_with_results_and_words_is_no_place_for_a_cut():
    messages = [AIMessage([use("a")]), HumanMessage([answer("a"), "so?"]), AIMessage("x")]
    assert safe_cuts(messages) == [True, False, True]


def test_what_is_open_is_kept_as_strings():
    waiting = set()
    safe_cuts([ai("a:b", None)], waiting)
    assert all(isinstance(item, str) for item in waiting)
    assert safe_cuts([result("a:b"), result(""), AIMessage("x")], waiting) == [False, False, True]


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


def test_an_invalid_call_is_sent_as_a_valid_one():
    [message, _] = sent([AIMessage("", invalid_tool_calls=[invalid("a")]), result("a")])
    assert message.invalid_tool_calls == []
    assert message.tool_calls == [{**call("a"), "args": {"unreadable_arguments": "{"}}]


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


def test_calls_in_the_content_alone_are_sent_as_calls_as_well():
    [message, _] = sent([AIMessage([use("a")]), result("a")])
    assert message.content == [use("a")]
    assert message.tool_calls == [{"name": "search", "args": {"page": 1}, "id": "a", "type": "tool_call"}]


def test_a_call_that_the_content_repeats_is_one_call():
    messages = [AIMessage([use("a")], tool_calls=[call("a")]), result("a")]
    assert sent(messages) == messages


def test_a_call_of_the_responses_api_goes_by_its_call_id():
    [message, _] = sent([AIMessage([function_call("a")]), HumanMessage([output("a")])])
    assert message.tool_calls == [{"name": "search", "args": {}, "id": "a", "type": "tool_call"}]


def test_a_replaced_id_of_the_responses_api_is_replaced_in_the_content():
    [*_, second, _] = sent([AIMessage([function_call("a")]), AIMessage([function_call("a")])])
    assert second.content[0]["call_id"] == "a-2"


def test_a_call_that_gets_another_id_leaves_the_id_of_its_item():
    [first, _, second, _] = sent([AIMessage([function_call("a")]), AIMessage([function_call("a")])])
    assert first.content[0]["id"] == "fc_a"
    assert "id" not in second.content[0]


def test_a_call_that_gets_another_id_leaves_its_reasoning():
    call_of_item = {**function_call("a"), "id": "fc_2"}
    thought = {"type": "reasoning", "id": "rs_2", "summary": []}
    [*_, second, _] = sent([ai("a"), result("a"), AIMessage([thought, call_of_item])])
    assert [block["type"] for block in second.content] == ["function_call"]


def test_a_standard_call_that_gets_another_id_leaves_the_id_of_its_item():
    block = {**call("a"), "extras": {"item_id": "fc_1", "status": "completed"}}
    [*_, second, _] = sent([ai("a"), result("a"), AIMessage([block], tool_calls=[call("a")])])
    assert second.content[0]["extras"] == {"status": "completed"}


def test_ids_of_items_are_sent_once():
    [first, second] = sent([spoken(), spoken()])
    assert first == spoken()
    assert second.content == [{"type": "text", "text": "hello"}]
    assert kinds([spoken(), spoken()]) == ["item_id"]


def test_ids_of_items_that_history_uses_are_not_sent_in_the_turn():
    history, turn = group([spoken()])[0], group([spoken()])[0]
    [changed], repairs = distinct(turn, history)
    assert changed.messages[0].content == [{"type": "text", "text": "hello"}]
    assert [repair.kind for repair in repairs] == ["item_id"]


def test_texts_of_one_item_keep_its_id():
    message = AIMessage([*spoken().content, spoken().content[1]])
    assert sent([message]) == [message]


@pytest.mark.parametrize("block", [{"type": "tool_use", "id": "fc_1", "name": "search", "input": {}}, call("fc_1")])
def test_the_id_of_a_call_is_no_id_of_an_item(block):
    [message, _] = sent([AIMessage([block])])
    assert message.content == [block]
    assert kinds([AIMessage([block]), result("fc_1")]) == ["call_form"]


@pytest.mark.parametrize("block", [custom_call("a"), wrapped(custom_call("a"))])
def test_the_text_that_a_custom_tool_is_called_with_is_an_argument(block):
    assert sent([AIMessage([block])])[0].tool_calls[0]["args"] == {"__arg1": "print(1)"}


@pytest.mark.parametrize("listed", [[], [call("a", "run")]])
@pytest.mark.parametrize("block", [custom_call("a"), wrapped(custom_call("a"))])
def test_a_custom_call_is_in_no_block(block, listed):
    [message, _] = sent([AIMessage(["hm", block], tool_calls=listed), result("a")])
    assert message.content == [{"type": "text", "text": "hm"}]
    assert [each["id"] for each in message.tool_calls] == ["a"]


def test_a_custom_call_leaves_ids_and_reasoning_of_its_message():
    [message, _] = sent([AIMessage([*spoken().content, custom_call("a")]), result("a")])
    assert message.content == [{"type": "text", "text": "hello"}]


@pytest.mark.parametrize("wrap", [dict, wrapped])
def test_the_result_of_a_custom_tool_is_text(wrap):
    block = wrap({"type": "custom_tool_call_output", "output": "found"})
    answer = sent([AIMessage([custom_call("a")]), result("a", [block], id="m")])[1]
    assert answer == result("a", [{"type": "text", "text": "found"}], id="m")


def test_a_custom_result_in_a_human_message_answers_its_call():
    block = {"type": "custom_tool_call_output", "call_id": "a", "output": "found"}
    assert sent([AIMessage([custom_call("a")]), HumanMessage([block])])[1] == result("a")


def test_calls_that_langchain_could_not_read_are_sent_as_calls():
    raw = {"id": "a", "type": "custom", "custom": {"name": "run", "input": "print(1)"}}
    [message, _] = sent([AIMessage("", additional_kwargs={"tool_calls": [raw]})])
    assert message.tool_calls == [{"name": "run", "args": {"__arg1": "print(1)"}, "id": "a", "type": "tool_call"}]
    assert message.additional_kwargs == {}


@pytest.mark.parametrize("raw", [None, "x", [None], {"id": "a"}, []])
def test_raw_calls_of_no_known_form_are_none(raw):
    assert call_ids(AIMessage("hi", additional_kwargs={"tool_calls": raw})) == ()


def test_results_in_a_human_message_become_tool_messages():
    message = HumanMessage([answer("a", "no", is_error=True), {"type": "text", "text": "so?"}], id="m")
    [_, first, rest] = sent([AIMessage([use("a")]), message])
    assert (first.tool_call_id, first.content, first.status) == ("a", "no", "error")
    assert rest == HumanMessage([{"type": "text", "text": "so?"}], id="m")


def test_a_result_in_a_human_message_without_its_call_is_left_out():
    assert [m.text for m in sent([HumanMessage([answer("a"), "so?"])])] == ["so?"]
    assert kinds([HumanMessage([answer("a"), "so?"])]) == [
        "call_form",
        "content_form",
        "orphan_result",
    ]


def test_results_in_a_human_message_are_in_the_groups_of_their_calls():
    groups, _ = group([AIMessage([use("a"), use("b")]), HumanMessage([answer("b"), answer("a")])])
    assert [(part.positions, len(part.messages)) for part in groups] == [((0, 1), 3)]


@pytest.mark.parametrize(
    ("content", "expected"), [(None, ""), ("x", "x"), ([{"type": "text", "text": "x"}],) * 2, ({"a": 1}, '{"a": 1}')]
)
def test_a_result_in_a_human_message_keeps_its_content(content, expected):
    assert sent([AIMessage([use("a")]), HumanMessage([answer("a", content)])])[1].content == expected


def test_results_inside_a_tool_message_answer_their_own_calls():
    messages = [AIMessage([use("a"), use("b")]), ToolMessage([answer("a", "A"), answer("b", "B")], tool_call_id="a")]
    assert [m.content for m in sent(messages)[1:]] == ["A", "B"]


def test_a_function_s_result_answers_its_call():
    [message, found] = sent([legacy(), FunctionMessage("found", name="search")])
    assert message.tool_calls == [{**call("function_search"), "args": {"page": 1}}]
    assert (found.tool_call_id, found.content) == ("function_search", "found")


def test_functions_called_again_keep_each_result_with_its_call():
    pairs = [m for number in "123" for m in (legacy(), FunctionMessage(number, name="search"))]
    assert [m.content for m in sent(pairs)] == ["", "1", "", "2", "", "3"]


def test_a_function_s_result_without_its_call_is_left_out():
    assert kinds([FunctionMessage("found", name="search")]) == ["call_form", "orphan_result"]


def test_a_function_without_a_result_gets_a_stand_in():
    assert [m.content for m in sent([legacy(), HumanMessage("hi")])] == ["", NO_RESULT, "hi"]


def test_a_refused_name_of_a_call_is_replaced_in_the_call_and_the_content():
    [message, _] = sent([AIMessage([use("a", "web search")], id="m")])
    assert message.tool_calls[0]["name"] == message.content[0]["name"] == "web_search"
    assert "call_name" in kinds([AIMessage([use("a", "web search")])])


@pytest.mark.parametrize("name", ["", "..."])
def test_a_call_without_a_name_gets_one(name):
    assert sent([AIMessage("", tool_calls=[call("a", name)])])[0].tool_calls[0]["name"] == "unknown"


def test_empty_texts_among_others_are_left_out():
    [message] = sent([HumanMessage(["", {"type": "text", "text": " "}, IMAGE])])
    assert message.content == [IMAGE]
    assert kinds([HumanMessage(["", IMAGE])]) == ["empty_content"]


@pytest.mark.parametrize("make", [HumanMessage, AIMessage, lambda content: result("a", content)])
def test_a_text_that_is_no_block_becomes_one(make):
    messages = [ai("a"), make(["hi"])]
    assert sent(messages)[-1].content == [{"type": "text", "text": "hi"}]
    assert "content_form" in kinds(messages)


def test_plain_texts_of_an_assistant_that_follow_each_other_are_one():
    cited = {"type": "text", "text": "c", "citations": []}
    [message] = sent([AIMessage(["a", {"type": "text", "text": "b"}, cited, "d"])])
    assert message.content == [{"type": "text", "text": "a\nb"}, cited, {"type": "text", "text": "d"}]


def test_texts_of_the_user_stay_apart():
    message = HumanMessage([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    assert sent([message]) == [message]


def test_keys_of_langchain_s_own_in_a_text_of_the_user_are_left_out():
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    [message] = sent([HumanMessage([{**block, "id": "lc_1", "index": 0, "annotations": []}])])
    assert message.content == [block]


@pytest.mark.parametrize(
    ("block", "note"),
    [
        (IMAGE, "[image left out]"),
        ({"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}, "[image left out]"),
        ({"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}, "[audio left out]"),
        ({"type": "file", "file_id": "f"}, "[file left out]"),
        ({"type": "text-plain", "text": "a list"}, "a list"),
    ],
)
def test_media_of_an_assistant_are_notes(block, note):
    assert sent([AIMessage([block])])[0].content == [{"type": "text", "text": note}]
    assert kinds([AIMessage([block])]) == ["media"]


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage([IMAGE]),
        AIMessage([IMAGE], response_metadata={"model_provider": "google_genai"}),
        AIMessage([{"type": "image", "base64": "iVBORw0KGgo=", "id": "ig_1"}]),
    ],
)
def test_media_that_their_provider_reads_stay(message):
    assert sent([message]) == [message]


@pytest.mark.parametrize(
    "message", [AIMessage(["hi", IMAGE]), ChatMessage("hi", role="critic"), AIMessage([custom_call("a")])]
)
def test_what_is_counted_is_what_is_sent(message):
    assert as_note(message) == sent([message])[0]


def test_images_in_a_result_stay():
    assert sent([ai("a"), result("a", [IMAGE])])[1].content == [IMAGE]


def test_white_space_beside_a_call_is_left_out():
    assert sent([ai("a", content=" \n"), result("a")])[0].content == ""


def test_a_result_without_blocks_is_empty_text():
    assert sent([ai("a"), result("a", [])])[1].content == ""


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("user", HumanMessage("hm", id="m")),
        ("assistant", AIMessage("hm", id="m")),
        ("system", HumanMessage(SYSTEM_NOTE + "hm", id="m")),
        ("the critic", HumanMessage("hm", id="m", name="the_critic")),
    ],
)
def test_a_message_in_a_role_of_its_own_gets_one_that_all_providers_have(role, expected):
    assert sent([ChatMessage("hm", role=role, id="m")]) == [expected]
    assert kinds([ChatMessage("hm", role=role)]) == ["role"]


def test_ids_that_history_uses_are_replaced_in_the_turn():
    history, turn = group([ai("a"), result("a", "old")])[0], group([ai("a", "b"), result("b"), result("a", "new")])[0]
    [changed], repairs = distinct(turn, history)
    assert [c["id"] for c in changed.messages[0].tool_calls] == [m.tool_call_id for m in changed.messages[1:]]
    assert [m.tool_call_id for m in changed.messages[1:]] == ["a-2", "b"]
    assert changed.messages[1].content == "new"
    assert [repair.kind for repair in repairs] == ["call_id"]


@settings(deadline=None)
@given(TRANSCRIPTS, TRANSCRIPTS)
def test_history_and_turn_together_are_accepted(before, after):
    history, turn = group(before)[0], group(after)[0]
    assert refusals([m for part in (*history, *distinct(turn, history)[0]) for m in part.messages]) == []


@settings(deadline=None)
@given(TRANSCRIPTS)
def test_groups_that_share_no_id_stay_as_they_are(messages):
    groups = group(messages)[0]
    changed, repairs = distinct(groups, [])
    assert repairs == []
    assert all(one is other for one, other in zip(changed, groups, strict=True))


def test_a_turn_starts_at_the_last_words_of_the_user():
    messages = [HumanMessage("hi"), AIMessage([use("a")]), HumanMessage([answer("a")])]
    assert split_turn(messages) == ([], messages)


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
        AIMessage([{"type": "thinking", "thinking": "hm", "signature": "x"}]),
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
        AIMessage([use("a")]),
        HumanMessage([answer("a", "")]),
        FunctionMessage("", name="f"),
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
