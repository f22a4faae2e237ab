"""Claude at Amazon Bedrock, and Bedrock's Converse API for models of any maker."""

from dataclasses import replace

from langchain_ctxbudget.providers.anthropic import ANTHROPIC, MEDIA_ON_CLOUDS
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.profile import CallIds, OwnItems

# `ToolUseBlock.toolUseId` of Amazon's API reference: 1 to 64 characters of `[a-zA-Z0-9_-]+` (read
# in November 2026). InvokeModel has Anthropic's pattern (BerriAI/litellm pull request 24210).
_CONVERSE_IDS = CallIds(longest=64, refused="[^a-zA-Z0-9_-]")

BEDROCK = replace(ANTHROPIC, name="bedrock", media=MEDIA_ON_CLOUDS)
"""Claude through InvokeModel: `ChatBedrock`, `ChatAnthropicBedrock`."""
BEDROCK_CONVERSE = replace(
    COMMON,
    name="bedrock-converse",
    call_ids=_CONVERSE_IDS,
    items=OwnItems(
        authors=frozenset({"bedrock-converse"}),
        types=frozenset({"reasoning_content", "reasoning"}),
    ),
    # Claude's prefix check holds at Bedrock, too (docs.aws.amazon.com, "Preserved thinking",
    # November 2026). Of other makers' models nothing is known: the narrow side.
    binds_thoughts=True,
    # Claude costs as at Anthropic; others, as Nova, are cached without a price for writing ("Prompt
    # caching for faster model inference", docs.aws.amazon.com, read in November 2026).
    cache_by_family={"claude": ANTHROPIC.cache, **ANTHROPIC.cache_by_family},
)
"""Any model through Converse: `ChatBedrockConverse`."""
