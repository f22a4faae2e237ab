"""The profile of a provider that is not known: what every provider accepts."""

from langchain_ctxbudget.providers.profile import ANY_ITEM_CALLS, CallIds, Profile

COMMON = Profile(
    name="unknown",
    item_calls=ANY_ITEM_CALLS,
    # As OpenAI and Anthropic take them. Mistral's nine characters are not asked of everybody: each
    # id of all others would change.
    call_ids=CallIds(longest=40, refused="[^a-zA-Z0-9_-]", keeps_thoughts=True),
)
