/** The files of a message that is being written, and a look into the shared directory and projects. */

import { call } from "../../api.js";
import { Dialog } from "../../components/dialog.js";
import { Empty, FailureNotice, Loading } from "../../components/notices.js";
import { SharedFile } from "../../components/shared-file.js";
import { bytes } from "../../text.js";
import { html, useEffect, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */
/**
 * @typedef {object} Attachment
 * @property {string} id
 * @property {string} name
 * @property {string} path empty: it is not there yet
 * @property {number} progress from 0 to 1
 * @property {string} problem
 * @property {AbortController} [sending]
 */

/**
 * @param {{attachments: Attachment[], onRemove: (each: Attachment) => void}} props
 */
export function Attachments({ attachments, onRemove }) {
  if (!attachments.length) return null;
  return html`<ul class="attachments" aria-label="Files for this message">
    ${attachments.map(
      (each) => html`<li key=${each.id}>
        <span>${each.name}</span>
        ${!each.path && !each.problem &&
        html`<progress max="1" value=${each.progress} aria-label=${`Sending ${each.name}`}></progress>`}
        ${each.problem && html`<span class="bad" role="alert">${each.problem}</span>`}
        <button type="button" class="plain" aria-label=${`Leave out ${each.name}`}
          onClick=${() => onRemove(each)}>✕</button>
      </li>`,
    )}
  </ul>`;
}

/**
 * What lies in the shared directory and in open projects, to download or to attach.
 *
 * @param {{user: string, onAttach: (file: Message) => void, onClose: () => void}} props
 */
export function SharedFiles({ user, onAttach, onClose }) {
  const [path, setPath] = useState("/shared");
  const [roots, setRoots] = useState(["/shared"]);
  const [listed, setListed] = useState(/** @type {Message | null} */ (null));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  useEffect(() => {
    setListed(null);
    setProblem(null);
    call(user, "ListFiles", { path }).then(setListed, setProblem);
  }, [path]);
  useEffect(() => {
    const add = (/** @type {Message} */ found) =>
      setRoots(["/shared", ...(found.files || []).map((/** @type {Message} */ each) => each.path)]);
    call(user, "ListFiles", { path: "/projects" }).then(add, setProblem);
  }, [user]);
  return html`<${Dialog} title="Shared files" onClose=${onClose}>
    ${roots.length > 1 &&
    html`<p>
      ${roots.map(
        (each) => html`<button type="button" key=${each} aria-pressed=${path.startsWith(each)}
          onClick=${() => setPath(each)}>${each}</button>${" "}`,
      )}
    </p>`}
    <p>
      ${path}${" "}
      ${!roots.includes(path) &&
      html`<button type="button" onClick=${() => setPath(path.slice(0, path.lastIndexOf("/")))}>Up</button>`}
    </p>
    ${problem && html`<${FailureNotice} failure=${problem} />`}
    ${!listed && !problem && html`<${Loading} />`}
    ${listed && !listed.files && html`<${Empty}>Nothing lies here.<//>`}
    <ul class="files">
      ${(listed?.files || []).map(
        (/** @type {Message} */ file) => html`<li key=${file.path || file.name}>
          <${Entry} user=${user} file=${file} onOpen=${setPath} onAttach=${onAttach} />
        </li>`,
      )}
    </ul>
    ${listed?.more && html`<p class="muted">${listed.more} more are not shown.</p>`}
  <//>`;
}

/**
 * @param {{user: string, file: Message, onOpen: (path: string) => void,
 *   onAttach: (file: Message) => void}} props
 */
function Entry({ user, file, onOpen, onAttach }) {
  if (!file.path) return html`<span class="muted">${file.name}</span>`;
  if (file.kind === "directory")
    return html`<button type="button" class="plain" onClick=${() => onOpen(file.path)}>${file.name}/</button>`;
  if (file.kind !== "file") return html`<span class="muted">${file.name}</span>`;
  return html`<${SharedFile} user=${user} path=${file.path} name=${file.name} />
    <span class="muted">${bytes(file.bytes)}</span>
    <button type="button" aria-label=${`Attach ${file.name}`} onClick=${() => onAttach(file)}>Attach</button>`;
}
