"""The command `ctxbudget import`: conversations of a file into a store, and what they say about their user."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from langchain_ctxbudget.cli.formats import ConversationFile, pick_conversation, read_conversations
from langchain_ctxbudget.cli.terminal import DEFAULT_USER, Row, printable, progress_bar, table, tell
from langchain_ctxbudget.errors import MessageConflictError
from langchain_ctxbudget.messages import fingerprint
from langchain_ctxbudget.pipeline import ContextPipeline
from langchain_ctxbudget.stores import Scope

IMPORT_BATCH = 200
"""Messages written at once; a batch that was written stays when the command is stopped."""
LOOK_EVERY_SECONDS = 0.5
"""Between two looks whether a conversation has been learned from."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `import`."""
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


def run(options: argparse.Namespace) -> None:
    """Writes the conversations of a file into a store, and learns from them."""
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    conversations, user = read_conversations(options.file), options.user
    if options.title:
        conversations = [pick_conversation(conversations, title=options.title)]
    rows, problems = list[Row](), list[str]()
    with (
        ChromaStore(options.store) as store,
        ContextPipeline({"learn": not options.no_learn}, store=store) as pipeline,
        progress_bar() as progress,
    ):
        for found in () if options.replace else conversations:
            _require_continuation(pipeline, found, user)
        task = progress.add_task("messages", total=sum(len(found.messages) for found in conversations))
        for found in conversations:
            new = _write(pipeline, found, user, lambda n: progress.advance(task, n), replace=options.replace)
            rows.append((found.conversation_id, found.title or "", f"{len(found.messages):,}", f"{new:,}"))
        if not options.no_learn:
            problems = _learn(pipeline, conversations, user, progress)
        knowledge = pipeline.knowledge
        known = {
            "facts": len(knowledge.list_facts(user_id=user)),
            "topics": len(knowledge.list_topics(user_id=user)),
            "people and things": len(knowledge.list_entities(user_id=user)),
        }
    title = printable(f"{options.file.name} → {options.store}")
    Console(highlight=False).print(table(title, ("conversation", "title", "messages", "new"), rows, numbers=2))
    if problems:
        number = f"{len(problems):,} of {len(conversations):,}"
        tell(f"{number} conversations could not be learned from: {problems[0]}", style="red")
    if options.no_learn:
        tell("Nothing was learned from them: that is done when a pipeline adds the next message to them.")
    elif any(known.values()):
        numbers = ", ".join(f"{number:,} {name}" for name, number in known.items())
        command = f"ctxbudget inspect --store {shlex.quote(str(options.store))} --user {shlex.quote(user)}"
        tell(f"Known about {user!r}: {numbers}.\n{command}")


def _require_continuation(pipeline: ContextPipeline, conversation: ConversationFile, user: str) -> None:
    """Refuses a file whose conversation is not the stored one with more, or fewer, messages at its end.

    Raises:
        MessageConflictError: a message in the middle differs, as after an edit or on another branch.
    """
    stored = pipeline.get_messages(user_id=user, conversation_id=conversation.conversation_id)
    for number, (known, given) in enumerate(zip(stored, conversation.messages, strict=False), 1):
        if known.id != given.id or fingerprint(known) != fingerprint(given):
            raise MessageConflictError(
                f"{conversation.label!r} differs from the stored conversation at message {number} of "
                f"{len(conversation.messages)}: it was edited, or is another branch. Nothing was imported. "
                f"--replace lets the file win (messages that it does not have are kept aside)"
            )


def _write(
    pipeline: ContextPipeline, found: ConversationFile, user: str, advance: Callable[[int], None], *, replace: bool
) -> int:
    """Stores a conversation, and returns how many of its messages are new."""
    key, messages = found.conversation_id, found.messages
    known = {message.id for message in pipeline.get_messages(user_id=user, conversation_id=key)}
    if replace:
        pipeline.sync(messages, user_id=user, conversation_id=key)
        advance(len(messages))
    else:
        for start in range(0, len(messages), IMPORT_BATCH):
            part = messages[start : start + IMPORT_BATCH]
            pipeline.add_messages(part, user_id=user, conversation_id=key)
            advance(len(part))
    return sum(message.id not in known for message in messages)


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
