"""How much of the evidence stands in a prompt, and what the prompt costs."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from langchain_ctxbudget.messages import STOP_WORDS
from quality.data import Question, Turn

RECENT = 6
"""So many last messages make `recent`."""
QUESTION = 30
SENTENCE_OF_REPLY = 20
NEWEST = 8
"""Characters of a question that asks something, and of a sentence that replies; the newest turns
are not looked at."""
LONG_WORD = 4
NUMBER = re.compile(r"\d")
WORD = re.compile(r"[^\W_]{3,}")
COMMON = STOP_WORDS
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Score(NamedTuple):
    """What one prompt is worth; shares from 0 to 1."""

    recall: float
    all: float
    soft: float
    touched: float
    words: float | None
    recent: float
    found: int
    dated: int
    quoted: int
    replied: int
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
    touched: float
    words: float | None
    replied: float | None
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


def score(
    question: Question,
    before: Sequence[Turn],
    prompt: Sequence[BaseMessage],
    budget: int,
    ms: float,
) -> Score:
    """Look for the evidence in a prompt, word by word, white space aside."""
    text = " ".join(" ".join(str(message.text) for message in prompt).split())
    evidence = question.evidence
    found = [turn for turn in evidence if squeezed(turn.text) in text]
    parts = [part for turn in evidence for part in _sentences(turn)]
    tokens = count(prompt)
    older = pairwise(before[: 1 - NEWEST])
    asked = [(turn, reply) for turn, reply in older if _asks(turn, reply, text)]
    touched = [turn for turn in evidence if _is_touched(turn, text)]
    return Score(
        recall=len(found) / len(evidence),
        all=float(len(found) == len(evidence)),
        soft=sum(len(part) for part in parts if part in text) / max(1, sum(map(len, parts))),
        touched=len(touched) / len(evidence),
        words=_share_of_words(question, text),
        recent=float(all(squeezed(turn.text) in text for turn in before[-RECENT:])),
        found=len(found),
        dated=sum(bool(turn.time) and turn.time[:10] in text for turn in found),
        quoted=len(asked),
        replied=sum(_replies(turn, reply, text) for turn, reply in asked),
        tokens=tokens,
        over=tokens > budget,
        ms=ms,
    )


@lru_cache(maxsize=50_000)
def squeezed(text: str) -> str:
    """A text with single spaces."""
    return " ".join(text.split())


def _sentences(turn: Turn) -> list[str]:
    return [squeezed(part) for part in SENTENCE.split(turn.text) if part.strip()]


def _is_touched(turn: Turn, prompt: str) -> bool:
    """Tell whether a sentence of a turn stands in a prompt, or all of it."""
    if squeezed(turn.text) in prompt:
        return True
    return any(len(part) > SENTENCE_OF_REPLY and part in prompt for part in _sentences(turn))


def _replies(question: Turn, reply: Turn, prompt: str) -> bool:
    """Tell whether a sentence of a reply stands in a prompt that may answer the question.

    It shares a word of four letters or more with the question, or has a number.
    """
    asked = {word for word in _content_words(question.text) if len(word) >= LONG_WORD}
    for part in _sentences(reply):
        if len(part) <= SENTENCE_OF_REPLY or part not in prompt:
            continue
        if asked & _content_words(part) or NUMBER.search(part):
            return True
    return False


def _share_of_words(question: Question, prompt: str) -> float | None:
    """The share of the answer's words, besides the question's, that a prompt has; None without."""
    wanted = _content_words(question.answer) - _content_words(question.text)
    if not wanted:
        return None
    return len(wanted & _content_words(prompt)) / len(wanted)


def _content_words(text: str) -> set[str]:
    return {word for word in WORD.findall(text.lower()) if word not in COMMON}


def _asks(turn: Turn, reply: Turn, prompt: str) -> bool:
    """Tell whether a turn stands in a prompt and is a question to somebody else."""
    text = squeezed(turn.text)
    return len(text) > QUESTION and "?" in text and turn.speaker != reply.speaker and text in prompt


def averaged(data: str, system: str, budget: int, scores: Sequence[Score]) -> Row:
    """The row of a table."""
    found, quoted = (sum(getattr(score, name) for score in scores) for name in ("found", "quoted"))
    times = sorted(score.ms for score in scores)

    words = [score.words for score in scores if score.words is not None]

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
        touched=percent([score.touched for score in scores]),
        words=percent(words) if words else None,
        replied=round(100 * sum(score.replied for score in scores) / quoted, 1) if quoted else None,
        dated=round(100 * sum(score.dated for score in scores) / found, 1) if found else None,
        recent=percent([score.recent for score in scores]),
        tokens=round(statistics.fmean(score.tokens for score in scores)),
        over=sum(score.over for score in scores),
        p50=round(statistics.median(times), 1),
        p95=round(times[math.ceil(0.95 * len(times)) - 1], 1),
    )
