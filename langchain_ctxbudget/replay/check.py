"""Checks what a strategy keeps and costs over conversations: a gate for continuous integration."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree as ET

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.messages import clipped
from langchain_ctxbudget.replay.contenders import FULL, Strategy
from langchain_ctxbudget.replay.result import (
    Loss,
    ReplayResult,
    Sent,
    Track,
    aligned_table,
    together,
)
from langchain_ctxbudget.replay.running import has_answers, replay
from langchain_ctxbudget.replay.tariff import Tariff
from langchain_ctxbudget.report import plural
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import Price

MOST_CASES = 5
SENTENCE_CHARACTERS = 240
"""The most that is printed of a sentence."""
COST_OF_EVERYTHING = 100.0
"""In percent: what sending everything costs."""
NOT_XML = {code: " " for code in range(32) if chr(code) not in "\t\n\r"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyFigures:
    """What one strategy kept and cost, in one conversation or in all.

    Percentages are rounded to one decimal. The gate compares them as they are printed.
    """

    strategy: str
    prompts: int
    kept_percent: float | None
    """Of what the answers used of earlier messages, the share that stood in their prompts; None
    where they used nothing."""
    cost_percent: float | None
    """Effective tokens, the strategy's own calls of models included, as a share of those of sending
    everything. Both are sums over the prompts that both could make; None where there are none."""
    failures: tuple[str, ...]
    """The prompts that could not be made."""

    def to_text(self) -> str:
        """Returns the figures on one line."""
        kept = "nothing used"
        if self.kept_percent is not None:
            kept = f"{self.kept_percent:.1f} % kept"
        cost = "no prompt made"
        if self.cost_percent is not None:
            cost = f"{self.cost_percent:.1f} % of the cost of everything"
        return f"{self.strategy}: {kept}, {cost}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedConversation:
    """One conversation, and what each strategy kept and cost in it."""

    name: str
    messages: int
    fits: bool
    """True where the conversation is no larger than the budget, and every prompt of the checked
    strategy has all of it: then there was nothing to leave out, and nothing to save."""
    strategies: tuple[StrategyFigures, ...]
    """The checked strategy first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A loss to read: something used that was not in the prompt."""

    conversation: str
    loss: Loss

    def to_text(self) -> str:
        """Tells the case in three lines."""
        loss = self.loss
        return "\n".join(
            [
                f"{self.conversation}, turn {loss.turn}: the answer used message {loss.message}:",
                f"   “{clipped(loss.sentence, SENTENCE_CHARACTERS)}”",
                f"   not in its prompt: {', '.join(loss.items)}",
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One thing that the gate asks for, and whether the checked strategy does it."""

    name: str
    """What is asked for, with its limit."""
    figure: str
    """What the checked strategy does."""
    problem: str = ""
    """Why the gate is closed; empty where it is open."""
    details: tuple[str, ...] = ()
    """What to read about the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a strategy kept and cost over all conversations, and whether the gate lets it pass.

    The gate judges the total of the checked strategy. Where all conversations fit into the budget,
    there is nothing to save: then the gate allows what sending everything costs.
    """

    budget_tokens: int
    least_kept_percent: float
    most_cost_percent: float
    tariff: Tariff
    """What tokens cost, and whose prices these are."""
    total: tuple[StrategyFigures, ...]
    """In all conversations together, the checked strategy first."""
    conversations: tuple[CheckedConversation, ...]
    worst: tuple[Case, ...]
    """The weightiest losses of the checked strategy."""
    skipped: tuple[str, ...]
    """The conversations without an answer, by name: there is nothing to replay."""

    @property
    def fitting(self) -> int:
        """The number of conversations that fit into the budget as they are."""
        return sum(conversation.fits for conversation in self.conversations)

    @property
    def allowed_cost_percent(self) -> float:
        """The largest cost that the gate allows, as a share of sending everything."""
        if self.fitting == len(self.conversations):
            return max(self.most_cost_percent, COST_OF_EVERYTHING)
        return self.most_cost_percent

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the gate asks for: enough kept, a cost low enough, and that all prompts are made."""
        return self._verdict_on_kept(), self._verdict_on_cost(), self._verdict_on_prompts()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the gate is closed; empty where it is open."""
        return tuple(verdict.problem for verdict in self.verdicts if verdict.problem)

    @property
    def passes(self) -> bool:
        """Tells if the checked strategy keeps enough, costs little enough, and made all prompts."""
        return not self.problems

    def _verdict_on_kept(self) -> Verdict:
        figures = self.total[0]
        kept = figures.kept_percent
        name = f"keeps at least {self.least_kept_percent:g} % of what later steps used"
        if kept is None:
            return Verdict(name=name, figure="no later step used anything")
        problem = ""
        if kept < self.least_kept_percent:
            problem = (
                f"{figures.strategy} keeps {kept:.1f} % of what later steps used; "
                f"the gate asks for at least {self.least_kept_percent:g} %"
            )
        cases = tuple(case.to_text() for case in self.worst)
        return Verdict(name=name, figure=f"{kept:.1f} %", problem=problem, details=cases)

    def _verdict_on_cost(self) -> Verdict:
        figures = self.total[0]
        cost = figures.cost_percent
        allowed = self.allowed_cost_percent
        name = f"costs at most {allowed:g} % of sending everything"
        if cost is None:
            return Verdict(name=name, figure="no prompt was made")
        problem = ""
        if cost > allowed:
            problem = (
                f"{figures.strategy} costs {cost:.1f} % of sending everything; "
                f"the gate allows at most {allowed:g} %"
            )
        return Verdict(name=name, figure=f"{cost:.1f} %", problem=problem)

    def _verdict_on_prompts(self) -> Verdict:
        figures = self.total[0]
        missing = len(figures.failures)
        problem = ""
        if missing:
            count = plural(missing, "prompt")
            problem = f"{count} could not be made; the first: {figures.failures[0]}"
        figure = f"{figures.prompts:,} of {figures.prompts + missing:,}"
        return Verdict(
            name="makes every prompt", figure=figure, problem=problem, details=figures.failures
        )

    def _on_fitting(self) -> str:
        """Returns a sentence on the conversations that fit; empty where none does."""
        tokens = f"{self.budget_tokens:,} tokens"
        if self.fitting == 0:
            return ""
        if self.fitting == len(self.conversations):
            return (
                f"All conversations fit into {tokens}, so nothing was left out, and nothing can be "
                f"saved: the gate allows a cost of {self.allowed_cost_percent:g} %. For a gate on "
                f"cost, take longer conversations or a smaller budget."
            )
        return (
            f"{self.fitting:,} of {len(self.conversations):,} conversations fit into {tokens}: "
            f"they cost as much as sending everything."
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON."""
        return {
            **asdict(self),
            "passes": self.passes,
            "problems": list(self.problems),
            "allowed_cost_percent": self.allowed_cost_percent,
        }

    def to_text(self) -> str:
        """Draws the figures of each conversation and in all, and tells the worst cases."""
        heading, *rows = aligned_table(self._rows())
        lines = [
            f"{self.budget_tokens:,} tokens for a prompt; cost as a share of sending everything",
            self.tariff.to_text(),
            "",
            heading,
            "-" * len(heading),
            *rows,
        ]
        if self.worst:
            lines += ["", f"The worst {len(self.worst)} to read:"]
        lines += [f"{number}. {case.to_text()}" for number, case in enumerate(self.worst, 1)]
        lines += [f"Skipped, as it has no answer: {name}" for name in self.skipped]
        if self._on_fitting():
            lines += ["", self._on_fitting()]
        lines += ["", *self.problems]
        if self.passes:
            done = ", ".join(f"{verdict.name} ({verdict.figure})" for verdict in self.verdicts)
            lines.append(f"passed: {self.total[0].strategy} {done}")
        return "\n".join(lines)

    def _rows(self) -> list[dict[str, str]]:
        """Returns the cells of each conversation, then those of each strategy in all of them."""
        rows = [
            _row(conversation.name, conversation.strategies[0], conversation.messages)
            for conversation in self.conversations
        ]
        messages = sum(conversation.messages for conversation in self.conversations)
        rows += [_row("in all", figures, messages) for figures in self.total]
        return rows

    def to_junit(self) -> str:
        """Returns a JUnit report.

        It has a test case for each thing that the gate asks for, which passes or fails, and one for
        each conversation. These are not gated: one that is below the gate is skipped, and says so.
        """
        suite = ET.Element("testsuite", name="ctxbudget check", errors="0")
        properties = ET.SubElement(suite, "properties")
        for name, value in self._properties():
            _element(properties, "property", name=name, value=value)
        for verdict in self.verdicts:
            case = _element(suite, "testcase", name=f"gate: {verdict.name}", classname=GATE)
            if verdict.problem:
                failure = _element(case, "failure", message=verdict.problem)
                failure.text = _xml_text("\n\n".join(verdict.details))
            _element(case, "system-out").text = _xml_text(f"{verdict.figure}; {self._total_text()}")
        for conversation in self.conversations:
            name = f"not gated: {conversation.name}"
            case = _element(suite, "testcase", name=name, classname=CONVERSATIONS)
            shortfall = self._shortfall(conversation)
            if shortfall:
                _element(case, "skipped", message=shortfall)
            lines = [figures.to_text() for figures in conversation.strategies]
            _element(case, "system-out").text = _xml_text("\n".join(lines))
        for tag, count in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
            suite.set(tag, str(len(suite.findall(f".//{count}"))))
        return ET.tostring(suite, encoding="unicode", xml_declaration=True)

    def _properties(self) -> Iterator[tuple[str, str]]:
        """Yields what a report says of the whole run."""
        yield "total", self._total_text()
        yield "budget", f"{self.budget_tokens:,} tokens"
        yield "prices", self.tariff.to_text()
        if self._on_fitting():
            yield "fitting", self._on_fitting()

    def _total_text(self) -> str:
        """Returns the figures of every strategy over all conversations."""
        return "; ".join(figures.to_text() for figures in self.total)

    def _shortfall(self, conversation: CheckedConversation) -> str:
        """Returns in which figures a conversation is worse than the gate asks; empty for none."""
        figures = conversation.strategies[0]
        parts: list[str] = []
        kept = figures.kept_percent
        if kept is not None and kept < self.least_kept_percent:
            parts.append(f"keeps {kept:.1f} %, less than {self.least_kept_percent:g} %")
        cost = figures.cost_percent
        allowed = self.most_cost_percent
        if conversation.fits:
            allowed = max(allowed, COST_OF_EVERYTHING)
        if cost is not None and cost > allowed:
            parts.append(f"costs {cost:.1f} %, more than {allowed:g} %")
        if figures.failures:
            parts.append(f"{plural(len(figures.failures), 'prompt')} could not be made")
        return "; ".join(parts)

    def __str__(self) -> str:
        return self.to_text()


GATE = "ctxbudget.check.gate"
CONVERSATIONS = "ctxbudget.check.conversations"
"""The classes of test cases in a JUnit report, by which pages of continuous integration group."""


def _element(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    """Adds an element whose attributes XML can hold."""
    texts = {name: _xml_text(text) for name, text in attributes.items()}
    return ET.SubElement(parent, tag, texts)


def _xml_text(text: str) -> str:
    """Returns a text without the characters that XML does not allow."""
    allowed = text.translate(NOT_XML)
    return allowed.encode("utf-8", "replace").decode().replace("\ufffe", " ").replace("\uffff", " ")


def _row(name: str, figures: StrategyFigures, messages: int) -> dict[str, str]:
    """Returns the cells of a line by the headings of their columns."""
    return {
        "conversation": clipped(name, 48),
        "strategy": figures.strategy,
        "messages": f"{messages:,}",
        "prompts": f"{figures.prompts:,}",
        "kept": _percent(figures.kept_percent),
        "cost": _percent(figures.cost_percent),
    }


def _percent(share: float | None) -> str:
    """Returns the cell of a percentage."""
    return "-" if share is None else f"{share:.1f} %"


@checks_names(ContextSettings.model_fields)
def check(
    conversations: Mapping[str, Sequence[BaseMessage]],
    strategy: Strategy = "elastic",
    *,
    budget: int,
    kept: float = 95,
    cost: float = 30,
    beside: Sequence[Strategy] = (),
    system_prompt: str = "",
    tools: Sequence[Any] = (),
    model: str | None = None,
    settings: ContextSettings | Mapping[str, Any] | None = None,
    embeddings: Embeddings | None = None,
    price: Price | str | None = None,
    summary_model: str | BaseChatModel | None = None,
    on_turn: Callable[[str, str], None] | None = None,
) -> CheckResult:
    """Replays conversations with a strategy, and checks what it keeps and costs.

    Args:
        conversations: by name, each with its oldest message first.
        strategy: the one that is checked, as `replay` takes it.
        budget: the most that a prompt may cost, in tokens.
        kept: the least share of what later steps used, in percent.
        cost: the largest share of the cost of sending everything, in percent. Where all
            conversations fit into the budget, it is 100 at least.
        beside: other strategies, whose figures are told as well.
        system_prompt: of every prompt; default: the system messages that a conversation begins
            with.
        tools: as in `replay`.
        model: as in `replay`.
        settings: as in `replay`.
        embeddings: as in `replay`.
        price: as in `replay`.
        summary_model: as in `replay`.
        on_turn: called behind every turn with the names of the conversation and of the strategy.

    Raises:
        InputError: No conversation has an answer, or an argument is out of range.
    """
    _require_percent("kept", kept, 100)
    _require_percent("cost", cost, 1_000)
    with_answers = _with_answers(conversations)
    strategies = [strategy, *beside]
    if FULL not in strategies:
        strategies.append(FULL)
    results: dict[str, ReplayResult] = {}
    for name, messages in with_answers.items():
        results[name] = replay(
            messages,
            strategies,
            budget=budget,
            system_prompt=system_prompt,
            tools=tools,
            model=model,
            settings=settings,
            embeddings=embeddings,
            price=price,
            summary_model=summary_model,
            on_turn=_hook(on_turn, name),
        )
    tracks_by_conversation = {name: result.tracks for name, result in results.items()}
    checked = [
        _checked(name, with_answers[name], tracks, budget)
        for name, tracks in tracks_by_conversation.items()
    ]
    return CheckResult(
        budget_tokens=budget,
        least_kept_percent=kept,
        most_cost_percent=cost,
        tariff=next(iter(results.values())).tariff,
        total=_figures([*zip(*tracks_by_conversation.values(), strict=True)]),
        conversations=tuple(checked),
        worst=tuple(_worst(tracks_by_conversation)),
        skipped=tuple(name for name in conversations if name not in with_answers),
    )


def _with_answers(
    conversations: Mapping[str, Sequence[BaseMessage]],
) -> dict[str, Sequence[BaseMessage]]:
    """Returns the conversations that can be replayed, by name.

    Raises:
        InputError: There are none.
    """
    with_answers = {
        name: messages for name, messages in conversations.items() if has_answers(messages)
    }
    if not with_answers:
        raise InputError(
            f"Nothing to check: none of {len(conversations)} conversations has an answer of a "
            "model that follows a message"
        )
    return with_answers


def _require_percent(name: str, value: float, most: float) -> None:
    """Raises an `InputError` for what is no percentage."""
    if not 0 <= value <= most:
        raise InputError(f"{name} must be a percentage from 0 to {most:,}, not {value!r}")


def _hook(
    on_turn: Callable[[str, str], None] | None, conversation: str
) -> Callable[[str, int], None] | None:
    """Returns what a replay calls behind every turn."""
    if on_turn is None:
        return None

    def after_turn(strategy: str, _number: int) -> None:
        on_turn(conversation, strategy)

    return after_turn


def _checked(
    name: str, messages: Sequence[BaseMessage], tracks: Sequence[Track], budget: int
) -> CheckedConversation:
    """Returns what each strategy kept and cost in one conversation."""
    alone = [[track] for track in tracks]
    return CheckedConversation(
        name=name,
        messages=len(messages),
        fits=_fits(tracks, budget),
        strategies=_figures(alone),
    )


def _fits(tracks: Sequence[Track], budget: int) -> bool:
    """Tells if a conversation fits into the budget, and the checked strategy left nothing out."""
    checked = tracks[0]
    [everything] = [track for track in tracks if track.name == FULL]
    shortened = sum(share for state, share in checked.message_shares.items() if state != "verbatim")
    return everything.largest_tokens <= budget and shortened == 0 and not checked.failures


def _figures(tracks_by_strategy: Sequence[Sequence[Track]]) -> tuple[StrategyFigures, ...]:
    """Returns the figures of each strategy over its tracks, one of which is that of everything."""
    sums = {tracks[0].name: Sent(**together(tracks)) for tracks in tracks_by_strategy}
    return tuple(
        StrategyFigures(
            strategy=name,
            prompts=sent.calls,
            kept_percent=_rounded_percent(sent.kept),
            cost_percent=_rounded_percent(_cost_share(sent, sums[FULL])),
            failures=sent.failures,
        )
        for name, sent in sums.items()
    )


def _cost_share(sent: Sent, everything: Sent) -> float | None:
    """Returns the cost of a strategy as a share of sending everything, over prompts that both made.

    A prompt that could not be made costs nothing: in the sum, the strategy would look cheap.
    """
    cost = 0.0
    cost_of_everything = 0.0
    for own, whole in zip(sent.prompt_costs, everything.prompt_costs, strict=True):
        if own is not None and whole is not None:
            cost += own
            cost_of_everything += whole
    return cost / cost_of_everything if cost_of_everything else None


def _rounded_percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def _worst(tracks_by_conversation: Mapping[str, Sequence[Track]]) -> list[Case]:
    """Returns the weightiest losses of the checked strategy, each sentence once."""
    cases = sorted(_losses(tracks_by_conversation), key=lambda case: -case.loss.weight)
    sentences = set[tuple[str, int, str]]()
    worst: list[Case] = []
    for case in cases:
        place = (case.conversation, case.loss.message, case.loss.sentence)
        if place not in sentences and len(worst) < MOST_CASES:
            sentences.add(place)
            worst.append(case)
    return worst


def _losses(tracks_by_conversation: Mapping[str, Sequence[Track]]) -> Iterator[Case]:
    """Yields the losses of the checked strategy in every conversation."""
    for name, tracks in tracks_by_conversation.items():
        for loss in tracks[0].losses:
            yield Case(conversation=name, loss=loss)
