"""Tables of what is known about a user, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from langchain_ctxbudget.cli.terminal import Row, cell, shortened, table
from langchain_ctxbudget.knowledge.control import KnownItem, SourceMessage
from langchain_ctxbudget.knowledge.records import (
    BY_RULES,
    BY_USER,
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    TopicProfile,
)
from langchain_ctxbudget.stores.clock import utc

QUOTED_CHARACTERS = 400
"""Length of a quoted message."""


def _fact(fact: Fact) -> Row:
    notes = [*_marks(fact), *([f"from {_day(fact.valid_from)}"] if fact.valid_from else [])]
    if fact.ended:
        by = f" by {fact.superseded_by}" if fact.superseded_by else ""
        notes.append(f"{fact.ended} {_day(fact.ended_at)}{by}")
    elif fact.valid_until:
        notes.append(f"until {_day(fact.valid_until)}")
    return fact.id, cell(fact.text, notes), fact.category, f"{fact.confidence:.0%}", _day(fact.last_seen)


def _topic(topic: TopicProfile) -> Row:
    notes = (*_marks(topic), _if(topic.parent_slug, "part of"), _if(", ".join(topic.aliases), "also"))
    counts = f"{topic.total_messages:,} in {topic.total_conversations:,}"
    return topic.id, cell(topic.label, notes), counts, f"{topic.importance_score:.2f}", _day(topic.last_engaged_at)


def _entity(entity: EntityProfile) -> Row:
    notes = (
        *_marks(entity),
        *(f"{name}: {value}" for name, value in entity.attributes),
        *(f"{one.relation} {one.target}" for one in entity.relations),
        _if(", ".join(entity.aliases), "also"),
    )
    name = cell(", ".join(filter(None, (entity.name, entity.relationship))), notes)
    counts = f"{entity.mention_count:,} in {entity.conversation_count:,}"
    return entity.id, name, counts, f"{entity.importance_score:.2f}", _day(entity.last_mentioned_at)


def _bundle(bundle: ContextBundle) -> Row:
    text = cell(bundle.compiled_prompt, ["to be compiled again"] if bundle.is_dirty else [])
    return (
        bundle.id,
        text,
        f"{bundle.token_count:,}",
        str(bundle.version),
        f"{bundle.hit_count:,} of {bundle.use_count:,}",
    )


def _device(device: ClientPresence) -> Row:
    likely = (f"likely {one}" for one in (*device.predicted_topics, *device.predicted_entities))
    where = cell(device.last_navigation_path or "", (_if(device.active_conversation_id, "conversation"), *likely))
    state = "offline" if not device.is_online else "idle" if device.idle_since else "active"
    return device.device_id, where, state, utc(device.last_heartbeat_at).strftime("%Y-%m-%d %H:%M")


def _conversation(one: Mapping[str, Any]) -> Row:
    about = ", ".join(str(item["name"]) for item in one["about"])
    return str(one["conversation_id"]), about, f"{one['messages_read']:,}"


def _source(one: SourceMessage) -> Row:
    if one.message is None:
        return one.conversation_id, cell("(no longer there)"), ""
    at = one.message.additional_kwargs.get("created_at")
    text = cell(shortened(one.message.text, QUOTED_CHARACTERS), ["edited since"] if one.changed else [])
    return one.conversation_id, text, at[: len("2026-01-31")] if isinstance(at, str) else ""


_COLUMNS: Mapping[str, tuple[Callable[[Any], Row], tuple[str, ...], int]] = {
    "facts": (_fact, ("id", "fact", "category", "sure", "said last"), 3),
    "topics": (_topic, ("id", "topic", "messages", "weight", "last"), 3),
    "entities": (_entity, ("id", "who or what", "messages", "weight", "last"), 3),
    "bundles": (_bundle, ("id", "text", "tokens", "version", "hits"), 3),
    "devices": (_device, ("device", "where", "state", "last heard of, UTC"), 2),
    "conversations": (_conversation, ("conversation", "about", "messages read"), 1),
    "sources": (_source, ("conversation", "message", "said"), 1),
}
"""For each kind: a function that makes a row, the headings, and how many columns at the end are narrow."""


def table_of(kind: str, items: Sequence[Any], title: str | None = None) -> Table:
    """Draws a table of items of one kind; the default title counts them."""
    make, columns, numbers = _COLUMNS[kind]
    counted = f"{len(items):,} {kind if len(items) != 1 else kind.removesuffix('s')}"
    return table(counted if title is None else title, columns, [make(item) for item in items], numbers=numbers)


def item_table(item: KnownItem) -> Table:
    """Draws one thing that is known."""
    kind = "facts" if isinstance(item, Fact) else "topics" if isinstance(item, TopicProfile) else "entities"
    return table_of(kind, [item], "")


def _marks(item: KnownItem) -> Iterable[str]:
    marks = ["pinned"] if item.pinned else []
    if item.made_by != BY_RULES:
        marks.append("by hand" if item.made_by == BY_USER else f"learned by {item.made_by}")
    return [", ".join(marks)]


def _if(text: str | None, before: str) -> str:
    return f"{before} {text}" if text else ""


def _day(at: datetime | None) -> str:
    return at.date().isoformat() if at else ""
