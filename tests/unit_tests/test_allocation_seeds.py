"""The seeds' own worked examples, with results computed by hand from the seeds' formulas.

Where a corrected result differs from a seed's text, the comment at the example says why. For all of them: the system
prompt costs what it costs and is never a share; what framing and tools cost is counted and taken off first; no layer
is given more than it holds.
"""

from __future__ import annotations

import pytest

from langchain_ctxbudget.budget import (
    DynamicAllocation,
    ElasticAllocation,
    Exchange,
    FixedAllocation,
    PrioritizedAllocation,
    RatioAllocation,
    Situation,
)
from langchain_ctxbudget.budget.layer_demand import memory_tokens, preferences_demand
from langchain_ctxbudget.budget.layers import Layer

LAYERS = ("L0", "L1", "L2", "L3", "L4", "L5", "L6", "L7")


def situation(**sizes):
    empty = dict.fromkeys(("overhead_tokens", "identity_tokens", "preferences_tokens", "message_tokens"), 0)
    return Situation(**{**empty, "message_count": 0, "history_tokens": 0, **sizes})


def table(allocation):
    return tuple(allocation.tokens[layer] for layer in LAYERS)


# Seed 000, "The Master Budget Algorithm", and its example: "50K budget, 300-message conversation (120K tokens),
# 2 topics detected, 1 entity, depth=standard".
#
# Its figure: L0 350, L1 500, L2 4,200, L3 400, L4 2,800, L5 3,500, L6 37,750 (76 %), L7 500. That is not what its
# formulas give, and its own cap of history is 60 %. What they give:
#
#   pressure    min(1, 120,000 / (50,000 * 0.7)) = 1
#   L2 topics   50,000 * 0.12 = 6,000; two topics * 1.3 = 7,800; pressure 1 * 0.4 (its code; its comment says 0.5):
#               * 0.6 = 4,680; cap 25 % = 12,500; priority 85, as two topics are knowledge-heavy
#   L3 entities 50,000 * 0.06 = 3,000; one entity at 400 each: 400; cap 12 % = 6,000; priority 65
#   L4 arc      150 * log2(301) = 150 * 8.2336 = 1,235; under 15 % = 7,500; cap 20 % = 10,000; priority 88
#   L5 retrieval 50,000 * 0.10 = 5,000 * max(0.3, coverage factor); cap 18 % = 9,000; priority 75
#   L6 history  over 50K tokens: 25 %, prioritised * 1.3, over 20 messages * 1.2 = 39 % = 19,500; cap 60 % = 30,000;
#               priority 90
#
# Left for L1 to L6: 50,000 - 350 - 500 = 49,150.
FIFTY = {
    "total_tokens": 50_000,
    "identity_tokens": 350,
    "preferences_tokens": 500,
    "message_tokens": 500,
    "message_count": 300,
    "history_tokens": 120_000,
    "topic_count": 2,
    "entity_count": 1,
}


def test_seed_000_its_example_with_the_topics_of_its_figure():
    # The topics hold 4,200 and the entity 400, as in the figure, so they want no more than that.
    # Coverage factor of L5: 1 - 4,200 / (50,000 * 0.15 = 7,500) = 0.44, so 5,000 * 0.44 = 2,200.
    # Ideals: 500 + 4,200 + 400 + 1,235 + 2,200 + 19,500 = 28,035; all fit; 49,150 - 28,035 = 21,115 are left.
    # By priority: L6 (90) takes 10,500 up to its cap of 30,000, leaving 10,615; L4 (88) takes 8,765 up to its cap of
    # 10,000, leaving 1,850; L2 (85) holds no more; L5 (75) takes 1,850.
    allocation = ElasticAllocation(profile="seed").allocate(situation(**FIFTY, topic_tokens=4_200, entity_tokens=400))
    assert table(allocation) == (350, 500, 4_200, 400, 10_000, 2_200 + 1_850, 30_000, 500)
    assert sum(allocation.tokens.values()) == 50_000


def test_seed_000_its_example_with_topics_that_hold_more_than_they_may_use():
    # Topics that hold 20,000 cover everything: L5 is 5,000 * 0.3 = 1,500. The entity holds 5,000, and 400 is its cap.
    # Ideals: 500 + 4,680 + 400 + 1,235 + 1,500 + 19,500 = 27,815; 21,335 are left. L6 + 10,500, L4 + 8,765, and
    # L2 (85) takes the last 2,070 of the 7,820 that it could take.
    allocation = ElasticAllocation(profile="seed").allocate(
        situation(**FIFTY, topic_tokens=20_000, entity_tokens=5_000)
    )
    assert table(allocation) == (350, 500, 4_680 + 2_070, 400, 10_000, 1_500, 30_000, 500)


def test_seed_000_history_passes_its_cap_only_with_what_nobody_else_wants():
    # Its figure gives history 76 %, past its cap of 60 %. Here the cap binds while others want the tokens. Without
    # topics and entities: L4 up to 10,000, L5 up to 9,000, L6 up to 30,000 are 49,000, and 500 + 350 + 500 are spent,
    # so 50,000 - 1,350 - 49,000 < 0: L5 does not even reach its cap: 49,150 - 500 - 30,000 - 10,000 = 8,650.
    without = {**FIFTY, "topic_count": 0, "entity_count": 0}
    allocation = ElasticAllocation(profile="seed").allocate(situation(**without))
    assert table(allocation) == (350, 500, 0, 0, 10_000, 8_650, 30_000, 500)
    # Without preferences, and with 100 tokens each of system prompt and message, 49,800 are left; all caps are
    # reached at 49,000, and the other 800 go to history, the first in priority.
    smaller = {**without, "identity_tokens": 100, "message_tokens": 100, "preferences_tokens": 0}
    allocation = ElasticAllocation(profile="seed").allocate(situation(**smaller))
    assert table(allocation) == (100, 0, 0, 0, 10_000, 9_000, 30_800, 100)


def test_seed_000_retrieval_passes_its_cap_with_what_not_even_history_can_use():
    # 12,000 tokens; a conversation of 7,300 that was compacted before is shown whole again only under 60 % = 7,200.
    # Caps: L6 7,200, L4 2,400, L5 2,160 are 11,760; of the other 240, history can use 100 and retrieval gets 140.
    allocation = ElasticAllocation(profile="seed").allocate(
        situation(total_tokens=12_000, message_count=80, history_tokens=7_300, compacted=True)
    )
    assert table(allocation) == (0, 0, 0, 0, 2_400, 2_300, 7_300, 0)


def test_seed_000_a_small_conversation_goes_in_whole():
    # "SMALL (< 3K tokens total): Include everything": L6 2,500, no arc. Preferences hold 150, under 3 % = 360; topics
    # 12,000 * 0.12 = 1,440 * (1 - 0.4 * 2,500 / 8,400) = 1,268.57 -> 1,268. What is left, 12,000 - 300 - 150 - 1,268
    # - 2,500 - 100 = 7,682, is poured by priority: L6 is whole, L2 (70) has a cap of 3,000, but L5 (75) comes first
    # and may use everything.
    allocation = ElasticAllocation(profile="seed").allocate(
        situation(
            total_tokens=12_000,
            identity_tokens=300,
            preferences_tokens=150,
            message_tokens=100,
            message_count=12,
            history_tokens=2_500,
            topic_count=1,
            topic_tokens=4_000,
        )
    )
    assert allocation.fits_whole
    assert table(allocation) == (300, 150, 1_268, 0, 0, 7_682, 2_500, 100)


CONTENDED = {
    "identity_tokens": 100,
    "message_count": 40,
    "history_tokens": 8_000,
    "topic_count": 1,
    "topic_tokens": 2_000,
    "entity_count": 1,
    "entity_tokens": 1_000,
}


def test_seed_000_a_medium_conversation_in_4000_tokens():
    # pressure 1; L2 480 * 0.6 = 288, not below its floor of 300; L3 240; L4 150 * log2(41) = 803, under 15 % = 600;
    # L5 400 * 0.3 = 120, not below its floor of 200; L6 (3K to 10K tokens) 35 % * 1.3 * 1.2 = 54.6 % = 2,184.
    # Left: 4,000 - 100 - 100 = 3,800; ideals 300 + 240 + 600 + 200 + 2,184 = 3,524; of 276, L6 takes 216 up to its
    # cap of 60 % = 2,400, and L4 the other 60.
    allocation = ElasticAllocation(profile="seed").allocate(
        situation(total_tokens=4_000, message_tokens=100, **CONTENDED)
    )
    assert table(allocation) == (100, 0, 300, 240, 660, 200, 2_400, 100)


def test_seed_000_where_ideals_do_not_fit_layers_grow_by_priority_and_elasticity():
    # 3,000 tokens and a message of 1,000 leave 1,900. Floors: 300 + 150 + 200 + 200 + 500 = 1,350; 550 are left.
    # Ideals above the floors: L3 180 - 150 = 30; L4 450 - 200 = 250; L6 54.6 % = 1,638 - 500 = 1,138; none for L2
    # (216, below its floor of 300) and L5 (90, below its floor of 200).
    # The seed multiplies by priority, reads `remaining` while it changes it, and never uses elasticity. Here layers
    # grow together at ideal * priority * (1 - elasticity / 2): L3 30 * 65 * 0.65 = 1,267.5; L4 250 * 88 * 0.85 =
    # 18,700; L6 1,138 * 90 * 0.8 = 81,936; together 101,903.5. So L3 550 * 1,267.5 / 101,903.5 = 6.8; L4 100.9;
    # L6 442.2; rounded down.
    allocation = ElasticAllocation(profile="seed").allocate(
        situation(total_tokens=3_000, message_tokens=1_000, **CONTENDED)
    )
    assert table(allocation) == (100, 0, 300, 156, 300, 200, 942, 1_000)


def test_seed_000_a_layer_whose_floor_does_not_fit_is_left_out():
    # 1,200 tokens and a message of 500 leave 600. The seed cuts from the lowest priority upwards and may leave a
    # layer with less than its floor, "below this, don't include at all". Here floors are granted by priority * (1 -
    # elasticity / 2): L4 74.8: 200, leaving 400; L6 72: 500 does not fit; L5 56.25: 200, leaving 200; L2 49: 300 does
    # not fit; L3 42.25: its cap of 12 % = 144, leaving 56. Those go to L4 (88) up to 20 % = 240, then to L5.
    allocation = ElasticAllocation(profile="seed").allocate(
        situation(total_tokens=1_200, message_tokens=500, **CONTENDED)
    )
    assert table(allocation) == (100, 0, 0, 144, 240, 216, 0, 500)


def test_seed_000_what_must_be_sent_is_what_it_costs():
    # The seed gives L0 min(400, 2 %) = 240 of 12,000 and L1 min(600, 3 %) = 360, "non-negotiable", whatever they
    # hold. Here L0 is the system prompt as it is, and L1 holds 1,000, of which it may have its ideal of 360, and up
    # to 800 where tokens are left: 95 is the highest priority.
    allocation = ElasticAllocation(profile="seed").allocate(
        situation(total_tokens=12_000, identity_tokens=1_234, preferences_tokens=1_000, message_tokens=77)
    )
    assert table(allocation)[:2] == (1_234, 800)
    assert table(allocation)[7] == 77


@pytest.mark.parametrize(
    ("depth", "count", "tokens"),
    [
        # No conversation, so no pressure. 12,000 * 0.12 = 1,440 by depth and number; the cap is 25 % = 3,000.
        ("minimal", 1, 720),
        ("standard", 1, 1_440),
        ("standard", 2, 1_872),  # * 1.3
        ("deep", 1, 2_160),
        ("standard", 5, 2_880),  # 1 + 4 * 0.3 = 2.2, at most 2
        ("deep", 5, 3_000),  # 4,320
    ],
)
def test_seed_000_topics_by_depth_and_number(depth, count, tokens):
    strategy = ElasticAllocation(profile="seed")
    talk = situation(total_tokens=12_000, depth=depth, topic_count=count, topic_tokens=9_000)
    assert next(spec.ideal_tokens for spec in strategy.allocate(talk).specs if spec.layer is Layer.TOPICS) == tokens


@pytest.mark.parametrize(
    ("history_tokens", "pressed"),
    [
        (0, 1_440),
        (4_200, 1_152),  # half of the 70 % of 12,000 that press fully: 1 - 0.5 * 0.4 = 0.8
        (8_400, 864),  # 1 - 0.4 = 0.6; with the 0.5 of the seed's comment it would be 720
        (500_000, 864),
    ],
)
def test_seed_000_a_conversation_presses_on_topics(history_tokens, pressed):
    strategy = ElasticAllocation(profile="seed")
    talk = situation(total_tokens=12_000, history_tokens=history_tokens, topic_count=1, topic_tokens=9_000)
    assert next(spec.ideal_tokens for spec in strategy.allocate(talk).specs if spec.layer is Layer.TOPICS) == pressed


@pytest.mark.parametrize(
    ("count", "tokens"),
    [
        # 12,000 * 0.06 = 720 by number, at most 400 for each; the cap is 12 % = 1,440.
        (1, 400),
        (2, 800),  # 720 * 1.4 = 1,008
        (3, 1_200),  # 720 * 1.8 = 1,296
        (9, 1_440),  # 720 * 2
    ],
)
def test_seed_000_entities_by_number(count, tokens):
    strategy = ElasticAllocation(profile="seed")
    talk = situation(total_tokens=12_000, entity_count=count, entity_tokens=9_000)
    assert next(spec.ideal_tokens for spec in strategy.allocate(talk).specs if spec.layer is Layer.ENTITIES) == tokens


@pytest.mark.parametrize(
    ("messages", "depth", "tokens"),
    [
        (15, "standard", 600),  # 150 * log2(16)
        (63, "standard", 900),
        (255, "standard", 1_200),
        (63, "deep", 1_350),
        (255, "deep", 1_800),  # 15 % of 12,000
        (65_535, "standard", 1_800),  # 2,400
        (1, "standard", 200),  # 150, not below the floor
        (63, "minimal", 450),
    ],
)
def test_seed_000_the_arc_grows_with_the_logarithm_of_the_conversation(messages, depth, tokens):
    strategy = ElasticAllocation(profile="seed")
    talk = situation(total_tokens=12_000, message_count=messages, history_tokens=20_000, depth=depth)
    assert next(spec.ideal_tokens for spec in strategy.allocate(talk).specs if spec.layer is Layer.ARC) == tokens


@pytest.mark.parametrize(
    ("history_tokens", "messages", "prioritize", "tokens"),
    [
        (10_000, 40, True, 5_460),  # up to 10K: 35 % * 1.3 * 1.2 of 10,000
        (10_000, 20, True, 4_550),  # 20 messages are no long dialogue
        (10_000, 40, False, 3_500),
        (50_000, 40, True, 4_680),  # up to 50K: 30 %
        (50_001, 40, True, 3_900),  # more: 25 %
        (50_001, 40, False, 2_500),
    ],
)
def test_seed_000_history_by_the_size_of_the_conversation(history_tokens, messages, prioritize, tokens):
    strategy = ElasticAllocation(profile="seed")
    talk = situation(
        total_tokens=10_000,
        message_tokens=1_000,
        message_count=messages,
        history_tokens=history_tokens,
        prioritize_history=prioritize,
    )
    assert next(spec.ideal_tokens for spec in strategy.allocate(talk).specs if spec.layer is Layer.HISTORY) == tokens


# Seed 001: "Memory gets 25% of remaining, clamped to min/max", 150 to 500.


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (-500, 150),
        (0, 150),
        (599, 150),  # 149.75
        (600, 150),
        (604, 151),
        (1_000, 250),
        (1_999, 499),  # 499.75
        (2_000, 500),
        (8_192 - 5_000 - 1_000, 500),  # the seed's call: window less conversation less reserve = 2,192; 25 % is 548
        (100_000, 500),
    ],
)
def test_seed_001_memory_gets_a_quarter_of_what_is_left_between_150_and_500(left, expected):
    assert memory_tokens(left) == expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (60, 100 + 60),  # all that is known
        (4_000, 100 + 275),  # 1,500 - 300 - 100 = 1,100 are left; a quarter of them
    ],
)
def test_seed_001_memories_stand_beside_preferences_within_their_own_rule(held, expected):
    # What is left is what system prompt and preferences leave. The seed also takes the conversation off: a conversation
    # gives way here, and would leave nothing whenever it is long. Nor is the message taken off: what is known stands at
    # the beginning of the prompt, which must not change with every message.
    talk = situation(
        total_tokens=1_500, identity_tokens=300, message_tokens=100, preferences_tokens=100, memory_tokens=held
    )
    assert preferences_demand(talk, talk.free_tokens).ideal_tokens == expected
    assert ElasticAllocation().allocate(talk).tokens[Layer.PREFERENCES] == expected


# Seed 002, "The Budget-Ratio Principle": 32,768 token window, a system prompt of about 300 tokens.


def test_seed_002_its_example():
    # 32,768 - 300 = 32,468; memory 30 % = 9,740.4; history 40 % = 12,987.2; reserve 30 % = 9,740.4. All rounded down in
    # the seed; here the reserve is what memory and history leave, so that nothing is lost: 9,741.
    # Inside history the arc has 150 * log2(301) = 1,235 (seed 000), below a fifth of it.
    allocation = RatioAllocation().allocate(
        situation(total_tokens=32_768, identity_tokens=300, message_count=300, history_tokens=120_000)
    )
    assert table(allocation) == (300, 0, 0, 0, 1_235, 9_740, 12_987 - 1_235, 0)
    assert allocation.reserve_tokens == 32_468 - 9_740 - 12_987 == 9_741


def test_seed_002_the_message_is_taken_off_before_the_ratios():
    # The seed counts the user's message as history. Here it is sent whole, so ratios divide what it leaves:
    # 32,468 - 468 = 32,000: 9,600 / 12,800 / 9,600.
    allocation = RatioAllocation().allocate(
        situation(total_tokens=32_768, identity_tokens=300, message_tokens=468, history_tokens=120_000)
    )
    assert table(allocation) == (300, 0, 0, 0, 0, 9_600, 12_800, 468)
    assert allocation.reserve_tokens == 9_600


def test_seed_002_at_least_three_exchanges():
    # "Always keep minimum 3 exchanges (6 messages)", which "can overflow" in the seed. 1,000 tokens: memory 300,
    # history 400, reserve 300. Exchanges of 250 are 750, which is 350 over: memory gives its 300, the reserve 50.
    exchanges = tuple(Exchange(2, 250) for _ in range(5))
    allocation = RatioAllocation().allocate(
        situation(total_tokens=1_000, message_count=10, history_tokens=1_250, exchanges=exchanges)
    )
    assert table(allocation) == (0, 0, 0, 0, 0, 0, 750, 0)
    assert (allocation.reserve_tokens, allocation.keep_messages) == (250, 6)


# Seed 004, `TokenBudget::default`: "For 4096 token model": system 500, history 1,000, entities 500, rag 1,500,
# query 596.


def test_seed_004_fixed_has_the_defaults_of_its_window():
    # A system prompt of 400 leaves 100 of 500 for preferences; a message of 560 and 36 of framing are the query's 596.
    # The arc may have a fifth of the history's 1,000. Topics come out of the entities' 500 with their floor of 300 and
    # entities with theirs of 150; the last 50 are shared by priority * (1 - elasticity / 2) times what each still
    # wants, topics max(300, 4,096 * 0.12 * 0.6 = 294) - 300 = 0, entities 245 - 150 = 95: so entities take all 50.
    allocation = FixedAllocation().allocate(
        situation(
            total_tokens=4_096,
            overhead_tokens=36,
            identity_tokens=400,
            preferences_tokens=900,
            message_tokens=560,
            message_count=100,
            history_tokens=20_000,
            topic_count=1,
            topic_tokens=5_000,
            entity_count=1,
            entity_tokens=5_000,
        )
    )
    assert table(allocation) == (400, 100, 300, 200, 200, 1_500, 800, 560)
    assert sum(allocation.tokens.values()) + 36 == 4_096


def test_seed_004_fixed_scales_to_another_window():
    # 500 : 1,000 : 500 : 1,500 : 596 of 40,960 are ten times as much.
    allocation = FixedAllocation().allocate(
        situation(total_tokens=40_960, identity_tokens=5_000, message_tokens=5_960, history_tokens=90_000)
    )
    assert table(allocation) == (5_000, 0, 0, 0, 0, 15_000, 10_000, 5_960)


# `allocate_dynamic`: remaining = total - query - 100. The margin of 100 stands for what framing costs; that is counted
# here. With a total of 4,096, a query of 60 and 36 of framing, 4,000 remain.


@pytest.mark.parametrize(
    ("turns", "entities", "history", "knowledge", "retrieval"),
    [
        (3, 1, 600, 600, 2_400),  # 15 / 15 / 60 %
        (4, 1, 1_200, 800, 1_600),  # 30 / 20 / 40 %
        (10, 1, 1_200, 800, 1_600),
        (11, 1, 1_600, 1_000, 1_000),  # 40 / 25 / 25 %
        (300, 10, 1_600, 1_000, 1_000),
        # More than 10 entities: entities * 1.3, and rag = remaining - system (400) - history - entities.
        (3, 11, 600, 780, 2_220),
        (10, 11, 1_200, 1_040, 1_360),
        (11, 11, 1_600, 1_300, 700),
    ],
)
def test_seed_004_dynamic_follows_turns_and_entities(turns, entities, history, knowledge, retrieval):
    # A turn of the seed is what one participant says, so a turn is a message. System is 400 in every row: 400 of
    # preferences fit, as there is no system prompt.
    allocation = DynamicAllocation().allocate(
        situation(
            total_tokens=4_096,
            overhead_tokens=36,
            preferences_tokens=1_000,
            message_tokens=60,
            message_count=turns,
            history_tokens=20_000,
            entity_count=entities,
            entity_tokens=9_000,
        )
    )
    tokens = allocation.tokens
    assert tokens[Layer.ARC] + tokens[Layer.HISTORY] == history
    assert tokens[Layer.TOPICS] + tokens[Layer.ENTITIES] == knowledge
    assert (tokens[Layer.RETRIEVAL], tokens[Layer.PREFERENCES]) == (retrieval, 400)
    assert sum(tokens.values()) <= 4_096 - 36


@pytest.mark.parametrize(
    ("turns", "history_tokens", "knowledge"),
    [
        (3, 1_800, 1_800),  # 600 + 2,400 / 2 each
        (10, 2_000, 1_600),  # 1,200 + 1,600 / 2 and 800 + 1,600 / 2
        (11, 2_100, 1_500),  # 1,600 + 1,000 / 2 and 1,000 + 1,000 / 2
    ],
)
def test_seed_004_dynamic_without_chunks_gives_half_of_retrieval_to_history_and_half_to_entities(
    turns, history_tokens, knowledge
):
    # "No RAG available" is here: the whole conversation is in the prompt, so nothing of it is to be retrieved.
    allocation = DynamicAllocation().allocate(
        situation(
            total_tokens=4_096,
            overhead_tokens=36,
            message_tokens=60,
            message_count=turns,
            history_tokens=history_tokens,
            entity_count=1,
            entity_tokens=9_000,
        )
    )
    assert allocation.fits_whole
    assert table(allocation) == (0, 0, 0, knowledge, 0, 0, history_tokens, 60)


def test_seed_004_dynamic_keeps_chunks_for_a_conversation_that_is_a_token_longer():
    allocation = DynamicAllocation().allocate(
        situation(total_tokens=4_096, overhead_tokens=36, message_tokens=60, message_count=3, history_tokens=1_801)
    )
    assert allocation.tokens[Layer.RETRIEVAL] == 2_400


# `Prioritized`: "fills in order until full".


def test_seed_004_prioritized_fills_in_order():
    # 4,096 - 400 (system) - 596 (query) = 3,100, in the order of the seed's budget: system, history, entities, rag.
    # Preferences 200 leave 2,900; the history holds 2,000 and leaves 900; topics hold 500 and leave 400; entities
    # hold 600 and get 400. Nothing is left for retrieval, and nothing to retrieve.
    allocation = PrioritizedAllocation().allocate(
        situation(
            total_tokens=4_096,
            identity_tokens=400,
            preferences_tokens=200,
            message_tokens=596,
            message_count=30,
            history_tokens=2_000,
            topic_count=1,
            topic_tokens=500,
            entity_count=1,
            entity_tokens=600,
        )
    )
    assert table(allocation) == (400, 200, 500, 400, 0, 0, 2_000, 596)


def test_seed_004_prioritized_history_that_is_too_long_takes_everything_behind_it():
    # 3,100 - 200 = 2,900 for a history of 20,000. Its arc has 150 * log2(301) = 1,235, but at most a fifth of 3,100.
    allocation = PrioritizedAllocation().allocate(
        situation(
            total_tokens=4_096,
            identity_tokens=400,
            preferences_tokens=200,
            message_tokens=596,
            message_count=300,
            history_tokens=20_000,
            topic_count=1,
            topic_tokens=500,
        )
    )
    assert table(allocation) == (400, 200, 0, 0, 620, 0, 2_280, 596)
