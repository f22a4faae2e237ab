"""A prompt on its way, and the prompt it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime
from typing import Any

from langchain_core.documents import BaseDocumentCompressor
from langchain_core.messages import BaseMessage
from langgraph.store.base import BaseStore

from langchain_ctxbudget.core.allocation import Allocation
from langchain_ctxbudget.core.assembly import Content, Fragment, asking, has_human
from langchain_ctxbudget.core.block import TurnBlock
from langchain_ctxbudget.core.messages import plain_text
from langchain_ctxbudget.core.report import ContextReport, UsageState
from langchain_ctxbudget.core.tiers import HEALTHY, Tier
from langchain_ctxbudget.core.tokens import TokenCounter
from langchain_ctxbudget.core.turns import Group, Repair
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history.compact import HistoryView
from langchain_ctxbudget.history.conversation import Conversation
from langchain_ctxbudget.knowledge.custom import Rendered
from langchain_ctxbudget.knowledge.known import NOTHING, Knowledge
from langchain_ctxbudget.knowledge.records import Fact
from langchain_ctxbudget.knowledge.remembered import Remembered
from langchain_ctxbudget.knowledge.subjects import Bundles, Detected
from langchain_ctxbudget.retrieval.pool import Pool
from langchain_ctxbudget.retrieval.search import Sources
from langchain_ctxbudget.retrieval.selecting import Retrieved
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores.records import CutRecord
from langchain_ctxbudget.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What the prompt is for: the model's limits and its tokenizer."""

    counter: TokenCounter
    window: Window


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


@dataclass(slots=True, kw_only=True)
class Draft:
    """A prompt on its way; every step fills in its part."""

    conversation: Conversation
    target: Target
    settings: ContextSettings
    settings_from: tuple[str, ...] = ("pipeline",)
    system_prompt: str
    turn: list[BaseMessage]
    tools: Sequence[Any] = ()
    response_format: object = None
    calls_before: int = 0
    begun_with: str = ""
    """The digest of the conversation when the prompt was begun."""
    message_count: int = 0
    """How many messages it had."""
    cuts: Mapping[str, CutRecord] = field(default_factory=dict)
    """Its compaction cuts when the prompt was finished."""
    knowledge: Knowledge = NOTHING
    """What was learned about the user, as far as it may be shown."""
    now: datetime | None = None
    """When the prompt was begun."""
    recent: tuple[str, ...] = ()
    """The messages before the turn, newest last: who was spoken of is still meant."""
    expected: tuple[str, ...] = ()
    """Ids of topics and entities that are likely to come up, by what the user has open."""
    asked: tuple[str, Sequence[float]] | None = None
    """What is asked, and its vector, where topics were compared with it."""
    detected: Detected = field(default_factory=Detected)
    limit_tokens: int = 0
    """What the request may cost at most."""
    tier: Tier = HEALTHY
    """What little is left of a usage limit lets in."""
    usage: UsageState | None = None
    """The usage limit that applies."""
    extras: dict[str, int] = field(default_factory=dict)
    turn_groups: tuple[Group, ...] = ()
    turn_left_out: tuple[Group, ...] = ()
    turn_clipped: frozenset[int] = frozenset()
    """Positions of the turn's groups that are not sent whole."""
    turn_repairs: tuple[Repair, ...] = ()
    turn_note: str = ""
    """What is said of its groups that are left out."""
    turn_tokens: int = 0
    """What it costs."""
    turn_free_tokens: int = 0
    """What is kept free for the calls and results that it may still get."""
    long_turn: int = 0
    """How often it has outgrown the room that was planned for it."""
    block: TurnBlock | None = None
    """What was chosen for the turn's human message, once that is done."""
    fixed: tuple[Fragment, ...] | None = None
    """What of a block that was chosen before is still shown; None where it is chosen now."""
    preferences: tuple[Fragment, ...] = ()
    """Preferences, and what is known about the user."""
    remembered: Remembered = field(default_factory=Remembered)
    """The facts that the conversation may show."""
    facts_shown: tuple[Fact, ...] = ()
    """Those that it does."""
    preferences_left_out: tuple[Fragment, ...] = ()
    allocation: Allocation | None = None
    bundles: Bundles = field(default_factory=Bundles)
    own_items: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What the application's own layers hold."""
    own: dict[str, Rendered] = field(default_factory=dict)
    """What is shown of them."""
    history: HistoryView = field(default_factory=lambda: HistoryView(strategy="empty", cut=0))
    sources: Sources | None = None
    """Where retrieval looks besides the conversation."""
    reranker: BaseDocumentCompressor | None = None
    pool: Pool | None = None
    """What may be quoted, ranked, where that was asked."""
    retrieved: Retrieved = field(default_factory=Retrieved)
    pruned: list[Fragment] = field(default_factory=list)
    write_summaries: Callable[[BaseStore, Conversation], Flow[None]] | None = None
    """Has the summary model write now, where the turn is to wait for it."""
    last_resort: tuple[str, ...] = ()
    """Steps that were taken because the prompt was still over its budget."""
    failures: list[str] = field(default_factory=list)
    layer_failures: list[str] = field(default_factory=list)
    """Those of the application's own layers, which are asked beside other work."""
    timings_ms: dict[str, float] = field(default_factory=dict)
    context: AssembledContext | None = None

    @property
    def counter(self) -> TokenCounter:
        """How tokens are counted."""
        return self.target.counter

    @property
    def facts_left_out(self) -> list[Fact]:
        """Facts that the conversation does not show."""
        shown = {fact.id for fact in self.facts_shown}
        return [fact for fact in self.remembered.all if fact.id not in shown]

    @property
    def fixed_whole(self) -> tuple[Fragment, ...] | None:
        """What was chosen for the turn before, all of it; None where that is done now."""
        if self.fixed is None or self.block is None:
            return None
        return self.block.counted(self.counter)

    @property
    def made_for(self) -> str:
        """What a compaction cut of this prompt is made for."""
        settings = self.settings
        strategy = repr(settings.strategy) if is_dataclass(settings.strategy) else settings.strategy.name
        compaction = (
            settings.compaction_trigger,
            settings.compaction_target,
            settings.keep_messages,
            settings.segment_messages,
            settings.emphasis,
        )
        kind = f"a long turn ({self.long_turn}), " if self.long_turn else ""
        if self.tier.history_messages is not None:
            kind += f"at most {self.tier.history_messages} messages, "
        return f"{kind}{self.limit_tokens} tokens, {self.counter.name}, {strategy}, {compaction}"

    @property
    def allocated(self) -> Allocation:
        """The allocation; there once the budget is computed."""
        assert self.allocation is not None  # noqa: S101 - steps run in order
        return self.allocation

    @property
    def window(self) -> Window:
        """The model's window, as far as it is known."""
        return self.target.window

    @property
    def output_reserve_tokens(self) -> int:
        """What is kept free in the window: the setting, else what the model says, at most half of it."""
        window, said = self.window.tokens, self.window.output_tokens
        if window is None:
            return 0
        if self.settings.output_reserve_tokens is not None:
            return self.settings.output_reserve_tokens
        return min(said, window // 2) if said else 0

    @property
    def content(self) -> Content:
        """Everything that was chosen so far."""
        own = (fragment for rendered in self.own.values() for fragment in rendered.fragments)
        chosen = (*self.bundles.fragments, *own, *self.retrieved.fragments)
        volatile = chosen if self.fixed is None else self.fixed
        return Content(
            system_prompt=self.system_prompt,
            preferences=self.preferences,
            arc=self.history.arc,
            summary=self.history.summary,
            summary_intro=self.history.summary_intro,
            summary_outro=self.history.summary_outro,
            history=self.history.groups,
            volatile=volatile if has_human(self.turn_groups) else (),
            turn=self.turn_groups,
            asked=asking(self.turn),
            turn_note=self.turn_note,
            layout=self.settings.layout,
        )

    @property
    def query(self) -> str:
        """The words of the human message that the turn is about."""
        position = asking(self.turn)
        return "" if position is None else plain_text(self.turn[position])
