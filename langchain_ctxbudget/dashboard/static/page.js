// The dashboard: reads the API, keeps what is looked at, and lets every part of the page draw it.

import { api } from "./api.js";
import { showBars, showLegend } from "./bars.js";
import { el, fill, plural, said, visible, when } from "./dom.js";
import { Frontier } from "./frontier.js";
import { Items } from "./items.js";
import { Messages } from "./messages.js";
import { showPins } from "./overrides.js";
import { messagesOf } from "./report.js";
import { addressOf, isAddressable, sessionInAddress, showSessions } from "./sessions.js";
import { showBudget, showStrategy, showUsage } from "./summary.js";
import { WhatIf } from "./whatif.js";

const AUTO_MILLISECONDS = 10_000;
const QUIET_MILLISECONDS = 200;
/** What differs from one answer to the next though nothing has changed. */
const VOLATILE = new Set(["timings_ms", "tokenizer_calls", "last_updated"]);
const NARROW = matchMedia("(max-width: 860px)");

const node = (id) => document.getElementById(id);

/** What is known and what is looked at; `looking` is a snapshot's id, "preview" or "what-if". */
const view = {
  sessions: [], session: null, settings: null, usage: null, snapshots: [], kept: 0, current: null, next: null, whatIf: null,
  base: null, shown: null, looking: null, messages: null, stored: 0, drawn: "",
};
let loading = 0;

const frontier = new Frontier({ failed, pinned: (message) => pinsChanged(`Message ${message.position} is changed; the next prompt goes by it.`) });
const items = new Items({ jump: { positionOf: (id) => view.messages?.positionOf(id), to: jumpTo } });
const whatIf = new WhatIf({
  failed,
  found: (answer, base) => {
    Object.assign(view, { whatIf: answer, base });
    if (answer) look("what-if");
    else if (view.looking === "what-if") look(latest());
    else draw();
  },
  ended: () => {
    Object.assign(view, { whatIf: null, base: null });
    look(latest());
  },
});

const latest = () => (view.current.source === "snapshot" && view.snapshots.length ? view.snapshots.at(-1).id : "preview");

/** Reads everything about a session; what is on the page stays there until the answer has come. */
async function load(session, { isQuiet = false } = {}) {
  const turn = (loading += 1);
  const isLatest = () => turn === loading;
  busy(true);
  try {
    const { sessions, user_id: user } = await api.sessions();
    const picked = session ?? sessions.find((one) => isAddressable(one.session_id))?.session_id ?? null;
    if (!isLatest()) return;
    Object.assign(view, { sessions });
    node("user").replaceChildren("user ", said(user, { class: "strong" }));
    if (picked === null) return noSessions();
    const optional = (promise) => promise.catch(() => null);
    const [current, { snapshots }, usage, settings] = await Promise.all([
      api.status(picked), api.snapshots(picked), optional(api.usage(picked)), optional(api.settings()),
    ]);
    if (!isLatest()) return;
    const listed = sessions.find((one) => one.session_id === picked);
    const stored = listed?.messages ?? messagesOf(current.current_context);
    const kept = Math.max(snapshots.length, listed?.snapshots ?? 0);
    shows(picked, { current, snapshots, kept, usage, settings, stored }, isQuiet);
  } catch (problem) {
    if (isLatest()) failed(problem, session);
  } finally {
    if (isLatest()) busy(false);
  }
}

function shows(picked, read, isQuiet) {
  const isOther = view.session !== picked;
  const drawn = essence(read);
  const isSame = isQuiet && !isOther && view.drawn === drawn;
  view.drawn = drawn;
  node("notice").hidden = node("empty").hidden = true;
  node("content").hidden = false;
  if (isSame) {
    showSessions(view);
    lookAhead();
    return;
  }
  const wasLatest = isOther || view.looking === latest();
  const hasGrown = isOther || read.stored !== view.stored;
  Object.assign(view, read, { session: picked });
  if (isOther) Object.assign(view, { whatIf: null, base: null, next: null });
  if (view.current.source === "preview") view.next = view.current;
  if (hasGrown || !isQuiet) view.messages = new Messages(picked);
  const isGone = view.looking !== "what-if" && view.looking !== "preview" && !view.snapshots.some((line) => line.id === view.looking);
  if (wasLatest || isGone) Object.assign(view, { looking: latest(), shown: view.current });
  if (location.hash !== addressOf(picked)) history.replaceState(null, "", addressOf(picked));
  whatIf.show(picked, view.current.current_context, view.settings);
  showSessions(view);
  showUsage(view.usage, view.settings);
  draw();
  if (isOther && NARROW.matches) node("picker").open = false;
  lookAhead();
}

const essence = (data) => JSON.stringify(data, (name, value) => (VOLATILE.has(name) ? undefined : value));

/** Draws what is looked at. */
function draw() {
  const { shown, current, looking } = view;
  const report = shown.current_context;
  const isLatest = looking === latest();
  const compared = looking === "what-if" ? view.base?.current_context : isLatest ? null : current.current_context;
  document.title = `${visible(view.session)} – Context budget`;
  node("session-title").replaceChildren(said(view.session));
  node("session-facts").textContent = [
    plural(messagesOf(report), "message"), plural(view.kept, "snapshot"),
    { snapshot: "as it was sent", preview: "what the next prompt would be" }[shown.source], when(shown.last_updated),
  ].filter(Boolean).join(" · ");
  node("looking").hidden = isLatest;
  node("looking-at").textContent =
    { "what-if": "What if: everything below shows this forecast, not what was sent.", preview: "The next prompt, as it would be now." }[looking] ??
    `An earlier prompt, of ${when(shown.last_updated)}: everything below shows it as it was.`;
  showBudget(report);
  showStrategy(shown);
  showBars(view, { look });
  showLegend(report, compared, { filterLayer: (name) => items.filterLayer(name) });
  frontier.show(shown, view.messages);
  items.show(report);
  drawPins();
}

/** Looks at a snapshot, at the next prompt, or at the what-if. */
async function look(key) {
  const session = view.session;
  const here = { preview: view.next, "what-if": view.whatIf };
  try {
    view.looking = key;
    const isCurrent = key === latest();
    if (!isCurrent && !(key in here)) showBars(view, { look });
    const shown = isCurrent ? view.current : (here[key] ?? (await api.snapshot(session, key)));
    if (session !== view.session || view.looking !== key) return;
    view.shown = shown;
    draw();
  } catch (problem) {
    failed(problem, session);
  }
}

function jumpTo(position) {
  frontier.move(Math.min(position, messagesOf(view.shown.current_context)));
  node("history-title").scrollIntoView({ block: "start" });
  document.querySelector("#frontier .strip")?.focus({ preventScroll: true });
}

const drawPins = () =>
  showPins({
    messages: view.messages, total: view.stored, report: (view.next ?? view.current).current_context,
    jump: jumpTo, failed, changed: () => pinsChanged("The pin is changed; the next prompt goes by it."),
  });

/** What takes longer and nobody waits for: the next prompt, and the newest messages, of which pins are known. */
async function lookAhead() {
  const { session, messages, current } = view;
  const isStill = () => session === view.session && messages === view.messages && current === view.current;
  try {
    const next = current.source === "preview" ? current : await api.preview(session);
    if (!isStill()) return;
    const isNew = essence(view.next) !== essence(next);
    view.next = whatIf.base = next;
    if (isNew && view.looking === "preview") {
      view.shown = next;
      draw();
    } else if (isNew) {
      showBars(view, { look });
    }
    await messages.newest(view.stored);
    if (isStill()) drawPins();
  } catch (problem) {
    if (isStill()) failed(problem, session);
  }
}

function pinsChanged(words) {
  announce(words);
  drawPins();
  frontier.read();
  load(view.session, { isQuiet: true });
}

function noSessions() {
  node("content").hidden = node("notice").hidden = true;
  node("empty").hidden = false;
  view.session = null;
  showSessions(view);
  fill(
    node("empty"),
    el("h1", {}, "No sessions yet"),
    el("p", {}, "Nothing is stored for this user. A conversation appears here when its first message is:"),
    el("pre", {}, 'pipeline.add_messages([HumanMessage("Hello")], user_id="me", conversation_id="c1")'),
    el("p", { class: "muted" }, "With the setting keep_snapshots above 0, every prompt is kept as a snapshot, and this page shows how the layers go on over the turns."),
  );
}

/** Says what went wrong; of a session, that there is none. */
function failed(problem, session) {
  if (problem.name === "AbortError") return;
  const isGone = problem.status === 404 && session !== undefined;
  fill(
    node("notice"),
    el("p", {}, visible(isGone ? "There is no such session, or it is another user's. Pick one from the list." : problem.message)),
    isGone ? null : el("button", { type: "button", on: { click: () => load(session ?? sessionInAddress()) } }, "Try again"),
  );
  node("notice").hidden = false;
  if (!isGone) return;
  node("content").hidden = true;
  view.session = null;
  showSessions(view);
}

const announce = (words) => {
  node("announce").textContent = words;
};

let indicator;
function busy(isBusy) {
  clearTimeout(indicator);
  node("main").setAttribute("aria-busy", String(isBusy));
  if (isBusy) indicator = setTimeout(() => node("progress").classList.add("on"), QUIET_MILLISECONDS);
  else node("progress").classList.remove("on");
}

function automatic() {
  const box = node("auto");
  setInterval(() => {
    if (box.checked && !document.hidden) load(view.session ?? sessionInAddress(), { isQuiet: true });
  }, AUTO_MILLISECONDS);
}

node("refresh").addEventListener("click", () => load(view.session ?? sessionInAddress()));
node("back").addEventListener("click", () => {
  if (view.looking === "what-if") whatIf.reset();
  Object.assign(view, { whatIf: null, base: null });
  look(latest());
  node("main").focus();
});
node("skip").addEventListener("click", (event) => {
  event.preventDefault();
  node("main").focus();
});
addEventListener("hashchange", () => {
  const session = sessionInAddress();
  if (session !== null && session !== view.session) load(session);
});
node("session-filter").addEventListener("input", () => showSessions(view));
if (NARROW.matches) node("picker").open = false;
automatic();
load(sessionInAddress());
