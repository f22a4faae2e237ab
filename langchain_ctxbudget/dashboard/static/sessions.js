// The list of sessions; a session is picked by the address (#session=…), so that it can be kept and shared.

import { count, el, fill, percent, plural, said, when } from "./dom.js";
import { TIERS, zoneOf } from "./words.js";

/** Fewer are found by looking. */
const FILTERED = 8;

/** Whether an address can hold a name: half of a pair of surrogates, which a stored name may have, is no character. */
export const isAddressable = (session) => session.isWellFormed();

export const addressOf = (session) => `#session=${encodeURIComponent(session)}`;

/** The session that the address names, or null. */
export function sessionInAddress() {
  return new URLSearchParams(location.hash.slice(1)).get("session");
}

export function showSessions({ sessions, session: picked }) {
  const filter = document.getElementById("session-filter");
  const word = filter.value.trim().toLowerCase();
  filter.hidden = sessions.length < FILTERED && !word;
  const found = sessions.filter(({ session_id: id }) => id.toLowerCase().includes(word));
  const total = count(sessions.length);
  document.getElementById("session-count").textContent = word ? `${count(found.length)} of ${total}` : total;
  fill(document.getElementById("sessions"), found.map((session) => entry(session, picked)));
}

function entry(session, picked) {
  const id = session.session_id;
  const share = session.budget_tokens ? session.total_tokens / session.budget_tokens : null;
  const facts = [plural(session.messages, "message")];
  if (session.last_updated) facts.push(when(session.last_updated));
  const link = isAddressable(id) ? { href: addressOf(id), "aria-current": id === picked ? "true" : null, data: { key: id } } : null;
  return el(
    "li",
    {},
    el(
      link ? "a" : "span",
      { ...link, class: "session" },
      said(id, { class: "session-id" }),
      el("span", { class: "muted small" }, facts.join(" · ")),
      link ? null : el("span", { class: "muted small" }, "cannot be opened: no address can hold its name"),
      share === null ? el("span", { class: "muted small" }, "no snapshot yet") : use(share, session),
    ),
  );
}

function use(share, { tier }) {
  const zone = zoneOf(share);
  return el(
    "span",
    { class: "session-use small" },
    el("span", { class: `meter mini ${zone.name}`, "aria-hidden": "true" }, el("span", { css: { width: percent(Math.min(1, share)).replace(" ", "") } })),
    el("span", { class: "number" }, `${percent(share)} of budget`),
    tier && tier !== "healthy" ? el("span", { class: `tag tier-${tier in TIERS ? tier : "other"}` }, tier) : null,
  );
}
