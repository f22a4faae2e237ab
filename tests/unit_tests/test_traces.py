"""Tests what is particular to traces of LangSmith, Langfuse, OpenTelemetry and Gemini."""

import json
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers import BaseTracer, Run

from langchain_ctxbudget.readers import ReadConversation, parse_conversations
from tests.trace_writers import Record, as_lines, said

TOOL: Record = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
CALLED = AIMessage("", tool_calls=[{"name": "find", "args": {"q": "rye"}, "id": "c1"}])
CALL = {"name": "find", "args": {"q": "rye"}, "id": "c1", "type": "tool_call"}


def read(*records: Record) -> list[ReadConversation]:
    return list(parse_conversations(as_lines(records)).conversations)


def run(inputs: Record, outputs: Record, **fields: Any) -> Record:
    """A run of LangSmith."""
    names = {"id": "r1", "trace_id": "t1", "run_type": "llm", "start_time": "2026-03-05T10:00:00"}
    return names | {"inputs": inputs, "outputs": outputs} | fields


def lc(name: str, **kwargs: Any) -> Record:
    """A message as LangChain.js writes it."""
    path = ["langchain_core", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}


ASKED = [{"role": "user", "content": "Rye?"}]


@pytest.mark.parametrize(
    "outputs",
    [
        pytest.param(
            {"choices": [{"message": {"content": "Yes.", "role": "assistant"}}]}, id="chat"
        ),
        pytest.param({"role": "assistant", "content": "Yes."}, id="a message"),
        pytest.param(
            {"content": [{"type": "text", "text": "Yes."}], "role": "assistant"}, id="claude"
        ),
        pytest.param(
            {
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "Yes."}],
                    }
                ]
            },
            id="responses",
        ),
        pytest.param(
            {"generations": [[{"message": lc("AIMessageChunk", content="Yes.")}]]}, id="js"
        ),
        pytest.param({"generations": [[{"text": "Yes."}]]}, id="a completion"),
        pytest.param({"output": "Yes."}, id="a text"),
    ],
)
def test_answers_of_langsmith_are_read_in_every_form(outputs: Record) -> None:
    [conversation] = read(run({"messages": ASKED}, outputs))

    assert said(conversation.messages) == said([HumanMessage("Rye?"), AIMessage("Yes.")])


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(
            {"messages": [[lc("SystemMessage", content="Be kind"), *ASKED]]}, id="langchain"
        ),
        pytest.param({"messages": ASKED, "system": "Be kind"}, id="anthropic"),
        pytest.param({"input": "Rye?", "instructions": "Be kind"}, id="responses"),
    ],
)
def test_instructions_of_langsmith_are_read_in_every_form(inputs: Record) -> None:
    [conversation] = read(run(inputs, {"output": "Yes."}))

    expected = [SystemMessage("Be kind"), HumanMessage("Rye?"), AIMessage("Yes.")]
    assert said(conversation.messages) == said(expected)


class KeptRuns(BaseTracer):
    """Keeps runs in the form in which LangChain's tracer sends them to LangSmith."""

    def __init__(self) -> None:
        super().__init__(_schema_format="original+chat")
        self.runs: list[Record] = []

    def _persist_run(self, run: Run) -> None:
        self.runs.append(run.model_dump(mode="json"))


def test_runs_that_langchain_writes_are_read() -> None:
    model = GenericFakeChatModel(messages=iter([CALLED, AIMessage("Rye 1200.")]))
    kept = KeptRuns()
    config: RunnableConfig = {"callbacks": [kept], "metadata": {"thread_id": "thread-1"}}
    messages: list[BaseMessage] = [SystemMessage("Be kind"), HumanMessage("Rye?")]
    messages.append(model.invoke(messages, config))
    messages.append(ToolMessage("1200", tool_call_id="c1"))
    messages.append(model.invoke(messages, config))

    [conversation] = read(*kept.runs)

    assert conversation.conversation_id == "thread-1"
    assert said(conversation.messages) == said(messages)


def test_a_run_tells_thread_tools_model_and_tokens() -> None:
    extra = {
        "metadata": {"conversation_id": "thread-1", "ls_model_name": "gpt-x"},
        "invocation_params": {"tools": [TOOL]},
    }
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    outputs = {"choices": [{"message": {"role": "assistant", "content": "Yes."}}], "usage": usage}

    [conversation] = read(run({"messages": ASKED}, outputs, extra=extra))

    reply = conversation.messages[1]
    assert isinstance(reply, AIMessage)
    assert conversation.conversation_id == "thread-1"
    assert conversation.tools == (TOOL,)
    assert reply.response_metadata["model_name"] == "gpt-x"
    assert reply.usage_metadata == {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}


def test_of_a_trace_without_calls_the_state_of_its_graph_is_read_once() -> None:
    state = [
        {"type": "human", "content": "Rye?", "id": "1"},
        {"type": "ai", "content": "Yes.", "id": "2"},
    ]
    graph = run({"messages": ASKED}, {"messages": state}, run_type="chain")
    step = run({"x": 1}, {"y": 2}, run_type="chain", id="r2", parent_run_id="r1")

    [conversation] = read(graph, step)

    assert said(conversation.messages) == said([HumanMessage("Rye?"), AIMessage("Yes.")])


def test_runs_inside_of_runs_are_read() -> None:
    inner = run({"messages": ASKED}, {"output": "Yes."}, id="r2")
    outer = run({"messages": ASKED}, {"output": "Yes."}, run_type="chain", child_runs=[inner])

    [conversation] = read(outer)

    assert len(conversation.messages) == 2


def test_a_call_that_cannot_be_read_is_skipped_by_name() -> None:
    broken = run({"messages": [{"role": "nobody", "content": "x"}]}, {}, name="Broken", id="r2")

    result = parse_conversations(as_lines([run({"messages": ASKED}, {"output": "Yes."}), broken]))

    assert len(result.conversations) == 1
    assert [item.name for item in result.skipped] == ["Broken"]


def test_langfuse_tells_tools_among_messages_and_calls_in_langchains_form() -> None:
    generation = {
        "type": "GENERATION",
        "input": json.dumps([*ASKED, {"role": "tool", "content": TOOL}]),
        "output": {"role": "assistant", "content": "", "tool_calls": [CALL]},
        "usageDetails": {"input": 7, "output": 2},
    }
    trace = {"id": "t1", "sessionId": "session-1", "timestamp": "2026-03-05T10:00:00Z"}

    [conversation] = read({"trace": trace, "observations": [generation]})

    assert conversation.conversation_id == "session-1"
    assert conversation.tools == (TOOL,)
    assert said(conversation.messages) == said([HumanMessage("Rye?"), CALLED])


def test_of_a_langfuse_trace_without_calls_input_and_output_are_read() -> None:
    [conversation] = read({"id": "t1", "observations": [], "input": "Rye?", "output": "Yes."})

    assert said(conversation.messages) == said([HumanMessage("Rye?"), AIMessage("Yes.")])


def span(attributes: Record, **fields: Any) -> Record:
    """A span as the SDK for Python writes it in JSON."""
    context = {"trace_id": "0x1", "span_id": "0x2"}
    times = {"start_time": "2026-03-05T10:00:00.000000Z", "end_time": "2026-03-05T10:00:01.000000Z"}
    return {"name": "chat", "context": context, "attributes": attributes} | times | fields


def parts(role: str, *parts: Record) -> Record:
    return {"role": role, "parts": list(parts)}


def test_parts_of_a_span_become_blocks() -> None:
    sent = parts(
        "user",
        {"type": "text", "content": "Is this rye?"},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "AA=="},
        {"type": "uri", "modality": "document", "uri": "https://example.org/a.pdf"},
    )
    came = parts(
        "assistant",
        {"type": "reasoning", "content": "Hm"},
        {"type": "tool_call", "id": "c1", "name": "find", "arguments": '{"q": "rye"}'},
    )
    attributes = {
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be kind"}]),
        "gen_ai.input.messages": json.dumps([sent]),
        "gen_ai.output.messages": json.dumps([came]),
        "gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "find"}]),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
    }

    [conversation] = read(span(attributes))

    instructions, question, reply = conversation.messages
    assert instructions.text == "Be kind"
    assert question.content == [
        {"type": "text", "text": "Is this rye?"},
        {"type": "image", "base64": "AA==", "mime_type": "image/png"},
        {"type": "file", "url": "https://example.org/a.pdf"},
    ]
    assert isinstance(reply, AIMessage)
    assert reply.content == [{"type": "reasoning", "reasoning": "Hm"}]
    assert [call["args"] for call in reply.tool_calls] == [{"q": "rye"}]
    assert reply.usage_metadata is not None
    assert conversation.tools == ({"type": "function", "name": "find"},)


def test_results_in_a_span_stand_where_they_stood_among_its_parts() -> None:
    sent = parts(
        "user",
        {"type": "text", "content": "Here it is:"},
        {"type": "tool_call_response", "id": "c1"},
        {"type": "text", "content": "Was it found?"},
    )

    [conversation] = read(span({"gen_ai.input.messages": json.dumps([sent])}))

    first, result, last = conversation.messages
    assert (first.text, result.content, last.text) == ("Here it is:", "", "Was it found?")


def test_a_call_in_a_span_is_the_models_whatever_its_role() -> None:
    call = {"type": "tool_call", "id": "c1", "name": "find", "arguments": "{}"}

    [conversation] = read(span({"gen_ai.input.messages": json.dumps([parts("model", call)])}))

    [reply] = conversation.messages
    assert isinstance(reply, AIMessage)
    assert reply.tool_calls[0]["name"] == "find"


def test_the_span_of_an_agent_says_nothing_again() -> None:
    asked = json.dumps([parts("user", {"type": "text", "content": "Rye?"})])
    replied = json.dumps([parts("assistant", {"type": "text", "content": "Yes."})])
    told = {"gen_ai.input.messages": asked, "gen_ai.output.messages": replied}
    other = json.dumps([parts("assistant", {"type": "text", "content": "In the end: yes."})])
    agent = told | {"gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": other}

    [conversation] = read(span(agent), span(told | {"gen_ai.operation.name": "chat"}))

    assert said(conversation.messages) == said([HumanMessage("Rye?"), AIMessage("Yes.")])


def test_details_of_a_call_are_read_from_an_event() -> None:
    asked = [parts("user", {"type": "text", "content": "Rye?"})]
    details = {"gen_ai.input.messages": json.dumps(asked)}
    event = {"name": "gen_ai.client.inference.operation.details", "attributes": details}

    [conversation] = read(span({"gen_ai.operation.name": "chat"}, events=[event]))

    assert said(conversation.messages) == said([HumanMessage("Rye?")])


def test_spans_of_openinference_tell_parts_tools_model_and_tokens() -> None:
    message = "llm.input_messages.0.message"
    attributes = {
        "openinference.span.kind": "LLM",
        f"{message}.role": "user",
        f"{message}.contents.0.message_content.type": "text",
        f"{message}.contents.0.message_content.text": "Is this rye?",
        f"{message}.contents.1.message_content.type": "image",
        f"{message}.contents.1.message_content.image.image.url": "https://example.org/a.png",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Yes.",
        "llm.tools.0.tool.json_schema": json.dumps(TOOL),
        "llm.model_name": "gpt-x",
        "llm.token_count.prompt": 7,
        "llm.token_count.completion": 2,
    }

    [conversation] = read(span(attributes))

    question, reply = conversation.messages
    assert question.content == [
        {"type": "text", "text": "Is this rye?"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    assert isinstance(reply, AIMessage)
    assert reply.response_metadata["model_name"] == "gpt-x"
    assert reply.usage_metadata == {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    assert conversation.tools == (TOOL,)


def test_a_span_of_phoenix_with_nested_attributes_is_read() -> None:
    call = {"tool_call": {"function": {"name": "find", "arguments": '{"q": "rye"}'}}}
    sent = [
        {"message": {"role": "user", "content": "Rye?"}},
        {"message": {"role": "assistant", "tool_calls": [call]}},
        {"message": {"role": "tool", "content": "1200", "name": "find"}},
    ]
    came = [{"message": {"role": "assistant", "content": "Rye 1200."}}]
    llm = {"input_messages": sent, "output_messages": came}

    agent = {"output_messages": [{"message": {"role": "assistant", "content": "Done."}}]}
    kind = {"openinference": {"span": {"kind": "AGENT"}}}

    [conversation] = read(span({"llm": llm, "session": {"id": "s1"}}), span({"llm": agent} | kind))

    assert conversation.conversation_id == "s1"
    _, called, result, _ = conversation.messages
    assert isinstance(called, AIMessage)
    assert isinstance(result, ToolMessage)
    assert [call["args"] for call in called.tool_calls] == [{"q": "rye"}]
    assert called.tool_calls[0]["id"] == result.tool_call_id


def test_of_spans_of_openinference_those_of_agents_say_nothing_again() -> None:
    told = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Rye?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Yes.",
    }
    other = {"llm.output_messages.0.message.content": "In the end: yes."}

    [conversation] = read(
        span(told | other | {"openinference.span.kind": "AGENT"}),
        span(told | {"openinference.span.kind": "LLM"}),
    )

    assert said(conversation.messages) == said([HumanMessage("Rye?"), AIMessage("Yes.")])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('[{"type": "text", "text": "Rye?"}]', "Rye?"),
        ('[{"flour": "rye"}]', '[{"flour": "rye"}]'),
        ("[]", "[]"),
    ],
    ids=["parts", "a list", "nothing"],
)
def test_content_of_openllmetry_is_in_parts_only_if_it_has_some(
    content: str, expected: str
) -> None:
    [conversation] = read(
        span({"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": content})
    )

    assert conversation.messages[0].content == expected


def test_a_span_of_openllmetry_tells_its_tools() -> None:
    parameters = json.dumps(TOOL["function"]["parameters"])
    attributes = {
        "gen_ai.prompt.0.content": "Rye?",
        "llm.request.functions.0.name": "find",
        "llm.request.functions.0.parameters": parameters,
    }

    [conversation] = read(span(attributes))

    assert conversation.tools == (TOOL,)


def test_calls_of_gemini_without_ids_find_their_results() -> None:
    request = {
        "contents": [
            parts("user", {"text": "Rye and oats?"}),
            parts(
                "model",
                {"functionCall": {"name": "find", "args": {"q": "rye"}}},
                {"functionCall": {"name": "find", "args": {"q": "oats"}}},
            ),
            parts(
                "user",
                {"functionResponse": {"name": "find", "response": {"result": "30 g"}}},
                {"functionResponse": {"name": "find", "response": {"found": False}}},
            ),
        ],
        "system_instruction": {"parts": [{"text": "Be kind"}]},
        "tools": [{"function_declarations": [{"name": "find"}]}],
    }

    [conversation] = read(request)

    reply = conversation.messages[2]
    assert isinstance(reply, AIMessage)
    results = [one for one in conversation.messages if isinstance(one, ToolMessage)]
    assert [call["id"] for call in reply.tool_calls] == [one.tool_call_id for one in results]
    assert [one.content for one in results] == ["30 g", '{"found": false}']
    assert conversation.messages[0].text == "Be kind"
    assert conversation.tools == ({"name": "find"},)


def test_a_prompt_saved_by_ai_studio_is_read() -> None:
    chunks = [
        {"role": "user", "text": "Rye?", "createTime": "2026-03-05T10:00:00Z"},
        {"role": "user", "driveImage": {"id": "file-1"}},
        {
            "role": "model",
            "text": "Hm",
            "isThought": True,
            "parts": [{"text": "Hm", "thought": True}],
        },
        {"role": "model", "text": "Yes.", "parts": [{"text": "Ye"}, {"text": "s."}]},
    ]
    prompt = {"chunkedPrompt": {"chunks": chunks}, "systemInstruction": {"text": "Be kind"}}

    [conversation] = read(prompt)

    assert [message.text for message in conversation.messages] == [
        "Be kind",
        "Rye?",
        "[drive image: file-1]",
        "Yes.",
    ]
    assert conversation.messages[1].additional_kwargs["created_at"] == "2026-03-05T10:00:00Z"


def test_a_file_of_gemini_is_a_block() -> None:
    inline = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    [conversation] = read({"contents": [parts("user", {"text": "Rye?"}, inline)]})

    assert conversation.messages[0].content == [
        {"type": "text", "text": "Rye?"},
        {"type": "image", "mime_type": "image/png", "base64": "AA=="},
    ]


def test_a_file_of_gemini_beside_an_empty_text_is_a_block() -> None:
    inline = {"text": "", "inlineData": {"mimeType": "image/png", "data": "AA=="}}
    [conversation] = read({"contents": [parts("user", inline)]})

    assert conversation.messages[0].content == [
        {"type": "image", "mime_type": "image/png", "base64": "AA=="}
    ]


# Requests


def responses_call(number: int, before: int | None, question: object) -> Record:
    said = {"type": "output_text", "text": f"Answer {number}.", "annotations": []}
    answer = {"type": "message", "role": "assistant", "id": f"m{number}", "content": [said]}
    request = {"model": "gpt-5", "input": question, "previous_response_id": before and f"r{before}"}
    response = {"id": f"r{number}", "model": "gpt-5", "output": [answer]}
    return {"request": request, "response": response}


def test_requests_that_name_an_earlier_response_are_one_conversation() -> None:
    [conversation] = read(
        responses_call(1, None, "Rye?"),
        responses_call(2, 1, [{"role": "user", "content": "Oats?"}]),
        responses_call(3, 2, "Wheat?"),
    )

    said = [message.text for message in conversation.messages]
    assert said == ["Rye?", "Answer 1.", "Oats?", "Answer 2.", "Wheat?", "Answer 3."]


def test_a_response_that_is_not_in_the_file_leaves_what_is_new() -> None:
    [conversation] = read(responses_call(3, 2, "Wheat?"))

    assert [message.text for message in conversation.messages] == ["Wheat?", "Answer 3."]


def test_two_requests_that_name_the_same_response_are_two_conversations() -> None:
    conversations = read(
        responses_call(1, None, "Rye?"),
        responses_call(2, 1, "Oats?"),
        responses_call(3, 1, "Wheat?"),
    )

    said = [[message.text for message in one.messages] for one in conversations]
    assert said == [
        ["Rye?", "Answer 1.", "Oats?", "Answer 2."],
        ["Rye?", "Answer 1.", "Wheat?", "Answer 3."],
    ]
