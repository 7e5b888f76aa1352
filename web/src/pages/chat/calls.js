/** Calls of tools: what was called, what came of it, and calls that a person has to allow. */

import { call as callGateway } from "../../api.js";
import { CallText, ForeignText } from "../../components/foreign-text.js";
import { FailureNotice, LogInHere } from "../../components/notices.js";
import { SharedFile } from "../../components/shared-file.js";
import { duration, fullTime } from "../../text.js";
import { html, useEffect, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */

const OWN_ID = /: \[id: [\w-]+\]/; // the receipt has it, as a link
const TELLING_CHARS = 120;
const PICTURE = /\/shared\/[^\s()<>"'`]+\.(?:png|jpe?g|gif|webp)(?![\w.-]*\w)/i;

/**
 * A call on one line, that unfolds; below it the picture that its result names.
 *
 * @param {{user: string, call: Message, finished: Message | null, over: boolean}} props `over`: the
 *   turn has ended
 */
export function ToolCall({ user, call, finished, over }) {
  const failed = finished && !finished.ok;
  const mark = finished ? (failed ? "✗" : "✓") : over ? "–" : "";
  const telling = call.told || "";
  const [picture] = (finished?.ok && PICTURE.exec(finished.summary || "")) || [];
  const state = finished ? (failed ? "failed" : "done") : over ? "not finished" : "running";
  return html`<details class="call ${state === "failed" ? "bad" : ""}">
    <summary>
      <span class="mark ${state === "running" ? "busy" : ""}" aria-hidden="true">${mark}</span>
      <span class="unseen">${state}: </span>
      <code>${call.tool}</code>
      ${telling &&
      html` <span class="telling"><${ForeignText}
        text=${telling.length > TELLING_CHARS ? `${telling.slice(0, TELLING_CHARS)} …` : telling} /></span>`}
      ${finished?.summary &&
      html` <span class="muted">${finished.summary.replace(OWN_ID, "")}</span>`}
      ${finished?.duration_ms ? html` <span class="muted">${duration(finished.duration_ms)}</span>` : ""}
    </summary>
    ${call.arguments_text && html`<${CallText} text=${call.arguments_text} />`}
    ${finished?.output &&
    html`<p class="muted">Output</p><pre class="output" tabindex="0"><${ForeignText} text=${finished.output} /></pre>`}
  </details>
  ${picture && html`<${SharedFile} user=${user} path=${picture} />`}
  ${failed && html`<${LogInHere} text=${finished.summary} />`}`;
}

/**
 * A call that waits for a person, or waited.
 *
 * @param {{user: string, approval: Message, decided: Message | null, over?: boolean,
 *   onDecided?: () => void, children?: import("../../view.js").Children}} props
 */
export function Approval({ user, approval, decided, over = false, onDecided, children }) {
  const [sent, setSent] = useState(/** @type {boolean | null} */ (null));
  const [late, setLate] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [expired, setExpired] = useState(false);
  const asked = approval.text || `allow ${approval.tool}?\n${approval.arguments_json}`; // of an older agent
  const until = Date.parse(approval.expires_at || "");
  useEffect(() => {
    if (decided || Number.isNaN(until)) return undefined;
    const timer = setTimeout(() => setExpired(true), Math.min(until - Date.now(), 2 ** 31 - 1));
    return () => clearTimeout(timer);
  }, [until, Boolean(decided)]);

  const decide = async (/** @type {boolean} */ approved, offer = 0) => {
    setSent(approved);
    setProblem(null);
    try {
      const request = { approval_id: approval.approval_id, approved, channel: "web", offer };
      const reply = await callGateway(user, "Decide", request);
      setLate(!reply.accepted);
      onDecided?.();
    } catch (error) {
      setProblem(error);
      setSent(null);
    }
  };

  const outcome = decided
    ? outcomeOf(decided)
    : late
      ? "Decided elsewhere, or nobody waits for it any more."
      : expired
        ? "Refused: nobody decided in time."
        : over
          ? "Nobody waits for it any more."
          : "";
  if (outcome)
    return html`<details class="call">
      <summary>${outcome}${" "}
        ${approval.question ? html`<${ForeignText} text=${approval.question} />` : html`<code>${approval.tool}</code>`}
      </summary>
      <${CallText} text=${asked} />
    </details>`;
  return html`<section class="approval" aria-label="Call that needs your approval">
    <p>
      <strong>The agent asks for your approval.</strong>${" "}
      ${approval.expires_at &&
      html`<span class="muted">Without an answer it is refused at ${fullTime(approval.expires_at)}.</span>`}
    </p>
    ${children}
    <${CallText} text=${asked} />
    ${problem && html`<${FailureNotice} failure=${problem} />`}
    <p class="actions">
      <button type="button" class="primary" disabled=${sent !== null} onClick=${() => decide(true)}>Allow</button>
      <button type="button" class="danger" disabled=${sent !== null} onClick=${() => decide(false)}>Refuse</button>
    </p>
    ${approval.offers?.length > 0 &&
    html`<p class="muted">Or yes, and from now on in this conversation:</p>
      <p class="actions">${approval.offers.map(
        (/** @type {string} */ offer, /** @type {number} */ index) => html`<button type="button" key=${offer}
          disabled=${sent !== null} onClick=${() => decide(true, index + 1)}><${ForeignText} text=${offer} /></button>`,
      )}</p>`}
  </section>`;
}

/** @param {Message} decided an ApprovalDecided */
function outcomeOf(decided) {
  if (decided.by === "expiry") return "Refused: nobody decided in time.";
  if (decided.by === "cancelled") return "Nobody waits for it any more.";
  const where = decided.channel ? ` (${decided.channel})` : "";
  const granted = decided.granted ? `; in this conversation also ${decided.granted}` : "";
  return `${decided.approved ? "Allowed" : "Refused"}${where}${granted}.`;
}
