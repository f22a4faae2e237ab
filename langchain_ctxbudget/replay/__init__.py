"""Replays conversations with several strategies, and checks what each keeps and costs.

A turn is everything from a message of the user up to the next one. Before every answer in it a
prompt is made, as an application would have made it: from the messages before the turn, and from
those that the turn has so far. Nothing is sent.
"""

from langchain_ctxbudget.replay.check import Case, CheckedConversation, CheckResult, check
from langchain_ctxbudget.replay.contenders import (
    DEFAULT_STRATEGIES,
    NAMES,
    Strategy,
    contender,
)
from langchain_ctxbudget.replay.result import Loss, ReplayResult, Sent, Track, Turn
from langchain_ctxbudget.replay.running import replay, require_usable
from langchain_ctxbudget.replay.tariff import Tariff
from langchain_ctxbudget.replay.turns import split_turns

__all__ = [
    "DEFAULT_STRATEGIES",
    "NAMES",
    "Case",
    "CheckResult",
    "CheckedConversation",
    "Loss",
    "ReplayResult",
    "Sent",
    "Strategy",
    "Tariff",
    "Track",
    "Turn",
    "check",
    "contender",
    "replay",
    "require_usable",
    "split_turns",
]
