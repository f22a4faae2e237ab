"""The list of readers. A new one is its module and its line here."""

from langchain_ctxbudget.readers.base import Reader
from langchain_ctxbudget.readers.chatgpt import ChatGPT
from langchain_ctxbudget.readers.claude import Claude
from langchain_ctxbudget.readers.claude_code import ClaudeCode
from langchain_ctxbudget.readers.codex import Codex
from langchain_ctxbudget.readers.gemini import Gemini
from langchain_ctxbudget.readers.langfuse import Langfuse
from langchain_ctxbudget.readers.langsmith import LangSmith
from langchain_ctxbudget.readers.messages import Messages
from langchain_ctxbudget.readers.open_webui import OpenWebUI
from langchain_ctxbudget.readers.otlp import Otlp
from langchain_ctxbudget.readers.requests import Requests

READERS: tuple[Reader, ...] = (
    Requests(),
    ChatGPT(),
    Claude(),
    OpenWebUI(),
    ClaudeCode(),
    Codex(),
    LangSmith(),
    Langfuse(),
    Otlp(),
    Gemini(),
    Messages(),
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
