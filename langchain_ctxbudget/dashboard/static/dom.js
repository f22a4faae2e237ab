// Making elements. Text goes in as text nodes only, and style only through the CSSOM, as the page's policy asks.

const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;

const escaped = (character) => `[U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`;

/** Stored text as it is shown: characters that reorder or hide others are named instead. */
export const visible = (text) => String(text).replace(BIDI, escaped).replace(CONTROL, escaped);

/**
 * An element.
 *
 * `props` are attributes; `on` has listeners, `css` styles, `data` data attributes. False and null leave one out.
 * Children are nodes or text.
 */
export function el(tag, props = {}, ...children) {
  const { on = {}, css = {}, data = {}, ...attributes } = props;
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [name, value] of Object.entries(data)) node.dataset[name] = value;
  for (const [name, value] of Object.entries(css)) node.style.setProperty(name, value);
  for (const [name, listener] of Object.entries(on)) node.addEventListener(name, listener);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Stored text, on its own side of the page's writing direction. */
export const said = (text, props = {}) => el("bdi", { dir: "auto", ...props }, visible(text));

/** The address of a session on this page. */
export const addressOf = (session, more = {}) => `#${new URLSearchParams({ session, ...more })}`;

/** Puts new children into a place and the focus back to the one with the same `data-key`. */
export function fill(place, ...children) {
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children.flat().filter(Boolean));
  if (focused === undefined) return;
  const again = [...place.querySelectorAll("[data-key]")].find((node) => node.dataset.key === focused);
  again?.focus({ preventScroll: true });
}

const NUMBER = new Intl.NumberFormat("en");
const MONEY = new Intl.NumberFormat("en", { style: "currency", currency: "USD", maximumFractionDigits: 4 });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export const count = (value) => NUMBER.format(value);
export const money = (value) => MONEY.format(value);

/** A share as reports have it: a part is never all of it, and something is never nothing. */
export function percent(share) {
  const whole = Math.round(share * 100);
  if (share > 0 && whole === 0) return "<1 %";
  return `${share < 1 ? Math.min(whole, 99) : whole} %`;
}

export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** A moment, in the reader's time zone. */
export function when(iso) {
  const moment = new Date(iso ?? "");
  return Number.isNaN(moment.getTime()) ? "" : DAY.format(moment);
}

/** Calls the last of many calls in a row, once they pause. */
export function debounced(milliseconds, call) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
}

/** Moves among elements of which one is in the tab order: the arrow keys' next index, or null. */
export function steered(key, index, length) {
  const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
  if (key === "Home") return 0;
  if (key === "End") return length - 1;
  return key in moves ? Math.min(length - 1, Math.max(0, index + moves[key])) : null;
}
