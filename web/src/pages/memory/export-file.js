/** An exported memory as a file of JSON lines: header, entries, and an end that seals them. */

const PART_BYTES = 1024 * 1024;
const LINE_BREAK = 10;

/**
 * @param {Uint8Array} content
 * @returns {Generator<{line: Uint8Array, number: number}>} lines that are not blank, with their break
 */
function* linesOf(content) {
  let from = 0;
  for (let number = 1; from < content.length; number += 1) {
    const end = content.indexOf(LINE_BREAK, from);
    const line = end < 0 ? joined([content.subarray(from), Uint8Array.of(LINE_BREAK)]) : content.subarray(from, end + 1);
    from = end < 0 ? content.length : end + 1;
    if (line.some((byte) => byte > 32)) yield { line, number };
  }
}

/**
 * Parts for one request each, all with the file's header first.
 *
 * @param {Uint8Array} content
 * @returns {Generator<{lines: Uint8Array, numbers: number[]}>} with the number of each line
 */
export function* partsOf(content) {
  /** @type {{line: Uint8Array, number: number}[]} */
  let part = [];
  let size = 0;
  const whole = () => ({
    lines: joined(part.map((each) => each.line)),
    numbers: part.map((each) => each.number),
  });
  for (const each of linesOf(content)) {
    if (part.length > 1 && size + each.line.length > PART_BYTES) {
      yield whole();
      part = part.slice(0, 1);
      size = part[0].line.length;
    }
    part.push(each);
    size += each.line.length;
  }
  yield whole();
}

/**
 * Whether the file is whole, by the count and the SHA-256 in its last line.
 *
 * @param {Uint8Array} content
 * @returns {Promise<{line: number, problem: string} | null>} what is wrong; null: nothing
 */
export async function checkExport(content) {
  const lines = [...linesOf(content)];
  const last = lines[lines.length - 1];
  if (!last) return null;
  const end = parsed(last.line);
  if (end.kind !== "end")
    return { line: last.number, problem: "the end line is missing: the file was cut off here" };
  const entries = lines.slice(1, -1).map((each) => each.line);
  if (end.lines !== entries.length)
    return { line: last.number, problem: `${end.lines} lines were exported, and ${entries.length} are in the file` };
  if (!window.crypto.subtle) return null; // only without TLS on another machine
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", joined(entries)));
  const seal = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (end.sha256 !== seal)
    return { line: last.number, problem: "lines of the file were changed since they were exported" };
  return null;
}

/** @param {Uint8Array[]} arrays @returns {Uint8Array<ArrayBuffer>} */
function joined(arrays) {
  const whole = new Uint8Array(arrays.reduce((sum, each) => sum + each.length, 0));
  let at = 0;
  for (const each of arrays) {
    whole.set(each, at);
    at += each.length;
  }
  return whole;
}

/** @param {Uint8Array} line @returns {Record<string, any>} */
function parsed(line) {
  try {
    const value = JSON.parse(new TextDecoder().decode(line));
    return value && typeof value === "object" ? value : {};
  } catch {
    return {};
  }
}
