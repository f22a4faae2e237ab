"""The last call of a conversation beside its messages: an agent's system prompt and its tools.

Whoever shows what the next prompt would be has no agent at hand. This process remembers the last
call; where the reports of prompts are kept, it is kept with them.
"""

from dataclasses import dataclass
from typing import Any

from langgraph.store.base import BaseStore
from pydantic_core import to_jsonable_python

from langchain_ctxbudget import stores
from langchain_ctxbudget.flow import Flow, batch
from langchain_ctxbudget.history import OpenConversation
from langchain_ctxbudget.messages import digest
from langchain_ctxbudget.pipeline.workspace import Workspace
from langchain_ctxbudget.prompt import NO_OPTIONS, Request
from langchain_ctxbudget.tokens import compact_json, response_schema, tool_schema
from langchain_ctxbudget.tools import KnownTool, ToolSet

CALL = "call"


@dataclass(frozen=True, slots=True)
class LastCall:
    """What the next call of a conversation is likely to have beside its messages."""

    request: Request = NO_OPTIONS
    """Without what belongs to one call only: its settings, its turn, its problems."""
    model: str = ""
    """The name of the model; empty where none is known."""

    @classmethod
    def of(cls, request: Request, model: str) -> "LastCall":
        """Returns what of a call is likely to stay the same in the next one."""
        lasting = Request(
            tools=request.tools,
            response_format=request.response_format,
            instructions=tuple(request.instructions),
            persona_id=request.persona_id,
            device_id=request.device_id,
            binds_chosen_tools=request.binds_chosen_tools,
        )
        return cls(lasting, model)


class CallRecord(stores.Record):
    """The last call as it is kept with a conversation, in plain data."""

    instructions: tuple[str, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    response_format: dict[str, Any] | None = None
    binds_chosen_tools: bool = False
    persona_id: str | None = None
    device_id: str | None = None
    model: str = ""

    @classmethod
    def of(cls, call: LastCall) -> "CallRecord":
        """Returns a call as plain data, with its tools as a model reads them."""
        request = call.request
        return cls(
            instructions=tuple(request.instructions),
            tools=tuple(map(_as_data, ToolSet.of(request.tools).tools)),
            response_format=to_jsonable_python(
                response_schema(request.response_format), fallback=str
            ),
            binds_chosen_tools=request.binds_chosen_tools,
            persona_id=request.persona_id,
            device_id=request.device_id,
            model=call.model,
        )

    def call(self) -> LastCall:
        """Returns the call that was kept."""
        request = Request(
            tools=self.tools,
            response_format=self.response_format,
            instructions=self.instructions,
            persona_id=self.persona_id,
            device_id=self.device_id,
            binds_chosen_tools=self.binds_chosen_tools,
        )
        return LastCall(request, self.model)


def _as_data(tool: KnownTool) -> dict[str, Any]:
    """Returns a tool as JSON, with the marks by which the package knows it."""
    extras: dict[str, Any] = {**(tool.own.mark if tool.own else {})}
    if tool.server:
        extras["server"] = tool.server
    if tool.is_deferred:
        extras["defer_loading"] = True
    schema = to_jsonable_python(tool_schema(tool.given), fallback=str)
    return {**schema, "extras": extras} if extras else schema


def keep_call(store: BaseStore, conversation: OpenConversation, call: LastCall) -> Flow[None]:
    """Keeps the last call of a conversation, where it differs from the one that is kept."""
    record = CallRecord.of(call)
    seen = digest(compact_json(record.to_value()))
    if seen == conversation.call_kept:
        return
    yield from batch(store, [stores.put_of(conversation.scope.place(CALL), record)])
    conversation.call_kept = seen


def last_call(workspace: Workspace, scope: stores.Scope) -> Flow[LastCall]:
    """Returns the last call of a conversation, as far as it is known.

    Raises:
        StoreDataError: What is stored is no such record.
    """
    recent = workspace.recent.last_of(scope.user_id, scope.conversation_id)
    if recent is not None:
        return recent.call
    [item] = yield from batch(workspace.store, [scope.place(CALL)])
    record = CallRecord.of_item(item)
    return LastCall() if record is None else record.call()
