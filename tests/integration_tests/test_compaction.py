"""History that compacts without losing anything: what every compaction promises."""

import re
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.errors import InputError
from tests.integration_tests.summary_models import USER, Scripted, conversation, exchange, summary


def pipeline(store: InMemoryStore | None = None, **given: Any) -> ContextPipeline:
    settings = {"max_context_tokens": 2_000, "learn": False, **given.pop("settings", {})}
    return ContextPipeline(
        settings, system_prompt="You help.", store=store or InMemoryStore(), **given
    )


def ids_of(messages: list[BaseMessage]) -> list[str]:
    return [str(message.id) for message in messages]


def reasons(report: Any) -> set[tuple[str, str]]:
    return {(item.id, item.reason) for item in report.layer("L6").items}


def everything(store: InMemoryStore) -> str:
    return str([item.value for item in store.search((), limit=10_000)])


def flushed(pipe: ContextPipeline, question: str = "Hello") -> str:
    pipe.assemble(question, **USER)
    assert pipe.flush(60)
    return str(pipe.assemble(question, **USER).messages)


# -- nothing is lost


def test_every_evicted_turn_of_a_whole_segment_is_read_by_the_summary_model() -> None:
    model = Scripted()
    with pipeline(summary_model=model, settings={"span_messages": 4}) as pipe:
        pipe.add_messages(conversation(200), **USER)
        flushed(pipe)
        ledger = pipe.coverage(**USER)
    read = "\n".join(model.read)
    evicted = {*ledger["summarized"], *ledger["retrieved"], *ledger["omitted"]}
    turns = {number for number in range(200) if f"q{number}" in evicted or f"a{number}" in evicted}
    assert len(turns) >= 180
    unread = [
        n for n in sorted(turns) if f"Sentinel{n:04}q" not in read or f"Sentinel{n:04}a" not in read
    ]
    assert unread == sorted(turns)[len(turns) - len(unread) :]  # of a segment that has not ended
    assert len(unread) <= 2


# -- bounded, cheap, stable


def test_no_span_is_summarised_twice_and_none_after_a_restart() -> None:
    store = InMemoryStore()
    model = Scripted()
    with pipeline(store, summary_model=model) as pipe:
        for number in range(60):
            pipe.assemble(f"Question {number}", **USER)
            pipe.add_messages(exchange(number), **USER)
            pipe.flush(60)
        calls = len(model.read)
        first = flushed(pipe)
    assert 0 < calls == len(model.read) <= 120 / 15
    again = Scripted()
    with pipeline(store, summary_model=again) as pipe:
        assert flushed(pipe) == first
        pipe.add_messages(
            [message for number in range(60, 64) for message in exchange(number)], **USER
        )
        flushed(pipe, "And more")
    assert len(again.read) <= 3
    assert not any("Sentinel0020" in text for text in again.read)


def test_between_steps_the_prompt_only_grows_and_a_turn_tokenizes_little() -> None:
    before: list[Any] = []
    steps = 0
    calls = []
    with pipeline(settings={"max_context_tokens": 4_000, "emphasis": "cache"}) as pipe:
        for number in range(80):
            context = pipe.assemble(f"What of the {number}?", **USER)
            zone = [message.content for message in context.messages[:-1]]
            if context.report.stability.compaction_step:
                steps += 1
            else:
                assert zone[: len(before)] == before
                calls.append(context.report.tokenizer_calls)
            before = zone
            pipe.add_messages(exchange(number), **USER)
    assert 0 < steps <= 16
    assert max(calls[40:]) <= 60
    assert sum(calls[40:]) / len(calls[40:]) <= 30


# -- what the application wants of a message


def test_a_kept_message_stays_verbatim_with_its_calls_and_outlasts_a_restart() -> None:
    wanted = [{"name": "look", "args": {}, "id": key, "type": "tool_call"} for key in ("c1", "c2")]
    traffic: list[BaseMessage] = [
        AIMessage("", id="call", tool_calls=wanted),
        ToolMessage("first", tool_call_id="c1", id="r1"),
        ToolMessage("second", tool_call_id="c2", id="r2", additional_kwargs={"ctxbudget": "keep"}),
    ]
    store = InMemoryStore()
    with pipeline(store) as pipe:
        pipe.add_messages([*conversation(10), *traffic, *conversation(150)[20:]], **USER)
        pipe.pin("q20", **USER)
        context = pipe.assemble("Hello", **USER)
        assert {"r2", "q20"} <= set(pipe.coverage(**USER)["verbatim"])
    assert ("q20", "pinned") in reasons(context.report)
    with pipeline(store) as pipe:
        sent = ids_of(pipe.assemble("Hello", **USER).messages)
        assert [key for key in sent if key in {"call", "r1", "r2", "q20"}] == [
            "call",
            "r1",
            "r2",
            "q20",
        ]
        pipe.pin(["q20"], preservation=None, **USER)
        assert "q20" not in ids_of(pipe.assemble("Hello", **USER).messages)


def test_what_says_most_stays_verbatim_within_its_share_and_is_not_told_twice() -> None:
    decision = "We decided to use Postgres 16 for the ledger of Mrs. Field."
    said = [*conversation(40), HumanMessage(decision, id="said"), *conversation(200)[40:]]
    for share in (0.0, 0.1, 0.5, 1.0):
        with pipeline(settings={"keep_important": share}) as pipe:
            pipe.add_messages(said, **USER)
            context = pipe.assemble("What was decided for the ledger?", **USER)
        kept = [item for item in context.report.layer("L6").items if item.reason == "important"]
        assert sum(item.tokens for item in kept) <= share * 2_000
        assert ("said" in [item.id for item in kept]) is bool(share)
        assert str(context.messages[1:]).count(decision) == 1
    with pipeline() as pipe:  # it counts for a call, too, after one without it
        pipe.add_messages(said, **USER)
        reports = [
            pipe.assemble("Hello", settings={"keep_important": share}, **USER).report
            for share in (0, 0.1)
        ]
    assert [("said", "important") in reasons(report) for report in reports] == [False, True]


def test_a_message_to_be_dropped_is_in_no_prompt_and_no_summary() -> None:
    model = Scripted()
    given = conversation(120)
    given[40] = HumanMessage(
        "The plover is a secret.", id="secret", additional_kwargs={"ctxbudget": "drop"}
    )
    given[-2] = HumanMessage("The plover is still a secret.", id="secret2")
    with pipeline(summary_model=model) as pipe:
        pipe.add_messages(given, **USER)
        pipe.pin("secret2", preservation="drop", **USER)
        context = pipe.assemble("What about the plover, the secret?", **USER)
        pipe.flush(60)
        ledger = pipe.coverage(**USER)
    assert {"secret", "secret2"} <= set(ledger["omitted"])
    assert not [m for m in context.messages[:-1] if "plover" in m.text]
    assert context.messages[-1].text.count("plover") == 1
    assert not [text for text in model.read if "plover" in text]
    assert ("secret2", "dropped") in reasons(context.report)


def test_a_message_only_to_be_summarised_is_short_among_the_recent_ones() -> None:
    story = HumanMessage(
        "Long story. " * 50, id="story", additional_kwargs={"ctxbudget": "summarize"}
    )
    with pipeline() as pipe:
        pipe.add_messages([story, AIMessage("I see.", id="a")], **USER)
        context = pipe.assemble("Hello", **USER)
        assert pipe.coverage(**USER)["summarized"] == ["story"]
    [shown] = [message.text for message in context.messages if message.id == "story"]
    assert re.fullmatch(r"\[Earlier: Long story\..{60,90}…\]", shown)
    assert ("story", "shortened") in reasons(context.report)


def test_wrong_pins_are_errors_and_one_without_room_is_in_the_report() -> None:
    given = conversation(80)
    with pipeline(settings={"max_context_tokens": 600}) as pipe:
        pipe.add_messages(given, **USER)
        pipe.pin(ids_of(given)[:60], **USER)
        found = reasons(pipe.assemble("Hello", **USER).report)
        wrong: list[tuple[Any, str, str]] = [
            (value, "keep", "message_ids") for value in (3, [4], None)
        ]
        for value, preservation, told in [
            *wrong,
            ("nope", "keep", "no messages"),
            ("q1", "always", "preservation"),
        ]:
            with pytest.raises(InputError, match=told):
                pipe.pin(value, preservation=preservation, **USER)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="ctxbudget"):
            pipe.add_messages(
                [HumanMessage("x", additional_kwargs={"ctxbudget": "always"})], **USER
            )
    assert [key for key, reason in found if reason == "no_room" and key in ids_of(given)[:60]]


# -- edits, removals, forks


def test_an_edit_has_only_its_own_span_summarised_again_and_a_branch_that_was_left_none() -> None:
    model = Scripted()
    trunk = conversation(60)
    edited = [*trunk[:50], HumanMessage("Now about the plover.", id=trunk[50].id), *trunk[51:]]
    first = [*edited, *conversation(120)[120:]]
    second = [*edited, HumanMessage("Another way.", id="fork")]
    with pipeline(summary_model=model) as pipe:
        pipe.sync(trunk, **USER)
        flushed(pipe)
        before = len(model.read)
        pipe.sync(edited, **USER)
        flushed(pipe)
        after = model.read[before:]
        assert (
            1 <= len(after) <= 5
        )  # its segment, what that is part of, and what the step leaves behind
        assert "plover" in after[0]
        for branch in (first, second, first):
            pipe.sync(branch, **USER)
            flushed(pipe)
            assert ids_of(pipe.get_messages(**USER)) == ids_of(branch)
        calls = len(model.read)
        pipe.sync(second, **USER)
        flushed(pipe)
        assert len(model.read) == calls


def parrot(prompt: str) -> str:
    told = "The plover sings. " if "plover" in prompt else ""
    return summary(
        f"{told if 'at noon' in prompt else ''}They talked.", open_questions=[f"{told}What next?"]
    )


def with_secret() -> list[BaseMessage]:
    given = conversation(120)
    given[4] = HumanMessage("The plover sings at noon.", id="secret")
    return given


def test_what_one_pipeline_forgets_is_in_no_summary_and_the_other_does_not_tell_on_it() -> None:
    store = InMemoryStore()
    given = with_secret()
    with (
        pipeline(store, summary_model=Scripted(answer=parrot)) as pipe,
        pipeline(store, model="gpt-4o") as twin,
    ):
        pipe.sync(given, **USER)
        assert all("plover" in flushed(either, "What sings at noon?") for either in (pipe, twin))
        assert any("plover" in part.summary for part in pipe.get_compactions(**USER))
        pipe.sync([m for m in given if m.id != "secret"], on_removal="forget", **USER)
        assert not any("plover" in part.summary for part in pipe.get_compactions(**USER))
        for either in (twin, pipe, twin):
            assert "plover" not in str(either.assemble("Hello", **USER).messages)
            either.add_messages(exchange(500), **USER)
            either.flush(60)
        assert "plover" not in everything(store)


# -- the model in the background


def test_the_models_words_replace_the_extraction_once_they_are_there() -> None:
    model = Scripted(answer=lambda _: summary("A talk about gardens."))
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with pipeline(
        settings={"max_context_tokens": 3_000}, summary_model=model, clock=lambda: now[0]
    ) as pipe:
        pipe.add_messages(conversation(120), **USER)
        early = pipe.assemble("Hello", **USER)
        assert pipe.flush(60)
        now[0] += timedelta(seconds=301)  # the next step
        late = pipe.assemble("Hello", **USER)
        later = pipe.assemble("Hello", **USER)
    assert "A talk about gardens." not in str(early.messages)
    assert early.report.summaries_waiting > 0
    assert "A talk about gardens." in str(late.messages)
    assert late.report.summaries_waiting == 0
    assert late.report.stability.compaction_step
    assert not later.report.stability.compaction_step
    assert late.report.summary_lines["Scripted"] > 0


@pytest.mark.parametrize("call", [0, 2])
def test_a_result_for_messages_that_have_changed_is_not_applied(call: int) -> None:
    store = InMemoryStore()
    given = with_secret()
    go = threading.Event()
    begun = threading.Event()
    calls = iter(range(1_000))

    def answer(prompt: str) -> str:
        if next(calls) == call:
            begun.set()
            go.wait(30)
        return parrot(prompt)

    with pipeline(store, summary_model=Scripted(answer=answer)) as pipe:
        pipe.sync(given, **USER)
        pipe.assemble("Hello", **USER)
        assert begun.wait(30)
        given[4] = HumanMessage("Nothing sings.", id="other")
        pipe.sync(given, on_removal="forget", **USER)
        go.set()
        assert pipe.flush(60)
        assert "plover" not in flushed(pipe)
        assert "plover" not in everything(store)


# -- The newest exchanges stay word for word, also where an agent has called tools in them


SCOPE = {"user_id": "ada", "conversation_id": "c1"}
SHARE = 0.25
"""Of the budget, which the last three exchanges may take."""


def with_calls(number: int, calls: int, words: int) -> list[BaseMessage]:
    said: list[BaseMessage] = [HumanMessage(f"Question {number}?", id=f"q{number}")]
    for step in range(calls):
        call = {
            "name": "look",
            "args": {"at": step},
            "id": f"c{number}-{step}",
            "type": "tool_call",
        }
        said += [
            AIMessage("", tool_calls=[call], id=f"a{number}-{step}"),
            ToolMessage(
                "It is so. " * words, tool_call_id=f"c{number}-{step}", id=f"t{number}-{step}"
            ),
        ]
    return [*said, AIMessage(f"Answer {number}.", id=f"z{number}")]


def sent(
    budget: int, emphasis: str, newest: Sequence[Sequence[BaseMessage]]
) -> tuple[set[str | None], int]:
    """The ids of the messages that are sent, and what the newest exchanges cost whole."""
    pipeline = ContextPipeline({"max_context_tokens": budget, "emphasis": emphasis, "learn": False})
    long_talk = [
        (HumanMessage, AIMessage)[number % 2](
            f"We speak about place {number} at some length. " * 12, id=f"m{number}"
        )
        for number in range(120)
    ]
    messages = [message for part in newest for message in part]
    pipeline.add_messages([*long_talk, *messages], **SCOPE)
    context = pipeline.assemble("And now?", **SCOPE)
    assert context.report.total_tokens <= budget
    return {
        message.id for message in context.messages
    }, pipeline.engine.target.counter.count_messages(messages)


@pytest.mark.parametrize("budget", [1_024, 4_096])
@pytest.mark.parametrize("emphasis", ["recall", "balanced", "cache"])
def test_the_newest_exchanges_stay_as_far_as_they_fit(budget: int, emphasis: str) -> None:
    for calls in (0, 1, 3):  # the last three, where they fit a quarter of the budget
        newest = [with_calls(number, calls, words=1) for number in range(3)]
        found, cost = sent(budget, emphasis, newest)
        assert cost <= budget * SHARE or (budget, calls) == (1_024, 3)
        stay = newest if cost <= budget * SHARE else newest[-1:]
        assert {message.id for part in stay for message in part} <= found
    last = with_calls(1, 6, words=budget // 80)  # the last one whole, up to half of it
    found, cost = sent(budget, emphasis, [last])
    assert budget * SHARE < cost < budget / 2
    assert {message.id for message in last} <= found
    last = with_calls(1, 60, words=budget // 80)  # of one that is too large, the newest messages
    found, cost = sent(budget, emphasis, [last])
    assert cost > budget
    assert {message.id for message in last[-5:]} <= found
