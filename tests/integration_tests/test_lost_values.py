"""What a report says of values that the last prompt had and this one does not have."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxbudget import ContextPipeline, ContextReport, create_recall_tool
from langchain_ctxbudget.messages import plain_text

IDS: Any = {"user_id": "ada", "conversation_id": "c1"}
RUN: Any = {"configurable": {"user_id": "ada", "thread_id": "c1"}}
SMALL = {"max_context_tokens": 900, "learn": False}
FILLER = "We talk about the garden, the weather and the long road to the lake. " * 6
PARCELS = [f"Parcel P-{number}77 came. {FILLER}" for number in range(9)]
"""What the user says of parcels, each with a value of its own."""


def prompts_of(
    pipeline: ContextPipeline, said: Sequence[str], answer: str = FILLER
) -> list[tuple[str, ContextReport]]:
    """The text and the report of the prompt for each message, one after the other."""
    prompts = []
    for text in said:
        context = pipeline.assemble(text, **IDS)
        shown = "\n".join(map(plain_text, context.messages))
        prompts.append((shown, context.report))
        pipeline.add_messages([HumanMessage(text), AIMessage(answer)], **IDS)
    return prompts


def lost_in(prompts: Sequence[tuple[str, ContextReport]]) -> list[str]:
    return [lost.value for _, report in prompts for lost in report.lost_values]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The order is ORD-12345 and it is late.", "ORD-12345"),
        ("The rent is 1,250 EUR a month.", "1,250 EUR"),
        ("The invoice is due on 12 May 2031.", "12 May 2031"),
        ("会议定于2031年5月12日举行。", "2031年5月12日"),
        ("платит 25 000 руб за квартиру", "25 000 руб"),
        ("The script is tools/run_all.py for now.", "tools/run_all.py"),
    ],
)
def test_a_value_of_the_user_that_goes_is_listed(text: str, value: str) -> None:
    with ContextPipeline(SMALL) as pipeline:
        prompts = prompts_of(pipeline, [*PARCELS[:2], f"{FILLER} {text}", *PARCELS[2:]])

    assert value in prompts[2][0]
    assert value not in prompts[-1][0]
    assert value in lost_in(prompts)


def test_a_longer_value_does_not_hide_a_lost_one() -> None:
    order = f"{FILLER} The order is ORD-12345 and it is late."
    later = [f"Now ORD-123456{number} came. {FILLER}" for number in range(7)]
    with ContextPipeline(SMALL) as pipeline:
        prompts = prompts_of(pipeline, [*PARCELS[:2], order, *later])

    assert "ORD-123456" in prompts[-1][0]
    assert "ORD-12345" in lost_in(prompts)


def test_a_lost_value_is_recalled_by_its_reference() -> None:
    with ContextPipeline(SMALL) as pipeline:
        prompts = prompts_of(pipeline, PARCELS)
        [lost, *_] = [lost for _, report in prompts for lost in report.lost_values]
        recall = create_recall_tool(pipeline)

        quoted = recall.invoke({"reference": lost.reference}, RUN)

    assert lost.value in quoted


@pytest.mark.slow
def test_what_only_tools_have_named_is_not_listed() -> None:
    call = {"name": "list_files", "args": {}, "id": "call1"}
    listing = "\n".join(f"a/b{number}.py {number}711 bytes" for number in range(40))
    with ContextPipeline(SMALL) as pipeline:
        pipeline.add_messages(
            [
                HumanMessage("Which are there?"),
                AIMessage("", tool_calls=[call]),
                ToolMessage(listing, tool_call_id="call1"),
                AIMessage("Some."),
            ],
            **IDS,
        )
        prompts = prompts_of(pipeline, [f"Number {n}. {FILLER}" for n in "abcdefghijkl"])

    shown = ["a/b27.py" in prompt for prompt, _ in prompts]
    assert shown[0]
    assert False in shown
    assert lost_in(prompts) == []


def test_the_chart_names_lost_values() -> None:
    with ContextPipeline(SMALL) as pipeline:
        prompts = prompts_of(pipeline, PARCELS)
    report = next(report for _, report in prompts if report.lost_values)

    assert f"{report.lost_values[0].value} ({report.lost_values[0].reference})" in report.to_text()


def test_a_report_with_lost_values_is_read_back() -> None:
    with ContextPipeline(SMALL) as pipeline:
        prompts = prompts_of(pipeline, PARCELS)
    report = next(report for _, report in prompts if report.lost_values)

    assert ContextReport.from_dict(report.to_dict()).lost_values == report.lost_values
    assert report.to_dict(texts=False)["lost_values"] == len(report.lost_values)


def test_a_kept_report_has_no_lost_values_in_words() -> None:
    with ContextPipeline({**SMALL, "keep_snapshots": 20}) as pipeline:
        prompts_of(pipeline, PARCELS)
        kept = pipeline.snapshots.list(**IDS)

    values = [lost.value for snapshot in kept for lost in snapshot.report.lost_values]
    assert values
    assert set(values) == {""}


WORDS = st.sampled_from(
    [
        "ORD-12345",
        "1,250 EUR",
        "12 May 2031",
        "2031年5月12日",
        "٤٥٠٠",
        "v1.2.3",
        "5pm",
        "lake",
        "20 mg",
    ]
)
TEXTS = st.lists(WORDS, max_size=4).map(lambda words: f"{' and '.join(words)}. {FILLER}")


@pytest.mark.slow
@settings(max_examples=8)
@given(st.lists(TEXTS, min_size=6, max_size=9))
def test_a_lost_value_is_in_the_last_prompt_alone(said: list[str]) -> None:
    with ContextPipeline(SMALL) as pipeline:
        prompts = prompts_of(pipeline, said)

    before = ""
    for shown, report in prompts:
        for lost in report.lost_values:
            assert lost.value in before
            assert lost.value not in shown
        before = shown


@pytest.mark.slow
@settings(max_examples=8)
@given(st.lists(TEXTS, min_size=2, max_size=9))
def test_an_extended_prompt_has_lost_nothing(said: list[str]) -> None:
    with ContextPipeline(SMALL) as pipeline:
        prompts = prompts_of(pipeline, said)

    for _, report in prompts:
        if report.stability.mode in ("extended", "repeated"):
            assert report.lost_values == ()
