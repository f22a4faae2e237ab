// The standing rules in force in a session: to see where one is from, to add one, to lift one.

import { api } from "./api.js";
import { el, fill, said } from "./dom.js";

const MADE_BY = { rules: "the user's words", user: "by hand", application: "by the application" };

export class Rules {
  constructor({ failed, changed, open }) {
    Object.assign(this, { failed, changed, open, text: "", everywhere: false });
    this.place = document.getElementById("rules");
  }

  async load(session) {
    const { rules } = await api.rules(session);
    if (session !== this.session) Object.assign(this, { text: "", everywhere: false });
    Object.assign(this, { session, rules });
    this.draw();
  }

  draw() {
    const none = el("p", { class: "hint" }, "None is in force. Users lay them down in their own words, or they are added here.");
    const entries = this.rules.map((rule) => this.entry(rule));
    fill(this.place, entries.length ? el("ul", { class: "entries" }, entries) : none, this.form());
  }

  entry(rule) {
    const reach = rule.holds_everywhere ? "everywhere" : "in this session";
    const origin = [rule.day, reach, MADE_BY[rule.made_by] ?? `read by ${rule.made_by}`].filter(Boolean).join(", ");
    const look = el(
      "button",
      { type: "button", data: { key: `look ${rule.id}` }, on: { click: () => this.open(rule.position) } },
      "Its message",
    );
    const lift = el(
      "button",
      {
        type: "button",
        class: "danger",
        data: { key: `lift ${rule.id}` },
        on: { click: () => this.lift(rule.id) },
      },
      "Lift",
    );
    return el(
      "li",
      {},
      said(rule.text),
      el(
        "p",
        { class: "row" },
        el("span", { class: "muted small" }, origin),
        rule.position === null ? null : look,
        this.canLift(rule.id) ? lift : null,
      ),
    );
  }

  /** What is typed outlives a redraw. */
  form() {
    const field = el("input", {
      type: "text",
      value: this.text,
      maxlength: 2000,
      "aria-label": "A new rule",
      dir: "auto",
      data: { key: "rule" },
      on: { input: (event) => (this.text = event.target.value) },
    });
    const box = el("input", {
      type: "checkbox",
      checked: this.everywhere,
      data: { key: "everywhere" },
      on: { change: (event) => (this.everywhere = event.target.checked) },
    });
    const submitted = (event) => {
      event.preventDefault();
      if (this.text.trim()) this.change(() => this.add());
    };
    return el(
      "form",
      { class: "row", autocomplete: "off", on: { submit: submitted } },
      field,
      el("label", {}, box, " in all sessions"),
      el("button", { type: "submit", data: { key: "add rule" } }, "Add rule"),
    );
  }

  /** Tells whether this is a rule in force, and none of the application's. */
  canLift(id) {
    return this.rules.some((rule) => rule.id === id && rule.made_by !== "application");
  }

  lift(id) {
    return this.change(() => api.liftRule(this.session, id));
  }

  async add() {
    await api.addRule(this.session, this.text, this.everywhere);
    Object.assign(this, { text: "", everywhere: false });
  }

  async change(change) {
    try {
      await change();
      await this.load(this.session);
      this.changed();
    } catch (problem) {
      this.failed(problem);
    }
  }
}
