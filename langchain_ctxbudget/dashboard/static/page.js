// The dashboard: reads the API, keeps what is looked at, and lets every part of the page draw it.

import { showAccount, showNumbers, showOut, showUsage } from "./account.js";
import { api } from "./api.js";
import { addressOf, count, debounced, el, fill, percent, plural, said, visible, when } from "./dom.js";
import { History } from "./history.js";
import { Known } from "./known.js";
import { Prompt } from "./prompt.js";
import { Rules } from "./rules.js";
import { lineOf, showTurns } from "./turns.js";
import { learnWords } from "./words.js";

const LEAST_BUDGET = 250;
const MOST_BUDGET = 128_000;
const STEPS = 200;
const ASK_MILLISECONDS = 250;
const NARROW = matchMedia("(max-width: 860px)");

const node = (id) => document.getElementById(id);

/** What is known, and what is looked at: `picked` is the id of a snapshot, null for the next prompt. */
const view = {
  sessions: [],
  session: null,
  snapshots: [],
  next: null,
  picked: null,
  message: "",
  budget: null,
  usual: null,
};
/** Which of several questions is the newest; answers to older ones are not drawn. */
let turn = 0;

const history = new History({ failed, pinned: () => changed("The pin is changed; the next prompt goes by it.") });
const known = new Known({ failed, changed: () => changed("What is known is changed; the next prompt goes by it.") });
const rules = new Rules({
  failed,
  open: openMessage,
  changed: () => changed("The rules are changed; the next prompt goes by them."),
});
const prompt = new Prompt({ open: openMessage, rules, picked: remember });

/** Where the address says to look: #session=…&message=…&budget=…&part=…, so that it can be kept and shared. */
function asked() {
  const { session, message = "", budget, part = null } = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  return { session, message, budget: Number(budget) || null, part };
}

/** Puts into the address what is looked at, with the part that is picked. */
function remember(part = null) {
  const more = {
    ...(view.message && { message: view.message }),
    ...(view.budget && view.budget !== view.usual && { budget: view.budget }),
    ...(part && { part }),
  };
  window.history.replaceState(null, "", addressOf(view.session, more));
}

/** Reads everything about a session; what is on the page stays there until the answer has come. */
async function load(wanted, { isFollowed = false } = {}) {
  const mine = (turn += 1);
  const isStill = () => mine === turn;
  node("main").setAttribute("aria-busy", "true");
  try {
    const { sessions, user_id: user, words } = await api.sessions();
    learnWords(words);
    const session = wanted ?? sessions.find((one) => one.session_id.isWellFormed())?.session_id;
    if (!isStill()) return;
    fill(node("user"), "user ", said(user));
    view.sessions = sessions;
    node("empty").hidden = Boolean(session);
    if (!session) return hide();
    const isOther = session !== view.session;
    const { message, budget, part } = asked();
    if (isOther || isFollowed) Object.assign(view, { message, budget, picked: null });
    if (isOther) view.usual = null;
    const [{ snapshots, replayed, input_price: price }, next, usage] = await Promise.all([
      api.snapshots(session),
      api.preview(session, view.message, view.budget),
      api.usage(session),
      known.load(),
      rules.load(session),
    ]);
    if (!isStill()) return;
    if (!snapshots.some(({ id }) => id === view.picked)) view.picked = null;
    const shown = view.picked ? await api.snapshot(session, view.picked) : next;
    history.begin(session);
    await history.at(Math.max(1, next.current_context.coverage.at(-1)?.last ?? 1));
    if (!isStill()) return;
    Object.assign(view, { session, snapshots, replayed, price, next, usage });
    if (isOther && NARROW.matches) node("picker").open = false;
    view.usual ??= view.budget ? (view.snapshots.at(-1)?.budget_tokens ?? view.budget) : next.current_context.budget_tokens;
    showSessions();
    showForm();
    showUsage(usage);
    draw(shown);
    if (part && (isOther || isFollowed)) prompt.find(part);
  } catch (problem) {
    if (isStill()) failed(problem, wanted);
  } finally {
    if (isStill()) node("main").setAttribute("aria-busy", "false");
  }
}

/** Shows a message of the history, by its position. */
function openMessage(position) {
  history.move(position);
  node("history-title").scrollIntoView({ block: "start" });
  document.querySelector(".strip")?.focus({ preventScroll: true });
}

/** Draws a prompt: the next one, or one that was sent. */
function draw(answer) {
  const report = answer.current_context;
  const session = view.sessions.find((one) => one.session_id === view.session);
  node("notice").hidden = true;
  node("content").hidden = false;
  document.title = `${visible(session?.title || view.session)} – Context budget`;
  fill(node("title"), said(session?.title || view.session));
  const earlier = view.replayed
    ? "an earlier prompt, as it would have been"
    : `the prompt of ${when(answer.last_updated)}, as far as its texts are kept`;
  const kind = answer.source === "snapshot" ? earlier : "the next prompt, as it would be now";
  const id = session?.title === view.session ? "" : [said(view.session), " · "];
  fill(node("facts"), id, `${plural(session?.messages ?? 0, "message")} · ${kind}`);
  node("summary").textContent = visible(answer.summary);
  showNumbers(answer);
  showJumps();
  showTurns(view, lineOf(view.next.current_context), look);
  prompt.show(answer);
  history.show(report);
  showOut(report);
  showAccount(report, answer.pruning_strategy);
}

/** What stands where on the page, to get there at once. */
function showJumps() {
  const jump = ([id, label]) =>
    el(
      "button",
      { type: "button", data: { key: `jump ${id}` }, on: { click: () => node(id).scrollIntoView({ block: "start" }) } },
      label,
    );
  const parts = [
    ["turns-title", "Turns"],
    ["prompt-title", "Word for word"],
    ["history-title", "Every message"],
    ["rules-title", `Rules ${count(rules.rules.length)}`],
    ["out-title", "Left out"],
    ["known-title", "Known about the user"],
    ["account-title", "How it was made"],
  ];
  fill(node("jumps"), parts.map(jump));
}

/** Looks at a snapshot, or at the next prompt (null). */
async function look(id) {
  const mine = (turn += 1);
  const { session } = view;
  try {
    const shown = id === null ? view.next : await api.snapshot(session, id);
    if (mine !== turn) return;
    view.picked = id;
    draw(shown);
  } catch (problem) {
    if (mine === turn) failed(problem, session);
  } finally {
    if (mine === turn) node("main").setAttribute("aria-busy", "false");
  }
}

function showSessions() {
  node("session-count").textContent = count(view.sessions.length);
  fill(
    node("sessions"),
    view.sessions.map(
      ({ session_id: id, title, messages, last_updated: at, total_tokens: total, budget_tokens: budget }) => {
        const facts = [plural(messages, "message"), total ? `last prompt ${percent(total / budget)} full` : null, when(at)]
          .filter(Boolean)
          .join(" · ");
        const inside = [
          el("strong", {}, said(title || id)),
          title && title !== id ? said(id, { class: "muted small" }) : null,
          el("span", { class: "muted small" }, facts),
        ];
        // Half of a pair of surrogates, which a stored name may have, is nothing that an address can hold.
        return el(
          "li",
          {},
          id.isWellFormed()
            ? el(
                "a",
                {
                  href: addressOf(id),
                  class: "session",
                  "aria-current": id === view.session ? "true" : null,
                  data: { key: id },
                },
                inside,
              )
            : el("span", { class: "session" }, inside, "no address can hold its name"),
        );
      },
    ),
  );
}

// What if: another message, another budget

const budgetAt = (step) => rounded(LEAST_BUDGET * (MOST_BUDGET / LEAST_BUDGET) ** (step / STEPS));
const stepAt = (budget) =>
  Math.round(
    (STEPS * Math.log(Math.min(MOST_BUDGET, Math.max(LEAST_BUDGET, budget)) / LEAST_BUDGET)) /
      Math.log(MOST_BUDGET / LEAST_BUDGET),
  );
const rounded = (budget) => Number(budget.toPrecision(2));

function showForm() {
  const budget = view.budget ?? view.usual;
  const turnItem = view.next.prompt.at(-1)?.parts.filter((part) => part.layer === "L7" && part.item !== null);
  node("message").value = view.message;
  node("message").placeholder = visible(turnItem?.map((part) => part.text).join("") ?? "");
  node("budget").value = budget;
  node("slider").value = stepAt(budget);
  node("slider").setAttribute("aria-valuetext", `${count(budget)} tokens`);
}

async function tryOut() {
  const mine = (turn += 1);
  const { session } = view;
  view.message = node("message").value.trim();
  view.budget = Math.max(1, Math.round(Number(node("budget").value))) || view.usual;
  remember();
  node("main").setAttribute("aria-busy", "true");
  try {
    const next = await api.preview(session, view.message, view.budget);
    if (mine !== turn) return;
    Object.assign(view, { next, picked: null });
    showForm();
    draw(next);
    announce(`The prompt has ${plural(next.current_context.total_tokens, "token")}.`);
  } catch (problem) {
    if (mine === turn) failed(problem, session);
  } finally {
    if (mine === turn) node("main").setAttribute("aria-busy", "false");
  }
}

function changed(words) {
  announce(words);
  load(view.session);
}

function announce(words) {
  node("announce").textContent = words;
}

function hide() {
  node("content").hidden = node("notice").hidden = true;
  view.session = null;
  showSessions();
}

/** Says what went wrong; of a session, that there is none. */
function failed(problem, session) {
  if (problem.status === undefined) console.error(problem);
  const isGone = problem.status === 404 && session !== undefined;
  const floors = Object.entries(problem.floors ?? {}).map(([name, tokens]) => `${name} ${count(tokens)}`);
  fill(
    node("notice"),
    el("p", {}, visible(isGone ? "There is no such session, or it is another user's. Pick one from the list." : problem.message)),
    floors.length ? el("p", { class: "muted" }, visible(`What must be sent: ${floors.join(", ")}`)) : null,
    problem.status === 0
      ? el("button", { type: "button", on: { click: () => load(session ?? asked().session) } }, "Try again")
      : null,
  );
  node("notice").hidden = false;
  if (isGone) {
    node("content").hidden = true;
    view.session = null;
    showSessions();
  }
}

const trySoon = debounced(ASK_MILLISECONDS, tryOut);
node("try").addEventListener("submit", (event) => {
  event.preventDefault();
  tryOut();
});
node("slider").addEventListener("input", () => {
  node("budget").value = budgetAt(Number(node("slider").value));
  trySoon();
});
node("budget").addEventListener("change", tryOut);
node("copy").hidden = !navigator.clipboard; // where the page is not this machine's and not encrypted
node("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(prompt.text).then(
    () => announce("The prompt is copied."),
    () => announce("The browser does not let the page copy."),
  );
});
node("refresh").addEventListener("click", () => load(view.session ?? asked().session));
addEventListener("hashchange", () => {
  const { session, message, budget, part } = asked();
  if (!session) return;
  const isShown = session === view.session && message === view.message && (budget ?? view.usual) === (view.budget ?? view.usual);
  if (!isShown) load(session, { isFollowed: true });
  else if (part) prompt.find(part);
});
if (NARROW.matches) node("picker").open = false;
load(asked().session);
