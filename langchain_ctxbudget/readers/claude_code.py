"""Session files of Claude Code: one line for each message, and lines about the session.

There is no published format. It was read from files of versions 1.0 to 2.1, as the projects
michaelschleiss/claude-convos (March 2026) and microsoft/amplifier (October 2025) describe them.

- Lines form a tree by `parentUuid`; taking back a message begins another branch. Calls made in
  parallel fork as well, so answers and results are gathered by their ids.
- One answer is several lines with the same `message.id`, one for each block.
- A compaction begins a new tree. Its `logicalParentUuid` names the line before it.
- A subagent has lines of its own, marked as `isSidechain`.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from langchain_ctxbudget.readers.base import GroupReader, JsonObject, ReadConversation
from langchain_ctxbudget.readers.fields import id_at, object_at, objects_in, text_at, time_at
from langchain_ctxbudget.readers.message_forms import CALL, RESULT, messages_of
from langchain_ctxbudget.readers.pieces import marked_with_source, time_kwargs
from langchain_ctxbudget.readers.trees import conversation_of

STEERING = "queue-operation"
"""The type of a line about what the user typed while the model worked."""
CONVERSING = ("user", "assistant", "attachment", STEERING)
"""Types of lines that somebody or something said."""
SYNTHETIC = "<synthetic>"
"""The model of an answer that the program made itself, such as a notice of an error."""
PROGRAM = "claude_code"
"""The `lc_source` of a user's message that the program wrote. The user's words are not in it."""
BEGINNINGS_OF_PROGRAM = (
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>",
    "[Request interrupted by user",
)
"""How texts begin that the program writes into a user's line without marking it as its own."""
_AGENT = "-agent-"
"""What stands between the ids of a session and of its subagent."""
_BARE_COMMAND = re.compile(
    r"\s*<command-(name|message)>.*<command-args>\s*</command-args>\s*", re.DOTALL
)
"""A command such as `/clear`; what the user types behind one stands in `command-args`."""
SUMMARY = "summarization"
"""The `lc_source` that LangChain gives to a summary in the place of messages."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the tree."""

    uuid: str
    parent: str | None
    record: JsonObject

    @property
    def type(self) -> str | None:
        return text_at(self.record, "type")

    @property
    def answer_id(self) -> str | None:
        """The id of the answer that the line is a part of."""
        if self.type != "assistant":
            return None
        return id_at(object_at(self.record, "message"), ("id",)) or self.uuid

    @property
    def content(self) -> str | list[Any]:
        content = object_at(self.record, "message").get("content")
        if isinstance(content, str | list):
            return content
        return ""

    def blocks(self, block_type: str) -> list[JsonObject]:
        """Returns the blocks of a type."""
        return [block for block in objects_in(self.content) if block.get("type") == block_type]


class ClaudeCode(GroupReader):
    """Reads sessions and their subagents; of a session, the branch that was gone on with last."""

    name: ClassVar[str] = "claude-code"
    accepts: ClassVar[str] = (
        'session files of Claude Code (~/.claude/projects): lines with "sessionId" and "parentUuid"'
    )
    repeats: ClassVar[bool] = True

    def recognises(self, record: JsonObject) -> bool:
        """Tells if a record is a line of a session, or one about it."""
        if text_at(record, "type") is None:
            return False
        return id_at(record, ("sessionId", "leafUuid")) is not None or "snapshot" in record

    def groups(self, records: Sequence[JsonObject]) -> Iterable[Sequence[JsonObject]]:
        """Returns the lines of each session and of each subagent."""
        key_of_line: dict[str, str] = {}
        for record in records:
            uuid = id_at(record, ("uuid",))
            if uuid is not None:
                key_of_line[uuid] = _key(record, uuid, key_of_line)
        groups: dict[str, list[JsonObject]] = {key: [] for key in key_of_line.values()}
        for record in records:
            uuid = id_at(record, ("uuid", "leafUuid")) or ""
            key = key_of_line.get(uuid) or _session(record)
            if key in groups:
                groups[key].append(record)
        return groups.values() if groups else [records]

    def read(self, records: Sequence[JsonObject]) -> ReadConversation:
        """Returns the conversation of the lines of one session or subagent."""
        tree = _Tree(_lines(records))
        first = next((record for record in records if id_at(record, ("uuid",))), records[0])
        conversation_id = _key(first, id_at(first, ("uuid",)) or "", {})
        transcripts: list[list[BaseMessage]] = []
        for branch in tree.branches():
            messages = list(_messages(branch, tree))
            if not transcripts or not _ids(messages) <= _ids(transcripts[0]):
                transcripts.append(messages)
        return conversation_of(transcripts, conversation_id=conversation_id, title=_title(records))


def _ids(messages: Iterable[BaseMessage]) -> set[str | None]:
    return {message.id for message in messages}


def _session(record: JsonObject) -> str:
    return id_at(record, ("sessionId",)) or "session"


def _key(record: JsonObject, uuid: str, key_of_line: dict[str, str]) -> str:
    """Returns the id of the conversation that a line belongs to.

    Args:
        record: The line.
        uuid: Its id.
        key_of_line: The conversations of the lines before it. A session that was resumed goes on
            with the one that its first line follows, whatever its own id.
    """
    known = key_of_line.get(_parent(record) or "")
    if record.get("isSidechain"):
        return _key_of_subagent(record, uuid, known)
    if known is None or _AGENT in known:
        return _session(record)
    return known


def _key_of_subagent(record: JsonObject, uuid: str, known: str | None) -> str:
    """Returns the id of the conversation of a subagent's line.

    Args:
        record: The line.
        uuid: Its id.
        known: The conversation of the line that it follows, if there is one.
    """
    agent = id_at(record, ("agentId",))
    if agent is None and known is not None and _AGENT in known:
        return known
    return f"{_session(record)}{_AGENT}{agent or uuid}"


def _parent(record: JsonObject) -> str | None:
    return id_at(record, ("parentUuid", "logicalParentUuid"))


def _title(records: Sequence[JsonObject]) -> str | None:
    """Returns the user's own title, else one that was made; the last of several."""
    for key in ("customTitle", "aiTitle", "summary"):
        for record in reversed(records):
            title = text_at(record, key)
            if title is not None:
                return title
    return None


def _lines(records: Sequence[JsonObject]) -> list[_Line]:
    """Returns the lines of the tree, each once, the newest copy in the place of the first.

    A line whose parent does not stand before it follows the line before it, as does what the user
    typed while the model worked; one without any parent begins the conversation anew.
    """
    lines: dict[str, _Line] = {}
    before: str | None = None
    for uuid, record in _newest_by_uuid(records).items():
        parent = _parent(record)
        if (parent is not None and parent not in lines) or "uuid" not in record:
            parent = before
        lines[uuid] = _Line(uuid, parent, record)
        before = uuid
    return list(lines.values())


def _newest_by_uuid(records: Sequence[JsonObject]) -> dict[str, JsonObject]:
    """Returns the newest copy of each line of the tree, in the place of the first.

    What the user typed while the model worked has no id, and gets one.
    """
    texts = {text.strip() for text in map(_text_in, records) if text is not None}
    newest: dict[str, JsonObject] = {}
    for number, record in enumerate(records):
        uuid = id_at(record, ("uuid",))
        if uuid is None and _is_steering(record, texts):
            uuid = f"typed-{number}"
        if uuid is not None:
            newest[uuid] = record
    return newest


def _text_in(record: JsonObject) -> str | None:
    """Returns what a user's line says, where it is nothing but a text."""
    content = object_at(record, "message").get("content")
    match content:
        case [{"type": "text", "text": str(text)}]:
            return text
        case str():
            return content
        case _:
            return text_at(object_at(record, "attachment"), "prompt")


def _is_steering(record: JsonObject, texts: Container[str]) -> bool:
    """Tells if a line is all that tells of words typed while the model worked.

    Args:
        record: The line.
        texts: What other lines say. Newer versions tell these words in a line of the tree as well.
    """
    if text_at(record, "type") != STEERING or record.get("operation") != "remove":
        return False
    text = text_at(record, "content")
    return text is not None and text.strip() not in texts


class _Tree:
    """The lines of a session as a tree."""

    def __init__(self, lines: Sequence[_Line]) -> None:
        self._lines = lines
        self._by_uuid = {line.uuid: line for line in lines}
        self._of_answer: defaultdict[str, list[_Line]] = defaultdict(list)
        for line in lines:
            if line.answer_id is not None:
                self._of_answer[line.answer_id].append(line)

    def branches(self) -> list[list[_Line]]:
        """Returns the branches that somebody said something on, the newest first."""
        covered: set[str] = set()
        branches: list[list[_Line]] = []
        for line in reversed(self._lines):
            if line.uuid in covered or line.type not in CONVERSING:
                continue
            branch = self._branch_to(line)
            covered.update(other.uuid for other in branch)
            branches.append(branch)
        return branches

    def _branch_to(self, end: _Line) -> list[_Line]:
        """Returns the lines of a branch in the order of the file.

        These are the lines from the beginning to its end, what else belongs to their answers, and
        the results of the calls in them.
        """
        path = self._path_to(end)
        answers = {line.answer_id for line in path if line.answer_id is not None}
        calls = self._calls_in(answers)
        on_branch = {line.uuid for line in path}
        branch: list[_Line] = []
        for line in self._lines:
            belongs_to_an_answer = line.answer_id in answers or _answers_one_of(line, calls)
            steers = line.type == STEERING and line.parent in on_branch
            if line.uuid in on_branch or belongs_to_an_answer or steers:
                branch.append(line)
                on_branch.add(line.uuid)
        return branch

    def _calls_in(self, answers: Iterable[str]) -> set[str]:
        """Returns the ids of the calls in some answers."""
        calls: set[str] = set()
        for answer in answers:
            for line in self._of_answer[answer]:
                ids = [block.get("id") for block in line.blocks(CALL)]
                calls.update(call_id for call_id in ids if isinstance(call_id, str))
        return calls

    def _path_to(self, end: _Line) -> list[_Line]:
        """Returns the lines from an end back to the beginning."""
        path = [end]
        while path[-1].parent is not None:
            path.append(self._by_uuid[path[-1].parent])
        return path

    def has(self, uuid: str | None) -> bool:
        """Tells if a line is in the file."""
        return uuid in self._by_uuid

    def follows_compacted(self, line: _Line) -> bool:
        """Tells if the messages that a summary stands for are in the file."""
        boundary = self._by_uuid.get(line.parent or "")
        return boundary is not None and boundary.parent is not None


def _answers_one_of(line: _Line, calls: set[str]) -> bool:
    """Tells if a line has nothing but results of some calls."""
    if line.type != "user" or not isinstance(line.content, list):
        return False
    results = line.blocks(RESULT)
    return bool(results) and len(results) == len(line.content) and _ids_of(results) <= calls


def _ids_of(results: Sequence[JsonObject]) -> set[str]:
    return {str(result.get("tool_use_id")) for result in results}


# Messages


def _messages(branch: Sequence[_Line], tree: _Tree) -> Iterator[BaseMessage]:
    """Yields the messages of a branch, of several results of one call the first."""
    answered: set[str] = set()
    for message in _all_messages(branch, tree):
        if isinstance(message, ToolMessage):
            if message.tool_call_id in answered:
                continue
            answered.add(message.tool_call_id)
        yield message


def _all_messages(branch: Sequence[_Line], tree: _Tree) -> Iterator[BaseMessage]:
    parts: defaultdict[str, list[_Line]] = defaultdict(list)
    for line in branch:
        if line.answer_id is not None:
            parts[line.answer_id].append(line)
    for line in branch:
        if line.answer_id is not None:
            # The whole answer stands where its first line does.
            yield from _answer(parts.pop(line.answer_id, []))
        elif line.type == "attachment":
            yield from _attached(line, tree)
        elif line.type == "user":
            yield from _of_user(line, tree)
        elif line.type == STEERING:
            yield from messages_of(_fields(line, "user", text_at(line.record, "content") or ""))


def _answer(lines: Sequence[_Line]) -> Iterator[BaseMessage]:
    """Yields the answer that some lines are the parts of."""
    blocks = _blocks_of_answer(lines)
    if not blocks:
        return
    last = object_at(lines[-1].record, "message")
    model = text_at(last, "model")
    if model == SYNTHETIC:
        return
    [message] = messages_of(_fields(lines[0], "assistant", blocks))
    metadata = {"model_provider": "anthropic"}
    if model is not None:
        metadata["model_name"] = model
    yield message.model_copy(
        update={"response_metadata": metadata, "usage_metadata": _usage(object_at(last, "usage"))}
    )


_NOTHING = {"type": "text", "text": ""}


def _blocks_of_answer(lines: Sequence[_Line]) -> list[Any]:
    """Returns what the lines of an answer say, each block once."""
    blocks: list[Any] = []
    for line in lines:
        parts = line.content
        if isinstance(parts, str):
            parts = [{"type": "text", "text": parts}]
        blocks += [part for part in parts if part not in blocks and part != _NOTHING]
    return blocks


def _usage(usage: JsonObject) -> UsageMetadata | None:
    """Returns the tokens of an answer; Anthropic counts those of the cache on their own."""
    counts = {
        key: usage[key]
        for key in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        )
        if isinstance(usage.get(key), int)
    }
    if "input_tokens" not in counts or "output_tokens" not in counts:
        return None
    read = counts.get("cache_read_input_tokens", 0)
    written = counts.get("cache_creation_input_tokens", 0)
    sent = counts["input_tokens"] + read + written
    return UsageMetadata(
        input_tokens=sent,
        output_tokens=counts["output_tokens"],
        total_tokens=sent + counts["output_tokens"],
        input_token_details=InputTokenDetails(cache_read=read, cache_creation=written),
    )


def _of_user(line: _Line, tree: _Tree) -> Iterator[BaseMessage]:
    """Yields what the user said, or what the program said in the user's name.

    A summary is left out if what it sums up is in the file.
    """
    is_summary = bool(line.record.get("isCompactSummary"))
    if not line.content or (is_summary and tree.follows_compacted(line)):
        return
    source = _source_of(line)
    messages = messages_of(_fields(line, "user", line.content))
    for number, message in enumerate(messages):
        piece = message
        if number:
            piece = message.model_copy(update={"id": f"{line.uuid}-{number}"})
        elif message.id is None:
            piece = message.model_copy(update={"id": line.uuid})
        if source is not None and isinstance(piece, HumanMessage):
            piece = marked_with_source(piece, source)
        yield piece


def _source_of(line: _Line) -> str | None:
    """Returns what wrote a user's line; None for the user."""
    if line.record.get("isCompactSummary"):
        return SUMMARY
    if line.record.get("isMeta") or _is_of_program(_text_in(line.record) or ""):
        return PROGRAM
    return None


def _is_of_program(text: str) -> bool:
    """Tells if a text of a user's line is a command without words, its output, or a notice."""
    is_notice = text.lstrip().startswith(BEGINNINGS_OF_PROGRAM)
    return is_notice or _BARE_COMMAND.fullmatch(text) is not None


def _fields(line: _Line, role: str, content: str | list[Any]) -> JsonObject:
    """Returns a message in Anthropic's form, with its id and time."""
    fields: JsonObject = {"role": role, "content": content, "id": line.uuid}
    return fields | time_kwargs(time_at(line.record))


def _attached(line: _Line, tree: _Tree) -> Iterator[BaseMessage]:
    """Yields what the user typed while the model worked, or a file that was put into the prompt."""
    attachment = object_at(line.record, "attachment")
    is_queued = attachment.get("type") == "queued_command"
    prompt = attachment.get("prompt") if is_queued else _text_of_file(attachment)
    has_own_line = is_queued and tree.has(id_at(attachment, ("source_uuid",)))
    if has_own_line or not prompt or not isinstance(prompt, str | list):
        return
    is_of_user = is_queued and _is_typed(attachment)
    for message in messages_of(_fields(line, "user", prompt)):
        yield message if is_of_user else marked_with_source(message, PROGRAM)


def _is_typed(command: JsonObject) -> bool:
    """Tells if the user typed a command that waited in the queue."""
    origin = text_at(object_at(command, "origin"), "kind") or "human"
    is_prompt = command.get("commandMode", "prompt") == "prompt"
    return is_prompt and origin == "human" and not command.get("isMeta")


def _text_of_file(attachment: JsonObject) -> str | None:
    """Returns the name and the text of an attached file; None for anything else."""
    name = text_at(attachment, "displayPath", "filename", "path")
    text = attachment.get("content")
    if isinstance(text, dict):
        file = text.get("file")
        holder = file if isinstance(file, dict) else text
        text = holder.get("content")
    if not isinstance(text, str):
        text = text_at(attachment, "snippet")
    if not name or not text:
        return None
    return f"Contents of {name}:\n{text}"
