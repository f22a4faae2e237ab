"""Stores: LangGraph's and Chroma's, and the records that are kept in them."""

from langchain_ctxbudget.stores import bulk, guests, owners
from langchain_ctxbudget.stores.base import (
    LONGEST_LABEL,
    ROOT,
    TITLE,
    Record,
    Scope,
    SharedThread,
    from_stored,
    label,
    new_token,
    put_of,
    require_id,
    to_stored,
    unlabelled,
    user_of,
)
from langchain_ctxbudget.stores.bulk import (
    CHUNK,
    DATABASE_FILE,
    PrivateStore,
    embeddings_name,
    has_index,
    read_all,
    read_namespaces,
)
from langchain_ctxbudget.stores.clocks import Clock, utc, utc_now, with_offset
from langchain_ctxbudget.stores.derived_places import (
    Address,
    DerivedPlace,
    InStore,
    Value,
    derived_place,
)
from langchain_ctxbudget.stores.records import (
    EXTRACTION,
    SAID,
    UNQUOTED,
    ChangeRecord,
    CutRecord,
    CutsRecord,
    LaneRecord,
    MessageRecord,
    PinsRecord,
    Place,
    SegmentRecord,
    ShownFact,
    SnapshotRecord,
    SummaryLine,
    place_key,
)
from langchain_ctxbudget.stores.saved_settings import (
    read_settings,
    settings_in,
    settings_place,
    write_settings,
)
