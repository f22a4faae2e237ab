"""Settings that are saved for a user, or for one of the user's personas."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.stores.base import ROOT, from_stored, label, require_id, to_stored

SETTINGS = "settings"
"""The kind of records with saved settings."""


def settings_place(user_id: str, persona_id: str | None) -> GetOp:
    """Returns where settings are kept, always within the user's own labels."""
    key = "user"
    if persona_id is not None:
        key = f"persona {label(require_id('persona_id', persona_id))}"
    return GetOp((ROOT, label(require_id("user_id", user_id)), SETTINGS), key)


def settings_in(item: object) -> dict[str, Any]:
    """Returns the settings in a stored item; none where there is none."""
    if not isinstance(item, Item):
        return {}
    return deepcopy(from_stored(item.value))


def read_settings(store: BaseStore, at: GetOp) -> Flow[dict[str, Any]]:
    """Reads saved settings."""
    [item] = yield from batch(store, [at])
    return settings_in(item)


def write_settings(store: BaseStore, at: GetOp, changes: Mapping[str, Any]) -> Flow[None]:
    """Saves settings over those that are there; an empty mapping removes them.

    Raises:
        InvalidSettingsError: they are no plain data.
    """
    try:
        plain = json.loads(json.dumps(dict(changes)))
    except (TypeError, ValueError) as error:
        raise InvalidSettingsError(
            f"Settings can be saved as plain data only ({error}): give a strategy as its name or a "
            "mapping; a layer with a function belongs into the pipeline's settings"
        ) from error
    value: dict[str, Any] | None = None
    if plain:
        value = to_stored(plain)
    yield from batch(store, [PutOp(at.namespace, at.key, value, index=False)])
