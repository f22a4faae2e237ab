"""What the sentences of a user's messages are, and which are about the same thing. Pure."""

from langchain_ctxbudget.sentences.likeness import ComparedTexts, likeness, share_said_by
from langchain_ctxbudget.sentences.phrases import (
    says_in_all_conversations,
    takes_back_last_rule,
)
from langchain_ctxbudget.sentences.reader import Label
from langchain_ctxbudget.sentences.said import Said, read, reader_version, statement_certainties
from langchain_ctxbudget.sentences.wording import Wording, score_of_wording

__all__ = [
    "ComparedTexts",
    "Label",
    "Said",
    "Wording",
    "likeness",
    "read",
    "reader_version",
    "says_in_all_conversations",
    "score_of_wording",
    "share_said_by",
    "statement_certainties",
    "takes_back_last_rule",
]
