/** Every tool call of a user, as the audit log has it: newest first, filtered, followed. */

import { host } from "../api.js";
import { ForeignText } from "../components/foreign-text.js";
import { Empty, FailureNotice, Loading } from "../components/notices.js";
import { VirtualList } from "../components/virtual-list.js";
import { href } from "../router.js";
import { duration, fullTime } from "../text.js";
import { html, useCallback, useEffect, useRef, useState } from "../view.js";

/** @typedef {import("../api.js").Message} Message */

const PAGE = 100;
const FOLLOW_MS = 2000;
const ROW_PX = 64;
const HOUR_MS = 3_600_000; // by which two clocks may differ

/** @type {Record<string, {text: string, badge: string}>} */
const OUTCOMES = {
  running: { text: "runs", badge: "" },
  ok: { text: "done", badge: "good" },
  refused: { text: "refused", badge: "warn" },
  failed: { text: "failed", badge: "bad" },
  cancelled: { text: "cancelled", badge: "" },
  interrupted: { text: "interrupted", badge: "bad" },
};
const NO_FILTER = { tool: "", outcome: "", channel: "" };

/** @param {import("../pages.js").PageProps} props */
export default function Activity({ user }) {
  const [filter, setFilter] = useState(NO_FILTER);
  const [calls, setCalls] = useState(/** @type {Message[] | null} */ (null));
  const [cursor, setCursor] = useState(0);
  const [follows, setFollows] = useState(true);
  const [failed, setFailed] = useState(/** @type {import("../api.js").Failure | null} */ (null));

  const read = useCallback(
    (/** @type {{cursor?: number, since?: string}} */ from) =>
      host("ListCalls", { user_id: user, ...filter, limit: PAGE, ...from }),
    [user, filter],
  );
  const wanted = useRef(read); // what was asked for another filter comes too late
  wanted.current = read;
  const take = async (/** @type {{cursor?: number, since?: string}} */ from) => {
    try {
      const page = await read(from);
      if (wanted.current !== read) return;
      setFailed(null);
      setCalls((old) => joined(page.calls, old || []));
      if (!from.since) setCursor(page.next_cursor);
    } catch (error) {
      if (wanted.current === read) setFailed(/** @type {any} */ (error));
    }
  };
  useEffect(() => {
    setCalls(null);
    void take({});
  }, [read]);
  useEffect(() => {
    if (!follows || !calls) return;
    const timer = setInterval(() => document.hidden || take({ since: sinceOf(calls) }), FOLLOW_MS);
    return () => clearInterval(timer);
  }, [follows, calls, read]);

  const set = (/** @type {string} */ name) => (/** @type {any} */ event) =>
    setFilter({ ...filter, [name]: event.target.value.trim() });
  return html`<div class="activity">
    <div class="page">
      <h1>Activity</h1>
      <p>Every tool call of ${user}'s agent. It is recorded outside of every guest;${" "}
        <code>runner audit verify</code> checks that no line was changed.</p>
      <form class="choices" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
        <label>Tool <input value=${filter.tool} onInput=${set("tool")} placeholder="any, or a name" /></label>
        <label>Outcome <select value=${filter.outcome} onChange=${set("outcome")}>
          <option value="">any</option>
          ${Object.entries(OUTCOMES).map(([value, { text }]) => html`<option value=${value}>${text}</option>`)}
        </select></label>
        <label>Through <input value=${filter.channel} onInput=${set("channel")} placeholder="any channel" /></label>
        <label class="check"><input type="checkbox" checked=${follows}
          onChange=${(/** @type {any} */ event) => setFollows(event.target.checked)} /> follow</label>
      </form>
      ${failed && html`<${FailureNotice} failure=${failed} onRetry=${() => take({})} />`}
      ${!calls && !failed && html`<${Loading} />`}
      ${calls && !calls.length && html`<${Empty}>No tool was called like that.<//>`}
    </div>
    ${calls && calls.length > 0 &&
    html`<${VirtualList} items=${calls} estimate=${ROW_PX} label="Tool calls, newest first"
      keyOf=${(/** @type {Message} */ each) => String(each.number)} onNearEnd=${() => cursor && take({ cursor })}
      draw=${(/** @type {Message} */ each) => html`<${Row} call=${each} />`} />`}
  </div>`;
}

/** @param {{call: Message}} props */
const Row = ({ call }) => {
  const outcome = OUTCOMES[call.outcome] || { text: call.outcome, badge: "" };
  return html`<div class="row">
    <div><span class="badge ${outcome.badge}">${outcome.text}</span> <strong>${call.tool}</strong>${" "}
      ${call.about && html`<code class="about"><${ForeignText} text=${call.about} /></code>`}</div>
    <div class="muted"><time datetime=${call.began_at}>${fullTime(call.began_at)}</time>
      ${call.outcome !== "running" && ` · took ${duration(call.duration_ms)}`}
      ${call.channel && ` · through ${call.channel}`} · ${call.actor === "agent" ? "the agent" : call.actor}
      ${call.granted && ` · ${call.granted}`}
      ${call.session_id && html` · <a href=${href("chat", call.session_id)}>conversation</a>`}
      ${call.notes.map((/** @type {string} */ note) => html` · <a href=${href("memory", note)}>note</a>`)}</div>
  </div>`;
};

/**
 * @param {Message[]} calls newest first
 * @returns {string} the time from which on a call may be new, or have ended since
 */
function sinceOf(calls) {
  const open = calls.filter((each) => each.outcome === "running");
  const from = open[open.length - 1] || calls[0];
  return from ? from.began_at : new Date(Date.now() - HOUR_MS).toISOString();
}

/**
 * @param {Message[]} newer whose word on a call counts
 * @param {Message[]} older
 * @returns {Message[]} each call once, newest first
 */
function joined(newer, older) {
  const known = new Set(newer.map((each) => each.number));
  return [...newer, ...older.filter((each) => !known.has(each.number))].sort((a, b) => b.number - a.number);
}
