/**
 * The server's HTTP API: requests, streams, and what went wrong.
 *
 * Messages are the gateway's, as protobuf JSON with the contract's field names; a field that has
 * its default may be missing.
 */

import { backOff, connection, signedOut, unanswered } from "./connection.js";

/** @typedef {Record<string, any>} Message */
/**
 * @typedef {object} Me
 * @property {string} user_id the user that is acted for unless another is chosen
 * @property {string[]} users all that may be acted for
 * @property {string[]} scopes
 * @property {boolean} operator
 * @property {string} version
 * @property {string} program what begins a command in a terminal of the operator
 */

/** What a person is told when a request fails. */
export class Failure extends Error {
  /** @param {{code?: string, brief?: string, details?: string, resolution?: string, user?: string}} told `user`: whom it is about */
  constructor(told) {
    super(told.brief || "the server gave no reason");
    this.code = (told.code || "unknown").toLowerCase();
    this.brief = this.message;
    this.details = told.details || "";
    this.resolution = told.resolution || "";
    this.user = told.user || "";
  }
}

/** The code of a failure in which the server was not reached, or broke off. */
export const AWAY = "away";

/** The codes of failures after which an agent may not run. */
const UNANSWERED = new Set(["failed_precondition", "unavailable"]);

/** Methods that read: sent twice they do no more than once. */
const READS = /\/(?:(?:Get|List|Search|Resolve|Review)\w+|MemoryStatistics|Status|Doctor)$/;

/** Where the page's half of the login is kept: other than a cookie it is for this port alone. */
const SESSION_KEY = "oxydra.session";

/**
 * One call of the gateway for a user.
 *
 * @param {string} user
 * @param {string} method as the contract spells it, such as "ListNotes"
 * @param {Message} [request]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Message>}
 * @throws {Failure}
 */
export const call = (user, method, request = {}, signal) =>
  post(`/api/users/${encodeURIComponent(user)}/${method}`, request, signal);

/**
 * One call of the host's API, for the operator.
 *
 * @param {string} method
 * @param {Message} [request]
 * @returns {Promise<Message>}
 * @throws {Failure}
 */
export const host = (method, request = {}) => post(`/api/host/${method}`, request);

/**
 * What an agent can reach and did. Not for the operator alone.
 *
 * @param {string} user
 * @param {"GET" | "POST"} [method] POST probes the boundary now
 * @returns {Promise<Message>}
 * @throws {Failure}
 */
export const safety = (user, method = "GET") =>
  answer(method, `/api/users/${encodeURIComponent(user)}/safety`, method === "POST" ? {} : undefined);

/**
 * What the server knows of this browser as one that is told of notices.
 *
 * @param {string} user
 * @param {"POST" | "PUT" | "DELETE"} method looks it up, begins or ends it
 * @param {Message} request
 * @returns {Promise<Message>}
 * @throws {Failure}
 */
export const push = (user, method, request) => answer(method, `/api/users/${encodeURIComponent(user)}/push`, request);

/** A login at an MCP server: POST says what to open, PUT brings with what the browser came back. @type {typeof push} */
export const serverLogin = (user, method, request) => answer(method, `/api/users/${encodeURIComponent(user)}/logins`, request);

/**
 * A call of the gateway that answers a stream. Leaving the loop closes it.
 *
 * @param {string} user
 * @param {string} method
 * @param {Message} request
 * @param {AbortSignal} [signal]
 * @returns {AsyncGenerator<Message>}
 * @throws {Failure} with the code `AWAY` where the connection broke off
 */
export async function* stream(user, method, request, signal) {
  const url = `/api/users/${encodeURIComponent(user)}/${method}`;
  const reply = await send("POST", url, request, signal).catch((error) => {
    throw away(error);
  });
  const reader = /** @type {ReadableStream<Uint8Array>} */ (reply.body).getReader();
  const decoder = new TextDecoder();
  let unfinished = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw away(error);
      });
      if (done) return;
      const lines = (unfinished + decoder.decode(value, { stream: true })).split("\n");
      unfinished = lines.pop() || "";
      for (const line of lines) {
        const message = line ? JSON.parse(line) : {};
        if (message.error && message.error.code) throw new Failure(message.error);
        if (Object.keys(message).length) yield message; // an empty one says that the line is open
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @returns {Promise<Me | null>} who is logged in; null: nobody */
export async function me() {
  try {
    return /** @type {Me} */ (await answer("GET", "/api/me"));
  } catch (error) {
    if (error instanceof Failure && error.code === "unauthenticated") return null;
    throw error;
  }
}

/**
 * @param {{link: string} | {token: string}} proof
 * @returns {Promise<Message>}
 */
export async function login(proof) {
  const told = await post("/api/login", proof);
  localStorage.setItem(SESSION_KEY, told.page);
  return told;
}

export async function logout() {
  const told = await post("/api/logout", {});
  localStorage.removeItem(SESSION_KEY);
  return told;
}

/**
 * @param {string} url
 * @param {Message} request
 * @param {AbortSignal} [signal]
 */
const post = (url, request, signal) => answer("POST", url, request, signal);

/**
 * Ask, and ask once more where the answer did not arrive and the request may be made twice: a
 * browser drops what is on its way when the device's networks change.
 *
 * @param {string} method
 * @param {string} url
 * @param {Message} [request]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Message>}
 */
async function answer(method, url, request, signal) {
  // A known conversation is what CreateSession answers; a link that was used lets nobody in.
  const known = url.endsWith("/CreateSession") ? request?.session_id : url === "/api/login" && request?.link;
  const ask = () => send(method, url, request, signal).then((reply) => reply.json());
  return ask()
    .catch((error) => {
      if (error instanceof Failure || !(method === "GET" || READS.test(url) || known)) throw error;
      return backOff(1, signal).then(ask); // the networks may change several times in a second
    })
    .catch((error) => {
      throw away(error);
    });
}

/**
 * @param {string} method
 * @param {string} url
 * @param {Message} [request]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function send(method, url, request, signal) {
  const body = request && JSON.stringify(request);
  const page = localStorage.getItem(SESSION_KEY) || "1"; // another tab may have logged in since
  const headers = { "Content-Type": "application/json", "X-Oxydra": page };
  const reply = await fetch(url, { method, headers, body, signal });
  connection.set("");
  if (reply.ok) return reply;
  const told = jsonOr(await reply.text(), {}).error || { brief: `HTTP ${reply.status}` };
  if (reply.status === 401) {
    told.code = "unauthenticated";
    if (url !== "/api/me" && url !== "/api/login") signedOut.set(true);
  }
  const failure = new Failure({ ...told, user: request?.user_id });
  if (UNANSWERED.has(failure.code)) unanswered.set(unanswered.value + 1);
  throw failure;
}

/** @param {any} error */
function away(error) {
  if (error instanceof Failure || error?.name === "AbortError") return error;
  const brief = "the server cannot be reached";
  connection.set(brief);
  return new Failure({
    code: AWAY,
    brief,
    details: error ? String(error.message || error) : "",
    resolution: "check that this device has a network; the page comes back by itself once the server answers",
  });
}

/**
 * @param {string} text
 * @param {any} otherwise
 */
function jsonOr(text, otherwise) {
  try {
    return JSON.parse(text);
  } catch {
    return otherwise;
  }
}
