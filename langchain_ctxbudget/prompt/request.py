"""What is asked of a prompt, and the settings that apply to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage

from langchain_ctxbudget.budget.tiers import HEALTHY, Tier
from langchain_ctxbudget.errors import InvalidSettingsError
from langchain_ctxbudget.history.conversation import TurnBlock
from langchain_ctxbudget.knowledge.facts_layer import FactsLayer
from langchain_ctxbudget.knowledge.known import NOTHING, Knowledge
from langchain_ctxbudget.report.report import UsageState
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens.windows import Window

Overrides = ContextSettings | Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a caller asks for beside the words of the turn."""

    tools: Sequence[Any] = ()
    response_format: object = None
    settings: Overrides = None
    """These lie over all others."""
    persona_id: str | None = None
    device_id: str | None = None
    """Where the user is: what is open there says what is likely to come up."""
    block: object = None
    """The context block that an agent's state has of the turn, as plain data."""
    instructions: Sequence[str] = ()
    """What joins the system prompt."""
    task: bool = False
    """A tool of another agent asks: the history is all that there is, whatever is stored."""
    failures: Sequence[str] = ()
    """What whoever asks could not do, for the report."""


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
    """What little is left of a usage limit lets in."""
    usage: UsageState | None = None
    """The usage limit that applies."""
    knowledge: Knowledge = NOTHING
    """What was learned about the user, as far as it may be shown."""
    remembered: FactsLayer = field(default_factory=FactsLayer)
    """The facts that the conversation may show."""
    expected: tuple[str, ...] = ()
    """Ids of topics and entities that are likely to come up, by what the user has open."""
    now: datetime | None = None
    block: TurnBlock | None = None
    """What was chosen for the turn's human message before; it stays while an agent loops."""
    calls_before: int = 0
    """Calls of the tokenizer before the prompt was begun."""
    failures: tuple[str, ...] = ()

    @property
    def output_reserve_tokens(self) -> int:
        """What is kept free in the window: the setting, else what the model says, at most half of it."""
        window, said = self.window.tokens, self.window.output_tokens
        if window is None:
            return 0
        if self.settings.output_reserve_tokens is not None:
            return self.settings.output_reserve_tokens
        return min(said, window // 2) if said else 0


def merged(
    settings: ContextSettings, saved: Mapping[str, Mapping[str, Any]], overrides: Overrides, failures: list[str]
) -> tuple[ContextSettings, tuple[str, ...]]:
    """Lays over the pipeline's settings what the user saved, then what was saved for the persona, then the call's.

    Saved settings that cannot be used are left out and reported.

    Args:
        settings: the pipeline's.
        saved: what was saved, by source.
        overrides: the call's, which were tried on the pipeline's already.
        failures: what is to be reported; appended to.

    Returns:
        the settings and where they came from.
    """
    own, sources = settings, ["pipeline"]
    for source, changes in saved.items():
        if not changes:
            continue
        try:
            settings = settings.override(changes)
            sources.append(source)
        except InvalidSettingsError as error:
            failures.append(f"saved settings of the {source} not used: {error}")
    if isinstance(overrides, ContextSettings):
        return overrides, ("call",)
    if overrides is None:
        return settings, tuple(sources)
    try:
        return settings.override(overrides), (*sources, "call")
    except InvalidSettingsError as error:
        saved_by = " and the ".join(sources[1:])
        failures.append(f"saved settings of the {saved_by} not used, as the call's do not go with them: {error}")
        return own.override(overrides), ("pipeline", "call")
