"""Sentences that take back the rule that was said last, without naming what it is about."""

import re

from langchain_ctxbudget.messages import one_line, vocabulary

_WORDS = vocabulary("sentences", "liftings")
_TAKES_IT_BACK = rf"(?:{_WORDS['verb']} {_WORDS['pointer']}|take {_WORDS['pointer']} back)"
_IT_HAS_ENDED = rf"{_WORDS['pointer']} {_WORDS['end_of_it']}"
_IN_ENGLISH = rf"{_WORDS['opening']}(?:{_TAKES_IT_BACK}|{_IT_HAS_ENDED}){_WORDS['closing']}"
_TAKES_BACK_LAST = re.compile(rf"{_IN_ENGLISH}|(?:{_WORDS['other_languages']})[.!]*", re.IGNORECASE)
_MOST_CHARACTERS = 120
"""A longer sentence does more than take something back."""


def takes_back_last_rule(sentence: str) -> bool:
    """Tells whether a sentence takes back the last rule, whatever that is about.

    Example:
        >>> takes_back_last_rule("I take that rule back.")
        True
        >>> takes_back_last_rule("I take back the rule about emoji.")
        False
    """
    words = one_line(sentence)
    return len(words) <= _MOST_CHARACTERS and _TAKES_BACK_LAST.fullmatch(words) is not None
