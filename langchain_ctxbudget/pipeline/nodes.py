"""One step of a prompt as a node of a graph runs it, between nodes of the application."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from langchain_ctxbudget import prompt as prompts
from langchain_ctxbudget.flow import Flow
from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.messages import current_turn, split_turn, unsent_extras_of
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.opening import Messages
from langchain_ctxbudget.pipeline.session import Session
from langchain_ctxbudget.prompt import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNode:
    """One step, for an agent's messages and what the channels of its state say."""

    engine: Engine
    name: str
    messages: Messages
    request: Request
    state: Mapping[str, Any]

    def run(self, conversation: OpenConversation) -> Flow[tuple[Session, dict[str, Any]]]:
        """Runs the step, and returns what it writes to the channels of the state."""
        sessions = self.engine.workspace.sessions_under_way
        live = self._live(sessions.find(conversation))
        session = live or (yield from self._opened(conversation))
        sessions.keep(conversation, session)
        before = self._steps_before()
        decided = self._decided()
        session.decisions = {step: decided[step] for step in before if decided[step] is not None}

        for step in before:
            is_needed = decided[step] is None or live is None
            if is_needed and step not in session.timings_ms:
                yield from session.run_step(step)
            session.take_up_decision(step, decided[step])
        yield from session.run_step(self.name)

        if session.context is not None:
            sessions.finish(conversation)
            return session, {}
        return session, self._written(session, before, decided)

    def _request_key(self) -> object:
        return (self.engine, self.messages, self.request)

    def _steps_before(self) -> list[str]:
        return [*takewhile(lambda step: step != self.name, prompts.CHANNELS)]

    def _decided(self) -> dict[str, Any]:
        """Returns what the channels of the state say, by the step that each belongs to."""
        return {step: self.state.get(channel.name) for step, channel in prompts.CHANNELS.items()}

    def _live(self, session: Session | None) -> Session | None:
        """Returns a session that has run the steps before, as the channels say of them."""
        if session is None or not self._goes_on(session):
            return None
        return session

    def _goes_on(self, session: Session) -> bool:
        """Returns whether a session has run the steps before, as the channels say of them."""
        if session.request_key != self._request_key() or self.name in session.timings_ms:
            return False
        ran = [step for step in self._steps_before() if step in session.timings_ms]
        decided = self._decided()
        for step in ran[:-1]:
            written = prompts.CHANNELS[step].data_of(session.plan)
            if decided[step] is not None and decided[step] != written:
                return False
        is_unchanged = session.conversation.table.digest() == session.plan.conversation.digest
        return bool(ran) and is_unchanged

    def _opened(self, conversation: OpenConversation) -> Flow[Session]:
        history, turn = split_turn(self.messages)
        failures = (*self.request.failures, *unsent_extras_of(self.messages))
        request = replace(self.request, failures=failures)
        turn = current_turn(turn)
        session = yield from self.engine.opener.open(conversation, turn, history, request)
        session.request_key = self._request_key()
        return session

    def _written(
        self, session: Session, before: list[str], decided: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns what the channels are to say now, where that is not what they say."""
        now = {step: prompts.CHANNELS[step].data_of(session.plan) for step in (*before, self.name)}
        changed: dict[str, Any] = {}
        for step, channel in prompts.CHANNELS.items():
            if step == self.name or now.get(step) != decided[step]:
                changed[channel.name] = now.get(step)
        return changed
