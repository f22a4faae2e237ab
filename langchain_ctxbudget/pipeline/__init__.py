"""`ContextPipeline`: the plain object over everything else; locks, workers and I/O."""

from langchain_ctxbudget.pipeline.chat import Chat
from langchain_ctxbudget.pipeline.engine import Engine
from langchain_ctxbudget.pipeline.forecast import CostForecast
from langchain_ctxbudget.pipeline.last_call import last_call
from langchain_ctxbudget.pipeline.pipeline import (
    REPLAYED_TURNS,
    ContextPipeline,
    name_conversation,
    replay_last_turns,
)
from langchain_ctxbudget.pipeline.prompter import Prompter
from langchain_ctxbudget.pipeline.retention import SweepResult
from langchain_ctxbudget.pipeline.runs import (
    Run,
    RunContext,
    current_runtime,
    is_task,
    require_default_user,
    run_of,
)
from langchain_ctxbudget.pipeline.session import Session
from langchain_ctxbudget.pipeline.stored import StoredConversation
from langchain_ctxbudget.pipeline.tracing import searched
from langchain_ctxbudget.pipeline.tool_search import (
    CallInput,
    found_tools,
    runnable_tool,
    search_tools,
    wanted_call,
)
