"""A conversation to try things on, and the demo that everybody shows of it.

`open_demo` is the demo as the command, the dashboard, notebooks and the README show it: one budget,
the same settings, and prompts for the last turns, so that all of them tell the same numbers.
"""

from langchain_ctxbudget.demo.conversation import (
    DEMO_EVIDENCE_IDS,
    DEMO_FACTS,
    DEMO_QUESTION,
    DEMO_SETTINGS,
    DEMO_SYSTEM_PROMPT,
    DEMO_TITLE,
    demo_messages,
)
from langchain_ctxbudget.demo.running import (
    DEMO_BUDGET,
    DEMO_SESSION,
    DEMO_USER,
    Cost,
    Evidence,
    SideBySide,
    Trimmed,
    open_demo,
    side_by_side,
)

__all__ = [
    "DEMO_BUDGET",
    "DEMO_EVIDENCE_IDS",
    "DEMO_FACTS",
    "DEMO_QUESTION",
    "DEMO_SESSION",
    "DEMO_SETTINGS",
    "DEMO_SYSTEM_PROMPT",
    "DEMO_TITLE",
    "DEMO_USER",
    "Cost",
    "Evidence",
    "SideBySide",
    "Trimmed",
    "demo_messages",
    "open_demo",
    "side_by_side",
]
