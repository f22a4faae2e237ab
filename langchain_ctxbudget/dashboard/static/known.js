// What is known about the user: to pin, correct, forget, and to ask where it is from.

import { api } from "./api.js";
import { addressOf, el, fill, plural, said } from "./dom.js";

export class Known {
  constructor({ failed, changed }) {
    Object.assign(this, { failed, changed, open: null });
    this.place = document.getElementById("known");
  }

  async load() {
    const { facts } = await api.facts();
    this.facts = facts.sort((a, b) => b.pinned - a.pinned);
    this.draw();
  }

  draw() {
    const none = el(
      "p",
      { class: "hint" },
      "Nothing yet: facts are learned from what users say, or added with pipeline.knowledge.",
    );
    fill(
      this.place,
      this.facts.length
        ? el(
            "ul",
            { class: "entries" },
            this.facts.map((fact) => this.entry(fact)),
          )
        : none,
    );
  }

  entry(fact) {
    const isOpen = this.open?.id === fact.id;
    const button = (label, act, more = {}) =>
      el("button", { type: "button", data: { key: `${label} ${fact.id}` }, on: { click: act }, ...more }, label);
    const text = el(
      "button",
      {
        type: "button",
        class: "link",
        "aria-expanded": String(isOpen),
        data: { key: fact.id },
        on: { click: () => this.toggle(fact) },
      },
      said(fact.text),
    );
    if (!isOpen) return el("li", {}, text, fact.pinned ? el("span", { class: "tag" }, "pinned") : null);
    const typed = (event) => {
      this.open.text = event.target.value; // what is being typed outlives a redraw
    };
    const field = el("input", {
      type: "text",
      value: this.open.text ?? fact.text,
      maxlength: 2000,
      "aria-label": "The fact in other words",
      dir: "auto",
      data: { key: `text ${fact.id}` },
      on: { input: typed },
    });
    return el(
      "li",
      { class: "open" },
      text,
      el(
        "p",
        { class: "muted small" },
        `${fact.category}, sure to ${Math.round(fact.confidence * 100)} %. `,
        this.open.sources.length ? `Known from ${plural(this.open.sources.length, "message")}:` : "Said by hand.",
      ),
      el(
        "ul",
        { class: "sources" },
        this.open.sources.map((one) =>
          el("li", {}, said(one.text), " ", el("a", { class: "small", href: addressOf(one.session_id) }, said(one.session_id))),
        ),
      ),
      el(
        "p",
        { class: "row" },
        field,
        button("Correct", () => this.change(fact, { text: field.value })),
      ),
      el(
        "p",
        { class: "row" },
        button(fact.pinned ? "Unpin" : "Pin", () => this.change(fact, { pinned: !fact.pinned })),
        button("Forget", () => this.change(fact, { forgotten: true }), { class: "danger" }),
      ),
    );
  }

  async toggle(fact) {
    await this.attempt(async () => {
      this.open = this.open?.id === fact.id ? null : { id: fact.id, sources: (await api.why(fact.id)).sources };
      this.draw();
    });
  }

  async change(fact, change) {
    await this.attempt(async () => {
      await api.change(fact.id, change);
      this.open = null;
      await this.load();
      this.changed();
    });
  }

  attempt(work) {
    return work().catch((problem) => this.failed(problem));
  }
}
