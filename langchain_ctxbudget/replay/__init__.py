"""Goes through a conversation turn by turn with several strategies, and compares them."""

from langchain_ctxbudget.replay.replaying import DEFAULT_STRATEGIES, NAMES, Strategy, replay, split_turns
from langchain_ctxbudget.replay.result import ReplayResult, Track, Turn

__all__ = [
    "DEFAULT_STRATEGIES", "NAMES", "ReplayResult", "Strategy", "Track", "Turn", "replay", "split_turns",
]  # fmt: skip
