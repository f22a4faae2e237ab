"""Makes the figure and the table of the README.

Old facts found, and what prompts cost, by four ways to fit a window.

The bundled conversation (278 messages, 139 turns) goes through each of them, turn by turn; a prompt
is made before every answer. Then 28 questions are asked about what was said in its first weeks,
each by itself, and a fact counts as found where its words stand in the prompt. No model is called,
no network is used: for `SummarizationMiddleware`, which needs a model, this package's own choice of
the most important sentences stands in, in 600 tokens.

    python benchmarks/readme_figure.py [--plot docs/figures/peers.svg] [--json] python
    benchmarks/readme_figure.py --conversation conversations.json --title "Trip to Japan"
    --questions facts.json

The second one takes a conversation of yours (OpenAI or LangChain messages, an export of ChatGPT or
Claude), and questions as an object of lists: `{"Which hotel did we take?": ["Sakura Inn"]}`.
Without them only costs are compared.

Columns:
    found      questions whose facts stand in the prompt
    calls      calls of a model besides those that answer the user
    tokens     mean tokens of a prompt
    cached     share of them that the prompt before had, too, from its start, %
    effective  mean tokens of a turn that are paid for: a cached one counts a tenth, as for GPT-5, and what summaries read counts
    state      messages that are left
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol, cast

from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import SimpleChatModel
from langchain_core.messages import (
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    trim_messages,
)
from langgraph.runtime import Runtime

from langchain_ctxbudget import ContextPipeline, TiktokenCounter
from langchain_ctxbudget.demo import DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.history import Line, choose, keep_sentences
from langchain_ctxbudget.messages import split_instructions
from langchain_ctxbudget.providers import OPENAI
from langchain_ctxbudget.readers import pick_conversation, read_conversations
from langchain_ctxbudget.replay import split_turns

BUDGETS = (1_000, 2_000, 4_000, 8_000)
SUMMARY_TOKENS = 600
QUESTIONS = {
    "Which supplier did we pick for the tool labels?": ["Etch & Field"],
    "What do we pay for one tool label?": ["38p"],
    "What would the hosted lending software have cost?": ["£79 a month"],
    "Where did the volunteer who kept the spreadsheet move to?": ["Portugal"],
    "What does the server in Manchester cost a month?": ["£6.50"],
    "What was the last volunteer database, and when did it go to the tip?": ["Access file", "2021"],
    "How many rows did the old spreadsheet have?": ["687 rows"],
    "Since when does R. Dunne have nine tools?": ["March 2019"],
    "How many reservations may a member have at a time?": ["two reservations per member"],
    "Which late fee did I want to propose to the board?": ["£1 a day per tool"],
    "How many loans came back late in July?": ["214 loans, 61 late"],
    "How many members have a concession?": ["156 of 412"],
    "What did the board decide in place of late fees?": ["suspension after 14 days"],
    "When is the quiet hour?": ["Wednesday at four"],
    "At what time do reminder mails go out?": ["nine in the morning"],
    "What does the handheld scanner cost?": ["£32"],
    "What does the Raspberry Pi for the kiosk cost in all?": ["£120"],
    "Why was Tomasz against the tablet?": ["swells"],
    "How do members sign in at the kiosk?": ["four-digit PIN"],
    "Why did reminders go out on the wrong day?": ["23:15 UTC"],
    "When was the library closed over Christmas in the last years?": ["21 December to 4 January"],
    "When is the final report for the council due?": ["11 December"],
    "What does the accessibility review cost?": ["£900"],
    "When are members who leave deleted?": ["Deleted within 30 days"],
    "Which database did we choose, and in what mode?": ["SQLite", "WAL"],
    "How many mails a month are free at the mail service?": ["3,000"],
    "What happened to the internet in May?": ["drilled through the cable"],
    "Who moved to Leeds?": ["Rosalind Dunne"],
}
COUNTER = TiktokenCounter()
PRICE_SHARE = OPENAI.cache_terms_for("gpt-5").read_price
"""Of a cached token, at OpenAI for GPT-5, where a new one costs no more for being cached. That it
caches in steps of 128 tokens, and nothing below 1,024, is left out."""
SCOPE: Any = {"user_id": "maya", "conversation_id": "tool-library"}
COLUMNS = (
    "",
    "budget",
    "old facts found",
    "extra model calls",
    "tokens sent",
    "cached",
    "paid for",
    "messages kept",
)
TITLE = "Old facts that stand in the prompt, over what a turn costs"
SMALLEST_SHOWN = 2_000
CHEAPEST = 400
DEAREST = 3_200
"""Of the figure: budgets below are in the table only; where its axis begins and ends."""
STYLES = {
    "trim_messages": ("#b45309", 0, -12, "middle"),
    "SummarizationMiddleware": ("#7c3aed", 14, 4, "start"),
    "whole conversation": ("#475569", 12, 5, "start"),
    "ctxbudget": ("#0f766e", -40, -14, "middle"),
}
"""A colour, and where the name stands beside the last point."""


@dataclass(frozen=True)
class Talk:
    """What every way is given."""

    messages: Sequence[BaseMessage]
    system_prompt: str
    questions: Mapping[str, Sequence[str]]


class System(Protocol):
    """A way to make prompts, turn by turn."""

    def prompt(self, turn: Sequence[BaseMessage]) -> Sequence[BaseMessage]: ...
    def keep(self, turn: Sequence[BaseMessage]) -> None: ...


class Budgeted:
    """This package, while the provider's cache is warm."""

    def __init__(self, budget: int, system_prompt: str) -> None:
        settings = {"max_context_tokens": budget, "cache_lifetime_seconds": 1e9, "learn": False}
        self.pipeline = ContextPipeline(settings, system_prompt=system_prompt)

    def prompt(self, turn: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        return self.pipeline.assemble(turn, **SCOPE).messages

    def keep(self, turn: Sequence[BaseMessage]) -> None:
        self.pipeline.add_messages(turn, **SCOPE)


class Window:
    """The newest messages that fit, by `trim_messages`; or all of them."""

    def __init__(self, budget: int | None, system_prompt: str) -> None:
        self.budget = budget
        self.history: list[BaseMessage] = [SystemMessage(system_prompt)]

    def prompt(self, turn: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        messages = [*self.history, *turn]
        if self.budget is None:
            return messages
        return trim_messages(
            messages,
            max_tokens=self.budget,
            token_counter=COUNTER.count_messages,
            strategy="last",
            start_on="human",
            include_system=True,
        )

    def keep(self, turn: Sequence[BaseMessage]) -> None:
        self.history += turn


class StandIn(SimpleChatModel):
    """Sums up as a careful model might.

    The most important sentences of all that it is given, in 600 tokens.
    """

    calls: int = 0
    tokens: int = 0

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def _call(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - as the base class has it
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **_: Any,  # noqa: ANN401
    ) -> str:
        self.calls += 1
        self.tokens += COUNTER.count_messages(messages)
        given = messages[-1].text.partition("Messages to summarize:")[2]
        said = re.findall(r'<message type="(\w+)">(.*?)</message>', given, re.DOTALL)
        lines = [
            Line(place, "user" if kind == "human" else kind, "", text, from_user=kind == "human")
            for place, (kind, text) in enumerate(said)
        ]
        return "\n".join(fitting(lines))


def fitting(lines: Sequence[Line]) -> list[str]:
    """The most important sentences, in the order in which they were said."""
    sentences = keep_sentences(lines, 10_000)
    texts = [sentence.text for sentence in sentences]
    return [
        texts[place]
        for place in choose(sentences, [COUNTER.count_text(it) + 1 for it in texts], SUMMARY_TOKENS)
    ]


class Summarized:
    """LangChain's `SummarizationMiddleware`.

    As documented, with exact counts, and it reads all that it deletes.
    """

    def __init__(self, budget: int, system_prompt: str) -> None:
        self.model = StandIn()
        self.system = SystemMessage(system_prompt)
        self.history: list[BaseMessage] = []
        self.middleware: Any = SummarizationMiddleware(
            self.model,
            trigger=("tokens", budget - COUNTER.count_text(system_prompt) - 8),
            keep=("tokens", budget // 3),
            token_counter=lambda messages: COUNTER.count_messages(
                list(cast("Sequence[BaseMessage]", messages))
            ),
            trim_tokens_to_summarize=None,
        )

    def prompt(self, turn: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        state = [*self.history, *turn]
        update = self.middleware.before_model({"messages": state}, Runtime())
        if update:
            state = [
                message for message in update["messages"] if not isinstance(message, RemoveMessage)
            ]
            self.history = state[: -len(turn)] if state[-1] is turn[-1] else state
        return [self.system, *state]

    def keep(self, turn: Sequence[BaseMessage]) -> None:
        self.history += turn


@dataclass
class Row:
    """What one way found, and what it cost."""

    system: str
    budget: int | None
    found: int
    calls: int
    tokens: int
    cached: float
    effective: int
    state: int


def systems(prompt: str) -> Iterator[tuple[str, int | None, System]]:
    yield from (("ctxbudget", budget, Budgeted(budget, prompt)) for budget in BUDGETS)
    yield from (("trim_messages", budget, Window(budget, prompt)) for budget in BUDGETS)
    yield from (
        ("SummarizationMiddleware", budget, Summarized(budget, prompt)) for budget in BUDGETS
    )
    yield "whole conversation", None, Window(None, prompt)


def row(talk: Talk, name: str, budget: int | None, system: System) -> Row:
    before: Sequence[BaseMessage] = ()
    sent = cached = 0
    turns = split_turns(talk.messages)
    for turn in turns:
        prompt = system.prompt(turn[:1])
        sent += COUNTER.count_messages(prompt)
        cached += shared(prompt, before)
        before = prompt
        system.keep(turn)
    calls, read = (
        (system.model.calls, system.model.tokens) if isinstance(system, Summarized) else (0, 0)
    )
    return Row(
        name,
        budget,
        found=sum(found(system, question, facts) for question, facts in talk.questions.items()),
        calls=calls,
        tokens=round(sent / len(turns)),
        cached=round(100 * cached / sent, 1),
        effective=round((sent - cached + PRICE_SHARE * cached + read) / len(turns)),
        state=len(system.history) if isinstance(system, Summarized) else len(talk.messages),
    )


def shared(prompt: Sequence[BaseMessage], before: Sequence[BaseMessage]) -> int:
    """Tokens of the messages that two prompts begin with alike, and of the beginning of the first that differs."""
    alike = list(
        takewhile(
            lambda pair: pair[0].content == pair[1].content, zip(prompt, before, strict=False)
        )
    )
    tokens = sum(COUNTER.count_message(message) for message, _ in alike)
    differ = zip(
        *(messages[len(alike)].text for messages in (prompt, before) if len(messages) > len(alike)),
        strict=False,
    )
    begins = "".join(pair[0] for pair in takewhile(lambda pair: len(set(pair)) < len(pair), differ))
    return tokens + COUNTER.count_text(begins)


def found(system: System, question: str, facts: Sequence[str]) -> bool:
    """Whether all that answers a question stands in its prompt; the system is left as it was."""
    history = list(system.history) if isinstance(system, Summarized) else []
    text = "\n".join(message.text for message in system.prompt([HumanMessage(question)]))
    if isinstance(system, Summarized):
        system.history = history
    return all(fact in text for fact in facts)


def markdown(rows: Sequence[Row], questions: int) -> str:
    lines = [
        f"|{' | '.join(COLUMNS)} |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in rows:
        budget = f"{one.budget:,}" if one.budget else "-"
        name = (
            f"`{one.system}`"
            if one.system in ("trim_messages", "SummarizationMiddleware")
            else one.system
        )
        lines.append(
            f"| {name} | {budget} | {one.found} of {questions} | {one.calls} | {one.tokens:,} "
            f"| {one.cached:.0f} % | {one.effective:,} | {one.state} |"
        )
    return "\n".join(lines)


def picture(rows: Sequence[Row], questions: int) -> str:
    """Facts found over what is paid for, as an SVG."""

    def x(tokens: float) -> float:
        return 70 + 560 * math.log(tokens / CHEAPEST) / math.log(DEAREST / CHEAPEST)

    def y(found: float) -> float:
        return 262 - 206 * found / max(1, questions)

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 320">',
        '<g font-family="system-ui, sans-serif" font-size="13" fill="#334155">',
        '<rect width="720" height="320" rx="8" fill="#ffffff"/>',
        f'<text x="16" y="24" font-size="15" font-weight="600" fill="#0f172a">{TITLE}</text>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = y(share * max(1, questions))
        parts += [
            f'<path d="M70 {at:.0f}H630" stroke="#e2e8f0"/>',
            f'<text x="60" y="{at + 4:.0f}" text-anchor="end">{share:.0%}</text>',
        ]
    parts += [
        f'<text x="{x(tokens):.0f}" y="294" text-anchor="middle">{tokens:,}</text>'
        for tokens in (500, 1_000, 2_000, 3_000)
    ]
    parts.append(
        '<text x="350" y="313" text-anchor="middle">tokens paid for a turn (a cached one counts a tenth)</text>'
    )
    shown = [one for one in rows if one.budget is None or one.budget >= SMALLEST_SHOWN]
    for name, (colour, dx, dy, anchor) in STYLES.items():
        points = [
            (x(one.effective), y(one.found), one.budget) for one in shown if one.system == name
        ]
        line = " ".join(f"{left:.1f},{top:.1f}" for left, top, _ in points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>'
        )
        for left, top, budget in points:
            parts.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="5" fill="{colour}"/>')
            if budget:
                size = f"{budget // 1_000}K"
                under = -11 if budget == SMALLEST_SHOWN else 20
                place = f'x="{left:.1f}" y="{top + under:.1f}"'
                parts.append(f'<text {place} text-anchor="middle" font-size="11">{size}</text>')
        left, top, _ = points[-1]
        parts.append(
            f'<text x="{left + dx:.1f}" y="{top + dy:.1f}" text-anchor="{anchor}" font-weight="600" fill="{colour}">'
            f"{name}</text>"
        )
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--conversation", type=Path, help="a file of yours (default: the bundled conversation)"
    )
    parser.add_argument("--title", help="which conversation, where the file holds several")
    parser.add_argument(
        "--questions", type=Path, help="JSON: what to ask, and the words that answer it"
    )
    options = parser.parse_args()
    talk = Talk(demo_messages(), DEMO_SYSTEM_PROMPT, QUESTIONS)
    if options.conversation:
        read = read_conversations(options.conversation)
        conversation = pick_conversation(read.conversations, title=options.title)
        instructions, messages = split_instructions(conversation.messages)
        system_prompt = "\n\n".join(instructions)
        asked = (
            json.loads(options.questions.read_text(encoding="utf-8")) if options.questions else {}
        )
        talk = Talk(messages, system_prompt or "You are a helpful assistant.", asked)
    rows = [row(talk, *one) for one in systems(talk.system_prompt)]
    if options.plot:
        options.plot.write_text(picture(rows, len(talk.questions)), encoding="utf-8")
    print(
        json.dumps([asdict(one) for one in rows])
        if options.json
        else markdown(rows, len(talk.questions))
    )


if __name__ == "__main__":
    main()
