/** What runs and what waits for a person, in all of a user's sessions. */

import { call } from "../../api.js";
import { Store } from "../../store.js";

/** @typedef {import("../../api.js").Message} Message */

const EVERY_MS = 3000;

/** Looks every few seconds, while the tab is shown. */
export class Attention {
  /** @param {string} user */
  constructor(user) {
    this.user = user;
    /** @type {Store<Message[]>} */
    this.running = new Store(/** @type {Message[]} */ ([]));
    /** @type {Store<Message[]>} */
    this.approvals = new Store(/** @type {Message[]} */ ([]));
    this.timer = setInterval(() => document.hidden || this.look(), EVERY_MS);
    this.seen = () => document.hidden || this.look();
    document.addEventListener("visibilitychange", this.seen);
    this.look();
  }

  close() {
    clearInterval(this.timer);
    document.removeEventListener("visibilitychange", this.seen);
  }

  async look() {
    this.again = this.looking; // something happened meanwhile
    if (this.looking) return;
    this.looking = true;
    try {
      const [running, approvals] = await Promise.all([
        call(this.user, "ListTurns", { running_only: true }),
        call(this.user, "ListApprovals"),
      ]);
      this.running.set(same(this.running.value, running.turns || []));
      this.approvals.set(same(this.approvals.value, approvals.approvals || []));
    } catch {
      // The next look may reach it; that the server is away is said at the top of the page.
    } finally {
      this.looking = false;
      if (this.again) void this.look();
    }
  }
}

/**
 * @param {Message[]} before
 * @param {Message[]} now
 * @returns {Message[]} `before` if nothing has changed
 */
function same(before, now) {
  return JSON.stringify(before) === JSON.stringify(now) ? before : now;
}
