// The prompts of a conversation beside each other: layers, budget, what each costs, and where it was written anew.

import { count, el, fill, money, percent, plural, steered, when } from "./dom.js";
import { classOf, nameOf } from "./words.js";

const FRAMING = "";

/** What stands in a bar: tokens by layer, framing last. */
const layersOf = (report) =>
  new Map([
    ...report.layers.map((part) => [part.layer, part.used_tokens]),
    [FRAMING, sum(Object.values(report.overhead_tokens))],
  ]);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** The next prompt as a line of the list of snapshots. */
export const lineOf = (report) => ({
  id: null,
  total_tokens: report.total_tokens,
  budget_tokens: report.budget_tokens,
  parts: layersOf(report),
  effective_tokens: report.stability.effective_tokens,
  whole_effective_tokens: report.stability.whole_effective_tokens,
  compaction_step: report.stability.compaction_step,
});

export function showTurns({ snapshots, replayed, price, picked }, next, pick) {
  const lines = [
    ...snapshots.map((line) => ({
      ...line,
      parts: new Map([...Object.entries(line.layers), [FRAMING, line.overhead_tokens]]),
    })),
    next,
  ];
  const top = Math.max(1, ...lines.flatMap((line) => [line.total_tokens, line.budget_tokens]));
  const share = (tokens) => `${(Math.max(0, tokens) / top) * 100}%`;
  const bars = lines.map((line, index) => {
    const name =
      line.id === null
        ? "Next prompt"
        : replayed
          ? `Prompt ${lines.length - index} turns ago`
          : `Prompt of ${when(line.created_at)}`;
    const step = line.compaction_step ? ", written anew" : "";
    const label = `${name}: ${plural(line.total_tokens, "token")}, ${count(line.effective_tokens)} paid for${step}`;
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
        el("span", { class: "limit", css: { bottom: share(line.budget_tokens) } }),
        el(
          "span",
          { class: "stack", css: { height: share(line.total_tokens) } },
          [...line.parts]
            .filter(([, tokens]) => tokens > 0)
            .map(([layer, tokens]) =>
              el("span", {
                class: layer ? classOf(layer) : "layer-overhead",
                title: `${layer ? nameOf(layer) : "tools and framing"}: ${count(tokens)}`,
                css: { "flex-grow": tokens },
              }),
            ),
        ),
        el("span", { class: "effective", css: { bottom: share(line.effective_tokens) } }),
      ),
      el("span", { class: "below" }, line.id === null ? "next" : line.compaction_step ? "▲" : ""),
    );
  });
  const place = document.getElementById("turns");
  const scrolled = place.querySelector(".turns")?.scrollLeft;
  const row = el("div", { class: "turns", role: "group", "aria-label": "Prompts, oldest first" }, bars);
  const total = (field) => sum(lines.map((line) => line[field]));
  const [sent, paid, whole] = ["total_tokens", "effective_tokens", "whole_effective_tokens"].map(total);
  const dollars = price ? ` (${money((paid * price) / 1e6)})` : "";
  fill(
    place,
    el(
      "p",
      { class: "sum" },
      `${plural(lines.length, "prompt")}: ${count(sent)} tokens sent, `,
      el("strong", {}, `${count(paid)} paid for`),
      `${dollars}, ${percent(paid / Math.max(1, whole), 0)} of what sending everything costs`,
    ),
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
      { class: "hint" },
      el("span", { class: "key limit-key" }),
      "budget ",
      el("span", { class: "key effective-key" }),
      "paid for ",
      el("span", {}, "▲ written anew (a compaction step)"),
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
