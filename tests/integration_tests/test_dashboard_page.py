"""The dashboard's page shows in a browser what the API says, and leads to where it is from.

In headless Chromium, over a real server and a store of three sessions.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

import httpx
import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page, expect
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
# A busy machine takes longer than the five seconds of Playwright.
expect.set_options(timeout=30_000)
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
    messages: list[BaseMessage] = []
    for n in range(turns):
        call = {"id": f"call-{n}", "name": "weather", "args": {"city": f"City {n}"}}
        messages += [
            HumanMessage(f"What is the weather in city {n}?", id=f"h{n}"),
            AIMessage("", id=f"c{n}", tool_calls=[call]),
            ToolMessage(f"Sunny, {n} degrees. " * 40, tool_call_id=f"call-{n}", id=f"r{n}"),
            AIMessage(f"It is sunny and {n} degrees in city {n}.", id=f"a{n}"),
        ]
    return messages


def add_long_session(pipeline: ContextPipeline) -> None:
    """Adds a session that is compacted, with a document and a snapshot of each turn."""
    documents = KnowledgeBase(pipeline.store, user_id=USER)
    offer = (
        "Steel labels with a QR code: 0.62 pounds each. "
        "The offer for tool labels holds until 30 November."
    )
    documents.add(offer, metadata={"source": "label-offer.md"})
    scope = {"user_id": USER, "conversation_id": LONG}
    messages = demo_messages()
    stored = 0
    for count in TURNS:
        pipeline.add_messages(messages[stored:count], **scope)
        question = DEMO_QUESTION if count == TURNS[-1] else messages[count - 2].text
        pipeline.assemble(question, **scope)
        stored = count


def add_session_with_tools(pipeline: ContextPipeline) -> None:
    """Adds a session of an agent, with results that nobody asked for."""
    scope = {"user_id": USER, "conversation_id": TOOLS}
    for n in (4, 8):
        pipeline.add_messages(weather(n)[4 * (n - 4) :], **scope)
        orphan = ToolMessage("Nobody asked for this.", tool_call_id=f"orphan-{n}", id=f"o{n}")
        pipeline.add_messages([orphan], **scope)
        pipeline.assemble("And in city 3?", tools=[WEATHER], **scope)


def add_hostile_session(pipeline: ContextPipeline) -> None:
    messages: list[BaseMessage] = []
    for text in HOSTILE_TEXTS:
        messages += [HumanMessage(text), AIMessage(text)]
    pipeline.add_messages(messages, user_id=USER, conversation_id=HOSTILE)


def three_sessions() -> ContextPipeline:
    settings = {
        "max_context_tokens": BUDGET,
        "keep_snapshots": 20,
        "usage_limits": {"month_tokens": 2_000_000},
    }
    pipeline = ContextPipeline(settings, system_prompt=DEMO_SYSTEM_PROMPT)
    pipeline.knowledge.add_fact("Coordinates a tool library", user_id=USER, category="project")
    add_long_session(pipeline)
    add_session_with_tools(pipeline)
    add_hostile_session(pipeline)
    spent = {"input_tokens": 400_000, "output_tokens": 50_000, "total_tokens": 450_000}
    pipeline.usage.record(spent, user_id=USER, conversation_id=LONG, model="gpt-4o", seconds=3.1)
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
    with three_sessions() as pipeline, served(create_app(pipeline, user_id=USER)) as url:
        yield Site(url, pipeline)


NOTE_VIOLATIONS = (
    "addEventListener('securitypolicyviolation',"
    " event => console.error('CSP', event.violatedDirective))"
)


class Visit:
    """A page in a browser, what went wrong in it, and what it asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", self.note_entry)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", self.note_dialog)
        page.on("request", lambda request: self.requests.append(request.url))
        page.add_init_script(NOTE_VIOLATIONS)

    def note_entry(self, entry: ConsoleMessage) -> None:
        if entry.type in ("error", "warning"):
            self.problems.append(entry.text)

    def note_dialog(self, dialog: Dialog) -> None:
        self.problems.append(dialog.message)
        dialog.dismiss()

    def opens(self, url: str, session: str = "") -> Page:
        address = f"{url}#session={quote(session)}" if session else url
        self.page.goto(address)
        expect(self.page.locator("#main")).to_have_attribute("aria-busy", "false")
        return self.page


Visitor = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    """Opens pages; what goes wrong in one fails the test, unless it is tolerant."""
    visits: list[Visit] = []
    strict: list[Visit] = []

    def new(*, tolerant: bool = False, **options: Any) -> Visit:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        visit = Visit(context.new_page())
        visits.append(visit)
        if not tolerant:
            strict.append(visit)
        return visit

    yield new
    for visit in visits:
        visit.page.context.close()
    assert [visit.problems for visit in strict if visit.problems] == []


def number(place: Locator) -> int:
    return int(re.sub(r"\D", "", place.inner_text()))


def attributes(entries: Locator, name: str, count: str) -> dict[str, int]:
    """Returns the numbers in one attribute of elements, by another attribute."""
    numbers = {}
    for entry in entries.all():
        numbers[str(entry.get_attribute(name))] = int(entry.get_attribute(count) or -1)
    return numbers


def legend(page: Page) -> dict[str, int]:
    """Returns the tokens of each layer, as the page shows them."""
    return attributes(page.locator("#legend [data-layer]"), "data-layer", "data-tokens")


def states(page: Page) -> dict[str, int]:
    """Returns how many messages are in each state, as the page shows them."""
    return attributes(page.locator("#history .states li"), "data-state", "data-messages")


def parts(page: Page) -> Locator:
    return page.locator("#prompt [role=button]")


def used(report: dict[str, Any]) -> dict[str, int]:
    """Returns the tokens of each layer that uses some, and of what belongs to none."""
    layers = {}
    for layer in report["layers"]:
        if layer["used_tokens"]:
            layers[layer["layer"]] = layer["used_tokens"]
    return {**layers, "": sum(report["overhead_tokens"].values())}


def counted(report: dict[str, Any]) -> dict[str, int]:
    """Returns how many messages are in each state, as the report says."""
    counts = dict.fromkeys(STATES, 0)
    for part in report["coverage"]:
        counts[part["state"]] += part["last"] - part["first"] + 1
    return counts


def visible(text: str) -> str:
    """Returns a text as the page shows it: what turns its direction is spelled out."""
    return re.sub("[\u202a-\u202e\u2066-\u2069]", lambda found: f"[U+{ord(found[0]):04X}]", text)


# The next prompt

every_session = pytest.mark.parametrize("session", [LONG, TOOLS, HOSTILE])


@pytest.fixture
def page(site: Site, visit: Visitor, session: str) -> Page:
    return visit().opens(site.url, session)


@pytest.fixture
def answer(site: Site, session: str) -> dict[str, Any]:
    """What the API says of the next prompt."""
    return dict(site.ask("preview", session_id=session))


@every_session
def test_a_session_shows_the_total_of_its_next_prompt(page: Page, answer: dict[str, Any]) -> None:
    assert number(page.locator("#total")) == answer["current_context"]["total_tokens"]
    expect(page.locator("#facts")).to_contain_text("the next prompt, as it would be now")


@every_session
def test_a_session_shows_the_tokens_of_each_layer(page: Page, answer: dict[str, Any]) -> None:
    report = answer["current_context"]
    assert legend(page) == used(report)
    assert sum(legend(page).values()) == report["total_tokens"]


@every_session
def test_a_session_shows_the_states_of_its_messages(page: Page, answer: dict[str, Any]) -> None:
    assert states(page) == counted(answer["current_context"])


@every_session
def test_a_session_shows_its_prompt_word_for_word(page: Page, answer: dict[str, Any]) -> None:
    texts = page.locator("#prompt .message .text").all()
    shown = [text.evaluate("node => node.textContent") for text in texts]
    expected = [visible_text(message) for message in answer["prompt"]]
    assert shown == expected
    assert page.locator("#prompt .message").count() == len(expected)


@every_session
def test_a_session_shows_what_of_its_prompt_is_cached(page: Page, answer: dict[str, Any]) -> None:
    expected = [cache_state(message) for message in answer["prompt"]]
    expect(page.locator("#prompt .message .cache")).to_have_text(expected)


def visible_text(message: dict[str, Any]) -> str:
    return "".join(visible(part["text"]) for part in message["parts"])


def cache_state(message: dict[str, Any]) -> str:
    cached = [part["cached"] for part in message["parts"]]
    if cached and all(cached):
        return "cached"
    if cached and not any(cached):
        return "new"
    return "partly cached"


@every_session
def test_a_session_shows_the_items_that_are_sent(page: Page, answer: dict[str, Any]) -> None:
    sent = set()
    for layer in answer["current_context"]["layers"]:
        items = [item for item in layer["items"] if item["status"] != "omitted"]
        sent |= {(layer["layer"], item["id"]) for item in items}
    shown = set()
    for part in parts(page).all():
        shown.add((part.get_attribute("data-layer"), part.get_attribute("data-item")))
    assert shown == sent


# The bar


@pytest.fixture
def asked(site: Site, visit: Visitor) -> Page:
    """The page of the long session, with the question of the demo."""
    return visit().opens(f"{site.url}#session={LONG}&message={quote(DEMO_QUESTION)}")


def tokens_in(text: str, pattern: str) -> int:
    return sum(int(digits) for digits in re.findall(pattern, text))


def test_the_bar_says_what_is_cached_new_and_free(site: Site, asked: Page) -> None:
    report = site.ask("preview", session_id=LONG, message=DEMO_QUESTION)["current_context"]
    text = asked.locator("#glance").inner_text().replace(",", "")
    sent = tokens_in(text, r"cached (\d+)") + tokens_in(text, r"new (\d+)")
    assert sent == report["total_tokens"]
    assert tokens_in(text, r"(\d+) free") == report["budget_tokens"] - report["total_tokens"]


def test_the_bar_leads_to_what_is_new(asked: Page) -> None:
    asked.locator("#glance button").click()
    expect(asked.locator("#prompt .message:not(.cached)").first).to_be_in_viewport()


def test_the_prompts_so_far_cost_less_than_sending_all(site: Site, asked: Page) -> None:
    last = site.ask("snapshots", session_id=LONG)["snapshots"][-1]
    assert 0 < last["effective_tokens"] < last["whole_effective_tokens"]
    expect(asked.locator("#sum")).to_contain_text("7 prompts")


# Parts


def test_the_usage_says_how_long_an_answer_takes(asked: Page) -> None:
    expect(asked.locator("#usage")).to_contain_text("time per call3.1 s3.1 s")


def test_an_address_may_name_a_part(site: Site, visit: Visitor) -> None:
    evidence = DEMO_EVIDENCE_IDS[0]
    address = f"{site.url}#session={LONG}&message={quote(DEMO_QUESTION)}&part={evidence}"
    page = visit().opens(address)
    pressed = parts(page).and_(page.locator("[aria-pressed=true]"))
    expect(pressed).to_have_attribute("data-item", evidence)


def test_an_address_leads_to_its_part_on_a_phone(site: Site, visit: Visitor) -> None:
    evidence = DEMO_EVIDENCE_IDS[0]
    address = f"{site.url}#session={LONG}&message={quote(DEMO_QUESTION)}&part={evidence}"
    page = visit(viewport={"width": 390, "height": 844}).opens(address)
    pressed = parts(page).and_(page.locator("[aria-pressed=true]"))
    assert 0 < pressed.evaluate(TOP) < page.locator("#why").evaluate(TOP)


TOP = "node => node.getBoundingClientRect().top"


def test_the_address_names_the_part_that_is_picked(asked: Page) -> None:
    part = parts(asked).last
    part.click()
    name = quote_plus(str(part.get_attribute("data-item")))
    expect(asked).to_have_url(re.compile(re.escape(f"part={name}")))


def test_another_address_of_the_session_is_followed(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    evidence = DEMO_EVIDENCE_IDS[0]
    page.goto(f"{site.url}#session={LONG}&message={quote(DEMO_QUESTION)}&part={evidence}")
    pressed = parts(page).and_(page.locator("[aria-pressed=true]"))
    expect(pressed).to_have_attribute("data-item", evidence)


def test_a_part_says_why_it_is_there(asked: Page) -> None:
    quoted = parts(asked).and_(asked.locator("[data-layer=L5]")).last
    quoted.click()
    expect(quoted).to_have_attribute("aria-pressed", "true")
    expect(asked.locator("#why")).to_contain_text("Looked up")
    expect(asked.locator("#why")).to_contain_text(Reason.RELEVANT.meaning)


def test_a_part_leads_to_where_it_is_from(asked: Page) -> None:
    quoted = parts(asked).and_(asked.locator("[data-layer=L5]")).last
    quoted.click()
    place = asked.get_by_role("button", name=" in the history")
    position = number(place)
    place.click()
    expect(asked.locator("#reader")).to_contain_text(f"Message {position} of")
    quote_of = quoted.inner_text().partition(": ")[2].rstrip(" …")
    assert quote_of in asked.locator("#reader .text").inner_text()


def test_arrows_and_enter_choose_another_part(asked: Page) -> None:
    quoted = parts(asked).and_(asked.locator("[data-layer=L5]")).last
    quoted.click()
    quoted.focus()
    asked.keyboard.press("ArrowUp")
    asked.keyboard.press("Enter")
    expect(quoted).to_have_attribute("aria-pressed", "false")
    expect(asked.locator("#why")).to_contain_text("tokens")


def test_a_layer_of_the_legend_is_lit_in_the_prompt(asked: Page) -> None:
    asked.locator("#legend button[data-layer=L6]").click()
    expect(asked.locator("#prompt.dimmed .lit").first).to_be_visible()


# Other prompts


@pytest.fixture
def other_prompt(site: Site, visit: Visitor, total_of_other_prompt: str) -> Page:
    """The page of the long session, with another message and another budget."""
    page = visit().opens(site.url, LONG)
    page.locator("#message").fill(DEMO_QUESTION)
    page.locator("#budget").fill("1200")
    page.get_by_role("button", name="Show its prompt").click()
    expect(page.locator("#total")).to_have_text(total_of_other_prompt)
    return page


@pytest.fixture(scope="module")
def total_of_other_prompt(site: Site) -> str:
    preview = site.ask("preview", session_id=LONG, message=DEMO_QUESTION, budget=1_200)
    return f"{preview['current_context']['total_tokens']:,}"


def test_another_message_and_another_budget_are_looked_at(
    other_prompt: Page, total_of_other_prompt: str
) -> None:
    expect(other_prompt.locator("#total")).to_have_text(total_of_other_prompt)
    expect(other_prompt).to_have_url(re.compile("budget=1200"))


def test_an_earlier_prompt_is_looked_at(site: Site, other_prompt: Page) -> None:
    other_prompt.locator("#turns .turn").first.click()
    [first, *_] = site.ask("snapshots", session_id=LONG)["snapshots"]
    expect(other_prompt.locator("#total")).to_have_text(f"{first['total_tokens']:,}")
    expect(other_prompt.locator("#facts")).to_contain_text("as far as its texts are kept")


def test_after_an_earlier_prompt_the_next_one_is_looked_at(
    other_prompt: Page, total_of_other_prompt: str
) -> None:
    other_prompt.locator("#turns .turn").first.click()
    expect(other_prompt.locator("#facts")).to_contain_text("as far as its texts are kept")
    other_prompt.get_by_role("button", name="Next prompt").click()
    expect(other_prompt.locator("#total")).to_have_text(total_of_other_prompt)


# Changes


def test_a_message_is_pinned_and_the_pin_is_taken_back(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, TOOLS)
    page.locator(".strip").press("Home")
    expect(page.locator("#reader")).to_contain_text("Message 1 of")
    pin = page.get_by_role("button", name="Keep verbatim")

    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "true")
    assert site.ask("messages", session_id=TOOLS, last=1)["messages"][0]["preservation"] == "keep"

    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "false")


def known_on(page: Page) -> Locator:
    """Returns what the page shows as known, read anew."""
    page.locator("#refresh").click()
    return page.locator("#known")


def correct(page: Page, before: str, words: str) -> None:
    page.locator("#known").get_by_role("button", name=before).click()
    page.get_by_label("In other words").fill(words)
    page.locator("#known").get_by_role("button", name="Correct").click()


def forget(page: Page, shown: str) -> None:
    page.locator("#known").get_by_role("button", name=shown).click()
    page.locator("#known").get_by_role("button", name="Forget").click()


def test_a_fact_is_corrected_and_forgotten(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, TOOLS)
    fact = site.pipeline.knowledge.add_fact("Rides a green bike", user_id=USER)
    known = known_on(page)
    correct(page, "Rides a green bike", "Rides a blue bike")
    forget(page, "Rides a blue bike")
    expect(known).not_to_contain_text("bike")
    ids = [each.id for each in site.pipeline.knowledge.list_facts(user_id=USER)]
    assert fact.id not in ids


def test_an_entity_is_corrected_and_forgotten(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, TOOLS)
    site.pipeline.knowledge.add_entity("Zoltan", type="person", relationship="uncle", user_id=USER)
    known = known_on(page)
    expect(known.get_by_role("heading", name="People and things")).to_be_visible()
    correct(page, "Zoltan (person); uncle", "Zoltan Kiss")
    forget(page, "Zoltan Kiss (person); uncle")
    expect(known).not_to_contain_text("Zoltan")


def test_a_rule_is_added_and_lifted(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, TOOLS)
    rules = page.locator("#rules")
    rules.get_by_label("A new rule").fill("Never name a price.")
    rules.get_by_role("button", name="Add rule").click()
    expect(rules.get_by_role("listitem")).to_contain_text("Never name a price.")
    rules.get_by_role("button", name="Lift").click()
    expect(rules).not_to_contain_text("Never name a price.")
    assert site.ask("rules", session_id=TOOLS)["rules"] == []


def test_a_rule_is_lifted_where_the_prompt_says_it(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, HOSTILE)
    site.pipeline.conversation(HOSTILE, user_id=USER).add_rule("Never name a street.")
    page.locator("#refresh").click()
    page.locator("#prompt [role=button]").filter(has_text="Never name a street.").click()
    page.get_by_role("button", name="Lift this rule").click()
    expect(page.locator("#prompt")).not_to_contain_text("Never name a street.")
    assert site.ask("rules", session_id=HOSTILE)["rules"] == []


def test_what_is_known_is_saved_as_a_text(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, TOOLS)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as text").click()
    text = download.value.path().read_text(encoding="utf-8")
    assert text.startswith("# What is known about maya")


def test_who_is_asked_whether_to_forget_all_may_keep_it(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, TOOLS)
    before = site.pipeline.knowledge.list_facts(user_id=USER)
    page.get_by_role("button", name="Forget all", exact=True).click()
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.get_by_role("button", name="Forget all", exact=True)).to_be_visible()
    assert site.pipeline.knowledge.list_facts(user_id=USER) == before


# Hostile text


@pytest.mark.parametrize("position", range(1, 2 * len(HOSTILE_TEXTS) + 1))
def test_a_hostile_message_is_shown_as_text(site: Site, visit: Visitor, position: int) -> None:
    page = visit().opens(site.url, HOSTILE)
    page.locator(".strip").press("Home")
    for _ in range(position - 1):
        page.locator(".strip").press("ArrowRight")
    expect(page.locator("#reader")).to_contain_text(f"Message {position} of")
    text = HOSTILE_TEXTS[(position - 1) // 2]
    expect(page.locator("#reader .text")).to_have_text(visible(text))


def test_a_hostile_name_is_shown_as_text(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, HOSTILE)
    expect(page.locator("#facts")).to_contain_text("<b>hostile</b> session")


@pytest.fixture
def hostile_visit(site: Site, visit: Visitor) -> Visit:
    """A visit that has looked at all messages and all parts of the hostile session."""
    hostile = visit()
    page = hostile.opens(site.url, HOSTILE)
    page.locator(".strip").press("Home")
    for _ in range(2 * len(HOSTILE_TEXTS)):
        page.locator(".strip").press("ArrowRight")
    page.locator("#message").fill(HOSTILE_TEXTS[1])
    page.locator("#message").press("Enter")
    expect(page.locator("#main")).to_have_attribute("aria-busy", "false")
    expect(page.locator("#prompt .message").last).to_contain_text(HOSTILE_TEXTS[1])
    for button in parts(page).all():
        button.click()
    return hostile


@pytest.mark.parametrize("element", ["script", "img", "style", "a", "[onerror]", "[onload]"])
def test_hostile_text_makes_no_elements(hostile_visit: Visit, element: str) -> None:
    assert hostile_visit.page.locator(f"main {element}").count() == 0


def test_nothing_of_hostile_text_runs(hostile_visit: Visit) -> None:
    assert hostile_visit.page.evaluate("window.broken") is None
    assert hostile_visit.problems == []


def test_a_page_with_hostile_text_asks_no_other_site(site: Site, hostile_visit: Visit) -> None:
    hosts = {urlsplit(url).netloc for url in hostile_visit.requests}
    assert hosts == {urlsplit(site.url).netloc}


# Colours and sizes


def colours_of_the_package() -> dict[str, str]:
    """Returns the colours, by the names that the page has for them."""
    colours = {f"layer-{layer}": colour for layer, colour in LAYER_COLOURS.items()}
    for number, colour in enumerate(CUSTOM_COLOURS):
        colours[f"layer-own{number}"] = colour
    for state, (_, colour, _) in STATES.items():
        colours[f"state-{state}"] = colour
    return colours


def test_colours_are_those_of_the_package(site: Site, visit: Visitor) -> None:
    page = visit(color_scheme="light").opens(site.url)
    colours = colours_of_the_package()
    shown = {name: page.evaluate(COLOUR, name) for name in colours}
    assert shown == {name: as_rgb(colour) for name, colour in colours.items()}


COLOUR = """name => {
    const node = document.body.appendChild(document.createElement('i'));
    node.className = `swatch ${name}`;
    return getComputedStyle(node).backgroundColor;
}"""


def as_rgb(colour: str) -> str:
    """Returns a colour like "#1a2b3c" as browsers tell it."""
    red = int(colour[1:3], 16)
    green = int(colour[3:5], 16)
    blue = int(colour[5:7], 16)
    return f"rgb({red}, {green}, {blue})"


CONTRAST = """() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const paint = (colours) => {
        canvas.globalCompositeOperation = 'source-over';
        for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const shares = [0.2126, 0.7152, 0.0722];
    const light = (rgb) => rgb.reduce((sum, c, n) => sum + linear(c / 255) * shares[n], 0);
    const colour = (node) => getComputedStyle(node).backgroundColor;
    const behind = (node) => (node ? [...behind(node.parentElement), colour(node)] : ['white']);
    const low = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
        if (!text || !node.checkVisibility()) continue;
        if (node.closest('.unseen, .skip, noscript')) continue;
        const under = behind(node);
        const a = light(paint([...under, getComputedStyle(node).color]));
        const b = light(paint(under));
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const place = `${node.className} ${text.slice(0, 40)}`;
        if (contrast < 4.5) low.push(`${contrast.toFixed(2)} ${place}`);
    }
    return low;
}"""


@pytest.fixture
def sized(site: Site, visit: Visitor, scheme: str, width: int) -> Page:
    size = {"width": width, "height": 900}
    return visit(color_scheme=scheme, viewport=size).opens(site.url, LONG)


every_size = pytest.mark.parametrize("width", [390, 1_280, 2_560])
every_scheme = pytest.mark.parametrize("scheme", ["light", "dark"])


@every_scheme
@every_size
def test_the_page_is_no_wider_than_the_window(sized: Page, width: int) -> None:
    assert sized.evaluate("document.documentElement.scrollWidth") <= width


@every_scheme
@every_size
def test_every_text_has_contrast(sized: Page) -> None:
    parts(sized).first.click()
    expect(sized.locator("#why")).to_contain_text("tokens")
    assert sized.evaluate(CONTRAST) == []


@every_scheme
@every_size
def test_the_page_is_accessible(sized: Page) -> None:
    parts(sized).first.click()
    sized.locator("#out summary").first.click()
    assert Axe().run(sized).response["violations"] == []


FOCUSED = "(document.activeElement.closest('[id]') ?? document.activeElement).id"


def test_everything_is_reached_by_keyboard(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED))
    assert reached >= {
        "refresh",
        "theme",
        "sessions",
        "turns",
        "message",
        "slider",
        "budget",
        "glance",
        "legend",
        "prompt",
        "history",
        "out",
    }


# What goes wrong


def test_a_budget_that_is_too_small_is_told_with_the_floors(site: Site, visit: Visitor) -> None:
    page = visit(tolerant=True).opens(site.url, LONG)  # the browser notes a 409 as an error
    page.locator("#budget").fill("20")
    page.locator("#budget").press("Enter")
    query: dict[str, Any] = {"session_id": LONG, "budget": 20}
    floors = httpx.get(f"{site.url}api/context/preview", params=query).json()["floors"]
    assert len(floors) > 0
    for name, tokens in floors.items():
        expect(page.locator("#notice")).to_contain_text(f"{name} {tokens}")


def test_a_session_that_is_none_is_told(site: Site, visit: Visitor) -> None:
    page = visit(tolerant=True).opens(site.url, "nobody's")
    expect(page.locator("#notice")).to_contain_text("There is no such session")
    page.locator("#sessions a").first.click()
    expect(page.locator("#content")).to_be_visible()


def test_a_user_without_sessions_is_told(site: Site, visit: Visitor) -> None:
    with served(create_app(site.pipeline, user_id="nobody yet")) as url:
        page = visit().opens(url)
        expect(page.locator("#empty")).to_contain_text("No sessions yet")
        page.close()


def test_a_server_that_is_gone_is_told(site: Site, visit: Visitor) -> None:
    with served(create_app(site.pipeline, user_id=USER)) as url:
        page = visit(tolerant=True).opens(url)
        expect(page.locator("#content")).to_be_visible()
    page.locator("#refresh").click()
    expect(page.locator("#notice")).to_contain_text("does not answer")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
