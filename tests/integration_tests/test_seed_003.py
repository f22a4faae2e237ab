"""What seed 003 says of tiers of usage is what happens."""

import pytest

from langchain_ctxbudget.budget import tier_of


@pytest.mark.parametrize(
    ("share_left", "name", "knowledge_items", "documents", "history_messages"),
    [
        (0.8, "healthy", None, "full", None),
        (0.79, "caution", None, "full", 5),
        (0.6, "caution", None, "full", 5),
        (0.59, "warning", 3, "summary", 2),
        (0.4, "warning", 3, "summary", 2),
        (0.39, "critical", 1, "none", 0),
    ],
)
def test_what_is_left_of_a_limit_decides_what_a_prompt_may_hold(
    share_left: float,
    name: str,
    knowledge_items: int | None,
    documents: str,
    history_messages: int | None,
) -> None:
    tier = tier_of(share_left)
    assert tier.name == name
    assert tier.knowledge_items == knowledge_items
    assert tier.documents == documents
    assert tier.history_messages == history_messages
