"""Messages: their content, the groups that stay together, clipping and fences. Pure."""

from langchain_ctxbudget.messages import fences
from langchain_ctxbudget.messages.calls import (
    CALL_BLOCKS, Block, block_types, blocks_of, call_ids, is_text, is_user, loses_items,
    provider_name, text_of, with_calls,
)  # fmt: skip
from langchain_ctxbudget.messages.clipping import Count, clip_message, clip_text, water_level
from langchain_ctxbudget.messages.fences import CONTEXT, SUMMARY, as_data
from langchain_ctxbudget.messages.fingerprints import (
    SeenMessages, as_json_data, content_id, fingerprint, message_data, plainly_same,
)  # fmt: skip
from langchain_ctxbudget.messages.media import (
    Medium, has_media, may_be_result, medium_of, shown_blocks, without_media,
)  # fmt: skip
from langchain_ctxbudget.messages.messages import (
    WHOLE, Preservation, as_sent, checked, current_turn, date_of, excerpt, flattened, instruction,
    model_of, own_words, plain_text, preservation_of, require_preservation, speaker,
    split_instructions, time_of, unread_time,
)  # fmt: skip
from langchain_ctxbudget.messages.outline import head_end
from langchain_ctxbudget.messages.text import (
    MARKS, MAX_SENTENCE_CHARACTERS, STOP_WORDS, UNSPACED, Statement, artifacts,
    begins_in_the_middle, clipped, digest, fold, forget_texts, is_replaced_by, iso_date, mentions,
    one_line, packaged, remembering, replaced, says_more, says_the_opposite, says_the_same,
    sentences, statement_key, statements, stem, terms, units, vocabulary, without_mentions,
    without_pasted, word_count, words_of_thing,
)  # fmt: skip
from langchain_ctxbudget.messages.turns import (
    Group, OpenCalls, Repair, Used, as_note, distinct, group, joined_repairs, newest_that_fit,
    same_beginning, split_turn, with_short_call_ids,
)  # fmt: skip
