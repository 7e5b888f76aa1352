/** The whole memory as a file: out, and in again after a rehearsal. */

import { call, stream } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { useDoing } from "../../components/doing.js";
import { FailureNotice } from "../../components/notices.js";
import { count } from "../../text.js";
import { html, useState } from "../../view.js";
import { checkExport, partsOf } from "./export-file.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {import("../../api.js").Failure} Failure */
/**
 * @typedef {object} Report what an import did, or would do
 * @property {number} created
 * @property {number} updated
 * @property {number} unchanged
 * @property {{line: number, problem: string}[]} problems
 */

const PROBLEMS_SHOWN = 20;

/** @param {{user: string, onCount: () => void}} props `onCount`: notes came */
export const Transfer = ({ user, onCount }) =>
  html`<div class="page">
    <${Export} user=${user} />
    <${Import} user=${user} onCount=${onCount} />
  </div>`;

/** @param {{user: string}} props */
function Export({ user }) {
  const [done, setDone] = useState("");
  const { busy, failure, run } = useDoing();
  const [leftOut, setLeftOut] = useState(/** @type {string[]} */ ([]));
  const write = () =>
    run(async () => {
      setLeftOut([]);
      const parts = [];
      const tooLong = /** @type {string[]} */ ([]);
      for await (const part of stream(user, "ExportMemory", {})) {
        parts.push(Uint8Array.from(atob(part.lines || ""), (letter) => letter.charCodeAt(0)));
        tooLong.push(...(part.left_out || []));
        setDone(`${count(part.entries)} of ${count(part.entries_total)} entries`);
      }
      setLeftOut(tooLong);
      download(new Blob(parts, { type: "application/jsonl" }), `memory-${user}.jsonl`);
      announce("The export is in your downloads.");
    });
  return html`<section>
    <h2>Export</h2>
    <p>Writes the notes with their history, and the conversations, into one file of JSON lines. Receipts
      are not in it. It is not encrypted: keep it where only you can read it.</p>
    ${failure}
    <p class="actions">
      <button type="button" disabled=${busy} onClick=${write}>Export to a file</button>
      <span role="status">${done}</span>
    </p>
    ${leftOut.length > 0 &&
    html`<div role="alert">
      <p>The file does not have everything: ${count(leftOut.length)} of the entries are too long for it.${" "}
        <code>runner memory backup</code> copies the whole store instead.</p>
      <ul>${leftOut.slice(0, PROBLEMS_SHOWN).map((each) => html`<li>${each}</li>`)}</ul>
    </div>`}
  </section>`;
}

/** @param {Blob} content @param {string} name */
function download(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @param {{user: string, onCount: () => void}} props */
function Import({ user, onCount }) {
  const [file, setFile] = useState(/** @type {{name: string, content: Uint8Array} | null} */ (null));
  const [report, setReport] = useState(/** @type {Report | null} */ (null));
  const [rehearsed, setRehearsed] = useState(false);
  const [busy, setBusy] = useState("");
  const [failed, setFailed] = useState(/** @type {Failure | null} */ (null));

  const run = async (/** @type {Uint8Array} */ content, /** @type {boolean} */ dryRun) => {
    setBusy(dryRun ? "Looking at the file …" : "Importing …");
    setFailed(null);
    const sum = { created: 0, updated: 0, unchanged: 0, problems: /** @type {Report["problems"]} */ ([]) };
    try {
      for (const { lines, numbers } of partsOf(content)) {
        const reply = await call(user, "ImportMemory", { lines: base64(lines), dry_run: dryRun });
        for (const name of /** @type {("created" | "updated" | "unchanged")[]} */ (["created", "updated", "unchanged"]))
          sum[name] += Number(reply[name] || 0);
        for (const each of reply.problems || [])
          sum.problems.push({ line: numbers[each.line - 1], problem: each.problem });
      }
      const incomplete = await checkExport(content);
      if (incomplete) sum.problems.push(incomplete);
      setRehearsed(dryRun);
      if (!dryRun) {
        announce("The import is done.");
        onCount();
      }
    } catch (error) {
      setFailed(/** @type {Failure} */ (error));
      setRehearsed(false);
    }
    setReport(sum);
    setBusy("");
  };
  const choose = async (/** @type {any} */ event) => {
    const chosen = /** @type {File | undefined} */ (event.target.files[0]);
    setReport(null);
    setRehearsed(false);
    if (!chosen) return;
    const content = new Uint8Array(await chosen.arrayBuffer());
    setFile({ name: chosen.name, content });
    await run(content, true);
  };
  return html`<section>
    <h2>Import</h2>
    <p>Reads a file that was exported here or elsewhere. First it is only looked at: nothing is changed
      until you say so. What is there already stays, and importing twice changes nothing.</p>
    <p><label>File <input type="file" accept=".jsonl,application/jsonl" onChange=${choose} /></label></p>
    <p role="status">${busy}</p>
    ${failed && html`<${FailureNotice} failure=${failed} />`}
    ${report &&
    html`<div aria-live="polite">
      <p>${rehearsed ? "The import would give" : "The import gave"}: ${count(report.created)} new,${" "}
        ${count(report.updated)} newer than here, ${count(report.unchanged)} unchanged.</p>
      ${report.problems.length > 0 &&
      html`<p>${count(report.problems.length)} problems; lines with one are left out:</p>
        <ul>${report.problems
          .slice(0, PROBLEMS_SHOWN)
          .map((each) => html`<li>${each.line ? `line ${each.line}: ` : ""}${each.problem}</li>`)}</ul>`}
    </div>`}
    ${rehearsed && file && report && report.created + report.updated > 0 &&
    html`<p class="actions">
      <button type="button" class="primary" disabled=${Boolean(busy)} onClick=${() => run(file.content, false)}>
        Import ${file.name}</button>
    </p>`}
  </section>`;
}

/** @param {Uint8Array} content */
function base64(content) {
  let text = "";
  for (let at = 0; at < content.length; at += 8192)
    text += String.fromCharCode(...content.subarray(at, at + 8192));
  return btoa(text);
}
