"""A prompt that is being made: its steps, one after the other."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.errors import TokenCountError
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.pipeline import finishing
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt import STEPS, Access, AssembledContext, Plan, Prompt, Request


@dataclass(slots=True)
class Session:
    """A prompt that is being made.

    Its plan, and the conversation that it changes once it is finished.
    """

    workspace: Workspace
    conversation: OpenConversation
    plan: Plan
    access: Access
    request: Request = prompts.NO_OPTIONS
    timings_ms: dict[str, float] = field(default_factory=dict)
    context: AssembledContext | None = None
    request_key: object = None
    """What it is made for, where it is made step by step."""
    plan_before_steps: Plan | None = None
    """The plan before the first step, from which the prompt can be made again."""
    decisions: Mapping[str, Any] = field(default_factory=dict)
    """What the channels of a state say of its steps, where they have decided otherwise."""

    @property
    def finished(self) -> AssembledContext:
        """The finished prompt, after the last step."""
        assert self.context is not None  # noqa: S101 - the last step sets it
        return self.context

    def run_all(self) -> Flow[AssembledContext]:
        """Runs the six steps: five that plan, and the one that finishes the prompt."""
        for name in (*STEPS, prompts.LAST_STEP):
            yield from self.run_step(name)
        return self.finished

    def run_step(self, name: str) -> Flow[None]:
        """Runs a step by its name; the last one also writes what the prompt changes."""
        started = time.perf_counter()
        if name != prompts.LAST_STEP:
            self.plan = yield from STEPS[name](self.plan, self.access)
            self._note_time_since(started, name)
            return
        prompt = yield from self._assembled()
        self._note_time_since(started, name)
        self.plan = prompt.plan
        self.context = yield from finishing.finish(
            self.workspace, self.conversation, prompt, dict(self.timings_ms), self.request
        )

    def _note_time_since(self, started: float, name: str) -> None:
        """Notes how long a step took."""
        self.timings_ms[name] = (time.perf_counter() - started) * 1000

    def forecast(self) -> Flow[Prompt]:
        """Runs the six steps for a prompt that nobody sends; nothing is written or kept."""
        for step in STEPS.values():
            self.plan = yield from step(self.plan, self.access)
        return (yield from self._assembled())

    def forecast_later(self, seconds: float) -> Flow[Prompt | None]:
        """Makes the prompt anew as it would be so many seconds later; nobody sends it.

        Returns None where no date is so late.
        """
        assert self.plan_before_steps is not None  # noqa: S101 - it is set as the session is opened
        request = self.plan_before_steps.request
        try:
            now = None if request.now is None else request.now + timedelta(seconds=seconds)
        except OverflowError:
            return None
        self.plan_before_steps = replace(self.plan_before_steps, request=replace(request, now=now))
        self.plan = self.plan_before_steps
        return (yield from self.forecast())

    def take_up_decision(self, step: str, decided: object) -> None:
        """Makes the plan say what the channel of a step says; None says nothing."""
        self.plan = _decided(self.plan, step, decided)

    def _assembled(self) -> Flow[Prompt]:
        """Finishes a prompt.

        Where its recount differs, makes it again from the beginning, without known costs.
        """
        try:
            return prompts.assemble(self.plan)
        except TokenCountError as error:
            problem = prompts.MADE_AGAIN.format(problem=error)
        assert self.plan_before_steps is not None  # noqa: S101 - it is set as the session is opened
        self.conversation.table.forget_costs(self.plan.counter)
        plan = prompts.without_caches(self.plan_before_steps).with_failures(problem)
        for name, step in STEPS.items():
            plan = yield from step(plan, self.access)
            plan = _decided(plan, name, self.decisions.get(name))
        return prompts.assemble(plan)


def _decided(plan: Plan, step: str, decided: object) -> Plan:
    """Returns a plan that says what the channel of a step says; None says nothing."""
    channel = prompts.CHANNELS[step]
    if decided is None or decided == channel.data_of(plan):
        return plan
    return channel.taken(plan, decided)
