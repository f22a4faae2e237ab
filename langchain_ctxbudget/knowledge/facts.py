"""The facts about the user that a conversation may show.

The stable part of a prompt shows facts, and a change of it costs the whole cache. So a conversation
shows the same lines until its prompt is rebuilt, until the user changes something by hand, or until
one of the facts is erased. What is said again meanwhile changes nothing. Retrieval may quote what
was learned since, and the next prompt tells which facts were replaced (`layers/replaced.py`). How
facts are learned is in `fact_merging.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from langchain_ctxbudget.budget import Fragment
from langchain_ctxbudget.knowledge.fact_merging import ranked
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import BY_USER, Fact
from langchain_ctxbudget.knowledge.standing_rules import StandingRule
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.search import Candidate, Kind
from langchain_ctxbudget.stores import ShownFact, SnapshotRecord


@dataclass(frozen=True, slots=True)
class FactsLayer:
    """The facts that a conversation may show."""

    shown_facts: tuple[Fact, ...] = ()
    """The facts of the snapshot as they were when it was taken, those that have ended since among
    them; the current facts where a new one is due. They are in the order in which they get room."""
    current: tuple[Fact, ...] = ()
    """The facts that hold now."""
    is_snapshot_due: bool = True
    """The facts shown now become the snapshot."""
    edited: str = ""
    """The mark of the user's last change by hand."""
    is_read: bool = True
    """False: reading failed, so nothing becomes the snapshot."""

    @property
    def learned_since(self) -> tuple[Fact, ...]:
        """The current facts that the snapshot does not have."""
        shown_ids = {fact.id for fact in self.shown_facts}
        return tuple(fact for fact in self.current if fact.id not in shown_ids)

    def renewed(self) -> "FactsLayer":
        """Returns the facts that hold now, with a new snapshot due."""
        if not self.is_read:
            return self
        return FactsLayer(
            shown_facts=_in_order_of_choice(self.current), current=self.current, edited=self.edited
        )


# The snapshot of a conversation


def facts_layer_of(knowledge: Knowledge, snapshot: SnapshotRecord | None) -> FactsLayer:
    """Returns the facts that a conversation may show, given its snapshot so far, if any."""
    if not knowledge.is_read:
        return FactsLayer(is_snapshot_due=False, is_read=False)

    layer = FactsLayer(current=knowledge.facts, is_snapshot_due=False, edited=knowledge.mark.edited)
    if snapshot is None or snapshot.edited != layer.edited:
        return layer.renewed()

    facts = {fact.id: fact for fact in (*knowledge.ended_facts, *knowledge.facts)}
    shown_facts: list[Fact] = []
    for shown in snapshot.facts:
        fact = _as_shown(shown, facts)
        if fact is None:
            return layer.renewed()
        shown_facts.append(fact)
    return replace(layer, shown_facts=tuple(shown_facts))


def _as_shown(shown: ShownFact, facts: Mapping[str, Fact]) -> Fact | None:
    """Returns a fact as a snapshot shows it; None if it is erased, or its text is another one."""
    fact = facts.get(shown.id)
    if fact is None:
        return None
    if shown.last_seen is not None:
        fact = fact.model_copy(update={"last_seen": shown.last_seen})
    return fact if _fingerprint(fact) == shown.fingerprint else None


def in_place_of(fact: Fact, facts: Mapping[str, Fact]) -> Fact | None:
    """Returns the fact that holds in place of one that was superseded; itself if it was not.

    Args:
        fact: The fact.
        facts: All facts by id, ended ones included.

    Returns:
        None where what took its place is not known any more.
    """
    passed: set[str] = set()
    holding: Fact | None = fact
    while holding is not None and holding.ended == "superseded":
        if holding.id in passed:
            return None
        passed.add(holding.id)
        holding = facts.get(holding.superseded_by or "")
    return holding


def _in_order_of_choice(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Returns facts in the order in which they get room: first those that are kept by hand."""
    return tuple(sorted(ranked(facts), key=lambda fact: not fact.is_kept_by_hand))


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
        facts=tuple(ShownFact(fact.id, _fingerprint(fact), fact.last_seen) for fact in facts),
        edited=edited,
        rules=tuple(rule.id for rule in rules),
    )


def _fingerprint(fact: Fact) -> str:
    return digest(f"{fact.category}\n{fact.shown}", 8).hex()


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
