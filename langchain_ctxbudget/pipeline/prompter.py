"""The prompts of one conversation: every method is a flow, under the conversation's lock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.flow import Flow, T
from langchain_ctxbudget.history import (
    Conversation,
    HistoryPlan,
    HistoryView,
    OpenConversation,
    editing,
)
from langchain_ctxbudget.knowledge import StandingRules
from langchain_ctxbudget.messages import Turn, current_turn
from langchain_ctxbudget.pipeline import finishing
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.forecast import CostForecast
from langchain_ctxbudget.pipeline.nodes import StepNode
from langchain_ctxbudget.pipeline.opening import Messages
from langchain_ctxbudget.pipeline.rules import rules_in
from langchain_ctxbudget.pipeline.session import Session
from langchain_ctxbudget.pipeline.tracing import with_receipt
from langchain_ctxbudget.prompt import Access, AssembledContext, Prompt, Request
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.stores import Scope
from langchain_ctxbudget.tokens import price_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenHistory:
    """The part of a conversation that fits a window without a turn."""

    view: HistoryView
    conversation: Conversation
    rules: StandingRules
    """The standing rules of the conversation."""
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prompter:
    """Makes the prompts of one conversation, with the model of an engine."""

    engine: Engine
    scope: Scope

    def assemble(
        self, message: Turn, request: Request = prompts.NO_OPTIONS
    ) -> Flow[AssembledContext]:
        """Makes the prompt for the current turn."""
        session = yield from self.answer(None, message, request)
        return session.finished

    def answer(
        self, history: Messages | None, message: Turn, request: Request = prompts.NO_OPTIONS
    ) -> Flow[Session]:
        """Makes the prompt for an agent's state, without anybody else coming in between.

        Without a state it goes on from what is stored.
        """
        turn = current_turn(message)

        def body(conversation: OpenConversation) -> Flow[Session]:
            session = yield from self.engine.opener.open(conversation, turn, history, request)
            yield from session.run_all()
            return session

        making = self._alone(body)
        conversation_id = self.scope.conversation_id
        return (yield from with_receipt(making, self.engine, conversation_id, lambda made: made))

    def forecast(self, message: Turn, request: Request = prompts.NO_OPTIONS) -> Flow[Prompt]:
        """Makes a prompt that nobody sends.

        Nothing is written, kept or counted, no summary asked for.
        """
        turn = current_turn(message)

        def body(conversation: OpenConversation) -> Flow[Prompt]:
            session = yield from self.engine.opener.open(conversation, turn, None, request)
            return (yield from session.forecast())

        return (yield from self._alone(body))

    def forecast_cost(
        self, message: Turn, request: Request = prompts.NO_OPTIONS
    ) -> Flow[CostForecast]:
        """Tells what the prompt for a turn would cost, now and once no cache holds the last one.

        Nothing is written, kept or counted, no summary asked for.
        """
        turn = current_turn(message)
        target = self.engine.target

        def body(conversation: OpenConversation) -> Flow[CostForecast]:
            session = yield from self.engine.opener.open(conversation, turn, None, request)
            prompt = yield from session.forecast()
            seconds = prompt.plan.seconds_until_cold
            cold: Prompt | None = prompt
            if seconds:
                cold = yield from session.forecast_later(seconds + 1)
            price = price_of(target.model_name, target.prices)
            return CostForecast.of(prompt, cold, price)

        return (yield from self._alone(body))

    def run_step(
        self, name: str, messages: Messages, request: Request, state: Mapping[str, Any]
    ) -> Flow[tuple[Session, dict[str, Any]]]:
        """Runs one step for an agent's messages, and returns also what it writes to the channels.

        It goes by what the channels of a state say of the steps before it; see `ContextState`.
        Where this process has just run those steps, and they have decided what the channels say, it
        goes on from there; else they are run again.
        """
        node = StepNode(
            engine=self.engine, name=name, messages=messages, request=request, state=state
        )
        running = self._alone(node.run)
        if name == prompts.LAST_STEP:
            running = with_receipt(
                running, self.engine, self.scope.conversation_id, lambda result: result[0]
            )
        return (yield from running)

    def choose_history(
        self,
        planned: Callable[[Conversation, ContextSettings, StandingRules], HistoryPlan],
        request: Request,
    ) -> Flow[ChosenHistory]:
        """Chooses the part of the conversation that fits a window without a turn."""
        workspace = self.engine.workspace
        target = self.engine.target

        def body(conversation: OpenConversation) -> Flow[ChosenHistory]:
            problems: list[str] = []
            stored = yield from workspace.read_stored(conversation, request, problems)
            settings = stored.settings
            rules = yield from rules_in(workspace, conversation, stored, problems)
            seen = conversation.seen_with(target.counter, target.profile)
            access = Access(store=workspace.store)
            plan = planned(seen, settings, rules)
            view, failures = yield from prompts.choose_history(plan, access)
            unwritten = yield from finishing.write(
                workspace.store,
                conversation,
                view.record,
                is_rebuilt=view.is_rebuilt,
                with_snapshot=False,
            )
            finishing.summarize(workspace, conversation, settings, view)
            return ChosenHistory(
                view=view,
                conversation=plan.conversation,
                rules=rules,
                failures=(*problems, *failures, *unwritten),
            )

        yield from self.engine.ready()
        yield from workspace.workers.learning.catch_up(self.scope)
        return (yield from workspace.recall(self.scope, body))

    def read(
        self,
        body: Callable[[Conversation], Flow[T]],
        held: Messages | None = None,
        thread_id: str | None = None,
    ) -> Flow[T]:
        """Runs a flow on the conversation as a prompt would see it.

        One in memory only consists of the `held` messages. So does that of a run whose thread is
        another user's; where none are given, it is as the last prompt of this process had it.
        """
        workspace = self.engine.workspace

        def with_conversation(conversation: OpenConversation) -> Flow[T]:
            thread = workspace.thread_of_run(thread_id)
            if not self.scope.is_kept:
                editing.hold(conversation, held or ())
            elif thread is not None:
                of_run = yield from thread.conversation_of_run(conversation, claims=False)
                if of_run is not conversation and held is not None:
                    editing.mirror(of_run, held)
                conversation = of_run
            return (yield from body(conversation.seen_with(self.engine.target.counter)))

        yield from self.engine.ready()
        return (yield from workspace.recall(self.scope, with_conversation))

    def _alone(self, body: Callable[[OpenConversation], Flow[T]]) -> Flow[T]:
        """Runs a flow with the conversation alone, once everything is there that it needs."""
        yield from self.engine.ready()
        yield from self.engine.workspace.workers.learning.catch_up(self.scope)
        return (yield from self.engine.workspace.using(self.scope, body))
