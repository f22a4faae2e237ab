// What a prompt costs, how it was made, what is left out of it, and what has been used.

import { count, el, fill, money, percent, plural, said } from "./dom.js";
import { nameOf, reasonOf } from "./words.js";

const LIMITS = {
  session_tokens: "tokens of this session",
  session_cost: "cost of this session",
  month_tokens: "tokens of this month",
  month_cost: "cost of this month",
};
const COUNTS = [
  ["calls", "calls"],
  ["input", "input_tokens"],
  ["of it cached", "cached_tokens"],
  ["output", "output_tokens"],
];

const node = (id) => document.getElementById(id);
const hint = (text) => el("p", { class: "hint" }, text);

export function showTiles(report) {
  const { total_tokens: total, budget_tokens: budget, own_effective_tokens: own, stability, usage } = report;
  const { shared_tokens: shared, effective_tokens: effective, turns_to_step: left } = stability;
  const cached = total - effective > shared / 2 ? shared : 0; // where the cache is cold, it holds nothing of it
  const whole = count(stability.whole_effective_tokens);
  const ownCalls = own ? `, ${count(own)} of them for own calls` : "";
  const steps = left === 0 ? "next turn" : `in ${plural(left ?? 0, "turn")}`;
  fill(
    node("tiles"),
    tile("Prompt", `${count(total)} tokens`, `${percent(total / budget, 0)} of a budget of ${count(budget)}`, {
      id: "total",
      more: meter(total, budget),
    }),
    cached
      ? tile("Cached", `${count(cached)} tokens`, `${percent(cached / total, 0)} are the beginning of the last prompt, too`)
      : tile("Cached", "nothing", "no cache has the beginning of it"),
    tile("Paid for", `${count(effective + own)} tokens${ownCalls}`, `${whole} if everything were sent; a cached token counts a tenth`),
    left === null
      ? tile("Next compaction", "every turn", "prompts are chosen anew")
      : tile("Next compaction", steps, `then about ${count(stability.step_tokens)} new tokens`),
    usage && tile("Usage limit", usage.tier, `${percent(usage.left, 0)} left of the ${LIMITS[usage.limit] ?? usage.limit}`),
  );
}

const tile = (name, value, note, { id, more } = {}) =>
  el(
    "div",
    { class: "tile" },
    el("h2", {}, name),
    el("p", { class: "big", id }, value),
    el("p", { class: "muted small" }, note),
    more,
  );

function meter(total, budget) {
  const share = percent(Math.min(1, total / budget)).replace(" ", "");
  return el(
    "div",
    {
      class: "meter",
      role: "meter",
      "aria-label": "Budget use",
      "aria-valuemin": 0,
      "aria-valuemax": budget,
      "aria-valuenow": total,
    },
    el("span", { css: { width: share } }),
  );
}

/** How the prompt was made, as far as there is something to say. */
export function showAccount(report, tier) {
  const { usage, window_tokens: window, output_reserve_tokens: reserve, summaries_waiting: waiting } = report;
  const took = Object.values(report.timings_ms).reduce((total, value) => total + value, 0);
  const lines = [
    ["Divided by", report.allocation_strategy],
    ["History", report.history_strategy.replaceAll("_", " ")],
    ["Counted", `${report.count_mode === "exact" ? "exactly" : "estimated, with a margin"} (${report.tokenizer})`],
    ["Window", window && `${count(window)} tokens (${report.window_detail || report.window_source})`],
    ["For the answer", reserve && `${count(reserve)} tokens`],
    ["Settings from", report.settings_from.length > 1 && report.settings_from.join(" < ")],
    ["Limits let in", usage && `knowledge ${tier.tier2_items}, documents ${tier.tier3_mode}, history ${tier.tier4_messages}`],
    ["Own calls", ownCallsOf(report.own_calls)],
    ["Summaries", waiting && `${count(waiting)} still to be written by the model`],
    ["Time", took && `${count(Math.round(took))} ms`],
    ["Repaired", report.repairs.map((repair) => `${repair.kind}: ${repair.detail}`).join("; ")],
    ["Failed", report.failures.join("; ")],
    ["Note", report.notes.join("; ")],
    ["Lost", report.lost_values.map((lost) => `${lost.value || lost.kind} (#${lost.message})`).join(", ")],
    ["Squeezed", report.last_resort.join(", ")],
  ];
  const entry = ([name, value]) => value && el("div", {}, el("dt", {}, name), el("dd", {}, said(value)));
  fill(node("account"), lines.map(entry));
}

/** The calls that learn and sum up since the last prompt, by what they were for; empty where there are none. */
function ownCallsOf(ownCalls) {
  const line = ([purpose, usage]) =>
    `${plural(usage.calls, "call")} for ${purpose.replaceAll("_", " ")}: ${count(usage.input_tokens)} tokens of input, ${count(usage.output_tokens)} of output` +
    (usage.unpriced_calls < usage.calls ? `, ${money(usage.cost)}` : "") +
    (usage.estimated_calls ? `; ${count(usage.estimated_calls)} estimated` : "");
  return Object.entries(ownCalls.by_purpose).map(line).join("; ");
}

/** What is not in the prompt, by layer and reason, with the first of it. */
export function showOut(report) {
  const groups = new Map();
  const groupOf = (layer, reason) => {
    const key = `${layer} ${reason}`;
    if (!groups.has(key)) groups.set(key, { layer, reason, items: [], more: 0 });
    return groups.get(key);
  };
  for (const part of report.layers) {
    for (const item of part.items) if (item.status === "omitted") groupOf(part.layer, item.reason).items.push(item);
    for (const [reason, number] of Object.entries(part.more_omitted)) groupOf(part.layer, reason).more += number;
  }
  const drawn = [...groups.values()].map(leftOut);
  const quoted = report.coverage.filter(({ state }) => state === "retrieved");
  const number = quoted.reduce((sum, { first, last }) => sum + last - first + 1, 0);
  const note = number ? hint(`History counts each message that it does not show; retrieval quotes ${count(number)} of them.`) : null;
  fill(node("out"), drawn.length ? [...drawn, note] : hint("Nothing: all that there is stands in the prompt."));
}

function leftOut({ layer, reason, items, more }) {
  const number = el("strong", {}, count(items.length + more));
  const entry = (item) =>
    el("li", {}, said(item.preview || item.id), el("span", { class: "muted number" }, ` ${plural(item.tokens, "token")}`));
  return el(
    "details",
    {},
    el("summary", {}, said(`${nameOf(layer)}: `), number, ` ${reason.replaceAll("_", " ")}`),
    el("p", { class: "muted small" }, `${reasonOf(reason)}.`),
    el("ul", { class: "entries" }, items.map(entry)),
    more ? el("p", { class: "muted small" }, `and ${count(more)} more that are counted only`) : null,
  );
}

export function showUsage({ session, month, own, limits }) {
  if (!month.calls) {
    fill(node("usage"), hint("No call of a model is counted yet: a callback handler, the middleware or observe_usage do it."));
    return;
  }
  const row = (name, ...values) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      values.map((value) => el("td", { class: "number" }, value)),
    );
  const titles = ["session", "month"].map((name) => el("th", { scope: "col", class: "number" }, name));
  const rows = COUNTS.map(([name, field]) => row(name, count(session[field]), count(month[field])));
  if (own.month.calls) rows.splice(1, 0, row("of them to learn and sum up", count(own.session.calls), count(own.month.calls)));
  const set = Object.entries(limits ?? {}).filter(([name, value]) => name in LIMITS && value !== null);
  const amounts = set.map(([name, value]) => `${name.endsWith("cost") ? money(value) : count(value)} ${LIMITS[name]}`);
  fill(
    node("usage"),
    el(
      "table",
      { class: "plain" },
      el("thead", {}, el("tr", {}, el("td", {}), titles)),
      el("tbody", {}, rows, row("cost", money(session.cost), money(month.cost))),
    ),
    amounts.length ? el("p", { class: "muted small" }, `Limits: ${amounts.join(", ")}`) : null,
  );
}
