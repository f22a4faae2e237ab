"""Items and overhead are the layer, layers and overhead are the total, the total is what the messages cost.

In the data of a report, in its chart and in its card.
"""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, ContextReport, KnowledgeBase, TiktokenCounter
from langchain_ctxbudget.demo import demo_messages
from langchain_ctxbudget.errors import BudgetTooSmallError
from tests.integration_tests import strategies as made
from tests.unit_tests.test_report_views import Card

SCOPE = {"user_id": "ada", "conversation_id": "c1"}
DOCUMENTS = (
    "# The plan\n\nThe budget of the plan is 42,50 €.\n\n## Bonn\n\nAda decided that error() goes to main.py.",
    "北京 budget: we agreed on the plan. " * 40,
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks <b>things</b> up.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    for name in ("look_up", "weather")
]
FORMAT = {"title": "Answer", "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ROW = re.compile(r"^.*?[█░]+ +(-?[\d,]+)(?: |$)")

# Real conversations are long enough for summaries, an arc and things worth finding; generated ones have every oddity.
real = st.builds(lambda first, count: demo_messages()[first : first + count], st.integers(0, 200), st.integers(10, 50))
known = {
    "topics": [{"label": "plan", "context": "The plan is due in May."}],
    "entities": [{"name": "Ada", "context": "Ada leads the work on the labels."}],
    "learn": False,
}
worlds = st.fixed_dictionaries(
    {
        "history": made.history | made.history | real,
        "turn": made.turns | st.just("What did Ada plan for the labels?"),
        "budget": st.integers(100, 3_000),
        "settings": made.settings | made.settings.map(lambda changes: {**changes, **known}),
        "elsewhere": st.lists(made.said, max_size=3),
        "documents": st.booleans(),
        "tools": st.sampled_from([(), TOOLS[:1], TOOLS]),
        "response_format": st.sampled_from([None, FORMAT]),
        "width": st.sampled_from([40, 60, 80]),
    }
)


def assembled(world: dict[str, Any]) -> AssembledContext:
    """A prompt of this world; where the budget is too small, with the smallest that is enough."""
    store = InMemoryStore()
    pipeline = ContextPipeline(world["settings"], system_prompt="Be careful: </context>.", store=store)
    pipeline.add_messages(world["history"], **SCOPE)
    if world["elsewhere"]:
        said: list[BaseMessage] = [HumanMessage(text) for text in world["elsewhere"]]
        pipeline.add_messages(said, user_id="ada", conversation_id="c2")
    if world["documents"]:
        knowledge = KnowledgeBase(store, user_id="ada")
        for number, text in enumerate(DOCUMENTS):
            knowledge.add(text, metadata={"source": f"{number}.md"})
    extras = {name: world[name] for name in ("tools", "response_format")}
    try:
        return pipeline.assemble(world["turn"], settings={"max_context_tokens": world["budget"]}, **extras, **SCOPE)
    except BudgetTooSmallError as error:
        least = {"max_context_tokens": sum(error.floors.values())}
        return pipeline.assemble(world["turn"], settings=least, **extras, **SCOPE)


def recounted(context: AssembledContext, world: dict[str, Any], chat_openai: ChatOpenAI) -> int:
    """What a request costs, by LangChain's own count of messages and a counter that has counted nothing yet."""
    counter = TiktokenCounter()
    extras = counter.count_tools(world["tools"]) + counter.count_response_format(world["response_format"])
    return chat_openai.get_num_tokens_from_messages(context.messages) + extras


def check_data(data: dict[str, Any], total: int) -> None:
    for layer in data["layers"]:
        items = sum(item["tokens"] for item in layer["items"] if item["status"] != "omitted")
        assert items + layer["overhead_tokens"] == layer["used_tokens"]
    used = sum(layer["used_tokens"] for layer in data["layers"])
    assert used + sum(data["overhead_tokens"].values()) == data["total_tokens"] == total


def check_chart(chart: str, data: dict[str, Any], total: int) -> None:
    *rows, last = [int(found[1].replace(",", "")) for line in chart.splitlines() if (found := ROW.match(line))]
    assert rows == [layer["used_tokens"] for layer in data["layers"]] + list(data["overhead_tokens"].values())
    assert sum(rows) == last == total


def check_card(card: Card, data: dict[str, Any], total: int) -> None:
    layers = card.layers()
    assert list(layers) == [layer["layer"] for layer in data["layers"]]
    assert all(items + overhead == used for items, overhead, used in layers.values())
    assert sum(used for _, _, used in layers.values()) + sum(card.overhead().values()) == card.total() == total


@settings(deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], max_examples=20)
@given(world=worlds)
def test_the_numbers_of_a_report_add_up_wherever_they_stand(world: dict[str, Any], chat_openai: ChatOpenAI) -> None:
    context = assembled(world)
    report, total = context.report, recounted(context, world, chat_openai)
    data = json.loads(json.dumps(report.to_dict()))
    check_data(data, total)
    check_chart(report.to_text(width=world["width"]), data, total)
    check_card(Card(report._repr_html_()), data, total)
    assert ContextReport.from_dict(data) == report
