"""The same conversation gives the same prompt through every way in.

That holds whatever happens to it in between.
"""

import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_ctxbudget import ChromaStore, ContextPipeline
from tests.doubles.strict_server import StrictServer
from tests.integration_tests.scripted_agent import TOOLS, Script
from tests.integration_tests.ways_in import (
    WITH_TOOLS,
    Agent,
    Parts,
    converse,
    make_pipeline,
    model_at,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCRIPT = Script(11)
TURNS = SCRIPT.turns
BUDGET_TOKENS = 4_000
INTERRUPTED = 7
"""The turn that is resumed elsewhere."""
EARLY = 2
"""The turn that is edited later."""
KEPT = 6
"""The turns that a fork begins with."""

Prompts = list[Mapping[str, Any]]
WAYS = [name for name in WITH_TOOLS if name not in ("loop", "window")]
"""All are compared with the loop; a window is another prompt, of the history alone."""

every_way = pytest.mark.parametrize("name", WAYS)


# -- What happens to a conversation


def simply(agent: Agent) -> None:
    converse(agent, TURNS)


def edited(agent: Agent) -> None:
    converse(agent, TURNS[:KEPT])
    correction = "I meant the pear tree, of 21 April 2022. [turn 2]"
    agent.edit(HumanMessage(correction, id=f"turn{EARLY}-user"))
    converse(agent, TURNS[KEPT:])


def rewound(agent: Agent) -> None:
    kept = list(converse(agent, TURNS[:KEPT]))
    converse(agent, TURNS[KEPT:INTERRUPTED])
    agent.rewind(kept)
    converse(agent, TURNS[INTERRUPTED:])


def branched(agent: Agent) -> None:
    messages = converse(agent, TURNS[:KEPT])
    other = type(agent)(replace(agent.parts, thread="c2"))
    other.take_over(messages)
    converse(other, TURNS[KEPT:])


def new_agent(way: type[Agent], url: str, pipeline: ContextPipeline) -> Agent:
    """Returns an agent whose model is a server, and which has a conversation with a pipeline."""
    return way(Parts(model=model_at(url), pipeline=pipeline, tools=TOOLS, named_results=True))


def prompts(way: type[Agent], story: Callable[[Agent], Any]) -> Prompts:
    """Returns what a server is sent in the course of a story."""
    with StrictServer(SCRIPT.answer) as server, make_pipeline(BUDGET_TOKENS) as pipeline:
        story(new_agent(way, server.url, pipeline))
        return sent(server)


def sent(server: StrictServer) -> Prompts:
    assert server.refused == []
    return [{key: body.get(key) for key in ("messages", "tools")} for body in server.received]


@cache
def expected(story: Callable[[Agent], Any]) -> Prompts:
    return prompts(WITH_TOOLS["loop"], story)


# -- The same prompt


@every_way
@pytest.mark.parametrize("story", [simply, edited, rewound, branched])
def test_every_way_gives_the_prompts_of_the_plain_object(
    story: Callable[[Agent], Any], name: str
) -> None:
    assert prompts(WITH_TOOLS[name], story) == expected(story)


# -- In another process


@contextmanager
def stored_pipeline(folder: Path) -> Iterator[ContextPipeline]:
    """Opens a pipeline whose store is in a folder."""
    with (
        closing(ChromaStore(folder / "chroma")) as store,
        make_pipeline(BUDGET_TOKENS, store) as pipeline,
    ):
        yield pipeline


def converse_until_interrupted(name: str, url: str, folder: Path) -> None:
    with stored_pipeline(folder) as pipeline:
        agent = new_agent(WITH_TOOLS[name], url, pipeline)
        converse(agent, TURNS[:INTERRUPTED])
        assert agent.begin(TURNS[INTERRUPTED])
        (folder / "saved").write_bytes(pickle.dumps(agent.saved()))


def resume(name: str, url: str, folder: Path) -> None:
    with stored_pipeline(folder) as pipeline:
        agent = new_agent(WITH_TOOLS[name], url, pipeline)
        agent.restore(pickle.loads((folder / "saved").read_bytes()))
        agent.resume(TURNS[INTERRUPTED])
        converse(agent, TURNS[INTERRUPTED + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loop", *WAYS])
def test_an_interrupt_resumed_elsewhere_has_the_same_prompts(name: str, tmp_path: Path) -> None:
    with StrictServer(SCRIPT.answer) as server:
        child = multiprocessing.get_context("spawn").Process(
            target=converse_until_interrupted, args=(name, server.url, tmp_path)
        )
        child.start()
        child.join()
        assert child.exitcode == 0

        resume(name, server.url, tmp_path)

        assert sent(server) == expected(simply)


# -- What the comparison is worth


def test_the_interrupted_turn_is_one_with_an_interrupt() -> None:
    assert TURNS[INTERRUPTED].kind == "interrupt"


@pytest.mark.parametrize("number", [INTERRUPTED, len(TURNS) - 1], ids=["interrupted", "last"])
def test_the_conversation_is_compacted_at_a_turn(number: int) -> None:
    texts = [str(prompt["messages"]) for prompt in expected(simply)]
    texts_of_the_turn = [text for text in texts if f"[turn {number}]" in text]
    assert "<conversation_summary>" in texts_of_the_turn[0]
