"""What moving from `SummarizationMiddleware` costs: calls of models beside the agent's own.

    python benchmarks/move_cost.py [--limit 4000] [--json]

An agent has the bundled conversation turn by turn, with the stock middleware and with this
package's as `docs/how-to/moving.md` shows both. No model is called: the agent's says what was said;
the one that sums up and learns is that of `model_cost.py`, which writes as much as it may; for the
stock middleware it writes the longest sentence of each message, at most twenty of them. Tokens are
o200k_base's, with schemas in words.

Columns:
    turns      how many there are
    calls      of the model that sums up and learns
    input      tokens of their prompts
    output     tokens of their replies
    sent       tokens of all prompts of the agent, tools included
    effective  all of it in new tokens of input: cached ones count a tenth, those of output five
"""

# ruff: noqa: ANN401 - other people's interfaces
from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from html import unescape
from itertools import takewhile
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from model_cost import Calls, Kind, Model
from pydantic import PrivateAttr
from rich.console import Console
from rich.table import Table

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.demo import DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.messages import sentences
from langchain_ctxbudget.middleware import ContextBudgetMiddleware
from langchain_ctxbudget.providers import CacheTerms
from langchain_ctxbudget.tokens.own_calls import OUTPUT_PRICE

USER = "maya"
KEPT_MESSAGES = 20
STOCK_SENTENCES = 20
COUNTER = TiktokenCounter()
_MESSAGE = re.compile(r'<message type="\w+">(.*?)</message>', re.DOTALL)


class Way(StrEnum):
    """A row: what sums up and learns."""

    BEFORE = "before"
    WITHOUT_MODEL = "no model"
    SUMMARIES = "summaries"
    ALL = "summaries and learning"


@dataclass
class Sent:
    """The prompts of an agent."""

    tokens: int = 0
    effective_tokens: float = 0
    tools_tokens: int = 0
    """Of each prompt."""
    last: list[str] = field(default_factory=list)
    """The texts of the last one."""

    def add(self, messages: list[BaseMessage]) -> None:
        """Counts a prompt, of which a cache holds what the last one began with."""
        texts = [f"{message.type} {message.text}" for message in messages]
        same = takewhile(lambda pair: pair[0] == pair[1], zip(texts, self.last, strict=False))
        shared = 0
        if self.last:
            shared = COUNTER.count_messages(messages[: len([*same])]) + self.tools_tokens
        tokens = COUNTER.count_messages(messages) + self.tools_tokens
        self.tokens += tokens
        self.effective_tokens += CacheTerms().cost(tokens, shared)
        self.last = texts


class Agent(BaseChatModel):
    """Says what the bundled conversation has as its answers."""

    answers: list[str]
    _sent: Sent = PrivateAttr(default_factory=Sent)
    _said: int = PrivateAttr(default=0)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def sent(self) -> Sent:
        return self._sent

    def bind_tools(self, tools: Any, **_: object) -> Any:
        self._sent.tools_tokens = COUNTER.count_tools(tools)
        return self

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        self._sent.add(messages)
        answer = self.answers[self._said]
        self._said += 1
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])


class Summarizer(Model):
    """Sums up for the stock middleware, too."""

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        prompt = "\n".join(message.text for message in messages)
        given = prompt.partition("Messages to summarize:")[2]
        if not given:
            return super()._generate(messages)
        longest = [max(sentences(text), key=len) for text in _MESSAGE.findall(unescape(given))]
        reply = "\n".join(longest[-STOCK_SENTENCES:])
        calls = self.calls[Kind.SUMMARY]
        calls.number += 1
        calls.input_tokens += COUNTER.count_text(prompt)
        calls.output_tokens += COUNTER.count_text(reply)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply))])


def middleware_of(way: Way, model: Model, limit: int) -> Any:
    """Returns the middleware of a row."""
    if way is Way.BEFORE:
        return SummarizationMiddleware(
            model, trigger=("tokens", limit), keep=("messages", KEPT_MESSAGES)
        )
    pipeline = ContextPipeline(
        {"max_context_tokens": limit, "learn": way is not Way.SUMMARIES},
        summary_model=None if way is Way.WITHOUT_MODEL else model,
    )
    return ContextBudgetMiddleware(pipeline, default_user=USER)


def run(way: Way, limit: int) -> tuple[object, ...]:
    """Has the conversation with one agent, and returns its row."""
    said = [message.text for message in demo_messages()]
    questions = said[::2]
    model = Summarizer()
    agent_model = Agent(answers=said[1::2])
    middleware = middleware_of(way, model, limit)
    agent = create_agent(
        agent_model,
        system_prompt=DEMO_SYSTEM_PROMPT,
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )
    for question in questions:
        run_of: Any = {"configurable": {"thread_id": "tools"}}
        agent.invoke({"messages": [HumanMessage(question)]}, run_of)
        if isinstance(middleware, ContextBudgetMiddleware):
            middleware.pipeline.flush()

    calls = Calls()
    for of_kind in model.calls.values():
        calls.number += of_kind.number
        calls.input_tokens += of_kind.input_tokens
        calls.output_tokens += of_kind.output_tokens
    if way is not Way.BEFORE:
        require_booked(middleware.pipeline, calls)
    sent = agent_model.sent
    effective = sent.effective_tokens + calls.input_tokens + OUTPUT_PRICE * calls.output_tokens
    figures = (calls.number, calls.input_tokens, calls.output_tokens, sent.tokens, round(effective))
    return (way.value, len(questions), *figures)


def require_booked(pipeline: ContextPipeline, calls: Calls) -> None:
    """Ends the program unless the usage of the conversation has all calls."""
    booked = pipeline.usage.own_of_session(user_id=USER, conversation_id="tools").total
    if (booked.calls, booked.input_tokens) != (calls.number, calls.input_tokens):
        raise SystemExit("not all calls stand in the usage")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--limit", type=int, default=4_000, help="tokens of a prompt")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()

    rows = [run(way, arguments.limit) for way in Way]
    header = ("", "turns", "calls", "input", "output", "sent", "effective")
    if arguments.json:
        print(json.dumps([dict(zip(header, row, strict=True)) for row in rows]))
        return
    table = Table(*header)
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    Console().print(table)


if __name__ == "__main__":
    main()
