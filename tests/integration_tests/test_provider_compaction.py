"""A provider's own compaction is a cut: for that provider alone, and only while it is there."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import (
    AssembledContext,
    BudgetedChatMessageHistory,
    BudgetedRetriever,
    ContextBudgetMiddleware,
    ContextPipeline,
    build_context_graph,
)
from tests.cases import few_are_quick

CLAUDE = ChatAnthropic(model="claude-opus-4-6", api_key="x")
GPT = ChatOpenAI(model="gpt-5.2", api_key="x", use_responses_api=True)
SUMMARY = {"type": "compaction", "content": "They are building a kite; the plan is green."}
ENCRYPTED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA" + "x7Q" * 200}
WRAPPED = {"type": "non_standard", "value": SUMMARY}
FAILED = {"type": "compaction", "content": None}
OWN = {"claude": (CLAUDE, SUMMARY), "wrapped": (CLAUDE, WRAPPED), "gpt": (GPT, ENCRYPTED)}
FOREIGN = {"claude": (CLAUDE, ENCRYPTED), "gpt": (GPT, SUMMARY), "failed": (CLAUDE, FAILED)}
TALK = "It hangs below the frame, and the string runs through it. " * 6
SCOPE: dict[str, Any] = {"user_id": "ada", "conversation_id": "c1"}
QUESTION = HumanMessage("Which colour?", id="q")
budgets = pytest.mark.parametrize("budget", few_are_quick([8_000, 4_000, 32_000, 128_000]))
own = pytest.mark.parametrize(("model", "block"), OWN.values(), ids=OWN)
foreign = pytest.mark.parametrize(("model", "block"), FOREIGN.values(), ids=FOREIGN)


def talk(name: str, exchanges: int = 8) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for number in range(exchanges):
        words = "about the frame and the string " * 8
        messages += [
            HumanMessage(f"{name}: question {number} {words}", id=f"{name}-h{number}"),
            AIMessage(f"{name}: answer {number} {words}", id=f"{name}-a{number}"),
        ]
    return messages


def compacted(block: dict[str, Any], id: str = "cut") -> AIMessage:  # noqa: A002 - as LangChain has it
    return AIMessage([block, {"type": "text", "text": "I go on with it."}], id=id)


def conversation(block: dict[str, Any]) -> list[BaseMessage]:
    return [*talk("early"), HumanMessage("Go on.", id="go"), compacted(block)]


def pipeline_of(
    model: Any, budget: int = 8_000, store: BaseStore | None = None, **settings: Any
) -> ContextPipeline:
    return ContextPipeline(
        {"max_context_tokens": budget, **settings}, model=model, store=store or InMemoryStore()
    )


def prompt_of(
    messages: Sequence[BaseMessage], model: Any, budget: int = 8_000, **settings: Any
) -> AssembledContext:
    pipeline = pipeline_of(model, budget, **settings)
    pipeline.add_messages(messages, **SCOPE)
    return pipeline.assemble(QUESTION, **SCOPE)


def ids(messages: Sequence[BaseMessage]) -> list[str | None]:
    return [message.id for message in messages]


def early(messages: Sequence[BaseMessage]) -> list[str | None]:
    return [message.id for message in messages if str(message.id).startswith("early")]


def states(prompt: AssembledContext) -> set[str]:
    return {part.state for part in prompt.report.coverage if part.last <= len(talk("early"))}


class TestForItsProvider:
    @budgets
    @own
    def test_what_stands_before_it_is_not_sent(
        self, model: Any, block: dict[str, Any], budget: int
    ) -> None:
        prompt = prompt_of(conversation(block), model, budget)
        assert ids(prompt.messages) == ["cut", "q"]

    @own
    def test_it_is_sent_back_as_it_is(self, model: Any, block: dict[str, Any]) -> None:
        first, _ = prompt_of(conversation(block), model).messages
        assert first.content[0] == block.get("value", block)

    def test_langchain_s_standard_content_stays(self) -> None:
        standard = compacted(WRAPPED)
        standard.response_metadata = {"output_version": "v1", "model_provider": "anthropic"}
        first, _ = prompt_of([*talk("early"), standard], CLAUDE).messages
        assert first.content[0] == WRAPPED

    @own
    def test_the_messages_before_it_are_compacted(self, model: Any, block: dict[str, Any]) -> None:
        prompt = prompt_of(conversation(block), model)
        assert states(prompt) <= {"summarized", "retrieved"}

    @own
    def test_the_report_counts_them(self, model: Any, block: dict[str, Any]) -> None:
        history = prompt_of(conversation(block), model).report.layer("L6")
        assert history.more_omitted["compacted"] == 17

    @own
    def test_what_was_said_since_is_verbatim(self, model: Any, block: dict[str, Any]) -> None:
        since = talk("since")
        prompt = prompt_of([*conversation(block), *since], model)
        assert ids(prompt.messages) == ["cut", *ids(since), "q"]

    @pytest.mark.slow
    @own
    def test_our_own_summary_stands_behind_it(self, model: Any, block: dict[str, Any]) -> None:
        since = [
            HumanMessage(f"We decided that tail {n} is {n + 3} cm long. {TALK}") for n in range(200)
        ]
        prompt = prompt_of([*conversation(block), *since], model)
        _, first, behind, *_ = prompt.messages
        assert first.id == "cut"
        assert "<conversation_summary" in str(behind.content)
        assert "early" not in str(behind.content)

    def test_the_newest_counts(self) -> None:
        newer = compacted({**SUMMARY, "content": "The plan is red."}, "newer")
        prompt = prompt_of([*conversation(SUMMARY), *talk("between"), newer], CLAUDE)
        assert ids(prompt.messages) == ["newer", "q"]

    def test_a_pinned_message_stands_behind_it(self) -> None:
        pinned = HumanMessage("Never cut the string.", id="pinned")
        pinned.additional_kwargs["ctxbudget"] = "keep"
        prompt = prompt_of([pinned, *conversation(SUMMARY)], CLAUDE)
        assert [*filter(None, ids(prompt.messages))] == ["cut", "pinned", "q"]

    def test_the_prompts_after_it_grow(self) -> None:
        pipeline = pipeline_of(CLAUDE)
        pipeline.add_messages(conversation(SUMMARY), **SCOPE)
        first = pipeline.assemble(QUESTION, **SCOPE)
        pipeline.add_messages([QUESTION, AIMessage("Green.", id="a")], **SCOPE)
        second = pipeline.assemble(HumanMessage("And the string?", id="q2"), **SCOPE)
        assert ids(second.messages)[:2] == ids(first.messages)
        assert second.report.stability.mode == "extended"

    def test_a_prompt_without_the_last_one_tells_why(self) -> None:
        pipeline = pipeline_of(CLAUDE)
        pipeline.add_messages(talk("early"), **SCOPE)
        pipeline.assemble(HumanMessage("Go on.", id="go"), **SCOPE)
        pipeline.add_messages([HumanMessage("Go on.", id="go"), compacted(SUMMARY)], **SCOPE)
        prompt = pipeline.assemble(QUESTION, **SCOPE)
        assert prompt.report.stability.cause == "compacted"

    @own
    def test_another_process_goes_on_with_it(self, model: Any, block: dict[str, Any]) -> None:
        store = InMemoryStore()
        pipeline_of(model, store=store).add_messages(conversation(block), **SCOPE)
        prompt = pipeline_of(model, store=store).assemble(QUESTION, **SCOPE)
        assert ids(prompt.messages) == ["cut", "q"]

    def test_another_process_tells_what_became_of_each_message(self) -> None:
        store = InMemoryStore()
        pipeline = pipeline_of(CLAUDE, store=store)
        pipeline.add_messages(conversation(SUMMARY), **SCOPE)
        pipeline.assemble(QUESTION, **SCOPE)
        states = pipeline_of(CLAUDE, store=store).coverage(**SCOPE)
        assert (len(states["summarized"]), states["verbatim"]) == (17, ["cut"])

    @pytest.mark.slow
    def test_it_is_found_behind_sealed_segments(self) -> None:
        store = InMemoryStore()
        pipeline = pipeline_of(CLAUDE, store=store)
        pipeline.add_messages(
            [*talk("early", 400), compacted(SUMMARY), *talk("since", 300)], **SCOPE
        )
        pipeline.assemble(QUESTION, **SCOPE)
        pipeline.flush()
        prompt = pipeline_of(CLAUDE, store=store).assemble(QUESTION, **SCOPE)
        assert next(filter(None, ids(prompt.messages))) == "cut"


class TestWithinATurn:
    def turn(self, block: dict[str, Any]) -> list[BaseMessage]:
        calls = [{"name": "look", "args": {}, "id": f"c{number}"} for number in (1, 2)]
        return [
            HumanMessage("Look at it.", id="asked"),
            AIMessage("", tool_calls=calls[:1], id="before"),
            ToolMessage("A frame.", tool_call_id="c1", id="seen"),
            AIMessage([block], tool_calls=calls[1:], id="cut"),
            ToolMessage("A string.", tool_call_id="c2", id="result"),
        ]

    @pytest.mark.slow
    @own
    def test_earlier_rounds_are_not_sent(self, model: Any, block: dict[str, Any]) -> None:
        pipeline = pipeline_of(model)
        pipeline.add_messages(talk("early"), **SCOPE)
        prompt = pipeline.assemble(self.turn(block), **SCOPE)
        assert ids(prompt.messages) == ["asked", "cut", "result"]

    def test_the_report_tells_which(self) -> None:
        prompt = pipeline_of(CLAUDE).assemble(self.turn(SUMMARY), **SCOPE)
        items = prompt.report.layer("L7").items
        assert [item.id for item in items if item.reason == "compacted"] == ["before", "seen"]

    def test_for_another_provider_they_are(self) -> None:
        prompt = pipeline_of(GPT).assemble(self.turn(SUMMARY), **SCOPE)
        assert ids(prompt.messages) == ids(self.turn(SUMMARY))


class TestUndone:
    @budgets
    @foreign
    def test_another_provider_gets_the_originals(
        self, model: Any, block: dict[str, Any], budget: int
    ) -> None:
        messages = conversation(block)
        prompt = prompt_of(messages, model, budget)
        assert ids(prompt.messages)[: len(early(messages))] == early(messages)

    @foreign
    def test_it_does_not_get_the_block(self, model: Any, block: dict[str, Any]) -> None:
        prompt = prompt_of(conversation(block), model)
        assert "'compaction'" not in str([message.content for message in prompt.messages])

    def test_it_gets_the_summary_as_text(self) -> None:
        prompt = prompt_of(conversation(SUMMARY), GPT)
        assert "the plan is green" in str(prompt.messages[-2].content)

    @foreign
    def test_the_report_tells_it(self, model: Any, block: dict[str, Any]) -> None:
        prompt = prompt_of(conversation(block), model)
        kinds = {repair.kind for repair in prompt.report.repairs}
        assert "compaction" in kinds

    def test_the_thread_goes_to_and_fro(self) -> None:
        store = InMemoryStore()
        pipelines = [pipeline_of(model, store=store) for model in (CLAUDE, GPT, CLAUDE)]
        pipelines[0].add_messages(conversation(SUMMARY), **SCOPE)
        sent = [len(pipeline.assemble(QUESTION, **SCOPE).messages) for pipeline in pipelines]
        assert sent == [2, 19, 2]

    def test_a_removed_block_brings_them_back(self) -> None:
        pipeline = pipeline_of(CLAUDE)
        pipeline.add_messages(conversation(SUMMARY), **SCOPE)
        pipeline.remove_messages("cut", **SCOPE)
        prompt = pipeline.assemble(QUESTION, **SCOPE)
        assert len(early(prompt.messages)) == 16

    @pytest.mark.parametrize("preservation", ["drop", "summarize"])
    def test_so_does_one_that_is_not_sent_whole(self, preservation: Any) -> None:
        pipeline = pipeline_of(CLAUDE)
        pipeline.add_messages(conversation(SUMMARY), **SCOPE)
        pipeline.pin("cut", preservation=preservation, **SCOPE)
        prompt = pipeline.assemble(QUESTION, **SCOPE)
        assert len(early(prompt.messages)) == 16

    def test_so_does_one_that_takes_too_much_room(self) -> None:
        large = {**SUMMARY, "content": "The plan is green. " * 900}
        prompt = prompt_of([*talk("early", 2), compacted(large)], CLAUDE, 4_000)
        assert "'compaction'" not in str([message.content for message in prompt.messages])
        assert len(early(prompt.messages)) == 4

    def test_the_stored_messages_stay(self) -> None:
        pipeline = pipeline_of(CLAUDE)
        messages = conversation(SUMMARY)
        pipeline.add_messages(messages, **SCOPE)
        pipeline.assemble(QUESTION, **SCOPE)
        stored = pipeline.get_messages(**SCOPE)
        assert [message.content for message in stored] == [message.content for message in messages]


class TestItsWords:
    def test_are_found(self) -> None:
        pipeline = pipeline_of(CLAUDE)
        pipeline.add_messages([*conversation(SUMMARY), *talk("since")], **SCOPE)
        found = BudgetedRetriever(pipeline=pipeline, **SCOPE).invoke("Is the plan green?")
        assert "the plan is green" in found[0].page_content

    def test_a_window_begins_with_it(self) -> None:
        history = BudgetedChatMessageHistory("c1", pipeline=pipeline_of(CLAUDE), user_id="ada")
        history.add_messages(conversation(SUMMARY))
        assert ids(history.window(4_000)) == ["cut"]

    def test_an_agent_sends_it_first(self) -> None:
        from langchain.agents import create_agent  # noqa: PLC0415 - takes a second

        from tests.scripted_models import Calling  # noqa: PLC0415

        class Claude(Calling):
            def _get_ls_params(self, *args: Any, **kwargs: Any) -> Any:
                return {"ls_provider": "anthropic"}

        model = Claude(script=["Green."], model_name="claude-opus-4-6")
        middleware = ContextBudgetMiddleware({"max_context_tokens": 8_000})
        agent = create_agent(model, middleware=[middleware])
        config: Any = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
        agent.invoke({"messages": [*conversation(SUMMARY), QUESTION]}, config)
        assert ids(model.asked[0]) == ["cut", "q"]

    def test_a_graph_sends_it_first(self) -> None:
        graph = build_context_graph(pipeline_of(CLAUDE))
        config: Any = {"configurable": {"thread_id": "t1", "user_id": "ada"}}
        state = graph.invoke({"messages": [*conversation(SUMMARY), QUESTION]}, config)
        assert ids(state["llm_input_messages"]) == ["cut", "q"]
