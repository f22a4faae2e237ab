"""Documents: loaded, split, kept, summed up and searched."""

from langchain_ctxbudget.documents.catalogue import SHARED, Catalogue, beside, owner_of
from langchain_ctxbudget.documents.knowledge_base import KnowledgeBase
