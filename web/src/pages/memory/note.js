/** One note: what it says, where it comes from, its history, and what can be done with it. */

import { call } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { ForeignText } from "../../components/foreign-text.js";
import { Act } from "../../components/doing.js";
import { FailureNotice, Loading } from "../../components/notices.js";
import { go, href } from "../../router.js";
import { count, fullTime } from "../../text.js";
import { html, useCallback, useEffect, useState } from "../../view.js";
import { Editor } from "./editor.js";
import { Forget } from "./forget.js";
import { History } from "./history.js";
import { Marks, Origin, Tags } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {import("../../api.js").Failure} Failure */

/**
 * @param {{user: string, noteId: string, onChanged: (note: Message) => void, onGone: () => void,
 *   onTag: (tag: string) => void}} props
 */
export function NoteView({ user, noteId, onChanged, onGone, onTag }) {
  const [note, setNote] = useState(/** @type {Message | null} */ (null));
  const [failed, setFailed] = useState(/** @type {Failure | null} */ (null));
  const [doing, setDoing] = useState("");

  const read = useCallback(() => {
    setFailed(null);
    call(user, "GetNote", { note_id: noteId }).then(setNote, setFailed);
  }, [user, noteId]);
  useEffect(read, [read]);

  const changed = (/** @type {Message} */ now) => {
    setNote(now);
    setDoing("");
    onChanged(now);
  };

  const back = html`<p class="back"><a href=${href("memory")}>← All notes</a></p>`;
  if (failed && !note)
    return html`${back}<${FailureNotice} failure=${failed} onRetry=${read} />`;
  if (!note) return html`${back}<${Loading} />`;
  const isFirst = Number(note.version) === 1 && !note.superseded;
  return html`${back}
    <article aria-label="The note">
      <p><${Marks} note=${note} /></p>
      <div class="note-text whole"><${ForeignText} text=${note.text || ""} /></div>
      <p><${Tags} tags=${note.tags} onTag=${onTag} /></p>
      <p class="muted">Written <${Origin} origin=${note.origin} at=${note.updated_at} /></p>
      ${note.superseded &&
      html`<p class="notice">No longer in use: <${ForeignText} text=${note.superseded_reason || "no reason was given"} />.
        ${note.superseded_by && html` <a href=${href("memory", note.superseded_by)}>What replaced it</a>`}</p>`}
      ${note.origin?.material &&
      html`<p class="notice">Unconfirmed: the agent read this somewhere, and nobody has said that it is
        right. It does not take it for your word.</p>`}
      ${failed && html`<${FailureNotice} failure=${failed} onClose=${() => setFailed(null)} />`}
      <p class="actions">
        <button type="button" class="primary" onClick=${() => setDoing("edit")}>Edit</button>
        ${note.origin?.material &&
        html`<button type="button" onClick=${() => setDoing("vouch")}>Confirm</button>`}
        <button type="button" disabled=${isFirst} onClick=${() => setDoing("undo")}
          title=${isFirst ? "It says what it said first: forget it to undo the save" : ""}>
          ${note.superseded ? "Bring it back" : "Undo the last change"}</button>
        <button type="button" class="danger" onClick=${() => setDoing("forget")}>Forget</button>
      </p>
      <${Facts} note=${note} />
      <h2>History</h2>
      <${History} user=${user} noteId=${noteId} version=${`${note.version} ${note.superseded}`} />
    </article>
    ${doing === "edit" &&
    html`<${Editor} user=${user} note=${note} title="Edit the note" onSaved=${changed}
      onClose=${() => setDoing("")} />`}
    ${doing === "forget" &&
    html`<${Forget} user=${user} note=${note} onDone=${onGone} onClose=${() => setDoing("")} />`}
    ${doing === "undo" &&
    html`<${Undo} user=${user} note=${note} onDone=${changed} onClose=${() => setDoing("")} />`}
    ${doing === "vouch" &&
    html`<${Vouch} user=${user} note=${note} onDone=${changed} onClose=${() => setDoing("")} />`}`;
}

/** @param {{note: Message}} props */
const Facts = ({ note }) =>
  html`<dl class="facts">
    <div><dt>Id</dt><dd><code>${note.note_id}</code></dd></div>
    <div><dt>Version</dt><dd>${note.version}, since ${fullTime(note.updated_at)}; first saved ${fullTime(note.created_at)}</dd></div>
    <div><dt>Found by</dt><dd>${note.embedded ? "words and meaning" : "words only, so far"}</dd></div>
    <div><dt>Looked up</dt><dd>${
      Number(note.access_count || 0)
        ? `${count(note.access_count)} times, last ${fullTime(note.accessed_at)}`
        : "not yet"
    }</dd></div>
    ${note.type && html`<div><dt>Type</dt><dd>${note.type}${note.confidence < 1 ? `, ${Math.round(note.confidence * 100)} % certain` : ""}</dd></div>`}
    ${note.rationale && html`<div><dt>Why</dt><dd><${ForeignText} text=${note.rationale} /></dd></div>`}
    ${note.scope_session &&
    html`<div><dt>Seen in</dt><dd>only <a href=${href("chat", note.scope_session)}>one conversation</a></dd></div>`}
  </dl>`;

/**
 * @param {{user: string, note: Message, onDone: (note: Message) => void, onClose: () => void}} props
 */
function Undo({ user, note, onDone, onClose }) {
  const undo = async () => {
    const request = { note_id: note.note_id, expected_version: note.version };
    const reply = await call(user, "UndoChange", request);
    announce("The last change is undone.");
    onDone(reply.note);
  };
  return html`<${Act} title=${note.superseded ? "Bring this note back?" : "Undo the last change?"}
    action=${note.superseded ? "Bring it back" : "Undo"} act=${undo} onClose=${onClose}>
    ${note.superseded
      ? html`<p>The note is in use again, as it was before it was superseded.</p>`
      : html`<p>The note says again what it said before this change, as a new version. The history keeps
          both, and undoing once more goes further back.</p>`}
  <//>`;
}

/**
 * @param {{user: string, note: Message, onDone: (note: Message) => void, onClose: () => void}} props
 */
export function Vouch({ user, note, onDone, onClose }) {
  const vouch = async () => {
    const { note_id, text, version } = note;
    onDone(await call(user, "EditNote", { note_id, text, expected_version: version }));
    announce("The note counts as your word now.");
  };
  return html`<${Act} title="Is this note right?" action="It is right" act=${vouch} onClose=${onClose}>
    <blockquote class="note-text short"><${ForeignText} text=${note.text || ""} /></blockquote>
    <p>The same text is saved as your word, in a new version. From then on the agent takes it for what
      you said. Where it came from stays in the history.</p>
  <//>`;
}

/** Show a note, and say so to the address bar. @param {string} noteId */
export const open = (noteId) => go("memory", noteId);
