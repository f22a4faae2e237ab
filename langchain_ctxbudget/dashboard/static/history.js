// What became of every message, by position; the message that is looked at, and what is to become of it.

import { api } from "./api.js";
import { count, el, fill, said, steered, when } from "./dom.js";
import { roleOf } from "./prompt.js";
import { stateOf, states } from "./words.js";

const PAGE = 100;
const PRESERVATIONS = [
  ["keep", "Keep verbatim"],
  ["summarize", "Only in summaries"],
  ["drop", "Leave out"],
];

export class History {
  constructor({ failed, pinned }) {
    Object.assign(this, { failed, pinned, position: null });
    this.place = document.getElementById("history");
  }

  /** Begins with another session, or reads its messages anew. */
  begin(session) {
    if (session !== this.session) this.position = null;
    Object.assign(this, { session, pages: new Map() });
  }

  /** Draws the coverage of a prompt's report. */
  show({ coverage }) {
    this.coverage = coverage;
    this.total = coverage.at(-1)?.last ?? 0;
    if (!this.total) return fill(this.place, el("p", { class: "hint" }, "No message is stored before the current one."));
    const counts = Object.fromEntries(states().map((state) => [state, 0]));
    for (const part of coverage) counts[part.state] += part.last - part.first + 1;
    this.ranges = coverage.map((part) =>
      el("span", {
        class: `range state-${part.state}`,
        css: { "flex-grow": part.last - part.first + 1 },
        title: `messages ${part.first}-${part.last}: ${stateOf(part.state)}`,
      }),
    );
    this.cursor = el("span", { class: "cursor" });
    this.strip = el(
      "div",
      {
        class: "strip",
        role: "slider",
        tabindex: 0,
        "aria-label": "Message of the history; arrow keys move",
        "aria-valuemin": 1,
        "aria-valuemax": this.total,
        data: { key: "strip" },
        on: { keydown: (event) => this.steer(event), click: (event) => this.move(this.under(event)) },
      },
      this.ranges,
      this.cursor,
    );
    this.details = el("div", { class: "reader", id: "reader" });
    fill(
      this.place,
      this.strip,
      el(
        "ul",
        { class: "states" },
        states().map((state) =>
          el(
            "li",
            { data: { state, messages: counts[state] } },
            el("span", { class: `swatch state-${state}` }),
            `${stateOf(state)} `,
            el("strong", {}, count(counts[state])),
          ),
        ),
      ),
      this.details,
    );
    return this.move(Math.min(this.position ?? this.total, this.total));
  }

  /** The position under a pointer; ranges have a least width, so it is looked for range by range. */
  under(event) {
    const boxes = this.ranges.map((range) => range.getBoundingClientRect());
    const index = Math.max(
      0,
      boxes.findIndex((box) => event.clientX < box.right),
    );
    const { first, last } = this.coverage[index];
    const share = (event.clientX - boxes[index].left) / boxes[index].width;
    return Math.min(last, Math.max(first, first + Math.floor(share * (last - first + 1))));
  }

  steer(event) {
    const next = steered(event.key, this.position - 1, this.total);
    if (next === null) return;
    event.preventDefault();
    this.move(next + 1);
  }

  /** Looks at another message. */
  async move(position) {
    this.position = position;
    const index = this.coverage.findIndex((part) => position <= part.last);
    const { first, last, state } = this.coverage[index];
    const share = (position - first + 0.5) / (last - first + 1);
    this.cursor.style.left = `${this.ranges[index].offsetLeft + share * this.ranges[index].offsetWidth}px`;
    this.strip.setAttribute("aria-valuenow", position);
    this.strip.setAttribute("aria-valuetext", `message ${position}, ${stateOf(state)}`);
    try {
      const message = await this.at(position);
      if (position === this.position) this.draw(position, state, message);
    } catch (problem) {
      this.failed(problem);
    }
  }

  draw(position, state, message) {
    const step = (label, sign, by) =>
      el(
        "button",
        {
          type: "button",
          "aria-label": label,
          data: { key: label },
          on: { click: () => this.move(Math.min(this.total, Math.max(1, position + by))) },
        },
        sign,
      );
    const heading = [
      el("strong", {}, `Message ${count(position)} of ${count(this.total)}`),
      el("span", {}, el("span", { class: `swatch state-${state}` }), stateOf(state)),
    ];
    if (!message)
      return fill(this.details, el("p", { class: "row" }, heading), el("p", { class: "hint" }, "It is not stored any more."));
    const choice = ([value, label]) =>
      el(
        "button",
        {
          type: "button",
          "aria-pressed": String(message.preservation === value),
          data: { key: value },
          on: { click: () => this.pin(message, message.preservation === value ? null : value) },
        },
        label,
      );
    return fill(
      this.details,
      el(
        "p",
        { class: "row" },
        step("Previous message", "‹", -1),
        step("Next message", "›", 1),
        heading,
        el("span", { class: `role role-${message.role}` }, roleOf(message.role)),
        message.name ? said(message.name) : null,
        el("span", { class: "muted" }, when(message.created_at)),
      ),
      el("p", { class: "text", tabindex: 0 }, said(message.text || "(no text)")),
      el(
        "p",
        { class: "row", role: "group", "aria-label": "When the conversation is compacted" },
        el("span", { class: "muted" }, "When compacted:"),
        PRESERVATIONS.map(choice),
      ),
    );
  }

  async pin(message, preservation) {
    try {
      await api.pin(this.session, message.id, preservation);
      message.preservation = preservation;
      this.move(message.position);
      this.pinned();
    } catch (problem) {
      this.failed(problem);
    }
  }

  /** The message at a position, read a page at a time; undefined where there is none. */
  async at(position) {
    const page = Math.floor((position - 1) / PAGE);
    if (!this.pages.has(page)) this.pages.set(page, api.messages(this.session, page * PAGE + 1, (page + 1) * PAGE));
    const { messages } = await this.pages.get(page).catch((problem) => {
      this.pages.delete(page);
      throw problem;
    });
    return messages.find((message) => message.position === position);
  }
}
