"""OpenAI's Responses API, to which `ChatOpenAI` talks where it is asked to, or has to."""

from dataclasses import replace

from langchain_ctxbudget.providers.openai import OPENAI
from langchain_ctxbudget.providers.profile import CallIds, ItemAnswer, OwnItems

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
    # What `langchain-openai` 1.7.4 sends as items (`_construct_responses_api_input`, read November
    # 2026): a result of a computer's as `computer_call_output`, which is a picture by OpenAI's
    # reference; patches and approvals from the content of a user's message. It leaves out the items
    # of shells, and OpenAI refuses a result without its call: "No tool call found for function call
    # output with call_id ..." (continuedev/continue issue 10092).
    item_calls={
        "computer_call": ItemAnswer.SCREEN,
        "apply_patch_call": ItemAnswer.ITEM,
        "mcp_approval_request": ItemAnswer.ITEM,
    },
)
