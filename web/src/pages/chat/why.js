/** What the last answer was made of: the notes in its request, and what its parts took. */

import { call } from "../../api.js";
import { Dialog } from "../../components/dialog.js";
import { useDoing } from "../../components/doing.js";
import { FailureNotice, Loading } from "../../components/notices.js";
import { Table } from "../../components/table.js";
import { href } from "../../router.js";
import { count } from "../../text.js";
import { html, useEffect, useState } from "../../view.js";
import { Forget } from "../memory/forget.js";
import { Words } from "../memory/text.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {{used: Message, note: Message | null, receipt: string}} Used `note`: null where it cannot be read */

const HOW = {
  keyword: "found by its words",
  semantic: "found by meaning",
  both: "found by words and meaning",
  weak: "the closest match, though not a close one",
};

const PARTS = {
  rules: "Rules",
  tools: "Tools",
  memory: "Memory",
  history: "History",
  turn: "This turn",
};

/** @param {{user: string, session: string, turn: string, onClose: () => void}} props */
export function Why({ user, session, turn, onClose }) {
  const [found, setFound] = useState(/** @type {Message | null} */ (null));
  const [notes, setNotes] = useState(/** @type {Used[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [forgetting, setForgetting] = useState(/** @type {Used | null} */ (null));
  useEffect(() => {
    const read = async () => {
      const request = { session_id: session, turn_id: turn };
      const context = await call(user, "GetTurnContext", request);
      const used = (context.notes || []).map(async (/** @type {Message} */ each) => {
        const note = await call(user, "GetNote", { note_id: each.note_id }).catch(() => null);
        return { used: each, note, receipt: "" };
      });
      setNotes(await Promise.all(used));
      setFound(context);
    };
    read().catch(setProblem);
  }, [user, session, turn]);
  const changed = (/** @type {Used} */ of, /** @type {Partial<Used>} */ what) =>
    setNotes((all) => all.map((each) => (each.used === of.used ? { ...each, ...what } : each)));

  if (forgetting?.note)
    return html`<${Forget} user=${user} note=${forgetting.note} onClose=${() => setForgetting(null)}
      onDone=${() => {
        changed(forgetting, { note: null, receipt: "✓ Forgot this note, by you" });
        setForgetting(null);
      }} />`;
  return html`<${Dialog} title="Why this answer" wide onClose=${onClose}>
    ${problem && html`<${FailureNotice} failure=${problem} />`}
    ${!found && !problem && html`<${Loading} />`}
    ${found &&
    html`<h3>Notes that the model saw</h3>
      ${!notes.length && html`<p class="empty">The model saw no note for this answer.</p>`}
      <ol class="plain-list">
        ${notes.map(
          (each) => html`<li key=${each.used.note_id}><${Note} user=${user} of=${each}
            onChanged=${(/** @type {Partial<Used>} */ what) => changed(each, what)}
            onForget=${() => setForgetting(each)} /></li>`,
        )}
      </ol>
      <${Size} found=${found} />`}
  <//>`;
}

/**
 * @param {{user: string, of: Used, onChanged: (what: Partial<Used>) => void, onForget: () => void}} props
 */
function Note({ user, of, onChanged, onForget }) {
  const [right, setRight] = useState(/** @type {string | null} */ (null));
  const { failure, run } = useDoing();
  const { used, note, receipt } = of;
  const how = HOW[/** @type {keyof typeof HOW} */ (used.matched_by)];
  const by = used.tool ? `${how || "shown"} by the tool ${used.tool}` : how || "working memory, in every request";
  const correct = (/** @type {Event} */ event) => {
    event.preventDefault();
    void run(async () => {
      const request = { note_id: used.note_id, text: right, expected_version: note?.version, channel: "web" };
      const saved = await call(user, "EditNote", request);
      onChanged({ note: saved, receipt: `✓ Updated this note, by you (version ${saved.version})` });
      setRight(null);
    });
  };
  return html`
    <p>${note ? html`<${Words} text=${note.text || ""} />` : html`<span class="muted">(forgotten, or not for you to read)</span>`}</p>
    <p class="muted">
      ${note ? html`<a href=${href("memory", used.note_id)}>${used.note_id.slice(0, 13)}</a>` : used.note_id.slice(0, 13)}, ${by}
      ${note && right === null &&
      html`<button type="button" class="plain" onClick=${() => setRight(note.text || "")}>This is wrong</button>`}
    </p>
    ${receipt && html`<p class="good" role="status">${receipt}</p>`}
    ${failure}
    ${right !== null &&
    html`<form onSubmit=${correct}>
      <p>
        <label for=${`right-${used.note_id}`}>What is right</label>
        <textarea id=${`right-${used.note_id}`} rows="3" value=${right}
          onInput=${(/** @type {any} */ event) => setRight(event.target.value)}></textarea>
      </p>
      <p class="actions">
        <button type="button" class="danger" onClick=${onForget}>Forget it …</button>
        <button type="button" onClick=${() => setRight(null)}>Cancel</button>
        <button type="submit" class="primary" disabled=${!right.trim() || right === note?.text}>Save</button>
      </p>
    </form>`}`;
}

/** @param {{found: Message}} props what the parts of the request took of the model's window */
function Size({ found }) {
  const taken = Object.entries(PARTS).map(([part, name]) => ({ name, tokens: Number(found[part] || 0) }));
  const whole = taken.reduce((sum, each) => sum + each.tokens, 0);
  const window = Number(found.window || 0);
  const known = Number(found.window_known || 0);
  const set = Number(found.window_set || 0);
  const counted = Number(found.counted || 0);
  return html`<h3>How much of the model’s context window it took</h3>
    <${Table} label="Parts of the request" columns=${[{ title: "Part" }, { title: "Tokens (estimate)", number: true }]}
      rows=${[...taken, { name: "Free", tokens: Math.max(window - whole, 0) }].map(({ name, tokens }) => ({
        key: name,
        cells: [name, count(tokens)],
      }))} />
    <p>
      <meter min="0" max=${window || 1} value=${whole} aria-label="Part of the window that is taken"></meter>${" "}
      ${count(whole)} of ${count(window)} tokens${counted ? `; the provider counted ${count(counted)}` : ""}.
    </p>
    ${counted > 0 && whole > 3000 && counted * 2 < whole &&
    html`<p class="bad">The model server seems to have cut off a part of it. Load the model with a larger context
      (for an Ollama, choose Ollama as the provider in the settings), or set context_window to what the server can take.</p>`}
    ${window < set &&
    html`<p class="muted">The model can take less than the setting context_window (${count(set)}). Set it to ${count(window)}.</p>`}
    ${window >= set && known > 0 && known !== window &&
    html`<p class="muted">The model itself can take ${count(known)}; the setting context_window limits it to ${count(set)}.</p>`}`;
}
