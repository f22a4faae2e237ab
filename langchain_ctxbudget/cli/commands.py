"""What the commands of `ctxbudget` do, for conversations in a file and for a store."""

import argparse
import re
import shlex
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, message_to_dict, messages_to_dict
from langgraph.store.base import BaseStore
from rich.progress import Progress

from langchain_ctxbudget import demo, errors
from langchain_ctxbudget.cli import options
from langchain_ctxbudget.cli.demo_screen import print_side_by_side
from langchain_ctxbudget.cli.printing import (
    Row,
    cell,
    print_json,
    print_prompt,
    print_table,
    printable,
    progress_bar,
    tell,
)
from langchain_ctxbudget.installing import install_command
from langchain_ctxbudget.knowledge import SourceMessage, StandingRule, UserKnowledge
from langchain_ctxbudget.messages import fingerprint, split_instructions
from langchain_ctxbudget.pipeline import ContextPipeline, SweepResult, name_conversation
from langchain_ctxbudget.prompt import AssembledContext
from langchain_ctxbudget.readers import (
    ReadConversation,
    Skipped,
    pick_conversation,
    read_conversations,
)
from langchain_ctxbudget.replay import check, replay, require_usable, split_turns
from langchain_ctxbudget.report import plural
from langchain_ctxbudget.stores import DATABASE_FILE, Scope

QUOTED_CHARACTERS = 400
"""The most that is shown of a message that something is known from."""
MOST_SKIPPED = 20
"""Things that could not be read of a file, which are told one by one."""


class Command(NamedTuple):
    """A command: what adds its options, and what runs it."""

    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]
    """Returns an exit code, or None for 0."""
    error_code: int = 1
    """The exit code where something cannot be used."""


def configure(name: str, parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command, and what runs it."""
    command = COMMANDS[name]
    command.add_options(parser)
    parser.set_defaults(run=command.run, error_code=command.error_code)


def run_demo(arguments: argparse.Namespace) -> None:
    """Shows on one screen what this package and `trim_messages` send for a question."""
    question = arguments.message or demo.DEMO_QUESTION
    settings = {"max_context_tokens": arguments.budget, "allocation": arguments.allocation}
    compared = demo.side_by_side(question, settings)
    if arguments.json:
        _show(compared.context, arguments)
        return
    print_side_by_side(compared)
    if arguments.prompt:
        print_prompt(compared.context)


def run_assemble(arguments: argparse.Namespace) -> None:
    """Assembles and shows the prompt for a message in a conversation of a file."""
    conversation_id, instructions, messages = _read_one(arguments.conversation, arguments.title)
    with ContextPipeline(
        options.option_settings(arguments),
        system_prompt=arguments.system or instructions,
        model=arguments.model,
    ) as pipeline:
        conversation = pipeline.conversation(conversation_id, user_id=options.DEFAULT_USER)
        conversation.add(*messages)
        _show(conversation.assemble(arguments.message), arguments)


def _dialogues(conversations: Sequence[ReadConversation]) -> tuple[ReadConversation, ...]:
    """Returns the conversations in which somebody answers, without memories and projects.

    Raises:
        InputError: There are none.
    """
    dialogues = tuple(conversation for conversation in conversations if conversation.is_dialogue)
    if not dialogues:
        names = ", ".join(conversation.label for conversation in conversations[:MOST_SKIPPED])
        raise errors.InputError(f"There is no conversation to replay, only {names}")
    return dialogues


def _read_one(path: Path, title: str | None) -> tuple[str, str, list[BaseMessage]]:
    """Returns the id, the instructions and the other messages of one conversation at a path."""
    result = read_conversations(path)
    conversation = pick_conversation(_dialogues(result.conversations), title=title)
    _tell_reading([conversation], result.skipped)
    instructions, messages = split_instructions(conversation.messages)
    return conversation.conversation_id, "\n\n".join(instructions), messages


def _tell_reading(conversations: Sequence[ReadConversation], skipped: Sequence[Skipped]) -> None:
    """Tells on standard error what could not be read, and what is to be known of the rest."""
    lines = [f"Skipped: {item}" for item in skipped[:MOST_SKIPPED]]
    if len(skipped) > MOST_SKIPPED:
        lines.append(f"Skipped: {len(skipped) - MOST_SKIPPED:,} more")
    for conversation in conversations:
        lines += [f"{conversation.label}: {note}" for note in conversation.notes]
    for line in lines:
        tell(line, style="yellow", stderr=True)


def _show(context: AssembledContext, arguments: argparse.Namespace) -> None:
    if arguments.json:
        messages = messages_to_dict(context.messages)
        print_json({"messages": messages, "report": context.report.to_dict()})
    else:
        print_prompt(context)


def run_replay(arguments: argparse.Namespace) -> int:
    """Replays the conversation, prints what came of it, and returns the exit code.

    It is 1 if no strategy could make a prompt.
    """
    strategies = _strategies(arguments.compare)
    replayed = _replayed(arguments, strategies)
    system_prompt = demo.DEMO_SYSTEM_PROMPT
    messages = demo.demo_messages()
    if arguments.file is not None:
        _, system_prompt, messages = _read_one(arguments.file, arguments.title)
    with progress_bar() as progress:
        task = progress.add_task("turns", total=len(split_turns(messages)) * len(strategies))
        result = replay(
            messages,
            strategies,
            system_prompt=arguments.system or system_prompt,
            on_turn=lambda name, _: progress.update(task, advance=1, description=printable(name)),
            **replayed,
        )
    if arguments.json:
        print_json(result.to_dict())
    else:
        sys.stdout.write(printable(f"{result.to_text()}\n"))
    names = result.without_prompts
    if names:
        problem = f"--budget {result.budget_tokens}: no prompt fits for {', '.join(names)}"
        tell(f"{problem}; give a larger one.", style="yellow", stderr=True)
    return int(len(names) == len(result.tracks))


def _strategies(names: str) -> list[str]:
    """Returns strategies that are named with commas between them; `@4k` stands for 4,000 tokens."""
    return re.sub(r"(@\d+)k\b", r"\g<1>000", names).split(",")


def _summary_model(name: str | None) -> BaseChatModel | None:
    """Returns the model of a name as `init_chat_model` takes it.

    Raises:
        InputError: There is no such model, or what it needs is not installed.
    """
    if not name:
        return None
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415 - an extra

        return init_chat_model(name)
    except Exception as error:  # what a provider's package raises is its own
        raise errors.InputError(f"--summary-model {name}: {error}") from error


def _replayed(arguments: argparse.Namespace, strategies: Sequence[str]) -> dict[str, Any]:
    """Returns what a replay is made with, as the options say.

    Raises:
        InputError: An option is out of range, or no price is known for a model.
        InvalidSettingsError: There is no such strategy or setting.
    """
    settings = {
        "max_context_tokens": options.REPLAY_BUDGET,
        **options.file_settings(arguments),
    }
    replayed: dict[str, Any] = {
        "budget": settings["max_context_tokens"],
        "settings": settings,
        "model": arguments.model,
        "price": arguments.price,
        "summary_model": _summary_model(arguments.summary_model),
    }
    require_usable(strategies, **replayed)
    return replayed


def _named_apart(conversations: Sequence[ReadConversation]) -> dict[str, list[BaseMessage]]:
    """Returns the messages of conversations by a name that only one of them has."""
    by_name: dict[str, list[BaseMessage]] = {}
    for conversation in conversations:
        name = conversation.label
        if name in by_name:
            name = f"{name} ({conversation.conversation_id}, {len(by_name) + 1})"
        by_name[name] = conversation.messages
    return by_name


def run_check(arguments: argparse.Namespace) -> int:
    """Checks a strategy on conversations, prints what came of it, and returns the exit code."""
    strategies = _strategies(arguments.strategy)
    if arguments.beside:
        strategies += _strategies(arguments.beside)
    replayed = _replayed(arguments, strategies)
    if arguments.junit:
        _require_folder_of(arguments.junit)
    conversations = _read_several(arguments.path, arguments.title)
    turns = sum(len(split_turns(messages)) for messages in conversations.values())
    with progress_bar() as progress:
        task = progress.add_task("turns", total=turns * len({*strategies, "full"}))
        result = check(
            conversations,
            strategies[0],
            beside=strategies[1:],
            kept=arguments.kept,
            cost=arguments.cost,
            system_prompt=arguments.system,
            on_turn=lambda name, _: progress.update(task, advance=1, description=printable(name)),
            **replayed,
        )
    # What was counted is printed first: it must not be lost where the file cannot be written.
    if arguments.json:
        print_json(result.to_dict())
    else:
        sys.stdout.write(printable(f"{result}\n"))
    if arguments.junit:
        _write_report(arguments.junit, result.to_junit())
    return int(not result.passes)


def _read_several(path: Path, title: str | None) -> dict[str, list[BaseMessage]]:
    """Returns the messages of the conversations at a path, or of the one with a title, by name."""
    read = read_conversations(path)
    chosen = _dialogues(read.conversations)
    if title:
        chosen = (pick_conversation(chosen, title=title),)
    _tell_reading(chosen, read.skipped)
    return _named_apart(chosen)


def _require_folder_of(path: Path) -> None:
    """Raises an `InputError` where a report cannot be written to a path."""
    if path.is_dir():
        raise errors.InputError(f"--junit {path}: is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise errors.InputError(
            f"--junit {path}: there is no folder {path.parent}; make it, or name another file"
        )


def _write_report(path: Path, text: str) -> None:
    """Writes a report to a file.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.InputError(f"--junit {path}: {error.strerror}") from error


@contextmanager
def _opened(
    folder: Path, pipeline_arguments: Mapping[str, Any], *, is_new: bool = False
) -> Iterator[ContextPipeline]:
    """Opens a store, with a pipeline over it."""
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    # A store is made by opening it, so a folder without one is refused before.
    if not is_new and not (folder / DATABASE_FILE).is_file():
        raise errors.StoreError(
            f"There is no store in {folder}: `ctxbudget import FILE --store FOLDER` makes one"
        )
    with (
        ChromaStore(folder) as store,
        ContextPipeline(store=store, **pipeline_arguments) as pipeline,
    ):
        yield pipeline


@contextmanager
def _postgres_errors_in_words() -> Iterator[None]:
    """Raises a `StoreError` where PostgreSQL cannot be reached, or has no tables of a store."""
    from psycopg import OperationalError  # noqa: PLC0415 - needs the extra
    from psycopg.errors import UndefinedTable  # noqa: PLC0415 - needs the extra

    try:
        yield
    except errors.StoreError as error:
        if not isinstance(error.__cause__, UndefinedTable):
            raise
        raise errors.StoreError(
            "The database has no tables of a LangGraph store: is it the right one? Its application "
            "makes them once, by `PostgresStore.setup()`"
        ) from error
    except OperationalError as error:
        raise errors.StoreError(
            f"PostgreSQL cannot be used: {str(error).strip()}. Start it, or mend --store"
        ) from error


@contextmanager
def _opened_store(place: str) -> Iterator[BaseStore]:
    """Opens the store at a place: a folder, the URL of a Chroma server, or of a PostgreSQL."""
    if place.startswith(("postgresql://", "postgres://")):
        try:
            from langgraph.store.postgres import PostgresStore  # noqa: PLC0415 - needs the extra
        except ImportError as error:
            raise errors.CtxBudgetError(
                f"A store in PostgreSQL needs an extra: {install_command('postgres')}"
            ) from error
        with _postgres_errors_in_words(), PostgresStore.from_conn_string(place) as store:
            yield store
    elif "://" in place:
        from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

        with ChromaStore(url=place) as server:
            yield server
    else:
        with _opened(Path(place), {}) as pipeline:
            yield pipeline.store


def run_sweep(arguments: argparse.Namespace) -> int:
    """Erases what is too old in a store; a folder is rewritten without it.

    Returns the exit code: 1 if something could not be swept.
    """
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    # The application learns from what is left, in its own way, when it goes on.
    settings = {"learn": False}
    with (
        _opened_store(arguments.store) as store,
        ContextPipeline(settings, store=store) as pipeline,
    ):
        result = _swept(pipeline, arguments)
        is_folder = "://" not in arguments.store
        has_erased = result.erased > 0 and not arguments.dry_run
        if isinstance(store, ChromaStore) and is_folder and has_erased:
            store.vacuum()
    if arguments.json:
        print_json({**asdict(result), "dry_run": arguments.dry_run})
    else:
        _print_swept(result, is_dry_run=arguments.dry_run)
    return int(bool(result.failures))


def _swept(pipeline: ContextPipeline, arguments: argparse.Namespace) -> SweepResult:
    """Erases what the options name, of one user or of all, and returns what came of it."""
    policy: dict[str, Any] = dict.fromkeys(arguments.kind, arguments.older_than)
    for kind in arguments.keep:
        policy[f"keep_{kind}"] = True
    if arguments.user is None:
        return pipeline.sweep(policy, dry_run=arguments.dry_run)
    return pipeline.sweep_user(policy, user_id=arguments.user, dry_run=arguments.dry_run)


def _print_swept(result: SweepResult, *, is_dry_run: bool) -> None:
    """Prints how much a sweep has erased, or would erase, and what could not be swept."""
    title = "would be erased" if is_dry_run else "erased"
    counts = asdict(result)
    del counts["failures"]
    users = counts.pop("users")
    print_table(title, ("what", "number"), [(name, f"{count:,}") for name, count in counts.items()])
    tell(f"{plural(users, 'user')} looked at.")
    for failure in result.failures:
        tell(failure, style="red", stderr=True)


def run_import(arguments: argparse.Namespace) -> None:
    """Writes the conversations of a file into a store, and learns from them."""
    user = arguments.user
    learns = not arguments.no_learn
    result = read_conversations(arguments.file, with_branches=arguments.branches)
    conversations = result.conversations
    if arguments.title:
        conversations = (pick_conversation(conversations, title=arguments.title),)
    problems: list[str] = []
    with (
        _opened(arguments.store, {"settings": {"learn": learns}}, is_new=True) as pipeline,
        progress_bar() as progress,
    ):
        _write(pipeline, conversations, user, progress, replaces=arguments.replace)
        if learns:
            problems = list(_learn(pipeline, conversations, user, progress))
        known_counts = {kind: len(items) for kind, items in _known(pipeline, user, options.KINDS)}

    rows = [
        (conversation.conversation_id, conversation.title or "", f"{len(conversation.messages):,}")
        for conversation in conversations
    ]
    title = f"{arguments.file.name} → {arguments.store}"
    print_table(title, ("conversation", "title", "messages"), rows)
    _tell_reading(conversations, result.skipped)
    if not arguments.branches:
        _tell_branches(conversations)
    if problems:
        failed = plural(len(problems), "conversation")
        tell(f"{failed} could not be learned from: {problems[0]}", style="red")
    if not learns:
        tell(
            "Nothing was learned from them: "
            "that is done when a pipeline adds the next message to them."
        )
    _tell_next_commands(arguments.store, user, known_counts)


def _tell_branches(conversations: Sequence[ReadConversation]) -> None:
    """Tells how many branches were left out, if any were."""
    branches = sum(len(conversation.branches) for conversation in conversations)
    if branches:
        tell(
            f"Other branches (edited questions, new answers) that were not imported: {branches:,}. "
            f"--branches imports each as a conversation of its own."
        )


def _tell_next_commands(store: Path, user: str, known_counts: Mapping[str, int]) -> None:
    """Tells what is known about a user now, and the commands that show it."""
    where = f"--store {shlex.quote(str(store))} --user {shlex.quote(user)}"
    if any(known_counts.values()):
        counts = [plural(count, options.KINDS[kind][:-1]) for kind, count in known_counts.items()]
        numbers = ", ".join(counts)
        tell(f"Known about {user!r}: {numbers}.\nctxbudget inspect {where}")
    tell(f"ctxbudget dashboard {where}")


def _write(
    pipeline: ContextPipeline,
    conversations: Sequence[ReadConversation],
    user: str,
    progress: Progress,
    *,
    replaces: bool,
) -> None:
    """Writes conversations; none is written where one of them differs from what is stored."""
    writes: list[Sequence[BaseMessage]] = []
    for conversation in conversations:
        if replaces:
            writes.append(conversation.messages)
        else:
            writes.append(_new_messages(pipeline, conversation, user))

    write = pipeline.sync if replaces else pipeline.add_messages
    total = sum(len(conversation.messages) for conversation in conversations)
    task = progress.add_task("messages", total=total)
    for conversation, messages in zip(conversations, writes, strict=True):
        conversation_id = conversation.conversation_id
        write(messages, user_id=user, conversation_id=conversation_id)
        if conversation.title:
            name_conversation(pipeline, Scope(user, conversation_id), conversation.title)
        progress.advance(task, len(conversation.messages))


def _learn(
    pipeline: ContextPipeline,
    conversations: Sequence[ReadConversation],
    user: str,
    progress: Progress,
) -> Iterator[str]:
    """Learns from all that is new in some conversations, and yields what went wrong."""
    task = progress.add_task("learned from", total=len(conversations))
    for conversation in conversations:
        conversation_id = conversation.conversation_id
        pipeline.end_session(user_id=user, conversation_id=conversation_id)
        pipeline.flush()
        progress.advance(task)
        worker = pipeline.engine.workspace.workers.learning.worker
        failure = worker.failure_of(Scope(user, conversation_id))
        if failure:
            yield failure


def _new_messages(
    pipeline: ContextPipeline, conversation: ReadConversation, user: str
) -> list[BaseMessage]:
    """Returns the messages that are not stored yet.

    Raises:
        MessageConflictError: The file differs from the stored conversation.
    """
    messages = conversation.messages
    stored = pipeline.get_messages(user_id=user, conversation_id=conversation.conversation_id)
    for number, (before, message) in enumerate(zip(stored, messages, strict=False), 1):
        has_other_id = message.id not in (None, before.id)
        if has_other_id or fingerprint(before) != fingerprint(message):
            raise errors.MessageConflictError(
                f"{conversation.label!r} differs from the stored conversation at message {number} "
                f"of {len(messages)}: it was edited, or is another branch. Nothing was imported. "
                f"--replace lets the file win (messages that it does not have are kept aside)"
            )
    return messages[len(stored) :]


def run_inspect(arguments: argparse.Namespace) -> None:
    """Shows the knowledge about a user, or changes it and shows the change."""
    if arguments.conversation is not None:
        inspect_rules(arguments)
        return
    if arguments.add_rule or arguments.lift_rule:
        raise errors.InputError("Say in which conversation: --conversation ID")
    with _opened(arguments.store, {"settings": {"learn": False}}) as pipeline:
        knowledge = pipeline.knowledge
        user = arguments.user
        if arguments.text:
            tell(knowledge.describe(user_id=user).rstrip())
            return
        if arguments.why:
            _show_sources(knowledge.why(arguments.why, user_id=user), arguments)
            return
        change = _changed(knowledge, arguments)
        if change is not None:
            tell(change)
        elif arguments.json:
            _list_as_json(pipeline, arguments)
        else:
            _list(pipeline, arguments)


def _changed(knowledge: UserKnowledge, arguments: argparse.Namespace) -> str | None:
    """Changes what an option says, and returns what is told of it; None where none says so."""
    user = arguments.user
    if arguments.delete == "all":
        knowledge.clear(user_id=user)
        return f"All that was known of {user!r} is forgotten. The conversations stay."
    if arguments.delete:
        knowledge.delete(arguments.delete, user_id=user)
        return f"{arguments.delete} is forgotten. The messages that it comes from stay."
    if arguments.pin:
        item = knowledge.pin(arguments.pin, user_id=user, pinned=True)
        return f"{item.id} is pinned."
    if arguments.unpin:
        item = knowledge.pin(arguments.unpin, user_id=user, pinned=False)
        return f"{item.id} is no longer pinned."
    if arguments.correct:
        item_id, text = arguments.correct
        knowledge.edit(item_id, user_id=user, text=text)
        return f"{item_id} is corrected."
    return None


def inspect_rules(arguments: argparse.Namespace) -> None:
    """Lists the standing rules of a conversation, or changes them and shows the change."""
    # Rules that were learned elsewhere are in force where users are learned about.
    with _opened(arguments.store, {"settings": {"learn": True}}) as pipeline:
        conversation_id = arguments.conversation
        if conversation_id not in pipeline.list_conversations(user_id=arguments.user):
            raise errors.InputError(
                f"{arguments.user!r} has no conversation {conversation_id!r} in this store"
            )
        chat = pipeline.conversation(conversation_id, user_id=arguments.user)
        if arguments.add_rule:
            rule = chat.add_rule(arguments.add_rule, everywhere=arguments.everywhere)
            tell(f"{rule.id} is in force.")
        elif arguments.lift_rule:
            chat.lift_rule(arguments.lift_rule)
            tell(f"{arguments.lift_rule} is lifted.")
        else:
            _list_rules(chat.rules(), arguments)


def _list_rules(rules: Sequence[StandingRule], arguments: argparse.Namespace) -> None:
    """Lists rules in force with their days, messages, and who made them."""
    if arguments.json:
        user = arguments.user
        conversation_id = arguments.conversation
        records = [asdict(rule) for rule in rules]
        print_json({"user_id": user, "conversation_id": conversation_id, "rules": records})
        return
    if not rules:
        tell(f"No rule is in force in {arguments.conversation!r}.")
        return
    rows = [(rule.id, cell(rule.text, _origin_of(rule)), rule.day) for rule in rules]
    print_table(plural(len(rows), "rule"), ("id", "in force", "since"), rows)


def _origin_of(rule: StandingRule) -> str:
    """Returns in words where a rule holds, and who made it from which message."""
    reach = "everywhere" if rule.holds_everywhere else "in this conversation"
    origin = f"by {rule.made_by}"
    if rule.message_id:
        origin = f"{origin}, from message {rule.message_id} of {rule.conversation_id}"
    return f"{reach}, {origin}"


def _known(
    pipeline: ContextPipeline, user: str, kinds: Iterable[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Yields each kind of what is known about a user, with its records."""
    for kind in kinds:
        yield kind, getattr(pipeline.knowledge, f"list_{kind}")(user_id=user)


def _listed_kinds(arguments: argparse.Namespace) -> list[str]:
    """Returns the kinds of what is known that are listed: the one that is named, else all."""
    if arguments.kind:
        return [arguments.kind]
    return [*options.KINDS]


def _list_as_json(pipeline: ContextPipeline, arguments: argparse.Namespace) -> None:
    """Prints the records of what is known about a user."""
    user = arguments.user
    known = dict(_known(pipeline, user, _listed_kinds(arguments)))
    if "rules" in known:
        known["rules"] = [asdict(rule) for rule in known["rules"]]
    print_json({"user_id": user, **known, "suspended": _suspended(pipeline, user)})


def _list(pipeline: ContextPipeline, arguments: argparse.Namespace) -> None:
    """Lists what is known about a user, and tells what nothing was learned from."""
    user = arguments.user
    items = pipeline.knowledge.list_known(user_id=user)
    is_empty = True
    for kind in _listed_kinds(arguments):
        prefix = options.KINDS[kind]
        rows: list[Row] = []
        for item in items:
            if item.id.startswith(prefix):
                note = "pinned" if item.pinned else ""
                rows.append((item.id, cell(item.text, note), _day(item.last_said)))
        if rows:
            is_empty = False
            print_table(plural(len(rows), prefix[:-1]), ("id", "known", "said last"), rows)
    if is_empty:
        conversations = len(pipeline.list_conversations(user_id=user))
        subject = arguments.kind or "rules, facts, topics or entities"
        tell(f"No {subject} of {user!r} in this store; conversations of theirs: {conversations:,}.")
    _tell_suspended(pipeline, user)


def _tell_suspended(pipeline: ContextPipeline, user: str) -> None:
    """Tells how many messages nothing was learned from, if there are any."""
    suspended = _suspended(pipeline, user)
    if suspended:
        messages = plural(sum(suspended.values()), "message")
        tell(
            f"Nothing was learned from {messages} of {plural(len(suspended), 'conversation')}: "
            "a game, a story or a supposition."
        )


def _suspended(pipeline: ContextPipeline, user: str) -> dict[str, int]:
    """Returns by conversation the number of a user's messages that are a game or a supposition."""
    counts: dict[str, int] = {}
    for conversation_id in pipeline.list_conversations(user_id=user):
        status = pipeline.status(user_id=user, conversation_id=conversation_id)
        messages = sum(end - first for first, end in status.suspended)
        if messages:
            counts[conversation_id] = messages
    return counts


def _day(time: object) -> str:
    return str(time or "")[: len("2026-01-31")]


def _show_sources(sources: Sequence[SourceMessage], arguments: argparse.Namespace) -> None:
    """Shows the messages that an item is known from."""
    item_id = arguments.why
    if arguments.json:
        data = []
        for source in sources:
            message = source.message and message_to_dict(source.message)
            data.append({**asdict(source), "message": message})
        print_json({"item_id": item_id, "sources": data})
        return
    origin = "said by hand"
    if sources:
        origin = f"known from {plural(len(sources), 'message')}"
    rows = [_source_row(source) for source in sources]
    print_table(f"{item_id}: {origin}", ("conversation", "message", "said"), rows)


def _source_row(source: SourceMessage) -> Row:
    message = source.message
    if message is None:
        return (source.conversation_id, cell("(no longer there)"), "")
    note = "edited since" if source.changed else ""
    text = cell(message.text[:QUOTED_CHARACTERS], note)
    return (source.conversation_id, text, _day(message.additional_kwargs.get("created_at")))


def run_dashboard(arguments: argparse.Namespace) -> None:
    """Serves the page until the command is stopped."""
    try:
        import uvicorn  # noqa: PLC0415 - needs the extra

        from langchain_ctxbudget.dashboard import create_app  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        raise errors.CtxBudgetError(
            f"The dashboard needs an extra: {install_command('dashboard')}"
        ) from error
    if (arguments.store is None) != arguments.demo:
        raise errors.InvalidSettingsError(
            "Say what to show: --store FOLDER, or --demo for the bundled conversation"
        )
    pipeline_arguments = {
        "settings": options.file_settings(arguments),
        "system_prompt": arguments.system,
        "model": arguments.model,
    }
    if arguments.demo:
        opened = demo.open_demo(
            pipeline_arguments["settings"],
            user_id=arguments.user,
            system_prompt=arguments.system or demo.DEMO_SYSTEM_PROMPT,
            model=arguments.model,
        )
    else:
        opened = _opened(arguments.store, pipeline_arguments)
    try:
        listener = socket.create_server((options.HOST, arguments.port))
    except (OSError, OverflowError) as error:
        raise errors.InvalidSettingsError(
            f"--port {arguments.port}: {error}; 0 takes a free one"
        ) from error
    with listener, opened as pipeline:
        app = create_app(pipeline, user_id=arguments.user)
        config = uvicorn.Config(app, log_level="warning", server_header=False, proxy_headers=False)
        address = f"http://{options.HOST}:{listener.getsockname()[1]}/"
        if arguments.demo:
            address += f"#{_demo_view()}"
        tell(f"The dashboard of {arguments.user!r} is at {address}\nCtrl-C ends it.")
        # uvicorn has ended in order before it raises this.
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([listener])


def _demo_view() -> str:
    """Returns the part of the address that opens the demo's question and its evidence."""
    return urlencode(
        {
            "session": demo.DEMO_SESSION,
            "message": demo.DEMO_QUESTION,
            "part": demo.DEMO_EVIDENCE_IDS[0],
        }
    )


COMMANDS = {
    "demo": Command(options.add_demo_options, run_demo),
    "assemble": Command(options.add_assemble_options, run_assemble),
    "replay": Command(options.add_replay_options, run_replay),
    "check": Command(options.add_check_options, run_check, error_code=2),
    "import": Command(options.add_import_options, run_import),
    "inspect": Command(options.add_inspect_options, run_inspect),
    "sweep": Command(options.add_sweep_options, run_sweep),
    "dashboard": Command(options.add_dashboard_options, run_dashboard),
}
"""The commands by name."""
