"""Reads the conversations of a file, an archive or a folder, whatever kind they are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import ConversationFormatError
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.readers.base import (
    READING_ERRORS,
    JsonObject,
    ReadConversation,
    Reader,
    Skipped,
    Unread,
    reason_of,
)
from langchain_ctxbudget.readers.fields import (
    ID_KEYS,
    TITLE_KEYS,
    id_at,
    objects_in,
    text_at,
)
from langchain_ctxbudget.readers.files import Source, records_of, sources_at, sources_of
from langchain_ctxbudget.readers.growing import key_of
from langchain_ctxbudget.readers.registry import ACCEPTED, READERS

WRAPPERS = ("conversations", "data", "runs")
"""Keys under which a file has all its records: those of exports, and of a page that the API of
Langfuse or OpenAI ("data") or of LangSmith ("runs") returns."""
FILES_BESIDE = frozenset(
    {"user.json", "users.json", "user_settings.json", "account.json", "ads.json"}
    | {"message_feedback.json", "model_comparisons.json", "shared_conversations.json"}
    | {"conversation_asset_file_names.json", "library_files.json", "export_manifest.json"}
)
"""Files that exports of ChatGPT and Claude have beside the conversations (2025 and 2026). Where
nothing is recognised in one of these, nothing is missing, so nobody is told."""
BYTES = "the file"
"""What stands for the name of a file of which only the bytes are known."""
MOST_LISTED = 20
"""Conversations, and things that were skipped, that an error lists."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What reading a file gave."""

    conversations: tuple[ReadConversation, ...]
    skipped: tuple[Skipped, ...]
    """What could not be read, by name, each with its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileContents:
    """What is in one file."""

    records: Sequence[JsonObject]
    reader: Reader | None
    """None where no reader recognises a record."""
    conversations: Sequence[ReadConversation | Unread]
    skipped: Sequence[Skipped]
    """Lines that are no JSON, and records that are no objects."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A conversation, and the reader that read it."""

    conversation: ReadConversation
    reader: Reader


def read_conversations(path: Path | str, *, with_branches: bool = False) -> ReadResult:
    """Reads every conversation of a file, of an archive, or of all files in a folder.

    Args:
        path: JSON or JSONL, a zip archive of such files, or a folder. What kind of conversations
            a file has is told by its content, never by its name.
        with_branches: Whether other branches (edited questions, new answers) are conversations as
            well. Without it, a conversation is what the user saw last.

    Raises:
        ConversationFormatError: Nothing at all can be read; it says why, and what is accepted.
    """
    try:
        sources = list(sources_at(Path(path)))
    except READING_ERRORS as error:
        raise ConversationFormatError(f"{path}: {reason_of(error)}") from error
    return _result(str(path), sources, with_branches=with_branches)


def parse_conversations(data: bytes, *, with_branches: bool = False) -> ReadResult:
    """Reads the conversations in the bytes of a file, as `read_conversations` does."""
    sources = list(sources_of(BYTES, data))
    return _result(BYTES, sources, with_branches=with_branches)


def pick_conversation(
    conversations: Sequence[ReadConversation], *, title: str | None = None
) -> ReadConversation:
    """Returns the only conversation, or the one whose title or id matches.

    Raises:
        ConversationFormatError: None matches, or several do; it lists the candidates.
    """
    matches = _matches(conversations, (title or "").casefold())
    if len(matches) == 1:
        return matches[0]
    name = title or "the file"
    number = len(matches)
    lines = [f"{name!r} fits {number} conversations: name one by `title` or --title"]
    for candidate in (matches or conversations)[:MOST_LISTED]:
        count = len(candidate.messages)
        lines.append(f"  {candidate.label}  ({candidate.conversation_id}, {count} messages)")
    raise ConversationFormatError("\n".join(lines))


def _matches(conversations: Sequence[ReadConversation], title: str) -> Sequence[ReadConversation]:
    """Returns the conversations with this title or id, else those whose title holds it."""
    exact = [
        conversation
        for conversation in conversations
        if title in (conversation.label.casefold(), conversation.conversation_id.casefold())
    ]
    if exact:
        return exact
    return [
        conversation for conversation in conversations if title in conversation.label.casefold()
    ]


def _result(place: str, sources: Sequence[Source | Skipped], *, with_branches: bool) -> ReadResult:
    """Returns what some files hold.

    Raises:
        ConversationFormatError: Nothing can be read.
    """
    found: list[_Read] = []
    skipped: list[Skipped] = []
    for source in sources:
        if isinstance(source, Skipped):
            skipped.append(source)
            continue
        for item in _items_of(source, is_alone=len(sources) == 1):
            if isinstance(item, Skipped):
                skipped.append(item)
            else:
                found.append(item)
    if not found:
        raise _nothing_read(place, skipped)

    conversations = _without_beginnings(found)
    if with_branches:
        conversations = _and_branches(conversations)
    return ReadResult(tuple(_with_own_ids(conversations)), tuple(skipped))


def _and_branches(conversations: Sequence[ReadConversation]) -> list[ReadConversation]:
    """Returns conversations, each with its other branches behind it."""
    all_branches: list[ReadConversation] = []
    for conversation in conversations:
        all_branches.append(conversation)
        all_branches += conversation.branches
    return all_branches


def _nothing_read(place: str, skipped: Sequence[Skipped]) -> ConversationFormatError:
    """Returns the error that says why nothing was read, and what is accepted."""
    reasons = [str(item) for item in skipped] or ["there is no JSON in it"]
    lines = [f"{place}: {reasons[0].removeprefix(f'{place}: ')}"]
    lines += reasons[1:MOST_LISTED]
    if len(reasons) > MOST_LISTED:
        lines.append(f"and {len(reasons) - MOST_LISTED} more")
    return ConversationFormatError("\n".join([*lines, ACCEPTED]))


def _items_of(source: Source, *, is_alone: bool) -> Iterator[_Read | Skipped]:
    """Yields the conversations of one file, and what cannot be read of it."""
    place_prefix = "" if is_alone else f"{source.name}, "
    try:
        contents = _contents_of(source)
    except READING_ERRORS as error:
        yield Skipped(source.name, reason_of(error))
        return
    for skipped in contents.skipped:
        yield Skipped(f"{place_prefix}{skipped.name}", skipped.reason)
    if contents.reader is None:
        if _is_missed(source, contents, is_alone=is_alone):
            yield Skipped(source.name, _why_unknown(contents.records))
        return
    file_name = _told_file_name(source, is_alone=is_alone)
    for number, conversation in enumerate(contents.conversations, 1):
        if isinstance(conversation, Unread):
            name = _name_of(conversation.records) or f"{place_prefix}conversation {number}"
            yield Skipped(name, conversation.reason)
        elif not conversation.messages:
            yield Skipped(conversation.label, "has no messages")
        else:
            yield _Read(replace(conversation, file_name=file_name), contents.reader)


def _contents_of(source: Source) -> _FileContents:
    """Reads the records of a file by the reader that recognises them.

    Raises:
        Exception: One of `READING_ERRORS`: it is no JSON, or it is built wrongly.
    """
    records, skipped = records_of(source)
    reader = _reader_of(records)
    if reader is None:
        records = _unwrapped(records) or records
        reader = _reader_of(records)
    conversations: list[ReadConversation | Unread] = []
    if reader is not None:
        conversations = list(reader.conversations(records))
    return _FileContents(
        records=records, reader=reader, conversations=conversations, skipped=skipped
    )


def _is_missed(source: Source, contents: _FileContents, *, is_alone: bool) -> bool:
    """Tells if a user should hear that nothing was recognised in a file.

    Of what exports have beside conversations nobody need hear, nor where every line was skipped, as
    that is told line by line.
    """
    if not is_alone and PurePath(source.name).name in FILES_BESIDE:
        return False
    return bool(contents.records) or not contents.skipped


def _told_file_name(source: Source, *, is_alone: bool) -> str:
    """Returns the name of a file as conversations tell it; empty where only its bytes are known."""
    if not is_alone:
        return source.name
    if source.name == BYTES:
        return ""
    return PurePath(source.name).name


def _unwrapped(records: Sequence[JsonObject]) -> list[JsonObject]:
    """Returns the objects that records have under one of `WRAPPERS`."""
    unwrapped: list[JsonObject] = []
    for record in records:
        for key in WRAPPERS:
            unwrapped += objects_in(record.get(key))
    return unwrapped


def _why_unknown(records: Sequence[JsonObject]) -> str:
    """Returns the reason that is told where no reader recognises a record."""
    if not records:
        return "has no messages"
    return "neither a message nor a conversation"


def _reader_of(records: Sequence[JsonObject]) -> Reader | None:
    """Returns the reader that recognises the most records; of several, the first in the list."""
    best: Reader | None = None
    most = 0
    for reader in READERS:
        count = sum(map(reader.recognises, records))
        if count > most:
            best = reader
            most = count
    return best


def _name_of(group: Sequence[JsonObject]) -> str | None:
    """Returns the title or id of the first record of a group."""
    if not group:
        return None
    return text_at(group[0], *TITLE_KEYS) or id_at(group[0], ID_KEYS)


def _without_beginnings(found: Sequence[_Read]) -> list[ReadConversation]:
    """Leaves out what is the beginning of another conversation, or the same.

    That is looked for among the records of readers that repeat messages, and among conversations
    with the same id, as two exports have them.
    """
    comparable: dict[str, list[ReadConversation]] = {}
    for item in found:
        key = f"id {item.conversation.conversation_id}"
        if item.reader.repeats:
            key = "repeating"
        comparable.setdefault(key, []).append(item.conversation)
    left_out: set[int] = set()
    for group in comparable.values():
        if len(group) > 1:
            left_out.update(map(id, _beginnings(group)))
    conversations = [item.conversation for item in found]
    return [conversation for conversation in conversations if id(conversation) not in left_out]


def _beginnings(conversations: Sequence[ReadConversation]) -> list[ReadConversation]:
    """Returns the conversations that a longer one, or an equal one before them, begins with."""
    beginnings: set[str] = set()
    left_out: list[ReadConversation] = []
    longest_first = sorted(conversations, key=lambda each: -len(each.messages))
    for conversation in longest_first:
        chain = list(_digests(conversation.messages))
        if chain[-1] in beginnings:
            left_out.append(conversation)
        beginnings.update(chain)
    return left_out


def _digests(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """Yields, after each message, a digest of all messages up to it."""
    so_far = ""
    for message in messages:
        so_far = digest(f"{so_far} {key_of(message)}").hex()
        yield so_far


def _with_own_ids(conversations: Iterable[ReadConversation]) -> Iterator[ReadConversation]:
    """Yields conversations; of several with the same id, the later ones get a number behind it."""
    taken: set[str] = set()
    for conversation in conversations:
        own_id = conversation.conversation_id
        number = 1
        while own_id in taken:
            number += 1
            own_id = f"{conversation.conversation_id}-{number}"
        taken.add(own_id)
        yield replace(conversation, conversation_id=own_id)
