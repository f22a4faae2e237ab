"""A chat service for many users, with Starlette, on a Chroma server.

One pipeline for everybody, async all the way.

    POST /chat    {"thread_id": ..., "message": ..., "stream": false}: the answer; with "stream" as
    it is written GET /report   what the user's last prompt was made of DELETE /me    everything of
    the user is erased

Who asks is said by a bearer token, never by what is sent: thread ids belong to their user, and two
users may have the same. Needs the extra `dashboard`. `CHROMA_URL=... uvicorn --factory
service:create_app` serves it. As a script it has four users at once, on a Chroma server of its own
where CHROMA_URL names none. With OPENAI_API_KEY set it calls the real model, otherwise one that
repeats what it was told.

    python examples/server/service.py
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import httpx
import uvicorn
from chroma_pipeline import chroma_server, open_store
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from starlette.applications import Starlette
from starlette.authentication import (
    AuthCredentials,
    AuthenticationBackend,
    AuthenticationError,
    SimpleUser,
)
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from langchain_ctxbudget import ContextPipeline, ContextReport
from langchain_ctxbudget.errors import BudgetError, InputError, StoreError

TOKENS = {
    f"demo-token-{number}": user for number, user in enumerate(("ada", "bo", "cleo", "dag"), 1)
}
"""A real service asks its identity provider."""
STATUS: dict[type[Exception], int] = {BudgetError: 413, InputError: 400, StoreError: 503}
"""The package's errors as a client of the service sees them."""
BUDGET_TOKENS = 600
TURNS = 12


class ParrotModel(BaseChatModel):
    """Repeats every code that stands in its prompt, whoever said it."""

    @property
    def _llm_type(self) -> str:
        return "parrot"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - as the base class has it
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> ChatResult:
        codes = sorted(
            set(re.findall(r"code-\w+", "\n".join(message.text for message in messages)))
        )
        return ChatResult(
            generations=[ChatGeneration(message=AIMessage(" ".join(codes) or "Nothing."))]
        )


def make_model() -> BaseChatModel:
    """The real model where there is a key, else the parrot."""
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI  # noqa: PLC0415 - only with a key

        return ChatOpenAI(model="gpt-4o-mini")
    return ParrotModel()


class BearerTokens(AuthenticationBackend):
    """Who asks, by their token."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        """Find the user; without one nothing is answered."""
        kind, _, token = conn.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or token not in TOKENS:
            raise AuthenticationError("no such token")
        return AuthCredentials(["authenticated"]), SimpleUser(TOKENS[token])


async def chat(request: Request) -> Response:
    """Answer a message; what was said is stored when the answer is complete."""
    given = await read(request)
    pipeline: ContextPipeline = request.state.pipeline
    scope = {"user_id": request.user.username, "conversation_id": given.get("thread_id", "")}
    context = await pipeline.aassemble(given["message"], **scope)
    request.state.reports[request.user.username] = context.report

    async def answer() -> AsyncIterator[str]:
        said = ""
        async for chunk in request.state.model.astream(context.messages):
            said += chunk.text
            yield chunk.text
        await pipeline.aadd_messages([HumanMessage(given["message"]), AIMessage(said)], **scope)

    if given.get("stream"):
        return StreamingResponse(answer(), media_type="text/plain")
    return JSONResponse({"answer": "".join([part async for part in answer()])})


async def report(request: Request) -> Response:
    """What the user's last prompt was made of."""
    found: ContextReport | None = request.state.reports.get(request.user.username)
    return (
        JSONResponse(found.to_dict())
        if found
        else JSONResponse({"error": "nothing was answered yet"}, 404)
    )


async def forget(request: Request) -> Response:
    """Erase everything of the user."""
    request.state.reports.pop(request.user.username, None)
    return JSONResponse(
        {"erased": await request.state.pipeline.aerase_user(user_id=request.user.username)}
    )


async def read(request: Request) -> Mapping[str, Any]:
    """The JSON object that was sent, with a message.

    Raises:
        InputError: it is something else.
    """
    try:
        given = await request.json()
    except ValueError as error:
        raise InputError(f"the body is no JSON: {error}") from error
    if not isinstance(given, Mapping) or not isinstance(given.get("message"), str):
        raise InputError('the body must be a JSON object with a text as "message"')
    return given


async def refuse(_request: Request, error: Exception) -> Response:
    """Say what is wrong."""
    return JSONResponse(
        {"error": str(error)},
        next(code for kind, code in STATUS.items() if isinstance(error, kind)),
    )


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
    """What all requests share, from when the service starts to when it ends."""
    model = make_model()
    store = await asyncio.to_thread(open_store, os.environ["CHROMA_URL"])
    async with ContextPipeline(
        {"max_context_tokens": BUDGET_TOKENS}, model=model, store=store
    ) as pipeline:
        yield {"pipeline": pipeline, "model": model, "reports": {}}
    await asyncio.to_thread(store.close)


def create_app() -> Starlette:
    """The service, on the Chroma server at CHROMA_URL."""
    authentication = Middleware(
        AuthenticationMiddleware,
        backend=BearerTokens(),
        on_error=lambda _connection, error: JSONResponse({"error": str(error)}, 401),
    )
    return Starlette(
        routes=[
            Route("/chat", chat, methods=["POST"]),
            Route("/report", report),
            Route("/me", forget, methods=["DELETE"]),
        ],
        middleware=[authentication],
        exception_handlers=dict.fromkeys(STATUS, refuse),
        lifespan=lifespan,
    )


@asynccontextmanager
async def served() -> AsyncIterator[str]:
    """The address of the service, which runs until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(create_app, factory=True, log_level="warning"))
        running = asyncio.create_task(server.serve([listener]))
        try:  # who connects before it has started waits in the listener
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


async def use(client: httpx.AsyncClient, token: str) -> None:
    """One user's conversation, in a thread that has the same name for everybody."""
    user = TOKENS[token]
    headers = {"Authorization": f"Bearer {token}"}
    times: list[float] = []
    for number in range(TURNS):
        remark = f"Remark {number} of {user}: it is getting late, and the code for door {number} is code-{user}{number}."
        started = time.perf_counter()
        sent = {"thread_id": "main", "message": remark, "stream": number % 2 == 1}
        answered = await client.post("/chat", json=sent, headers=headers)
        answered.raise_for_status()
        times.append((time.perf_counter() - started) * 1_000)
        foreign = [
            other for other in TOKENS.values() if other != user and f"code-{other}" in answered.text
        ]
        assert not foreign, f"{user} was told words of {foreign}"
    question = "What is the code for door 0?"
    answer = (
        await client.post("/chat", json={"thread_id": "main", "message": question}, headers=headers)
    ).json()
    made_of = (await client.get("/report", headers=headers)).json()
    print(
        f"{user:<6}{TURNS:>8}{made_of['coverage'][-1]['last']:>10}{made_of['total_tokens']:>8,}{median(times):>8.0f}"
        f"{max(times):>8.0f}  {' '.join(sorted(set(re.findall('code-[a-z]+', answer['answer']))))}"
    )


async def main() -> None:
    """Serve four users at once, then requests that are refused."""
    with chroma_server() as url:
        os.environ["CHROMA_URL"] = url
        async with (
            served() as address,
            httpx.AsyncClient(base_url=address, timeout=60, trust_env=False) as client,
        ):
            print(
                f"{len(TOKENS)} users at once, all in a thread of the same name; prompts of {BUDGET_TOKENS:,} tokens"
            )
            print("user     turns  messages  tokens  median     max  whose codes the model knows")
            print("                                      ms      ms")
            started = time.perf_counter()
            await asyncio.gather(*(use(client, token) for token in TOKENS))
            print(f"{len(TOKENS) * (TURNS + 1)} answers in {time.perf_counter() - started:.1f} s\n")
            known = {"Authorization": f"Bearer {next(iter(TOKENS))}"}
            for title, headers, sent in (
                ("no token", {}, {"thread_id": "main", "message": "Hello"}),
                ("no thread", known, {"message": "Hello"}),
                ("no message", known, {"thread_id": "main"}),
                ("too long", known, {"thread_id": "main", "message": "far " * BUDGET_TOKENS}),
            ):
                refused = await client.post("/chat", json=sent, headers=headers)
                print(
                    f"{title + ':':<12}{refused.status_code} {refused.json()['error'].splitlines()[0]}"
                )
            for token in TOKENS:
                (
                    await client.delete("/me", headers={"Authorization": f"Bearer {token}"})
                ).raise_for_status()


if __name__ == "__main__":
    asyncio.run(main())
