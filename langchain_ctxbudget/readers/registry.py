"""The list of readers. A new one is its module and its line here."""

from langchain_ctxbudget.readers.base import Reader
from langchain_ctxbudget.readers.claude_code import ClaudeCode
from langchain_ctxbudget.readers.codex import Codex
from langchain_ctxbudget.readers.gemini import Gemini
from langchain_ctxbudget.readers.langfuse import Langfuse
from langchain_ctxbudget.readers.langsmith import LangSmith
from langchain_ctxbudget.readers.messages import Messages
from langchain_ctxbudget.readers.otlp import Otlp

READERS: tuple[Reader, ...] = (
    Messages(),
    ClaudeCode(),
    Codex(),
    LangSmith(),
    Langfuse(),
    Otlp(),
    Gemini(),
)
"""In the order in which they are asked; of two that recognise as many records, the first reads."""

_WIDTH = max(len(reader.name) for reader in READERS)
ACCEPTED = "\n".join(
    [
        "Accepted are, as JSON or JSONL, in a zip archive or in a folder:",
        *(f"  {reader.name:<{_WIDTH}}  {reader.accepts}" for reader in READERS),
    ]
)
"""What is accepted, one line a kind."""
