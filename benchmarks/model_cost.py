"""What a model that learns and sums up is asked for: calls and tokens per 100 messages.

    python benchmarks/model_cost.py [--budget 4000] [--at-once] [--json]

The conversations are the demo and the 17 chats of `tests/data/extraction.jsonl`. They are added
exchange by exchange, at the time of their messages, and a prompt is made for every question, as an
application does; with `--at-once` each is added in one piece, as an import does. No model is
called: a scripted one notes what the user's own sentences say (what the reader of sentences takes
for a statement, at most eight a reply), and its summaries are as long as they may be. Tokens are
o200k_base's, with the schema in words; failures and repeated calls are not in it, and no cache of
the provider's is counted on.

Columns:
    messages   how many there are
    calls      per 100 messages
    input      tokens of the prompts per 100 messages
    output     tokens of the replies per 100 messages
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr
from rich.console import Console
from rich.table import Table

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.demo import DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.history.summarizing import CAP_TOKENS
from langchain_ctxbudget.knowledge.extraction import EXTRACTION, MESSAGES_HEADING
from langchain_ctxbudget.messages import sentences, time_of
from langchain_ctxbudget.sentences import Label
from langchain_ctxbudget.sentences import read as read_sentences

CHATS = Path(__file__).resolve().parents[1] / "tests" / "data" / "extraction.jsonl"
COUNT = TiktokenCounter().count_text
_NEW = re.compile(r"^- (\d+)\. (?:\[[\d-]+\] )?the user(?: \([^)]*\))?: (.*)$", re.MULTILINE)
_LINE = re.compile(r"^- (.*)$", re.MULTILINE)


@dataclass
class Calls:
    """Calls of one kind, with the tokens of all of them."""

    number: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Kind(StrEnum):
    """What a call is for."""

    LEARNING = "learning"
    SUMMARY = "summaries"
    BOTH = "both at once"


class Model(BaseChatModel):
    """Answers as a diligent model would, and counts its calls."""

    _calls: dict[Kind, Calls] = PrivateAttr(default_factory=lambda: defaultdict(Calls))

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def calls(self) -> dict[Kind, Calls]:
        return self._calls

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        prompt = "\n".join(message.text for message in messages)
        kind = _kind_of(prompt)
        fields: dict[str, Any] = {}
        if kind is not Kind.SUMMARY:
            fields |= _notes(prompt)
        if kind is not Kind.LEARNING:
            fields |= _summary(messages[-1].text)
        reply = json.dumps(fields)
        calls = self._calls[kind]
        calls.number += 1
        calls.input_tokens += COUNT(prompt)
        calls.output_tokens += COUNT(reply)
        usage = {"input_tokens": COUNT(prompt), "output_tokens": COUNT(reply), "total_tokens": 0}
        answer = AIMessage(reply, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _kind_of(prompt: str) -> Kind:
    if MESSAGES_HEADING not in prompt:
        return Kind.SUMMARY
    return Kind.BOTH if "key_decisions" in prompt else Kind.LEARNING


def _notes(prompt: str) -> dict[str, Any]:
    """Returns the user's sentences that are statements as facts."""
    found = _NEW.findall(prompt.rpartition(MESSAGES_HEADING)[2])
    facts = []
    for (number, text), said in zip(
        found, read_sentences([text for _, text in found]), strict=True
    ):
        facts += [
            {
                "messages": [int(number)],
                "text": text[one.begin : one.end],
                "category": "project",
                "confidence": 0.9,
                "updates": "",
                "supersedes": [],
                "slot": "",
            }
            for one in said
            if one.label is Label.STATEMENT
        ]
    return {"facts": facts[: EXTRACTION.most_facts], "topics": [], "entities": []}


def _summary(span: str) -> dict[str, Any]:
    """Returns a summary that is as long as it may be: the first sentences of the messages."""
    chosen: list[str] = []
    tokens = 0
    for line in _LINE.findall(span):
        [sentence] = sentences(line)[:1] or [""]
        tokens += COUNT(sentence)
        if tokens > CAP_TOKENS:
            break
        chosen.append(sentence)
    lists: dict[str, list[str]] = {
        "key_decisions": chosen[:2],
        "open_questions": [],
        "code_artifacts": [],
    }
    return {"summary": "\n".join(chosen), **lists}


def conversations() -> list[list[BaseMessage]]:
    """Returns the demo, and the chats of the extraction benchmark."""
    found = [demo_messages()]
    with CHATS.open(encoding="utf-8") as lines:
        found += [_chat(json.loads(line)) for line in lines]
    return found


def _chat(row: dict[str, Any]) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for message in row["messages"]:
        if message["role"] == "user":
            text = " ".join(sentence["text"] for sentence in message["sentences"])
            messages.append(HumanMessage(text))
        else:
            messages.append(AIMessage(message["text"]))
    return messages


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 8, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def run(conversation: Sequence[BaseMessage], model: Model, budget: int, *, at_once: bool) -> int:
    """Has a model learn from a conversation and sum it up, and returns the calls that are booked."""
    clock = Clock()
    with ContextPipeline(
        {"max_context_tokens": budget},
        summary_model=model,
        system_prompt=DEMO_SYSTEM_PROMPT,
        clock=clock,
    ) as pipeline:
        chat = pipeline.conversation("c1", user_id="maya")
        step = len(conversation) if at_once else 2
        for begin in range(0, len(conversation), step):
            part = conversation[begin : begin + step]
            clock.now = max(clock.now + timedelta(minutes=1), time_of(part[-1]) or clock.now)
            chat.assemble(HumanMessage(part[0].text))
            pipeline.flush()
            chat.add(part)
            pipeline.flush()
        chat.assemble("And now?")
        chat.end_session()
        pipeline.flush()
        return pipeline.usage.of_session(user_id="maya", conversation_id="c1").calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--budget", type=int, default=4_000, help="tokens of a prompt")
    parser.add_argument("--at-once", action="store_true", help="add a conversation in one piece")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()

    model = Model()
    booked = 0
    messages = 0
    for conversation in conversations():
        booked += run(conversation, model, arguments.budget, at_once=arguments.at_once)
        messages += len(conversation)
    if booked != sum(calls.number for calls in model.calls.values()):
        raise SystemExit("not all calls stand in the usage")

    rows = []
    for kind, calls in model.calls.items():
        figures = (calls.number, calls.input_tokens, calls.output_tokens)
        rows.append((kind, messages, *(round(100 * figure / messages, 1) for figure in figures)))
    header = ("", "messages", "calls", "input", "output")
    if arguments.json:
        print(json.dumps([dict(zip(header, row, strict=True)) for row in rows]))
        return
    table = Table(*header)
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)


if __name__ == "__main__":
    main()
