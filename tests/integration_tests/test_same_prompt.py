"""The same conversation gives the same prompt through every way in, whatever happens to it in between."""

import multiprocessing
import pickle
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_ctxbudget import ChromaStore
from tests.integration_tests.scripted_agent import TOOLS, Script
from tests.integration_tests.strict_openai_server import StrictOpenAIServer
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
EARLY = 2
KEPT = 6
"""The turn that is resumed elsewhere, the one that is edited later, and how many a fork begins
with."""

Prompts = list[Mapping[str, Any]]
WAYS = [name for name in WITH_TOOLS if name not in ("loop", "window")]
"""All are compared with the loop; a window is another prompt, of the history alone."""

every_way = pytest.mark.parametrize("name", WAYS)


# -- What happens to a conversation


def simply(agent: Agent) -> None:
    converse(agent, TURNS)


def edited(agent: Agent) -> None:
    converse(agent, TURNS[:KEPT])
    agent.edit(
        HumanMessage("I meant the pear tree, of 21 April 2022. [turn 2]", id=f"turn{EARLY}-user")
    )
    converse(agent, TURNS[KEPT:])


def rewound(agent: Agent) -> None:
    kept = list(converse(agent, TURNS[:KEPT]))
    converse(agent, TURNS[KEPT:INTERRUPTED])
    agent.rewind(kept)
    converse(agent, TURNS[INTERRUPTED:])


def branched(agent: Agent) -> None:
    said = converse(agent, TURNS[:KEPT])
    other = type(agent)(replace(agent.parts, thread="c2"))
    other.take_over(said)
    converse(other, TURNS[KEPT:])


def prompts(way: type[Agent], story: Callable[[Agent], Any]) -> Prompts:
    with StrictOpenAIServer(SCRIPT.answer) as server, make_pipeline(BUDGET_TOKENS) as pipeline:
        story(
            way(
                Parts(
                    model=model_at(server.url), pipeline=pipeline, tools=TOOLS, named_results=True
                )
            )
        )
        return sent(server)


def sent(server: StrictOpenAIServer) -> Prompts:
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


def until_interrupted(name: str, url: str, folder: Path) -> None:
    with (
        closing(ChromaStore(folder / "chroma")) as store,
        make_pipeline(BUDGET_TOKENS, store) as pipeline,
    ):
        agent = WITH_TOOLS[name](
            Parts(model=model_at(url), pipeline=pipeline, tools=TOOLS, named_results=True)
        )
        converse(agent, TURNS[:INTERRUPTED])
        assert agent.begin(TURNS[INTERRUPTED])
        (folder / "saved").write_bytes(pickle.dumps(agent.saved()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loop", *WAYS])
def test_an_interrupt_resumed_in_another_process_has_the_same_prompts(
    name: str, tmp_path: Path
) -> None:
    with StrictOpenAIServer(SCRIPT.answer) as server:
        child = multiprocessing.get_context("spawn").Process(
            target=until_interrupted, args=(name, server.url, tmp_path)
        )
        child.start()
        child.join()
        assert child.exitcode == 0
        with (
            closing(ChromaStore(tmp_path / "chroma")) as store,
            make_pipeline(BUDGET_TOKENS, store) as pipeline,
        ):
            agent = WITH_TOOLS[name](
                Parts(
                    model=model_at(server.url), pipeline=pipeline, tools=TOOLS, named_results=True
                )
            )
            agent.restore(pickle.loads((tmp_path / "saved").read_bytes()))
            agent.resume(TURNS[INTERRUPTED])
            converse(agent, TURNS[INTERRUPTED + 1 :])
        assert sent(server) == expected(simply)


# -- What the comparison is worth


def test_the_conversation_is_compacted_before_and_after_the_interrupt() -> None:
    texts = {
        turn.number: [
            text for text in map(_text, expected(simply)) if f"[turn {turn.number}]" in text
        ]
        for turn in TURNS
    }
    assert TURNS[INTERRUPTED].kind == "interrupt"
    assert all(
        "<conversation_summary>" in texts[number][0] for number in (INTERRUPTED, len(TURNS) - 1)
    )


def _text(prompt: Mapping[str, Any]) -> str:
    return str(prompt["messages"])
