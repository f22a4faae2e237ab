"""The seeds' own worked examples, with results computed by hand from the seeds' formulas.

Where a corrected result differs from a seed's text, the comment at the example says why. For all of
them: the system prompt costs what it costs and is never a share; what framing and tools cost is
counted and taken off first; no layer is given more than it holds.
"""

from langchain_ctxbudget import budget
from langchain_ctxbudget.budget.demands import memory_tokens, preferences_demand

SEED = budget.ElasticAllocation(profile="seed")


def situation(**sizes):
    empty = dict.fromkeys(
        ("overhead_tokens", "identity_tokens", "preferences_tokens", "message_tokens"), 0
    )
    return budget.Situation(**{**empty, "message_count": 0, "history_tokens": 0, **sizes})


def check(strategy, sizes, *tokens):
    allocation = strategy.allocate(situation(**sizes))
    assert tuple(allocation.tokens[f"L{number}"] for number in range(8)) == tokens
    return allocation


# Seed 000, "The Master Budget Algorithm", and its example: "50K budget, 300-message conversation
# (120K tokens), 2 topics detected, 1 entity, depth=standard".
#
# Its figure gives L6 76 %, past its own cap of 60 %, and is not what its formulas give. They give:
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
WITHOUT_KNOWLEDGE = {
    "total_tokens": 50_000,
    "identity_tokens": 350,
    "preferences_tokens": 500,
    "message_tokens": 500,
    "message_count": 300,
    "history_tokens": 120_000,
}
FIFTY = {**WITHOUT_KNOWLEDGE, "topic_count": 2, "entity_count": 1}


def test_seed_000_its_example():
    # The topics hold 4,200 and the entity 400, as in the figure, so they want no more than that.
    # Coverage factor of L5: 1 - 4,200 / (50,000 * 0.15 = 7,500) = 0.44, so 5,000 * 0.44 = 2,200.
    # Ideals: 500 + 4,200 + 400 + 1,235 + 2,200 + 19,500 = 28,035; all fit; 49,150 - 28,035 = 21,115
    # are left. By priority: L6 (90) takes 10,500 up to its cap of 30,000, leaving 10,615; L4 (88)
    # takes 8,765 up to its cap of 10,000, leaving 1,850; L2 (85) holds no more; L5 (75) takes
    # 1,850.
    holds = {"topic_tokens": 4_200, "entity_tokens": 400}
    check(SEED, {**FIFTY, **holds}, 350, 500, 4_200, 400, 10_000, 2_200 + 1_850, 30_000, 500)
    # Topics that hold 20,000 cover everything: L5 is 5,000 * 0.3 = 1,500. The entity holds 5,000,
    # and 400 is its cap. Ideals: 500 + 4,680 + 400 + 1,235 + 1,500 + 19,500 = 27,815; 21,335 are
    # left. L6 + 10,500, L4 + 8,765, and L2 (85) takes the last 2,070 of the 7,820 that it could
    # take.
    holds = {"topic_tokens": 20_000, "entity_tokens": 5_000}
    check(SEED, {**FIFTY, **holds}, 350, 500, 4_680 + 2_070, 400, 10_000, 1_500, 30_000, 500)


def test_seed_000_layers_pass_their_caps_only_with_what_nobody_else_wants():
    # Its figure gives history 76 %, past its cap of 60 %. Here the cap binds while others want the
    # tokens. Without topics and entities: 49,150 - 500 - 30,000 (L6) - 10,000 (L4) = 8,650, and L5
    # does not even reach its 9,000.
    check(SEED, WITHOUT_KNOWLEDGE, 350, 500, 0, 0, 10_000, 8_650, 30_000, 500)
    # Without preferences, and with 100 tokens each of system prompt and message, 49,800 are left;
    # all caps are reached at 49,000, and the other 800 go to history, the first in priority.
    smaller = {
        **WITHOUT_KNOWLEDGE,
        "identity_tokens": 100,
        "message_tokens": 100,
        "preferences_tokens": 0,
    }
    check(SEED, smaller, 100, 0, 0, 0, 10_000, 9_000, 30_800, 100)


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
    }
    talk = {"message_count": 12, "history_tokens": 2_500, "topic_count": 1, "topic_tokens": 4_000}
    assert check(SEED, {**sizes, **talk}, 300, 150, 1_268, 0, 0, 7_682, 2_500, 100).fits_whole


def test_seed_000_layers_contend():
    knowledge = {"topic_count": 1, "topic_tokens": 2_000, "entity_count": 1, "entity_tokens": 1_000}
    talk = {"identity_tokens": 100, "message_count": 40, "history_tokens": 8_000, **knowledge}
    # 4,000 tokens. Pressure 1; L2 480 * 0.6 = 288, not below its floor of 300; L3 240; L4 150 *
    # log2(41) = 803, under 15 % = 600; L5 400 * 0.3 = 120, not below its floor of 200; L6 (3K to
    # 10K tokens) 35 % * 1.3 * 1.2 = 54.6 % = 2,184. Left: 4,000 - 100 - 100 = 3,800; ideals 300 +
    # 240 + 600 + 200 + 2,184 = 3,524; of 276, L6 takes 216 up to its cap of 60 % = 2,400, and L4
    # the other 60.
    check(
        SEED,
        {"total_tokens": 4_000, "message_tokens": 100, **talk},
        100,
        0,
        300,
        240,
        660,
        200,
        2_400,
        100,
    )
    # 3,000 tokens and a message of 1,000 leave 1,900. Floors: 300 + 150 + 200 + 200 + 500 = 1,350;
    # 550 are left. Ideals above the floors: L3 180 - 150 = 30; L4 450 - 200 = 250; L6 54.6 % =
    # 1,638 - 500 = 1,138; none for L2 (216, below its floor of 300) and L5 (90, below its floor of
    # 200). The seed multiplies by priority, reads `remaining` while it changes it, and never uses
    # elasticity. Here layers grow together at ideal * priority * (1 - elasticity / 2): L3 30 * 65 *
    # 0.65 = 1,267.5; L4 250 * 88 * 0.85 = 18,700; L6 1,138 * 90 * 0.8 = 81,936; together 101,903.5.
    # So L3 550 * 1,267.5 / 101,903.5 = 6.8; L4 100.9; L6 442.2; rounded down.
    check(
        SEED,
        {"total_tokens": 3_000, "message_tokens": 1_000, **talk},
        100,
        0,
        300,
        156,
        300,
        200,
        942,
        1_000,
    )
    # 1,200 tokens and a message of 500 leave 600. The seed cuts from the lowest priority upwards
    # and may leave a layer with less than its floor, "below this, don't include at all". Here
    # floors are granted by priority * (1 - elasticity / 2): L4 74.8: 200, leaving 400; L6 72: 500
    # does not fit; L5 56.25: 200, leaving 200; L2 49: 300 does not fit; L3 42.25: its cap of 12 % =
    # 144, leaving 56. Those go to L4 (88) up to 20 % = 240, then to L5.
    check(
        SEED,
        {"total_tokens": 1_200, "message_tokens": 500, **talk},
        100,
        0,
        0,
        144,
        240,
        216,
        0,
        500,
    )


def test_seed_000_what_must_be_sent_is_what_it_costs():
    # The seed gives L0 min(400, 2 %) = 240 of 12,000 and L1 min(600, 3 %) = 360, "non-negotiable",
    # whatever they hold. Here L0 is the system prompt as it is, and L1 holds 1,000, of which it may
    # have its ideal of 360, and up to 800 where tokens are left: 95 is the highest priority.
    # Retrieval may use all the rest.
    sizes = {
        "total_tokens": 12_000,
        "identity_tokens": 1_234,
        "preferences_tokens": 1_000,
        "message_tokens": 77,
    }
    check(SEED, sizes, 1_234, 800, 0, 0, 0, 12_000 - 1_234 - 800 - 77, 0, 77)


TOPIC = {"topic_count": 1, "topic_tokens": 9_000}
LONG = {"total_tokens": 10_000, "message_tokens": 1_000}


def test_seed_000_ideals():
    for layer, sizes, ideal in (
        # Topics without a conversation, so no pressure: 12,000 * 0.12 = 1,440 by depth and number;
        # the cap is 3,000.
        ("L2", {**TOPIC, "depth": "minimal"}, 720),
        ("L2", {**TOPIC}, 1_440),
        ("L2", {**TOPIC, "topic_count": 2}, 1_872),  # * 1.3
        ("L2", {**TOPIC, "topic_count": 5}, 2_880),  # 1 + 4 * 0.3 = 2.2, at most 2
        ("L2", {**TOPIC, "topic_count": 5, "depth": "deep"}, 3_000),  # 4,320
        # A conversation presses on them.
        (
            "L2",
            {**TOPIC, "history_tokens": 4_200},
            1_152,
        ),  # half of the 70 % of 12,000 that press fully: * 0.8
        (
            "L2",
            {**TOPIC, "history_tokens": 8_400},
            864,
        ),  # 1 - 0.4 = 0.6; with the 0.5 of its comment it would be 720
        ("L2", {**TOPIC, "history_tokens": 500_000}, 864),
        # Entities: 12,000 * 0.06 = 720 by number, at most 400 for each; the cap is 12 % = 1,440.
        ("L3", {"entity_count": 1, "entity_tokens": 9_000}, 400),
        ("L3", {"entity_count": 2, "entity_tokens": 9_000}, 800),  # 720 * 1.4 = 1,008
        ("L3", {"entity_count": 9, "entity_tokens": 9_000}, 1_440),  # 720 * 2
        # The arc grows with the logarithm of the conversation.
        ("L4", {"message_count": 15, "history_tokens": 20_000}, 600),  # 150 * log2(16)
        ("L4", {"message_count": 255, "history_tokens": 20_000}, 1_200),
        (
            "L4",
            {"message_count": 255, "history_tokens": 20_000, "depth": "deep"},
            1_800,
        ),  # 15 % of 12,000
        ("L4", {"message_count": 63, "history_tokens": 20_000, "depth": "minimal"}, 450),
        ("L4", {"message_count": 1, "history_tokens": 20_000}, 200),  # 150, not below the floor
        # History: up to 10K tokens 35 % * 1.3 * 1.2 of 10,000, up to 50K 30 %, beyond it 25 %.
        ("L6", {**LONG, "history_tokens": 10_000, "message_count": 40}, 5_460),
        ("L6", {**LONG, "history_tokens": 10_000, "message_count": 20}, 4_550),  # no long dialogue
        (
            "L6",
            {**LONG, "history_tokens": 10_000, "message_count": 40, "prioritize_history": False},
            3_500,
        ),
        ("L6", {**LONG, "history_tokens": 50_000, "message_count": 40}, 4_680),
        ("L6", {**LONG, "history_tokens": 50_001, "message_count": 40}, 3_900),
    ):
        allocation = SEED.allocate(situation(**{"total_tokens": 12_000, **sizes}))
        assert next(spec.ideal_tokens for spec in allocation.specs if spec.layer == layer) == ideal


# Seed 001: "Memory gets 25% of remaining, clamped to min/max", 150 to 500.


def test_seed_001_memory_gets_a_quarter_of_what_is_left_between_150_and_500():
    for left, expected in (
        (-500, 150),
        (599, 150),  # 149.75
        (604, 151),
        (1_999, 499),  # 499.75
        (
            8_192 - 5_000 - 1_000,
            500,
        ),  # the seed's call: window less conversation less reserve = 2,192; 25 % is 548
    ):
        assert memory_tokens(left) == expected


def test_seed_001_memories_stand_beside_preferences_within_their_own_rule():
    # What is left is what system prompt and preferences leave. The seed also takes the conversation
    # off: a conversation gives way here, and would leave nothing whenever it is long. Nor is the
    # message taken off: what is known stands at the beginning of the prompt, which must not change
    # with every message.
    for held, expected in (
        (60, 100 + 60),  # all that is known
        (4_000, 100 + 275),  # 1,500 - 300 - 100 = 1,100 are left; a quarter of them
    ):
        sizes = {
            "total_tokens": 1_500,
            "identity_tokens": 300,
            "message_tokens": 100,
            "preferences_tokens": 100,
        }
        talk = situation(**sizes, memory_tokens=held)
        assert preferences_demand(talk, talk.free_tokens).ideal_tokens == expected
        assert (
            budget.ElasticAllocation().allocate(talk).tokens[budget.Layer.PREFERENCES] == expected
        )


# Seed 002, "The Budget-Ratio Principle": 32,768 token window, a system prompt of about 300 tokens.


def test_seed_002_its_example():
    # 32,768 - 300 = 32,468; memory 30 % = 9,740.4; history 40 % = 12,987.2; reserve 30 % = 9,740.4.
    # All rounded down in the seed; here the reserve is what memory and history leave, so that
    # nothing is lost: 9,741. Inside history the arc has 150 * log2(301) = 1,235 (seed 000), below a
    # fifth of it.
    window = {"total_tokens": 32_768, "identity_tokens": 300, "history_tokens": 120_000}
    ratio = budget.RatioAllocation()
    allocation = check(
        ratio, {**window, "message_count": 300}, 300, 0, 0, 0, 1_235, 9_740, 12_987 - 1_235, 0
    )
    assert allocation.reserve_tokens == 32_468 - 9_740 - 12_987 == 9_741
    # The seed counts the user's message as history. Here it is sent whole, so ratios divide what it
    # leaves: 32,468 - 468 = 32,000: 9,600 / 12,800 / 9,600.
    allocation = check(
        ratio, {**window, "message_tokens": 468}, 300, 0, 0, 0, 0, 9_600, 12_800, 468
    )
    assert allocation.reserve_tokens == 9_600


def test_seed_002_at_least_three_exchanges():
    # "Always keep minimum 3 exchanges (6 messages)", which "can overflow" in the seed. 1,000
    # tokens: memory 300, history 400, reserve 300. Exchanges of 250 are 750, which is 350 over:
    # memory gives its 300, the reserve 50.
    exchanges = (budget.Exchange(2, 250),) * 5
    talk = {
        "total_tokens": 1_000,
        "message_count": 10,
        "history_tokens": 1_250,
        "exchanges": exchanges,
    }
    allocation = check(budget.RatioAllocation(), talk, 0, 0, 0, 0, 0, 0, 750, 0)
    assert (allocation.reserve_tokens, allocation.keep_messages) == (250, 6)


# Seed 004, `TokenBudget::default`: "For 4096 token model": system 500, history 1,000, entities 500,
# rag 1,500, query 596.


def test_seed_004_fixed_has_the_defaults_of_its_window():
    # A system prompt of 400 leaves 100 of 500 for preferences; a message of 560 and 36 of framing
    # are the query's 596. The arc may have a fifth of the history's 1,000. Topics come out of the
    # entities' 500 with their floor of 300 and entities with theirs of 150; the last 50 are shared
    # by priority * (1 - elasticity / 2) times what each still wants, topics max(300, 4,096 * 0.12 *
    # 0.6 = 294) - 300 = 0, entities 245 - 150 = 95: so entities take all 50.
    knowledge = {"topic_count": 1, "topic_tokens": 5_000, "entity_count": 1, "entity_tokens": 5_000}
    sizes = {
        "overhead_tokens": 36,
        "identity_tokens": 400,
        "preferences_tokens": 900,
        "message_tokens": 560,
    }
    talk = {
        "total_tokens": 4_096,
        "message_count": 100,
        "history_tokens": 20_000,
        **sizes,
        **knowledge,
    }
    check(budget.FixedAllocation(), talk, 400, 100, 300, 200, 200, 1_500, 800, 560)
    # 500 : 1,000 : 500 : 1,500 : 596 of 40,960 are ten times as much.
    talk = {
        "total_tokens": 40_960,
        "identity_tokens": 5_000,
        "message_tokens": 5_960,
        "history_tokens": 90_000,
    }
    check(budget.FixedAllocation(), talk, 5_000, 0, 0, 0, 0, 15_000, 10_000, 5_960)


# `allocate_dynamic`: remaining = total - query - 100. The margin of 100 stands for what framing
# costs; that is counted here. With a total of 4,096, a query of 60 and 36 of framing, 4,000 remain.
FOUR_THOUSAND = {
    "total_tokens": 4_096,
    "overhead_tokens": 36,
    "message_tokens": 60,
    "entity_tokens": 9_000,
}


def test_seed_004_dynamic_follows_turns_and_entities():
    # A turn of the seed is what one participant says, so a turn is a message. System is 400 in
    # every row: 400 of preferences fit, as there is no system prompt.
    for turns, entities, history, knowledge, retrieval in (
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
    ):
        talk = {
            "preferences_tokens": 1_000,
            "message_count": turns,
            "history_tokens": 20_000,
            "entity_count": entities,
        }
        tokens = budget.DynamicAllocation().allocate(situation(**FOUR_THOUSAND, **talk)).tokens
        assert tokens[budget.Layer.ARC] + tokens[budget.Layer.HISTORY] == history
        assert tokens[budget.Layer.TOPICS] + tokens[budget.Layer.ENTITIES] == knowledge
        assert (tokens[budget.Layer.RETRIEVAL], tokens[budget.Layer.PREFERENCES]) == (
            retrieval,
            400,
        )


def test_seed_004_dynamic_without_chunks_shares_retrieval_between_history_and_entities():
    # "No RAG available" is here: the whole conversation is in the prompt, so nothing of it is to be
    # retrieved.
    for turns, history, knowledge in (
        (3, 1_800, 1_800),  # 600 + 2,400 / 2 each
        (10, 2_000, 1_600),  # 1,200 + 1,600 / 2 and 800 + 1,600 / 2
        (11, 2_100, 1_500),  # 1,600 + 1,000 / 2 and 1,000 + 1,000 / 2
    ):
        talk = {
            **FOUR_THOUSAND,
            "message_count": turns,
            "history_tokens": history,
            "entity_count": 1,
        }
        assert check(
            budget.DynamicAllocation(), talk, 0, 0, 0, knowledge, 0, 0, history, 60
        ).fits_whole
        longer = budget.DynamicAllocation().allocate(
            situation(**{**talk, "history_tokens": history + 1})
        )
        assert (longer.fits_whole, longer.tokens[budget.Layer.RETRIEVAL] > 0) == (False, True)


def test_seed_004_prioritized_fills_in_order_until_full():
    # 4,096 - 400 (system) - 596 (query) = 3,100, in the order of the seed's budget: system,
    # history, entities, rag. Preferences 200 leave 2,900; the history holds 2,000 and leaves 900;
    # topics hold 500 and leave 400; entities hold 600 and get 400. Nothing is left for retrieval,
    # and nothing to retrieve.
    sizes = {
        "total_tokens": 4_096,
        "identity_tokens": 400,
        "preferences_tokens": 200,
        "message_tokens": 596,
    }
    topic = {"topic_count": 1, "topic_tokens": 500}
    short = {"message_count": 30, "history_tokens": 2_000, "entity_count": 1, "entity_tokens": 600}
    check(
        budget.PrioritizedAllocation(),
        {**sizes, **topic, **short},
        400,
        200,
        500,
        400,
        0,
        0,
        2_000,
        596,
    )
    # 3,100 - 200 = 2,900 for a history of 20,000. Its arc has 150 * log2(301) = 1,235, but at most
    # a fifth of 3,100.
    long = {"message_count": 300, "history_tokens": 20_000}
    check(
        budget.PrioritizedAllocation(),
        {**sizes, **topic, **long},
        400,
        200,
        0,
        0,
        620,
        0,
        2_280,
        596,
    )
