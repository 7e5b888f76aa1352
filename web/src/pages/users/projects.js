/** Directories of the operator's that a user's agent sees, and those of the settings that it could see. */

import { host } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { Act, useRead } from "../../components/doing.js";
import { FailureNotice } from "../../components/notices.js";
import { Table } from "../../components/table.js";
import { html, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */

/** @param {{userId: string, open: Message[], onChanged: () => void}} props `open`: as the host shows them */
export function Projects({ userId, open, onChanged }) {
  const { found, failed, read } = useRead(() => host("ListProjects", { user_id: userId }), [userId]);
  const [asked, setAsked] = useState(/** @type {Message | null} */ (null));
  const shown = new Set(open.map((each) => each.name));
  const closed = (found?.projects || []).filter((/** @type {Message} */ each) => !shown.has(each.name));
  const opens = asked && !shown.has(asked.name);
  const act = async () => {
    await host(opens ? "OpenProject" : "CloseProject", { user_id: userId, name: asked?.name });
    announce(opens ? "It is open." : "It is closed.");
    setAsked(null);
    onChanged();
  };
  if (failed) return html`<${FailureNotice} failure=${failed} onRetry=${read} />`;
  if (!open.length && !closed.length) return null;
  return html`<h2>Projects</h2>
    <${Table} label="Projects" columns=${["Project", "Directory", "Access", ""].map((title) => ({ title }))}
      rows=${[...open, ...closed].map((each) => ({
        key: each.name,
        cells: [
          html`<code>/projects/${each.name}</code>`,
          html`<code>${each.path}</code>`,
          html`<div>${shown.has(each.name) ? accessOf(each) : "closed"}
            ${each.reason && html`<br /><span class="muted">${each.reason}</span>`}</div>`,
          html`<button type="button" onClick=${() => setAsked(each)}>${shown.has(each.name) ? "Close" : "Open"} …</button>`,
        ],
      }))} />
    ${asked &&
    html`<${Act} title=${`${opens ? "Open" : "Close"} /projects/${asked.name}?`} action=${opens ? "Open" : "Close"} act=${act}
      wait="The guests start anew; this can take a minute" onClose=${() => setAsked(null)}>
      <p>${opens
        ? html`The agent and its commands get <code>${asked.path}</code>, ${asked.write ? "to read and write" : "to read"}.`
        : asked.configured
          ? "The agent and its commands lose it until it is opened again or their host starts anew."
          : "The agent and its commands lose it. It is not in the settings, so a command opens it again, and this page cannot."}</p>
      <p>They start anew: commands and MCP servers that run there end. Conversations go on.</p>
    <//>`}`;
}

/** @param {Message} project that is open */
export const accessOf = ({ writable, walls, hidden }) =>
  [
    writable ? "read-write" : "read-only",
    writable && walls?.length && `but not ${walls.join(", ")}`,
    hidden?.length && `without ${hidden.join(", ")}`,
  ]
    .filter(Boolean)
    .join(", ");
