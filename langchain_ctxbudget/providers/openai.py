"""OpenAI, also through Azure."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.providers.profile import CallIds, ImageRate, Profile
from langchain_ctxbudget.providers.stretch import Change

OPENAI = Profile(
    name="openai",
    # Chat Completions and Responses refuse longer ones. Others take more, and some read what they
    # have put into an id.
    call_ids=CallIds(longest=40),
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
