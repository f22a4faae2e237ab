"""The layer of preferences: standing rules, personality, instructions, facts about the user.

The stable part of a prompt begins with it, so a conversation shows the same facts until it is
rebuilt, until the user changes something by hand, or until one of them is erased (their snapshot,
see `knowledge/facts.py`). Retrieval may quote what was learned since.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from langchain_ctxbudget.budget import (
    MEMORIES_HEADING,
    MEMORY_MAX,
    Fragment,
    Layer,
    Reason,
    Situation,
    Status,
)
from langchain_ctxbudget.knowledge import (
    CATEGORIES,
    CATEGORY_OF_BUNDLE,
    PRIORITIES,
    ContextBundle,
    Fact,
    FactsLayer,
)
from langchain_ctxbudget.layers.base import (
    Chosen,
    Place,
    PromptLayer,
    Rung,
    Staying,
    View,
    item_of,
)
from langchain_ctxbudget.layers.rules import rules_tokens, shown_rules
from langchain_ctxbudget.messages import Count, cached_until_forgotten, fences, one_line
from langchain_ctxbudget.report import ReportItem
from langchain_ctxbudget.search import pack
from langchain_ctxbudget.settings import ContextSettings

SURE_PREFERENCE = 0.8
"""Confidence above which a preference stays where the window is tight."""
MEMORY = "memory "
"""Begins the ids of the memories that settings give."""
FACT = "fact/"
"""Begins the ids of facts."""
INSTRUCTIONS = ("manner ", "preference ")
"""Begin the ids of items that say how to answer, and not what is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPreferences(Chosen):
    """What the layer shows, and the facts that are behind it."""

    facts: tuple[Fact, ...] = ()
    """The facts that are shown."""
    remembered: FactsLayer = field(default_factory=FactsLayer)
    """All facts that the conversation may show."""
    memories_left_out: tuple[Fragment, ...] = ()
    """Preferences and memories of the settings that are not shown."""
    rules_left_out: tuple[Fragment, ...] = ()
    """Rules that are not shown, as all together are too long."""

    @property
    def facts_left_out(self) -> list[Fact]:
        """The facts that are not shown."""
        shown = {fact.id for fact in self.facts}
        return [fact for fact in self.remembered.current if fact.id not in shown]


class PreferencesLayer(PromptLayer):
    """What the user has laid down, wants to be answered like, and what is known about the user."""

    name = Layer.PREFERENCES
    title = Layer.PREFERENCES.full_name
    place = Place.STABLE
    fence = fences.PREFERENCES

    def measured(self, situation: Situation, view: View) -> Situation:
        """Returns a situation with what preferences, memories and facts cost.

        The fence around them is overhead, because no layer has tokens for it.
        """
        count = view.counter.count_text
        preferences = preference_fragments(view.settings, count)
        memories = memory_fragments(view.settings, count)
        facts_tokens, learned_tokens = _facts_tokens(view)
        heading_tokens = count(MEMORIES_HEADING) if memories else 0
        rule_tokens = rules_tokens(view)
        overhead_tokens = situation.overhead_tokens
        if rule_tokens or preferences or memories or facts_tokens:
            overhead_tokens += count(fences.opening(self.fence))
            overhead_tokens += count(fences.closing(self.fence))
        return replace(
            situation,
            preferences_tokens=rule_tokens + sum(part.tokens for part in preferences),
            rule_tokens=rule_tokens,
            memory_tokens=facts_tokens + sum(part.tokens for part in memories) + heading_tokens,
            learned_tokens=learned_tokens,
            overhead_tokens=overhead_tokens,
        )

    def items(self, view: View, tokens: int) -> ChosenPreferences:
        """Returns what fits of it, in this order: rules, preferences, memories, facts.

        Rules have a share of the budget of their own.
        """
        count = view.counter.count_text
        remembered = remembered_facts(view)
        all_preferences = preference_fragments(view.settings, count)
        all_memories = memory_fragments(view.settings, count)

        rules = shown_rules(view)
        tokens_left = _room(view, tokens) - sum(part.tokens for part in rules.fragments)
        if rules.fragments:
            tokens_left -= count(rules.fragments[0].heading)
        preferences = packed(all_preferences, count, tokens_left)
        tokens_left -= sum(part.tokens for part in preferences)

        most_memories = _most_memories(view)
        memories = packed(all_memories, count, tokens_left)[:most_memories]
        tokens_left -= sum(part.tokens for part in memories)
        if memories:
            tokens_left -= count(memories[0].heading)

        most_facts = None if most_memories is None else most_memories - len(memories)
        lines, facts = fact_fragments(
            remembered.shown_facts, count, tokens_left, titled=bool(memories), most=most_facts
        )
        shown = (*rules.fragments, *preferences, *memories, *lines)
        chosen = ChosenPreferences(
            fragments=shown,
            facts=facts,
            remembered=remembered,
            memories_left_out=tuple(
                part for part in (*all_preferences, *all_memories) if part not in shown
            ),
            rules_left_out=rules.left_out,
            warning=rules.warning,
        )
        is_limited = most_facts is not None and len(facts) >= most_facts
        items = _left_out_items(chosen, count, is_limited=is_limited)
        return replace(chosen, left_out=lambda: items)

    def compiled(self, view: View, chosen: Chosen) -> Mapping[str, bool]:
        """Returns the compiled texts about the user and the persona that it could use."""
        known = view.known
        shown_facts = chosen.facts if isinstance(chosen, ChosenPreferences) else ()
        return bundles_used(
            shown_facts, chosen.fragments, known.persona_id, known.knowledge.bundles
        )

    def staying(self, rung: Rung) -> Sequence[Staying]:
        """Returns how many memories and facts stay; preferences always do."""
        if rung is Rung.MEMORY_REDUCTION:
            return [Staying(among=_is_expendable), Staying(share=0.5, among=_is_given)]
        if rung is Rung.MEMORIES_LEFT_OUT:
            return [Staying(among=_is_given), Staying(among=_is_other_fact)]
        return ()


def chosen_preferences(chosen: Mapping[str, Chosen]) -> ChosenPreferences:
    """Returns what this layer has chosen, of what all have; nothing before it has chosen."""
    preferences = chosen.get(PreferencesLayer.name)
    return preferences if isinstance(preferences, ChosenPreferences) else ChosenPreferences()


def noted_tokens(granted_tokens: Mapping[str, int]) -> int:
    """Returns the grant of this layer, which the record of a cut notes.

    Prompts that extend it need as many, to show again what it shows.
    """
    return granted_tokens[PreferencesLayer.name]


def is_knowledge(layer: str, item_id: str) -> bool:
    """Tells whether an item of this layer is something known, not how to answer."""
    return layer == PreferencesLayer.name and not item_id.startswith(INSTRUCTIONS)


# Which facts are shown, and how many


def remembered_facts(view: View) -> FactsLayer:
    """Returns the facts of the conversation's snapshot, or all facts at a rebuild.

    At a rebuild the cached prompt is lost in any case.
    """
    if view.history.is_rebuilt and not view.continuation.mode.adds_background:
        return view.known.remembered.renewed()
    return view.known.remembered


def _room(view: View, tokens: int) -> int:
    """Returns the tokens for preferences and facts.

    If the prompt extends the last one, these are at least as many as that one had: it must show
    again what that one has shown.
    """
    cut = view.history.record
    if view.continuation.mode.extends_last and cut is not None:
        return max(tokens, cut.preferences_tokens)
    return tokens


def _most_memories(view: View) -> int | None:
    """Returns how many memories and facts a usage limit lets in; None if any number.

    They get half of its items, rounded down.
    """
    limit = view.tier.knowledge_items
    return None if limit is None else limit // 2


def _facts_tokens(view: View) -> tuple[int, int]:
    """Returns what the facts about the user cost at most, and how much of that is learned.

    The facts of the conversation's snapshot are shown, or all facts if this prompt takes a new one.
    """
    count = view.counter.count_text
    remembered = view.known.remembered
    versions = [remembered.shown_facts]
    if remembered.learned_since:
        versions.append(remembered.current)
    all_tokens = by_hand_tokens = 0
    for shown in versions:
        by_hand = [fact for fact in shown if fact.is_kept_by_hand]
        all_tokens = max(all_tokens, facts_tokens(shown, count))
        by_hand_tokens = max(by_hand_tokens, facts_tokens(by_hand, count))
    return all_tokens, max(0, all_tokens - by_hand_tokens)


def _left_out_items(
    chosen: ChosenPreferences, count: Count, *, is_limited: bool
) -> tuple[ReportItem, ...]:
    """Returns what is not shown, as a report lists it.

    `is_limited` says that a usage limit lets in no more facts.
    """
    parts = [
        replace(part, status=Status.OMITTED, reason=Reason.NO_ROOM)
        for part in (*chosen.rules_left_out, *chosen.memories_left_out)
    ]
    learned_since = {fact.id for fact in chosen.remembered.learned_since}
    parts += [
        left_out(fact, count, since=fact.id in learned_since, limited=is_limited)
        for fact in chosen.facts_left_out
    ]
    return tuple(map(item_of, parts))


# Kinds of items that give way


def _is_expendable(part: Fragment) -> bool:
    """Tells whether a fact need not stay where room is short."""
    return part.expendable


def _is_given(part: Fragment) -> bool:
    """Tells whether an item is a memory of the settings."""
    return not part.expendable and part.id.startswith(MEMORY)


def _is_other_fact(part: Fragment) -> bool:
    """Tells whether an item is a fact that is not expendable."""
    return not part.expendable and part.id.startswith(FACT)


# Lines of the prompt


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

    Where the window is tight later, only pinned facts, current work and sure preferences stay.

    Args:
        facts: The facts to choose from, in the order in which they get room.
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
    for fact in facts:
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


@cached_until_forgotten(4_096)
def _line(text: str) -> str:
    return f"- {fences.as_item(text.strip())}\n"


def packed(fragments: Sequence[Fragment], count: Count, budget_tokens: int) -> tuple[Fragment, ...]:
    """Returns the fragments that fit a budget with their heading; too long ones are skipped."""
    if not fragments:
        return ()
    costs = {number: fragment.tokens for number, fragment in enumerate(fragments)}
    numbers = pack(costs, budget_tokens - count(fragments[0].heading))
    return tuple(fragments[number] for number in numbers)


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
