"""Puts names of speakers and tools into the form that a provider accepts.

Two different names stay different: a name that is too long, or that has more to replace than white
space and punctuation, ends with a digest of the original. The accepted name depends on the original
alone, so it is the same in every prompt and in every process.
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

    Letters with accents become plain ones. None where nothing of the name is left, and where it has
    letters of another alphabet than the Latin one: it is told in a line above the words then.
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
    """Returns refused characters of a name in plain letters; a space for each that has none."""
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

    Messages of the history have accepted names already, and the history has told of them.
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

    If no form of the name is accepted, a line above a user's words tells it. The name of a result,
    which is that of its tool, is changed as well, since Google's package sends it.
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
    """Tells if a line above the words may say whose they are.

    Only a user's words may have one: a model would begin its own answers with such a line.
    """
    return isinstance(message, HumanMessage)
