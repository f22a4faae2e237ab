// What is known about the user: to pin, correct, forget, and to ask where it is from.

import { api } from "./api.js";
import { addressOf, el, fill, said, when } from "./dom.js";

export class Known {
  constructor({ failed, changed }) {
    Object.assign(this, { failed, changed, open: null });
    this.place = document.getElementById("known");
  }

  async load() {
    const { known, text } = await api.known();
    Object.assign(this, { items: known, text });
    this.draw();
  }

  draw() {
    const none = el(
      "p",
      { class: "hint" },
      "Nothing yet: it is learned from what users say, or added with pipeline.knowledge.",
    );
    const headings = [...new Set(this.items.map((item) => item.heading))];
    const parts = headings.flatMap((heading) => [
      el("h3", {}, heading),
      el(
        "ul",
        { class: "entries" },
        this.items.filter((item) => item.heading === heading).map((item) => this.entry(item)),
      ),
    ]);
    fill(this.place, parts.length ? parts : none);
    fill(document.getElementById("all-known"), parts.length ? this.ofAll() : null);
  }

  /** What can be done with all of it; to forget it takes a second press. */
  ofAll() {
    const button = (label, act, more = {}) =>
      el("button", { type: "button", on: { click: act }, ...more, data: { key: label } }, label);
    const forget = () => (this.sure ? this.change(() => api.forgetAll()) : this.ask(true));
    const [save, danger] = [button("Save as text", () => this.save()), { class: "danger" }];
    if (!this.sure) return [save, button("Forget all", forget, danger)];
    const told = el("span", { class: "muted small" }, "The conversations stay.");
    return [save, told, button("Yes, forget all", forget, danger), button("Keep", () => this.ask(false))];
  }

  ask(sure) {
    this.sure = sure;
    this.draw();
  }

  save() {
    const address = URL.createObjectURL(new Blob([this.text], { type: "text/markdown" }));
    el("a", { href: address, download: "known.md" }).click();
    URL.revokeObjectURL(address);
  }

  entry(item) {
    const isOpen = this.open?.id === item.id;
    const isRule = item.words === ""; // it stays in the user's words
    const button = (label, act, more = {}) =>
      el("button", { type: "button", data: { key: `${label} ${item.id}` }, on: { click: act }, ...more }, label);
    const text = el(
      "button",
      {
        type: "button",
        class: "link",
        "aria-expanded": String(isOpen),
        data: { key: item.id },
        on: { click: () => this.toggle(item) },
      },
      said(item.text),
    );
    if (!isOpen) return el("li", {}, text, item.pinned ? el("span", { class: "tag" }, "pinned") : null);
    const typed = (event) => {
      this.open.text = event.target.value; // what is being typed outlives a redraw
    };
    const field = el("input", {
      type: "text",
      value: this.open.text ?? item.words,
      maxlength: 2000,
      "aria-label": "In other words",
      dir: "auto",
      data: { key: `text ${item.id}` },
      on: { input: typed },
    });
    return el(
      "li",
      { class: "open" },
      text,
      el(
        "p",
        { class: "muted small" },
        `${item.origin[0].toUpperCase()}${item.origin.slice(1)}${item.last_said ? `, last ${when(item.last_said)}` : ""}` +
          (this.open.sources.length ? ":" : "."),
      ),
      el(
        "ul",
        { class: "sources" },
        this.open.sources.map((one) =>
          el("li", {}, said(one.text), " ", el("a", { class: "small", href: addressOf(one.session_id) }, said(one.session_id))),
        ),
      ),
      isRule
        ? null
        : el(
            "p",
            { class: "row" },
            field,
            button("Correct", () => this.change(() => api.change(item.id, { text: field.value }))),
          ),
      el(
        "p",
        { class: "row" },
        isRule
          ? null
          : button(item.pinned ? "Unpin" : "Pin", () => this.change(() => api.change(item.id, { pinned: !item.pinned }))),
        button(isRule ? "Lift" : "Forget", () => this.change(() => api.change(item.id, { forgotten: true })), { class: "danger" }),
      ),
    );
  }

  async toggle(item) {
    await this.attempt(async () => {
      this.open = this.open?.id === item.id ? null : { id: item.id, sources: (await api.why(item.id)).sources };
      this.draw();
    });
  }

  async change(change) {
    await this.attempt(async () => {
      await change();
      Object.assign(this, { open: null, sure: false });
      await this.load();
      this.changed();
    });
  }

  attempt(work) {
    return work().catch((problem) => this.failed(problem));
  }
}
