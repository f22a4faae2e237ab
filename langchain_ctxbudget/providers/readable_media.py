"""Puts media and other blocks of users and tools into a form that the provider reads.

| what stands there | what is sent |
|---|---|
| a medium in a form that the provider reads | the very same |
| a medium in another provider's form | the same in a form that it reads |
| a file of text that it does not take as a file | the text |
| a medium that it does not take, or whose bytes are none | a line that says what it was |
| a search result, a document of text, JSON, any other block that it does not read | its words |

Media of an assistant stay only where the provider's models read those that they have made.
"""

from collections.abc import Sequence
from typing import NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxbudget.content import (
    ITEM_RESULTS,
    Kind,
    Medium,
    Part,
    Shape,
    carrier_of,
    fields_of,
    is_base64,
    is_item_result,
    media_inside,
    only_text_of,
    parts_of,
    shape_of,
    text_in,
    text_part,
    with_parts,
    with_told_type,
    with_true_type,
    written,
)
from langchain_ctxbudget.messages import placeholder_of, readable_text_of
from langchain_ctxbudget.providers.media_forms import MediaForms
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change

_IN_ANOTHER_FORM = "sent in the form that its provider reads"
_AS_TEXT = "sent as text"


class _Sent(NamedTuple):
    """What is sent of one part."""

    parts: Sequence[Part]
    change: Change | None = None


def with_readable_media(
    message: BaseMessage, profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message with media and blocks that its provider reads, and what was changed."""
    forms = profile.media_forms
    if forms is None or only_text_of(message) is not None or is_item_result(message):
        return message, ()
    sent: list[Part] = []
    changes: dict[Change, None] = {}
    for part in parts_of(message):
        if isinstance(message, AIMessage):
            outcome = _sent_of_assistant(part, forms, profile)
        else:
            outcome = _sent_of_others(part, forms, in_result=isinstance(message, ToolMessage))
        sent += outcome.parts
        if outcome.change is not None:
            changes[outcome.change] = None
    if not changes:
        return message, ()
    return with_parts(message, sent), list(changes)


def _sent_of_assistant(part: Part, forms: MediaForms, profile: Profile) -> _Sent:
    """Returns what is sent of a part of an assistant's message."""
    if part.key:
        is_unsent = part.is_media and not profile.sends_sounds_by_id
        return _line_for(part) if is_unsent else _Sent([part])
    if part.kind is Kind.REFUSAL and part.type not in forms.blocks:
        return _Sent([text_part(part.text or "")], _text_change(part))
    if part.kind is Kind.UNKNOWN and part.is_given_to_read:
        return _Sent([text_part(readable_text_of(part))], _text_change(part))
    if part.is_media and part.item is None and not profile.reads_own_media:
        return _line_for(part)
    return _Sent([part])


def _sent_of_others(part: Part, forms: MediaForms, *, in_result: bool) -> _Sent:
    """Returns what is sent of a part of a user's message, or of a result."""
    if part.key or part.type in ITEM_RESULTS:
        return _Sent([part])
    if part.type in forms.blocks and not part.is_media and _is_whole(part):
        return _unwrapped(part)
    if part.medium is not None:
        medium = with_told_type(part.medium, part.block)
        return _sent_medium(part, medium, forms, in_result=in_result)
    match part.kind:
        case Kind.TEXT:
            return _as_plain_text(part)
        case Kind.UNKNOWN:
            return _as_text(part, forms, in_result=in_result)
        case _:
            return _Sent([part])


def _as_plain_text(part: Part) -> _Sent:
    """Returns a text in the form that every provider reads, or nothing if it is empty."""
    if part.plain_text is not None:
        return _Sent([part])
    text = part.text or ""
    if not text.strip():
        return _Sent([], _text_change(part))
    return _Sent([text_part(text)], _text_change(part))


# Media


def _sent_medium(part: Part, medium: Medium, forms: MediaForms, *, in_result: bool) -> _Sent:
    """Returns what is sent of a medium: itself, the same in another form, its text, or a line."""
    true = with_true_type(medium)
    shapes = forms.shapes(true, in_result=in_result)
    accepted_type = forms.accepted_type(true)
    if shapes and accepted_type is not None and is_base64(true):
        accepted = true._replace(mime_type=accepted_type)
        if shape_of(part.block) in shapes and accepted == medium:
            return _Sent([part])
        new_part = Part(_written(accepted, shapes, part))
        detail = f"its {part.name} is {_IN_ANOTHER_FORM}"
        return _Sent([*_context_of(part), new_part], Change("content_form", detail))
    text = _text_of_file(true)
    if text:
        label = f"{part.name}: {true.name}" if true.name else part.name
        detail = f"the text of its {part.name} is {_AS_TEXT}"
        new_part = text_part(f"[{label}]\n{text}")
        return _Sent([*_context_of(part), new_part], Change("content_form", detail))
    return _line_for(part)


def _text_of_file(medium: Medium) -> str:
    """Returns the text in the bytes of a file; empty where there is none, and for other media."""
    if medium.kind != "file" or not medium.payload:
        return ""
    text = text_in(medium) or ""
    return text if text.strip() else ""


def _written(medium: Medium, shapes: Sequence[Shape], part: Part) -> dict[str, object]:
    """Returns a block with a medium in one of some shapes.

    It is the first one, or one that can say how closely an image is to be looked at.
    """
    shape = shapes[0]
    if medium.detail and Shape.CHAT in shapes:
        shape = Shape.CHAT
    return written(medium, shape, part.block)


def _context_of(part: Part) -> list[Part]:
    """Returns what the user says of a document beside it, which only Anthropic's form can hold."""
    if isinstance(part.block, str):
        return []
    context = part.block.get("context")
    if not isinstance(context, str) or not context.strip():
        return []
    return [text_part(context)]


def _line_for(part: Part) -> _Sent:
    """Returns the line in place of a medium that the provider does not take."""
    detail = f"sent with a line in place of media that the provider does not take: {part.name}"
    return _Sent([*_context_of(part), text_part(placeholder_of(part))], Change("media", detail))


# Other blocks


def _is_whole(part: Part) -> bool:
    """Tells if a search result or a document of text has what Anthropic requires of one.

    Source, title and texts of the one, data and type of the other ("Search results", "Citations",
    platform.claude.com, read in November 2026). True for any other block.
    """
    fields = fields_of(part.block)
    if part.type == "search_result":
        content = fields.get("content")
        blocks = content if isinstance(content, list) and content else [None]
        texts = [inner.get("text") if isinstance(inner, dict) else None for inner in blocks]
        return all(map(_is_said, (fields.get("source"), fields.get("title"), *texts)))
    source = fields.get("source")
    if part.type == "document" and isinstance(source, dict) and source.get("type") == "text":
        return _is_said(source.get("data")) and _is_said(source.get("media_type"))
    return True


def _is_said(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _unwrapped(part: Part) -> _Sent:
    """Returns a block that the provider reads, without LangChain's wrapping."""
    fields = fields_of(part.block)
    if fields is part.block or isinstance(part.block, str):
        return _Sent([part])
    return _Sent([Part(fields)], Change("content_form", f"its {part.name} is {_IN_ANOTHER_FORM}"))


def _as_text(part: Part, forms: MediaForms, *, in_result: bool) -> _Sent:
    """Returns the words of a block that the provider does not read, and the media inside."""
    media = [with_true_type(medium) for medium in media_inside(part.block)]
    readable = [medium for medium in media if _is_taken(medium, forms, in_result=in_result)]
    if not readable:
        return _Sent([text_part(readable_text_of(part))], _text_change(part))
    words = text_part("\n".join([f"[{part.name}]", *part.words]))
    sent = [words]
    for medium in readable:
        shapes = forms.shapes(medium, in_result=in_result)
        sent.append(Part(_written(medium, shapes, part)))
    return _Sent(sent, _text_change(part))


def _text_change(part: Part) -> Change:
    """Returns what the report says of a part whose words are sent as text."""
    return Change("content_form", f"its {part.name} is {_AS_TEXT}")


def _is_taken(medium: Medium, forms: MediaForms, *, in_result: bool) -> bool:
    """Tells if a provider takes a medium by its carrier and under its type."""
    if carrier_of(medium) is None or not forms.shapes(medium, in_result=in_result):
        return False
    return forms.accepted_type(medium) == medium.mime_type
