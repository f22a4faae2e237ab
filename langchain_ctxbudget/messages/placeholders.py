"""The lines that tell of what cannot be shown: `[image left out: image/png, 150 KB]`."""

from collections.abc import Collection
from math import ceil

from langchain_core.messages import BaseMessage, ToolMessage

from langchain_ctxbudget.content import (
    Kind,
    Medium,
    Part,
    block_of_result,
    is_result,
    loses_items,
    measures_of,
    only_text_of,
    parts_of,
    readable_server_tool,
    result_of,
    server_tool_in_words,
    text_part,
    with_cited_texts_joined,
    with_parts,
    without_items,
)
from langchain_ctxbudget.messages.text import LABEL_CHARACTERS, one_line

_KILOBYTE = 1_000
_OF_SERVER_TOOLS = (Kind.SERVER_CALL, Kind.SERVER_RESULT)


def placeholder_of(part: Part, reference: str | None = None) -> str:
    """Returns the line in place of a part: `[image left out: image/png, 9 KB; recall "#12"]`.

    It tells pixels, pages or seconds as well, where the bytes tell them. It names the reference
    under which the recall tool shows the part again, where one is given and the tool can.
    """
    medium = part.medium
    if medium is not None:
        kind: str = medium.kind
        size = _size(medium.size_bytes)
        details = [_file_name(medium.name), medium.mime_type, size, _extent(medium)]
    else:
        kind = _name_in_words(part)
        details = [_size(part.data_characters)]
    line = f"{kind} left out"
    description = ", ".join(filter(None, details))
    if description:
        line += f": {description}"
    if reference and part.may_be_result:
        line += f'; recall "{reference}"'
    return f"[{line}]"


def readable_text_of(part: Part, reference: str | None = None) -> str:
    """Returns the text that stands for a part.

    It has what a reader would read of the part, and a line in place of the payload.
    """
    if part.plain_text is not None:
        return part.plain_text
    if part.is_media:
        return placeholder_of(part, reference)
    if part.kind in _OF_SERVER_TOOLS:
        return readable_server_tool(part.block) or placeholder_of(part)
    if not part.words:
        return placeholder_of(part)
    lines = [f"[{part.name}]", *part.words]
    if part.data_characters:
        lines.append(f"[data left out: {_size(part.data_characters)}]")
    return "\n".join(lines)


def keeps_words(shown: BaseMessage, whole: BaseMessage) -> bool:
    """Tells if a message in short has all words of the whole one: it has lost media or thoughts."""
    if only_text_of(whole) is not None:
        return shown.content == whole.content
    shown_text = "\n".join(map(readable_text_of, with_cited_texts_joined(parts_of(shown))))
    worded = (part for part in with_cited_texts_joined(parts_of(whole)) if _has_words_to_keep(part))
    return all(readable_text_of(part) in shown_text for part in worded)


def _has_words_to_keep(part: Part) -> bool:
    """Tells if a part has words that may be missing in short; calls always stay."""
    return not part.is_media and part.kind not in (Kind.REASONING, Kind.CALL)


def without_media(
    message: BaseMessage,
    reference: str | None = None,
    *,
    only: Collection[int] | None = None,
) -> BaseMessage:
    """Returns a message with lines in place of its media; the given one is not changed.

    `only` has the numbers of some of them, where the others stay.
    """
    shown: list[Part] = []
    number = 0
    for part in parts_of(message):
        if not part.is_media:
            shown.append(part)
            continue
        if only is None or number in only:
            shown.append(_line_for(part, message, reference))
        else:
            shown.append(part)
        number += 1
    changed = with_parts(message, shown)
    # An item that is not there any more is not what its reasoning led to.
    return without_items(changed) if loses_items(message, changed) else changed


def _line_for(part: Part, message: BaseMessage, reference: str | None) -> Part:
    """Returns the line in place of a medium; where that is the result of a call, the line is."""
    line = placeholder_of(part, reference)
    if isinstance(message, ToolMessage) or not is_result(part.block):
        return text_part(line)
    result = result_of(part.block, message)
    return Part(block_of_result(result.model_copy(update={"content": line})))


def _name_in_words(part: Part) -> str:
    """Returns what a reader calls a part that is no medium, such as `results of a web search`."""
    if part.kind in _OF_SERVER_TOOLS:
        return server_tool_in_words(part.block, is_result=part.kind is Kind.SERVER_RESULT)
    return part.name.replace("_", " ")


def _file_name(name: str) -> str:
    """Returns the name of a file on one line, or the beginning of a long one.

    Its square brackets become round ones, since the line that names it ends with a square one.
    """
    plain = one_line(name.replace("[", "(").replace("]", ")"))
    return plain if len(plain) <= LABEL_CHARACTERS else f"{plain[:LABEL_CHARACTERS]}…"


def _extent(medium: Medium) -> str:
    """Returns the pixels, the pages or the seconds of a medium; empty where nothing tells them."""
    measures = measures_of(medium)
    if measures.size is not None:
        return f"{measures.size.width} x {measures.size.height}"
    if measures.pages is not None:
        return "1 page" if measures.pages == 1 else f"{measures.pages} pages"
    if measures.seconds is not None:
        return f"{ceil(measures.seconds)} s"
    return ""


def _size(size_bytes: int) -> str:
    """Returns a number of bytes in words; empty for none."""
    if not size_bytes:
        return ""
    if size_bytes < _KILOBYTE:
        return f"{size_bytes} bytes"
    if size_bytes < _KILOBYTE**2:
        return f"{round(size_bytes / _KILOBYTE)} KB"
    return f"{size_bytes / _KILOBYTE**2:.1f} MB"
