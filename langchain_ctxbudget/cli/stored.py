"""The commands `ctxbudget import` and `ctxbudget inspect`: what is in a store, and what is known from it."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from langchain_core.messages import message_to_dict
from rich.progress import Progress

from langchain_ctxbudget.cli.formats import ConversationFile, pick_conversation, read_conversations
from langchain_ctxbudget.cli.terminal import (
    DEFAULT_USER,
    Row,
    cell,
    print_table,
    progress_bar,
    require_store,
    tell,
)
from langchain_ctxbudget.errors import MessageConflictError
from langchain_ctxbudget.knowledge import BY_RULES, BY_USER, SourceMessage
from langchain_ctxbudget.messages import fingerprint
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores import Record, Scope

IMPORT_BATCH = 200
"""Messages written at once; a batch that was written stays when the command is stopped."""
LOOK_EVERY_SECONDS = 0.5
"""Between two looks whether a conversation has been learned from."""
SHOWN_AT_ONCE, MOST_AT_ONCE = ("facts", "topics", "entities"), 10
"""The kinds that are shown where none is asked for, and how many topics, and entities, of each."""
QUOTED_CHARACTERS = 400
_ENGAGED = {"total_messages": "messages", "importance_score": "weight", "last_engaged_at": "last"}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "facts": {"text": "fact", "category": "category", "confidence": "sure", "last_seen": "said last"},
    "topics": {"label": "topic", **_ENGAGED},
    "entities": {"name": "who or what", **_ENGAGED},
    "bundles": {"compiled_prompt": "text", "token_count": "tokens", "version": "version", "hit_count": "hits"},
}
"""Fields and headings of the columns; the first is the wide one."""
NOTED = ("relationship", "attributes", "aliases", "ended", "superseded_by")
"""Fields that stand below the first column where they have a value."""


def configure_import(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `import`."""
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="made if it is not there")
    parser.add_argument("--user", default=DEFAULT_USER, help="whose conversations (default: %(default)s)")
    parser.add_argument("--title", help="only this conversation")
    parser.add_argument("--replace", action="store_true", help="where a stored conversation differs, the file wins")
    parser.add_argument("--no-learn", action="store_true", help="do not learn about the user now")
    parser.set_defaults(run=run_import)


def configure_inspect(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `inspect`."""
    parser.add_argument("kind", nargs="?", choices=COLUMNS, help="default: facts, topics and entities")
    parser.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="as given to `import`")
    parser.add_argument("--user", required=True, metavar="ID", help="whose knowledge; users are not listed")
    parser.add_argument("--ended", action="store_true", help="also facts that no longer count, with the reason")
    parser.add_argument("--json", action="store_true", help="whole records as JSON")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--why", metavar="ITEM", help="the messages that a fact, topic or entity is known from")
    change.add_argument("--pin", metavar="ITEM", help="keep a fact whatever happens, and show it first")
    change.add_argument("--delete", metavar="ITEM", help="forget it; the messages that it comes from stay")
    parser.set_defaults(run=run_inspect)


@contextmanager
def _opened(folder: Path, *, learn: bool) -> Iterator[ContextPipeline]:
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    with ChromaStore(folder) as store, ContextPipeline({"learn": learn}, store=store) as pipeline:
        yield pipeline


def run_import(options: argparse.Namespace) -> None:
    """Writes the conversations of a file into a store, and learns from them."""
    conversations, user = read_conversations(options.file), options.user
    if options.title:
        conversations = [pick_conversation(conversations, title=options.title)]
    rows = list[Row]()
    with _opened(options.store, learn=not options.no_learn) as pipeline, progress_bar() as progress:
        for found in () if options.replace else conversations:
            _require_continuation(pipeline, found, user)
        task = progress.add_task("messages", total=sum(len(found.messages) for found in conversations))
        for found in conversations:
            scope, messages = {"user_id": user, "conversation_id": found.conversation_id}, found.messages
            if options.replace:
                pipeline.sync(messages, **scope)
            for start in range(0, len(messages), IMPORT_BATCH):
                batch = messages[start : start + IMPORT_BATCH]
                if not options.replace:
                    pipeline.add_messages(batch, **scope)
                progress.advance(task, len(batch))
            rows.append((found.conversation_id, found.title or "", f"{len(messages):,}"))
        problems = [] if options.no_learn else _learn(pipeline, conversations, user, progress)
        learned = {kind: len(items) for kind, items in _known(pipeline, user, SHOWN_AT_ONCE).items()}
    print_table(f"{options.file.name} → {options.store}", ("conversation", "title", "messages"), rows, numbers=1)
    if problems:
        tell(f"{len(problems):,} conversations could not be learned from: {problems[0]}", style="red")
    if options.no_learn:
        tell("Nothing was learned from them: that is done when a pipeline adds the next message to them.")
    elif any(learned.values()):
        numbers = ", ".join(f"{number:,} {kind}" for kind, number in learned.items())
        command = f"ctxbudget inspect --store {shlex.quote(str(options.store))} --user {shlex.quote(user)}"
        tell(f"Known about {user!r}: {numbers}.\n{command}")


def _require_continuation(pipeline: ContextPipeline, conversation: ConversationFile, user: str) -> None:
    """Refuses a file whose conversation is not the stored one with more, or fewer, messages at its end."""
    stored = pipeline.get_messages(user_id=user, conversation_id=conversation.conversation_id)
    for number, (known, given) in enumerate(zip(stored, conversation.messages, strict=False), 1):
        if given.id not in (None, known.id) or fingerprint(known) != fingerprint(given):
            raise MessageConflictError(
                f"{conversation.label!r} differs from the stored conversation at message {number} of "
                f"{len(conversation.messages)}: it was edited, or is another branch. Nothing was imported. "
                f"--replace lets the file win (messages that it does not have are kept aside)"
            )


def _learn(pipeline: ContextPipeline, found: Sequence[ConversationFile], user: str, progress: Progress) -> list[str]:
    """Learns from everything new in some conversations, however little, and returns what went wrong."""
    task = progress.add_task("learned from", total=len(found))
    problems = []
    for one in found:
        pipeline.end_session(user_id=user, conversation_id=one.conversation_id)
        while not pipeline.flush(LOOK_EVERY_SECONDS):
            progress.refresh()
        progress.advance(task)
        problems.append(pipeline.engine.workspace.learning.worker.failure_of(Scope(user, one.conversation_id)))
    return [problem for problem in problems if problem]


def run_inspect(options: argparse.Namespace) -> None:
    """Shows what is known, or changes it and shows the change."""
    require_store(options.store)
    with _opened(options.store, learn=False) as pipeline:
        knowledge, user = pipeline.knowledge, options.user
        if options.why:
            _show_sources(knowledge.why(options.why, user_id=user), options)
        elif options.delete:
            knowledge.delete(options.delete, user_id=user)
            text = f"{options.delete} is forgotten. The messages that it comes from stay."
            _print_json({"deleted": options.delete}) if options.json else tell(text)
        elif options.pin:
            item = knowledge.pin(options.pin, user_id=user)
            _print_json({"item": item}) if options.json else tell(f"{item.id} is pinned.")
        else:
            _list(pipeline, options)


def _known(pipeline: ContextPipeline, user: str, kinds: Sequence[str], **options: bool) -> dict[str, list[Any]]:
    known, of_facts = pipeline.knowledge, {"facts": options}
    return {kind: getattr(known, f"list_{kind}")(user_id=user, **of_facts.get(kind, {})) for kind in kinds}


def _list(pipeline: ContextPipeline, options: argparse.Namespace) -> None:
    kinds = (options.kind,) if options.kind else SHOWN_AT_ONCE
    found = _known(pipeline, options.user, kinds, include_ended=options.ended)
    if options.json:
        _print_json({"user_id": options.user, **found})
        return
    for kind, items in found.items():
        shown = items if options.kind or kind == "facts" else items[:MOST_AT_ONCE]
        if shown:
            title = f"{len(items):,} {kind}{f', the first {len(shown)}' if shown != items else ''}"
            rows = [_row(item, COLUMNS[kind]) for item in shown]
            print_table(title, ("id", *COLUMNS[kind].values()), rows, numbers=len(COLUMNS[kind]) - 1)
    if not any(found.values()):
        number = len(pipeline.list_conversations(user_id=options.user))
        said = options.kind or "facts, topics or entities"
        tell(f"No {said} of {options.user!r} in this store; it has {number:,} conversations of theirs.")


def _row(item: Any, columns: Mapping[str, str]) -> Row:  # noqa: ANN401 - a record of any kind
    by = {BY_RULES: "", BY_USER: "by hand"}.get(made := getattr(item, "made_by", BY_RULES), f"learned by {made}")
    notes = [", ".join(filter(None, ("pinned" * getattr(item, "pinned", False), by)))]
    notes += [f"{name.replace('_', ' ')}: {text}" for name in NOTED if (text := _text(item, name))]
    first, *others = (_text(item, name) for name in columns)
    return (item.id, cell(first, notes), *others)


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


def _show_sources(sources: Sequence[SourceMessage], options: argparse.Namespace) -> None:
    if options.json:
        told = [{**asdict(one), "message": one.message and message_to_dict(one.message)} for one in sources]
        _print_json({"item_id": options.why, "sources": told})
        return
    rows: list[Row] = []
    for one in sources:
        said = one.message.text if one.message else "(no longer there)"
        at = str(one.message.additional_kwargs.get("created_at") or "") if one.message else ""
        text = cell(said[:QUOTED_CHARACTERS], ["edited since"] if one.message and one.changed else [])
        rows.append((one.conversation_id, text, at[: len("2026-01-31")]))
    title = f"{options.why}: known from {len(sources):,} messages" if sources else f"{options.why}: said by hand"
    print_table(title, ("conversation", "message", "said"), rows, numbers=1)


def _print_json(data: Mapping[str, Any]) -> None:
    def plain(value: object) -> object:
        if isinstance(value, Record):
            return value.model_dump(mode="json")
        raise TypeError(f"{type(value).__name__} is not plain data")

    sys.stdout.write(json.dumps(data, indent=2, default=plain) + "\n")
