/** One user's host: its guests, how they are confined, what they take, and starting and ending them. */

import { host } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { Boundary } from "../../components/boundary.js";
import { Line } from "../../components/chart.js";
import { Act, useRead } from "../../components/doing.js";
import { Advice, FailureNotice, Loading } from "../../components/notices.js";
import { go } from "../../router.js";
import { Table } from "../../components/table.js";
import { bytes, fullTime } from "../../text.js";
import { html, useState } from "../../view.js";
import { Invitation, Remove } from "./person.js";
import { Projects } from "./projects.js";
import { Tokens } from "./tokens.js";

/** @typedef {import("../../api.js").Message} Message */

const LOOK_MS = 3000;
/** @typedef {{title: string, method: string, says: string, done: string}} DeedText */
/** @type {Record<string, DeedText>} */
const DEEDS = {
  start: {
    title: "Start",
    method: "Start",
    says: "The host of this user is started, with all guests that the configuration asks for.",
    done: "The host runs.",
  },
  stop: {
    title: "Stop",
    method: "Stop",
    says: "All guests of this user end, and what the agent is doing is cut off. Nothing that was saved is lost. For a schedule or reminder that is due, it is started again.",
    done: "The host has stopped.",
  },
  restart: {
    title: "Restart",
    method: "Restart",
    says: "All guests of this user are started anew, and what the agent is doing is cut off. Nothing that was saved is lost.",
    done: "The guests run again.",
  },
};
/** @type {Record<string, string>} */
const BADGES = { ready: "good", starting: "warn", unhealthy: "bad", backing_off: "bad", failed: "bad" };

/** @param {{userId: string, onChanged: () => void}} props */
export function UserView({ userId, onChanged }) {
  const { found: status, failed, read: look } = useRead(() => host("Status", { user_id: userId }), [userId], LOOK_MS);
  const [doing, setDoing] = useState("");
  const done = () => {
    setDoing("");
    look();
    onChanged();
  };
  const running = status?.state === "running";
  return html`<article aria-label=${userId}>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${look} />`}
    ${!status && !failed && html`<${Loading} />`}
    ${status &&
    html`<p class="actions">
      ${!running && html`<button type="button" class="primary" onClick=${() => setDoing("start")}>Start …</button>`}
      ${running && html`<button type="button" onClick=${() => setDoing("restart")}>Restart …</button>`}
      ${running && html`<button type="button" class="danger" onClick=${() => setDoing("stop")}>Stop …</button>`}
      <button type="button" onClick=${() => setDoing("invite")}>Make a link …</button>
      <button type="button" class="danger" onClick=${() => setDoing("remove")}>Remove …</button>
    </p>
    ${status.reason && html`<div class="notice"><${Advice} text=${status.reason} user=${userId} /></div>`}
    ${running
      ? html`<${Running} status=${status} userId=${userId} onChanged=${look} />`
      : html`<p>No agent runs for ${userId}. Workspace: <code>${status.workspace}</code></p>
        ${status.next_due &&
        html`<p>Due next: ${fullTime(status.next_due)}. ${status.started_by || "Nothing"} starts the agent for it.</p>`}
        ${status.problem && html`<div class="notice"><${Advice} text=${status.problem} user=${userId} /></div>`}`}`}
    <${Tokens} userId=${userId} />
    ${doing === "invite" && html`<${Invitation} userId=${userId} onClose=${() => setDoing("")} />`}
    ${doing === "remove" &&
    html`<${Remove} userId=${userId} onRemoved=${() => {
      onChanged();
      go("users");
    }} onClose=${() => setDoing("")} />`}
    ${DEEDS[doing] && html`<${Deed} deed=${DEEDS[doing]} userId=${userId} tier=${status?.tier} onDone=${done} onClose=${() => setDoing("")} />`}
  </article>`;
}

/**
 * @param {{deed: DeedText, userId: string, tier: string, onDone: () => void, onClose: () => void}} props
 *   `tier`: of the latest start
 */
function Deed({ deed, userId, tier, onDone, onClose }) {
  const [insecure, setInsecure] = useState(tier === "process");
  const act = async () => {
    await host(deed.method, { user_id: userId, ...(deed.method === "Start" && { insecure }) });
    announce(deed.done);
    onDone();
  };
  return html`<${Act} title=${`${deed.title} ${userId}?`} action=${deed.title} act=${act} wait="This can take a minute"
    danger=${deed.method === "Stop"} onClose=${onClose}>
    <p>${deed.says}</p>
    ${deed.method === "Start" &&
    html`<p><label class="check"><input type="checkbox" checked=${insecure}
      onChange=${(/** @type {any} */ event) => setInsecure(event.target.checked)} />
      without containers: guests are processes of this machine, which confine less</label></p>`}
  <//>`;
}

/** @param {{status: Message, userId: string, onChanged: () => void}} props */
const Running = ({ status, userId, onChanged }) =>
  html`<dl class="facts">
      <div><dt>Tier</dt><dd>${status.tier}</dd></div>
      ${status.kernel && html`<div><dt>Kernel</dt><dd>${status.kernel}</dd></div>`}
      <div><dt>Provider</dt><dd>${status.provider}</dd></div>
      <div><dt>Runs since</dt><dd>${fullTime(status.started_at)}, version ${status.version}</dd></div>
      <div><dt>Workspace</dt><dd><code>${status.workspace}</code></dd></div>
      ${status.skills?.length > 0 && html`<div><dt>Skills</dt><dd><ul class="plain-list">${status.skills.map(
        (/** @type {Message} */ each) => html`<li key=${each.name}><code>${each.name}</code> ${each.description}</li>`,
      )}</ul></dd></div>`}
    </dl>
    ${(status.notices || []).map((/** @type {string} */ each) => html`<div class="notice"><${Advice} text=${each} user=${userId} /></div>`)}
    <${Projects} userId=${userId} open=${status.projects || []} onChanged=${onChanged} />
    <h2>Guests</h2>
    <${Table} label="Guests" columns=${["Guest", "State", "Memory", "Processor", "Restarts"].map((title) => ({ title }))}
      rows=${(status.guests || []).map((/** @type {Message} */ guest) => ({
        key: guest.role,
        cells: [guest.role, ...figuresOf(guest, status.samples?.[guest.role] || [])],
      }))} />
    <h2>Isolation</h2>
    <${Boundary} userId=${userId} first=${status.boundary} />`;

/** @param {Message} guest @param {Message[]} samples @returns {any[]} */
function figuresOf(guest, samples) {
  const cpu = (samples[samples.length - 1]?.cpu || 0) * 100;
  return [
    html`<div><span class="badge ${BADGES[guest.state] || ""}">${guest.state}</span> since ${fullTime(guest.since)}
      ${guest.reason && html`<br />${guest.reason}`}${guest.details && html`<br /><span class="muted">${guest.details}</span>`}</div>`,
    html`<div>${bytes(guest.resident_bytes)} <${Line} values=${samples.map((each) => each.resident_bytes)}
      label=${`Memory of ${guest.role}, now ${bytes(guest.resident_bytes)}`} /></div>`,
    samples.length > 0 && html`<div>${cpu.toFixed(0)} % <${Line} most=${1} values=${samples.map((each) => each.cpu)}
      label=${`Processor time of ${guest.role}, now ${cpu.toFixed(0)} percent`} /></div>`,
    html`<div>${guest.restarts || 0}${guest.last_end && html`<br /><span class="muted">last: ${guest.last_end}</span>`}</div>`,
  ];
}
