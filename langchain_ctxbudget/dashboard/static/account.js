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

/** What a prompt comes to, in a handful of numbers. */
export function showNumbers({ current_context: report, made_in_ms: madeIn }) {
  const { total_tokens: total, budget_tokens: budget, own_effective_tokens: own, stability, usage } = report;
  const { cached_tokens: cached, effective_tokens: effective, whole_effective_tokens: whole, turns_to_step: left } = stability;
  const ownCalls = own ? `, ${count(own)} of it for own calls` : "";
  const rebuild = left === 0 ? "next turn" : `in ${plural(left ?? 0, "turn")}`;
  fill(
    node("numbers"),
    number("Sent", count(total), `of ${count(budget)} tokens`, "total"),
    number("Cached", count(cached), `${percent(cached / Math.max(1, total))}`),
    number("New", count(total - cached), `${percent((total - cached) / Math.max(1, total))}`),
    number("Paid like", count(effective + own), `all messages: ${count(whole)}${ownCalls}`),
    madeIn ? number("Made in", milliseconds(madeIn), "before the model") : null,
    left === null
      ? number("Next rebuild", "every turn", "by the settings")
      : number("Next rebuild", rebuild, `about ${count(stability.step_tokens)} new`),
    usage && number("Usage limit", usage.tier, `${percent(usage.left)} of ${LIMITS[usage.limit] ?? usage.limit} left`),
  );
}

const number = (name, value, note, id) =>
  el("div", {}, el("dt", {}, name), el("dd", { class: "big", id }, value), el("dd", { class: "muted small" }, note));

const milliseconds = (value) => (value < 10 ? `${value.toFixed(1)} ms` : `${count(Math.round(value))} ms`);

/** How the prompt was made, as far as there is something to say. */
export function showAccount(report, tier) {
  const { usage, window_tokens: window, output_reserve_tokens: reserve, summaries_waiting: waiting } = report;
  const steps = Object.entries(report.timings_ms).map(([step, took]) => `${step.replaceAll("_", " ")} ${milliseconds(took)}`);
  const lines = [
    ["Allocation", report.allocation_strategy],
    ["History", report.history_strategy.replaceAll("_", " ")],
    ["Counted", `${report.count_mode === "exact" ? "exactly" : "estimated, with a margin"} (${report.tokenizer})`],
    ["Window", window && `${count(window)} tokens (${report.window_detail || report.window_source})`],
    ["For the answer", reserve && `${count(reserve)} tokens`],
    ["Settings from", report.settings_from.length > 1 && report.settings_from.join(" < ")],
    ["Limits let in", usage && `knowledge ${tier.tier2_items}, documents ${tier.tier3_mode}, history ${tier.tier4_messages}`],
    ["Own calls", ownCallsOf(report.own_calls)],
    ["Summaries", waiting && `${count(waiting)} still to be written by the model`],
    ["Time", steps.join(", ")],
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
  const mean = ({ seconds_per_call: seconds }) => (seconds === null ? "–" : `${seconds.toFixed(1)} s`);
  if (month.timed_calls) rows.push(row("time per call", mean(session), mean(month)));
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
