"""A prompt on its way from step to step: the request, what is chosen so far, and what comes out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from langchain_core.messages import BaseMessage, ToolCall

from langchain_ctxbudget.budget import HEALTHY, Allocation, Fragment, Layer, Parameters, Tier
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.history import (
    Background,
    Continuation,
    Conversation,
    HistoryView,
    LastPrompt,
    SentWith,
    TurnWorkState,
)
from langchain_ctxbudget.knowledge import (
    NO_RULES,
    NOTHING,
    Detected,
    FactsLayer,
    Knowledge,
    StandingRules,
)
from langchain_ctxbudget.layers import (
    NOTHING_CHOSEN,
    Chosen,
    ChosenPreferences,
    Known,
    Place,
    PromptLayer,
    TurnView,
    View,
    all_layers,
    chosen_preferences,
    in_order_of_prompt,
    place_of,
)
from langchain_ctxbudget.messages import Group, plain_text, without_machine_text
from langchain_ctxbudget.prompt.assembly import Content, asking, has_human, request_copy
from langchain_ctxbudget.prompt.mode import Growth
from langchain_ctxbudget.providers import CacheTerms, Mark, Repair
from langchain_ctxbudget.report import ContextReport, Receipt, UsageState
from langchain_ctxbudget.retrieval import Pool
from langchain_ctxbudget.search import Scores
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import CutRecord, SnapshotRecord
from langchain_ctxbudget.tokens import TokenCounter, Window
from langchain_ctxbudget.tools import (
    LOADED_TOOLS,
    NO_TOOLS,
    TOOL_COSTS,
    ChosenTools,
    OwnTool,
    ToolSet,
)

Overrides = ContextSettings | Mapping[str, Any] | None
"""What a call says of the settings: all of them, some of them by name, or nothing."""


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
    """The messages to send, ready for `model.invoke`."""
    tools: list[Any]
    """The tools to bind: those that were given, or, with the setting `tool_tokens`, those of them
    that fit, and two by which the model gets at the others."""
    turn: list[BaseMessage]
    """The current turn as it was given: what to store with the answer."""
    account: Callable[[], ContextReport] = field(repr=False, compare=False)
    """Returns the report; the first call makes it."""
    receipt: Callable[[], Receipt] = field(repr=False, compare=False)
    """Returns the numbers of the report, which are made without it and in far less time."""

    @property
    def report(self) -> ContextReport:
        """What was sent or left out, with reasons and costs; made when first looked at."""
        return self.account()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a call for a prompt, besides the turn that is to be answered."""

    tools: Sequence[Any] = ()
    response_format: object = None
    settings: Overrides = None
    persona_id: str | None = None
    device_id: str | None = None
    """The id of the user's device: what is open there is likely to come up."""
    background: object = None
    """The background of the turn as plain data, where an agent's state has it."""
    thread: str | None = None
    """The id of the thread whose state holds the messages; None outside a run."""
    instructions: Sequence[str] = ()
    """More text for the system prompt."""
    system_mark: Mark | None = None
    """The application's mark for a provider's cache on its system message."""
    cache_mark: object = None
    """The same as an option of the model's call (`cache_control`)."""
    task: bool = False
    """True if another agent asks through a tool: the given history is then all there is, and what
    is stored is not looked at."""
    failures: Sequence[str] = ()
    """Problems so far, for the report."""
    binds_chosen_tools: bool = False
    """True if the caller binds the tools that the prompt chooses, not whatever it has given."""


NO_OPTIONS = Request()
"""A call without options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """The call of a model that a prompt is made for, beside its messages."""

    model: str = ""
    """The name of the model; empty where none is known."""
    tools: ToolSet = NO_TOOLS.known
    """All tools that were given for it."""
    binds_chosen: bool = False
    """True if the caller binds the tools that the prompt chooses, not whatever it has given."""
    response_format: object = None
    cache: CacheTerms = field(default_factory=CacheTerms)
    """How the model's provider caches prompts, and what it charges for that."""
    cache_mark: object = None
    """The mark for the provider's cache that the application sends as an option of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much a prompt may have: the model's window, and what a usage limit lets in."""

    window: Window = field(default_factory=Window)
    tier: Tier = HEALTHY
    """What the user's usage limit lets in."""
    usage: UsageState | None = None
    """The usage so far, for the report; None where there is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutUser:
    """What is known about the user, and what of it is likely to come up."""

    knowledge: Knowledge = NOTHING
    """The user's topics and entities."""
    remembered: FactsLayer = field(default_factory=FactsLayer)
    """The facts about the user."""
    rules: StandingRules = NO_RULES
    """What is known of the user's rules in this conversation."""
    expected: tuple[str, ...] = ()
    """Ids of topics and entities that are likely to come up, by what the user has open."""
    places: tuple[str, ...] = ()
    """The names of the places that the user has open on the device that asks."""
    persona_id: str | None = None
    suspended: tuple[tuple[int, int], ...] = ()
    """Where messages stand from which nothing was learned, as positions begin and end."""


@dataclass(frozen=True, kw_only=True)
class PromptRequest:
    """Everything that a prompt is made of, apart from its conversation."""

    turn: Sequence[BaseMessage]
    system_prompt: str
    settings: ContextSettings
    system_mark: Mark | None = None
    """The application's mark for a provider's cache on its system message."""
    settings_from: tuple[str, ...] = ("pipeline",)
    """Where the settings come from, see `merged_settings`."""
    call: ModelCall = field(default_factory=ModelCall)
    allowance: Allowance = field(default_factory=Allowance)
    user: AboutUser = field(default_factory=AboutUser)
    now: datetime | None = None
    background: Background | None = None
    """The background that was chosen for the turn's human message at an earlier call; it stays
    while an agent loops."""
    texts_counted_before: int = 0
    """How many texts the tokenizer had counted before this prompt, for the report."""
    failures: tuple[str, ...] = ()
    """Problems so far, for the report."""

    @property
    def output_reserve_tokens(self) -> int:
        """The tokens of the window that are kept free for the answer.

        The setting says how many; else it is the model's longest answer, at most half a window.
        """
        window = self.allowance.window.tokens
        if window is None:
            return 0
        if self.settings.output_reserve_tokens is not None:
            return self.settings.output_reserve_tokens
        return min(self.allowance.window.output_tokens or 0, window // 2)

    @property
    def binds_chosen_tools(self) -> bool:
        """True if the prompt may leave some of the given tools out."""
        return self.call.binds_chosen or self.settings.tool_tokens is not None

    @cached_property
    def cache_lifetime_seconds(self) -> float:
        """For how long a cache holds a prompt: as the settings say, else as the provider does."""
        if "cache_lifetime_seconds" in self.settings.model_fields_set:
            return self.settings.cache_lifetime_seconds
        return self.call.cache.lifetime_seconds

    @cached_property
    def cache_terms(self) -> CacheTerms:
        """What the provider charges for prompts that its cache holds for so long."""
        return self.call.cache.lasting(self.cache_lifetime_seconds)

    @cached_property
    def may_be_cached(self) -> bool:
        """True if a cache holds prompts for a while, once they fill the budget."""
        smallest_tokens = self.call.cache.smallest_tokens
        is_large_enough = self.settings.max_context_tokens >= smallest_tokens
        return is_large_enough and self.cache_lifetime_seconds > 0

    @cached_property
    def settings_of_cuts(self) -> str:
        """The settings by which the cuts of prompts differ, in a line of text."""
        return _settings_of_cuts(self.settings)


def merged_settings(
    settings: ContextSettings,
    saved: Mapping[str, Mapping[str, Any]],
    overrides: Overrides,
    failures: list[str],
) -> tuple[ContextSettings, tuple[str, ...]]:
    """Returns the settings of a call, and where they come from.

    Saved settings override the pipeline's, in the order of `saved`. A mapping given with the call
    overrides these; a whole `ContextSettings` given with it stands alone. Saved settings that
    cannot be used are left out, with a line in `failures`.
    """
    sources = ["pipeline"]
    for source, values in saved.items():
        if not values:
            continue
        try:
            settings = settings.override(values)
            sources.append(source)
        except InvalidSettingsError as error:
            failures.append(f"saved settings of the {source} not used: {error}")
    if isinstance(overrides, ContextSettings):
        return overrides, ("call",)
    if overrides is not None:
        sources.append("call")
    return settings.override(overrides), tuple(sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTurn:
    """The current turn as it was given.

    Its groups are human messages and rounds: an assistant's message with calls, and their results.
    """

    groups: tuple[Group, ...] = ()
    costs: tuple[int, ...] = ()
    """The tokens of each of these groups."""
    round_costs: tuple[int, ...] = ()
    """The tokens of each of its last rounds, from which the size of the next ones is estimated."""
    human_tokens: int = 0
    """The tokens of its human messages together."""
    repairs: tuple[Repair, ...] = ()
    """The repairs of its messages."""
    places: Mapping[object, int] = field(default_factory=dict)
    """The place of each message in the turn, by its key, see `key_in_turn`."""
    calls_before: Mapping[str, ToolCall] = field(default_factory=dict)
    """The calls in the history, by id, whose results are in the turn."""

    @property
    def tokens(self) -> int:
        """The tokens of all its groups."""
        return sum(self.costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTurn:
    """What is sent of a turn: its groups, in whole or in short."""

    groups: tuple[Group, ...] = ()
    left_out: tuple[Group, ...] = ()
    """The groups of which nothing is sent."""
    clipped: frozenset[int] = frozenset()
    """The positions of the groups that are sent in short."""
    groups_when_shortened: int = 0
    """How many groups it had when older ones gave way last; 0 if none has."""
    work_when_shortened: TurnWorkState | None = None
    """Its work state when older rounds gave way last; it is told until they do again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnWork:
    """What a prompt tells of the work state, and the room for it."""

    stored_tokens: int = 0
    """The most that the work state of the stored messages may cost; it is told in the arc."""
    own_tokens: int = 0
    """The most that the work state of this turn may cost; it is told in the turn's note."""
    lines: tuple[Fragment, ...] = ()
    """The lines of the note that tell the work state of this turn."""

    @property
    def most_tokens(self) -> int:
        """The most that both may cost."""
        return self.stored_tokens + self.own_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTurn:
    """The current turn as it was given and as it is sent, and the room that is kept for it."""

    given: GivenTurn = field(default_factory=GivenTurn)
    fitted: FittedTurn = field(default_factory=FittedTurn)
    groups: tuple[Group, ...] = ()
    """The groups that are sent, with ids that differ from those of the history."""
    repairs: tuple[Repair, ...] = ()
    """The repairs of the given messages, and those that the history makes necessary."""
    note: str = ""
    """The text in place of rounds that gave way: how many are left out, and the work state that
    they have left behind."""
    work: TurnWork = field(default_factory=TurnWork)
    tokens: int = 0
    """The tokens of what is sent, without the work state."""
    room_tokens: int = 0
    """The tokens that are kept for it, including those that it has taken."""
    free_tokens: int = 0
    """The tokens that are kept free for the calls and results that it may still get."""
    stage: int = 0
    """How many times it has outgrown the room that was planned for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found that may have to do with the message."""

    embedded_query: tuple[str, Sequence[float]] | None = None
    """The query and its vector, where topics were compared with it."""
    detected: Detected = field(default_factory=Detected)
    """The topics and entities that the message is about."""
    own_items: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The items of the application's own layers, by the names of these."""
    pool: Pool | None = None
    """The ranked texts that may be quoted; None if nothing has been searched."""
    tool_scores: Scores | None = None
    """How well each tool fits the message; None if they were not compared with it."""


@dataclass(frozen=True, slots=True)
class UnsentMedia:
    """Media of a message that a prompt cannot have."""

    layer: Layer
    message: BaseMessage
    """The message with them."""
    numbers: frozenset[int]
    """Which they are among its media."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveWay:
    """What was taken out of a finished prompt because it was over its limit."""

    pruned: tuple[Fragment, ...] = ()
    """The items that were taken out, as a report names them."""
    last_resort: tuple[str, ...] = ()
    """The names of the last measures that were taken."""
    repairs: tuple[Repair, ...] = ()
    """What was left out because the provider takes no more of its kind in one request, or not
    behind what stands before it now."""
    media: tuple[UnsentMedia, ...] = ()
    """The media among that."""

    def also(self, pruned: Sequence[Fragment], *last_resort: str) -> "GaveWay":
        """Returns it with more items that were taken out, and more measures."""
        return replace(
            self,
            pruned=(*self.pruned, *pruned),
            last_resort=(*self.last_resort, *last_resort),
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A prompt on its way; every step returns one with its own part filled in.

    It never changes, so what follows from it is worked out once.
    """

    conversation: Conversation
    request: PromptRequest
    counter: TokenCounter
    limit_tokens: int = 0

    growth: Growth = field(default_factory=Growth)
    """Whether it extends the last prompt or is rebuilt, and what follows from that."""

    # What the steps have found and chosen

    tools: ChosenTools = NO_TOOLS
    """The tools of the call: which are bound, and which are left to be found."""
    extras: Mapping[str, int] = field(default_factory=dict)
    """The tokens of what is sent beside the messages, tools and response format, by their names in
    errors."""
    uncorrected_extras: Mapping[str, int] = field(default_factory=dict)
    """The same without corrections by reported usage, which change from answer to answer."""
    findings: Findings = field(default_factory=Findings)
    """What was found that may have to do with the message."""
    turn: PlannedTurn = field(default_factory=PlannedTurn)
    allocation: Allocation | None = None
    """What every layer gets; None until the budget is computed."""
    fixed: tuple[Fragment, ...] | None = None
    """What is still shown of the turn's background where an earlier call has chosen it; None where
    this call chooses it."""
    chosen: Mapping[str, Chosen] = field(default_factory=dict)
    """What the layers show, by their names, as far as they have chosen."""
    history: HistoryView = field(default_factory=lambda: HistoryView(strategy="empty", cut=0))
    background: Background | None = None
    """What stands in front of the turn's human message, to be sent with it again."""

    # What became of it in the end

    gave_way: GaveWay = field(default_factory=GaveWay)
    failures: tuple[str, ...] = ()
    """Problems, for the report."""
    uses_known_costs: bool = True
    """False where a prompt is made again because its recount differed: then every message is
    counted as it is sent."""

    @classmethod
    def begin(cls, conversation: Conversation, request: PromptRequest) -> "Plan":
        """Returns a plan in which no step has chosen anything yet."""
        plan = cls(
            conversation=conversation,
            request=request,
            counter=conversation.counter,
            failures=request.failures,
        )
        return plan.with_background(request.background)

    def with_failures(self, *problems: str) -> "Plan":
        """Returns the plan with more problems to report."""
        return replace(self, failures=(*self.failures, *problems)) if problems else self

    def with_background(self, background: Background | None) -> "Plan":
        """Returns the plan with a background that was chosen at an earlier call, shown in full."""
        if background is None:
            return self
        fixed = background.counted(self.counter)
        stable = {
            name: chosen
            for name, chosen in self.chosen.items()
            if not place_of(name).is_in_background
        }
        return replace(self, background=background, fixed=fixed, chosen=stable)

    def positions_quoted_whole(self, parts: Sequence[Fragment]) -> tuple[int, ...]:
        """Returns the positions of the conversation's messages that some fragments quote whole."""
        quoted = [self.conversation.position(part.id) for part in parts if part.is_quoted_whole]
        return tuple(sorted(position for position in quoted if position is not None))

    @cached_property
    def layers(self) -> list[PromptLayer]:
        """All layers, in the order of a report."""
        return all_layers(self.request.settings.layers)

    @cached_property
    def continuation(self) -> Continuation:
        """How it continues the last prompt."""
        growth = self.growth
        return Continuation(grows=self.grows, mode=growth.mode, is_cold=growth.is_cold)

    @cached_property
    def turn_view(self) -> TurnView:
        """What layers may look at of the turn."""
        turn = self.turn
        return TurnView(
            given=self.request.turn,
            groups=turn.groups,
            left_out=turn.fitted.left_out,
            clipped=turn.fitted.clipped,
            tokens=turn.tokens,
            free_tokens=turn.free_tokens,
            work_tokens=turn.work.stored_tokens,
            own_work_tokens=turn.work.own_tokens,
            stage=turn.stage,
        )

    @cached_property
    def view(self) -> View:
        """What layers may look at."""
        request = self.request
        return View(
            conversation=self.conversation,
            counter=self.counter,
            settings=request.settings,
            tier=request.allowance.tier,
            limit_tokens=self.limit_tokens,
            system_prompt=request.system_prompt,
            known=Known(
                detected=self.findings.detected,
                knowledge=request.user.knowledge,
                remembered=request.user.remembered,
                rules=request.user.rules,
                persona_id=request.user.persona_id,
                own_items=self.findings.own_items,
            ),
            continuation=self.continuation,
            turn=self.turn_view,
            history=self.history,
            pool=self.findings.pool,
            tools=self.tools,
            tools_tokens=sum(self.extras.values()) - sum(self.extras_beside_tools.values()),
        )

    def chosen_by(self, layer: PromptLayer) -> Chosen:
        """Returns what a layer shows; nothing before it has chosen."""
        return self.chosen.get(layer.name, NOTHING_CHOSEN)

    def with_chosen(self, layer: PromptLayer, chosen: Chosen) -> "Plan":
        """Returns the plan with what a layer shows."""
        return replace(self, chosen={**self.chosen, layer.name: chosen})

    @property
    def preferences(self) -> ChosenPreferences:
        """The preferences that are shown, and the facts behind them."""
        return chosen_preferences(self.chosen)

    @property
    def compiled(self) -> dict[str, Mapping[str, bool]]:
        """The compiled texts that the prompt uses, by layer and id.

        True stands for a text that was there in its present form, False for one that must be
        compiled.
        """
        view = self.view
        return {layer.name: layer.compiled(view, self.chosen_by(layer)) for layer in self.layers}

    @cached_property
    def cut_key(self) -> str:
        """The name of the compaction cut that belongs to prompts like this."""
        return self._cut_key_at(self.turn.stage)

    def _cut_key_at(self, stage: int) -> str:
        """Returns the name of the cut of prompts like this whose turn is at a stage.

        The stages from 1 on share one cut (their name has `True`) where prompts grow; else each
        has a cut of its own (their name has the stage).
        """
        key = self.conversation.compaction_key
        if stage:
            key += f"a long turn ({self.grows or stage}), "
        most_messages = self.request.allowance.tier.history_messages
        if most_messages is not None:
            key += f"at most {most_messages} messages, "
        if self.grows:
            key += "only growing, "
        settings = self.request.settings_of_cuts
        return f"{key}{self.limit_tokens} tokens, {self.counter.name}, {settings}"

    @property
    def cuts(self) -> list[CutRecord | None]:
        """The last cuts of prompts like this.

        First that of a turn within its planned room, then that of one that has outgrown it.
        """
        return [self.conversation.cuts.get(self._cut_key_at(stage)) for stage in (0, 1)]

    @cached_property
    def grows(self) -> bool:
        """Tells whether prompts like this only grow between two rebuilds.

        They do where a cache holds them for a while, except under a usage limit that lets in only a
        few messages: every turn replaces those.
        """
        settings = self.request.settings
        if settings.layout != "cache_first" or not self.request.may_be_cached:
            return False
        return self.request.allowance.tier.history_messages is None

    @cached_property
    def fixed_extras(self) -> list[tuple[str, int]]:
        """The extras that stand in front of the messages, in a fixed order, uncorrected.

        Tools that were loaded stand behind the messages before them.
        """
        extras = self.uncorrected_extras.items()
        return sorted(item for item in extras if item[0] != LOADED_TOOLS)

    @property
    def extras_beside_tools(self) -> dict[str, int]:
        """The extras that no layer owns."""
        return {name: tokens for name, tokens in self.extras.items() if name not in TOOL_COSTS}

    @property
    def names_of_chosen_tools(self) -> tuple[str, ...]:
        """The names of the bound tools, where the prompt chooses them."""
        return self.tools.names if self.request.binds_chosen_tools else ()

    @property
    def recall_tool(self) -> str:
        """The name of the tool by which the model may look messages up; empty without one."""
        return self.tools.name_of(OwnTool.RECALL)

    @cached_property
    def sent_with(self) -> SentWith:
        """What a cache tells prompts apart by, besides their messages."""
        return SentWith(
            model=self.request.call.model,
            system_prompt=self.request.system_prompt,
            tools=tuple(self.fixed_extras),
            names_of_tools=self.names_of_chosen_tools,
        )

    @property
    def cached_prompt(self) -> LastPrompt | None:
        """The last prompt, where a cache still holds it.

        It does if that was sent to the same model with the same system prompt and tools, not longer
        ago than a cache lives. Where the time is not known, it counts as held.
        """
        last = self.conversation.last
        now = self.request.now
        lifetime = self.request.cache_lifetime_seconds
        if last is None or not lifetime or last.sent_with != self.sent_with:
            return None
        if last.at is None or now is None:
            return last
        return last if (now - last.at).total_seconds() <= lifetime else None

    @property
    def seconds_until_cold(self) -> float:
        """For how many seconds a cache still holds the last prompt; 0 where none holds it."""
        last = self.cached_prompt
        if last is None:
            return 0.0
        last_tokens = sum(last.costs) + sum(self.extras.values())
        if last_tokens < self.request.cache_terms.smallest_tokens:
            return 0.0
        lifetime = self.request.cache_lifetime_seconds
        if last.at is None or self.request.now is None:
            return lifetime
        return lifetime - (self.request.now - last.at).total_seconds()

    @property
    def allocated(self) -> Allocation:
        """What every layer gets, for code that runs once the budget is computed."""
        assert self.allocation is not None  # noqa: S101 - steps run in order
        return self.allocation

    def items_at(self, *places: Place) -> tuple[Fragment, ...]:
        """Returns the items of layers in some places, in the order of the prompt."""
        items: list[Fragment] = []
        for layer in in_order_of_prompt(self.layers):
            if layer.place in places:
                items += self.chosen_by(layer).fragments
        return tuple(items)

    @property
    def stable_items(self) -> tuple[Fragment, ...]:
        """The items before the turn: preferences, arc, summary."""
        return self.items_at(Place.STABLE, Place.HISTORY)

    @property
    def background_items(self) -> tuple[Fragment, ...]:
        """The items of the turn's background, as far as they are chosen."""
        if self.fixed is not None:
            return self.fixed
        return self.items_at(Place.BACKGROUND, Place.QUOTES)

    @cached_property
    def content(self) -> Content:
        """Everything that was chosen so far, in the form from which the messages are built."""
        view = self.history
        background = self.background_items if has_human(self.turn.groups) else ()
        return Content(
            system_prompt=self.request.system_prompt,
            fragments=(*self.stable_items, *background),
            summary_intro=view.summary_intro,
            summary_outro=view.summary_outro,
            history=view.groups,
            compaction=self.conversation.compaction,
            bare={at: self.conversation.entries[at].sent_message for at in view.backgrounds},
            backgrounds={at: background.fragments for at, background in view.backgrounds.items()},
            turn=self.turn.groups,
            question_position=asking(self.request.turn),
            turn_note=self.turn.note,
            turn_work=self.turn.work.lines,
            layout=self.request.settings.layout,
            profile=self.conversation.profile,
        )

    def cost(self, message: BaseMessage) -> int:
        """Returns the tokens of a message of the prompt; it is counted if they are not known."""
        if not self.uses_known_costs:
            return self.counter.count_message(request_copy(message))
        known = self.history.costs.of(message)
        return self.counter.count_message(message) if known is None else known

    @cached_property
    def query(self) -> str:
        """The words of the human message that the turn is about.

        Where a program has written that one in the user's name, the turn is still about what the
        user said last.
        """
        position = asking(self.request.turn)
        if position is None:
            return ""
        text = plain_text(self.request.turn[position])
        words = without_machine_text(text)
        if text and not words:
            return self.conversation.last_words_of_user
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Everything to be stored once a prompt is sent; a forecast stores nothing of it."""

    cut: CutRecord | None
    """Where verbatim history begins; None where all of it is sent."""
    is_rebuilt: bool
    """True if this is another cut than before."""
    snapshot: SnapshotRecord | None
    """The facts that the conversation shows from now on; None if they stay the same."""
    last: LastPrompt
    """What the conversation remembers of this prompt."""
    used: Mapping[str, bool]
    """The compiled texts that the prompt uses, by id; True if a text was there in its present
    form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A finished prompt: messages, account and changes."""

    context: AssembledContext
    changes: Changes
    plan: Plan
    """The finished plan, from which the prompt of another budget can be made."""


def cut_key(settings: ContextSettings, limit_tokens: int, counter: TokenCounter) -> str:
    """Returns the name of the compaction cuts of one budget, tokenizer and strategy."""
    return f"{limit_tokens} tokens, {counter.name}, {_settings_of_cuts(settings)}"


def _settings_of_cuts(settings: ContextSettings) -> str:
    """Returns the settings by which the cuts of prompts differ, in a line of text."""
    allocation = settings.allocation
    strategy = repr(allocation) if isinstance(allocation, Parameters) else allocation.name
    compaction = (
        settings.compaction_trigger,
        settings.compaction_target,
        settings.keep_messages,
        settings.span_messages,
        settings.keep_important,
        settings.emphasis,
        settings.history_format,
    )
    return f"{strategy}, {compaction}"
