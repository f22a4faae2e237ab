"""What every layer keeps to, of the package and of an application."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_ctxbudget.budget import HEALTHY, Fragment, Layer, Reason, Situation
from langchain_ctxbudget.history import HistoryView
from langchain_ctxbudget.knowledge import Fact, FactsLayer, detect
from langchain_ctxbudget.layers import (
    LAYERS,
    Known,
    Place,
    PromptLayer,
    Rung,
    TurnView,
    View,
    all_layers,
    in_order_of_prompt,
    place_of,
)
from langchain_ctxbudget.settings import ContextSettings
from langchain_ctxbudget.tokens import TiktokenCounter
from tests.conversations import conversation

NOW = datetime(2026, 6, 1, tzinfo=UTC)
COUNTER = TiktokenCounter()
SETTINGS = ContextSettings(
    preferences=["Be brief.", "Name your sources."],
    memories=["Rows on Sundays."],
    topics=[
        {"label": "Rowing", "context": "The boat is called Swift. It leaks. " * 3},
        {"label": "Races", "context": "The next one is in May. " * 6},
    ],
    entities=[{"name": "Bo", "type": "person", "context": "The coach, who is strict. " * 5}],
    layers=[{"name": "ticket", "items": ["The oar is broken."], "ideal_tokens": 80}],
)
FACTS = tuple(
    Fact(
        id=f"fact/{number}",
        text=f"Has rowed {number} races.",
        category="identity",
        created_at=NOW,
        last_seen=NOW,
    )
    for number in range(4)
)
VIEW = View(
    conversation=conversation(["Does Bo still coach?", "The boat leaks."], COUNTER),
    counter=COUNTER,
    settings=SETTINGS,
    tier=HEALTHY,
    limit_tokens=2_000,
    system_prompt="You know rowing.",
    known=Known(
        detected=detect("Will Bo go rowing in races?", SETTINGS, count=COUNTER.count_text),
        remembered=FactsLayer(shown_facts=FACTS, current=FACTS),
        own_items={"ticket": ("The oar is broken.", "A new one was ordered. " * 20)},
    ),
    turn=TurnView(tokens=20, free_tokens=5, work_tokens=3, own_work_tokens=2),
)
NOTHING_MEASURED = Situation(
    total_tokens=2_000,
    overhead_tokens=0,
    identity_tokens=0,
    preferences_tokens=0,
    message_tokens=0,
    message_count=0,
    history_tokens=0,
)
EVERY_LAYER = all_layers(SETTINGS.layers)
each_layer = pytest.mark.parametrize(
    "layer", EVERY_LAYER, ids=[layer.title for layer in EVERY_LAYER]
)


def test_the_list_has_the_layers_of_reports_in_their_order() -> None:
    assert [layer.name for layer in LAYERS] == [*Layer]
    assert [layer.title for layer in LAYERS] == [name.full_name for name in Layer]


def test_a_prompt_has_them_in_another_order() -> None:
    names = [layer.name for layer in in_order_of_prompt(EVERY_LAYER)]

    assert names == ["L0", "L1", "L4", "L8", "L6", "L2", "L3", "ticket", "L5", "L7"]


@pytest.mark.parametrize("place", [Place.SYSTEM_PROMPT, Place.HISTORY, Place.TURN])
def test_some_places_have_one_layer_alone(place: Place) -> None:
    assert [layer.place for layer in LAYERS].count(place) == 1


def test_what_is_no_layer_of_the_package_stands_in_the_background() -> None:
    assert place_of("ticket") is Place.BACKGROUND


def cost_of(layer: PromptLayer, fragments: tuple[Fragment, ...]) -> int:
    """The cost of items with the headings among them, and of the line above a layer's own items."""
    headings = dict.fromkeys(part.heading for part in fragments)
    above = [layer.section] if fragments and layer.name == "ticket" else []
    return sum(part.tokens for part in fragments) + sum(
        map(COUNTER.count_text, [*headings, *above])
    )


@each_layer
@given(tokens=st.integers(0, 300))
def test_items_cost_no_more_than_the_grant(layer: PromptLayer, tokens: int) -> None:
    chosen = layer.items(VIEW, tokens)

    assert cost_of(layer, chosen.fragments) <= tokens


@each_layer
@given(tokens=st.integers(0, 300))
def test_items_are_lines_that_cost_what_they_say(layer: PromptLayer, tokens: int) -> None:
    for part in layer.items(VIEW, tokens).fragments:
        assert part.layer == layer.name
        assert part.text.startswith("- ")
        assert part.text.endswith("\n")
        assert part.tokens == COUNTER.count_text(part.text)


@each_layer
def test_equal_views_and_grants_give_equal_items(layer: PromptLayer) -> None:
    first = layer.items(VIEW, 50)
    second = layer.items(VIEW, 50)

    assert first.fragments == second.fragments
    assert first.left_out() == second.left_out()


@each_layer
def test_every_candidate_is_shown_or_left_out_whatever_the_grant(layer: PromptLayer) -> None:
    ids = set()
    for tokens in (0, 30, 300):
        chosen = layer.items(VIEW, tokens)
        items = (*chosen.fragments, *chosen.left_out())
        ids.add(tuple(sorted(item.id for item in items)))

    assert len(ids) == 1


@pytest.mark.parametrize("name", ["L2", "L3", "ticket"])
@pytest.mark.parametrize(("tokens", "expected"), [(0, True), (20, True), (1_000, False)])
def test_a_layer_that_lacks_room_wants_more(name: str, tokens: int, expected: bool) -> None:
    [layer] = [layer for layer in EVERY_LAYER if layer.name == name]

    assert layer.items(VIEW, tokens).wants_more is expected


@each_layer
def test_what_somebody_else_has_written_stays_as_it_is(layer: PromptLayer) -> None:
    item = Fragment(layer=layer.name, id="x", text="- x\n", tokens=3, reason=Reason.RELEVANT)

    chosen = layer.given(VIEW, (item,))

    assert chosen.fragments == (item,)
    assert not chosen.wants_more


@pytest.mark.parametrize(
    ("name", "field", "expected"),
    [
        ("L0", "identity_tokens", COUNTER.count_text("You know rowing.")),
        ("L1", "preferences_tokens", COUNTER.count_text("- Be brief.\n- Name your sources.\n")),
        ("L2", "topic_count", 2),
        ("L3", "entity_count", 1),
        ("L6", "message_count", 2),
        ("L7", "message_tokens", 25),
        ("L7", "overhead_tokens", 3),
        ("ticket", "custom", (SETTINGS.layers[0].spec,)),
    ],
)
def test_a_layer_asks_for_what_it_could_use(name: str, field: str, expected: object) -> None:
    [layer] = [layer for layer in EVERY_LAYER if layer.name == name]

    assert getattr(layer.measured(NOTHING_MEASURED, VIEW), field) == expected


def test_a_report_counts_work_states_as_the_thread_of_the_conversation() -> None:
    granted = {layer.name: layer.granted_tokens(100, VIEW.turn) for layer in EVERY_LAYER}

    assert granted == {**dict.fromkeys(granted, 100), "L4": 105, "L7": 98}


@each_layer
def test_what_is_required_never_gives_way(layer: PromptLayer) -> None:
    gives_way = any(layer.staying(rung) for rung in Rung)

    assert not (layer.is_required and gives_way)


def test_the_thread_and_the_summary_are_those_of_the_cut() -> None:
    line = Fragment(layer="L4", id="goal", text="- Win.\n", tokens=3, reason=Reason.SUMMARY)
    history = HistoryView(strategy="compacted", cut=1, arc=(line,))
    view = View(
        conversation=VIEW.conversation,
        counter=COUNTER,
        settings=SETTINGS,
        tier=HEALTHY,
        limit_tokens=2_000,
        history=history,
    )
    arc, summary = (layer for layer in LAYERS if layer.name in ("L4", "L6"))

    assert arc.items(view, 0).fragments == (line,)
    assert summary.items(view, 0).fragments == ()
