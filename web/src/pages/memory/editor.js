/** Writing a note: a new one, a new version, or two made one. */

import { call } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { Dialog } from "../../components/dialog.js";
import { FailureNotice } from "../../components/notices.js";
import { html, useState } from "../../view.js";
import { Difference, Origin } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {import("../../api.js").Failure} Failure */

/** @param {string} text @returns {string[]} */
const tagsOf = (text) => [...new Set(text.split(",").map((each) => each.trim()))].filter(Boolean);

/**
 * @param {{user: string, note?: Message | null, text?: string, title: string,
 *   onSaved: (note: Message, told: string[]) => void | Promise<void>, onClose: () => void}} props
 *   `note`: what is edited, none for a new note; `text`: what the field says first, if not its text;
 *   `onSaved`: told the note, and what the memory said of it
 */
export function Editor({ user, note = null, text: proposed, title, onSaved, onClose }) {
  const [text, setText] = useState(proposed ?? note?.text ?? "");
  const [tags, setTags] = useState((note?.tags || []).join(", "));
  const [link, setLink] = useState("");
  const [base, setBase] = useState(note);
  const [newer, setNewer] = useState(/** @type {Message | null} */ (null));
  const [failed, setFailed] = useState(/** @type {Failure | null} */ (null));
  const [busy, setBusy] = useState(false);
  const unsaved = text !== (note?.text ?? "") || tags !== (note?.tags || []).join(", ");
  const [leaving, setLeaving] = useState(false);

  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setFailed(null);
    try {
      if (base) {
        const request = { note_id: base.note_id, text, tags: tagsOf(tags), replace_tags: true };
        const saved = await call(user, "EditNote", { ...request, expected_version: base.version });
        announce("The note is saved.");
        await onSaved(saved, []);
      } else {
        const reply = await call(user, "SaveNote", { text, tags: tagsOf(tags), link });
        announce(reply.message || "The note is saved.");
        await onSaved({ note_id: reply.note_id }, reply.warnings || []);
      }
    } catch (error) {
      const failure = /** @type {Failure} */ (error);
      setFailed(failure);
      if (base && failure.code === "conflict")
        setNewer(await call(user, "GetNote", { note_id: base.note_id }).catch(() => null));
    }
    setBusy(false);
  };

  const close = () => (unsaved && !leaving ? setLeaving(true) : onClose());
  const settle = (/** @type {string} */ chosen) => {
    setText(chosen);
    setBase(newer);
    setNewer(null);
    setFailed(null);
  };

  return html`<${Dialog} title=${title} onClose=${close} wide=${true}>
    <form onSubmit=${save} class="fields">
      ${failed && !newer && html`<${FailureNotice} failure=${failed} />`}
      ${newer &&
      html`<div class="notice" role="alert">
        <p><strong>Somebody changed this note while you wrote.</strong> Nothing was saved, and what you
          wrote is still below. Version ${newer.version}, <${Origin} origin=${newer.origin} at=${newer.updated_at} />.
          From it to yours:</p>
        <${Difference} before=${newer.text || ""} after=${text} />
        <p class="actions">
          <button type="button" onClick=${() => settle(text)}>Keep mine, as the version after it</button>
          <button type="button" onClick=${() => settle(`${newer.text}\n\n${text}`)}>Put theirs above mine</button>
          <button type="button" onClick=${() => settle(newer.text || "")}>Take theirs</button>
        </p>
      </div>`}
      <label>Text
        <textarea name="text" rows="8" required value=${text} autofocus
          onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea></label>
      <label>Tags, with commas between them
        <input name="tags" value=${tags} autocomplete="off"
          onInput=${(/** @type {any} */ event) => setTags(event.target.value)} /></label>
      ${!note &&
      html`<label>Where it comes from, if from somewhere: an address, a path
        <input name="link" value=${link} autocomplete="off"
          onInput=${(/** @type {any} */ event) => setLink(event.target.value)} /></label>`}
      <p class="muted">
        ${note
          ? "Saving makes a new version; the old one stays in the history and can be brought back."
          : "What you save here counts as your word."}
      </p>
      ${leaving &&
      html`<p class="notice" role="alert">Your text is not saved. Close once more to throw it away.</p>`}
      <p class="actions">
        <button type="button" onClick=${close}>${leaving ? "Throw away" : "Cancel"}</button>
        <button type="submit" class="primary" disabled=${busy || !text.trim() || Boolean(newer)}>Save</button>
      </p>
    </form>
  <//>`;
}
