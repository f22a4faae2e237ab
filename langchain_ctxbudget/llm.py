"""One question to a chat model, with a time limit.

Background jobs ask it, so it has no async form.
"""

import json
import re
import threading
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.errors import MOST_ERROR_CHARACTERS, ModelReplyError
from langchain_ctxbudget.messages import clipped
from langchain_ctxbudget.tokens import ChatModel, token_count, unwrapped

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig

T = TypeVar("T")
DEFAULT_WINDOW_TOKENS = 16_000
"""The window of a model whose profile does not tell it."""
TIMEOUT_SECONDS = 60.0
"""The longest that one call may take, its client's own retries included."""
FRAMING_TOKENS = 32
"""A generous allowance for the framing of messages and reply, as the model's own is not known."""
MOST_REPLY_CHARACTERS = 200_000
"""A longer reply has lost its way."""
REFUSALS = frozenset({400, 413, 422})
"""Status codes of servers that refuse the request itself; it will not do better later."""
FIRST_WAIT = timedelta(minutes=1)
"""The time after a first failure before a model is asked for the same again; each further one
doubles it."""
LONGEST_WAIT = timedelta(hours=1)
SPEAKER_CHARACTERS = 40
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)


def wait_after(failures: int) -> timedelta:
    """Returns how long to wait after so many failures in a row.

    A minute, twice as long each time, at most an hour.
    """
    wait = FIRST_WAIT
    for _ in range(failures - 1):
        if wait >= LONGEST_WAIT:
            break
        wait *= 2
    return min(LONGEST_WAIT, wait)


def told(time: datetime) -> str:
    """Returns a time as reports tell it: UTC, to the second."""
    return time.astimezone(UTC).isoformat(sep=" ", timespec="seconds")


class StructuredModel:
    """A chat model that is asked for JSON of a schema.

    Bound to the schema where it can be, then in words.

    `names` are the name of its runs in traces and that of their source; `quotes` says whether a failure is told with
    the error's text, which may repeat what users said.
    """

    def __init__(
        self, model: ChatModel, schema: dict[str, Any], *, names: tuple[str, str], quotes: bool
    ) -> None:
        inner = unwrapped(model)
        known = (getattr(inner, attribute, None) for attribute in ("model_name", "model"))
        profile = getattr(inner, "profile", None)
        window = (
            token_count(profile.get("max_input_tokens")) if isinstance(profile, Mapping) else None
        )
        self.model = model
        self.name = next(
            (name for name in known if isinstance(name, str) and name), type(inner).__name__
        )
        self.kind = f"{type(inner).__name__}/{self.name}"
        self.window_tokens = window or DEFAULT_WINDOW_TOKENS
        self._quotes = quotes
        self._names = names
        self._bound = _bound_to_schema(model, schema)

    def too_small(self, left: int) -> ModelReplyError:
        """Returns the error for a window that leaves too little room for the text to read."""
        window = f"has a window of {self.window_tokens:,} tokens, and its prompt and reply leave {max(0, left):,}"
        return ModelReplyError(
            f"{self.name} {window}. Use a model with a larger window", is_passing=False
        )

    def ask(
        self,
        instructions: str,
        in_words: str,
        data: str,
        read: Callable[[str | Mapping[str, Any]], T],
        *,
        failed: str,
    ) -> T:
        """Asks at most twice.

        Returns the first reply that `read` accepts (a `ValueError` of it says why it does not).

        `instructions` are the system message, with `in_words` at its end where no schema asks for the format; `data`
        is the human message. Where neither reply can be read, that is a `ModelReplyError` about what has `failed`.
        """
        failures = []
        is_passing = False
        for number, bound in enumerate(
            (self._bound, None), 1
        ):  # a server that garbles a schema may follow words
            messages = [
                SystemMessage(instructions if bound else instructions + in_words),
                HumanMessage(data),
            ]
            reply = self._begun(bound or self.model, messages)
            if not wait([reply], timeout=TIMEOUT_SECONDS).done:
                failure = f"no reply within {TIMEOUT_SECONDS:g} seconds"
                is_passing = True
            elif isinstance(error := reply.exception(), (Exception, CancelledError)):
                status = getattr(error, "status_code", None)
                told = (
                    f": {error}"
                    if self._quotes
                    else f" ({status})"
                    if isinstance(status, int)
                    else ""
                )
                failure = clipped(f"{type(error).__name__}{told}", MOST_ERROR_CHARACTERS)
                is_passing = is_passing or status not in REFUSALS
            else:
                try:
                    return read(_content_of(reply.result()))
                except ValueError as error:
                    failure = str(error)
            failures.append(f"attempt {number}: {failure}")
        raise ModelReplyError(f"{self.name} {failed}: {'; '.join(failures)}", is_passing=is_passing)

    def _begun(
        self, runnable: "Runnable[Any, Any]", messages: Sequence[BaseMessage]
    ) -> Future[Any]:
        """Asks in a thread of its own, so that a call that takes too long can be left behind."""
        from langgraph.constants import TAG_NOSTREAM  # noqa: PLC0415 - not needed before a model is called

        # Traced as what it is, and kept out of the tokens that an agent streams to its user.
        name, source = self._names
        config: RunnableConfig = {
            "run_name": name,
            "tags": [TAG_NOSTREAM],
            "metadata": {"lc_source": source},
        }
        reply: Future[Any] = Future()

        def run() -> None:
            try:
                reply.set_result(runnable.invoke(messages, config))
            except BaseException as error:  # noqa: BLE001 - belongs to whoever waits
                reply.set_exception(error)

        threading.Thread(target=run, name="ctxbudget-model-call", daemon=True).start()
        return reply


def _bound_to_schema(model: ChatModel, schema: dict[str, Any]) -> "Runnable[Any, Any] | None":
    """Returns the model bound to the JSON schema of its reply; None where it cannot be.

    Without the parser behind it, which throws prose away and takes JSON that was cut off for whole.
    """
    from langchain_core.runnables import RunnableSequence  # noqa: PLC0415

    try:
        chain = model.with_structured_output(schema)
    except Exception:  # noqa: BLE001 - no two classes say in the same way that they cannot
        return None
    return chain.first if isinstance(chain, RunnableSequence) else chain


def _content_of(reply: Any) -> str | Mapping[str, Any]:  # noqa: ANN401 - a message, or what a chain makes of one
    """Returns the fields of a reply where the client has read them, else its text."""
    if isinstance(reply, BaseMessage):
        calls = getattr(reply, "tool_calls", None) or getattr(reply, "invalid_tool_calls", None)
        fields = (calls[0]["args"] or "") if calls else reply.text
    else:
        fields = reply.model_dump() if hasattr(reply, "model_dump") else reply
    return fields if isinstance(fields, Mapping) else str(fields or "")


def reply_object(reply: str | Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Returns the JSON object of a reply that has one of some fields first, in a code fence or among words too.

    The `ValueError` where there is none says why, and shows nothing of the reply.
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
