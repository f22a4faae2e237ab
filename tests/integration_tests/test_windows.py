"""Where a model's window comes from.

Profiles, and servers that answer as Ollama, LM Studio and OpenAI's list do.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import Field

from langchain_ctxbudget import ContextPipeline
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.tokens import Window
from langchain_ctxbudget.tokens.window import find_window

URL = "http://models.example:8000"
MODELS = "GET /v1/models"
LM_STUDIO = "GET /api/v0/models"
OLLAMA = "POST /api/show"
LOADED = "GET /api/ps"


class Server:
    def __init__(self, otherwise: Any = None, **routes: Any) -> None:
        self.routes: Mapping[str, Any] = routes
        self.otherwise = otherwise if otherwise is not None else httpx.Response(404)
        self.asked: list[str] = []
        self.keys: set[str | None] = set()

    def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], **_: Any
    ) -> httpx.Response:
        self.asked.append(f"{method} {urlsplit(url).path}")
        self.keys.add(headers.get("Authorization"))
        answer = self.routes.get(self.asked[-1], self.otherwise)
        if isinstance(answer, Exception):
            raise answer
        response = (
            answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)
        )
        response.request = httpx.Request(method, url)
        return response


Serve = Callable[..., Server]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    def serving(routes: Mapping[str, Any] | None = None, otherwise: Any = None) -> Server:
        server = Server(otherwise, **(routes or {}))
        monkeypatch.setattr(httpx, "request", server)
        return server

    return serving


class OllamaModel(FakeListChatModel):
    responses: list[str] = Field(default_factory=lambda: ["yes"])
    model: str = "llama3.2"
    base_url: str | None = URL
    num_ctx: int | None = None


def openai_model(name: str = "m", path: str = "/v1", **rest: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"model": name, "base_url": URL + path, "api_key": "sk-secret", **rest})


def find(model: Any) -> Window:
    return drive(find_window(model))


def listed(*models: Mapping[str, Any]) -> dict[str, Any]:
    return {MODELS: {"object": "list", "data": list(models)}}


# -- the profile


def test_a_profile_tells_window_and_answer_also_behind_bindings_and_nobody_is_asked(
    serve: Serve,
) -> None:
    server = serve()
    model = openai_model("gpt-4o")
    expected = Window(128_000, 16_384, "profile", "the profile of ChatOpenAI")
    assert (
        find(model) == find(model.bind(stop=["."]).with_config(tags=["a"]).with_retry()) == expected
    )
    assert server.asked == []
    for value in (0, -1, "128000", 128_000.0, True, None, [1], 10**30):
        model = ChatOpenAI(model="gpt-4o", api_key="not-used", profile={"max_input_tokens": 1})
        model.profile["max_input_tokens"] = value  # pydantic checks what the constructor gets
        assert find(model) == Window()


# -- servers that tell, and those that do not


def test_a_server_with_a_list_of_models_tells(serve: Serve) -> None:
    embedding = {"id": "text-embedding-nomic", "type": "embeddings", "max_context_length": 2_048}
    chat = {
        "id": "qwen",
        "type": "llm",
        "max_context_length": 32_768,
        "loaded_context_length": 4_096,
    }
    for routes, name, tokens in (
        (
            listed({"id": "Qwen/Qwen2.5-7B-Instruct", "max_model_len": 32_768}),
            "Qwen/Qwen2.5-7B-Instruct",
            32_768,
        ),
        (
            listed({"id": "m", "meta": {"n_ctx_train": 131_072, "n_ctx": 8_192}}),
            "any",
            8_192,
        ),  # llama.cpp
        (listed({"id": "m", "context_window": 131_072}), "m", 131_072),  # Groq
        (listed({"id": "m", "max_context_length": 65_536}), "m:latest", 65_536),  # Mistral
        (
            {MODELS: [{"id": "m", "context_length": 7}, {"id": "n", "context_length": 8}]},
            "n",
            8,
        ),  # Together
        ({**listed({"id": "qwen"}), LM_STUDIO: {"data": [chat, embedding]}}, "gpt-local", 4_096),
    ):
        serve(routes)
        window = find(openai_model(name))
        assert (window.tokens, window.source, window.failure) == (tokens, "served", None)


def test_ollama_tells_what_it_uses(serve: Serve) -> None:
    info = {"general.architecture": "llama", "llama.context_length": 131_072}
    for name, parameters, tokens in (
        ("llama3.2", None, 131_072),
        ("llama3.2", "num_keep 24\nnum_ctx                        4096\nstop x", 4_096),
        ("llama3.2:latest", "stop x", 16_384),
    ):
        running = [{"name": "llama3.2:latest", "context_length": 16_384}] if ":" in name else []
        other = {"name": "other:latest", "context_length": 1_024}
        server = serve(
            {
                OLLAMA: {"parameters": parameters, "model_info": info},
                LOADED: {"models": [other, *running]},
            }
        )
        window = find(OllamaModel(model=name))
        assert (window.tokens, window.source, server.asked[0]) == (tokens, "served", LOADED)
    server = serve()
    assert (find(OllamaModel(num_ctx=8_192)).tokens, server.asked) == (8_192, [])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (httpx.Response(404), "failed (HTTPStatusError)"),
        (
            httpx.Response(302, headers={"Location": "http://127.0.0.1:9/v1/models"}),
            "failed (HTTPStatusError)",
        ),
        (httpx.Response(200, content=b'{"data": ['), "failed (JSONDecodeError)"),
        (httpx.Response(200, content=b"[" * 200_000), "failed (RecursionError)"),
        (httpx.RemoteProtocolError("secret"), "failed (RemoteProtocolError)"),
        ({"data": [1, None, "m"]}, "failed (AttributeError)"),
        (listed({"id": "a", "context_length": 1}, {"id": "b"})[MODELS], "names no length"),
        (
            listed({"id": "m", "max_model_len": 10**30, "meta": {"n_ctx": "8192"}})[MODELS],
            "names no length",
        ),
    ],
)
def test_a_bad_answer_is_a_failure(serve: Serve, answer: Any, reason: str) -> None:
    serve(otherwise=answer)
    window = find(openai_model())
    failure = window.failure or ""
    assert failure.startswith(f"{URL}/v1 did not tell the window of 'm': ")
    assert (window.tokens, window.source, failure.count(reason)) == (None, "unknown", 2)


# -- whom to ask, and with which key


def test_the_key_goes_to_the_models_own_server_and_is_not_shown(serve: Serve) -> None:
    server = serve()
    shown = str(find(openai_model(base_url="http://ada:pass@models.example:8000/v1?token=query")))
    assert server.keys == {"Bearer sk-secret"}
    assert f"{URL}/v1" in shown
    assert not any(secret in shown for secret in ("ada", "pass", "query", "sk-secret"))


class OpenAILike:
    model_name = "m"

    def __init__(self, url: str) -> None:
        self.openai_api_base = f"{url}/v1"


def test_nobody_is_asked_about_other_models(serve: Serve) -> None:
    server = serve(listed({"id": "m", "context_length": 4_096}))
    azure = {
        "azure_deployment": "mine",
        "api_version": "1",
        "api_key": "k",
        "azure_endpoint": "https://models.example",
    }
    for model in (
        ChatOpenAI(model="nobody-knows", api_key="k"),
        openai_model(base_url="https://EU.API.openai.com/v1"),
        openai_model(base_url="https://mine.openai.azure.com/openai/v1/"),
        AzureChatOpenAI(**azure),
        FakeListChatModel(responses=["yes"]),
        OllamaModel(base_url=None),
        *(OpenAILike(url) for url in ("localhost:8000", "ftp://host", "http://[::1")),
    ):
        assert find(model) == Window()
    assert server.asked == []


# -- in a pipeline


def test_a_pipeline_asks_once(serve: Serve) -> None:
    scope = {"user_id": "ada", "conversation_id": "c1"}
    for routes, source, asked in (
        (listed({"id": "m", "context_length": 1_900}), "served", 1),
        ({}, "unknown", 2),
    ):
        server = serve(routes)
        pipeline = ContextPipeline({"max_context_tokens": 50_000}, model=openai_model())
        for _ in range(5):
            report = pipeline.assemble("Hi", **scope).report
            assert report.window_source == source
            assert bool(report.failures) == (source == "unknown")
            assert "sk-secret" not in str(report)
        assert (len(server.asked), report.budget_tokens) == (
            asked,
            1_900 if source == "served" else 50_000,
        )
