"""The command `ctxbudget inspect`: what is known about a user, where it comes from, and changes by hand."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from langchain_core.messages import message_to_dict
from rich.console import Console
from rich.table import Table

from langchain_ctxbudget.cli.terminal import Row, cell, require_store, table, tell
from langchain_ctxbudget.errors import InputError, MissingScopeError
from langchain_ctxbudget.knowledge import (
    BY_RULES,
    BY_USER,
    Fact,
    FactCategory,
    KnownItem,
    SourceMessage,
    TopicProfile,
)
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores import Record

KINDS = ("facts", "topics", "entities", "bundles")
SHOWN_AT_ONCE = KINDS[:3]
"""The kinds that are shown where none is asked for."""
MOST_AT_ONCE = 10
"""Topics, and entities, that are shown beside other kinds."""
COLUMNS = {
    "facts": ("text", "category", "confidence", "last_seen"),
    "topics": ("label", "total_messages", "importance_score", "last_engaged_at"),
    "entities": ("name", "total_messages", "importance_score", "last_engaged_at"),
    "bundles": ("compiled_prompt", "token_count", "version", "hit_count"),
}
"""Fields that have columns; the first is the wide one."""
HEADINGS = {
    "text": "fact",
    "confidence": "sure",
    "last_seen": "said last",
    "label": "topic",
    "name": "who or what",
    "total_messages": "messages",
    "importance_score": "weight",
    "last_engaged_at": "last",
    "compiled_prompt": "text",
    "token_count": "tokens",
    "hit_count": "hits",
}
NOTED = (
    *("relationship", "attributes", "parent_slug", "aliases", "valid_from", "valid_until"),
    *("ended", "ended_at", "superseded_by"),
)
"""Fields that stand below the first column where they have a value."""
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
        help="change it by hand, for instance text='Lives in Porto'; numbers and lists are JSON",
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
        knowledge, user = pipeline.knowledge, options.user
        if options.why:
            _why(pipeline, options)
        elif options.delete:
            knowledge.delete(options.delete, user_id=user)
            text = f"{options.delete} is forgotten. The messages that it comes from stay."
            _print_json({"deleted": options.delete}) if options.json else tell(text)
        elif options.pin or options.unpin:
            _show(knowledge.pin(options.pin or options.unpin, user_id=user, pinned=bool(options.pin)), options)
        elif options.edit:
            _show(knowledge.edit(options.edit[0], user_id=user, **_changes(options.edit)), options)
        elif options.add_fact is not None:
            _show(knowledge.add_fact(options.add_fact, user_id=user, category=options.category), options)
        else:
            _list(pipeline, options)


def _list(pipeline: ContextPipeline, options: argparse.Namespace) -> None:
    kinds = (options.kind,) if options.kind else SHOWN_AT_ONCE
    found: dict[str, list[Any]] = {
        kind: getattr(pipeline.knowledge, f"list_{kind}")(
            user_id=options.user, **({"include_ended": options.ended} if kind == "facts" else {})
        )
        for kind in kinds
    }
    if options.json:
        _print_json({"user_id": options.user, **found})
        return
    for kind, items in found.items():
        most = MOST_AT_ONCE if len(kinds) > 1 and kind != "facts" else len(items)
        if items:
            ended = sum(not fact.is_current for fact in items) if kind == "facts" else 0
            title = f"{len(items) - ended:,} {kind}{f', and {ended:,} that ended' if ended else ''}"
            _print_table(kind, items[:most], title)
        if len(items) > most:
            tell(f"… and {len(items) - most:,} more: ctxbudget inspect {kind} …\n", style="dim")
    if not any(found.values()):
        number = len(pipeline.list_conversations(user_id=options.user))
        kind = options.kind or "facts, topics or entities"
        tell(f"No {kind} of {options.user!r} in this store; it has {number:,} conversations of theirs.")


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
    _show(item, options)
    if sources:
        _print_sources(sources)
    else:
        tell("Said by hand: no message stands behind it.")


def _changes(given: Sequence[str]) -> dict[str, Any]:
    """Reads `field=value` pairs behind an item; a value that is JSON, and no text, is read as such.

    >>> _changes(["fact/1", 'aliases=["Al", "Ally"]', "text=Lives in Porto", "valid_until="])
    {'aliases': ['Al', 'Ally'], 'text': 'Lives in Porto', 'valid_until': None}
    """
    item, *pairs = given
    if not pairs:
        raise InputError(f"--edit {item} says nothing to change: add FIELD=VALUE, as in text='Lives in Porto'")
    changes: dict[str, Any] = {}
    for pair in pairs:
        field, sign, value = pair.partition("=")
        if not sign or not field.isidentifier() or field in ("user_id", "item_id"):
            raise InputError(f"--edit takes FIELD=VALUE, as in text='Lives in Porto', and not {pair!r}")
        try:
            changes[field] = value if field == "text" else json.loads(value or "null")
        except ValueError:
            changes[field] = value
    return changes


def _show(item: KnownItem, options: argparse.Namespace) -> None:
    kind = "facts" if isinstance(item, Fact) else "topics" if isinstance(item, TopicProfile) else "entities"
    _print_json({"item": item}) if options.json else _print_table(kind, [item], "")


def _print_json(data: Mapping[str, Any]) -> None:
    def plain(value: object) -> object:
        if isinstance(value, Record):
            return value.model_dump(mode="json")
        raise TypeError(f"{type(value).__name__} is not plain data")

    sys.stdout.write(json.dumps(data, indent=2, default=plain) + "\n")


def _print_table(kind: str, items: Sequence[Any], title: str) -> None:
    first, *fields = COLUMNS[kind]
    rows: list[Row] = []
    for item in items:
        by = {BY_RULES: "", BY_USER: "by hand"}.get(made := getattr(item, "made_by", BY_RULES), f"learned by {made}")
        notes = [f"{name.replace('_', ' ')}: {text}" for name in NOTED if (text := _text(item, name))]
        named = cell(
            _text(item, first), [", ".join(filter(None, ("pinned" * getattr(item, "pinned", False), by))), *notes]
        )
        rows.append((item.id, named, *(_text(item, name) for name in fields)))
    _print(table(title, ("id", *(HEADINGS.get(name, name) for name in COLUMNS[kind])), rows, numbers=len(fields)))


def _print_sources(sources: Sequence[SourceMessage]) -> None:
    rows: list[Row] = []
    for one in sources:
        said = one.message.text if one.message else "(no longer there)"
        quoted = said if len(said) <= QUOTED_CHARACTERS else f"{said[: QUOTED_CHARACTERS - 1].rstrip()}…"
        at = str(one.message.additional_kwargs.get("created_at") or "") if one.message else ""
        text = cell(quoted, ["edited since"] if one.message and one.changed else [])
        rows.append((one.conversation_id, text, at[: len("2026-01-31")]))
    title = f"known from {len(sources):,} message{'s' * (len(sources) != 1)}"
    _print(table(title, ("conversation", "message", "said"), rows, numbers=1))


def _print(drawn: Table) -> None:
    Console(highlight=False).print(drawn)


def _text(item: object, name: str) -> str:
    """Returns the value of a field in words; empty where it has none."""
    value = getattr(item, name, None)
    if isinstance(value, datetime):
        return value.date().isoformat()
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, tuple | list):
        return ", ".join(" ".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value)
    return str(value or "")
