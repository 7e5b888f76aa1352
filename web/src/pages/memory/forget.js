/** Forgetting a note: first what will be erased, then the deed. */

import { call } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { Confirm } from "../../components/dialog.js";
import { FailureNotice, Loading } from "../../components/notices.js";
import { href } from "../../router.js";
import { count } from "../../text.js";
import { html, useEffect, useState } from "../../view.js";
import { Words } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {import("../../api.js").Failure} Failure */

/**
 * @param {number | string | undefined} value
 * @param {string} one
 * @param {string} many
 */
const many = (value, one, many) => `${count(value)} ${Number(value || 0) === 1 ? one : many}`;

/**
 * @param {{user: string, note: Message, onDone: () => void, onClose: () => void}} props
 *   `onDone`: the note is gone
 */
export function Forget({ user, note, onDone, onClose }) {
  const [erasure, setErasure] = useState(/** @type {Message | null} */ (null));
  const [failed, setFailed] = useState(/** @type {Failure | null} */ (null));
  const [busy, setBusy] = useState(false);

  const rehearse = () => {
    setFailed(null);
    call(user, "DeleteNote", { note_id: note.note_id, dry_run: true }).then(setErasure, setFailed);
  };
  useEffect(rehearse, []);

  const forget = async () => {
    setBusy(true);
    setFailed(null);
    try {
      await call(user, "DeleteNote", { note_id: note.note_id, expected_version: erasure?.version });
      announce("The note is forgotten.");
      onDone();
    } catch (error) {
      setFailed(/** @type {Failure} */ (error));
      setErasure(null);
    }
    setBusy(false);
  };

  return html`<${Confirm} title="Forget this note?" action="Forget for good" danger=${true}
    busy=${busy || !erasure} onConfirm=${forget} onClose=${onClose}>
    <blockquote class="note-text short"><${Words} text=${note.text || ""} /></blockquote>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${rehearse} />`}
    ${!erasure && !failed && html`<${Loading} what="Looking up what will be erased" />`}
    ${erasure &&
    html`<p>This cannot be undone. Every byte of these goes from the memory's files:</p>
      <ul>
        <li>${many(erasure.versions, "version", "versions")} of the text</li>
        <li>${many(erasure.passages, "passage", "passages")} of the search index, with what was made of it</li>
        ${Number(erasure.replaced || 0) > 0 &&
        html`<li>the link of ${many(erasure.replaced, "superseded note", "superseded notes")} to what replaced it</li>`}
      </ul>
      ${Number(erasure.mentions || 0) > 0
        ? html`<p>
            This stays: ${many(erasure.mentions, "message says", "messages say")} it, or an earlier version of it, word for word, in${" "}
            ${(erasure.mentioned_in || []).map(
              (/** @type {string} */ session, /** @type {number} */ index) =>
                html`${index ? ", " : ""}<a href=${href("chat", session)}>conversation ${index + 1}</a>`,
            )}. To erase that, too, forget the conversation.
          </p>`
        : html`<p>No message in a conversation says it, or an earlier version of it, word for word.</p>`}
      <p class="muted">Backups and exports made before keep it. That a note with this id was there stays in receipts.</p>`}
  <//>`;
}
