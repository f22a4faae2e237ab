"""A conversation to try things on: six weeks in which a tool library replaces its index cards.

Twelve sessions between 24 August and 5 October 2026, one user (Maya) and an assistant, stored as OpenAI
messages with `id` and `created_at`. The people and places are invented. What `DEMO_QUESTION` asks for was
said in the first session and never again.
"""

from __future__ import annotations

import json
from importlib.resources import files

from langchain_core.messages import BaseMessage, convert_to_messages

DEMO_SYSTEM_PROMPT = (
    "You are the thinking partner of Maya, who coordinates the Harrow Lane Tool Library and builds its lending "
    "system. Answer from the conversation and from what you are given; say so when the answer is in neither."
)

DEMO_QUESTION = "Which supplier did we pick for the tool labels, at what price, and until when is that offer valid?"

DEMO_EVIDENCE_IDS = ("demo-017", "demo-019")
"""The messages that hold the answer: supplier and price, then the end of the offer."""

DEMO_PREFERENCES = (
    "Short answers: one recommendation with its reason, no menu of options.",
    "No exclamation marks and no emoji.",
    "Python with type hints; nothing planned for a Thursday.",
)

DEMO_TOPICS: tuple[dict[str, str | tuple[str, ...]], ...] = (
    {
        "label": "Tool labels",
        "aliases": ("labels", "label", "QR code", "numbering"),
        "context": (
            "Every lendable tool gets a metal label with a QR code that survives oil and rain. "
            "The numbering had to be final before ordering: category codes such as DR-014 were given up on "
            "28 September for plain four-digit numbers, because people stumbled over the letters and the hyphen. "
            "The numbers run from 1001 to 1644; the labels are still to be ordered."
        ),
    },
    {
        "label": "Lending rules",
        "aliases": ("late fees", "late fee", "deposit", "reservations", "reservation", "loan period"),
        "context": (
            "Seven days, one renewal if nobody is waiting, five tools at once, reservations up to 30 days ahead. "
            "Powered tools stay a day with the steward after every return. "
            "The board rejected late fees and deposits on 8 September: whoever is more than 14 days late is paused "
            "until the tool is back, and reminders go out at nine in the morning."
        ),
    },
    {
        "label": "Launch",
        "aliases": ("opening day", "launch date", "rota"),
        "context": (
            "The new system opens on Saturday 17 October, two weeks later than first promised, because 38 powered "
            "tools had no valid safety test. Three Tuesday evenings of testing, shared by Gerald and Tomasz, close "
            "the gap. The announcement goes to 375 members by mail and to 37 on paper."
        ),
    },
)

DEMO_ENTITIES: tuple[dict[str, str | tuple[str, ...]], ...] = (
    {
        "name": "Gerald Pugh",
        "type": "person",
        "aliases": ("Gerald",),
        "context": (
            "The workshop steward, who has inspected every returned tool since 2014 and is on the board. He was "
            "attached to the index cards, tried the kiosk on 26 September and came round to it. He spoke against "
            "late fees, and gives a short speech on opening day."
        ),
    },
    {
        "name": "Nadia Rahman",
        "type": "person",
        "aliases": ("Nadia", "treasurer"),
        "context": (
            "The treasurer, who reads every invoice and wants the yearly figure first. The server costs £78 a year, "
            "the mails nothing. On opening day she hands out the membership cards and PINs."
        ),
    },
    {
        "name": "Kiosk",
        "type": "system",
        "aliases": ("kiosk", "Raspberry Pi", "touchscreen"),
        "context": (
            "The self-service screen by the door: a Raspberry Pi with a spare touchscreen and a handheld scanner, "
            "£120 in all, chosen over a tablet on the advice of Tomasz. Members identify themselves with a "
            "five-digit number and a PIN. When the internet is down, the desk goes back to paper for the day."
        ),
    },
    {
        "name": "Priya Menon",
        "type": "person",
        "aliases": ("Priya", "the council", "grants officer"),
        "context": (
            "The council's grants officer for the digital inclusion grant of £4,800, which is to be spent by "
            "30 November; the final report is due on 11 December. She liked the interim report. Still to ask her: "
            "whether the code may be published under a permissive licence."
        ),
    },
)


def demo_messages() -> list[BaseMessage]:
    """The demo conversation, oldest message first; every message has an id and a time.

    Example:
        ```python
        pipeline.add_messages(demo_messages(), user_id="maya", conversation_id="tool-library")
        ```
    """
    text = files(__name__).joinpath("conversation.jsonl").read_text(encoding="utf-8")
    return convert_to_messages([json.loads(line) for line in text.splitlines()])
