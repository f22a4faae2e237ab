"""Whose a thread is: what a run may store of it, and what it shows of another user's."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.errors import ForeignUserError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import OpenConversation, editing
from langchain_ctxbudget.messages import is_user
from langchain_ctxbudget.stores import Scope, guests, owners

_log = logging.getLogger(__name__)
FOREIGN_THREAD = (
    "the thread %r is another user's: the prompt is made from the run's state, and nothing of it "
    "is stored, learned or found later; to hand the thread over, call `hand_over`; where people "
    "share threads, set on_foreign_thread='share'"
)
NOT_KNOWN_OWNER = (
    "it is not known whether the thread %r is this user's: the prompt is made from the run's "
    "state, in memory only"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunThread:
    """The thread whose state a run has."""

    id: str
    store: BaseStore
    refuses_foreign: bool
    """True if the run of a user whose thread it is not ends with an error."""

    def conversation_of_run(
        self, conversation: OpenConversation, *, claims: bool = True
    ) -> Flow[OpenConversation]:
        """Returns the conversation that a run's messages belong to.

        One apart, where the thread is another user's.

        A thread that is nobody's yet becomes the user's, where the run `claims` it. One that was
        found to be the user's is not looked for again while the log goes on; another user's is, as
        it may be handed over.
        """
        if self._is_surely_owned(conversation):
            return conversation
        if claims:
            is_owned = yield from owners.claim(self.store, conversation.scope, self.id)
        else:
            user_id = conversation.scope.user_id
            is_foreign = yield from owners.belongs_to_another(self.store, user_id, self.id)
            is_owned = not is_foreign
        if is_owned:
            conversation.apart = None
            conversation.owned_thread = self.id if claims else None
            return conversation
        return self._apart(conversation)

    def _is_surely_owned(self, conversation: OpenConversation) -> bool:
        """Returns whether nobody has to be asked whose the thread is."""
        scope = conversation.scope
        return not scope.is_kept or scope.is_shared or conversation.owned_thread == self.id

    def _apart(self, conversation: OpenConversation) -> OpenConversation:
        """Returns the conversation, in memory only, of a run in another user's thread."""
        if self.refuses_foreign:
            raise ForeignUserError(
                f"The thread {self.id!r} is another user's, and on_foreign_thread is 'error'. Take "
                "another thread_id, hand the thread over with `hand_over`, or set "
                "on_foreign_thread to 'show' or 'share'"
            )
        if conversation.apart is None:
            because = FOREIGN_THREAD % self.id
            conversation.apart = _empty_conversation(conversation.scope, because)
            _log.warning("%s", because)
        return conversation.apart

    def keep_guests(
        self, conversation: OpenConversation, messages: Sequence[BaseMessage]
    ) -> Flow[None]:
        """Keeps which messages of an agent's state are not those of the thread's owner.

        Call it before they are copied.
        """
        scope = conversation.scope
        if not scope.is_kept or scope.is_shared:
            return
        known_ids = conversation.table.positions
        newest_first: list[BaseMessage] = []
        for message in reversed(messages):
            if not message.id or message.id in known_ids:
                break
            newest_first.append(message)
        new_messages = newest_first[::-1]
        yield from guests.keep(self.store, scope, self.id, new_messages, conversation.own_turn)

    def note_guest(self, conversation: OpenConversation, turn: Sequence[BaseMessage]) -> Flow[None]:
        """Notes what a user says in another's thread, so that it is not taken for the owner's."""
        ids = ids_of_users_messages(turn)
        if ids == conversation.own_turn:
            return
        yield from guests.note(self.store, self.id, conversation.scope.user_id, sorted(ids))
        conversation.own_turn = ids

    def conversation_not_copied(
        self, conversation: OpenConversation, state: Sequence[BaseMessage]
    ) -> OpenConversation:
        """Returns a conversation that holds a state which could not be copied to the store.

        It is one apart, unless the thread is known to be the user's.
        """
        scope = conversation.scope
        if scope.is_shared or conversation.owned_thread == self.id:
            return conversation_holding(scope, state)
        apart = _empty_conversation(scope, NOT_KNOWN_OWNER % self.id)
        editing.hold(apart, state)
        return apart


def conversation_holding(scope: Scope, state: Sequence[BaseMessage]) -> OpenConversation:
    """Returns a conversation that holds a state in memory."""
    conversation = OpenConversation(scope)
    editing.hold(conversation, state)
    return conversation


def ids_of_users_messages(turn: Sequence[BaseMessage]) -> frozenset[str]:
    """Returns the ids of what the user says in a turn."""
    return frozenset(str(message.id) for message in turn if is_user(message) and message.id)


def _empty_conversation(scope: Scope, because: str) -> OpenConversation:
    """Returns an empty conversation in memory only, for a run whose thread is not the user's."""
    conversation = OpenConversation(replace(scope, is_kept=False))
    conversation.apart_because = because
    return conversation
