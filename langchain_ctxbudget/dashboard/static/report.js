// Numbers that are read out of a report (`ContextReport.to_dict()`): plain functions.

import { OVERHEAD, STATES } from "./words.js";

const sum = (values) => Object.values(values).reduce((total, value) => total + value, 0);

const overheadOf = (report) => sum(report.overhead_tokens);

/** Used tokens by layer in the order of the prompt's account, what no layer owns last. */
export function usedOf(report) {
  const used = new Map(report.layers.map((layer) => [layer.layer, layer.used_tokens]));
  return used.set(OVERHEAD, overheadOf(report));
}

/** The same of a line of the list of snapshots. */
export const usedOfSnapshot = (line) => new Map(Object.entries(line.layers)).set(OVERHEAD, line.overhead_tokens);

/** How many messages are in each state. */
export function coverageOf(report) {
  const counts = Object.fromEntries(Object.keys(STATES).map((state) => [state, 0]));
  for (const part of report.coverage) counts[part.state] += part.last - part.first + 1;
  return counts;
}

/** How many messages the conversation had. */
export const messagesOf = (report) => report.coverage.at(-1)?.last ?? 0;

/** What became of the message at a position. */
export function stateAt(report, position) {
  return report.coverage.find((part) => part.first <= position && position <= part.last)?.state;
}

/** Less than this is never enough: what must be sent, as far as a report tells. The API has the last word. */
export function leastOf(report) {
  const required = report.layers.flatMap((layer) => layer.items.filter((item) => item.reason === "required"));
  const { framing, ...others } = report.overhead_tokens;
  return Math.max(1, sum(others) + required.reduce((total, item) => total + item.tokens, 0));
}

/** What changed from one report to another, in the order of the layers; only what did. */
export function differences(before, after) {
  const [old, now] = [usedOf(before), usedOf(after)];
  const names = [...new Set([...now.keys(), ...old.keys()])];
  return names
    .map((name) => ({ name, change: (now.get(name) ?? 0) - (old.get(name) ?? 0) }))
    .filter(({ change }) => change !== 0);
}
