"""A small OpenAI-compatible server on this machine, which records requests.

It answers chat completions with a usage, streams where it is asked to, and fails in the ways that
servers fail in where it is told to.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

CHAT_COMPLETIONS = "/v1/chat/completions"

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From the body of a request to the message of the answer."""
Measure = Callable[[Mapping[str, Any]], int]
"""From the body of a request to the input tokens that are reported."""


@dataclass(frozen=True)
class Fault:
    status: int = 200
    body: bytes | None = None
    cut: bool = False
    ends_early: bool = False
    hangs: bool = False


def refuses(status: int) -> Fault:
    error = {
        "message": f"no, says the server ({status})",
        "type": "server_error",
        "code": None,
    }
    return Fault(status=status, body=json.dumps({"error": error}).encode())


CUT = Fault(cut=True)
ENDS_EARLY = Fault(ends_early=True)
HANGS = Fault(hangs=True)
GARBAGE = Fault(body=b"{]]\xff\x00 not an answer")


def says(text: str) -> Mapping[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*functions: tuple[str, str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """An answer with calls, each of an id, a name and its arguments."""
    tool_calls = [_tool_call(call_id, name, arguments) for call_id, name, arguments in functions]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def _tool_call(call_id: str, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


class OpenAIServer:
    """A server on a free port of 127.0.0.1; a context manager."""

    def __init__(
        self, answer: Answer = lambda _: says("Done."), measure: Measure = lambda _: 0
    ) -> None:
        self.received: list[Mapping[str, Any]] = []
        self.answer = answer
        self.measure = measure
        self.fault = Fault()
        self.fault_of: Callable[[Mapping[str, Any]], Fault] = lambda _: self.fault
        self.stopped = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def reply(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        if path != CHAT_COMPLETIONS:
            return 404, {"error": {"message": f"no {path}"}}
        return 200, self.complete(body)

    def complete(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.received.append(body)
        message = self.answer(body)
        finish_reason = "tool_calls" if "tool_calls" in message else "stop"
        tokens = self.measure(body)
        return {
            "id": f"chatcmpl-{len(self.received)}",
            "object": "chat.completion",
            "created": 1_750_000_000,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5},
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopped.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    # A connection ends with its answer: a client that is left open holds no socket.
    protocol_version = "HTTP/1.0"
    disable_nagle_algorithm = True  # else every answer waits for 40 ms

    def __init__(self, server: OpenAIServer, *args: Any) -> None:
        self.openai = server
        super().__init__(*args)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        status, reply = self.openai.reply(self.path, body)
        fault = self.openai.fault_of(body)
        if fault.hangs:
            self.openai.stopped.wait()
        streams = status == HTTPStatus.OK and bool(body.get("stream"))
        if status == HTTPStatus.OK:
            status = fault.status
        content = fault.body or _content(reply, body, streams=streams)
        half = content[: len(content) // 2]
        if fault.ends_early:
            content = half
        self.send_head(status, len(content), streams=streams)
        with suppress(ConnectionError):  # whoever waited too long has gone
            self.wfile.write(half if fault.cut else content)

    def send_head(self, status: int, length: int, *, streams: bool) -> None:
        content_type = "text/event-stream" if streams else "application/json"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


def _content(reply: Mapping[str, Any], body: Mapping[str, Any], *, streams: bool) -> bytes:
    """A reply as it is sent."""
    if not streams:
        return json.dumps(reply).encode()
    lines = [f"data: {json.dumps(event)}\n\n" for event in _events(reply, body)]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def _events(reply: Mapping[str, Any], body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A completion in pieces, then why it ended, and its usage where that is asked for."""
    [choice] = reply["choices"]
    chunk = {**reply, "usage": None, "object": "chat.completion.chunk"}
    choices = [
        {"index": 0, "delta": {**delta, "role": "assistant"}, "finish_reason": None}
        for delta in _deltas(choice["message"])
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
    events: list[Mapping[str, Any]] = [{**chunk, "choices": [piece]} for piece in choices]
    stream_options = body.get("stream_options") or {}
    if stream_options.get("include_usage"):
        events.append({**chunk, "choices": [], "usage": reply["usage"]})
    return events


def _deltas(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The text of a message and its calls, in pieces."""
    deltas: list[dict[str, Any]] = [
        {"content": piece} for piece in _pieces(message["content"] or "")
    ]
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = {"name": call["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [{**call, "index": index, "function": function}]})
        for piece in _pieces(call["function"]["arguments"]):
            part = {"index": index, "function": {"arguments": piece}}
            deltas.append({"tool_calls": [part]})
    return deltas


def _pieces(text: str) -> list[str]:
    return [text[start : start + 20] for start in range(0, len(text), 20)]
