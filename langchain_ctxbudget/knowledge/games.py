"""Which messages belong to a game, a story or a supposition, so that nothing is learned from them.

A game begins where the user announces one and takes a part in it ("Let's play: you are a dragon and
I am a knight"), or where both write lines of a play ("*draws a sword*"). It ends where the user
steps out of it, after half an hour of silence, or when nothing of it has come up any more in two
messages. So no single word ends learning for a conversation. A supposition ("Say I'm a lawyer in
Berlin") concerns its own message only.
"""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime

from langchain_core.messages import AIMessage

from langchain_ctxbudget.history import Entry, MessageTable
from langchain_ctxbudget.knowledge.own_messages import all_own_messages
from langchain_ctxbudget.knowledge.presence import NEW_SESSION_AFTER
from langchain_ctxbudget.messages import (
    cached_until_forgotten,
    prose_spans,
    terms,
    time_of,
    vocabulary,
    without_quotations,
)
from langchain_ctxbudget.stores import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class GamePolicy:
    """When a game is one, and when it has ended."""

    most_without_sign: int = 2
    """The user's messages in a row without a sign of the game that still belong to it."""
    most_characters: int = 1_000
    """A longer message is a document, which announces nothing."""
    shortest_sign: int = 4
    """Characters of a word of the announcement that shows that the game goes on."""
    look_back: int = 100
    """Messages before those to learn from in which a game may have begun."""


GAME_POLICY = GamePolicy()
_PHRASES = vocabulary("knowledge", "games")
_PLAYED = re.compile(r"^[ \t]*\*(?![\s*])[^*\n]{2,}(?<!\s)\*(?!\*)", re.MULTILINE)
"""A line of role play, which begins with what somebody does in it: "*draws a sword*"."""


def is_played(text: str) -> bool:
    """Tells whether a message has a line of role play."""
    return "*" in text and _PLAYED.search(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Game:
    """A game that goes on."""

    signs: frozenset[str] = field(default_factory=frozenset)
    """Terms of its announcement."""
    without_sign: int = 0
    """The user's messages in a row in which nothing of it came up."""
    at: datetime | None = None
    """When the user has said the last message of it."""

    def is_in(self, text: str) -> bool:
        """Tells whether something of the game comes up in a text."""
        return is_played(text) or not self.signs.isdisjoint(terms(text))

    def has_ended(self, text: str, at: datetime | None) -> bool:
        """Tells whether a message of the user, said at some time, no longer belongs to it."""
        if any(map(_PHRASES.steps_out.match, _sentences_of(text))):
            return True
        if at is not None and self.at is not None and at - self.at >= NEW_SESSION_AFTER:
            return True
        return self.without_sign >= GAME_POLICY.most_without_sign and not self.is_in(text)

    def after(self, text: str, at: datetime | None) -> "_Game":
        """Returns the game after a message of the user that belongs to it."""
        without_sign = 0 if self.is_in(text) else self.without_sign + 1
        return replace(self, without_sign=without_sign, at=at)


def suspended_in(table: MessageTable, scope: Scope, first: int, end: int) -> tuple[int, ...]:
    """Returns at which positions the user plays, tells a story or supposes something.

    Args:
        table: The conversation.
        scope: Whose it is.
        first: The first position that is looked at.
        end: The position behind the last one.
    """
    begin = max(0, first - GAME_POLICY.look_back)
    own_texts = {
        message.position: message.text
        for message in all_own_messages(table, scope, range(begin, end))
    }
    suspended: list[int] = []
    game: _Game | None = None
    for position in range(begin, end):
        entry = table[position]
        text = own_texts.get(position)
        if text is None:
            game = _shown_again(game, entry)
            continue
        game = _going_on(game, text, entry)
        if game is None and begins_game(text, _reply_to(table, position, end)):
            game = _Game(signs=_signs_in(text), at=time_of(entry.message))
        if game is not None or supposes(text):
            suspended.append(position)
    return tuple(position for position in suspended if position >= first)


def is_suspended(table: MessageTable, scope: Scope, position: int) -> bool:
    """Tells whether a message belongs to a game, a story or a supposition.

    Args:
        table: The conversation.
        scope: Whose it is.
        position: The position of the message; the reply behind it counts, too.
    """
    end = min(position + 2, len(table))
    return position in suspended_in(table, scope, position, end)


def _shown_again(game: _Game | None, entry: Entry) -> _Game | None:
    """Returns a game after a message that is not the user's: a reply may show that it goes on."""
    if game is None or not isinstance(entry.message, AIMessage) or not game.is_in(entry.text):
        return game
    return replace(game, without_sign=0)


def _going_on(game: _Game | None, text: str, entry: Entry) -> _Game | None:
    """Returns a game after a message of the user; None where it has ended."""
    if game is None:
        return None
    at = time_of(entry.message)
    return None if game.has_ended(text, at) else game.after(text, at)


def _reply_to(table: MessageTable, position: int, end: int) -> str:
    """Returns what the assistant says right behind a message; empty if it says nothing."""
    if position + 1 >= end or not isinstance(table[position + 1].message, AIMessage):
        return ""
    return table[position + 1].text


def begins_game(text: str, reply: str) -> bool:
    """Tells whether a message begins a game.

    Args:
        text: What the user says in it.
        reply: What the assistant replies.
    """
    return _announces_game(text) or (is_played(text) and is_played(reply))


@cached_until_forgotten(4_096)
def _announces_game(text: str) -> bool:
    """Tells whether the user announces a game in a message, and takes a part in it."""
    sentences = _sentences_of(text)
    with_user = list(filter(_PHRASES.user_has_part.search, sentences))
    if not with_user:  # as in most messages
        return False
    if any(map(_PHRASES.pretends.search, with_user)):
        return True
    if not any(map(_PHRASES.assistant_has_part.search, sentences)):
        return False
    is_invitation = any(map(_PHRASES.invites.search, sentences))
    return is_invitation or any(map(_PHRASES.pretends.search, sentences))


@cached_until_forgotten(4_096)
def supposes(text: str) -> bool:
    """Tells whether a message supposes something about the user."""
    return any(map(_PHRASES.supposes.match, _sentences_of(text)))


def _signs_in(text: str) -> frozenset[str]:
    """Returns the terms of an announcement that show that its game goes on."""
    parts = [
        sentence
        for sentence in _sentences_of(text)
        if _PHRASES.user_has_part.search(sentence) or _PHRASES.assistant_has_part.search(sentence)
    ]
    told = [_PHRASES.pretends.sub(" ", _PHRASES.invites.sub(" ", part)) for part in parts]
    words = terms(" ".join(told))
    return frozenset(word for word in words if len(word) >= GAME_POLICY.shortest_sign)


def _sentences_of(text: str) -> list[str]:
    """Returns the sentences of a message without what they quote; none of a document."""
    if len(text) > GAME_POLICY.most_characters:
        return []
    return [without_quotations(text, *span) for span in prose_spans(text)]
