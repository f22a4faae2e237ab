"""Small HTTP servers on this machine that answer as Ollama, LM Studio and servers with OpenAI's list of models do.

A server is a table from "METHOD /path" to a `Reply`, or to a function from the request's JSON to one. Each remembers
what it was asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Asked:
    """A request that a server got; header names in lower case."""

    line: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """What a server answers with.

    A hanging one is sent when the server stops; of dripping headers or a dripping body a byte now and then until then.
    """

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    drips: bool = False


Answer = Reply | Callable[[Any], Reply]
Routes = Mapping[str, Answer]


def as_json(value: Any, status: int = 200) -> Reply:
    return Reply(json.dumps(value).encode(), status, {"Content-Type": "application/json"})


NOT_FOUND = as_json({"error": "not found"}, 404)


class ModelServer:
    """A server on a free port of 127.0.0.1; a context manager."""

    def __init__(self, routes: Routes, *, otherwise: Reply = NOT_FOUND) -> None:
        self.asked: list[Asked] = []
        self.stopping = threading.Event()
        self.routes, self.otherwise = routes, otherwise
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def lines(self) -> list[str]:
        return [asked.line for asked in self.asked]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, server: ModelServer, *args: Any) -> None:
        self.models = server
        super().__init__(*args)

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(f"{self.command} {self.path}", headers, json.loads(body) if body else None)
        self.models.asked.append(asked)
        answer = self.models.routes.get(asked.line, self.models.otherwise)
        reply = answer if isinstance(answer, Reply) else answer(asked.body)
        if reply.hangs:
            self.models.stopping.wait(60)
        with suppress(OSError):  # the client no longer listens
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)
            while reply.drips and not self.models.stopping.wait(0.1):
                self.wfile.write(b" ")
        self.close_connection = True

    do_GET = do_POST = _answer  # noqa: N815 - names of the standard library

    def log_message(self, *_args: Any) -> None:
        """Say nothing."""


def model_list(*models: Mapping[str, Any]) -> Reply:
    return as_json({"object": "list", "data": list(models)})


def ollama(
    name: str = "llama3.2:latest", *, trained: int = 131_072, parameters: str = "stop x", loaded: int | None = None
) -> Routes:
    """Ollama with one model, that knows it by its name with and without the tag `:latest`."""
    info = {"general.architecture": "llama", "llama.context_length": trained, "tokenizer.ggml.tokens": None}
    shown = {"modelfile": f"FROM {name}", "parameters": parameters, "model_info": info, "capabilities": ["tools"]}
    running = {"name": name, "model": name, "size": 3_000_000_000, "context_length": loaded}

    def show(asked: Any) -> Reply:
        if asked["model"].removesuffix(":latest") != name.removesuffix(":latest"):
            return as_json({"error": f"model '{asked['model']}' not found"}, 404)
        return as_json(shown)

    return {
        "GET /v1/models": model_list({"id": name, "object": "model", "owned_by": "library"}),
        "POST /api/show": show,
        "GET /api/ps": as_json({"models": [] if loaded is None else [running]}),
    }


LM_STUDIO_OTHERWISE = as_json({"error": "Unexpected endpoint or method. Returning 200 anyway"})
"""LM Studio answers 200 to what it does not know."""


def lm_studio(name: str, *, largest: int = 32_768, loaded: int | None = None) -> Routes:
    """LM Studio with one chat model and one embedding model."""
    chat = {"id": name, "type": "llm", "state": "loaded" if loaded else "not-loaded", "max_context_length": largest}
    chat |= {} if loaded is None else {"loaded_context_length": loaded}
    embedding = {"id": "text-embedding-nomic", "type": "embeddings", "max_context_length": 2_048}
    return {
        "GET /v1/models": model_list({"id": name}, {"id": embedding["id"]}),
        "GET /api/v0/models": model_list(chat, embedding),
    }


def vllm(name: str = "Qwen/Qwen2.5-7B-Instruct", *, window: int = 32_768) -> Routes:
    """VLLM with one model."""
    return {"GET /v1/models": model_list({"id": name, "owned_by": "vllm", "root": name, "max_model_len": window})}
