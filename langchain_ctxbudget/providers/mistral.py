"""Mistral's own API."""

from langchain_ctxbudget.providers.cache_terms import CacheTerms
from langchain_ctxbudget.providers.profile import CallIds, OwnItems, Profile

MISTRAL = Profile(
    name="mistral",
    # "Tool call id was abc123 but must be a-z, A-Z, 0-9, with a length of 9." (langchain-ai/
    # langchain pull request 24668, read in November 2026).
    call_ids=CallIds(longest=9, shortest=9, refused="[^a-zA-Z0-9]"),
    # Its reasoning comes back as `thinking` with a list of texts (`langchain_mistralai/_compat.py`,
    # 1.1.6).
    items=OwnItems(authors=frozenset({"mistral"}), types=frozenset({"thinking", "reasoning"})),
    # "Cached prompt tokens are billed at 10% of the standard input token price" ("Prompt caching",
    # docs.mistral.ai, read in November 2026), which has no marks and names no smallest prompt.
    cache=CacheTerms(read_price=0.1, most_marks=0),
)
