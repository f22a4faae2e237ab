"""Where a model's window comes from: real models, and real servers on this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import Field

from langchain_ctxbudget.flow import drive
from langchain_ctxbudget.tokens import Window, windows, with_setting
from langchain_ctxbudget.tokens.windows import find_window, server_of
from tests.integration_tests.model_servers import (
    LM_STUDIO_OTHERWISE,
    ModelServer,
    Reply,
    Routes,
    as_json,
    lm_studio,
    model_list,
    ollama,
    vllm,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Find = Callable[[Any], Window]
Serve = Callable[..., ModelServer]

OPENAI_LINE, LM_STUDIO_LINE, OLLAMA_LINE = "GET /v1/models", "GET /api/v0/models", "POST /api/show"


class OllamaModel(FakeListChatModel):
    """Has the attributes of `ChatOllama`; its package is not installed with this one."""

    responses: list[str] = Field(default_factory=lambda: ["yes"])
    model: str = "llama3.2"
    base_url: str | None = None
    num_ctx: int | None = None


@pytest.fixture
def find() -> Find:
    return lambda model: drive(find_window(model))


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as servers:
        yield lambda routes, **rest: servers.enter_context(ModelServer(routes, **rest))


def openai_model(server: ModelServer, name: str, path: str = "/v1", **rest: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"model": name, "base_url": server.url + path, "api_key": "sk-secret", **rest})


def listing(**fields: Any) -> Routes:
    """A server that lists one model, named `m`, with these fields."""
    return {OPENAI_LINE: model_list({"id": "m", "object": "model", **fields})}


# -- the profile


def test_a_profile_tells_window_and_answer_also_behind_bindings_and_nobody_is_asked(find: Find, serve: Serve) -> None:
    server = serve(vllm("gpt-4o", window=4_096))
    model = openai_model(server, "gpt-4o")
    for wrapped in (model, model.bind(stop=["."]).with_config(tags=["a"]).with_retry()):
        window = find(wrapped)
        assert window == Window(
            tokens=128_000, output_tokens=16_384, source="profile", detail="the profile of ChatOpenAI"
        )
    assert server.asked == []


def test_a_profile_with_no_sound_window_tells_none() -> None:
    model = ChatOpenAI(model="gpt-4o", api_key="not-used", profile={"max_input_tokens": 1})
    for value in (0, -1, "128000", 128_000.0, True, None, [1], 10**30):
        model.profile["max_input_tokens"] = value  # pydantic checks what the constructor gets
        assert drive(find_window(model)) == Window()


def test_the_name_of_an_openai_model_tells_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    names = {"gpt-4o": 128_000, "openai:gpt-4.1": 1_047_576, "openrouter:openai/gpt-4o": 128_000}
    for name, tokens in {**names, " gpt-4.1-mini-2025-04-14 ": 1_047_576}.items():
        assert (drive(find_window(name)).tokens, drive(find_window(name)).source) == (tokens, "profile")
    for other in (None, "", "claude-sonnet-4-5", "llama3.2", "gpt-image-1"):
        assert drive(find_window(other)) == Window()


# -- servers that tell


def test_an_openai_compatible_server_tells(find: Find, serve: Serve) -> None:
    bare = {OPENAI_LINE: as_json([{"id": "m", "context_length": 7}, {"id": "n", "context_length": 8}])}
    both = {OPENAI_LINE: model_list({"id": "M", "context_length": 1}, {"id": "m", "context_length": 2})}
    for routes, name, tokens in (
        (vllm("Qwen/Qwen2.5-7B-Instruct"), "Qwen/Qwen2.5-7B-Instruct", 32_768),
        (listing(meta={"n_ctx_train": 131_072, "n_ctx": 8_192}), "any", 8_192),  # llama.cpp, under any name
        (listing(context_window=131_072), "m", 131_072),  # Groq
        (listing(max_context_length=65_536), "m:latest", 65_536),  # Mistral
        (listing(context_length=8_192, top_provider=None), "m", 8_192),
        (bare, "n", 8),  # Together
        (both, "m", 2),
    ):
        window = find(openai_model(serve(routes), name))
        assert (window.tokens, window.source, window.failure) == (tokens, "served", None)


def test_openrouter_tells_the_smaller_of_model_and_provider(serve: Serve) -> None:
    provider = {"context_length": 200_000, "max_completion_tokens": 64_000}
    entry = {"id": "a/two", "context_length": 1_000_000, "top_provider": provider}
    server = serve({"GET /api/v1/models": model_list({"id": "a/one", "context_length": 8_192}, entry)})
    window = drive(find_window(openai_model(server, "a/two", "/api/v1", profile={"max_output_tokens": 512})))
    assert (window.tokens, window.output_tokens) == (200_000, 64_000)


@pytest.mark.parametrize(("loaded", "tokens"), [(None, 32_768), (4_096, 4_096)])
def test_lm_studio_tells_what_is_loaded(find: Find, serve: Serve, loaded: int | None, tokens: int) -> None:
    server = serve(lm_studio("qwen", loaded=loaded), otherwise=LM_STUDIO_OTHERWISE)
    window = find(openai_model(server, "qwen"))
    assert (window.tokens, window.detail) == (tokens, f"LM Studio at {server.url}/v1")
    assert "its only model is 'qwen'" in find(openai_model(server, "gpt-local")).detail


def test_ollama_tells_what_it_uses(serve: Serve) -> None:
    for own, parameters, loaded, tokens in (
        (None, "stop  x", None, 131_072),
        (None, "num_keep 24\nnum_ctx                        4096\nstop x", 2_048, 4_096),
        (None, "stop x", 16_384, 16_384),
        (8_192, "num_ctx 4096", 16_384, 8_192),
        (500_000, "num_ctx 4096", None, 131_072),
    ):
        server = serve(ollama(parameters=parameters, loaded=loaded))
        window = drive(find_window(OllamaModel(base_url=server.url, num_ctx=own)))
        assert window.tokens == tokens
        assert ("the length of its training" in window.detail) == (own is loaded is None and tokens == 131_072)
        assert server.lines[0] == OLLAMA_LINE


def test_ollama_behind_its_openai_dialect_is_asked_last(find: Find, serve: Serve) -> None:
    server = serve(ollama(parameters="num_ctx 4096"))
    window = find(openai_model(server, "llama3.2", "/openai/v1"))
    assert (window.tokens, window.detail) == (4_096, f"Ollama at {server.url}/openai/v1")
    assert server.lines == ["GET /openai/v1/models", LM_STUDIO_LINE, OLLAMA_LINE]


# -- servers that do not tell


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (as_json({"error": "no"}, 404), "answered 404"),
        (Reply(b'{"data": ['), "answered no JSON"),
        (Reply(b"\xff\xfe\x00"), "answered no JSON"),
        (Reply(b"[" * 200_000), "answered no JSON"),
        (Reply(b" " * 10_000_001), "answered more than 10 MB"),
        (Reply(b"{", headers={"Content-Length": "50"}), "failed (RemoteProtocolError)"),
        (as_json("hello"), "does not have it"),
        (as_json({"data": [1, None, "m"]}), "does not have it"),
        (model_list({"id": "a", "context_length": 1}, {"id": "b"}), "a list of 2 models does not have it"),
        (model_list({"id": "m", "meta": None, "top_provider": [], "context_length": {}}), "names no context length"),
        (model_list({"id": "m", "max_model_len": 10**30, "meta": {"n_ctx": "8192"}}), "names no context length"),
        (Reply(b"", 302, {"Location": "http://127.0.0.1:9/v1/models"}), "answered 302"),
    ],
)
def test_a_bad_answer_is_a_failure(find: Find, serve: Serve, reply: Reply, reason: str) -> None:
    server = serve({}, otherwise=reply)
    window = find(openai_model(server, "m"))
    assert (window.tokens, window.source) == (None, "unknown")
    failure = window.failure or ""
    assert failure.startswith(f"{server.url}/v1 did not tell the window of 'm': ")
    assert failure.count(reason) >= 2  # Ollama's one model is in no list


@pytest.mark.parametrize("reply", [Reply(b"", hangs=True), Reply(b"{", drips=True)], ids=["hangs", "drips"])
def test_a_server_that_does_not_end_is_given_up_and_not_asked_again(
    serve: Serve, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "_ANSWER_SECONDS", 0.3)
    server = serve({}, otherwise=reply)
    window = drive(find_window(openai_model(server, "m")))
    assert "GET /v1/models got no answer in 0.3 s" in (window.failure or "")
    assert (window.hangs, server.lines) == (True, [OPENAI_LINE])


def test_a_num_ctx_holds_where_ollama_is_not_there(find: Find) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    window = find(OllamaModel(base_url=f"http://127.0.0.1:{port}", num_ctx=8_192))
    assert (window.tokens, window.source) == (8_192, "settings")
    assert "could not connect" in (window.failure or "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "id", "context_length", "meta", "n_ctx", "models"]), inner)
    ),
)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(JSON)
def test_no_answer_is_an_error(serve: Serve, answer: Any) -> None:
    window = drive(find_window(openai_model(serve({}, otherwise=as_json(answer)), "m")))
    assert (window.tokens is None) == (window.failure is not None)


# -- whom to ask, and with which key


def test_the_key_goes_to_the_models_own_server_and_is_not_shown(find: Find, serve: Serve) -> None:
    for routes in ({}, vllm("m")):
        server = serve(routes)
        find(openai_model(server, "m"))
        assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer sk-secret"}
        port = server.url.rpartition(":")[2]
        model = ChatOpenAI(model="m", base_url=f"http://ada:pass@127.0.0.1:{port}/v1?token=query", api_key="sk-secret")
        shown = f"{find(model)} {server_of(model)}"
        assert f"http://127.0.0.1:{port}/v1" in shown
        assert not any(secret in shown for secret in ("ada", "pass", "query", "sk-secret"))


class OpenAILike:
    """Any class with the attributes of `ChatOpenAI`, without its own client and that one's proxies."""

    model_name = "m"

    def __init__(self, url: str) -> None:
        self.openai_api_base = f"{url}/v1"


@pytest.mark.parametrize(
    "model",
    [
        ChatOpenAI(model="nobody-knows", api_key="k"),
        ChatOpenAI(model="nobody-knows", api_key="k", base_url="https://EU.API.openai.com/v1"),
        ChatOpenAI(model="nobody-knows", api_key="k", base_url="https://mine.openai.azure.com/openai/v1/"),
        AzureChatOpenAI(azure_deployment="mine", api_version="1", api_key="k", azure_endpoint="https://models.example"),
        FakeListChatModel(responses=["yes"]),
        OllamaModel(),
        OllamaModel(base_url="localhost"),
        *(OpenAILike(url) for url in ("localhost:8000", "ftp://host", "http://[::1", "http://host:x")),
    ],
)
def test_nobody_is_asked_about(model: Any) -> None:
    assert server_of(model) is None
    assert drive(find_window(model)) == Window()


def test_the_openai_variable_names_a_server(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{serve(vllm('m', window=4_096)).url}/v1")
    assert drive(find_window(ChatOpenAI(model="m", api_key="k"))).tokens == 4_096


# -- the setting


def test_the_setting_fills_an_unknown_window_and_gives_way_to_a_known_one() -> None:
    window = with_setting(Window(output_tokens=9, failure="no answer"), 8_192)
    expected = {"tokens": 8_192, "output_tokens": 9, "source": "settings", "detail": "window_tokens"}
    assert window == Window(**expected, failure="no answer")
    known = Window(tokens=4_096, source="served")
    assert (with_setting(known, 8_192), with_setting(Window(), None)) == (known, Window())
