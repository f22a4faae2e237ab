"""Claude at Amazon Bedrock, and Bedrock's Converse API for models of any maker."""

from dataclasses import replace

from langchain_ctxbudget.content import Shape
from langchain_ctxbudget.providers.anthropic import (
    ANTHROPIC,
    CACHE_OF_CLAUDE,
    MEDIA_FORMS_ON_CLOUDS,
    MEDIA_ON_CLOUDS,
)
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.media_forms import IMAGE_TYPES, MediaForms, Readable
from langchain_ctxbudget.providers.profile import CallIds, OwnItems

# `ToolUseBlock.toolUseId` of Amazon's API reference: 1 to 64 characters of `[a-zA-Z0-9_-]+` (read
# in November 2026). InvokeModel has Anthropic's pattern (BerriAI/litellm pull request 24210).
_CONVERSE_IDS = CallIds(longest=64, refused="[^a-zA-Z0-9_-]")

# What `ChatBedrockConverse` translates (`_lc_content_to_bedrock` of langchain-aws): "Image data
# only supported through in-line base64 format", the same of files; formats of documents are those
# of `DocumentBlock` in Amazon's API reference (read in November 2026).
_MEDIA_FORMS = MediaForms(
    kinds={
        "image": Readable(
            with_bytes=(
                Shape.STANDARD,
                Shape.EARLIER,
                Shape.CHAT,
                Shape.SOURCE,
                Shape.CONVERSE,
            ),
            types=IMAGE_TYPES,
        ),
        "video": Readable(
            with_bytes=(Shape.SOURCE, Shape.CHAT, Shape.CONVERSE),
            types="video/(mp4|quicktime|x-matroska|webm|x-flv|mpeg|x-ms-wmv|3gpp)",
        ),
        "file": Readable(
            with_bytes=(Shape.STANDARD, Shape.EARLIER, Shape.CONVERSE),
            types=r"application/(pdf|msword|vnd\.ms-excel|vnd\.openxmlformats-officedocument\..+)"
            r"|text/(plain|html|csv|markdown)",
        ),
    },
    blocks=frozenset({"", "json", "guard_content"}),
)

BEDROCK = replace(
    ANTHROPIC, name="bedrock", media=MEDIA_ON_CLOUDS, media_forms=MEDIA_FORMS_ON_CLOUDS
)
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
    media_forms=_MEDIA_FORMS,
    # Claude costs as at Anthropic; others, as Nova, are cached without a price for writing ("Prompt
    # caching for faster model inference", docs.aws.amazon.com, read in November 2026).
    cache_by_family=CACHE_OF_CLAUDE,
)
"""Any model through Converse: `ChatBedrockConverse`."""
