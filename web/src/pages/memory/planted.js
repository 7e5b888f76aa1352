/** What the agent kept of pages, files and tools, by where it comes from. */

import { ForeignText } from "../../components/foreign-text.js";
import { usePages } from "../../components/doing.js";
import { Empty, FailureNotice, Loading } from "../../components/notices.js";
import { href } from "../../router.js";
import { html, useState } from "../../view.js";
import { Forget } from "./forget.js";
import { Vouch } from "./note.js";
import { Origin } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */

const PAGE = 100;

/** @param {{user: string, onCount: () => void}} props `onCount`: notes changed or went */
export function Planted({ user, onCount }) {
  const { items: notes, set: setNotes, failed, more, next } = usePages(user, "ListNotes", { material_only: true, limit: PAGE }, "notes");
  const [doing, setDoing] = useState(/** @type {{vouch?: Message, forget?: Message}} */ ({}));

  const done = (/** @type {Message} */ note) => () => {
    setDoing({});
    setNotes((notes || []).filter((each) => each.note_id !== note.note_id));
    onCount();
  };
  if (failed) return html`<${FailureNotice} failure=${failed} onRetry=${next} />`;
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
    ${more &&
    html`<p class="actions"><button type="button" onClick=${next}>Show more</button></p>`}
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
