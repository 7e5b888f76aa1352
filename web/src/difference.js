/** What changed from one text to another, word by word. */

const PIECE = /\s+|[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}\p{M}_]/gu;
const CELLS_MAX = 4_000_000; // of the table; beyond it the texts are shown whole, one after the other

/** @typedef {{kind: "same" | "gone" | "new", text: string}} Piece */

/**
 * @param {string} before
 * @param {string} after
 * @returns {Piece[]} in reading order; what is gone and new gives both texts again
 */
export function difference(before, after) {
  const old = before.match(PIECE) || [];
  const now = after.match(PIECE) || [];
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (
    tail < Math.min(old.length, now.length) - head &&
    old[old.length - 1 - tail] === now[now.length - 1 - tail]
  )
    tail += 1;
  return joined([
    ...pieces("same", old.slice(0, head)),
    ...middle(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
    ...pieces("same", old.slice(old.length - tail)),
  ]);
}

/**
 * The longest common subsequence, by the table of lengths.
 *
 * @param {string[]} old
 * @param {string[]} now
 * @returns {Piece[]}
 */
function middle(old, now) {
  const width = now.length + 1;
  if (old.length * width > CELLS_MAX) return [...pieces("gone", old), ...pieces("new", now)];
  const lengths = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1)
    for (let j = now.length - 1; j >= 0; j -= 1)
      lengths[i * width + j] =
        old[i] === now[j]
          ? lengths[(i + 1) * width + j + 1] + 1
          : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  /** @type {Piece[]} */
  const found = [];
  let i = 0;
  let j = 0;
  while (i < old.length && j < now.length) {
    if (old[i] === now[j]) {
      found.push({ kind: "same", text: old[i] });
      i += 1;
      j += 1;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) {
      found.push({ kind: "gone", text: old[i] });
      i += 1;
    } else {
      found.push({ kind: "new", text: now[j] });
      j += 1;
    }
  }
  return [...found, ...pieces("gone", old.slice(i)), ...pieces("new", now.slice(j))];
}

/**
 * @param {Piece["kind"]} kind
 * @param {string[]} texts
 * @returns {Piece[]}
 */
const pieces = (kind, texts) => texts.map((text) => ({ kind, text }));

/** @param {Piece[]} all @returns {Piece[]} */
function joined(all) {
  /** @type {Piece[]} */
  const result = [];
  for (const piece of all) {
    const last = result[result.length - 1];
    if (last && last.kind === piece.kind) last.text += piece.text;
    else result.push({ ...piece });
  }
  return result;
}
