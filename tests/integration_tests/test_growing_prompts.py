"""Prompts that only grow while a provider's cache holds the last one, and are written anew in steps."""

import gzip
import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.demo import DEMO_QUESTION, demo_messages
from langchain_ctxbudget.replay import replay
from langchain_ctxbudget.tokens import effective_tokens
from tests.conftest import EVALUATION_DATA

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
BUDGET = 1_200
WORDS = (
    "bike flight monday berlin paris invoice garden tomato python server crash deploy token window apple piano roof "
    "ladder oven bread canoe river letter stamp engine wheel ticket train museum painting violin concert"
).split()


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(clock: Clock, store: BaseStore | None = None, **changes: object) -> ContextPipeline:
    chosen = {
        "max_context_tokens": BUDGET,
        "cache_lifetime_seconds": 300,
        "learn": False,
        **changes,
    }
    return ContextPipeline(chosen, system_prompt="You are helpful.", store=store, clock=clock)


def said(rng: random.Random, words: int) -> str:
    return f"{' '.join(rng.choice(WORDS) for _ in range(words)).capitalize()}."


def text_of(messages: list[BaseMessage]) -> str:
    return "\x00".join(f"{message.type}\x01{message.text}" for message in messages)


def talk(
    pipeline: ContextPipeline, clock: Clock, turns: int, seed: int = 1
) -> Iterator[AssembledContext]:
    """Asks and is answered, a minute from turn to turn."""
    rng = random.Random(seed)
    for _ in range(turns):
        clock.move(60)
        question = HumanMessage(said(rng, 9))
        yield pipeline.assemble(question, **SCOPE)
        pipeline.add_messages([question, AIMessage(said(rng, 40))], **SCOPE)


def grown(prompts: list[AssembledContext]) -> list[bool]:
    """Tells of each prompt after the first whether it begins with all of the one before."""
    texts = [text_of(prompt.messages) for prompt in prompts]
    return [now.startswith(before) for before, now in pairwise(texts)]


def test_between_steps_a_prompt_is_the_last_one_and_more(clock: Clock) -> None:
    prompts = list(talk(made(clock), clock, 40))
    steps = [prompt.report.stability.compaction_step for prompt in prompts[1:]]
    assert all(grows or step for grows, step in zip(grown(prompts), steps, strict=True))
    assert 2 <= steps.count(True) <= len(steps) // 6
    assert all(prompt.report.total_tokens <= BUDGET for prompt in prompts)


def test_without_a_cache_and_for_recall_the_block_of_earlier_turns_goes(clock: Clock) -> None:
    for changes in (
        {"cache_lifetime_seconds": 0},
        {"emphasis": "recall"},
        {"layout": "system_first"},
    ):
        prompts = list(talk(made(clock, **changes), clock, 25))
        blocks = [
            sum("<context>" in message.text for message in prompt.messages) for prompt in prompts
        ]
        assert max(blocks) == 1, changes


def test_a_new_process_goes_on_with_the_same_bytes(clock: Clock) -> None:
    store = InMemoryStore()
    rng = random.Random(3)
    prompts: list[AssembledContext] = []
    for _ in range(25):
        clock.move(60)
        question = HumanMessage(said(rng, 9))
        pipeline = made(clock, store)
        prompts.append(pipeline.assemble(question, **SCOPE))
        pipeline.add_messages([question, AIMessage(said(rng, 40))], **SCOPE)
    same = list(talk(made(clock), clock, 25, seed=3))
    assert [text_of(one.messages) for one in prompts] == [text_of(one.messages) for one in same]
    assert sum(grown(prompts)) > len(prompts) // 2


def again(prompt: AssembledContext) -> int:
    """Returns how many items of earlier blocks a prompt shows."""
    return sum(
        item.reason is Reason.AS_SENT for layer in prompt.report.layers for item in layer.items
    )


def test_another_system_prompt_or_tool_makes_a_step(clock: Clock) -> None:
    def look_up(word: str) -> str:
        """Looks a word up."""
        return word

    store = InMemoryStore()
    for last in talk(made(clock, store), clock, 60):
        if again(last) and last.report.total_tokens < BUDGET * 0.8:
            break
    question = "What about the violin concert?"
    goes_on = made(clock, store).assemble(question, **SCOPE)
    assert again(goes_on)
    assert not again(made(clock, store).assemble(question, tools=[look_up], **SCOPE))
    other = ContextPipeline(
        made(clock).settings, system_prompt="You are brief.", store=store, clock=clock
    )
    assert not again(other.assemble(question, **SCOPE))


def test_when_the_cache_is_cold_the_next_prompt_is_a_step(clock: Clock) -> None:
    for seconds, goes_on in ((240, True), (301, False)):
        store = InMemoryStore()
        for last in talk(made(clock, store), clock, 60):
            if again(last) and last.report.total_tokens < BUDGET * 0.8:
                break
        clock.move(seconds)
        prompt = made(clock, store).assemble("What about the violin concert?", **SCOPE)
        assert bool(again(prompt)) is goes_on


def test_a_cold_prompt_fills_the_window_and_the_next_one_goes_on_with_half_of_it(
    clock: Clock,
) -> None:
    store = InMemoryStore()
    question = HumanMessage("What about the violin concert?", id="asked")
    pipeline = made(clock, store)
    list(talk(pipeline, clock, 60))
    clock.move(3_600)
    cold = pipeline.assemble(question, **SCOPE)
    assert cold.report.total_tokens > BUDGET * 0.9
    pipeline.add_messages([question, AIMessage("On Friday.")], **SCOPE)
    following = [one.assemble("And the train?", **SCOPE) for one in (made(clock, store), pipeline)]
    text, same, before = (text_of(one.messages) for one in (*following, cold))
    assert text == same
    assert text[: len(before) * 4 // 9] == before[: len(before) * 4 // 9]
    assert all(one.report.stability.compaction_step for one in following)


def test_a_turn_that_takes_longer_than_the_cache_lives_keeps_it_warm(clock: Clock) -> None:
    pipeline = made(clock)
    for last in talk(pipeline, clock, 60):
        if again(last) and last.report.total_tokens < BUDGET * 0.7:
            break
    turn: list[BaseMessage] = [HumanMessage("What about the violin concert?", id="asked")]
    for step in range(3):
        pipeline.assemble(turn, **SCOPE)
        clock.move(200)
        call = {"name": "look", "args": {"step": step}, "id": f"call{step}"}
        turn += [
            AIMessage("", tool_calls=[call]),
            ToolMessage("Nothing yet.", tool_call_id=f"call{step}"),
        ]
    before = pipeline.assemble(turn, **SCOPE)
    pipeline.add_messages([*turn, AIMessage("On Friday.")], **SCOPE)
    clock.move(200)
    after = pipeline.assemble("And the train?", **SCOPE)
    assert text_of(after.messages).startswith(text_of(before.messages))


def test_within_a_turn_the_cache_holds_what_the_turn_began_with_though_it_was_cold_then(
    clock: Clock,
) -> None:
    pipeline = made(clock)
    list(talk(pipeline, clock, 20))
    clock.move(3_600)
    turn: list[BaseMessage] = [HumanMessage("What about the violin concert?", id="asked")]
    first = pipeline.assemble(turn, **SCOPE).report
    call = {"name": "look", "args": {}, "id": "call"}
    turn += [AIMessage("", tool_calls=[call]), ToolMessage("Nothing yet.", tool_call_id="call")]
    second = pipeline.assemble(turn, **SCOPE).report
    assert first.stability.effective_tokens > first.total_tokens * 0.9
    assert second.stability.effective_tokens < second.total_tokens / 2


def test_what_a_cache_holds_is_counted_however_prompts_are_made(clock: Clock) -> None:
    whole: dict[str, int] = {}
    for emphasis in ("recall", "cache"):
        reports = [prompt.report for prompt in talk(made(clock, emphasis=emphasis), clock, 30)]
        whole[emphasis] = reports[-1].stability.whole_effective_tokens
    assert (
        whole["recall"] == whole["cache"]
    )  # everything would be sent in the same way, and be cached as well


def test_a_message_that_changes_between_prompt_and_answer_takes_the_blocks_along(
    clock: Clock,
) -> None:
    pipeline = made(clock)
    ids = pipeline.add_messages(
        [HumanMessage("The violin concert is on Friday."), AIMessage("Noted.")], **SCOPE
    )
    list(talk(pipeline, clock, 30))
    clock.move(60)
    question = HumanMessage("When is the violin concert?")
    assert "on Friday" in text_of(pipeline.assemble(question, **SCOPE).messages)
    pipeline.edit_message(ids[0], HumanMessage("The violin concert is on Sunday."), **SCOPE)
    pipeline.add_messages([question, AIMessage("Let me see.")], **SCOPE)
    clock.move(60)
    assert "on Friday" not in text_of(pipeline.assemble("And now?", **SCOPE).messages)


def test_earlier_blocks_are_in_the_report_and_add_up(clock: Clock) -> None:
    prompts = list(talk(made(clock), clock, 40))
    for stored, report in zip(range(0, 80, 2), (prompt.report for prompt in prompts), strict=True):
        used = sum(layer.used_tokens for layer in report.layers) + sum(
            report.overhead_tokens.values()
        )
        assert used == report.total_tokens
        covered = [
            position for part in report.coverage for position in range(part.first, part.last + 1)
        ]
        assert covered == [*range(1, stored + 1)]
    assert any(map(again, prompts))


def test_nothing_is_quoted_twice_in_a_stretch(clock: Clock) -> None:
    for prompt in talk(made(clock), clock, 40):
        blocks = [
            message.text
            for message in prompt.messages
            if "<conversation_summary>" not in message.text
        ]
        lines = [line for block in blocks for line in block.splitlines() if line.startswith("- ")]
        assert len(lines) == len({*lines})


def test_what_is_forgotten_is_in_no_block(clock: Clock) -> None:
    pipeline = made(clock)
    secret = "The violin concert ticket has the number ZX-4711."
    ids = pipeline.add_messages([HumanMessage(secret), AIMessage("Noted.")], **SCOPE)
    list(talk(pipeline, clock, 30))
    clock.move(60)
    question = HumanMessage("Which number has the violin concert ticket?")
    assert "ZX-4711" in text_of(pipeline.assemble(question, **SCOPE).messages)
    pipeline.add_messages([question, AIMessage("Let me see.")], **SCOPE)
    pipeline.remove_messages(ids[0], on_removal="forget", **SCOPE)
    clock.move(60)
    assert "ZX-4711" not in text_of(pipeline.assemble("And now?", **SCOPE).messages)
    assert "ZX-4711" not in "".join(pipeline.export_user(user_id="ada"))


def test_small_talk_gets_no_block(clock: Clock) -> None:
    pipeline = made(clock)
    list(talk(pipeline, clock, 60))
    talked = (
        "ok thanks",
        "Yes, see you tomorrow.",
        "ok, talk to you on Monday at 3",
        "Have a nice weekend!",
    )
    for words in (*talked, "What is the capital of France?"):
        clock.move(60)
        report = pipeline.assemble(words, **SCOPE).report
        new = sum(
            item.tokens
            for layer in report.layers
            for item in layer.items
            if layer.layer == "L5" and item.reason in (Reason.RELEVANT, Reason.DETECTED)
        )
        assert new <= (0 if words in talked else BUDGET * 0.05), words


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(["ask", "wait", "edit", "restart", "remove", "fork"]), max_size=25),
    st.integers(0, 99),
)
def test_whatever_happens_prompts_fit_and_the_report_adds_up(story: list[str], seed: int) -> None:
    clock = Clock()
    store = InMemoryStore()
    rng = random.Random(seed)
    pipeline = made(clock, store)
    scope = dict(SCOPE)
    for number, event in enumerate(["ask"] * 8 + story):
        clock.move(400 if event == "wait" else 30)
        ids = [str(message.id) for message in pipeline.get_messages(**scope)]
        question = HumanMessage(said(rng, 8))
        report = pipeline.assemble(question, **scope).report
        assert report.total_tokens <= BUDGET
        used = sum(layer.used_tokens for layer in report.layers) + sum(
            report.overhead_tokens.values()
        )
        assert used == report.total_tokens
        assert ContextReport.from_dict(report.to_dict()) == report
        if event == "restart":
            pipeline = made(clock, store)
        if event == "edit" and ids:
            pipeline.edit_message(rng.choice(ids), HumanMessage(said(rng, 5)), **scope)
        if event == "remove" and ids:
            pipeline.remove_messages(
                rng.choice(ids), on_removal=rng.choice(["archive", "forget"]), **scope
            )
        if event == "fork" and ids:
            pipeline.fork(f"fork {number}", **scope)
            scope["conversation_id"] = f"fork {number}"
        pipeline.add_messages([question, AIMessage(said(rng, 40))], **scope)


def test_a_full_prompt_keeps_its_first_half_and_leaves_out_its_middle(clock: Clock) -> None:
    prompts = list(talk(made(clock), clock, 60))
    shorter = [
        pair
        for pair in pairwise(prompts)
        if "are left out here" in text_of(pair[1].messages)[-BUDGET * 3 :]
    ]
    moved = [(a, b) for a, b in shorter if b.report.stability.compaction_step]
    assert moved
    for before, now in moved:
        assert now.report.stability.prompt_share is not None
        assert now.report.stability.prompt_share >= 0.4
        gone = [part for part in now.report.coverage if part.state in ("omitted", "retrieved")]
        assert gone
        assert text_of(now.messages)[:400] == text_of(before.messages)[:400]


def test_a_small_window_finds_old_facts_however_full_it_is_when_the_question_comes(
    clock: Clock,
) -> None:
    facts = {
        "What does the handheld scanner cost?": "£32",
        "What does the accessibility review cost?": "£900",
    }
    facts |= {DEMO_QUESTION: "38p", "Why was Tomasz against the tablet?": "swells"}
    facts["When is the quiet hour?"] = "at four"
    pipeline = made(clock, max_context_tokens=1_000)
    said_so_far = demo_messages()
    found = list[int]()
    pipeline.add_messages(said_so_far[:240], **SCOPE)
    for at in range(240, 270, 2):
        clock.move(60)
        asked = [
            (text_of(pipeline.assemble(question, **SCOPE).messages), fact)
            for question, fact in facts.items()
        ]
        found.append(sum(fact in text for text, fact in asked))
        pipeline.add_messages(
            [*pipeline.assemble([said_so_far[at]], **SCOPE).turn, said_so_far[at + 1]], **SCOPE
        )
    assert min(found) >= 3, found


@pytest.mark.parametrize("event", ["edit", "pin"])
def test_what_is_edited_or_pinned_in_a_middle_that_is_left_out_makes_a_step(
    clock: Clock, event: str
) -> None:
    pipeline = made(clock)
    for prompt in talk(pipeline, clock, 60):
        if found := re.search(
            r"Messages (\d+) to (\d+) are left out here", text_of(prompt.messages)
        ):
            break
    assert found
    message = pipeline.get_messages(**SCOPE)[int(found[1])]
    if event == "edit":
        pipeline.edit_message(str(message.id), AIMessage("The piano is in Paris."), **SCOPE)
    else:
        pipeline.pin(str(message.id), **SCOPE)
    clock.move(60)
    text = text_of(pipeline.assemble("What about the violin concert?", **SCOPE).messages)
    assert found[0] not in text
    assert event == "edit" or message.text in text


def of_eval(name: str, messages: int) -> list[BaseMessage]:
    file = EVALUATION_DATA / f"{name}.dev.jsonl.gz"
    if not file.exists():
        pytest.skip("CTXBUDGET_EVALUATION_DATA names no folder with it")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        turns = json.loads(next(lines))["turns"][:messages]
    kinds: dict[bool, type[BaseMessage]] = {True: HumanMessage, False: AIMessage}
    return [
        kinds[turn["speaker"] == turns[0]["speaker"]](turn["text"], name=turn["speaker"])
        for turn in turns
    ]


REPLAYED = {
    "demo": (160, [1_000, 2_500]),
    "locomo": (140, [1_000, 2_000]),
    "realmem": (60, [5_000]),
}


@pytest.mark.parametrize(
    ("name", "budget"), [(name, one) for name, (_, several) in REPLAYED.items() for one in several]
)
def test_no_conversation_costs_more_than_sending_all_of_it(name: str, budget: int) -> None:
    messages = REPLAYED[name][0]
    said = demo_messages()[:messages] if name == "demo" else of_eval(name, messages)
    own, whole = replay(said, ["elastic", "full"], budget=budget).tracks
    for share in (0.1, 0.25, 0.5, 1.0):
        spent = saved = 0.0
        for one, other in zip(own.turns, whole.turns, strict=True):
            spent += effective_tokens(one.tokens, one.cached_tokens, share)
            saved += effective_tokens(other.tokens, other.cached_tokens, share)
            assert spent <= saved * 1.05, (one.number, share)  # the last question is sent once more


def test_depth_says_how_much_is_retrieved_and_what_nobody_planned_stays_empty(clock: Clock) -> None:
    reports: dict[str, ContextReport] = {}
    for depth in ("minimal", "standard", "deep"):
        pipeline = made(clock, depth=depth, max_context_tokens=8_000)
        pipeline.add_messages(demo_messages(), **SCOPE)
        reports[depth] = pipeline.assemble(DEMO_QUESTION, **SCOPE).report
    minimal, standard, deep = (reports[depth].layer("L5").used_tokens for depth in reports)
    assert minimal < standard * 0.75
    assert standard < deep
    assert reports["minimal"].total_tokens < 8_000 * 0.7


def test_a_result_that_is_clipped_where_it_stands_is_no_reason_for_a_step(clock: Clock) -> None:
    pipeline = made(clock, max_context_tokens=8_000)
    log = "GET /tools/1001 719 ms\n" * 4_000
    steps = list[bool]()
    for day in range(6):
        clock.move(60)
        call = {"name": "read_log", "args": {"day": day}, "id": f"call-{day}", "type": "tool_call"}
        asked = pipeline.assemble(f"Anything in the log of day {day}?", **SCOPE)
        steps.append(asked.report.stability.compaction_step)
        result = ToolMessage(log, tool_call_id=f"call-{day}")
        pipeline.add_messages(
            [*asked.turn, AIMessage("", tool_calls=[call]), result, AIMessage("Quiet.")], **SCOPE
        )
    assert not any(steps[1:])
