// The history frontier: what became of every message, by position, and the message that is looked at.

import { count, debounced, el, fill, plural, said, steered, when } from "./dom.js";
import { coverageOf, messagesOf, stateAt } from "./report.js";
import { PRESERVATIONS, STATES } from "./words.js";

const HOVER_MILLISECONDS = 60;
const SHOWN_CHARACTERS = 4000;

const NOT_STORED = "It is not stored any more.";
const MOVED = "The conversation has changed since: which message stood here is not known any more.";

const ROLES = { human: "user", ai: "assistant" };

export class Frontier {
  constructor({ failed, pinned }) {
    this.failed = failed;
    this.whenPinned = pinned;
    this.place = document.getElementById("frontier");
    this.position = null;
    this.hovered = null;
    this.report = null;
    this.hover = debounced(HOVER_MILLISECONDS, (position) => {
      this.hovered = position;
      this.read();
    });
  }

  /** Draws the coverage of a prompt's report; `messages` reads the conversation's. */
  show({ current_context: report, steady_messages: steady }, messages) {
    if (this.messages?.session !== messages.session) this.position = this.drawn = null;
    Object.assign(this, { messages, steady });
    const total = messagesOf(report);
    const drawn = JSON.stringify(report.coverage);
    this.report = report;
    if (!total) {
      this.drawn = null;
      fill(this.place, el("p", { class: "hint" }, "No message is stored before the current one."));
      return;
    }
    this.position = Math.min(this.position ?? total, total);
    if (this.drawn === drawn) {
      this.read();
      return;
    }
    this.drawn = drawn;
    this.draw(total);
    this.move(this.position);
  }

  draw(total) {
    this.hovered = null;
    this.ranges = this.report.coverage.map((part) => {
      const length = part.last - part.first + 1;
      return el("span", { class: `range state-${part.state}`, css: { "flex-grow": length }, title: wordsOf(part) });
    });
    this.cursor = el("span", { class: "cursor" });
    this.strip = el(
      "div",
      {
        class: "strip", role: "slider", tabindex: 0, css: { "--least": `min(2px, ${40 / this.ranges.length}%)` }, "aria-label": "Message of the history; arrow keys move", "aria-valuemin": 1,
        "aria-valuemax": total, data: { key: "strip" },
        on: {
          keydown: (event) => this.steer(event, total),
          pointermove: (event) => event.pointerType === "mouse" && this.hover(this.under(event)),
          pointerleave: () => this.hover(null),
          click: (event) => this.move(this.under(event)),
        },
      },
      this.ranges,
      this.cursor,
    );
    this.number = el("input", {
      type: "number", min: 1, max: total, step: 1, inputmode: "numeric", "aria-label": "Message number", id: "message-number",
      on: { change: () => this.move(Math.min(total, Math.max(1, Math.round(Number(this.number.value)) || 1))) },
    });
    const step = (label, sign, by) =>
      el("button", { type: "button", "aria-label": label, data: { key: label }, on: { click: () => this.move(Math.min(total, Math.max(1, this.position + by))) } }, sign);
    this.details = el("div", { class: "reader", id: "message" });
    fill(
      this.place,
      this.strip,
      el("p", { class: "scale small muted", "aria-hidden": "true" }, el("span", {}, "1"), el("span", {}, count(total))),
      legend(this.report),
      el("div", { class: "stepper" }, step("Previous message", "‹", -1), this.number, el("span", { class: "muted" }, `of ${count(total)}`), step("Next message", "›", 1)),
      this.details,
    );
  }

  /** The position under a pointer; ranges have a least width, so it is looked for range by range. */
  under(event) {
    const boxes = this.ranges.map((range) => range.getBoundingClientRect());
    const found = boxes.findIndex((box) => event.clientX < box.right);
    const index = found < 0 ? boxes.length - 1 : found;
    const { first, last } = this.report.coverage[index];
    const share = (event.clientX - boxes[index].left) / boxes[index].width;
    return Math.min(last, Math.max(first, first + Math.floor(share * (last - first + 1))));
  }

  steer(event, total) {
    const next = steered(event.key, this.position - 1, total);
    if (next === null) return;
    event.preventDefault();
    this.move(next + 1);
  }

  /** Looks at another message. */
  move(position) {
    this.position = position;
    this.hovered = null;
    const index = this.report.coverage.findIndex((part) => position <= part.last);
    const { first, last } = this.report.coverage[index];
    const share = (position - first + 0.5) / (last - first + 1);
    const range = this.ranges[index];
    this.cursor.style.left = `${range.offsetLeft + share * range.offsetWidth}px`;
    this.number.value = position;
    this.strip.setAttribute("aria-valuenow", position);
    this.strip.setAttribute("aria-valuetext", `message ${position}, ${STATES[stateAt(this.report, position)]}`);
    this.read();
  }

  /** Reads and shows the message that is hovered, else the one that is picked. */
  async read() {
    const { report, messages, position, hovered } = this;
    const wanted = hovered ?? position;
    if (wanted > this.steady) return this.showNone(wanted, MOVED);
    try {
      const message = await messages.at(wanted);
      const isStill = messages === this.messages && wanted === (this.hovered ?? this.position);
      if (!isStill) return;
      if (!message) return this.showNone(wanted, NOT_STORED);
      this.showMessage(wanted, message);
      if (hovered === null) {
        const beginning = message.text.slice(0, 160);
        this.strip.setAttribute("aria-valuetext", `message ${wanted}, ${STATES[stateAt(report, wanted)]}, ${roleOf(message)}: ${beginning}`);
      }
    } catch (problem) {
      this.failed(problem);
    }
  }

  /** What is known of a position: what became of its message. */
  factsOf(position) {
    const state = stateAt(this.report, position);
    return [el("span", { class: `swatch state-${state}`, "aria-hidden": "true" }), el("strong", {}, `Message ${count(position)}`), el("span", {}, STATES[state])];
  }

  showNone(position, why) {
    fill(this.details, el("p", { class: "reader-facts" }, this.factsOf(position)), el("p", { class: "hint" }, why));
  }

  showMessage(position, message) {
    const facts = this.factsOf(position);
    facts.push(el("span", { class: "tag" }, said(roleOf(message))));
    if (message.created_at) facts.push(el("span", { class: "muted" }, when(message.created_at)));
    if (message.preservation) facts.push(el("span", { class: "tag pinned" }, PRESERVATIONS[message.preservation]?.[1] ?? message.preservation));
    const text = message.text.length > SHOWN_CHARACTERS ? `${message.text.slice(0, SHOWN_CHARACTERS)}…` : message.text;
    return fill(
      this.details,
      el("p", { class: "reader-facts" }, facts),
      el("p", { class: "reader-text", tabindex: 0, role: "group", "aria-label": "Text of the message", dir: "auto", data: { key: "text" } }, text ? said(text) : el("span", { class: "muted" }, "(no text)")),
      el("div", { class: "buttons", role: "group", "aria-label": "When the history is compacted" }, Object.entries(PRESERVATIONS).map(([name, [label, meaning]]) => this.pinButton(message, name, label, meaning)), this.pinButton(message, null, "Clear", "no wish")),
    );
  }

  pinButton(message, preservation, label, meaning) {
    const isSet = (message.preservation ?? null) === preservation;
    return el(
      "button",
      {
        type: "button", class: "pin", title: meaning, "aria-pressed": preservation === null ? null : String(isSet),
        disabled: preservation === null && isSet, data: { key: `pin ${preservation}` }, on: { click: () => this.pin(message, preservation) },
      },
      label,
    );
  }

  async pin(message, preservation) {
    try {
      await this.messages.pin(message, preservation);
      await this.read();
      this.whenPinned(message);
    } catch (problem) {
      this.failed(problem);
    }
  }
}

const roleOf = (message) => [ROLES[message.role] ?? message.role, message.name].filter(Boolean).join(" ");

const wordsOf = ({ first, last, state }) => `${first === last ? `Message ${first}` : `Messages ${first} to ${last}`}: ${STATES[state]}`;

function legend(report) {
  const entries = Object.entries(coverageOf(report)).map(([state, number]) =>
    el("li", { class: number ? null : "none", data: { state, messages: number } }, el("span", { class: `swatch state-${state}`, "aria-hidden": "true" }), `${count(number)} ${STATES[state]}`),
  );
  return el("ul", { class: "states small", "aria-label": plural(messagesOf(report), "message") }, entries);
}
