"""Conversations and users that are deleted, and threads that get another owner.

Each holds for the workspace and for those over the stores that runs brought along.
"""

from collections.abc import Callable, Sequence

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import ForeignUserError, InputError
from langchain_ctxbudget.flow import Flow, T, locked
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.pipeline import handover
from langchain_ctxbudget.pipeline.workspace import Workspace


def clear(workspace: Workspace, scope: stores.Scope) -> Flow[None]:
    """Deletes a conversation and everything that was derived from it."""
    workspace.bookkeeping.ledger.forget(scope)

    def body(conversation: history.OpenConversation) -> Flow[None]:
        yield from workspace.learning.forget(scope)
        yield from stores.owners.release(workspace.store, scope)
        yield from workspace.libraries.forget(scope)
        try:
            yield from history.clear_derived(workspace.store, scope)
            yield from stores.bulk.delete_below(
                workspace.store, handover.path_of(scope), history.LANES, history.JOINED
            )
        finally:
            # Wherever it ends, what is left is read again; nothing may wait for a lock here.
            yield from workspace.forget(conversation)
            workspace.forget_by_text()
        # A prompt of another conversation may have read it meanwhile.
        yield from workspace.libraries.forget(scope)

    yield from workspace.using(scope, body)
    yield from _forget_apart(
        workspace, lambda other: other.conversation_id == scope.conversation_id
    )
    for other in workspace.of_runs():
        yield from clear(other, scope)


def erase(workspace: Workspace, user_id: str) -> Flow[int]:
    """Deletes everything of a user, and returns how many records there were."""
    user = stores.label(stores.require_id("user_id", user_id))
    workspace.bookkeeping.ledger.erase(user_id)
    yield from _forget_apart(workspace, lambda _: True)
    # Whatever is under way with a conversation ends before anything is deleted; and what was
    # begun in between is deleted in the end.
    count = yield from _erase_once(workspace, user_id)
    count += yield from _erase_once(workspace, user_id)

    workspace.catalogue.forget(user)
    yield from workspace.libraries.erase(user_id)
    workspace.forget_by_text()
    workspace.recent.forget(lambda scope: scope.user_id == user_id)
    for scope in _open_scopes_of(workspace, user_id):
        workspace.open_conversations.drop(scope)
    for other in workspace.of_runs():
        count += yield from erase(other, user_id)
    return count


def _erase_once(workspace: Workspace, user_id: str) -> Flow[int]:
    """Deletes the records of a user, and returns how many there were."""
    for scope in _open_scopes_of(workspace, user_id):
        yield from workspace.using(scope, workspace.forget)
    yield from workspace.libraries.erase(user_id)
    store = workspace.store
    known.interrupted(store, user_id)
    count = yield from stores.owners.release_all(store, user_id)
    count += yield from history.erase_derived(store, user_id)
    path = (stores.ROOT, stores.label(user_id))
    deletion = stores.bulk.delete_below(
        store, path, history.LANES, history.JOINED, uncounted=history.remade_kinds()
    )
    count += yield from locked(known.lock_of(store, user_id), deletion)
    return count


def _open_scopes_of(workspace: Workspace, user_id: str) -> list[stores.Scope]:
    return [scope for scope in workspace.open_conversations.all() if scope.user_id == user_id]


def _forget_apart(workspace: Workspace, is_chosen: Callable[[stores.Scope], bool]) -> Flow[None]:
    """Forgets what runs in other users' threads have in memory, of the chosen conversations."""

    def forget(conversation: history.OpenConversation) -> Flow[None]:
        yield from ()
        conversation.apart = None

    for scope, conversation in workspace.open_conversations.all().items():
        if conversation.apart is not None and is_chosen(scope):
            yield from workspace.using(scope, forget)
    workspace.recent.forget(lambda scope: not scope.is_kept and is_chosen(scope))


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
    ids = yield from handover.conversations_of(store, conversation_id, users)

    def move(opened: Sequence[history.OpenConversation]) -> Flow[None]:
        try:
            begun = yield from handover.begin(store, ids, from_user, to_user)
            if begun is None:
                return
            if not begun.is_copied:
                yield from begun.copy()
            for one_id in ids:
                yield from workspace.learning.forget(stores.Scope(from_user, one_id))
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
        workspace.bookkeeping.ledger.forget(stores.Scope(from_user, one_id))


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
