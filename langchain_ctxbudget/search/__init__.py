"""Finding texts: words, vectors, ranking and packing. Pure."""

from langchain_ctxbudget.search.lexical import (
    PACKED, LexicalIndex, PackedTerms, UnlistedTexts, most_about, scores_across, scores_together,
)  # fmt: skip
from langchain_ctxbudget.search.ranking import (
    ALL, NEGLIGIBLE, NEIGHBOURHOOD, NEWEST, PRIORITIES, Candidate, Evidence, Kind, Numbers, Places, Question, Ranking,
    Scores, Texts, about, called, dated, day_number, first_person, highest, is_courtesy, is_name, pack, rank, shortness,
    shrink_to, spelled, z_scores,
)  # fmt: skip
from langchain_ctxbudget.search.vectors import (
    AFTER, BEFORE, FEW, CentredVectors, LocalEmbeddings, Rows, Vectors, as_query, comparable, limit, links,
    local_embeddings_available, signs, subjects, texts_in_mean, units, usual_limit,
)  # fmt: skip
