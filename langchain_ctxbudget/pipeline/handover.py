"""Handing a thread over: its owner, and the records of its conversations, from one user to another.

What is new is written before what is old is deleted, and the record of the owner says how far it
has come. So wherever it ends, nothing is missing, and the same call goes on from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import ForeignUserError, InputError
from langchain_ctxbudget.flow import Flow, T, batch
from langchain_ctxbudget.pipeline.rules import hand_over_rules
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.stores import bulk, owners

MOVED = (owners.GUESTS, history.log.MESSAGES, history.PINS)
"""The kinds of records that are handed over, before what is derived from messages, and the lanes,
which make the others visible.

What was added or lifted by hand of a conversation's rules goes along. What a prompt has shown of
its user stays behind, and is deleted: facts, quotes of other
conversations, reports."""


def hand_over(
    workspace: Workspace, conversation_id: str, from_user: str, to_user: str
) -> Flow[None]:
    """Gives a thread to another user, with all that is stored of it."""
    stores.require_id("user_id", from_user)
    stores.require_id("user_id", to_user)
    if from_user == to_user:
        raise InputError(f"from_user and to_user are both {from_user!r}")
    stores.require_id("conversation_id", conversation_id)

    refusals: list[ForeignUserError] = []
    workspaces = [workspace, *workspace.of_runs()]
    for candidate in workspaces:
        try:
            yield from _hand_over_here(candidate, conversation_id, from_user, to_user)
        except ForeignUserError as error:
            refusals.append(error)
    if len(refusals) == len(workspaces):
        raise refusals[0]


def _hand_over_here(
    workspace: Workspace, conversation_id: str, from_user: str, to_user: str
) -> Flow[None]:
    """Gives a thread to another user, in the workspace's own store alone."""
    store = workspace.store
    users = (from_user, to_user)
    ids = yield from conversations_of(store, conversation_id, users)

    def move(opened: Sequence[history.OpenConversation]) -> Flow[None]:
        try:
            begun = yield from begin(store, ids, from_user, to_user)
            if begun is None:
                return
            if not begun.is_copied:
                yield from begun.copy()
            yield from hand_over_rules(workspace, ids, from_user, to_user)
            for one_id in ids:
                yield from workspace.workers.learning.forget(stores.Scope(from_user, one_id))
            yield from begun.finish()
        finally:  # wherever it ends, what is there is read again
            for conversation in opened:
                yield from workspace.forget(conversation)
            workspace.forget_by_text()

    # Whoever needs several conversations takes them in one order.
    scopes: list[stores.Scope] = []
    for user in sorted(users):
        scopes += [stores.Scope(user, one_id) for one_id in sorted(ids)]
    yield from _using_all(workspace, scopes, move)
    for one_id in ids:
        workspace.workers.bookkeeping.ledger.forget(stores.Scope(from_user, one_id))


def _using_all(
    workspace: Workspace,
    scopes: Sequence[stores.Scope],
    body: Callable[[Sequence[history.OpenConversation]], Flow[T]],
    opened: Sequence[history.OpenConversation] = (),
) -> Flow[T]:
    """Runs a flow with several conversations, alone."""
    if not scopes:
        return (yield from body(opened))

    def with_next(conversation: history.OpenConversation) -> Flow[T]:
        return (yield from _using_all(workspace, scopes[1:], body, (*opened, conversation)))

    return (yield from workspace.using(scopes[0], with_next))


# The records of one thread


@dataclass(frozen=True, slots=True)
class Copy:
    """A conversation as it is kept for one user, and as it will be for the other."""

    old: stores.Scope
    new: stores.Scope


@dataclass(frozen=True, slots=True)
class Handover:
    """A thread that changes hands.

    Its conversations, one for each agent in it, and the records of its owner.
    """

    store: BaseStore
    copies: Sequence[Copy]
    owners: dict[str, owners.OwnerRecord | None]
    """By the digest of each thread: it is one, but where a conversation's id is not the
    thread's."""
    from_user: str
    to_user: str

    @property
    def is_copied(self) -> bool:
        """True if it was begun before, and all records are there for the new owner."""
        return any(
            record is not None and record.last_owner == owners.owner_mark(key, self.from_user)
            for key, record in self.owners.items()
        )

    @property
    def is_begun(self) -> bool:
        """True if it was begun before, and records for the new owner may be there."""
        return any(
            record is not None and record.next_owner == owners.owner_mark(key, self.to_user)
            for key, record in self.owners.items()
        )

    @property
    def is_anybodys(self) -> bool:
        """True if a thread has an owner."""
        return any(record is not None for record in self.owners.values())

    def is_over(self, *, is_new: bool) -> bool:
        """Returns whether the new owner has the thread, given that the old one has nothing of it.

        Where no owner is noted, the thread is of whoever has conversations of it.

        Args:
            is_new: whether there are conversations of the new owner.
        """
        return self.belongs_to(self.to_user) or (is_new and not self.is_anybodys)

    def belongs_to(self, user_id: str) -> bool:
        """Returns whether a user is the owner of all threads."""
        return all(
            record is not None and record.owner == owners.owner_mark(key, user_id)
            for key, record in self.owners.items()
        )

    def require_no_other_owner(self, thread_id: str) -> None:
        """Raises `ForeignUserError` where a thread belongs to neither of the two users."""
        for key, record in self.owners.items():
            marks = (owners.owner_mark(key, self.from_user), owners.owner_mark(key, self.to_user))
            if record is not None and record.owner not in marks:
                raise ForeignUserError(
                    f"The thread {thread_id!r} is neither {self.from_user!r}'s nor "
                    f"{self.to_user!r}'s, so it is not handed over"
                )

    def require_owner(self, thread_id: str) -> None:
        """Raises `ForeignUserError` where nobody is noted as the owner of the thread."""
        if not self.is_anybodys:
            raise ForeignUserError(
                f"There is no thread {thread_id!r} of {self.from_user!r} or {self.to_user!r} in "
                "this store, so there is nothing to hand over"
            )

    def copy(self) -> Flow[None]:
        """Copies the records, and then makes the other user the owner."""
        listed: list[PutOp] = []
        for key in self.owners:
            for copy in self.copies:
                place = GetOp(copy.new.namespace(owners.THREADS), key)
                listed.append(stores.put_of(place, owners.ThreadRecord(thread=key)))
        yield from bulk.write(self.store, listed)
        yield from self._note(self.from_user, next_user=self.to_user)
        for copy in self.copies:
            for kind in MOVED:
                yield from self._copy_kind(copy, kind)
            yield from history.hand_over_derived(self.store, copy.old, copy.new)
            yield from self._copy_kind(copy, history.LANES)
        yield from self._note(self.to_user, last_user=self.from_user)

    def finish(self) -> Flow[None]:
        """Deletes the records of the user who had them."""
        for copy in self.copies:
            yield from history.clear_derived(self.store, copy.old)
            yield from bulk.delete_below(self.store, copy.old.path, history.LANES, history.JOINED)
        deletions = yield from owners.claim_deletions(self.store, self.from_user, [*self.owners])
        yield from bulk.write(self.store, deletions)
        yield from self._note(self.to_user)

    def _note(
        self, user_id: str, *, next_user: str | None = None, last_user: str | None = None
    ) -> Flow[None]:
        """Notes who owns the threads, and how far the handover has come."""
        puts: list[PutOp] = []
        for key in self.owners:
            record = owners.OwnerRecord(owner=owners.owner_mark(key, user_id))
            changes = {}
            if next_user is not None:
                changes["next_owner"] = owners.owner_mark(key, next_user)
            if last_user is not None:
                changes["last_owner"] = owners.owner_mark(key, last_user)
            record = record.model_copy(update=changes)
            puts.append(stores.put_of(owners.owner_place(key), record))
        yield from bulk.write(self.store, puts)

    def _copy_kind(self, copy: Copy, kind: str) -> Flow[None]:
        """Makes the new owner's records of a kind equal to the old one's."""
        target = copy.new.namespace(kind)
        items = yield from stores.read_all(self.store, copy.old.namespace(kind))
        # Records that a copy which was not finished has left there.
        left_over = yield from stores.read_all(self.store, target)
        keys = {item.key for item in items}
        puts = [PutOp(target, item.key, None) for item in left_over if item.key not in keys]
        puts += [_copied(item, target) for item in items]
        yield from bulk.write_messages(self.store, puts)


def _copied(item: Item, target: tuple[str, ...]) -> PutOp:
    if stores.SAID in item.value:
        return PutOp(target, item.key, item.value, index=[stores.SAID])
    return PutOp(target, item.key, item.value, index=False)


def conversations_of(store: BaseStore, thread_id: str, users: Sequence[str]) -> Flow[list[str]]:
    """Returns the ids of the conversations of a thread, as some users have them.

    The id that is given is the first.

    They are those that list the thread, and those of its agents, which list none in a store from
    before. Where the id is that of one of its conversations, it is the whole thread, as that has
    one owner.
    """
    found: set[str] = set()
    for user_id in users:
        listed = yield from bulk.read_below(
            store, (stores.ROOT, stores.label(user_id), owners.THREADS)
        )
        keys = {item.key for item in listed if item.namespace[-1] == stores.label(thread_id)}
        keys.add(owners.thread_key(thread_id))
        labels = {item.namespace[-1] for item in listed if item.key in keys}
        for conversation_id in (yield from history.log.read_conversations(store, user_id)):
            is_of_agent = conversation_id.startswith(f"{thread_id} (agent ")
            if is_of_agent or stores.label(conversation_id) in labels:
                found.add(conversation_id)
    return [thread_id, *sorted(found - {thread_id})]


def begin(
    store: BaseStore, conversations: Sequence[str], from_user: str, to_user: str
) -> Flow[Handover | None]:
    """Reads where a thread stands, and returns what is to be handed over.

    None where there is nothing to do, because the thread is the other user's already.

    Raises:
        ForeignUserError: The thread belongs to neither of the two, or there is none.
        InputError: The other user has a conversation of that id, too.
    """
    thread_id = conversations[0]
    copies = [_copy_of(conversation_id, from_user, to_user) for conversation_id in conversations]
    records = yield from _owner_records(store, thread_id, copies)
    handover = Handover(store, copies, records, from_user, to_user)
    handover.require_no_other_owner(thread_id)
    if handover.is_copied:
        return handover

    is_old = yield from _is_stored(store, [copy.old for copy in copies])
    is_new = yield from _is_stored(store, [copy.new for copy in copies])
    if not is_old:
        if handover.is_over(is_new=is_new):
            return None
        handover.require_owner(thread_id)
    if is_new and not handover.is_begun:
        raise InputError(
            f"{to_user!r} has a conversation {thread_id!r} already, and so has {from_user!r}. "
            "Nothing was changed; `clear` the one that is not needed, and call again"
        )
    return handover


def _copy_of(conversation_id: str, from_user: str, to_user: str) -> Copy:
    """Returns a conversation as it is kept for one user and for the other."""
    old = stores.Scope(from_user, conversation_id)
    new = stores.Scope(to_user, conversation_id)
    return Copy(old, new)


def _owner_records(
    store: BaseStore, thread_id: str, copies: Sequence[Copy]
) -> Flow[dict[str, owners.OwnerRecord | None]]:
    """Returns the records of owners by the digest of each thread of some conversations."""
    found: dict[str, None] = {}
    for copy in copies:
        for scope in (copy.old, copy.new):
            found |= dict.fromkeys((yield from owners.threads_of(store, scope)))
    keys = [*found] or [owners.thread_key(thread_id)]
    items = yield from batch(store, [owners.owner_place(key) for key in keys])
    pairs = zip(keys, items, strict=True)
    return {key: owners.OwnerRecord.of_item(item) for key, item in pairs}


def _is_stored(store: BaseStore, scopes: Sequence[stores.Scope]) -> Flow[bool]:
    items = yield from batch(
        store, [GetOp(scope.namespace(history.LANES), history.JOINED) for scope in scopes]
    )
    return any(isinstance(item, Item) for item in items)
