"""Conversations with questions whose evidence is known: read from JSON lines, or generated."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

SYNTHETIC = "synthetic"
T = TypeVar("T")


class Turn(NamedTuple):
    """One message of a conversation."""

    id: str
    time: str
    """ISO 8601; empty where unknown."""
    speaker: str
    text: str
    human: bool
    """Whether it is the first speaker's."""

    @property
    def line(self) -> str:
        """The text after its speaker."""
        return f"{self.speaker}: {self.text}"

    @property
    def date(self) -> str:
        """Its day; empty where unknown."""
        return self.time[:10]

    @property
    def dated(self) -> str:
        """The line after its date."""
        return f"{self.date} {self.line}".lstrip()

    @property
    def message(self) -> BaseMessage:
        """The first speaker is the human, everyone else the assistant."""
        return (HumanMessage if self.human else AIMessage)(
            self.text,
            id=self.id,
            name=self.speaker,
            additional_kwargs={"created_at": self.time} if self.time else {},
        )


class Question(NamedTuple):
    """What is asked after the first `history` turns."""

    text: str
    history: int
    evidence: tuple[Turn, ...]
    answer: str = ""


class Conversation(NamedTuple):
    """Turns in order of time, questions in the order in which they are asked."""

    id: str
    turns: list[Turn]
    questions: list[Question]


class DataSet(NamedTuple):
    """Conversations of one kind."""

    name: str
    conversations: list[Conversation]


def read(path: Path, *, limit: int | None, skip: frozenset[str]) -> DataSet:
    """A file, with at most `limit` questions of each conversation, spread evenly.

    Without `skip`'s categories.
    """
    opened = gzip.open if path.name.endswith(".gz") else open
    conversations = []
    with opened(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            raw = json.loads(line)
            turns = [
                Turn(
                    turn["id"],
                    turn["time"] or "",
                    turn["speaker"],
                    turn["text"],
                    turn["speaker"] == first,
                )
                for turns in [raw.get("turns", [])]
                for first in [turns[0]["speaker"] if turns else ""]
                for turn in turns
            ]
            by_id = {turn.id: turn for turn in turns}
            asked = [
                question
                for question in raw.get("questions", [])
                if question["category"] not in skip
            ]
            questions = [
                Question(
                    question["question"],
                    question["history"],
                    tuple(by_id[key] for key in question["evidence"]),
                    str(question.get("answer") or ""),
                )
                for question in spread(asked, limit)
                if question["evidence"]
            ]
            if questions:
                conversations.append(
                    Conversation(
                        raw["id"], turns, sorted(questions, key=lambda asked: asked.history)
                    )
                )
    return DataSet(path.name.split(".")[0], conversations)


def spread(items: list[T], limit: int | None) -> list[T]:
    """At most so many of them, at equal distances."""
    if not limit or len(items) <= limit:
        return items
    return [items[number * len(items) // limit] for number in range(limit)]


OBJECTS = [
    "ladder",
    "lantern",
    "kettle",
    "compass",
    "violin",
    "passport",
    "suitcase",
    "telescope",
    "umbrella",
    "typewriter",
    "blanket",
    "thermos",
]
COLOURS = [
    "red",
    "green",
    "grey",
    "yellow",
    "copper",
    "striped",
    "wooden",
    "broken",
    "folding",
    "borrowed",
]
PLACES = [
    "attic",
    "garden shed",
    "hall cupboard",
    "garage",
    "office drawer",
    "summer house",
    "laundry room",
    "cellar",
]
PEOPLE = ["Ines", "Tomas", "Wanda", "Ravi", "Greta", "Olek", "Noor", "Bruno"]
TOPICS = [
    "weather",
    "football",
    "dinner",
    "neighbours",
    "traffic",
    "music",
    "holidays",
    "work",
    "gardening",
    "films",
    "running",
    "coffee",
]
REMARKS = [
    "I keep thinking about {a} and {b}, there is so much to say about both.",
    "Honestly, {a} has been on my mind all week, more than {b}.",
    "Let us leave {a} for another day, I would rather hear about {b}.",
    "{a}? Nothing new there, but {b} is getting interesting.",
]


def generated(*, conversations: int, sessions: int, limit: int | None, seed: int = 1) -> DataSet:
    """Two people who chat, and mention in passing where things are."""
    return DataSet(
        SYNTHETIC,
        [
            _chat(random.Random(seed + number), number, sessions, limit)
            for number in range(conversations)
        ],
    )


def _chat(chosen: random.Random, number: int, sessions: int, limit: int | None) -> Conversation:
    speakers = chosen.sample(PEOPLE, 2)
    things = [f"{colour} {thing}" for colour in COLOURS for thing in OBJECTS]
    chosen.shuffle(things)
    turns: list[Turn] = []
    told: list[tuple[str, Turn]] = []
    for session, thing in zip(range(sessions), things, strict=False):
        day = date(2024, 1, 1) + timedelta(days=3 * session)
        place_of_fact = chosen.randrange(12)
        for place in range(12):
            speaker = speakers[place % 2]
            text = " ".join(_remarks(chosen))
            if place == place_of_fact:
                text += f" By the way, {chosen.choice(PEOPLE)} put the {thing} into the {chosen.choice(PLACES)}."
            turn = Turn(
                f"{number}-{session}-{place}",
                f"{day}T09:00:00",
                speaker,
                text,
                speaker == speakers[0],
            )
            turns.append(turn)
            if place == place_of_fact:
                told.append((thing, turn))
    one = [Question(f"Where is the {thing} now?", len(turns), (turn,)) for thing, turn in told]
    two = [
        Question(f"Who moved the {a} and who the {b}?", len(turns), (turn, other))
        for (a, turn), (b, other) in pairwise(told)
    ]
    return Conversation(f"{SYNTHETIC}-{number}", turns, spread([*one, *two], limit))


def _remarks(chosen: random.Random) -> Iterator[str]:
    for _ in range(chosen.randint(1, 3)):
        a, b = chosen.sample(TOPICS, 2)
        yield chosen.choice(REMARKS).format(a=a, b=b)
