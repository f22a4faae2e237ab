"""What is stored of users: conversations and settings; all of it, exported or erased.

Both hold for the workspace and for those over the stores that runs brought along.
"""

from collections.abc import Mapping
from typing import Any

from langchain_ctxbudget import history, stores
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.flow import Flow, locked
from langchain_ctxbudget.knowledge import known
from langchain_ctxbudget.pipeline.workspace import Workspace


def conversation_ids(workspace: Workspace, user_id: str) -> Flow[list[str]]:
    """Returns the ids of a user's conversations, sorted."""
    return history.log.read_conversations(workspace.store, stores.require_id("user_id", user_id))


def saved_settings(
    workspace: Workspace, user_id: str, persona_id: str | None
) -> Flow[dict[str, Any]]:
    """Returns the saved settings of a user or a persona; empty if there are none."""
    return stores.read_settings(workspace.store, stores.settings_place(user_id, persona_id))


def save_settings(
    workspace: Workspace, settings: Mapping[str, Any], user_id: str, persona_id: str | None
) -> Flow[None]:
    """Saves the settings of a user or a persona; see `ContextPipeline.save_settings`."""
    if not isinstance(settings, Mapping):
        raise InvalidSettingsError(
            f"settings must be a mapping of their fields, not {type(settings).__name__}"
        )
    merged_settings = workspace.settings.override(settings)
    place = stores.settings_place(user_id, persona_id)
    yield from stores.write_settings(workspace.store, place, settings)
    if persona_id is not None:
        learning = workspace.workers.learning
        yield from learning.compile_persona(user_id, persona_id, merged_settings)


def export(workspace: Workspace, user_id: str) -> Flow[list[str]]:
    """Returns all that is stored of a user; see `ContextPipeline.export_user`."""
    path = (stores.ROOT, stores.label(stores.require_id("user_id", user_id)))

    def export_here(place: Workspace) -> Flow[list[str]]:
        return stores.bulk.export_below(place.store, path, without=history.remade_kinds())

    lines: dict[str, None] = {}  # two stores may be one database, opened twice
    for exported in (yield from workspace.everywhere(export_here)):
        lines.update(dict.fromkeys(exported))
    return [*lines]


def erase(workspace: Workspace, user_id: str) -> Flow[int]:
    """Deletes everything of a user, and returns how many records there were."""
    stores.require_id("user_id", user_id)
    return sum((yield from workspace.everywhere(lambda place: _erase_here(place, user_id))))


def _erase_here(workspace: Workspace, user_id: str) -> Flow[int]:
    """Deletes everything of a user in the workspace's own store alone."""
    workspace.workers.bookkeeping.ledger.erase(user_id)
    yield from workspace.forget_apart(lambda _: True)
    # Whatever is under way with a conversation ends before anything is deleted; and what was
    # begun in between is deleted in the end.
    count = yield from _erase_once(workspace, user_id)
    count += yield from _erase_once(workspace, user_id)

    workspace.catalogue.forget(stores.label(user_id))
    yield from workspace.libraries.erase(user_id)
    workspace.forget_by_text()
    workspace.forget_prompts(lambda scope: scope.user_id == user_id)
    for scope in _open_scopes_of(workspace, user_id):
        workspace.open_conversations.drop(scope)
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
