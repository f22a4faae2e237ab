"""Where records live: LangGraph stores and what is kept in them."""

from __future__ import annotations

from langchain_ctxbudget.stores import bulk, saved_settings, snapshots
from langchain_ctxbudget.stores.bulk import CHUNK, PrivateStore, has_index, read_all, read_namespaces
from langchain_ctxbudget.stores.clock import Clock, later, utc, utc_now, with_offset
from langchain_ctxbudget.stores.operations import DATABASE_FILE, embeddings_name
from langchain_ctxbudget.stores.records import (
    EXTRACTION,
    ROOT,
    SAID,
    UNQUOTED,
    ChangeRecord,
    CountsRecord,
    CutRecord,
    CutsRecord,
    LaneRecord,
    MessageRecord,
    PinsRecord,
    Place,
    Record,
    Scope,
    SnapshotRecord,
    SummaryLine,
    label,
    new_token,
    place_key,
    require_id,
    storable,
    stored,
)
from langchain_ctxbudget.stores.snapshots import ContextSnapshot, ReportRecord, read_keys
from langchain_ctxbudget.stores.usage_ledger import Ledger, month_of

__all__ = [
    "CHUNK", "DATABASE_FILE", "EXTRACTION", "ROOT", "SAID", "UNQUOTED", "ChangeRecord", "Clock", "ContextSnapshot",
    "CountsRecord", "CutRecord", "CutsRecord", "LaneRecord", "Ledger", "MessageRecord", "PinsRecord", "Place",
    "PrivateStore", "Record", "ReportRecord", "Scope", "SnapshotRecord", "SummaryLine", "bulk", "embeddings_name",
    "has_index", "label", "later", "month_of", "new_token", "place_key", "read_all", "read_keys", "read_namespaces",
    "require_id", "saved_settings", "snapshots", "storable", "stored", "utc", "utc_now", "with_offset",
]  # fmt: skip
