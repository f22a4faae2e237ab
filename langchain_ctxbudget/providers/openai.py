"""OpenAI's Chat Completions."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.providers.profile import CallIds, ImageRate, OwnItems, Profile
from langchain_ctxbudget.providers.stretch import Change

OPENAI = Profile(
    name="openai",
    # "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum
    # length 40" (camel-ai/camel issue 2215, anomalyco/opencode issue 12653; November 2026).
    call_ids=CallIds(longest=40),
    # It has no reasoning and no server tools in messages.
    items=OwnItems(authors=frozenset({"openai"})),
    # OpenAI's vision guide, "Calculating costs". All others cost as gpt-4o does, or less.
    image_rates={
        "gpt-4o-mini": ImageRate(base_tokens=2_833, tile_tokens=5_667),
        "gpt-4.1-mini": ImageRate(patch_tokens=1.62),
        "gpt-4.1-nano": ImageRate(patch_tokens=2.46),
        "gpt-5-mini": ImageRate(patch_tokens=1.62),
        "gpt-5-nano": ImageRate(patch_tokens=2.46),
        "o4-mini": ImageRate(patch_tokens=1.72),
    },
)


def without_response_id(
    message: BaseMessage, _profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message without the id under which OpenAI keeps a copy of the whole answer.

    A client that finds it may send that instead of the messages before it, so that OpenAI reads
    what was left out of the prompt. Nothing is told: no word of the message changes.
    """
    metadata = message.response_metadata
    if not str(metadata.get("id", "")).startswith("resp_"):
        return message, ()
    others = {key: value for key, value in metadata.items() if key != "id"}
    return message.model_copy(update={"response_metadata": others}), ()
