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

/** @returns {string} the name of the device's time zone; empty: it has none */
export const zone = () => BOTH.resolvedOptions().timeZone || "";

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

// The table and the rules of `proto/wire/text.py`, which says what is in it.
const HIDDEN =
  "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
  "\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ud800-\\udfff\\ufdd0-\\ufdef\\ufe00-\\ufe0d" +
  "\\ufeff\\uffa0\\ufff0-\\ufffb\\ufffe\\uffff\\u{13430}-\\u{1343f}\\u{16fe4}\\u{1bca0}-\\u{1bca3}" +
  "\\u{1d159}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}";
const JOINED =
  "\\u0600-\\u109f\\u1780-\\u18af\\u1900-\\u1cff\\ua800-\\uabff\\ufb50-\\ufdff\\ufe70-\\ufefc" +
  "\\u{11000}-\\u{11fff}\\u{1e900}-\\u{1e95f}";
const PICTURES =
  "\\u00a9\\u00ae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u2bff\\u3030\\u303d\\u3297\\u3299\\u{1f000}-\\u{1faff}";
const UNSEEN = new RegExp(
  `[${HIDDEN}]|(?<![${JOINED}${PICTURES}])(?<![${PICTURES}]\\ufe0f)[\\u200c\\u200d]` +
    `|[\\u200c\\u200d](?=[${HIDDEN}\\u200c\\u200d\\ufe0e\\ufe0f])|(?<![${PICTURES}#*0-9])[\\ufe0e\\ufe0f]`,
  "gu",
);

const PIECE_CHARS = 2000;
const MANY_MARKS = /(\p{M}{20})(\p{M}+)/gu; // no writing puts as many on one letter

/**
 * Text in pieces, each of which a browser can lay out alone: what it costs grows with the square of
 * the length, for some texts. All of it is there, but for heaps of marks, which are counted.
 *
 * @param {string} text
 * @returns {string[]} cut at the ends of lines, or else between words, where there are any
 */
export function pieces(text) {
  const counted = text.replace(MANY_MARKS, (_, first, more) => `${first}[${[...more].length} more marks]`);
  if (counted.length <= PIECE_CHARS) return [counted];
  return counted.match(/[^]{1,2000}(?<=\n)|[^]{1,2000}(?=\s)|[^]{1,2000}/gu) || [];
}

/**
 * Text in pieces, with each character that cannot be seen named by its code point.
 *
 * @param {string} text
 * @returns {{text: string, odd: boolean}[]}
 */
export function visible(text) {
  const pieces = [];
  let from = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > from) pieces.push({ text: text.slice(from, match.index), odd: false });
    const point = /** @type {number} */ (match[0].codePointAt(0));
    pieces.push({ text: `U+${point.toString(16).toUpperCase().padStart(4, "0")}`, odd: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from), odd: false });
  return pieces;
}
