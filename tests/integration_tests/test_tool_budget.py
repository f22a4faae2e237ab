"""Tools under a budget: which are bound, which are named, and how the model gets at the others."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from langchain_ctxbudget import ChromaStore, ContextPipeline, ContextReport
from langchain_ctxbudget.budget import Reason, Status
from langchain_ctxbudget.report import LayerReport

TOPICS = {
    "weather": "Tells the weather of a city on a day.",
    "invoices": "Lists the unpaid invoices of a customer.",
    "flights": "Finds flights between two airports.",
    "chess": "Suggests a move in a game of chess.",
    "recipes": "Finds recipes that use an ingredient.",
}
MANY = 12


def schema(server: str, number: int) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": f"{server}__{server}_{number}",
            "description": f"{TOPICS[server]} Variant {number}.",
            "parameters": {
                "type": "object",
                "properties": {"what": {"type": "string", "description": "What it is about."}},
                "required": ["what"],
            },
        },
    }


TOOLS = [schema(server, number) for number in range(MANY) for server in TOPICS]
LIMIT = 900
SETTINGS = {"max_context_tokens": 4_000, "tool_tokens": LIMIT, "learn": False}


def names(tools: list[Any]) -> list[str]:
    return [tool["function"]["name"] if isinstance(tool, dict) else tool.name for tool in tools]


def layer_of_tools(report: ContextReport) -> LayerReport:
    return report.layer("L8")


def own(tools: list[Any], name: str) -> BaseTool:
    return next(tool for tool in tools if isinstance(tool, BaseTool) and tool.name == name)


def called(name: str, number: int, result: str = "done") -> list[BaseMessage]:
    call = {"name": name, "args": {"what": "x"}, "id": f"t{number}"}
    return [
        AIMessage("", id=f"a{number}", tool_calls=[call]),
        ToolMessage(result, tool_call_id=f"t{number}", name=name, id=f"r{number}"),
    ]


def test_without_a_limit_all_tools_are_bound_as_they_were_given() -> None:
    chat = ContextPipeline().conversation("c1", user_id="ada")
    assert chat.assemble("Hello", tools=TOOLS).tools == TOOLS


def test_tools_that_fit_the_limit_are_bound_as_they_were_given() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    assert chat.assemble("Hello", tools=TOOLS[:3]).tools == TOOLS[:3]


def test_bound_tools_cost_at_most_the_limit() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    context = chat.assemble("What is the weather in Rome?", tools=TOOLS)
    items = layer_of_tools(context.report).items
    bound = [item for item in items if item.status is Status.INCLUDED]
    assert 0 < sum(item.tokens for item in bound if item.reason is not Reason.NAMES_TOOLS) <= LIMIT


def test_the_tools_that_fit_the_message_are_bound() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    bound = names(chat.assemble("Which flights go from Rome to Oslo?", tools=TOOLS).tools)
    assert {name.split("__")[0] for name in bound if "__" in name} == {"flights"}


def test_two_tools_give_access_to_those_that_are_not_bound() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    assert names(chat.assemble("Hello", tools=TOOLS).tools)[-2:] == ["find_tools", "call_tool"]


def test_the_system_message_names_the_other_tools_by_server() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    context = chat.assemble("Which flights go from Rome to Oslo?", tools=TOOLS)
    assert "- chess: chess__chess_0, chess__chess_1" in context.messages[0].text


def test_many_names_give_way_to_the_numbers_of_tools_by_server() -> None:
    settings = {**SETTINGS, "max_context_tokens": 2_000}
    chat = ContextPipeline(settings).conversation("c1", user_id="ada")
    context = chat.assemble("Which flights go from Rome to Oslo?", tools=TOOLS)
    assert f"- chess: {MANY} tools" in context.messages[0].text


def test_the_total_is_what_messages_and_bound_tools_cost() -> None:
    pipeline = ContextPipeline(SETTINGS)
    context = pipeline.conversation("c1", user_id="ada").assemble("Hello", tools=TOOLS)
    counter = pipeline.engine.target.counter
    recounted = counter.count_messages(context.messages) + counter.count_tools(context.tools)
    assert context.report.total_tokens == recounted


def test_every_tool_is_accounted_for() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    layer = layer_of_tools(chat.assemble("Hello", tools=TOOLS).report)
    listed = [item for item in layer.items if item.reason is not Reason.NAMES_TOOLS]
    assert len(listed) + sum(layer.more_omitted.values()) == len(TOOLS) + 2


@given(limit=st.integers(300, 5_000), question=st.sampled_from([*TOPICS, "Hello", "a b c"]))
def test_layers_and_overhead_add_up(limit: int, question: str) -> None:
    chat = ContextPipeline({**SETTINGS, "max_context_tokens": 9_000}).conversation(
        "c1", user_id="ada"
    )
    report = chat.assemble(question, tools=TOOLS, settings={"tool_tokens": limit}).report
    used = sum(layer.used_tokens for layer in report.layers)
    assert used + sum(report.overhead_tokens.values()) == report.total_tokens


def test_the_list_stays_while_an_agent_loops() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    turn: list[BaseMessage] = [HumanMessage("Find me a flight to Oslo.", id="h")]
    first = chat.assemble(turn, tools=TOOLS).tools
    turn += called("chess__chess_3", 1)
    turn += called("recipes__recipes_1", 2)
    assert chat.assemble(turn, tools=TOOLS).tools == first


def test_the_list_stays_while_prompts_only_grow() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    first = chat.assemble("Find me a flight to Oslo.", tools=TOOLS)
    chat.add(first.turn, AIMessage("There is one at noon."))
    second = chat.assemble("What is a good move in chess?", tools=TOOLS)
    assert (second.tools, second.report.stability.mode) == (first.tools, "extended")


def test_the_list_is_the_same_after_a_restart(tmp_path: Any) -> None:
    turn: list[BaseMessage] = [HumanMessage("Find me a flight to Oslo.", id="h")]
    with ContextPipeline(SETTINGS, store=ChromaStore(tmp_path)) as pipeline:
        first = pipeline.conversation("c1", user_id="ada").assemble(turn, tools=TOOLS)
    turn += called("chess__chess_3", 1)
    with ContextPipeline(SETTINGS, store=ChromaStore(tmp_path)) as pipeline:
        second = pipeline.conversation("c1", user_id="ada").assemble(turn, tools=TOOLS)
    assert names(second.tools) == names(first.tools)


def test_a_tool_that_was_used_is_bound_from_the_next_rebuild_on() -> None:
    settings = {**SETTINGS, "cache_lifetime_seconds": 0}
    chat = ContextPipeline(settings).conversation("c1", user_id="ada")
    chat.add(HumanMessage("Your move?"), *called("chess__chess_7", 1), AIMessage("Done."))
    assert "chess__chess_7" in names(chat.assemble("And flights to Oslo?", tools=TOOLS).tools)


def test_a_tool_that_was_called_by_way_of_call_tool_counts_as_used() -> None:
    settings = {**SETTINGS, "cache_lifetime_seconds": 0}
    chat = ContextPipeline(settings).conversation("c1", user_id="ada")
    call = {"name": "call_tool", "args": {"name": "chess__chess_7", "arguments": {}}, "id": "t"}
    messages = [
        HumanMessage("Your move?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("e4", tool_call_id="t"),
        AIMessage("Done."),
    ]
    chat.add(messages)
    assert "chess__chess_7" in names(chat.assemble("And flights to Oslo?", tools=TOOLS).tools)


@pytest.mark.parametrize("told", ["`chess__chess_7` is for chess.", "Call chess__chess_7 first."])
def test_a_tool_that_the_system_prompt_names_is_bound(told: str) -> None:
    chat = ContextPipeline(SETTINGS, system_prompt=told).conversation("c1", user_id="ada")
    context = chat.assemble("And flights to Oslo?", tools=TOOLS)
    [item] = [one for one in layer_of_tools(context.report).items if one.id == "chess__chess_7"]
    assert item.reason is Reason.NAMED


@pytest.mark.parametrize("limit", [LIMIT, 1], ids=["room for some", "room for none"])
def test_a_required_tool_is_bound_in_any_case(limit: int) -> None:
    settings = {**SETTINGS, "tool_tokens": limit, "required_tools": ["chess__chess_7"]}
    chat = ContextPipeline(settings).conversation("c1", user_id="ada")
    context = chat.assemble("And flights to Oslo?", tools=TOOLS)
    [item] = [one for one in layer_of_tools(context.report).items if one.id == "chess__chess_7"]
    assert item.reason is Reason.CONFIGURED


def test_another_set_of_tools_rebuilds_the_prompt() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    first = chat.assemble("Find me a flight to Oslo.", tools=TOOLS)
    chat.add(first.turn, AIMessage("There is one at noon."))
    others = [tool for tool in TOOLS if "flights" not in tool["function"]["name"]]
    report = chat.assemble("Thanks!", tools=others).report
    assert report.stability.cause == "other_tools"


def test_a_search_tells_how_to_call_what_it_finds() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    told = chat.find_tools("a chess move", tools=TOOLS)
    assert "chess__chess_" in told
    assert "what (string, required)" in told


def test_a_search_in_async_code_finds_the_same() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    told = asyncio.run(chat.afind_tools("a chess move", tools=TOOLS))
    assert told == chat.find_tools("a chess move", tools=TOOLS)


def many_functions() -> list[BaseTool]:
    def answer(what: str) -> str:
        return f"answer to {what}"

    return [
        StructuredTool.from_function(
            answer, name=f"{server}_{number}", description=f"{TOPICS[server]} Variant {number}."
        )
        for number in range(MANY)
        for server in TOPICS
    ]


def test_a_tool_that_is_not_bound_can_be_called() -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    context = chat.assemble("Find me a flight to Oslo.", tools=many_functions())
    call_tool = own(context.tools, "call_tool")
    assert call_tool.invoke({"name": "chess_3", "arguments": {"what": "e4"}}) == "answer to e4"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ({"name": "chess_3", "arguments": {}}, "missing: what"),
        ({"name": "nothing_1", "arguments": {}}, "There is no tool 'nothing_1'."),
    ],
)
def test_a_call_that_cannot_be_made_is_told_why(call: dict[str, Any], told: str) -> None:
    chat = ContextPipeline(SETTINGS).conversation("c1", user_id="ada")
    context = chat.assemble("Find me a flight to Oslo.", tools=many_functions())
    assert told in own(context.tools, "call_tool").invoke(call)


def test_a_tool_that_was_changed_in_place_is_counted_as_it_is_now() -> None:
    chat = ContextPipeline().conversation("c1", user_id="ada")
    tools = [schema("chess", 1)]
    before = chat.assemble("Hello", tools=tools).report.total_tokens
    tools[0]["function"]["description"] *= 3
    assert chat.assemble("Hello", tools=tools).report.total_tokens > before
