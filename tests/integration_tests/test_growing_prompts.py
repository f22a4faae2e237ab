"""While a provider's cache holds the last prompt, the next one extends it; else it is rebuilt."""

import copy
import gzip
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
from langchain_ctxbudget.replay import Turn, replay
from langchain_ctxbudget.tokens import effective_tokens
from tests.conftest import EVALUATION_DATA

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
BUDGET = 1_200
WORDS = (
    "bike flight monday berlin paris invoice garden tomato python server crash deploy token window "
    "apple piano roof ladder oven bread canoe river letter stamp engine wheel ticket train museum "
    "painting violin concert"
).split()
CONCERT = "What about the violin concert?"

Prompts = list[AssembledContext]
Pair = tuple[AssembledContext, AssembledContext]
"""A prompt and the one after it."""
Pairs = list[Pair]


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


def new_pipeline(
    clock: Clock, store: BaseStore | None = None, **changes: object
) -> ContextPipeline:
    chosen = {
        "max_context_tokens": BUDGET,
        "cache_lifetime_seconds": 300,
        "learn": False,
        **changes,
    }
    return ContextPipeline(chosen, system_prompt="You are helpful.", store=store, clock=clock)


def sentence(rng: random.Random, words: int) -> str:
    text = " ".join(rng.choice(WORDS) for _ in range(words))
    return f"{text.capitalize()}."


def text_of(messages: list[BaseMessage]) -> str:
    return "\x00".join(f"{message.type}\x01{message.text}" for message in messages)


def talk(
    pipeline: ContextPipeline, clock: Clock, turns: int, seed: int = 1
) -> Iterator[AssembledContext]:
    """Asks and is answered, a minute from turn to turn; yields each prompt before its answer."""
    rng = random.Random(seed)
    for _ in range(turns):
        clock.move(60)
        question = HumanMessage(sentence(rng, 9))
        yield pipeline.assemble(question, **SCOPE)
        pipeline.add_messages([question, AIMessage(sentence(rng, 40))], **SCOPE)


def talk_until_extended(pipeline: ContextPipeline, clock: Clock, fullest: float) -> None:
    """Talks until a prompt shows earlier blocks again and fills less than a share of the budget."""
    for prompt in talk(pipeline, clock, 60):
        if items_as_sent(prompt) and prompt.report.total_tokens < BUDGET * fullest:
            return
    pytest.fail("no prompt shows earlier blocks again")


def items_as_sent(prompt: AssembledContext) -> int:
    """Returns how many items of earlier blocks a prompt shows."""
    count = 0
    for layer in prompt.report.layers:
        count += sum(item.reason is Reason.AS_SENT for item in layer.items)
    return count


def is_rebuilt(prompt: AssembledContext) -> bool:
    return prompt.report.stability.compaction_step


def extends(pair: Pair) -> bool:
    """Whether the second prompt begins with all of the first."""
    before, now = pair
    return text_of(now.messages).startswith(text_of(before.messages))


def used_tokens(report: ContextReport) -> int:
    layers = sum(layer.used_tokens for layer in report.layers)
    return layers + sum(report.overhead_tokens.values())


# A long conversation


@pytest.fixture(scope="module")
def forty_prompts() -> Prompts:
    """The prompts of forty turns."""
    clock = Clock()
    return list(talk(new_pipeline(clock), clock, 40))


def test_a_prompt_that_is_not_rebuilt_is_the_last_one_and_more(
    forty_prompts: Prompts,
) -> None:
    extended = [pair for pair in pairwise(forty_prompts) if not is_rebuilt(pair[1])]
    assert [pair for pair in extended if not extends(pair)] == []


def test_a_prompt_is_rebuilt_now_and_then(forty_prompts: Prompts) -> None:
    rebuilt = [prompt for prompt in forty_prompts[1:] if is_rebuilt(prompt)]
    assert 2 <= len(rebuilt) <= 6


def test_no_prompt_is_larger_than_the_budget(forty_prompts: Prompts) -> None:
    assert max(prompt.report.total_tokens for prompt in forty_prompts) <= 1_200


def test_layers_and_overhead_add_up_to_the_total(forty_prompts: Prompts) -> None:
    reports = [prompt.report for prompt in forty_prompts]
    totals = [report.total_tokens for report in reports]
    assert [used_tokens(report) for report in reports] == totals


def test_the_coverage_has_every_stored_message_once(
    forty_prompts: Prompts,
) -> None:
    positions = [covered_positions(prompt.report) for prompt in forty_prompts]
    stored = range(0, 80, 2)
    assert positions == [list(range(1, count + 1)) for count in stored]


def covered_positions(report: ContextReport) -> list[int]:
    positions: list[int] = []
    for part in report.coverage:
        positions += range(part.first, part.last + 1)
    return positions


def test_items_of_earlier_blocks_are_in_the_report(
    forty_prompts: Prompts,
) -> None:
    assert max(items_as_sent(prompt) for prompt in forty_prompts) > 0


def test_no_prompt_quotes_anything_twice(forty_prompts: Prompts) -> None:
    quotes = [quoted_lines(prompt) for prompt in forty_prompts]
    assert [lines for lines in quotes if len(lines) != len(set(lines))] == []


def quoted_lines(prompt: AssembledContext) -> list[str]:
    """Returns the lines of items, but for those of the summary."""
    lines: list[str] = []
    for message in prompt.messages:
        if "<conversation_summary>" not in message.text:
            lines += [line for line in message.text.splitlines() if line.startswith("- ")]
    return lines


@pytest.mark.parametrize(
    "changes",
    [{"cache_lifetime_seconds": 0}, {"emphasis": "recall"}, {"layout": "system_first"}],
    ids=["no cache", "recall", "system first"],
)
def test_without_a_cache_the_blocks_of_earlier_turns_go(
    clock: Clock, changes: dict[str, object]
) -> None:
    prompts = talk(new_pipeline(clock, **changes), clock, 25)
    assert max(blocks_in(prompt) for prompt in prompts) == 1


def blocks_in(prompt: AssembledContext) -> int:
    return sum("<context>" in message.text for message in prompt.messages)


@pytest.fixture(scope="module")
def prompts_of_processes() -> Prompts:
    """The prompts of 25 turns, each by a process of its own."""
    clock = Clock()
    store = InMemoryStore()
    rng = random.Random(3)
    prompts = []
    for _ in range(25):
        clock.move(60)
        question = HumanMessage(sentence(rng, 9))
        pipeline = new_pipeline(clock, store)
        prompts.append(pipeline.assemble(question, **SCOPE))
        pipeline.add_messages([question, AIMessage(sentence(rng, 40))], **SCOPE)
    return prompts


def test_a_new_process_goes_on_with_the_same_bytes(
    clock: Clock, prompts_of_processes: Prompts
) -> None:
    of_one_process = list(talk(new_pipeline(clock), clock, 25, seed=3))
    texts = [text_of(prompt.messages) for prompt in of_one_process]
    assert [text_of(prompt.messages) for prompt in prompts_of_processes] == texts


def test_most_prompts_of_new_processes_extend_the_last_one(
    prompts_of_processes: Prompts,
) -> None:
    assert sum(map(extends, pairwise(prompts_of_processes))) > 12


# What makes a prompt rebuilt


@dataclass
class Talk:
    """A store and the time after a conversation."""

    store: InMemoryStore
    clock: Clock

    def pipeline(self) -> ContextPipeline:
        return new_pipeline(self.clock, self.store)


@pytest.fixture(scope="module")
def talk_that_was_extended() -> Talk:
    clock = Clock()
    store = InMemoryStore()
    talk_until_extended(new_pipeline(clock, store), clock, fullest=0.8)
    return Talk(store, clock)


@pytest.fixture
def extended_talk(talk_that_was_extended: Talk) -> Talk:
    """A conversation whose last prompt shows earlier blocks again: each test has a copy."""
    return copy.deepcopy(talk_that_was_extended)


def test_the_next_question_extends_the_prompt(extended_talk: Talk) -> None:
    assert items_as_sent(extended_talk.pipeline().assemble(CONCERT, **SCOPE)) > 0


def test_another_tool_makes_a_prompt_rebuilt(extended_talk: Talk) -> None:
    def look_up(word: str) -> str:
        """Looks a word up."""
        return word

    prompt = extended_talk.pipeline().assemble(CONCERT, tools=[look_up], **SCOPE)
    assert items_as_sent(prompt) == 0


def test_another_system_prompt_makes_a_prompt_rebuilt(extended_talk: Talk) -> None:
    brief = ContextPipeline(
        extended_talk.pipeline().settings,
        system_prompt="You are brief.",
        store=extended_talk.store,
        clock=extended_talk.clock,
    )
    assert items_as_sent(brief.assemble(CONCERT, **SCOPE)) == 0


def test_while_the_cache_is_warm_the_prompt_is_extended(extended_talk: Talk) -> None:
    extended_talk.clock.move(240)
    assert items_as_sent(extended_talk.pipeline().assemble(CONCERT, **SCOPE)) > 0


def test_when_the_cache_is_cold_the_prompt_is_rebuilt(extended_talk: Talk) -> None:
    extended_talk.clock.move(301)
    assert items_as_sent(extended_talk.pipeline().assemble(CONCERT, **SCOPE)) == 0


@dataclass
class Cold:
    """A prompt after an hour of silence, and the next one by two processes."""

    prompt: AssembledContext
    by_new_process: AssembledContext
    by_same_process: AssembledContext


@pytest.fixture(scope="module")
def cold() -> Cold:
    clock = Clock()
    store = InMemoryStore()
    pipeline = new_pipeline(clock, store)
    list(talk(pipeline, clock, 60))
    clock.move(3_600)
    question = HumanMessage(CONCERT, id="asked")
    prompt = pipeline.assemble(question, **SCOPE)
    pipeline.add_messages([question, AIMessage("On Friday.")], **SCOPE)
    by_new_process = new_pipeline(clock, store).assemble("And the train?", **SCOPE)
    return Cold(prompt, by_new_process, pipeline.assemble("And the train?", **SCOPE))


def test_a_prompt_without_a_cache_fills_the_window(cold: Cold) -> None:
    assert cold.prompt.report.total_tokens > BUDGET * 0.9


def test_the_prompt_after_a_cold_one_begins_with_nearly_half_of_it(cold: Cold) -> None:
    before = text_of(cold.prompt.messages)
    kept = len(before) * 4 // 9
    assert text_of(cold.by_same_process.messages)[:kept] == before[:kept]


def test_the_prompt_after_a_cold_one_is_the_same_in_a_new_process(cold: Cold) -> None:
    assert text_of(cold.by_new_process.messages) == text_of(cold.by_same_process.messages)


def test_the_prompt_after_a_cold_one_is_rebuilt(cold: Cold) -> None:
    assert is_rebuilt(cold.by_same_process)
    assert is_rebuilt(cold.by_new_process)


def call_of_step(step: int) -> AIMessage:
    call = {"name": "look", "args": {"step": step}, "id": f"call{step}"}
    return AIMessage("", tool_calls=[call])


def result_of_step(step: int) -> ToolMessage:
    return ToolMessage("Nothing yet.", tool_call_id=f"call{step}")


def test_a_turn_that_takes_longer_than_the_cache_lives_keeps_it_warm(clock: Clock) -> None:
    pipeline = new_pipeline(clock)
    talk_until_extended(pipeline, clock, fullest=0.7)
    turn: list[BaseMessage] = [HumanMessage(CONCERT, id="asked")]
    for step in range(3):
        pipeline.assemble(turn, **SCOPE)
        clock.move(200)
        turn += [call_of_step(step), result_of_step(step)]

    before = pipeline.assemble(turn, **SCOPE)
    pipeline.add_messages([*turn, AIMessage("On Friday.")], **SCOPE)
    clock.move(200)
    after = pipeline.assemble("And the train?", **SCOPE)

    assert extends((before, after))


def test_a_turn_that_begins_cold_is_cached_at_its_second_request(clock: Clock) -> None:
    pipeline = new_pipeline(clock)
    list(talk(pipeline, clock, 20))
    clock.move(3_600)
    question = HumanMessage(CONCERT, id="asked")

    first = pipeline.assemble([question], **SCOPE).report
    turn = [question, call_of_step(0), result_of_step(0)]
    second = pipeline.assemble(turn, **SCOPE).report

    assert first.stability.effective_tokens > first.total_tokens * 0.9
    assert second.stability.effective_tokens < second.total_tokens / 2


def test_what_sending_everything_would_cost_is_the_same_for_recall(clock: Clock) -> None:
    """Everything would be sent in the same way, and be cached as well."""
    for_recall = cost_of_everything(clock, "recall")
    for_cache = cost_of_everything(clock, "cache")
    assert for_recall == for_cache


def cost_of_everything(clock: Clock, emphasis: str) -> int:
    prompts = list(talk(new_pipeline(clock, emphasis=emphasis), clock, 30))
    return prompts[-1].report.stability.whole_effective_tokens


def test_a_result_that_is_clipped_where_it_stands_rebuilds_nothing(clock: Clock) -> None:
    pipeline = new_pipeline(clock, max_context_tokens=8_000)
    log = "GET /tools/1001 719 ms\n" * 4_000
    prompts = []
    for day in range(6):
        clock.move(60)
        prompt = pipeline.assemble(f"Anything in the log of day {day}?", **SCOPE)
        prompts.append(prompt)
        call = {"name": "read_log", "args": {"day": day}, "id": f"call-{day}", "type": "tool_call"}
        result = ToolMessage(log, tool_call_id=f"call-{day}")
        answers = [AIMessage("", tool_calls=[call]), result, AIMessage("Quiet.")]
        pipeline.add_messages([*prompt.turn, *answers], **SCOPE)

    assert [is_rebuilt(prompt) for prompt in prompts[1:]] == [False] * 5


# What is edited, forgotten or pinned


def test_a_message_edited_before_the_answer_leaves_earlier_blocks(clock: Clock) -> None:
    pipeline = new_pipeline(clock)
    friday = HumanMessage("The violin concert is on Friday.")
    ids = pipeline.add_messages([friday, AIMessage("Noted.")], **SCOPE)
    list(talk(pipeline, clock, 30))
    clock.move(60)
    question = HumanMessage("When is the violin concert?")
    assert "on Friday" in text_of(pipeline.assemble(question, **SCOPE).messages)

    pipeline.edit_message(ids[0], HumanMessage("The violin concert is on Sunday."), **SCOPE)
    pipeline.add_messages([question, AIMessage("Let me see.")], **SCOPE)
    clock.move(60)

    assert "on Friday" not in text_of(pipeline.assemble("And now?", **SCOPE).messages)


@dataclass
class Forgotten:
    """What is seen of a number before and after its message is forgotten."""

    prompt_before: str
    prompt_after: str
    export: str


@pytest.fixture(scope="module")
def forgotten() -> Forgotten:
    clock = Clock()
    pipeline = new_pipeline(clock)
    secret = HumanMessage("The violin concert ticket has the number ZX-4711.")
    ids = pipeline.add_messages([secret, AIMessage("Noted.")], **SCOPE)
    list(talk(pipeline, clock, 30))
    clock.move(60)
    question = HumanMessage("Which number has the violin concert ticket?")
    before = pipeline.assemble(question, **SCOPE)
    pipeline.add_messages([question, AIMessage("Let me see.")], **SCOPE)
    pipeline.remove_messages(ids[0], on_removal="forget", **SCOPE)
    clock.move(60)
    after = pipeline.assemble("And now?", **SCOPE)
    export = "".join(pipeline.export_user(user_id="ada"))
    return Forgotten(text_of(before.messages), text_of(after.messages), export)


def test_what_is_forgotten_was_in_a_block_before(forgotten: Forgotten) -> None:
    assert "ZX-4711" in forgotten.prompt_before


def test_what_is_forgotten_is_in_no_block(forgotten: Forgotten) -> None:
    assert "ZX-4711" not in forgotten.prompt_after


def test_what_is_forgotten_is_in_no_stored_block(forgotten: Forgotten) -> None:
    assert "ZX-4711" not in forgotten.export


@dataclass
class LeftOut:
    """A prompt that leaves the middle of the conversation out, and a message of the middle."""

    pipeline: ContextPipeline
    clock: Clock
    note: str
    message: BaseMessage

    def next_prompt(self) -> str:
        self.clock.move(60)
        return text_of(self.pipeline.assemble(CONCERT, **SCOPE).messages)


@pytest.fixture
def left_out(clock: Clock) -> LeftOut:
    pipeline = new_pipeline(clock)
    for prompt in talk(pipeline, clock, 60):
        note = re.search(r"Messages (\d+) to (\d+) are left out here", text_of(prompt.messages))
        if note is not None:
            message = pipeline.get_messages(**SCOPE)[int(note[1])]
            return LeftOut(pipeline, clock, note[0], message)
    pytest.fail("no prompt leaves its middle out")


def test_an_edit_in_a_middle_that_is_left_out_rebuilds_the_prompt(left_out: LeftOut) -> None:
    paris = AIMessage("The piano is in Paris.")
    left_out.pipeline.edit_message(str(left_out.message.id), paris, **SCOPE)
    assert left_out.note not in left_out.next_prompt()


def test_a_pin_in_a_middle_that_is_left_out_rebuilds_the_prompt(left_out: LeftOut) -> None:
    left_out.pipeline.pin(str(left_out.message.id), **SCOPE)
    prompt = left_out.next_prompt()
    assert left_out.note not in prompt
    assert left_out.message.text in prompt


# What a block is worth


@pytest.fixture(scope="module")
def talk_of_sixty_turns() -> Talk:
    clock = Clock()
    store = InMemoryStore()
    list(talk(new_pipeline(clock, store), clock, 60))
    return Talk(store, clock)


@pytest.mark.parametrize(
    ("words", "most_tokens"),
    [
        ("ok thanks", 0),
        ("Yes, see you tomorrow.", 0),
        ("ok, talk to you on Monday at 3", 0),
        ("Have a nice weekend!", 0),
        ("What is the capital of France?", 60),
    ],
)
def test_small_talk_gets_no_block(talk_of_sixty_turns: Talk, words: str, most_tokens: int) -> None:
    later = copy.deepcopy(talk_of_sixty_turns)
    later.clock.move(60)
    report = later.pipeline().assemble(words, **SCOPE).report
    new = [
        item.tokens
        for item in report.layer("L5").items
        if item.reason in (Reason.RELEVANT, Reason.DETECTED)
    ]
    assert sum(new) <= most_tokens


class Story:
    """A conversation to which anything may happen."""

    def __init__(self, seed: int) -> None:
        self.clock = Clock()
        self.store = InMemoryStore()
        self.rng = random.Random(seed)
        self.pipeline = new_pipeline(self.clock, self.store)
        self.scope = dict(SCOPE)
        self.forks = 0

    def any_id(self) -> str | None:
        ids = [str(message.id) for message in self.pipeline.get_messages(**self.scope)]
        return self.rng.choice(ids) if ids else None

    def wait(self) -> None:
        self.clock.move(370)

    def restart(self) -> None:
        self.pipeline = new_pipeline(self.clock, self.store)

    def edit(self) -> None:
        if key := self.any_id():
            self.pipeline.edit_message(key, HumanMessage(sentence(self.rng, 5)), **self.scope)

    def remove(self) -> None:
        if key := self.any_id():
            on_removal = self.rng.choice(["archive", "forget"])
            self.pipeline.remove_messages(key, on_removal=on_removal, **self.scope)

    def fork(self) -> None:
        if self.any_id():
            self.forks += 1
            name = f"fork {self.forks}"
            self.pipeline.fork(name, **self.scope)
            self.scope["conversation_id"] = name

    def ask(self, happening: Callable[[], None] | None) -> ContextReport:
        """Asks; something may happen before the answer is added."""
        self.clock.move(30)
        question = HumanMessage(sentence(self.rng, 8))
        report = self.pipeline.assemble(question, **self.scope).report
        if happening is not None:
            happening()
        answer = AIMessage(sentence(self.rng, 40))
        self.pipeline.add_messages([question, answer], **self.scope)
        return report


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from(["ask", "wait", "edit", "restart", "remove", "fork"]), max_size=25),
    st.integers(0, 99),
)
def test_whatever_happens_prompts_fit_and_the_report_adds_up(events: list[str], seed: int) -> None:
    story = Story(seed)
    happenings = {
        "edit": story.edit,
        "restart": story.restart,
        "remove": story.remove,
        "fork": story.fork,
    }
    for event in ["ask"] * 8 + events:
        if event == "wait":
            story.wait()
        report = story.ask(happenings.get(event))

        assert report.total_tokens <= BUDGET
        assert used_tokens(report) == report.total_tokens
        assert ContextReport.from_dict(report.to_dict()) == report


@pytest.fixture(scope="module")
def shortened() -> Pairs:
    """Rebuilt prompts that leave a middle out, each after the one before it."""
    clock = Clock()
    prompts = talk(new_pipeline(clock), clock, 60)
    return [pair for pair in pairwise(prompts) if is_shortened(pair[1])]


def is_shortened(prompt: AssembledContext) -> bool:
    end = text_of(prompt.messages)[-3_600:]
    return is_rebuilt(prompt) and "are left out here" in end


def test_a_full_prompt_leaves_out_its_middle(shortened: Pairs) -> None:
    assert len(shortened) > 0


def test_a_full_prompt_keeps_two_fifths_of_the_last_one(shortened: Pairs) -> None:
    shares = [now.report.stability.prompt_share for _, now in shortened]
    assert min(share or 0 for share in shares) >= 0.4


def test_the_middle_is_not_covered_word_for_word(shortened: Pairs) -> None:
    states = [{part.state for part in now.report.coverage} for _, now in shortened]
    assert [each for each in states if not each & {"omitted", "retrieved"}] == []


def test_a_full_prompt_keeps_the_beginning_of_the_last_one(shortened: Pairs) -> None:
    beginnings = [text_of(before.messages)[:400] for before, _ in shortened]
    assert [text_of(now.messages)[:400] for _, now in shortened] == beginnings


FACTS_OF_THE_DEMO = {
    "What does the handheld scanner cost?": "£32",
    "What does the accessibility review cost?": "£900",
    DEMO_QUESTION: "38p",
    "Why was Tomasz against the tablet?": "swells",
    "When is the quiet hour?": "at four",
}


def test_a_small_window_finds_old_facts_however_full_it_is(clock: Clock) -> None:
    pipeline = new_pipeline(clock, max_context_tokens=1_000)
    messages = demo_messages()
    pipeline.add_messages(messages[:240], **SCOPE)
    found = []
    for position in range(240, 270, 2):
        clock.move(60)
        found.append(facts_found(pipeline))
        turn = pipeline.assemble([messages[position]], **SCOPE).turn
        pipeline.add_messages([*turn, messages[position + 1]], **SCOPE)

    assert min(found) >= 3, found


def facts_found(pipeline: ContextPipeline) -> int:
    """Returns how many facts of the demo stand in the prompts for their questions."""
    count = 0
    for question, fact in FACTS_OF_THE_DEMO.items():
        count += fact in text_of(pipeline.assemble(question, **SCOPE).messages)
    return count


# What it costs


def evaluation_messages(name: str, count: int) -> list[BaseMessage]:
    """Returns the first messages of a conversation of the evaluation data."""
    file = EVALUATION_DATA / f"{name}.dev.jsonl.gz"
    if not file.exists():
        pytest.skip("CTXBUDGET_EVALUATION_DATA names no folder with it")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        turns = json.loads(next(lines))["turns"][:count]
    user = turns[0]["speaker"]
    messages: list[BaseMessage] = []
    for turn in turns:
        kind = HumanMessage if turn["speaker"] == user else AIMessage
        messages.append(kind(turn["text"], name=turn["speaker"]))
    return messages


def messages_to_replay(name: str) -> list[BaseMessage]:
    if name == "demo":
        return demo_messages()[:160]
    return evaluation_messages(name, {"locomo": 140, "realmem": 60}[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("demo", 1_000),
        ("demo", 2_500),
        ("locomo", 1_000),
        ("locomo", 2_000),
        ("realmem", 5_000),
    ],
)
def test_no_conversation_costs_more_than_sending_all_of_it(name: str, budget: int) -> None:
    messages = messages_to_replay(name)
    elastic, full = replay(messages, ["elastic", "full"], budget=budget).tracks
    dearer = {}
    for share in (0.1, 0.25, 0.5, 1.0):  # of its price, for a token that is cached
        dearer[share] = turns_that_cost_more(elastic.turns, full.turns, share)
    assert dearer == {0.1: [], 0.25: [], 0.5: [], 1.0: []}


def turns_that_cost_more(elastic: Sequence[Turn], full: Sequence[Turn], share: float) -> list[int]:
    """Returns the numbers of the turns up to which the prompts cost over 5 % more.

    The last question is sent once more.
    """
    numbers = []
    spent = 0.0
    spent_on_all = 0.0
    for turn, whole in zip(elastic, full, strict=True):
        spent += effective_tokens(turn.tokens, turn.cached_tokens, share)
        spent_on_all += effective_tokens(whole.tokens, whole.cached_tokens, share)
        if spent > spent_on_all * 1.05:
            numbers.append(turn.number)
    return numbers


@pytest.fixture(scope="module")
def reports_by_depth() -> dict[str, ContextReport]:
    reports = {}
    clock = Clock()
    for depth in ("minimal", "standard", "deep"):
        pipeline = new_pipeline(clock, depth=depth, max_context_tokens=8_000)
        pipeline.add_messages(demo_messages(), **SCOPE)
        reports[depth] = pipeline.assemble(DEMO_QUESTION, **SCOPE).report
    return reports


def test_a_minimal_depth_retrieves_less(reports_by_depth: dict[str, ContextReport]) -> None:
    minimal = reports_by_depth["minimal"].layer("L5").used_tokens
    standard = reports_by_depth["standard"].layer("L5").used_tokens
    assert minimal < standard * 0.75


def test_a_deep_depth_retrieves_more(reports_by_depth: dict[str, ContextReport]) -> None:
    standard = reports_by_depth["standard"].layer("L5").used_tokens
    assert reports_by_depth["deep"].layer("L5").used_tokens > standard


def test_what_nobody_planned_stays_empty(reports_by_depth: dict[str, ContextReport]) -> None:
    assert reports_by_depth["minimal"].total_tokens < 8_000 * 0.7
