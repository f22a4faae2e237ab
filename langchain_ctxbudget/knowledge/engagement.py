"""Which messages of a conversation are about what is known, and the numbers that come of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from langchain_ctxbudget.core.calls import is_user
from langchain_ctxbudget.core.detection import Detector
from langchain_ctxbudget.history.entry import Entry
from langchain_ctxbudget.knowledge.known import Profile, by_names, things
from langchain_ctxbudget.knowledge.profiles import Engagement, engaged, sentiment_of
from langchain_ctxbudget.knowledge.records import EntityProfile, TopicConversation, TopicProfile
from langchain_ctxbudget.knowledge.taking import Work, time_of

LOOK_BACK = 1_000
"""Messages before the new ones in which a new topic or entity is looked for."""
Links = Mapping[tuple[str, str], TopicConversation]


def counted(
    links: Links,
    topics: Sequence[TopicProfile],
    entities: Sequence[EntityProfile],
    work: Work,
    new: Collection[str],
) -> tuple[dict[tuple[str, str], TopicConversation], set[str]]:
    """The links with the new messages counted, and the ids of what they are about.

    Args:
        links: as they were.
        topics: all.
        entities: all.
        work: the messages; where older ones have changed, all of its conversation is counted again.
        new: ids of topics and entities that are known only now. For them, and for what the conversation names for the
            first time, older messages are counted, too.
    """
    conversation = work.scope.conversation_id
    first, after, touched = work.first, dict(links), set[str]()
    if work.changed:
        first = 0
        for key in [key for key in after if key[1] == conversation]:
            del after[key]
            touched.add(key[0])
    everything: tuple[Profile, ...] = (*topics, *entities)
    found = _naming(by_names(everything), work.entries, first)
    uncounted = {*new, *found} - {name for name, where in after if where == conversation}
    fresh = [thing for thing in things(everything) if thing.id in uncounted] if uncounted else []
    back = max(0, first - LOOK_BACK)
    if fresh and back < first:
        for name, positions in _naming(Detector(fresh), work.entries[:first], back).items():
            found[name] = [*positions, *found.get(name, ())]
    for name, positions in found.items():
        key = (name, conversation)
        link = after.get(key, TopicConversation(topic_id=name, conversation_id=conversation))
        messages = [_engagement(work.entries[position]) for position in positions if position >= link.until]
        if not messages:
            continue
        after[key] = engaged(link, messages, until=len(work.entries))
        touched.add(name)
    return after, touched


def _naming(detector: Detector, entries: Sequence[Entry], first: int) -> dict[str, list[int]]:
    """The positions of the messages that name something, by its id."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position in range(first, len(entries)):
        text = entries[position].text
        if not text or entries[position].message.type not in ("human", "ai"):
            continue
        for name in detector.named(text):
            found[name].append(position)
    return found


def _engagement(entry: Entry) -> Engagement:
    return Engagement(
        at=time_of(entry),
        tokens=entry.tokens,
        from_user=is_user(entry.message),
        sentiment=sentiment_of(entry.text),
    )
