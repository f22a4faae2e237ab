"""A prompt on its way from step to step.

The request, everything chosen so far, and the finished prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.budget import HEALTHY, Allocation, Fragment, Layer, Parameters, Tier
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.history import (
    Background,
    Conversation,
    HistoryView,
    LastPrompt,
    TurnWorkState,
)
from langchain_ctxbudget.knowledge import (
    NOTHING,
    Bundles,
    Detected,
    Fact,
    FactsLayer,
    Knowledge,
    facts,
)
from langchain_ctxbudget.messages import Group, Repair, plain_text
from langchain_ctxbudget.prompt.assembly import Content, asking, has_human, request_copy
from langchain_ctxbudget.report import ContextReport, UsageState
from langchain_ctxbudget.retrieval import Pool, Retrieved
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import CutRecord, SnapshotRecord
from langchain_ctxbudget.tokens import TokenCounter, Window

LAST_STAGE = 4
"""The last of the stages in which a turn outgrows its room: older steps give way."""
Overrides = ContextSettings | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembledContext:
    """A prompt and its account.

    Example:
        >>> from langchain_ctxbudget import ContextPipeline
        >>> context = (
        ...     ContextPipeline(system_prompt="Be brief.")
        ...     .conversation("c1", user_id="ada")
        ...     .assemble("Hello")
        ... )
        >>> [message.type for message in context.messages], context.report.total_tokens
        (['system', 'human'], 15)
    """

    messages: list[BaseMessage]
    """Ready for `model.invoke`."""
    turn: list[BaseMessage]
    """The current turn as it was given: what to store with the answer."""
    account: Callable[[], ContextReport] = field(repr=False, compare=False)

    @property
    def report(self) -> ContextReport:
        """The messages with their reasons and costs; made when it is first looked at."""
        return self.account()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a call, besides the turn to answer."""

    tools: Sequence[Any] = ()
    response_format: object = None
    settings: Overrides = None
    persona_id: str | None = None
    device_id: str | None = None
    """The user's device: what is open on it tells what is likely to come up."""
    background: object = None
    """The background that an agent's state has of the turn, as plain data."""
    thread: str | None = None
    """The id of the thread whose state the messages are; None where it is not a run that gives
    them."""
    instructions: Sequence[str] = ()
    task: bool = False
    """True if a tool of another agent asks: then the given history is all there is, whatever is
    stored."""
    failures: Sequence[str] = ()


NOTHING_ELSE = Request()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRequest:
    """Everything that a prompt is made of, apart from its conversation."""

    turn: Sequence[BaseMessage]
    system_prompt: str
    settings: ContextSettings
    settings_from: tuple[str, ...] = ("pipeline",)
    tools: Sequence[Any] = ()
    response_format: object = None
    window: Window = field(default_factory=Window)
    tier: Tier = HEALTHY
    usage: UsageState | None = None
    knowledge: Knowledge = NOTHING
    remembered: FactsLayer = field(default_factory=FactsLayer)
    expected: tuple[str, ...] = ()
    """Ids of topics and entities that are likely to come up, by what the user has open."""
    now: datetime | None = None
    persona_id: str | None = None
    background: Background | None = None
    """The background that was chosen for the turn's human message before; it stays while an agent
    loops."""
    model: str = ""
    calls_before: int = 0
    failures: tuple[str, ...] = ()

    @property
    def output_reserve_tokens(self) -> int:
        """The tokens kept free in the window.

        The setting, else what the model says, at most half of it.
        """
        window = self.window.tokens
        said = self.window.output_tokens
        if window is None:
            return 0
        if self.settings.output_reserve_tokens is not None:
            return self.settings.output_reserve_tokens
        return min(said, window // 2) if said else 0


def merged(
    settings: ContextSettings,
    saved: Mapping[str, Mapping[str, Any]],
    overrides: Overrides,
    failures: list[str],
) -> tuple[ContextSettings, tuple[str, ...]]:
    """Returns a call's settings and their sources.

    Saved settings override the pipeline's, its own override all.
    """
    sources = ["pipeline"]
    for source in filter(saved.get, saved):
        try:
            settings = settings.override(saved[source])
            sources.append(source)
        except InvalidSettingsError as error:
            failures.append(f"saved settings of the {source} not used: {error}")
    if isinstance(overrides, ContextSettings):
        return overrides, ("call",)
    return settings.override(overrides), (*sources, "call") if overrides is not None else tuple(
        sources
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTurn:
    """The current turn as it is sent, and the room that is kept for it."""

    whole: tuple[Group, ...] = ()
    """All of it, as it was given."""
    costs: tuple[int, ...] = ()
    """What each of these costs."""
    steps: tuple[int, ...] = ()
    """What its last calls cost, each with its results."""
    given_repairs: tuple[Repair, ...] = ()
    said_tokens: int = 0
    """What the user's own messages in it cost."""
    places: Mapping[object, int] = field(default_factory=dict)
    """Where its messages stand, see `reference_of`."""
    groups: tuple[Group, ...] = ()
    left_out: tuple[Group, ...] = ()
    clipped: frozenset[int] = frozenset()
    repairs: tuple[Repair, ...] = ()
    note: str = ""
    """The line that says which groups are left out, and the work state that they have left
    behind."""
    tokens: int = 0
    room_tokens: int = 0
    """The tokens that are kept for it, including those that it has taken."""
    free_tokens: int = 0
    """The tokens kept free for the calls and results that it may still get."""
    long: int = 0
    """How many times it has outgrown the room that was planned for it."""
    renewed: int = 0
    """How many groups it had when older ones gave way last; 0 if none has."""
    work_tokens: int = 0
    """The most that the work state of the stored messages may cost."""
    own_work_tokens: int = 0
    """The most that the work state of this turn may cost."""
    work_when_shortened: TurnWorkState | None = None
    """The work state of this turn as of the last time that steps gave way; told until they do
    again."""
    work: tuple[Fragment, ...] = ()
    """The lines in which it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The first layer: preferences and facts about the user."""

    shown: tuple[Fragment, ...] = ()
    left_out: tuple[Fragment, ...] = ()
    facts: tuple[Fact, ...] = ()
    remembered: FactsLayer = field(default_factory=FactsLayer)

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
    goes_on: bool = False
    """True if the prompt continues the last one; else it is a step, and everything is chosen
    anew."""
    clips_new: bool = False
    """True if it goes on with large messages since the step clipped."""
    again: bool = False
    """True if it repeats the step because nothing was said since; its background is chosen as at
    the step."""
    cold: bool = True
    """True if no cache holds the last prompt any more, so that a step costs nothing."""
    repeats: bool = False
    """True if `goes_on` and `cold` are known already, because a prompt is made once more."""
    level_tokens: int = 0
    """A step goes down to this, so that prompts can grow from there."""
    afforded_tokens: int | None = None
    """What it may cost, by what the prompts since the last step have saved, compared with sending
    everything."""
    new_tokens: int = 0
    """The most tokens for the background of a prompt that goes on."""
    extras: Mapping[str, int] = field(default_factory=dict)
    """The tokens of tools and response format, by their names in errors."""
    asked: tuple[str, Sequence[float]] | None = None
    """The query and its vector, where topics were compared with it."""
    detected: Detected = field(default_factory=Detected)
    turn: PlannedTurn = field(default_factory=PlannedTurn)
    allocation: Allocation | None = None
    fixed: tuple[Fragment, ...] | None = None
    """What is still shown of a background that was chosen before; None if the background is chosen
    now."""
    bundles: Bundles = field(default_factory=Bundles)
    own_items: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    history: HistoryView = field(default_factory=lambda: HistoryView(strategy="empty", cut=0))
    preferences: Preferences = field(default_factory=Preferences)
    pool: Pool | None = None
    """The ranked texts that may be quoted; None if nothing has been searched."""
    retrieved: Retrieved = field(default_factory=Retrieved)
    background: Background | None = None
    pruned: tuple[Fragment, ...] = ()
    last_resort: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    uses_known_costs: bool = True
    """False where a prompt is made again because its recount differed: then every message is
    counted as it is sent."""

    @classmethod
    def begin(cls, conversation: Conversation, request: PromptRequest) -> "Plan":
        """Begins a prompt."""
        plan = cls(
            conversation=conversation,
            request=request,
            counter=conversation.counter,
            failures=request.failures,
        )
        return plan.with_background(request.background)

    def but(self, **changes: Any) -> "Plan":  # noqa: ANN401 - fields of any kind
        """Returns the plan with some of its parts replaced."""
        return replace(self, **changes)

    def failed(self, *problems: str) -> "Plan":
        """Returns the plan with more problems to report."""
        return replace(self, failures=(*self.failures, *problems)) if problems else self

    def with_background(self, background: Background | None) -> "Plan":
        """Returns the plan with a background that was chosen before, whole."""
        if background is None:
            return self
        fixed = background.counted(self.counter)
        return replace(self, background=background, fixed=fixed, retrieved=Retrieved())

    def positions_of(self, parts: Sequence[Fragment]) -> tuple[int, ...]:
        """Returns the positions of the conversation's messages that are quoted whole."""
        quoted = (self.conversation.position(part.id) for part in parts if part.is_quoted_whole)
        return tuple(sorted(place for place in quoted if place is not None))

    @property
    def compiled(self) -> dict[str, dict[str, bool]]:
        """By layer, the compiled texts that the prompt uses, and whether each was there as it is."""
        asked = self.request
        first = self.preferences
        used = facts.bundles_used(
            first.facts, first.shown, asked.persona_id, asked.knowledge.bundles
        )
        return {Layer.PREFERENCES: used, **self.detected.compiled}

    @property
    def cut_key(self) -> str:
        """The name of the compaction cut that belongs to prompts like this."""
        most = self.request.tier.history_messages
        turn = self.turn
        kind = f"a long turn ({self.grows or turn.long}), " if turn.long else ""
        kind += "" if most is None else f"at most {most} messages, "
        kind += "only growing, " if self.grows else ""
        return f"{kind}{cut_key(self.request.settings, self.limit_tokens, self.counter)}"

    @property
    def cuts(self) -> list[CutRecord | None]:
        """The last cuts for prompts like this.

        With a turn within its planned room, and with one that outgrew it.
        """
        keys = (self.but(turn=replace(self.turn, long=long)).cut_key for long in (0, 1))
        return [self.conversation.cuts.get(key) for key in keys]

    @property
    def adds(self) -> bool:
        """Tells whether its background holds only what is new for its message."""
        return self.goes_on and not self.again

    @property
    def grows(self) -> bool:
        """Tells whether prompts like this only grow between two steps, because a cache holds them for a while.

        They do not under a usage limit that lets in only a few messages: every turn replaces those.
        """
        settings = self.request.settings
        cached = settings.cache_lifetime_seconds > 0 and settings.layout == "cache_first"
        return (
            cached and settings.emphasis != "recall" and self.request.tier.history_messages is None
        )

    @property
    def sent_with(self) -> object:
        """The model, the system prompt and the tools."""
        return self.request.model, self.request.system_prompt, tuple(sorted(self.extras.items()))

    @property
    def cached(self) -> LastPrompt | None:
        """The last prompt, where a cache still holds it.

        It was sent lately, to the same model, with the same tools.
        """
        last = self.conversation.last
        now = self.request.now
        lifetime = self.request.settings.cache_lifetime_seconds
        age = (now - last.at).total_seconds() if last and last.at and now else 0.0
        return (
            last
            if last and age <= lifetime and lifetime and last.sent_with == self.sent_with
            else None
        )

    @property
    def allocated(self) -> Allocation:
        """The allocation; there once the budget is computed."""
        assert self.allocation is not None  # noqa: S101 - steps run in order
        return self.allocation

    @property
    def chosen(self) -> tuple[Fragment, ...]:
        """Everything that was chosen so far for the background of the turn."""
        return (
            (*self.bundles.fragments, *self.retrieved.fragments)
            if self.fixed is None
            else self.fixed
        )

    @property
    def content(self) -> Content:
        """Everything that was chosen so far."""
        view = self.history
        background = self.chosen if has_human(self.turn.groups) else ()
        return Content(
            system_prompt=self.request.system_prompt,
            fragments=(*self.preferences.shown, *view.arc, *view.summary, *background),
            summary_intro=view.summary_intro,
            summary_outro=view.summary_outro,
            history=view.groups,
            bare={at: self.conversation.entries[at].sent for at in view.backgrounds},
            backgrounds={at: background.fragments for at, background in view.backgrounds.items()},
            turn=self.turn.groups,
            asked=asking(self.request.turn),
            turn_note=self.turn.note,
            turn_work=self.turn.work,
            layout=self.request.settings.layout,
        )

    def cost(self, message: BaseMessage) -> int:
        """Returns the tokens of a message of the prompt."""
        if not self.uses_known_costs:
            return self.counter.count_message(request_copy(message))
        known = self.history.costs.of(message)
        return self.counter.count_message(message) if known is None else known

    @property
    def query(self) -> str:
        """The words of the human message that the turn is about."""
        position = asking(self.request.turn)
        return "" if position is None else plain_text(self.request.turn[position])


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Everything to be written once a prompt is sent; nothing of it is written for a forecast."""

    cut: CutRecord | None
    is_rebuilt: bool
    """True if the cut is another one than before."""
    snapshot: SnapshotRecord | None
    """The facts that the conversation shows from now on; None if they stay the same."""
    last: LastPrompt
    used: Mapping[str, bool]
    """The bundles that the prompt was to have, by id, and whether each was there as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A finished prompt: messages, account and changes."""

    context: AssembledContext
    changes: Changes
    plan: Plan
    """The finished plan, from which the prompt of another budget can be made."""


def cut_key(settings: ContextSettings, limit_tokens: int, counter: TokenCounter) -> str:
    """Returns what tells the compaction cuts of one budget, tokenizer and strategy from those of others."""
    rule = settings.allocation
    strategy = repr(rule) if isinstance(rule, Parameters) else rule.name
    sizes = (
        settings.compaction_trigger,
        settings.compaction_target,
        settings.keep_messages,
        settings.span_messages,
    )
    compaction = (*sizes, settings.keep_important, settings.emphasis, settings.history_format)
    return f"{limit_tokens} tokens, {counter.name}, {strategy}, {compaction}"
