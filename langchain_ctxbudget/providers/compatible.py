"""Any other server that speaks as OpenAI's Chat Completions do.

vLLM, LM Studio, llama.cpp, OpenRouter, LiteLLM, DeepSeek, xAI, Groq, Together, Fireworks and many
more: what one refuses is not known, and some pass a request on to OpenAI itself.
"""

from dataclasses import replace

from langchain_ctxbudget.content import Shape
from langchain_ctxbudget.providers.anthropic import ANTHROPIC, CACHE_OF_CLAUDE
from langchain_ctxbudget.providers.cache_terms import CacheTerms
from langchain_ctxbudget.providers.common import COMMON
from langchain_ctxbudget.providers.google import GOOGLE
from langchain_ctxbudget.providers.media_forms import MediaForms, MediaInResults, Readable
from langchain_ctxbudget.providers.media_rules import MediaRules
from langchain_ctxbudget.providers.openai import FILES_OF_OTHERS, OPENAI
from langchain_ctxbudget.providers.profile import CallIds, OwnItems, Profile
from langchain_ctxbudget.providers.responses import OPENAI_RESPONSES

# OpenAI's own shapes are what such servers, and LangChain's classes for them, have in common; vLLM
# and OpenRouter read `video_url` besides ("Multimodal inputs", docs.vllm.ai; QwenLM/qwen-code issue
# 1888 names what another one reads). Which images and sounds one takes is not known; of files, PDFs
# as OpenAI does.
_ANY_KIND = (Shape.CHAT, Shape.STANDARD, Shape.EARLIER)
_MEDIA_FORMS = MediaForms(
    kinds={
        "image": Readable(with_bytes=_ANY_KIND, by_address=_ANY_KIND),
        "audio": Readable(with_bytes=_ANY_KIND),
        "video": Readable(with_bytes=(Shape.CHAT,), by_address=(Shape.CHAT,)),
        "file": Readable(with_bytes=_ANY_KIND, by_file_id=_ANY_KIND, types="application/pdf"),
    },
    # vLLM refuses others in results, too (vllm-project/vllm issue 43203, May 2026).
    in_results=MediaInResults.BEHIND,
    refused_file_ids=FILES_OF_OTHERS,
)

COMPATIBLE = Profile(
    name="openai-compatible",
    # A gateway passes ids on to OpenAI, which refuses those of more than 40 characters
    # (BerriAI/litellm issue 17343, read in November 2026). Any characters: Kimi's models want
    # their `functions.name:0` back.
    call_ids=CallIds(longest=OPENAI.call_ids.longest, keeps_thoughts=True),
    items=OwnItems(),
    media_forms=_MEDIA_FORMS,
    # A name may tell whose model is behind it; how many media one server takes is not known.
    media=MediaRules(
        images_of_families={
            **OPENAI.media.images_of_families,
            **ANTHROPIC.media.images_of_families,
            **GOOGLE.media.images_of_families,
        },
        limits=COMMON.media.limits,
    ),
    # Of most, nothing is known; the price list knows some of their models. Gateways pass marks on
    # to Anthropic, at its prices (BerriAI/litellm pull request 30387, read in November 2026).
    # DeepSeek caches by itself, and clears after hours to days ("Context Caching",
    # api-docs.deepseek.com); V4 reads at 0.02 (its price list of 27 October 2026).
    cache_by_family={
        **CACHE_OF_CLAUDE,
        "deepseek": CacheTerms(read_price=0.02, lifetime_seconds=3_600),
    },
)
COMPATIBLE_RESPONSES = replace(
    OPENAI_RESPONSES,
    name="openai-compatible-responses",
    call_ids=COMPATIBLE.call_ids,
    # "Only the provider that produced a compaction item can read it": OpenRouter's page
    # "Compaction" (read in November 2026).
    compactions="",
)
"""The same at a server that speaks as the Responses API does, too."""
