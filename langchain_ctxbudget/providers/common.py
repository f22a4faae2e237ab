"""The profile of a provider that is not known: what every provider accepts."""

from langchain_ctxbudget.providers.profile import Profile

COMMON = Profile(name="any provider")
