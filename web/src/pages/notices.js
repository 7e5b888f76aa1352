/** What the person is told outside of conversations, and reminders. */

import { call } from "../api.js";
import { announce } from "../components/announcer.js";
import { useDoing, useRead } from "../components/doing.js";
import { ForeignText } from "../components/foreign-text.js";
import { Empty, FailureNotice, Loading } from "../components/notices.js";
import { Push } from "../components/push.js";
import { marked } from "../connection.js";
import { href } from "../router.js";
import { fullTime, shortTime, zone } from "../text.js";
import { html, useState } from "../view.js";

/** @typedef {import("../api.js").Message} Message */

const EVERY_MS = 10000;
const LISTED = 100;
const SNOOZES = [
  { due: "in 1 hour", title: "In an hour" },
  { due: "tomorrow", title: "Tomorrow" },
];

/** @param {import("../pages.js").PageProps} props */
export default function Notices({ user, me }) {
  const { found, failed, read } = useRead(() => call(user, "ListNotices", { limit: LISTED }), [user], EVERY_MS);
  const { busy, failure, run } = useDoing();
  const notices = /** @type {Message[]} */ (found?.notices || []);
  const mark = (/** @type {Message} */ which) =>
    run(async () => {
      await call(user, "MarkNotices", which);
      read();
      marked.set(marked.value + 1);
    });
  const remind = (/** @type {Message} */ notice, /** @type {string} */ due, /** @type {string} */ told) =>
    run(async () => {
      await call(user, "SetReminder", { note_id: notice.note_id, due, channel: "web", time_zone: zone() });
      announce(told);
      await mark({ read: [notice.number] });
    });
  return html`<div class="page">
    <h1>Notices</h1>
    <${Push} user=${user} />
    ${me.scopes.includes("memory") && html`<${Remind} user=${user} />`}
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${read} />`}
    ${!found && !failed && html`<${Loading} />`}
    ${failure}
    ${found && !notices.length && html`<${Empty}>Nothing has happened that you were not there to see.<//>`}
    ${Number(found?.unread) > 0 &&
    html`<p class="actions"><button type="button" disabled=${busy}
      onClick=${() => mark({ read_up_to: notices[0].number })}>Mark all as read</button></p>`}
    <ul aria-label="Notices, newest first" class="plain-list">
      ${notices.map(
        (notice) => html`<li key=${notice.number} class="card">
          <p><span class=${notice.read_at ? "badge" : "badge warn"}>${notice.kind}${!notice.read_at && html`<span class="unseen">, unread</span>`}</span>${" "}
            <span class="muted" title=${fullTime(notice.created_at)}>${shortTime(notice.created_at)}</span></p>
          <p class="plain-text"><${ForeignText} text=${notice.text} /></p>
          <p class="actions">
            ${!notice.read_at &&
            html`<button type="button" disabled=${busy} onClick=${() => mark({ read: [notice.number] })}>Mark as read</button>`}
            ${notice.note_id && !notice.read_at && me.scopes.includes("memory") &&
            html`<button type="button" disabled=${busy} onClick=${() => remind(notice, "", "The reminder is done.")}>Done</button>
              ${SNOOZES.map(
                ({ due, title }) => html`<button key=${due} type="button" disabled=${busy}
                  onClick=${() => remind(notice, due, "You are reminded again.")}>${title}</button>`,
              )}`}
            ${notice.kind === "schedule" && html`<a href=${href("schedules", notice.key.split(":")[1])}>The schedule</a>`}
            ${notice.session_id && html`<a href=${href("chat", notice.session_id)}>The conversation</a>`}
          </p>
        </li>`,
      )}
    </ul>
  </div>`;
}

/** @param {{user: string}} props */
function Remind({ user }) {
  const [text, setText] = useState("");
  const [due, setDue] = useState("");
  const { busy, failure, run } = useDoing();
  const set = (/** @type {Event} */ event) => {
    event.preventDefault();
    return run(async () => {
      const note = await call(user, "SetReminder", { text, due, channel: "web", time_zone: zone() });
      announce(`You are reminded ${fullTime(note.due_at)}.`);
      setText("");
      setDue("");
    });
  };
  return html`<form class="fields" onSubmit=${set}>
    <label>Remind me of <input value=${text} required onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
    <label>When <input value=${due} required placeholder="friday 9:00" onInput=${(/** @type {any} */ event) => setDue(event.target.value)} /></label>
    <p class="actions"><button type="submit" disabled=${busy}>Set a reminder</button></p>
    ${failure}
  </form>`;
}
