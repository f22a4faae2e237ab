"""A prompt on its way from step to step, and the prompt that it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.budget import Allocation
from langchain_ctxbudget.budget.layers import Fragment
from langchain_ctxbudget.budget.parameters import Parameters
from langchain_ctxbudget.history.compact import HistoryView
from langchain_ctxbudget.history.conversation import Conversation, LastPrompt, TurnBlock
from langchain_ctxbudget.knowledge.custom import Rendered
from langchain_ctxbudget.knowledge.facts_layer import FactsLayer
from langchain_ctxbudget.knowledge.records import Fact
from langchain_ctxbudget.knowledge.subjects import Bundles, Detected
from langchain_ctxbudget.messages.messages import plain_text
from langchain_ctxbudget.messages.turns import Group, Repair
from langchain_ctxbudget.prompt.assembly import Content, asking, has_human
from langchain_ctxbudget.prompt.request import PromptRequest
from langchain_ctxbudget.report.report import ContextReport
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.retrieval.selecting import Retrieved
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.records import CutRecord, SnapshotRecord
from langchain_ctxbudget.tokens.counters import TokenCounter
from langchain_ctxbudget.tokens.target import CalibratedCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembledContext:
    """A prompt and its account.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = ContextPipeline().assemble("Hello", user_id="ada", conversation_id="c1")
        >>> context.messages[-1].content
        'Hello'
    """

    messages: list[BaseMessage]
    """Ready for `model.invoke`."""
    report: ContextReport
    """What is in them, why, and what it cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTurn:
    """The current turn as it is sent, and the room that is kept for it."""

    groups: tuple[Group, ...] = ()
    left_out: tuple[Group, ...] = ()
    clipped: frozenset[int] = frozenset()
    """Positions of the groups that are not sent whole."""
    repairs: tuple[Repair, ...] = ()
    note: str = ""
    """The line that tells of groups that are left out."""
    tokens: int = 0
    free_tokens: int = 0
    """What is kept free for the calls and results that it may still get."""
    long: int = 0
    """How often it has outgrown the room that was planned for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The text of the first layer: preferences, and what is known about the user."""

    shown: tuple[Fragment, ...] = ()
    left_out: tuple[Fragment, ...] = ()
    facts: tuple[Fact, ...] = ()
    """Those that are shown."""
    remembered: FactsLayer = field(default_factory=FactsLayer)
    """What could be shown."""

    @property
    def facts_left_out(self) -> list[Fact]:
        """The facts that are not shown."""
        shown = {fact.id for fact in self.facts}
        return [fact for fact in self.remembered.all if fact.id not in shown]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A prompt on its way; every step returns one with its own part filled in."""

    conversation: Conversation
    request: PromptRequest
    counter: TokenCounter
    limit_tokens: int = 0
    """What the request may cost at most."""
    extras: Mapping[str, int] = field(default_factory=dict)
    """What tools and response format cost, in tokens, by their names in errors."""
    asked: tuple[str, Sequence[float]] | None = None
    """What is asked, and its vector, where topics were compared with it."""
    lacks_vectors: str = ""
    """The embeddings, where the vectors of topics are of others and are to be made anew."""
    detected: Detected = field(default_factory=Detected)
    turn: PlannedTurn = field(default_factory=PlannedTurn)
    allocation: Allocation | None = None
    fixed: tuple[Fragment, ...] | None = None
    """What of a block that was chosen before is still shown; None where it is chosen now."""
    bundles: Bundles = field(default_factory=Bundles)
    own_items: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the application's own layers hold."""
    own: Mapping[str, Rendered] = field(default_factory=dict)
    """What is shown of them."""
    history: HistoryView = field(default_factory=lambda: HistoryView(strategy="empty", cut=0))
    preferences: Preferences = field(default_factory=Preferences)
    pool: Pool | None = None
    """What may be quoted, ranked, where that was asked."""
    retrieved: Retrieved = field(default_factory=Retrieved)
    block: TurnBlock | None = None
    """What was chosen for the turn's human message, once that is done."""
    pruned: tuple[Fragment, ...] = ()
    last_resort: tuple[str, ...] = ()
    """Steps that were taken because the prompt was still over its budget."""
    failures: tuple[str, ...] = ()

    @classmethod
    def begin(cls, conversation: Conversation, request: PromptRequest) -> Plan:
        """Begins a prompt."""
        plan = cls(conversation=conversation, request=request, counter=conversation.counter, failures=request.failures)
        return plan.with_block(request.block)

    def but(self, **changes: Any) -> Plan:  # noqa: ANN401 - fields of any kind
        """Returns the plan with some of its parts replaced."""
        return replace(self, **changes)

    def failed(self, *problems: str) -> Plan:
        """Returns the plan with more to report."""
        return replace(self, failures=(*self.failures, *problems)) if problems else self

    def with_block(self, block: TurnBlock | None) -> Plan:
        """Returns the plan with a context block that was chosen before, whole."""
        if block is None:
            return self
        fixed, positions = block.counted(self.counter), self.conversation.position
        quoted = (positions(part.id) for part in fixed if part.is_quoted_whole)
        retrieved = Retrieved(positions=tuple(sorted(place for place in quoted if place is not None)))
        return replace(self, block=block, fixed=fixed, retrieved=retrieved)

    def uncorrected(self) -> Plan:
        """Returns the plan counted without the corrections by observed usage; itself where there are none."""
        if not isinstance(self.counter, CalibratedCounter):
            return self
        inner = self.counter.inner
        fixed = None if self.fixed is None or self.block is None else self.block.counted(inner)
        return replace(self, counter=inner, fixed=fixed)

    @property
    def cut_key(self) -> str:
        """The name of the compaction cut that belongs to prompts like this."""
        tier = self.request.tier
        kind = f"a long turn ({self.turn.long}), " if self.turn.long else ""
        if tier.history_messages is not None:
            kind += f"at most {tier.history_messages} messages, "
        return f"{kind}{cut_key(self.request.settings, self.limit_tokens, self.counter)}"

    @property
    def allocated(self) -> Allocation:
        """The allocation; there once the budget is computed."""
        assert self.allocation is not None  # noqa: S101 - steps run in order
        return self.allocation

    @property
    def content(self) -> Content:
        """Everything that was chosen so far."""
        own = (fragment for rendered in self.own.values() for fragment in rendered.fragments)
        chosen = (*self.bundles.fragments, *own, *self.retrieved.fragments)
        volatile = chosen if self.fixed is None else self.fixed
        return Content(
            system_prompt=self.request.system_prompt,
            preferences=self.preferences.shown,
            arc=self.history.arc,
            summary=self.history.summary,
            summary_intro=self.history.summary_intro,
            summary_outro=self.history.summary_outro,
            history=self.history.groups,
            volatile=volatile if has_human(self.turn.groups) else (),
            turn=self.turn.groups,
            asked=asking(self.request.turn),
            turn_note=self.turn.note,
            layout=self.request.settings.layout,
        )

    @property
    def query(self) -> str:
        """The words of the human message that the turn is about."""
        position = asking(self.request.turn)
        return "" if position is None else plain_text(self.request.turn[position])


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a prompt that is sent changes; nothing of it is written for a forecast."""

    cut: CutRecord | None
    """The compaction cut that was used."""
    step: bool
    """It is another one than before."""
    snapshot: SnapshotRecord | None
    """What the conversation shows of the facts from now on; None: what it has shown."""
    last: LastPrompt
    hits: Sequence[str]
    misses: Sequence[str]
    """Bundles that were used, and those that were not there."""
    lacks_vectors: str
    """The embeddings that the vectors of topics are to be made anew with; empty where they need not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A finished prompt: what is sent, its account, and what it changes."""

    context: AssembledContext
    changes: Changes
    plan: Plan
    """As it was finished, from which another budget can be asked."""


def cut_key(settings: ContextSettings, limit_tokens: int, counter: TokenCounter) -> str:
    """Returns what tells the compaction cuts of one budget, tokenizer and strategy from those of others."""
    strategy = repr(settings.strategy) if isinstance(settings.strategy, Parameters) else settings.strategy.name
    compaction = (
        settings.compaction_trigger,
        settings.compaction_target,
        settings.keep_messages,
        settings.segment_messages,
        settings.emphasis,
    )
    return f"{limit_tokens} tokens, {counter.name}, {strategy}, {compaction}"


def uncorrected_note(corrected: int, uncorrected: int, limit: int) -> str:
    """Returns what a report says of a prompt that is sent although its corrected count is over its limit."""
    return (
        f"what must be sent counts {corrected:,} of {limit:,} tokens with the corrections by observed usage, and "
        f"{uncorrected:,} without: it is sent alone, counted without them"
    )
