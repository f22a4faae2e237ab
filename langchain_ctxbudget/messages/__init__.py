"""Messages: their content, the groups that stay together, clipping and fences. Pure."""

from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.messages.accepting import (
    Turn,
    checked_messages,
    current_turn,
    is_one_message,
)
from langchain_ctxbudget.messages.clipping import (
    Count,
    clip_message,
    clip_text,
    water_level,
    with_joined_texts,
)
from langchain_ctxbudget.messages.code_fences import CodeFence, code_fences, with_borders
from langchain_ctxbudget.messages.fences import CONTEXT, SUMMARY, as_data
from langchain_ctxbudget.messages.fingerprints import (
    SeenMessages,
    as_json_data,
    content_id,
    fingerprint,
    message_data,
    plainly_same,
)
from langchain_ctxbudget.messages.letters import somebody_elses_from, without_reported_speech
from langchain_ctxbudget.messages.machine_text import without_machine_text
from langchain_ctxbudget.messages.messages import (
    WHOLE,
    Preservation,
    date_of,
    excerpt,
    instruction,
    is_only_media,
    is_sent_alone,
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
from langchain_ctxbudget.messages.placeholders import (
    keeps_words,
    placeholder_of,
    readable_text_of,
    without_media,
)
from langchain_ctxbudget.messages.prose import (
    MAX_SENTENCE_CHARACTERS,
    artifacts,
    begins_in_the_middle,
    cut_sentence,
    ends_in_quotation,
    prose_spans,
    units,
    without_pasted,
    without_quotations,
)
from langchain_ctxbudget.messages.values import (
    Value,
    ValueKind,
    capitals_tell_names,
    stands_alone,
    values_in,
)
from langchain_ctxbudget.messages.claims import (
    Statement,
    digits_in,
    gives_another_value,
    is_replaced_by,
    numbers_in,
    replacements_in,
    says_liking,
    says_more,
    says_the_opposite,
    says_the_same,
    statement_key,
    statements,
    words_of_thing,
)
from langchain_ctxbudget.messages.corrections import clauses, replaces
from langchain_ctxbudget.messages.text import (
    CHARACTERS_PER_TOKEN,
    MARKS,
    QUESTION_MARKS,
    STOP_WORDS,
    UNSPACED,
    cached_until_forgotten,
    each_cached_until_forgotten,
    clipped,
    digest,
    encodable,
    ends_as_statement,
    fold,
    forget_texts,
    is_unspaced,
    iso_date,
    mentions,
    one_line,
    packaged,
    sentence_spans,
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
    is_beginning_of,
    is_empty,
    is_user,
    newest_that_fit,
    split_turn,
)
