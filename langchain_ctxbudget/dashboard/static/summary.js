// The three cards at the top: budget, tier and strategy, usage.

import { count, el, fill, money, percent, plural, said } from "./dom.js";
import { FORCED, HISTORY, LIMITS, TIERS, zoneOf } from "./words.js";

const place = (id) => document.getElementById(id);
const meterWidth = (share) => `${Math.min(1, Math.max(0, share)) * 100}%`;

function facts(lines) {
  const given = lines.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, given.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

export function showBudget(report) {
  const { total_tokens: total, budget_tokens: budget } = report;
  const share = budget ? total / budget : 0;
  const zone = zoneOf(share);
  const took = Object.values(report.timings_ms).reduce((total, value) => total + value, 0);
  const label = `${percent(share)} of the budget is used: ${zone.word}`;
  fill(
    place("budget"),
    el(
      "p",
      { class: "big" },
      el("strong", { class: `number zone-${zone.name}` }, percent(share)),
      el("span", { class: `zone zone-${zone.name}` }, zone.word),
    ),
    el(
      "div",
      {
        class: `meter gauge ${zone.name}`, role: "meter", "aria-label": "Budget use",
        "aria-valuemin": 0, "aria-valuemax": budget, "aria-valuenow": total, "aria-valuetext": label,
      },
      el("span", { css: { width: meterWidth(share) } }),
    ),
    el("p", { class: "scale small muted", "aria-hidden": "true" }, ["60 %", "80 %"].map((mark) => el("span", {}, mark))),
    facts([
      ["Used", el("span", { id: "total", data: { tokens: total } }, `${count(total)} of ${count(budget)} tokens`)],
      ["Free", count(budget - total)],
      ["For the answer", report.output_reserve_tokens ? count(report.output_reserve_tokens) : null],
      ["Window", report.window_tokens === null ? null : `${count(report.window_tokens)} (${report.window_detail || report.window_source})`],
      ["Counted", counted(report)],
      ["Stable zone", stable(report.stability)],
      ["Time", took ? `${count(Math.round(took))} ms` : null],
    ]),
  );
}

function counted(report) {
  const how = report.count_mode === "exact" ? "exact" : "estimated, with a margin";
  const corrected = report.total_tokens - report.uncorrected_tokens;
  const note = corrected ? `, of which ${count(corrected)} by observed usage` : "";
  return `${how} (${report.tokenizer})${note}`;
}

export function showStrategy({ current_context: report, pruning_strategy: strategy }) {
  const { usage } = report;
  const tier = usage ? usage.tier : "none";
  fill(
    place("strategy"),
    el(
      "p",
      { class: "big" },
      el("strong", { class: `tier-word tier-${tier}` }, usage ? tier : "no limits"),
      usage ? el("span", { class: "muted" }, `${percent(usage.left, 0)} left of the ${LIMITS[usage.limit] ?? usage.limit}`) : null,
    ),
    el("p", { class: "hint" }, usage ? TIERS[tier] : "No usage limit is set, so nothing is held back."),
    facts([
      ...(usage ? letIn(strategy) : []),
      ["Forced", usage?.forced.length ? usage.forced.map((name) => FORCED[name]?.[0] ?? name).join(", ") : null],
      ["Allocation", report.allocation_strategy],
      ["History", HISTORY[report.history_strategy] ?? report.history_strategy],
      ["Settings from", report.settings_from.join(" < ")],
      ["Summaries waiting", report.summaries_waiting || null],
    ]),
    troubles(report),
  );
}

/** What the tier lets in, and what is forced. */
function letIn({ tier2_items: items, tier3_mode: documents, tier4_messages: messages }) {
  return [
    ["Knowledge", typeof items === "number" ? `at most ${plural(items, "item")}` : "all"],
    ["Documents", { full: "in full", summary: "summaries", none: "none" }[documents] ?? documents],
    ["Verbatim", typeof messages === "number" ? `at most ${plural(messages, "message")}` : "as budgeted"],
  ];
}

function stable(stability) {
  const zone = `${count(stability.stable_zone_tokens)} tokens`;
  if (stability.stable_zone_share === null) return `${zone}, first prompt`;
  const step = stability.compaction_step ? "; compaction step" : "";
  return `${zone}, ${percent(stability.stable_zone_share, 0)} as before${step}`;
}

/** What had to be repaired, what failed, and what was done because nothing else fitted. */
function troubles(report) {
  const groups = [
    [plural(report.repairs.length, "repair"), report.repairs.map((repair) => `${repair.kind}: ${repair.detail}`)],
    [plural(report.failures.length, "failure"), report.failures],
    [plural(report.last_resort.length, "last-resort step"), report.last_resort],
  ].filter(([, lines]) => lines.length);
  if (!groups.length) return el("p", { class: "small muted" }, "✓ No repairs, no failures.");
  return groups.map(([title, lines]) =>
    el(
      "details",
      { class: "troubles" },
      el("summary", {}, `⚠ ${title}`),
      el("ul", { class: "small" }, lines.map((line) => el("li", {}, said(line)))),
    ),
  );
}

export function showUsage(usage, settings) {
  if (!usage) return fill(place("usage"), el("p", { class: "hint" }, "Usage could not be read."));
  const { standing } = usage;
  const spent = (part) => [
    count(part.calls), count(part.input_tokens), count(part.cached_tokens), count(part.output_tokens), money(part.cost),
  ];
  const rows = ["calls", "input", "of it cached", "output", "cost"];
  const [session, month] = [spent(usage.session), spent(usage.month)];
  const unpriced = usage.month.unpriced_calls;
  const limits = Object.entries(settings?.usage_limits ?? {}).filter(([name, value]) => name in LIMITS && value !== null);
  return fill(
    place("usage"),
    el(
      "table",
      { class: "plain" },
      el("thead", {}, el("tr", {}, el("td", {}), ["Session", "Month"].map((name) => el("th", { scope: "col", class: "number" }, name)))),
      el(
        "tbody",
        {},
        rows.map((name, index) =>
          el("tr", {}, el("th", { scope: "row" }, name), [session, month].map((part) => el("td", { class: "number" }, part[index]))),
        ),
      ),
    ),
    unpriced ? el("p", { class: "small muted" }, `${plural(unpriced, "call")} of models without a known price: tokens only.`) : null,
    standing ? limitMeter(standing, usage.tier) : null,
    limits.length
      ? el("p", { class: "small muted" }, `Limits: ${limits.map(([name, value]) => `${amount(name, value)} ${LIMITS[name]}`).join(", ")}`)
      : el("p", { class: "small muted" }, "No limits are set (usage_limits)."),
  );
}

const TIER_FILL = { healthy: "green", caution: "yellow", warning: "yellow", critical: "red" };

const amount = (limit, value) => (limit.endsWith("cost") ? money(value) : count(value));

function limitMeter(standing, tier) {
  const share = standing.allowed ? standing.used / standing.allowed : 0;
  const text = `${amount(standing.limit, standing.used)} of ${amount(standing.limit, standing.allowed)}`;
  const name = LIMITS[standing.limit] ?? standing.limit;
  return el(
    "div",
    { class: "limit" },
    el("p", { class: "small" }, el("span", {}, `Closest limit: ${name}`), el("span", { class: "number" }, text)),
    el(
      "div",
      { class: `meter ${TIER_FILL[tier] ?? "green"}`, role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(share * 100), "aria-valuetext": text },
      el("span", { css: { width: meterWidth(share) } }),
    ),
  );
}
