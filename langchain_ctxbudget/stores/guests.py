"""Who has said what in a thread: the messages in an owner's thread that another user has said.

A thread's state has the messages of everybody who runs it, and the owner's copy has them, too. So a
run of another user notes the messages that it answers, by digests, outside of all users. When the
owner's next run copies them, their ids are kept beside the copy: nothing is learned from them about
the owner, and the owner's other threads do not quote them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore, GetOp

from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.messages import is_user
from langchain_ctxbudget.stores.base import Record, Scope, label, put_of
from langchain_ctxbudget.stores.owners import GUESTS, NoteRecord, mark_of, notes_of, thread_key


class GuestsRecord(Record):
    """What others than the owner have said in a conversation."""

    thread: str
    """The digest of its thread."""
    said: dict[str, str]
    """The digest of the thread and the user, by the id of each message, answers among them."""

    def ids_for(self, user_label: str) -> frozenset[str]:
        """Returns the ids of what others than a user have said.

        The user may have been a guest before.
        """
        user_mark = mark_of(self.thread, user_label)
        return frozenset(message_id for message_id, mark in self.said.items() if mark != user_mark)


def note(store: BaseStore, thread_id: str, user_id: str, message_ids: Iterable[str]) -> Flow[None]:
    """Notes that a user has said some messages of another user's thread."""
    record = NoteRecord(user=mark_of(thread_key(thread_id), label(user_id)))
    yield from batch(store, [put_of(place, record) for place in _places(thread_id, message_ids)])


def keep(
    store: BaseStore,
    scope: Scope,
    thread_id: str,
    messages: Sequence[BaseMessage],
    owner_ids: Collection[str],
) -> Flow[None]:
    """Keeps beside the copy of a thread which of its new messages are other users'.

    Args:
        store: where notes and the copy are.
        scope: the owner and the conversation of the copy.
        thread_id: the thread.
        messages: its new messages.
        owner_ids: the ids of messages of the owner's own runs, which are not looked for.
    """
    marks_by_id = yield from _read_notes(store, thread_id, messages, owner_ids)
    if not marks_by_id:
        return
    said = _with_answers(messages, marks_by_id)
    record = yield from read_record(store, scope)
    if record is not None:
        said = record.said | said
    place = scope.place(GUESTS)
    yield from batch(store, [put_of(place, GuestsRecord(thread=thread_key(thread_id), said=said))])


def _read_notes(
    store: BaseStore, thread_id: str, messages: Sequence[BaseMessage], owner_ids: Collection[str]
) -> Flow[dict[str, str]]:
    """Returns the mark of the user who has said each message that is noted, by message id."""
    user_ids = [message.id for message in messages if is_user(message)]
    ids = [str(message_id) for message_id in user_ids if message_id not in owner_ids]
    items = yield from batch(store, _places(thread_id, ids))
    marks_by_id: dict[str, str] = {}
    for message_id, item in zip(ids, items, strict=True):
        record = NoteRecord.of_item(item)
        if record is not None:
            marks_by_id[message_id] = record.user
    return marks_by_id


def _with_answers(
    messages: Sequence[BaseMessage], marks_by_id: Mapping[str, str]
) -> dict[str, str]:
    """Returns the marks of guests' messages and of all that follows until the next user message."""
    said: dict[str, str] = {}
    guest: str | None = None
    for message in messages:
        if is_user(message):
            guest = marks_by_id.get(str(message.id))
        if guest is not None:
            said[str(message.id)] = guest
    return said


def read(store: BaseStore, scope: Scope) -> Flow[frozenset[str]]:
    """Reads which messages of a conversation are not its user's, as ids."""
    record = yield from read_record(store, scope)
    if record is None:
        return frozenset()
    return record.ids_for(label(scope.user_id))


def read_record(store: BaseStore, scope: Scope) -> Flow[GuestsRecord | None]:
    """Reads what others have said in a conversation; None where nobody has."""
    [item] = yield from batch(store, [scope.place(GUESTS)])
    return GuestsRecord.of_item(item)


def _places(thread_id: str, message_ids: Iterable[str]) -> list[GetOp]:
    key = thread_key(thread_id)
    return [GetOp(notes_of(key), mark_of(key, message_id)) for message_id in message_ids]
