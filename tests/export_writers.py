"""Writes conversations as chat programs export them and as requests send them."""

import html
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

Record: TypeAlias = dict[str, Any]
START_SECONDS = 1_785_748_320
"""2026-08-03 09:12:00 UTC."""
MODEL = "some-model"


def sentences(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    """Who says what: the words, what is called with what, and the results."""
    parts: list[tuple[str, str]] = []
    for message in messages:
        if message.text:
            parts.append((message.type, message.text))
        calls = getattr(message, "tool_calls", [])
        parts += [(call["name"], json.dumps(call["args"])) for call in calls]
    return parts


# Exports


def chatgpt(messages: Sequence[BaseMessage]) -> list[Record]:
    """A tree: voice, thoughts, hidden messages, answers that were made again, a cited source."""
    tree = _ChatGPT()
    tree.add("system", {"content_type": "text", "parts": [""]}, is_hidden=True)
    for number, message in enumerate(messages):
        if isinstance(message, HumanMessage):
            tree.add("user", _asked(message.text, number))
        elif isinstance(message, ToolMessage):
            output = {"content_type": "execution_output", "text": message.text}
            tree.add("tool", output, name="find")
        elif isinstance(message, AIMessage):
            tree.add("assistant", {"content_type": "thoughts", "thoughts": [{"content": "Hm"}]})
            tree.add("assistant", _parts("Another answer"), is_other=True)
            if message.text:
                cited = f"{message.text} \ue200cite\ue202turn0search{number}\ue201"
                tree.add("assistant", _parts(cited))
            for call in message.tool_calls:
                code = {"content_type": "code", "text": json.dumps(call["args"])}
                tree.add("assistant", code, recipient=call["name"])
    return [tree.record]


def _parts(text: str) -> Record:
    return {"content_type": "text", "parts": [text]}


def _asked(text: str, number: int) -> Record:
    """What the user says: every other message is spoken."""
    if number % 4:
        return _parts(text)
    spoken = {"content_type": "audio_transcription", "text": text, "direction": "in"}
    sound = {
        "content_type": "real_time_user_audio_video_asset_pointer",
        "audio_asset_pointer": {"asset_pointer": "sediment://file_1"},
    }
    return {"content_type": "multimodal_text", "parts": [spoken, sound]}


class _ChatGPT:
    def __init__(self) -> None:
        self.nodes: dict[str, Record] = {"root": {"id": "root", "parent": None, "message": None}}
        self.end = "root"

    def add(
        self,
        role: str,
        content: Record,
        *,
        name: str | None = None,
        recipient: str = "all",
        is_hidden: bool = False,
        is_other: bool = False,
    ) -> None:
        key = f"node-{len(self.nodes)}"
        message = {
            "id": key,
            "author": {"role": role, "name": name, "metadata": {}},
            "create_time": START_SECONDS + len(self.nodes),
            "content": content,
            "recipient": recipient,
            "weight": 1.0,
            "metadata": {"is_visually_hidden_from_conversation": is_hidden},
        }
        self.nodes[key] = {"id": key, "parent": self.end, "children": [], "message": message}
        if not is_other:
            self.end = key

    @property
    def record(self) -> Record:
        return {
            "title": "Bread",
            "conversation_id": "c1",
            "current_node": self.end,
            "mapping": self.nodes,
        }


def claude(messages: Sequence[BaseMessage]) -> list[Record]:
    """A list with parents: texts in content only, thoughts, answers that were made again."""
    chat: list[Record] = []
    end = "00000000-0000-4000-8000-000000000000"
    blocks: list[Record] = []

    def add(sender: str, content: list[Record], text: str | None = None) -> str:
        key = f"message-{len(chat)}"
        chat.append(
            {
                "uuid": key,
                "parent_message_uuid": end,
                "sender": sender,
                "text": text,
                "content": content,
                "attachments": [],
                "files": [],
                "created_at": _iso(len(chat)),
            }
        )
        return key

    def finish() -> None:
        nonlocal end
        if blocks:
            add("assistant", [{"type": "text", "text": "Another answer"}])
            end = add("assistant", blocks.copy(), "The user asks.\n```\nThis block is not ...\n```")
            blocks.clear()

    for message in messages:
        if isinstance(message, HumanMessage):
            finish()
            end = add("human", [{"type": "text", "text": message.text}], message.text)
        elif isinstance(message, ToolMessage):
            answer = [{"type": "text", "text": message.text}]
            blocks.append({"type": "tool_result", "name": "find", "content": answer})
        elif isinstance(message, AIMessage):
            blocks.append({"type": "thinking", "thinking": "Hm"})
            if message.text:
                blocks.append({"type": "text", "text": message.text, "citations": []})
            blocks += [
                {"type": "tool_use", "name": call["name"], "input": call["args"]}
                for call in message.tool_calls
            ]
    finish()
    return [{"uuid": "c1", "name": "Bread", "chat_messages": chat}]


def _iso(number: int) -> str:
    return f"2026-08-03T09:{number // 60:02}:{number % 60:02}Z"


def open_webui(messages: Sequence[BaseMessage]) -> list[Record]:
    """A tree whose answers have thoughts and calls of tools as HTML in their text."""
    nodes: dict[str, Record] = {}
    end: str | None = None
    answer = ""

    def add(role: str, content: str) -> str:
        key = f"node-{len(nodes)}"
        nodes[key] = {
            "id": key,
            "parentId": end,
            "role": role,
            "content": content,
            "timestamp": START_SECONDS + len(nodes),
        }
        return key

    def finish() -> None:
        nonlocal end, answer
        if answer:
            add("assistant", "Another answer")
            end = add("assistant", answer)
            answer = ""

    call: Record = {}
    for message in messages:
        if isinstance(message, HumanMessage):
            finish()
            end = add("user", message.text)
        elif isinstance(message, ToolMessage):
            attributes = {
                "name": call["name"],
                "arguments": json.dumps(call["args"]),
                "result": json.dumps(message.text),
            }
            told = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
            answer += (
                f'<details type="tool_calls" done="true" {told}>\n'
                "<summary>Tool Executed</summary>\n</details>\n"
            )
        elif isinstance(message, AIMessage):
            answer += '<details type="reasoning" done="true">\n> Hm\n</details>\n'
            answer += f"{message.text}\n"
            for called in message.tool_calls:
                call = dict(called)
    finish()
    history = {"messages": nodes, "currentId": end}
    return [{"id": "c1", "title": "Bread", "chat": {"title": "Bread", "history": history}}]


# Requests


def openai_requests(messages: Sequence[BaseMessage]) -> list[Record]:
    """A request for every answer, each with all messages before it."""
    return [
        {"model": MODEL, "messages": list(map(_openai, before)), "response": _choice(answer)}
        for before, answer in _answers(messages)
    ]


def _answers(messages: Sequence[BaseMessage]) -> list[tuple[Sequence[BaseMessage], BaseMessage]]:
    return [
        (messages[:number], message)
        for number, message in enumerate(messages)
        if isinstance(message, AIMessage)
    ]


def _choice(answer: BaseMessage) -> Record:
    return {"id": "r", "model": MODEL, "choices": [{"index": 0, "message": _openai(answer)}]}


def _openai(message: BaseMessage) -> Record:
    if isinstance(message, HumanMessage):
        return {"role": "user", "content": message.text}
    if isinstance(message, ToolMessage):
        return {"role": "tool", "content": message.text, "tool_call_id": message.tool_call_id}
    assert isinstance(message, AIMessage)
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["args"])},
        }
        for call in message.tool_calls
    ]
    fields: Record = {"role": "assistant", "content": message.text or None}
    return fields | ({"tool_calls": calls} if calls else {})


def openai_batch(messages: Sequence[BaseMessage]) -> list[Record]:
    """Lines of a batch's input, without answers but the last."""
    requests = [
        {"custom_id": f"r{number}", "method": "POST", "body": {"model": MODEL} | body}
        for number, body in enumerate(
            {"messages": list(map(_openai, before))} for before, _ in _answers(messages)
        )
    ]
    whole = {"model": MODEL, "messages": list(map(_openai, messages))}
    return [*requests, {"custom_id": "last", "body": whole}]


def anthropic_requests(messages: Sequence[BaseMessage]) -> list[Record]:
    """Requests whose newest message has a mark for the cache, with the responses."""
    records = []
    for before, answer in _answers(messages):
        sent = list(map(_anthropic, before))
        sent[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        response = {"type": "message", "model": MODEL} | _anthropic(answer)
        request = {"model": MODEL, "max_tokens": 10, "messages": sent}
        records.append({"request": request, "response": response})
    return records


def _anthropic(message: BaseMessage) -> Record:
    text: Record = {"type": "text", "text": message.text}
    if isinstance(message, HumanMessage):
        return {"role": "user", "content": [text]}
    if isinstance(message, ToolMessage):
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": [text]}
        return {"role": "user", "content": [result]}
    assert isinstance(message, AIMessage)
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
        for call in message.tool_calls
    ]
    return {"role": "assistant", "content": [*([text] if message.text else []), *calls]}


def responses_requests(messages: Sequence[BaseMessage]) -> list[Record]:
    """Requests of the Responses API with the responses."""
    return [
        {
            "model": MODEL,
            "input": [item for message in before for item in _items(message)],
            "response": {"model": MODEL, "output": _items(answer)},
        }
        for before, answer in _answers(messages)
    ]


def _items(message: BaseMessage) -> list[Record]:
    if isinstance(message, HumanMessage):
        content = [{"type": "input_text", "text": message.text}]
        return [{"type": "message", "role": "user", "content": content}]
    if isinstance(message, ToolMessage):
        call_id = message.tool_call_id
        return [{"type": "function_call_output", "call_id": call_id, "output": message.text}]
    assert isinstance(message, AIMessage)
    items: list[Record] = []
    if message.text:
        content = [{"type": "output_text", "text": message.text}]
        items.append({"type": "message", "role": "assistant", "content": content})
    for call in message.tool_calls:
        arguments = json.dumps(call["args"])
        items.append(
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": call["name"],
                "arguments": arguments,
            }
        )
    return items


def openai_messages(messages: Sequence[BaseMessage]) -> list[Record]:
    """The messages alone."""
    return list(map(_openai, messages))


def anthropic_messages(messages: Sequence[BaseMessage]) -> list[Record]:
    """The messages alone."""
    return list(map(_anthropic, messages))


EXPORTS: dict[str, Callable[[Sequence[BaseMessage]], list[Record]]] = {
    "chatgpt": chatgpt,
    "claude": claude,
    "open-webui": open_webui,
}
OTHERS: dict[str, Callable[[Sequence[BaseMessage]], list[Record]]] = {
    "openai requests": openai_requests,
    "openai batch": openai_batch,
    "anthropic requests": anthropic_requests,
    "responses requests": responses_requests,
    "openai messages": openai_messages,
    "anthropic messages": anthropic_messages,
}
EVERY_WRITER = EXPORTS | OTHERS
