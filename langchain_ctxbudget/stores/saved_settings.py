"""Settings that a user, or a persona of theirs, has saved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.errors import InvalidSettingsError, MissingScopeError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores.records import ROOT, label, require_id, storable, stored

SETTINGS = "settings"
OF_USER = "user"


def place(user_id: str, persona_id: str | None) -> GetOp:
    """Returns where settings are kept, always within the user's own labels."""
    namespace = (ROOT, label(require_id("user_id", user_id)), SETTINGS)
    if persona_id is None:
        return GetOp(namespace, OF_USER)
    if not isinstance(persona_id, str) or not persona_id:
        raise MissingScopeError(f"persona_id must be a non-empty string or None, not {persona_id!r}")
    return GetOp(namespace, f"persona {label(persona_id)}")


def read(store: BaseStore, at: GetOp) -> Flow[dict[str, Any]]:
    """Reads what was saved."""
    [found] = yield from batch(store, [at])
    return of_item(found)


def of_item(found: object) -> dict[str, Any]:
    """Returns the settings in a stored item; none where there is none."""
    return deepcopy(stored(found.value)) if isinstance(found, Item) else {}


def write(store: BaseStore, at: GetOp, changes: Mapping[str, Any]) -> Flow[None]:
    """Saves settings in place of those that were saved there; none at all removes them."""
    try:
        plain = json.loads(json.dumps(dict(changes)))
    except (TypeError, ValueError) as error:
        raise InvalidSettingsError(
            f"Settings can be saved as plain data only ({error}): give a strategy as its name or a mapping, topics, "
            f"entities and layers as mappings; a layer with a function belongs into the pipeline's settings"
        ) from error
    yield from batch(store, [PutOp(at.namespace, at.key, storable(plain) if plain else None, index=False)])
