"""One question to a chat model, with a time limit that holds for threads and for tasks."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.flow import Call, Flow
from langchain_ctxbudget.messages import one_line
from langchain_ctxbudget.tokens import token_count, unwrapped

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import
    from langchain_core.runnables import Runnable, RunnableConfig

T = TypeVar("T")

DEFAULT_WINDOW_TOKENS = 16_000
FRAMING_TOKENS = 32
"""For the messages and the priming of the reply; generous, as the model's own framing is not known."""
MOST_REPLY_CHARACTERS = 200_000
"""A longer reply has lost its way."""
SPEAKER_CHARACTERS = 40
_ERROR_CHARACTERS = 300
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)


class TooSlowError(Exception):
    """The model did not answer in time; whoever asked says so in an error of their own."""


class NoReplyError(Exception):
    """The model gave no reply that could be read; says why, for each time that it was asked."""


class StructuredModel:
    """A chat model that is asked for JSON of a schema: bound to the schema where it can be, then in words.

    Args:
        model: any chat model.
        schema: the JSON schema of its reply.
        timeout_seconds: the most that one call may take, its own retries included.
        window_tokens: its window where its profile does not tell it.
        names: of its calls in traces, and of their source.
        quotes: a failure is told with its text, which may repeat what users said.
    """

    def __init__(
        self,
        model: BaseChatModel,
        schema: dict[str, Any],
        timeout_seconds: float,
        window_tokens: int,
        *,
        names: tuple[str, str],
        quotes: bool,
    ) -> None:
        inner = unwrapped(model)
        self.model, self.name = model, name_of(inner)
        self.kind = f"{type(inner).__name__}/{self.name}"
        self.window_tokens = profile_window(inner) or window_tokens
        self._seconds, self._quotes, self._names = timeout_seconds, quotes, names
        self._bound = bound_to_schema(model, schema)

    def ask(self, instructions: str, in_words: str, data: str, read: Callable[[str | Mapping[str, Any]], T]) -> Flow[T]:
        """Asks twice at most; returns the first reply that can be read.

        Args:
            instructions: the system message.
            in_words: its end where no schema asks for the format.
            data: the human message.
            read: reads a reply; a `ValueError` of it says why it cannot.

        Raises:
            NoReplyError: neither reply could be read.
        """
        failures = []
        for number, bound in enumerate((self._bound, None), 1):  # a server that garbles a schema may follow words
            messages = [SystemMessage(instructions if bound else instructions + in_words), HumanMessage(data)]
            name, source = self._names
            try:
                reply = yield model_call(bound or self.model, messages, self._seconds, run_name=name, source=source)
            except TooSlowError:
                failure = f"no reply within {self._seconds:g} seconds"
            except Exception as error:  # noqa: BLE001 - models and their clients raise anything
                status = getattr(error, "status_code", None)
                told = f": {error}" if self._quotes else f" ({status})" if isinstance(status, int) else ""
                failure = clipped(f"{type(error).__name__}{told}", _ERROR_CHARACTERS)
            else:
                try:
                    return read(content_of(reply))
                except ValueError as error:
                    failure = str(error)
            failures.append(f"attempt {number}: {failure}")
        raise NoReplyError("; ".join(failures))


def model_call(
    runnable: Runnable[Any, Any],
    messages: Sequence[BaseMessage],
    seconds: float,
    *,
    run_name: str = "summarize_history",
    source: str = "summarization",
) -> Call:
    """Returns a question to a model, or to what is bound to one; `run_name` and `source` name it in traces.

    A call that takes longer than so many seconds is left to itself, and raises a `TooSlowError`.
    """
    from langgraph.constants import TAG_NOSTREAM  # noqa: PLC0415 - not needed before a model is called

    # Traced as what it is, and kept out of the tokens that an agent streams to its user.
    config: RunnableConfig = {
        "run_name": run_name,
        "tags": [TAG_NOSTREAM],
        "metadata": {"lc_source": source},
    }

    def blocking() -> Any:  # noqa: ANN401
        try:
            return runnable.invoke(messages, config)
        except asyncio.CancelledError as error:  # the model's, not that of whoever waits here
            raise RuntimeError("the model's call was cancelled") from error

    def in_thread() -> Any:  # noqa: ANN401
        future = _in_daemon_thread(blocking)
        if not wait([future], timeout=seconds).done:
            raise TooSlowError
        return future.result()

    async def in_task() -> Any:  # noqa: ANN401
        try:
            async with asyncio.timeout(seconds) as limit:
                if _is_async(runnable):
                    return await runnable.ainvoke(messages, config)
                # `ainvoke` would use the loop's pool, whose threads are waited for when the loop closes.
                return await asyncio.wrap_future(_in_daemon_thread(blocking))
        except asyncio.CancelledError as error:
            raise _whose(error) from error
        except TimeoutError:
            if limit.expired():
                raise TooSlowError from None
            raise  # the model's own

    return Call(in_thread, in_task)


def _whose(error: asyncio.CancelledError) -> BaseException:
    """Returns the cancellation of the task that waits, or an error where only the model's own call was cancelled."""
    task = asyncio.current_task()
    return error if task is None or task.cancelling() else RuntimeError("the model's call was cancelled")


def _in_daemon_thread(function: Callable[[], T]) -> Future[T]:
    """Runs a function in a thread that the interpreter does not wait for, unlike those of a pool."""
    future: Future[T] = Future()
    context = copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = context.run(function)
        except StopIteration as error:  # a future of asyncio cannot carry it
            future.set_exception(RuntimeError(f"the model raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - belongs to whoever waits
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="ctxbudget-model-call", daemon=True).start()
    return future


def _is_async(runnable: Runnable[Any, Any]) -> bool:
    """Tells if a model awaits its replies, rather than blocking a thread of a pool."""
    from langchain_core.language_models import BaseChatModel as Model  # noqa: PLC0415
    from langchain_core.language_models import SimpleChatModel  # noqa: PLC0415

    kind = type(unwrapped(runnable))
    if not issubclass(kind, Model):
        return True
    in_a_pool = (Model._agenerate, SimpleChatModel._agenerate)  # noqa: SLF001 - what a model class overrides
    return kind._agenerate not in in_a_pool or kind.ainvoke is not Model.ainvoke  # noqa: SLF001


def bound_to_schema(model: BaseChatModel, schema: dict[str, Any]) -> Runnable[Any, Any] | None:
    """Returns the model bound to the JSON schema of its reply; None where it cannot be.

    Where it can be told apart, it is only the model, without the parser behind it: the parser would throw prose away,
    and take JSON that was cut off for whole. (`include_raw=True` keeps the prose, but runs the model in a pool, whose
    threads an exit of the interpreter waits for.)
    """
    from langchain_core.language_models import BaseChatModel as Model  # noqa: PLC0415
    from langchain_core.runnables import RunnableSequence  # noqa: PLC0415

    try:
        chain = model.with_structured_output(schema)
    except Exception:  # noqa: BLE001 - no two classes say in the same way that they cannot
        return None
    if isinstance(chain, RunnableSequence) and isinstance(unwrapped(chain.first), Model):
        return chain.first
    return chain


def name_of(inner: object) -> str:
    """Returns the name of a model, as its client knows it; else of its class."""
    names = (getattr(inner, attribute, None) for attribute in ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), type(inner).__name__)


def profile_window(inner: object) -> int | None:
    """Returns the window that a model's profile tells, in tokens."""
    profile = getattr(inner, "profile", None)
    return token_count(profile.get("max_input_tokens")) if isinstance(profile, Mapping) else None


def content_of(reply: Any) -> str | Mapping[str, Any]:  # noqa: ANN401 - a message, or what a chain makes of one
    """Returns the fields of a reply where the client has read them, else its text."""
    if isinstance(reply, BaseMessage):
        calls = getattr(reply, "tool_calls", None) or getattr(reply, "invalid_tool_calls", None)
        if calls:
            arguments: str | Mapping[str, Any] = calls[0]["args"] or ""
            return arguments
        return str(reply.text)
    fields = reply.model_dump() if hasattr(reply, "model_dump") else reply
    return fields if isinstance(fields, Mapping) else str(fields or "")


def clipped(text: str, characters: int) -> str:
    """Returns the beginning of a text on one line, with an ellipsis where it was longer."""
    flat = one_line(text[: 4 * characters])
    if len(flat) <= characters and len(text) <= 4 * characters:
        return flat
    return flat[: characters - 1].rstrip() + "…"


def reply_object(reply: str | Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Returns the JSON object of a reply that has one of some fields first, in a code fence or among words too.

    Raises:
        ValueError: there is none; says why, and shows nothing of the reply.
    """
    if isinstance(reply, Mapping):
        return reply
    text = without_thoughts(reply)
    begins = re.search(rf'\{{\s*"(?:{"|".join(names)})"\s*:', text)
    begin = begins.start() if begins else text.find("{")
    if len(text) > MOST_REPLY_CHARACTERS:
        raise ValueError(f"a reply of {len(text):,} characters")
    if begin < 0:
        raise ValueError("a reply that is not a JSON object" if text else "an empty reply")
    try:
        # Line breaks inside strings are a common mistake of small models.
        value: Mapping[str, Any] = json.JSONDecoder(strict=False).raw_decode(text, begin)[0]
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise ValueError(f"invalid JSON ({reason})") from None
    return value


def without_thoughts(reply: str) -> str:
    """Returns a reply without what the model thought aloud before it."""
    return _THOUGHTS.sub("", reply, count=1).strip()
