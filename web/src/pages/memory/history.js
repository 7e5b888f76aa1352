/** What was written, superseded and taken back: of one note, or of all, newest first. */

import { call } from "../../api.js";
import { ForeignText } from "../../components/foreign-text.js";
import { Empty, FailureNotice, Loading } from "../../components/notices.js";
import { href } from "../../router.js";
import { html, useCallback, useEffect, useState } from "../../view.js";
import { Difference, Origin } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {import("../../api.js").Failure} Failure */

const PAGE = 30;

/**
 * @param {{user: string, noteId?: string, version?: string}} props `noteId`: none for all notes;
 *   `version`: of the note, so that a change of it is seen
 */
export function History({ user, noteId = "", version = "" }) {
  const [changes, setChanges] = useState(/** @type {Message[] | null} */ (null));
  const [cursor, setCursor] = useState("");
  const [failed, setFailed] = useState(/** @type {Failure | null} */ (null));

  const fetchPage = useCallback(
    async (/** @type {Message[]} */ before, /** @type {string} */ from) => {
      setFailed(null);
      try {
        const request = { note_id: noteId, limit: PAGE, cursor: from };
        const page = await call(user, "ListChanges", request);
        setChanges([...before, ...(page.changes || [])]);
        setCursor(page.next_cursor || "");
      } catch (error) {
        setFailed(/** @type {Failure} */ (error));
      }
    },
    [user, noteId],
  );
  useEffect(() => void fetchPage([], ""), [fetchPage, version]);

  if (failed) return html`<${FailureNotice} failure=${failed} onRetry=${() => fetchPage(changes || [], cursor)} />`;
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
    ${cursor &&
    html`<p class="actions"><button type="button" onClick=${() => fetchPage(changes, cursor)}>Show older changes</button></p>`}`;
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
