// The list of sessions; a session is picked by the address (#session=…), so that it can be kept and shared.

import { count, el, fill, percent, plural, said, when } from "./dom.js";
import { TIERS, zoneOf } from "./words.js";

export const addressOf = (session) => `#session=${encodeURIComponent(session)}`;

/** The session that the address names, or null. */
export function sessionInAddress() {
  return new URLSearchParams(location.hash.slice(1)).get("session");
}

export function showSessions({ sessions, session: picked }) {
  const total = document.getElementById("session-count");
  total.textContent = count(sessions.length);
  fill(document.getElementById("sessions"), sessions.map((session) => entry(session, picked)));
}

function entry(session, picked) {
  const id = session.session_id;
  const share = session.budget_tokens ? session.total_tokens / session.budget_tokens : null;
  const facts = [plural(session.messages, "message")];
  if (session.last_updated) facts.push(when(session.last_updated));
  return el(
    "li",
    {},
    el(
      "a",
      { href: addressOf(id), class: "session", "aria-current": id === picked ? "true" : null, data: { key: id } },
      said(id, { class: "session-id" }),
      el("span", { class: "muted small" }, facts.join(" · ")),
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
