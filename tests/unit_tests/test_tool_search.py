"""Tools ranked for a question, and those that are bound."""

from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from pydantic import Field

from langchain_ctxbudget import EstimatingCounter, LocalEmbeddings
from langchain_ctxbudget.flow import adrive, drive
from langchain_ctxbudget.tools import ToolSet, choose, order_of, ranked, ranked_by_words
from tests.unit_tests.test_tool_set import function

TOOLS = [
    function("searchPapers", "Looks for articles on arXiv.", query={"type": "string"}),
    function("git_commit", "Records changes.", message={"type": "string"}),
    function("weather", "Tells the forecast.", place={"description": "A city or a village."}),
    function("charts__draw", "Draws bars.", rows={"items": {"properties": {"axis": {}}}}),
]


class Failing(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise ConnectionError("no route")

    def embed_query(self, text: str) -> list[float]:
        raise ConnectionError("no route")


def best(query: str, embeddings: Embeddings | None = None, **how: Any) -> str:
    tools = ToolSet.of(TOOLS)
    scores = drive(ranked(tools, query, embeddings, **how))
    return tools.tools[order_of(scores)[0]].name


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("search for papers", "searchPapers"),
        ("commit", "git_commit"),
        ("which village", "weather"),
        ("something about an axis", "charts__draw"),
        ("charts", "charts__draw"),
        ("articles", "searchPapers"),
    ],
)
def test_words_of_every_part_are_found(query: str, name: str) -> None:
    assert best(query) == name


def test_a_meaning_is_found_without_a_common_word() -> None:
    assert best("is rain expected today?", LocalEmbeddings()) == "weather"


def test_tools_of_a_server_in_use_come_first() -> None:
    assert best("go on", servers=["charts"]) == "charts__draw"


def test_what_embeddings_raise_is_passed_on() -> None:
    with pytest.raises(ConnectionError):
        drive(ranked(ToolSet(TOOLS), "commit", Failing()))


def test_words_alone_can_be_compared() -> None:
    assert order_of(ranked_by_words(ToolSet.of(TOOLS), "commit"))[0] == 1


def test_scores_of_words_alone_are_as_high() -> None:
    tools = ToolSet.of(TOOLS)
    by_words = ranked_by_words(tools, "Records changes.")
    by_meaning = drive(ranked(tools, "Records changes.", LocalEmbeddings()))

    assert by_words.max() == pytest.approx(by_meaning.max(), rel=0.5)


def test_a_vector_that_cannot_be_compared_is_an_error() -> None:
    index = drive(ToolSet.of(TOOLS).index(LocalEmbeddings()))

    with pytest.raises(ValueError, match="dimensions"):
        index.ranked("commit", [1.0, 2.0])


class Counting(DeterministicFakeEmbedding):
    calls: list[int] = Field(default_factory=list)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append(len(texts))
        return super().embed_documents(texts)


def test_tools_are_embedded_once() -> None:
    embeddings = Counting(size=8)
    tools = ToolSet.of(TOOLS)
    for query in ("one", "two"):
        drive(ranked(tools, query, embeddings))

    assert embeddings.calls == [len(TOOLS)]


async def test_both_forms_rank_alike() -> None:
    tools = ToolSet.of(TOOLS)
    embeddings = LocalEmbeddings()

    awaited = await adrive(ranked(tools, "papers", embeddings))

    assert awaited.tolist() == drive(ranked(tools, "papers", embeddings)).tolist()


def test_no_tools_have_no_scores() -> None:
    assert drive(ranked(ToolSet.of([]), "papers", LocalEmbeddings())).tolist() == []


def chosen(most_tokens: int, **how: Any) -> list[str]:
    tools = ToolSet.of(TOOLS)
    scores = ranked_by_words(tools, "weather")
    places = choose(
        tools, [100, 100, 100, 10], scores, used=how.pop("used", ()), most_tokens=most_tokens, **how
    )
    return [tools.tools[place].name for place in places]


def test_the_best_tool_is_bound() -> None:
    assert chosen(100) == ["weather"]


def test_tools_are_bound_in_the_order_given() -> None:
    assert chosen(1_000) == ["searchPapers", "git_commit", "weather", "charts__draw"]


def test_used_tools_come_before_better_ones() -> None:
    assert chosen(100, used=["git_commit"]) == ["git_commit"]


def test_of_used_tools_the_first_named_stay() -> None:
    assert chosen(100, used=["git_commit", "searchPapers"]) == ["git_commit"]


def test_a_smaller_tool_is_taken_after_one_without_room() -> None:
    assert chosen(110) == ["weather", "charts__draw"]


def test_a_tool_above_the_limit_is_left_out() -> None:
    assert chosen(50) == ["charts__draw"]


def test_a_tool_that_must_be_bound_is() -> None:
    assert chosen(0, always=["git_commit"]) == ["git_commit"]


def test_a_used_tool_that_is_gone_is_passed_over() -> None:
    assert chosen(100, used=["gone"]) == ["weather"]


def test_tools_of_a_provider_are_always_bound() -> None:
    tools = ToolSet.of([{"type": "web_search"}, *TOOLS])
    tokens = tools.tokens(EstimatingCounter())
    scores = ranked_by_words(tools, "weather")

    assert choose(tools, tokens, scores, used=(), most_tokens=0) == [0]
