"""How important a text is, by its look alone (seed 000, `scoreMessageImportance`), and what kind it is."""

from __future__ import annotations

import math
import re
from enum import StrEnum

from langchain_ctxbudget.core.text import word_count


class Kind(StrEnum):
    """What a sentence does in a conversation."""

    DECISION = "decision"
    OPEN = "open"
    PLAIN = "plain"


_DECISION = re.compile(
    r"\b(decided|decision|let's go with|we'll use|we will use|agreed|final|conclusion|solution|answer|resolved"
    r"|settled on|going with|we picked|chose|approved)\b",
    re.IGNORECASE,
)
# Narrower than the words that make a text important: "answer" and "final" alone decide nothing.
_DECIDES = re.compile(
    r"\b(?:(?:decided|agreed|settled|reversed)[:,]|(?:decided|agreed|settled|opted) (?:to|on|against|that|for)"
    r"|(?:we|I|they|board|team|is|are|was|were|been|have|has|'ve) (?:(?:have|has|all|already|now|finally) )*"
    r"(?:decided|agreed|chose|chosen|picked|approved|rejected|reversed|settled)"
    r"|(?:let's|we'll|we will|I'll|I will) (?:go with|use|take)|go(?:ing)? with (?:that|it|the)"
    r"|(?:the|my|our|final) decision)(?!\w)",
    re.IGNORECASE,
)
_PROBLEM = re.compile(
    r"\b(error|bug|issue|problem|failed|broken|fix|crash|exception|TypeError|undefined)\b", re.IGNORECASE
)
_OPEN = re.compile(
    r"\[OPEN\]|^open:|\b(open question|still open|still need to (?:decide|find out|figure out|check)|to be decided|tbd"
    r"|not sure yet|undecided|need to decide|waiting (?:for|on) (?:an answer|a reply|word)|unclear (?:whether|if))\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d")
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w'-]+")
_LIST_ITEM = re.compile(r"^[^\S\n]*[-*•]\s", re.MULTILINE)
# One character stands for a file's or a function's name: matching all of it takes quadratic time on long runs.
_CODE = re.compile(r"`[^`\n]+`|[\w/-]\.(?:py|ts|js|sql|md|json|ya?ml|toml|sh|html|css|rs|go)\b|\w\(\)")
_QUESTION_MARK = re.compile("[?？؟]")  # noqa: RUF001 - full-width and Arabic


def kind_of(sentence: str) -> Kind:
    """Whether a sentence decides something, leaves something open, or neither."""
    if _OPEN.search(sentence):
        return Kind.OPEN
    return Kind.DECISION if _DECIDES.search(sentence) and not _QUESTION_MARK.search(sentence[-1:]) else Kind.PLAIN


def importance(text: str, *, from_user: bool) -> float:
    """The seed's score of a text, without its terms for place in the conversation.

    Numbers, names and code artifacts count as well: they are what a summary must not lose.

    Args:
        text: a message or a sentence.
        from_user: the user's own words set the context and count a little more.
    """
    score = min(25.0, math.log2(word_count(text) + 1) * 5)
    score += text.count("```") / 2 * 15
    score += min(15, len(_QUESTION_MARK.findall(text)) * 5)
    score += len(_DECISION.findall(text)) * 10
    score += 10 if _OPEN.search(text) else 0
    score += min(15, len(_PROBLEM.findall(text)) * 5)
    score += min(10, len(_LIST_ITEM.findall(text)) * 2)
    score += 8 if _NUMBER.search(text) else 0
    score += min(10, len(_NAME.findall(text)) * 4)
    score += min(8, len(_CODE.findall(text)) * 4)
    return score + (5 if from_user else 0)
