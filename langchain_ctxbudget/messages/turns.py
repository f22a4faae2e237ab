"""Messages as groups that live or die together, and where a conversation may be cut.

A group is one message, or a round: an assistant's message with calls together with all its results.
Every cut falls between groups.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import NamedTuple

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.function import FunctionMessage

from langchain_ctxbudget.content import answered_ids, call_ids, only_answers, only_text_of, parts_of

HELD_MESSAGES = 8
"""Messages besides results that may come in a row without a safe cut; calls still open then count
as unanswered. Of more results in a row before their calls, none is waited for either."""


@dataclass(frozen=True, slots=True)
class Group:
    """Messages that stay together, with their positions in the given list."""

    messages: tuple[BaseMessage, ...]
    positions: tuple[int, ...]

    @property
    def start(self) -> int:
        """The position of its first message; -1 where it stands for none of the list.

        Such a group is a call that is sent once more, with a result that was a part of a message.
        """
        return self.positions[0] if self.positions else -1


def is_user(message: BaseMessage) -> bool:
    """Tells if a message is the user's, and not only results of calls in the user's name."""
    # Many times as fast as what pydantic makes of `isinstance`.
    if HumanMessage not in type(message).__mro__:
        return False
    return isinstance(message.content, str) or not only_answers(message)


def is_empty(message: BaseMessage) -> bool:
    """Tells if a message says nothing.

    It has no content beyond white space and thoughts, makes no call and answers none.
    """
    if isinstance(message, ToolMessage | FunctionMessage) or call_ids(message):
        return False
    text = only_text_of(message)
    if text is not None:
        return not text.strip()
    return not any(part.says_something for part in parts_of(message))


# Where a conversation may be cut


class OpenCalls(NamedTuple):
    """Calls and results that may still belong together, at some place between two messages."""

    waiting: tuple[str, ...] = ()
    """Ids of calls that have no result yet."""
    early: tuple[str, ...] = ()
    """Ids of the results right before this place that answered no call."""
    age: int = 0
    """For how many messages besides results there was no safe cut."""

    def after(self, message: BaseMessage) -> "tuple[bool, OpenCalls]":
        """Tells if a cut right before a message is safe, and which calls are open after it.

        A cut is safe if it keeps calls and results together. A call is waited for until the user
        speaks, and for `HELD_MESSAGES` messages besides results at most.
        """
        if is_user(message):
            return True, OpenCalls()
        if only_answers(message):
            is_safe = not self.waiting and not self.early
            following = self
            for call_id in answered_ids(message):
                following = following._after_result(call_id)
        else:
            open_before = self if self.age < HELD_MESSAGES else OpenCalls()
            made = call_ids(message)
            is_safe = not open_before.waiting and set(made).isdisjoint(open_before.early)
            following = _open_after_calls(open_before, made)
        if is_safe or not (following.waiting or following.early):
            following = following._replace(age=0)
        return is_safe, following

    def _after_result(self, call_id: str) -> "OpenCalls":
        """Returns what is open after the result of a call."""
        if call_id in self.waiting:
            waiting = list(self.waiting)
            waiting.remove(call_id)
            return self._replace(waiting=tuple(waiting))
        if len(self.early) >= HELD_MESSAGES:
            return self._replace(early=())
        return self._replace(early=(*self.early, call_id))


def _open_after_calls(open_before: OpenCalls, made: Sequence[str]) -> OpenCalls:
    """Returns what is open after a message that makes some calls, or none."""
    unanswered = Counter(made) - Counter(open_before.early)
    return OpenCalls(
        waiting=(*open_before.waiting, *unanswered.elements()), age=open_before.age + 1
    )


def split_turn(messages: Sequence[BaseMessage]) -> tuple[list[BaseMessage], list[BaseMessage]]:
    """Splits an agent's messages into history and current turn.

    The turn starts at the user's last own message.
    """
    for start in reversed(range(len(messages))):
        if is_user(messages[start]):
            return list(messages[:start]), list(messages[start:])
    return [], list(messages)


def is_beginning_of(known: Sequence[object], given: Sequence[object]) -> bool:
    """Tells if a list begins with the very objects of another."""
    return len(known) <= len(given) and all(map(is_, known, given))


def newest_that_fit(costs: Sequence[int], budget_tokens: int) -> int:
    """Returns how many of the last items fit together into a budget."""
    total_tokens = 0
    for count, tokens in enumerate(reversed(costs)):
        total_tokens += tokens
        if total_tokens > budget_tokens:
            return count
    return len(costs)
