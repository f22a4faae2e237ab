"""The command `ctxbudget inspect`: what is known about a user, where it comes from, and changes by hand."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from langchain_core.messages import message_to_dict
from rich.console import Console
from rich.table import Table

from langchain_ctxbudget.cli.terminal import Row, cell, require_store, table, tell
from langchain_ctxbudget.errors import InputError, MissingScopeError
from langchain_ctxbudget.flow import batch, drive
from langchain_ctxbudget.knowledge import (
    BY_RULES,
    BY_USER,
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    FactCategory,
    KnownItem,
    ProgressRecord,
    SourceMessage,
    TopicProfile,
    records,
)
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores import Record, Scope, utc

KINDS = ("facts", "topics", "entities", "bundles", "devices", "conversations")
SHOWN_AT_ONCE = KINDS[:3]
"""The kinds that are shown where none is asked for."""
MOST_AT_ONCE = 10
"""Topics, and entities, that are shown beside other kinds."""
LISTS, TIMES = ("aliases", "facts", "attributes", "relations"), ("valid_from", "valid_until")
"""Fields that are not one text."""
QUOTED_CHARACTERS = 400
"""Length of a quoted message."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("kind", nargs="?", choices=KINDS, help="default: facts, topics and entities")
    parser.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="as given to `import`")
    parser.add_argument("--user", metavar="ID", help="whose knowledge; users are not listed")
    parser.add_argument("--ended", action="store_true", help="also facts that no longer count, with the reason")
    parser.add_argument("--json", action="store_true", help="whole records as JSON")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--why", metavar="ITEM", help="the messages that a fact, topic or entity is known from")
    change.add_argument("--pin", metavar="ITEM", help="keep it whatever happens, and show it first")
    change.add_argument("--unpin", metavar="ITEM")
    change.add_argument(
        "--edit",
        nargs="+",
        metavar=("ITEM", "FIELD=VALUE"),
        help="change it by hand, for instance text='Lives in Porto'; lists are divided by commas, or JSON",
    )
    change.add_argument("--delete", metavar="ITEM", help="forget it; the messages that it comes from stay")
    change.add_argument("--add-fact", metavar="TEXT", help='without a subject: "Lives in Lisbon"')
    parser.add_argument(
        "--category",
        choices=get_args(FactCategory),
        default="preference",
        help="of the new fact (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Shows what is known, or changes it and shows the change.

    Raises:
        InputError: there is no such item, or a value that does not fit.
        MissingScopeError: no user.
        StoreError: there is no store in the folder.
    """
    if not options.user:
        raise MissingScopeError(
            "--user is missing. What is known belongs to one user, and the users of a store are not listed: "
            "say whose knowledge to show, as in --user ada"
        )
    require_store(options.store)
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    with ChromaStore(options.store) as store, ContextPipeline({"learn": False}, store=store) as pipeline:
        if options.why:
            _why(pipeline, options)
        elif options.delete:
            pipeline.knowledge.delete(options.delete, user_id=options.user)
            text = f"{options.delete} is forgotten. The messages that it comes from stay."
            _print_json({"deleted": options.delete}) if options.json else tell(text)
        elif (changed := _changed(pipeline, options)) is not None:
            _print_json({"item": changed}) if options.json else _print(_item_table(changed))
        else:
            _list(pipeline, options)


def _list(pipeline: ContextPipeline, options: argparse.Namespace) -> None:
    kinds = (options.kind,) if options.kind else SHOWN_AT_ONCE
    found = {kind: _items(pipeline, options, kind) for kind in kinds}
    if options.json:
        _print_json({"user_id": options.user, **found})
        return
    for kind, items in found.items():
        most = MOST_AT_ONCE if len(kinds) > 1 and kind != "facts" else len(items)
        if items:
            ended = sum(not fact.is_current for fact in items) if kind == "facts" else 0
            counted = f"{len(items):,} {kind if len(items) != 1 else kind.removesuffix('s')}"
            title = f"{len(items) - ended:,} facts, and {ended:,} that ended" if ended else counted
            _print(_table_of(kind, items[:most], title))
        if len(items) > most:
            tell(f"… and {len(items) - most:,} more: ctxbudget inspect {kind} …\n", style="dim")
    if not any(found.values()):
        number = len(pipeline.list_conversations(user_id=options.user))
        kind = options.kind or "facts, topics or entities"
        tell(f"No {kind} of {options.user!r} in this store; it has {number:,} conversations of theirs.")


def _items(pipeline: ContextPipeline, options: argparse.Namespace, kind: str) -> list[Any]:
    if kind == "conversations":
        return _conversations(pipeline, options.user)
    if kind == "facts":
        return pipeline.knowledge.list_facts(user_id=options.user, include_ended=options.ended)
    found: list[Any] = getattr(pipeline.knowledge, f"list_{kind}")(user_id=options.user)
    return found


def _conversations(pipeline: ContextPipeline, user: str) -> list[dict[str, Any]]:
    """Returns for each conversation its topics and entities, and how many of its messages were learned from."""
    knowledge = pipeline.knowledge
    names = {topic.id: topic.label for topic in knowledge.list_topics(user_id=user)}
    names |= {entity.id: entity.name for entity in knowledge.list_entities(user_id=user)}
    about: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for link in drive(records.LINKS.all(pipeline.store, user)):
        if link.messages and link.topic_id in names:
            about[link.conversation_id].append((-link.relevance_score, link.topic_id))
    ids = pipeline.list_conversations(user_id=user)
    read = drive(batch(pipeline.store, [records.progress_place(Scope(user, one)) for one in ids]))
    progress = [records.found(ProgressRecord, item) or ProgressRecord() for item in read]
    return [
        {
            "conversation_id": one,
            "messages_read": done.position,
            "about": [{"id": key, "name": names[key], "relevance": -score} for score, key in sorted(about[one])],
        }
        for one, done in zip(ids, progress, strict=True)
    ]


def _why(pipeline: ContextPipeline, options: argparse.Namespace) -> None:
    knowledge, user = pipeline.knowledge, options.user
    sources = knowledge.why(options.why, user_id=user)
    items: tuple[KnownItem, ...] = (
        *knowledge.list_facts(user_id=user, include_ended=True),
        *knowledge.list_topics(user_id=user),
        *knowledge.list_entities(user_id=user),
    )
    item = next(item for item in items if item.id == options.why)
    if options.json:
        shown = [
            {
                "conversation_id": one.conversation_id,
                "message_id": one.message_id,
                "message": message_to_dict(one.message) if one.message else None,
                "changed": one.changed,
            }
            for one in sources
        ]
        _print_json({"item": item, "sources": shown})
        return
    _print(_item_table(item))
    if sources:
        _print(_table_of("sources", sources, f"known from {len(sources):,} message{'s' * (len(sources) != 1)}"))
    else:
        tell("Said by hand: no message stands behind it.")


def _changed(pipeline: ContextPipeline, options: argparse.Namespace) -> KnownItem | None:
    """Makes the change that was asked for, if any, and returns the item as it is then."""
    knowledge, user = pipeline.knowledge, options.user
    if options.pin or options.unpin:
        return knowledge.pin(options.pin or options.unpin, user_id=user, pinned=bool(options.pin))
    if options.edit:
        item, *given = options.edit
        if not given:
            raise InputError(f"--edit {item} says nothing to change: add FIELD=VALUE, as in text='Lives in Porto'")
        return knowledge.edit(item, user_id=user, **dict(map(_change, given)))
    if options.add_fact is not None:
        return knowledge.add_fact(options.add_fact, user_id=user, category=options.category)
    return None


def _change(given: str) -> tuple[str, Any]:
    """Reads `field=value`.

    >>> _change("aliases=Al, Ally"), _change("valid_until=")
    (('aliases', ['Al', 'Ally']), ('valid_until', None))
    """
    field, sign, value = given.partition("=")
    if not sign or not field.isidentifier() or field in ("user_id", "item_id"):
        raise InputError(f"--edit takes FIELD=VALUE, as in text='Lives in Porto', and not {given!r}")
    try:
        if field == "confidence":
            return field, float(value)
        if field in TIMES:
            return field, value or None
        if field in LISTS:
            return field, json.loads(value) if value.startswith("[") else [p.strip() for p in value.split(",") if p]
    except ValueError as error:
        raise InputError(f"{field} cannot be {value!r}: {error}") from error
    return field, value


def _print(drawn: Table) -> None:
    Console(highlight=False).print(drawn)


def _print_json(data: Mapping[str, Any]) -> None:
    def plain(value: object) -> object:
        if isinstance(value, Record):
            return value.model_dump(mode="json")
        raise TypeError(f"{type(value).__name__} is not plain data")

    sys.stdout.write(json.dumps(data, indent=2, default=plain) + "\n")


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
    counts = f"{entity.total_messages:,} in {entity.total_conversations:,}"
    return entity.id, name, counts, f"{entity.importance_score:.2f}", _day(entity.last_engaged_at)


def _bundle(bundle: ContextBundle) -> Row:
    text = cell(bundle.compiled_prompt, ["to be compiled again"] if bundle.is_dirty else [])
    hits = f"{bundle.hit_count:,} of {bundle.use_count:,}"
    return bundle.id, text, f"{bundle.token_count:,}", str(bundle.version), hits


def _device(device: ClientPresence) -> Row:
    likely = (f"likely {one}" for one in (*device.predicted_topics, *device.predicted_entities))
    where = cell(device.last_navigation_path or "", (_if(device.active_conversation_id, "conversation"), *likely))
    state = "offline" if not device.is_online else "idle" if device.idle_since else "active"
    return device.device_id, where, state, f"{utc(device.last_heartbeat_at):%Y-%m-%d %H:%M}"


def _conversation(one: Mapping[str, Any]) -> Row:
    about = ", ".join(str(item["name"]) for item in one["about"])
    return str(one["conversation_id"]), about, f"{one['messages_read']:,}"


def _source(one: SourceMessage) -> Row:
    if one.message is None:
        return one.conversation_id, cell("(no longer there)"), ""
    at = one.message.additional_kwargs.get("created_at")
    said = one.message.text
    quoted = said if len(said) <= QUOTED_CHARACTERS else f"{said[: QUOTED_CHARACTERS - 1].rstrip()}…"
    text = cell(quoted, ["edited since"] if one.changed else [])
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


def _table_of(kind: str, items: Sequence[Any], title: str) -> Table:
    make, columns, numbers = _COLUMNS[kind]
    return table(title, columns, [make(item) for item in items], numbers=numbers)


def _item_table(item: KnownItem) -> Table:
    kind = "facts" if isinstance(item, Fact) else "topics" if isinstance(item, TopicProfile) else "entities"
    return _table_of(kind, [item], "")


def _marks(item: KnownItem) -> Iterable[str]:
    marks = ["pinned"] if item.pinned else []
    if item.made_by != BY_RULES:
        marks.append("by hand" if item.made_by == BY_USER else f"learned by {item.made_by}")
    return [", ".join(marks)]


def _if(text: str | None, before: str) -> str:
    return f"{before} {text}" if text else ""


def _day(at: datetime | None) -> str:
    return at.date().isoformat() if at else ""
