// The item table: every candidate with its status and reason; to sort, filter and search.

import { count, debounced, el, fill, plural, said } from "./dom.js";
import { LAYERS, layerClasses, reasonWord, REASONS, SOURCES, STATUSES } from "./words.js";

const ROWS = 25;
const MORE_ROWS = 100;
const COLUMNS = [
  ["layer", "Layer"],
  ["status", "Status"],
  ["reason", "Reason"],
  ["source", "Source"],
  ["tokens", "Tokens"],
  ["preview", "Text"],
];

export class Items {
  constructor({ jump }) {
    this.jump = jump;
    this.sort = { column: null, down: false };
    this.rows = ROWS;
    this.open = new Set();
    const select = (id, label) => {
      const node = el("select", { id, on: { change: () => this.filtered() } });
      return [el("label", { for: id }, label), node];
    };
    const [layerLabel, layer] = select("filter-layer", "Layer");
    const [statusLabel, status] = select("filter-status", "Status");
    this.layer = layer;
    this.status = status;
    this.search = el("input", { type: "search", id: "search", placeholder: "text, reason, id", autocomplete: "off", on: { input: debounced(120, () => this.filtered()) } });
    this.counted = el("p", { class: "hint", role: "status", "aria-live": "polite" });
    this.table = el("div");
    this.more = el("div");
    fill(
      document.getElementById("items"),
      el("div", { class: "filters" }, el("div", { class: "field" }, layerLabel, layer), el("div", { class: "field" }, statusLabel, status), el("div", { class: "field grow" }, el("label", { for: "search" }, "Search"), this.search)),
      this.counted,
      this.table,
      this.more,
    );
    fill(status, option("", "all"), Object.entries(STATUSES).map(([name, [, word]]) => option(name, word)));
  }

  /** Draws the items of a report. */
  show(report) {
    this.report = report;
    const names = report.layers.map((part) => part.layer);
    this.classes = layerClasses(names);
    this.all = report.layers.flatMap((part) => part.items.map((item, index) => ({ ...item, layer: part.layer, key: `${part.layer} ${item.id} ${index}` })));
    const kept = this.layer.value;
    fill(this.layer, option("", "all"), names.map((name) => option(name, titleOf(name))));
    this.layer.value = names.includes(kept) ? kept : "";
    this.draw();
  }

  /** Shows one layer only. */
  filterLayer(name) {
    this.layer.value = name;
    this.filtered();
    document.getElementById("items-title").scrollIntoView({ block: "start" });
    this.layer.focus({ preventScroll: true });
  }

  filtered() {
    this.rows = ROWS;
    this.draw();
  }

  found() {
    const words = this.search.value.trim().toLowerCase();
    const says = (item) => [item.preview, item.id, reasonWord(item.reason), SOURCES[item.source] ?? item.source].join("\n").toLowerCase();
    const found = this.all.filter(
      (item) =>
        (!this.layer.value || item.layer === this.layer.value) &&
        (!this.status.value || item.status === this.status.value) &&
        (!words || says(item).includes(words)),
    );
    const { column, down } = this.sort;
    if (!column) return found;
    const order = (a, b) => (column === "tokens" ? a.tokens - b.tokens : String(a[column]).localeCompare(String(b[column])));
    return found.sort((a, b) => (down ? -1 : 1) * order(a, b));
  }

  draw() {
    const found = this.found();
    const tokens = found.filter((item) => item.status !== "omitted").reduce((total, item) => total + item.tokens, 0);
    this.counted.textContent = `${plural(found.length, "item")} of ${count(this.all.length)}, ${count(tokens)} tokens of them in the prompt.`;
    const shown = found.slice(0, this.rows);
    const head = COLUMNS.map(([name, title]) => this.heading(name, title));
    fill(
      this.table,
      found.length
        ? el("table", { class: "items" }, el("caption", { class: "unseen" }, "Items of the prompt"), el("thead", {}, el("tr", {}, head)), el("tbody", {}, shown.flatMap((item) => this.row(item))))
        : el("p", { class: "hint" }, "No item is like this. Take a filter away, or search for something else."),
    );
    const rest = found.length - shown.length;
    fill(
      this.more,
      rest ? el("button", { type: "button", data: { key: "more" }, on: { click: () => this.showMore() } }, `Show ${count(Math.min(rest, MORE_ROWS))} more of ${count(rest)}`) : null,
      this.further(),
    );
  }

  showMore() {
    this.rows += MORE_ROWS;
    this.draw();
  }

  heading(name, title) {
    const isSorted = this.sort.column === name;
    const sign = isSorted ? (this.sort.down ? "▼" : "▲") : "↕";
    const sort = () => {
      const first = name === "tokens"; // the largest first
      if (!isSorted) this.sort = { column: name, down: first };
      else if (this.sort.down === first) this.sort = { column: name, down: !first };
      else this.sort = { column: null, down: false };
      this.draw();
    };
    return el(
      "th",
      { scope: "col", class: name, "aria-sort": isSorted ? (this.sort.down ? "descending" : "ascending") : null },
      el("button", { type: "button", class: "link sort", data: { key: `sort ${name}` }, on: { click: sort } }, title, el("span", { class: "sign", "aria-hidden": "true" }, sign)),
    );
  }

  row(item) {
    const [sign, status] = STATUSES[item.status] ?? ["", item.status];
    const isOpen = this.open.has(item.key);
    const toggle = () => {
      if (!this.open.delete(item.key)) this.open.add(item.key);
      this.draw();
    };
    const line = el(
      "tr",
      { class: `item ${item.status}`, data: { layer: item.layer, status: item.status } },
      el("td", { class: "layer" }, el("span", { class: `swatch ${this.classes.get(item.layer)}`, "aria-hidden": "true" }), said(item.layer)),
      el("td", { class: "status" }, el("span", { "aria-hidden": "true" }, `${sign} `), status),
      el("td", { class: "reason", title: REASONS[item.reason]?.[1] }, reasonWord(item.reason)),
      el("td", { class: "source" }, SOURCES[item.source] ?? item.source),
      el("td", { class: "tokens number" }, count(item.tokens), el("span", { class: "unit" }, " tokens")),
      el("td", { class: "preview" }, el("button", { type: "button", class: "link text", "aria-expanded": String(isOpen), data: { key: `item ${item.key}` }, on: { click: toggle } }, item.preview ? said(item.preview) : said(item.id, { class: "muted" }))),
    );
    return isOpen ? [line, this.detail(item)] : [line];
  }

  detail(item) {
    const scores = Object.entries(item.scores ?? {});
    const position = this.jump.positionOf(item.id);
    return el(
      "tr",
      { class: "detail" },
      el(
        "td",
        { colspan: COLUMNS.length },
        el("p", {}, REASONS[item.reason]?.[1]),
        el("p", { class: "small muted" }, "id ", said(item.id, { class: "code" })),
        scores.length ? el("ul", { class: "scores small", "aria-label": "Scores" }, scores.map(([name, value]) => el("li", {}, `${name.replaceAll("_", " ")} `, el("span", { class: "number" }, value.toFixed(2))))) : null,
        position ? el("button", { type: "button", data: { key: `jump ${item.key}` }, on: { click: () => this.jump.to(position) } }, `Show message ${count(position)} in the history`) : null,
      ),
    );
  }

  /** What is counted only, as it is too many to list. */
  further() {
    const layers = this.report.layers.filter((part) => Object.keys(part.more_omitted).length && (!this.layer.value || part.layer === this.layer.value));
    if (!layers.length || this.status.value === "included" || this.status.value === "shrunk") return null;
    const lines = layers.map((part) => {
      const reasons = Object.entries(part.more_omitted).map(([reason, number]) => `${count(number)} ${reasonWord(reason)}`);
      return el("li", {}, said(titleOf(part.layer)), `: ${reasons.join(", ")}`);
    });
    return el("div", { class: "further small" }, el("p", {}, "Omitted as well, too many to list one by one:"), el("ul", {}, lines));
  }
}

const option = (value, label) => el("option", { value }, said(label).textContent);

const titleOf = (name) => (Object.hasOwn(LAYERS, name) ? `${name} ${LAYERS[name]}` : name);
