// The what-if slider: the next prompt at another budget, live, and what differs.

import { api, ApiError } from "./api.js";
import { count, debounced, el, fill, said, signed } from "./dom.js";
import { coverageOf, differences, leastOf } from "./report.js";
import { LAYERS, STATES } from "./words.js";

const STEPS = 400;
const REACH = 4;
const PAUSE_MILLISECONDS = 120;

const node = (id) => document.getElementById(id);

/** Three digits, as nobody aims at a budget of 7,943 with a slider. */
function rounded(budget) {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(budget)) - 2);
  return Math.round(budget / unit) * unit;
}

/** How much of a budget may be used, where that is less. */
function allowed(budget, { budget_tokens: most, usage }) {
  if (most >= budget) return "";
  const why = usage && usage.tier !== "healthy" ? `in the tier “${usage.tier}”` : "by the model's window";
  return `, of which ${count(most)} may be used ${why},`;
}

export class WhatIf {
  constructor({ found, ended, failed }) {
    Object.assign(this, { found, ended, failed, session: null, base: null, from: 1, to: 2 });
    this.ask = debounced(PAUSE_MILLISECONDS, () => this.isActive && this.run());
    node("budget-slider").addEventListener("input", () => this.choose(this.budgetAt(Number(node("budget-slider").value))));
    node("budget-number").addEventListener("input", () => {
      const budget = Math.round(Number(node("budget-number").value));
      if (budget >= 1) this.choose(budget, false);
    });
    node("what-if").addEventListener("submit", (event) => {
      event.preventDefault();
      this.base = null;
      this.run();
    });
    node("reset").addEventListener("click", () => {
      this.reset();
      this.ended();
    });
  }

  get isActive() {
    return !node("reset").disabled;
  }

  /** Sets the slider up for a session; one that is in use stays where it is and is asked again. */
  show(session, report, settings) {
    const usual = settings?.max_context_tokens ?? report.budget_tokens;
    const isSame = this.session === session;
    this.session = session;
    this.base = null;
    this.usual = usual;
    this.from = isSame ? this.from : Math.min(leastOf(report), usual);
    this.to = Math.max(usual, report.budget_tokens) * REACH;
    this.scale();
    if (isSame && this.isActive) this.ask();
    else this.reset(!isSame);
  }

  scale() {
    node("slider-from").textContent = count(this.from);
    node("slider-to").textContent = count(this.to);
    fill(node("budget-now"), el("option", { value: this.stepAt(this.usual) }));
  }

  reset(forgetMessage = true) {
    this.request?.abort();
    this.budget = this.usual;
    if (forgetMessage) node("try-message").value = "";
    node("reset").disabled = true;
    this.place(true);
    this.told = null;
    fill(node("what-if-result"));
  }

  budgetAt(step) {
    if (step === this.stepAt(this.usual)) return this.usual;
    const budget = rounded(this.from * (this.to / this.from) ** (step / STEPS));
    return Math.max(this.from, Math.min(this.to, budget));
  }

  stepAt(budget) {
    const share = Math.log(budget / this.from) / Math.log(this.to / this.from);
    return Math.round(Math.min(1, Math.max(0, share)) * STEPS);
  }

  place(withNumber) {
    node("budget-slider").value = this.stepAt(this.budget);
    node("budget-slider").setAttribute("aria-valuetext", `${count(this.budget)} tokens`);
    if (withNumber) node("budget-number").value = this.budget;
  }

  choose(budget, withNumber = true) {
    this.budget = budget;
    node("reset").disabled = false;
    this.place(withNumber);
    this.ask();
  }

  async run() {
    this.request?.abort();
    const request = (this.request = new AbortController());
    const { session, budget } = this;
    const message = node("try-message").value.trim();
    node("reset").disabled = false;
    node("what-if-result").setAttribute("aria-busy", "true");
    try {
      // What the next prompt is without the question "what if", to compare with.
      this.base ??= await api.preview(session, {}, request.signal);
      const base = this.base;
      const answer = await api.preview(session, { budget, message }, request.signal);
      if (request.signal.aborted) return;
      this.tell(budget, base.current_context, answer.current_context);
      this.found(answer, base);
    } catch (problem) {
      if (problem.name === "AbortError" || request.signal.aborted) return;
      if (problem instanceof ApiError && problem.status === 409) this.tooSmall(problem);
      else this.failed(problem);
    } finally {
      if (this.request === request) node("what-if-result").removeAttribute("aria-busy");
    }
  }

  tell(budget, before, after) {
    const told = JSON.stringify([budget, before.total_tokens, after.layers, after.coverage]);
    if (told === this.told) return; // said already: a screen reader need not hear it again
    this.told = told;
    const changes = differences(before, after);
    const [was, is] = [coverageOf(before), coverageOf(after)];
    const moved = Object.keys(STATES).filter((state) => was[state] !== is[state]);
    fill(
      node("what-if-result"),
      el(
        "p",
        {},
        `With a budget of ${count(budget)} tokens${allowed(budget, after)} the prompt has `,
        el("strong", { class: "number", id: "what-if-total", data: { tokens: after.total_tokens } }, count(after.total_tokens)),
        `, ${signed(after.total_tokens - before.total_tokens)} against ${count(before.total_tokens)} now.`,
      ),
      changes.length
        ? el("ul", { class: "changes" }, changes.map(({ name, change }) => el("li", {}, said(Object.hasOwn(LAYERS, name) ? `${name} ${LAYERS[name]}` : name), " ", el("strong", { class: "number" }, signed(change)))))
        : el("p", { class: "muted" }, "Every layer uses what it uses now."),
      moved.length ? el("p", { class: "small muted" }, `Messages: ${moved.map((state) => `${STATES[state]} ${count(was[state])} → ${count(is[state])}`).join(", ")}.`) : null,
    );
  }

  /** Says why not and what must be sent, and lets the slider begin there from now on. */
  tooSmall({ message, body: { floors = {} } }) {
    this.told = null;
    const needed = Object.values(floors).reduce((total, tokens) => total + tokens, 0);
    fill(
      node("what-if-result"),
      el("p", { class: "warning" }, el("strong", {}, "Too small. "), said(message)),
      el("ul", { class: "changes" }, Object.entries(floors).map(([name, tokens]) => el("li", {}, said(name), " ", el("strong", { class: "number" }, count(tokens))))),
    );
    if (needed > this.from && needed < this.to) {
      this.from = needed;
      this.scale();
      this.place(false);
    }
    this.found(null, null);
  }
}
