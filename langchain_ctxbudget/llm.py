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

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from langchain_ctxbudget.content import Kind, parts_of
from langchain_ctxbudget.errors import MOST_ERROR_CHARACTERS, ModelReplyError
from langchain_ctxbudget.messages import clipped, model_of
from langchain_ctxbudget.providers import bound_to_schema, unwrapped, with_longest_reply
from langchain_ctxbudget.tokens import ChatModel, Purpose, estimate_tokens, token_count

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


class _CallFailure(Exception):  # noqa: N818 - no error of the package: a reason
    """Why a call gave no reply that can be used."""

    def __init__(self, text: str, *, is_passing: bool = False, is_of_form: bool = False) -> None:
        super().__init__(text)
        self.is_passing = is_passing
        """True where asking later may help."""
        self.is_of_form = is_of_form
        """True where the request itself was refused, perhaps for an argument that it has."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A way to ask."""

    runnable: "Runnable[Any, Any]"
    has_schema: bool = False
    """False: the format is asked for in words."""


@dataclass(frozen=True, slots=True)
class _Question:
    instructions: str
    in_words: str
    """Asks for the format where no schema does."""
    data: str

    def messages(self, *, has_schema: bool) -> list[BaseMessage]:
        """Returns the question as messages."""
        system = self.instructions if has_schema else self.instructions + self.in_words
        return [SystemMessage(system), HumanMessage(self.data)]


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call that a model has answered, whether its reply can be used or not."""

    usage: Mapping[str, Any]
    """As LangChain's `usage_metadata`; an estimate where the provider tells none."""
    model_name: str
    purpose: Purpose
    is_estimated: bool = False
    """True if the provider did not say what it has used."""


class StructuredModel:
    """A chat model that is asked for JSON of a schema, in replies of a limited length.

    The provider holds the reply to the schema where it can. A way to ask that a model's class or
    server refuses is not used again, if the same is answered without it.

    `purpose` is what it is called for; `names` are the name of its runs in traces and that of their
    source; `quotes` says whether a failure is told with the error's text, which may repeat what
    users said.
    """

    def __init__(
        self,
        model: ChatModel,
        schema: dict[str, Any],
        *,
        purpose: Purpose,
        names: tuple[str, str],
        quotes: bool,
        reply_tokens: int,
    ) -> None:
        inner = unwrapped(model)
        self.model = model
        self.name = _name_of(inner)
        self.kind = f"{type(inner).__name__}/{self.name}"
        self.window_tokens = _window_of(inner) or DEFAULT_WINDOW_TOKENS
        self.reply_tokens = min(reply_tokens, self.window_tokens // 4)
        """The longest reply, the model's thoughts aside; prompts leave as much free."""
        self._purpose = purpose
        self._schema_tokens = estimate_tokens(json.dumps(schema))
        self._quotes = quotes
        self._names = names
        self._forms = self._forms_for(schema)
        """The ways to ask that were not refused, the best first."""

    def _forms_for(self, schema: Mapping[str, Any]) -> list[_Form]:
        limit = self.reply_tokens
        strict = bound_to_schema(self.model, schema, is_strict=True, reply_tokens=limit)
        if strict is None:
            return [_Form(with_longest_reply(self.model, self.model, limit))]
        plain = bound_to_schema(self.model, schema, is_strict=False)
        forms = [_Form(strict, has_schema=True)]
        if plain is not None:
            forms.append(_Form(plain, has_schema=True))
        return forms

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
        book: Callable[[AnsweredCall], None] | None = None,
    ) -> T:
        """Asks at most twice, and returns what `read` makes of the first reply that it accepts.

        A `ValueError` of `read` says why it does not. `instructions` are the system message, with
        `in_words` at its end where no schema asks for the format; `data` is the human message.
        `book` gets every call that was answered. Where neither reply can be read, that
        is a `ModelReplyError` about what has `failed`.
        """
        question = _Question(instructions, in_words, data)
        form = self._forms[0] if self._forms else _Form(self.model)
        try:
            return self._answer(question, form, read, book)
        except _CallFailure as failure:
            first = failure

        second_form = self._form_after(first, question)
        try:
            answer = self._answer(question, second_form, read, book)
        except _CallFailure as second:
            raise ModelReplyError(
                f"{self.name} {failed}: attempt 1: {first}; attempt 2: {second}",
                is_passing=first.is_passing or second.is_passing,
            ) from None
        if first.is_of_form and form in self._forms:
            self._forms.remove(form)
        return answer

    def _form_after(self, failure: _CallFailure, question: _Question) -> _Form:
        """Returns how to ask again: in words, as a server that garbles a schema may follow them.

        Without a limit where the request was refused; else with twice the limit, as far as the
        window has room, as the reply may have been cut off.
        """
        if failure.is_of_form:
            return _Form(self.model)
        texts = (question.instructions, question.in_words, question.data)
        prompt_tokens = sum(map(estimate_tokens, texts)) + FRAMING_TOKENS
        limit = min(2 * self.reply_tokens, self.window_tokens - prompt_tokens)
        limit = max(limit, self.reply_tokens)
        return _Form(with_longest_reply(self.model, self.model, limit))

    def _answer(
        self,
        question: _Question,
        form: _Form,
        read: Callable[[str | Mapping[str, Any]], T],
        book: Callable[[AnsweredCall], None] | None,
    ) -> T:
        """Asks once.

        Raises:
            _CallFailure: There is no reply, or none that can be read.
        """
        messages = question.messages(has_schema=form.has_schema)
        reply = self._awaited(self._begun(form.runnable, messages))
        if book is not None:
            book(self._answered(reply, messages, has_schema=form.has_schema))
        try:
            return read(_content_of(reply))
        except ValueError as error:
            raise _CallFailure(str(error)) from None

    def _answered(
        self,
        reply: Any,  # noqa: ANN401 - a message, or what a chain makes of one
        messages: Sequence[BaseMessage],
        *,
        has_schema: bool,
    ) -> AnsweredCall:
        """Returns an answered call, with an estimate where its provider tells no usage."""
        author = _author_of(reply) or self.name
        usage = getattr(reply, "usage_metadata", None)
        if isinstance(usage, Mapping) and usage.get("input_tokens"):
            return AnsweredCall(usage, author, self._purpose)
        estimate = _estimated_usage(reply, messages, self._schema_tokens if has_schema else 0)
        return AnsweredCall(estimate, author, self._purpose, is_estimated=True)

    def _awaited(self, reply: Future[Any]) -> Any:  # noqa: ANN401 - a message, or what a chain makes of one
        """Waits for a reply, and returns it.

        Raises:
            _CallFailure: There is none.
        """
        if not wait([reply], timeout=TIMEOUT_SECONDS).done:
            raise _CallFailure(f"no reply within {TIMEOUT_SECONDS:g} seconds", is_passing=True)
        error = reply.exception()
        if not isinstance(error, (Exception, CancelledError)):
            return reply.result()
        status = getattr(error, "status_code", None)
        text = type(error).__name__
        if self._quotes:
            text = f"{text}: {error}"
        elif isinstance(status, int):
            text = f"{text} ({status})"
        raise _CallFailure(
            clipped(text, MOST_ERROR_CHARACTERS),
            is_passing=status not in REFUSALS,
            is_of_form=status in REFUSALS or _refuses_arguments(error),
        )

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


def _refuses_arguments(error: BaseException) -> bool:
    """Returns whether a class has refused an argument; a reply that it cannot read is none."""
    if isinstance(error, json.JSONDecodeError | UnicodeError):
        return False
    return isinstance(error, TypeError | ValueError)


def _estimated_usage(
    reply: Any,  # noqa: ANN401 - a message, or what a chain makes of one
    messages: Sequence[BaseMessage],
    schema_tokens: int,
) -> Mapping[str, Any]:
    """Returns an estimate of what a call has used.

    `schema_tokens` were sent beside the messages.
    """
    written = reply
    if isinstance(reply, AIMessage):
        written = [reply.text, *(call["args"] for call in reply.tool_calls)]
    return {
        "input_tokens": schema_tokens + sum(estimate_tokens(it.text) for it in messages),
        "output_tokens": estimate_tokens(str(written)),
    }


def _author_of(reply: Any) -> str | None:  # noqa: ANN401
    """Returns the name of the model that a reply tells."""
    return model_of(reply) if isinstance(reply, AIMessage) else None


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
