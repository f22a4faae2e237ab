"""Digests by a chat model: structured where it can, in parts where the span is longer than its window, always capped.

A reply that is late, empty or unreadable is asked for once more, and then it is a `SummaryError`: the caller keeps
the digest that extraction made. What the model is asked, and how its reply is read, is in `core.prompts`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from langchain_core.messages import HumanMessage, SystemMessage

from langchain_ctxbudget.core import prompts
from langchain_ctxbudget.core.digest import Digest, Line, Sentence
from langchain_ctxbudget.core.estimate import estimate_tokens
from langchain_ctxbudget.core.extractive import MAX_SENTENCE_CHARACTERS
from langchain_ctxbudget.core.importance import Kind, importance, kind_of
from langchain_ctxbudget.core.prompts import clipped
from langchain_ctxbudget.core.replies import Notes, read_reply, statements
from langchain_ctxbudget.core.text import fold, one_line, terms
from langchain_ctxbudget.core.tokens import TokenCounter, unwrapped
from langchain_ctxbudget.errors import InputError, SummaryError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history.model_call import (
    DEFAULT_WINDOW_TOKENS,
    FRAMING_TOKENS,
    TooSlowError,
    bound_to_schema,
    content_of,
    model_call,
    name_of,
    profile_window,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel  # takes 0.2 s to import

REPLY_EXTRA_TOKENS = 700
"""What a reply needs beyond its summary, the lists, the narrative and what the format adds."""
MIN_PART_TOKENS = 256
"""The least room for the lines of a part."""
_LIST_BONUS, _OVERVIEW_BONUS = 10.0, 15.0
"""What the model itself calls a decision or open, and its overview; the seed's points for decisions and for ends."""
_SAME_TERMS = 3
"""A shorter statement is too easily part of another one to be the same."""
_ERROR_CHARACTERS = 300
_NEGATION = re.compile(r"\b(?:not|no|never|none|without)\b|n['\u2019]t\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """A span of a conversation that is to be summed up."""

    lines: tuple[Line, ...]
    """Of level 1 the messages, of higher levels one line for each child's digest; at least one."""
    first: int
    """The position of the span's first message."""
    end: int
    """The position behind its last message."""
    level: int
    """1 for messages, 2 for digests of level 1, and so on."""
    prior: str
    """The conversation before the span; empty at its beginning."""
    open_questions: tuple[str, ...]
    """What was open before the span."""
    cap_tokens: int
    """What the sentences of the digest may cost together, in tokens."""
    extracted: tuple[Sentence, ...] = ()
    """The span's decisions and open questions by extraction: they are added to a reply that is prose."""


class ChatModelSummarizer:
    """Makes digests with any chat model.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> from langchain_ctxbudget import TiktokenCounter
        >>> from langchain_ctxbudget.flow import drive
        >>> line = Line(position=0, speaker="Ada", date=None, text="Oak it is, then.", from_user=True)
        >>> request = SummaryRequest(
        ...     lines=(line,), first=0, end=1, level=1, prior="", open_questions=(), cap_tokens=100
        ... )
        >>> summarizer = ChatModelSummarizer(FakeListChatModel(responses=["Ada decided on oak."]))
        >>> [sentence.text for sentence in drive(summarizer.summarize(request, TiktokenCounter())).sentences]
        ['Ada decided on oak.']
    """

    def __init__(
        self,
        model: BaseChatModel,
        *,
        attempts: int = 2,
        timeout_seconds: float = 60.0,
        window_tokens: int | None = None,
    ) -> None:
        """Choose the model.

        Args:
            model: any chat model. One that can be bound to a schema is; the others, and the last of several attempts,
                get the format in words.
            attempts: how often a part of a span is asked for at most. The model's own `max_retries` are on top.
            timeout_seconds: how long one call may take, its own retries included, in seconds.
            window_tokens: the model's window where its profile does not tell it, in tokens; None: 16,000.

        Raises:
            InputError: one of the numbers is not positive.
        """
        limits = {"attempts": attempts, "timeout_seconds": timeout_seconds, "window_tokens": window_tokens}
        for name, value in limits.items():
            if value is not None and not value > 0:
                raise InputError(f"{name} must be above 0, not {value!r}")
        inner = unwrapped(model)
        self.name: str = name_of(inner)
        """For `Digest.made_by`."""
        self.model = model
        self.attempts, self.timeout_seconds = attempts, timeout_seconds
        self.window_tokens = profile_window(inner) or window_tokens or DEFAULT_WINDOW_TOKENS
        self._with_schema = bound_to_schema(model, prompts.SCHEMA)

    @property
    def fingerprint(self) -> str:
        """Another one for every model and every wording of the prompt: digests of one are not those of another."""
        return f"{type(unwrapped(self.model)).__name__}/{self.name}/{prompts.VERSION}"

    def summarize(self, request: SummaryRequest, counter: TokenCounter) -> Flow[Digest]:
        """Sum up a span, in as many calls as its lines need.

        Args:
            request: the span and what was before it.
            counter: measures the cap; the model's own window is measured by estimate.

        Raises:
            InputError: the request has no lines.
            SummaryError: every attempt at a part failed, or the window is too small for the prompt.
        """
        if not request.lines:
            raise InputError(f"Messages {request.first} to {request.end} came without lines: nothing to sum up")
        notes: Notes | None = None
        rest = request.lines
        while rest:
            before, behind, room_tokens = self._frame(request, notes)
            lines, rest = prompts.take_lines(rest, room_tokens)
            reply = yield from self._ask(request, f"{before}{lines}{behind}")
            notes = reply.after(notes) if notes else reply
        assert notes is not None  # noqa: S101 - there were lines
        return digest_of(request, notes, self.name, counter)

    def _frame(self, request: SummaryRequest, notes: Notes | None) -> tuple[str, str, int]:
        """What stands around the lines of a part, and the room for them in tokens."""
        open_questions = request.open_questions
        if notes and notes.open_questions is not None:
            open_questions = notes.open_questions
        before, behind = prompts.frame(
            prior=request.prior,
            open_questions=open_questions,
            so_far=notes.summary if notes else None,
            room_tokens=self.window_tokens // 8,
        )
        reply_tokens = min(2 * request.cap_tokens + REPLY_EXTRA_TOKENS, self.window_tokens // 3)
        system = prompts.instructions(level=request.level, cap_tokens=request.cap_tokens, as_json=True)
        taken_tokens = sum(map(estimate_tokens, (system, before, behind))) + FRAMING_TOKENS + reply_tokens
        room_tokens = self.window_tokens - taken_tokens
        if room_tokens < MIN_PART_TOKENS:
            raise SummaryError(
                f"{self.name} has a window of {self.window_tokens:,} tokens; the prompt and the reply take "
                f"{taken_tokens:,} of it and leave less than {MIN_PART_TOKENS} for messages. Use a summary model with "
                "a larger window, or tell its real one with window_tokens"
            )
        return before, behind, room_tokens

    def _ask(self, request: SummaryRequest, data: str) -> Flow[Notes]:
        """One part, as often as it may be asked for."""
        failures: list[str] = []
        for attempt in range(1, self.attempts + 1):
            # A server that refuses or garbles a schema may still follow words.
            in_words = self._with_schema is None or attempt == self.attempts > 1
            system = prompts.instructions(level=request.level, cap_tokens=request.cap_tokens, as_json=in_words)
            runnable = self.model if in_words or self._with_schema is None else self._with_schema
            try:
                messages = [SystemMessage(system), HumanMessage(data)]
                reply = yield model_call(runnable, messages, self.timeout_seconds)
            except TooSlowError:
                failures.append(f"no reply within {self.timeout_seconds:g} seconds")
                continue
            except Exception as error:  # noqa: BLE001 - models and their clients raise anything
                failures.append(clipped(f"{type(error).__name__}: {error}", _ERROR_CHARACTERS))
                continue
            try:
                return read_reply(content_of(reply), cap_tokens=request.cap_tokens)
            except ValueError as error:
                failures.append(str(error))
        told = "; ".join(f"attempt {number}: {failure}" for number, failure in enumerate(failures, 1))
        raise SummaryError(f"{self.name} gave no summary of messages {request.first} to {request.end}: {told}")


# From a reply to a digest


def digest_of(request: SummaryRequest, notes: Notes, made_by: str, counter: TokenCounter) -> Digest:
    """The digest that a reply is, within its cap.

    Args:
        request: the span.
        notes: the reply.
        made_by: the model's name.
        counter: measures the cap.
    """
    said = [clipped(text, MAX_SENTENCE_CHARACTERS) for text in statements(notes.summary)]
    open_now = notes.open_questions
    if open_now is None:  # prose: what was open still is, as far as one knows
        marked = (clipped(text.replace("[OPEN]", ""), prompts.QUESTION_CHARACTERS) for text in said if "[OPEN]" in text)
        before = (clipped(text, prompts.QUESTION_CHARACTERS) for text in request.open_questions)
        open_now = tuple(dict.fromkeys((*before, *marked)))[: prompts.MAX_QUESTIONS]
    # A question from before the span stands in an earlier digest already.
    known = {fold(one_line(question)) for question in request.open_questions}
    asked = [question for question in open_now if fold(question) not in known]
    sentences = _sentences(request, said, notes.key_decisions, asked)
    if notes.open_questions is None:
        texts = {fold(sentence.text) for sentence in sentences}
        sentences += [sentence for sentence in request.extracted if fold(sentence.text) not in texts]
    return Digest(
        first=request.first,
        end=request.end,
        level=request.level,
        sentences=_within_cap(sentences, request.cap_tokens, counter),
        artifacts=_most_mentioned(notes.code_artifacts, request.lines)[: prompts.MAX_ARTIFACTS],
        made_by=made_by,
        narrative=notes.narrative or _narrative(request.prior, said[0]),
        open_questions=open_now,
    )


def _sentences(
    request: SummaryRequest, said: Sequence[str], decisions: Iterable[str], questions: Iterable[str]
) -> list[Sentence]:
    """The statements of a summary, then the decisions and questions that it does not state itself."""
    dates = {line.date for line in request.lines}
    date = next(iter(dates)) if len(dates) == 1 else None  # of several days, the model says itself which
    texts = [(text, kind_of(text)) for text in said]
    own = [frozenset(terms(text.replace("[OPEN]", ""))) for text in said]
    for kind, items in ((Kind.DECISION, decisions), (Kind.OPEN, questions)):
        for item in items:
            found = frozenset(terms(item))
            same = next((i for i, text in enumerate(said) if _states(text, own[i], item, found)), None)
            if same is None:
                texts.append((item, kind))
            else:
                texts[same] = (said[same], kind)
    return [
        Sentence(
            position=request.first,
            order=order,
            speaker="",
            date=date,
            text=text,
            score=_score(text, kind, order),
            kind=kind,
            terms=frozenset(terms(text)),
        )
        for order, (text, kind) in enumerate(texts)
    ]


def _states(text: str, own: frozenset[str], item: str, wanted: frozenset[str]) -> bool:
    """Whether a statement says what an item of a list says: the same terms or more, and no other sense of them."""
    is_part = wanted <= own and len(wanted) >= _SAME_TERMS
    return (is_part or wanted == own) and bool(_NEGATION.search(text)) == bool(_NEGATION.search(item))


def _score(text: str, kind: Kind, order: int) -> float:
    bonus = (_LIST_BONUS if kind is not Kind.PLAIN else 0) + (_OVERVIEW_BONUS if order == 0 else 0)
    return importance(text, from_user=False) + bonus


def _within_cap(sentences: Sequence[Sentence], cap_tokens: int, counter: TokenCounter) -> tuple[Sentence, ...]:
    """The most important sentences that fit, in order; where not even one does, the beginning of the first choice."""
    ranked = sorted(sentences, key=lambda sentence: (-sentence.score, sentence.order))
    taken: list[Sentence] = []
    left = cap_tokens
    for sentence in ranked:
        cost = counter.count_text(sentence.text)
        if cost <= left:
            taken.append(sentence)
            left -= cost
    if not taken:
        text = _cut_to(ranked[0].text, cap_tokens, counter)
        taken = [replace(ranked[0], text=text, terms=frozenset(terms(text)))] if text else []
    return tuple(sorted(taken, key=lambda sentence: (sentence.position, sentence.order)))


def _cut_to(text: str, cap_tokens: int, counter: TokenCounter) -> str:
    """The beginning of a text that costs no more, with an ellipsis; nothing where nothing fits."""
    length = len(text)
    while length > 1:
        cut = clipped(text, length)
        cost = counter.count_text(cut)
        if cost <= cap_tokens:
            return cut
        length = min(length - 1, length * cap_tokens // cost)
    return ""


def _most_mentioned(names: Iterable[str], lines: Iterable[Line]) -> tuple[str, ...]:
    texts = [line.text for line in lines]
    return tuple(sorted(names, key=lambda name: -sum(text.count(name) for text in texts)))


def _narrative(prior: str, overview: str) -> str:
    """What a model that wrote no narrative would have written at the least: the beginning, and what was new."""
    half = prompts.NARRATIVE_CHARACTERS // 2
    return clipped(f"{clipped(prior, half)} {clipped(overview, half - 1)}", prompts.NARRATIVE_CHARACTERS)
