/** What is known of a turn, made from the events of its stream or from the session's history. */

/** @typedef {import("../../api.js").Message} Message */
/**
 * @typedef {{kind: "text", text: string}
 *   | {kind: "call", call: Message, finished: Message | null}
 *   | {kind: "approval", approval: Message, decided: Message | null}
 *   | {kind: "notice", text: string}} Part
 */
/**
 * @typedef {object} Turn
 * @property {string} id
 * @property {string} asked
 * @property {string[]} attachments
 * @property {string} at when it began, RFC 3339
 * @property {"sending" | "running" | "ended"} state
 * @property {boolean} live whether its parts come from the stream, which knows more than history
 * @property {number} events how many of the stream are in it
 * @property {Part[]} parts
 * @property {Message[]} receipts
 * @property {Message | null} files what it changed in projects
 * @property {Message | null} run of which schedule it is a run, as its Turn says; null: a person asked
 * @property {Message | null} usage of the answer: tokens, cost and model
 * @property {{message: string, details?: string, resolution?: string, code?: string, notSent?: boolean} | null} problem
 *   why there is no answer, or only a part of one
 */

/**
 * @param {string} id
 * @param {Partial<Turn>} [known]
 * @returns {Turn}
 */
export const newTurn = (id, known = {}) => ({
  id,
  asked: "",
  attachments: [],
  at: "",
  state: "ended",
  live: false,
  events: 0,
  parts: [],
  receipts: [],
  files: null,
  run: null,
  usage: null,
  problem: null,
  ...known,
});

/**
 * @param {Message} history a SessionHistory
 * @returns {Turn[]} oldest first
 */
export function fromHistory(history) {
  /** @type {Map<string, Turn>} */
  const turns = new Map();
  for (const event of history.events || []) {
    const id = event.turn_id || `event-${event.sequence}`;
    const turn = turns.get(id) || newTurn(id, { at: event.created_at });
    turns.set(id, turn);
    if (event.role === "user") {
      turn.asked = turn.asked ? `${turn.asked}\n\n${event.text}` : event.text || "";
      turn.attachments = event.attachments || [];
    } else if (event.role === "tool") {
      const [summary, ...output] = (event.text || "").replace(`${event.tool}: `, "").split("\n");
      const finished = { ok: !event.failed, summary, output: output.join("\n") };
      turn.parts.push({ kind: "call", call: { tool: event.tool || "tool", told: event.told }, finished });
    } else if (event.text) {
      turn.parts.push({ kind: "text", text: event.text });
    }
    if (event.incomplete === "stopped") turn.problem = STOPPED;
    else if (event.incomplete) turn.problem = { message: whyIncomplete(event.incomplete) };
  }
  for (const receipt of history.receipts || []) turns.get(receipt.turn_id)?.receipts.push(receipt);
  for (const { turn_id, files } of history.files || []) {
    const turn = turns.get(turn_id);
    if (turn) turn.files = files;
  }
  return [...turns.values()];
}

/** No failure: somebody wanted it. */
const STOPPED = { message: "Stopped.", code: "cancelled" };

/** @param {string} reason */
const whyIncomplete = (reason) =>
  ({
    length: "The answer is incomplete: it reached the most that the model writes at once.",
    filtered: "The answer is incomplete: the provider's content filter stopped it.",
    cut_short: "The answer is incomplete: the connection to the provider broke off.",
    interrupted: "The turn was interrupted: the agent stopped in its middle.",
  })[reason] || `The answer is incomplete: ${reason}.`;

/**
 * A turn with one more event of its stream.
 *
 * @param {Turn} turn
 * @param {Message} event a TurnEvent
 * @returns {Turn}
 */
export function withEvent(turn, event) {
  const index = event.index || 0;
  if (index < turn.events) return turn;
  const parts = turn.parts;
  const last = parts.at(-1);
  /** @type {Turn} */
  const next = { ...turn, events: index + 1, state: "running" };
  if (event.text) {
    const text = event.text.text || "";
    if (last?.kind === "text")
      next.parts = [...parts.slice(0, -1), { kind: "text", text: last.text + text }];
    else next.parts = [...parts, { kind: "text", text }];
  } else if (event.tool_started) {
    next.parts = [...parts, { kind: "call", call: event.tool_started, finished: null }];
  } else if (event.tool_finished) {
    next.parts = withFinished(parts, event.tool_finished);
  } else if (event.approval) {
    next.parts = [...parts, { kind: "approval", approval: event.approval, decided: null }];
  } else if (event.decided) {
    const id = event.decided.approval_id;
    next.parts = parts.map((part) =>
      part.kind === "approval" && part.approval.approval_id === id
        ? { ...part, decided: event.decided }
        : part,
    );
  } else if (event.notice) {
    next.parts = [...parts, { kind: "notice", text: event.notice.text || "" }];
  } else if (event.receipt) {
    next.receipts = [...turn.receipts, event.receipt];
  } else if (event.completed) {
    return completed(next, event.completed);
  } else if (event.incomplete) {
    const { message, resolution, so_far: soFar } = event.incomplete;
    return { ...completed(next, soFar || {}), problem: { message, resolution } };
  } else if (event.failed) {
    const { code = "", message = "", details = "", resolution = "", receipts, files } = event.failed;
    const stopped = code.toLowerCase() === "cancelled";
    next.problem = stopped ? STOPPED : { message, details, resolution, code };
    next.receipts = receipts || next.receipts;
    next.files = files || null;
    next.state = "ended";
  }
  return next;
}

/**
 * @param {Turn} turn
 * @param {Message} done a TurnCompleted
 * @returns {Turn}
 */
function completed(turn, done) {
  const hasText = turn.parts.some((part) => part.kind === "text");
  return {
    ...turn,
    state: "ended",
    parts: hasText || !done.text ? turn.parts : [...turn.parts, { kind: "text", text: done.text }],
    receipts: done.receipts || turn.receipts,
    files: done.files || null,
    usage: done,
  };
}

/**
 * @param {Part[]} parts
 * @param {Message} finished
 * @returns {Part[]}
 */
function withFinished(parts, finished) {
  // Some models give several calls the same id: the first one that is open is meant.
  const index = parts.findIndex(
    (part) => part.kind === "call" && !part.finished && part.call.call_id === finished.call_id,
  );
  if (index < 0) return [...parts, { kind: "call", call: { tool: finished.tool }, finished }];
  const call = /** @type {Part & {kind: "call"}} */ (parts[index]);
  return parts.with(index, { ...call, finished });
}

/** @param {Turn} turn @returns {boolean} whether a call of it waits for a person */
export const isWaiting = (turn) => turn.parts.some((part) => part.kind === "approval" && !part.decided);

/** @param {Turn} turn @returns {string} its answer, as text */
export const answerOf = (turn) =>
  turn.parts.map((part) => (part.kind === "text" ? part.text : "")).join("");
