"""The context block of a turn: what stands in front of the user's words, chosen once and kept while an agent loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from langchain_core.messages import BaseMessage
from pydantic import TypeAdapter, ValidationError

from langchain_ctxbudget.budget.layers import Fragment, Reason
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.messages.messages import fingerprint
from langchain_ctxbudget.tokens.counters import TokenCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBlock:
    """What was chosen for a user's message, as plain data to be kept in an agent's state."""

    message_id: str
    """Of the message in front of which it stands."""
    digest: str
    """Of what that message says, and of everything before it: what is edited there gets another block."""
    fragments: tuple[Fragment, ...] = ()
    left_out: Mapping[str, Mapping[Reason, int]]
    """How many candidates were not chosen, by layer and reason."""

    @classmethod
    def of(
        cls,
        message: BaseMessage,
        history: str,
        fragments: tuple[Fragment, ...],
        left_out: Mapping[str, Mapping[Reason, int]],
    ) -> Self:
        """The block of a message, chosen from what was said before it, of which `history` is a digest."""
        return cls(
            message_id=message.id or "",
            digest=f"{fingerprint(message)} {history}",
            fragments=tuple(replace(part, scores={}) for part in fragments),
            left_out=dict(left_out),
        )

    def is_for(self, message: BaseMessage, history: str) -> bool:
        """Whether it was chosen for this message, and from what is still said before it."""
        return self.message_id == (message.id or "") and self.digest == f"{fingerprint(message)} {history}"

    def counted(self, counter: TokenCounter) -> tuple[Fragment, ...]:
        """Its fragments, with what they cost by this counter."""
        return tuple(
            Fragment(**{name: getattr(part, name) for name in Fragment.__slots__} | {"tokens": count})
            for part in self.fragments
            for count in (counter.count_text(part.text),)
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        data: dict[str, Any] = _SCHEMA.dump_python(self, mode="json", exclude_defaults=True)
        return data

    @classmethod
    def from_dict(cls, data: object) -> TurnBlock:
        """From plain data.

        Raises:
            InputError: it is none of a block's.
        """
        try:
            return _SCHEMA.validate_python(data)
        except ValidationError as error:
            raise InputError(f"The context block in the state cannot be read: {error.errors()[0]['msg']}") from error


_SCHEMA = TypeAdapter(TurnBlock)


def is_of_earlier_turn(given: object, turn: Sequence[BaseMessage]) -> bool:
    """Whether the block in an agent's state was chosen for another turn than this one, so that the state had others."""
    try:
        block = TurnBlock.from_dict(given)
    except InputError:
        return False
    said = block.digest.partition(" ")[0]
    return all(block.message_id != (message.id or "") or said != fingerprint(message) for message in turn)
