"""Ollama, a server for open models on one's own machine."""

from langchain_ctxbudget.providers.cache_terms import CacheTerms
from langchain_ctxbudget.providers.profile import OwnItems, Profile

# Ids of calls are no part of Ollama's API. What is not text or an image, `langchain_ollama` leaves
# out or refuses (`ChatOllama._convert_messages_to_ollama_messages`, 1.1.0).
OLLAMA = Profile(
    name="ollama",
    items=OwnItems(authors=frozenset({"ollama"}), reasoning_key="reasoning_content"),
    # Nothing is charged; what counts is time, and the beginning that a prompt shares with the last
    # one is not computed again. Its share is an estimate (no source): each new token still reads
    # it. A model is unloaded after five minutes (`keep_alive`, Ollama's API reference).
    cache=CacheTerms(read_price=0.05, lifetime_seconds=300, most_marks=0),
)
