"""Any message, of any provider, in any medium, becomes a prompt that every provider accepts.

The messages are those that LangChain's packages return, in random conversations with switches of
the model. What is sent is what LangChain's packages send; most of it is judged by the rules of the
doubles without a connection, a sample by the double's server over HTTP. A seed that fails tells the
shortest conversation that does.
"""

import logging
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI

from tests.cases import few_are_quick
from tests.doubles.providers import APIS, Api, as_if_connected
from tests.doubles.strict_server import StrictServer
from tests.fuzz.conversations import Conversation
from tests.fuzz.prompts import BUDGETS, WAYS, Trial

pytestmark = [pytest.mark.usefixtures("offline_tiktoken"), pytest.mark.allow_hosts(["127.0.0.1"])]

MANY = 10
"""Conversations of one test of the long suite: about 640 prompts, so 2,500 in all; the fuzz program
makes as many as one wants."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """LangChain's packages log every block that they leave out."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def trials(seed: int, ways: Sequence[str], apis: Sequence[str] = tuple(APIS)) -> Iterator[Trial]:
    """The trials of a seed: one conversation, for every API, some ways out and budgets."""
    random = Random(seed)
    conversation = Conversation.of(seed)
    for name in apis:
        for way in ways:
            yield Trial(conversation, APIS[name], way, random.sample(BUDGETS, 3))


def recipe_of(trial: Trial, problems: Sequence[str]) -> str:
    """What is wrong with a trial, with as few steps as still show it."""
    shortest = trial.shortened(lambda shorter: bool(shorter.run().problems))
    return f"{problems[0]}\n{shortest}"


def failures(trials: Iterator[Trial]) -> list[str]:
    found = []
    for trial in trials:
        problems = trial.run().problems
        if problems:
            found.append(recipe_of(trial, problems))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_some_conversations_become_accepted_prompts(way: str) -> None:
    for seed in range(SOME[way]):
        assert failures(trials(seed, [way], APIS_OF_A_SAMPLE)) == []


SOME = {"pipeline": 1, "middleware": 1, "graph": 1, "history": 1}
"""Conversations of the quick suite, by way out."""
APIS_OF_A_SAMPLE = ("chat", "responses", "anthropic", "gemini")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_conversations_become_accepted_prompts(part: int) -> None:
    seeds = range(part * MANY, (part + 1) * MANY)
    found: list[str] = []
    for seed in seeds:
        found += failures(trials(seed, tuple(WAYS)))
    assert found == []


# Over HTTP


def at(url: str, api: Api) -> Any:
    """The model of an API, which talks to the double's server."""
    root = url.removesuffix("/v1")
    if api.name == "anthropic":
        return ChatAnthropic(model="claude-sonnet-4-5", api_key="x", base_url=root)
    if api.name == "gemini":
        return ChatGoogleGenerativeAI(
            model="gemini-3-pro-preview", api_key="x", base_url=root, max_retries=1
        )
    settings = {"use_responses_api": True} if api.name.startswith("responses") else {}
    if "nothing stored" in api.name:
        settings["store"] = False
    return ChatOpenAI(model="gpt-4o", api_key="x", base_url=url, max_retries=0, **settings)


@pytest.mark.parametrize("name", few_are_quick(APIS))
def test_the_server_accepts_what_the_rules_accept(name: str) -> None:
    prompts = [
        prompt
        for trial in trials(1, ["pipeline"], [name])
        for prompt in trial.run().prompts
        if not APIS[name].problems(prompt.messages)
    ]
    with StrictServer() as server, as_if_connected():
        model = at(server.url, APIS[name])
        replies = [model.invoke(list(prompt.messages)) for prompt in prompts]

    assert server.refused == []
    assert {reply.text for reply in replies} <= {"Done."}
