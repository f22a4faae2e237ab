"""What each provider accepts, refuses, counts and charges, and requires of what is sent. Pure."""

from langchain_ctxbudget.providers.anthropic import ANTHROPIC
from langchain_ctxbudget.providers.cache_marks import (
    Mark,
    marks_beside,
    request_mark_of,
    system_mark_of,
    with_cache_marks,
    with_system_mark,
    without_mark,
)
from langchain_ctxbudget.providers.cache_terms import CacheTerms, LongerLifetime
from langchain_ctxbudget.providers.call_ids import ids_of_calls, sent_call_id, without_call_ids
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.foreign import repairs_of_lost_thoughts
from langchain_ctxbudget.providers.google import GOOGLE
from langchain_ctxbudget.providers.item_calls import with_calls_as_shown
from langchain_ctxbudget.providers.media_limits import (
    MeasuredMedium,
    measured_media,
    media_beyond,
    media_left_out,
    refused_alone,
    repair_of,
    within_media_limits,
)
from langchain_ctxbudget.providers.media_forms import MediaForms, MediaInResults, Readable
from langchain_ctxbudget.providers.media_rules import (
    ASSUMED_TOKENS,
    MediaLimits,
    MediaRates,
    MediaRules,
)
from langchain_ctxbudget.providers.models import (
    PROFILES,
    as_asked_to_think,
    model_names,
    profile_named,
    profile_of,
    unwrapped,
)
from langchain_ctxbudget.providers.names import (
    accepted_name,
    with_accepted_name,
    with_name_as_sent,
)
from langchain_ctxbudget.providers.openai import OPENAI
from langchain_ctxbudget.providers.pairing import NO_RESULT, REPLACED_RESULT
from langchain_ctxbudget.providers.profile import (
    CallIds,
    DeferredTools,
    Framing,
    OwnItems,
    Profile,
)
from langchain_ctxbudget.providers.replies import bound_to_schema, with_longest_reply
from langchain_ctxbudget.providers.requirements import (
    Requirement,
    Stage,
    accepted_history,
    each,
    finished,
    grouped,
    met,
    regrouped,
)
from langchain_ctxbudget.providers.result_media import shows_media_behind, with_media_behind
from langchain_ctxbudget.providers.roles import (
    NO_FIRST_QUESTION,
    in_accepted_form,
    opening_before,
)
from langchain_ctxbudget.providers.stretch import (
    UNBOUND,
    Change,
    Placed,
    Repair,
    Stretch,
    UsedIds,
    joined_repairs,
)
from langchain_ctxbudget.providers.turns import answered_before

__all__ = [
    "ANTHROPIC",
    "ASSUMED_TOKENS",
    "COMMON",
    "GOOGLE",
    "NO_FIRST_QUESTION",
    "NO_RESULT",
    "OPENAI",
    "PROFILES",
    "REPLACED_RESULT",
    "UNBOUND",
    "CacheTerms",
    "CallIds",
    "Change",
    "DeferredTools",
    "Framing",
    "LongerLifetime",
    "Mark",
    "MeasuredMedium",
    "MediaForms",
    "MediaInResults",
    "MediaLimits",
    "MediaRates",
    "MediaRules",
    "OwnItems",
    "Placed",
    "Profile",
    "Readable",
    "Repair",
    "Requirement",
    "Stage",
    "Stretch",
    "UsedIds",
    "accepted_history",
    "accepted_name",
    "answered_before",
    "as_asked_to_think",
    "bound_to_schema",
    "each",
    "finished",
    "grouped",
    "ids_of_calls",
    "in_accepted_form",
    "joined_repairs",
    "marks_beside",
    "measured_media",
    "media_beyond",
    "media_left_out",
    "met",
    "model_names",
    "opening_before",
    "profile_named",
    "profile_of",
    "refused_alone",
    "regrouped",
    "repair_of",
    "repairs_of_lost_thoughts",
    "request_mark_of",
    "sent_call_id",
    "shows_media_behind",
    "system_mark_of",
    "unwrapped",
    "with_accepted_name",
    "with_cache_marks",
    "with_calls_as_shown",
    "with_longest_reply",
    "with_media_behind",
    "with_name_as_sent",
    "with_system_mark",
    "within_media_limits",
    "without_call_ids",
    "without_mark",
]
