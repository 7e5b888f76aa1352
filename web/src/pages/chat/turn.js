/** One turn: what was asked, what the agent did, what it answered, and what that took. */

import { call } from "../../api.js";
import { Copy } from "../../components/copy.js";
import { useRead } from "../../components/doing.js";
import { ForeignText } from "../../components/foreign-text.js";
import { Markdown } from "../../components/markdown.js";
import { FailureNotice } from "../../components/notices.js";
import { SharedFile } from "../../components/shared-file.js";
import { href } from "../../router.js";
import { count, fullTime, money, shortTime } from "../../text.js";
import { html, useState } from "../../view.js";
import { Approval, ToolCall } from "./calls.js";
import { ChangedFiles } from "./changed-files.js";
import { SubAgents } from "./sub-agents.js";
import { answerOf, isWaiting } from "./turn-state.js";
import { Why } from "./why.js";

/** @typedef {import("./turn-state.js").Turn} Turn */
/** @typedef {import("../../api.js").Message} Message */

/**
 * @param {{user: string, session: string, turn: Turn, last: boolean, onRetry: () => void,
 *   onEdit: (text: string) => void}} props `last`: it is the session's last turn
 */
export function TurnView({ user, session, turn, last, onRetry, onEdit }) {
  const [asking, setAsking] = useState(false);
  const over = turn.state === "ended";
  const delegated = turn.parts.flatMap((part) => (part.kind === "call" && part.call.tool === "delegate" ? [part] : []));
  return html`<article class="turn" aria-label=${`Turn of ${fullTime(turn.at)}`} aria-busy=${!over}>
    ${turn.asked &&
    html`<div class="asked">
      <p class="who-says"><span>${turn.run ? "The schedule" : "You"}</span> <time datetime=${turn.at}>${shortTime(turn.at)}</time></p>
      <p class="plain-text"><${ForeignText} text=${turn.asked} /></p>
      ${turn.attachments.map((path) => html`<${SharedFile} key=${path} user=${user} path=${path} />`)}
    </div>`}
    <div class="answer">
      <p class="unseen">Agent</p>
      ${turn.parts.map((part, index) => {
        if (part.kind === "text") return html`<${Markdown} key=${index} text=${part.text} user=${user} />`;
        if (part.kind === "call")
          return html`<${ToolCall} key=${index} user=${user} call=${part.call} finished=${part.finished} over=${over} />`;
        if (part.kind === "approval")
          return html`<${Approval} key=${part.approval.approval_id} user=${user} approval=${part.approval}
            decided=${part.decided} over=${over} />`;
        return html`<p key=${index} class="notice">${part.text}</p>`;
      })}
      ${delegated.length > 0 &&
      html`<${SubAgents} user=${user} turn=${turn.id} busy=${!over && delegated.some((part) => !part.finished)} />`}
      ${!over &&
      html`<p class="busy muted">${turn.state === "sending" ? "Sending" : isWaiting(turn) ? "Waiting for you" : "Working"}</p>`}
      ${turn.problem &&
      (turn.problem.code === "cancelled"
        ? html`<p class="muted">${turn.problem.message}</p>`
        : html`<${FailureNotice} failure=${turn.problem} />`)}
      ${turn.receipts.length > 0 &&
      html`<ul class="receipts" aria-label="What this turn did to memory">
        ${turn.receipts.map((each, index) => html`<${Receipt} key=${index} receipt=${each} />`)}
      </ul>`}
      ${turn.files && html`<${ChangedFiles} user=${user} session=${session} turn=${turn.id} files=${turn.files} />`}
      ${turn.run && html`<${RunOf} user=${user} run=${turn.run} over=${over} />`}
      ${over &&
      html`<p class="after">
        ${turn.usage && html`<span class="muted">${usageOf(turn.usage)}</span>`}
        ${answerOf(turn) && html`<${Copy} text=${answerOf(turn)} title="Copy answer" />`}
        ${last &&
        html`<button type="button" class="plain" onClick=${onRetry}>
          ${turn.problem && !turn.problem.notSent && turn.parts.length ? "Go on, or try again" : "Try again"}
        </button>`}
        ${last && answerOf(turn) &&
        html`<button type="button" class="plain" onClick=${() => setAsking(true)}>Why this answer</button>`}
        ${last && turn.asked &&
        html`<button type="button" class="plain" onClick=${() => onEdit(turn.asked)}>Edit and ask anew</button>`}
      </p>`}
      ${asking &&
      html`<${Why} user=${user} session=${session} turn=${turn.id} onClose=${() => setAsking(false)} />`}
    </div>
  </article>`;
}

/** @param {{user: string, run: Message, over: boolean}} props `run`: the Turn of a schedule's run */
function RunOf({ user, run, over }) {
  const request = { schedule: run.schedule_id, limit: 2, before: `${run.slot}~` };
  const { found } = useRead(() => call(user, "ListScheduleRuns", request), [user, run.slot, over]);
  const told = found?.runs?.find((/** @type {Message} */ each) => each.turn_id === run.turn_id)?.told;
  return html`<p class="muted">A run of <a href=${href("schedules", run.schedule_id)}>a schedule</a>${
    told && html`: <${ForeignText} text=${told} />`}</p>`;
}

const ACTIONS = {
  saved: "Saved a note",
  updated: "Updated a note",
  superseded: "Set a note aside",
  deleted: "Forgot a note",
  restored: "Restored a note",
};

/** @param {{receipt: Message}} props a MemoryReceipt: told by the runtime, not by the model */
function Receipt({ receipt }) {
  const done = receipt.outcome === "done" || !receipt.outcome;
  const what = ACTIONS[/** @type {keyof typeof ACTIONS} */ (receipt.action)] || receipt.action;
  const [gone, id] = [receipt.action === "deleted" && done, (receipt.note_id || "").slice(0, 13)];
  const words = (receipt.words || []).map((/** @type {string} */ each) => `“${each}”`).join(" → ");
  const found = { semantic: "found by meaning", keyword: "found by its words" };
  const how = found[/** @type {keyof typeof found} */ (receipt.searchable)];
  return html`<li class=${done ? "good" : "bad"}>
    <span aria-hidden="true">${done ? "✓" : "✗"}</span>
    ${done ? what : `${what}: ${receipt.outcome}`}
    ${words && html` <${ForeignText} text=${words} />`}
    ${gone ? html` <span class="muted">${id}</span>` : id && html` <a href=${href("memory", receipt.note_id)}>${done ? `undo or forget ${id}` : id}</a>`}
    ${how && html`<span class="muted">, ${how}</span>`}
    ${receipt.asked_by === "runtime" && html`<span class="muted">, by the runtime</span>`}
    ${receipt.reason && html`<span class="muted">, ${receipt.reason}</span>`}
  </li>`;
}

/** @param {Message} usage a TurnCompleted */
function usageOf(usage) {
  const tokens = Number(usage.input_tokens || 0) + Number(usage.output_tokens || 0);
  return [
    usage.model,
    tokens ? `${count(usage.input_tokens)} tokens in, ${count(usage.output_tokens)} out` : "",
    money(usage.cost_usd),
  ]
    .filter(Boolean)
    .join(" · ");
}
