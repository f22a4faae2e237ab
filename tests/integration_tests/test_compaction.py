"""History that compacts without losing anything: what every compaction promises."""

import re
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.errors import InputError
from tests.integration_tests.summary_models import USER, Scripted, conversation, exchange, summary

PATIENCE_SECONDS = 60


def pipeline(
    store: InMemoryStore | None = None, settings: dict[str, Any] | None = None, **options: Any
) -> ContextPipeline:
    settings = {"max_context_tokens": 2_000, "learn": False, **(settings or {})}
    return ContextPipeline(
        settings, system_prompt="You help.", store=store or InMemoryStore(), **options
    )


def ids_of(messages: list[BaseMessage]) -> list[str]:
    return [str(message.id) for message in messages]


def reasons(report: Any) -> set[tuple[str, str]]:
    """The items of the history, each with the reason why it is or is not shown."""
    return {(item.id, item.reason) for item in report.layer("L6").items}


def everything(store: InMemoryStore) -> str:
    return str([item.value for item in store.search((), limit=10_000)])


def settled_prompt(pipe: ContextPipeline, question: str = "Hello") -> str:
    """Returns the prompt once the work in the background is done."""
    pipe.assemble(question, **USER)
    assert pipe.flush(PATIENCE_SECONDS)
    return str(pipe.assemble(question, **USER).messages)


# -- nothing is lost


@dataclass(frozen=True)
class Reading:
    evicted: list[int]
    """Numbers of the exchanges that do not stand in the prompt word for word."""
    unread: list[int]
    """Those of them of which the summary model has not read both messages."""


@pytest.fixture(scope="module")
def reading() -> Reading:
    model = Scripted()
    with pipeline(summary_model=model, settings={"span_messages": 4}) as pipe:
        pipe.add_messages(conversation(200), **USER)
        settled_prompt(pipe)
        ledger = pipe.coverage(**USER)
    gone = {*ledger["summarized"], *ledger["retrieved"], *ledger["omitted"]}
    evicted = [number for number in range(200) if gone & {f"q{number}", f"a{number}"}]
    text = "\n".join(model.read)
    unread = [
        number
        for number in evicted
        if f"Sentinel{number:04}q" not in text or f"Sentinel{number:04}a" not in text
    ]
    return Reading(evicted, unread)


def test_most_of_a_long_conversation_is_evicted(reading: Reading) -> None:
    assert len(reading.evicted) >= 180


def test_every_evicted_turn_of_an_ended_span_is_read_by_the_model(reading: Reading) -> None:
    of_ended_spans = len(reading.evicted) - len(reading.unread)

    assert reading.unread == reading.evicted[of_ended_spans:]
    assert len(reading.unread) <= 2


# -- bounded, cheap, stable


@dataclass(frozen=True)
class Restart:
    """Sixty turns, the end of their pipeline, and another pipeline on the same store."""

    calls_in_the_turns: int
    calls_before_the_restart: int
    prompt_before: str
    prompt_after: str
    read_after: list[str]
    """What the other pipeline's model read, four more exchanges included."""


@pytest.fixture(scope="module")
def restart() -> Restart:
    store = InMemoryStore()
    model = Scripted()
    with pipeline(store, summary_model=model) as pipe:
        for number in range(60):
            pipe.assemble(f"Question {number}", **USER)
            pipe.add_messages(exchange(number), **USER)
            pipe.flush(PATIENCE_SECONDS)
        calls_in_the_turns = len(model.read)
        prompt_before = settled_prompt(pipe)

    model_after = Scripted()
    with pipeline(store, summary_model=model_after) as pipe:
        prompt_after = settled_prompt(pipe)
        pipe.add_messages(conversation(64)[120:], **USER)
        settled_prompt(pipe, "And more")
    return Restart(
        calls_in_the_turns=calls_in_the_turns,
        calls_before_the_restart=len(model.read),
        prompt_before=prompt_before,
        prompt_after=prompt_after,
        read_after=model_after.read,
    )


@pytest.mark.slow
def test_sixty_turns_are_summarised_in_few_calls(restart: Restart) -> None:
    assert 0 < restart.calls_before_the_restart <= 8


@pytest.mark.slow
def test_a_span_that_is_summarised_is_not_summarised_again(restart: Restart) -> None:
    assert restart.calls_before_the_restart == restart.calls_in_the_turns


def test_the_prompt_is_the_same_after_a_restart(restart: Restart) -> None:
    assert restart.prompt_after == restart.prompt_before


def test_after_a_restart_only_new_spans_are_summarised(restart: Restart) -> None:
    assert len(restart.read_after) <= 3
    assert [text for text in restart.read_after if "Sentinel0020" in text] == []


@dataclass(frozen=True)
class Turn:
    zone: list[Any]
    """The contents of all messages of the prompt but the question."""
    is_step: bool
    tokenizer_calls: int


@pytest.fixture(scope="module")
def eighty_turns() -> list[Turn]:
    turns = []
    with pipeline(settings={"max_context_tokens": 4_000, "emphasis": "cache"}) as pipe:
        for number in range(80):
            context = pipe.assemble(f"What of the {number}?", **USER)
            turn = Turn(
                zone=[message.content for message in context.messages[:-1]],
                is_step=context.report.stability.compaction_step,
                tokenizer_calls=context.report.tokenizer_calls,
            )
            turns.append(turn)
            pipe.add_messages(exchange(number), **USER)
    return turns


@pytest.mark.slow
def test_between_steps_the_prompt_only_grows(eighty_turns: list[Turn]) -> None:
    changed = [
        number
        for number, (before, turn) in enumerate(pairwise(eighty_turns), start=1)
        if not turn.is_step and turn.zone[: len(before.zone)] != before.zone
    ]
    assert changed == []


@pytest.mark.slow
def test_steps_are_few(eighty_turns: list[Turn]) -> None:
    steps = [turn for turn in eighty_turns if turn.is_step]
    assert 0 < len(steps) <= 16


@pytest.mark.slow
def test_a_turn_between_steps_tokenizes_little(eighty_turns: list[Turn]) -> None:
    calls = [turn.tokenizer_calls for turn in eighty_turns if not turn.is_step]
    late_calls = calls[40:]

    assert max(late_calls) <= 60
    assert sum(late_calls) / len(late_calls) <= 30


# -- what the application wants of a message


def agent_traffic() -> list[BaseMessage]:
    """Two calls at once; the application keeps the second one's result."""
    calls = [
        {"name": "look", "args": {}, "id": "c1", "type": "tool_call"},
        {"name": "look", "args": {}, "id": "c2", "type": "tool_call"},
    ]
    keep = {"ctxbudget": "keep"}
    return [
        AIMessage("", id="call", tool_calls=calls),
        ToolMessage("first", tool_call_id="c1", id="r1"),
        ToolMessage("second", tool_call_id="c2", id="r2", additional_kwargs=keep),
    ]


@dataclass(frozen=True)
class Pinned:
    """A result that is kept and a message, `q20`, that is pinned, then no longer."""

    verbatim: list[str]
    reasons: set[tuple[str, str]]
    sent_after_a_restart: list[str]
    sent_after_the_pin: list[str]


@pytest.fixture(scope="module")
def pinned() -> Pinned:
    store = InMemoryStore()
    with pipeline(store) as pipe:
        messages = [*conversation(10), *agent_traffic(), *conversation(150)[20:]]
        pipe.add_messages(messages, **USER)
        pipe.pin("q20", **USER)
        context = pipe.assemble("Hello", **USER)
        verbatim = pipe.coverage(**USER)["verbatim"]

    with pipeline(store) as pipe:
        restarted = pipe.assemble("Hello", **USER)
        pipe.pin(["q20"], preservation=None, **USER)
        unpinned = pipe.assemble("Hello", **USER)
    return Pinned(
        verbatim=list(verbatim),
        reasons=reasons(context.report),
        sent_after_a_restart=ids_of(restarted.messages),
        sent_after_the_pin=ids_of(unpinned.messages),
    )


@pytest.mark.slow
@pytest.mark.parametrize("key", ["r2", "q20"])
def test_a_kept_message_stays_verbatim(pinned: Pinned, key: str) -> None:
    assert key in pinned.verbatim


@pytest.mark.slow
def test_the_report_tells_that_a_message_is_pinned(pinned: Pinned) -> None:
    assert ("q20", "pinned") in pinned.reasons


def test_kept_messages_outlast_a_restart_with_their_calls(pinned: Pinned) -> None:
    kept = [key for key in pinned.sent_after_a_restart if key in {"call", "r1", "r2", "q20"}]
    assert kept == ["call", "r1", "r2", "q20"]


def test_a_message_that_is_no_longer_pinned_is_not_sent(pinned: Pinned) -> None:
    assert "q20" not in pinned.sent_after_the_pin


DECISION = "We decided to use Postgres 16 for the ledger of Mrs. Field."


def with_decision() -> list[BaseMessage]:
    return [
        *conversation(40),
        HumanMessage(DECISION, id="decision"),
        *conversation(200)[40:],
    ]


@dataclass(frozen=True)
class Importance:
    """A prompt that may fill a share of the budget with important messages."""

    share: float
    context: AssembledContext

    @property
    def kept_tokens(self) -> dict[str, int]:
        items = self.context.report.layer("L6").items
        return {item.id: item.tokens for item in items if item.reason == "important"}


@pytest.fixture(scope="module", params=[0.0, 0.1, 0.5, 1.0])
def importance(request: pytest.FixtureRequest) -> Importance:
    with pipeline(settings={"keep_important": request.param}) as pipe:
        pipe.add_messages(with_decision(), **USER)
        context = pipe.assemble("What was decided for the ledger?", **USER)
    return Importance(request.param, context)


@pytest.mark.slow
def test_important_messages_stay_within_their_share(importance: Importance) -> None:
    assert sum(importance.kept_tokens.values()) <= importance.share * 2_000


@pytest.mark.slow
def test_a_decision_is_important_where_there_is_a_share(importance: Importance) -> None:
    assert ("decision" in importance.kept_tokens) == (importance.share > 0)


def test_an_important_message_stands_in_the_prompt_once(importance: Importance) -> None:
    assert str(importance.context.messages[1:]).count(DECISION) == 1


@pytest.mark.slow
def test_a_share_for_one_call_counts_after_a_call_without_it() -> None:
    with pipeline() as pipe:
        pipe.add_messages(with_decision(), **USER)
        without = pipe.assemble("Hello", settings={"keep_important": 0}, **USER)
        with_share = pipe.assemble("Hello", settings={"keep_important": 0.1}, **USER)

    assert ("decision", "important") not in reasons(without.report)
    assert ("decision", "important") in reasons(with_share.report)


def deciding(_prompt: str) -> str:
    """A summary with a decision and an open question."""
    return summary(
        "They talked.",
        key_decisions=["The plover gets a nest of moss."],
        open_questions=["Who feeds the plover?"],
    )


def prompt_with_arc(last: str, summary_model: Scripted | None) -> str:
    """A prompt after many messages, the last of which is given."""
    with pipeline(settings={"max_context_tokens": 4_000}, summary_model=summary_model) as pipe:
        pipe.add_messages([*with_decision(), HumanMessage(last, id="last")], **USER)
        return settled_prompt(pipe)


@pytest.mark.slow
@pytest.mark.parametrize("heading", ["# Decisions", "# Open questions"])
@pytest.mark.parametrize("has_model", [False, True])
def test_only_a_model_tells_what_is_decided_and_open(heading: str, *, has_model: bool) -> None:
    model = Scripted(answer=deciding) if has_model else None

    assert (heading in prompt_with_arc("Hello.", model)) == has_model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last", "is_open"), [("Hello.", True), ("Bob feeds the plover at noon.", False)]
)
def test_a_models_question_is_open_until_it_is_answered(last: str, *, is_open: bool) -> None:
    prompt = prompt_with_arc(last, Scripted(answer=deciding))

    assert ("[OPEN] Who feeds the plover?" in prompt) == is_open


@dataclass(frozen=True)
class Dropped:
    """Two messages about a plover that are dropped: by a mark, and by a pin."""

    context: AssembledContext
    omitted: list[str]
    read: list[str]
    """What the summary model read."""


@pytest.fixture(scope="module")
def dropped() -> Dropped:
    messages = conversation(120)
    messages[40] = HumanMessage(
        "The plover is a secret.", id="marked", additional_kwargs={"ctxbudget": "drop"}
    )
    messages[-2] = HumanMessage("The plover is still a secret.", id="pinned")
    model = Scripted()
    with pipeline(summary_model=model) as pipe:
        pipe.add_messages(messages, **USER)
        pipe.pin("pinned", preservation="drop", **USER)
        context = pipe.assemble("What about the plover, the secret?", **USER)
        pipe.flush(PATIENCE_SECONDS)
        ledger = pipe.coverage(**USER)
    return Dropped(context, list(ledger["omitted"]), model.read)


@pytest.mark.parametrize("key", ["marked", "pinned"])
def test_a_dropped_message_is_omitted(dropped: Dropped, key: str) -> None:
    assert key in dropped.omitted


def test_a_dropped_message_is_in_no_prompt(dropped: Dropped) -> None:
    [*others, question] = dropped.context.messages

    assert [message.text for message in others if "plover" in message.text] == []
    assert question.text.count("plover") == 1


def test_a_dropped_message_is_in_no_summary(dropped: Dropped) -> None:
    assert [text for text in dropped.read if "plover" in text] == []


def test_the_report_tells_that_a_message_is_dropped(dropped: Dropped) -> None:
    assert ("pinned", "dropped") in reasons(dropped.context.report)


@pytest.fixture(scope="module")
def shortened() -> tuple[AssembledContext, list[str]]:
    """The prompt with a recent story that is only to be summarised, and what is summarised."""
    story = HumanMessage(
        "Long story. " * 50, id="story", additional_kwargs={"ctxbudget": "summarize"}
    )
    with pipeline() as pipe:
        pipe.add_messages([story, AIMessage("I see.", id="a")], **USER)
        context = pipe.assemble("Hello", **USER)
        return context, list(pipe.coverage(**USER)["summarized"])


def test_a_recent_message_may_be_only_summarised(
    shortened: tuple[AssembledContext, list[str]],
) -> None:
    _, summarized = shortened
    assert summarized == ["story"]


def test_a_recent_message_to_be_summarised_is_short(
    shortened: tuple[AssembledContext, list[str]],
) -> None:
    context, _ = shortened
    [text] = [message.text for message in context.messages if message.id == "story"]
    assert re.fullmatch(r"\[Earlier: Long story\..{60,90}…\]", text)


def test_the_report_tells_that_a_message_is_shortened(
    shortened: tuple[AssembledContext, list[str]],
) -> None:
    context, _ = shortened
    assert ("story", "shortened") in reasons(context.report)


def test_pins_without_room_are_in_the_report() -> None:
    pins = ids_of(conversation(30))
    with pipeline(settings={"max_context_tokens": 600}) as pipe:
        pipe.add_messages(conversation(80), **USER)
        pipe.pin(pins, **USER)
        report = pipe.assemble("Hello", **USER).report

    without_room = {key for key, reason in reasons(report) if reason == "no_room"}
    assert without_room & set(pins)


@pytest.mark.parametrize(
    ("message_ids", "preservation", "error"),
    [
        pytest.param(3, "keep", "message_ids", id="a number"),
        pytest.param([4], "keep", "message_ids", id="a list of numbers"),
        pytest.param(None, "keep", "message_ids", id="nothing"),
        pytest.param("nope", "keep", "no messages", id="no message of the conversation"),
        pytest.param("q1", "always", "preservation", id="no preservation"),
    ],
)
def test_a_wrong_pin_is_an_error(message_ids: Any, preservation: Any, error: str) -> None:
    with pipeline() as pipe:
        pipe.add_messages(conversation(2), **USER)
        with pytest.raises(InputError, match=error):
            pipe.pin(message_ids, preservation=preservation, **USER)


def test_a_wrong_mark_is_an_error() -> None:
    message = HumanMessage("x", additional_kwargs={"ctxbudget": "always"})
    with pipeline() as pipe, pytest.raises(InputError, match="ctxbudget"):
        pipe.add_messages([message], **USER)


# -- edits, removals, forks


@dataclass(frozen=True)
class Editing:
    """A conversation that is edited in its middle, then goes on in two branches."""

    read_for_the_edit: list[str]
    branches: list[list[str]]
    """The ids of the branches that were synchronised one after the other."""
    stored: list[list[str]]
    """The ids that were stored after each."""
    calls_in_the_branches: int
    calls_in_the_end: int
    """After a change to the branch that was left."""


@pytest.fixture(scope="module")
def editing() -> Editing:
    trunk = conversation(60)
    edited = [*trunk[:50], HumanMessage("Now about the plover.", id=trunk[50].id), *trunk[51:]]
    longer = [*edited, *conversation(120)[120:]]
    forked = [*edited, HumanMessage("Another way.", id="fork")]
    branches = [longer, forked, longer]
    stored = []
    model = Scripted()
    with pipeline(summary_model=model) as pipe:
        pipe.sync(trunk, **USER)
        settled_prompt(pipe)
        calls_before = len(model.read)
        pipe.sync(edited, **USER)
        settled_prompt(pipe)
        read_for_the_edit = model.read[calls_before:]
        for branch in branches:
            pipe.sync(branch, **USER)
            settled_prompt(pipe)
            stored.append(ids_of(pipe.get_messages(**USER)))
        calls_in_the_branches = len(model.read)
        pipe.sync(forked, **USER)
        settled_prompt(pipe)
    return Editing(
        read_for_the_edit=read_for_the_edit,
        branches=[ids_of(branch) for branch in branches],
        stored=stored,
        calls_in_the_branches=calls_in_the_branches,
        calls_in_the_end=len(model.read),
    )


@pytest.mark.slow
def test_an_edit_has_only_its_own_span_summarised_again(editing: Editing) -> None:
    # Its span, what the span is part of, and what the step leaves behind.
    assert 1 <= len(editing.read_for_the_edit) <= 5
    assert "plover" in editing.read_for_the_edit[0]


@pytest.mark.slow
def test_a_branch_is_stored_as_it_is_given(editing: Editing) -> None:
    assert editing.stored == editing.branches


def test_a_branch_that_was_left_is_not_summarised_again(editing: Editing) -> None:
    assert editing.calls_in_the_end == editing.calls_in_the_branches


def parrot(prompt: str) -> str:
    """A summary that repeats what the prompt says about the plover."""
    question = "What next?"
    text = "They talked."
    if "plover" in prompt:
        question = "The plover sings. What next?"
        if "at noon" in prompt:
            text = "The plover sings. They talked."
    return summary(text, open_questions=[question])


def with_secret() -> list[BaseMessage]:
    messages = conversation(120)
    messages[4] = HumanMessage("The plover sings at noon.", id="secret")
    return messages


def summaries(pipe: ContextPipeline) -> str:
    return "\n".join(part.summary for part in pipe.get_compactions(**USER))


@dataclass(frozen=True)
class Forgetting:
    """What two pipelines of one conversation show before and after one of them forgets."""

    prompts_before: dict[str, str]
    summaries_before: str
    summaries_after: str
    prompts_after: list[str]
    """Of the other pipeline, of the one that has forgotten, and of the other again."""
    stored: str


@pytest.fixture(scope="module")
def forgetting() -> Forgetting:
    store = InMemoryStore()
    messages = with_secret()
    prompts_after = []
    with (
        pipeline(store, summary_model=Scripted(answer=parrot)) as pipe,
        pipeline(store, model="gpt-4o") as twin,
    ):
        pipe.sync(messages, **USER)
        prompts_before = {
            "pipe": settled_prompt(pipe, "What sings at noon?"),
            "twin": settled_prompt(twin, "What sings at noon?"),
        }
        summaries_before = summaries(pipe)
        without_secret = [message for message in messages if message.id != "secret"]
        pipe.sync(without_secret, on_removal="forget", **USER)
        summaries_after = summaries(pipe)
        for either in (twin, pipe, twin):
            prompts_after.append(str(either.assemble("Hello", **USER).messages))
            either.add_messages(exchange(500), **USER)
            either.flush(PATIENCE_SECONDS)
        return Forgetting(
            prompts_before=prompts_before,
            summaries_before=summaries_before,
            summaries_after=summaries_after,
            prompts_after=prompts_after,
            stored=everything(store),
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pipe", "twin"])
def test_before_it_is_forgotten_both_pipelines_know_a_message(
    forgetting: Forgetting, name: str
) -> None:
    assert "plover" in forgetting.prompts_before[name]


@pytest.mark.slow
def test_what_a_pipeline_forgets_leaves_its_summaries(forgetting: Forgetting) -> None:
    assert "plover" in forgetting.summaries_before
    assert "plover" not in forgetting.summaries_after


@pytest.mark.parametrize("place", [0, 1, 2], ids=["the other", "its own", "the other again"])
def test_what_a_pipeline_forgets_is_in_no_prompt(forgetting: Forgetting, place: int) -> None:
    assert "plover" not in forgetting.prompts_after[place]


def test_what_a_pipeline_forgets_is_not_in_the_store(forgetting: Forgetting) -> None:
    assert "plover" not in forgetting.stored


# -- the model in the background


@dataclass(frozen=True)
class Background:
    """Prompts before the model has written, at the next step, and after it."""

    early: AssembledContext
    late: AssembledContext
    later: AssembledContext


@pytest.fixture(scope="module")
def background() -> Background:
    model = Scripted(answer=lambda _: summary("A talk about gardens."))
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with pipeline(
        settings={"max_context_tokens": 3_000}, summary_model=model, clock=lambda: now[0]
    ) as pipe:
        pipe.add_messages(conversation(120), **USER)
        early = pipe.assemble("Hello", **USER)
        assert pipe.flush(PATIENCE_SECONDS)
        now[0] += timedelta(seconds=301)  # the next step
        late = pipe.assemble("Hello", **USER)
        later = pipe.assemble("Hello", **USER)
    return Background(early, late, later)


@pytest.mark.slow
def test_an_early_prompt_does_not_wait_for_the_models_words(background: Background) -> None:
    assert "A talk about gardens." not in str(background.early.messages)
    assert background.early.report.summaries_waiting > 0


def test_the_models_words_replace_the_extraction_at_a_step(background: Background) -> None:
    assert "A talk about gardens." in str(background.late.messages)
    assert background.late.report.summaries_waiting == 0
    assert background.late.report.stability.compaction_step


def test_the_models_words_cost_one_step(background: Background) -> None:
    assert not background.later.report.stability.compaction_step


def test_the_report_counts_the_lines_of_the_model(background: Background) -> None:
    assert background.late.report.summary_lines["Scripted"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("call", [0, 2], ids=["the first call", "the third call"])
def test_a_summary_of_messages_that_have_changed_is_not_applied(call: int) -> None:
    store = InMemoryStore()
    messages = with_secret()
    may_answer = threading.Event()
    has_begun = threading.Event()
    calls = iter(range(1_000))

    def answer(prompt: str) -> str:
        if next(calls) == call:
            has_begun.set()
            may_answer.wait(30)
        return parrot(prompt)

    with pipeline(store, summary_model=Scripted(answer=answer)) as pipe:
        pipe.sync(messages, **USER)
        pipe.assemble("Hello", **USER)
        assert has_begun.wait(30)
        messages[4] = HumanMessage("Nothing sings.", id="other")
        pipe.sync(messages, on_removal="forget", **USER)
        may_answer.set()
        assert pipe.flush(PATIENCE_SECONDS)

        assert "plover" not in settled_prompt(pipe)
        assert "plover" not in everything(store)
