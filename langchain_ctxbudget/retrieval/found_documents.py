"""A found text as a LangChain document, for retrievers and rerankers."""

from typing import Any

from langchain_core.documents import Document

from langchain_ctxbudget.history import Conversation, Entry, message_reference
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.search import Candidate


def document(pool: Pool, number: int, conversation: Conversation | None) -> Document:
    """Returns a text as a LangChain document.

    A message also names its `conversation_id` and `reference`. Its `score` is what it is ranked by,
    the worth of a token of it, as prompts rank it; its `scores` have it as `value`, too, beside its
    parts.
    """
    text = pool.text(number)
    if isinstance(text, Entry):
        text = _as_candidate(text, conversation)
    parts = pool.ranking.scores(number)
    key = float(pool.ranking.keys[number])
    metadata: dict[str, Any] = {
        "id": text.id,
        "found_in": text.source,
        "source": text.metadata.get("source", text.source),
        "title": text.title,
        "date": text.date or "",
        "speaker": text.speaker,
        "score": key,
        "scores": {**parts, "value": round(key, 3)},
    }
    if text.source == "conversations":
        metadata["conversation_id"] = text.title
        metadata["reference"] = text.id.partition("/")[2]
    from langchain_ctxbudget.documents import beside  # noqa: PLC0415 - where there may be some

    shown_already = ("source", "title", "date")
    given = {name: value for name, value in text.metadata.items() if name not in shown_already}
    return Document(text.text, id=text.id, metadata=beside(given, metadata))


def _as_candidate(entry: Entry, conversation: Conversation | None) -> Candidate:
    """Returns a message of the open conversation as if it were of another one."""
    title = conversation.scope.conversation_id if conversation else ""
    return Candidate(
        id=message_reference(title, entry.id),
        source="conversations",
        title=title,
        text=entry.text,
        speaker=entry.speaker,
        date=entry.date,
    )
