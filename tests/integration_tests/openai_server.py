"""A small OpenAI-compatible server on this machine.

It records requests and answers chat completions with a usage.

It streams where it is asked to, and fails in the ways that servers fail in where it is told to.
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
        "error": {
            "message": f"no, says the server ({status})",
            "type": "server_error",
            "code": None,
        }
    }
    return Fault(status=status, body=json.dumps(error).encode())


CUT = Fault(cut=True)
ENDS_EARLY = Fault(ends_early=True)
HANGS = Fault(hangs=True)
GARBAGE = Fault(body=b"{]]\xff\x00 not an answer")


def says(text: str) -> Mapping[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*wanted: tuple[str, str, Mapping[str, Any]]) -> Mapping[str, Any]:
    made = [
        {
            "id": key,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for key, name, arguments in wanted
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


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
        tokens = self.measure(body)
        return {
            "id": f"chatcmpl-{len(self.received)}",
            "object": "chat.completion",
            "created": 1_750_000_000,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
                }
            ],
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
    protocol_version = (
        "HTTP/1.0"  # a connection ends with its answer: a client that is left open holds no socket
    )
    disable_nagle_algorithm = True  # else every answer waits for 40 ms

    def __init__(self, server: OpenAIServer, *args: Any) -> None:
        self.models = server
        super().__init__(*args)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        status, reply = self.models.reply(self.path, body)
        fault = self.models.fault_of(body)
        if fault.hangs:
            self.models.stopped.wait()
        streams = status == HTTPStatus.OK and bool(body.get("stream"))
        content = fault.body or (_sent(reply, body) if streams else json.dumps(reply).encode())
        half = content[: len(content) // 2]
        if fault.ends_early:
            content = half
        self.send_response(fault.status if status == HTTPStatus.OK else status)
        self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(ConnectionError):  # whoever waited too long has gone
            self.wfile.write(half if fault.cut else content)

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


def _sent(reply: Mapping[str, Any], body: Mapping[str, Any]) -> bytes:
    """A completion as a stream.

    Its text and its calls in pieces, why it ended, its usage where that is asked for.
    """
    [choice] = reply["choices"]
    message = choice["message"]
    chunk = {**reply, "usage": None, "object": "chat.completion.chunk"}
    deltas: list[dict[str, Any]] = [
        {"content": piece} for piece in _pieces(message["content"] or "")
    ]
    for index, called in enumerate(message.get("tool_calls") or ()):
        begun = {
            **called,
            "index": index,
            "function": {"name": called["function"]["name"], "arguments": ""},
        }
        pieces = _pieces(called["function"]["arguments"])
        parts = [begun, *({"index": index, "function": {"arguments": piece}} for piece in pieces)]
        deltas += [{"tool_calls": [part]} for part in parts]
    ends = [
        *((delta | {"role": "assistant"}, None) for delta in deltas),
        ({}, choice["finish_reason"]),
    ]
    events = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in ends
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append({**chunk, "choices": [], "usage": reply["usage"]})
    return "".join(f"data: {event}\n\n" for event in [*map(json.dumps, events), "[DONE]"]).encode()


def _pieces(text: str) -> list[str]:
    return [text[i : i + 20] for i in range(0, len(text), 20)]
