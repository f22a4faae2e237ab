"""The profile of a provider that is not known: what nearly every provider accepts."""

from langchain_ctxbudget.providers.media_rules import MEGABYTE, MediaLimits, MediaRules
from langchain_ctxbudget.providers.profile import ANY_ITEM_CALLS, CallIds, Profile

COMMON = Profile(
    name="unknown",
    item_calls=ANY_ITEM_CALLS,
    # As OpenAI and Anthropic take them. Mistral's nine characters are not asked of everybody: each
    # id of all others would change.
    call_ids=CallIds(longest=40, refused="[^a-zA-Z0-9_-]", keeps_thoughts=True),
    # The narrowest of OpenAI, Anthropic (also on Bedrock and Vertex) and Google; Mistral takes
    # fewer images, and has a profile of its own.
    media=MediaRules(
        limits=MediaLimits(
            most_images=100,
            longest_side=8_000,
            many_images=20,
            longest_side_of_many=2_000,
            image_bytes=5 * MEGABYTE,
            file_bytes=20 * MEGABYTE,
            request_bytes=20 * MEGABYTE,
            most_pages=100,
        )
    ),
)
