"""The importance of a text by its look alone (seed 000, `scoreMessageImportance`), and its kind."""

from __future__ import annotations

import math
import re
from enum import StrEnum

from langchain_ctxbudget.messages.text import word_count


class Kind(StrEnum):
    """The part that a sentence plays in a conversation."""

    DECISION = "decision"
    OPEN = "open"
    PLAIN = "plain"


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _parts(joined: str) -> list[str]:
    return joined.split("|")


_DECISION = _words(
    r"\b(decided|decision|let's go with|we'll use|we will use|agreed|final|conclusion|solution|answer|resolved"
    r"|settled on|going with|we picked|chose|approved)\b"
)
# Narrower than the words that make a text important: "answer" and "final" alone decide nothing.
_DECIDES = _words(
    r"\b(?:(?:decided|agreed|settled|reversed|voted)[:,]|^(?:final|recorded|noted|confirmed|decision|resolved):"
    r"|(?:decided|agreed|settled|opted|voted) (?:to|on|against|that|for)"
    r"|(?:we|I|they|board|team|is|are|was|were|been|have|has|'ve) (?:(?:have|has|all|already|now|finally) )*"
    r"(?:decided|agreed|chose|chosen|picked|approved|rejected|reversed|settled)"
    r"|(?:let's|we'll|we will|I'll|I will) (?:go with|use|take)|go(?:ing)? with (?:that|it|the)"
    r"|(?:the|my|our|final) decision|as final|^(?:OK, |so, )?new (?:\w+ ){0,2}(?:date|plan|name|price|version|rule):"
    r")(?!\w)|^decided\W*$"
)
# "You should not order before the number is settled."
_CONDITION = _words(
    r"\b(?:until|unless|if|whether|before (?:the|it|this|that|we|you|they)|should|could|might|may)"
    r" (?:[^\s,;:]+ ){0,5}$"
)
# "Polyester it is.", but not "That is how it is."
_IT_IS = _words(
    r"^(?!(?:\S+ ){0,2}(?:what|how|where|who|there|here|as|than|know|think|though|if|so|then|yes|no|of|maybe|that"
    r"|this) )(?:[^\s.,:]+ ){1,3}it is(?:[.,!]|$)"
)
_PROBLEM = _words(
    r"\b(errors?|bugs?|issues?|problems?|fail(?:s|ed|ing|ures?)?|broken|fix(?:ed|es)?|crash(?:ed|es)?|exception"
    r"|TypeError|undefined)\b"
)
_OPEN = _words(
    r"\[OPEN\]|^open(?: questions?| points?| issues?)?:|\b(?:open question|still open|on the open list"
    r"|(?:as|it|that|this|stays?|remains?|left) open(?! to\b)(?=\W*(?:$|[.:;,]))"
    r"|still (?:need|have) to (?:decide|find out|figure out|check|choose|agree)|to be decided|tbd|not sure yet"
    r"|undecided|unresolved|(?:need|have) to decide|waiting (?:for|on) (?:an answer|a reply|word)"
    r"|unclear (?:whether|if)|(?:not|\w+n't) (?:yet )?(?:been )?(?:decided|settled|agreed)|no decision(?: yet)?\b)\b"
)
# What every match of a pattern has a part of: looking for a part is ten times as fast as looking for the pattern.
_DECIDES_PARTS = _parts(
    "decid|decision|agreed|settled|revers|voted|final|recorded:|noted:|confirmed:|resolved:|opted|chose|picked"
    "|approved|rejected|go with|going with|let's|'ll|will |new "
)
_OPEN_PARTS = _parts(
    "open|decide|still |tbd|not sure yet|unresolved|waiting |unclear |decision|not settled|not agreed|n't |not been"
    "|not yet"
)
# Sentences about open questions that open none: "What is still open?", "That closes the last open question."
_ASKS_WHAT_IS_OPEN = _words(
    r"^(?:\w+, |and |so )?(?:what|which|is anything|are any)\b.{0,40}\b(?:open|undecided|unresolved)\W*$"
    r"|\b(?:clos|answer|resolv|settl|solv)\w* (?:\w+ ){0,4}open question"
    r"|\b(?:no longer|no more|not|isn't|no) (?:an? )?(?:still )?open\b"
)
_FILLER = _words(
    r"^(?:(?:hi|hello|hey|dear|thanks|thank you|cheers|sure|of course|great|perfect|wonderful|awesome|excellent|nice"
    r"|good (?:morning|afternoon|evening|night|question|point|idea|luck)|sounds (?:good|great)|you're welcome"
    r"|no problem|(?:I'm|I am) (?:happy|glad|here|sorry|ready)|happy to help|glad (?:to|you)|let me know|feel free"
    r"|I hope|hope (?:this|that)|absolutely|certainly|understood|got it|no worries|have a|see you|talk to you"
    r"|here(?:'s| is| are|'re) (?:the|a|an|your|some|what)"
    r"|let me (?:check|look|see|know|think|take|have|start)|I'll (?:check|look|have a look|take a look|start|now)"
    r"|is there anything|anything else|how are you|how's it going|as an AI)\b|haha|lol\b)"
)
_NUMBER = re.compile(r"\d")
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w'-]+")
_LIST_ITEM = re.compile(r"^[^\S\n]*[-*•]\s", re.MULTILINE)
# One character stands for a file's or a function's name: matching all of it takes quadratic time on long runs.
_CODE = re.compile(r"`[^`\n]+`|[\w/-]\.(?:py|ts|js|sql|md|json|ya?ml|toml|sh|html|css|rs|go)\b|\w\(\)")
_CLOSING = "\"'”’»)] "  # noqa: RUF001 - what may stand after a sentence's mark
_QUESTION_MARK = re.compile("[?？؟]")  # noqa: RUF001 - full-width and Arabic


def kind_of(sentence: str) -> Kind:
    """Returns the kind of a sentence: it decides something, leaves something open, or neither."""
    if _leaves_open(sentence):
        return Kind.PLAIN if _ASKS_WHAT_IS_OPEN.search(sentence) else Kind.OPEN
    if is_question(sentence):
        return Kind.PLAIN
    decides = _DECIDES.search(sentence) if _has_any(sentence, _DECIDES_PARTS) else None
    if decides and _CONDITION.search(sentence[max(0, decides.start() - 80) : decides.start()]):
        return Kind.PLAIN
    return Kind.DECISION if decides or _IT_IS.search(sentence) else Kind.PLAIN


def _leaves_open(text: str) -> bool:
    return _has_any(text, _OPEN_PARTS) and bool(_OPEN.search(text))


def _has_any(text: str, parts: list[str]) -> bool:
    lowered = text.lower()
    return any(part in lowered for part in parts)


def is_question(sentence: str) -> bool:
    """Returns True if a sentence ends in a question mark of any script."""
    return bool(_QUESTION_MARK.search(sentence.rstrip(_CLOSING)[-1:]))


def is_filler(sentence: str) -> bool:
    """Returns True if a sentence is a greeting, thanks or talk about the talk, and says nothing else."""
    return bool(_FILLER.match(sentence)) and not any(
        pattern.search(sentence) for pattern in (_NUMBER, _NAME, _CODE, _PROBLEM)
    )


def importance(text: str, *, from_user: bool, words: int | None = None) -> float:
    """Returns the seed's score of a text, without its terms for place in the conversation.

    Numbers, names and code artifacts count as well: they are what a summary must not lose.
    """
    score = min(25.0, math.log2((word_count(text) if words is None else words) + 1) * 5)
    score += text.count("```") / 2 * 15
    score += min(15, len(_QUESTION_MARK.findall(text)) * 5)
    score += len(_DECISION.findall(text)) * 10
    score += 10 if _leaves_open(text) else 0
    score += min(15, len(_PROBLEM.findall(text)) * 5)
    score += min(10, len(_LIST_ITEM.findall(text)) * 2)
    score += 8 if _NUMBER.search(text) else 0
    score += min(10, len(_NAME.findall(text)) * 4)
    score += min(8, len(_CODE.findall(text)) * 4)
    return score + (5 if from_user else 0)
