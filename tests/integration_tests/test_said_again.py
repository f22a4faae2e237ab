"""P5: what is said of a user again, anew or otherwise never rebuilds a prompt."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxbudget import AssembledContext, ContextPipeline
from langchain_ctxbudget.pipeline.chat import Chat

BONN = "I live in Bonn."
HAMBURG = "I live in Hamburg now, not in Bonn."
KIEL = "I no longer live in Hamburg but in Kiel."
CARPENTER = "I work as a carpenter."
BROTHER = "My brother lives in Oslo."
METRIC = "From now on, always answer in metric units."
FIRST_DAY = "2026-01-01"
ENDED = "No longer so: "
HOLDS = "The user says now: "


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Talk:
    """An open conversation, and another one of the same user."""

    chat: Chat
    other: Chat
    clock: Clock
    prompts: list[AssembledContext] = field(default_factory=list)

    def say(self, text: str) -> AssembledContext:
        """Says something a day later, and has it answered."""
        prompt = self.chat.assemble(self._message(text))
        self.chat.add(prompt.turn, AIMessage("I see."))
        self.prompts.append(prompt)
        return prompt

    def say_elsewhere(self, text: str) -> None:
        """Says something a day later in the other conversation."""
        self.other.add(self._message(text), AIMessage("I see."))

    def learn(self) -> None:
        """Has both conversations learned from."""
        for chat in (self.chat, self.other):
            chat.end_session()
        assert self.chat.pipeline.flush(30)

    def _message(self, text: str) -> HumanMessage:
        self.clock.now += timedelta(days=1)
        return HumanMessage(text, additional_kwargs={"created_at": self.clock.now.isoformat()})


@pytest.fixture
def talk() -> Iterator[Talk]:
    """A conversation whose first prompt shows two facts about the user."""
    clock = Clock()
    clock.now -= timedelta(days=1)
    settings = {"max_context_tokens": 4_000, "cache_lifetime_seconds": 10**9}
    with ContextPipeline(settings, system_prompt="You help.", clock=clock) as pipeline:
        chat, other = (pipeline.conversation(name, user_id="ada") for name in ("c1", "c2"))
        opened = Talk(chat, other, clock)
        opened.say_elsewhere(f"{BONN} {CARPENTER}")
        opened.learn()
        opened.say("What is a good glue for oak?")
        yield opened


def sent(prompt: AssembledContext) -> str:
    return "\x00".join(f"{message.type}\x01{message.text}" for message in prompt.messages)


def last(prompt: AssembledContext) -> str:
    """Returns the last message, with its background."""
    return str(prompt.messages[-1].text)


def quoted(text: str, day: str = FIRST_DAY) -> str:
    return f'"{text}" (said {day})'


def require_that_prompts_only_grew(talk: Talk) -> None:
    modes = [prompt.report.stability.mode for prompt in talk.prompts]
    assert modes == ["rebuilt"] + ["extended"] * (len(modes) - 1)
    for before, after in pairwise(talk.prompts):
        assert sent(after).startswith(sent(before))


CASES = {
    "a fact again": [BONN, BONN, BONN],
    "facts again": [CARPENTER, BONN, CARPENTER],
    "a rule again": [METRIC, METRIC, METRIC],
    "a new fact": [BROTHER],
    "a fact replaced": [HAMBURG],
    "a fact replaced and taken up again": [HAMBURG, "I live in Bonn again, not in Hamburg."],
}


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_a_prompt_only_grows_whatever_is_said_here(talk: Talk, words: list[str]) -> None:
    for text in words:
        talk.say(text)
        talk.learn()
        talk.say("And for pine?")

    require_that_prompts_only_grew(talk)


@pytest.mark.slow
@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_a_prompt_only_grows_whatever_is_said_elsewhere(talk: Talk, words: list[str]) -> None:
    for text in words:
        talk.say_elsewhere(text)
        talk.learn()
        talk.say("And for pine?")

    require_that_prompts_only_grew(talk)


def test_the_next_prompt_tells_that_a_fact_was_replaced(talk: Talk) -> None:
    talk.say_elsewhere(HAMBURG)
    talk.learn()

    line = f"{ENDED}{quoted(BONN)} {HOLDS}{quoted(HAMBURG, '2026-01-03')}"
    assert line in last(talk.say("And for pine?"))


def test_it_is_told_once(talk: Talk) -> None:
    talk.say_elsewhere(HAMBURG)
    talk.learn()
    talk.say("And for pine?")

    assert sent(talk.say("And for beech?")).count(ENDED) == 1


def test_what_was_told_in_its_place_can_be_replaced_in_turn(talk: Talk) -> None:
    for text in (HAMBURG, KIEL):
        talk.say_elsewhere(text)
        talk.learn()
        prompt = talk.say("And for pine?")

    line = f"{ENDED}{quoted(HAMBURG, '2026-01-03')} {HOLDS}{quoted(KIEL, '2026-01-05')}"
    assert line in last(prompt)


def test_a_rebuilt_prompt_shows_what_holds_now_alone(talk: Talk) -> None:
    for text in (HAMBURG, CARPENTER):
        talk.say_elsewhere(text)
    talk.learn()
    talk.say("And for pine?")
    talk.clock.now += timedelta(days=40_000)
    prompt = talk.say("And for beech?")

    assert prompt.report.stability.cause == "cold"
    assert ENDED not in sent(prompt)
    assert quoted(HAMBURG, "2026-01-03") in prompt.messages[0].text
    assert quoted(CARPENTER, "2026-01-04") in prompt.messages[0].text


def test_a_rule_that_is_said_again_elsewhere_is_told_once(talk: Talk) -> None:
    for _ in range(3):
        talk.say_elsewhere(METRIC)
        prompt = talk.say("And for pine?")

    assert sent(prompt).count(METRIC) == 1
    assert "No longer holds" not in sent(prompt)


def test_an_erased_fact_leaves_the_next_prompt(talk: Talk) -> None:
    knowledge = talk.chat.pipeline.knowledge
    [bonn] = [fact for fact in knowledge.list_facts(user_id="ada") if BONN in fact.text]
    knowledge.delete(bonn.id, user_id="ada")

    assert BONN not in talk.say("And for pine?").messages[0].text
