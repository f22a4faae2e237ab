"""Where a model's window comes from: real models, and real servers on this machine."""

from __future__ import annotations

import asyncio
import gzip
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import Field, SecretStr

from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.serving import server_of
from langchain_ctxbudget.windows import Window, find_window, with_setting
from tests.integration_tests.model_servers import (
    LM_STUDIO_OTHERWISE,
    ModelServer,
    Reply,
    Routes,
    as_json,
    llama_cpp,
    lm_studio,
    model_list,
    ollama,
    openrouter,
    vllm,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Find = Callable[[Any], Window]
Serve = Callable[..., ModelServer]

OPENAI_LINE, LM_STUDIO_LINE, OLLAMA_LINE = "GET /v1/models", "GET /api/v0/models", "POST /api/show"


class OllamaModel(FakeListChatModel):
    """What `ChatOllama` has; its package is not installed with this one."""

    responses: list[str] = Field(default_factory=lambda: ["yes"])
    model: str = "llama3.2"
    base_url: str | None = None
    num_ctx: int | None = None


@pytest.fixture(params=["sync", "async"])
def find(request: pytest.FixtureRequest) -> Find:
    if request.param == "sync":
        return lambda model: drive(find_window(model))
    return lambda model: asyncio.run(adrive(find_window(model)))


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as servers:
        yield lambda routes, **rest: servers.enter_context(ModelServer(routes, **rest))


def openai_model(server: ModelServer, name: str, path: str = "/v1", **rest: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"model": name, "base_url": server.url + path, "api_key": "sk-secret", **rest})


def ollama_model(server: ModelServer, **rest: Any) -> OllamaModel:
    return OllamaModel(base_url=server.url, **rest)


def listing(**fields: Any) -> Routes:
    """A server that lists one model, named `m`, with these fields."""
    return {OPENAI_LINE: model_list({"id": "m", "object": "model", **fields})}


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# The profile


def test_a_profile_tells_window_and_answer(find: Find) -> None:
    window = find(ChatOpenAI(model="gpt-4o", api_key="not-used"))
    assert window == Window(
        tokens=128_000, output_tokens=16_384, source="profile", detail="the profile of ChatOpenAI", failure=None
    )


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model.bind(stop=["."]),
        lambda model: model.with_config(tags=["a"]),
        lambda model: model.with_retry(),
        lambda model: model.bind(stop=["."]).with_config(tags=["a"]).with_retry(),
    ],
    ids=["bind", "with_config", "with_retry", "all"],
)
def test_a_profile_is_found_behind(wrap: Callable[[Any], Any]) -> None:
    assert drive(find_window(wrap(ChatOpenAI(model="gpt-4o", api_key="not-used")))).tokens == 128_000


@pytest.mark.parametrize("value", [0, -1, "128000", 128_000.0, True, None, [1], 10**30])
def test_a_profile_with_no_sound_window_tells_none(value: Any) -> None:
    model = ChatOpenAI(model="gpt-4o", api_key="not-used", profile={"max_input_tokens": 1})
    model.profile["max_input_tokens"] = value  # pydantic checks what the constructor gets
    assert drive(find_window(model)) == Window()


def test_a_profile_that_is_no_mapping_tells_none() -> None:
    class Odd:
        profile = "large"

    assert drive(find_window(Odd())) == Window()


def test_a_profile_may_tell_the_answer_and_a_server_the_window(find: Find, serve: Serve) -> None:
    server = serve(vllm("m", window=4_096))
    window = find(openai_model(server, "m", profile={"max_output_tokens": 512}))
    assert (window.tokens, window.output_tokens, window.source) == (4_096, 512, "served")


def test_nothing_is_asked_when_the_profile_tells(find: Find, serve: Serve) -> None:
    server = serve(vllm("gpt-4o", window=4_096))
    assert find(openai_model(server, "gpt-4o")).source == "profile"
    assert server.asked == []


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("gpt-4o", 128_000),
        ("openai:gpt-4.1", 1_047_576),
        ("openrouter:openai/gpt-4o", 128_000),
        (" gpt-4.1-mini-2025-04-14 ", 1_047_576),
    ],
)
def test_the_name_of_an_openai_model_tells_its_window(name: str, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    window = drive(find_window(name))
    assert (window.tokens, window.source) == (tokens, "profile")


@pytest.mark.parametrize("name", ["", "claude-sonnet-4-5", "anthropic:claude-sonnet-4-5", "llama3.2", "gpt-image-1"])
def test_another_name_tells_nothing(name: str) -> None:
    assert drive(find_window(name)) == Window()


def test_no_model_has_no_window(find: Find) -> None:
    assert find(None) == Window()


# Servers that tell


@pytest.mark.parametrize(
    ("routes", "name", "tokens"),
    [
        (vllm("Qwen/Qwen2.5-7B-Instruct", window=32_768), "Qwen/Qwen2.5-7B-Instruct", 32_768),
        (vllm("base", window=8_192, adapter="base-sql"), "base-sql", 8_192),
        (llama_cpp(trained=131_072, served=8_192), "any", 8_192),
        (llama_cpp(trained=32_768, served=65_536), "any", 65_536),
        (llama_cpp(trained=131_072, props=4_096), "any", 4_096),
        (llama_cpp(trained=131_072), "any", 131_072),
        (listing(context_window=131_072), "m", 131_072),
        (listing(context_length=200_000), "M", 200_000),
        (listing(max_context_length=65_536), "m:latest", 65_536),
        (listing(aliases=["fast"], context_length=10), "fast", 10),
        ({OPENAI_LINE: as_json([{"id": "m", "context_length": 7}, {"id": "n", "context_length": 8}])}, "n", 8),
    ],
    ids=[
        "vllm",
        "vllm adapter",
        "llama.cpp",
        "llama.cpp stretched",
        "llama.cpp props",
        "llama.cpp trained",
        "groq",
        "case",
        "mistral",
        "alias",
        "together",
    ],
)
def test_an_openai_compatible_server_tells(find: Find, serve: Serve, routes: Routes, name: str, tokens: int) -> None:
    window = find(openai_model(serve(routes), name))
    assert (window.tokens, window.source, window.failure) == (tokens, "served", None)


def test_openrouter_tells_the_smaller_of_model_and_provider(find: Find, serve: Serve) -> None:
    server = serve(openrouter(("a/one", 8_192, None, None), ("a/two", 1_000_000, 200_000, 64_000)))
    window = find(openai_model(server, "a/two", "/api/v1"))
    assert (window.tokens, window.output_tokens) == (200_000, 64_000)


def test_a_top_provider_that_is_null_takes_nothing_away(find: Find, serve: Serve) -> None:
    assert find(openai_model(serve(listing(context_length=8_192, top_provider=None)), "m")).tokens == 8_192


@pytest.mark.parametrize(("loaded", "tokens"), [(None, 32_768), (4_096, 4_096)])
def test_lm_studio_tells_what_is_loaded(find: Find, serve: Serve, loaded: int | None, tokens: int) -> None:
    server = serve(lm_studio("qwen", largest=32_768, loaded=loaded), otherwise=LM_STUDIO_OTHERWISE)
    window = find(openai_model(server, "qwen"))
    assert (window.tokens, window.detail) == (tokens, f"LM Studio at {server.url}/v1")


@pytest.mark.parametrize(
    ("own", "parameters", "loaded", "tokens"),
    [
        (None, "stop  x", None, 131_072),
        (None, "num_keep 24\nnum_ctx                        4096\nstop x", None, 4_096),
        (None, "num_ctx 4096", 2_048, 4_096),
        (None, "stop x", 16_384, 16_384),
        (8_192, "num_ctx 4096", 16_384, 8_192),
        (500_000, "num_ctx 4096", None, 131_072),
    ],
    ids=["trained", "modelfile", "modelfile before loaded", "loaded", "model object", "never above trained"],
)
def test_ollama_tells_what_it_uses(
    serve: Serve, own: int | None, parameters: str, loaded: int | None, tokens: int
) -> None:
    server = serve(ollama(parameters=parameters, loaded=loaded))
    assert drive(find_window(ollama_model(server, num_ctx=own))).tokens == tokens


def test_ollama_behind_its_openai_dialect_is_asked_last(find: Find, serve: Serve) -> None:
    server = serve(ollama("llama3.2:latest", parameters="num_ctx 4096"))
    window = find(openai_model(server, "llama3.2"))
    assert (window.tokens, window.detail) == (4_096, f"Ollama at {server.url}/v1")
    assert server.lines == [OPENAI_LINE, LM_STUDIO_LINE, OLLAMA_LINE]


def test_a_model_of_ollama_is_asked_about_as_ollama_only(find: Find, serve: Serve) -> None:
    server = serve({})
    assert find(ollama_model(server)).tokens is None
    assert server.lines == [OLLAMA_LINE]


def test_a_window_of_the_training_is_called_so(find: Find, serve: Serve) -> None:
    for model in (ollama_model(serve(ollama())), openai_model(serve(llama_cpp()), "any")):
        assert "the length of its training" in find(model).detail


def test_one_request_is_enough_where_the_first_tells(find: Find, serve: Serve) -> None:
    server = serve(vllm("m"))
    find(openai_model(server, "m"))
    assert server.lines == [OPENAI_LINE]


@pytest.mark.parametrize(("path", "root"), [("/v1", ""), ("/api/v1", ""), ("/openai/v1", ""), ("/team/v1/", "/team")])
def test_the_root_is_the_base_without_the_api(find: Find, serve: Serve, path: str, root: str) -> None:
    server = serve({})
    find(openai_model(server, "m", path))
    assert server.lines == [
        f"GET {path.rstrip('/')}/models",
        f"GET {root}/api/v0/models",
        f"POST {root}/api/show",
    ]


# Which model


def test_the_exact_name_comes_before_a_name_like_it(serve: Serve) -> None:
    server = serve({OPENAI_LINE: model_list({"id": "M", "context_length": 1}, {"id": "m", "context_length": 2})})
    assert drive(find_window(openai_model(server, "m"))).tokens == 2


def test_of_several_models_none_is_taken_for_another(find: Find, serve: Serve) -> None:
    server = serve({OPENAI_LINE: model_list({"id": "a", "context_length": 1}, {"id": "b", "context_length": 2})})
    window = find(openai_model(server, "c"))
    assert window.tokens is None
    assert "a list of 2 models does not have it" in (window.failure or "")


def test_an_only_model_is_taken_under_any_name_and_named(find: Find, serve: Serve) -> None:
    window = find(openai_model(serve(vllm("served", window=4_096)), "asked"))
    assert (window.tokens, "its only model is 'served'" in window.detail) == (4_096, True)


def test_an_embedding_model_beside_it_leaves_a_chat_model_the_only_one(serve: Serve) -> None:
    assert drive(find_window(openai_model(serve(lm_studio("qwen")), "gpt-local"))).tokens == 32_768


# Servers that do not tell


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (as_json({"error": "no"}, 404), "answered 404"),
        (as_json({"error": "no"}, 500), "answered 500"),
        (as_json({"error": "no"}, 401), "answered 401"),
        (Reply(b""), "answered no JSON"),
        (Reply(b'{"data": ['), "answered no JSON"),
        (Reply(b"<html>"), "answered no JSON"),
        (Reply(b"\xff\xfe\x00"), "answered no JSON"),
        (Reply(b"[" * 200_000), "answered no JSON"),
        (Reply(b'{"data": ' + b"9" * 5_000 + b"}"), "answered no JSON"),
        (Reply(gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}), "answered no JSON"),
        (Reply(b" " * 10_000_001), "answered more than 10 MB"),
        (Reply(b"{", headers={"Content-Length": "50"}), "failed (RemoteProtocolError)"),
        (Reply(b"{}", status=99), "failed (RemoteProtocolError)"),
        (as_json({"data": None}), "does not have it"),
        (as_json("hello"), "does not have it"),
        (as_json({"data": [1, None, "m"]}), "does not have it"),
        (model_list(), "does not have it"),
        (model_list({"id": ["m"]}, {"id": None}), "does not have it"),
        (model_list({"id": "m"}), "names no context length"),
        (model_list({"id": "m", "meta": None, "top_provider": [], "context_length": {}}), "names no context length"),
    ],
)
def test_a_bad_answer_is_a_failure(find: Find, serve: Serve, reply: Reply, reason: str) -> None:
    server = serve({}, otherwise=reply)
    window = find(openai_model(server, "m"))
    assert (window.tokens, window.source) == (None, "unknown")
    failure = window.failure or ""
    assert failure.startswith(f"{server.url}/v1 did not tell the window of 'm': ")
    assert failure.count(reason) >= 2  # Ollama's one model is in no list


@pytest.mark.parametrize("value", [0, -1, -8_192, "8192", 8_192.0, True, None, [8_192], {"max": 8_192}, 10**30])
def test_a_length_that_is_no_sound_number_is_no_window(find: Find, serve: Serve, value: Any) -> None:
    info = {"general.architecture": "llama", "llama.context_length": value}
    routes = {
        **listing(max_model_len=value, meta={"n_ctx": value, "n_ctx_train": value}),
        LM_STUDIO_LINE: model_list({"id": "m", "loaded_context_length": value}),
        OLLAMA_LINE: as_json({"model_info": info, "parameters": value}),
    }
    window = find(openai_model(serve(routes), "m"))
    assert window.tokens is None
    assert (window.failure or "").count("names no context length") == 3


@pytest.mark.parametrize("shown", [[], {"model_info": []}, {"parameters": "num_ctx 0"}, {"parameters": "num_ctx -1"}])
def test_ollama_without_a_length_is_a_failure(find: Find, serve: Serve, shown: Any) -> None:
    window = find(ollama_model(serve({OLLAMA_LINE: as_json(shown)})))
    assert (window.tokens, "names no context length" in (window.failure or "")) == (None, True)


def test_what_ollama_does_not_have_is_a_failure(find: Find, serve: Serve) -> None:
    window = find(ollama_model(serve(ollama("mistral:latest")), model="llama3.2"))
    assert (window.tokens, "POST /api/show answered 404" in (window.failure or "")) == (None, True)


@pytest.mark.parametrize("running", [as_json([]), as_json({"models": [3]}), Reply(b"", status=500)])
def test_ollama_that_hides_what_runs_tells_the_training(find: Find, serve: Serve, running: Reply) -> None:
    assert find(ollama_model(serve({**ollama(), "GET /api/ps": running}))).tokens == 131_072


def test_a_hanging_server_is_given_up_and_not_asked_again(find: Find, serve: Serve) -> None:
    server = serve({}, otherwise=Reply(b"", hangs=True))
    window = find(openai_model(server, "m"))
    assert "GET /v1/models got no answer in 2 s" in (window.failure or "")
    assert server.lines == [OPENAI_LINE]


def test_an_answer_that_never_ends_is_given_up(find: Find, serve: Serve) -> None:
    server = serve({}, otherwise=Reply(b"{", drips=True))
    assert "GET /v1/models got no answer in 2 s" in (find(openai_model(server, "m")).failure or "")


def test_a_server_that_is_not_there_is_a_failure(find: Find) -> None:
    model = ChatOpenAI(model="m", base_url=f"http://127.0.0.1:{closed_port()}/v1", api_key="sk-secret")
    assert (find(model).failure or "").endswith("GET /v1/models could not connect")


def test_all_that_was_tried_is_in_the_failure(find: Find, serve: Serve) -> None:
    failure = find(openai_model(serve({}), "m")).failure or ""
    assert all(f"{line} answered 404" in failure for line in (OPENAI_LINE, LM_STUDIO_LINE, OLLAMA_LINE))


def test_a_num_ctx_holds_where_ollama_does_not_answer(find: Find, serve: Serve) -> None:
    window = find(ollama_model(serve({}), num_ctx=8_192))
    assert (window.tokens, window.source, window.detail) == (8_192, "settings", "num_ctx of the model")
    assert "answered 404" in (window.failure or "")


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines", "\ud800"])
def test_a_key_that_no_header_takes_is_a_failure(find: Find, serve: Serve, key: str) -> None:
    class Odd:
        model, base_url, api_key = "m", serve(vllm("m")).url, SecretStr(key)

    assert "failed (" in (find(Odd()).failure or "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "data models id name aliases parent meta top_provider context_length max_model_len n_ctx n_ctx_train "
                "model_info general.architecture llama.context_length parameters default_generation_settings".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(answer=JSON)
def test_no_answer_is_an_error(answer: Any) -> None:
    with ModelServer({}, otherwise=as_json(answer)) as server:
        for model in (openai_model(server, "m"), ollama_model(server)):
            window = drive(find_window(model))
            assert (window.tokens is None) == (window.failure is not None)
            assert window.tokens is None or window.tokens > 0


# Who is asked, and with what


def test_the_key_goes_to_the_model_s_own_server(find: Find, serve: Serve) -> None:
    server = serve({})
    find(openai_model(server, "m"))
    assert [asked.headers.get("authorization") for asked in server.asked] == ["Bearer sk-secret"] * 3


def test_answers_are_asked_for_as_they_are(find: Find, serve: Serve) -> None:
    server = serve(vllm("m"))
    find(openai_model(server, "m"))
    assert server.asked[0].headers["accept-encoding"] == "identity"


def test_no_key_no_header(find: Find, serve: Serve) -> None:
    server = serve(ollama())
    find(ollama_model(server))
    assert all("authorization" not in asked.headers for asked in server.asked)


def test_a_key_that_a_function_makes_is_not_made(find: Find, serve: Serve) -> None:
    made: list[str] = []
    server = serve(vllm("m"))
    find(openai_model(server, "m", api_key=lambda: made.append("key") or "key"))
    assert (made, "authorization" in server.asked[0].headers) == ([], False)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_to_another_host_is_not_followed(find: Find, serve: Serve, status: int) -> None:
    other = serve(vllm("m"))
    moved = Reply(b"", status, {"Location": f"{other.url}/v1/models"})
    window = find(openai_model(serve({}, otherwise=moved), "m"))
    assert f"GET /v1/models answered {status}" in (window.failure or "")
    assert other.asked == []


def test_a_proxy_is_not_asked_about_this_machine(find: Find, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, server = serve({}), serve(vllm("m", window=4_096))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert find(OpenAILike(server.url)).tokens == 4_096
    assert proxy.asked == []


def test_a_proxy_is_asked_about_another_machine(find: Find, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve({"GET http://models.example/v1/models": model_list({"id": "m", "context_length": 4_096})})
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy.url)
    assert find(OpenAILike("http://models.example")).tokens == 4_096


class OpenAILike:
    """Any class with the attributes of `ChatOpenAI`, without its own client and that one's proxies."""

    model_name = "m"

    def __init__(self, url: str) -> None:
        self.openai_api_base = f"{url}/v1"


@pytest.mark.parametrize(
    "model",
    [
        ChatOpenAI(model="nobody-knows", api_key="k"),
        ChatOpenAI(model="nobody-knows", api_key="k", base_url="https://api.openai.com/v1"),
        ChatOpenAI(model="nobody-knows", api_key="k", base_url="https://EU.API.openai.com/v1"),
        ChatOpenAI(model="nobody-knows", api_key="k", base_url="https://mine.openai.azure.com/openai/v1/"),
        AzureChatOpenAI(azure_deployment="mine", api_version="1", api_key="k", azure_endpoint="https://models.example"),
        AzureChatOpenAI(api_version="1", api_key="k", base_url="https://models.example/openai/deployments/mine"),
        FakeListChatModel(responses=["yes"]),
        OllamaModel(),
        OllamaModel(base_url="localhost"),
    ],
    ids=[
        "default",
        "openai",
        "openai europe",
        "azure url",
        "azure",
        "azure deployment",
        "no url",
        "ollama",
        "no scheme",
    ],
)
def test_nobody_is_asked_about(model: Any) -> None:
    assert server_of(model) is None
    assert drive(find_window(model)) == Window()


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://host/v1", "http://", "http://[::1", "http://host:x/v1"])
def test_a_base_url_that_is_no_address_is_not_asked(url: str) -> None:
    class Odd:
        model, base_url = "m", url

    assert server_of(Odd()) is None


def test_the_openai_variable_names_a_server(find: Find, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{serve(vllm('m', window=4_096)).url}/v1")
    assert find(ChatOpenAI(model="m", api_key="k")).tokens == 4_096


@pytest.mark.parametrize("variable", ["", "http://models.example/v1"])
def test_the_default_of_a_subclass_names_no_server(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", variable)

    class Hosted:
        model, openai_api_base = "m", None
        root_client = ChatOpenAI(model="m", api_key="k", base_url="http://hosted.example/v1").root_client

    assert server_of(Hosted()) is None


def test_the_address_that_ollama_s_client_completed_is_asked(find: Find, serve: Serve) -> None:
    server = serve(ollama(parameters="num_ctx 4096"))

    class Client:
        base_url = server.url

    class Outer:
        _client = Client()

    class Model:
        model, base_url, num_ctx, _client = "llama3.2", None, None, Outer()

    assert find(Model()).tokens == 4_096


@pytest.mark.parametrize("routes", [{}, vllm("m")], ids=["failure", "success"])
def test_neither_credentials_nor_queries_are_shown(find: Find, serve: Serve, routes: Routes) -> None:
    port = serve(routes).url.rpartition(":")[2]
    model = ChatOpenAI(model="m", base_url=f"http://ada:pass@127.0.0.1:{port}/v1?token=query", api_key="sk-secret")
    shown = f"{find(model)} {server_of(model)}"
    assert f"http://127.0.0.1:{port}/v1" in shown
    assert not any(secret in shown for secret in ("ada", "pass", "query", "sk-secret"))


def test_the_password_of_an_address_goes_to_it(find: Find, serve: Serve) -> None:
    server = serve(ollama())
    find(OllamaModel(base_url=server.url.replace("http://", "http://ada:pass@")))
    assert all(asked.headers["authorization"].startswith("Basic ") for asked in server.asked)


# The setting


def test_the_setting_fills_an_unknown_window() -> None:
    window = with_setting(Window(output_tokens=9, failure="no answer"), 8_192)
    assert window == Window(
        tokens=8_192, output_tokens=9, source="settings", detail="window_tokens", failure="no answer"
    )


def test_the_setting_gives_way_to_what_is_known() -> None:
    known = Window(tokens=4_096, source="served")
    assert with_setting(known, 8_192) is known


def test_no_setting_changes_nothing() -> None:
    assert with_setting(Window(), None) == Window()


@pytest.mark.parametrize("heavy", ["httpx", "langchain_openai", "langchain_ctxbudget.windows"])
def test_importing_the_package_does_not_load(heavy: str) -> None:
    code = f"import sys, langchain_ctxbudget; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
