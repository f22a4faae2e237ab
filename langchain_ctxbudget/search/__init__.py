"""Finding texts: words, vectors, ranking and packing. Pure."""

from langchain_ctxbudget.search.lexical import PACKED, LexicalIndex, PackedTerms, most_about, scores_together
from langchain_ctxbudget.search.ranking import (
    ALL, NEGLIGIBLE, NEIGHBOURHOOD, NEWEST, PRIORITIES, Candidate, Evidence, Kind, Numbers, Question, Ranking, Scores,
    Texts, about, called, dated, day_number, first_person, highest, is_name, pack, rank, shortness, shrink_to,
    spelled, z_scores,
)  # fmt: skip
from langchain_ctxbudget.search.vectors import (
    AFTER, BEFORE, FEW, CentredVectors, LocalEmbeddings, Rows, Vectors, as_query, comparable, limit, links,
    local_embeddings_available, subjects, texts_in_mean, units, usual_limit,
)  # fmt: skip
