"""A small OpenAI-compatible server on this machine: it records requests and answers chat completions with a usage."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From the body of a request to the message of the answer."""
Measure = Callable[[Mapping[str, Any]], int]
"""From the body of a request to the input tokens that are reported."""


def says(text: str) -> Mapping[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*wanted: tuple[str, str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """An answer that calls tools: an id, a name and arguments for each."""
    made = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for key, name, arguments in wanted
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


class OpenAIServer:
    """A server on a free port of 127.0.0.1; a context manager."""

    def __init__(self, answer: Answer = lambda _: says("Done."), measure: Measure = lambda _: 0) -> None:
        self.received: list[Mapping[str, Any]] = []
        self.answer, self.measure = answer, measure
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

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
                {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
            ],
            "usage": {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5},
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # a connection ends with its answer: a client that is left open holds no socket
    disable_nagle_algorithm = True  # else every answer waits for 40 ms

    def __init__(self, server: OpenAIServer, *args: Any) -> None:
        self.models = server
        super().__init__(*args)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        found = self.path == "/v1/chat/completions"
        reply = self.models.complete(body) if found else {"error": {"message": f"no {self.path}"}}
        content = json.dumps(reply).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""
