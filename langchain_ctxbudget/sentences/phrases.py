"""What users say of rules in the same few words each time: how far one reaches, and its end."""

import re

from langchain_ctxbudget.messages import one_line, vocabulary

_WORDS = vocabulary("sentences", "phrases")
_TAKES_IT_BACK = rf"(?:{_WORDS['verb']} {_WORDS['pointer']}|take {_WORDS['pointer']} back)"
_IT_HAS_ENDED = rf"{_WORDS['pointer']} {_WORDS['end_of_it']}"
_IN_ENGLISH = rf"{_WORDS['opening']}(?:{_TAKES_IT_BACK}|{_IT_HAS_ENDED}){_WORDS['closing']}"
_TAKES_BACK_LAST = re.compile(rf"{_IN_ENGLISH}|(?:{_WORDS['other_languages']})[.!]*", re.IGNORECASE)
_IN_ALL = re.compile(rf"(?:{_WORDS['in_all_conversations']}){_WORDS['of_others']}", re.IGNORECASE)
_POLITE = re.compile(_WORDS["polite_opening"], re.IGNORECASE)
_ASKING = re.compile(_WORDS["asking_opening"], re.IGNORECASE)
_FORBIDDING = re.compile(_WORDS["forbidding_opening"], re.IGNORECASE)
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


def says_in_all_conversations(rule: str) -> bool:
    """Tells whether a rule says that it holds in all conversations of its user.

    Example:
        >>> says_in_all_conversations("No emoji in any of our chats.")
        True
        >>> says_in_all_conversations("Log the id in all chats with customers.")
        False
    """
    return _IN_ALL.search(one_line(rule)) is not None


def plain_request(sentence: str) -> str:
    """Returns a request without what only makes it polite; empty where it has nothing of that.

    Example:
        >>> plain_request("Could you please always answer in German?")
        'Always answer in German.'
        >>> plain_request("You must not call my landlord.")
        "Don't call my landlord."
        >>> plain_request("Answer in German.")
        ''
    """
    request = _without_opening(_POLITE, sentence)
    forbidden = _without_opening(_FORBIDDING, request)
    if forbidden != request:
        request = f"don't {forbidden}"
    else:
        request = _without_opening(_ASKING, request)
        request = _without_opening(_POLITE, request)  # "could you please"
    if not request or request == sentence:
        return ""
    if request.endswith("?"):
        request = f"{request.rstrip('?')}."
    return request[0].upper() + request[1:]


def _without_opening(opening: re.Pattern[str], sentence: str) -> str:
    """Returns what stands behind an opening, or the sentence if it does not begin with that."""
    found = opening.match(sentence)
    return sentence if found is None else sentence[found.end() :]
