"""A scripted conversation of an agent with tools: what is said, and what the model answers.

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
    "You are the assistant of a small household. Look things up before you answer, ask before you "
    "book anything, and name your sources."
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
    lines = []
    for number in range(4):
        remark = rng.choice(_REMARKS)
        reference = rng.randrange(10_000)
        lines.append(f"{topic}, page {page}, note {number}: {remark} Reference {reference}.")
    return "\n".join(lines)


@tool
def read_file(path: str, lines: int = 60) -> str:
    """Read a file of the household's computer."""
    return _file(path, lines)


@cache
def _file(path: str, lines: int) -> str:
    rng = Random(path)
    records = []
    for number in range(lines):
        sensor = rng.choice("ABCDEF")
        pressure = rng.random()
        records.append(f"{number:05d} {path} sensor {sensor} pressure {pressure:.2f} bar")
    return "\n".join(records)


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
WantedCall = tuple[str, Mapping[str, Any]]
"""The name of a tool, and its arguments."""
Steps = tuple[tuple[WantedCall, ...], ...]
"""What an agent calls at once, step by step."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says, and what the model answers: some times with calls, at last with words."""

    number: int
    kind: str
    words: str
    steps: Steps
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
                self.call(step, place, name, arguments)
                for place, (name, arguments) in enumerate(self.steps[step])
            ]
        return message

    def call(
        self, step: int, place: int, name: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        function = {"name": name, "arguments": json.dumps(arguments)}
        call_id = f"turn{self.number}-step{step}-call{place}"
        return {"id": call_id, "type": "function", "function": function}


def make_turn(number: int, big_every: int) -> Turn:
    """One turn of the conversation; the same number gives the same turn."""
    rng = Random(number)
    kind = KINDS[number % len(KINDS)]
    if number % big_every == min(3, big_every - 1):
        kind = BIG
    if number < len(FACTS):
        topic, fact = FACTS[number]
        words = f"About the {topic}: {fact}."
    else:
        topic, fact = rng.choice(FACTS)
        words = f"What did I tell you about the {topic}?"
    remarks = rng.sample(_REMARKS, k=rng.randrange(1, 5))
    return Turn(
        number=number,
        kind=kind,
        words=" ".join([words, *remarks]),
        steps=_steps(kind, topic, number),
        answer=f"About the {topic} I know that {fact}. {rng.choice(_REMARKS)}",
        decision="yes, please" if kind == "interrupt" else "",
    )


def _steps(kind: str, topic: str, number: int) -> Steps:
    look: WantedCall = ("look_up", {"topic": topic, "page": number})
    calendar: WantedCall = ("look_up", {"topic": "calendar"})
    rate: WantedCall = ("convert", {"amount": number, "currency": "XAU"})
    table: WantedCall = ("book", {"what": f"a table for {number}"})
    notes: WantedCall = ("read_file", {"path": f"/notes/{number}.txt"})
    big_log: WantedCall = ("read_file", {"path": f"/big/{number}.log", "lines": 1_900})
    logs: list[WantedCall] = [
        ("read_file", {"path": f"/log/{number}-{step}.txt", "lines": 40}) for step in range(6)
    ]
    interrupted: Steps = ((table,), (look,))
    if number % 2:
        interrupted = ((look,), (table, look))
    steps: dict[str, Steps] = {
        "plain": (),
        "one call": ((look,),),
        "parallel calls": ((look, calendar, notes),),
        "failing tool": ((rate,), (look,)),
        "chain": tuple((log,) for log in logs),
        "interrupt": interrupted,
        BIG: ((big_log, look),),
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
        if not body.get("tools"):
            step = len(turn.steps)
        return turn.reply(step)


def _place(messages: list[Mapping[str, Any]]) -> tuple[int, int]:
    """Which turn it is, and how many steps of it are done."""
    for message in reversed(messages):
        if message["role"] == "assistant" and message.get("tool_calls"):
            match = _CALL_ID.fullmatch(message["tool_calls"][-1]["id"])
            assert match, message
            return int(match[1]), int(match[2]) + 1
        if message["role"] == "user":
            marks = _MARK.findall(_text(message["content"]))
            return int(marks[-1]), 0
    raise AssertionError("a request without a question")


def _text(content: str | list[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def run_tool(call: ToolCall, decision: str) -> ToolMessage:
    """What a loop without LangGraph does with a call.

    Who is asked before a booking has decided already.
    """
    if call["name"] == book.name:
        text = booked(call["args"]["what"], decision)
        return ToolMessage(text, name=book.name, tool_call_id=call["id"])
    [wanted] = [tool for tool in TOOLS if tool.name == call["name"]]
    result = wanted.invoke(call)
    assert isinstance(result, ToolMessage)
    return result


def named(result: ToolMessage) -> ToolMessage:
    """A result with an id that is the same every time; else LangGraph gives it a random one."""
    return result.model_copy(update={"id": f"{result.tool_call_id}-result"})


def as_stored(message: BaseMessage) -> dict[str, Any]:
    """A message as it can be compared.

    What LangGraph or a server makes anew each time is left out.
    """
    fields = message.model_dump(exclude={"response_metadata", "usage_metadata"})
    if isinstance(message, ToolMessage):
        del fields["id"]
    if isinstance(message, AIMessage):
        fields["finish_reason"] = message.response_metadata.get("finish_reason")
    return fields
