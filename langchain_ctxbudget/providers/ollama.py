"""Ollama, a server for open models on one's own machine."""

from langchain_ctxbudget.content import Shape
from langchain_ctxbudget.providers.cache_terms import CacheTerms
from langchain_ctxbudget.providers.media_forms import MediaForms, MediaInResults, Readable
from langchain_ctxbudget.providers.profile import OwnItems, Profile

# Ids of calls are no part of Ollama's API. What is not text or an image, `langchain_ollama` leaves
# out or refuses (`ChatOllama._convert_messages_to_ollama_messages`, 1.1.0).
# It takes the bytes of images, and nothing else ("Blocks of type ... not supported"). "The vision
# models can not see the images in tool responses" (ollama/ollama issue 16038, May 2026).
_MEDIA_FORMS = MediaForms(
    kinds={
        "image": Readable(
            with_bytes=(Shape.STANDARD, Shape.EARLIER, Shape.CHAT),
            types="image/(png|jpeg|webp)",
        )
    },
    in_results=MediaInResults.BEHIND,
)

OLLAMA = Profile(
    name="ollama",
    items=OwnItems(authors=frozenset({"ollama"}), reasoning_key="reasoning_content"),
    media_forms=_MEDIA_FORMS,
    # Nothing is charged; what counts is time, and the beginning that a prompt shares with the last
    # one is not computed again. Its share is an estimate (no source): each new token still reads
    # it. A model is unloaded after five minutes (`keep_alive`, Ollama's API reference).
    cache=CacheTerms(read_price=0.05, lifetime_seconds=300, most_marks=0),
)
