"""A scripted conversation of an agent with tools.

What the user says, and what the model answers to a request.

The model's part is a pure function of the request, and looks at its end only: at the user's last
words, which end with the number of the turn, and at the ids of the newest calls. So it answers
alike whatever stands before them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.types import interrupt

SYSTEM_PROMPT = (
    "You are the assistant of a small household. Look things up before you answer, ask before you book anything, and "
    "name your sources."
)
BIG_RESULT_TOKENS = 30_000
KINDS = (
    "plain",
    "one call",
    "plain",
    "parallel calls",
    "failing tool",
    "chain",
    "plain",
    "interrupt",
    "plain",
)
BIG = "big results"
FACTS = (
    ("garden", "the apple tree by the shed was planted on 14 March 2019 by Uncle Ferdinand"),
    ("trip", "we fly to Lisbon on 3 September with TAP, flight TP 571, and stay at Casa Amarela"),
    ("billing", "invoice 4471 of Brandt & Sons over 1,284.50 euros is due on 30 June"),
    (
        "family",
        "my sister Mirela lives in Graz and her twins Ana and Luka were born on 2 February 2021",
    ),
    ("car", "the Volvo's licence plate is W-2291K and its next inspection is in November 2026"),
    ("health", "Doctor Okafor changed my dose of levothyroxine to 75 micrograms on 9 January"),
    ("house", "the boiler is a Vaillant of 2014, and the code of the cellar door is 8054"),
    ("school", "Tomas has his piano lesson every Wednesday at 16:30 with Mrs. Lindqvist"),
    ("work", "the project is called Halcyon, and its launch was moved from 12 May to 21 July"),
    ("pets", "Biscuit the dog weighs 11.4 kilograms and must not eat chicken"),
)
_REMARKS = (
    "We spoke about it at the weekend, and everybody had another opinion.",
    "It has been on my list for weeks.",
    "There is no hurry, but I would rather not forget it again.",
    "The neighbours had the same problem last year and solved it in an afternoon.",
    "Write it down somewhere where I can find it, please.",
    "I could not find the paper in which it stands, so I say it from memory.",
)
_MARK = re.compile(r"\[turn (\d+)\]")
_CALL_ID = re.compile(r"turn(\d+)-step(\d+)-call\d+")


@tool
def look_up(topic: str, page: int = 1) -> str:
    """Look a topic up in the household's notes, page by page."""
    rng = Random(f"{topic} {page}")
    lines = [
        f"{topic}, page {page}, note {n}: {rng.choice(_REMARKS)} Reference {rng.randrange(10_000)}."
        for n in range(4)
    ]
    return "\n".join(lines)


@tool
def read_file(path: str, lines: int = 60) -> str:
    """Read a file of the household's computer."""
    return _file(path, lines)


@cache
def _file(path: str, lines: int) -> str:
    rng = Random(path)
    return "\n".join(
        f"{n:05d} {path} sensor {rng.choice('ABCDEF')} pressure {rng.random():.2f} bar"
        for n in range(lines)
    )


def _convert(amount: float, currency: str) -> str:
    """Convert an amount of euros to another currency."""
    raise ToolException(
        f"no rate for {currency!r}: the service answered 503; {amount} euros were not converted"
    )


convert = tool("convert")(_convert)
convert.handle_tool_error = True


@tool
def book(what: str) -> str:
    """Book something, after the user has agreed."""
    return booked(what, interrupt({"question": f"Shall I book {what}?"}))


def booked(what: str, decision: str) -> str:
    return f"{what}: {decision}. Booking number {Random(what).randrange(10**6):06d}."


TOOLS: tuple[BaseTool, ...] = (look_up, read_file, convert, book)
Wanted = tuple[str, Mapping[str, Any]]
"""A call: the name of a tool, and its arguments."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says, and what the model answers.

    With calls, so many times, and at last with words.
    """

    number: int
    kind: str
    words: str
    steps: tuple[tuple[Wanted, ...], ...]
    answer: str
    decision: str = ""

    @property
    def message(self) -> HumanMessage:
        return HumanMessage(f"{self.words} [turn {self.number}]", id=f"turn{self.number}-user")

    def reply(self, step: int) -> dict[str, Any]:
        """The model's answer at a step, as a server sends it."""
        message: dict[str, Any] = {
            "id": f"turn{self.number}-step{step}",
            "role": "assistant",
            "content": self.answer,
        }
        if step < len(self.steps):
            message["content"] = "Let me look that up." if step % 2 else None
            message["tool_calls"] = [
                {
                    "id": f"turn{self.number}-step{step}-call{n}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for n, (name, arguments) in enumerate(self.steps[step])
            ]
        return message


def make_turn(number: int, big_every: int) -> Turn:
    """One turn of the conversation; the same number gives the same turn."""
    rng = Random(number)
    kind = BIG if number % big_every == min(3, big_every - 1) else KINDS[number % len(KINDS)]
    topic, fact = FACTS[number] if number < len(FACTS) else rng.choice(FACTS)
    words = (
        f"About the {topic}: {fact}."
        if number < len(FACTS)
        else f"What did I tell you about the {topic}?"
    )
    words = " ".join([words, *rng.sample(_REMARKS, k=rng.randrange(1, 5))])
    answer = f"About the {topic} I know that {fact}. {rng.choice(_REMARKS)}"
    return Turn(
        number,
        kind,
        words,
        _steps(kind, topic, number),
        answer,
        "yes, please" if kind == "interrupt" else "",
    )


def _steps(kind: str, topic: str, number: int) -> tuple[tuple[Wanted, ...], ...]:
    look: Wanted = ("look_up", {"topic": topic, "page": number})
    calendar: Wanted = ("look_up", {"topic": "calendar"})
    rate: Wanted = ("convert", {"amount": number, "currency": "XAU"})
    asked: Wanted = ("book", {"what": f"a table for {number}"})
    notes: Wanted = ("read_file", {"path": f"/notes/{number}.txt"})
    log: Wanted = ("read_file", {"path": f"/big/{number}.log", "lines": 1_900})
    steps: dict[str, tuple[tuple[Wanted, ...], ...]] = {
        "plain": (),
        "one call": ((look,),),
        "parallel calls": ((look, calendar, notes),),
        "failing tool": ((rate,), (look,)),
        "chain": tuple(
            (("read_file", {"path": f"/log/{number}-{step}.txt", "lines": 40}),)
            for step in range(6)
        ),
        "interrupt": ((look,), (asked, look)) if number % 2 else ((asked,), (look,)),
        BIG: ((log, look),),
    }
    return steps[kind]


@dataclass(frozen=True, slots=True)
class Script:
    """A conversation of so many turns; every so often a turn has a result of 30,000 tokens."""

    length: int
    big_every: int = 25

    @property
    def turns(self) -> list[Turn]:
        return [make_turn(number, self.big_every) for number in range(self.length)]

    def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the model answers to a request; without tools the words at once."""
        number, step = _place(body["messages"])
        turn = make_turn(number, self.big_every)
        return turn.reply(step if body.get("tools") else len(turn.steps))


def _place(messages: list[Mapping[str, Any]]) -> tuple[int, int]:
    """Which turn it is, and how many steps of it are done."""
    for message in reversed(messages):
        if message["role"] == "assistant" and message.get("tool_calls"):
            found = _CALL_ID.fullmatch(message["tool_calls"][-1]["id"])
            assert found, message
            return int(found[1]), int(found[2]) + 1
        if message["role"] == "user":
            return int(_MARK.findall(_text(message["content"]))[-1]), 0
    raise AssertionError("a request without a question")


def _text(content: str | list[Mapping[str, Any]]) -> str:
    return (
        content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
    )


def run_tool(call: ToolCall, decision: str) -> ToolMessage:
    """What a loop without LangGraph does with a call.

    Who is asked before a booking has decided already.
    """
    if call["name"] == book.name:
        return ToolMessage(
            booked(call["args"]["what"], decision), name=book.name, tool_call_id=call["id"]
        )
    result = next(known for known in TOOLS if known.name == call["name"]).invoke(call)
    assert isinstance(result, ToolMessage)
    return result


def named(result: ToolMessage) -> ToolMessage:
    """A result with an id that is the same every time; else LangGraph gives it a random one."""
    return result.model_copy(update={"id": f"{result.tool_call_id}-result"})


def as_stored(message: BaseMessage) -> dict[str, Any]:
    """A message as it can be compared.

    What LangGraph or a server makes anew each time is left out.
    """
    said = message.model_dump(exclude={"response_metadata", "usage_metadata"})
    if isinstance(message, ToolMessage):
        del said["id"]
    if isinstance(message, AIMessage):
        said["finish_reason"] = message.response_metadata.get("finish_reason")
    return said
