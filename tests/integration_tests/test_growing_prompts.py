"""While a provider's cache holds the last prompt, the next one extends it; else it is rebuilt.

An extended prompt sends the backgrounds of earlier turns again, so the tests tell it by them.
"""

import copy
import gzip
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.demo import DEMO_QUESTION, demo_messages
from langchain_ctxbudget.knowledge import RULE_POLICY
from langchain_ctxbudget.prompt.extension import GROWTH_POLICY
from langchain_ctxbudget.providers import CacheTerms
from langchain_ctxbudget.replay import Turn, replay
from langchain_ctxbudget.tokens import Price
from tests.conftest import EVALUATION_DATA

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
BUDGET = 1_200
WORDS = (
    "bike flight monday berlin paris invoice garden tomato python server crash deploy token window "
    "apple piano roof ladder oven bread canoe river letter stamp engine wheel ticket train museum "
    "painting violin concert"
).split()
QUESTION = "What about the violin concert?"

Prompts = list[AssembledContext]
Pair = tuple[AssembledContext, AssembledContext]
"""A prompt, and the prompt of the next turn."""
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
    clock: Clock,
    store: BaseStore | None = None,
    system_prompt: str = "You are helpful.",
    **changes: object,
) -> ContextPipeline:
    chosen = {
        "max_context_tokens": BUDGET,
        "cache_lifetime_seconds": 300,
        "learn": False,
        **changes,
    }
    return ContextPipeline(chosen, system_prompt=system_prompt, store=store, clock=clock)


def sentence(rng: random.Random, words: int) -> str:
    text = " ".join(rng.choice(WORDS) for _ in range(words))
    return f"{text.capitalize()}."


def text_of(messages: list[BaseMessage]) -> str:
    """Returns the messages as one text, in which a cache would look for a common beginning."""
    return "\x00".join(f"{message.type}\x01{message.text}" for message in messages)


def run_turns(
    pipeline: ContextPipeline, clock: Clock, turns: int, seed: int = 1
) -> Iterator[AssembledContext]:
    """Runs turns of random sentences, one a minute.

    Yields the prompt of each turn, and stores the question and its answer only after that.
    """
    rng = random.Random(seed)
    for _ in range(turns):
        clock.move(60)
        question = HumanMessage(sentence(rng, 9))
        yield pipeline.assemble(question, **SCOPE)
        pipeline.add_messages([question, AIMessage(sentence(rng, 40))], **SCOPE)


def run_until_extended(pipeline: ContextPipeline, clock: Clock, most_share: float) -> None:
    """Runs turns until an extended prompt fills less than this share of the budget.

    The question of that prompt is not stored.
    """
    for prompt in run_turns(pipeline, clock, 60):
        is_small = prompt.report.total_tokens < BUDGET * most_share
        if is_small and count_items_sent_again(prompt) > 0:
            return
    pytest.fail("no small prompt sends earlier backgrounds again")


def count_items_sent_again(prompt: AssembledContext) -> int:
    """Counts the items of earlier backgrounds that a prompt sends again; a rebuilt one has none."""
    count = 0
    for layer in prompt.report.layers:
        count += sum(item.reason is Reason.AS_SENT for item in layer.items)
    return count


def is_rebuilt(prompt: AssembledContext) -> bool:
    return prompt.report.stability.compaction_step


def extends(pair: Pair) -> bool:
    """Tells whether the second prompt begins with all of the first."""
    before, now = pair
    return text_of(now.messages).startswith(text_of(before.messages))


def tokens_of_parts(report: ContextReport) -> int:
    """Returns what the layers and the overhead of a prompt cost together."""
    layers = sum(layer.used_tokens for layer in report.layers)
    return layers + sum(report.overhead_tokens.values())


# A long conversation


@pytest.fixture(scope="module")
def forty_prompts() -> Prompts:
    """The prompts of forty turns."""
    clock = Clock()
    return list(run_turns(new_pipeline(clock), clock, 40))


def test_a_prompt_that_is_not_rebuilt_extends_the_last_one(forty_prompts: Prompts) -> None:
    not_rebuilt = [pair for pair in pairwise(forty_prompts) if not is_rebuilt(pair[1])]
    assert [pair for pair in not_rebuilt if not extends(pair)] == []


def test_two_to_six_of_forty_prompts_are_rebuilt(forty_prompts: Prompts) -> None:
    rebuilt = [prompt for prompt in forty_prompts[1:] if is_rebuilt(prompt)]
    assert 2 <= len(rebuilt) <= 6


def test_no_prompt_is_larger_than_the_budget(forty_prompts: Prompts) -> None:
    assert max(prompt.report.total_tokens for prompt in forty_prompts) <= BUDGET


def test_layers_and_overhead_add_up_to_the_total(forty_prompts: Prompts) -> None:
    reports = [prompt.report for prompt in forty_prompts]
    totals = [report.total_tokens for report in reports]
    assert [tokens_of_parts(report) for report in reports] == totals


def test_the_coverage_has_every_stored_message_once(forty_prompts: Prompts) -> None:
    covered = [covered_numbers(prompt.report) for prompt in forty_prompts]
    stored = [list(range(1, 2 * turn + 1)) for turn in range(40)]
    assert covered == stored


def covered_numbers(report: ContextReport) -> list[int]:
    """Returns the numbers of the messages that the coverage tells of; the first one is 1."""
    numbers: list[int] = []
    for part in report.coverage:
        numbers += range(part.first, part.last + 1)
    return numbers


def test_the_report_has_items_of_earlier_backgrounds(forty_prompts: Prompts) -> None:
    assert max(count_items_sent_again(prompt) for prompt in forty_prompts) > 0


def test_no_prompt_quotes_anything_twice(forty_prompts: Prompts) -> None:
    quotes = [quoted_lines(prompt) for prompt in forty_prompts]
    assert [lines for lines in quotes if len(lines) != len(set(lines))] == []


def quoted_lines(prompt: AssembledContext) -> list[str]:
    """Returns the lines of all items, without those of the summary."""
    lines: list[str] = []
    for message in prompt.messages:
        if "<conversation_summary>" not in message.text:
            lines += [line for line in message.text.splitlines() if line.startswith("- ")]
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"cache_lifetime_seconds": 0}, {"emphasis": "recall"}, {"layout": "system_first"}],
    ids=["no cache", "recall", "system first"],
)
def test_prompts_that_do_not_grow_have_one_background(
    clock: Clock, changes: dict[str, object]
) -> None:
    prompts = run_turns(new_pipeline(clock, **changes), clock, 25)
    assert max(count_backgrounds(prompt) for prompt in prompts) == 1


def count_backgrounds(prompt: AssembledContext) -> int:
    return sum("<context>" in message.text for message in prompt.messages)


@pytest.fixture(scope="module")
def prompts_of_new_processes() -> Prompts:
    """The prompts of 25 turns, each made by a new pipeline on what is stored."""
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


@pytest.mark.slow
def test_a_new_process_makes_the_same_prompts(
    clock: Clock, prompts_of_new_processes: Prompts
) -> None:
    prompts_of_one_process = run_turns(new_pipeline(clock), clock, 25, seed=3)
    texts = [text_of(prompt.messages) for prompt in prompts_of_one_process]
    assert [text_of(prompt.messages) for prompt in prompts_of_new_processes] == texts


@pytest.mark.slow
def test_most_prompts_of_new_processes_extend_the_last_one(
    prompts_of_new_processes: Prompts,
) -> None:
    assert sum(map(extends, pairwise(prompts_of_new_processes))) > 12


# What causes a rebuild


@dataclass
class StoredConversation:
    """A conversation as it is stored, and the time when it was left."""

    store: InMemoryStore
    clock: Clock

    def assemble(self, question: str, **options: Any) -> AssembledContext:
        """Goes on with the conversation as a new process would."""
        return new_pipeline(self.clock, self.store).assemble(question, **options, **SCOPE)


@pytest.fixture(scope="module")
def shared_extended() -> StoredConversation:
    clock = Clock()
    store = InMemoryStore()
    run_until_extended(new_pipeline(clock, store), clock, most_share=0.8)
    return StoredConversation(store, clock)


@pytest.fixture
def extended(shared_extended: StoredConversation) -> StoredConversation:
    """A conversation whose last prompt was extended; each test has its own copy."""
    return copy.deepcopy(shared_extended)


def test_the_next_question_extends_the_prompt(extended: StoredConversation) -> None:
    assert count_items_sent_again(extended.assemble(QUESTION)) > 0


def test_other_tools_cause_a_rebuild(extended: StoredConversation) -> None:
    def look_up(word: str) -> str:
        """Looks a word up."""
        return word

    prompt = extended.assemble(QUESTION, tools=[look_up])
    assert count_items_sent_again(prompt) == 0


def test_another_system_prompt_causes_a_rebuild(extended: StoredConversation) -> None:
    brief = new_pipeline(extended.clock, extended.store, system_prompt="You are brief.")
    assert count_items_sent_again(brief.assemble(QUESTION, **SCOPE)) == 0


def test_while_the_cache_is_warm_the_prompt_is_extended(extended: StoredConversation) -> None:
    extended.clock.move(240)
    assert count_items_sent_again(extended.assemble(QUESTION)) > 0


def test_when_the_cache_is_cold_the_prompt_is_rebuilt(extended: StoredConversation) -> None:
    extended.clock.move(301)
    assert count_items_sent_again(extended.assemble(QUESTION)) == 0


@dataclass
class AfterPause:
    """The first prompt after an hour of silence, and the second one by either of two processes."""

    first: AssembledContext
    second_by_new_process: AssembledContext
    second_by_same_process: AssembledContext


@pytest.fixture(scope="module")
def after_pause() -> AfterPause:
    clock = Clock()
    store = InMemoryStore()
    pipeline = new_pipeline(clock, store)
    list(run_turns(pipeline, clock, 60))
    clock.move(3_600)
    question = HumanMessage(QUESTION, id="asked")
    first = pipeline.assemble(question, **SCOPE)
    pipeline.add_messages([question, AIMessage("On Friday.")], **SCOPE)
    by_new_process = new_pipeline(clock, store).assemble("And the train?", **SCOPE)
    by_same_process = pipeline.assemble("And the train?", **SCOPE)
    return AfterPause(first, by_new_process, by_same_process)


@pytest.mark.slow
def test_the_first_prompt_after_a_pause_fills_the_budget(after_pause: AfterPause) -> None:
    assert after_pause.first.report.total_tokens > BUDGET * 0.9


def test_the_second_prompt_keeps_four_ninths_of_the_first(after_pause: AfterPause) -> None:
    first = text_of(after_pause.first.messages)
    kept = len(first) * 4 // 9
    assert text_of(after_pause.second_by_same_process.messages)[:kept] == first[:kept]


def test_the_second_prompt_is_the_same_in_a_new_process(after_pause: AfterPause) -> None:
    by_new_process = text_of(after_pause.second_by_new_process.messages)
    assert by_new_process == text_of(after_pause.second_by_same_process.messages)


def test_the_second_prompt_after_a_pause_is_rebuilt(after_pause: AfterPause) -> None:
    assert is_rebuilt(after_pause.second_by_same_process)
    assert is_rebuilt(after_pause.second_by_new_process)


def round_of_calls(number: int) -> list[BaseMessage]:
    """Returns an assistant's message with a call, and the result of the call."""
    call_id = f"call{number}"
    call = {"name": "look", "args": {"number": number}, "id": call_id}
    return [AIMessage("", tool_calls=[call]), ToolMessage("Nothing yet.", tool_call_id=call_id)]


@pytest.mark.slow
def test_the_calls_of_a_long_turn_keep_the_cache_warm(clock: Clock) -> None:
    pipeline = new_pipeline(clock)
    run_until_extended(pipeline, clock, most_share=0.7)
    turn: list[BaseMessage] = [HumanMessage(QUESTION, id="asked")]
    for number in range(3):
        pipeline.assemble(turn, **SCOPE)
        clock.move(200)
        turn += round_of_calls(number)

    before = pipeline.assemble(turn, **SCOPE)
    pipeline.add_messages([*turn, AIMessage("On Friday.")], **SCOPE)
    clock.move(200)
    after = pipeline.assemble("And the train?", **SCOPE)

    assert extends((before, after))


@pytest.mark.slow
def test_a_turn_that_begins_cold_is_cached_at_its_second_request(clock: Clock) -> None:
    pipeline = new_pipeline(clock)
    list(run_turns(pipeline, clock, 20))
    clock.move(3_600)
    question = HumanMessage(QUESTION, id="asked")

    first = pipeline.assemble([question], **SCOPE).report
    second = pipeline.assemble([question, *round_of_calls(0)], **SCOPE).report

    assert first.stability.effective_tokens > first.total_tokens * 0.9
    assert second.stability.effective_tokens < second.total_tokens / 2


@pytest.mark.slow
def test_sending_everything_costs_the_same_for_each_emphasis(clock: Clock) -> None:
    """Everything would be cached, even where our own prompts are rebuilt each time."""
    for_recall = cost_of_everything(clock, "recall")
    for_cache = cost_of_everything(clock, "cache")
    assert for_recall == for_cache


def cost_of_everything(clock: Clock, emphasis: str) -> int:
    *_, last = run_turns(new_pipeline(clock, emphasis=emphasis), clock, 30)
    return last.report.stability.whole_effective_tokens


@pytest.mark.slow
def test_clipping_a_stored_result_does_not_cause_a_rebuild(clock: Clock) -> None:
    pipeline = new_pipeline(clock, max_context_tokens=8_000)
    log = "GET /tools/1001 719 ms\n" * 4_000
    prompts = []
    for day in range(6):
        clock.move(60)
        prompt = pipeline.assemble(f"Anything in the log of day {day}?", **SCOPE)
        prompts.append(prompt)
        call = {"name": "read_log", "args": {"day": day}, "id": f"call-{day}"}
        result = ToolMessage(log, tool_call_id=f"call-{day}")
        answer = [AIMessage("", tool_calls=[call]), result, AIMessage("Quiet.")]
        pipeline.add_messages([*prompt.turn, *answer], **SCOPE)

    assert [is_rebuilt(prompt) for prompt in prompts[1:]] == [False] * 5


# What is edited, forgotten or pinned


@pytest.mark.slow
def test_the_old_text_of_an_edited_message_is_sent_no_more(clock: Clock) -> None:
    pipeline = new_pipeline(clock)
    friday = HumanMessage("The violin concert is on Friday.")
    ids = pipeline.add_messages([friday, AIMessage("Noted.")], **SCOPE)
    list(run_turns(pipeline, clock, 30))
    clock.move(60)
    question = HumanMessage("When is the violin concert?")
    assert "on Friday" in text_of(pipeline.assemble(question, **SCOPE).messages)

    pipeline.edit_message(ids[0], HumanMessage("The violin concert is on Sunday."), **SCOPE)
    pipeline.add_messages([question, AIMessage("Let me see.")], **SCOPE)
    clock.move(60)

    assert "on Friday" not in text_of(pipeline.assemble("And now?", **SCOPE).messages)


@dataclass
class Forgotten:
    """The prompts before and after a secret is forgotten, and the user's export after that."""

    prompt_before: str
    prompt_after: str
    export: str


@pytest.fixture(scope="module")
def forgotten() -> Forgotten:
    clock = Clock()
    pipeline = new_pipeline(clock)
    secret = HumanMessage("The violin concert ticket has the number ZX-4711.")
    ids = pipeline.add_messages([secret, AIMessage("Noted.")], **SCOPE)
    list(run_turns(pipeline, clock, 30))
    clock.move(60)
    question = HumanMessage("Which number has the violin concert ticket?")
    before = pipeline.assemble(question, **SCOPE)
    pipeline.add_messages([question, AIMessage("Let me see.")], **SCOPE)
    pipeline.remove_messages(ids[0], on_removal="forget", **SCOPE)
    clock.move(60)
    after = pipeline.assemble("And now?", **SCOPE)
    export = "".join(pipeline.export_user(user_id="ada"))
    return Forgotten(text_of(before.messages), text_of(after.messages), export)


def test_a_secret_is_in_a_prompt_before_it_is_forgotten(forgotten: Forgotten) -> None:
    assert "ZX-4711" in forgotten.prompt_before


def test_a_forgotten_secret_is_in_no_later_prompt(forgotten: Forgotten) -> None:
    assert "ZX-4711" not in forgotten.prompt_after


def test_a_forgotten_secret_is_not_stored(forgotten: Forgotten) -> None:
    assert "ZX-4711" not in forgotten.export


@dataclass
class MiddleLeftOut:
    """A conversation whose last prompt leaves out its middle."""

    pipeline: ContextPipeline
    clock: Clock
    note: str
    """The line of the prompt that says which messages are left out."""
    message: BaseMessage
    """One of these messages."""

    def next_prompt(self) -> str:
        """Returns the text of the next prompt, a minute later."""
        self.clock.move(60)
        return text_of(self.pipeline.assemble(QUESTION, **SCOPE).messages)


@pytest.fixture
def left_out(clock: Clock) -> MiddleLeftOut:
    pipeline = new_pipeline(clock)
    for prompt in run_turns(pipeline, clock, 60):
        note = re.search(r"Messages (\d+) to (\d+) are left out here", text_of(prompt.messages))
        if note is not None:
            second = int(note[1])  # the number of the first one is the second one's position
            message = pipeline.get_messages(**SCOPE)[second]
            return MiddleLeftOut(pipeline, clock, note[0], message)
    pytest.fail("no prompt leaves out its middle")


def test_an_edit_in_the_left_out_middle_causes_a_rebuild(left_out: MiddleLeftOut) -> None:
    paris = AIMessage("The piano is in Paris.")
    left_out.pipeline.edit_message(str(left_out.message.id), paris, **SCOPE)
    assert left_out.note not in left_out.next_prompt()


def test_a_pin_in_the_left_out_middle_causes_a_rebuild(left_out: MiddleLeftOut) -> None:
    left_out.pipeline.pin(str(left_out.message.id), **SCOPE)
    prompt = left_out.next_prompt()
    assert left_out.note not in prompt
    assert left_out.message.text in prompt


# What a background is worth


@pytest.fixture(scope="module")
def conversation_of_sixty_turns() -> StoredConversation:
    clock = Clock()
    store = InMemoryStore()
    list(run_turns(new_pipeline(clock, store), clock, 60))
    return StoredConversation(store, clock)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "most_tokens"),
    [
        ("ok thanks", 0),
        ("Yes, see you tomorrow.", 0),
        ("ok, talk to you on Monday at 3", 0),
        ("Have a nice weekend!", 0),
        ("What is the capital of France?", 60),
    ],
)
def test_an_unrelated_message_gets_hardly_any_new_quotes(
    conversation_of_sixty_turns: StoredConversation, message: str, most_tokens: int
) -> None:
    conversation = copy.deepcopy(conversation_of_sixty_turns)
    conversation.clock.move(60)
    quotes = conversation.assemble(message).report.layer("L5").items
    chosen_now = (Reason.RELEVANT, Reason.DETECTED)
    new_tokens = [item.tokens for item in quotes if item.reason in chosen_now]
    assert sum(new_tokens) <= most_tokens


class Story:
    """A conversation in which anything may happen between a question and its answer."""

    def __init__(self, seed: int, emphasis: str) -> None:
        self.clock = Clock()
        self.store = InMemoryStore()
        self.rng = random.Random(seed)
        self.emphasis = emphasis
        self.pipeline = new_pipeline(self.clock, self.store, emphasis=emphasis)
        self.scope = dict(SCOPE)
        self.forks = 0

    def any_message_id(self) -> str | None:
        ids = [str(message.id) for message in self.pipeline.get_messages(**self.scope)]
        return self.rng.choice(ids) if ids else None

    def wait(self) -> None:
        self.clock.move(370)

    def restart(self) -> None:
        self.pipeline = new_pipeline(self.clock, self.store, emphasis=self.emphasis)

    def edit(self) -> None:
        if message_id := self.any_message_id():
            edited = HumanMessage(sentence(self.rng, 5))
            self.pipeline.edit_message(message_id, edited, **self.scope)

    def remove(self) -> None:
        if message_id := self.any_message_id():
            on_removal = self.rng.choice(["archive", "forget"])
            self.pipeline.remove_messages(message_id, on_removal=on_removal, **self.scope)

    def fork(self) -> None:
        if self.any_message_id():
            self.forks += 1
            name = f"fork {self.forks}"
            self.pipeline.fork(name, **self.scope)
            self.scope["conversation_id"] = name

    def ask(self, happening: Callable[[], None] | None) -> ContextReport:
        """Asks a question, lets something happen, and adds the answer."""
        self.clock.move(30)
        question = HumanMessage(sentence(self.rng, 8))
        report = self.pipeline.assemble(question, **self.scope).report
        if happening is not None:
            happening()
        answer = AIMessage(sentence(self.rng, 40))
        self.pipeline.add_messages([question, answer], **self.scope)
        return report


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.sampled_from(["ask", "wait", "edit", "restart", "remove", "fork"]), max_size=25),
    st.integers(0, 99),
    st.sampled_from(["recall", "balanced", "cache"]),
)
def test_whatever_happens_prompts_fit_and_the_report_adds_up(
    events: list[str], seed: int, emphasis: str
) -> None:
    story = Story(seed, emphasis)
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
        assert tokens_of_parts(report) == report.total_tokens
        assert ContextReport.from_dict(report.to_dict()) == report


@pytest.fixture(scope="module")
def shortened() -> Pairs:
    """Prompts of which a middle was left out just now, each with the one before it."""
    clock = Clock()
    prompts = run_turns(new_pipeline(clock), clock, 60)
    return [pair for pair in pairwise(prompts) if is_shortened(pair[1])]


def is_shortened(prompt: AssembledContext) -> bool:
    """Tells whether a prompt leaves out messages that the one before it has shown."""
    return is_rebuilt(prompt) and "are left out here" in text_of(prompt.messages)


@pytest.mark.slow
def test_a_full_prompt_leaves_out_its_middle(shortened: Pairs) -> None:
    assert len(shortened) > 0


@pytest.mark.slow
def test_a_full_prompt_begins_with_two_fifths_of_the_last_one(shortened: Pairs) -> None:
    shares = [now.report.stability.prompt_share for _, now in shortened]
    assert min(share or 0 for share in shares) >= 0.4


def test_the_coverage_tells_that_the_middle_is_left_out(shortened: Pairs) -> None:
    for _, now in shortened:
        states = {part.state for part in now.report.coverage}
        assert states & {"omitted", "retrieved"}


def test_a_full_prompt_keeps_the_first_words_of_the_last_one(shortened: Pairs) -> None:
    beginnings = [text_of(before.messages)[:400] for before, _ in shortened]
    assert [text_of(now.messages)[:400] for _, now in shortened] == beginnings


FACTS_OF_THE_DEMO = {
    "What does the handheld scanner cost?": "£32",
    "What does the accessibility review cost?": "£900",
    DEMO_QUESTION: "38p",
    "Why was Tomasz against the tablet?": "swells",
    "When is the quiet hour?": "at four",
}


@pytest.mark.slow
def test_old_facts_are_found_however_full_a_small_budget_is(clock: Clock) -> None:
    pipeline = new_pipeline(clock, max_context_tokens=1_000)
    messages = demo_messages()
    pipeline.add_messages(messages[:240], **SCOPE)
    counts = []
    for position in range(240, 270, 2):
        clock.move(60)
        counts.append(count_found_facts(pipeline))
        turn = pipeline.assemble([messages[position]], **SCOPE).turn
        pipeline.add_messages([*turn, messages[position + 1]], **SCOPE)

    assert min(counts) >= 3, counts


def count_found_facts(pipeline: ContextPipeline) -> int:
    """Counts the facts of the demo that stand in the prompts for their questions."""
    count = 0
    for question, fact in FACTS_OF_THE_DEMO.items():
        count += fact in text_of(pipeline.assemble(question, **SCOPE).messages)
    return count


# What it costs


def evaluation_messages(name: str, count: int) -> list[BaseMessage]:
    """Returns the first messages of a file of the evaluation data; skips the test without it."""
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
    ("read_share", "write_share", "rebuilds"),
    [
        pytest.param(0.1, 1.25, 0, id="Claude, GPT-5.6"),
        pytest.param(0.1, 2.0, 0, id="Claude for an hour"),
        pytest.param(0.25, 1.0, 0, id="GPT-4.1"),
        pytest.param(0.05, 1.25, 1, id="Claude Opus 5.5"),
        pytest.param(0.02, 1.0, 1, id="DeepSeek V4"),
    ],
)
@pytest.mark.parametrize(("name", "budget"), [("demo", 2_500), ("realmem", 5_000)])
def test_no_conversation_costs_more_at_real_prices(
    name: str, budget: int, read_share: float, write_share: float, rebuilds: int
) -> None:
    """Where reading costs next to nothing, the price of one rebuild is never saved."""
    price = Price(input=1, output=1, cached_input=read_share, cache_write=write_share)
    strategies = ["elastic", "full"]
    elastic, full = replay(messages_to_replay(name), strategies, budget=budget, price=price).tracks

    terms = CacheTerms(read_price=read_share, write_price=write_share)
    debt = rebuilds * terms.cost(int(budget * GROWTH_POLICY.rebuild_share))
    debt += cost_of_rules(budget, terms)
    assert turns_that_cost_more(elastic.turns, full.turns, terms, debt) == []


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
    dearer_turns = {}
    for cached_price in (0.1, 0.25, 0.5, 1.0):
        terms = CacheTerms(read_price=cached_price)
        debt = cost_of_rules(budget, terms)
        dearer_turns[cached_price] = turns_that_cost_more(elastic.turns, full.turns, terms, debt)
    assert dearer_turns == {0.1: [], 0.25: [], 0.5: [], 1.0: []}


def cost_of_rules(budget: int, terms: CacheTerms) -> float:
    """Returns what the user's rules cost once more, when the messages that state them go."""
    return terms.cost(int(budget * RULE_POLICY.most_share))


def turns_that_cost_more(
    elastic: Sequence[Turn], full: Sequence[Turn], terms: CacheTerms, debt: float = 0.0
) -> list[int]:
    """Returns the numbers of the turns up to which elastic prompts have cost too much together.

    They may cost 5 % more than sending everything, because they send the last question once more.

    Args:
        elastic: the turns as the package sends them.
        full: the same turns with everything sent each time.
        terms: what cached tokens cost.
        debt: what they may cost more, in effective tokens.
    """
    numbers = []
    elastic_cost = 0.0
    full_cost = 0.0
    for elastic_turn, full_turn in zip(elastic, full, strict=True):
        elastic_cost += terms.cost(elastic_turn.tokens, elastic_turn.cached_tokens)
        full_cost += terms.cost(full_turn.tokens, full_turn.cached_tokens)
        if elastic_cost > full_cost * 1.05 + debt:
            numbers.append(elastic_turn.number)
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


@pytest.mark.slow
def test_minimal_depth_quotes_less(reports_by_depth: dict[str, ContextReport]) -> None:
    minimal = reports_by_depth["minimal"].layer("L5").used_tokens
    standard = reports_by_depth["standard"].layer("L5").used_tokens
    assert minimal < standard * 0.75


@pytest.mark.slow
def test_deep_depth_quotes_more(reports_by_depth: dict[str, ContextReport]) -> None:
    standard = reports_by_depth["standard"].layer("L5").used_tokens
    assert reports_by_depth["deep"].layer("L5").used_tokens > standard


def test_a_minimal_prompt_leaves_part_of_the_budget_unused(
    reports_by_depth: dict[str, ContextReport],
) -> None:
    assert reports_by_depth["minimal"].total_tokens < 8_000 * 0.7
