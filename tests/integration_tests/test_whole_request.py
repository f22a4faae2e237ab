"""The whole request fits: what a server receives is counted again by rules that are not this package's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, Field

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.tokens import vocab
from tests.integration_tests.openai_server import OpenAIServer, calls, says

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
WINDOW, RESERVE = 16_000, 2_000
SYSTEM_PROMPT = "You are the assistant of a workshop. Look things up before you answer."


class Part(BaseModel):
    """A part of an order."""

    number: str = Field(description="The number of the part.")
    amount: int = Field(default=1, description="How many of it.")
    colour: Literal["red", "green", "blue"] | None = None


class Address(BaseModel):
    """Where to."""

    street: str
    city: str = Field(description="City, in the language of the country.")
    country: Literal["DE", "FR", "IT"] = "DE"


class Order(BaseModel):
    """An order as it is written into the books."""

    customer: str = Field(description="Who orders.")
    parts: list[Part] = Field(description="What is ordered, at least one part.")
    delivery: Address
    notes: dict[str, str] = Field(default_factory=dict)


@tool
def place_order(order: Order, priority: Literal["low", "high"] = "low") -> str:
    """Place an order with the warehouse, which answers with the day of the delivery."""
    return f"{order} {priority}"


def flat_tool(number: int) -> dict[str, Any]:
    """A function as OpenAI's documentation writes it."""
    properties = {
        "query": {"type": "string", "description": f"What to look for in register {number}."},
        "limit": {"type": "integer", "description": "How many entries to return at most."},
        "order": {"type": "string", "enum": ["newest", "oldest", "name"], "description": "The order of the entries."},
        "archived": {"type": "boolean"},
    }
    parameters = {"type": "object", "properties": properties, "required": ["query"]}
    description = f"Look something up in register {number} of the workshop."
    function = {"name": f"search_register_{number}", "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


FIFTY: tuple[dict[str, Any] | BaseTool, ...] = (*map(flat_tool, range(49)), place_order)


# Counting by other people's rules


@cache
def count(text: str) -> int:
    return len(vocab.encoding().encode_ordinary(text))


def cookbook_tokens(tools: Sequence[Mapping[str, Any]]) -> int:
    """OpenAI's cookbook, "How to count tokens with tiktoken", section 7, with the constants of gpt-4o."""

    def described(schema: Mapping[str, Any]) -> str:
        description = str(schema.get("description", ""))
        return description.removesuffix(".")

    tokens = 0
    for function in (given["function"] for given in tools):
        tokens += 7 + count(f"{function['name']}:{described(function)}")
        properties = function.get("parameters", {}).get("properties", {})
        tokens += 3 if properties else 0
        for key, schema in properties.items():
            tokens += 3
            if "enum" in schema:
                tokens += -3 + sum(3 + count(str(item)) for item in schema["enum"])
            tokens += count(f"{key}:{schema.get('type', '')}:{described(schema)}")
    return tokens + 12 if tools else 0


def json_tokens(value: object) -> int:
    return count(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def tool_floor(tools: Sequence[Mapping[str, Any]]) -> int:
    """The published rule, which sees one level of properties only, and no schema below its compact JSON."""
    return max(cookbook_tokens(tools), sum(map(json_tokens, tools)))


def received_tokens(body: Mapping[str, Any], model: ChatOpenAI) -> int:
    """A request as the server got it."""
    messages = model.get_num_tokens_from_messages(convert_to_messages(body["messages"]))
    response_format = json_tokens(body["response_format"]) if "response_format" in body else 0
    return messages + tool_floor(body.get("tools", [])) + response_format


# The server


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def model(server: OpenAIServer, offline_tiktoken: None) -> ChatOpenAI:
    return ChatOpenAI(
        model="gpt-4o",
        base_url=server.url,
        api_key="not-used",
        profile={"max_input_tokens": WINDOW, "max_output_tokens": RESERVE},
        max_retries=0,
    )


def looks_up_first(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Calls two tools at once, and answers when their results are there."""
    if body["messages"][-1]["role"] == "tool":
        return says("The register has three entries of that name, the newest from last Monday. " * 4)
    turn = len(body["messages"])
    wanted = {"query": f"entry {turn}", "limit": 5, "order": "newest"}
    return calls((f"a{turn}", "search_register_1", wanted), (f"b{turn}", "search_register_2", wanted))


def test_fifty_tools_and_a_response_format_over_many_turns_stay_within_the_window(
    server: OpenAIServer, model: ChatOpenAI
) -> None:
    server.answer = looks_up_first
    limits = {"max_context_tokens": WINDOW}
    pipeline = ContextPipeline(limits, system_prompt=SYSTEM_PROMPT, model=model, store=InMemoryStore())
    sent = {"type": "json_schema", "json_schema": {"name": "Order", "schema": Order.model_json_schema()}}
    # What agents send: tools that are strict, and the schema of a class.
    tools = [
        {"type": "function", "function": {**each["function"], "strict": True}}
        for each in map(convert_to_openai_tool, FIFTY)
    ]
    bound = model.bind_tools(tools).bind(response_format=sent)
    for number in range(12):
        turn: list[BaseMessage] = [HumanMessage(f"Who ordered part {number}? " + "Some background to it. " * 120)]
        while not isinstance(turn[-1], AIMessage) or turn[-1].tool_calls:
            context = pipeline.assemble(turn, tools=tools, response_format=sent, **SCOPE)
            answer = bound.invoke(context.messages)
            body = server.received[-1]
            assert (len(body["tools"]), len(body["messages"])) == (50, len(context.messages))
            assert received_tokens(body, model) <= context.report.total_tokens <= WINDOW - RESERVE
            overhead = context.report.overhead_tokens
            counted = model.get_num_tokens_from_messages(context.messages)
            assert counted + overhead["tool schemas"] + overhead["response format"] == context.report.total_tokens
            turn.append(answer)
            turn += [
                ToolMessage(f"Entry of register {number}: {key['args']}. " * 25, tool_call_id=key["id"])
                for key in answer.tool_calls
            ]
        pipeline.add_messages(turn, **SCOPE)
    assert len(server.received) == 24
    assert context.report.history_strategy != "full", "it has grown past the window"


def test_the_format_of_a_pydantic_class_is_counted_as_chat_openai_sends_it(
    server: OpenAIServer, model: ChatOpenAI
) -> None:
    class Verdict(BaseModel):
        """A verdict with its reasons."""

        parts: list[Part]
        sound: bool = Field(description="Whether it holds.")

    server.answer = lambda _: says('{"parts": [], "sound": true}')
    context = ContextPipeline(model=model, store=InMemoryStore()).assemble("Judge.", response_format=Verdict, **SCOPE)
    model.with_structured_output(Verdict, method="json_schema").invoke(context.messages)
    [body] = server.received
    assert context.report.overhead_tokens["response format"] >= json_tokens(body["response_format"])


# Content that is not text
