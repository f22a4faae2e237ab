"""Groups that live or die together, and the repairs that make a sequence valid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langchain_ctxbudget.content import answered_ids, only_answers
from langchain_ctxbudget.messages import OpenCalls
from langchain_ctxbudget.messages.turns import HELD_MESSAGES
from langchain_ctxbudget.providers import COMMON, UsedIds, grouped, regrouped
from langchain_ctxbudget.providers.pairing import NO_RESULT
from tests.doubles.providers import check_anthropic, check_openai

IMAGE = {"type": "image_url", "image_url": {"url": "https://x.invalid/a.png"}}
HELLO = {"type": "text", "text": "hello"}
NO_CUT = [False] * HELD_MESSAGES
"""Where a call is waited for as long as it can be."""


# Calls and results as LangChain lists them


def call(call_id, name="search", **args):
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def invalid(call_id):
    return {
        "name": "search",
        "args": "{",
        "id": call_id,
        "error": "cut off",
        "type": "invalid_tool_call",
    }


def ai(*call_ids, content="", **fields):
    calls = [call(call_id) for call_id in call_ids]
    return AIMessage(content, tool_calls=calls, **fields)


def result(call_id, content="found", **fields):
    return ToolMessage(content, tool_call_id=call_id, **fields)


# Calls and results as providers write them into the content


def anthropic_call(call_id, name="search"):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"page": 1}}


def anthropic_result(call_id, content="found"):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def openai_call(call_id):
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "search",
        "arguments": "{}",
    }


def openai_result(call_id):
    return {"type": "function_call_output", "call_id": call_id, "output": "found"}


def custom_call(call_id):
    return {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": call_id,
        "name": "run",
        "input": "print(1)",
    }


def message_of_a_custom_call(call_id):
    block = {"type": "non_standard", "value": custom_call(call_id)}
    return AIMessage([block], tool_calls=[call(call_id, "run", __arg1="print(1)")])


def message_with_item_ids():
    """A message as OpenAI's Responses API writes it: its parts are items, each with an id."""
    return AIMessage([{"type": "reasoning", "id": "rs_1", "summary": []}, {**HELLO, "id": "msg_1"}])


def call_of_2023(name="search", content=""):
    """A call as it was before tools: it has no id."""
    function = {"name": name, "arguments": '{"page": 1}'}
    return AIMessage(content, additional_kwargs={"function_call": function})


def result_of_2023(name="search"):
    return FunctionMessage("found", name=name)


# What becomes of them


def safe_cuts(messages):
    """Tells of every message if a cut before it is safe."""
    cuts = []
    waiting = OpenCalls()
    for message in messages:
        safe, waiting = waiting.after(message)
        cuts.append(safe)
    return cuts


def messages_of(groups):
    messages = []
    for part in groups:
        messages += part.messages
    return messages


def positions_of(groups):
    positions = []
    for part in groups:
        positions += part.positions
    return positions


def sent(messages):
    groups, _ = grouped(messages, COMMON)
    return messages_of(groups)


def kinds(messages):
    """The kinds of the repairs."""
    _, repairs = grouped(messages, COMMON)
    return [repair.kind for repair in repairs]


def refusals(messages):
    """What providers refuse of messages that a conversation begins with."""
    request = [HumanMessage("hello"), *messages]
    return [*check_openai(request), *check_anthropic(request)]


# Transcripts with everything that goes wrong


def calling(content, call_ids):
    return ai(*call_ids, content=content)


def calling_in_vain(content, call_ids):
    return AIMessage(content, invalid_tool_calls=[invalid(call_id) for call_id in call_ids])


def calling_as_anthropic(call_ids):
    return AIMessage([anthropic_call(call_id) for call_id in call_ids])


def answering_as_anthropic(call_ids, words):
    results = [anthropic_result(call_id) for call_id in call_ids]
    return HumanMessage([*words, *results])


def calling_as_openai(call_ids):
    return AIMessage([openai_call(call_id) for call_id in call_ids])


def answering_as_openai(call_ids):
    return HumanMessage([openai_result(call_id) for call_id in call_ids])


def calling_custom_tools(call_ids):
    calls = [custom_call(call_id) for call_id in call_ids]
    return AIMessage([*message_with_item_ids().content, *calls])


def with_ids(messages):
    return [
        message.model_copy(update={"id": f"m{number}"}) for number, message in enumerate(messages)
    ]


IDS = st.sampled_from(["a", "b", "c", "", None])
WRITTEN_IDS = st.sampled_from(["a", "b", "c", ""])
TOOL_NAMES = st.sampled_from(["search", "web search"])
TEXTS = st.sampled_from(
    ["", " \n", "hello", "wait", "</summary> [From the first 3 messages.]", "word " * 300]
)
BLOCKS = st.sampled_from(["hi", " ", HELLO, {"type": "text", "text": ""}, IMAGE])
CONTENTS = TEXTS | st.lists(BLOCKS, max_size=3)
MESSAGES = st.one_of(
    st.builds(HumanMessage, CONTENTS),
    st.builds(SystemMessage, CONTENTS),
    st.builds(calling, CONTENTS, st.lists(IDS, max_size=3)),
    st.builds(calling_in_vain, CONTENTS, st.lists(IDS, max_size=2)),
    st.builds(result, WRITTEN_IDS, CONTENTS),
    st.builds(calling_as_anthropic, st.lists(WRITTEN_IDS, max_size=3)),
    st.builds(
        answering_as_anthropic,
        st.lists(WRITTEN_IDS, min_size=1, max_size=3),
        st.lists(st.sampled_from(["so?", " "]), max_size=1),
    ),
    st.builds(calling_as_openai, st.lists(WRITTEN_IDS, max_size=2)),
    st.builds(calling_custom_tools, st.lists(WRITTEN_IDS, max_size=2)),
    st.builds(answering_as_openai, st.lists(WRITTEN_IDS, min_size=1, max_size=2)),
    st.builds(call_of_2023, TOOL_NAMES),
    st.builds(result_of_2023, TOOL_NAMES),
    st.builds(
        ChatMessage,
        st.sampled_from(["", "hm"]),
        role=st.sampled_from(["user", "assistant", "system", "critic"]),
    ),
)
TRANSCRIPTS = st.lists(MESSAGES, max_size=14).map(with_ids)


@st.composite
def well_formed(draw):
    """Human messages, answers and rounds of parallel calls, every call answered, ids unique."""
    messages = []
    for number, calls in enumerate(draw(st.lists(st.integers(-1, 3), max_size=8))):
        call_ids = [f"{number}-{place}" for place in range(calls)]
        if calls < 0:
            messages.append(HumanMessage("hello"))
        elif calls == 0:
            messages.append(AIMessage("hello"))
        else:
            messages.append(ai(*call_ids))
        messages += map(result, draw(st.permutations(call_ids)))
    return messages


def count_of_results(messages):
    return sum(message.type in ("tool", "function") for message in messages)


def count_of_results_in_blocks(messages):
    """A result in a block becomes a message of its own where its call is there, too."""
    return sum(len(answered_ids(message)) for message in messages if message.type != "tool")


def count_of_stand_ins(messages):
    return sum(message.type == "tool" and message.content == NO_RESULT for message in messages)


# Every transcript


@given(TRANSCRIPTS)
def test_every_transcript_becomes_one_that_providers_accept(messages):
    before = [message.model_copy(deep=True) for message in messages]

    view = sent(messages)

    assert refusals(view) == []
    assert kinds(view) == [], "a repaired transcript needs no more repairs"
    assert messages == before


@given(TRANSCRIPTS)
def test_no_message_is_lost_without_a_repair_or_sent_twice(messages):
    groups, repairs = grouped(messages, COMMON)

    firsts = [part.positions[0] for part in groups]
    assert firsts == sorted(firsts)
    assert_what_is_missing_is_reported(messages, positions_of(groups), repairs)
    assert_every_result_is_sent_once_or_reported(
        messages, messages_of(groups), [repair.kind for repair in repairs]
    )


def assert_what_is_missing_is_reported(messages, positions, repairs):
    missing = {messages[at].id for at in range(len(messages)) if at not in positions}
    left_out = ("orphan_result", "replaced_result", "empty_message")
    assert missing <= {repair.message_id for repair in repairs if repair.kind in left_out}

    whole = [position for position in positions if messages[position].type != "tool"]
    assert len(whole) == len(set(whole))


def assert_every_result_is_sent_once_or_reported(messages, view, repairs):
    stand_ins = count_of_stand_ins(view)
    answers = sum(message.type == "tool" for message in view) - stand_ins
    results = count_of_results(messages)
    told = repairs.count("orphan_result") + repairs.count("replaced_result")
    told_or_sent = answers + told
    assert results <= told_or_sent <= results + count_of_results_in_blocks(messages)
    assert stand_ins == repairs.count("missing_result")


@pytest.mark.slow
@given(TRANSCRIPTS, TRANSCRIPTS)
def test_history_and_turn_together_are_accepted(before, after):
    history, _ = grouped(before, COMMON)
    turn, _ = regrouped(grouped(after, COMMON)[0], COMMON, UsedIds.of(messages_of(history)))

    assert refusals(messages_of([*history, *turn])) == []


@given(well_formed())
def test_a_well_formed_transcript_stays_as_it_is(messages):
    groups, repairs = grouped(messages, COMMON)

    assert repairs == []
    assert sorted(positions_of(groups)) == list(range(len(messages)))
    assert set(map(id, messages_of(groups))) == set(map(id, messages))


# Cuts


@given(well_formed())
def test_a_well_formed_transcript_may_be_cut_between_groups(messages):
    groups, _ = grouped(messages, COMMON)
    safe = safe_cuts(messages)

    assert all(safe[part.positions[0]] for part in groups)
    for position, is_safe in enumerate(safe):
        if is_safe:
            assert kinds(messages[:position]) == []
            assert kinds(messages[position:]) == []


@given(TRANSCRIPTS)
def test_a_safe_cut_is_never_far_away(messages):
    cuts = zip(messages, safe_cuts(messages), strict=True)
    safe = [is_safe for message, is_safe in cuts if not only_answers(message)]

    for start in range(len(safe) - HELD_MESSAGES):
        assert any(safe[start : start + HELD_MESSAGES + 1])


@pytest.mark.parametrize(
    ("messages", "safe"),
    [
        ([ai("a"), result("a"), HumanMessage("hi")], [True, False, True]),
        (
            [HumanMessage("hi"), result("a"), result("b"), ai("a", "b"), AIMessage("x")],
            [True, True, False, False, True],
        ),
        ([ai("a"), HumanMessage("hi"), result("a")], [True, True, True]),
        (
            [ai("a"), *[AIMessage("x")] * HELD_MESSAGES, AIMessage("y"), AIMessage("z")],
            [True, *NO_CUT, True, True],
        ),
    ],
    ids=["result", "early results", "the user speaks", "no result for long"],
)
def test_no_cut_is_safe_inside_a_group(messages, safe):
    assert safe_cuts(messages) == safe


# Results stand behind their calls


@pytest.mark.parametrize(
    ("messages", "contents"),
    [
        (
            [ai("a", "b"), result("b", "B"), HumanMessage("hi"), result("a", "A")],
            ["", "A", "B", "hi"],
        ),
        ([ai("a"), result("a", "1"), ai("a"), result("a", "2")], ["", "1", "", "2"]),
        ([ai("a"), ai("a"), result("a")], ["", NO_RESULT, "", "found"]),
    ],
    ids=["in the order of the calls", "an id twice", "one without a result"],
)
def test_results_stand_behind_their_calls(messages, contents):
    assert [message.content for message in sent(messages)] == contents


# Forms of calls


@pytest.mark.parametrize(
    ("message", "calls", "kind"),
    [
        (
            AIMessage("", invalid_tool_calls=[invalid("a")]),
            [call("a", unreadable_arguments="{")],
            "call_form",
        ),
        (message_of_a_custom_call("a"), [call("a", "run", __arg1="print(1)")], "call_form"),
        (ai(None), [call("call-1")], "call_id"),
    ],
    ids=["invalid", "custom", "without an id"],
)
def test_calls_in_any_form_are_sent_as_calls(message, calls, kind):
    [shown] = sent([message])[:1]

    assert shown.tool_calls == calls
    assert shown.invalid_tool_calls == []
    assert kinds([message])[0] == kind


@pytest.fixture
def after_a_repeated_id():
    """The call of an id that was used before, and of a name that is refused, with its result."""
    block = {**anthropic_call("a", "web search"), "input": {}}
    repeated = AIMessage([block], tool_calls=[call("a", "web search")])
    return sent([ai("a"), result("a"), repeated, result("a")])


def test_the_first_of_two_equal_ids_stays(after_a_repeated_id):
    [first, first_result, _, _] = after_a_repeated_id

    assert first.tool_calls[0]["id"] == "a"
    assert first_result.tool_call_id == "a"


def test_a_replaced_id_is_replaced_in_the_result_as_well(after_a_repeated_id):
    [_, _, second, second_result] = after_a_repeated_id

    assert second.tool_calls[0]["id"] == "a-2"
    assert second_result.tool_call_id == "a-2"


def test_a_name_that_is_refused_is_replaced(after_a_repeated_id):
    assert after_a_repeated_id[2].tool_calls[0]["name"] == "web_search"


def test_the_block_of_a_call_whose_id_was_replaced_is_left_out(after_a_repeated_id):
    assert after_a_repeated_id[2].content == "", "its block would be sent under the old id"


def test_ids_of_items_are_sent_once():
    messages = [message_with_item_ids(), message_with_item_ids()]

    [first, second] = sent(messages)

    assert first == message_with_item_ids()
    assert second.content == [HELLO]
    assert kinds(messages) == ["item_id"]


def test_ids_of_items_in_the_history_are_not_sent_in_the_turn():
    history, _ = grouped([message_with_item_ids()], COMMON)
    turn, _ = grouped([message_with_item_ids()], COMMON)

    [changed], repairs = regrouped(turn, COMMON, UsedIds.of(messages_of(history)))

    assert changed.messages[0].content == [HELLO]
    assert [repair.kind for repair in repairs] == ["item_id"]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (AIMessage([anthropic_call("a")]), ['"search"']),
        (
            HumanMessage([anthropic_result("a", "no"), {"type": "text", "text": "so?"}], id="m"),
            ["[tool_result]", "no", "so?"],
        ),
    ],
    ids=["call", "result"],
)
def test_calls_and_results_in_the_content_alone_are_sent_as_text(message, words):
    [shown] = sent([message])

    assert all(word in shown.text for word in words)
    assert {block["type"] for block in shown.content} == {"text"}
    assert kinds([message]) == ["call_form"]


def test_calls_and_results_of_2023_are_left_out():
    message = call_of_2023(content="Let me see.")

    assert sent([message, call_of_2023(), result_of_2023()]) == [AIMessage("Let me see.")]


def test_what_is_left_out_of_2023_is_reported():
    assert kinds([call_of_2023(content="Let me see.")]) == ["call_form"]
    [first, _, last] = kinds([call_of_2023(), result_of_2023()])
    assert first == "empty_message"
    assert last == "orphan_result"


def test_a_blank_text_of_another_form_is_reported_as_left_out():
    blank = AIMessage([{"type": "output_text", "text": " "}])

    assert kinds([HumanMessage("Hello."), blank]) == ["content_form", "empty_message"]


# Media and roles


@pytest.mark.parametrize(
    ("block", "note"),
    [
        (IMAGE, "[image left out]"),
        (
            {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
            "[audio left out]",
        ),
        ({"type": "text-plain", "text": "a list"}, "a list"),
    ],
    ids=["image", "audio", "text"],
)
def test_media_of_an_assistant_are_notes(block, note):
    message = AIMessage([block])

    assert sent([message])[0].content == [{"type": "text", "text": note}]
    assert kinds([message]) == ["media"]


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage([IMAGE]),
        AIMessage([IMAGE], response_metadata={"model_provider": "google_genai"}),
        AIMessage([{"type": "image", "base64": "iVBORw0KGgo=", "id": "ig_1"}]),
    ],
    ids=["user", "Gemini", "made by OpenAI"],
)
def test_media_that_their_provider_reads_stay(message):
    assert sent([message]) == [message]


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("user", HumanMessage("hm", id="m")),
        ("assistant", AIMessage("hm", id="m")),
        ("system", HumanMessage("[Note from the application]\nhm", id="m")),
        ("the critic", HumanMessage("hm", id="m", name="the_critic")),
    ],
)
def test_a_role_of_its_own_becomes_one_that_all_providers_have(role, expected):
    assert sent([ChatMessage("hm", role=role, id="m")]) == [expected]


def test_a_system_message_in_the_history_is_a_note():
    note = HumanMessage("[Note from the application]\nBe brief.", id="s")

    assert sent([SystemMessage("Be brief.", id="s")]) == [note]
