"""The values that an extraction reads and gives, by rules or by a model."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from langchain_ctxbudget.knowledge.records import BY_RULES, Domain, EntityType, FactCategory, Proficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message to learn from."""

    id: str
    digest: str
    """A fingerprint of what it says."""
    text: str
    from_user: bool = True
    """False: the assistant's, another person's, or a tool's where those are asked for."""
    from_tool: bool = False
    """True: a result of a tool."""
    speaker: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFact:
    """Something about the user."""

    text: str
    category: FactCategory
    confidence: float = 0.8
    slot: str = ""
    message_ids: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    """Ids of known facts that are no longer true."""
    same_as: str = ""
    """The id of the known fact that it says again, or more precisely."""
    valid_from: datetime | None = None
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedEntity:
    """Something or somebody that was spoken of."""

    name: str
    type: EntityType = "concept"
    aliases: tuple[str, ...] = ()
    relationship: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    relations: tuple[tuple[str, str], ...] = ()
    """Relation and name of the other one."""
    facts: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedTopic:
    """A subject that was spoken about."""

    label: str
    aliases: tuple[str, ...] = ()
    parent: str | None = None
    domain: Domain | None = None
    proficiency: Proficiency | None = None
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """All that came out of some messages."""

    facts: tuple[LearnedFact, ...] = ()
    entities: tuple[LearnedEntity, ...] = ()
    topics: tuple[LearnedTopic, ...] = ()
    made_by: str = BY_RULES
