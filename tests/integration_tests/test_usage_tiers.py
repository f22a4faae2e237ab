"""What becomes of a prompt when little of a usage limit is left (seed 003)."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.base import BaseStore, GetOp, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import AssembledContext, ContextPipeline, KnowledgeBase, TiktokenCounter
from langchain_ctxbudget.core.layers import Layer, Reason, Status
from langchain_ctxbudget.core.tiers import TIERS, UsageLimits
from langchain_ctxbudget.stores.saved_settings import place
from tests.integration_tests.conftest import Call

USER = "ada"
SCOPE = {"user_id": USER, "conversation_id": "c1"}
ALLOWED = 1_000_000
LEFT = {"healthy": 0.9, "caution": 0.7, "warning": 0.5, "critical": 0.1}
HISTORY = [
    message
    for number in range(40)
    for message in (
        HumanMessage(f"What does zebra {number} eat in the morning, and where does it sleep at night?"),
        AIMessage(f"Zebra {number} eats grass of meadow {number} and sleeps beside rock {number}. " * 4),
    )
]
TOPICS = [{"label": f"Zebra {n}", "context": f"Zebra {n} came from Kenya in {2000 + n}."} for n in range(8)]
ENTITIES = [{"name": f"Keeper{n}", "type": "person", "context": f"Looks after meadow {n}."} for n in range(4)]
QUESTION = "Which meadow do Zebra 1, Zebra 2 and Zebra 3 share, and do Keeper1, Keeper2 and Keeper3 know the manual?"


def pipeline(store: BaseStore | None = None, **settings: Any) -> ContextPipeline:
    about = {"learn": False, "max_context_tokens": 4_000, "usage_limits": {"month_tokens": ALLOWED}}
    return ContextPipeline({**about, **settings}, store=store or InMemoryStore())


def spend(it: ContextPipeline, call: Call, left: float, **scope: str) -> None:
    tokens = round((1 - left) * ALLOWED)
    usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    call(it.usage, "record", usage, **(scope or SCOPE))


@pytest.fixture(params=list(LEFT))
def tier(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def assembled(call: Call, left: float, messages: list[BaseMessage] | None = None, **settings: Any) -> AssembledContext:
    it = pipeline(**settings)
    call(it, "add_messages", HISTORY if messages is None else messages, **SCOPE)
    spend(it, call, left)
    context: AssembledContext = call(it, "assemble", QUESTION, **SCOPE)
    assert context.report.failures == ()
    return context


def verbatim_of_history(context: AssembledContext) -> list[str]:
    known = {message.text for message in HISTORY}
    return [message.text for message in context.messages if message.text in known]


def test_the_report_tells_the_tier_and_what_is_left(call: Call, tier: str) -> None:
    usage = assembled(call, LEFT[tier]).report.usage
    assert usage is not None
    assert (usage.tier, usage.limit, usage.allowed) == (tier, "month_tokens", ALLOWED)
    assert usage.left == pytest.approx(LEFT[tier])
    assert usage.used == round((1 - LEFT[tier]) * ALLOWED)


def test_no_more_messages_are_verbatim_than_the_tier_lets_in(call: Call, tier: str) -> None:
    most = next(one.history_messages for one in TIERS if one.name == tier)
    shown = verbatim_of_history(assembled(call, LEFT[tier]))
    assert shown[-2:] == [message.text for message in HISTORY[-2:]], "the last exchange always stays"
    if most is not None:
        assert len(shown) <= max(most, 2)


def test_a_short_history_that_would_go_in_whole_is_limited_too(call: Call, tier: str) -> None:
    context = assembled(call, LEFT[tier], HISTORY[:12], max_context_tokens=12_000)
    most = next(one.history_messages for one in TIERS if one.name == tier)
    assert context.report.coverage_counts()["verbatim"] == (12 if most is None else 2)


def test_turn_after_turn_no_more_are_verbatim_and_every_message_is_accounted_for(call: Call, tier: str) -> None:
    it = pipeline()
    spend(it, call, LEFT[tier])
    most = next(one.history_messages for one in TIERS if one.name == tier)
    for number in range(0, 24, 2):
        call(it, "add_messages", HISTORY[number : number + 2], **SCOPE)
        report = call(it, "assemble", "And now?", **SCOPE).report
        counts = report.coverage_counts()
        assert sum(counts.values()) == number + 2
        assert most is None or counts["verbatim"] <= max(most, 2)


def test_in_caution_not_every_turn_is_a_compaction_step(call: Call) -> None:
    it = pipeline()
    spend(it, call, LEFT["caution"])
    steps = []
    for number in range(0, 24, 2):
        call(it, "add_messages", HISTORY[number : number + 2], **SCOPE)
        steps.append(call(it, "assemble", "And now?", **SCOPE).report.stability.compaction_step)
    assert sum(steps) <= len(steps) / 2


def test_the_budget_is_the_share_of_the_tier_and_it_fits(call: Call, tier: str) -> None:
    share = next(one.budget_share for one in TIERS if one.name == tier)
    context = assembled(call, LEFT[tier])
    assert context.report.budget_tokens == 4_000 * share
    assert TiktokenCounter().count_messages(context.messages) == context.report.total_tokens <= 4_000 * share


def test_what_must_be_sent_is_never_refused_for_want_of_usage(call: Call, tier: str) -> None:
    it = pipeline(max_context_tokens=1_000)
    spend(it, call, LEFT[tier])
    question = "Please tell me everything about all zebras, one after the other. " * 60
    context = call(it, "assemble", question, **SCOPE)
    assert context.messages[-1].content == question


def test_a_tier_refuses_no_step_of_a_loop_that_the_whole_budget_has_room_for(call: Call, tier: str) -> None:
    it = pipeline(max_context_tokens=400)
    spend(it, call, LEFT[tier])
    turn: list[BaseMessage] = [HumanMessage("Look at all zebras.", id="q")]
    for step in range(4):
        names = [f"t{step}-{number}" for number in range(2 + step)]
        calls = [{"name": "look", "args": {"at": "meadow"}, "id": name, "type": "tool_call"} for name in names]
        turn += [AIMessage("", tool_calls=calls, id=f"a{step}")]
        turn += [ToolMessage("Meadow 7. " * 20, tool_call_id=name, id=name) for name in names]
        context = call(it, "assemble", turn, tools=[LOOK], **SCOPE)
        assert TiktokenCounter().count_messages(context.messages) <= context.report.total_tokens <= 400


def test_a_tier_refuses_no_system_prompt_that_the_whole_budget_has_room_for(call: Call, tier: str) -> None:
    settings = {"learn": False, "max_context_tokens": 4_000, "allocation": "ratio"}  # it refuses 25 % and more
    limited = {**settings, "usage_limits": {"month_tokens": ALLOWED}}
    share = min(0.5, next(one.budget_share for one in TIERS if one.name == tier))
    prompt = "Zebras are calm. " * int(4_000 * share * 0.35 / TiktokenCounter().count_text(" Zebras are calm."))
    it = ContextPipeline(limited, system_prompt=prompt, store=InMemoryStore())
    spend(it, call, LEFT[tier])
    assert call(it, "assemble", "Hello", **SCOPE).messages[0].text == it.engine.system_prompt


def test_what_a_provider_adds_to_every_request_is_among_what_must_be_sent(call: Call) -> None:
    it = ContextPipeline(
        {"max_context_tokens": 4_000, "usage_limits": {"session_tokens": 1_000}}, model="gpt-4o", store=InMemoryStore()
    )
    first = call(it, "assemble", "Hello", **SCOPE)
    it.observe_usage({"input_tokens": 500, "output_tokens": 300, "total_tokens": 800}, report=first.report)
    second = call(it, "assemble", "Hello again", **SCOPE).report
    assert second.usage.tier == "critical"
    assert second.total_tokens <= second.budget_tokens


def test_where_the_share_is_too_small_the_next_larger_one_counts_so_that_less_left_is_never_more_sent(
    call: Call,
) -> None:
    it = ContextPipeline(
        {"max_context_tokens": 4_000, "usage_limits": {"month_tokens": ALLOWED}},
        system_prompt="You know all zebras of the park by name. " * 30,
        store=InMemoryStore(),
    )
    budgets = []
    for name, left in LEFT.items():
        scope = {"user_id": USER, "conversation_id": name}
        spend(it, call, left, **scope)
        limits = {"usage_limits": {"session_tokens": ALLOWED}}
        budgets.append(call(it, "assemble", "Hello", settings=limits, **scope).report.budget_tokens)
    assert budgets == [4_000, 2_000, 1_000, 1_000]


@pytest.mark.parametrize("messages", [6, 12, 20])
def test_no_tier_sends_more_than_the_one_before(call: Call, messages: int) -> None:
    settings = {"max_context_tokens": 12_000}
    sent = [assembled(call, left, HISTORY[:messages], **settings).report.total_tokens for left in LEFT.values()]
    assert sent == sorted(sent, reverse=True)


def test_the_words_of_the_user_and_the_system_prompt_stay(call: Call, tier: str) -> None:
    it = ContextPipeline(
        {"usage_limits": {"session_tokens": ALLOWED}, "max_context_tokens": 2_000, "preferences": ["Rhyme."]},
        system_prompt="You know zebras.",
        store=InMemoryStore(),
    )
    spend(it, call, LEFT[tier])
    messages = call(it, "assemble", "Which one?", **SCOPE).messages
    assert messages[0].text.startswith("You know zebras.")
    assert "Rhyme." in messages[0].text
    assert messages[-1].content == "Which one?"


def test_topics_entities_and_facts_together_are_no_more_than_the_tier_lets_in(call: Call, tier: str) -> None:
    most = next(one.knowledge_items for one in TIERS if one.name == tier)
    it = pipeline(topics=TOPICS, entities=ENTITIES)
    for number in range(5):
        call(it.knowledge, "add_fact", f"Owns farm number {number}", category="project", user_id=USER)
    spend(it, call, LEFT[tier])
    report = call(it, "assemble", QUESTION, **SCOPE).report
    layers = [report.layer(layer) for layer in (Layer.PREFERENCES, Layer.TOPICS, Layer.ENTITIES)]
    shown = [item for layer in layers for item in layer.items if item.status is not Status.OMITTED]
    memories = [item for item in report.layer(Layer.RETRIEVAL).items if item.source == "memories"]
    memories = [item for item in memories if item.status is not Status.OMITTED]
    if most is None:
        assert len(shown) > 5
        return
    assert 0 < len(shown) <= most
    assert memories == []
    left_out = [item for layer in layers for item in layer.items if item.reason is Reason.USAGE_LIMIT]
    assert left_out, "what the limit leaves out says so"


DOCUMENT = Document(
    "Meadow manual. " + "Every meadow is shared by zebras in spring. " * 60,
    metadata={"source": "manual.md", "title": "Meadow manual"},
)


@pytest.mark.parametrize(
    ("tier", "statuses"),
    [
        ("healthy", {Status.INCLUDED}),
        ("caution", {Status.INCLUDED}),
        ("warning", {Status.SHRUNK}),
        ("critical", set()),
    ],
    indirect=["tier"],
)
def test_documents_come_whole_as_summaries_or_not_at_all(call: Call, tier: str, statuses: set[Status]) -> None:
    store = InMemoryStore()
    call(KnowledgeBase(store, user_id=USER), "add", [DOCUMENT])
    it = pipeline(store, max_context_tokens=8_000)
    spend(it, call, LEFT[tier])
    report = call(it, "assemble", "What does manual.md say of a meadow in spring?", **SCOPE).report
    found = [item for item in report.layer(Layer.RETRIEVAL).items if item.source == "documents"]
    assert {item.status for item in found if item.status is not Status.OMITTED} == statuses


@pytest.mark.parametrize("forced", ["knowledge", "documents", "history", "budget"])
def test_what_is_forced_is_let_in_however_little_is_left(call: Call, forced: str) -> None:
    store = InMemoryStore()
    call(KnowledgeBase(store, user_id=USER), "add", [DOCUMENT])
    it = pipeline(store, topics=TOPICS, entities=ENTITIES, max_context_tokens=16_000)
    call(it, "add_messages", HISTORY, **SCOPE)
    spend(it, call, LEFT["critical"])
    question = f"{QUESTION} See manual.md."
    report = call(it, "assemble", question, settings={"force_include": [forced]}, **SCOPE).report
    shown = {
        "knowledge": len(report.layer(Layer.TOPICS).items) > 1,
        "documents": any(item.source == "documents" for item in report.layer(Layer.RETRIEVAL).items),
        "history": report.coverage_counts()["verbatim"] > 2,
        "budget": report.budget_tokens == 16_000,
    }
    limited = {
        "knowledge": not any(item.reason is Reason.USAGE_LIMIT for item in report.layer(Layer.TOPICS).items),
        "documents": shown["documents"],
        "history": shown["history"],
        "budget": shown["budget"],
    }
    assert limited == {name: name == forced for name in limited}
    assert report.usage is not None
    assert report.usage.forced == (forced,)


def test_the_most_restrictive_of_session_and_month_counts(call: Call) -> None:
    it = pipeline(usage_limits={"month_tokens": ALLOWED, "session_tokens": ALLOWED // 2})
    spend(it, call, 0.7)
    here = call(it, "assemble", "Hello", **SCOPE).report.usage
    assert (here.limit, here.tier) == ("session_tokens", "warning")
    there = call(it, "assemble", "Hello", user_id=USER, conversation_id="c2").report.usage
    assert (there.limit, there.tier) == ("month_tokens", "caution"), "the month is that of all conversations"


def test_another_user_has_a_month_of_their_own(call: Call) -> None:
    it = pipeline()
    spend(it, call, 0.1)
    usage = call(it, "assemble", "Hello", user_id="bob", conversation_id="c1").report.usage
    assert (usage.tier, usage.used) == ("healthy", 0)


def test_cost_is_a_limit_too_and_models_without_a_price_cost_nothing(call: Call) -> None:
    it = ContextPipeline(
        {"usage_limits": {"session_cost": 10.0}, "learn": False},
        store=InMemoryStore(),
        prices={"mine": {"input": 5.0, "output": 10.0}},
    )
    usage = {"input_tokens": 1_000_000, "output_tokens": 0, "total_tokens": 1_000_000}
    call(it.usage, "record", usage, model="mine", **SCOPE)
    call(it.usage, "record", usage, model="nobody knows it", **SCOPE)
    state = call(it, "assemble", "Hello", **SCOPE).report.usage
    assert (state.used, state.left, state.tier) == (5.0, 0.5, "warning")
    assert call(it.usage, "of_session", **SCOPE).unpriced_calls == 1


def test_a_saved_limit_of_the_user_counts(call: Call) -> None:
    it = ContextPipeline({"learn": False}, store=InMemoryStore())
    call(it, "save_settings", {"usage_limits": {"month_tokens": ALLOWED}}, user_id=USER)
    spend(it, call, 0.1)
    assert call(it, "assemble", "Hello", **SCOPE).report.usage.tier == "critical"


def test_saved_settings_that_cannot_be_used_say_nothing_of_the_standing(call: Call) -> None:
    it = pipeline(store := InMemoryStore())
    at = place(USER, None)
    store.put(at.namespace, at.key, {"a_setting_of_a_later_version": 5})
    spend(it, call, 0.7)
    assert call(it.usage, "standing", **SCOPE).left == call(it, "assemble", "Hello", **SCOPE).report.usage.left == 0.7


def test_what_answers_report_is_counted_by_observing_it(call: Call) -> None:
    it = pipeline()
    context = call(it, "assemble", "Hello", **SCOPE)
    tokens = context.report.total_tokens
    it.observe_usage({"input_tokens": tokens, "output_tokens": 7, "total_tokens": tokens + 7}, report=context.report)
    assert call(it.usage, "of_session", **SCOPE).total_tokens == tokens + 7
    assert call(it.usage, "of_month", user_id=USER).total_tokens == tokens + 7


def test_another_process_sees_what_was_used(store: BaseStore, call: Call) -> None:
    first, second = pipeline(store), pipeline(store)
    spend(first, call, 0.9)
    spend(second, call, 0.8)
    for it in (first, second, pipeline(store)):
        state = call(it, "assemble", "Hello", **SCOPE).report.usage
        assert state.used == 300_000
        assert call(it.usage, "standing", **SCOPE).left == pytest.approx(0.7)


def test_a_forecast_is_of_the_same_tier(call: Call) -> None:
    context = assembled(call, LEFT["warning"])
    forecast = context.report.reallocate(2_000)
    assert forecast.usage == context.report.usage
    assert forecast.budget_tokens == 500


LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def test_a_loop_of_tools_keeps_its_prefix_in_every_tier(call: Call, tier: str) -> None:
    it = pipeline()
    call(it, "add_messages", HISTORY, **SCOPE)
    spend(it, call, LEFT[tier])
    turn: list[BaseMessage] = [HumanMessage(QUESTION, id="q")]
    first = call(it, "assemble", turn, tools=[LOOK], **SCOPE)
    calls = [{"name": "look", "args": {}, "id": "t1", "type": "tool_call"}]
    turn += [AIMessage("", tool_calls=calls, id="a"), ToolMessage("Meadow 7.", tool_call_id="t1", id="t")]
    second = call(it, "assemble", turn, tools=[LOOK], **SCOPE)
    assert [m.content for m in second.messages[: len(first.messages)]] == [m.content for m in first.messages]


class Broken(InMemoryStore):
    """Cannot read usage."""

    def batch(self, ops: Any) -> Any:
        listed = list(ops)
        for op in listed:
            place = op.namespace if isinstance(op, GetOp) else getattr(op, "namespace_prefix", ())
            if isinstance(op, SearchOp) and {"usage", "spent"} & set(place):
                raise OSError("the disk is gone")
        return super().batch(listed)

    async def abatch(self, ops: Any) -> Any:
        return self.batch(ops)


def test_where_usage_cannot_be_read_the_turn_goes_on_with_what_this_process_counted(call: Call) -> None:
    it = pipeline(Broken())
    spend(it, call, 0.1)
    report = call(it, "assemble", "Hello", **SCOPE).report
    assert report.usage is not None
    assert report.usage.tier == "critical"
    assert any("usage not read: OSError: the disk is gone" in failure for failure in report.failures)


def test_without_limits_no_usage_is_read(call: Call) -> None:
    class Watched(InMemoryStore):
        def batch(self, ops: Any) -> Any:
            listed = list(ops)
            assert not any("spent" in getattr(op, "namespace_prefix", ()) for op in listed)
            return super().batch(listed)

        async def abatch(self, ops: Any) -> Any:
            return self.batch(ops)

    it = ContextPipeline({"learn": False}, store=Watched())
    assert call(it, "assemble", "Hello", **SCOPE).report.usage is None


def test_limits_can_be_given_as_an_object(call: Call) -> None:
    it = pipeline(usage_limits=UsageLimits(month_tokens=ALLOWED, thresholds=(0.99, 0.5, 0.2)))
    spend(it, call, 0.9)
    assert call(it, "assemble", "Hello", **SCOPE).report.usage.tier == "caution"
