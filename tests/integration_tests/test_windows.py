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
from pydantic import Field, SecretStr

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.tokens import Window
from langchain_ctxbudget.tokens.window import find_window

URL = "http://models.example:8000"
MODELS = "GET /v1/models"
LM_STUDIO = "GET /api/v0/models"
OLLAMA = "POST /api/show"
LOADED = "GET /api/ps"


NOT_FOUND = httpx.Response(404)


class Server:
    """Answers requests by their method and path, all others in one way."""

    def __init__(self, routes: Mapping[str, Any], otherwise: Any) -> None:
        self.routes = routes
        self.otherwise = otherwise
        self.requests: list[str] = []
        self.keys: set[str | None] = set()

    def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], **_: Any
    ) -> httpx.Response:
        route = f"{method} {urlsplit(url).path}"
        self.requests.append(route)
        self.keys.add(headers.get("Authorization"))
        response = response_of(self.routes.get(route, self.otherwise))
        response.request = httpx.Request(method, url)
        return response


def response_of(answer: Any) -> httpx.Response:
    """The response that is an answer, or has one as its JSON; an exception is raised."""
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, httpx.Response):
        return answer
    return httpx.Response(200, json=answer)


Serve = Callable[..., Server]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    def serving(routes: Mapping[str, Any] | None = None, otherwise: Any = NOT_FOUND) -> Server:
        server = Server(routes or {}, otherwise)
        monkeypatch.setattr(httpx, "request", server)
        return server

    return serving


class OllamaModel(FakeListChatModel):
    responses: list[str] = Field(default_factory=lambda: ["yes"])
    model: str = "llama3.2"
    base_url: str | None = URL
    num_ctx: int | None = None


def openai_model(name: str = "m", base_url: str = f"{URL}/v1") -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=base_url, api_key=SecretStr("sk-secret"))


def window_of(model: Any) -> Window:
    return drive(find_window(model))


def list_of(*models: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's list of models."""
    return {"object": "list", "data": list(models)}


# -- the profile

GPT_4O = Window(128_000, 16_384, "profile", "the profile of ChatOpenAI")


def test_a_profile_has_a_window_and_the_tokens_of_an_answer(serve: Serve) -> None:
    server = serve()

    assert window_of(openai_model("gpt-4o")) == GPT_4O
    assert server.requests == []


def test_a_profile_is_found_behind_bindings(serve: Serve) -> None:
    server = serve()
    model = openai_model("gpt-4o").bind(stop=["."]).with_config(tags=["a"]).with_retry()

    assert window_of(model) == GPT_4O
    assert server.requests == []


@pytest.mark.parametrize("value", [0, -1, "128000", 128_000.0, True, None, [1], 10**30])
def test_a_profile_without_a_usable_count_has_no_window(serve: Serve, value: Any) -> None:
    server = serve()
    model = ChatOpenAI(
        model="gpt-4o", api_key=SecretStr("not-used"), profile={"max_input_tokens": 1}
    )
    assert model.profile is not None
    model.profile["max_input_tokens"] = value  # pydantic checks what the constructor gets

    assert window_of(model) == Window()
    assert server.requests == []


# -- servers that list their models

VLLM = {MODELS: list_of({"id": "Qwen/Qwen2.5-7B-Instruct", "max_model_len": 32_768})}
LLAMA_CPP = {MODELS: list_of({"id": "m", "meta": {"n_ctx_train": 131_072, "n_ctx": 8_192}})}
GROQ = {MODELS: list_of({"id": "m", "context_window": 131_072})}
MISTRAL = {MODELS: list_of({"id": "m", "max_context_length": 65_536})}
TOGETHER = {MODELS: [{"id": "m", "context_length": 7}, {"id": "n", "context_length": 8}]}
CHAT_OF_LM_STUDIO = {
    "id": "qwen",
    "type": "llm",
    "max_context_length": 32_768,
    "loaded_context_length": 4_096,
}
EMBEDDING_OF_LM_STUDIO = {
    "id": "text-embedding-nomic",
    "type": "embeddings",
    "max_context_length": 2_048,
}
LM_STUDIO_SERVER = {
    MODELS: list_of({"id": "qwen"}),
    LM_STUDIO: {"data": [CHAT_OF_LM_STUDIO, EMBEDDING_OF_LM_STUDIO]},
}


@pytest.mark.parametrize(
    ("routes", "name", "tokens"),
    [
        pytest.param(VLLM, "Qwen/Qwen2.5-7B-Instruct", 32_768, id="vLLM"),
        pytest.param(LLAMA_CPP, "any", 8_192, id="llama.cpp"),
        pytest.param(GROQ, "m", 131_072, id="Groq"),
        pytest.param(MISTRAL, "m:latest", 65_536, id="Mistral"),
        pytest.param(TOGETHER, "n", 8, id="Together"),
        pytest.param(LM_STUDIO_SERVER, "gpt-local", 4_096, id="LM Studio"),
    ],
)
def test_a_server_with_a_list_of_models_tells(
    serve: Serve, routes: Mapping[str, Any], name: str, tokens: int
) -> None:
    serve(routes)

    window = window_of(openai_model(name))

    assert window.tokens == tokens
    assert window.source == "served"
    assert window.failure is None


# -- Ollama

OTHER_IS_LOADED = [{"name": "other:latest", "context_length": 1_024}]
IS_LOADED = [*OTHER_IS_LOADED, {"name": "llama3.2:latest", "context_length": 16_384}]
PARAMETERS = "num_keep 24\nnum_ctx                        4096\nstop x"


@pytest.mark.parametrize(
    ("name", "loaded", "parameters", "tokens"),
    [
        pytest.param("llama3.2", OTHER_IS_LOADED, None, 131_072, id="of the model"),
        pytest.param("llama3.2", OTHER_IS_LOADED, PARAMETERS, 4_096, id="of its parameters"),
        pytest.param("llama3.2:latest", IS_LOADED, "stop x", 16_384, id="as it is loaded"),
    ],
)
def test_ollama_tells_what_it_uses(
    serve: Serve, name: str, loaded: list[Any], parameters: str | None, tokens: int
) -> None:
    info = {"general.architecture": "llama", "llama.context_length": 131_072}
    server = serve(
        {OLLAMA: {"parameters": parameters, "model_info": info}, LOADED: {"models": loaded}}
    )

    window = window_of(OllamaModel(model=name))

    assert window.tokens == tokens
    assert window.source == "served"
    assert server.requests[0] == LOADED


def test_ollama_is_not_asked_where_the_model_says_it(serve: Serve) -> None:
    server = serve()

    assert window_of(OllamaModel(num_ctx=8_192)).tokens == 8_192
    assert server.requests == []


# -- servers that do not tell


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
        (list_of({"id": "a", "context_length": 1}, {"id": "b"}), "names no length"),
        (
            list_of({"id": "m", "max_model_len": 10**30, "meta": {"n_ctx": "8192"}}),
            "names no length",
        ),
    ],
)
def test_a_bad_answer_is_a_failure(serve: Serve, answer: Any, reason: str) -> None:
    serve(otherwise=answer)

    window = window_of(openai_model())

    assert window.tokens is None
    assert window.source == "unknown"
    assert window.failure is not None
    assert window.failure.startswith(
        "http://models.example:8000/v1 did not tell the window of 'm': "
    )
    assert window.failure.count(reason) == 2, "one for each of the two requests"


# -- whom to ask, and with which key


def test_the_key_goes_to_the_server_of_the_model(serve: Serve) -> None:
    server = serve()

    window_of(openai_model())

    assert server.keys == {"Bearer sk-secret"}


@pytest.mark.parametrize("secret", ["ada", "pass", "query", "sk-secret"])
def test_a_window_does_not_show_a_secret(serve: Serve, secret: str) -> None:
    server = serve()
    model = openai_model(base_url="http://ada:pass@models.example:8000/v1?token=query")

    text = str(window_of(model))

    assert server.keys == {"Bearer sk-secret"}
    assert "http://models.example:8000/v1" in text
    assert secret not in text


class OpenAILike:
    """A model that is none of LangChain's, at some address."""

    model_name = "m"

    def __init__(self, url: str) -> None:
        self.openai_api_base = f"{url}/v1"


def azure_model() -> AzureChatOpenAI:
    return AzureChatOpenAI(
        azure_deployment="mine",
        api_version="1",
        api_key=SecretStr("k"),
        azure_endpoint="https://models.example",
    )


NOT_ASKED_ABOUT: Mapping[str, Callable[[], Any]] = {
    "OpenAI's own server": lambda: ChatOpenAI(model="nobody-knows", api_key=SecretStr("k")),
    "OpenAI's in Europe": lambda: openai_model(base_url="https://EU.API.openai.com/v1"),
    "Azure by its address": lambda: openai_model(
        base_url="https://mine.openai.azure.com/openai/v1/"
    ),
    "Azure": azure_model,
    "no server": lambda: FakeListChatModel(responses=["yes"]),
    "Ollama without an address": lambda: OllamaModel(base_url=None),
    "no scheme": lambda: OpenAILike("localhost:8000"),
    "another scheme": lambda: OpenAILike("ftp://host"),
    "no address": lambda: OpenAILike("http://[::1"),
}


@pytest.mark.parametrize("kind", NOT_ASKED_ABOUT)
def test_nobody_is_asked_about_other_models(serve: Serve, kind: str) -> None:
    server = serve({MODELS: list_of({"id": "m", "context_length": 4_096})})
    model = NOT_ASKED_ABOUT[kind]()

    assert window_of(model) == Window()
    assert server.requests == []


# -- in a pipeline


def reports_of_five_turns() -> list[ContextReport]:
    scope = {"user_id": "ada", "conversation_id": "c1"}
    pipeline = ContextPipeline({"max_context_tokens": 50_000}, model=openai_model())
    return [pipeline.assemble("Hi", **scope).report for _ in range(5)]


def test_a_pipeline_asks_a_server_once(serve: Serve) -> None:
    server = serve({MODELS: list_of({"id": "m", "context_length": 1_900})})

    reports = reports_of_five_turns()

    assert len(server.requests) == 1
    assert [report.window_source for report in reports] == ["served"] * 5
    assert [report.failures for report in reports] == [()] * 5
    assert reports[4].budget_tokens == 1_900


def test_a_pipeline_asks_a_server_once_that_does_not_tell(serve: Serve) -> None:
    server = serve()

    reports = reports_of_five_turns()

    assert len(server.requests) == 2, "at each of its two addresses"
    assert [report.window_source for report in reports] == ["unknown"] * 5
    assert all(report.failures for report in reports)
    assert reports[4].budget_tokens == 50_000


@pytest.mark.parametrize(
    "routes",
    [{MODELS: list_of({"id": "m", "context_length": 1_900})}, {}],
    ids=["told", "not told"],
)
def test_no_report_has_the_key_of_a_server(serve: Serve, routes: Mapping[str, Any]) -> None:
    serve(routes)

    for report in reports_of_five_turns():
        assert "sk-secret" not in str(report)
