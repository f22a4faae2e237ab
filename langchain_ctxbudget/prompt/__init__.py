"""From a message and a conversation to a prompt: the six steps."""

from langchain_ctxbudget.layers import group_tokens
from langchain_ctxbudget.prompt.assembly import (
    Content,
    asking,
    messages_of,
    opening_note,
    request_copy,
    summary_text,
    system_parts,
    without_least,
)
from langchain_ctxbudget.prompt.channels import (
    CHANNELS,
    BudgetShares,
    DetectedTopics,
    Item,
    SummarizedHistory,
)
from langchain_ctxbudget.prompt.plan import (
    NO_OPTIONS,
    AboutUser,
    Allowance,
    AssembledContext,
    ModelCall,
    Plan,
    Prompt,
    PromptRequest,
    Request,
    cut_key,
    merged_settings,
)
from langchain_ctxbudget.prompt.provider_cache import common_prefix
from langchain_ctxbudget.prompt.recount import MADE_AGAIN, without_caches
from langchain_ctxbudget.prompt.steps import (
    LAST_STEP,
    STEPS,
    Access,
    assemble,
    choose_history,
    settle,
    what_if,
)
