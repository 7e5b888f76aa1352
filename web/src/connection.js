/** Whether the server can be reached, and waiting until it may be. */

import { Store } from "./store.js";

/** Why the server cannot be reached; empty: it can. */
export const connection = new Store("");

/** Whether the session has ended, so that one has to log in again. */
export const signedOut = new Store(false);

/** Who looks: `user`, who is acted for, and of the operator `program`, which begins commands in a terminal. */
export const here = new Store({ operator: false, program: "", user: "" });

/** Counts the times that this page has added or removed a person. */
export const people = new Store(0);

/** Counts the times that this page has marked notices as read. */
export const marked = new Store(0);

/** Counts the calls that no agent has answered. */
export const unanswered = new Store(0);

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

/**
 * Wait before trying again: longer from try to try, and at once when the device gets a network,
 * wakes up or shows this tab.
 *
 * @param {number} tries how many have failed
 * @param {AbortSignal} [signal] ends the wait
 * @returns {Promise<void>}
 */
export function backOff(tries, signal) {
  const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.max(0, tries - 1));
  return new Promise((resolve) => {
    const done = new AbortController();
    const end = () => {
      done.abort();
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(end, wait * (0.75 + Math.random() / 2));
    const options = { signal: done.signal };
    window.addEventListener("online", end, options);
    document.addEventListener("visibilitychange", () => !document.hidden && end(), options);
    signal?.addEventListener("abort", end, options);
  });
}
