"""What a prompt shows of the facts about the user: layer L1, with preferences and memories.

The stable zone of a prompt begins with L1, so a conversation shows the same facts until it is
compacted, until the user changes something by hand, or until one of them ends. Retrieval may quote
what was learned since. How facts are learned is in `fact_merging.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from langchain_ctxbudget import messages
from langchain_ctxbudget.budget import MEMORIES_HEADING, MEMORY_MAX, Fragment, Layer, Reason, Status
from langchain_ctxbudget.knowledge.bundles import CATEGORY_OF_BUNDLE
from langchain_ctxbudget.knowledge.fact_merging import CATEGORIES, PRIORITIES, ranked
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import BY_USER, ContextBundle, Fact
from langchain_ctxbudget.messages import Count, digest, fences, one_line
from langchain_ctxbudget.search import Candidate, Kind, pack
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import SnapshotRecord

SURE_PREFERENCE = 0.8
"""Confidence above which a preference stays where the window is tight."""


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


def snapshot_of(facts: Iterable[Fact], edited: str) -> SnapshotRecord:
    """Returns the record of the facts that a conversation shows.

    It holds fingerprints in place of the texts, so that a deleted fact does not live on in it.
    """
    return SnapshotRecord(
        facts=tuple((fact.id, _fingerprint(fact)) for fact in facts), edited=edited
    )


def _fingerprint(fact: Fact) -> str:
    return digest(f"{fact.category}\n{fact.pinned}\n{fact.shown}", 8).hex()


# Lines of a prompt


def preference_fragments(settings: ContextSettings, count: Count) -> tuple[Fragment, ...]:
    """Returns personality, response style and custom instructions as lines, worth less and less."""
    texts = {f"manner {number}": text for number, text in enumerate(settings.manner, 1)}
    for number, text in enumerate(settings.preferences, 1):
        texts[f"preference {number}"] = text
    return tuple(
        _fragment(name, text, count, value=-float(place))
        for place, (name, text) in enumerate(texts.items(), 1)
    )


def memory_fragments(settings: ContextSettings, count: Count) -> tuple[Fragment, ...]:
    """Returns the memories of the settings as lines, worth less than any preference."""
    return tuple(
        _fragment(
            f"memory {number}", text, count, heading=MEMORIES_HEADING, value=-1_000.0 - number
        )
        for number, text in enumerate(settings.memories, 1)
    )


def fact_fragments(
    facts: Iterable[Fact],
    count: Count,
    budget_tokens: int,
    *,
    titled: bool,
    most: int | None = None,
) -> tuple[tuple[Fragment, ...], tuple[Fact, ...]]:
    """Returns the facts that fit a budget as lines under headings, and these facts themselves.

    Where not all fit, those that the user keeps by hand come first. Where the window is tight
    later, only pinned facts, current work and sure preferences stay.

    Args:
        facts: The facts to choose from.
        count: Counts the tokens of a text.
        budget_tokens: The tokens that lines and headings may cost.
        titled: Whether the section's title stands in the prompt already.
        most: The most facts that are shown; None for as many as fit.
    """
    chosen = _chosen(facts, count, budget_tokens, titled=titled, most=most)
    in_order = sorted(chosen, key=lambda fact: PRIORITIES[fact.category])
    fragments = []
    for place, fact in enumerate(in_order):
        is_below_title = titled or fact.category != in_order[0].category
        reason = Reason.PINNED if fact.pinned else Reason.REMEMBERED
        fragment = _fragment(
            fact.id,
            fact.shown,
            count,
            reason=reason,
            heading=_heading(fact, titled=is_below_title),
            value=-2_000.0 - place,  # worth less than any memory of the settings
            expendable=not _stays_in_a_tight_window(fact),
        )
        fragments.append(fragment)
    return tuple(fragments), tuple(chosen)


def _chosen(
    facts: Iterable[Fact],
    count: Count,
    budget_tokens: int,
    *,
    titled: bool,
    most: int | None,
) -> list[Fact]:
    """Returns the facts that fit a budget with their headings; too long ones are skipped."""
    if budget_tokens <= 0:
        return []
    chosen: list[Fact] = []
    categories: set[str] = set()
    tokens_left = budget_tokens
    for fact in sorted(ranked(facts), key=lambda fact: not fact.is_kept_by_hand):
        cost = count(_line(fact.shown))
        if fact.category not in categories:
            cost += count(_heading(fact, titled=titled or bool(categories)))
        if cost <= tokens_left and (most is None or len(chosen) < most):
            tokens_left -= cost
            categories.add(fact.category)
            chosen.append(fact)
    return chosen


def _stays_in_a_tight_window(fact: Fact) -> bool:
    if fact.pinned or fact.category == "project":
        return True
    return fact.category == "preference" and fact.confidence > SURE_PREFERENCE


def _heading(fact: Fact, *, titled: bool) -> str:
    """Returns the heading above a fact, below the section's title where that stands nowhere yet."""
    heading = f"{CATEGORIES[fact.category].heading}\n"
    return heading if titled else MEMORIES_HEADING + heading


def facts_tokens(facts: Iterable[Fact], count: Count) -> int:
    """Returns the tokens of facts with their headings.

    Counting ends above the most that they may cost in any case.
    """
    all_facts = tuple(facts)
    if not all_facts:
        return 0
    total = count(MEMORIES_HEADING)
    for category in {fact.category for fact in all_facts}:
        total += count(f"{CATEGORIES[category].heading}\n")
    for fact in all_facts:
        total += count(_line(fact.shown))
        if total > MEMORY_MAX:
            break
    return total


def left_out(fact: Fact, count: Count, *, since: bool, limited: bool = False) -> Fragment:
    """Returns a fact that is not shown as a line of the report.

    Args:
        fact: The fact.
        count: Counts the tokens of a text.
        since: Whether it was learned since the snapshot.
        limited: Whether a usage limit is near, which allows fewer facts.
    """
    if since:
        reason = Reason.NEXT_SNAPSHOT
    elif limited:
        reason = Reason.USAGE_LIMIT
    else:
        reason = Reason.NO_ROOM
    return _fragment(fact.id, fact.shown, count, reason=reason, status=Status.OMITTED)


def _fragment(
    name: str,
    text: str,
    count: Count,
    *,
    reason: Reason = Reason.CONFIGURED,
    status: Status = Status.INCLUDED,
    heading: str = "",
    value: float = 0.0,
    expendable: bool = False,
) -> Fragment:
    line = _line(text)
    return Fragment(
        layer=Layer.PREFERENCES,
        id=name,
        text=line,
        tokens=count(line),
        reason=reason,
        status=status,
        heading=heading,
        value=value,
        expendable=expendable,
    )


@messages.cached_until_forgotten(4_096)
def _line(text: str) -> str:
    return f"- {fences.as_item(text.strip())}\n"


def packed(fragments: Sequence[Fragment], count: Count, budget_tokens: int) -> tuple[Fragment, ...]:
    """Returns the fragments that fit a budget with their heading; too long ones are skipped."""
    if not fragments:
        return ()
    costs = {number: fragment.tokens for number, fragment in enumerate(fragments)}
    numbers = pack(costs, budget_tokens - count(fragments[0].heading))
    return tuple(fragments[number] for number in numbers)


# Elsewhere in a prompt


def bundles_used(
    facts: Sequence[Fact],
    shown: Iterable[Fragment],
    persona_id: str | None,
    bundles: Mapping[str, ContextBundle],
) -> dict[str, bool]:
    """Returns which compiled texts a prompt could use, and whether each stands in it as it is.

    Args:
        facts: The facts that the prompt shows.
        shown: The lines that it shows of manner and preferences.
        persona_id: The persona that answers, if any.
        bundles: The compiled texts by id.
    """
    used: dict[str, bool] = {}
    for kind, category in CATEGORY_OF_BUNDLE.items():
        lines = {one_line(fact.shown) for fact in facts if fact.category == category}
        if lines:
            bundle = bundles.get(kind)
            used[kind] = bundle is not None and lines <= set(bundle.compiled_prompt.splitlines())

    persona_key = f"persona/{persona_id}"
    persona = bundles.get(persona_key)
    if persona:
        lines = {one_line(fragment.text.removeprefix("- ")) for fragment in shown}
        used[persona_key] = lines.issuperset(persona.compiled_prompt.splitlines())
    return used


def as_candidates(
    memories: Iterable[Fragment], facts: Iterable[Fact], *, conversation_id: str | None = None
) -> tuple[Candidate, ...]:
    """Returns memories and facts as texts that retrieval may quote.

    Facts that were learned from the open conversation are not among them: the message itself can
    be quoted there.

    Args:
        memories: Lines of layer L1, of which those from the settings' memories count.
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
