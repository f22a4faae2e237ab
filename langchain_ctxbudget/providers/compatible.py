"""Any other server that speaks as OpenAI's Chat Completions do.

vLLM, LM Studio, llama.cpp, OpenRouter, LiteLLM, DeepSeek, xAI, Groq, Together, Fireworks and many
more: what one refuses is not known, and some pass a request on to OpenAI itself.
"""

from dataclasses import replace

from langchain_ctxbudget.providers.openai import OPENAI
from langchain_ctxbudget.providers.profile import CallIds, OwnItems, Profile
from langchain_ctxbudget.providers.responses import OPENAI_RESPONSES

COMPATIBLE = Profile(
    name="openai-compatible",
    # A gateway passes ids on to OpenAI, which refuses those of more than 40 characters
    # (BerriAI/litellm issue 17343, read in November 2026). Any characters: Kimi's models want
    # their `functions.name:0` back.
    call_ids=CallIds(longest=OPENAI.call_ids.longest, keeps_thoughts=True),
    items=OwnItems(),
    image_rates=OPENAI.image_rates,
)
COMPATIBLE_RESPONSES = replace(
    OPENAI_RESPONSES, name="openai-compatible-responses", call_ids=COMPATIBLE.call_ids
)
"""The same at a server that speaks as the Responses API does, too."""
