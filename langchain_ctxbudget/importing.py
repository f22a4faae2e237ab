"""The command `ctxbudget import`: conversations of a file into a store, and what they say about their user."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from langchain_ctxbudget.core.messages import fingerprint
from langchain_ctxbudget.errors import MessageConflictError
from langchain_ctxbudget.flow import batch, drive
from langchain_ctxbudget.formats import ConversationFile, pick_conversation, read_conversations
from langchain_ctxbudget.knowledge import repositories as repos
from langchain_ctxbudget.knowledge.records import ProgressRecord
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores.records import Scope
from langchain_ctxbudget.terminal import printable, table

DEFAULT_USER = "me"
IMPORT_BATCH = 200
"""Messages written at once; a batch that was written stays when the command is stopped."""
LOOK_EVERY_SECONDS = 0.5
"""How often the bar is moved on while the conversations are learned from."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="made if it is not there")
    parser.add_argument("--user", default=DEFAULT_USER, help="whose conversations (default: %(default)s)")
    parser.add_argument("--title", help="only this conversation")
    parser.add_argument(
        "--replace", action="store_true", help="let the file win where a stored conversation differs from it"
    )
    parser.add_argument(
        "--no-learn", action="store_true", help="do not learn about the user now; `inspect` shows what was learned"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Import, and learn from what was imported."""
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    conversations = read_conversations(options.file)
    if options.title:
        conversations = [pick_conversation(conversations, title=options.title)]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    rows, console = [], Console(highlight=False)
    with (
        ChromaStore(options.store) as store,
        ContextPipeline({"learn": not options.no_learn}, store=store) as pipeline,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        if not options.replace:
            for conversation in conversations:
                _require_continuation(pipeline, conversation, options.user)
        messages = sum(len(found.messages) for found in conversations)
        task = progress.add_task("messages", total=messages)
        for conversation in conversations:
            new = _import_one(
                pipeline, conversation, options.user, lambda n: progress.advance(task, n), replace=options.replace
            )
            title, count = conversation.title or "", f"{len(conversation.messages):,}"
            rows.append((conversation.conversation_id, title, count, f"{new:,}"))
        scopes = [Scope(options.user, conversation.conversation_id) for conversation in conversations]
        problems: list[str] = []
        if pipeline.settings.learn:
            problems = _learn(pipeline, scopes, progress, progress.add_task("learned from", total=messages))
        known = _known(pipeline, options.user)
    title = printable(f"{options.file.name} → {options.store}")
    console.print(table(title, ("conversation", "title", "messages", "new"), rows, numbers=2))
    if problems:
        print_line = f"{len(problems):,} of {len(scopes):,} conversations could not be learned from: {problems[0]}"
        console.print(Text(printable(print_line), style="red"), soft_wrap=True)
    if options.no_learn:
        console.print("Nothing was learned from them: that is done when a pipeline adds the next message to them.")
    elif known:
        shown = f"ctxbudget inspect --store {shlex.quote(str(options.store))} --user {shlex.quote(options.user)}"
        console.print(Text(printable(f"Known about {options.user!r}: {known}.\n{shown}")), soft_wrap=True)
    return 0


def _learn(pipeline: ContextPipeline, scopes: Sequence[Scope], progress: Progress, task: TaskID) -> list[str]:
    """Learn from everything that is new in some conversations, however little; what went wrong."""

    def moved_on(*, done: bool) -> bool:
        found = drive(batch(pipeline.store, [repos.progress_read(scope) for scope in scopes]))
        read = [repos.found(ProgressRecord, item) for item in found]
        progress.update(task, completed=sum(one.position for one in read if one))
        return done

    for scope in scopes:  # only so many wait at once
        while not pipeline.end_session(user_id=scope.user_id, conversation_id=scope.conversation_id):
            moved_on(done=pipeline.flush(LOOK_EVERY_SECONDS))
    while not moved_on(done=pipeline.flush(LOOK_EVERY_SECONDS)):
        pass
    return [problem for scope in scopes if (problem := pipeline.engine.learning.worker.failure_of(scope))]


def _known(pipeline: ContextPipeline, user: str) -> str:
    """How much is known about a user; nothing where that is nothing."""
    knowledge = pipeline.knowledge
    numbers = {
        "facts": len(knowledge.list_facts(user_id=user)),
        "topics": len(knowledge.list_topics(user_id=user)),
        "people and things": len(knowledge.list_entities(user_id=user)),
    }
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items()) if any(numbers.values()) else ""


def _require_continuation(pipeline: ContextPipeline, conversation: ConversationFile, user: str) -> None:
    """Refuse a file whose conversation is not the stored one with more, or fewer, messages at its end.

    Raises:
        MessageConflictError: a message in the middle differs, as after an edit or on another branch.
    """
    stored = pipeline.get_messages(user_id=user, conversation_id=conversation.conversation_id)
    pairs = zip(stored, conversation.messages, strict=False)
    for number, (known, given) in enumerate(pairs, 1):
        if known.id != given.id or fingerprint(known) != fingerprint(given):
            raise MessageConflictError(
                f"{conversation.label!r} differs from the stored conversation at message {number} of "
                f"{len(conversation.messages)}: it was edited, or is another branch. Nothing was imported. "
                f"--replace lets the file win (messages that it does not have are kept aside)"
            )


def _import_one(
    pipeline: ContextPipeline,
    conversation: ConversationFile,
    user: str,
    advance: Callable[[int], None],
    *,
    replace: bool,
) -> int:
    scope = {"user_id": user, "conversation_id": conversation.conversation_id}
    known = {message.id for message in pipeline.get_messages(**scope)}
    new = sum(message.id not in known for message in conversation.messages)
    if replace:
        pipeline.sync(conversation.messages, user_id=user, conversation_id=conversation.conversation_id)
        advance(len(conversation.messages))
        return new
    for start in range(0, len(conversation.messages), IMPORT_BATCH):
        part = conversation.messages[start : start + IMPORT_BATCH]
        pipeline.add_messages(part, **scope)
        advance(len(part))
    return new
