"""The dashboard's page in a real browser: headless Chromium over a real server and a store of three sessions."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import quote, urlsplit

import httpx
import pytest
import uvicorn
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from playwright.sync_api import Browser, Locator, Page, expect
from starlette.types import ASGIApp

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.budget import TITLES, Forced, Reason, Status
from langchain_ctxbudget.dashboard import create_app
from langchain_ctxbudget.demo import DEMO_QUESTION, DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.report import STATES
from langchain_ctxbudget.report.view import CUSTOM_COLOURS, LAYER_COLOURS

pytestmark = [pytest.mark.slow, pytest.mark.allow_hosts(["127.0.0.1"])]

USER, LONG, TOOLS, HOSTILE = "maya", "tool-library", "weather-agent", "<b>hostile</b> session"
BUDGET = 3_000
TURNS = (12, 40, 90, 150, 200, 240, 278)
"""How many messages the long conversation had when a prompt was made."""
HOSTILE_TEXTS = (
    "<script>window.broken = 1; alert(1)</script>",
    '<img src=x onerror="window.broken = 1; alert(2)">',
    '<a href="javascript:window.broken=1">click</a> [me](javascript:window.broken=1)',
    "invoice \u202egpj.exe\u202c and \u2066hidden\u2069",
    "{{constructor.constructor('window.broken=1')()}} ${window.broken=1} <%= 1 %>",
    "</td></tr></table><style>* { display: none }</style><svg onload=window.broken=1>",
)
WEATHER = {"name": "weather", "description": "The weather of a city.", "parameters": {"type": "object"}}


def weather(turns: int) -> list[BaseMessage]:
    """An agent that calls a tool in every turn."""
    made: list[BaseMessage] = []
    for n in range(turns):
        call = {"id": f"call-{n}", "name": "weather", "args": {"city": f"City {n}"}}
        made += [
            HumanMessage(f"What is the weather in city {n}?", id=f"h{n}"),
            AIMessage("", id=f"c{n}", tool_calls=[call]),
            ToolMessage(f"Sunny, {n} degrees. " * 40, tool_call_id=f"call-{n}", id=f"r{n}"),
            AIMessage(f"It is sunny and {n} degrees in city {n}.", id=f"a{n}"),
        ]
    return made


def a_store() -> ContextPipeline:
    """Three sessions: long and compacted, with documents and snapshots; an agent's with tools; a hostile one."""
    pipeline = ContextPipeline(
        {"max_context_tokens": BUDGET, "keep_snapshots": 20, "usage_limits": {"month_tokens": 2_000_000}},
        system_prompt=DEMO_SYSTEM_PROMPT,
    )
    documents = KnowledgeBase(pipeline.store, user_id=USER)
    offer = "Steel labels with a QR code: 0.62 pounds each. The offer for tool labels holds until 30 November."
    documents.add(offer, metadata={"source": "label-offer.md"})
    pipeline.knowledge.add_fact("Coordinates a tool library", user_id=USER, category="project")
    told = demo_messages()
    for begin, end in zip((0, *TURNS), TURNS, strict=False):
        pipeline.add_messages(told[begin:end], user_id=USER, conversation_id=LONG)
        asked = DEMO_QUESTION if end == TURNS[-1] else told[end - 2].text
        pipeline.assemble(asked, user_id=USER, conversation_id=LONG)
    for n in (4, 8):
        pipeline.add_messages(weather(n)[4 * (n - 4) :], user_id=USER, conversation_id=TOOLS)
        orphan = ToolMessage("Nobody asked for this.", tool_call_id=f"orphan-{n}", id=f"o{n}")
        pipeline.add_messages([orphan], user_id=USER, conversation_id=TOOLS)
        pipeline.assemble("And in city 3?", user_id=USER, conversation_id=TOOLS, tools=[WEATHER])
    said = [make(text) for text in HOSTILE_TEXTS for make in (HumanMessage, AIMessage)]
    pipeline.add_messages(said, user_id=USER, conversation_id=HOSTILE)
    spent = {"input_tokens": 400_000, "output_tokens": 50_000, "total_tokens": 450_000}
    pipeline.usage.record(spent, user_id=USER, conversation_id=LONG, model="gpt-4o")
    assert pipeline.flush()
    return pipeline


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The address of a server on this machine, in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_keep_alive=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(10)


@dataclass(frozen=True)
class Site:
    url: str
    pipeline: ContextPipeline

    def ask(self, path: str, **query: Any) -> Any:
        answer = httpx.get(f"{self.url}api/context/{path}", params=query)
        answer.raise_for_status()
        return answer.json()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with a_store() as pipeline, served(create_app(pipeline, user_id=USER)) as url:
        yield Site(url, pipeline)


@dataclass(frozen=True)
class Visit:
    page: Page
    problems: list[str]
    requests: list[str]

    def opens(self, url: str, session: str = "") -> Page:
        self.page.goto(f"{url}#session={quote(session)}" if session else url)
        expect(self.page.locator("#progress")).not_to_have_class(re.compile("on"))
        expect(self.page.locator("#main")).to_have_attribute("aria-busy", "false")
        return self.page


Visitor = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    """Opens pages; what goes wrong in one fails the test, unless it is allowed."""
    visits: list[tuple[Visit, bool]] = []

    def new(*, tolerant: bool = False, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        page = context.new_page()
        one = Visit(page, [], [])
        visits.append((one, tolerant))
        page.on("console", lambda entry: entry.type in ("error", "warning") and one.problems.append(entry.text))
        page.on("pageerror", lambda error: one.problems.append(str(error)))
        page.on("dialog", lambda dialog: (one.problems.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: one.requests.append(request.url))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', event => console.error('CSP', event.violatedDirective))"
        )
        return one

    yield new
    for one, tolerant in visits:
        one.page.context.close()
        assert tolerant or one.problems == []


def number(place: Locator) -> int:
    return int(re.sub(r"\D", "", place.inner_text()))


def shown_total(page: Page) -> int:
    return int(page.locator("#total").get_attribute("data-tokens") or -1)


def legend(page: Page) -> dict[str, int]:
    rows = page.locator("#legend tbody tr").all()
    return {str(row.get_attribute("data-layer")): number(row.locator(".used")) for row in rows}


def used(report: dict[str, Any]) -> dict[str, int]:
    layers = {part["layer"]: part["used_tokens"] for part in report["layers"]}
    return {**layers, "tools and framing": sum(report["overhead_tokens"].values())}


def states(page: Page) -> dict[str, int]:
    entries = page.locator("#frontier .states li").all()
    return {str(one.get_attribute("data-state")): int(one.get_attribute("data-messages") or -1) for one in entries}


@pytest.mark.parametrize("session", [LONG, TOOLS, HOSTILE])
def test_a_session_shows_the_numbers_of_the_api(site: Site, visit: Visitor, session: str) -> None:
    page = visit().opens(site.url, session)
    report = site.ask("status", session_id=session)["current_context"]
    assert shown_total(page) == report["total_tokens"]
    assert legend(page) == used(report)
    assert sum(legend(page).values()) == report["total_tokens"]
    counts = dict.fromkeys(STATES, 0)
    for part in report["coverage"]:
        counts[part["state"]] += part["last"] - part["first"] + 1
    assert states(page) == counts
    items = sum(len(part["items"]) for part in report["layers"])
    expect(page.locator("#items [role=status]")).to_contain_text(f"{items} items of {items}")


def test_hostile_text_is_shown_as_text_and_nothing_of_it_runs(site: Site, visit: Visitor) -> None:
    one = visit()
    page = one.opens(site.url, HOSTILE)
    expect(page.locator("h1")).to_have_text(HOSTILE)
    for position, text in enumerate((text for text in HOSTILE_TEXTS for _ in range(2)), 1):
        page.locator("#message-number").fill(str(position))
        page.locator("#message-number").press("Enter")
        shown = re.sub("[\u202a-\u202e\u2066-\u2069]", lambda found: f"[U+{ord(found[0]):04X}]", text)
        expect(page.locator("#message")).to_contain_text(f"Message {position}")
        expect(page.locator("#message .reader-text")).to_have_text(shown)
    for button in page.locator("#items .item .preview button").all():
        button.click()
    page.locator("#try-message").fill(HOSTILE_TEXTS[1])
    page.locator("#try").click()
    expect(page.locator("#what-if-result")).to_contain_text("the prompt has")
    elements = "document.querySelectorAll('main script, main img, main style, main a, main [onerror], main [onload]')"
    assert page.evaluate(f"{elements}.length") == 0
    assert page.evaluate("window.broken") is None
    assert one.problems == []
    assert {urlsplit(url).netloc for url in one.requests} == {urlsplit(site.url).netloc}


def test_words_and_colours_are_those_of_the_package(site: Site, visit: Visitor) -> None:
    page = visit(color_scheme="light").opens(site.url)
    words = page.evaluate("import('./assets/words.js').then(module => JSON.parse(JSON.stringify(module)))")
    assert words["LAYERS"] == {str(layer): title for layer, title in TITLES.items()}
    assert words["STATES"] == {state: word for state, (word, _) in STATES.items()}
    assert set(words["REASONS"]) == set(Reason)
    assert set(words["STATUSES"]) == set(Status)
    assert set(words["FORCED"]) == set(get_args(Forced))
    colours = {f"layer-{layer}": colour for layer, colour in LAYER_COLOURS.items()}
    colours |= {f"layer-own{n}": colour for n, colour in enumerate(CUSTOM_COLOURS)}
    colours |= {f"state-{state}": colour for state, (_, colour) in STATES.items()}
    for name, colour in colours.items():
        assert page.evaluate(COLOUR, name) == tuple_of(colour), name


COLOUR = """name => { const node = document.body.appendChild(document.createElement('i')); node.className = name;
    return getComputedStyle(node).backgroundColor; }"""


def tuple_of(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[n : n + 2], 16)) for n in (1, 3, 5))})"


def test_what_goes_wrong_is_told_in_words(site: Site, visit: Visitor) -> None:
    page = visit(tolerant=True).opens(site.url, LONG)  # the browser notes every answer 409 as an error
    page.locator("#budget-number").fill("20")
    expect(page.locator("#what-if-result")).to_contain_text("Too small.")
    answer = httpx.get(f"{site.url}api/context/preview", params={"session_id": LONG, "budget": 20})
    for name, tokens in answer.json()["floors"].items():
        expect(page.locator("#what-if-result")).to_contain_text(f"{name} {tokens}")
    page = visit(tolerant=True).opens(site.url, "nobody's")
    expect(page.locator("#notice")).to_contain_text("There is no such session")
    page.locator("#sessions a").first.click()
    expect(page.locator("#content")).to_be_visible()
    with served(create_app(site.pipeline, user_id="nobody yet")) as url:
        page = visit().opens(url)
        expect(page.locator("#empty")).to_contain_text("No sessions yet")
        page.close()
    with served(create_app(site.pipeline, user_id=USER)) as url:
        page = visit(tolerant=True).opens(url)
        expect(page.locator("#content")).to_be_visible()
    page.locator("#refresh").click()
    expect(page.locator("#notice")).to_contain_text("does not answer")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
