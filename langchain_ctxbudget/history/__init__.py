"""Conversations: their messages, their log in the store, and their compaction."""

from langchain_ctxbudget.history import (
    ages,
    segments,
    editing,
    known_files,
    log,
    summarizing,
    work_state,
)
from langchain_ctxbudget.history.segments import SEGMENTS
from langchain_ctxbudget.history.columns import (
    Beginning,
    Costs,
    Entry,
    MessageIndex,
    saying,
    searched_text,
    short_digest,
)
from langchain_ctxbudget.history.bound_thoughts import bound_since, with_thoughts_at
from langchain_ctxbudget.history.clipping import history_tokens, keep_share, newest_costs
from langchain_ctxbudget.history.compact import history_view
from langchain_ctxbudget.history.cut_choice import CutChoice, choose_cut
from langchain_ctxbudget.history.cutting import safe_at
from langchain_ctxbudget.history.history_plan import (
    Continuation,
    HistoryPlan,
    HistoryRoom,
    pinned_tokens,
)
from langchain_ctxbudget.history.provider_cut import as_compacted
from langchain_ctxbudget.history.late_results import late_calls, with_calls_again
from langchain_ctxbudget.history.view import HistoryView, fragments
from langchain_ctxbudget.history.conversation import (
    Conversation,
    LastPrompt,
    SentWith,
    MessagePage,
    OpenConversation,
    OpenConversations,
    require_known,
)
from langchain_ctxbudget.history.derived_kinds import (
    clear_backgrounds,
    clear_derived,
    clear_unused,
    count_unused,
    erase_backgrounds,
    erase_derived,
    hand_over_derived,
    remade_kinds,
)
from langchain_ctxbudget.history.differences import is_within
from langchain_ctxbudget.history.editing import Editor, OnRemoval
from langchain_ctxbudget.history.elsewhere import (
    NOWHERE,
    Elsewhere,
    Libraries,
    OtherConversations,
)
from langchain_ctxbudget.history.extractive import Digest, Line, Sentence, choose, keep_sentences
from langchain_ctxbudget.history.log import CUTS, JOINED, LANES, PINS, message_reference
from langchain_ctxbudget.history.other_search import Query
from langchain_ctxbudget.history.other_threads import OtherMessage
from langchain_ctxbudget.history.summarizing import (
    ChatModelSummarizer,
    ConversationCompaction,
    Owner,
    Summarizing,
    SummaryRequest,
    compactions,
    look_up,
)
from langchain_ctxbudget.history.table import MessageTable
from langchain_ctxbudget.history.backgrounds import (
    CONTEXT_FRAME,
    CONTEXT_INTRO,
    SENT,
    Background,
    background_lines,
    by_layer,
    is_of_earlier_turn,
    with_background,
    with_headings,
)
from langchain_ctxbudget.history.tool_kinds import Key, ToolUse
from langchain_ctxbudget.history.work_state import TurnWorkState, WorkState
