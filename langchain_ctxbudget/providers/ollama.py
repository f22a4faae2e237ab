"""Ollama, a server for open models on one's own machine."""

from langchain_ctxbudget.providers.profile import OwnItems, Profile

# Ids of calls are no part of Ollama's API. What is not text or an image, `langchain_ollama` leaves
# out or refuses (`ChatOllama._convert_messages_to_ollama_messages`, 1.1.0).
OLLAMA = Profile(name="ollama", items=OwnItems(authors=frozenset({"ollama"})))
