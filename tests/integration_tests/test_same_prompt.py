"""The same conversation gives the same prompt through every way in, whatever happens to it in between."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget import ChromaStore
from langchain_ctxbudget.flow import Flow
from tests.integration_tests.agents import Agent, Parts
from tests.integration_tests.graph_agents import WithoutThePackage
from tests.integration_tests.scripted_agent import TOOLS, Script
from tests.integration_tests.strict_openai_server import StrictOpenAIServer
from tests.integration_tests.ways_in import RUNS, WITH_TOOLS, WITHOUT_TOOLS, converse, make_pipeline, model_at

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCRIPT = Script(11)
TURNS = SCRIPT.turns
BUDGET_TOKENS = 4_000
INTERRUPTED, EARLY, KEPT = 7, 2, 6
"""The turn that is resumed elsewhere, the one that is edited later, and how many a fork begins with."""

Prompts = list[Mapping[str, Any]]
WAYS = [name for name in WITH_TOOLS if name not in ("loop", "window")]
"""All are compared with the loop; a window is another prompt, of the history alone."""
PLAIN_WAYS = {**{name: WITH_TOOLS[name] for name in WAYS}, "memory": WITHOUT_TOOLS["memory, whole prompt"]}

sync_and_async = pytest.mark.parametrize("run", RUNS)
every_way = pytest.mark.parametrize("name", WAYS)


# -- What happens to a conversation


def simply(agent: Agent) -> Flow[None]:
    yield from converse(agent, TURNS)


def edited(agent: Agent) -> Flow[None]:
    """The user edits an early message, long after."""
    yield from converse(agent, TURNS[:KEPT])
    yield from agent.edit(HumanMessage("I meant the pear tree, of 21 April 2022. [turn 2]", id=f"turn{EARLY}-user"))
    yield from converse(agent, TURNS[KEPT:])


def rewound(agent: Agent) -> Flow[None]:
    """The user goes on from an earlier state, as if what came after it had never been said."""
    kept = list((yield from converse(agent, TURNS[:KEPT])))
    yield from converse(agent, TURNS[KEPT:INTERRUPTED])
    yield from agent.rewind(kept)
    yield from converse(agent, TURNS[INTERRUPTED:])


def branched(agent: Agent) -> Flow[None]:
    """Another thread begins with what was said in this one."""
    said = yield from converse(agent, TURNS[:KEPT])
    other = type(agent)(replace(agent.parts, thread="c2"))
    yield from other.take_over(said)
    yield from converse(other, TURNS[KEPT:])


def begun_with(said: Sequence[BaseMessage]) -> Callable[[Agent], Flow[None]]:
    """A conversation that is not this package's begins with these messages."""

    def story(agent: Agent) -> Flow[None]:
        yield from agent.take_over(said)
        yield from converse(agent, TURNS[KEPT:])

    return story


def prompts(way: type[Agent], story: Callable[[Agent], Flow[Any]], run: str, tools: Sequence[Any] = TOOLS) -> Prompts:
    """What the model is sent while the story goes on."""
    with StrictOpenAIServer(SCRIPT.answer) as server, make_pipeline(BUDGET_TOKENS) as pipeline:
        RUNS[run](story(way(Parts(model=model_at(server.url), pipeline=pipeline, tools=tools, named_results=True))))
        return sent(server)


def sent(server: StrictOpenAIServer) -> Prompts:
    assert server.refused == []
    return [{key: body.get(key) for key in ("messages", "tools")} for body in server.received]


@cache
def expected(story: Callable[[Agent], Flow[Any]], tools: Sequence[Any] = TOOLS) -> Prompts:
    """What the model is sent by a loop around the plain object."""
    return prompts(WITH_TOOLS["loop"], story, "async", tools)


# -- The same prompt


@sync_and_async
@every_way
@pytest.mark.parametrize("story", [simply, edited, rewound, branched])
def test_every_way_gives_the_prompts_of_the_plain_object(
    story: Callable[[Agent], Flow[Any]], name: str, run: str
) -> None:
    assert prompts(WITH_TOOLS[name], story, run) == expected(story)


@sync_and_async
@pytest.mark.parametrize("name", PLAIN_WAYS)
def test_without_tools_every_way_gives_the_prompts_of_the_plain_object(name: str, run: str) -> None:
    assert prompts(PLAIN_WAYS[name], simply, run, ()) == expected(simply, ())


@every_way
def test_a_thread_that_begins_with_another_s_messages_has_the_prompts_of_one_that_has_only_these(name: str) -> None:
    with StrictOpenAIServer(SCRIPT.answer) as server, make_pipeline(BUDGET_TOKENS) as pipeline:
        first = WithoutThePackage(Parts(model=model_at(server.url), pipeline=pipeline, tools=TOOLS, named_results=True))
        said = RUNS["async"](converse(first, TURNS[:KEPT]))
    alone = prompts(WITH_TOOLS[name], begun_with(said), "async")
    assert prompts(WITH_TOOLS[name], branched, "async")[-len(alone) :] == alone


# -- In another process


def until_interrupted(name: str, run: str, url: str, folder: Path) -> None:
    """What the first process does: everything up to the user's decision."""
    with closing(ChromaStore(folder / "chroma")) as store, make_pipeline(BUDGET_TOKENS, store) as pipeline:
        agent = WITH_TOOLS[name](Parts(model=model_at(url), pipeline=pipeline, tools=TOOLS, named_results=True))
        RUNS[run](converse(agent, TURNS[:INTERRUPTED]))
        assert RUNS[run](agent.begin(TURNS[INTERRUPTED]))
        (folder / "saved").write_bytes(pickle.dumps(agent.saved()))


@pytest.mark.slow
@sync_and_async
@pytest.mark.parametrize("name", ["loop", *WAYS])
def test_an_interrupt_that_is_resumed_in_another_process_goes_on_with_the_same_prompts(
    name: str, run: str, tmp_path: Path
) -> None:
    with StrictOpenAIServer(SCRIPT.answer) as server:
        child = multiprocessing.get_context("spawn").Process(
            target=until_interrupted, args=(name, run, server.url, tmp_path)
        )
        child.start()
        child.join()
        assert child.exitcode == 0
        with closing(ChromaStore(tmp_path / "chroma")) as store, make_pipeline(BUDGET_TOKENS, store) as pipeline:
            agent = WITH_TOOLS[name](
                Parts(model=model_at(server.url), pipeline=pipeline, tools=TOOLS, named_results=True)
            )
            agent.restore(pickle.loads((tmp_path / "saved").read_bytes()))
            RUNS[run](agent.resume(TURNS[INTERRUPTED]))
            RUNS[run](converse(agent, TURNS[INTERRUPTED + 1 :]))
        assert sent(server) == expected(simply)


# -- What the comparison is worth


def test_the_conversation_is_compacted_before_and_after_the_interrupt() -> None:
    texts = {
        turn.number: [text for text in map(_text, expected(simply)) if f"[turn {turn.number}]" in text]
        for turn in TURNS
    }
    assert TURNS[INTERRUPTED].kind == "interrupt"
    assert all("<conversation_summary>" in texts[number][0] for number in (INTERRUPTED, len(TURNS) - 1))


def _text(prompt: Mapping[str, Any]) -> str:
    return str(prompt["messages"])


def test_an_edit_changes_the_prompts_after_it() -> None:
    assert expected(edited) != expected(simply)
    assert "pear tree" in str(expected(edited)[-1])
