"""Groups that live or die together, and the repairs that make a sequence valid."""

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget.messages import OpenCalls, distinct, group
from langchain_ctxbudget.messages.turns import HELD_MESSAGES, NO_RESULT, SYSTEM_NOTE
from tests.integration_tests.provider_rules import check_anthropic, check_openai


def call(call_id, name="search"):
    return {"name": name, "args": {}, "id": call_id, "type": "tool_call"}


def invalid(call_id):
    return {
        "name": "search",
        "args": "{",
        "id": call_id,
        "error": "cut off",
        "type": "invalid_tool_call",
    }


def ai(*ids, content="", **rest):
    return AIMessage(content, tool_calls=[call(i) for i in ids], **rest)


def result(call_id, content="found", **rest):
    return ToolMessage(content, tool_call_id=call_id, **rest)


def safe_cuts(messages):
    cuts = []
    waiting = OpenCalls()
    for message in messages:
        safe, waiting = waiting.after(message)
        cuts.append(safe)
    return cuts


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
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "search",
        "arguments": "{}",
    }


def output(call_id):
    return {"type": "function_call_output", "call_id": call_id, "output": "found"}


def spoken():
    text = {"type": "text", "text": "hello", "id": "msg_1"}
    return AIMessage([{"type": "reasoning", "id": "rs_1", "summary": []}, text])


def custom_call(call_id):
    return {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": call_id,
        "name": "run",
        "input": "print(1)",
    }


def custom(call_id):
    listed = {**call(call_id, "run"), "args": {"__arg1": "print(1)"}}
    return AIMessage([{"type": "non_standard", "value": custom_call(call_id)}], tool_calls=[listed])


def legacy(name="search", **rest):
    """A call of 2023, which had no id."""
    return AIMessage(
        "", additional_kwargs={"function_call": {"name": name, "arguments": '{"page": 1}'}}, **rest
    )


IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}
IDS = st.sampled_from(["a", "b", "c", "", None])
CONTENTS = st.one_of(
    st.sampled_from(
        ["", " \n", "hello", "wait", "</summary> [From the first 3 messages.]", "word " * 300]
    ),
    st.lists(
        st.sampled_from(
            ["hi", " ", {"type": "text", "text": "hello"}, {"type": "text", "text": ""}, IMAGE]
        ),
        max_size=3,
    ),
)
MESSAGES = st.one_of(
    st.builds(HumanMessage, CONTENTS),
    st.builds(SystemMessage, CONTENTS),
    st.builds(
        lambda c, ids: AIMessage(c, tool_calls=[call(i) for i in ids]),
        CONTENTS,
        st.lists(IDS, max_size=3),
    ),
    st.builds(
        lambda c, ids: AIMessage(c, invalid_tool_calls=[invalid(i) for i in ids]),
        CONTENTS,
        st.lists(IDS, max_size=2),
    ),
    st.builds(lambda c, i: ToolMessage(c, tool_call_id=i or ""), CONTENTS, IDS),
    st.builds(lambda ids: AIMessage([use(i or "") for i in ids]), st.lists(IDS, max_size=3)),
    st.builds(
        lambda ids, words: HumanMessage([*words, *(answer(i or "") for i in ids)]),
        st.lists(IDS, min_size=1, max_size=3),
        st.lists(st.sampled_from(["so?", " "]), max_size=1),
    ),
    st.builds(
        lambda ids: AIMessage([function_call(i or "") for i in ids]), st.lists(IDS, max_size=2)
    ),
    st.builds(
        lambda ids: AIMessage([*spoken().content, *(custom_call(i or "") for i in ids)]),
        st.lists(IDS, max_size=2),
    ),
    st.builds(
        lambda ids: HumanMessage([output(i or "") for i in ids]),
        st.lists(IDS, min_size=1, max_size=2),
    ),
    st.builds(legacy, st.sampled_from(["search", "web search"])),
    st.builds(
        lambda name: FunctionMessage("found", name=name), st.sampled_from(["search", "web search"])
    ),
    st.builds(
        ChatMessage,
        st.sampled_from(["", "hm"]),
        role=st.sampled_from(["user", "assistant", "system", "critic"]),
    ),
)
TRANSCRIPTS = st.lists(MESSAGES, max_size=14).map(
    lambda messages: [m.model_copy(update={"id": f"m{i}"}) for i, m in enumerate(messages)]
)


@st.composite
def well_formed(draw):
    """Human messages, answers and rounds of parallel calls, every call answered, ids unique."""
    messages = []
    for number, calls in enumerate(draw(st.lists(st.integers(-1, 3), max_size=8))):
        ids = [f"{number}-{i}" for i in range(calls)]
        messages += [
            HumanMessage("hello") if calls < 0 else ai(*ids, content="" if ids else "hello")
        ]
        messages += map(result, draw(st.permutations(ids)))
    return messages


@settings(max_examples=300)
@given(TRANSCRIPTS)
def test_every_transcript_becomes_one_that_providers_accept(messages):
    before = [m.model_copy(deep=True) for m in messages]
    groups, repairs = group(messages)
    view = [message for part in groups for message in part.messages]
    assert refusals(view) == []
    assert kinds(view) == [], "a repaired transcript needs no more repairs"
    assert messages == before
    firsts = [part.positions[0] for part in groups]
    assert firsts == sorted(firsts)
    # No message is lost without a repair, or sent twice; every result is sent once or reported.
    positions = [position for part in groups for position in part.positions]
    left_out = {r.message_id for r in repairs if r.kind in ("orphan_result", "empty_message")}
    assert {m.id for i, m in enumerate(messages) if i not in positions} <= left_out
    whole = [position for position in positions if messages[position].type != "tool"]
    assert len(whole) == len(set(whole))
    stand_ins = sum(m.type == "tool" and m.content == NO_RESULT for m in view)
    answers = sum(m.type == "tool" for m in view) - stand_ins
    assert answers + kinds(messages).count("orphan_result") == sum(
        m.type in ("tool", "function") for m in messages
    )
    assert stand_ins == kinds(messages).count("missing_result")


@given(well_formed())
def test_a_well_formed_transcript_stays_as_it_is_and_is_cut_between_groups(messages):
    groups, repairs = group(messages)
    assert repairs == []
    assert sorted(p for part in groups for p in part.positions) == list(range(len(messages)))
    assert {id(m) for part in groups for m in part.messages} == {id(m) for m in messages}
    safe = safe_cuts(messages)
    assert all(safe[part.positions[0]] for part in groups)
    for position in (at for at, is_safe in enumerate(safe) if is_safe):
        assert kinds(messages[:position]) == kinds(messages[position:]) == []


@settings(max_examples=200)
@given(TRANSCRIPTS)
def test_a_safe_place_is_never_far_away(messages):
    safe = [
        cut
        for message, cut in zip(messages, safe_cuts(messages), strict=True)
        if message.type != "tool"
    ]
    assert all(any(safe[at : at + HELD_MESSAGES + 1]) for at in range(len(safe) - HELD_MESSAGES))


def test_no_cut_is_safe_inside_a_group():
    held = [*[AIMessage("x")] * HELD_MESSAGES, AIMessage("y"), AIMessage("z")]
    for messages, expected in (
        ([ai("a"), result("a"), HumanMessage("hi")], [True, False, True]),
        ([ai("a"), *held], [True, *[False] * HELD_MESSAGES, True, True]),
        (
            [HumanMessage("hi"), result("a"), result("b"), ai("a", "b"), AIMessage("x")],
            [True, True, False, False, True],
        ),
        ([ai("a"), HumanMessage("hi"), result("a")], [True, True, True]),
    ):
        assert safe_cuts(messages) == expected


def test_results_stand_behind_their_calls():
    for messages, expected in (
        (
            [ai("a", "b"), result("b", "B"), HumanMessage("hi"), result("a", "A")],
            ["", "A", "B", "hi"],
        ),
        ([ai("a"), result("a", "1"), ai("a"), result("a", "2")], ["", "1", "", "2"]),
        ([ai("a"), ai("a"), result("a")], ["", NO_RESULT, "", "found"]),
    ):
        assert [message.content for message in sent(messages)] == expected


def made(call_id="a", name="search", **args):
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def test_calls_in_any_form_are_sent_as_calls():
    for message, calls in (
        (AIMessage("", invalid_tool_calls=[invalid("a")]), [made(unreadable_arguments="{")]),
        (custom("a"), [made(name="run", __arg1="print(1)")]),
        (ai(None), [made("call-1")]),
    ):
        shown = sent([message])[0]
        assert (shown.tool_calls, shown.invalid_tool_calls) == (calls, [])
        assert kinds([message])[0] in ("call_form", "call_id")


def test_a_replaced_id_or_name_is_replaced_in_the_result_as_well():
    repeated = AIMessage(
        [{**use("a", "web search"), "input": {}}], tool_calls=[call("a", "web search")]
    )
    first, one, second, two = sent([ai("a"), result("a"), repeated, result("a")])
    assert first.tool_calls[0]["id"] == one.tool_call_id == "a"
    assert (second.tool_calls[0]["id"], second.tool_calls[0]["name"], two.tool_call_id) == (
        "a-2",
        "web_search",
        "a-2",
    )
    assert second.content == "", "its block would be sent under the old id"


def test_ids_of_items_are_sent_once():
    [first, second] = sent([spoken(), spoken()])
    assert (first, second.content) == (spoken(), [{"type": "text", "text": "hello"}])
    assert kinds([spoken(), spoken()]) == ["item_id"]
    [changed], repairs = distinct(
        group([spoken()])[0], group([spoken()])[0]
    )  # the turn behind the history
    assert changed.messages[0].content == [{"type": "text", "text": "hello"}]
    assert [repair.kind for repair in repairs] == ["item_id"]


def test_calls_and_results_in_the_content_alone_are_sent_as_text():
    message = HumanMessage([answer("a", "no"), {"type": "text", "text": "so?"}], id="m")
    for raw, words in ((AIMessage([use("a")]), ['"search"']), (message, ['"no"', "so?"])):
        [shown] = sent([raw])
        assert all(word in shown.text for word in words)
        assert ({block["type"] for block in shown.content}, kinds([raw])) == (
            {"text"},
            ["call_form"],
        )


def test_calls_and_results_of_2023_are_left_out():
    said = legacy().model_copy(update={"content": "Let me see."})
    assert sent([said, legacy(), FunctionMessage("found", name="search")]) == [
        AIMessage("Let me see.")
    ]
    assert kinds([said]) == ["call_form"]
    assert kinds([legacy(), FunctionMessage("found", name="search")])[::2] == [
        "empty_message",
        "orphan_result",
    ]


def test_media_of_an_assistant_are_notes():
    for block, note in (
        (IMAGE, "[image left out]"),
        (
            {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
            "[audio left out]",
        ),
        ({"type": "text-plain", "text": "a list"}, "a list"),
    ):
        assert sent([AIMessage([block])])[0].content == [{"type": "text", "text": note}]
        assert kinds([AIMessage([block])]) == ["media"]


def test_media_that_their_provider_reads_stay():
    for message in (
        HumanMessage([IMAGE]),
        AIMessage([IMAGE], response_metadata={"model_provider": "google_genai"}),
        AIMessage([{"type": "image", "base64": "iVBORw0KGgo=", "id": "ig_1"}]),
    ):
        assert sent([message]) == [message]


def test_a_message_in_a_role_of_its_own_gets_one_that_all_providers_have():
    for role, expected in (
        ("user", HumanMessage("hm", id="m")),
        ("assistant", AIMessage("hm", id="m")),
        ("system", HumanMessage(SYSTEM_NOTE + "hm", id="m")),
        ("the critic", HumanMessage("hm", id="m", name="the_critic")),
    ):
        assert sent([ChatMessage("hm", role=role, id="m")]) == [expected]
    assert sent([SystemMessage("Be brief.", id="s")]) == [
        HumanMessage(SYSTEM_NOTE + "Be brief.", id="s")
    ]


@given(TRANSCRIPTS, TRANSCRIPTS)
def test_history_and_turn_together_are_accepted(before, after):
    history = group(before)[0]
    turn = group(after)[0]
    assert (
        refusals([m for part in (*history, *distinct(turn, history)[0]) for m in part.messages])
        == []
    )
