"""OpenAI's Responses API, to which `ChatOpenAI` talks where it is asked to, or has to."""

from dataclasses import replace

from langchain_ctxbudget.providers.openai import OPENAI
from langchain_ctxbudget.providers.profile import CallIds, OwnItems

# What `langchain_openai` writes into a request (`_construct_responses_api_input`, 1.7.4); all
# others it leaves out.
_ITEMS = frozenset(
    {
        "reasoning",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "tool_search_call",
        "tool_search_output",
        "server_tool_call",
        "server_tool_result",
    }
)

OPENAI_RESPONSES = replace(
    OPENAI,
    name="openai-responses",
    # "Invalid 'input[95].call_id': string too long. Expected a string with maximum length 64", as
    # AnswerDotAI/fastllm issue 45 and NousResearch/hermes-agent pull request 73538 have it (read in
    # November 2026).
    call_ids=CallIds(longest=64),
    items=OwnItems(authors=frozenset({"openai"}), types=_ITEMS),
    # "You can drop items that came before the most recent compaction item": OpenAI's guide
    # "Compaction" (read in November 2026). Chat Completions has no such items.
    compactions="openai",
)
