// What a person decides over the head of the package: pins.

import { api } from "./api.js";
import { count, el, fill, plural, said } from "./dom.js";
import { SEARCHED } from "./messages.js";
import { PRESERVATIONS } from "./words.js";

const FACT = "fact/";
const EXCERPT = 90;

let drawn;

/** Pinned messages, and the facts of which a report tells; drawn anew only where they have changed. */
export function showPins({ messages, total, report, jump, changed, failed }) {
  const place = document.getElementById("pins");
  const attempt = (work) => () => work().then(changed, failed);
  const pinned = messages.pinned();
  const facts = (report.layers.find((part) => part.layer === "L1")?.items ?? []).filter((item) => item.id.startsWith(FACT));
  const wanted = JSON.stringify([messages.session, total, pinned, facts]);
  if (wanted === drawn) return; // a click may be on its way
  drawn = wanted;
  const messageEntry = (message) =>
    el(
      "li",
      {},
      el("button", { type: "button", class: "link text", data: { key: `pin ${message.id}` }, on: { click: () => jump(message.position) } },
        el("span", { class: "muted" }, `${count(message.position)} `), said(shortened(message.text) || "(no text)")),
      el("span", { class: "tag pinned" }, PRESERVATIONS[message.preservation]?.[0] ?? message.preservation),
      el("button", { type: "button", "aria-label": `Clear the pin of message ${message.position}`, data: { key: `clear ${message.id}` }, on: { click: attempt(() => messages.pin(message, null)) } }, "Clear"),
    );
  const factEntry = (item) => {
    return el(
      "li",
      {},
      el("span", { class: "text" }, said(item.preview.replace(/^- /, "") || item.id)),
      isPinned(item) ? el("span", { class: "tag pinned" }, "Pinned") : null,
      el("button", { type: "button", data: { key: item.id }, on: { click: attempt(() => api.pinFact(item.id, !isPinned(item))) } }, isPinned(item) ? "Unpin" : "Pin"),
    );
  };
  fill(
    place,
    el("h3", {}, "Messages"),
    pinned.length ? el("ul", { class: "entries" }, pinned.map(messageEntry)) : el("p", { class: "hint" }, "None. Pick a message in the history above, and say what is to become of it."),
    total > SEARCHED ? el("p", { class: "small muted" }, `Among the latest ${count(SEARCHED)} messages and those looked at.`) : null,
    facts.length
      ? [el("h3", {}, "Facts about the user"), el("ul", { class: "entries" }, facts.filter(isPinned).map(factEntry)), others(facts.filter((item) => !isPinned(item)).map(factEntry))]
      : null,
  );
}

const isPinned = (fact) => fact.reason === "pinned";

/** Facts that are not pinned: out of the way, and as open or closed as they were. */
function others(entries) {
  if (!entries.length) return null;
  const open = document.querySelector("#pins details")?.open ?? false;
  return el("details", { open }, el("summary", {}, plural(entries.length, "fact"), " not pinned"), el("ul", { class: "entries" }, entries));
}

const shortened = (text) => (text.length > EXCERPT ? `${text.slice(0, EXCERPT)}…` : text);
