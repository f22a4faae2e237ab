// The prompt, message by message: each part in the colour of its layer; a click says why it is there.

import { count, el, fill, percent, plural, said, when } from "./dom.js";
import { classOf, nameOf, reasonOf, sourceOf } from "./words.js";

const ROLES = { human: "user", ai: "assistant" };
const FOLDED = 900;
const NARROW = matchMedia("(max-width: 1000px)"); // there the reason is a sheet at the lower edge

const place = (id) => document.getElementById(id);
export const roleOf = (role) => ROLES[role] ?? (role || "message");

export class Prompt {
  /** `open` shows a message in the history, `rules` lifts rules, `picked` is told of the part that is picked. */
  constructor({ open, rules, picked }) {
    Object.assign(this, { open, rules, told: picked, layer: null, picked: null });
    place("prompt").addEventListener("keydown", (event) => this.steer(event));
  }

  show(answer) {
    this.report = answer.current_context;
    this.positions = answer.positions;
    this.items = new Map();
    for (const layer of this.report.layers)
      for (const item of layer.items) if (item.status !== "omitted") this.items.set(`${layer.layer} ${item.id}`, item);
    this.parts = [];
    this.picked = null;
    place("prompt").classList.toggle("outline", answer.source === "snapshot");
    this.text = answer.prompt
      .map(({ role, parts }) => `[${roleOf(role)}]\n${parts.map((part) => part.text).join(role === "tools" ? "\n" : "")}`)
      .join("\n\n");
    fill(
      place("prompt"),
      answer.prompt.map((message, index) => this.message(message, index + 1, answer.prompt.length)),
      answer.answer && this.answered(answer.answer),
    );
    this.showGlance(answer.prompt);
    this.showLegend();
    this.explain(null);
  }

  /** The whole prompt as one bar, in the order in which the model reads it; a click goes to the part. */
  showGlance(messages) {
    const { total_tokens: total, budget_tokens: budget } = this.report;
    const inside = messages.flatMap(({ tokens, parts }, index) => {
      const length = parts.reduce((sum, part) => sum + part.text.length, 0) || 1;
      return parts.map((part) => ({ ...part, index, tokens: (tokens * part.text.length) / length }));
    });
    const messageTokens = messages.reduce((sum, { tokens }) => sum + tokens, 0);
    const { cached_tokens: cached } = this.report.stability;
    const share = (tokens) => `${(tokens / Math.max(budget, total)) * 100}%`;
    const bar = el(
      "div",
      { class: "whole", "aria-hidden": "true" }, // its parts stand below, where keys reach them
      total > messageTokens ? el("span", { class: "layer-overhead", css: { width: share(total - messageTokens) } }) : null,
      inside.map(({ layer, item, index, tokens }) =>
        el("span", {
          class: classOf(layer),
          data: { layer: layer ?? "" },
          title: `${layer ? nameOf(layer) : "framing"}, message ${index + 1} of ${messages.length}`,
          css: { width: share(tokens) },
          on: { click: () => this.goTo(index, layer, item) },
        }),
      ),
    );
    const fresh = messages.findIndex(({ parts }) => parts.some((part) => part.cached === false));
    const words = `new ${count(total - cached)}`;
    const css = { width: share(total - cached) };
    const leads = { type: "button", class: "link fresh", data: { key: "new" }, css, on: { click: () => this.goTo(fresh) } };
    fill(
      place("glance"),
      bar,
      el(
        "p",
        { class: "below-bar small" },
        cached ? el("span", { class: "held", css: { width: share(cached) } }, `cached ${count(cached)}`) : null,
        fresh < 0 ? el("span", { class: "fresh", css }, words) : el("button", leads, `${words} ↓`),
        el("span", { class: "rest muted" }, `${count(Math.max(0, budget - total))} free`),
      ),
    );
  }

  /** Brings the last part that an item, a message for instance, has in the prompt into view, and says why it is there. */
  find(id) {
    const part = this.parts.findLast((one) => one.dataset.item.split(" + ").includes(id));
    const message = part?.closest(".message");
    if (part) this.goTo([...place("prompt").children].indexOf(message), part.dataset.layer, part.dataset.item);
  }

  /** Brings a message of the prompt into view, and picks the part that is wanted of it. */
  goTo(index, layer = null, item = null) {
    const message = place("prompt").children[index];
    if (!message) return;
    const wanted = this.parts.findIndex((part) => part.dataset.layer === layer && part.dataset.item === item && message.contains(part));
    const target = wanted < 0 ? message : this.parts[wanted];
    if (wanted >= 0 && wanted !== this.picked) this.pick(wanted);
    const list = place("prompt");
    list.scrollTop += target.getBoundingClientRect().top - list.getBoundingClientRect().top - 40;
    // On a narrow window the reason covers the lower half.
    target.scrollIntoView({ block: NARROW.matches ? "start" : "nearest" });
  }

  message({ role, name, tokens, parts }, position, messages) {
    const isCached = parts.every((part) => part.cached);
    const isKnown = parts.some((part) => part.cached !== null); // not of an earlier prompt
    const state = !isKnown ? "" : isCached ? "cached" : parts.some((part) => part.cached) ? "partly cached" : "new";
    const length = parts.reduce((total, part) => total + part.text.length, 0);
    const text = el(
      "div",
      { class: "text" },
      parts.map((part) => this.part(part)),
    );
    if (role === "tools") text.classList.add("blocks");
    const heading = el(
      "h3",
      {},
      el("span", { class: "muted number" }, `${position}/${messages}`),
      el("span", { class: `role role-${role}` }, roleOf(role)),
      name ? said(name) : null,
      el("span", { class: "muted number" }, plural(tokens, "token")),
      isKnown ? el("span", { class: `cache ${isCached ? "" : "new"}` }, state) : null,
    );
    return el(
      "li",
      { class: `message ${state.replaceAll(" ", "-")}` },
      heading,
      text,
      length > FOLDED && position < messages ? this.fold(text, length) : null,
    );
  }

  /** What the model has answered. */
  answered({ position, role, text, created_at: at }) {
    const words = el("div", { class: "text" }, said(text || "(no text)"));
    const open = el("button", { type: "button", class: "link", on: { click: () => this.open(position) } }, `message ${count(position)}`);
    return el(
      "li",
      { class: "message answer" },
      el(
        "h3",
        {},
        el("span", { class: `role role-${role}` }, "the model's answer"),
        open,
        el("span", { class: "muted" }, when(at)),
      ),
      words,
      text.length > FOLDED ? this.fold(words, text.length) : null,
    );
  }

  /** Folds a long text, and returns the button that shows all of it. */
  fold(text, length) {
    const all = `Show all ${count(length)} characters`;
    const button = el("button", { type: "button", class: "fold", "aria-expanded": "false" }, all);
    text.classList.add("folded");
    button.addEventListener("click", () => {
      const isFolded = text.classList.toggle("folded");
      button.setAttribute("aria-expanded", String(!isFolded));
      button.textContent = isFolded ? all : "Fold";
    });
    return button;
  }

  part({ layer, item, text, cached }) {
    const look = `part ${classOf(layer)} ${cached === false ? "new" : ""}`;
    if (item === null || !this.items.has(`${layer} ${item}`))
      return said(text, { class: `${look} framing`, data: { layer: layer ?? "" } });
    const index = this.parts.length;
    const node = said(text || `${item} (its text is not kept)`, {
      class: look,
      role: "button",
      tabindex: index === 0 ? 0 : -1,
      data: { layer, item },
      title: `${nameOf(layer)}: ${reasonOf(this.items.get(`${layer} ${item}`).reason)}`,
      "aria-pressed": "false",
    });
    node.addEventListener("click", () => this.pick(index));
    this.parts.push(node);
    return node;
  }

  /** Arrow keys go from part to part, Enter says why. */
  steer(event) {
    const index = this.parts.indexOf(event.target);
    const moves = {
      ArrowDown: 1,
      ArrowRight: 1,
      ArrowUp: -1,
      ArrowLeft: -1,
      Home: -index,
      End: this.parts.length - 1 - index,
    };
    if (index < 0 || (!(event.key in moves) && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    if (event.key in moves) {
      const next = this.parts[Math.min(this.parts.length - 1, Math.max(0, index + moves[event.key]))];
      this.focusable(next);
      next.focus();
    } else {
      this.pick(index);
    }
  }

  focusable(node) {
    for (const part of this.parts) part.tabIndex = part === node ? 0 : -1;
  }

  pick(index) {
    const isAgain = this.picked === index;
    this.picked = isAgain ? null : index;
    for (const [number, part] of this.parts.entries()) part.setAttribute("aria-pressed", String(number === this.picked));
    this.focusable(this.parts[index]);
    this.explain(isAgain ? null : this.parts[index].dataset);
    this.told(isAgain ? null : this.parts[index].dataset.item);
  }

  /** Says why a part is in the prompt, and what it is from. */
  explain(picked) {
    const item = picked && this.items.get(`${picked.layer} ${picked.item}`);
    place("why").classList.toggle("open", Boolean(item));
    if (!item) return fill(place("why"), el("p", { class: "muted" }, "Pick a part of the prompt to see why it is there."));
    const position = item.id
      .split(" + ")
      .map((id) => this.positions[id] ?? Number(/^message (\d+)$/.exec(id)?.[1]))
      .find(Boolean);
    const scores = Object.entries(item.scores)
      .filter(([, value]) => Math.abs(value) >= 0.005)
      .sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
    const widest = Math.max(...scores.map(([, value]) => Math.abs(value)), 1);
    return fill(
      place("why"),
      el(
        "p",
        { class: "why-layer" },
        el("span", { class: `swatch ${classOf(picked.layer)}` }),
        said(nameOf(picked.layer)),
        el("span", { class: "number muted" }, plural(item.tokens, "token")),
      ),
      el("p", { class: "why-reason" }, el("strong", {}, item.reason.replaceAll("_", " ")), ` – ${reasonOf(item.reason)}.`),
      el(
        "p",
        { class: "muted small" },
        [item.status === "shrunk" ? "not whole" : null, sourceOf(item.source)].filter(Boolean).join(", "),
        " ",
        said(item.id, { class: "code" }),
      ),
      scores.length
        ? el(
            "details",
            {},
            el("summary", {}, "What it was ranked by"),
            el("table", { class: "scores" }, el("tbody", {}, scores.map(([name, value]) => score(name, value, widest)))),
          )
        : null,
      position
        ? el("button", { type: "button", on: { click: () => this.open(position) } }, `Message ${count(position)} in the history`)
        : null,
      this.rules.canLift(item.id)
        ? el("button", { type: "button", class: "danger", on: { click: () => this.rules.lift(item.id) } }, "Lift this rule")
        : null,
      el("button", { type: "button", class: "close", on: { click: () => this.pick(this.picked) } }, "Close"),
    );
  }

  /** Layers with what they use; a click leaves only one of them in colour. */
  showLegend() {
    const { layers, overhead_tokens: overhead, total_tokens: total } = this.report;
    const used = layers.filter((part) => part.used_tokens).map((part) => [part.layer, part.used_tokens]);
    const rests = Object.entries(overhead).filter(([, tokens]) => tokens);
    const framing = rests.reduce((sum, [, tokens]) => sum + tokens, 0);
    const amount = (tokens) => el("span", { class: "number" }, `${count(tokens)} · ${percent(tokens / Math.max(1, total))}`);
    const entry = ([layer, tokens]) =>
      el(
        "button",
        {
          type: "button",
          "aria-pressed": String(this.layer === layer),
          data: { layer, tokens, key: `legend ${layer}` },
          on: { click: () => this.only(layer) },
        },
        el("span", { class: `swatch ${classOf(layer)}` }),
        said(nameOf(layer)),
        amount(tokens),
      );
    const rest = el(
      "span",
      { class: "rest", data: { layer: "", tokens: framing } },
      el("span", { class: "swatch layer-overhead" }),
      rests.length > 1 ? rests.map(([name, tokens]) => `${name} ${count(tokens)}`).join(" + ") : (rests[0]?.[0] ?? "framing"),
      amount(framing),
    );
    fill(place("legend"), used.map(entry), rest);
    for (const id of ["prompt", "glance"]) place(id).classList.toggle("dimmed", this.layer !== null);
    for (const node of document.querySelectorAll("#prompt .part, #glance [data-layer]")) node.classList.toggle("lit", node.dataset.layer === this.layer);
  }

  only(layer) {
    this.layer = this.layer === layer ? null : layer;
    this.showLegend();
  }
}

function score(name, value, widest) {
  const bar = el("span", {
    class: `score ${value < 0 ? "against" : ""}`,
    css: { width: `${(Math.abs(value) / widest) * 100}%` },
  });
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, name.replaceAll("_", " ")),
    el("td", { class: "bar" }, bar),
    el("td", { class: "number" }, value.toFixed(2)),
  );
}
