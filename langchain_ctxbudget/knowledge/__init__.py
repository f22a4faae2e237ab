"""What is known of users: facts, topics, entities, their texts, presence, and how it is learned."""

from langchain_ctxbudget.knowledge import facts, known, presence, records, subjects
from langchain_ctxbudget.knowledge.control import UserKnowledge
from langchain_ctxbudget.knowledge.control_flows import KnownItem, SourceMessage
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
    Source,
    TopicProfile,
)
from langchain_ctxbudget.knowledge.subjects import MAX_TOPICS, Bundles, Detected
