"""Finding texts: words, vectors, ranking and packing. Pure."""

from langchain_ctxbudget.search.boundaries import AFTER, BEFORE, limit, links, subjects, usual_limit
from langchain_ctxbudget.search.candidates import PRIORITIES, Candidate, Kind, pack, shrink_to
from langchain_ctxbudget.search.dates import (
    MONTHS,
    DateRange,
    NamedDate,
    dated,
    day_number,
    named_dates,
)
from langchain_ctxbudget.search.encoder import (
    ComparedSentences,
    Encoded,
    Encoder,
    chosen_to_encode,
    encoder_available,
)
from langchain_ctxbudget.search.evidence import NEWEST, Evidence, Matches
from langchain_ctxbudget.search.lexical import (
    BM25_K1,
    PACKED,
    LexicalIndex,
    PackedTerms,
    UnlistedTexts,
    most_about,
    scores_across,
    scores_together,
)
from langchain_ctxbudget.search.need import (
    NEED_POLICY,
    NEWEST_IN_PROMPT,
    NeedInputs,
    is_need_loaded,
    load_need,
    probability_of_need,
)
from langchain_ctxbudget.search.question import (
    Question,
    about,
    called,
    first_person,
    is_name,
    is_small_talk,
    says_nothing,
    spelled,
)
from langchain_ctxbudget.search.ranking import (
    LINE_OVERHEAD_TOKENS,
    NEGLIGIBLE,
    NEIGHBOURHOOD,
    Alike,
    Ranking,
    RankingWeights,
    Texts,
    rank,
    shortness,
)
from langchain_ctxbudget.search.scores import ALL, Numbers, Places, Scores, highest, z_scores
from langchain_ctxbudget.search.vectors import (
    FEW,
    CentredVectors,
    Compared,
    LocalEmbeddings,
    Rows,
    Vectors,
    as_query,
    comparable,
    local_embeddings_available,
    signs,
    texts_in_mean,
    units,
)
