"""The demo as everybody shows it: the command, the dashboard, notebooks and the README."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_ctxbudget.demo.conversation import (
    DEMO_EVIDENCE_IDS,
    DEMO_FACTS,
    DEMO_QUESTION,
    DEMO_SETTINGS,
    DEMO_SYSTEM_PROMPT,
    DEMO_TITLE,
    demo_messages,
)
from langchain_ctxbudget.messages import is_user, one_line, plain_text
from langchain_ctxbudget.pipeline import (
    REPLAYED_TURNS,
    ContextPipeline,
    name_conversation,
    replay_last_turns,
)
from langchain_ctxbudget.prompt import AssembledContext, common_prefix
from langchain_ctxbudget.providers import profile_of
from langchain_ctxbudget.replay import contender
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import TokenCounter

DEMO_BUDGET = 4_000
"""Tokens of the demo's prompts."""
DEMO_USER = "maya"
DEMO_SESSION = "tool-library"
"""The id of the demo's conversation."""
DEMO_CACHE_SECONDS = 86_400
"""The provider's cache stays warm while somebody looks at the demo, on a slow machine too."""


@contextmanager
def open_demo(
    settings: Mapping[str, Any] | None = None,
    *,
    user_id: str = DEMO_USER,
    system_prompt: str = DEMO_SYSTEM_PROMPT,
    model: str | None = None,
) -> Iterator[ContextPipeline]:
    """Opens a pipeline that has had the demo's conversation, with prompts for its last turns.

    Equal arguments give equal prompts, so that all who show the demo tell the same numbers.

    Args:
        settings: over those of the demo.
        user_id: the owner of the conversation `DEMO_SESSION`.
        system_prompt: of every prompt.
        model: counts are this model's; default: o200k_base.

    Raises:
        InvalidSettingsError: A setting is unknown or out of range.

    Example:
        >>> from langchain_ctxbudget.demo import DEMO_QUESTION, DEMO_SESSION, DEMO_USER, open_demo
        >>> with open_demo() as pipeline:
        ...     chat = pipeline.conversation(DEMO_SESSION, user_id=DEMO_USER)
        ...     context = chat.assemble(DEMO_QUESTION)
        >>> context.report.total_tokens <= 4_000
        True
    """
    chosen = {
        "max_context_tokens": DEMO_BUDGET,
        "keep_snapshots": REPLAYED_TURNS,
        "cache_lifetime_seconds": DEMO_CACHE_SECONDS,
        **DEMO_SETTINGS,
        **(settings or {}),
    }
    with ContextPipeline(chosen, system_prompt=system_prompt, model=model) as pipeline:
        for fact in DEMO_FACTS:
            pipeline.knowledge.add_fact(fact, user_id=user_id, category="identity")
        scope = Scope(user_id, DEMO_SESSION)
        replay_last_turns(pipeline, demo_messages(), scope)
        name_conversation(pipeline, scope, DEMO_TITLE)
        yield pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A message that holds a part of the answer, and which prompts have it."""

    position: int
    """From 1."""
    text: str
    ours: bool
    trimmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the demo's last turns cost before the question, in tokens of all their prompts.

    The dashboard shows the same turns. No cache holds anything of the first one.
    """

    turns: int
    tokens: int
    cached_tokens: int
    effective_tokens: int
    """A cached token counts what a provider charges for it, a tenth."""

    @property
    def cached_share(self) -> float:
        """The part of all tokens that a cache held."""
        return self.cached_tokens / self.tokens

    @property
    def mean_effective_tokens(self) -> int:
        """What a turn costs in the mean."""
        return round(self.effective_tokens / self.turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """The prompt that `trim_messages` makes of the same conversation, in tokens."""

    system_tokens: int
    history_tokens: int
    question_tokens: int
    messages: int
    """How many messages of the conversation it keeps: the newest."""
    cost: Cost

    @property
    def total_tokens(self) -> int:
        """The tokens of the whole prompt."""
        return self.system_tokens + self.history_tokens + self.question_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """A question to the demo's conversation, as this package and as `trim_messages` send it."""

    question: str
    messages: int
    """Messages of the conversation."""
    conversation_tokens: int
    context: AssembledContext
    cost: Cost
    trimmed: Trimmed
    evidence: Sequence[Evidence]
    """Where the answer stands; empty for another question than the demo's."""


def side_by_side(
    question: str = DEMO_QUESTION, settings: Mapping[str, Any] | None = None
) -> SideBySide:
    """Asks the demo's conversation a question, and trims the conversation for it as well.

    Args:
        question: the user's next message.
        settings: over those of the demo.

    Raises:
        InvalidSettingsError: A setting is unknown or out of range.
        BudgetTooSmallError: What must be sent does not fit into the budget.
    """
    said = demo_messages()
    with open_demo(settings) as pipeline:
        scope: dict[str, Any] = {"user_id": DEMO_USER, "conversation_id": DEMO_SESSION}
        pipeline.flush()
        reports = [kept.report for kept in pipeline.snapshots.list(**scope)]
        context = pipeline.assemble(question, **scope)
        counter = pipeline.token_counter
    trimming = _Trimming(context.report.budget_tokens, counter)
    trimmed = trimming.prompt(said, HumanMessage(question))
    system_tokens = counter.count_message(trimmed[0])
    question_tokens = counter.count_message(trimmed[-1])
    return SideBySide(
        question=question,
        messages=len(said),
        conversation_tokens=counter.count_messages(said),
        context=context,
        cost=Cost(
            turns=len(reports),
            tokens=sum(report.total_tokens for report in reports),
            cached_tokens=sum(report.stability.cached_tokens for report in reports),
            effective_tokens=sum(report.turn_effective_tokens for report in reports),
        ),
        trimmed=Trimmed(
            system_tokens=system_tokens,
            history_tokens=counter.count_messages(trimmed) - system_tokens - question_tokens,
            question_tokens=question_tokens,
            messages=len(trimmed) - len((trimmed[0], trimmed[-1])),
            cost=trimming.cost(said, len(reports)),
        ),
        evidence=_evidence(said, context.messages, trimmed) if question == DEMO_QUESTION else (),
    )


class _Trimming:
    """The prompts that `trim_messages` makes of a conversation, and what they cost."""

    def __init__(self, budget: int, counter: TokenCounter) -> None:
        self.maker = contender("recency", budget, system_prompt=DEMO_SYSTEM_PROMPT)
        self.counter = counter

    def prompt(self, before: Sequence[BaseMessage], message: BaseMessage) -> Sequence[BaseMessage]:
        """Returns the prompt for a message behind those before it."""
        return self.maker.prompt(before, [message]).messages

    def cost(self, messages: Sequence[BaseMessage], turns: int) -> Cost:
        """Returns what the prompts of the last turns of a conversation cost."""
        terms = profile_of(None).cache_terms_for("")
        begins = [place for place, message in enumerate(messages) if is_user(message)]
        previous: Sequence[BaseMessage] = ()
        tokens = 0
        cached_tokens = 0
        effective_tokens = 0.0
        for begin in begins[-turns:]:
            prompt = self.prompt(messages[:begin], messages[begin])
            costs = [self.counter.count_message(message) for message in prompt]
            size = self.counter.count_messages(prompt)
            shared_tokens, _ = common_prefix(prompt, costs, previous, self.counter)
            tokens += size
            cached_tokens += terms.read_tokens(shared_tokens)
            effective_tokens += terms.cost(size, shared_tokens)
            previous = prompt
        return Cost(
            turns=turns,
            tokens=tokens,
            cached_tokens=cached_tokens,
            effective_tokens=round(effective_tokens),
        )


def _evidence(
    said: Sequence[BaseMessage], ours: Sequence[BaseMessage], trimmed: Sequence[BaseMessage]
) -> list[Evidence]:
    """Returns the messages that hold the answer, and which of two prompts have their words."""
    found: list[Evidence] = []
    for position, message in enumerate(said, 1):
        if message.id in DEMO_EVIDENCE_IDS:
            text = one_line(plain_text(message))
            found.append(
                Evidence(
                    position=position,
                    text=text,
                    ours=text in _text_of(ours),
                    trimmed=text in _text_of(trimmed),
                )
            )
    return found


def _text_of(prompt: Sequence[BaseMessage]) -> str:
    return one_line(" ".join(map(plain_text, prompt)))
