"""Names of speakers and tools in the form that a provider accepts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change

_NO_NAME = "unknown"


def accepted_name(name: str, profile: Profile = COMMON) -> str | None:
    """Returns a name in the form that a provider accepts; None where nothing of it is left."""
    clean = re.sub(profile.refused_in_names, "_", name)[: profile.longest_name]
    return clean if clean.strip("_-") else None


def name_of_call(call: Mapping[str, Any], profile: Profile = COMMON) -> str:
    """Returns the name of a call as a provider accepts it."""
    return accepted_name(call["name"] or "", profile) or _NO_NAME


def accepted_speaker(
    message: BaseMessage, profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message under a name that a provider accepts, or without one.

    Nothing is told of it here: a history tells of the names of its messages itself.
    """
    return with_accepted_name(message, profile), ()


def with_accepted_name(message: BaseMessage, profile: Profile = COMMON) -> BaseMessage:
    """Returns a message under a name that a provider accepts, or without one.

    The name of a tool on its result is not sent.
    """
    if not message.name or isinstance(message, ToolMessage):
        return message
    name = accepted_name(message.name, profile)
    if name == message.name:
        return message
    return message.model_copy(update={"name": name})
