"""The facts about the user that a conversation may show.

The stable part of a prompt shows facts, so a conversation shows the same ones until it is
compacted, until the user changes something by hand, or until one of them ends. Retrieval may quote
what was learned since. How facts are learned is in `fact_merging.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from langchain_ctxbudget.budget import Fragment
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import BY_USER, Fact
from langchain_ctxbudget.knowledge.standing_rules import StandingRule
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.search import Candidate, Kind
from langchain_ctxbudget.stores import SnapshotRecord


@dataclass(frozen=True, slots=True)
class FactsLayer:
    """The facts that a conversation may show."""

    shown_facts: tuple[Fact, ...] = ()
    """The facts of the snapshot; all facts where a new one is due."""
    learned_since: tuple[Fact, ...] = ()
    """The facts that the snapshot does not have."""
    is_snapshot_due: bool = True
    """The facts shown now become the snapshot."""
    edited: str = ""
    """The mark of the user's last change by hand."""
    is_read: bool = True
    """False: reading failed, so nothing becomes the snapshot."""

    @property
    def all(self) -> tuple[Fact, ...]:
        """Every fact that may be known in this conversation."""
        return (*self.shown_facts, *self.learned_since)

    def renewed(self) -> "FactsLayer":
        """Returns the same facts with a new snapshot due."""
        if not self.is_read:
            return self
        return FactsLayer(shown_facts=self.all, edited=self.edited)


# The snapshot of a conversation


def facts_layer_of(knowledge: Knowledge, snapshot: SnapshotRecord | None) -> FactsLayer:
    """Returns the facts that a conversation may show, given its snapshot so far, if any."""
    if not knowledge.is_read:
        return FactsLayer(is_snapshot_due=False, is_read=False)

    facts = knowledge.facts
    edited = knowledge.mark.edited
    if snapshot is None or snapshot.edited != edited:
        return FactsLayer(shown_facts=facts, edited=edited)

    fingerprints = dict(snapshot.facts)
    unchanged = tuple(fact for fact in facts if fingerprints.get(fact.id) == _fingerprint(fact))
    if len(unchanged) < len(fingerprints):
        return FactsLayer(shown_facts=facts, edited=edited)

    learned_since = tuple(fact for fact in facts if fact.id not in fingerprints)
    return FactsLayer(
        shown_facts=unchanged, learned_since=learned_since, is_snapshot_due=False, edited=edited
    )


def snapshot_of(
    facts: Iterable[Fact], edited: str, rules: Iterable[StandingRule] = ()
) -> SnapshotRecord:
    """Returns the record of the facts that a conversation shows.

    It holds fingerprints in place of the texts, so that a deleted fact does not live on in it.

    Args:
        facts: The facts.
        edited: The mark of the user's last change by hand.
        rules: The rules from other conversations that it shows.
    """
    return SnapshotRecord(
        facts=tuple((fact.id, _fingerprint(fact)) for fact in facts),
        edited=edited,
        rules=tuple(rule.id for rule in rules),
    )


def _fingerprint(fact: Fact) -> str:
    return digest(f"{fact.category}\n{fact.pinned}\n{fact.shown}", 8).hex()


# Facts as texts that may be quoted


def as_candidates(
    memories: Iterable[Fragment], facts: Iterable[Fact], *, conversation_id: str | None = None
) -> tuple[Candidate, ...]:
    """Returns memories and facts as texts that retrieval may quote.

    Facts that were learned from the open conversation are not among them: the message itself can
    be quoted there.

    Args:
        memories: Items of the preferences, of which the settings' memories count.
        facts: The facts that the prompt does not show.
        conversation_id: The open conversation, if any.
    """
    candidates: list[Candidate] = []
    for fragment in memories:
        if fragment.id.startswith("memory"):
            text = fragment.text.removeprefix("- ").strip()
            candidates.append(
                Candidate(
                    id=fragment.id,
                    source="memories",
                    text=text,
                    place=len(candidates),
                    kind="fact",
                )
            )
    for fact in facts:
        if any(source.conversation_id == conversation_id for source in fact.sources):
            continue
        certainty = 1.0 if fact.pinned else fact.confidence
        candidates.append(
            Candidate(
                id=fact.id,
                source="memories",
                text=fact.shown,
                place=len(candidates),
                date=fact.last_seen.date().isoformat(),
                kind=_kind_of(fact),
                certainty=certainty,
            )
        )
    return tuple(candidates)


def _kind_of(fact: Fact) -> Kind:
    """Returns how much a fact counts where texts are ranked."""
    if fact.pinned:
        return "core"
    if fact.memory_type:
        return fact.memory_type
    if fact.made_by == BY_USER:
        return "explicit"
    return "project" if fact.category == "project" else "fact"
