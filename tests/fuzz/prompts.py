"""Prompts of random conversations, by every way out, and what is wrong with them."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from random import Random
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain.agents.middleware.types import ModelResponse
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableLambda
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore

from langchain_ctxbudget import BudgetedChatMessageHistory, ContextPipeline
from langchain_ctxbudget.errors import BudgetTooSmallError
from langchain_ctxbudget.integrations.graph import build_context_graph
from langchain_ctxbudget.integrations.middleware import ContextBudgetMiddleware
from tests.doubles.anthropic import read_before
from tests.doubles.issued import bound_to, resigned
from tests.doubles.providers import APIS, MESSAGES, Api
from tests.fuzz.conversations import Conversation

SYSTEM_PROMPT = "You are a careful assistant."
SYSTEM_TOKENS = 600
"""In tokens: what a window leaves for the system message and the new one."""
MOST_PROBLEMS = 3
"""So many of one prompt are told."""
SETTINGS: Sequence[Mapping[str, Any]] = (
    {},
    {},
    {"cache_markers": "anthropic"},
    {"oversized_message": "clip"},
    {"keep_messages": 2},
    {"compaction_trigger": 0.3, "compaction_target": 0.2},
    {"allocation": "dynamic"},
)
"""What an application may have set."""
EMPHASES = ("recall", "balanced", "cache")
BUDGETS = (2_000, 4_000, 8_000, 16_000, 32_000, 128_000)
_WORD = re.compile(r"u\d+w\d+[^\s\"\\<>,.;:!?)\]}…]*")
USER = "ada"


@dataclass(frozen=True)
class Prompt:
    """What is sent with a budget, and the total that the report tells."""

    messages: Sequence[BaseMessage]
    api: Api
    budget: int
    total_tokens: int = 0


class Thread:
    """A conversation up to its current turn, which a model is to answer."""

    def __init__(self, api: Api, turns: Sequence[Sequence[BaseMessage]]) -> None:
        self.api = api
        self.random = Random(f"{api.name}/{len(turns)}/{turns[-1][0].id}")
        self.turns = turns
        self.history = [message for turn in turns[:-1] for message in turn]
        self.turn = self.to_be_answered(turns[-1])
        self.changes = {
            **self.random.choice(SETTINGS),
            "emphasis": self.random.choice(EMPHASES),
        }
        self.scope = {"user_id": USER, "conversation_id": "c1"}

    def to_be_answered(self, turn: Sequence[BaseMessage]) -> list[BaseMessage]:
        """A turn up to a place where a model is asked."""
        following = [*turn[1:], AIMessage("")]
        places = [
            place
            for place, message in enumerate(turn)
            if isinstance(message, HumanMessage | ToolMessage)
            and isinstance(following[place], AIMessage)
        ]
        return list(turn[: self.random.choice(places) + 1])

    @property
    def messages(self) -> list[Any]:
        return [*self.history, *self.turn]

    @property
    def config(self) -> Any:
        return {"configurable": {"thread_id": "c1", "user_id": USER}}

    def pipeline(self, budget: int) -> ContextPipeline:
        settings = {"learn": False, "max_context_tokens": budget, **self.changes}
        return ContextPipeline(
            settings, model=self.api.model, system_prompt=SYSTEM_PROMPT, store=InMemoryStore()
        )


def by_pipeline(thread: Thread, budgets: Sequence[int]) -> Iterator[Prompt]:
    """A prompt with each budget, of what is stored and the current turn."""
    pipeline = thread.pipeline(budgets[0])
    pipeline.add_messages(thread.history, **thread.scope)
    for message in thread.random.sample(thread.history, len(thread.history) // 8):
        wish = thread.random.choice(["keep", "summarize", "drop"])
        pipeline.pin(message.id or "", preservation=wish, **thread.scope)
    for budget in budgets:
        with suppress(BudgetTooSmallError):
            context = pipeline.assemble(
                thread.turn, settings={"max_context_tokens": budget}, **thread.scope
            )
            yield Prompt(context.messages, thread.api, budget, context.report.total_tokens)
    assert pipeline.get_messages(**thread.scope) == thread.history, "what is stored has changed"


def by_middleware(thread: Thread, budgets: Sequence[int]) -> Iterator[Prompt]:
    """A prompt for every turn, one after the other, so that some are extended.

    The model changes now and then.
    """
    pipeline = thread.pipeline(budgets[0])
    middleware = ContextBudgetMiddleware(pipeline, recall_tool=False)
    state: list[Any] = []
    for turn in thread.turns:
        asked = thread.to_be_answered(turn)
        api = thread.random.choice([thread.api, *APIS.values()])
        following = list(turn)
        with suppress(BudgetTooSmallError):
            prompt = _prompt_of_middleware(
                thread, pipeline, middleware, api=api, state=[*state, *asked], budget=budgets[0]
            )
            following[len(asked) :] = _answered(prompt, turn[len(asked) :])
            yield prompt
        state += following


def _answered(prompt: Prompt, following: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What follows a prompt; Claude has thought its answer behind what was sent."""
    if prompt.api is not MESSAGES or not following:
        return list(following)
    with suppress(Exception):  # a request that cannot be built is told elsewhere
        behind = read_before(prompt.api.body_of(prompt.messages))
        return [_with_signatures(following[0], partial(bound_to, behind)), *following[1:]]
    return list(following)


def _with_signatures(message: BaseMessage, sign: Callable[[str], str]) -> BaseMessage:
    """A message whose thoughts of Claude have other signatures."""
    return message.model_copy(update={"content": resigned(message.content, sign)})


def _prompt_of_middleware(
    thread: Thread,
    pipeline: ContextPipeline,
    middleware: ContextBudgetMiddleware,
    *,
    api: Api,
    state: Sequence[Any],
    budget: int,
) -> Prompt:
    sent: list[Any] = []

    def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
        sent.append(request)
        return ModelResponse(result=[AIMessage("Done.")])

    request = ModelRequest(
        model=api.model,
        messages=list(state),
        state={"messages": list(state)},
        runtime=Runtime(),
    )
    call = RunnableLambda(lambda _: middleware.wrap_model_call(request, handler))
    call.invoke(None, thread.config)
    system = [sent[0].system_message] if sent[0].system_message else []
    total = pipeline.engine.recent.last.report().total_tokens
    return Prompt([*system, *sent[0].messages], api, budget, total)


def by_graph(thread: Thread, budgets: Sequence[int]) -> Iterator[Prompt]:
    pipeline = thread.pipeline(budgets[0])
    graph = build_context_graph(pipeline)
    with suppress(BudgetTooSmallError):
        state = graph.invoke({"messages": thread.messages}, thread.config)
        total = pipeline.engine.recent.last.report().total_tokens
        yield Prompt(state["llm_input_messages"], thread.api, budgets[0], total)


def by_history(thread: Thread, budgets: Sequence[int]) -> Iterator[Prompt]:
    """A window of a chat history with each budget, behind a system message."""
    pipeline = thread.pipeline(budgets[0])
    history = BudgetedChatMessageHistory("c1", user_id=USER, pipeline=pipeline)
    # They were not sent by this history: nobody knows what Claude's thoughts are bound to.
    history.add_messages([_with_signatures(it, lambda _: "EqQB") for it in thread.messages])
    for budget in budgets:
        window = history.window(budget - SYSTEM_TOKENS)
        yield Prompt([SystemMessage(SYSTEM_PROMPT), *window], thread.api, budget)


Way = Callable[[Thread, Sequence[int]], Iterator[Prompt]]
WAYS: Mapping[str, Way] = {
    "pipeline": by_pipeline,
    "middleware": by_middleware,
    "graph": by_graph,
    "history": by_history,
}


@dataclass(frozen=True)
class Trial:
    """A conversation that is sent to an API one way, with some budgets."""

    conversation: Conversation
    api: Api
    way: str
    budgets: Sequence[int]

    def run(self) -> "Outcome":
        """Assembles all its prompts, and judges what is sent."""
        turns = self.conversation.turns()
        outcome = Outcome()
        try:
            thread = Thread(self.api, turns)
            for prompt in WAYS[self.way](thread, self.budgets):
                outcome.prompts.append(prompt)
                found = self._problems(thread, prompt)
                outcome.problems += [f"{prompt.api.name}: {problem}" for problem in found]
        except Exception as error:  # noqa: BLE001 - a prompt that fails is what is looked for
            outcome.problems.append(f"raised {type(error).__name__}: {error!s:.200}")
        return outcome

    def _problems(self, thread: Thread, prompt: Prompt) -> Iterator[str]:
        if prompt.total_tokens > prompt.budget:
            yield f"over: {prompt.total_tokens} of {prompt.budget} tokens"
        try:
            body = prompt.api.body_of(prompt.messages)
        except Exception as error:  # noqa: BLE001 - whatever a package of LangChain raises
            yield f"cannot be built: {type(error).__name__}: {error!s:.200}"
        else:
            yield from prompt.api.problems_of(body)[:MOST_PROBLEMS]
            if has_picture_as_text(body):
                yield "a picture is sent as text"
        yield from _changed_words(thread, prompt, self.way)

    def shortened(self, is_bad: Callable[["Trial"], bool]) -> "Trial":
        """The trial with as few steps as are still bad."""
        trial = self
        place = 0
        while place < len(trial.conversation.steps) > 1:
            shorter = replace(trial, conversation=trial.conversation.without(place))
            if is_bad(shorter):
                trial = shorter
            else:
                place += 1
        return trial

    def __str__(self) -> str:
        budgets = " and ".join(f"{budget:,}" for budget in self.budgets)
        return f"{self.api.name} by {self.way} with {budgets} tokens:\n{self.conversation}"


@dataclass
class Outcome:
    """The prompts of a trial, and what is wrong with them."""

    prompts: list[Prompt] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _changed_words(thread: Thread, prompt: Prompt, way: str) -> Iterator[str]:
    sent_text = _text_of(prompt.messages)
    said = set(_WORD.findall(_text_of(list(chain.from_iterable(thread.turns)))))
    strange = {word for word in _WORD.findall(sent_text) if not _is_said(word, said)}
    if strange:
        yield f"words that nobody said: {sorted(strange)[:3]}"
    if way in _WITH_NEWEST:
        for text in _newest_texts(thread.turn):
            if text not in sent_text and not _may_be_clipped(text, thread, prompt):
                yield f"the newest message is not whole: {text:.60}"


def _may_be_clipped(text: str, thread: Thread, prompt: Prompt) -> bool:
    """Whether the settings have a message clipped, and its words take half of the budget."""
    if thread.changes.get("oversized_message") != "clip":
        return False
    counter = thread.pipeline(prompt.budget).engine.target.counter
    return counter.count_text(text) > prompt.budget // 2


def _newest_texts(turn: Sequence[BaseMessage]) -> list[str]:
    """The texts of the user's last message in a turn; none in a turn without one."""
    for message in reversed(turn):
        if isinstance(message, HumanMessage):
            return _texts_of(message)
    return []


_WITH_NEWEST = ("pipeline", "graph")
"""Ways whose prompts have the newest message of the user whole. A window is cut where its budget
ends; the middleware is asked for every turn, not for the last one alone."""


_PICTURE = "iVBORw0KGgo"
"""How every PNG file begins in base64."""
_OF_MEDIA = ("data", "url", "image_url", "file_data", "result")


def has_picture_as_text(value: Any, key: str = "") -> bool:
    """Whether JSON has the bytes of a picture where a text is read."""
    if isinstance(value, str):
        return _PICTURE in value and key not in _OF_MEDIA
    if isinstance(value, list):
        return any(has_picture_as_text(inner, key) for inner in value)
    if not isinstance(value, dict):
        return False
    if "functionResponse" in value:
        return _PICTURE in str(value["functionResponse"])
    return any(has_picture_as_text(inner, name) for name, inner in value.items())


def _is_said(word: str, said: Collection[str]) -> bool:
    """Whether a word is one of those that were said, or the beginning of one, at a clip."""
    return word in said or any(whole.startswith(word) for whole in said)


def _text_of(messages: Sequence[BaseMessage]) -> str:
    texts: list[str] = []
    for message in messages:
        texts += _texts_of(message)
    return "\n".join(texts)


def _texts_of(message: BaseMessage) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    texts = []
    for block in message.content:
        if isinstance(block, str):
            texts.append(block)
        elif block.get("type") == "text":
            texts.append(block["text"])
    return texts
