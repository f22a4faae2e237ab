"""How much of the evidence stands in a prompt, and what the prompt costs."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from quality.data import Question, Turn

RECENT = 6
"""So many last messages make `recent`."""
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Score(NamedTuple):
    """What one prompt is worth; shares from 0 to 1."""

    recall: float
    all: float
    soft: float
    recent: float
    found: int
    dated: int
    tokens: int
    over: bool
    ms: float


class Row(NamedTuple):
    """What the prompts of one system at one budget are worth on average; shares in percent."""

    data: str
    system: str
    budget: int
    questions: int
    recall: float
    all: float
    soft: float
    dated: float | None
    recent: float
    tokens: int
    over: int
    p50: float
    p95: float


@lru_cache(maxsize=1)
def _model() -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o", api_key=SecretStr("not-used"))


def count(messages: Sequence[BaseMessage]) -> int:
    """The tokens of a prompt as `ChatOpenAI` counts them; no system under test is asked."""
    return _model().get_num_tokens_from_messages(list(messages))


def score(question: Question, before: Sequence[Turn], prompt: Sequence[BaseMessage], budget: int, ms: float) -> Score:
    """Look for the evidence in a prompt, word by word, white space aside."""
    text = squeezed("\n".join(str(message.text) for message in prompt))
    evidence = question.evidence
    found = [turn for turn in evidence if squeezed(turn.text) in text]
    parts = [squeezed(part) for turn in evidence for part in SENTENCE.split(turn.text) if part.strip()]
    tokens = count(prompt)
    return Score(
        recall=len(found) / len(evidence),
        all=float(len(found) == len(evidence)),
        soft=sum(len(part) for part in parts if part in text) / max(1, sum(map(len, parts))),
        recent=float(all(squeezed(turn.text) in text for turn in before[-RECENT:])),
        found=len(found),
        dated=sum(bool(turn.time) and turn.time[:10] in text for turn in found),
        tokens=tokens,
        over=tokens > budget,
        ms=ms,
    )


def squeezed(text: str) -> str:
    """A text with single spaces."""
    return " ".join(text.split())


def averaged(data: str, system: str, budget: int, scores: Sequence[Score]) -> Row:
    """The row of a table."""
    found = sum(score.found for score in scores)
    times = sorted(score.ms for score in scores)

    def percent(values: Sequence[float]) -> float:
        return round(100 * statistics.fmean(values), 1)

    return Row(
        data=data,
        system=system,
        budget=budget,
        questions=len(scores),
        recall=percent([score.recall for score in scores]),
        all=percent([score.all for score in scores]),
        soft=percent([score.soft for score in scores]),
        dated=round(100 * sum(score.dated for score in scores) / found, 1) if found else None,
        recent=percent([score.recent for score in scores]),
        tokens=round(statistics.fmean(score.tokens for score in scores)),
        over=sum(score.over for score in scores),
        p50=round(statistics.median(times), 1),
        p95=round(times[math.ceil(0.95 * len(times)) - 1], 1),
    )
