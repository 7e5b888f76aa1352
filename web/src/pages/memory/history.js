/** What was written, superseded and taken back: of one note, or of all, newest first. */

import { ForeignText } from "../../components/foreign-text.js";
import { usePages } from "../../components/doing.js";
import { Empty, FailureNotice, Loading } from "../../components/notices.js";
import { href } from "../../router.js";
import { html } from "../../view.js";
import { Difference, Origin } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */

const PAGE = 30;

/**
 * @param {{user: string, noteId?: string, version?: string}} props `noteId`: none for all notes;
 *   `version`: of the note, so that a change of it is seen
 */
export function History({ user, noteId = "", version = "" }) {
  const { items: changes, failed, more, next } = usePages(user, "ListChanges", { note_id: noteId, limit: PAGE }, "changes", [noteId, version]);

  if (failed) return html`<${FailureNotice} failure=${failed} onRetry=${next} />`;
  if (!changes) return html`<${Loading} what="Reading the history" />`;
  if (!changes.length) return html`<${Empty}>Nothing was written yet.<//>`;
  return html`<ol class="history wide" aria-label="Changes, newest first">
      ${changes.map((change, index) => {
        const before = noteId ? earlier(changes, index) : null;
        return html`<li key=${`${change.note_id} ${change.version} ${change.change}`}>
          <p>
            <strong>Version ${change.version}</strong>${" "}
            <span class="muted"><${Origin} origin=${change.origin} at=${change.at} change=${change.change} /></span>
            ${!noteId && html` · <a href=${href("memory", change.note_id)}>open the note</a>`}
            ${change.origin?.material && html` <span class="badge warn">unconfirmed</span>`}
          </p>
          ${before
            ? html`<${Difference} before=${before.text || ""} after=${change.text || ""} />`
            : html`<div class="note-text"><${ForeignText} text=${change.text || ""} /></div>`}
        </li>`;
      })}
    </ol>
    ${more &&
    html`<p class="actions"><button type="button" onClick=${next}>Show older changes</button></p>`}`;
}

/**
 * @param {Message[]} changes of one note, newest first
 * @param {number} index
 * @returns {Message | undefined} the version that this one followed; none for a supersession
 */
const earlier = (changes, index) =>
  changes[index].change === "supersede"
    ? undefined
    : changes.slice(index + 1).find((each) => each.change !== "supersede");
