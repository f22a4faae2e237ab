"""Checks what a policy keeps and costs over conversations: a gate for continuous integration."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree as ET

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_ctxbudget.errors import InputError, checks_names
from langchain_ctxbudget.messages import clipped
from langchain_ctxbudget.replay.policies import FULL, Strategy
from langchain_ctxbudget.replay.result import Loss, Sent, Track, aligned_table, together
from langchain_ctxbudget.replay.running import has_answers, replay
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import Price

MOST_CASES = 5
SENTENCE_CHARACTERS = 240
"""The most that is printed of a sentence."""
NOT_XML = {code: " " for code in range(32) if chr(code) not in "\t\n\r"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """What one policy kept and cost, in one conversation or in all.

    Percentages are rounded to one decimal. The gate compares them as they are printed.
    """

    policy: str
    prompts: int
    kept_percent: float | None
    """Of what the answers used of earlier messages, the share that stood in their prompts; None
    where they used nothing."""
    cost_percent: float | None
    """Effective tokens, the policy's own calls of models included, as a share of those of sending
    everything. Both are sums over the prompts that both could make; None where there are none."""
    failures: tuple[str, ...]
    """The prompts that could not be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedConversation:
    """One conversation, and what each policy kept and cost in it."""

    name: str
    messages: int
    policies: tuple[PolicyFigures, ...]
    """The checked policy first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A loss to read: something used that was not in the prompt."""

    conversation: str
    loss: Loss

    def to_text(self) -> str:
        """Tells the case in three lines."""
        loss = self.loss
        instead = "nothing of it"
        if loss.shown:
            instead = f"“{clipped(loss.shown, SENTENCE_CHARACTERS)}”"
        return "\n".join(
            [
                f"{self.conversation}, turn {loss.turn}: the answer used {', '.join(loss.items)}",
                f"   of message {loss.message}: “{clipped(loss.sentence, SENTENCE_CHARACTERS)}”",
                f"   the prompt had {instead}",
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a policy kept and cost over all conversations, and whether that is within the gate."""

    budget_tokens: int
    least_kept_percent: float
    most_cost_percent: float
    total: tuple[PolicyFigures, ...]
    """In all conversations together, the checked policy first."""
    conversations: tuple[CheckedConversation, ...]
    worst: tuple[Case, ...]
    """The weightiest losses of the checked policy."""
    skipped: tuple[str, ...]
    """The conversations without an answer, by name: there is nothing to replay."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the gate is closed; empty where it is open."""
        figures = self.total[0]
        problems: list[str] = []
        kept = figures.kept_percent
        if kept is not None and kept < self.least_kept_percent:
            problems.append(
                f"{figures.policy} keeps {kept:.1f} % of what later steps used; "
                f"the gate asks for at least {self.least_kept_percent:g} %"
            )
        cost = figures.cost_percent
        if cost is not None and cost > self.most_cost_percent:
            problems.append(
                f"{figures.policy} costs {cost:.1f} % of sending everything; "
                f"the gate allows at most {self.most_cost_percent:g} %"
            )
        if figures.failures:
            problems.append(
                f"{len(figures.failures):,} prompts could not be made; "
                f"the first: {figures.failures[0]}"
            )
        return tuple(problems)

    @property
    def passes(self) -> bool:
        """Tells if the checked policy keeps enough, costs little enough, and made every prompt."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON."""
        return {**asdict(self), "passes": self.passes, "problems": list(self.problems)}

    def to_text(self) -> str:
        """Draws the figures of each conversation and in all, and tells the worst cases."""
        rows = [
            _row(conversation.name, conversation.policies[0], conversation.messages)
            for conversation in self.conversations
        ]
        messages = sum(conversation.messages for conversation in self.conversations)
        rows += [_row("in all", figures, messages) for figures in self.total]
        heading, *lines = aligned_table(rows)
        parts = [
            f"{self.budget_tokens:,} tokens for a prompt; cost as a share of sending everything",
            "",
            heading,
            "-" * len(heading),
            *lines,
        ]
        if self.worst:
            parts += ["", f"The worst {len(self.worst)} to read:"]
        for number, case in enumerate(self.worst, 1):
            parts.append(f"{number}. {case.to_text()}")
        for name in self.skipped:
            parts.append(f"Skipped, as it has no answer: {name}")
        parts += ["", *self.problems]
        if self.passes:
            parts.append("passed")
        return "\n".join(parts)

    def to_junit(self) -> str:
        """Returns a JUnit report: a test case for each conversation, and one for the gate."""
        suite = ET.Element(
            "testsuite",
            name="ctxbudget check",
            tests=str(len(self.conversations) + 1),
            failures=str(int(not self.passes)),
            errors="0",
            skipped="0",
        )
        for conversation in self.conversations:
            case = _element(suite, "testcase", name=conversation.name, classname="ctxbudget.check")
            lines = [_figures_text(figures) for figures in conversation.policies]
            _element(case, "system-out").text = _xml_text("\n".join(lines))
        gate = _element(suite, "testcase", name="in all", classname="ctxbudget.check")
        if not self.passes:
            failure = _element(gate, "failure", message="; ".join(self.problems))
            failure.text = _xml_text("\n\n".join(case.to_text() for case in self.worst))
        return ET.tostring(suite, encoding="unicode", xml_declaration=True)

    def __str__(self) -> str:
        return self.to_text()


def _element(parent: ET.Element, tag: str, **attributes: str) -> ET.Element:
    """Adds an element whose attributes XML can hold."""
    texts = {name: _xml_text(text) for name, text in attributes.items()}
    return ET.SubElement(parent, tag, texts)


def _xml_text(text: str) -> str:
    """Returns a text without the characters that XML does not allow."""
    allowed = text.translate(NOT_XML)
    return allowed.encode("utf-8", "replace").decode().replace("\ufffe", " ").replace("\uffff", " ")


def _figures_text(figures: PolicyFigures) -> str:
    """Returns the figures of a policy on one line."""
    kept = "nothing used"
    if figures.kept_percent is not None:
        kept = f"{figures.kept_percent:.1f} % kept"
    cost = "no prompt made"
    if figures.cost_percent is not None:
        cost = f"{figures.cost_percent:.1f} % of the cost of everything"
    return f"{figures.policy}: {kept}, {cost}"


def _row(name: str, figures: PolicyFigures, messages: int) -> dict[str, str]:
    """Returns the cells of a line by the headings of their columns."""
    return {
        "conversation": clipped(name, 48),
        "policy": figures.policy,
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
    policy: Strategy = "elastic",
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
    price: Price | None = None,
    summary_model: str | BaseChatModel | None = None,
    on_turn: Callable[[str, str], None] | None = None,
) -> CheckResult:
    """Replays conversations under a policy, and checks what it keeps and costs.

    Args:
        conversations: by name, each with its oldest message first.
        policy: the one that is checked; a strategy as `replay` takes it.
        budget: the most that a prompt may cost, in tokens.
        kept: the least share of what later steps used, in percent.
        cost: the largest share of the cost of sending everything, in percent.
        beside: other policies, whose figures are told as well.
        system_prompt: of every prompt; default: the system messages that a conversation begins
            with.
        tools: as in `replay`.
        model: as in `replay`.
        settings: as in `replay`.
        embeddings: as in `replay`.
        price: as in `replay`.
        summary_model: as in `replay`.
        on_turn: called behind every turn with the names of the conversation and of the policy.

    Raises:
        InputError: No conversation has an answer, or an argument is out of range.
    """
    _require_percent("kept", kept, 100)
    _require_percent("cost", cost, 1_000)
    with_answers = {
        name: messages for name, messages in conversations.items() if has_answers(messages)
    }
    if not with_answers:
        raise InputError(
            f"Nothing to check: none of {len(conversations)} conversations has an answer of a "
            "model that follows a message"
        )
    strategies = [policy, *beside]
    if FULL not in strategies:
        strategies.append(FULL)
    tracks_by_conversation: dict[str, tuple[Track, ...]] = {}
    for name, messages in with_answers.items():
        result = replay(
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
        tracks_by_conversation[name] = result.tracks
    checked = [
        CheckedConversation(
            name=name,
            messages=len(with_answers[name]),
            policies=_figures([[track] for track in tracks]),
        )
        for name, tracks in tracks_by_conversation.items()
    ]
    return CheckResult(
        budget_tokens=budget,
        least_kept_percent=kept,
        most_cost_percent=cost,
        total=_figures([*zip(*tracks_by_conversation.values(), strict=True)]),
        conversations=tuple(checked),
        worst=tuple(_worst(tracks_by_conversation)),
        skipped=tuple(name for name in conversations if name not in with_answers),
    )


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

    def after_turn(policy: str, _number: int) -> None:
        on_turn(conversation, policy)

    return after_turn


def _figures(tracks_by_policy: Sequence[Sequence[Track]]) -> tuple[PolicyFigures, ...]:
    """Returns the figures of each policy over its tracks, one of which is that of everything."""
    sums = {tracks[0].name: Sent(**together(tracks)) for tracks in tracks_by_policy}
    return tuple(
        PolicyFigures(
            policy=name,
            prompts=sent.calls,
            kept_percent=_rounded_percent(sent.kept),
            cost_percent=_rounded_percent(_cost_share(sent, sums[FULL])),
            failures=sent.failures,
        )
        for name, sent in sums.items()
    )


def _cost_share(sent: Sent, everything: Sent) -> float | None:
    """Returns the cost of a policy as a share of sending everything, over prompts that both made.

    A prompt that could not be made costs nothing. In the sum, it would make the policy look cheap.
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
    """Returns the weightiest losses of the checked policy, each sentence once."""
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
    """Yields the losses of the checked policy in every conversation."""
    for name, tracks in tracks_by_conversation.items():
        for loss in tracks[0].losses:
            yield Case(conversation=name, loss=loss)
