"""How the knowledge of a user changes by what messages say, and by messages that are gone.

Functions from one knowledge to the next. Everything can be done twice: sources are sets, and counts
are totals per conversation.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from langchain_ctxbudget.knowledge import (
    fact_merging,
    known,
    profiles,
    records,
    standing_rules,
)
from langchain_ctxbudget.knowledge.bundles import CATEGORY_OF_BUNDLE, Compiler
from langchain_ctxbudget.knowledge.detection import detector_of
from langchain_ctxbudget.knowledge.kinship import with_stated_relationships
from langchain_ctxbudget.knowledge.known import Knowledge
from langchain_ctxbudget.knowledge.records import (
    ContextBundle,
    EntityProfile,
    Fact,
    Learned,
    Profile,
    Source,
    TopicConversation,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.recurring_phrases import recurring
from langchain_ctxbudget.knowledge.work import Work, words_of
from langchain_ctxbudget.messages import is_user, time_of
from langchain_ctxbudget.settings import EntityContext

S = TypeVar("S", Fact, TopicProfile, EntityProfile, records.PhraseRecord)
P = TypeVar("P", TopicProfile, EntityProfile)
DETAILS = ("relationship", "aliases", "facts", "attributes", "relations")
"""The fields of an entity that are said of it."""
_NO_DETAILS = {name: EntityProfile.model_fields[name].default for name in DETAILS}


# What messages say is merged


def with_work(state: Knowledge, work: Work, learned: Learned | None, now: datetime) -> Knowledge:
    """Returns the knowledge once some messages were learned from.

    Args:
        state: The knowledge before.
        work: The messages.
        learned: What a model has learned from them; None to learn from them without one.
        now: The time at which they are learned from.
    """
    conversation_id = work.scope.conversation_id
    if work.there is not None:
        state = without(state, conversation_id, work.there)
    if learned is not None:
        state = without_rules(state, conversation_id, work.read_ahead)
        return updated(state, work, learned, now)

    topics, phrases = recurring(work.messages_to_learn_from(), state.phrases, conversation_id)
    without_model = Learned(facts=work.statements, topics=topics)
    return updated(replace(state, phrases=phrases), work, without_model, now)


def rules_with(
    state: Knowledge,
    conversation_id: str,
    events: Iterable[standing_rules.RuleEvent],
    now: datetime,
) -> tuple[records.RuleRecord, ...]:
    """Returns what is to be stored of a user's rules once a conversation was read.

    Args:
        state: The knowledge before.
        conversation_id: The conversation.
        events: What the user has said about rules in it.
        now: The time at which it is read.
    """
    rules_here = standing_rules.rules_of(events, state.rules, conversation_id)
    return standing_rules.records_of(rules_here, state.rules, conversation_id, now)


def updated(state: Knowledge, work: Work, learned: Learned, now: datetime) -> Knowledge:
    """Returns the knowledge with what was learned from some messages merged into it."""
    # What an assistant or somebody else says teaches nothing, whatever a model makes of it.
    own = [message for message in work.messages_read() if message.from_user]
    sources = {
        message.id: Source(
            conversation_id=work.scope.conversation_id,
            message_id=message.id,
            digest=message.digest,
        )
        for message in own
    }
    all_facts = fact_merging.learn(
        (*state.facts, *state.ended_facts),
        learned.facts,
        sources,
        now,
        learned.made_by,
        said_at={message.id: message.at for message in own if message.at},
    )
    after = replace(
        state.with_facts(fact_merging.pruned(all_facts, now)),
        topics=profiles.merge_topics(state.topics, learned, sources, now),
        entities=profiles.merge_entities(
            state.entities, with_stated_relationships(learned, own), sources, now
        ),
    )
    return measured_again(_counted(after, work), now)


def _counted(state: Knowledge, work: Work) -> Knowledge:
    """Returns the knowledge with the new messages counted in the links of their conversation.

    Where messages have changed that were learned from, all of them are counted anew.
    """
    conversation_id = work.scope.conversation_id
    links = dict(state.links)
    first = work.first
    if work.there is not None:
        links = {key: link for key, link in links.items() if key[1] != conversation_id}
        first = 0

    engagements: defaultdict[str, list[profiles.Engagement]] = defaultdict(list)
    detector = detector_of(state.profiles)
    for position in range(first, len(work.entries)):
        entry = work.entries[position]
        engagement = profiles.Engagement(
            at=time_of(entry.message),
            tokens=work.costs[position],
            from_user=is_user(entry.message),
        )
        for name in detector.named_ids(words_of(entry)):
            link = links.get((name, conversation_id))
            if link is None or position >= link.until:
                engagements[name].append(engagement)

    for name, messages in engagements.items():
        link = links.get((name, conversation_id))
        if link is None:
            link = TopicConversation(topic_id=name, conversation_id=conversation_id)
        links[name, conversation_id] = profiles.engaged(link, messages, until=len(work.entries))
    return replace(state, links=links)


def measured_again(state: Knowledge, now: datetime) -> Knowledge:
    """Returns the knowledge with the numbers of topics and entities taken from their links.

    Topics and entities that nothing speaks for are gone, and so are the least important ones of too
    many, and the links of either.
    """
    links_of: defaultdict[str, list[TopicConversation]] = defaultdict(list)
    for (name, _), link in state.links.items():
        links_of[name].append(link)

    after = replace(
        state,
        topics=_most_important(_measured(state.topics, links_of, now), now),
        entities=_most_important(_measured(state.entities, links_of, now), now),
    )
    remaining_links = {
        key: link for key, link in state.links.items() if key[0] in after.names_by_id
    }
    return replace(after, links=remaining_links)


def _measured(
    before: Iterable[P], links_of: Mapping[str, list[TopicConversation]], now: datetime
) -> list[P]:
    """Returns topics or entities with their numbers; unchanged ones are the same objects."""
    after = []
    for profile in before:
        measured = profiles.measured(profile, links_of.get(profile.id, ()))
        if measured == profile:
            after.append(profile)
        else:
            after.append(profiles.as_of(measured, now))
    return after


def _most_important(measured: Iterable[P], now: datetime) -> tuple[P, ...]:
    """Returns the topics or entities that something speaks for, in the order of their ids.

    Of more than are kept, the least important ones are left out.
    """

    def rank(profile: P) -> tuple[bool, bool, float, str]:
        importance = profiles.importance_at(profile, now)
        return not profile.pinned, profile.made_by != records.BY_USER, -importance, profile.id

    spoken_for = [profile for profile in measured if _is_spoken_for(profile)]
    kept = sorted(spoken_for, key=rank)[: known.MOST_ITEMS]
    return tuple(sorted(kept, key=lambda profile: profile.id))


def _is_spoken_for(profile: Profile) -> bool:
    """Returns whether a message, a conversation or the user wants a topic or an entity known."""
    if profile.sources or profile.total_messages:
        return True
    return profile.pinned or profile.made_by == records.BY_USER


# What messages have said is taken back


def without_rules(
    state: Knowledge, conversation_id: str, message_ids: Collection[str]
) -> Knowledge:
    """Returns the knowledge without the facts that rules have learned from some messages alone.

    What is kept by hand stays. A fact that they superseded counts again.

    Args:
        state: The knowledge before.
        conversation_id: The conversation of these messages.
        message_ids: Their ids.
    """

    def is_of_these(source: Source) -> bool:
        return source.conversation_id == conversation_id and source.message_id in message_ids

    def is_gone(fact: Fact) -> bool:
        if fact.made_by != records.BY_RULES or fact.is_kept_by_hand or not fact.sources:
            return False
        return all(is_of_these(source) for source in fact.sources)

    all_facts = (*state.facts, *state.ended_facts)
    gone = {fact.id: fact.superseded_by for fact in all_facts if is_gone(fact)}
    return state.with_facts(
        _counting_again(fact, gone) for fact in all_facts if fact.id not in gone
    )


def without(state: Knowledge, conversation_id: str, there: Mapping[str, str]) -> Knowledge:
    """Returns the knowledge without what came from messages that are gone, or say something else.

    What is kept by hand stays. What a model has written goes with any of its messages, as it may
    say something of each. A fact that they superseded counts again, unless something else stands in
    its place.

    Args:
        state: The knowledge before.
        conversation_id: The conversation of these messages.
        there: The fingerprints of the messages that are there now, by id.
    """

    def is_there(source: Source) -> bool:
        if source.conversation_id != conversation_id:
            return True
        return there.get(source.message_id) == source.digest

    phrases = [_with_sources(phrase, is_there) for phrase in state.phrases]
    return replace(
        state.with_facts(_facts_with_sources((*state.facts, *state.ended_facts), is_there)),
        topics=tuple(_with_sources(topic, is_there) for topic in state.topics),
        entities=tuple(_entity_with_sources(entity, is_there) for entity in state.entities),
        phrases=tuple(phrase for phrase in phrases if phrase.sources),
        rules=tuple(rule for rule in state.rules if not rule.message_id or is_there(rule.source)),
    )


def without_messages(
    state: Knowledge,
    conversation_id: str,
    there: Mapping[str, str],
    now: datetime,
    *,
    is_gone: bool = False,
) -> Knowledge:
    """Returns the knowledge once a conversation has lost messages, with its numbers.

    Args:
        state: The knowledge before.
        conversation_id: The conversation.
        there: The fingerprints of the messages that are there now, by id.
        now: The time at which it lost them.
        is_gone: Whether the conversation itself is gone, with its rules by hand.
    """
    after = without(state, conversation_id, there)
    if after == state and there:
        return state
    if is_gone:
        kept_rules = [rule for rule in after.rules if rule.conversation_id != conversation_id]
        after = replace(after, rules=tuple(kept_rules))
    links = {key: link for key, link in after.links.items() if key[1] != conversation_id}
    return measured_again(replace(after, links=links), now)


def _with_sources(item: S, is_there: Callable[[Source], bool]) -> S:
    """Returns an item with those of its sources that are still there."""
    sources = tuple(source for source in item.sources if is_there(source))
    if sources == item.sources:
        return item
    return item.model_copy(update={"sources": sources})


def _entity_with_sources(
    entity: EntityProfile, is_there: Callable[[Source], bool]
) -> EntityProfile:
    """Returns an entity with its remaining sources.

    Once it has lost one, nothing that was learned of it is certain any more, and its details go.
    """
    after = _with_sources(entity, is_there)
    if after is entity or entity.made_by == records.BY_USER:
        return after
    return after.model_copy(update=_NO_DETAILS)


def _facts_with_sources(facts: Iterable[Fact], is_there: Callable[[Source], bool]) -> list[Fact]:
    """Returns facts with their remaining sources, without those that go with a lost one."""
    renewed = [(fact, _with_sources(fact, is_there)) for fact in facts]
    gone = {fact.id: fact.superseded_by for fact, after in renewed if _has_lost_ground(fact, after)}
    return [_counting_again(after, gone) for fact, after in renewed if fact.id not in gone]


def _has_lost_ground(fact: Fact, after: Fact) -> bool:
    """Returns whether a fact goes because it has lost sources."""
    if after == fact or fact.is_kept_by_hand:
        return False
    return not after.sources or fact.made_by != records.BY_RULES


def _counting_again(fact: Fact, gone: Mapping[str, str | None]) -> Fact:
    """Returns a fact that counts again if what superseded it is gone and has no successor.

    Args:
        fact: The fact.
        gone: The ids of the facts that are gone, with the id of what had superseded each.
    """
    successor = fact.superseded_by
    while successor is not None and successor in gone:
        successor = gone[successor]
    changes: dict[str, object] = {"superseded_by": successor}
    if successor is None and fact.superseded_by:
        changes["ended"] = None
        changes["ended_at"] = None
    return fact.model_copy(update=changes)


# What is too old is forgotten


def without_older(
    state: Knowledge, before: datetime, now: datetime, *, keep_pinned: bool
) -> Knowledge:
    """Returns the knowledge without what has not come up for long, ended facts among it.

    Rules stay: they go with their messages, or when they are lifted.

    Args:
        state: The knowledge before.
        before: What came up last before this time goes.
        now: The time at which it goes.
        keep_pinned: Whether what is pinned, or written by hand, stays.
    """

    def fact_stays(fact: Fact) -> bool:
        return fact.last_seen >= before or (keep_pinned and fact.is_kept_by_hand)

    def profile_stays(profile: Profile) -> bool:
        is_by_hand = profile.pinned or profile.made_by == records.BY_USER
        came_up_at = profile.last_engaged_at or profile.updated_at or profile.created_at
        return came_up_at is None or came_up_at >= before or (keep_pinned and is_by_hand)

    after = replace(
        state,
        facts=tuple(fact for fact in state.facts if fact_stays(fact)),
        ended_facts=tuple(fact for fact in state.ended_facts if fact_stays(fact)),
        topics=tuple(topic for topic in state.topics if profile_stays(topic)),
        entities=tuple(entity for entity in state.entities if profile_stays(entity)),
    )
    return measured_again(after, now)


# Compiled texts


def compiled(
    state: Knowledge,
    uses: Mapping[tuple[str, bool], int],
    now: datetime,
    shown: EntityContext,
) -> Knowledge:
    """Returns the knowledge with every missing or changed text compiled, and uses counted.

    Args:
        state: The knowledge before.
        uses: How often which text was a hit (True) or a miss since it was written.
        now: The time at which they are compiled.
        shown: What the text of an entity shows of it.
    """
    compiler = Compiler(now=now, old=state.bundles, entities=shown)
    ranked = fact_merging.ranked(state.facts)
    facts_about = _facts_by_subject(state, ranked)
    of_topics = _topic_bundles(state.topics, facts_about, compiler)
    of_entities = [
        compiler.entity(entity, facts_about.get(entity.id, ())) for entity in state.entities
    ]
    others = [compiler.of_facts(kind, ranked) for kind in CATEGORY_OF_BUNDLE]
    others += [one for one in state.bundles.values() if one.bundle_type == "composite"]
    not_empty = [bundle for bundle in others if bundle.compiled_prompt]
    bundles = {bundle.id: bundle for bundle in (*of_topics, *of_entities, *not_empty)}
    return replace(state, bundles=with_uses(bundles, uses, now))


def _topic_bundles(
    topics: Sequence[TopicProfile], facts_about: Mapping[str, list[Fact]], compiler: Compiler
) -> list[ContextBundle]:
    """Returns the texts of topics, each with the name of the topic that it is part of."""
    by_slug = {topic.slug: topic for topic in topics}
    bundles = []
    for topic in topics:
        parent = by_slug.get(topic.parent_slug or "")
        bundles.append(compiler.topic(topic, facts_about.get(topic.id, ()), parent))
    return bundles


def _facts_by_subject(state: Knowledge, facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """Returns the facts that are about a topic or an entity by name, by its id."""
    detector = detector_of(state.profiles)
    facts_about: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        for name in detector.subject_ids(fact.text):
            facts_about[name].append(fact)
    return dict(facts_about)


def with_uses(
    bundles: Mapping[str, ContextBundle], uses: Mapping[tuple[str, bool], int], now: datetime
) -> dict[str, ContextBundle]:
    """Returns compiled texts by id, with the hits and misses since they were written added."""
    counted = dict(sorted(bundles.items()))
    for (bundle_id, is_hit), times in uses.items():
        bundle = counted.get(bundle_id)
        if bundle is None:
            continue
        changes: dict[str, object] = {"last_used_at": now}
        if is_hit:
            changes["hit_count"] = bundle.hit_count + times
        else:
            changes["miss_count"] = bundle.miss_count + times
        counted[bundle_id] = bundle.model_copy(update=changes)
    return counted
