"""What the items of a kept report stand for: a report names them by id, and the texts are read where they are kept.

So nothing that was erased since comes back. What is no longer there, or was never kept (the current message, the
settings), has no preview; nor has what was named by a position that another message may have now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from urllib.parse import unquote

from langchain_ctxbudget.core.layers import Layer, Reason
from langchain_ctxbudget.core.report import ContextReport, LayerReport, ReportItem, preview
from langchain_ctxbudget.core.report_parts import JOINED
from langchain_ctxbudget.dashboard.places import steady_messages
from langchain_ctxbudget.dashboard.transcripts import Transcript, Transcripts
from langchain_ctxbudget.knowledge_base import KnowledgeBase
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores.records import Scope

OTHER_CONVERSATIONS = 20
"""Other conversations that one report is filled in from."""
_LINE = "message "
"""What a line of a summary is called by: the position of the message that it comes from."""
_SAID = (Layer.ARC, Layer.HISTORY, Layer.MESSAGE)

Texts = Mapping[str, str]


async def with_previews(
    report: ContextReport, transcript: Transcript, scope: Scope, pipeline: ContextPipeline, transcripts: Transcripts
) -> ContextReport:
    """A report whose items quote what they stand for.

    Args:
        report: as it was kept.
        transcript: its conversation as it is now.
        scope: whose conversation; nothing of another user is read.
        pipeline: where everything is kept.
        transcripts: reads other conversations of the user.
    """
    sources = {item.source for layer in report.layers for item in layer.items}
    known = {layer.layer for layer in report.layers if layer.items}
    texts: dict[str, Texts] = {}
    if "memories" in sources or known & {Layer.PREFERENCES, Layer.TOPICS, Layer.ENTITIES}:
        texts["known"] = await _known(scope.user_id, pipeline)
    if "documents" in sources:
        texts["documents"] = await _documents(report, scope.user_id, pipeline)
    if "conversations" in sources:
        texts["conversations"] = await _elsewhere(report, scope, transcripts)
    quote = _quoting(transcript, steady_messages(report, transcript), texts)
    layers = tuple(
        replace(layer, items=tuple(_filled(layer, item, quote) for item in layer.items)) for layer in report.layers
    )
    return replace(report, layers=layers)


def _filled(layer: LayerReport, item: ReportItem, quote: Callable[[LayerReport, ReportItem], str]) -> ReportItem:
    return item if item.preview else replace(item, preview=preview(quote(layer, item)))


def _quoting(
    transcript: Transcript, steady: int, texts: Mapping[str, Texts]
) -> Callable[[LayerReport, ReportItem], str]:
    def quote(layer: LayerReport, item: ReportItem) -> str:
        if layer.layer == Layer.RETRIEVAL and item.source != "messages":
            return texts.get("known" if item.source == "memories" else item.source, {}).get(item.id, "")
        if layer.layer == Layer.RETRIEVAL or layer.layer in _SAID:
            is_line = item.reason is Reason.SUMMARY
            return _line(transcript, steady, item) if is_line else _message(transcript, item.id)
        return texts.get("known", {}).get(item.id, "")

    return quote


def _message(transcript: Transcript, name: str) -> str:
    """The message of an id, or the first of several; an id may itself have in it what joins them."""
    parts = name.split(JOINED)
    for end in range(len(parts), 0, -1):
        if message := transcript.by_id.get(JOINED.join(parts[:end])):
            return message.text
    return ""


def _line(transcript: Transcript, steady: int, item: ReportItem) -> str:
    """The message that a line of a summary comes from; nothing where another one may stand there now."""
    number = item.id.removeprefix(_LINE)
    place = int(number) if number.isdecimal() else 0
    return transcript.messages[place - 1].text if 0 < place <= steady else ""


async def _known(user_id: str, pipeline: ContextPipeline) -> Texts:
    """Facts, topics and entities, by their ids."""
    knowledge = pipeline.knowledge
    texts = {topic.id: topic.label for topic in await knowledge.alist_topics(user_id=user_id)}
    texts |= {entity.id: entity.name for entity in await knowledge.alist_entities(user_id=user_id)}
    return texts | {fact.id: fact.text for fact in await knowledge.alist_facts(user_id=user_id, include_ended=True)}


async def _documents(report: ContextReport, user_id: str, pipeline: ContextPipeline) -> Texts:
    """The titles of the documents that items are parts of: of the user's own, and of everyone's."""
    titles: dict[str, str] = {}
    for shelf in (KnowledgeBase(pipeline.store, shared=True), KnowledgeBase(pipeline.store, user_id=user_id)):
        titles |= {document.id: document.title for document in await shelf.alist()}
    return {item.id: titles.get(item.id.partition("#")[0], "") for item in _from(report, "documents")}


def _from(report: ContextReport, source: str) -> Iterator[ReportItem]:
    return (item for layer in report.layers for item in layer.items if item.source == source)


async def _elsewhere(report: ContextReport, scope: Scope, transcripts: Transcripts) -> Texts:
    """What was said in other conversations, by references such as `conversation/message`."""
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for item in _from(report, "conversations"):
        conversation, _, message = item.id.partition("/")
        wanted[conversation].append(message)
    texts: dict[str, str] = {}
    for conversation in list(wanted)[:OTHER_CONVERSATIONS]:
        other = await transcripts.read(Scope(scope.user_id, unquote(conversation)))
        said = other.by_id if other else {}
        texts |= {f"{conversation}/{one}": said[one].text for one in wanted[conversation] if one in said}
    return texts
