/** One session as this page knows it: its turns, of which any may be running. */

import { AWAY, Failure, call, stream } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { backOff } from "../../connection.js";
import { Store } from "../../store.js";
import { zone } from "../../text.js";
import { answerOf, fromHistory, newTurn, withEvent } from "./turn-state.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {import("./turn-state.js").Turn} Turn */

const PAGE_EVENTS = 200;
const FOLLOWED_AT_MOST = 20;
const TRANSIENT = new Set([AWAY, "unavailable"]);
const UNTIL_IT_RUNS = new Set([...TRANSIENT, "failed_precondition"]); // no agent is started

/** Turns that run go on without this; it only looks on. */
export class Conversation {
  /**
   * @param {string} user
   * @param {string} sessionId
   */
  constructor(user, sessionId) {
    this.user = user;
    this.sessionId = sessionId;
    /** @type {Store<Turn[]>} */
    this.turns = new Store(/** @type {Turn[]} */ ([]));
    /** @type {Store<Message | null>} */
    this.session = new Store(/** @type {Message | null} */ (null));
    /** Whether there are turns before those that are here. */
    this.hasOlder = new Store(false);
    /** Why the agent cannot be reached just now. */
    this.trouble = new Store(/** @type {Failure | null} */ (null));
    this.closing = new AbortController();
    /** @type {Map<string, Turn>} */
    this.changed = new Map();
    /** @type {Set<string>} */
    this.followed = new Set();
    this.before = "0";
  }

  /** Leave it. What runs goes on. */
  close() {
    this.closing.abort();
  }

  /**
   * Fetch the end of the history, and follow what runs or has ended lately.
   *
   * @throws {Failure}
   */
  async open() {
    const history = await this.retried(() => this.page("0"));
    this.session.set(history.session);
    // Some may be followed already, and the stream knows more than history does.
    const live = new Map(this.turns.value.map((each) => [each.id, each]));
    const stored = fromHistory(history).map((each) => {
      const turn = live.get(each.id) || each;
      live.delete(each.id);
      return turn;
    });
    this.turns.set([...stored, ...live.values()]);
    const { turns: lately = [] } = await this.retried(() =>
      this.ask("ListTurns", { session_id: this.sessionId }),
    );
    for (const each of lately.slice(0, FOLLOWED_AT_MOST).reverse()) this.attach(each);
  }

  /** Fetch turns before those that are here. */
  async older() {
    if (this.fetching || !this.hasOlder.value) return;
    this.fetching = true;
    try {
      const history = await this.page(this.before);
      const earlier = fromHistory(history);
      const known = this.turns.value;
      const torn = earlier.at(-1);
      if (torn && torn.id === known[0]?.id) {
        earlier.pop(); // a turn of which one page had only the end
        const whole = known[0].live
          ? known[0]
          : { ...known[0], ...torn, parts: [...torn.parts, ...known[0].parts] };
        this.turns.set([...earlier, whole, ...known.slice(1)]);
      } else this.turns.set([...earlier, ...known]);
    } finally {
      this.fetching = false;
    }
  }

  /** @param {string} before */
  async page(before) {
    const request = { session_id: this.sessionId, limit: PAGE_EVENTS, before };
    const history = await this.ask("GetSession", request);
    this.before = history.before || "0";
    this.hasOlder.set(this.before !== "0");
    return history;
  }

  /**
   * A turn of ListTurns: follow it, unless that is done already.
   *
   * @param {Message} listed
   */
  attach(listed) {
    if (this.followed.has(listed.turn_id)) return;
    const known = this.turns.value.find((each) => each.id === listed.turn_id);
    const begun = newTurn(listed.turn_id, {
      asked: known?.asked || listed.text || "",
      attachments: known?.attachments || [],
      at: listed.started_at,
      state: listed.ended_at ? "ended" : "running",
      live: true,
      run: listed.schedule_id ? listed : null,
    });
    if (!known) this.turns.set([...this.turns.value, begun]);
    this.follow(begun, Boolean(known));
  }

  /**
   * Ask the agent something, or to go on with its last answer.
   *
   * @param {string} text
   * @param {{model?: string, attachments?: string[], retry?: boolean}} how
   * @param {() => void} onStarted told once the agent has it
   */
  async send(text, { model = "", attachments = [], retry = false }, onStarted) {
    const turn = newTurn(`turn-${newId()}`, {
      asked: retry ? "(again)" : text,
      attachments,
      at: new Date().toISOString(),
      state: "sending",
      live: true,
    });
    this.turns.set([...this.turns.value, turn]);
    const request = {
      session_id: this.sessionId, turn_id: turn.id, model, channel: "web", time_zone: zone(),
    };
    const asked = retry ? { ...request, retry } : { ...request, text, attachments };
    try {
      await this.retried(
        () => this.ask("StartTurn", asked).catch((error) => {
          if (error.code !== "already_exists") throw error; // an earlier try arrived
        }),
        TRANSIENT,
      );
    } catch (error) {
      this.show({ ...turn, state: "ended", problem: { ...problemOf(error), notSent: true } });
      return;
    }
    onStarted();
    await this.follow({ ...turn, state: "running" }, false);
  }

  /** Cancel the turn that runs. */
  async stop() {
    const running = this.running();
    if (running) await this.ask("CancelTurn", { turn_id: running.id });
  }

  /** @returns {Turn | undefined} */
  running() {
    return this.turns.value.findLast((each) => each.state !== "ended");
  }

  /**
   * @param {Turn} begun
   * @param {boolean} quiet whether history shows it already, until the stream has more
   */
  async follow(begun, quiet) {
    let turn = begun;
    let ended = false;
    this.followed.add(turn.id);
    const wasRunning = turn.state !== "ended";
    const { signal } = this.closing;
    for (let tries = 0; !ended && !signal.aborted; ) {
      try {
        const request = { turn_id: turn.id, after: turn.events };
        for await (const event of stream(this.user, "FollowTurn", request, signal)) {
          tries = 0;
          this.trouble.set(null);
          turn = withEvent(turn, event);
          ended = turn.state === "ended";
          if (!quiet || wasRunning) this.show(turn);
        }
        if (ended) break;
      } catch (error) {
        if (signal.aborted) return;
        const code = error instanceof Failure ? error.code : "";
        if (!UNTIL_IT_RUNS.has(code)) {
          if (code === "not_found") await this.reread(turn);
          else this.show({ ...turn, state: "ended", problem: problemOf(error) });
          return;
        }
        this.tell(error);
      }
      tries += 1;
      await backOff(tries, signal);
    }
    if (quiet && !wasRunning) this.show(this.withKnown(turn));
    if (wasRunning && ended) announce(spoken(turn));
  }

  /**
   * A turn that has ended, with what history knows besides: of turns long past the stream has less.
   *
   * @param {Turn} turn
   * @returns {Turn}
   */
  withKnown(turn) {
    const known = this.turns.value.find((each) => each.id === turn.id);
    const fewer = known && turn.parts.length < known.parts.length;
    return fewer ? { ...turn, parts: known.parts } : turn;
  }

  /**
   * Show a turn that cannot be followed any more as history has it.
   *
   * @param {Turn} turn
   */
  async reread(turn) {
    const history = await this.retried(() =>
      this.ask("GetSession", { session_id: this.sessionId, limit: PAGE_EVENTS }),
    );
    const stored = fromHistory(history).find((each) => each.id === turn.id);
    this.show(stored ? { ...stored, run: turn.run } : { ...turn, state: "ended", problem: turn.problem || UNKNOWN });
  }

  /**
   * Show a turn from the next frame on. Many events arrive between two frames.
   *
   * @param {Turn} turn
   */
  show(turn) {
    if (!this.changed.size) requestFrame(() => this.flush());
    this.changed.set(turn.id, turn);
  }

  flush() {
    const changed = this.changed;
    this.changed = new Map();
    if (this.closing.signal.aborted) return;
    this.turns.set(this.turns.value.map((each) => changed.get(each.id) || each));
  }

  /**
   * @param {string} method
   * @param {Message} request
   */
  ask(method, request) {
    return call(this.user, method, request, this.closing.signal);
  }

  /** @param {unknown} error that the agent is away; that the server is, stands at the top */
  tell(error) {
    if (error instanceof Failure && error.code !== AWAY) this.trouble.set(error);
  }

  /**
   * @template T
   * @param {() => Promise<T>} attempt
   * @param {Set<string>} [codes] of failures after which it is tried again
   * @returns {Promise<T>} once the agent can be reached
   */
  async retried(attempt, codes = UNTIL_IT_RUNS) {
    for (let tries = 1; ; tries += 1) {
      try {
        const result = await attempt();
        this.trouble.set(null);
        return result;
      } catch (error) {
        if (!(error instanceof Failure) || !codes.has(error.code)) throw error;
        this.tell(error);
      }
      await backOff(tries, this.closing.signal);
      this.closing.signal.throwIfAborted();
    }
  }
}

const UNKNOWN = {
  message: "How this turn ended is not known here.",
  resolution: "Ask again if you still want it.",
};

/** @param {unknown} error */
function problemOf(error) {
  if (error instanceof Failure) {
    const { message, details, resolution, code } = error;
    return { message, details, resolution, code };
  }
  return { message: String(error) };
}

/** @param {Turn} turn */
const spoken = (turn) => turn.problem?.message || `Answer: ${answerOf(turn)}`.slice(0, 2000);

/** @param {() => void} act before the next frame; in a tab that is not shown, soon */
const requestFrame = (act) =>
  document.hidden ? setTimeout(act, 200) : requestAnimationFrame(() => act());

/** @returns {string} 128 random bits; `crypto.randomUUID` is only there over TLS */
export const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))]
    .map((each) => each.toString(16).padStart(2, "0"))
    .join("");
