"""OpenAI keeps responses: a model that goes on with one reads all that is kept there, and not the prompt it is sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import SecretStr

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline
from tests.integration_tests.strict_openai_server import responses_problems

pytestmark = pytest.mark.usefixtures("offline_tiktoken")
SCOPE = {"user_id": "ada", "conversation_id": "c1"}
ANSWER: list[Any] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "text", "text": "It is 5 m long.", "id": "msg_1"},
]
SAID = [
    HumanMessage("How long is it?", id="h1"),
    AIMessage(ANSWER, id="resp_1", response_metadata={"id": "resp_1", "model_provider": "openai", "model": "gpt-5"}),
]
ASKED = HumanMessage("And how wide?", id="h2")


def keeping(*said: BaseMessage) -> ContextPipeline:
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(said, **SCOPE)
    return pipeline


def request_of(messages: list[BaseMessage]) -> dict[str, Any]:
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_previous_response_id=True)
    return model._get_request_payload(messages)


def test_without_the_package_only_what_comes_after_the_answer_is_sent() -> None:
    sent = request_of([*SAID, ASKED])
    assert (sent["previous_response_id"], len(sent["input"])) == ("resp_1", 1)


def test_the_whole_prompt_or_window_is_sent_with_the_ids_of_its_items() -> None:
    pipeline = keeping(*SAID)
    sent = request_of(pipeline.assemble(ASKED, **SCOPE).messages)
    assert "previous_response_id" not in sent
    assert [part.get("role", part["type"]) for part in sent["input"]] == ["user", "reasoning", "assistant", "user"]
    assert [part["id"] for part in sent["input"] if "id" in part] == ["rs_1", "msg_1"]
    history = BudgetedChatMessageHistory("c1", user_id="ada", pipeline=pipeline)
    assert "previous_response_id" not in request_of([*history.window(500), ASKED])


# Ids of items that come twice: a turn that was copied, an edited branch, an answer that was put together of two

NUMBER = st.integers(1, 3)
CALL_ID = NUMBER.map("call_{}".format)


def item(kind: str, prefix: str, **rest: Any) -> st.SearchStrategy[Any]:
    fixed = {key: value if isinstance(value, st.SearchStrategy) else st.just(value) for key, value in rest.items()}
    return st.fixed_dictionaries({"type": st.just(kind), "id": NUMBER.map(f"{prefix}_{{}}".format), **fixed})


CALL: st.SearchStrategy[Any] = item("function_call", "fc", call_id=CALL_ID, name="find", arguments="{}")
STANDARD_CALL = st.fixed_dictionaries(
    {
        "type": st.just("tool_call"),
        "id": CALL_ID,
        "name": st.just("find"),
        "args": st.just({}),
        "extras": st.builds(lambda number: {"item_id": f"fc_{number}"}, NUMBER),
    }
)
SEARCH = item("web_search_call", "ws", status="completed")
REASONING = item("reasoning", "rs", summary=[])
TEXT = item("text", "msg", text=st.sampled_from(["Yes.", "No."]))
BLOCK = st.one_of(TEXT, CALL, STANDARD_CALL, SEARCH, REASONING, item("code_interpreter_call", "ci", code="1"))


def item_id(block: dict[str, Any]) -> str:
    return str(block.get("extras", {}).get("item_id", block["id"]))


def said(blocks: list[Any]) -> list[BaseMessage]:
    calls = {str(block.get("call_id") or block["id"]): "find" for block in blocks if "call" in block["type"]}
    own = [key for key in calls if key.startswith("call_")]
    asks = AIMessage(
        blocks,
        tool_calls=[{"name": "find", "args": {}, "id": key} for key in own],
        response_metadata={"model_provider": "openai"},
    )
    return [HumanMessage("And now?"), asks, *(ToolMessage("Found.", tool_call_id=key) for key in own)]


TURN = st.builds(said, st.lists(BLOCK, min_size=1, max_size=4, unique_by=item_id))


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.lists(TURN, min_size=1, max_size=5))
def test_no_item_stands_twice_in_a_request(turns: list[list[BaseMessage]]) -> None:
    pipeline = keeping(*(message for turn in turns for message in turn))
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_responses_api=True)
    request = model._get_request_payload(pipeline.assemble("And then?", **SCOPE).messages)
    assert [problem for problem in responses_problems(request) if "duplicate item id" in problem] == []


def test_a_search_that_was_sent_before_is_left_out_and_its_words_stay() -> None:
    found: Any = [{"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"type": "text", "text": "5 m."}]
    pipeline = ContextPipeline(store=InMemoryStore())
    for _ in range(2):
        pipeline.add_messages([HumanMessage("How long?"), AIMessage(found)], **SCOPE)
    context = pipeline.assemble(ASKED, **SCOPE)
    model = ChatOpenAI(model="gpt-5", api_key=SecretStr("x"), use_responses_api=True)
    items = model._get_request_payload(context.messages)["input"]
    assert [part["type"] for part in items].count("web_search_call") == 1
    assert str(items).count("5 m.") == 2
    assert [repair.kind for repair in context.report.repairs] == ["item_id"]
