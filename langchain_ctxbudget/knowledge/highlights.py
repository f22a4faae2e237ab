"""What a user has said about a topic lately, sentence by sentence: so that a topic's bundle has something to say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from langchain_ctxbudget.core.prose import units
from langchain_ctxbudget.knowledge.known import by_names
from langchain_ctxbudget.knowledge.records import Highlight, Source, TopicProfile
from langchain_ctxbudget.knowledge.taking import Work

MOST_HIGHLIGHTS = 4
"""Of a topic; of more, the newest."""
FEWEST_CHARACTERS, MOST_CHARACTERS = 20, 160
"""A shorter sentence says little, a longer one is left to retrieval."""


def with_highlights(topics: Sequence[TopicProfile], work: Work) -> tuple[TopicProfile, ...]:
    """Topics with what the user says about them in new messages; questions say nothing."""
    detector = by_names(topics)
    found: defaultdict[str, list[Highlight]] = defaultdict(list)
    for said in work.said:
        if not said.from_user or not detector.named(said.text):
            continue
        source = Source(conversation_id=work.scope.conversation_id, message_id=said.id, digest=said.digest)
        for sentence in units(said.text):
            if sentence.endswith("?") or not FEWEST_CHARACTERS <= len(sentence) <= MOST_CHARACTERS:
                continue
            date = said.at.date().isoformat() if said.at else None
            for name in detector.named(sentence):
                found[name].append(Highlight(text=sentence, date=date, source=source))
    return tuple(_with(topic, found[topic.id]) if topic.id in found else topic for topic in topics)


def _with(topic: TopicProfile, new: Sequence[Highlight]) -> TopicProfile:
    newest = {highlight.text: highlight for highlight in reversed((*topic.highlights, *new))}
    kept = tuple(newest.values())[MOST_HIGHLIGHTS - 1 :: -1]
    if kept == topic.highlights:
        return topic
    return topic.model_copy(update={"highlights": kept, "is_dirty": True})
