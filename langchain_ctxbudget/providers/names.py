"""Names of speakers and tools in the form that a provider accepts.

Two names stay two: where more than white space and punctuation is replaced, or a name is too long,
a digest of the name ends it. What follows from a name follows from it alone, so it is the same in
every prompt and in every process.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget.content import with_text_in_front
from langchain_ctxbudget.messages import digest, one_line
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.profile import Profile
from langchain_ctxbudget.providers.stretch import Change

_NO_NAME = "unknown"
_DIGEST_BYTES = 2
_LATIN_LETTER = re.compile(
    r"LATIN (?P<case>CAPITAL|SMALL) (?:LETTER|LIGATURE) (?P<letters>[A-Z]+)\b"
)
"""How Unicode names a letter of the Latin alphabet, and the plain letters that are in it."""
_SPELLINGS = {"SHARP": "ss", "ETH": "d", "THORN": "th", "DOTLESS": "i", "ENG": "ng", "SCHWA": "e"}
"""Letters that Unicode does not name by plain ones."""


def accepted_name(name: str, profile: Profile = COMMON) -> str | None:
    """Returns a name in the form that a provider accepts.

    Letters with marks become plain ones. None where nothing of the name is left, and where it has
    letters of another alphabet than the Latin one, which cannot be told: a heading says it then.
    """
    refused = re.compile(profile.refused_in_names)
    runs = refused.findall(name)
    if any(map(_has_other_alphabet, runs)):
        return None
    plain = refused.sub(lambda run: _in_plain_letters(run[0]), name)
    clean = refused.sub("_", plain)
    if not clean.strip("_-"):
        return None
    if all(map(str.isascii, runs)) and len(clean) <= profile.longest_name:
        return clean
    as_written = unicodedata.normalize("NFC", name)
    ending = f"_{digest(as_written, _DIGEST_BYTES).hex()}"
    return clean[: profile.longest_name - len(ending)] + ending


def _has_other_alphabet(text: str) -> bool:
    """Tells if a text has letters that are not of the Latin alphabet."""
    return any(character.isalpha() and not _latin(character) for character in text)


def _in_plain_letters(run: str) -> str:
    """Returns characters that a name may not have in plain letters, and others as spaces."""
    return "".join(_latin(character) or " " for character in _without_marks(run))


def _without_marks(text: str) -> str:
    """Returns a text without the marks that stand on letters."""
    apart = unicodedata.normalize("NFKD", text)
    return "".join(character for character in apart if not unicodedata.combining(character))


def _latin(character: str) -> str:
    """Returns the plain letters of a Latin letter; empty for any other character."""
    plain = _without_marks(character)
    if plain.isascii() and plain.isalnum():
        return plain
    found = _LATIN_LETTER.match(unicodedata.name(character, ""))
    if found is None:
        return ""
    letters = _SPELLINGS.get(found["letters"], found["letters"].lower())
    return letters.upper() if found["case"] == "CAPITAL" else letters


def name_of_call(call: Mapping[str, Any], profile: Profile = COMMON) -> str:
    """Returns the name of a call as a provider accepts it."""
    name = call["name"] or ""
    accepted = accepted_name(name, profile)
    if accepted:
        return accepted
    return f"{_NO_NAME}_{digest(name, _DIGEST_BYTES).hex()}" if name else _NO_NAME


def accepted_speaker(
    message: BaseMessage, profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message under a name that a provider accepts, and what was changed for that.

    A history has names that are accepted, and tells of them itself.
    """
    named = with_accepted_name(message, profile)
    if named is message:
        return message, ()
    if named.name:
        return named, [Change("name", f"{message.name!r} is sent as {named.name!r}")]
    where = "in a line above the words" if _may_have_heading(message) else "without a name"
    return named, [Change("name", f"{message.name!r} is sent {where}")]


def with_accepted_name(message: BaseMessage, profile: Profile = COMMON) -> BaseMessage:
    """Returns a message under a name that a provider accepts.

    Where there is none, a line above a user's words tells the name. A result goes by the name of
    its tool: Google's package sends it beside the call's.
    """
    renamed = with_name_as_sent(message, profile)
    if message.name and not renamed.name and _may_have_heading(message):
        return with_text_in_front(renamed, f"[{one_line(message.name)}]\n")
    return renamed


def with_name_as_sent(message: BaseMessage, profile: Profile = COMMON) -> BaseMessage:
    """Returns a message under a name that a provider accepts, or without one."""
    if not message.name:
        return message
    name = accepted_name(message.name, profile)
    if name == message.name:
        return message
    return message.model_copy(update={"name": name})


def _may_have_heading(message: BaseMessage) -> bool:
    """Tells if a line above the words may tell who says them; a model would imitate its own."""
    return isinstance(message, HumanMessage)
