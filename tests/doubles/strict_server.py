"""A server that answers good requests to all four APIs, and refuses all others with status 400.

It is what LangChain's packages talk to on this machine: `OPENAI_URL`, `base_url` and `api_endpoint`
of the models in `providers.py` name it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.doubles.anthropic import anthropic_problems
from tests.doubles.gemini import gemini_problems
from tests.doubles.openai_chat import chat_problems
from tests.doubles.openai_responses import responses_problems
from tests.doubles.recount import recount
from tests.doubles.server import CHAT_COMPLETIONS, Answer, Measure, OpenAIServer, says

Body = Mapping[str, Any]


class StrictServer(OpenAIServer):
    """Answers requests that the provider would accept, and refuses all others.

    `received` has the bodies as they came, `refused` what was wrong with those that were refused.
    Requests to Chat Completions of more than `max_tokens` input tokens are refused.
    """

    def __init__(
        self,
        answer: Answer = lambda _: says("Done."),
        *,
        max_tokens: int | None = None,
        measure: Measure = recount,
    ) -> None:
        super().__init__(answer, measure)
        self.max_tokens = max_tokens
        self.refused: list[str] = []

    def reply(self, path: str, body: Body) -> tuple[int, Body]:
        problems = _problems_of(path)(_with_model(path, body))
        if problems:
            return self.refuse("; ".join(problems), code=None)
        if path != CHAT_COMPLETIONS:
            self.received.append(body)
            return 200, _answer_of(path, str(self.answer(body)["content"]))
        if self.max_tokens is not None:
            tokens = self.measure(body)
            if tokens > self.max_tokens:
                message = (
                    f"Input tokens exceed the configured limit of {self.max_tokens} tokens. "
                    f"Yours are {tokens} tokens."
                )
                return self.refuse(message, code="context_length_exceeded")
        return super().reply(path, body)

    def refuse(self, message: str, code: str | None) -> tuple[int, Body]:
        self.refused.append(message)
        error = {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": code,
        }
        return 400, {"type": "error", "error": error}


def _problems_of(path: str) -> Callable[[Body], list[str]]:
    """What judges the requests to a path."""
    if path.endswith("/responses"):
        return responses_problems
    if path.endswith("/messages"):
        return anthropic_problems
    if path.endswith(":generateContent"):
        return gemini_problems
    return chat_problems


def _with_model(path: str, body: Body) -> Body:
    """A body with the model, which Gemini has in the address."""
    if "/models/" not in path:
        return body
    return {**body, "model": path.rpartition("/models/")[2].partition(":")[0]}


def _answer_of(path: str, text: str) -> Body:
    """An answer in the form of the API at a path."""
    if path.endswith("/responses"):
        return _answer_of_responses(text)
    if path.endswith("/messages"):
        return _answer_of_anthropic(text)
    return _answer_of_gemini(text)


def _answer_of_responses(text: str) -> Body:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    return {
        "id": "resp_1",
        "created_at": 0,
        "model": "gpt-4o",
        "object": "response",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "completed",
    }


def _answer_of_anthropic(text: str) -> Body:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _answer_of_gemini(text: str) -> Body:
    content = {"role": "model", "parts": [{"text": text}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
    }
