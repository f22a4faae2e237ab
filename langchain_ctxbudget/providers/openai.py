"""OpenAI's Chat Completions."""

from collections.abc import Sequence
from dataclasses import replace

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.content import Shape
from langchain_ctxbudget.providers.cache_terms import CacheTerms
from langchain_ctxbudget.providers.media_forms import (
    IMAGE_TYPES,
    MediaForms,
    MediaInResults,
    Readable,
)
from langchain_ctxbudget.providers.media_rules import (
    MEGABYTE,
    MediaLimits,
    MediaRates,
    MediaRules,
    PatchBudget,
    Tiles,
)
from langchain_ctxbudget.providers.profile import (
    CallIds,
    DeferredTools,
    OwnItems,
    Profile,
)
from langchain_ctxbudget.providers.stretch import Change

# "Prompt caching" (developers.openai.com/api/docs/guides/prompt-caching, read in November 2026):
# automatic from 1,024 tokens on, in steps of 128; writing costs 1.25 for GPT-5.6 and later
# families, and nothing before. GPT-5.6 was announced with at least 30 minutes (27 June 2026). A
# model whose name tells nothing, as that of an Azure deployment, is taken for a later one.
# `ChatOpenAI` passes `cache_control` on, but OpenAI has no such key: "an OpenRouter-specific
# concept" (langchain-ai/langchain pull request 33773), which LiteLLM leaves out for OpenAI.
_CACHE = CacheTerms(
    read_price=0.1,
    write_price=1.25,
    lifetime_seconds=1_800,
    smallest_tokens=1_024,
    step_tokens=128,
    most_marks=0,
)
# "Cleared within 5 to 10 minutes of inactivity" (the same guide, and Microsoft's for Azure).
_CACHE_BEFORE_5_6 = replace(_CACHE, write_price=1.0, lifetime_seconds=300)
_CACHE_AT_A_QUARTER = replace(_CACHE_BEFORE_5_6, read_price=0.25)
_CACHE_AT_A_HALF = replace(_CACHE_BEFORE_5_6, read_price=0.5)
# Models before gpt-4o are not cached.
_NO_CACHE = replace(_CACHE_BEFORE_5_6, read_price=1.0)

# https://developers.openai.com/api/docs/guides/images-vision, "Model sizing behavior" and
# "Calculating costs", Nov 2026; the limits "Image input requirements" there, and for files
# https://developers.openai.com/api/docs/guides/pdf-files.
_MEDIA = MediaRules(
    # Of a model that the guide does not name, as of a deployment: gpt-4o's rule.
    rates=MediaRates(image=Tiles()),
    images_of_families={
        "gpt-4o-mini": Tiles(base_tokens=2_833, tile_tokens=5_667),
        "gpt-4.1-mini": PatchBudget(most_patches=1_536, longest_side=2_048, patch_tokens=1.62),
        "gpt-4.1-nano": PatchBudget(most_patches=1_536, longest_side=2_048, patch_tokens=2.46),
        "o1": Tiles(base_tokens=75, tile_tokens=150),
        "o3": Tiles(base_tokens=75, tile_tokens=150),
        "o4-mini": PatchBudget(most_patches=1_536, longest_side=2_048, patch_tokens=1.72),
        "computer-use-preview": Tiles(base_tokens=65, tile_tokens=129),
        "gpt-5": Tiles(base_tokens=70, tile_tokens=140),
        "gpt-5-mini": PatchBudget(most_patches=1_536, longest_side=2_048, patch_tokens=1.62),
        "gpt-5-nano": PatchBudget(most_patches=1_536, longest_side=2_048, patch_tokens=2.46),
        "gpt-5-codex-mini": PatchBudget(most_patches=1_536, longest_side=2_048),
        # gpt-5.1 is not named: no model of its time takes more.
        "gpt-5.1": PatchBudget(most_patches=1_536, longest_side=2_048),
        "gpt-5.2": PatchBudget(most_patches=1_536, longest_side=2_048),
        "gpt-5.3": PatchBudget(most_patches=1_536, longest_side=2_048),
        # What `auto` and no detail mean; with `original` it takes 10,000, as gpt-5.5 does.
        "gpt-5.4": PatchBudget(most_patches=2_500, longest_side=2_048),
        "gpt-5.4-mini": PatchBudget(most_patches=1_536, longest_side=2_048, patch_tokens=1.62),
        "gpt-5.4-nano": PatchBudget(most_patches=1_536, longest_side=2_048, patch_tokens=2.46),
        "gpt-5.5": PatchBudget(most_patches=10_000, longest_side=6_000),
        # The guide has no later family; its images are not made smaller.
        "gpt-5.": PatchBudget(),
        "gpt-6": PatchBudget(),
    },
    # The narrow side: since 2026 the guide says 1,500 images and 512 MB. Before it said 500 images
    # and 50 MB, which is what the files of a request may have together still.
    limits=MediaLimits(
        most_images=500,
        file_bytes=50 * MEGABYTE,
        request_bytes=50 * MEGABYTE,
    ),
)

# What `langchain-openai` 1.7.4 writes as OpenAI's own (`_format_message_content`, and
# `convert_to_openai_data_block` of `langchain-core` 1.8.3), and what it passes on that is OpenAI's.
_IMAGE = (Shape.STANDARD, Shape.EARLIER, Shape.CHAT, Shape.SOURCE)
_FILE = (Shape.STANDARD, Shape.EARLIER, Shape.CHAT)
FILES_OF_OTHERS = r"file_|gs://|s3://|files/|https?://"
"""How ids of files begin that are none of OpenAI's, which begin with `file-`: Anthropic's ("Files
API", platform.claude.com), Google's and Amazon's (read in November 2026)."""
MEDIA_FORMS = MediaForms(
    kinds={
        # It has no ids for images (the schema of `ImageURL`).
        "image": Readable(with_bytes=_IMAGE, by_address=_IMAGE, types=IMAGE_TYPES),
        # "Supported values are: 'wav' and 'mp3'" (its schema of `InputAudio`); the package makes
        # the format of the MIME type.
        "audio": Readable(with_bytes=_FILE, types="audio/(wav|mp3)"),
        # "Chat Completions accepts only PDF files"; external addresses are "not supported" ("File
        # inputs", developers.openai.com/api/docs/guides/file-inputs, read in November 2026).
        "file": Readable(with_bytes=_FILE, by_file_id=_FILE, types="application/pdf"),
    },
    # "Image URLs are only allowed for messages with role 'user', but this message with role 'tool'
    # contains an image URL" (OpenHands issue 7700). GPT-5.2 refuses them no more, and does not see
    # them (openai/openai-openapi issue 523, February 2026).
    in_results=MediaInResults.BEHIND,
    # Of an assistant; its schema has that part.
    blocks=frozenset({"refusal"}),
    refused_file_ids=FILES_OF_OTHERS,
)

OPENAI = Profile(
    name="openai",
    # "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum
    # length 40" (camel-ai/camel issue 2215, anomalyco/opencode issue 12653; November 2026).
    call_ids=CallIds(longest=40),
    # It has no reasoning and no server tools in messages.
    items=OwnItems(authors=frozenset({"openai"})),
    # `_convert_message_to_dict` of `langchain-openai` 1.7.4 (read in November 2026).
    sends_sounds_by_id=True,
    media=_MEDIA,
    media_forms=MEDIA_FORMS,
    # "At the start of a request, the model still sees the name and description of whatever is
    # searchable"; what is loaded is "injected at the end of the context window", and stands in a
    # `tool_search_output` ("Tool search", developers.openai.com/api/docs/guides/tools-tool-search,
    # read in November 2026).
    deferred_tools=DeferredTools.NAMED,
    cache=_CACHE,
    # OpenAI's price list, as `tokens/prices.json` has it; a price given for a model counts first.
    cache_by_family={
        "gpt-3.5": _NO_CACHE,
        "gpt-4": _NO_CACHE,
        "gpt-4o": _CACHE_AT_A_HALF,
        "gpt-4.1": _CACHE_AT_A_QUARTER,
        "gpt-5": _CACHE_BEFORE_5_6,
        **dict.fromkeys(("gpt-5.1", "gpt-5.2", "gpt-5.3", "gpt-5.4", "gpt-5.5"), _CACHE_BEFORE_5_6),
        "gpt-5.": _CACHE,
        "o1": _CACHE_AT_A_HALF,
        "o3": _CACHE_AT_A_QUARTER,
        "o3-mini": _CACHE_AT_A_HALF,
        "o4": _CACHE_AT_A_QUARTER,
    },
)


def without_response_id(
    message: BaseMessage, _profile: Profile
) -> tuple[BaseMessage, Sequence[Change]]:
    """Returns a message without the id under which OpenAI keeps a copy of the whole answer.

    A client that finds it may send that instead of the messages before it, so that OpenAI reads
    what was left out of the prompt. Nothing is told: no word of the message changes.
    """
    metadata = message.response_metadata
    if not str(metadata.get("id", "")).startswith("resp_"):
        return message, ()
    others = {key: value for key, value in metadata.items() if key != "id"}
    return message.model_copy(update={"response_metadata": others}), ()
