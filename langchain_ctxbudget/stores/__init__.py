"""Stores: LangGraph's and Chroma's, and the records that are kept in them."""

from langchain_ctxbudget.stores import bulk, guests, owners
from langchain_ctxbudget.stores.base import (
    EXTRACTION, ROOT, SAID, TITLE, UNQUOTED, SegmentRecord, ChangeRecord, Clock, CutRecord, CutsRecord, LaneRecord,
    MessageRecord, PinsRecord, Place, Record, Scope, SharedThread, SnapshotRecord, SummaryLine, label, new_token,
    place_key, read_settings, require_id, settings_in, settings_place, storable, stored, utc, utc_now, with_offset,
    write_settings, written,
)  # fmt: skip
from langchain_ctxbudget.stores.bulk import (
    CHUNK, DATABASE_FILE, PrivateStore, embeddings_name, has_index, read_all, read_namespaces,
)  # fmt: skip
