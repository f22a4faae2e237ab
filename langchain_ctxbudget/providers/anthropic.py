"""Claude at Anthropic and at Google's Vertex AI."""

from dataclasses import replace

from langchain_ctxbudget.content import Shape
from langchain_ctxbudget.providers.cache_terms import CacheTerms, LongerLifetime
from langchain_ctxbudget.providers.media_forms import IMAGE_TYPES, MediaForms, Readable
from langchain_ctxbudget.providers.media_rules import (
    MEGABYTE,
    MediaLimits,
    MediaRates,
    MediaRules,
    Patches,
)
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

# The "cache limitations" of the same page. Sonnet 4.6 is documented with 1,024, and was measured
# with 2,048 (anthropics/anthropic-sdk-python issue 1194): the narrow side.
_CACHE_BY_FAMILY = {
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
}
CACHE_OF_CLAUDE = {"claude": _CACHE, **_CACHE_BY_FAMILY}
"""How Claude's prompts are cached where a provider has models of several makers."""

_STANDARD_FAMILIES = (
    "claude-2",
    "claude-3",
    "claude-haiku-4-5",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",  # of 2025
    "claude-sonnet-4@",  # as Vertex writes it
    "claude-sonnet-4-5",
    "claude-sonnet-4-6",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2",
    "claude-opus-4@",
    "claude-opus-4-5",
    "claude-opus-4-6",
)
"""Models before Claude 4.7, which see images in a lower resolution than all later ones."""
# https://platform.claude.com/docs/en/build-with-claude/vision, "Image limits and costs", and
# .../pdf-support, Nov 2026.
_MEDIA = MediaRules(
    # "High-resolution: Claude 4.7 and later models", "Standard: all other models".
    rates=MediaRates(image=Patches(side=28, most_patches=4_784, longest_side=2_576)),
    images_of_families=dict.fromkeys(
        _STANDARD_FAMILIES, Patches(side=28, most_patches=1_568, longest_side=1_568)
    ),
    # The narrow side: models with a window above 200,000 tokens take 600 images and pages.
    limits=MediaLimits(
        most_images=100,
        longest_side=8_000,
        many_images=20,
        longest_side_of_many=2_000,
        image_bytes=10 * MEGABYTE,
        request_bytes=32 * MEGABYTE,
        most_pages=100,
    ),
)

# What `langchain-anthropic` 1.7.10 writes as Anthropic's own (`_format_messages`,
# `_format_data_content_block`), in messages of users and in results, and what it passes on.
_IMAGE = (Shape.STANDARD, Shape.EARLIER, Shape.CHAT, Shape.SOURCE)
_FILE = (Shape.STANDARD, Shape.EARLIER, Shape.SOURCE)
_PDF = "application/pdf"
MEDIA_FORMS = MediaForms(
    kinds={
        "image": Readable(
            with_bytes=_IMAGE,
            by_address=_IMAGE,
            by_file_id=_FILE,
            types=IMAGE_TYPES,
        ),
        # Bytes and addresses are those of PDFs: the API's schema of `document`.
        "file": Readable(with_bytes=_FILE, by_address=_FILE, by_file_id=_FILE, types=_PDF),
    },
    blocks=frozenset(
        {"search_result", "document", "text-plain", "tool_reference", "container_upload"}
    ),
    # Its own begin with `file_` ("Files API", platform.claude.com); others are OpenAI's, Google's
    # and Amazon's (read in November 2026).
    refused_file_ids=r"file-|assistant-|gs://|s3://|files/|https?://",
)
# `ChatBedrock` and `ChatAnthropicVertex` take bytes alone ("Anthropic only supports base64-encoded
# images currently"), and pass on what is Anthropic's; inside results, they translate `image_url`
# alone (`_format_anthropic_messages` of langchain-aws, `_anthropic_utils.py` of
# langchain-google-vertexai, read in November 2026). Later versions may take more.
MEDIA_FORMS_ON_CLOUDS = replace(
    MEDIA_FORMS,
    kinds={
        "image": Readable(
            with_bytes=(Shape.SOURCE, Shape.CHAT, Shape.STANDARD, Shape.EARLIER),
            types=IMAGE_TYPES,
        ),
        "file": Readable(with_bytes=(Shape.SOURCE,), types=_PDF),
    },
    not_in_results=frozenset({Shape.STANDARD, Shape.EARLIER}),
    blocks=frozenset({"search_result", "document", "tool_reference"}),
)

ANTHROPIC = Profile(
    name="anthropic",
    # "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"; no longest one is documented
    # (maximhq/bifrost issue 5097, QwenLM/qwen-code issue 8160; November 2026).
    call_ids=CallIds(refused="[^a-zA-Z0-9_-]"),
    # "thinking.signature: Field required" (anomalyco/opencode issue 25005). Thinking of another
    # model, or of Claude at another place, is taken, and left out there if it cannot be read
    # (platform.claude.com, "Preserved thinking"; November 2026).
    items=OwnItems(authors=frozenset({"anthropic"}), types=_ITEMS, wants_signatures=True),
    # A thought is bound to system, tools and all messages before it: "Invalid `signature` in
    # `thinking` block. The block is bound to a different conversation", status 400. Also where a
    # thought between others is left out. Of Fable 5.1 and 5.2, Mythos, Opus 5.5, Sonnet 5.5 and
    # Haiku 5.5, everywhere they run; whoever shortens a conversation is to "remove the thinking of
    # the turns that are kept" (platform.claude.com, "Preserved thinking", "Prefix checks on
    # thinking blocks"; November 2026). Older models do without, except with `thinking` "enabled":
    # see `models.py`.
    binds_thoughts=True,
    # "Deferred tools are not included in the system-prompt prefix" ("Tool use with prompt caching",
    # platform.claude.com, read in November 2026).
    deferred_tools=DeferredTools.HIDDEN,
    media=_MEDIA,
    media_forms=MEDIA_FORMS,
    cache=_CACHE,
    cache_by_family=_CACHE_BY_FAMILY,
    # Everything before a compaction block is ignored, and of several the last one counts:
    # platform.claude.com, "Compaction" (November 2026).
    compactions="anthropic",
)
MEDIA_ON_CLOUDS = replace(
    _MEDIA,
    # "5 MB on Amazon Bedrock and Google Cloud"; "Bedrock limits requests to 20 MB, and Google Cloud
    # to 30 MB" (the same pages): the narrower one for both.
    limits=replace(_MEDIA.limits, image_bytes=5 * MEGABYTE, request_bytes=20 * MEGABYTE),
)
"""What Claude takes, and costs, on the servers of others."""
ANTHROPIC_VERTEX = replace(
    ANTHROPIC,
    name="anthropic-vertex",
    media=MEDIA_ON_CLOUDS,
    media_forms=MEDIA_FORMS_ON_CLOUDS,
)
