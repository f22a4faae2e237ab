// Layers as stacked bars over turns, and the legend with the numbers of the one that is looked at.

import { count, el, fill, percent, plural, said, signed, steered, when } from "./dom.js";
import { usedOf, usedOfSnapshot } from "./report.js";
import { LAYERS, layerClasses, OVERHEAD } from "./words.js";

const LABELLED_PIXELS = 14;
const CHART_PIXELS = 220;

/** A bar for every snapshot, then one for the next prompt and one for the what-if. */
function barsOf({ snapshots, kept, next, whatIf }) {
  const older = kept - snapshots.length;
  const bars = snapshots.map((line, index) => ({
    key: line.id, kind: "snapshot", used: usedOfSnapshot(line), total: line.total_tokens, budget: line.budget_tokens,
    step: line.compaction_step, name: `Snapshot ${count(older + index + 1)} of ${count(kept)}`,
    facts: [when(line.created_at), plural(line.messages, "message")],
  }));
  const further = (key, name, document) => {
    const report = document.current_context;
    bars.push({
      key, kind: key, used: usedOf(report), total: report.total_tokens, budget: report.budget_tokens,
      step: report.stability.compaction_step && key === "preview", name, facts: [],
    });
  };
  if (next) further("preview", "The next prompt", next);
  if (whatIf) further("what-if", "What if", whatIf);
  return bars;
}

export function showBars(view, { look }) {
  const bars = barsOf(view);
  const picked = Math.max(0, bars.findIndex((bar) => bar.key === view.looking));
  const top = Math.max(1, ...bars.map((bar) => Math.max(bar.total, bar.budget)));
  const classes = layerClasses([...new Set(bars.flatMap((bar) => [...bar.used.keys()]))]);
  const buttons = bars.map((bar, index) => barButton(bar, index === picked, top, classes, () => look(bar.key)));
  const steer = (event) => {
    const next = steered(event.key, buttons.indexOf(document.activeElement), buttons.length);
    if (next === null) return;
    event.preventDefault();
    look(bars[next].key);
    buttonOf(bars[next].key)?.focus();
  };
  const group = el("div", { class: "bars", role: "group", "aria-label": "Prompts over turns; arrow keys move", on: { keydown: steer } }, buttons);
  const place = document.getElementById("bars");
  const scrolled = place.firstElementChild?.scrollLeft;
  const many = place.firstElementChild?.childElementCount;
  fill(place, group);
  group.scrollLeft = many === bars.length ? scrolled : group.scrollWidth;
  document.getElementById("bar-caption").textContent = caption(bars[picked], view);
}

const buttonOf = (key) => [...document.querySelectorAll("#bars button")].find((button) => button.dataset.key === key);

const caption = (bar, { snapshots }) =>
  [bar.name, ...bar.facts, use(bar), bar.step ? "compaction step (▾)" : null].filter(Boolean).join(" · ") +
  (snapshots.length ? "" : ". Turns are kept as snapshots where the setting keep_snapshots is above 0, for instance keep_snapshots=50.");

const use = (bar) => `${count(bar.total)} of ${count(bar.budget)} tokens`;

function barButton(bar, isPicked, top, classes, look) {
  const segments = [...bar.used]
    .filter(([, tokens]) => tokens > 0)
    .map(([name, tokens]) =>
      el(
        "span",
        { class: `segment ${classes.get(name)}`, css: { "flex-grow": tokens }, title: `${titleOf(name)}: ${count(tokens)}` },
        (tokens / top) * CHART_PIXELS >= LABELLED_PIXELS && Object.hasOwn(LAYERS, name) ? name : null,
      ),
    );
  const parts = [...bar.used].filter(([, tokens]) => tokens).map(([name, tokens]) => `${titleOf(name)} ${count(tokens)}`);
  return el(
    "button",
    {
      type: "button", class: `bar ${bar.kind}`, "aria-pressed": String(isPicked), tabindex: isPicked ? 0 : -1,
      "aria-label": [bar.name, ...bar.facts, use(bar), bar.step ? "compaction step" : null, ...parts].filter(Boolean).join(", "),
      data: { key: bar.key }, on: { click: look },
    },
    el("span", { class: "column" },
      el("span", { class: "limit-line", css: { bottom: `${(bar.budget / top) * 100}%` } }),
      el("span", { class: "stack", css: { height: `${(bar.total / top) * 100}%` } }, segments)),
    el("span", { class: "below", "aria-hidden": "true" }, bar.kind === "snapshot" ? (bar.step ? "▾" : "·") : bar.kind === "preview" ? "next" : "if"),
  );
}

const titleOf = (name) => (Object.hasOwn(LAYERS, name) ? `${name} ${LAYERS[name]}` : name);

/** The layers of one report with their numbers; `compared` is the report that changes are told against. */
export function showLegend(report, compared, { filterLayer }) {
  const used = usedOf(report);
  const before = compared ? usedOf(compared) : null;
  const classes = layerClasses([...used.keys()]);
  const given = new Map(report.layers.map((layer) => [layer.layer, layer.allocated_tokens]));
  const share = (tokens) => (report.budget_tokens ? percent(tokens / report.budget_tokens) : "");
  const row = ([name, tokens]) =>
    el(
      "tr",
      { data: { layer: name } },
      el(
        "th",
        { scope: "row" },
        el("span", { class: `swatch ${classes.get(name)}`, "aria-hidden": "true" }),
        name === OVERHEAD ? name : el("button", { type: "button", class: "link", title: "Show the items of this layer", data: { key: `legend ${name}` }, on: { click: () => filterLayer(name) } }, said(titleOf(name))),
      ),
      el("td", { class: "number used" }, count(tokens)),
      before ? el("td", { class: "number change" }, signed(tokens - (before.get(name) ?? 0))) : null,
      el("td", { class: "number" }, given.has(name) ? count(given.get(name)) : ""),
      el("td", { class: "number" }, share(tokens)),
    );
  const foot = (name, tokens, change) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, count(tokens)), before ? el("td", { class: "number change" }, change) : null, el("td"), el("td", { class: "number" }, share(tokens)));
  const head = ["used", before ? "change" : null, "given", "share"].filter(Boolean);
  fill(
    document.getElementById("legend"),
    el(
      "table",
      { class: "plain legend" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Layer"), head.map((name) => el("th", { scope: "col", class: "number" }, name)))),
      el("tbody", {}, [...used].map(row)),
      el(
        "tfoot",
        {},
        foot("Total", report.total_tokens, before ? signed(report.total_tokens - compared.total_tokens) : ""),
        foot("Free", report.budget_tokens - report.total_tokens, ""),
      ),
    ),
  );
}
