/** Files on their way into the shared directory, and what lies there. */

import { call, fileUrl, upload } from "../../api.js";
import { Dialog } from "../../components/dialog.js";
import { Empty, FailureNotice, Loading } from "../../components/notices.js";
import { bytes } from "../../text.js";
import { html, useEffect, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */
/**
 * @typedef {object} Upload
 * @property {string} id
 * @property {string} name
 * @property {string} path below the shared directory; empty: not there yet
 * @property {number} progress from 0 to 1
 * @property {any} problem
 */

const ROOT = "/shared/";

/** @param {string} path virtual, such as "/shared/a.png" @returns {string} below that directory */
export const sharedPath = (path) => (path.startsWith(ROOT) ? path.slice(ROOT.length) : path);

/** @param {string} path below the shared directory */
export const virtualPath = (path) => ROOT + path;

/**
 * Send a file; `changed` is told each change of its state.
 *
 * @param {string} user
 * @param {File} file
 * @param {(state: Upload) => void} changed
 */
export async function sendFile(user, file, changed) {
  const name = nameFor(file);
  const state = { id: `${name} ${Math.random()}`, name, path: "", progress: 0, problem: null };
  changed(state);
  for (let number = 1; ; number += 1) {
    const path = number === 1 ? name : numbered(name, number);
    try {
      await upload(user, path, file, (progress) => changed({ ...state, progress }));
      changed({ ...state, name: path, path, progress: 1 });
      return;
    } catch (error) {
      // What is there already is never replaced: the next name is tried.
      if (/** @type {any} */ (error).code === "already_exists" && number < 100) continue;
      changed({ ...state, problem: error });
      return;
    }
  }
}

/** @param {File} file */
const nameFor = (file) =>
  file.name.replace(/[\u0000-\u001f\u007f/\\]/g, "_").replace(/^\.+/, "_").slice(0, 120) || "file";

/**
 * @param {string} name
 * @param {number} number
 */
function numbered(name, number) {
  const dot = name.lastIndexOf(".");
  return dot > 0 ? `${name.slice(0, dot)}-${number}${name.slice(dot)}` : `${name}-${number}`;
}

/**
 * The files that are on their way or attached.
 *
 * @param {{uploads: Upload[], onRemove: (id: string) => void}} props
 */
export function Uploads({ uploads, onRemove }) {
  if (!uploads.length) return null;
  return html`<ul class="uploads" aria-label="Files for this message">
    ${uploads.map(
      (each) => html`<li key=${each.id}>
        <span>${each.name}</span>
        ${!each.path && !each.problem &&
        html`<progress max="1" value=${each.progress} aria-label=${`Sending ${each.name}`}></progress>`}
        ${each.problem && html`<span class="bad">${each.problem.message}</span>`}
        <button type="button" class="plain" aria-label=${`Leave out ${each.name}`}
          onClick=${() => onRemove(each.id)}>✕</button>
      </li>`,
    )}
  </ul>`;
}

/**
 * What lies in the shared directory, to download or to attach.
 *
 * @param {{user: string, onAttach: (path: string) => void, onClose: () => void}} props
 */
export function SharedFiles({ user, onAttach, onClose }) {
  const [folder, setFolder] = useState("");
  const [files, setFiles] = useState(/** @type {Message[] | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  useEffect(() => {
    setFiles(null);
    call(user, "ListFiles", { path: virtualPath(folder) }).then(
      (reply) => setFiles(reply.files || []),
      setProblem,
    );
  }, [folder]);
  const up = folder.includes("/") ? folder.slice(0, folder.lastIndexOf("/")) : "";
  return html`<${Dialog} title=${`Shared files${folder && `: ${folder}`}`} onClose=${onClose}>
    ${problem && html`<${FailureNotice} failure=${problem} />`}
    ${folder && html`<p><button type="button" onClick=${() => setFolder(up)}>Up</button></p>`}
    ${files === null && !problem && html`<${Loading} />`}
    ${files?.length === 0 && html`<${Empty}>Nothing lies here.<//>`}
    <ul class="files">
      ${files?.map((each) => {
        const path = folder ? `${folder}/${each.name}` : each.name;
        if (each.directory)
          return html`<li key=${path}>
            <button type="button" class="plain" onClick=${() => setFolder(path)}>${each.name}/</button>
          </li>`;
        return html`<li key=${path}>
          <a href=${fileUrl(user, path)} download>${each.name}</a>
          <span class="muted">${bytes(each.bytes)}</span>
          <button type="button" onClick=${() => onAttach(path)}>Attach</button>
        </li>`;
      })}
    </ul>
  <//>`;
}
