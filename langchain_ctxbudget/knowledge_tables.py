"""What is known about a user, as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

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
from langchain_ctxbudget.terminal import cell, shortened, table

QUOTED_CHARACTERS = 400
"""Of a message that something is known from."""


def facts_table(facts: Sequence[Fact]) -> Table:
    """Facts, those that have ended with the reason."""
    rows = [
        (fact.id, cell(fact.text, _notes(fact)), fact.category, f"{fact.confidence:.0%}", _day(fact.last_seen))
        for fact in facts
    ]
    ended = sum(not fact.is_current for fact in facts)
    title = _number(len(rows) - ended, "fact") + (f", and {ended:,} that ended" if ended else "")
    return table(title, ("id", "fact", "category", "sure", "said last"), rows, numbers=3)


def _notes(fact: Fact) -> Iterable[str]:
    yield ", ".join(_marks(fact))
    if fact.valid_from:
        yield f"from {_day(fact.valid_from)}"
    if fact.ended:
        yield f"{fact.ended} {_day(fact.ended_at)}" + (f" by {fact.superseded_by}" if fact.superseded_by else "")
    elif fact.valid_until:
        yield f"until {_day(fact.valid_until)}"


def topics_table(topics: Sequence[TopicProfile]) -> Table:
    """Topics, and in how many conversations each came up."""
    rows = [
        (
            topic.id,
            cell(
                topic.label,
                (
                    ", ".join(_marks(topic)),
                    _if(topic.parent_slug, "part of"),
                    _if(", ".join(topic.aliases), "also"),
                ),
            ),
            f"{topic.total_messages:,} in {topic.total_conversations:,}",
            f"{topic.importance_score:.2f}",
            _day(topic.last_engaged_at),
        )
        for topic in topics
    ]
    return table(_number(len(rows), "topic"), ("id", "topic", "messages", "weight", "last"), rows, numbers=3)


def entities_table(entities: Sequence[EntityProfile]) -> Table:
    """People and things, with what is known of each."""
    rows = [
        (
            entity.id,
            cell(
                ", ".join(filter(None, (entity.name, entity.relationship))),
                (
                    ", ".join(_marks(entity)),
                    *(f"{name}: {value}" for name, value in entity.attributes),
                    *(f"{one.relation} {one.target}" for one in entity.relations),
                    _if(", ".join(entity.aliases), "also"),
                ),
            ),
            f"{entity.mention_count:,} in {entity.conversation_count:,}",
            f"{entity.importance_score:.2f}",
            _day(entity.last_mentioned_at),
        )
        for entity in entities
    ]
    title = f"{len(rows):,} people and things"
    return table(title, ("id", "who or what", "messages", "weight", "last"), rows, numbers=3)


def bundles_table(bundles: Sequence[ContextBundle]) -> Table:
    """The texts that prompts get, and how often each could be used as it was."""
    rows = [
        (
            bundle.id,
            cell(bundle.compiled_prompt, ["to be compiled again"] if bundle.is_dirty else []),
            f"{bundle.token_count:,}",
            str(bundle.version),
            f"{bundle.hit_count:,} of {bundle.use_count:,}",
        )
        for bundle in bundles
    ]
    title = _number(len(rows), "compiled text")
    return table(title, ("id", "text", "tokens", "version", "hits"), rows, numbers=3)


def devices_table(devices: Sequence[ClientPresence]) -> Table:
    """What is open on each device, and what is likely to come up there."""
    rows = [
        (
            device.device_id,
            cell(
                device.last_navigation_path or "",
                (
                    _if(device.active_conversation_id, "conversation"),
                    *(f"likely {one}" for one in (*device.predicted_topics, *device.predicted_entities)),
                ),
            ),
            "offline" if not device.is_online else "idle" if device.idle_since else "active",
            device.last_heartbeat_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
        )
        for device in devices
    ]
    return table(_number(len(rows), "device"), ("device", "where", "state", "last heard of, UTC"), rows, numbers=2)


def conversations_table(conversations: Sequence[Mapping[str, Any]]) -> Table:
    """What each conversation is about, and of how many of its messages something was learned."""
    rows = [
        (
            str(one["conversation_id"]),
            ", ".join(str(item["name"]) for item in one["about"]),
            f"{one['messages_read']:,}",
        )
        for one in conversations
    ]
    title = _number(len(rows), "conversation")
    return table(title, ("conversation", "about", "messages read"), rows, numbers=1)


def item_table(item: KnownItem) -> Table:
    """One thing that is known."""
    match item:
        case Fact():
            shown = facts_table([item])
        case TopicProfile():
            shown = topics_table([item])
        case _:
            shown = entities_table([item])
    shown.title = None
    return shown


def sources_table(sources: Sequence[SourceMessage]) -> Table:
    """The messages that something is known from."""
    rows = [(one.conversation_id, _quoted(one), _said_at(one)) for one in sources]
    return table(f"known from {_number(len(rows), 'message')}", ("conversation", "message", "said"), rows, numbers=1)


def _quoted(one: SourceMessage) -> Text:
    if one.message is None:
        return cell("(no longer there)")
    return cell(shortened(one.message.text, QUOTED_CHARACTERS), ["edited since"] if one.changed else [])


def _said_at(one: SourceMessage) -> str:
    at = one.message.additional_kwargs.get("created_at") if one.message else None
    return at[: len("2026-01-31")] if isinstance(at, str) else ""


def _marks(item: KnownItem) -> Iterable[str]:
    """What sets it apart from what rules have learned."""
    if item.pinned:
        yield "pinned"
    if item.made_by != BY_RULES:
        yield "by hand" if item.made_by == BY_USER else f"learned by {item.made_by}"


def _if(text: str | None, before: str) -> str:
    """A text behind a word; nothing where there is none."""
    return f"{before} {text}" if text else ""


def _number(number: int, name: str) -> str:
    return f"{number:,} {name}{'s' * (number != 1)}"


def _day(at: datetime | None) -> str:
    return at.date().isoformat() if at else ""
