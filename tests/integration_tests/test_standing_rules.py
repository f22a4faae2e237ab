"""P11: what the user has laid down stands in every prompt until the user takes it back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedChatMessageHistory,
    ContextPipeline,
    build_context_graph,
)
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.memory import BudgetedMemory
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.pipeline.chat import Chat
from langchain_ctxbudget.sentences import said
from tests import earlier_stores
from tests.integration_tests.agents import CONFIG, Scripted
from tests.integration_tests.learning_models import Reader
from tests.readers import (
    BULLETS,
    EMOJIS_AGAIN,
    NO_EMOJIS,
    NO_PUSH,
    PUSH_AGAIN,
    plain_probabilities,
)

BUDGET = 1_500
TURNS = 8
"""Turns that together take more than a budget."""
ANSWER = "The train to Berlin leaves at nine and the garden needs water before the rain comes. "
DAY = "2026-01-01"


@pytest.fixture(autouse=True, scope="module")
def _plain_reader() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(said, "probabilities", plain_probabilities)
        yield


NO_LONGER_HOLDS = "No longer holds, as the user has taken it back: "
NO_LONGER = f'{NO_LONGER_HOLDS}"{NO_PUSH}"'


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


Way = Callable[[ContextPipeline, list[BaseMessage]], list[BaseMessage]]
"""Makes the prompt for the last of some messages."""


@dataclass
class Talk:
    """A conversation turn by turn, and its prompts."""

    chat: Chat
    clock: Clock
    budget: int = BUDGET
    prompts: list[AssembledContext] = field(default_factory=list)

    def say(self, text: str, **more: Any) -> AssembledContext:
        """Says something, and has it answered."""
        self.clock.now += timedelta(seconds=20)
        at = {"created_at": self.clock.now.isoformat()}
        message = HumanMessage(text, additional_kwargs=at, **more)
        prompt = self.chat.assemble(message)
        self.chat.add(prompt.turn, AIMessage(ANSWER * (self.budget // 100)))
        self.prompts.append(prompt)
        return prompt

    def go_on(self, turns: int) -> None:
        """Talks about something else, with a prompt for each turn."""
        for number in range(turns):
            self.say(f"And what about train number {number}?")

    def much_later(self) -> AssembledContext:
        """Asks something when what was said before has gone from the prompt."""
        for number in range(TURNS):
            question = HumanMessage(f"And what about train number {number}?")
            self.chat.add(question, AIMessage(ANSWER * (self.budget // 100)))
        self.clock.now += timedelta(minutes=10)
        return self.say("Hello again.")


def pipeline_over(clock: Clock, store: BaseStore | None = None, **changes: Any) -> ContextPipeline:
    chosen = {"max_context_tokens": BUDGET, "learn": False, **changes}
    return ContextPipeline(chosen, system_prompt="You are helpful.", store=store, clock=clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def pipeline(clock: Clock, store: InMemoryStore) -> Iterator[ContextPipeline]:
    with pipeline_over(clock, store) as opened:
        yield opened


@pytest.fixture
def talk(pipeline: ContextPipeline, clock: Clock) -> Talk:
    return Talk(pipeline.conversation("c1", user_id="ada"), clock)


@pytest.fixture
def learning(clock: Clock, store: InMemoryStore) -> Iterator[ContextPipeline]:
    """A pipeline that learns, so that rules hold in other conversations."""
    with pipeline_over(clock, store, learn="rules") as opened:
        yield opened


def texts_of(chat: Chat) -> list[str]:
    return [rule.text for rule in chat.rules()]


def zone_of(prompt: AssembledContext) -> str:
    """Returns the stable zone."""
    return str(prompt.messages[0].text)


def line_of(text: str, day: str = DAY) -> str:
    return f'- "{text}" ({day})\n'


def says(prompt: AssembledContext, text: str) -> bool:
    """Tells whether a message behind the stable zone says a text; a summary is none."""
    own = [one for one in prompt.messages[1:] if "<conversation_summary>" not in one.text]
    return any(text in message.text for message in own)


def sent(prompt: AssembledContext) -> str:
    return "\x00".join(f"{message.type}\x01{message.text}" for message in prompt.messages)


def learn(chat: Chat) -> None:
    chat.end_session()
    assert chat.pipeline.flush(30)


# From its message to the stable zone


@pytest.fixture
def stated(talk: Talk) -> Talk:
    """A conversation in which a rule stands in the stable zone, as its message has gone."""
    talk.say(NO_PUSH)
    talk.much_later()
    return talk


@pytest.fixture(scope="module")
def turn_by_turn() -> Iterator[Talk]:
    """A long conversation that begins with a rule, and takes it back at last."""
    clock = Clock()
    with pipeline_over(clock) as pipeline:
        talk = Talk(pipeline.conversation("c1", user_id="ada"), clock)
        talk.say(NO_PUSH)
        talk.go_on(3 * TURNS)
        talk.say(PUSH_AGAIN)
        talk.go_on(3 * TURNS)
        yield talk


@pytest.fixture
def before_lifting(turn_by_turn: Talk) -> list[AssembledContext]:
    return turn_by_turn.prompts[: 3 * TURNS + 1]


@pytest.fixture
def after_lifting(turn_by_turn: Talk) -> list[AssembledContext]:
    """The prompts from the one for the lifting on."""
    return turn_by_turn.prompts[3 * TURNS + 1 :]


def test_a_rule_stands_in_every_prompt_at_one_place(before_lifting: list[AssembledContext]) -> None:
    in_zone = [line_of(NO_PUSH) in zone_of(prompt) for prompt in before_lifting]
    in_message = [says(prompt, NO_PUSH) for prompt in before_lifting]

    assert in_zone == [not is_said for is_said in in_message]
    assert in_zone[0] is False
    assert in_zone[-1] is True


def test_a_rule_moves_once_and_at_a_rebuild(before_lifting: list[AssembledContext]) -> None:
    in_zone = [line_of(NO_PUSH) in zone_of(prompt) for prompt in before_lifting]
    moved = in_zone.index(True)

    assert all(in_zone[moved:])
    assert before_lifting[moved].report.stability.mode == "rebuilt"


def test_an_extended_prompt_is_the_last_one_and_more(turn_by_turn: Talk) -> None:
    extended = [
        (before, after)
        for before, after in pairwise(turn_by_turn.prompts)
        if after.report.stability.mode == "extended"
    ]

    assert len(extended) > TURNS
    assert all(sent(after).startswith(sent(before)) for before, after in extended)


@pytest.fixture(scope="module")
def after_turns() -> Iterator[Talk]:
    """A conversation in which a rule is stated after some turns, and its middle is left out."""
    clock = Clock()
    with pipeline_over(clock) as pipeline:
        talk = Talk(pipeline.conversation("c1", user_id="ada"), clock)
        talk.go_on(TURNS // 2)
        talk.say(NO_PUSH)
        talk.go_on(TURNS)
        yield talk


def test_a_rule_of_the_left_out_middle_stands_where_it_was(after_turns: Talk) -> None:
    shortened = [one for one in after_turns.prompts if one.report.stability.mode == "shortened"]
    note = "are left out here, with these rules of the user:]\n"

    assert f"{note}{line_of(NO_PUSH)}" in sent(shortened[-1])
    assert line_of(NO_PUSH) not in zone_of(shortened[-1])


@pytest.fixture(scope="module")
def after_a_pause() -> Iterator[Talk]:
    """A conversation that pauses after a rule, before its prompts are full, and then goes on."""
    clock = Clock()
    with pipeline_over(clock) as pipeline:
        talk = Talk(pipeline.conversation("c1", user_id="ada"), clock)
        talk.go_on(3)
        talk.say(NO_PUSH)
        clock.now += timedelta(minutes=10)
        talk.go_on(TURNS // 2)
        yield talk


def test_after_a_pause_a_left_out_rule_stands_where_it_was(after_a_pause: Talk) -> None:
    modes = [prompt.report.stability.mode for prompt in after_a_pause.prompts]
    shortened = after_a_pause.prompts[modes.index("shortened")]

    assert sent(shortened).count(line_of(NO_PUSH)) == 1
    assert line_of(NO_PUSH) not in zone_of(shortened)


def test_a_left_out_rule_does_not_cause_a_rebuild(after_a_pause: Talk) -> None:
    causes = [prompt.report.stability.cause for prompt in after_a_pause.prompts]

    assert "full" in causes
    assert "about_user" not in causes


@pytest.fixture(scope="module")
def replaced_behind_the_middle() -> Iterator[Talk]:
    """A conversation whose left-out middle has a rule that is taken back behind it."""
    clock = Clock()
    with pipeline_over(clock) as pipeline:
        talk = Talk(pipeline.conversation("c1", user_id="ada"), clock)
        talk.go_on(3)
        talk.say(NO_PUSH)
        clock.now += timedelta(minutes=10)
        while talk.prompts[-1].report.total_tokens < BUDGET * 0.8:
            talk.go_on(1)
        talk.say(PUSH_AGAIN)
        talk.go_on(3)
        yield talk


def test_a_rule_that_was_taken_back_behind_the_middle_is_not_said(
    replaced_behind_the_middle: Talk,
) -> None:
    prompts = replaced_behind_the_middle.prompts
    shortened = [one for one in prompts if one.report.stability.mode == "shortened"]

    assert line_of(NO_PUSH) not in sent(shortened[-1])


@pytest.fixture(scope="module")
def lifted_in_the_middle() -> Iterator[Talk]:
    """A conversation that begins with a rule; the middle, which takes it back, is left out."""
    clock = Clock()
    with pipeline_over(clock) as pipeline:
        talk = Talk(pipeline.conversation("c1", user_id="ada"), clock)
        talk.say(NO_PUSH)
        talk.go_on(TURNS // 2)
        talk.say(PUSH_AGAIN)
        talk.go_on(2 * TURNS)
        yield talk


@pytest.mark.slow
def test_a_lifting_of_the_left_out_middle_stands_where_it_was(lifted_in_the_middle: Talk) -> None:
    prompts = lifted_in_the_middle.prompts
    shortened = [one for one in prompts if one.report.stability.mode == "shortened"]
    note = "are left out here, with these rules of the user:]\n"

    assert f"{note}{line_of(PUSH_AGAIN)}" in sent(shortened[1])


def test_a_rule_of_the_stable_zone_does_not_stand_without_its_lifting(
    lifted_in_the_middle: Talk,
) -> None:
    since = lifted_in_the_middle.prompts[TURNS // 2 + 1 :]
    states_rule = [prompt for prompt in since if line_of(NO_PUSH) in zone_of(prompt)]

    assert [prompt for prompt in states_rule if PUSH_AGAIN not in sent(prompt)] == []


def test_a_rule_said_later_stands_in_every_prompt(after_turns: Talk) -> None:
    since = after_turns.prompts[TURNS // 2 :]

    assert [prompt for prompt in since if NO_PUSH not in sent(prompt)] == []


def test_a_rule_is_in_the_report_as_one(stated: Talk) -> None:
    items = [
        item
        for layer in stated.prompts[-1].report.layers
        for item in layer.items
        if item.reason == "standing_rule"
    ]

    assert [item.status for item in items] == ["included"]
    assert [item.id for item in items] == [rule.id for rule in stated.chat.rules()]


def test_a_rule_stands_at_the_head_of_the_stable_zone(clock: Clock) -> None:
    with pipeline_over(clock, preferences=["Prices in euros."]) as pipeline:
        talk = Talk(pipeline.conversation("c1", user_id="ada"), clock)
        talk.say(NO_PUSH)
        zone = zone_of(talk.much_later())

    assert zone.index(NO_PUSH) < zone.index("Prices in euros.")


def test_a_rule_of_a_pinned_message_is_said_by_it(talk: Talk) -> None:
    talk.say(NO_PUSH, id="rule")
    talk.chat.pin("rule")
    prompt = talk.much_later()

    assert says(prompt, NO_PUSH)
    assert NO_PUSH not in zone_of(prompt)


def test_a_message_that_is_dropped_states_no_rule(talk: Talk) -> None:
    talk.say(NO_PUSH, id="rule")
    talk.chat.pin("rule", preservation="drop")

    assert talk.chat.rules() == []
    assert NO_PUSH not in zone_of(talk.much_later())


@pytest.mark.parametrize("budget", [1_000, 4_000, pytest.param(32_000, marks=pytest.mark.slow)])
def test_a_rule_stands_at_every_budget(clock: Clock, budget: int) -> None:
    with pipeline_over(clock, max_context_tokens=budget) as pipeline:
        talk = Talk(pipeline.conversation("c1", user_id="ada"), clock, budget)
        talk.say(NO_PUSH)
        prompt = talk.much_later()

    assert line_of(NO_PUSH) in zone_of(prompt)
    assert prompt.report.total_tokens <= budget


# What takes a rule back


def test_a_lifting_takes_a_rule_back(talk: Talk) -> None:
    talk.say(NO_PUSH)
    talk.say(BULLETS)
    talk.say(PUSH_AGAIN)

    assert texts_of(talk.chat) == [BULLETS]
    assert NO_PUSH not in zone_of(talk.much_later())


def test_a_lifting_leaves_the_stable_zone_until_the_next_rebuild(
    after_lifting: list[AssembledContext],
) -> None:
    in_zone = [NO_PUSH in zone_of(prompt) for prompt in after_lifting]
    modes = [prompt.report.stability.mode for prompt in after_lifting]
    changed = in_zone.index(False)

    assert changed > 0
    assert "rebuilt" not in modes[1:changed], "the first one is for the lifting itself"
    assert modes[changed] == "rebuilt"
    assert not any(in_zone[changed:])


def test_the_next_prompt_says_that_a_rule_of_its_zone_no_longer_holds(
    after_lifting: list[AssembledContext],
) -> None:
    prompt = after_lifting[1]

    assert NO_PUSH in zone_of(prompt)
    assert NO_LONGER in prompt.messages[-1].text


def test_a_rule_of_the_zone_is_taken_back_once(after_lifting: list[AssembledContext]) -> None:
    with_rule = [prompt for prompt in after_lifting[1:] if NO_PUSH in zone_of(prompt)]

    assert len(with_rule) > 1
    assert {sent(prompt).count(NO_LONGER) for prompt in with_rule} == {1}


def test_a_rule_that_is_lifted_by_hand_goes_at_once(stated: Talk) -> None:
    [rule] = stated.chat.rules()
    stated.chat.lift_rule(rule.id)

    assert NO_PUSH not in zone_of(stated.say("Hello."))


@pytest.fixture
def lifted_by_hand(talk: Talk) -> Talk:
    """A conversation in which a rule is lifted by hand while its message stands in the prompt."""
    talk.say(NO_PUSH)
    talk.say("Hello.")
    [rule] = talk.chat.rules()
    talk.chat.lift_rule(rule.id)
    return talk


def test_a_prompt_says_that_a_rule_in_it_no_longer_holds(lifted_by_hand: Talk) -> None:
    prompt = lifted_by_hand.say("Hello again.")

    assert says(prompt, NO_PUSH)
    assert NO_LONGER in prompt.messages[-1].text


def test_what_no_longer_holds_is_told_once(lifted_by_hand: Talk) -> None:
    lifted_by_hand.say("Hello again.")
    lifted_by_hand.say("And what about trains?")

    assert sent(lifted_by_hand.prompts[-1]).count(NO_LONGER) == 1


def test_a_prompt_with_a_lifted_rule_only_grows(lifted_by_hand: Talk) -> None:
    lifted_by_hand.say("Hello again.")
    lifted_by_hand.say("And what about trains?")
    prompts = lifted_by_hand.prompts

    assert [prompt.report.stability.mode for prompt in prompts[1:]] == ["extended"] * 3
    assert all(sent(after).startswith(sent(before)) for before, after in pairwise(prompts))


def test_what_no_longer_holds_is_in_the_report(lifted_by_hand: Talk) -> None:
    report = lifted_by_hand.say("Hello again.").report
    [item] = [
        item for layer in report.layers for item in layer.items if item.reason == "standing_rule"
    ]

    assert item.status == "included"
    assert 0 < item.tokens <= 40


def test_what_no_longer_holds_goes_with_the_message_of_the_rule(lifted_by_hand: Talk) -> None:
    prompt = lifted_by_hand.much_later()

    assert not says(prompt, NO_PUSH)
    assert NO_LONGER not in sent(prompt)


def test_a_rule_of_the_left_out_middle_no_longer_holds(talk: Talk) -> None:
    talk.go_on(TURNS // 2)
    talk.say(NO_PUSH)
    talk.go_on(TURNS // 2)
    [rule] = talk.chat.rules()
    talk.chat.lift_rule(rule.id)
    prompt = talk.say("Hello again.")

    assert f"with these rules of the user:]\n{line_of(NO_PUSH)}" in sent(prompt)
    assert NO_LONGER in prompt.messages[-1].text


def test_a_rule_that_is_said_once_more_holds(lifted_by_hand: Talk) -> None:
    assert NO_LONGER not in sent(lifted_by_hand.say(NO_PUSH))
    assert NO_LONGER not in sent(lifted_by_hand.say("Hello again."))


def test_a_window_says_that_a_rule_in_it_no_longer_holds(lifted_by_hand: Talk) -> None:
    history = BudgetedChatMessageHistory(
        "c1", user_id="ada", pipeline=lifted_by_hand.chat.pipeline, max_tokens=BUDGET
    )

    assert NO_LONGER in history.messages[0].text


def test_a_rule_that_is_lifted_elsewhere_no_longer_holds(everywhere: Talk) -> None:
    elsewhere = other(everywhere)
    elsewhere.say(EMOJIS_AGAIN)
    learn(elsewhere.chat)
    prompt = everywhere.say("Hello.")

    assert says(prompt, NO_EMOJIS)
    assert f'{NO_LONGER_HOLDS}"{NO_EMOJIS}"' in prompt.messages[-1].text


def test_a_rule_that_is_added_by_hand_comes_at_once(talk: Talk) -> None:
    talk.go_on(3)
    talk.chat.add_rule(NO_PUSH)

    assert line_of(NO_PUSH) in zone_of(talk.say("Hello."))


def test_a_rule_by_hand_is_not_lifted_by_what_was_said_before(talk: Talk) -> None:
    talk.say(PUSH_AGAIN)
    talk.chat.add_rule(NO_PUSH)

    assert texts_of(talk.chat) == [NO_PUSH]


def test_a_rule_by_hand_is_lifted_by_what_is_said_later(talk: Talk) -> None:
    talk.say("Hello.")
    talk.chat.add_rule(NO_PUSH)
    talk.say(PUSH_AGAIN)

    assert talk.chat.rules() == []


def test_a_rule_that_was_said_is_not_added_once_more(talk: Talk) -> None:
    talk.say(NO_PUSH)
    added = talk.chat.add_rule(NO_PUSH)

    assert talk.chat.rules() == [added]
    assert added.made_by == "rules"


def test_a_rule_goes_with_its_message(talk: Talk) -> None:
    talk.say(NO_PUSH, id="rule")
    talk.much_later()
    talk.chat.remove("rule")

    assert talk.chat.rules() == []
    assert NO_PUSH not in zone_of(talk.say("Hello."))


def test_a_rule_goes_with_the_words_of_its_message(talk: Talk) -> None:
    talk.say(NO_PUSH, id="rule")
    talk.much_later()
    talk.chat.edit("rule", HumanMessage(BULLETS, id="rule"))

    assert texts_of(talk.chat) == [BULLETS]
    assert NO_PUSH not in zone_of(talk.say("Hello."))


# Who says it


@pytest.mark.parametrize(
    "message",
    [
        AIMessage(NO_PUSH),
        HumanMessage(NO_PUSH, name="Bob"),
        HumanMessage(f"```\n{NO_PUSH}\n```"),
        HumanMessage(f"> {NO_PUSH}"),
        HumanMessage(NO_PUSH, example=True),
        HumanMessage(f"Please proofread this:\n\n{NO_PUSH}"),
        HumanMessage(f"<document>\n{NO_PUSH}\n</document>"),
        HumanMessage('{"rule": "' + NO_PUSH + '"}'),
    ],
    ids=[
        "assistant",
        "other speaker",
        "code",
        "quotation",
        "example",
        "to be proofread",
        "document",
        "JSON",
    ],
)
def test_others_state_no_rule(talk: Talk, message: BaseMessage) -> None:
    talk.say("Hello.")
    talk.chat.add(message)

    assert talk.chat.rules() == []


OTHERS_LIFT: dict[str, list[BaseMessage]] = {
    "assistant": [AIMessage(PUSH_AGAIN)],
    "other speaker": [HumanMessage(PUSH_AGAIN, name="Bob")],
    "quotation": [HumanMessage(f"> {PUSH_AGAIN}")],
    "mail": [HumanMessage(f"From: Bob <bob@example.org>\nSubject: main\n\n{PUSH_AGAIN}")],
    "example": [HumanMessage(PUSH_AGAIN, example=True)],
    "document": [HumanMessage(f"<document>\n{PUSH_AGAIN}\n</document>")],
    "tool": [
        AIMessage("", tool_calls=[{"name": "read", "args": {}, "id": "1"}]),
        ToolMessage(PUSH_AGAIN, tool_call_id="1"),
    ],
}


@pytest.mark.parametrize("messages", OTHERS_LIFT.values(), ids=list(OTHERS_LIFT))
def test_others_lift_no_rule(talk: Talk, messages: list[BaseMessage]) -> None:
    talk.say(NO_PUSH)
    talk.chat.add(*messages)

    assert texts_of(talk.chat) == [NO_PUSH]


def test_the_result_of_a_tool_states_no_rule(talk: Talk) -> None:
    talk.say("Hello.")
    call = AIMessage("", tool_calls=[{"name": "read", "args": {}, "id": "1"}])
    talk.chat.add(call, ToolMessage(NO_PUSH, tool_call_id="1"))

    assert talk.chat.rules() == []


def test_the_only_name_is_the_users(talk: Talk) -> None:
    talk.chat.add(HumanMessage(NO_PUSH, name="Ada Lovelace"))

    assert texts_of(talk.chat) == [NO_PUSH]


def test_a_name_beside_the_nameless_user_is_somebody_else(talk: Talk) -> None:
    talk.chat.add(HumanMessage(NO_PUSH, name="Bob"), HumanMessage("Hello."))

    assert talk.chat.rules() == []


# Other conversations, processes, forks and owners


@pytest.fixture
def everywhere(learning: ContextPipeline, clock: Clock) -> Talk:
    """A conversation that states a rule which holds everywhere."""
    talk = Talk(learning.conversation("c1", user_id="ada"), clock)
    talk.say(NO_EMOJIS)
    learn(talk.chat)
    return talk


def other(talk: Talk, name: str = "c2") -> Talk:
    return Talk(talk.chat.pipeline.conversation(name, user_id="ada"), talk.clock)


def test_a_rule_that_says_so_holds_in_other_conversations(everywhere: Talk) -> None:
    assert line_of(NO_EMOJIS) in zone_of(other(everywhere).say("Hello."))


def test_any_other_rule_holds_in_its_conversation(learning: ContextPipeline, clock: Clock) -> None:
    talk = Talk(learning.conversation("c1", user_id="ada"), clock)
    talk.say(NO_PUSH)
    learn(talk.chat)

    assert other(talk).chat.rules() == []


def test_a_rule_is_not_another_users(everywhere: Talk) -> None:
    assert everywhere.chat.pipeline.conversation("c2", user_id="bo").rules() == []


def test_a_rule_that_holds_everywhere_is_listed(everywhere: Talk) -> None:
    [rule] = everywhere.chat.pipeline.knowledge.list_rules(user_id="ada")

    assert rule.text == NO_EMOJIS
    assert rule.day == DAY
    assert rule.conversation_id == "c1"


@pytest.fixture
def opened(learning: ContextPipeline, clock: Clock) -> tuple[Talk, Talk]:
    """Two open conversations; in the first one a rule that holds everywhere was just stated."""
    first = Talk(learning.conversation("c1", user_id="ada"), clock)
    second = other(first)
    second.go_on(2)
    first.say(NO_EMOJIS)
    return first, second


def test_a_rule_reaches_an_open_conversation_at_its_next_turn(opened: tuple[Talk, Talk]) -> None:
    _, second = opened

    assert NO_EMOJIS in second.say("Hello.").messages[-1].text


def test_a_rule_from_elsewhere_is_no_mere_background(opened: tuple[Talk, Talk]) -> None:
    _, second = opened
    lines = second.say("Hello.").messages[-1].text.splitlines()
    [number] = [number for number, line in enumerate(lines) if NO_EMOJIS in line]

    assert lines[number - 1] == "## Standing rules of the user, to be followed"


def test_a_prompt_with_a_rule_from_elsewhere_only_grows(opened: tuple[Talk, Talk]) -> None:
    _, second = opened
    second.go_on(2)

    assert [prompt.report.stability.mode for prompt in second.prompts[1:]] == ["extended"] * 3
    assert sent(second.prompts[-1]).count(NO_EMOJIS) == 1


def test_a_rule_from_elsewhere_stands_in_the_zone_from_the_next_rebuild(
    opened: tuple[Talk, Talk],
) -> None:
    _, second = opened
    second.go_on(1)
    prompt = second.much_later()

    assert line_of(NO_EMOJIS) in zone_of(prompt)
    assert sent(prompt).count(NO_EMOJIS) == 1


def test_a_rule_reaches_an_open_conversation_where_a_model_learns(
    clock: Clock, store: InMemoryStore
) -> None:
    settings = {"max_context_tokens": BUDGET}
    with ContextPipeline(settings, store=store, clock=clock, summary_model=Reader()) as pipeline:
        second = Talk(pipeline.conversation("c2", user_id="ada"), clock)
        second.go_on(1)
        other(second, "c1").say(NO_EMOJIS)

        assert NO_EMOJIS in second.say("Hello.").messages[-1].text


def test_a_rule_is_listed_in_every_conversation_at_once(opened: tuple[Talk, Talk]) -> None:
    first, second = opened

    assert texts_of(second.chat) == [NO_EMOJIS]
    assert texts_of(other(first, "c3").chat) == [NO_EMOJIS]


def test_a_rule_that_is_taken_back_is_lifted_everywhere_at_once(opened: tuple[Talk, Talk]) -> None:
    first, second = opened
    first.say(EMOJIS_AGAIN)

    assert [one.chat.rules() for one in (first, second, other(first, "c3"))] == [[], [], []]


def test_a_prompt_says_that_a_rule_from_elsewhere_no_longer_holds(
    opened: tuple[Talk, Talk],
) -> None:
    first, second = opened
    second.say("Hello.")
    first.say(EMOJIS_AGAIN)
    prompt = second.say("Hello again.")

    assert NO_EMOJIS in second.prompts[-2].messages[-1].text
    assert f'{NO_LONGER_HOLDS}"{NO_EMOJIS}"' in prompt.messages[-1].text


def test_a_rule_that_was_taken_back_stays_so_in_another_process(
    opened: tuple[Talk, Talk], clock: Clock, store: InMemoryStore
) -> None:
    first, _ = opened
    first.say(EMOJIS_AGAIN)
    first.chat.pipeline.close()
    with pipeline_over(clock, store, learn="rules") as later:
        chats = [later.conversation(name, user_id="ada") for name in ("c1", "c2", "c3")]

        assert [chat.rules() for chat in chats] == [[], [], []]


def test_a_rule_laid_down_again_elsewhere_holds_everywhere(opened: tuple[Talk, Talk]) -> None:
    first, second = opened
    first.say(EMOJIS_AGAIN)
    second.say(NO_EMOJIS)

    assert [texts_of(one.chat) for one in (first, second)] == [[NO_EMOJIS], [NO_EMOJIS]]


def test_a_rule_is_lifted_from_another_conversation(everywhere: Talk) -> None:
    elsewhere = other(everywhere)
    elsewhere.say(EMOJIS_AGAIN)
    learn(elsewhere.chat)

    assert everywhere.chat.rules() == []
    assert other(everywhere, "c3").chat.rules() == []


def test_a_lifting_that_is_removed_lifts_no_more(everywhere: Talk) -> None:
    elsewhere = other(everywhere)
    elsewhere.say(EMOJIS_AGAIN, id="lifting")
    elsewhere.say("Hello.")
    learn(elsewhere.chat)
    elsewhere.chat.remove("lifting")
    learn(elsewhere.chat)

    assert texts_of(everywhere.chat) == [NO_EMOJIS]


def test_lifting_a_rule_from_elsewhere_waits_for_the_next_rebuild(everywhere: Talk) -> None:
    elsewhere = other(everywhere)
    elsewhere.say("Hello.")
    elsewhere.say(EMOJIS_AGAIN)
    learn(elsewhere.chat)
    prompt = elsewhere.say("Hello again.")

    assert prompt.report.stability.mode == "extended"
    assert sent(prompt).startswith(sent(elsewhere.prompts[-2]))
    assert NO_EMOJIS not in zone_of(elsewhere.much_later())


def test_a_rule_said_once_more_elsewhere_is_not_lifted(everywhere: Talk) -> None:
    elsewhere = other(everywhere)
    elsewhere.say(NO_EMOJIS)
    learn(elsewhere.chat)

    assert texts_of(everywhere.chat) == [NO_EMOJIS]
    assert texts_of(elsewhere.chat) == [NO_EMOJIS]
    assert texts_of(other(everywhere, "c3").chat) == [NO_EMOJIS]


def test_a_rule_that_is_lifted_by_hand_is_not_learned_again(everywhere: Talk) -> None:
    [rule] = other(everywhere).chat.rules()
    other(everywhere).chat.lift_rule(rule.id)
    everywhere.go_on(2)
    learn(everywhere.chat)

    assert everywhere.chat.rules() == []
    assert other(everywhere).chat.rules() == []


def test_deleting_a_rule_lifts_it(everywhere: Talk) -> None:
    knowledge = everywhere.chat.pipeline.knowledge
    [rule] = knowledge.list_rules(user_id="ada")
    knowledge.delete(rule.id, user_id="ada")

    assert knowledge.list_rules(user_id="ada") == []
    assert everywhere.chat.rules() == []


def test_forgetting_all_leaves_rules_to_their_conversations(everywhere: Talk) -> None:
    everywhere.chat.pipeline.knowledge.clear(user_id="ada")
    everywhere.go_on(2)
    learn(everywhere.chat)

    assert texts_of(everywhere.chat) == [NO_EMOJIS]
    assert other(everywhere).chat.rules() == []


def test_forgetting_all_brings_no_lifted_rule_back(everywhere: Talk) -> None:
    [rule] = everywhere.chat.rules()
    everywhere.chat.lift_rule(rule.id)
    everywhere.chat.pipeline.knowledge.clear(user_id="ada")

    assert everywhere.chat.rules() == []


def test_a_rule_tells_its_message(everywhere: Talk) -> None:
    knowledge = everywhere.chat.pipeline.knowledge
    [rule] = knowledge.list_rules(user_id="ada")
    [source] = knowledge.why(rule.id, user_id="ada")

    assert source.message is not None
    assert source.message.text == NO_EMOJIS


def test_what_is_known_begins_with_rules(everywhere: Talk) -> None:
    described = everywhere.chat.pipeline.knowledge.describe(user_id="ada")

    assert f"## Standing rules\n\n- {NO_EMOJIS} (from 1 message, by rules, {DAY})" in described


def test_a_rule_goes_with_its_conversation(everywhere: Talk) -> None:
    everywhere.chat.add_rule(BULLETS)
    everywhere.chat.clear()

    exported = "".join(everywhere.chat.pipeline.export_user(user_id="ada"))
    assert NO_EMOJIS not in exported
    assert BULLETS not in exported


def test_rules_are_exported_and_erased(everywhere: Talk) -> None:
    pipeline = everywhere.chat.pipeline
    everywhere.chat.add_rule(BULLETS)

    assert BULLETS in "".join(pipeline.export_user(user_id="ada"))
    pipeline.erase_user(user_id="ada")
    assert "".join(pipeline.export_user(user_id="ada")) == ""
    assert everywhere.chat.rules() == []


def test_without_learning_rules_hold_in_their_conversation(talk: Talk) -> None:
    talk.say(NO_EMOJIS)

    assert line_of(NO_EMOJIS) in zone_of(talk.much_later())
    assert other(talk).chat.rules() == []


def test_without_learning_what_was_learned_is_not_shown(
    everywhere: Talk, pipeline: ContextPipeline, clock: Clock
) -> None:
    talk = Talk(pipeline.conversation("c2", user_id="ada"), clock)

    assert NO_EMOJIS not in zone_of(talk.say("Hello."))


def test_another_process_shows_the_same(stated: Talk, clock: Clock, store: InMemoryStore) -> None:
    assert stated.chat.pipeline.flush(30)
    with pipeline_over(clock, store) as pipeline:
        chat = pipeline.conversation("c1", user_id="ada")
        prompt = chat.assemble("Hello.")
        rules = chat.rules()

    assert line_of(NO_PUSH) in zone_of(prompt)
    assert rules == stated.chat.rules()


@pytest.mark.slow
def test_rules_are_read_from_segments(clock: Clock, store: InMemoryStore) -> None:
    messages: list[BaseMessage] = [HumanMessage(NO_PUSH)]
    for number in range(600):
        messages += [HumanMessage(f"What about {number}?"), AIMessage("I see.")]
    with pipeline_over(clock, store) as pipeline:
        pipeline.conversation("c1", user_id="ada").add(messages)
        assert pipeline.flush(60)

    with pipeline_over(clock, store) as pipeline:
        assert texts_of(pipeline.conversation("c1", user_id="ada")) == [NO_PUSH]


def test_a_conversation_of_an_earlier_version_has_its_rules() -> None:
    with earlier_stores.pipeline_over(earlier_stores.in_memory()) as pipeline:
        chat = pipeline.conversation("library", user_id="maya")
        rule = "Always ask me before you send anything to a member."

        assert texts_of(chat) == [rule]
        assert f'- "{rule}"' in zone_of(chat.assemble("What did we decide about the labels?"))


def test_a_fork_has_the_rules_of_its_conversation(stated: Talk) -> None:
    stated.chat.add_rule(BULLETS)
    fork = stated.chat.fork("c2")
    prompt = fork.assemble("Hello.")

    assert texts_of(fork) == [NO_PUSH, BULLETS]
    assert NO_PUSH in zone_of(prompt)
    assert BULLETS in zone_of(prompt)


def test_a_rule_that_was_lifted_by_hand_is_lifted_in_a_fork(stated: Talk) -> None:
    [rule] = stated.chat.rules()
    stated.chat.lift_rule(rule.id)

    assert stated.chat.fork("c2").rules() == []


def test_a_fork_lifts_for_itself(stated: Talk) -> None:
    fork = stated.chat.fork("c2")
    [rule] = fork.rules()
    fork.lift_rule(rule.id)

    assert texts_of(stated.chat) == [NO_PUSH]


def test_a_rule_that_another_conversation_takes_back_is_taken_back_in_a_fork(
    everywhere: Talk,
) -> None:
    other(everywhere).say("You may use emojis again.")
    assert everywhere.chat.rules() == []
    fork = everywhere.chat.fork("c3")
    learn(fork)

    assert fork.rules() == []
    assert texts_of(other(everywhere, "c4").chat) == []


def test_a_rule_that_another_conversation_takes_back_stays_so_for_a_new_owner(
    everywhere: Talk,
) -> None:
    pipeline = everywhere.chat.pipeline
    other(everywhere).say("You may use emojis again.")
    assert everywhere.chat.rules() == []
    pipeline.hand_over("c1", from_user="ada", to_user="bo")
    chat = pipeline.conversation("c1", user_id="bo")
    learn(chat)

    assert chat.rules() == []
    assert pipeline.conversation("c4", user_id="bo").rules() == []


def test_a_fork_that_is_learned_from_lifts_nothing(everywhere: Talk) -> None:
    fork = everywhere.chat.fork("c2")
    learn(fork)

    assert texts_of(everywhere.chat) == [NO_EMOJIS]
    assert texts_of(other(everywhere, "c3").chat) == [NO_EMOJIS]


def test_rules_of_a_thread_go_to_its_new_owner(stated: Talk) -> None:
    pipeline = stated.chat.pipeline
    stated.chat.add_rule(BULLETS)
    [rule, _] = stated.chat.rules()
    stated.chat.lift_rule(rule.id)
    pipeline.hand_over("c1", from_user="ada", to_user="bo")

    assert texts_of(pipeline.conversation("c1", user_id="bo")) == [BULLETS]
    assert BULLETS not in "".join(pipeline.export_user(user_id="ada"))


def test_rules_that_a_new_owner_reads_hold(stated: Talk) -> None:
    pipeline = stated.chat.pipeline
    pipeline.hand_over("c1", from_user="ada", to_user="bo")

    assert texts_of(pipeline.conversation("c1", user_id="bo")) == [NO_PUSH]


# Every way in


def sent_by_the_graph(pipeline: ContextPipeline, messages: list[BaseMessage]) -> list[BaseMessage]:
    graph = build_context_graph(pipeline)
    return list(graph.invoke({"messages": messages}, CONFIG)["llm_input_messages"])


def sent_by_the_middleware(
    pipeline: ContextPipeline, messages: list[BaseMessage]
) -> list[BaseMessage]:
    model = Scripted(responses=[AIMessage("Hello.")])
    agent = create_agent(model, middleware=[ContextBudgetMiddleware(pipeline)])
    agent.invoke({"messages": messages}, CONFIG)
    return model.seen[-1]


def sent_by_the_chat_history(
    pipeline: ContextPipeline, messages: list[BaseMessage]
) -> list[BaseMessage]:
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline, max_tokens=BUDGET)
    history.add_messages(messages)
    return history.messages


def sent_by_the_memory(pipeline: ContextPipeline, messages: list[BaseMessage]) -> list[BaseMessage]:
    memory = BudgetedMemory(
        pipeline=pipeline, user_id="ada", conversation_id="c1", max_tokens=BUDGET
    )
    pipeline.add_messages(messages[:-1], user_id="ada", conversation_id="c1")
    return list(memory.load_memory_variables({"input": messages[-1].text})["history"])


@pytest.mark.parametrize(
    "way",
    [sent_by_the_graph, sent_by_the_middleware, sent_by_the_chat_history, sent_by_the_memory],
)
def test_a_rule_stands_whichever_way_a_prompt_is_made(pipeline: ContextPipeline, way: Way) -> None:
    messages: list[BaseMessage] = [HumanMessage(NO_PUSH)]
    for number in range(TURNS):
        messages += [AIMessage(ANSWER * 15), HumanMessage(f"And train number {number}?")]

    prompt = way(pipeline, messages)

    assert f'- "{NO_PUSH}"\n' in prompt[0].text
    assert NO_PUSH not in [message.text for message in prompt]
    assert pipeline.token_counter.count_messages(prompt) <= BUDGET


# The room of rules, and those of the application


@pytest.fixture
def many(talk: Talk) -> Talk:
    """Rules that take more than their share of the room."""
    for subject in ("cats", "boats", "trains", "bread", "music", "rivers", "stamps", "paint"):
        talk.say(f"From now on, {subject} and all {subject} of the {subject} shop come first here.")
    talk.much_later()
    return talk


def rule_items(prompt: AssembledContext) -> dict[str, str]:
    """Returns what became of each rule, by its preview."""
    in_force = {item.id: item for layer in prompt.report.layers for item in layer.items}
    return {name: str(item.status) for name, item in in_force.items() if name.startswith("rule/")}


def test_rules_take_a_tenth_of_the_budget(many: Talk) -> None:
    report = many.prompts[-1].report
    items = [item for layer in report.layers for item in layer.items]
    shown = [item for item in items if item.reason == "standing_rule"]

    assert shown
    assert sum(item.tokens for item in shown) <= BUDGET // 10


def test_rules_without_room_are_in_the_report(many: Talk) -> None:
    prompt = many.prompts[-1]
    statuses = rule_items(prompt)

    assert set(statuses) == {rule.id for rule in many.chat.rules()}
    assert "omitted" in statuses.values()


def test_rules_without_room_are_a_failure(many: Talk) -> None:
    report = many.prompts[-1].report

    assert any("standing rules that are not in the prompt" in line for line in report.failures)


def test_of_rules_without_room_the_newest_stay(many: Talk) -> None:
    statuses = rule_items(many.prompts[-1])
    in_order = [statuses[rule.id] for rule in many.chat.rules()]

    assert in_order == sorted(in_order, key=lambda status: status == "included")


@pytest.fixture
def given(clock: Clock) -> Iterator[Talk]:
    with pipeline_over(clock, rules=["Never name a price."]) as pipeline:
        yield Talk(pipeline.conversation("c1", user_id="ada"), clock)


def test_rules_of_the_application_stand_first(given: Talk) -> None:
    given.say(NO_PUSH)
    zone = zone_of(given.much_later())

    assert zone.index("- Never name a price.\n") < zone.index(NO_PUSH)


def test_nobody_lifts_rules_of_the_application(given: Talk) -> None:
    given.say("You may name a price.")
    [rule] = given.chat.rules()

    assert rule.text == "Never name a price."
    with pytest.raises(InputError, match="given in the settings"):
        given.chat.lift_rule(rule.id)


def test_rules_may_be_saved_for_a_user(pipeline: ContextPipeline, talk: Talk) -> None:
    pipeline.save_settings({"rules": ["Never name a price."]}, user_id="ada")

    assert texts_of(talk.chat) == ["Never name a price."]
    assert "- Never name a price.\n" in zone_of(talk.say("Hello."))


# Quotes


def test_a_rule_of_the_stable_zone_is_not_quoted(stated: Talk) -> None:
    prompt = stated.say("Which rule about the push to main without asking first did I give?")

    assert line_of(NO_PUSH) in zone_of(prompt)
    assert not says(prompt, NO_PUSH)


def test_a_rule_of_the_left_out_middle_is_not_quoted(talk: Talk) -> None:
    talk.go_on(TURNS // 2)
    talk.say(NO_PUSH)
    talk.go_on(TURNS // 2)
    prompt = talk.say("Which rule about the push to main without asking first did I give?")

    assert "left out here, with these rules" in sent(prompt)
    assert sent(prompt).count(NO_PUSH) == 1


def test_a_rule_from_elsewhere_is_not_quoted(everywhere: Talk) -> None:
    everywhere.go_on(3)
    prompt = other(everywhere).say("What did I say about emojis, in every chat, never use them?")

    assert NO_EMOJIS in zone_of(prompt)
    assert not says(prompt, NO_EMOJIS)
