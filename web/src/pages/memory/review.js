/** Notes to tidy up: those that say nearly the same or contradict each other, and old ones. */

import { call } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { ForeignText } from "../../components/foreign-text.js";
import { useRead } from "../../components/doing.js";
import { Empty, FailureNotice, Loading } from "../../components/notices.js";
import { href } from "../../router.js";
import { html, useState } from "../../view.js";
import { Editor } from "./editor.js";
import { Forget } from "./forget.js";
import { Difference, Marks, Origin } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {{merge?: Message, forget?: Message, pair?: Message}} Doing */

/** @param {{user: string, onCount: () => void}} props `onCount`: notes went */
export function Review({ user, onCount }) {
  const { found, set: setFound, failed, read } = useRead(() => call(user, "ReviewMemory", {}), [user]);
  const [doing, setDoing] = useState(/** @type {Doing} */ ({}));

  if (failed) return html`<${FailureNotice} failure=${failed} onRetry=${read} />`;
  if (!found) return html`<${Loading} what="Comparing all notes" />`;
  const keep = (/** @type {Message} */ pair) => {
    setFound({ ...found, near: found.near.filter((/** @type {Message} */ each) => each !== pair) });
    announce("Both notes stay as they are.");
  };
  const gone = () => {
    setDoing({});
    onCount();
    read();
  };
  const merged = (/** @type {Message} */ pair) => setDoing({ forget: pair.newer });
  return html`<div class="page">
    ${(found.warnings || []).map((/** @type {string} */ each) => html`<p class="notice">${each}</p>`)}
    <h2>Nearly the same</h2>
    ${!(found.near || []).length && html`<${Empty}>No two notes say nearly the same.<//>`}
    ${(found.near || []).map(
      (/** @type {Message} */ pair) => html`<section class="pair" key=${`${pair.older.note_id} ${pair.newer.note_id}`}>
        <h3>
          ${pair.may_contradict && html`<span class="badge warn">may contradict each other</span> `}
          ${pair.similarity ? `${Math.round(pair.similarity * 100)} % alike in meaning` : "Alike in words"}
        </h3>
        <div class="sides">
          <${Side} title="Older" note=${pair.older} />
          <${Side} title="Newer" note=${pair.newer} />
        </div>
        <details><summary>What differs</summary>
          <${Difference} before=${pair.older.text || ""} after=${pair.newer.text || ""} /></details>
        <p class="actions">
          <button type="button" onClick=${() => setDoing({ merge: pair })}>Merge …</button>
          <button type="button" onClick=${() => setDoing({ forget: pair.older })}>Forget the older …</button>
          <button type="button" onClick=${() => setDoing({ forget: pair.newer })}>Forget the newer …</button>
          <button type="button" onClick=${() => keep(pair)}>Keep both</button>
        </p>
      </section>`,
    )}
    <h2>Not needed for long</h2>
    ${!(found.stale || []).length && html`<${Empty}>Every note was written or recalled in the last 180 days.<//>`}
    ${(found.stale || []).map(
      (/** @type {Message} */ note) => html`<section class="pair" key=${note.note_id}>
        <${Side} title="" note=${note} />
        <p class="actions">
          <button type="button" onClick=${() => setDoing({ forget: note })}>Forget …</button>
        </p>
      </section>`,
    )}
    ${doing.merge &&
    html`<${Editor} user=${user} note=${doing.merge.older} title="Merge into the older note"
      text=${`${doing.merge.older.text}\n\n${doing.merge.newer.text}`}
      onSaved=${() => merged(/** @type {Message} */ (doing.merge))} onClose=${() => setDoing({})} />`}
    ${doing.forget &&
    html`<${Forget} key=${doing.forget.note_id} user=${user} note=${doing.forget} onDone=${gone}
      onClose=${() => {
        setDoing({});
        read();
      }} />`}
  </div>`;
}

/** @param {{title: string, note: Message}} props */
const Side = ({ title, note }) =>
  html`<div class="side">
    <p class="muted">${title && `${title}: `}<${Origin} origin=${note.origin} at=${note.updated_at} />${" "}
      · <a href=${href("memory", note.note_id)}>open</a></p>
    <div class="note-text"><${ForeignText} text=${note.text || ""} /></div>
    <p><${Marks} note=${note} /></p>
  </div>`;
