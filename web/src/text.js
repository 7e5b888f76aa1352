/** How times, amounts and texts of others are shown. */

const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const BOTH = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const NUMBER = new Intl.NumberFormat();
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/**
 * @param {string} at RFC 3339
 * @returns {string} the time of today, or the day
 */
export function shortTime(at) {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return "";
  return (time.toDateString() === new Date().toDateString() ? TIME : DAY).format(time);
}

/** @param {string} at RFC 3339 */
export const fullTime = (at) => {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "" : BOTH.format(time);
};

/** @param {number | string | undefined} value a uint64 arrives as a string */
export const count = (value) => NUMBER.format(Number(value || 0));

/** @param {number | string | undefined} value */
export function bytes(value) {
  let amount = Number(value || 0);
  let unit = 0;
  for (; amount >= 1024 && unit < UNITS.length - 1; unit += 1) amount /= 1024;
  return `${unit && amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${UNITS[unit]}`;
}

/** @param {number | undefined} milliseconds */
export const duration = (milliseconds = 0) =>
  milliseconds < 1000 ? `${milliseconds} ms` : `${(milliseconds / 1000).toFixed(1)} s`;

/** @param {number | undefined} dollars */
export const money = (dollars = 0) => (dollars ? `$${dollars.toFixed(dollars < 0.1 ? 4 : 2)}` : "");

// Controls, what turns the direction of text, and what has no width.
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;

/**
 * Text in pieces, with each character that cannot be seen named by its code point.
 *
 * @param {string} text
 * @returns {{text: string, odd: boolean}[]}
 */
export function visible(text) {
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(INVISIBLE)) {
    if (match.index > from) pieces.push({ text: text.slice(from, match.index), odd: false });
    const point = /** @type {number} */ (match[0].codePointAt(0));
    pieces.push({ text: `U+${point.toString(16).toUpperCase().padStart(4, "0")}`, odd: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from), odd: false });
  return pieces;
}
