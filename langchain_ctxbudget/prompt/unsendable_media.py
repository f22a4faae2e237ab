"""Media that cannot be sent: a provider refuses them alone, or takes no more in one request.

A report tells those of its prompt, with what they would have cost. Sending everything is compared
without those that a request with everything could not have.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.budget import Fragment, Layer, Reason, Status
from langchain_ctxbudget.content import has_media, parts_of, with_parts
from langchain_ctxbudget.layers import positions_of
from langchain_ctxbudget.messages import placeholder_of, without_media
from langchain_ctxbudget.prompt.assembly import Content
from langchain_ctxbudget.prompt.plan import Plan, UnsentMedia
from langchain_ctxbudget.providers import (
    MeasuredMedium,
    in_accepted_form,
    measured_media,
    media_beyond,
    refused_alone,
)
from langchain_ctxbudget.tokens import TokenCounter


class _MediaKey(NamedTuple):
    """Some media of a stored message, by one counter."""

    position: int
    numbers: frozenset[int]
    counter: object


@dataclass(frozen=True, slots=True)
class _ReadMedia:
    """What is known of the media of a conversation, so that no message is read twice."""

    measured: dict[int, tuple[MeasuredMedium, ...]] = field(default_factory=dict)
    """By the positions of their messages."""
    tokens: dict[_MediaKey, int] = field(default_factory=dict)


_READ: WeakKeyDictionary[object, _ReadMedia] = WeakKeyDictionary()
"""By the tables of the messages, which are only added to."""


def unsendable_media_tokens(plan: Plan) -> int:
    """Returns by how many tokens a request with everything is smaller than all that is counted.

    The tokens of the conversation and of the turn have media in them that a request could not have.
    Those of the conversation lack the messages that show media behind their results, for providers
    that take none in a result, so the number may be negative.
    """
    conversation = plan.conversation
    end = len(conversation.entries)
    dropped = {*conversation.dropped_positions}
    positions = [at for at in conversation.table.media if at < end and at not in dropped]
    in_turn = [
        message for group in plan.turn.groups for message in group.messages if has_media(message)
    ]
    if not positions and not in_turn:
        return 0

    read = _READ.setdefault(conversation.table, _ReadMedia())
    for at in positions:
        if at not in read.measured:
            read.measured[at] = measured_media(conversation.entries[at].sent_message)
    media = [*(read.measured[at] for at in positions), *map(measured_media, in_turn)]

    left_out = media_beyond(media, conversation.profile.media.limits)
    tokens = 0
    for number, position in enumerate(positions):
        key = _MediaKey(position, left_out.get(number, frozenset()), plan.counter.identity)
        if key not in read.tokens:
            message = conversation.entries[position].sent_message
            counted = plan.counter.count_alone(in_accepted_form(message))
            read.tokens[key] = counted - _sent_tokens(message, key.numbers, plan.counter)
        tokens += read.tokens[key]
    for number, message in enumerate(in_turn, len(positions)):
        if number in left_out:
            counted = plan.counter.count_message(in_accepted_form(message))
            tokens += counted - _sent_tokens(message, left_out[number], plan.counter)
    return tokens


def _sent_tokens(message: BaseMessage, left_out: frozenset[int], counter: TokenCounter) -> int:
    """Returns what a message costs with lines in the place of some of its media."""
    return counter.count_message(in_accepted_form(without_media(message, only=left_out)))


def unsent_media(plan: Plan, content: Content) -> list[Fragment]:
    """Returns the media that a finished prompt could not have, as a report names them."""
    fragments: list[Fragment] = []
    for unsent in (*_refused_alone(plan, content), *plan.gave_way.media):
        fragments += _fragments(unsent, plan.counter)
    return fragments


def _refused_alone(plan: Plan, content: Content) -> Iterator[UnsentMedia]:
    """Yields what the provider refuses alone, of the messages that a prompt shows."""
    conversation = plan.conversation
    limits = conversation.profile.media.limits
    shown = positions_of(content.history)
    messages: list[tuple[Layer, BaseMessage]] = [
        (Layer.HISTORY, conversation.entries[at].sent_message)
        for at in conversation.table.media
        if at in shown
    ]
    messages += [(Layer.MESSAGE, message) for message in plan.request.turn]
    for layer, message in messages:
        numbers = refused_alone(message, limits)
        if numbers:
            yield UnsentMedia(layer, message, numbers)


def _fragments(unsent: UnsentMedia, counter: TokenCounter) -> Iterator[Fragment]:
    """Yields media of a message, each with its line and with what it would have cost."""
    message = unsent.message
    without_content_tokens = counter.count_message(with_parts(message, []))
    media = [part for part in parts_of(message) if part.is_media]
    for number in sorted(unsent.numbers):
        part = media[number]
        kind = part.medium.kind if part.medium is not None else "medium"
        tokens = counter.count_message(with_parts(message, [part])) - without_content_tokens
        yield Fragment(
            layer=unsent.layer,
            id=f"{message.id or message.type}: {kind} {number + 1}",
            text=placeholder_of(part),
            tokens=max(0, tokens),
            reason=Reason.MEDIA_LIMIT,
            status=Status.OMITTED,
        )
