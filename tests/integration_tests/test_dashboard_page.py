"""The dashboard's page in a real browser.

Headless Chromium over a real server and a store of three sessions.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from playwright.sync_api import Browser, Locator, Page, expect
from starlette.types import ASGIApp

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.budget import Reason
from langchain_ctxbudget.dashboard import create_app
from langchain_ctxbudget.demo import (
    DEMO_EVIDENCE_IDS,
    DEMO_QUESTION,
    DEMO_SYSTEM_PROMPT,
    demo_messages,
)
from langchain_ctxbudget.report import STATES
from langchain_ctxbudget.report.colours import CUSTOM_COLOURS, LAYER_COLOURS

pytestmark = [pytest.mark.slow, pytest.mark.allow_hosts(["127.0.0.1"])]

USER = "maya"
LONG = "tool-library"
TOOLS = "weather-agent"
HOSTILE = "<b>hostile</b> session"
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
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object"},
}


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
    """Three sessions: long and compacted, with documents and snapshots; an agent's with tools.

    A hostile one.
    """
    pipeline = ContextPipeline(
        {
            "max_context_tokens": BUDGET,
            "keep_snapshots": 20,
            "usage_limits": {"month_tokens": 2_000_000},
        },
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
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_keep_alive=1)
    )
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
        page.on(
            "console",
            lambda entry: entry.type in ("error", "warning") and one.problems.append(entry.text),
        )
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


def legend(page: Page) -> dict[str, int]:
    entries = page.locator("#legend [data-layer]").all()
    return {
        str(one.get_attribute("data-layer")): int(one.get_attribute("data-tokens") or -1)
        for one in entries
    }


def used(report: dict[str, Any]) -> dict[str, int]:
    layers = {
        part["layer"]: part["used_tokens"] for part in report["layers"] if part["used_tokens"]
    }
    return {**layers, "": sum(report["overhead_tokens"].values())}


def states(page: Page) -> dict[str, int]:
    entries = page.locator("#history .states li").all()
    return {
        str(one.get_attribute("data-state")): int(one.get_attribute("data-messages") or -1)
        for one in entries
    }


def parts(page: Page) -> Locator:
    return page.locator("#prompt [role=button]")


@pytest.mark.parametrize("session", [LONG, TOOLS, HOSTILE])
def test_a_session_shows_the_prompt_and_the_numbers_of_the_api(
    site: Site, visit: Visitor, session: str
) -> None:
    page = visit().opens(site.url, session)
    answer = site.ask("preview", session_id=session)
    report = answer["current_context"]
    assert number(page.locator("#total")) == report["total_tokens"]
    expect(page.locator("#facts")).to_contain_text("the next prompt, as it would be now")
    assert legend(page) == used(report)
    assert sum(legend(page).values()) == report["total_tokens"]
    counts = dict.fromkeys(STATES, 0)
    for part in report["coverage"]:
        counts[part["state"]] += part["last"] - part["first"] + 1
    assert states(page) == counts
    messages = page.locator("#prompt .message")
    assert messages.count() == len(answer["prompt"])
    for place, message in zip(messages.all(), answer["prompt"], strict=True):
        shown = "".join(visible(part["text"]) for part in message["parts"])
        assert place.locator(".text").evaluate("node => node.textContent") == shown
        cached = {part["cached"] for part in message["parts"]}
        state = {(True,): "cached", (False,): "new"}.get(tuple(cached), "partly cached")
        expect(place.locator(".cache")).to_have_text(state)
    items = ((one["layer"], item) for one in report["layers"] for item in one["items"])
    sent = {(layer, item["id"]) for layer, item in items if item["status"] != "omitted"}
    assert {
        (one.get_attribute("data-layer"), one.get_attribute("data-item"))
        for one in parts(page).all()
    } == sent


def test_the_bar_says_what_is_cached_new_and_free_and_leads_to_what_is_new(
    site: Site, visit: Visitor
) -> None:
    page = visit().opens(f"{site.url}#session={LONG}&message={quote(DEMO_QUESTION)}")
    report = site.ask("preview", session_id=LONG, message=DEMO_QUESTION)["current_context"]
    said = page.locator("#glance").inner_text().replace(",", "")
    cached, new, free = (
        sum(map(int, re.findall(words, said)))
        for words in (r"cached (\d+)", r"new (\d+)", r"(\d+) free")
    )
    assert 0 <= report["total_tokens"] - cached - new < 10  # what frames a request is nobody's
    assert free == report["budget_tokens"] - report["total_tokens"]
    page.locator("#glance button").click()
    expect(page.locator("#prompt .message:not(.cached)").first).to_be_in_viewport()
    last = site.ask("snapshots", session_id=LONG)["snapshots"][-1]
    assert 0 < last["effective_tokens"] < last["whole_effective_tokens"]
    expect(page.locator("#sum")).to_contain_text(f"{len(TURNS)} prompts")


def visible(text: str) -> str:
    return re.sub("[\u202a-\u202e\u2066-\u2069]", lambda found: f"[U+{ord(found[0]):04X}]", text)


def test_a_part_says_why_it_is_there_and_where_it_is_from(site: Site, visit: Visitor) -> None:
    page = visit().opens(
        f"{site.url}#session={LONG}&message={quote(DEMO_QUESTION)}&part={DEMO_EVIDENCE_IDS[0]}"
    )
    expect(parts(page).and_(page.locator("[aria-pressed=true]"))).to_have_attribute(
        "data-item", DEMO_EVIDENCE_IDS[0]
    )
    quoted = parts(page).and_(page.locator("[data-layer=L5]")).last
    quoted.click()
    expect(quoted).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#why")).to_contain_text("L5 Retrieval")
    expect(page.locator("#why")).to_contain_text(Reason.RELEVANT.meaning)
    place = page.get_by_role("button", name=" in the history")
    position = number(place)
    place.click()
    expect(page.locator("#reader")).to_contain_text(f"Message {position} of")
    quote_of = quoted.inner_text().partition(": ")[2].rstrip(" …")
    assert quote_of in page.locator("#reader .text").inner_text()
    quoted.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(quoted).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#why")).to_contain_text("tokens")
    page.locator("#legend button[data-layer=L6]").click()
    expect(page.locator("#prompt.dimmed .lit").first).to_be_visible()


def test_another_message_another_budget_and_an_earlier_prompt_are_looked_at(
    site: Site, visit: Visitor
) -> None:
    page = visit().opens(site.url, LONG)
    page.locator("#message").fill(DEMO_QUESTION)
    page.locator("#budget").fill("1200")
    page.get_by_role("button", name="Show its prompt").click()
    report = site.ask("preview", session_id=LONG, message=DEMO_QUESTION, budget=1_200)[
        "current_context"
    ]
    expect(page.locator("#total")).to_have_text(f"{report['total_tokens']:,} tokens")
    expect(page).to_have_url(re.compile("budget=1200"))
    page.locator("#turns .turn").first.click()
    [first, *_] = site.ask("snapshots", session_id=LONG)["snapshots"]
    expect(page.locator("#total")).to_have_text(f"{first['total_tokens']:,} tokens")
    expect(page.locator("#facts")).to_contain_text("as far as its texts are kept")
    page.get_by_role("button", name="Next prompt").click()
    expect(page.locator("#total")).to_have_text(f"{report['total_tokens']:,} tokens")


def test_a_message_is_pinned_and_a_fact_is_corrected_and_forgotten(
    site: Site, visit: Visitor
) -> None:
    page = visit().opens(site.url, TOOLS)
    page.locator(".strip").press("Home")
    expect(page.locator("#reader")).to_contain_text("Message 1 of")
    page.get_by_role("button", name="Keep verbatim").click()
    expect(page.get_by_role("button", name="Keep verbatim")).to_have_attribute(
        "aria-pressed", "true"
    )
    assert site.ask("messages", session_id=TOOLS, last=1)["messages"][0]["preservation"] == "keep"
    page.get_by_role("button", name="Keep verbatim").click()
    expect(page.get_by_role("button", name="Keep verbatim")).to_have_attribute(
        "aria-pressed", "false"
    )
    added = site.pipeline.knowledge.add_fact("Rides a green bike", user_id=USER)
    page.locator("#refresh").click()
    known = page.locator("#known")
    known.get_by_role("button", name="Rides a green bike").click()
    page.get_by_label("In other words").fill("Rides a blue bike")
    known.get_by_role("button", name="Correct").click()
    known.get_by_role("button", name="Rides a blue bike").click()
    known.get_by_role("button", name="Forget").click()
    expect(known).not_to_contain_text("bike")
    site.pipeline.knowledge.add_entity("Zoltan", type="person", relationship="uncle", user_id=USER)
    page.locator("#refresh").click()
    expect(known.get_by_role("heading", name="People and things")).to_be_visible()
    known.get_by_role("button", name="Zoltan (person); uncle").click()
    page.get_by_label("In other words").fill("Zoltan Kiss")
    known.get_by_role("button", name="Correct").click()
    known.get_by_role("button", name="Zoltan Kiss (person); uncle").click()
    known.get_by_role("button", name="Forget").click()
    expect(known).not_to_contain_text("Zoltan")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as text").click()
    assert (
        saved.value.path().read_text(encoding="utf-8").startswith(f"# What is known about {USER}")
    )
    page.get_by_role("button", name="Forget all", exact=True).click()
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.get_by_role("button", name="Forget all", exact=True)).to_be_visible()
    assert added.id not in {fact.id for fact in site.pipeline.knowledge.list_facts(user_id=USER)}


def test_hostile_text_is_shown_as_text_and_nothing_of_it_runs(site: Site, visit: Visitor) -> None:
    one = visit()
    page = one.opens(site.url, HOSTILE)
    expect(page.locator("#facts")).to_contain_text(HOSTILE)
    page.locator(".strip").press("Home")
    for position, text in enumerate((text for text in HOSTILE_TEXTS for _ in range(2)), 1):
        expect(page.locator("#reader")).to_contain_text(f"Message {position} of")
        expect(page.locator("#reader .text")).to_have_text(visible(text))
        page.locator(".strip").press("ArrowRight")
    page.locator("#message").fill(HOSTILE_TEXTS[1])
    page.locator("#message").press("Enter")
    expect(page.locator("#main")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#prompt .message").last).to_contain_text(HOSTILE_TEXTS[1])
    for button in parts(page).all():
        button.click()
    elements = "document.querySelectorAll('main script, main img, main style, main a, main [onerror], main [onload]')"
    assert page.evaluate(f"{elements}.length") == 0
    assert page.evaluate("window.broken") is None
    assert one.problems == []
    assert {urlsplit(url).netloc for url in one.requests} == {urlsplit(site.url).netloc}


def test_colours_are_those_of_the_package(site: Site, visit: Visitor) -> None:
    page = visit(color_scheme="light").opens(site.url)
    colours = {f"layer-{layer}": colour for layer, colour in LAYER_COLOURS.items()}
    colours |= {f"layer-own{n}": colour for n, colour in enumerate(CUSTOM_COLOURS)}
    colours |= {f"state-{state}": colour for state, (_, colour, _) in STATES.items()}
    for name, colour in colours.items():
        assert page.evaluate(COLOUR, name) == tuple_of(colour), name


COLOUR = """name => {
    const node = document.body.appendChild(document.createElement('i'));
    node.className = `swatch ${name}`;
    return getComputedStyle(node).backgroundColor;
}"""


def tuple_of(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[n : n + 2], 16)) for n in (1, 3, 5))})"


CONTRAST = """() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const paint = (colours) => {
        canvas.globalCompositeOperation = 'source-over';
        for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const light = (rgb) => rgb.reduce((sum, c, n) => sum + linear(c / 255) * [0.2126, 0.7152, 0.0722][n], 0);
    const colour = (node) => getComputedStyle(node).backgroundColor;
    const behind = (node) => (node ? [...behind(node.parentElement), colour(node)] : ['white']);
    const low = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
        if (!text || !node.checkVisibility() || node.closest('.unseen, .skip, noscript')) continue;
        const under = behind(node);
        const [a, b] = [light(paint([...under, getComputedStyle(node).color])), light(paint(under))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) low.push(`${contrast.toFixed(2)} ${node.className} ${text.slice(0, 40)}`);
    }
    return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1_280, 2_560])
def test_it_is_readable_on_every_width_in_light_and_dark(
    site: Site, visit: Visitor, scheme: str, width: int
) -> None:
    page = visit(color_scheme=scheme, viewport={"width": width, "height": 900}).opens(
        site.url, LONG
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    parts(page).first.click()
    expect(page.locator("#why")).to_contain_text("tokens")
    assert page.evaluate(CONTRAST) == []
    page.locator("#out summary").first.click()
    assert Axe().run(page).response["violations"] == []


def test_everything_is_reached_by_keyboard(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("(document.activeElement.closest('[id]') ?? document.activeElement).id")
        )
    assert (
        set(
            "refresh theme sessions turns message slider budget glance legend prompt history out".split()
        )
        <= reached
    )


def test_what_goes_wrong_is_told_in_words(site: Site, visit: Visitor) -> None:
    page = visit(tolerant=True).opens(
        site.url, LONG
    )  # the browser notes every answer 409 as an error
    page.locator("#budget").fill("20")
    page.locator("#budget").press("Enter")
    answer = httpx.get(f"{site.url}api/context/preview", params={"session_id": LONG, "budget": 20})
    for name, tokens in answer.json()["floors"].items():
        expect(page.locator("#notice")).to_contain_text(f"{name} {tokens}")
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
