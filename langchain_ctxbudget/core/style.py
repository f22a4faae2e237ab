"""Who the assistant is and how it answers, as instructions for the prompt (seed 004)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, TypeVar, get_args

from langchain_ctxbudget.core.text import one_line
from langchain_ctxbudget.errors import InvalidSettingsError

Kind = Literal["helpful", "expert", "conversational", "custom"]
Tone = Literal["formal", "professional", "casual", "friendly"]
Verbosity = Literal["concise", "moderate", "detailed"]
TechnicalLevel = Literal["beginner", "intermediate", "expert"]
T = TypeVar("T")

_TONES: Mapping[Tone, str] = {
    "formal": "Write in a formal register.",
    "professional": "Write clearly and in a businesslike tone.",
    "casual": "Write casually, as people talk.",
    "friendly": "Write in a warm and friendly tone.",
}
_VERBOSITIES: Mapping[Verbosity, str] = {
    "concise": "Answer briefly and leave out what was not asked for.",
    "moderate": "Answer at medium length: the essentials with some explanation.",
    "detailed": "Answer at length, with background and every relevant detail.",
}
_LEVELS: Mapping[TechnicalLevel, str] = {
    "beginner": "Explain in plain words and avoid jargon.",
    "intermediate": "Use technical terms where they fit, each with a short explanation.",
    "expert": "Use technical terms without explaining them.",
}
_SWITCHES: Mapping[str, Mapping[bool, str]] = {
    "bullets": {True: "Write lists as bullet points.", False: "Do not use bullet points."},
    "numbered_lists": {True: "Number the steps of a procedure.", False: "Do not use numbered lists."},
    "code_blocks": {
        True: "Show code in fenced code blocks.",
        False: "Leave code blocks out and describe code in words.",
    },
    "links": {True: "Link to sources and further reading.", False: "Do not include links."},
}


@dataclass(frozen=True, slots=True)
class Personality:
    """Who the assistant is.

    Raises:
        InvalidSettingsError: an unknown kind, an expert without a domain, a custom one without a description.

    Example:
        >>> Personality.of({"kind": "expert", "domain": "tax law"}).text
        'You are an expert in tax law. Answer accurately and in depth.'
    """

    kind: Kind = "helpful"
    domain: str = ""
    """What an expert is an expert in."""
    description: str = ""
    """The instruction itself, of a custom one."""

    def __post_init__(self) -> None:
        _require_choice(self.kind, "personality.kind", get_args(Kind))
        for name, needed_by in (("domain", "expert"), ("description", "custom")):
            value = getattr(self, name)
            if not isinstance(value, str) or (self.kind == needed_by and not value.strip()):
                wanted = f"a non-empty string for {needed_by!r}" if self.kind == needed_by else "a string"
                raise InvalidSettingsError(f"personality.{name} must be {wanted}, not {value!r}")

    @classmethod
    def of(cls, value: object) -> Self:
        """A personality from one, from a mapping of its fields, or from a kind that needs no more ("helpful")."""
        return _of(cls, {"kind": value} if isinstance(value, str) else value, "personality")

    @property
    def text(self) -> str:
        """The instruction."""
        match self.kind:
            case "helpful":
                return "You are a helpful assistant. Answer accurately and to the point."
            case "expert":
                return f"You are an expert in {one_line(self.domain)}. Answer accurately and in depth."
            case "conversational":
                return "You are a friendly partner in conversation. Talk naturally and keep the other person engaged."
            case "custom":
                return self.description.strip()

    def to_dict(self) -> dict[str, Any]:
        """The fields that were given, which `of` reads."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStyle:
    """How the assistant answers; what is None was not said and has no instruction.

    Raises:
        InvalidSettingsError: a value that is none of the choices.

    Example:
        >>> ResponseStyle(verbosity="concise", links=False).lines
        ('Answer briefly and leave out what was not asked for.', 'Do not include links.')
    """

    style: Tone | None = None
    verbosity: Verbosity | None = None
    technical_level: TechnicalLevel | None = None
    bullets: bool | None = None
    numbered_lists: bool | None = None
    code_blocks: bool | None = None
    links: bool | None = None

    def __post_init__(self) -> None:
        for name, choices in (("style", _TONES), ("verbosity", _VERBOSITIES), ("technical_level", _LEVELS)):
            _require_choice(getattr(self, name), f"response_style.{name}", (*choices, None))
        for name in _SWITCHES:
            _require_choice(getattr(self, name), f"response_style.{name}", (True, False, None))

    @classmethod
    def of(cls, value: object) -> Self:
        """A style from one, or from a mapping of its fields."""
        return _of(cls, value, "response_style")

    @property
    def lines(self) -> tuple[str, ...]:
        """One instruction for everything that was said."""
        said = [
            self.style and _TONES[self.style],
            self.verbosity and _VERBOSITIES[self.verbosity],
            self.technical_level and _LEVELS[self.technical_level],
            *(texts.get(getattr(self, name)) for name, texts in _SWITCHES.items()),
        ]
        return tuple(line for line in said if line)

    def to_dict(self) -> dict[str, Any]:
        """The fields that were said, which `of` reads."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _of(kind: type[T], value: object, setting: str) -> T:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise InvalidSettingsError(
            f"{setting} must be a {kind.__name__} or a mapping of its fields, not {type(value).__name__}"
        )
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := [str(name) for name in value if name not in known]:
        raise InvalidSettingsError(f"{setting} has no {', '.join(unknown)}; its fields are {', '.join(known)}")
    return kind(**value)


def _require_choice(value: object, setting: str, choices: tuple[object, ...]) -> None:
    # By type as well: 1 is no True.
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        known = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
        raise InvalidSettingsError(f"{setting} must be {known}, not {value!r}")
