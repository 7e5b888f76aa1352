/** Work that begins by itself: when, what it has cost, and what became of each run. */

import { call } from "../api.js";
import { announce } from "../components/announcer.js";
import { Dialog } from "../components/dialog.js";
import { Act, useDoing, useRead } from "../components/doing.js";
import { ForeignText } from "../components/foreign-text.js";
import { Markdown } from "../components/markdown.js";
import { Empty, FailureNotice, Loading } from "../components/notices.js";
import { Table } from "../components/table.js";
import { go, href } from "../router.js";
import { fullTime, money, zone } from "../text.js";
import { html, useState } from "../view.js";

/** @typedef {import("../api.js").Message} Message */
/**
 * @typedef {{name: string, says: string, kind?: "area" | "number" | "check" | "words" | "lines", hint?: string,
 *   more?: boolean, once?: boolean, [attribute: string]: any}} Field `more`: it is folded away; `once`: given
 *   when the schedule is made, and never later
 */

const EVERY_MS = 3000;
const PAGE = 50;
const MOST = 500;
const SAY = "every weekday at 7 look at the build and tell me only if it is red";

/** @type {Field[]} */
const FIELDS = [
  { name: "when", says: "When", required: true, placeholder: "0 7 * * 1-5",
    hint: "“every 30 minutes”, “2026-12-24 18:00”, or a line of cron: “0 7 * * 1-5” is every weekday at 7." },
  { name: "text", says: "What a run is to do", kind: "area", required: true,
    hint: "Say also when there is nothing to tell." },
  { name: "name", says: "Name", hint: "A few words. Left empty: the beginning of what it does." },
  { name: "condition", says: "Only if", more: true,
    hint: "Checked first, and costs nothing: “changed PATH”, “command COMMAND” (it ends with exit code 0) or “due” (a reminder)." },
  { name: "budget_usd", says: "Limit of a run", kind: "number", more: true, hint: "In dollars. 0: no limit of its own." },
  { name: "day_usd", says: "Limit of a day", kind: "number", more: true, hint: "In dollars, for all its runs together." },
  { name: "tools", says: "Only these tools", kind: "words", more: true, hint: "Names with spaces between. Left empty: all." },
  { name: "allow", says: "Commands that runs may call without asking", kind: "lines", more: true, once: true,
    hint: "One a line. This is asked once: nothing is added later." },
  { name: "model", says: "Model", more: true, hint: "Left empty: the one that answers you." },
  { name: "project", says: "Project", more: true },
  { name: "time_zone", says: "Time zone", more: true },
  { name: "again", says: "begin a run once more if the agent was killed", kind: "check", more: true },
  { name: "queue", says: "wait for the run before, instead of being skipped", kind: "check", more: true },
];

const RAN = new Set(["running", "done", "failed", "unknown"]);
/** @type {Record<string, string>} */
const BADGES = { done: "good", failed: "bad", unknown: "bad", missed: "warn", skipped: "warn", unchecked: "warn", capped: "warn" };
/** With what a receipt begins that says what the badge before it says. */
const SAID = /^(ran|failed|missed|skipped) /;

/** @param {import("../pages.js").PageProps} props */
export default function Schedules({ user, route }) {
  return html`<div class="page">${
    route.id ? html`<${One} key=${route.id} user=${user} id=${route.id} />` : html`<${All} user=${user} />`
  }</div>`;
}

/** @param {{user: string}} props */
function All({ user }) {
  const [limit, setLimit] = useState(PAGE);
  const [making, setMaking] = useState(false);
  const { found, failed, read } = useRead(() => call(user, "ListSchedules", { limit }), [user, limit], EVERY_MS);
  const schedules = /** @type {Message[]} */ (found?.schedules || []);
  return html`<h1>Schedules</h1>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${read} />`}
    ${!found && !failed && html`<${Loading} />`}
    ${found && !schedules.length &&
    html`<${Empty}>There is no schedule yet. Say it to the agent in <a href=${href("chat")}>the chat</a>, in your own
      words: “${SAY}”.<//>`}
    ${schedules.length > 0 &&
    html`<${Table} label="Schedules" columns=${[
      { title: "Name" }, { title: "When" }, { title: "Next" }, { title: "This month", number: true }, { title: "In all", number: true },
    ]} rows=${schedules.map((each) => ({
      key: each.schedule_id,
      cells: [
        html`<a href=${href("schedules", each.schedule_id)}><${ForeignText} text=${each.name} /></a>`,
        each.time_zone === zone() ? each.when : `${each.when} (${each.time_zone})`,
        html`<${State} schedule=${each} />`,
        money(each.spent_month_usd) || "$0",
        money(each.spent_usd) || "$0",
      ],
    }))} />`}
    <p class="actions">
      ${found?.after && limit < MOST && html`<button type="button" onClick=${() => setLimit(limit + PAGE)}>Show more</button>`}
      <button type="button" onClick=${() => setMaking(true)}>Make a schedule …</button>
    </p>
    ${making && html`<${Edit} user=${user} onClose=${() => setMaking(false)}
      onDone=${(/** @type {Message} */ made) => go("schedules", made.schedule_id)} />`}`;
}

/** @param {{schedule: Message}} props when it is due next, or why it is not */
const State = ({ schedule: { running, paused, next = [] } }) =>
  running
    ? html`<span class="busy">runs now</span>`
    : paused
      ? html`<span><span class="badge warn">paused</span></span>`
      : html`<span>${fullTime(next[0] || "") || "is over"}</span>`;

/** @param {{user: string, id: string}} props */
function One({ user, id }) {
  const [limit, setLimit] = useState(PAGE);
  const [open, setOpen] = useState("");
  const ask = async () => (await call(user, "ListSchedules", { schedule: id })).schedules[0];
  const { found: schedule, failed, read } = useRead(ask, [user, id], EVERY_MS);
  const { running = false, paused = false, next = [], spent_usd = 0 } = schedule || {};
  const history = useRead(() => call(user, "ListScheduleRuns", { schedule: id, limit }), [
    user, id, limit, running, next[0], spent_usd,
  ]);
  const { busy, failure, run } = useDoing();
  const runs = /** @type {Message[]} */ (history.found?.runs || []);
  const act = (/** @type {string} */ method, /** @type {string} */ told, request = {}) =>
    run(async () => {
      await call(user, method, { schedule: id, ...request });
      announce(told);
      read();
      history.read();
    });
  const remove = async () => {
    await call(user, "DeleteSchedule", { schedule: id });
    announce("The schedule is deleted.");
    go("schedules", "", { replace: true });
  };
  const back = html`<p><a href=${href("schedules")}>All schedules</a></p>`;
  if (!schedule) return html`${back}${failed ? html`<${FailureNotice} failure=${failed} onRetry=${read} />` : html`<${Loading} />`}`;
  return html`${back}
    <h1><${ForeignText} text=${schedule.name} /></h1>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${read} />`}
    ${failure}
    <p class="actions">
      <button type="button" class="primary" disabled=${busy || running} onClick=${() => act("RunSchedule", "A run has begun.")}>Run now</button>
      <button type="button" disabled=${busy} onClick=${() =>
        act("ChangeSchedule", paused ? "It goes on." : "It is paused.", { paused: !paused })}>${paused ? "Resume" : "Pause"}</button>
      <button type="button" onClick=${() => setOpen("change")}>Change …</button>
      <button type="button" class="danger" onClick=${() => setOpen("delete")}>Delete …</button>
    </p>
    <${Facts} schedule=${schedule} />
    <section aria-label="What became of its times">
      <h2>Runs</h2>
      ${history.failed && html`<${FailureNotice} failure=${history.failed} onRetry=${history.read} />`}
      ${history.found && !runs.length && html`<${Empty}>Nothing was due yet.<//>`}
      <ul class="plain-list" aria-label="Runs, newest first">
        ${runs.map((each) => html`<li key=${each.slot} class="card">
          <p><span class="badge ${BADGES[each.state] || ""}">${each.state}</span> <${ForeignText} text=${(each.told || "").replace(SAID, "")} /></p>
          ${each.answer && html`<${Markdown} text=${each.answer} user=${user} />`}
          ${each.session_id && RAN.has(each.state) && html`<p><a href=${href("chat", each.session_id)}>The conversation</a></p>`}
        </li>`)}
      </ul>
      ${runs.length === limit && limit < MOST &&
      html`<p class="actions"><button type="button" onClick=${() => setLimit(limit + PAGE)}>Show earlier ones</button></p>`}
    </section>
    ${open === "change" && html`<${Edit} user=${user} schedule=${schedule} onClose=${() => setOpen("")} onDone=${() => {
      setOpen("");
      read();
    }} />`}
    ${open === "delete" &&
    html`<${Act} title="Delete this schedule?" action="Delete it" danger act=${remove} onClose=${() => setOpen("")}>
      <p>It goes with what is listed here, and cannot be taken back. A run that is on goes on, and conversations of its runs stay.</p>
    <//>`}`;
}

/** @param {{schedule: Message}} props */
function Facts({ schedule }) {
  const { when, time_zone, next = [], paused, running, text, made_by } = schedule;
  const times = next.map((/** @type {string} */ each) => html`<li key=${each}>${fullTime(each)}</li>`);
  const costs = [[schedule.spent_usd, "in all"], [schedule.spent_month_usd, "this month"], [schedule.spent_today_usd, "today"]];
  const facts = [
    ["Cost", html`<strong>${costs.map(([cost, of]) => `${money(cost) || "$0"} ${of}`).join(", ")}</strong>`],
    ["When", `${when} (${time_zone})`],
    ["Next", paused || !times.length ? html`<${State} schedule=${{ paused, next }} />` : html`<ul class="plain-list">${times}</ul>${time_zone !== zone() && html`<span class="muted">in your time</span>`}`],
    ["Now", running && html`<span class="busy">runs</span>`],
    ["Does", html`<${ForeignText} text=${text} />${made_by === "agent" && html` <span class="muted">(in the agent’s words)</span>`}`],
    ["Allowed", (schedule.allowed || []).map((/** @type {string} */ each) => html`<div key=${each}><${ForeignText} text=${each} /></div>`)],
    ...FIELDS.filter(({ name, more, once }) => more && !once && name !== "time_zone").map(({ name, says, kind }) => {
      const value = schedule[name];
      return [says, kind === "number" ? money(value) : kind === "words" ? value?.join(", ") : kind === "check" ? value && "yes" : value];
    }),
  ];
  return html`<dl class="facts">${facts
    .filter(([, value]) => value && value.length !== 0)
    .map(([title, value]) => html`<div key=${title}><dt>${title}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** @param {{user: string, schedule?: Message, onDone: (schedule: Message) => void, onClose: () => void}} props */
function Edit({ user, schedule, onDone, onClose }) {
  const { busy, failure, run } = useDoing();
  const before = schedule || { time_zone: zone() };
  const fields = FIELDS.filter(({ once }) => !once || !schedule);
  const send = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    /** @type {Message} */
    const request = {};
    for (const field of fields) {
      const value = valueOf(field, String(form.get(field.name) ?? ""));
      if (!schedule || shown(value) !== shown(before[field.name])) request[field.name] = value;
    }
    return run(async () => {
      const done = schedule
        ? await call(user, "ChangeSchedule", { ...request, schedule: schedule.schedule_id, all_tools: request.tools?.length === 0 })
        : await call(user, "CreateSchedule", request);
      announce("Saved.");
      onDone(done);
    });
  };
  const draw = (/** @type {boolean} */ more) =>
    fields.filter((each) => Boolean(each.more) === more).map(({ name, says, kind, hint, required, placeholder }) => {
      const own = { name, required, placeholder };
      if (kind === "check") return html`<label class="check" key=${name}><input type="checkbox" ...${own} defaultChecked=${before[name]} /> ${says}</label>`;
      const tall = kind === "area" || kind === "lines";
      const value = kind === "number" ? before[name] || 0 : shown(before[name], kind === "lines" ? "\n" : " ");
      return html`<label key=${name}>${says}
        ${tall ? html`<textarea rows=${kind === "area" ? 4 : 2} ...${own} defaultValue=${value}></textarea>`
          : html`<input ...${own} type=${kind === "number" ? "number" : "text"} min=${kind && 0} step="any" defaultValue=${value} autocomplete="off" />`}
        ${hint && html`<span class="hint">${hint}</span>`}</label>`;
    });
  return html`<${Dialog} title=${schedule ? "Change this schedule" : "Make a schedule"} onClose=${onClose}>
    <form class="fields" onSubmit=${send}>
      ${draw(false)}
      <details><summary>More</summary><div class="fields">${draw(true)}</div></details>
      ${failure}
      <p class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${busy}>${schedule ? "Save" : "Make it"}</button>
      </p>
    </form>
  <//>`;
}

/** @param {Field} field @param {string} text */
function valueOf({ kind }, text) {
  if (kind === "check") return Boolean(text);
  if (kind === "number") return Number(text);
  if (kind === "words" || kind === "lines") return text.split(kind === "words" ? /[\s,]+/ : "\n").filter((each) => each.trim());
  return text.trim();
}

/** @param {any} value of a field; absent where it has its default @param {string} [between] */
const shown = (value, between = " ") => (Array.isArray(value) ? value.join(between) : String(value || ""));
