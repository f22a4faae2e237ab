"""One question to a chat model, with a time limit.

Background jobs ask it, so it has no async form.
"""

import json
import re
import threading
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.content import Kind, parts_of
from langchain_ctxbudget.errors import MOST_ERROR_CHARACTERS, ModelReplyError
from langchain_ctxbudget.messages import clipped
from langchain_ctxbudget.providers import unwrapped
from langchain_ctxbudget.tokens import ChatModel, token_count

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
_REFUSAL = re.compile(
    r"""\W*(?:
    (?:i['\u2019]m|i\ am)\ (?:(?:very|so|really|truly|terribly)\ )?
        (?:sorry|unable|afraid|not\ (?:able|allowed|permitted|comfortable))\b
    |i\ (?:can(?:['\u2019]?t|not|\ not)|must\ (?:decline|refuse)|do\ not\ feel\ comfortable)\b
    |i\ (?:won['\u2019]t|will\ not)\ (?:be\ able|help|assist|comply|provide|do\ th)
    |(?:i|we|my)\ apolog|apologies\b|sorry\b|unfortunately,?\ i\b
    |as\ an?\ (?:ai|artificial|(?:large\ )?language\ model)\b
    |unable\ to\ (?:comply|assist|help|process|provide|fulfil)
    |(?:es\ )?tut\ mir\ (?:sehr\ )?leid|leider\ (?:kann|darf)\ ich
    |ich\ kann\ (?:dabei|ihnen|dir|das|dies)
    |(?:je\ suis\ |nous\ sommes\ )?(?:vraiment\ )?désolée?|je\ ne\ peux\ pas
    |je\ ne\ suis\ pas\ en\ mesure
    |lo\ siento|lo\ lamento|no\ puedo\b|desculpe|sinto\ muito|não\ posso\b|lamento\b
    |mi\ dispiace|non\ posso\b|spiacente|het\ spijt\ me|ik\ kan\ (?:je|u|dat|hier)
    |przepraszam|przykro\ mi|nie\ mogę|извините|простите|к\ сожалению|я\ не\ могу
    |вибачте|на\ жаль|я\ не\ можу|üzgünüm|maalesef|jag\ kan\ (?:inte|tyvärr)|tyvärr
    |(?:很|非常)?抱歉|对不起|對不起|我(?:无法|無法|不能)|申し訳|すみません|ごめんなさい|죄송|미안
    |عذر|آسف|أعتذر|لا\ (?:أستطيع|يمكنني)|क्षमा|माफ़|मुझे\ खेद
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""How a refusal begins. Facts have no subject and summaries name who speaks, so what one says of
itself there is no part of either."""
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


def time_text(time: datetime) -> str:
    """Returns a time as reports tell it: UTC, to the second."""
    return time.astimezone(UTC).isoformat(sep=" ", timespec="seconds")


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a model gave no reply that can be used."""

    text: str
    is_passing: bool
    """True where asking later may help."""


class StructuredModel:
    """A chat model that is asked for JSON of a schema.

    Bound to the schema where it can be, then in words.

    `names` are the name of its runs in traces and that of their source; `quotes` says whether a
    failure is told with the error's text, which may repeat what users said.
    """

    def __init__(
        self, model: ChatModel, schema: dict[str, Any], *, names: tuple[str, str], quotes: bool
    ) -> None:
        inner = unwrapped(model)
        self.model = model
        self.name = _name_of(inner)
        self.kind = f"{type(inner).__name__}/{self.name}"
        self.window_tokens = _window_of(inner) or DEFAULT_WINDOW_TOKENS
        self._quotes = quotes
        self._names = names
        self._bound = _bound_to_schema(model, schema)

    def too_small(self, left: int) -> ModelReplyError:
        """Returns the error for a window that leaves too little room for the text to read."""
        return ModelReplyError(
            f"{self.name} has a window of {self.window_tokens:,} tokens, and its prompt and reply "
            f"leave {max(0, left):,}. Use a model with a larger window",
            is_passing=False,
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
        """Asks at most twice, and returns what `read` makes of the first reply that it accepts.

        A `ValueError` of `read` says why it does not. `instructions` are the system message, with
        `in_words` at its end where no schema asks for the format; `data` is the human message.
        Where neither reply can be read, that is a `ModelReplyError` about what has `failed`.
        """
        failures: list[str] = []
        is_passing = False
        # A server that garbles a schema may follow words.
        for number, bound in enumerate((self._bound, None), 1):
            system = instructions if bound else instructions + in_words
            messages = [SystemMessage(system), HumanMessage(data)]
            reply = self._begun(bound or self.model, messages)
            failure = self._failure_of(reply)
            if failure is None:
                try:
                    return read(_content_of(reply.result()))
                except ValueError as error:
                    failure = _Failure(str(error), is_passing=False)
            is_passing = is_passing or failure.is_passing
            failures.append(f"attempt {number}: {failure.text}")
        raise ModelReplyError(f"{self.name} {failed}: {'; '.join(failures)}", is_passing=is_passing)

    def _failure_of(self, reply: Future[Any]) -> "_Failure | None":
        """Waits for a reply, and returns why there is none; None where there is one."""
        if not wait([reply], timeout=TIMEOUT_SECONDS).done:
            return _Failure(f"no reply within {TIMEOUT_SECONDS:g} seconds", is_passing=True)
        error = reply.exception()
        if not isinstance(error, (Exception, CancelledError)):
            return None
        status = getattr(error, "status_code", None)
        text = type(error).__name__
        if self._quotes:
            text = f"{text}: {error}"
        elif isinstance(status, int):
            text = f"{text} ({status})"
        return _Failure(clipped(text, MOST_ERROR_CHARACTERS), is_passing=status not in REFUSALS)

    def _begun(
        self, runnable: "Runnable[Any, Any]", messages: Sequence[BaseMessage]
    ) -> Future[Any]:
        """Asks in a thread of its own, so that a call that takes too long can be left behind."""
        from langgraph.constants import TAG_NOSTREAM  # noqa: PLC0415 - not needed before a model is called

        # Traced as what it is, and kept out of the tokens that an agent streams to its user.
        run_name, source = self._names
        config: RunnableConfig = {
            "run_name": run_name,
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


def _name_of(model: object) -> str:
    """Returns the name of a model, else that of its class."""
    for attribute in ("model_name", "model"):
        name = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def _window_of(model: object) -> int | None:
    """Returns the window of a model in tokens; None where its profile does not tell it."""
    profile = getattr(model, "profile", None)
    if not isinstance(profile, Mapping):
        return None
    return token_count(profile.get("max_input_tokens"))


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
    """Returns the fields of a reply where the client has read them, else its text.

    Raises:
        ValueError: The provider says that the model has refused.
    """
    fields = reply
    if isinstance(reply, BaseMessage):
        if _is_told_as_refusal(reply):
            raise ValueError("a refusal")
        calls = getattr(reply, "tool_calls", None) or getattr(reply, "invalid_tool_calls", None)
        fields = reply.text
        if calls:
            fields = calls[0]["args"] or ""
    elif hasattr(reply, "model_dump"):
        fields = reply.model_dump()
    return fields if isinstance(fields, Mapping) else str(fields or "")


def _is_told_as_refusal(reply: BaseMessage) -> bool:
    """Returns whether a provider says of a reply that it is a refusal."""
    if reply.response_metadata.get("stop_reason") == "refusal":
        return True
    return any(part.kind is Kind.REFUSAL for part in parts_of(reply))


def reply_object(reply: str | Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Returns the JSON object of a reply, in a code fence or among words too.

    It is the first that begins with one of some fields, else the first of all. The `ValueError`
    where there is none says why, and shows nothing of the reply.
    """
    if isinstance(reply, Mapping):
        return reply
    text = without_thoughts(reply)
    if "{" not in text and is_refusal(text):
        raise ValueError("a refusal")
    beginning = re.search(rf'\{{\s*"(?:{"|".join(names)})"\s*:', text)
    begin = beginning.start() if beginning else text.find("{")
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


def require_no_refusal(reply: str | Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Raises a `ValueError` where a reply of no use, or any text in its fields, is a refusal."""
    texts = [*_texts_in(fields)]
    if isinstance(reply, str):
        texts.append(without_thoughts(reply))
    if any(map(is_refusal, texts)):
        raise ValueError("a refusal")


def _texts_in(value: object) -> Iterator[str]:
    """Yields all strings of a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts_in(part)


def is_refusal(text: str) -> bool:
    """Returns whether a text begins as a model does that refuses or apologises."""
    return _REFUSAL.match(text) is not None


def without_thoughts(reply: str) -> str:
    """Returns a reply without what the model thought aloud before it."""
    return _THOUGHTS.sub("", reply, count=1).strip()
