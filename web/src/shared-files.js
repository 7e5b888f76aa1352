/** Files in and out of the shared directory, which the agent and its commands see as /shared. */

import { call, stream } from "./api.js";

const ROOT = "/shared";
const PIECE_BYTES = 1024 * 1024;
const IMAGES = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
};
const IMAGE_MOST_BYTES = 20 * 1024 * 1024;
const IMAGES_KEPT = 40;
const NAMES_TRIED = 100;

/** @param {string} path @returns {string} the type of an image that pages show; empty: it is none */
export function imageType(path) {
  const ending = path.slice(path.lastIndexOf(".") + 1).toLowerCase();
  return IMAGES[/** @type {keyof typeof IMAGES} */ (ending)] || "";
}

/** @param {string} path @returns {string} its last name */
export const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);

/**
 * Send a file. What is there already is never replaced: then it gets a number.
 *
 * @param {string} user
 * @param {File} file
 * @param {(share: number) => void} progress told how much of it is there, from 0 to 1
 * @param {AbortSignal} signal
 * @returns {Promise<string>} its path
 */
export async function send(user, file, progress, signal) {
  const name = safeName(file.name);
  for (let number = 1; ; number += 1) {
    const path = `${ROOT}/${number === 1 ? name : numbered(name, number)}`;
    try {
      await sendTo(user, path, file, progress, signal);
      return path;
    } catch (error) {
      const taken = /** @type {any} */ (error).code === "already_exists";
      if (!taken || number === NAMES_TRIED) throw error;
    }
  }
}

/**
 * @param {string} user
 * @param {string} path
 * @param {File} file
 * @param {(share: number) => void} progress
 * @param {AbortSignal} signal
 */
async function sendTo(user, path, file, progress, signal) {
  let upload = "";
  for (let offset = 0; ; offset += PIECE_BYTES) {
    const piece = file.slice(offset, offset + PIECE_BYTES);
    const last = offset + PIECE_BYTES >= file.size;
    const data = base64(new Uint8Array(await piece.arrayBuffer()));
    const where = upload ? { upload_id: upload } : { path };
    const request = { ...where, offset: String(offset), data, last };
    upload = (await call(user, "WriteFile", request, signal)).upload_id || upload;
    progress(file.size ? Math.min(1, (offset + PIECE_BYTES) / file.size) : 1);
    if (last) return;
  }
}

/**
 * @param {string} user
 * @param {string} path
 * @param {number} [most] bytes
 * @returns {Promise<Uint8Array<ArrayBuffer>[]>} its pieces
 */
async function read(user, path, most = Infinity) {
  const pieces = [];
  let length = 0;
  for await (const part of stream(user, "ReadFile", { path })) {
    const piece = Uint8Array.from(atob(part.data || ""), (each) => each.charCodeAt(0));
    length += piece.length;
    if (length > most) throw new Error("it is too large to be shown");
    pieces.push(piece);
  }
  return pieces;
}

/**
 * Let the browser keep a file, as a download.
 *
 * @param {string} user
 * @param {string} path
 */
export async function download(user, path) {
  const content = new Blob(await read(user, path), { type: "application/octet-stream" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = nameOf(path);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @type {Map<string, Promise<string>>} */
const shown = new Map();

/**
 * The address of an image of the shared directory, for `img`. The last ones are kept.
 *
 * @param {string} user
 * @param {string} path
 * @returns {Promise<string>}
 */
export function imageAddress(user, path) {
  const key = JSON.stringify([user, path]);
  const known = shown.get(key);
  if (known) return known;
  const made = read(user, path, IMAGE_MOST_BYTES).then((pieces) =>
    URL.createObjectURL(new Blob(pieces, { type: imageType(path) })),
  );
  shown.set(key, made);
  made.catch(() => shown.delete(key));
  if (shown.size > IMAGES_KEPT) {
    const [oldest, address] = /** @type {[string, Promise<string>]} */ ([...shown][0]);
    shown.delete(oldest);
    address.then((each) => URL.revokeObjectURL(each));
  }
  return made;
}

/** @param {string} name */
const safeName = (name) =>
  name
    .replace(/[\p{Cc}\p{Cf}/\\]/gu, "_")
    .replace(/^\.+/, "_")
    .slice(0, 100) || "file";

/**
 * @param {string} name
 * @param {number} number
 */
function numbered(name, number) {
  const dot = name.lastIndexOf(".");
  return dot > 0 ? `${name.slice(0, dot)}-${number}${name.slice(dot)}` : `${name}-${number}`;
}

/** @param {Uint8Array} data */
function base64(data) {
  let text = "";
  for (let from = 0; from < data.length; from += 0x8000)
    text += String.fromCharCode(...data.subarray(from, from + 0x8000));
  return btoa(text);
}
