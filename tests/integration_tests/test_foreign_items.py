"""Items of one provider on their way to another: reasoning goes, server tools become texts."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_mistralai import ChatMistralAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    ContextPipeline,
)
from tests.cases import few_are_quick
from tests.doubles.providers import APIS

SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
SECRET = "thought of before"
SAID = "High water is at 18:04."
MODELS: Mapping[str, Any] = {
    "openai": ChatOpenAI(model="gpt-4o", api_key="x"),
    "openai-responses": ChatOpenAI(model="gpt-4o", api_key="x", use_responses_api=True),
    "openai-compatible": ChatOpenAI(model="qwen", api_key="x", base_url="http://gateway.invalid"),
    "anthropic": ChatAnthropic(model="claude-sonnet-4-5", api_key="x"),
    "google": ChatGoogleGenerativeAI(model="gemini-2.5-pro", api_key="x"),
    "mistral": ChatMistralAI(model="mistral-large-latest", api_key="x"),
    "ollama": ChatOllama(model="qwen3"),
}
OWN = {
    ("openai", "openai-responses"),
    ("openai-v1", "openai-responses"),
    ("anthropic", "anthropic"),
    ("anthropic-v1", "anthropic"),
    ("google", "google"),
    ("mistral", "mistral"),
}
"""Whose items go back to whom."""


def answer(provider: str, content: list[Any], **metadata: Any) -> AIMessage:
    return AIMessage(content, id="a1", response_metadata={"model_provider": provider, **metadata})


ENCRYPTED = "gAAAAB" + "x7Qz" * 60
ANSWERS: Mapping[str, AIMessage] = {
    "openai": answer(
        "openai",
        [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": SECRET}],
            },
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "tides at Brest"},
            },
            {
                "type": "text",
                "id": "msg_1",
                "text": SAID,
                "annotations": [
                    {"type": "url_citation", "url": "https://tides.example", "title": "Tides"}
                ],
            },
        ],
    ),
    "openai-v1": answer(
        "openai",
        [
            {"type": "reasoning", "id": "rs_1", "reasoning": SECRET},
            {
                "type": "server_tool_call",
                "name": "web_search",
                "id": "ws_1",
                "args": {"type": "search", "query": "tides at Brest"},
            },
            {"type": "server_tool_result", "tool_call_id": "ws_1", "status": "success"},
            {
                "type": "text",
                "id": "msg_1",
                "text": SAID,
                "annotations": [
                    {"type": "citation", "url": "https://tides.example", "title": "Tides"}
                ],
            },
        ],
        output_version="v1",
    ),
    "anthropic": answer(
        "anthropic",
        [
            {"type": "thinking", "thinking": SECRET, "signature": "EqQB"},
            {"type": "redacted_thinking", "data": ENCRYPTED},
            {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {"query": "tides at Brest"},
            },
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "title": "Tides",
                        "url": "https://tides.example",
                        "encrypted_content": ENCRYPTED,
                    }
                ],
            },
            {
                "type": "text",
                "text": SAID,
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "url": "https://tides.example",
                        "title": "Tides",
                        "cited_text": "18:04",
                        "encrypted_index": "Eo8B",
                    }
                ],
            },
        ],
    ),
    "anthropic-v1": answer(
        "anthropic",
        [
            {"type": "reasoning", "reasoning": SECRET, "extras": {"signature": "EqQB"}},
            {
                "type": "server_tool_call",
                "name": "web_search",
                "id": "srvtoolu_1",
                "args": {"query": "tides at Brest"},
            },
            {
                "type": "server_tool_result",
                "tool_call_id": "srvtoolu_1",
                "status": "success",
                "output": [
                    {
                        "type": "web_search_result",
                        "title": "Tides",
                        "url": "https://tides.example",
                        "encrypted_content": ENCRYPTED,
                    }
                ],
                "extras": {"block_type": "web_search_tool_result"},
            },
            {"type": "text", "text": SAID},
        ],
        output_version="v1",
    ),
    "google": answer(
        "google_genai",
        [
            {"type": "thinking", "thinking": SECRET, "signature": "EqQB"},
            {
                "type": "executable_code",
                "executable_code": "tides_at('Brest')",
                "language": "PYTHON",
            },
            {
                "type": "code_execution_result",
                "code_execution_result": "tides.example",
                "outcome": 1,
            },
            {"type": "text", "text": SAID, "extras": {"signature": "EqQB"}},
        ],
    ),
    "mistral": answer(
        "mistralai",
        [
            {"type": "thinking", "thinking": [{"type": "text", "text": SECRET}]},
            {"type": "text", "text": SAID},
        ],
    ),
    "converse": answer(
        "bedrock_converse",
        [
            {"type": "reasoning_content", "reasoning_content": {"text": SECRET, "signature": "Eq"}},
            {"type": "text", "text": SAID},
        ],
    ),
}
ITEMS = (
    "reasoning_content",
    "redacted_thinking",
    "server_tool",
    "web_search_call",
    "web_search_tool_result",
    "executable_code",
    "code_execution_result",
    "rs_1",
    "ws_1",
    "EqQB",
)
"""What must not be in a request to another provider."""
PAIRS = [(author, target) for author in ANSWERS for target in MODELS]
FOREIGN = [pair for pair in PAIRS if pair not in OWN]


def payload(target: str, messages: Sequence[BaseMessage]) -> str:
    """What is sent, as the provider's own package writes it."""
    model = MODELS[target]
    match model:
        case ChatGoogleGenerativeAI():
            request: object = model._prepare_request(list(messages))
        case ChatMistralAI():
            request = model._create_message_dicts(list(messages), None)
        case ChatOllama():
            request = model._convert_messages_to_ollama_messages(list(messages))
        case _:
            request = model._get_request_payload(list(messages))
    return json.dumps(request, ensure_ascii=False, default=str)


def conversation(author: str) -> list[BaseMessage]:
    return [HumanMessage("When is high water?", id="h1"), ANSWERS[author]]


def assembled(author: str, target: str, budget: int = 8_000) -> AssembledContext:
    pipeline = ContextPipeline(
        {"max_context_tokens": budget}, model=MODELS[target], store=InMemoryStore()
    )
    question, answer = conversation(author)
    pipeline.assemble([question], **SCOPE)  # Claude's thoughts are bound to this prompt
    pipeline.add_messages([question, answer], **SCOPE)
    return pipeline.assemble("And low water?", **SCOPE)


@pytest.mark.parametrize("pair", few_are_quick([*FOREIGN[::3], *FOREIGN], 14))
def test_another_provider_gets_the_words_and_no_items(pair: tuple[str, str]) -> None:
    author, target = pair
    sent = payload(target, assembled(author, target).messages)

    assert SAID in sent
    assert SECRET not in sent
    assert [item for item in ITEMS if item in sent] == []


@pytest.mark.parametrize("pair", few_are_quick([*FOREIGN[::5], *FOREIGN], 9))
def test_what_is_left_out_is_told(pair: tuple[str, str]) -> None:
    author, target = pair
    kinds = {repair.kind for repair in assembled(author, target).report.repairs}

    assert "foreign_reasoning" in kinds


SEARCHES = [pair for pair in FOREIGN if pair[0] in ("openai", "anthropic", "anthropic-v1")]


@pytest.mark.parametrize("pair", few_are_quick([*SEARCHES[::3], *SEARCHES], 6))
def test_a_search_is_read_as_what_was_searched_and_found(pair: tuple[str, str]) -> None:
    author, target = pair
    text = assembled(author, target).messages[-2].text

    assert "[web_search: tides at Brest]" in text
    assert "- Tides (https://tides.example)" in text
    assert "{" not in text


@pytest.mark.parametrize(("author", "target"), sorted(OWN))
def test_its_own_items_come_back(author: str, target: str) -> None:
    context = assembled(author, target)

    assert context.messages[-2].content == ANSWERS[author].content
    assert SECRET in payload(target, context.messages)
    assert context.report.repairs == ()


@pytest.mark.parametrize("author", ANSWERS)
def test_items_stay_where_the_provider_is_not_known(author: str) -> None:
    pipeline = ContextPipeline(store=InMemoryStore())
    pipeline.add_messages(conversation(author), **SCOPE)

    context = pipeline.assemble("And low water?", **SCOPE)

    assert context.messages[-2].content == ANSWERS[author].content


@pytest.mark.parametrize(("author", "target"), [("openai", "anthropic"), ("anthropic", "openai")])
def test_the_stored_message_is_as_it_was(author: str, target: str) -> None:
    pipeline = ContextPipeline(model=MODELS[target], store=InMemoryStore())
    pipeline.add_messages(conversation(author), **SCOPE)
    pipeline.assemble("And low water?", **SCOPE)

    [_, stored] = pipeline.conversation("c1", user_id="ada").messages()
    assert stored.content == ANSWERS[author].content


def test_a_page_that_is_found_and_cited_is_told_once() -> None:
    page = {"type": "url", "url": "https://tides.example"}
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "tides", "sources": [page]},
    }
    citation = {"type": "url_citation", "url": "https://tides.example", "title": "Tides"}
    said = {"type": "text", "text": SAID, "annotations": [citation]}
    pipeline = ContextPipeline(
        {"max_context_tokens": 8_000}, model=MODELS["anthropic"], store=InMemoryStore()
    )
    pipeline.add_messages([HumanMessage("Tides?"), answer("openai", [search, said])], **SCOPE)

    [sent, _] = pipeline.assemble("And low water?", **SCOPE).messages[-2:]

    assert sent.text.count("https://tides.example") == 1


def test_an_answer_without_a_provider_goes_by_the_form_of_its_blocks() -> None:
    pipeline = ContextPipeline(model=MODELS["openai"], store=InMemoryStore())
    untold = ANSWERS["anthropic"].model_copy(update={"response_metadata": {}})
    pipeline.add_messages([HumanMessage("When?", id="h1"), untold], **SCOPE)

    sent = payload("openai", pipeline.assemble("And low water?", **SCOPE).messages)

    assert [item for item in ITEMS if item in sent] == []


@pytest.mark.parametrize("pair", few_are_quick(FOREIGN, 4))
@pytest.mark.parametrize("budget", [4_000, 128_000])
def test_a_long_conversation_of_them_fits(pair: tuple[str, str], budget: int) -> None:
    author, target = pair
    pipeline = ContextPipeline(
        {"max_context_tokens": budget}, model=MODELS[target], store=InMemoryStore()
    )
    messages: list[BaseMessage] = []
    for number in range(60):
        messages.append(HumanMessage(f"When is high water on day {number}?", id=f"h{number}"))
        messages.append(ANSWERS[author].model_copy(update={"id": f"a{number}"}))
    pipeline.add_messages(messages, **SCOPE)
    context = pipeline.assemble("And low water?", **SCOPE)

    assert context.report.total_tokens <= budget
    sent = payload(target, context.messages)
    assert SECRET not in sent


def test_reasoning_beside_the_content_does_not_go_to_another_provider() -> None:
    pipeline = ContextPipeline(model=MODELS["ollama"], store=InMemoryStore())
    told = {"model_provider": "deepseek"}
    thought = {"reasoning_content": SECRET}
    reply = AIMessage(SAID, additional_kwargs=thought, response_metadata=told)
    pipeline.add_messages([HumanMessage("When?"), reply], **SCOPE)

    context = pipeline.assemble("And low water?", **SCOPE)

    assert SECRET not in payload("ollama", context.messages)
    assert [repair.kind for repair in context.report.repairs] == ["foreign_reasoning"]


PIXELS = "iVBORw0KGgo" * 40
IMAGES: Mapping[str, dict[str, Any]] = {
    "raw": {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PIXELS},
    "v1": {"type": "image", "id": "ig_1", "base64": PIXELS, "mime_type": "image/png"},
}


@pytest.mark.parametrize("form", IMAGES)
@pytest.mark.parametrize("target", [name for name in MODELS if name != "openai-responses"])
def test_an_image_that_a_server_tool_has_made_becomes_a_line(target: str, form: str) -> None:
    pipeline = ContextPipeline(model=MODELS[target], store=InMemoryStore())
    drawn = answer("openai", [IMAGES[form], {"type": "text", "text": SAID}])
    pipeline.add_messages([HumanMessage("Draw it."), drawn], **SCOPE)

    context = pipeline.assemble("And low water?", **SCOPE)

    sent = payload(target, context.messages)
    assert "ig_1" not in sent
    assert PIXELS not in sent
    assert "[image left out" in sent
    assert SAID in sent
    assert "foreign_item" in {repair.kind for repair in context.report.repairs}


UNKNOWN = {"type": "hologram", "id": "x", "note": "It turns."}


@pytest.mark.parametrize("target", MODELS)
def test_an_item_of_another_provider_that_nobody_knows_is_read(target: str) -> None:
    pipeline = ContextPipeline(model=MODELS[target], store=InMemoryStore())
    pipeline.add_messages([HumanMessage("Draw it."), answer("cohere", [UNKNOWN])], **SCOPE)

    sent = payload(target, pipeline.assemble("And low water?", **SCOPE).messages)

    assert "hologram" not in sent
    assert "It turns." in sent


def test_an_item_of_its_own_that_came_up_later_comes_back() -> None:
    pipeline = ContextPipeline(model=MODELS["anthropic"], store=InMemoryStore())
    pipeline.add_messages([HumanMessage("Draw it."), answer("anthropic", [UNKNOWN])], **SCOPE)

    context = pipeline.assemble("And low water?", **SCOPE)

    assert context.messages[-2].content == [UNKNOWN]


# An answer that is handed on: as a user's message to another agent, or as the result of one


def handed_on(author: str, as_result: bool) -> list[BaseMessage]:
    content: Any = ANSWERS[author].content
    if not as_result:
        return [HumanMessage("Ask.", id="h1"), HumanMessage(content, name="scout", id="h2")]
    call = {"name": "scout", "args": {}, "id": "c1"}
    result = ToolMessage(content, tool_call_id="c1", id="t1")
    return [HumanMessage("Ask.", id="h1"), AIMessage("", tool_calls=[call], id="a1"), result]


HANDED_ON = few_are_quick(list(product(ANSWERS, [True, False], APIS)), 12)


@pytest.mark.parametrize("case", HANDED_ON)
@pytest.mark.parametrize("in_turn", [True, False], ids=["turn", "history"])
def test_an_answer_that_is_handed_on_is_sent_as_words(
    case: tuple[str, bool, str], in_turn: bool
) -> None:
    author, as_result, name = case
    api = APIS[name]
    pipeline = ContextPipeline(model=api.model, store=InMemoryStore())
    messages = handed_on(author, as_result)
    if not in_turn:
        pipeline.add_messages([*messages, AIMessage("Good.", id="a2")], **SCOPE)
        messages = [HumanMessage("And low water?", id="h3")]

    context = pipeline.assemble(messages, **SCOPE)

    assert api.problems(context.messages) == []
    sent = json.dumps(api.body_of(context.messages))
    assert SAID in sent
    assert SECRET not in sent
    assert context.report.repairs != ()


@pytest.mark.parametrize("as_result", [True, False])
def test_what_a_model_has_searched_is_read_where_it_is_handed_on(as_result: bool) -> None:
    pipeline = ContextPipeline(model=MODELS["anthropic"], store=InMemoryStore())

    context = pipeline.assemble(handed_on("anthropic", as_result), **SCOPE)

    assert "[web_search: tides at Brest]" in str(context.messages[-1].content)
    assert "items of a model's answer sent as text" in str(context.report.repairs)
