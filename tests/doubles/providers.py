"""The four APIs: what LangChain's own package sends to them, and what they refuse of it."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

from google.genai import _common
from google.genai.models import _GenerateContentParameters_to_mldev
from google.genai.types import _GenerateContentParameters
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import BaseMessage, content
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_google_genai._image_utils import ImageBytesLoader
from langchain_openai import ChatOpenAI

from tests.doubles.anthropic import anthropic_problems
from tests.doubles.gemini import gemini_problems
from tests.doubles.openai_chat import chat_problems
from tests.doubles.openai_responses import responses_problems

Body = Mapping[str, Any]
CLAUDE = ChatAnthropic(model="claude-sonnet-4-5", api_key="x")
PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
    b"\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff"
    b"\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)
"""A picture of one pixel, which stands for all that Google's package would download."""


@dataclass(frozen=True)
class Api:
    """A way to send a request to a provider, and what judges its JSON."""

    name: str
    model: Any
    problems_of: Callable[[Body], list[str]]
    build: Callable[[Any, Sequence[BaseMessage]], Body]
    """The body of a request, from the model and the messages."""

    def body_of(self, messages: Sequence[BaseMessage]) -> Body:
        """The JSON that LangChain's package sends."""
        with as_if_connected():
            body: Body = json.loads(json.dumps(self.build(self.model, messages)))
        return body

    def problems(self, messages: Sequence[BaseMessage]) -> list[str]:
        """What is refused, also by the package itself; empty for good messages."""
        try:
            body = self.body_of(messages)
        except Exception as error:  # noqa: BLE001 - whatever a package raises
            return [f"cannot be built: {type(error).__name__}: {error!s:.200}"]
        return self.problems_of(body)


@contextmanager
def as_if_connected() -> Iterator[None]:
    """Within, Google's package gets a pixel or a PDF for all that it would download.

    LangChain reads the types of blocks anew for every block; here it reads them once.
    """
    with (
        warnings.catch_warnings(),
        patch.object(ImageBytesLoader, "_bytes_from_url", lambda _loader, url: _download(url)),
        patch.object(content, "_get_data_content_block_types", _types_of_blocks),
    ):
        warnings.simplefilter("ignore")
        yield


_types_of_blocks = cache(content._get_data_content_block_types)


def _download(url: str) -> bytes:
    return b"%PDF-1.4\n%%EOF\n" if url.endswith(".pdf") else PIXEL


def _payload(model: Any, messages: Sequence[BaseMessage]) -> Body:
    body: Body = model._get_request_payload(list(messages))
    return body


def _google_payload(model: Any, messages: Sequence[BaseMessage]) -> Body:
    """What Google's package sends, without the parameters that are not judged."""
    request = model._prepare_request(list(messages))
    parameters = _GenerateContentParameters(**request)
    client = model.client._api_client
    body = _GenerateContentParameters_to_mldev(client, parameters, None, parameters)
    encoded: dict[str, Any] = _common.encode_unserializable_types(_common.convert_to_dict(body))
    return {**encoded, "model": request["model"]}


CHAT = Api("chat", ChatOpenAI(model="gpt-4o", api_key="x"), chat_problems, _payload)
RESPONSES = Api(
    "responses",
    ChatOpenAI(model="gpt-4o", api_key="x", use_responses_api=True),
    responses_problems,
    _payload,
)
UNSTORED_RESPONSES = Api(
    "responses, nothing stored",
    ChatOpenAI(model="gpt-4o", api_key="x", output_version="responses/v1", store=False),
    responses_problems,
    _payload,
)
MESSAGES = Api(
    "anthropic",
    CLAUDE,
    anthropic_problems,
    _payload,
)
GEMINI = Api(
    "gemini",
    ChatGoogleGenerativeAI(model="gemini-3-pro-preview", api_key="x"),
    gemini_problems,
    _google_payload,
)
APIS = {api.name: api for api in (CHAT, RESPONSES, UNSTORED_RESPONSES, MESSAGES, GEMINI)}


_NOT_JUDGED = {"assistant": ("reasoning", "web_search_call"), "tool": ("image_url",)}
"""Parts that only Responses reads, which a model that answers with them is asked through."""


def check_openai(messages: Sequence[BaseMessage]) -> list[str]:
    """What Chat Completions refuses in messages, but for items of Responses."""
    body = dict(CHAT.body_of(messages))
    for message in body["messages"]:
        if message["role"] in _NOT_JUDGED and isinstance(message["content"], list):
            message["content"] = _judged_content(message)
    return chat_problems(body)


def _judged_content(message: Body) -> Any:
    """The parts of a content that Chat Completions reads, or what stands for none."""
    left_out = _NOT_JUDGED[message["role"]]
    parts = [part for part in message["content"] if part.get("type") not in left_out]
    if parts:
        return [_plain_part(part) for part in parts]
    if message["role"] == "assistant":
        return None
    return ""


def _plain_part(part: Body) -> Body:
    """A part of text without what else LangChain keeps in it."""
    if part.get("type") == "text":
        return {"type": "text", "text": part["text"]}
    return part


def check_anthropic(messages: Sequence[BaseMessage]) -> list[str]:
    """What Anthropic refuses in messages; empty for good ones."""
    return MESSAGES.problems(messages)
