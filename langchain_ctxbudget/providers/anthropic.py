"""Claude at Anthropic and at Google's Vertex AI."""

from dataclasses import replace

from langchain_ctxbudget.providers.cache_terms import CacheTerms, LongerLifetime
from langchain_ctxbudget.providers.profile import CallIds, DeferredTools, OwnItems, Profile

# Blocks of the Messages API in an assistant's message (`langchain_anthropic`, 1.7.10, lists them in
# `_format_messages`), and LangChain's standard ones for the same.
_ITEMS = frozenset(
    {
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "mcp_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "mcp_tool_result",
        "tool_search_tool_result",
        "advisor_tool_result",
        "container_upload",
        "reasoning",
        "server_tool_call",
        "server_tool_result",
    }
)

# "Prompt caching" (platform.claude.com/docs/en/build-with-claude/prompt-caching, read in November
# 2026): reading costs 0.1, writing 1.25 for five minutes and 2 for an hour; both lifetimes begin
# anew with each use. The error for more than four marks: "A maximum of 4 blocks with cache_control
# may be provided".
_CACHE = CacheTerms(
    read_price=0.1,
    write_price=1.25,
    lifetime_seconds=300,
    longer_lifetimes=(LongerLifetime(3_600, write_price=2.0, ttl="1h"),),
    smallest_tokens=1_024,
    most_marks=4,
)
_CACHE_FROM_512 = replace(_CACHE, smallest_tokens=512)
_CACHE_FROM_2048 = replace(_CACHE, smallest_tokens=2_048)
_CACHE_FROM_4096 = replace(_CACHE, smallest_tokens=4_096)

ANTHROPIC = Profile(
    name="anthropic",
    # "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"; no longest one is documented
    # (maximhq/bifrost issue 5097, QwenLM/qwen-code issue 8160; November 2026).
    call_ids=CallIds(refused="[^a-zA-Z0-9_-]"),
    # "thinking.signature: Field required" (anomalyco/opencode issue 25005). Thinking of another
    # model, or of Claude at another place, is taken, and left out there if it cannot be read
    # (platform.claude.com, "Preserved thinking"; November 2026).
    items=OwnItems(authors=frozenset({"anthropic"}), types=_ITEMS, wants_signatures=True),
    # "Deferred tools are not included in the system-prompt prefix" ("Tool use with prompt caching",
    # platform.claude.com, read in November 2026).
    deferred_tools=DeferredTools.HIDDEN,
    cache=_CACHE,
    # The "cache limitations" of the same page. Sonnet 4.6 is documented with 1,024, and was
    # measured with 2,048 (anthropics/anthropic-sdk-python issue 1194): the narrow side.
    cache_by_family={
        "claude-3-haiku": _CACHE_FROM_2048,
        "claude-3-5-haiku": _CACHE_FROM_2048,
        "claude-haiku-4-5": _CACHE_FROM_4096,
        "claude-opus-4-5": _CACHE_FROM_4096,
        "claude-opus-4-6": _CACHE_FROM_4096,
        "claude-opus-4-7": _CACHE_FROM_2048,
        "claude-sonnet-4-6": _CACHE_FROM_2048,
        "claude-opus-5": _CACHE_FROM_512,
        "claude-fable-5": _CACHE_FROM_512,
        "claude-mythos-5": _CACHE_FROM_512,
    },
    # Everything before a compaction block is ignored, and of several the last one counts:
    # platform.claude.com, "Compaction" (November 2026).
    compactions="anthropic",
)
ANTHROPIC_VERTEX = replace(ANTHROPIC, name="anthropic-vertex")
