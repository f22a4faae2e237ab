"""A conversation to try things on: six weeks in which a tool library replaces its index cards.

Twelve sessions between 24 August and 5 October 2026, one user (Maya) and an assistant, stored as
OpenAI messages with `id` and `created_at`. The people and places are invented. What `DEMO_QUESTION`
asks for was said in the first session and never again.
"""

import json
from importlib.resources import files
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

_HERE = files(__package__)
_known: dict[str, Any] = json.loads(_HERE.joinpath("known.json").read_text(encoding="utf-8"))
DEMO_TITLE: str = _known["title"]
DEMO_SYSTEM_PROMPT: str = _known["system_prompt"]
DEMO_QUESTION: str = _known["question"]
DEMO_EVIDENCE_IDS: tuple[str, ...] = tuple(_known["evidence_ids"])
"""The messages that hold the answer: supplier and price, then the end of the offer."""
DEMO_SETTINGS: dict[str, Any] = {
    name: _known[name] for name in ("preferences", "topics", "entities")
}
"""The topics and entities that the conversation is about, and how its user likes answers."""
DEMO_FACTS: tuple[str, ...] = tuple(_known["facts"])


def demo_messages() -> list[BaseMessage]:
    """Returns the demo conversation, oldest message first; every message has an id and a time.

    Example:
        ```python
        pipeline.add_messages(demo_messages(), user_id="maya", conversation_id="tool-library")
        ```
    """
    said = _HERE.joinpath("conversation.jsonl").read_text(encoding="utf-8")
    return convert_to_messages([json.loads(line) for line in said.splitlines()])
