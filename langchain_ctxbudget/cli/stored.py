"""The commands `ctxbudget import`, `inspect` and `dashboard`: what is in a store, and what is known from it."""

import argparse
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from langchain_core.messages import BaseMessage, message_to_dict
from rich.progress import Progress

from langchain_ctxbudget import demo
from langchain_ctxbudget.cli import terminal
from langchain_ctxbudget.cli.formats import ConversationFile, pick_conversation, read_conversations
from langchain_ctxbudget.errors import CtxBudgetError, InvalidSettingsError, MessageConflictError, StoreError
from langchain_ctxbudget.knowledge import SourceMessage
from langchain_ctxbudget.messages import fingerprint
from langchain_ctxbudget.pipeline import REPLAYED_TURNS, ContextPipeline, replay_last_turns
from langchain_ctxbudget.report import plural
from langchain_ctxbudget.stores import DATABASE_FILE, Scope

QUOTED_CHARACTERS = 400
KINDS = {"facts": "fact/", "topics": "topic/", "entities": "entity/"}
"""Kinds of what is known, and how their ids begin."""
DEMO_SESSION = "tool-library"
HOST, PORT, DEMO_BUDGET = "127.0.0.1", 8642, 4_000


def configure(command: str, parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command."""
    add = parser.add_argument
    add("--store", type=Path, required=command != "dashboard", metavar="FOLDER", help="a folder; `import` makes it")
    add("--user", default=terminal.DEFAULT_USER, help="whose conversations (default: %(default)s)")
    if command == "import":
        add("file", type=Path, metavar="FILE")
        add("--title", help="only this conversation")
        add("--replace", action="store_true", help="where a stored conversation differs, the file wins")
        add("--no-learn", action="store_true", help="do not learn about the user now")
    elif command == "inspect":
        add("kind", nargs="?", choices=KINDS, help="default: all of them")
        add("--json", action="store_true", help="whole records as JSON")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--why", metavar="ITEM", help="the messages that a fact, topic or entity is known from")
        change.add_argument("--pin", metavar="ITEM", help="keep it whatever happens, and show it first")
        change.add_argument("--unpin", metavar="ITEM", help="take that back")
        change.add_argument("--correct", nargs=2, metavar=("ITEM", "TEXT"), help="say it in other words")
        change.add_argument("--delete", metavar="ITEM", help="forget it; the messages that it comes from stay")
    else:
        add("--demo", action="store_true", help="the bundled conversation, in memory, instead of a store")
        add("--port", type=int, default=PORT, help="0 takes a free one (default: %(default)s)")
        add("--budget", type=terminal.tokens, metavar="N", help="tokens of the prompts that are shown")
        add("--settings", type=Path, metavar="FILE", help="settings of the application, TOML or JSON")
        add("--system", default="", metavar="TEXT", help="the system prompt of the application")
        add("--model", help="count for this model, within its window (default: o200k_base, no window)")
    parser.set_defaults(run={"import": run_import, "inspect": run_inspect, "dashboard": run_dashboard}[command])


@contextmanager
def _opened(folder: Path, about: Mapping[str, Any], *, is_new: bool = False) -> Iterator[ContextPipeline]:
    """Opens a store, with a pipeline over it that is made of these arguments."""
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    if not (is_new or (folder / DATABASE_FILE).is_file()):  # opening it would make it
        raise StoreError(f"There is no store in {folder}: `ctxbudget import FILE --store FOLDER` makes one")
    with ChromaStore(folder) as store, ContextPipeline(store=store, **about) as pipeline:
        yield pipeline


def run_import(options: argparse.Namespace) -> None:
    """Writes the conversations of a file into a store, and learns from them."""
    user, learn = options.user, not options.no_learn
    conversations = read_conversations(options.file)
    if options.title:
        conversations = [pick_conversation(conversations, title=options.title)]
    with (
        _opened(options.store, {"settings": {"learn": learn}}, is_new=True) as pipeline,
        terminal.progress_bar() as progress,
    ):
        new = [found.messages if options.replace else _new_messages(pipeline, found, user) for found in conversations]
        task = progress.add_task("messages", total=sum(len(found.messages) for found in conversations))
        write = pipeline.sync if options.replace else pipeline.add_messages
        for found, messages in zip(conversations, new, strict=True):
            write(messages, user_id=user, conversation_id=found.conversation_id)
            if found.title:
                _name(pipeline, Scope(user, found.conversation_id), found.title)
            progress.advance(task, len(found.messages))
        problems = list(_learn(pipeline, conversations, user, progress)) if learn else []
        learned = {kind: len(items) for kind, items in _known(pipeline, user, KINDS).items()}
    rows = [(found.conversation_id, found.title or "", f"{len(found.messages):,}") for found in conversations]
    terminal.print_table(f"{options.file.name} → {options.store}", ("conversation", "title", "messages"), rows)
    if problems:
        terminal.tell(f"{plural(len(problems), 'conversation')} could not be learned from: {problems[0]}", style="red")
    if not learn:
        terminal.tell("Nothing was learned from them: that is done when a pipeline adds the next message to them.")
    where = f"--store {shlex.quote(str(options.store))} --user {shlex.quote(user)}"
    if any(learned.values()):
        numbers = ", ".join(plural(number, KINDS[kind][:-1]) for kind, number in learned.items())
        terminal.tell(f"Known about {user!r}: {numbers}.\nctxbudget inspect {where}")
    terminal.tell(f"ctxbudget dashboard {where}")


def _name(pipeline: ContextPipeline, scope: Scope, title: str) -> None:
    pipeline.store.put(scope.title.namespace, scope.title.key, {"text": title}, index=False)


def _learn(
    pipeline: ContextPipeline, conversations: Sequence[ConversationFile], user: str, progress: Progress
) -> Iterator[str]:
    """Learns from everything new in some conversations, however little, and yields what went wrong."""
    task = progress.add_task("learned from", total=len(conversations))
    for found in conversations:
        pipeline.end_session(user_id=user, conversation_id=found.conversation_id)
        pipeline.flush()
        progress.advance(task)
        worker = pipeline.engine.workspace.learning.worker
        yield from filter(None, [worker.failure_of(Scope(user, found.conversation_id))])


def _new_messages(pipeline: ContextPipeline, conversation: ConversationFile, user: str) -> list[BaseMessage]:
    """Returns what is not stored yet; a file that is not the stored one, with more or less at its end, is refused."""
    stored = pipeline.get_messages(user_id=user, conversation_id=conversation.conversation_id)
    for number, (known, given) in enumerate(zip(stored, conversation.messages, strict=False), 1):
        if given.id not in (None, known.id) or fingerprint(known) != fingerprint(given):
            raise MessageConflictError(
                f"{conversation.label!r} differs from the stored conversation at message {number} of "
                f"{len(conversation.messages)}: it was edited, or is another branch. Nothing was imported. "
                f"--replace lets the file win (messages that it does not have are kept aside)"
            )
    return conversation.messages[len(stored) :]


def run_inspect(options: argparse.Namespace) -> None:
    """Shows what is known, or changes it and shows the change."""
    with _opened(options.store, {"settings": {"learn": False}}) as pipeline:
        knowledge, user = pipeline.knowledge, options.user
        if options.why:
            _show_sources(knowledge.why(options.why, user_id=user), options)
        elif options.delete:
            knowledge.delete(options.delete, user_id=user)
            terminal.tell(f"{options.delete} is forgotten. The messages that it comes from stay.")
        elif options.pin or options.unpin:
            item = knowledge.pin(options.pin or options.unpin, user_id=user, pinned=bool(options.pin))
            terminal.tell(f"{item.id} is {'' if item.pinned else 'no longer '}pinned.")
        elif options.correct:
            item_id, text = options.correct
            knowledge.edit(item_id, user_id=user, text=text)
            terminal.tell(f"{item_id} is corrected.")
        else:
            _list(pipeline, options)


def _known(pipeline: ContextPipeline, user: str, kinds: Iterable[str]) -> dict[str, list[Any]]:
    return {kind: getattr(pipeline.knowledge, f"list_{kind}")(user_id=user) for kind in kinds}


def _list(pipeline: ContextPipeline, options: argparse.Namespace) -> None:
    kinds = [options.kind] if options.kind else [*KINDS]
    if options.json:
        terminal.print_json({"user_id": options.user, **_known(pipeline, options.user, kinds)})
        return
    every = pipeline.knowledge.list_known(user_id=options.user)
    for kind in kinds:
        found = [one for one in every if one.id.startswith(KINDS[kind])]
        said = (terminal.cell(one.text, "pinned" if one.pinned else "") for one in found)
        if rows := [(one.id, text, _day(one.last_said)) for one, text in zip(found, said, strict=True)]:
            terminal.print_table(plural(len(rows), KINDS[kind][:-1]), ("id", "known", "said last"), rows)
    if not any(one.id.startswith(KINDS[kind]) for one in every for kind in kinds):
        number = len(pipeline.list_conversations(user_id=options.user))
        said_of = options.kind or "facts, topics or entities"
        terminal.tell(f"No {said_of} of {options.user!r} in this store; conversations of theirs: {number:,}.")


def _day(at: object) -> str:
    return str(at or "")[: len("2026-01-31")]


def _show_sources(sources: Sequence[SourceMessage], options: argparse.Namespace) -> None:
    if options.json:
        told = [{**asdict(one), "message": one.message and message_to_dict(one.message)} for one in sources]
        terminal.print_json({"item_id": options.why, "sources": told})
        return
    rows: list[terminal.Row] = []
    for one in sources:
        said = one.message.text if one.message else "(no longer there)"
        text = terminal.cell(said[:QUOTED_CHARACTERS], "edited since" if one.message and one.changed else "")
        rows.append((one.conversation_id, text, _day(one.message and one.message.additional_kwargs.get("created_at"))))
    known = f"known from {plural(len(sources), 'message')}" if sources else "said by hand"
    terminal.print_table(f"{options.why}: {known}", ("conversation", "message", "said"), rows)


def run_dashboard(options: argparse.Namespace) -> None:
    """Serves the page until the command is stopped."""
    try:
        import uvicorn  # noqa: PLC0415 - needs the extra

        from langchain_ctxbudget.dashboard import create_app  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        raise CtxBudgetError("The dashboard needs its extra: pip install 'langchain-ctxbudget[dashboard]'") from error
    if (options.store is None) != options.demo:
        raise InvalidSettingsError("Say what to show: --store FOLDER, or --demo for the bundled conversation")
    about = {"settings": terminal.settings_of(options), "system_prompt": options.system, "model": options.model}
    opened = _demo(options.user, about) if options.demo else _opened(options.store, about)
    try:
        listener = socket.create_server((HOST, options.port))
    except (OSError, OverflowError) as error:
        raise InvalidSettingsError(f"--port {options.port}: {error}; 0 takes a free one") from error
    with listener, opened as pipeline:
        app = create_app(pipeline, user_id=options.user)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False, proxy_headers=False))
        shown = {"session": DEMO_SESSION, "message": demo.DEMO_QUESTION, "part": demo.DEMO_EVIDENCE_IDS[0]}
        look = urlencode(shown) if options.demo else ""
        address = f"http://{HOST}:{listener.getsockname()[1]}/{'#' * bool(look)}{look}"
        terminal.tell(f"The dashboard of {options.user!r} is at {address}\nCtrl-C ends it.")
        with suppress(KeyboardInterrupt):  # uvicorn has ended in order before it raises this
            server.run([listener])


@contextmanager
def _demo(user: str, about: Mapping[str, Any]) -> Iterator[ContextPipeline]:
    """Opens the bundled conversation, whose last turns had prompts."""
    shown = {"max_context_tokens": DEMO_BUDGET, "keep_snapshots": REPLAYED_TURNS, **demo.DEMO_SETTINGS}
    own = {"settings": shown | about["settings"], "system_prompt": about["system_prompt"] or demo.DEMO_SYSTEM_PROMPT}
    with ContextPipeline(**{**about, **own}) as pipeline:
        for fact in demo.DEMO_FACTS:
            pipeline.knowledge.add_fact(fact, user_id=user, category="identity")
        scope = Scope(user, DEMO_SESSION)
        replay_last_turns(pipeline, demo.demo_messages(), scope)
        _name(pipeline, scope, demo.DEMO_TITLE)
        yield pipeline
