"""Which values the last prompt named that this one does not, and that may matter.

A summary keeps what was decided and loses what it was decided on: an order number, a price, a path.
Nothing is lost for good, as the messages are stored; but a model does not look up what it does not
know to be missing. So the report lists the values, each with the message that it went with.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget import report
from langchain_ctxbudget.messages import (
    Value,
    ValueKind,
    capitals_tell_names,
    is_user,
    own_words,
    plain_text,
    speaker,
    stands_alone,
    values_in,
)
from langchain_ctxbudget.prompt.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPolicy:
    """Which values may matter.

    What the user has said may, and what an assistant has named in two messages or just before.
    What only results of tools name does not: they name everything.
    """

    most_listed: int = 20
    """Lost values that a report lists one by one; it counts the others."""
    recent_messages: int = 6
    """What an assistant has named once may matter in so many of the newest messages."""
    most_of_message: int = 8
    """A message that names more values is a listing: of these, only those may matter that another
    message names, too."""


LOSS_POLICY = LossPolicy()


@dataclass(frozen=True, slots=True)
class PromptBefore:
    """The conversation's last prompt, of which something is not in this one."""

    messages: Sequence[BaseMessage]
    first: int
    """The position of the first message that it can have shown word for word."""


@dataclass(frozen=True)
class _Said:
    """A message of the conversation that the last prompt may have shown."""

    number: int
    """Its position from 1."""
    message: BaseMessage

    @cached_property
    def is_from_user(self) -> bool:
        """Whether the user says it."""
        return is_user(self.message)

    @cached_property
    def words(self) -> str:
        """What is said in it, without what is pasted, and without arguments of calls."""
        if isinstance(self.message, ToolMessage):
            return plain_text(self.message)
        return own_words(self.message)

    @cached_property
    def values(self) -> dict[str, Value]:
        """The values that it names besides names of people and things, by their keys."""
        return {value.key: value for value in values_in(self.words, with_names=False)}

    @cached_property
    def names(self) -> dict[str, Value]:
        """The names in it, by their keys."""
        values = values_in(self.words, with_names=True)
        return {value.key: value for value in values if value.kind is ValueKind.NAME}


@dataclass(frozen=True, slots=True)
class GoneValue:
    """A value, and the message that it went with."""

    said: _Said
    value: Value

    def told(self, coverage: Sequence[report.CoverageRange]) -> report.LostValue:
        """Returns what a report says of it.

        Args:
            coverage: the states of the conversation's messages in the prompt.
        """
        number = self.said.number
        message = self.said.message
        states = (part.state for part in coverage if part.first <= number <= part.last)
        return report.LostValue(
            value=self.value.text,
            kind=self.value.kind,
            message=number,
            message_id=message.id or "",
            speaker=speaker(message),
            state=next(states, "omitted"),
        )


def values_lost_since(
    before: PromptBefore,
    plan: Plan,
    messages: Sequence[BaseMessage],
) -> list[GoneValue]:
    """Returns the values that may matter of the last prompt and are not in this one.

    Those of the user come first, then the newest ones.

    Args:
        before: the last prompt.
        plan: the finished plan of this prompt.
        messages: the messages of this prompt.
    """
    shown_before = _Shown(before.messages)
    shown_now = _Shown(messages)
    said = [*_said_since(plan, before.first)]
    gone = [each for each in said if not shown_now.has_text(each.words)]
    found: dict[str, GoneValue] = {}
    for each, value in _that_may_matter(gone, said):
        if shown_before.has_value_as_written(value) and not shown_now.has_value(value):
            found.setdefault(value.key, GoneValue(each, value))
    return list(found.values())


class _Shown:
    """What the messages of a prompt say."""

    def __init__(self, messages: Iterable[BaseMessage]) -> None:
        self._written = "\n".join(map(plain_text, messages))
        self._text = self._written.casefold()

    def has_text(self, text: str) -> bool:
        """Returns whether a text stands in it, word for word but for capitals."""
        return text.casefold() in self._text

    def has_value_as_written(self, value: Value) -> bool:
        """Returns whether it names a value; a name that is written as a word, too, is none."""
        is_word = value.kind is ValueKind.NAME and value.key in self._written
        return stands_alone(value.text, self._written) and not is_word

    def has_value(self, value: Value) -> bool:
        """Returns whether it names a value, in whatever way it is written."""
        return stands_alone(value.text.casefold(), self._text) or value.key in self._keys

    @cached_property
    def _keys(self) -> set[str]:
        return {value.key for value in values_in(self._text, with_names=False)}


def _said_since(plan: Plan, first: int) -> Iterator[_Said]:
    """Yields the messages from a position on, those of the turn last."""
    entries = plan.conversation.entries
    for position in range(first, len(entries)):
        yield _Said(position + 1, entries[position].message)
    for number, message in enumerate(plan.request.turn, len(entries) + 1):
        yield _Said(number, message)


def _that_may_matter(gone: Sequence[_Said], said: Sequence[_Said]) -> Iterator[tuple[_Said, Value]]:
    """Yields the values of messages that may matter: the user's first, then the newest ones."""
    newest_first = gone[::-1]
    times = Counter(key for each in said for key in each.values)
    from_user = [each for each in newest_first if each.is_from_user]
    tells_names = capitals_tell_names(each.words for each in from_user)
    for each in from_user:
        values = dict(each.values)
        if tells_names:
            values |= each.names
        for value in values.values():
            if len(values) <= LOSS_POLICY.most_of_message or times[value.key] > 1:
                yield each, value

    recent = gone[-LOSS_POLICY.recent_messages :]
    for each in newest_first:
        if each.is_from_user or isinstance(each.message, ToolMessage):
            continue
        is_recent = each in recent and len(each.values) <= LOSS_POLICY.most_of_message
        for value in each.values.values():
            if is_recent or times[value.key] > 1:
                yield each, value
