"""The commands of `ctxbudget`, for conversations in a file and for a store with the knowledge in it."""

import argparse
import json
import re
import shlex
import socket
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from langchain_core.messages import BaseMessage, message_to_dict, messages_to_dict
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from langchain_ctxbudget import demo, errors
from langchain_ctxbudget.budget import STRATEGIES
from langchain_ctxbudget.cli import formats
from langchain_ctxbudget.knowledge import SourceMessage
from langchain_ctxbudget.messages import fingerprint, plain_text
from langchain_ctxbudget.pipeline import REPLAYED_TURNS, ContextPipeline, replay_last_turns
from langchain_ctxbudget.prompt import AssembledContext
from langchain_ctxbudget.replay import DEFAULT_STRATEGIES, NAMES, contender, replay, split_turns
from langchain_ctxbudget.report import plural, shown
from langchain_ctxbudget.stores import DATABASE_FILE, TITLE, Scope
from langchain_ctxbudget.tokens import PRICES, price_of

DEMO_BUDGET = 4_000
REPLAY_BUDGET = 8_000
PREVIEW_LINES = 14
PREVIEW_WIDTH = 160
QUOTED_CHARACTERS = 400
KINDS = {"facts": "fact/", "topics": "topic/", "entities": "entity/"}
"""Kinds of what is known, and how their ids begin."""
DEMO_SESSION = "tool-library"
HOST = "127.0.0.1"
PORT = 8642
Row: TypeAlias = Sequence[str | Text]
DEFAULT_USER = "me"
LONGEST_ID = len("00000000-0000-0000-0000-000000000000")
ACCEPTED = "OpenAI or LangChain messages, or an export of ChatGPT or Claude"
_TOKENS = re.compile(r"(\d[\d,]*)(k?)", re.IGNORECASE)


def configure(command: str, parser: argparse.ArgumentParser) -> None:
    """Adds the options of a command, and what runs it."""
    of_files = {"demo": run_demo, "assemble": run_assemble, "replay": run_replay}
    of_stores = {"import": run_import, "inspect": run_inspect, "dashboard": run_dashboard}
    parser.set_defaults(run=(of_files | of_stores)[command])
    (_add_for_files if command in of_files else _add_for_stores)(command, parser)


def _add_for_files(command: str, parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    if command == "demo":
        add("--message", help="ask something else than the demo's question")
        add("--budget", type=tokens, default=DEMO_BUDGET, metavar="N", help="tokens (default: 4k)")
    elif command == "assemble":
        add("--conversation", type=Path, required=True, metavar="FILE", help=ACCEPTED)
        add("--message", required=True, metavar="TEXT", help="the user's new message")
        add("--budget", type=tokens, required=True, metavar="N", help="tokens, such as 4000 or 4k")
    else:
        add(
            "file",
            type=Path,
            nargs="?",
            metavar="FILE",
            help=f"{ACCEPTED} (default: the bundled conversation)",
        )
        add(
            "--budget",
            type=tokens,
            metavar="N",
            help="tokens (default: 8k, or what the settings say)",
        )
        add(
            "--settings",
            type=Path,
            metavar="FILE",
            help="settings below those of the strategies, TOML or JSON",
        )
        names = f"of {', '.join(NAMES)}; with another budget: recency@4k (default: %(default)s)"
        add("--compare", default=",".join(DEFAULT_STRATEGIES), metavar="NAME,...", help=names)
        add("--price", metavar="MODEL", help="tell costs in US dollars, at the price of this model")
    if command != "demo":
        add("--title", help="which conversation, where the file holds several")
        add("--system", default="", metavar="TEXT", help="a system prompt (default: the file's)")
        add(
            "--model",
            help="count for this model, within its window (default: o200k_base, no window)",
        )
    if command != "replay":
        add(
            "--allocation",
            default="elastic",
            choices=STRATEGIES,
            help="how the budget is divided (default: elastic)",
        )
    add("--json", action="store_true", help="everything as JSON")


def _add_for_stores(command: str, parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--store",
        type=Path,
        required=command != "dashboard",
        metavar="FOLDER",
        help="a folder; `import` makes it",
    )
    add("--user", default=DEFAULT_USER, help="whose conversations (default: %(default)s)")
    if command == "import":
        add("file", type=Path, metavar="FILE", help=ACCEPTED)
        add("--title", help="only this conversation")
        add(
            "--replace",
            action="store_true",
            help="where a stored conversation differs, the file wins",
        )
        add("--no-learn", action="store_true", help="do not learn about the user now")
    elif command == "inspect":
        add("kind", nargs="?", choices=KINDS, help="default: all of them")
        add("--json", action="store_true", help="whole records as JSON")
        change = parser.add_mutually_exclusive_group()
        change.add_argument(
            "--text", action="store_true", help="all that is known, as a text to read"
        )
        change.add_argument(
            "--why", metavar="ITEM", help="the messages that a fact, topic or entity is known from"
        )
        change.add_argument(
            "--pin", metavar="ITEM", help="keep it whatever happens, and show it first"
        )
        change.add_argument("--unpin", metavar="ITEM", help="take that back")
        change.add_argument(
            "--correct", nargs=2, metavar=("ITEM", "TEXT"), help="say it in other words"
        )
        change.add_argument(
            "--delete", metavar="ITEM", help="forget it, or `all`; the messages stay"
        )
    else:
        add(
            "--demo",
            action="store_true",
            help="the bundled conversation, in memory, instead of a store",
        )
        add("--port", type=int, default=PORT, help="0 takes a free one (default: %(default)s)")
        add("--budget", type=tokens, metavar="N", help="tokens of the prompts that are shown")
        add(
            "--settings",
            type=Path,
            metavar="FILE",
            help="settings of the application, TOML or JSON",
        )
        add("--system", default="", metavar="TEXT", help="the system prompt of the application")
        add(
            "--model",
            help="count for this model, within its window (default: o200k_base, no window)",
        )


def tokens(text: str) -> int:
    """Reads a number of tokens, as an option has it: `4000`, `12,000` or `4k`."""
    if found := _TOKENS.fullmatch(text.strip()):
        return int(found[1].replace(",", "")) * (1_000 if found[2] else 1)
    raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens, such as 4000 or 4k")


def _file_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Reads the settings in the file, TOML or JSON, that `--settings` names.

    A `--budget` goes before its own.
    """
    path: Path | None = options.settings
    found = dict[str, Any]()
    try:
        if path is not None:
            read = json.loads if path.suffix == ".json" else tomllib.loads
            found = dict(read(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise errors.InvalidSettingsError(f"--settings {path}: {error}") from error
    return found | ({} if options.budget is None else {"max_context_tokens": options.budget})


def _option_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the settings of the pipeline.

    Nothing is learned, or every run would show something else.
    """
    return {"max_context_tokens": options.budget, "allocation": options.allocation, "learn": False}


def run_demo(options: argparse.Namespace) -> None:
    """Assembles and shows the prompt for a question about the bundled conversation."""
    messages = demo.demo_messages()
    system_prompt = demo.DEMO_SYSTEM_PROMPT
    with ContextPipeline(
        {**_option_settings(options), **demo.DEMO_SETTINGS}, system_prompt=system_prompt
    ) as pipeline:
        # The turns before the question as well, as an application would: the report tells what
        # their prompts share.
        replay_last_turns(pipeline, messages, Scope("maya", "demo"))
        context = pipeline.assemble(
            options.message or demo.DEMO_QUESTION, user_id="maya", conversation_id="demo"
        )
    _show(context, options)
    if not (options.json or options.message):
        newest = contender("recency", options.budget, system_prompt=system_prompt).prompt(
            messages, context.turn
        )
        prompt, trimmed = (
            "\n".join(one.text for one in made) for made in (context.messages, newest.messages)
        )
        tell("")
        for number, message in enumerate(messages, 1):
            if message.id in demo.DEMO_EVIDENCE_IDS:
                found = message.text in prompt
                state = (
                    "stands in the prompt word for word"
                    if found
                    else "is not in this prompt word for word"
                )
                other = "has" if message.text in trimmed else "does not have"
                where = f"Message {number} of {len(messages)}, which holds the answer,"
                tell(
                    f"{where} {state}; trim_messages {other} it.", style="green" if found else "red"
                )


def run_assemble(options: argparse.Namespace) -> None:
    """Assembles and shows the prompt for a message in a conversation of a file."""
    key, instructions, messages = formats.read_one(options.conversation, options.title)
    system_prompt = options.system or instructions
    with ContextPipeline(
        _option_settings(options), system_prompt=system_prompt, model=options.model
    ) as pipeline:
        pipeline.add_messages(messages, user_id=DEFAULT_USER, conversation_id=key)
        _show(
            pipeline.assemble(options.message, user_id=DEFAULT_USER, conversation_id=key), options
        )


def _show(context: AssembledContext, options: argparse.Namespace) -> None:
    report = context.report
    if options.json:
        print_json({"messages": messages_to_dict(context.messages), "report": report.to_dict()})
        return
    counts = report.coverage_counts()
    messages = f"{counts['verbatim']:,} of {plural(sum(counts.values()), 'message')} word for word"
    took = f"{counts['retrieved']:,} looked up, in {sum(report.timings_ms.values()):,.0f} ms and without a model"
    tell(
        f"{report.total_tokens:,} of {report.budget_tokens:,} tokens: {messages}, {took}",
        style="bold",
    )
    console = Console(highlight=False)
    console.print(Text(report.to_text(console.width)), soft_wrap=True)
    console.print()
    console.rule("[bold]the prompt")
    for number, message in enumerate(context.messages, 1):
        console.print(
            Text(
                " ".join(filter(None, (f"{number:>3}", message.type, message.name))),
                style="bold cyan",
            )
        )
        text = printable(plain_text(message))
        console.print(
            Text(text if number == len(context.messages) else _shortened(text)), soft_wrap=True
        )


def _shortened(text: str) -> str:
    lines = text.splitlines()
    first = [
        line if len(line) <= PREVIEW_WIDTH else line[: PREVIEW_WIDTH - 1] + "…"
        for line in lines[:PREVIEW_LINES]
    ]
    if len(lines) > PREVIEW_LINES:
        first.append(f"… {len(lines) - PREVIEW_LINES} more lines (--json has them)")
    return "\n".join(first)


def run_replay(options: argparse.Namespace) -> None:
    """Replays the conversation, and prints what came of it."""
    strategies = re.sub(r"(@\d+)k\b", r"\g<1>000", options.compare).split(",")
    price = price_of(options.price, PRICES) if options.price else None
    if options.price and price is None:
        known = ", ".join(sorted(PRICES))
        raise errors.InputError(
            f"--price: no price is known for {options.price!r}; there are prices for {known}"
        )
    system_prompt = demo.DEMO_SYSTEM_PROMPT
    messages = demo.demo_messages()
    if options.file is not None:
        _, system_prompt, messages = formats.read_one(options.file, options.title)
    settings = {"max_context_tokens": REPLAY_BUDGET, **_file_settings(options)}
    with progress_bar() as progress:
        task = progress.add_task("turns", total=len(split_turns(messages)) * len(strategies))
        result = replay(
            messages,
            strategies,
            budget=settings["max_context_tokens"],
            settings=settings,
            system_prompt=options.system or system_prompt,
            model=options.model,
            price=price,
            on_turn=lambda name, _: progress.update(task, advance=1, description=printable(name)),
        )
    if options.json:
        print_json(result.to_dict())
    else:
        sys.stdout.write(printable(f"{result.to_text()}\n"))


@contextmanager
def _opened(
    folder: Path, about: Mapping[str, Any], *, is_new: bool = False
) -> Iterator[ContextPipeline]:
    """Opens a store, with a pipeline over it that is made of these arguments."""
    from langchain_ctxbudget.stores.chroma import ChromaStore  # noqa: PLC0415 - loads chromadb

    if not (is_new or (folder / DATABASE_FILE).is_file()):  # opening it would make it
        raise errors.StoreError(
            f"There is no store in {folder}: `ctxbudget import FILE --store FOLDER` makes one"
        )
    with ChromaStore(folder) as store, ContextPipeline(store=store, **about) as pipeline:
        yield pipeline


def run_import(options: argparse.Namespace) -> None:
    """Writes the conversations of a file into a store, and learns from them."""
    user = options.user
    learn = not options.no_learn
    conversations = formats.read_conversations(options.file)
    if options.title:
        conversations = [formats.pick_conversation(conversations, title=options.title)]
    with (
        _opened(options.store, {"settings": {"learn": learn}}, is_new=True) as pipeline,
        progress_bar() as progress,
    ):
        new = [
            found.messages if options.replace else _new_messages(pipeline, found, user)
            for found in conversations
        ]
        task = progress.add_task(
            "messages", total=sum(len(found.messages) for found in conversations)
        )
        write = pipeline.sync if options.replace else pipeline.add_messages
        for found, messages in zip(conversations, new, strict=True):
            write(messages, user_id=user, conversation_id=found.conversation_id)
            if found.title:
                _name(pipeline, Scope(user, found.conversation_id), found.title)
            progress.advance(task, len(found.messages))
        problems = list(_learn(pipeline, conversations, user, progress)) if learn else []
        learned = {kind: len(items) for kind, items in _known(pipeline, user, KINDS).items()}
    rows = [
        (found.conversation_id, found.title or "", f"{len(found.messages):,}")
        for found in conversations
    ]
    print_table(
        f"{options.file.name} → {options.store}", ("conversation", "title", "messages"), rows
    )
    if problems:
        tell(
            f"{plural(len(problems), 'conversation')} could not be learned from: {problems[0]}",
            style="red",
        )
    if not learn:
        tell(
            "Nothing was learned from them: that is done when a pipeline adds the next message to them."
        )
    where = f"--store {shlex.quote(str(options.store))} --user {shlex.quote(user)}"
    if any(learned.values()):
        numbers = ", ".join(plural(number, KINDS[kind][:-1]) for kind, number in learned.items())
        tell(f"Known about {user!r}: {numbers}.\nctxbudget inspect {where}")
    tell(f"ctxbudget dashboard {where}")


def _name(pipeline: ContextPipeline, scope: Scope, title: str) -> None:
    place = scope.place(TITLE)
    pipeline.store.put(place.namespace, place.key, {"text": title}, index=False)


def _learn(
    pipeline: ContextPipeline,
    conversations: Sequence[formats.ConversationFile],
    user: str,
    progress: Progress,
) -> Iterator[str]:
    """Learns from everything new in some conversations, however little, and yields what went wrong."""
    task = progress.add_task("learned from", total=len(conversations))
    for found in conversations:
        pipeline.end_session(user_id=user, conversation_id=found.conversation_id)
        pipeline.flush()
        progress.advance(task)
        worker = pipeline.engine.workspace.learning.worker
        yield from filter(None, [worker.failure_of(Scope(user, found.conversation_id))])


def _new_messages(
    pipeline: ContextPipeline, conversation: formats.ConversationFile, user: str
) -> list[BaseMessage]:
    """Returns the messages that are not stored yet.

    Refuses a file that differs from the stored conversation.
    """
    stored = pipeline.get_messages(user_id=user, conversation_id=conversation.conversation_id)
    for number, (known, given) in enumerate(zip(stored, conversation.messages, strict=False), 1):
        if given.id not in (None, known.id) or fingerprint(known) != fingerprint(given):
            raise errors.MessageConflictError(
                f"{conversation.label!r} differs from the stored conversation at message {number} of "
                f"{len(conversation.messages)}: it was edited, or is another branch. Nothing was imported. "
                f"--replace lets the file win (messages that it does not have are kept aside)"
            )
    return conversation.messages[len(stored) :]


def run_inspect(options: argparse.Namespace) -> None:
    """Shows the knowledge about a user, or changes it and shows the change."""
    with _opened(options.store, {"settings": {"learn": False}}) as pipeline:
        knowledge = pipeline.knowledge
        user = options.user
        if options.text:
            tell(knowledge.describe(user_id=user).rstrip())
        elif options.why:
            _show_sources(knowledge.why(options.why, user_id=user), options)
        elif options.delete == "all":
            knowledge.clear(user_id=user)
            tell(f"All that was known of {user!r} is forgotten. The conversations stay.")
        elif options.delete:
            knowledge.delete(options.delete, user_id=user)
            tell(f"{options.delete} is forgotten. The messages that it comes from stay.")
        elif options.pin or options.unpin:
            item = knowledge.pin(
                options.pin or options.unpin, user_id=user, pinned=bool(options.pin)
            )
            tell(f"{item.id} is {'' if item.pinned else 'no longer '}pinned.")
        elif options.correct:
            item_id, text = options.correct
            knowledge.edit(item_id, user_id=user, text=text)
            tell(f"{item_id} is corrected.")
        else:
            _list(pipeline, options)


def _known(pipeline: ContextPipeline, user: str, kinds: Iterable[str]) -> dict[str, list[Any]]:
    return {kind: getattr(pipeline.knowledge, f"list_{kind}")(user_id=user) for kind in kinds}


def _list(pipeline: ContextPipeline, options: argparse.Namespace) -> None:
    kinds = [options.kind] if options.kind else [*KINDS]
    if options.json:
        print_json({"user_id": options.user, **_known(pipeline, options.user, kinds)})
        return
    every = pipeline.knowledge.list_known(user_id=options.user)
    found = {kind: [one for one in every if one.id.startswith(KINDS[kind])] for kind in kinds}
    for kind in filter(found.get, kinds):
        rows = [
            (one.id, cell(one.text, "pinned" if one.pinned else ""), _day(one.last_said))
            for one in found[kind]
        ]
        print_table(plural(len(rows), KINDS[kind][:-1]), ("id", "known", "said last"), rows)
    if not any(found.values()):
        number = len(pipeline.list_conversations(user_id=options.user))
        said_of = options.kind or "facts, topics or entities"
        tell(
            f"No {said_of} of {options.user!r} in this store; conversations of theirs: {number:,}."
        )


def _day(at: object) -> str:
    return str(at or "")[: len("2026-01-31")]


def _show_sources(sources: Sequence[SourceMessage], options: argparse.Namespace) -> None:
    if options.json:
        told = [
            {**asdict(one), "message": one.message and message_to_dict(one.message)}
            for one in sources
        ]
        print_json({"item_id": options.why, "sources": told})
        return
    rows: list[Row] = []
    for one in sources:
        said = one.message.text if one.message else "(no longer there)"
        text = cell(said[:QUOTED_CHARACTERS], "edited since" if one.message and one.changed else "")
        rows.append(
            (
                one.conversation_id,
                text,
                _day(one.message and one.message.additional_kwargs.get("created_at")),
            )
        )
    known = f"known from {plural(len(sources), 'message')}" if sources else "said by hand"
    print_table(f"{options.why}: {known}", ("conversation", "message", "said"), rows)


def run_dashboard(options: argparse.Namespace) -> None:
    """Serves the page until the command is stopped."""
    try:
        import uvicorn  # noqa: PLC0415 - needs the extra

        from langchain_ctxbudget.dashboard import create_app  # noqa: PLC0415 - needs the extra
    except ImportError as error:
        raise errors.CtxBudgetError(
            "It needs an extra: pip install 'langchain-ctxbudget[dashboard]'"
        ) from error
    if (options.store is None) != options.demo:
        raise errors.InvalidSettingsError(
            "Say what to show: --store FOLDER, or --demo for the bundled conversation"
        )
    about = {
        "settings": _file_settings(options),
        "system_prompt": options.system,
        "model": options.model,
    }
    opened = _demo(options.user, about) if options.demo else _opened(options.store, about)
    try:
        listener = socket.create_server((HOST, options.port))
    except (OSError, OverflowError) as error:
        raise errors.InvalidSettingsError(
            f"--port {options.port}: {error}; 0 takes a free one"
        ) from error
    with listener, opened as pipeline:
        app = create_app(pipeline, user_id=options.user)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", server_header=False, proxy_headers=False)
        )
        place = {
            "session": DEMO_SESSION,
            "message": demo.DEMO_QUESTION,
            "part": demo.DEMO_EVIDENCE_IDS[0],
        }
        look = urlencode(place) if options.demo else ""
        address = f"http://{HOST}:{listener.getsockname()[1]}/{'#' * bool(look)}{look}"
        tell(f"The dashboard of {options.user!r} is at {address}\nCtrl-C ends it.")
        with suppress(KeyboardInterrupt):  # uvicorn has ended in order before it raises this
            server.run([listener])


@contextmanager
def _demo(user: str, about: Mapping[str, Any]) -> Iterator[ContextPipeline]:
    """Opens the bundled conversation, whose last turns had prompts.

    Its cache stays warm while somebody looks.
    """
    kept = {
        "max_context_tokens": DEMO_BUDGET,
        "keep_snapshots": REPLAYED_TURNS,
        "cache_lifetime_seconds": 86_400,
    }
    kept |= demo.DEMO_SETTINGS
    own = {
        "settings": kept | about["settings"],
        "system_prompt": about["system_prompt"] or demo.DEMO_SYSTEM_PROMPT,
    }
    with ContextPipeline(**{**about, **own}) as pipeline:
        for fact in demo.DEMO_FACTS:
            pipeline.knowledge.add_fact(fact, user_id=user, category="identity")
        scope = Scope(user, DEMO_SESSION)
        replay_last_turns(pipeline, demo.demo_messages(), scope)
        _name(pipeline, scope, demo.DEMO_TITLE)
        yield pipeline


# Printing on a terminal: text that does not steer it, tables without frames, progress bars


def printable(text: str) -> str:
    """Returns a text whose control characters, lines and tabs apart, are shown, not obeyed."""
    return "".join(part if part in "\n\t" else shown(part) for part in re.split(r"([\n\t])", text))


def tell(text: str, *, style: str = "", stderr: bool = False) -> None:
    """Prints a text of any origin, without markup."""
    Console(stderr=stderr, highlight=False).print(
        Text(printable(text), style=style), soft_wrap=True
    )


def print_json(data: Mapping[str, Any]) -> None:
    """Prints data, records in it as plain data."""
    sys.stdout.write(
        json.dumps(data, indent=2, default=lambda record: record.model_dump(mode="json")) + "\n"
    )


def progress_bar() -> Progress:
    """Returns a bar with count and remaining time on standard error, which is not in what may be piped on."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True))


def cell(text: str, note: str = "") -> Text:
    """Returns a text without markup, with a dim line below it."""
    return Text(printable(text)).append(f"\n{note}" if note else "", style="dim")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints an aligned table without frames; the last column is narrow and stands at the right.

    The first column has ids, which stay whole where they are not very long: they are there to be
    copied.
    """
    lines = list(rows)
    whole = min(LONGEST_ID, max((len(str(row[0])) for row in lines), default=0))
    drawn = Table(
        title=printable(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    for place, heading in enumerate(columns[:-1]):
        drawn.add_column(heading, overflow="fold", min_width=None if place else whole)
    drawn.add_column(columns[-1], justify="right", no_wrap=True)
    for row in lines:
        drawn.add_row(*(value if isinstance(value, Text) else cell(value) for value in row))
    Console(highlight=False).print(drawn)
