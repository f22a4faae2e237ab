"""Messages: who said what when, which ones are accepted, and how one is shown to a model."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, takewhile
from typing import Literal, NamedTuple, cast, get_args

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.function import FunctionMessage

from langchain_ctxbudget.content import (
    Kind,
    MediumKind,
    Part,
    in_one_form,
    json_text,
    listed_calls,
    only_answers,
    only_text_of,
    parts_of,
    readable_server_tool,
    text_part,
    with_cited_texts_joined,
    with_parts,
    without_items,
)
from langchain_ctxbudget.errors import InputError
from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.messages.letters import without_letters
from langchain_ctxbudget.messages.machine_text import typed_words
from langchain_ctxbudget.messages.prose import without_pasted
from langchain_ctxbudget.messages.text import (
    ENGLISH,
    LABEL_CHARACTERS,
    clipped,
    fold,
    iso_date,
    one_line,
    read_time,
)
from langchain_ctxbudget.messages.turns import is_empty

_MARKS = "-#[]* "
"""Lines and headings begin with these: a name must not look like one."""
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "function": "function"}
_OWN_WORDS = frozenset({Kind.TEXT, Kind.REFUSAL})
"""Kinds of parts that hold what somebody says."""
_SEVERAL: Mapping[MediumKind, str] = {
    "image": "images",
    "audio": "sounds",
    "video": "videos",
    "file": "files",
}
"""What several media of a kind are called."""
_ROLE_NAMES = {"user", "assistant", "system", "tool", "ai", "human", "developer", "function"}
# Who said it, and when


def speaker(message: BaseMessage) -> str:
    """Returns who said a message: the name, else the role.

    It is on one line, and data, since names may come from anywhere.
    """
    role = _ROLES.get(message.type, getattr(message, "role", message.type))
    name = one_line((message.name or "").replace(":", " ")).lstrip(_MARKS)
    letters = ENGLISH.no_letters.sub("", fold(name))
    if letters in _ROLE_NAMES and letters != role:
        name = f"{role} named {name}"  # or words would pass for someone else's
    if isinstance(message, ToolMessage):
        name = f"tool {name}"
    return fences.as_data(one_line(name or role))


def date_of(message: BaseMessage) -> str | None:
    """Returns the day on which a message was said, `YYYY-MM-DD`.

    It is read from `additional_kwargs["created_at"]` (see `read_time`); None if that tells none.
    """
    created_at = message.additional_kwargs.get("created_at")
    if created_at is None:
        return None
    day = iso_date(created_at)
    if day:  # the day there, whatever the offset
        return day
    time = read_time(created_at)
    return time.date().isoformat() if time else None


def time_of(message: BaseMessage) -> datetime | None:
    """Returns the time at which a message was said, in UTC.

    It is read from `additional_kwargs["created_at"]` (see `read_time`); None if that tells none.
    """
    time = read_time(message.additional_kwargs.get("created_at"))
    try:
        return time.astimezone(UTC) if time else None
    except OverflowError:
        return None


def unread_time(message: BaseMessage) -> str | None:
    """Returns the `created_at` of a message, shortened, where it cannot be read as a time."""
    created_at = message.additional_kwargs.get("created_at")
    if created_at is None or created_at == "" or date_of(message) is not None:
        return None
    return clipped(repr(created_at), LABEL_CHARACTERS)


def model_of(answer: BaseMessage) -> str | None:
    """Returns the model that a provider says has answered; None where it does not say."""
    for key in ("model_name", "model"):
        name = answer.response_metadata.get(key)
        if isinstance(name, str) and name:
            return name
    return None


# What was said


def plain_text(message: BaseMessage) -> str:
    """Returns a message as text.

    It has the words, and mentions calls and all blocks but thoughts. Of a search result, a document
    of text or another block with words in it, it has these, too.
    """
    formed = in_one_form(message)
    lines: list[str] = []
    for medium, parts in groupby(_parts_read(formed), _named_medium):
        if medium is not None:
            lines.append(_mention_of(medium, len(list(parts))))
            continue
        for part in parts:
            lines += _lines_of(part)
    for call in listed_calls(formed):
        arguments = json_text(call["args"])
        lines.append(f"[called {call['name']}({arguments})]")
    return "\n".join(filter(None, map(str.strip, lines)))


def _parts_read(message: BaseMessage) -> list[Part]:
    """Returns the parts of a message as a reader reads them: a text is not cut where it cites."""
    parts = parts_of(message)
    return with_cited_texts_joined(parts) if len(parts) > 1 else parts


def _lines_of(part: Part) -> list[str]:
    """Returns the words of a part and their sources, or a mention of it and the words inside."""
    if part.text is not None:
        return [part.text, *(f"[source: {source}]" for source in part.citations)]
    if part.is_listed_call or part.kind is Kind.REASONING:
        return []  # listed calls are told on their own, thoughts not at all
    if part.kind in (Kind.SERVER_CALL, Kind.SERVER_RESULT):
        return [readable_server_tool(part.block)]
    if part.is_function_call:
        return [f"[{part.label}]"]
    return [f"[{part.label}]", *part.words]


class _NamedMedium(NamedTuple):
    """What is told of a medium where it is only mentioned."""

    kind: MediumKind
    name: str


def _named_medium(part: Part) -> _NamedMedium | None:
    """Returns what is told of a medium; None for any other part."""
    if part.text is not None or part.medium is None:
        return None
    return _NamedMedium(part.medium.kind, one_line(part.medium.name))


def _mention_of(medium: _NamedMedium, number: int) -> str:
    """Returns the line that mentions media in a row of one kind and name: `[3 images]`."""
    what = medium.kind if number == 1 else f"{number} {_SEVERAL[medium.kind]}"
    return f"[{what}: {medium.name}]" if medium.name else f"[{what}]"


def is_only_media(message: BaseMessage) -> bool:
    """Tells if a message is nothing but media, none of which has a name."""
    if only_text_of(message) is not None or listed_calls(message):
        return False
    for part in parts_of(message):
        medium = _named_medium(part)
        says_something = part.says_something if medium is None else bool(medium.name)
        if says_something:
            return False
    return True


def own_words(message: BaseMessage) -> str:
    """Returns the words that somebody says themselves.

    What a user has pasted is not among them, nor are mails, texts to be worked on, and what a
    program wrote in the user's name. An example of a conversation has none.
    """
    is_human = isinstance(message, HumanMessage)
    if _is_example(message) or (is_human and message.additional_kwargs.get("lc_source")):
        return ""
    own_parts = [part for part in _parts_read(message) if part.kind in _OWN_WORDS]
    texts = [(part.text or "").strip() for part in own_parts]
    text = "\n".join(filter(None, texts))
    if is_human:
        return without_letters(without_pasted(typed_words(text))).strip()
    return text


def _is_example(message: BaseMessage) -> bool:
    """Tells whether a message is marked as an example, with LangChain's flag or beside it."""
    flag = getattr(message, "example", False) or message.additional_kwargs.get("example")
    return flag is True


def is_sent_alone(message: BaseMessage) -> bool:
    """Tells if a message is sent by itself, where nothing stands before it."""
    return not (is_empty(message) or only_answers(message) or isinstance(message, FunctionMessage))


# System messages at the beginning


def split_instructions(messages: Sequence[BaseMessage]) -> tuple[list[str], list[BaseMessage]]:
    """Splits off the texts of the system messages that a conversation begins with."""
    first = _first_system_messages(messages)
    return list(map(instruction, first)), list(messages[len(first) :])


def _first_system_messages(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    return list(takewhile(lambda message: isinstance(message, SystemMessage), messages))


def instruction(message: BaseMessage) -> str:
    """Returns the text of a system message.

    Blocks become paragraphs unless there is white space between them.
    """
    text = ""
    for part in parts_of(message):
        paragraph = part.text or ""
        if text and paragraph and not (text[-1].isspace() or paragraph[0].isspace()):
            text += "\n\n"
        text += paragraph
    return text


def unsent_extras_of(messages: Sequence[BaseMessage]) -> list[str]:
    """Returns the report's line on what the first system messages have besides text.

    That is not sent, but for a mark for a provider's cache. Without such extras there is no line.
    """
    extras: dict[str, None] = {}
    for message in _first_system_messages(messages):
        for part in parts_of(message):
            extras |= dict.fromkeys(part.extras)
    extras.pop("cache_control", None)
    if not extras:
        return []
    return [f"system messages are sent as one text, without {', '.join(extras)}"]


# What is to be kept of a message

Preservation = Literal["keep", "summarize", "drop"]
"""Verbatim while it fits; only in short and in summaries; not in prompts at all (the recall tool
still finds it)."""
KEY = "ctxbudget"
"""The key in `additional_kwargs`."""
WHOLE = frozenset({HumanMessage, AIMessage, ToolMessage, SystemMessage})
"""The classes of most messages, none of them chunks."""
EXCERPT_CHARACTERS = 100
"""The length of an excerpt of a message that is only summarised."""


def require_preservation(value: object, where: str) -> Preservation:
    """Returns a preservation if the value is one, else raises `InputError`."""
    if value not in get_args(Preservation):
        raise InputError(f'{where} must be "keep", "summarize" or "drop", not {value!r}')
    return cast("Preservation", value)


def preservation_of(message: BaseMessage) -> Preservation | None:
    """Returns what an application wishes for a message; None if it wishes nothing."""
    value = message.additional_kwargs.get(KEY)
    return cast("Preservation", value) if value in get_args(Preservation) else None


def excerpt(message: BaseMessage) -> BaseMessage:
    """Returns the beginning of a message that is only summarised, and its calls.

    A short one stays as it is.
    """
    own_parts = [part for part in _parts_read(message) if part.kind in _OWN_WORDS]
    text = one_line(" ".join(part.text or "" for part in own_parts))
    is_long = len(text) > EXCERPT_CHARACTERS
    if is_long:
        text = f"[Earlier: {text[:EXCERPT_CHARACTERS].rstrip()}…]"
    if only_text_of(message) is None:
        return _with_text_and_calls(message, text or "[Earlier: an attachment]")
    return message.model_copy(update={"content": text}) if is_long else message


def _with_text_and_calls(message: BaseMessage, text: str) -> BaseMessage:
    """Returns a message with a text in place of its own words, its calls, and nothing else.

    The text stands where its words begin, or at the beginning.
    """
    shown: list[Part] = []
    place = None
    for part in parts_of(message):
        if part.kind is Kind.CALL:
            shown.append(part)
        elif part.kind in _OWN_WORDS and place is None:
            place = len(shown)
    shown.insert(place or 0, text_part(text))
    # What is left of an item is not what its reasoning led to.
    return without_items(with_parts(message, shown))
