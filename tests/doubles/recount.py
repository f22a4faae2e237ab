"""Input tokens of a request to Chat Completions, counted by OpenAI's cookbook.

Nothing of `langchain_ctxbudget` is used but the vocabulary file.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from langchain_ctxbudget.tokens import vocab

Body = Mapping[str, Any]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@cache
def count(text: str) -> int:
    return len(vocab.encoding().encode_ordinary(text))


LOW_DETAIL_TOKENS = 85
LEAST_IMAGE_TOKENS = 255
"""An image of one tile: 85 tokens, and 170 for the tile."""


def recount(body: Body) -> int:
    """Input tokens of a request, by OpenAI's cookbook, "How to count tokens with tiktoken".

    It has 3 tokens per message, its role and content, a name and one more, and 3 for the reply.
    Tools are counted by its section 7 and not below their compact JSON, as a response format is;
    calls as `langchain-openai` does, by name and arguments, an image as the smallest one.
    """
    tokens = 3 + sum(_message_tokens(message) for message in body["messages"])
    tools = [tool for tool in body.get("tools") or () if "function" in tool]
    json_tokens = sum(count(_json(tool)) for tool in tools)
    tokens += max(_tool_tokens(tools), json_tokens)
    response_format = body.get("response_format")
    if response_format:
        tokens += count(_json(response_format))
    return tokens


def _tool_tokens(tools: Sequence[Body]) -> int:
    """The cookbook's section 7, with the constants of gpt-4o."""
    if not tools:
        return 0
    return 12 + sum(_function_tokens(tool["function"]) for tool in tools)


def _function_tokens(function: Body) -> int:
    tokens = 7 + count(f"{function['name']}:{_description(function)}")
    properties = function.get("parameters", {}).get("properties", {})
    if properties:
        tokens += 3
    for name, schema in properties.items():
        tokens += _property_tokens(name, schema)
    return tokens


def _property_tokens(name: str, schema: Body) -> int:
    tokens = 3 + count(f"{name}:{schema.get('type', '')}:{_description(schema)}")
    if "enum" in schema:
        tokens -= 3
        tokens += sum(3 + count(str(value)) for value in schema["enum"])
    return tokens


def _description(schema: Body) -> str:
    return str(schema.get("description", "")).removesuffix(".")


def _message_tokens(message: Body) -> int:
    tokens = 3 + count(message["role"])
    if "name" in message:
        tokens += 1 + count(message["name"])
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    if message.get("function_call"):
        functions.append(message["function_call"])
    for function in functions:
        tokens += count(function["name"]) + count(function["arguments"])
    content = message.get("content") or ""
    if isinstance(content, str):
        return tokens + count(content)
    return tokens + sum(_part_tokens(part) for part in content)


def _part_tokens(part: Body) -> int:
    if part["type"] == "text":
        return count(part["text"])
    if part["type"] != "image_url":
        return count(_json(part))
    if part["image_url"].get("detail") == "low":
        return LOW_DETAIL_TOKENS
    return LEAST_IMAGE_TOKENS
