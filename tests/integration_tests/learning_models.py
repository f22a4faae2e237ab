"""A chat model that learns from the messages that it is shown as a careful reader would."""

import json
import re
from typing import Any

from langchain_ctxbudget.knowledge.extraction import MESSAGES_HEADING
from tests.integration_tests.summary_models import Scripted, summary

_NEW = re.compile(r"^- (\d+)\. (?:\[[\d-]+\] )?the user \(\w+\): (.*)$", re.MULTILINE)
_COLOUR = re.compile(r"My favourite colour is (\w+)\.")
_LIKES = re.compile(r"I like (\w+)\.")


def asks_to_learn(prompt: str) -> bool:
    return MESSAGES_HEADING in prompt


def new_messages(prompt: str) -> list[tuple[int, str]]:
    """The user's messages that a prompt shows as new, with their numbers."""
    _, _, shown = prompt.rpartition(MESSAGES_HEADING)
    return [(int(number), text) for number, text in _NEW.findall(shown)]


def fact(text: str, number: int, **fields: Any) -> dict[str, Any]:
    return {
        "text": text,
        "category": "preference",
        "confidence": 0.9,
        "messages": [number],
        **fields,
    }


def read(prompt: str) -> str:
    if not asks_to_learn(prompt):
        return summary("They talked.")
    facts = []
    for number, text in new_messages(prompt):
        facts += [
            fact(f"Favourite colour is {colour}", number, slot="favourite colour")
            for colour in _COLOUR.findall(text)
        ]
        facts += [fact(f"Likes {thing}", number) for thing in _LIKES.findall(text)]
    return json.dumps({"facts": facts, "topics": [], "entities": []})


class Reader(Scripted):
    def __init__(self, **fields: Any) -> None:
        super().__init__(**{"answer": read, **fields})

    @property
    def learned(self) -> list[str]:
        return [prompt for prompt in self.read if asks_to_learn(prompt)]
