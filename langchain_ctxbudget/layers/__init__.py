"""The layers of a prompt: each says what it asks for, shows, gives up, and what became of it."""

from langchain_ctxbudget.layers.arc import lines_tokens, work_items
from langchain_ctxbudget.layers.base import (
    NOTHING_CHOSEN,
    Chosen,
    Groups,
    Known,
    Place,
    PromptLayer,
    Rung,
    Sent,
    Staying,
    TurnView,
    View,
)
from langchain_ctxbudget.layers.groups import group_tokens, positions_of
from langchain_ctxbudget.layers.history import shortened_positions, verbatim_tokens
from langchain_ctxbudget.layers.identity import SYSTEM_PROMPT
from langchain_ctxbudget.layers.own import FormerLayer, ListedLayer, OwnLayer
from langchain_ctxbudget.layers.preferences import (
    ChosenPreferences,
    chosen_preferences,
    is_knowledge,
    memory_fragments,
    noted_tokens,
)
from langchain_ctxbudget.layers.rules import (
    rule_line,
    rules_of_window,
    says_rules_since,
    tokens_of_rules,
)
from langchain_ctxbudget.layers.registry import (
    LAYERS,
    all_layers,
    in_order_of_prompt,
    is_required,
    name_at,
    names_at,
    place_of,
    tokens_at,
)

__all__ = [
    "LAYERS",
    "NOTHING_CHOSEN",
    "SYSTEM_PROMPT",
    "Chosen",
    "ChosenPreferences",
    "FormerLayer",
    "Groups",
    "Known",
    "ListedLayer",
    "OwnLayer",
    "Place",
    "PromptLayer",
    "Rung",
    "Sent",
    "Staying",
    "TurnView",
    "View",
    "all_layers",
    "chosen_preferences",
    "group_tokens",
    "in_order_of_prompt",
    "is_knowledge",
    "is_required",
    "lines_tokens",
    "memory_fragments",
    "name_at",
    "names_at",
    "noted_tokens",
    "place_of",
    "positions_of",
    "rule_line",
    "rules_of_window",
    "says_rules_since",
    "shortened_positions",
    "tokens_at",
    "tokens_of_rules",
    "verbatim_tokens",
    "work_items",
]
