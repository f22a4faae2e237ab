"""The tools of a call: read once, searched, chosen, told to a model. Pure."""

from langchain_ctxbudget.tools.arguments import problem_of_arguments
from langchain_ctxbudget.tools.choosing import choose
from langchain_ctxbudget.tools.chosen import (
    BOUND_TOOLS,
    DEFERRED_TOOLS,
    LOADED_TOOLS,
    NO_TOOLS,
    TOOL_COSTS,
    ChosenTools,
)
from langchain_ctxbudget.tools.finding import (
    FOUND_TOOLS,
    find_text,
    already_bound,
    names_by_server,
    not_bound,
    not_found,
    servers_with_counts,
)
from langchain_ctxbudget.tools.index import ToolIndex, order_of
from langchain_ctxbudget.tools.known import KnownTool
from langchain_ctxbudget.tools.own import OwnTool, own_kind
from langchain_ctxbudget.tools.signatures import full_signature, short_signature
from langchain_ctxbudget.tools.tool_set import ToolSet, ranked, ranked_by_words
