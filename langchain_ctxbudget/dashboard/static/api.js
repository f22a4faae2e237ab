// The JSON API, and what goes wrong with it in words.

const UNREACHABLE = "The dashboard's server does not answer. Is “ctxbudget dashboard” still running?";

/** An answer that is an error; `status` is 0 where nobody answered, `floors` what each part of a prompt needs. */
export class ApiError extends Error {
  constructor(status, message, floors = {}) {
    super(message);
    Object.assign(this, { status, floors });
  }
}

async function request(path, query, body) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const address = `api/context/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
  const change = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(address, body ? change : {}).catch(() => {
    throw new ApiError(0, UNREACHABLE);
  });
  const data = await answer.json().catch(() => ({}));
  if (answer.ok) return data;
  throw new ApiError(answer.status, data.error ?? `The server answered with ${answer.status}.`, data.floors);
}

const of = (session, more = {}) => ({ session_id: session, ...more });

export const api = {
  sessions: () => request("sessions"),
  snapshots: (session) => request("snapshots", of(session)),
  snapshot: (session, id) => request(`snapshots/${encodeURIComponent(id)}`, of(session)),
  preview: (session, message, budget) => request("preview", of(session, { message, budget })),
  messages: (session, first, last) => request("messages", of(session, { first, last })),
  pin: (session, message, preservation) => request("messages", null, of(session, { message_id: message, preservation })),
  usage: (session) => request("usage", of(session)),
  known: () => request("known"),
  forgetAll: () => request("known/forget", null, {}),
  why: (item) => request("known/why", { item_id: item }),
  rules: (session) => request("rules", of(session)),
  addRule: (session, text, everywhere) => request("rules", null, of(session, { text, everywhere })),
  liftRule: (session, rule) => request("rules/lift", null, of(session, { rule_id: rule })),
  change: (item, change) => request("known", null, { item_id: item, ...change }),
};
