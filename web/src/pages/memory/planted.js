/** What the agent kept of pages, files and tools, by where it comes from. */

import { call } from "../../api.js";
import { ForeignText } from "../../components/foreign-text.js";
import { Empty, FailureNotice, Loading } from "../../components/notices.js";
import { href } from "../../router.js";
import { html, useCallback, useEffect, useState } from "../../view.js";
import { Forget } from "./forget.js";
import { Vouch } from "./note.js";
import { Origin } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {import("../../api.js").Failure} Failure */

const PAGE = 100;

/** @param {{user: string, onCount: () => void}} props `onCount`: notes changed or went */
export function Planted({ user, onCount }) {
  const [notes, setNotes] = useState(/** @type {Message[] | null} */ (null));
  const [cursor, setCursor] = useState("");
  const [failed, setFailed] = useState(/** @type {Failure | null} */ (null));
  const [doing, setDoing] = useState(/** @type {{vouch?: Message, forget?: Message}} */ ({}));

  const fetchPage = useCallback(
    async (/** @type {Message[]} */ before, /** @type {string} */ from) => {
      setFailed(null);
      try {
        const request = { material_only: true, limit: PAGE, cursor: from };
        const page = await call(user, "ListNotes", request);
        setNotes([...before, ...(page.notes || [])]);
        setCursor(page.next_cursor || "");
      } catch (error) {
        setFailed(/** @type {Failure} */ (error));
      }
    },
    [user],
  );
  useEffect(() => void fetchPage([], ""), [fetchPage]);

  const done = (/** @type {Message} */ note) => () => {
    setDoing({});
    setNotes((notes || []).filter((each) => each.note_id !== note.note_id));
    onCount();
  };
  if (failed) return html`<${FailureNotice} failure=${failed} onRetry=${() => fetchPage(notes || [], cursor)} />`;
  if (!notes) return html`<${Loading} />`;
  return html`<div class="page">
    <p>The agent made these notes from pages, files and tools that it read. Nobody has said that they are
      right, so it does not take them for your word. Confirm what is right, and forget the rest.</p>
    ${!notes.length && html`<${Empty}>No note is unconfirmed.<//>`}
    ${byLink(notes).map(
      ([link, from]) => html`<section class="pair" key=${link}>
        <h2>${link ? html`<${ForeignText} text=${link} />` : "From an unknown source"}</h2>
        ${from.map(
          (note) => html`<div class="side" key=${note.note_id}>
            <div class="note-text"><${ForeignText} text=${note.text || ""} /></div>
            <p class="muted"><${Origin} origin=${{ ...note.origin, link: "" }} at=${note.updated_at} />${" "}
              · <a href=${href("memory", note.note_id)}>open</a></p>
            <p class="actions">
              <button type="button" onClick=${() => setDoing({ vouch: note })}>Confirm …</button>
              <button type="button" class="danger" onClick=${() => setDoing({ forget: note })}>Forget …</button>
            </p>
          </div>`,
        )}
      </section>`,
    )}
    ${cursor &&
    html`<p class="actions"><button type="button" onClick=${() => fetchPage(notes, cursor)}>Show more</button></p>`}
    ${doing.vouch &&
    html`<${Vouch} user=${user} note=${doing.vouch} onDone=${done(doing.vouch)} onClose=${() => setDoing({})} />`}
    ${doing.forget &&
    html`<${Forget} user=${user} note=${doing.forget} onDone=${done(doing.forget)} onClose=${() => setDoing({})} />`}
  </div>`;
}

/** @param {Message[]} notes @returns {[string, Message[]][]} */
function byLink(notes) {
  /** @type {Map<string, Message[]>} */
  const groups = new Map();
  for (const note of notes) {
    const link = note.origin?.link || "";
    groups.set(link, [...(groups.get(link) || []), note]);
  }
  return [...groups];
}
