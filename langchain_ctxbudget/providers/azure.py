"""OpenAI's models at Azure: OpenAI's rules, but for what is said here."""

from dataclasses import replace

from langchain_ctxbudget.providers.openai import OPENAI
from langchain_ctxbudget.providers.responses import OPENAI_RESPONSES

# Azure refuses ids of calls of more than 40 characters, too (Portkey-AI/gateway issue 1062, read
# in November 2026).
AZURE = replace(OPENAI, name="azure")
AZURE_RESPONSES = replace(OPENAI_RESPONSES, name="azure-responses")
