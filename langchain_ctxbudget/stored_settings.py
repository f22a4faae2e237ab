"""The settings that users, and personas of theirs, have saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_ctxbudget.engine import Engine
from langchain_ctxbudget.flow import adrive, drive


class StoredSettings:
    """What a pipeline does with saved settings; every method has an async twin."""

    engine: Engine

    def save_settings(self, settings: Mapping[str, Any], *, user_id: str, persona_id: str | None = None) -> None:
        """Keep settings of a user, or of a persona of theirs, in place of those kept before.

        They lie over the pipeline's: first the user's, then the persona's, then the call's own.

        Args:
            settings: plain data by setting, for instance `{"allocation": {"strategy": "ratio", "memory": 0.35,
                "history": 0.35}}`; an empty mapping removes what was kept.
            user_id: whose settings.
            persona_id: which persona's, where they are not for all.

        Raises:
            InvalidSettingsError: an unknown setting, a value outside its range, or something that is not plain data.
            MissingScopeError: no user.
        """
        drive(self.engine.save_settings(settings, user_id, persona_id))

    async def asave_settings(self, settings: Mapping[str, Any], *, user_id: str, persona_id: str | None = None) -> None:
        """Keep settings of a user, or of a persona of theirs; see `save_settings`."""
        await adrive(self.engine.save_settings(settings, user_id, persona_id))

    def get_settings(self, *, user_id: str, persona_id: str | None = None) -> dict[str, Any]:
        """What was saved for a user, or for a persona of theirs; nothing where nothing was.

        Raises:
            MissingScopeError: no user.
        """
        return drive(self.engine.saved_settings(user_id, persona_id))

    async def aget_settings(self, *, user_id: str, persona_id: str | None = None) -> dict[str, Any]:
        """What was saved for a user, or for a persona of theirs; see `get_settings`."""
        return await adrive(self.engine.saved_settings(user_id, persona_id))
