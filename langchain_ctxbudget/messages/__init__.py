"""Messages: their content, the groups that stay together, clipping and fences. Pure."""

from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.messages.calls import (
    CALL_BLOCKS,
    Block,
    block_types,
    blocks_of,
    call_ids,
    is_text,
    is_user,
    loses_items,
    provider_name,
    text_of,
    with_calls,
)
from langchain_ctxbudget.messages.clipping import Count, clip_message, clip_text, water_level
from langchain_ctxbudget.messages.fences import CONTEXT, SUMMARY, as_data
from langchain_ctxbudget.messages.fingerprints import (
    SeenMessages,
    as_json_data,
    content_id,
    fingerprint,
    message_data,
    plainly_same,
)
from langchain_ctxbudget.messages.media import (
    Medium,
    has_media,
    may_be_result,
    medium_of,
    shown_blocks,
    without_media,
)
from langchain_ctxbudget.messages.messages import (
    WHOLE,
    Preservation,
    as_sent,
    checked_messages,
    current_turn,
    date_of,
    excerpt,
    instruction,
    model_of,
    own_words,
    plain_text,
    preservation_of,
    require_preservation,
    speaker,
    split_instructions,
    time_of,
    unread_time,
    unsent_extras_of,
)
from langchain_ctxbudget.messages.outline import head_end
from langchain_ctxbudget.messages.prose import (
    MAX_SENTENCE_CHARACTERS,
    artifacts,
    begins_in_the_middle,
    units,
    without_pasted,
)
from langchain_ctxbudget.messages.claims import (
    Statement,
    is_replaced_by,
    replacements_in,
    says_more,
    says_the_opposite,
    says_the_same,
    statement_key,
    statements,
    words_of_thing,
)
from langchain_ctxbudget.messages.text import (
    CHARACTERS_PER_TOKEN,
    MARKS,
    STOP_WORDS,
    UNSPACED,
    cached_until_forgotten,
    clipped,
    digest,
    fold,
    forget_texts,
    iso_date,
    mentions,
    one_line,
    packaged,
    sentences,
    stem,
    terms,
    vocabulary,
    without_mentions,
    word_count,
)
from langchain_ctxbudget.messages.turns import (
    Group,
    OpenCalls,
    Repair,
    Used,
    as_note,
    group,
    is_beginning_of,
    joined_repairs,
    newest_that_fit,
    split_turn,
    with_distinct_ids,
    with_short_call_ids,
)
