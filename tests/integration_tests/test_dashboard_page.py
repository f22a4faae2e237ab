"""The dashboard's page in a real browser: headless Chromium over a real server and a store of three sessions."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, urlsplit

import httpx
import pytest
import uvicorn
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from starlette.types import ASGIApp

from langchain_ctxbudget import ContextPipeline, KnowledgeBase
from langchain_ctxbudget.core.layers import TITLES, Reason, Status
from langchain_ctxbudget.core.tiers import Forced
from langchain_ctxbudget.dashboard import create_app
from langchain_ctxbudget.demo import DEMO_QUESTION, DEMO_SYSTEM_PROMPT, demo_messages
from langchain_ctxbudget.reporting.parts import LAYERS, OWN_COLOURS, STATES

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
TOUCH = 40
"""The least height of what a finger must meet, in CSS pixels."""
CONTRAST = 4.5
"""WCAG 2.2 AA for text."""


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
    """A dashboard, and the pipeline whose store it shows."""

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium: apt-get install chromium")
        pytest.skip("there is no chromium")
    rootless = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=rootless)
        yield browser
        browser.close()


@dataclass(frozen=True)
class Visit:
    """A page, and everything that it did besides showing something."""

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
    """Tokens by layer, as the legend says."""
    rows = page.locator("#legend tbody tr").all()
    return {str(row.get_attribute("data-layer")): number(row.locator(".used")) for row in rows}


def used(report: dict[str, Any]) -> dict[str, int]:
    layers = {part["layer"]: part["used_tokens"] for part in report["layers"]}
    return {**layers, "tools and framing": sum(report["overhead_tokens"].values())}


def states(page: Page) -> dict[str, int]:
    entries = page.locator("#frontier .states li").all()
    return {str(one.get_attribute("data-state")): int(one.get_attribute("data-messages") or -1) for one in entries}


def test_three_sessions_are_listed_with_the_numbers_of_the_api(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url)
    listed = site.ask("sessions")["sessions"]
    entries = page.locator("#sessions a")
    assert {one["session_id"] for one in listed} == {LONG, TOOLS, HOSTILE}
    assert entries.locator(".session-id").all_inner_texts() == [one["session_id"] for one in listed]
    for one, text in zip(listed, entries.all_inner_texts(), strict=True):
        assert f"{one['messages']} messages" in text
        assert one["budget_percent"] is None or f"{one['budget_percent']:.1f} %" in text


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


@pytest.mark.parametrize("way", ["button", "by itself"])
def test_what_came_since_is_there_after_a_refresh(site: Site, visit: Visitor, way: str) -> None:
    one = visit()
    one.page.clock.install()
    page = one.opens(site.url, TOOLS)
    expect(page.locator("#bars .preview")).to_be_visible()
    page.locator("#auto").set_checked(way == "by itself")
    before = page.locator("#bars .snapshot").count()
    site.pipeline.assemble(f"And tomorrow, {way}?", user_id=USER, conversation_id=TOOLS)
    assert site.pipeline.flush()
    if way == "button":
        page.locator("#refresh").click()
    else:
        page.clock.fast_forward(10_000)
    expect(page.locator("#bars .snapshot")).to_have_count(before + 1)
    assert legend(page) == used(site.ask("status", session_id=TOOLS)["current_context"])


def test_repairs_are_told(site: Site, visit: Visitor) -> None:
    repairs = site.ask("status", session_id=TOOLS)["current_context"]["repairs"]
    page = visit().opens(site.url, TOOLS)
    page.get_by_text(f"{len(repairs)} repair").click()
    assert repairs
    for repair in repairs:
        expect(page.locator("#strategy li", has_text=repair["detail"]).first).to_be_visible()


def test_the_slider_shows_what_the_api_says_of_that_budget(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    totals = set()
    for step in ("180", "240", "330"):
        page.locator("#budget-slider").fill(step)
        budget = int(page.locator("#budget-number").input_value())
        expect(page.locator("#what-if-result")).to_contain_text(f"With a budget of {budget:,} tokens")
        report = site.ask("preview", session_id=LONG, budget=budget)["current_context"]
        assert shown_total(page) == number(page.locator("#what-if-total")) == report["total_tokens"] <= budget
        assert legend(page) == used(report)
        totals.add(report["total_tokens"])
    assert len(totals) == 3
    page.locator("#reset").click()
    assert shown_total(page) == site.ask("status", session_id=LONG)["current_context"]["total_tokens"]


def test_a_message_is_tried_without_being_stored(site: Site, visit: Visitor) -> None:
    before = site.pipeline.get_messages(user_id=USER, conversation_id=LONG)
    page = visit().opens(site.url, LONG)
    page.locator("#try-message").fill("What did Nadia say about the kiosk?")
    page.locator("#try").click()
    row = page.locator("#items tr.item[data-layer=L7]")
    page.locator("#filter-layer").select_option("L7")
    expect(row).to_contain_text("What did Nadia say about the kiosk?")
    assert site.pipeline.get_messages(user_id=USER, conversation_id=LONG) == before


def test_a_budget_that_is_too_small_is_explained_with_its_floors(site: Site, visit: Visitor) -> None:
    page = visit(tolerant=True).opens(site.url, LONG)  # the browser notes every answer 409 as an error
    page.locator("#budget-number").fill("20")
    result = page.locator("#what-if-result")
    expect(result).to_contain_text("Too small.")
    answer = httpx.get(f"{site.url}api/context/preview", params={"session_id": LONG, "budget": 20})
    assert answer.status_code == httpx.codes.CONFLICT
    for name, tokens in answer.json()["floors"].items():
        expect(result).to_contain_text(f"{name} {tokens}")


def test_a_bar_shows_its_snapshot_and_the_way_back(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    first = site.ask("snapshots", session_id=LONG)["snapshots"][0]
    expect(page.locator("#bars button")).to_have_count(len(TURNS) + 1)
    page.locator("#bars button").first.click()
    expect(page.locator("#looking")).to_be_visible()
    assert shown_total(page) == first["total_tokens"]
    assert legend(page) == {**first["layers"], "tools and framing": first["overhead_tokens"]}
    page.locator("#back").click()
    expect(page.locator("#looking")).to_be_hidden()
    assert shown_total(page) == site.ask("status", session_id=LONG)["current_context"]["total_tokens"]


def test_items_are_filtered_searched_and_sorted(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    report = site.ask("status", session_id=LONG)["current_context"]
    retrieval = next(part for part in report["layers"] if part["layer"] == "L5")
    rows, counted = page.locator("#items tr.item"), page.locator("#items [role=status]")
    page.locator("#filter-layer").select_option("L5")
    page.locator("#filter-status").select_option("omitted")
    omitted = [item for item in retrieval["items"] if item["status"] == "omitted"]
    expect(counted).to_contain_text(f"{len(omitted)} items of")
    assert {row.get_attribute("data-status") for row in rows.all()} == {"omitted"}
    for reason, further in retrieval["more_omitted"].items():
        expect(page.locator("#items .further")).to_contain_text(f"{further} {reason.replace('_', ' ')}")
    page.locator("#filter-status").select_option("")
    word = "label"
    found = [item for item in retrieval["items"] if word in f"{item['preview']} {item['id']}".lower()]
    page.locator("#search").fill(word.upper())
    expect(counted).to_contain_text(f"{len(found)} item")
    assert 0 < len(found) < len(retrieval["items"])
    page.locator("#search").fill("")
    expect(counted).to_contain_text(f"{len(retrieval['items'])} items")
    page.get_by_role("button", name="Tokens", exact=True).click()
    expect(page.locator("#items th.tokens")).to_have_attribute("aria-sort", "descending")
    sizes = [number(cell) for cell in page.locator("#items tr.item td.tokens").all()]
    assert sizes == sorted((item["tokens"] for item in retrieval["items"]), reverse=True)[: len(sizes)]


def test_a_message_is_pinned_in_the_store_and_let_go_again(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    page.locator("#message-number").fill("17")
    page.locator("#message-number").press("Enter")
    reader = page.locator("#message")
    expect(reader).to_contain_text("Message 17")
    wanted = site.ask("messages", session_id=LONG, first=17, last=17)["messages"][0]
    expect(reader).to_contain_text(wanted["text"])
    reader.get_by_role("button", name="Keep verbatim").click()
    expect(reader.get_by_role("button", name="Keep verbatim")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#pins")).to_contain_text(wanted["text"][:40])
    assert pinned(site, wanted["id"]) == ["pinned"]
    page.get_by_role("button", name="Clear the pin of message 17").click()
    expect(page.locator("#pins")).to_contain_text("None.")
    assert pinned(site, wanted["id"]) == []


def pinned(site: Site, message_id: str) -> list[str]:
    """Why a message is in the next prompt's history, from the store alone: a pipeline that has seen none of it."""
    fresh = ContextPipeline({"max_context_tokens": BUDGET}, store=site.pipeline.store)
    report = fresh.assemble(DEMO_QUESTION, user_id=USER, conversation_id=LONG).report
    return [item.reason for item in report.layer("L6").items if item.id == message_id and item.reason == "pinned"]


def test_a_fact_is_pinned_in_the_store(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    expect(page.locator("#bars .preview")).to_be_visible()  # with the next prompt come the facts that it shows
    page.locator("#pins summary").click()
    entry = page.locator("#pins li", has_text="Coordinates a tool library")
    for label, wanted in (("Pin", True), ("Unpin", False)):
        entry.get_by_role("button", name=label, exact=True).click()
        expect(entry.get_by_role("button", name="Pin" if not wanted else "Unpin", exact=True)).to_be_visible()
        facts = site.pipeline.knowledge.list_facts(user_id=USER)
        assert [fact.pinned for fact in facts if "tool library" in fact.text] == [wanted]


def test_a_budget_has_the_colour_of_how_full_it_is(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    zones = page.evaluate("""import('./assets/words.js').then(({zoneOf}) =>
        [0, 0.599, 0.6, 0.799, 0.8, 1.2].map(share => zoneOf(share).name))""")
    assert zones == ["green", "green", "yellow", "yellow", "red", "red"]
    report = site.ask("status", session_id=LONG)["current_context"]
    share = report["total_tokens"] / report["budget_tokens"]
    gauge = page.locator("#budget .gauge")
    expect(gauge).to_have_class(re.compile("red" if share >= 0.8 else "yellow" if share >= 0.6 else "green"))

    def is_as_wide() -> None:
        assert width_of(gauge.locator("span")) / width_of(gauge) == pytest.approx(share, abs=0.02)

    eventually(page, is_as_wide)


def eventually(page: Page, check: Callable[[], None]) -> None:
    """Check until it holds: a page draws what it has read a moment later."""
    for _ in range(50):
        try:
            return check()
        except AssertionError:
            page.wait_for_timeout(100)
    return check()


def width_of(place: Locator) -> float:
    return float(place.evaluate("node => node.getBoundingClientRect().width"))


def height_of(place: Locator) -> float:
    return float(place.evaluate("node => node.getBoundingClientRect().height"))


def test_bars_are_as_high_as_their_prompts_and_end_at_the_limit(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    bars = page.locator("#bars button")
    expect(bars).to_have_count(len(TURNS) + 1)
    page.locator("#budget-number").fill(str(4 * BUDGET))  # a budget that lifts the scale for all of them
    expect(page.locator("#bars .what-if")).to_be_visible()
    top = site.ask("preview", session_id=LONG, budget=4 * BUDGET)["current_context"]["budget_tokens"]
    assert top > BUDGET
    lines = site.ask("snapshots", session_id=LONG)["snapshots"]

    def are_as_high() -> None:
        for bar, line in zip(bars.all(), lines, strict=False):
            column = height_of(bar.locator(".column"))
            assert height_of(bar.locator(".stack")) == pytest.approx(column * line["total_tokens"] / top, abs=1)
            edge = "node => node.parentElement.getBoundingClientRect().bottom - node.getBoundingClientRect().bottom"
            limit = float(bar.locator(".limit-line").evaluate(edge))
            assert limit == pytest.approx(column * line["budget_tokens"] / top, abs=1.5)
            layers = [tokens for tokens in (*line["layers"].values(), line["overhead_tokens"]) if tokens]
            for segment, tokens in zip(bar.locator(".segment").all(), layers, strict=True):
                assert height_of(segment) == pytest.approx(column * tokens / top, abs=1)

    eventually(page, are_as_high)


def test_the_strip_is_divided_by_messages_and_shows_the_one_under_the_mouse(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    coverage = site.ask("status", session_id=LONG)["current_context"]["coverage"]
    total = coverage[-1]["last"]
    ranges, strip = page.locator("#frontier .range"), page.locator("#frontier .strip")
    expect(ranges).to_have_count(len(coverage))
    widths = [width_of(one) for one in ranges.all()]
    for part, width in zip(coverage, widths, strict=True):
        wanted = sum(widths) * (part["last"] - part["first"] + 1) / total
        assert width == pytest.approx(wanted, abs=2 + 0.02 * sum(widths))
    widest = widths.index(max(widths))
    part = coverage[widest]
    ranges.nth(widest).hover()
    place = part["first"] + (part["last"] - part["first"] + 1) // 2
    reader = page.locator("#message")
    expect(reader).to_contain_text(re.compile(rf"Message ({place - 1}|{place}|{place + 1})(?!\d)"))
    shown = number(reader.locator("strong").first)
    [said] = site.ask("messages", session_id=LONG, first=shown, last=shown)["messages"]
    expect(reader).to_contain_text(said["text"][:200])
    page.mouse.move(0, 0)
    expect(reader).to_contain_text(f"Message {total}")
    expect(strip).to_have_attribute("aria-valuenow", str(total))


def test_usage_tier_and_strategy_are_those_of_the_api(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    usage, status = site.ask("usage", session_id=LONG), site.ask("status", session_id=LONG)
    expect(page.locator("#usage .limit")).to_contain_text("450,000 of 2,000,000")
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#usage tbody tr").all()]
    for column, part in enumerate((usage["session"], usage["month"])):
        counted = [f"{part[name]:,}" for name in ("calls", "input_tokens", "cached_tokens", "output_tokens")]
        assert [row[column] for row in rows] == [*counted, f"${part['cost']:.2f}"]
    meter = page.locator("#usage .meter")
    left = usage["standing"]["left"]
    assert width_of(meter.locator("span")) / width_of(meter) == pytest.approx(1 - left, abs=0.01)
    strategy, report = page.locator("#strategy"), status["current_context"]
    expect(strategy.locator(".tier-word")).to_have_text(report["usage"]["tier"])
    expect(strategy).to_contain_text(f"{100 * report['usage']['left']:.0f} % left of the tokens of this month")
    said = dict(zip(strategy.locator("dt").all_inner_texts(), strategy.locator("dd").all_inner_texts(), strict=True))
    assert said["Allocation"] == report["allocation_strategy"]
    assert said["History"].startswith(report["history_strategy"].replace("_", "-"))
    assert (said["Knowledge"], said["Documents"], said["Verbatim"]) == ("all", "in full", "as budgeted")
    assert said["Settings from"] == " < ".join(report["settings_from"])


def test_a_session_whose_name_no_address_can_hold_hides_no_other(visit: Visitor) -> None:
    with ContextPipeline({"learn": False}, store=InMemoryStore()) as pipeline:
        for name, at in (("plain", "2026-01-01"), ("odd \ud83d", "2026-01-02")):
            said = HumanMessage("Hello", additional_kwargs={"created_at": at})
            pipeline.add_messages([said], user_id=USER, conversation_id=name)
        with served(create_app(pipeline, user_id=USER)) as url:
            page = visit().opens(url)
            expect(page.locator("#sessions li")).to_have_count(2)
            expect(page.locator("#sessions li").first).to_contain_text("odd")
            expect(page.locator("#sessions a")).to_have_count(1)
            expect(page.locator("h1")).to_have_text("plain")
            page.close()


def test_many_sessions_are_found_by_their_names_and_many_snapshots_are_counted(visit: Visitor) -> None:
    with ContextPipeline({"learn": False, "keep_snapshots": 200}, store=InMemoryStore()) as pipeline:
        for n in range(9):
            pipeline.add_messages([HumanMessage("Hello")], user_id=USER, conversation_id=f"Trip {n}")
        for _ in range(103):
            pipeline.assemble("And?", user_id=USER, conversation_id="Trip 7")
        assert pipeline.flush(60)
        with served(create_app(pipeline, user_id=USER)) as url:
            page = visit().opens(url, "Trip 7")
            expect(page.locator("#session-facts")).to_contain_text("103 snapshots")
            expect(page.locator("#bar-caption")).to_contain_text("Snapshot 103 of 103")
            page.locator("#session-filter").fill("trip 3")
            expect(page.locator("#sessions a")).to_have_text([re.compile("Trip 3")])
            expect(page.locator("#session-count")).to_have_text("1 of 9")
            page.close()


def test_of_a_snapshot_whose_messages_have_moved_no_other_message_is_shown(visit: Visitor) -> None:
    settings = {"learn": False, "keep_snapshots": 5, "max_context_tokens": 700}
    with ContextPipeline(settings, store=InMemoryStore()) as pipeline:
        said = [make(f"Message of turn {n}. " * 9, id=f"{n}") for n, make in enumerate([HumanMessage, AIMessage] * 20)]
        pipeline.add_messages(said, user_id=USER, conversation_id="trip")
        pipeline.assemble("And?", user_id=USER, conversation_id="trip")
        assert pipeline.flush(30)
        with served(create_app(pipeline, user_id=USER)) as url:
            page = visit().opens(url, "trip")
            expect(page.locator("#message")).to_contain_text("Message of turn 39.")
            pipeline.remove_messages("0", user_id=USER, conversation_id="trip")
            page.locator("#refresh").click()
            expect(page.locator("#message")).to_contain_text("The conversation has changed since")
            expect(page.locator("#message")).not_to_contain_text("Message of turn")
            page.close()


def test_what_is_forced_is_saved_as_the_users_settings(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    switch = page.get_by_role("switch", name="Documents")
    expect(switch).not_to_be_checked()
    for wanted in (True, False):
        switch.click()
        expect(page.locator("#announce")).to_contain_text("documents always" if wanted else "limits decide")
        saved = site.pipeline.get_settings(user_id=USER)["force_include"]
        assert list(saved) == (["documents"] if wanted else [])
        assert site.ask("settings")["force_include"] == list(saved)
        expect(switch).to_be_checked(checked=wanted)


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


def test_the_keyboard_alone_is_enough(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, LONG)
    expect(page.locator("#bars button")).to_have_count(len(TURNS) + 1)
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    reached: list[str] = []
    outline = """() => { const node = document.activeElement, style = getComputedStyle(node);
        return [node.id || node.dataset.key || node.className || node.name || node.tagName,
                style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2, node === document.body]; }"""
    for _ in range(400):
        page.keyboard.press("Tab")
        name, is_visible, is_over = page.evaluate(outline)
        if is_over:
            break
        assert is_visible, name
        reached.append(name)
    wanted = {"budget-slider", "budget-number", "try-message", "try", "strip", "pin keep", "filter-layer"}
    assert wanted | {"search", "sort tokens", "more", "force knowledge", "force budget"} <= set(reached)
    bars = page.locator("#bars button")
    bars.last.press("Home")
    expect(bars.first).to_be_focused()
    first = site.ask("snapshots", session_id=LONG)["snapshots"][0]
    expect(page.locator("#total")).to_have_attribute("data-tokens", str(first["total_tokens"]))
    bars.first.press("ArrowRight")
    expect(bars.nth(1)).to_be_focused()
    expect(bars.nth(1)).to_have_attribute("aria-pressed", "true")
    strip = page.get_by_role("slider", name="Message of the history")
    strip.press("Home")
    for key, position in (("ArrowRight", "2"), ("PageDown", "12"), ("ArrowLeft", "11")):
        strip.press(key)
        expect(strip).to_have_attribute("aria-valuenow", position)
    expect(strip).to_have_attribute("aria-valuetext", re.compile("message 11, .*: "))


def test_on_a_phone_nothing_scrolls_sideways_and_a_finger_meets_everything(site: Site, visit: Visitor) -> None:
    one = visit(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, device_scale_factor=2)
    for session in (LONG, HOSTILE):
        page = one.opens(site.url, session)
        page.locator("#picker summary").tap()
        page.locator("#budget-number").fill("1500")
        expect(page.locator("#what-if-result")).to_contain_text("1,500 tokens")
        page.locator("#items .item .preview button").first.tap()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        targets = page.locator("button:visible, a:visible, select:visible, input:visible, summary:visible").all()
        boxes = [(one.evaluate("node => node.closest('label') ?? node"), one.evaluate(BOX)) for one in targets]
        small = [box for _, box in boxes if box["height"] < TOUCH - 0.5 or box["width"] < TOUCH - 0.5]
        assert small == []


BOX = """node => { const box = (node.closest('label') ?? node).getBoundingClientRect();
    return {name: node.id || node.dataset.key || node.textContent, width: box.width, height: box.height}; }"""

CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const channels = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = colour => { const [r, g, b] = channels(colour).slice(0, 3).map(value => value / 255)
    .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = node => { for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor; if (channels(colour)[3] === 255) return colour; }
    return 'white'; };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility() || node.closest(':disabled, .unseen, .skip, datalist, option')) continue;
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.className + ': ' + node.textContent.slice(0, 40)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_of_aa(site: Site, visit: Visitor, scheme: str) -> None:
    page = visit(color_scheme=scheme).opens(site.url, LONG)
    page.locator("#bars button").nth(2).click()
    expect(page.locator("#looking")).to_be_visible()
    page.locator("#items .item .preview button").first.click()
    found = page.evaluate(CONTRASTS)
    assert len(found) > 100
    assert [(round(ratio, 2), text) for ratio, text in found if ratio < CONTRAST] == []


def test_a_chosen_theme_stays_over_a_visit(site: Site, visit: Visitor) -> None:
    one = visit(color_scheme="light")
    page = one.opens(site.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.locator("#theme").click()
    page.locator("#theme").click()
    expect(page.locator("#theme")).to_have_text("Theme: dark")
    dark = page.evaluate(ground)
    one.opens(site.url)
    assert page.evaluate(ground) == dark != light


def test_no_request_goes_anywhere_but_the_server(site: Site, visit: Visitor) -> None:
    one = visit()
    for session in (LONG, TOOLS, HOSTILE):
        one.opens(site.url, session)
    one.page.locator("#refresh").click()
    expect(one.page.locator("#main")).to_have_attribute("aria-busy", "false")
    assert {urlsplit(url).netloc for url in one.requests if not url.startswith("data:")} == {urlsplit(site.url).netloc}
    assert len(one.requests) > 30


def test_words_and_colours_are_those_of_the_package(site: Site, visit: Visitor) -> None:
    page = visit(color_scheme="light").opens(site.url)
    words = page.evaluate("import('./assets/words.js').then(module => JSON.parse(JSON.stringify(module)))")
    assert words["LAYERS"] == {str(layer): title for layer, title in TITLES.items()}
    assert words["STATES"] == {state: word for state, (word, _) in STATES.items()}
    assert set(words["REASONS"]) == set(Reason)
    assert set(words["STATUSES"]) == set(Status)
    assert set(words["FORCED"]) == set(get_args(Forced))
    colours = {f"layer-{layer}": colour for layer, (_, colour) in LAYERS.items()}
    colours |= {f"layer-own{n}": colour for n, colour in enumerate(OWN_COLOURS)}
    colours |= {f"state-{state}": colour for state, (_, colour) in STATES.items()}
    for name, colour in colours.items():
        assert page.evaluate(COLOUR, name) == tuple_of(colour), name


COLOUR = """name => { const node = document.body.appendChild(document.createElement('i')); node.className = name;
    return getComputedStyle(node).backgroundColor; }"""


def tuple_of(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[n : n + 2], 16)) for n in (1, 3, 5))})"


def test_a_user_without_sessions_is_told_how_to_begin(site: Site, visit: Visitor) -> None:
    with served(create_app(site.pipeline, user_id="nobody yet")) as url:
        page = visit().opens(url)
        expect(page.locator("#empty")).to_contain_text("No sessions yet")
        expect(page.locator("#content")).to_be_hidden()


def test_a_session_without_snapshots_says_how_to_keep_them(site: Site, visit: Visitor) -> None:
    page = visit().opens(site.url, HOSTILE)
    expect(page.locator("#bar-caption")).to_contain_text("keep_snapshots")
    expect(page.locator("#bars button")).to_have_count(1)


def test_a_session_that_does_not_exist_is_said_to_be_unknown(site: Site, visit: Visitor) -> None:
    page = visit(tolerant=True).opens(site.url, "nobody's")
    expect(page.locator("#notice")).to_contain_text("There is no such session")
    page.locator("#sessions a").first.click()
    expect(page.locator("#content")).to_be_visible()
    expect(page.locator("#notice")).to_be_hidden()


def test_a_server_that_is_gone_is_told_and_what_was_there_stays(site: Site, visit: Visitor) -> None:
    with served(create_app(site.pipeline, user_id=USER)) as url:
        page = visit(tolerant=True).opens(url, LONG)
    page.locator("#refresh").click()
    expect(page.locator("#notice")).to_contain_text("does not answer")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    assert shown_total(page) > 0


def test_without_its_token_the_page_asks_for_it(site: Site, visit: Visitor) -> None:
    with served(create_app(site.pipeline, user_id=USER, token="a-secret-of-this-page")) as url:
        page = visit(tolerant=True).opens(f"{url}?token=a-secret-of-this-page")
        expect(page.locator("#content")).to_be_visible()
        assert "a-secret" not in page.url
        page.context.clear_cookies()
        page.locator("#refresh").click()
        expect(page.locator("#notice")).to_contain_text("asks for its token")


def test_screenshots_are_there_for_a_reviewer(site: Site, visit: Visitor, tmp_path: Path) -> None:
    folder = Path(os.environ.get("CTXBUDGET_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
    for name, options in (("light", {}), ("dark", {"color_scheme": "dark"}), ("phone", phone)):
        page = visit(**options).opens(site.url, LONG)
        expect(page.locator("#bars button")).to_have_count(len(TURNS) + 1)
        page.screenshot(path=folder / f"{name}.png", full_page=True)
        page.locator("#budget-number").fill("1500")
        expect(page.locator("#what-if-result")).to_contain_text("1,500 tokens")
        page.locator("#what-if-title").evaluate("node => node.scrollIntoView()")
        page.screenshot(path=folder / f"{name}-what-if.png")
        assert (folder / f"{name}.png").stat().st_size > 20_000
