"""What is known of users: facts, topics, entities, their texts, presence, and how it is learned."""

from langchain_ctxbudget.knowledge import facts, known, merging, presence, records
from langchain_ctxbudget.knowledge.bundles import CATEGORY_OF_BUNDLE
from langchain_ctxbudget.knowledge.control import UserKnowledge
from langchain_ctxbudget.knowledge.control_flows import KnownItem, SourceMessage
from langchain_ctxbudget.knowledge.fact_merging import CATEGORIES, PRIORITIES
from langchain_ctxbudget.knowledge.facts import FactsLayer
from langchain_ctxbudget.knowledge.known import NOTHING, Knowledge
from langchain_ctxbudget.knowledge.learning import Learning
from langchain_ctxbudget.knowledge.presence import Heartbeat
from langchain_ctxbudget.knowledge.records import (
    BY_RULES,
    BY_USER,
    ClientPresence,
    ContextBundle,
    EntityProfile,
    Fact,
    ProgressRecord,
    RuleRecord,
    Source,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.standing_rules import (
    NO_RULES,
    RULE_POLICY,
    StandingRule,
    StandingRules,
    changed_beside,
    events_of,
    own_events,
    record_in_fork,
    records_with_lifted,
    rule_by_hand,
    rules_of,
    says_the_same_rule,
    stored_rule,
)
from langchain_ctxbudget.knowledge.subjects import (
    Detected,
    Found,
    Subject,
    detect,
    left_out_item,
    with_subjects,
    within_tier,
)
