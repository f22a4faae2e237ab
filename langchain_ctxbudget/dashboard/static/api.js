// The JSON API, and what goes wrong with it in words.

const BASE = "api/context";
const UNREACHABLE = "The dashboard's server does not answer. Is “ctxbudget dashboard” still running?";

/** An answer that is an error; `status` is 0 where nobody answered, `body` what else the answer says. */
export class ApiError extends Error {
  constructor(status, message, body = {}) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

async function request(path, { query = {}, body, signal } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const address = given.length ? `${BASE}${path}?${new URLSearchParams(given)}` : BASE + path;
  const options = { signal, headers: { Accept: "application/json" }, cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new ApiError(0, UNREACHABLE);
  }
  const data = await answer.json().catch(() => ({}));
  if (answer.ok) return data;
  throw new ApiError(answer.status, data.error ?? `The server answered with ${answer.status}.`, data);
}

export const api = {
  sessions: () => request("/sessions"),
  status: (session) => request("/status", { query: { session_id: session } }),
  snapshots: (session, limit = 100) => request("/snapshots", { query: { session_id: session, limit } }),
  snapshot: (session, id, signal) =>
    request(`/snapshots/${encodeURIComponent(id)}`, { query: { session_id: session }, signal }),
  preview: (session, { budget, message } = {}, signal) =>
    request("/preview", { query: { session_id: session, budget, message }, signal }),
  messages: (session, first, last) => request("/messages", { query: { session_id: session, first, last } }),
  usage: (session) => request("/usage", { query: { session_id: session } }),
  settings: () => request("/settings"),
  pinMessage: (session, id, preservation) =>
    request("/pins", { body: { session_id: session, message_id: id, preservation } }),
  pinFact: (id, pinned) => request("/pins", { body: { fact_id: id, pinned } }),
};
