"""The numbers of topics and entities, added up from one link per conversation; their names and ids.

Adding up again gives the same. Days and hours are UTC.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from math import log
from typing import Literal, TypeVar

from langchain_ctxbudget.knowledge.bundle_lines import entity_shown, topic_shown
from langchain_ctxbudget.knowledge.records import (
    EntityProfile,
    EntityType,
    Proficiency,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.messages.text import fold, one_line, terms
from langchain_ctxbudget.stores.clock import utc

Sentiment = Literal[-1, 0, 1]
Profile = TypeVar("Profile", TopicProfile, EntityProfile)

MOST_DAYS = 100
"""Days that a link remembers, the newest; no streak within one conversation is longer."""
HOURS = 24
RECENCY, FREQUENCY, BREADTH = 0.4, 0.35, 0.25
"""What each counts in importance."""
HALF_LIFE_DAYS = 30.0
MANY_MESSAGES, MANY_CONVERSATIONS = 100, 10
"""So many are as good as more."""
PINNED_IMPORTANCE = 1.0
NEWEST_SIGNALS = 10
"""Signals of proficiency that are counted."""

_DAY_SECONDS = 86_400
_PRAISE = (
    "admire adore amazing awesome beautiful best better brilliant comfortable delicious delighted enjoy enjoyed "
    "enjoying enjoys excellent excited exciting fantastic favorite favourite fun glad good gorgeous grateful great "
    "happy helpful impressed impressive incredible liked likes love loved lovely loves nice perfect pleasant pleased "
    "proud recommend relaxing reliable satisfied success successful superb thrilled useful well wonderful "
)
_BLAME = (
    "afraid angry annoyed annoying anxious awful bad boring broken confused confusing crash crashed crashes "
    "difficult disappointed disappointing disaster dislike fail failed failing fails failure frustrated frustrating "
    "hate hated hates horrible hurt hurts lonely mess miserable nervous nightmare overwhelmed painful poor problem "
    "problems sad scared sick stress stressed stressful stuck struggle struggling stupid terrible tired ugly unhappy "
    "unreliable upset useless worried worry worse worst wrong "
)
_NEGATIONS = "not no never neither nor without hardly barely isnt dont doesnt didnt wasnt arent cant cannot"
_WORTH = dict.fromkeys(_PRAISE.split(), 1) | dict.fromkeys(_BLAME.split(), -1)
_NOT = frozenset(_NEGATIONS.split())
_LIKING = frozenset(("i", "we", "he", "she", "they", "really"))
"""After these and after a negation, "like" is a verb."""
_NEGATED_WORDS = 3
"""A negation turns the words after it, so many, in the same sentence part."""
_SPOKEN = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*|[,.;:!?\n]")
_LEVELS: tuple[Proficiency, ...] = ("beginner", "intermediate", "expert")
_SIGNS = {"+": "plus", "#": "sharp", ".": "dot"}
_TELLING_SIGNS = re.compile(r"[+#]+|(?<![^\W_])\.(?=[^\W_])")
"""What tells "C", "C++" and "C#" apart, and ".NET" from "net"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """A message that names a topic or an entity."""

    at: datetime | None
    """The time of the message; without an offset, UTC."""
    tokens: int
    from_user: bool
    sentiment: Sentiment = 0


def engaged(link: TopicConversation, messages: Iterable[Engagement], *, until: int = 0) -> TopicConversation:
    """Returns a link with more messages of its conversation; `until` of its messages are counted then."""
    new = list(messages)
    times = sorted(utc(message.at) for message in new if message.at is not None)
    known = [time for time in (link.first_at, link.last_at, *times) if time is not None]
    by_hour = Counter(time.hour for time in times)
    hours = link.hours or (0,) * HOURS
    counted = link.messages + len(new)
    return link.model_copy(
        update={
            "messages": counted,
            "exchanges": link.exchanges + sum(message.from_user for message in new),
            "tokens": link.tokens + sum(message.tokens for message in new),
            "sentiment": link.sentiment + sum(message.sentiment for message in new),
            "first_at": min(known, default=None),
            "last_at": max(known, default=None),
            "hours": tuple(hours[hour] + by_hour[hour] for hour in range(HOURS)) if times else link.hours,
            "days": tuple(sorted({*link.days, *(time.date().isoformat() for time in times)})[-MOST_DAYS:]),
            "until": max(link.until, until),
            "relevance_score": min(1.0, counted / until) if until else link.relevance_score,
        }
    )


def topic_metrics(profile: TopicProfile, links: Iterable[TopicConversation], now: datetime) -> TopicProfile:
    """Returns a topic with its numbers computed from its conversations.

    The level of proficiency is the one that most of the newest 10 signals begin with ("expert", "expert: maintains
    one"), of levels with as many the one that was signalled last. Without any signal it stays what it is.
    """
    counted = [link for link in links if link.messages]
    total = sum(link.messages for link in counted)
    first, last = _span(counted)
    return _with(
        profile,
        {
            "total_conversations": len(counted),
            "total_acus": sum(link.exchanges for link in counted),
            "total_messages": total,
            "total_tokens_spent": sum(link.tokens for link in counted),
            "avg_session_depth": total / len(counted) if counted else 0.0,
            "first_engaged_at": first,
            "last_engaged_at": last,
            "engagement_streak": _streak(day for link in counted for day in link.days),
            "peak_hour": _peak(link.hours for link in counted if link.hours),
            "proficiency_level": _proficiency(profile),
            "importance_score": importance(total, len(counted), last, now, pinned=profile.pinned),
        },
        shown=topic_shown,
    )


def entity_metrics(profile: EntityProfile, links: Iterable[TopicConversation], now: datetime) -> EntityProfile:
    """Returns an entity with its numbers computed from its conversations."""
    counted = [link for link in links if link.messages]
    total = sum(link.messages for link in counted)
    first, last = _span(counted)
    return _with(
        profile,
        {
            "mention_count": total,
            "conversation_count": len(counted),
            "first_mentioned_at": first,
            "last_mentioned_at": last,
            "sentiment": sum(link.sentiment for link in counted) / total if total else 0.0,
            "importance_score": importance(total, len(counted), last, now, pinned=profile.pinned),
        },
        shown=entity_shown,
    )


def importance(messages: int, conversations: int, last: datetime | None, now: datetime, *, pinned: bool) -> float:
    """Returns the importance of something that came up, 0 to 1.

    `0.4 * recency + 0.35 * frequency + 0.25 * breadth`, with

    - recency: `0.5 ** (days since the last time / 30)`; 0 where no message has a time;
    - frequency: `log(1 + messages) / log(101)`, at most 1;
    - breadth: `conversations / 10`, at most 1.

    Example:
        >>> from datetime import UTC
        >>> now = datetime(2026, 1, 31, tzinfo=UTC)
        >>> importance(100, 5, datetime(2026, 1, 1, tzinfo=UTC), now, pinned=False)  # 0.4 / 2 + 0.35 + 0.25 / 2
        0.675
    """
    if pinned:
        return PINNED_IMPORTANCE
    days = max(0.0, (utc(now) - utc(last)).total_seconds() / _DAY_SECONDS) if last else float("inf")
    frequency = min(1.0, log(1 + messages) / log(1 + MANY_MESSAGES))
    breadth = min(1.0, conversations / MANY_CONVERSATIONS)
    recency = float(0.5 ** (days / HALF_LIFE_DAYS))
    return RECENCY * recency + FREQUENCY * frequency + BREADTH * breadth


def as_of(profile: Profile, now: datetime) -> Profile:
    """Returns a topic or an entity with its importance at a time instead of when it was counted last."""
    return profile.model_copy(update={"importance_score": importance_at(profile, now)})


def importance_at(profile: TopicProfile | EntityProfile, now: datetime) -> float:
    """Returns the importance of a topic or an entity at a time."""
    if isinstance(profile, TopicProfile):
        messages, conversations, last = profile.total_messages, profile.total_conversations, profile.last_engaged_at
    else:
        messages, conversations, last = profile.mention_count, profile.conversation_count, profile.last_mentioned_at
    return importance(messages, conversations, last, now, pinned=profile.pinned)


def sentiment_of(text: str) -> Sentiment:
    """Returns the mood of a text by the English words in it: good (1), bad (-1) or neither (0).

    More good than bad words are 1, fewer are -1; a negation among the three words before one turns it.

    >>> sentiment_of("I love it"), sentiment_of("It isn't working well, not good"), sentiment_of("It is Tuesday")
    (1, -1, 0)
    """
    mood = negated = 0
    before = ""
    for word in _SPOKEN.findall(fold(text)):
        if not word[0].isalpha():
            negated = 0
        elif word in _NOT or word.endswith(("n't", "n\u2019t")):
            negated = _NEGATED_WORDS + 1
        else:
            worth = _WORTH.get(word, int(word == "like" and (before in _LIKING or negated > _NEGATED_WORDS - 1)))
            mood += -worth if negated else worth
        before, negated = word, max(0, negated - 1)
    return 1 if mood > 0 else -1 if mood < 0 else 0


def similar(first: TopicProfile, second: TopicProfile) -> bool:
    """Returns whether two topics have the same stems in any order, or one's alias is the other's label."""
    keys = _key(first.label), _key(second.label)
    return (
        keys[0] == keys[1]
        or any(_key(alias) == keys[1] for alias in first.aliases)
        or any(_key(alias) == keys[0] for alias in second.aliases)
    )


def slug(label: str) -> str:
    """Returns folded words joined by hyphens; "C" and "C++" have different slugs.

    >>> slug("Home brewing"), slug("C++"), slug(".NET")
    ('home-brewing', 'c-plus-plus', 'dot-net')
    """
    folded = _TELLING_SIGNS.sub(lambda found: "".join(f" {_SIGNS[sign]} " for sign in found[0]), fold(label))
    words = "".join(character if unicodedata.category(character)[0] in "LNM" else " " for character in folded).split()
    return "-".join(words or (f"u{ord(character):x}" for character in one_line(folded)))


def topic_id(slug: str) -> str:
    """Returns the id of the topic with a slug."""
    return f"topic/{slug}"


def entity_id(entity_type: EntityType, name: str) -> str:
    """Returns the id of an entity, the same one in any case and spacing.

    >>> entity_id("person", "Sarah  Chen")
    'entity/person/sarah chen'
    """
    return f"entity/{entity_type}/{one_line(fold(name))}"


def _with(profile: Profile, update: dict[str, object], shown: Callable[[Profile], object]) -> Profile:
    renewed = profile.model_copy(update=update)
    return renewed if shown(renewed) == shown(profile) else renewed.model_copy(update={"is_dirty": True})


def _span(links: Iterable[TopicConversation]) -> tuple[datetime | None, datetime | None]:
    times = [utc(time) for link in links for time in (link.first_at, link.last_at) if time is not None]
    return min(times, default=None), max(times, default=None)


def _streak(days: Iterable[str]) -> int:
    known = {date.fromisoformat(day).toordinal() for day in days}
    last, length = max(known, default=0), 0
    while last - length in known:
        length += 1
    return length


def _peak(hours: Iterable[Sequence[int]]) -> int | None:
    sums = [sum(column) for column in zip(*hours, strict=True)]
    return sums.index(max(sums)) if sums else None


def _proficiency(profile: TopicProfile) -> Proficiency:
    newest = [
        level
        for signal in profile.proficiency_signals[-NEWEST_SIGNALS:]
        if (level := next((known for known in _LEVELS if signal.startswith(known)), None))
    ]
    if not newest:
        return profile.proficiency_level
    most = max(Counter(newest).values())
    return next(level for level in reversed(newest) if newest.count(level) == most)


def _key(label: str) -> tuple[str, ...]:
    folded = fold(label)
    return (*sorted(set(terms(folded)) or {one_line(folded)}), *_TELLING_SIGNS.findall(folded))
