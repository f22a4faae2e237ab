"""The whole request fits: what a server receives is counted again by rules that are not this package's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, Field, SecretStr

from langchain_ctxbudget import ContextPipeline
from tests.integration_tests.openai_server import OpenAIServer, calls, says
from tests.integration_tests.strict_openai_server import count

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
WINDOW, RESERVE = 16_000, 2_000
SYSTEM_PROMPT = "You are the assistant of a workshop. Look things up before you answer."


class Part(BaseModel):
    """A part of an order."""

    number: str = Field(description="The number of the part.")
    colour: Literal["red", "green", "blue"] | None = None


class Order(BaseModel):
    """An order as it is written into the books."""

    customer: str = Field(description="Who orders.")
    parts: list[Part] = Field(description="What is ordered, at least one part.")
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


def received_tokens(body: Mapping[str, Any], model: ChatOpenAI) -> int:
    """A request as the server got it: tools by the published rule, and not below their compact JSON."""
    messages = model.get_num_tokens_from_messages(convert_to_messages(body["messages"]))
    return messages + max(cookbook_tokens(body["tools"]), sum(map(json_tokens, body["tools"])))


def looks_up_first(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Calls two tools at once, and answers when their results are there."""
    if body["messages"][-1]["role"] == "tool":
        return says("The register has three entries of that name, the newest from last Monday. " * 4)
    turn = len(body["messages"])
    wanted = {"query": f"entry {turn}", "limit": 5, "order": "newest"}
    return calls((f"a{turn}", "search_register_1", wanted), (f"b{turn}", "search_register_2", wanted))


def test_fifty_tools_and_a_response_format_over_many_turns_stay_within_the_window(offline_tiktoken: None) -> None:
    with OpenAIServer(looks_up_first) as server:
        use_tools(server)


def use_tools(server: OpenAIServer) -> None:
    profile: Any = {"max_input_tokens": WINDOW, "max_output_tokens": RESERVE}
    model = ChatOpenAI(model="gpt-4o", base_url=server.url, api_key=SecretStr("x"), profile=profile, max_retries=0)
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
            sent_tokens = received_tokens(body, model) + json_tokens(body["response_format"])
            assert sent_tokens <= context.report.total_tokens <= WINDOW - RESERVE
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
