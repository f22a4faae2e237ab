"""The seeds' own worked examples, with results computed by hand from the seeds' formulas.

Where a corrected result differs from a seed's text, the comment at the example says why. For all of
them: the system prompt costs what it costs and is never a share; what framing and tools cost is
counted and taken off first; no layer is given more than it holds.
"""

import pytest

from langchain_ctxbudget import budget
from langchain_ctxbudget.budget import Layer

SEED = budget.ElasticAllocation(profile="seed")
RATIO = budget.RatioAllocation()
FIXED = budget.FixedAllocation()
DYNAMIC = budget.DynamicAllocation()
PRIORITIZED = budget.PrioritizedAllocation()
NOTHING = {
    "overhead_tokens": 0,
    "identity_tokens": 0,
    "preferences_tokens": 0,
    "message_tokens": 0,
    "message_count": 0,
    "history_tokens": 0,
}


def allocate(strategy, sizes):
    """Divides a budget; sizes that are not named are 0."""
    return strategy.allocate(budget.Situation(**{**NOTHING, **sizes}))


def granted(allocation):
    """The tokens of the layers that are given any, by the names of the layers."""
    return {
        layer.name.lower(): allocation.tokens[layer] for layer in Layer if allocation.tokens[layer]
    }


def ideal_of(allocation, layer):
    [ideal] = [spec.ideal_tokens for spec in allocation.specs if spec.layer == layer]
    return ideal


# Seed 000, "The Master Budget Algorithm", and its example: "50K budget, 300-message conversation
# (120K tokens), 2 topics detected, 1 entity, depth=standard".
#
# Its figure gives L6 76 %, past its own cap of 60 %, and is not what its formulas give. They give:
#   pressure     min(1, 120,000 / (50,000 * 0.7)) = 1
#   L2 topics    50,000 * 0.12 = 6,000; two topics * 1.3 = 7,800; pressure 1 * 0.4 (its code; its
#                comment says 0.5): * 0.6 = 4,680; cap 25 % = 12,500; priority 85, as two topics are
#                knowledge-heavy
#   L3 entities  50,000 * 0.06 = 3,000; one entity at 400 each: 400; cap 12 % = 6,000; priority 65
#   L4 arc       150 * log2(301) = 150 * 8.2336 = 1,235; under 15 % = 7,500; cap 20 % = 10,000;
#                priority 88
#   L5 retrieval 50,000 * 0.10 = 5,000 * max(0.3, coverage factor); cap 18 % = 9,000; priority 75
#   L6 history   over 50K tokens: 25 %, prioritised * 1.3, over 20 messages * 1.2 = 39 % = 19,500;
#                cap 60 % = 30,000; priority 90
#
# Left for L1 to L6: 50,000 - 350 - 500 = 49,150.
WITHOUT_KNOWLEDGE = {
    "total_tokens": 50_000,
    "identity_tokens": 350,
    "preferences_tokens": 500,
    "message_tokens": 500,
    "message_count": 300,
    "history_tokens": 120_000,
}
EXAMPLE = {**WITHOUT_KNOWLEDGE, "topic_count": 2, "entity_count": 1}


def test_seed_000_its_example():
    # The topics hold 4,200 and the entity 400, as in the figure, so they want no more than that.
    # Coverage factor of L5: 1 - 4,200 / (50,000 * 0.15 = 7,500) = 0.44, so 5,000 * 0.44 = 2,200.
    # Ideals: 500 + 4,200 + 400 + 1,235 + 2,200 + 19,500 = 28,035; all fit; 49,150 - 28,035 = 21,115
    # are left. By priority: L6 (90) takes 10,500 up to its cap of 30,000, leaving 10,615; L4 (88)
    # takes 8,765 up to its cap of 10,000, leaving 1,850; L2 (85) holds no more; L5 (75) takes
    # 1,850, which makes 2,200 + 1,850 = 4,050.
    allocation = allocate(SEED, {**EXAMPLE, "topic_tokens": 4_200, "entity_tokens": 400})
    assert granted(allocation) == {
        "identity": 350,
        "preferences": 500,
        "topics": 4_200,
        "entities": 400,
        "arc": 10_000,
        "retrieval": 4_050,
        "history": 30_000,
        "message": 500,
    }


def test_seed_000_large_topics_leave_less_for_retrieval():
    # Topics that hold 20,000 cover everything: L5 is 5,000 * 0.3 = 1,500. The entity holds 5,000,
    # and 400 is its cap. Ideals: 500 + 4,680 + 400 + 1,235 + 1,500 + 19,500 = 27,815; 21,335 are
    # left. L6 + 10,500, L4 + 8,765, and L2 (85) takes the last 2,070 of the 7,820 that it could
    # take, which makes 4,680 + 2,070 = 6,750.
    allocation = allocate(SEED, {**EXAMPLE, "topic_tokens": 20_000, "entity_tokens": 5_000})
    assert granted(allocation) == {
        "identity": 350,
        "preferences": 500,
        "topics": 6_750,
        "entities": 400,
        "arc": 10_000,
        "retrieval": 1_500,
        "history": 30_000,
        "message": 500,
    }


def test_seed_000_a_cap_binds_while_others_want_the_tokens():
    # The seed's figure gives history 76 %, past its cap of 60 %. Without topics and entities:
    # 49,150 - 500 - 30,000 (L6) - 10,000 (L4) = 8,650, and L5 does not even reach its 9,000.
    assert granted(allocate(SEED, WITHOUT_KNOWLEDGE)) == {
        "identity": 350,
        "preferences": 500,
        "arc": 10_000,
        "retrieval": 8_650,
        "history": 30_000,
        "message": 500,
    }


def test_seed_000_a_layer_passes_its_cap_with_what_nobody_else_wants():
    # Without preferences, and with 100 tokens each of system prompt and message, 49,800 are left;
    # all caps are reached at 49,000, and the other 800 go to history, the first in priority.
    smaller = {"identity_tokens": 100, "message_tokens": 100, "preferences_tokens": 0}
    assert granted(allocate(SEED, {**WITHOUT_KNOWLEDGE, **smaller})) == {
        "identity": 100,
        "arc": 10_000,
        "retrieval": 9_000,
        "history": 30_800,
        "message": 100,
    }


def test_seed_000_a_small_conversation_goes_in_whole():
    # "SMALL (< 3K tokens total): Include everything": L6 2,500, no arc. Preferences hold 150, under
    # 3 % = 360; topics 12,000 * 0.12 = 1,440 * (1 - 0.4 * 2,500 / 8,400) = 1,268.57 -> 1,268. What
    # is left, 12,000 - 300 - 150 - 1,268 - 2,500 - 100 = 7,682, is poured by priority: L6 is whole,
    # L2 (70) has a cap of 3,000, but L5 (75) comes first and may use everything.
    sizes = {
        "total_tokens": 12_000,
        "identity_tokens": 300,
        "preferences_tokens": 150,
        "message_tokens": 100,
        "message_count": 12,
        "history_tokens": 2_500,
        "topic_count": 1,
        "topic_tokens": 4_000,
    }
    allocation = allocate(SEED, sizes)
    assert allocation.fits_whole
    assert granted(allocation) == {
        "identity": 300,
        "preferences": 150,
        "topics": 1_268,
        "retrieval": 7_682,
        "history": 2_500,
        "message": 100,
    }


CONTENTION = {
    "identity_tokens": 100,
    "message_count": 40,
    "history_tokens": 8_000,
    "topic_count": 1,
    "topic_tokens": 2_000,
    "entity_count": 1,
    "entity_tokens": 1_000,
}


def test_seed_000_what_all_ideals_leave_goes_to_the_first_in_priority():
    # 4,000 tokens. Pressure 1; L2 480 * 0.6 = 288, not below its floor of 300; L3 240; L4 150 *
    # log2(41) = 803, under 15 % = 600; L5 400 * 0.3 = 120, not below its floor of 200; L6 (3K to
    # 10K tokens) 35 % * 1.3 * 1.2 = 54.6 % = 2,184. Left: 4,000 - 100 - 100 = 3,800; ideals 300 +
    # 240 + 600 + 200 + 2,184 = 3,524; of 276, L6 takes 216 up to its cap of 60 % = 2,400, and L4
    # the other 60.
    sizes = {**CONTENTION, "total_tokens": 4_000, "message_tokens": 100}
    assert granted(allocate(SEED, sizes)) == {
        "identity": 100,
        "topics": 300,
        "entities": 240,
        "arc": 660,
        "retrieval": 200,
        "history": 2_400,
        "message": 100,
    }


def test_seed_000_without_room_for_ideals_layers_grow_together():
    # 3,000 tokens and a message of 1,000 leave 1,900. Floors: 300 + 150 + 200 + 200 + 500 = 1,350;
    # 550 are left. Ideals above the floors: L3 180 - 150 = 30; L4 450 - 200 = 250; L6 54.6 % =
    # 1,638 - 500 = 1,138; none for L2 (216, below its floor of 300) and L5 (90, below its floor of
    # 200). The seed multiplies by priority, reads `remaining` while it changes it, and never uses
    # elasticity. Here layers grow together at ideal * priority * (1 - elasticity / 2): L3 30 * 65 *
    # 0.65 = 1,267.5; L4 250 * 88 * 0.85 = 18,700; L6 1,138 * 90 * 0.8 = 81,936; together 101,903.5.
    # So L3 550 * 1,267.5 / 101,903.5 = 6.8; L4 100.9; L6 442.2; rounded down.
    sizes = {**CONTENTION, "total_tokens": 3_000, "message_tokens": 1_000}
    assert granted(allocate(SEED, sizes)) == {
        "identity": 100,
        "topics": 300,
        "entities": 156,
        "arc": 300,
        "retrieval": 200,
        "history": 942,
        "message": 1_000,
    }


def test_seed_000_without_room_for_floors_the_last_have_none():
    # 1,200 tokens and a message of 500 leave 600. The seed cuts from the lowest priority upwards
    # and may leave a layer with less than its floor, "below this, don't include at all". Here
    # floors are granted by priority * (1 - elasticity / 2): L4 74.8: 200, leaving 400; L6 72: 500
    # does not fit; L5 56.25: 200, leaving 200; L2 49: 300 does not fit; L3 42.25: its cap of 12 % =
    # 144, leaving 56. Those go to L4 (88) up to 20 % = 240, then to L5.
    sizes = {**CONTENTION, "total_tokens": 1_200, "message_tokens": 500}
    assert granted(allocate(SEED, sizes)) == {
        "identity": 100,
        "entities": 144,
        "arc": 240,
        "retrieval": 216,
        "message": 500,
    }


def test_seed_000_what_must_be_sent_is_what_it_costs():
    # The seed gives L0 min(400, 2 %) = 240 of 12,000 and L1 min(600, 3 %) = 360, "non-negotiable",
    # whatever they hold. Here L0 is the system prompt as it is, and L1 holds 1,000, of which it may
    # have its ideal of 360, and up to 800 where tokens are left: 95 is the highest priority.
    # Retrieval may use all the rest, 12,000 - 1,234 - 800 - 77 = 9,889.
    sizes = {
        "total_tokens": 12_000,
        "identity_tokens": 1_234,
        "preferences_tokens": 1_000,
        "message_tokens": 77,
    }
    assert granted(allocate(SEED, sizes)) == {
        "identity": 1_234,
        "preferences": 800,
        "retrieval": 9_889,
        "message": 77,
    }


# Topics without a conversation, so no pressure: 12,000 * 0.12 = 1,440 by depth and number; the cap
# is 3,000.


@pytest.mark.parametrize(
    ("topic_count", "depth", "ideal"),
    [
        (1, "minimal", 720),
        (1, "standard", 1_440),
        (2, "standard", 1_872),  # * 1.3
        (5, "standard", 2_880),  # 1 + 4 * 0.3 = 2.2, at most 2
        (5, "deep", 3_000),  # 4,320
    ],
)
def test_seed_000_topics_grow_with_their_number_and_the_depth(topic_count, depth, ideal):
    sizes = {"topic_count": topic_count, "topic_tokens": 9_000, "depth": depth}
    allocation = allocate(SEED, {**sizes, "total_tokens": 12_000})
    assert ideal_of(allocation, "L2") == ideal


@pytest.mark.parametrize(
    ("history_tokens", "ideal"),
    [
        (4_200, 1_152),  # half of the 70 % of 12,000 that press fully: * 0.8
        (8_400, 864),  # 1 - 0.4 = 0.6; with the 0.5 of its comment it would be 720
        (500_000, 864),
    ],
)
def test_seed_000_a_conversation_presses_on_topics(history_tokens, ideal):
    sizes = {"topic_count": 1, "topic_tokens": 9_000, "history_tokens": history_tokens}
    allocation = allocate(SEED, {**sizes, "total_tokens": 12_000})
    assert ideal_of(allocation, "L2") == ideal


@pytest.mark.parametrize(
    ("entity_count", "ideal"),
    [
        (1, 400),
        (2, 800),  # 720 * 1.4 = 1,008
        (9, 1_440),  # 720 * 2
    ],
)
def test_seed_000_entities_grow_with_their_number(entity_count, ideal):
    # 12,000 * 0.06 = 720 by number, at most 400 for each; the cap is 12 % = 1,440.
    sizes = {"entity_count": entity_count, "entity_tokens": 9_000}
    allocation = allocate(SEED, {**sizes, "total_tokens": 12_000})
    assert ideal_of(allocation, "L3") == ideal


@pytest.mark.parametrize(
    ("message_count", "depth", "ideal"),
    [
        (15, "standard", 600),  # 150 * log2(16)
        (255, "standard", 1_200),
        (255, "deep", 1_800),  # 15 % of 12,000
        (63, "minimal", 450),
        (1, "standard", 200),  # 150, not below the floor
    ],
)
def test_seed_000_the_arc_grows_with_the_logarithm_of_messages(message_count, depth, ideal):
    sizes = {"message_count": message_count, "history_tokens": 20_000, "depth": depth}
    allocation = allocate(SEED, {**sizes, "total_tokens": 12_000})
    assert ideal_of(allocation, "L4") == ideal


@pytest.mark.parametrize(
    ("history_tokens", "message_count", "prioritize_history", "ideal"),
    [
        # Up to 10K tokens 35 % * 1.3 * 1.2 of 10,000, up to 50K 30 %, beyond it 25 %.
        (10_000, 40, True, 5_460),
        (10_000, 20, True, 4_550),  # no long dialogue
        (10_000, 40, False, 3_500),
        (50_000, 40, True, 4_680),
        (50_001, 40, True, 3_900),
    ],
)
def test_seed_000_the_share_of_a_history_falls_with_its_size(
    history_tokens, message_count, prioritize_history, ideal
):
    sizes = {
        "total_tokens": 10_000,
        "message_tokens": 1_000,
        "history_tokens": history_tokens,
        "message_count": message_count,
        "prioritize_history": prioritize_history,
    }
    assert ideal_of(allocate(SEED, sizes), "L6") == ideal


# Seed 001: "Memory gets 25% of remaining, clamped to min/max", 150 to 500.


@pytest.mark.parametrize(
    ("total_tokens", "preferences_tokens", "memory_tokens"),
    [
        (500, 1_000, 150),  # nothing is left
        (599, 0, 150),  # 149.75
        (604, 0, 151),
        (1_999, 0, 499),  # 499.75
        # The seed's call: window less conversation less reserve = 8,192 - 5,000 - 1,000; 25 % is
        # 548.
        (2_192, 0, 500),
    ],
)
def test_seed_001_memories_get_a_quarter_of_what_is_left(
    total_tokens, preferences_tokens, memory_tokens
):
    """At least 150 tokens, at most 500."""
    sizes = {"total_tokens": total_tokens, "preferences_tokens": preferences_tokens}
    allocation = allocate(budget.ElasticAllocation(), {**sizes, "memory_tokens": 10_000})
    assert ideal_of(allocation, "L1") == preferences_tokens + memory_tokens


@pytest.mark.parametrize(
    ("memory_tokens", "tokens"),
    [
        (60, 160),  # 100 of preferences, and all that is known
        (4_000, 375),  # 1,500 - 300 - 100 = 1,100 are left; a quarter of them is 275
    ],
)
def test_seed_001_memories_stand_beside_preferences(memory_tokens, tokens):
    # What is left is what system prompt and preferences leave. The seed also takes the conversation
    # off: a conversation gives way here, and would leave nothing whenever it is long. Nor is the
    # message taken off: what is known stands at the beginning of the prompt, which must not change
    # with every message.
    sizes = {
        "total_tokens": 1_500,
        "identity_tokens": 300,
        "message_tokens": 100,
        "preferences_tokens": 100,
        "memory_tokens": memory_tokens,
    }
    allocation = allocate(budget.ElasticAllocation(), sizes)
    assert ideal_of(allocation, "L1") == tokens
    assert allocation.tokens["L1"] == tokens


# Seed 002, "The Budget-Ratio Principle": 32,768 token window, a system prompt of about 300 tokens.

WINDOW = {"total_tokens": 32_768, "identity_tokens": 300, "history_tokens": 120_000}


def test_seed_002_its_example():
    # 32,768 - 300 = 32,468; memory 30 % = 9,740.4; history 40 % = 12,987.2; reserve 30 % = 9,740.4.
    # All rounded down in the seed; here the reserve is what memory and history leave, so that
    # nothing is lost: 9,741. Inside history the arc has 150 * log2(301) = 1,235 (seed 000), below a
    # fifth of it, which leaves 11,752.
    allocation = allocate(RATIO, {**WINDOW, "message_count": 300})
    assert allocation.reserve_tokens == 9_741
    assert granted(allocation) == {
        "identity": 300,
        "arc": 1_235,
        "retrieval": 9_740,
        "history": 11_752,
    }


def test_seed_002_ratios_divide_what_the_message_leaves():
    # The seed counts the user's message as history. Here it is sent whole, so ratios divide what it
    # leaves: 32,468 - 468 = 32,000: 9,600 / 12,800 / 9,600.
    allocation = allocate(RATIO, {**WINDOW, "message_tokens": 468})
    assert allocation.reserve_tokens == 9_600
    assert granted(allocation) == {
        "identity": 300,
        "retrieval": 9_600,
        "history": 12_800,
        "message": 468,
    }


def test_seed_002_at_least_three_exchanges():
    # "Always keep minimum 3 exchanges (6 messages)", which "can overflow" in the seed. 1,000
    # tokens: memory 300, history 400, reserve 300. Exchanges of 250 are 750, which is 350 over:
    # memory gives its 300, the reserve 50.
    sizes = {
        "total_tokens": 1_000,
        "message_count": 10,
        "history_tokens": 1_250,
        "exchanges": (budget.Exchange(2, 250),) * 5,
    }
    allocation = allocate(RATIO, sizes)
    assert granted(allocation) == {"history": 750}
    assert allocation.reserve_tokens == 250
    assert allocation.keep_messages == 6


# Seed 004, `TokenBudget::default`: "For 4096 token model": system 500, history 1,000, entities 500,
# rag 1,500, query 596.


def test_seed_004_fixed_has_the_defaults_of_its_window():
    # A system prompt of 400 leaves 100 of 500 for preferences; a message of 560 and 36 of framing
    # are the query's 596. The arc may have a fifth of the history's 1,000. Topics come out of the
    # entities' 500 with their floor of 300 and entities with theirs of 150; the last 50 are shared
    # by priority * (1 - elasticity / 2) times what each still wants, topics max(300, 4,096 * 0.12 *
    # 0.6 = 294) - 300 = 0, entities 245 - 150 = 95: so entities take all 50.
    sizes = {
        "total_tokens": 4_096,
        "overhead_tokens": 36,
        "identity_tokens": 400,
        "preferences_tokens": 900,
        "message_tokens": 560,
        "message_count": 100,
        "history_tokens": 20_000,
        "topic_count": 1,
        "topic_tokens": 5_000,
        "entity_count": 1,
        "entity_tokens": 5_000,
    }
    assert granted(allocate(FIXED, sizes)) == {
        "identity": 400,
        "preferences": 100,
        "topics": 300,
        "entities": 200,
        "arc": 200,
        "retrieval": 1_500,
        "history": 800,
        "message": 560,
    }


def test_seed_004_fixed_grows_with_the_window():
    # 500 : 1,000 : 500 : 1,500 : 596 of 40,960 are ten times as much.
    sizes = {
        "total_tokens": 40_960,
        "identity_tokens": 5_000,
        "message_tokens": 5_960,
        "history_tokens": 90_000,
    }
    assert granted(allocate(FIXED, sizes)) == {
        "identity": 5_000,
        "retrieval": 15_000,
        "history": 10_000,
        "message": 5_960,
    }


# `allocate_dynamic`: remaining = total - query - 100. The margin of 100 stands for what framing
# costs; that is counted here. With a total of 4,096, a query of 60 and 36 of framing, 4,000 remain.
FOUR_THOUSAND = {
    "total_tokens": 4_096,
    "overhead_tokens": 36,
    "message_tokens": 60,
    "entity_tokens": 9_000,
}


@pytest.mark.parametrize(
    ("turns", "entities", "history", "knowledge", "retrieval"),
    [
        (3, 1, 600, 600, 2_400),  # 15 / 15 / 60 %
        (4, 1, 1_200, 800, 1_600),  # 30 / 20 / 40 %
        (10, 1, 1_200, 800, 1_600),
        (11, 1, 1_600, 1_000, 1_000),  # 40 / 25 / 25 %
        (300, 10, 1_600, 1_000, 1_000),
        # More than 10 entities: entities * 1.3, and rag = remaining - system (400) - history -
        # entities.
        (3, 11, 600, 780, 2_220),
        (10, 11, 1_200, 1_040, 1_360),
        (11, 11, 1_600, 1_300, 700),
    ],
)
def test_seed_004_dynamic_follows_turns_and_entities(
    turns, entities, history, knowledge, retrieval
):
    # A turn of the seed is what one participant says, so a turn is a message. System is 400 in
    # every row: 400 of preferences fit, as there is no system prompt.
    sizes = {
        **FOUR_THOUSAND,
        "preferences_tokens": 1_000,
        "message_count": turns,
        "history_tokens": 20_000,
        "entity_count": entities,
    }
    tokens = allocate(DYNAMIC, sizes).tokens
    assert tokens["L4"] + tokens["L6"] == history
    assert tokens["L2"] + tokens["L3"] == knowledge
    assert tokens["L5"] == retrieval
    assert tokens["L1"] == 400


# "No RAG available" is here: the whole conversation is in the prompt, so nothing of it is to be
# retrieved.


@pytest.mark.parametrize(
    ("turns", "history", "knowledge"),
    [
        (3, 1_800, 1_800),  # 600 + 2,400 / 2 each
        (10, 2_000, 1_600),  # 1,200 + 1,600 / 2 and 800 + 1,600 / 2
        (11, 2_100, 1_500),  # 1,600 + 1,000 / 2 and 1,000 + 1,000 / 2
    ],
)
def test_seed_004_dynamic_shares_retrieval_where_there_are_no_chunks(turns, history, knowledge):
    sizes = {"message_count": turns, "history_tokens": history, "entity_count": 1}
    allocation = allocate(DYNAMIC, {**FOUR_THOUSAND, **sizes})
    assert allocation.fits_whole
    assert granted(allocation) == {"entities": knowledge, "history": history, "message": 60}


@pytest.mark.parametrize(("turns", "history"), [(3, 1_801), (10, 2_001), (11, 2_101)])
def test_seed_004_dynamic_retrieves_of_a_history_one_token_longer(turns, history):
    sizes = {"message_count": turns, "history_tokens": history, "entity_count": 1}
    allocation = allocate(DYNAMIC, {**FOUR_THOUSAND, **sizes})
    assert not allocation.fits_whole
    assert allocation.tokens["L5"] > 0


def test_dynamic_sends_a_history_whole_beside_a_layer_of_the_application():
    clock = budget.LayerSpec("clock", 20, 20, 20, priority=50)
    sizes = {"message_count": 11, "history_tokens": 2_000, "entity_count": 1, "custom": (clock,)}
    allocation = allocate(DYNAMIC, {**FOUR_THOUSAND, **sizes})
    assert allocation.fits_whole
    assert allocation.tokens["clock"] == 20


PRIORITIZED_SIZES = {
    "total_tokens": 4_096,
    "identity_tokens": 400,
    "preferences_tokens": 200,
    "message_tokens": 596,
    "topic_count": 1,
    "topic_tokens": 500,
}


def test_seed_004_prioritized_fills_in_order_until_full():
    # 4,096 - 400 (system) - 596 (query) = 3,100, in the order of the seed's budget: system,
    # history, entities, rag. Preferences 200 leave 2,900; the history holds 2,000 and leaves 900;
    # topics hold 500 and leave 400; entities hold 600 and get 400. Nothing is left for retrieval,
    # and nothing to retrieve.
    sizes = {
        "message_count": 30,
        "history_tokens": 2_000,
        "entity_count": 1,
        "entity_tokens": 600,
    }
    assert granted(allocate(PRIORITIZED, {**PRIORITIZED_SIZES, **sizes})) == {
        "identity": 400,
        "preferences": 200,
        "topics": 500,
        "entities": 400,
        "history": 2_000,
        "message": 596,
    }


def test_seed_004_prioritized_gives_all_to_a_long_history():
    # 3,100 - 200 = 2,900 for a history of 20,000. Its arc has 150 * log2(301) = 1,235, but at most
    # a fifth of 3,100.
    sizes = {"message_count": 300, "history_tokens": 20_000}
    assert granted(allocate(PRIORITIZED, {**PRIORITIZED_SIZES, **sizes})) == {
        "identity": 400,
        "preferences": 200,
        "arc": 620,
        "history": 2_280,
        "message": 596,
    }
