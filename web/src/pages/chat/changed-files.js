/** What a turn changed in files of projects: the receipt, the difference, and taking it back. */

import { call } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { Dialog } from "../../components/dialog.js";
import { Act, useRead } from "../../components/doing.js";
import { ForeignText } from "../../components/foreign-text.js";
import { FailureNotice, Loading } from "../../components/notices.js";
import { count } from "../../text.js";
import { html, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {{user: string, session: string, turn: string}} Which */

const NAMES = 3;
const LINES = 2000;

/** @param {Which & {files: Message}} props `files`: a FileChanges */
export function ChangedFiles({ files, ...which }) {
  const [shown, setShown] = useState("");
  /** @type {Message[]} */
  const changes = files.changes || [];
  const close = () => setShown("");
  if (!files.files)
    return files.uncounted && html`<p class="muted">Changes to files are not counted: <${ForeignText} text=${files.uncounted} /></p>`;
  const names = changes.slice(0, NAMES).map((each) => short(each.path));
  if (files.files > names.length) names.push("…");
  return html`<ul class="receipts" aria-label="What this turn did to files">
      <li class="good"><span aria-hidden="true">✓</span> Changed ${count(files.files)} file${files.files === 1 ? "" : "s"},
        +${count(files.added)} −${count(files.removed)}: <${ForeignText} text=${names.join(", ")} />
        ${files.uncounted && html`<span class="muted"> (not all are counted: <${ForeignText} text=${files.uncounted} />)</span>`}
        ${" "}<button type="button" class="plain" onClick=${() => setShown("difference")}>Show changes</button>
        <button type="button" class="plain" onClick=${() => setShown("undo")}>Take back …</button></li>
    </ul>
    ${shown === "difference" && html`<${Changes} ...${which} changes=${changes} ignored=${files.ignored} onClose=${close} />`}
    ${shown === "undo" && html`<${TakeBack} ...${which} onClose=${close} />`}`;
}

/** @param {Which & {changes: Message[], ignored: boolean, onClose: () => void}} props */
function Changes({ user, session, turn, changes, ignored, onClose }) {
  const [path, setPath] = useState("");
  const asked = { session_id: session, turn_id: turn, path };
  const { found, failed, read } = useRead(() => call(user, "TurnDiff", asked), [path]);
  const lines = (found?.diff || "").replace(/\n$/, "").split("\n");
  return html`<${Dialog} title="Changes" wide=${true} onClose=${onClose}>
    <p><label>File <select value=${path} onChange=${(/** @type {any} */ event) => setPath(event.target.value)}>
      <option value="">all of them</option>
      ${changes.map((each) => html`<option key=${each.path} value=${each.path}>${short(each.path)}</option>`)}
    </select></label></p>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${read} />`}
    ${!found && !failed && html`<${Loading} />`}
    ${found && html`<pre class="changes" tabindex="0" aria-label="Difference">${lines.slice(0, LINES).map(lineOf)}</pre>`}
    ${(found?.cut || lines.length > LINES) && html`<p class="muted">There is more; choose a file.</p>`}
    ${ignored && html`<p class="muted">What git ignores is counted only where a file tool changed it.</p>`}
  <//>`;
}

/** @param {string} line @param {number} index */
function lineOf(line, index) {
  const text = html`<${ForeignText} text=${line} />\n`;
  if (/^(\+\+\+ |--- |diff )/.test(line)) return html`<strong key=${index}>${text}</strong>`;
  if (line.startsWith("+")) return html`<ins key=${index}>${text}</ins>`;
  if (line.startsWith("-")) return html`<del key=${index}>${text}</del>`;
  return html`<span key=${index}>${text}</span>`;
}

/** @param {Which & {onClose: () => void}} props */
function TakeBack({ user, session, turn, onClose }) {
  const [asks, setAsks] = useState(/** @type {{path: string, why: string}[]} */ ([]));
  const act = async () => {
    const more = asks.length ? { not_only_tools: true, overwrite: true, paths: asks.map((each) => each.path) } : {};
    const done = await call(user, "UndoFiles", { session_id: session, turn_id: turn, ...more });
    const put = (done.restored || []).length;
    announce(`${count(put)} file${put === 1 ? "" : "s"} put back.`);
    const left = (done.asks || []).map((/** @type {Message} */ each, /** @type {number} */ index) => ({
      path: each.path, why: done.reasons?.[index] || "it changed during this turn",
    }));
    if (left.length && !asks.length) setAsks(left);
    else onClose();
  };
  if (!asks.length)
    return html`<${Act} title="Take back what this turn did to files?" action="Take back" act=${act} onClose=${onClose}>
      <p>What its file tools changed is put back. You are asked about what others may have changed.</p>
    <//>`;
  return html`<${Act} title="Put these back, too?" action="Put back" danger=${true} act=${act} onClose=${onClose}>
    <p>Whatever else needed no question is put back. You, or another program, may have changed these:</p>
    <ul>${asks.map((each) => html`<li key=${each.path}><code>${short(each.path)}</code>: <${ForeignText} text=${each.why} /></li>`)}</ul>
  <//>`;
}

/** @param {string} path below /projects */
const short = (path) => path.replace(/^\/projects\//, "");
