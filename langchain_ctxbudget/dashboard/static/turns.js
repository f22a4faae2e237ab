// The prompts of a conversation beside each other: layers, budget, what each costs, and which were rebuilt.

import { count, el, fill, money, percent, plural, steered, when } from "./dom.js";
import { classOf, nameOf } from "./words.js";

const FRAMING = "";
const LABELS = 8;
/** Where prompts are far below the budget, the axis ends this much above the largest of them. */
const HEADROOM = 1.6;

/** What stands in a bar: tokens by layer, framing last. */
const layersOf = (report) =>
  new Map([
    ...report.layers.map((part) => [part.layer, part.used_tokens]),
    [FRAMING, sum(Object.values(report.overhead_tokens))],
  ]);
/** What is paid for in a turn: the prompt, and the calls that learn and sum up. */
const paidFor = (line) => line.effective_tokens + line.own_effective_tokens;
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** The next prompt as a line of the list of snapshots. */
export const lineOf = (report) => ({
  id: null,
  total_tokens: report.total_tokens,
  budget_tokens: report.budget_tokens,
  parts: layersOf(report),
  effective_tokens: report.stability.effective_tokens,
  own_effective_tokens: report.own_effective_tokens,
  whole_effective_tokens: report.stability.whole_effective_tokens,
  compaction_step: report.stability.compaction_step,
  messages: report.coverage.at(-1)?.last ?? 0,
});

export function showTurns({ snapshots, replayed, price, picked }, next, pick) {
  const lines = [
    ...snapshots.map((line) => ({
      ...line,
      parts: new Map([...Object.entries(line.layers), [FRAMING, line.overhead_tokens]]),
    })),
    next,
  ];
  const budget = Math.max(...lines.map((line) => line.budget_tokens));
  const most = Math.max(1, ...lines.flatMap((line) => [line.total_tokens, paidFor(line), line.whole_effective_tokens]));
  const top = most * HEADROOM < budget ? Number((most * HEADROOM).toPrecision(2)) : Math.max(budget, ...lines.map((line) => line.total_tokens));
  const share = (tokens) => `${(Math.max(0, tokens) / top) * 100}%`;
  const every = Math.ceil(lines.length / LABELS);
  const bars = lines.map((line, index) => {
    const isNext = line.id === null;
    const earlier = replayed ? `Prompt ${lines.length - index} turns ago` : `Prompt of ${when(line.created_at)}`;
    const name = isNext ? "Next prompt" : earlier;
    const step = line.compaction_step ? ", rebuilt" : "";
    const own = line.own_effective_tokens ? ` (${count(line.own_effective_tokens)} for own calls)` : "";
    const cost = `paid like ${count(paidFor(line))} new ones${own}; all messages: ${count(line.whole_effective_tokens)}`;
    const at = isNext ? "" : ` (#${count(line.messages)})`;
    const label = `${name}${at}: ${plural(line.total_tokens, "token")}, ${cost}${step}`;
    const isLabelled = index % every === 0 && index < lines.length - 1 - every / 2;
    return el(
      "button",
      {
        type: "button",
        class: "turn",
        title: label,
        "aria-label": label,
        "aria-pressed": String(line.id === picked),
        data: { key: `turn ${line.id}` },
        tabindex: line.id === picked ? 0 : -1,
        on: { click: () => pick(line.id), keydown: (event) => move(event, index) },
      },
      el(
        "span",
        { class: "column" },
        line.budget_tokens <= top ? el("span", { class: "limit", css: { bottom: share(line.budget_tokens) } }) : null,
        el(
          "span",
          { class: "stack", css: { height: share(line.total_tokens) } },
          [...line.parts]
            .filter(([, tokens]) => tokens > 0)
            .map(([layer, tokens]) =>
              el("span", {
                class: layer ? classOf(layer) : "layer-overhead",
                title: `${layer ? nameOf(layer) : "framing"}: ${count(tokens)}`,
                css: { "flex-grow": tokens },
              }),
            ),
        ),
        line.whole_effective_tokens <= top
          ? el("span", { class: "whole-cost", css: { bottom: share(line.whole_effective_tokens) } })
          : null,
        el("span", { class: "effective", css: { bottom: share(paidFor(line)) } }),
      ),
      el("span", { class: "below" }, line.compaction_step ? "▲" : ""),
      el("span", { class: "below at", data: { at: isNext ? "next" : isLabelled ? `#${count(line.messages)}` : "" } }),
    );
  });
  const place = document.getElementById("turns");
  const scrolled = place.querySelector(".turns")?.scrollLeft;
  const row = el("div", { class: "turns", role: "group", "aria-label": "Prompts, oldest first" }, bars);
  const total = (field) => sum(snapshots.map((line) => line[field]));
  const [sent, whole] = ["total_tokens", "whole_effective_tokens"].map(total);
  const paid = sum(snapshots.map(paidFor));
  const dollars = price ? ` (${money((paid * price) / 1e6)})` : "";
  fill(
    document.getElementById("sum"),
    snapshots.length ? `${plural(snapshots.length, "prompt")}: ${count(sent)} tokens sent, ` : "None is kept.",
    snapshots.length ? el("strong", {}, `paid like ${count(paid)} new ones`) : null,
    snapshots.length ? `${dollars}, ${count(Math.round(paid / snapshots.length))} a turn, ${percent(paid / Math.max(1, whole))} of what sending all messages costs` : null,
  );
  fill(
    place,
    el(
      "div",
      { class: "chart" },
      el(
        "div",
        { class: "axis number", "aria-hidden": "true" },
        [top, Math.round(top / 2), 0].map((value) => el("span", {}, count(value))),
      ),
      row,
    ),
    el(
      "p",
      { class: "hint keys" },
      el("span", {}, el("span", { class: "key limit-key" }), `budget ${count(budget)}`),
      el("span", {}, el("span", { class: "key effective-key" }), "paid like so many new tokens"),
      el("span", {}, el("span", { class: "key whole-key" }), "the same for all messages"),
      el("span", {}, "▲ rebuilt"),
    ),
    snapshots.length && !replayed
      ? null
      : el(
          "p",
          { class: "hint" },
          `${replayed && snapshots.length ? "No prompt of this conversation was kept, so its last turns are replayed here, from its messages alone. " : ""}With the setting keep_snapshots above 0 every prompt is kept.`,
        ),
  );
  row.scrollLeft = scrolled ?? row.scrollWidth;

  function move(event, index) {
    const to = steered(event.key, index, bars.length);
    if (to === null) return;
    event.preventDefault();
    bars[to].focus();
  }
}
