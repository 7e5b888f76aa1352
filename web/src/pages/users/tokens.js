/** Access tokens of a user: who may act for them from elsewhere, and for how long. */

import { host } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { Copy } from "../../components/copy.js";
import { Dialog } from "../../components/dialog.js";
import { Act, useDoing, useRead } from "../../components/doing.js";
import { Empty, FailureNotice } from "../../components/notices.js";
import { Table } from "../../components/table.js";
import { fullTime } from "../../text.js";
import { html, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */

const SCOPES = [
  { name: "chat", says: "conversations: sessions, turns, approvals" },
  { name: "memory", says: "notes, one by one: find, read, write, correct, forget" },
  { name: "admin", says: "the memory as a whole: export, import, backups" },
];

/** @param {{userId: string}} props */
export function Tokens({ userId }) {
  const { found, failed, read } = useRead(() => host("ListTokens"), [userId]);
  const tokens = (found?.tokens || []).filter((/** @type {Message} */ each) => each.user_id === userId);
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState(/** @type {Message | null} */ (null));

  const revoke = async () => {
    await host("RevokeToken", { user_id: userId, name: revoking?.name });
    announce(`The token ${revoking?.name} is revoked.`);
    setRevoking(null);
    read();
  };
  return html`<section aria-label="Access tokens">
    <h2>Access tokens</h2>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${read} />`}
    <p>A token is for a device or a program of ${userId}: whoever has it is ${userId}. For another person, add a person.</p>
    ${found && !tokens.length && html`<${Empty}>Nobody has one.<//>`}
    ${tokens.length > 0 &&
    html`<${Table} label="Tokens" columns=${["Name", "For", "Until", "Last used", ""].map((title) => ({ title }))}
      rows=${tokens.map((/** @type {Message} */ token) => ({
        key: token.name,
        cells: [
          token.name,
          html`<span>${(token.scopes || []).join(", ")}<br /><span class="muted">${token.bearer}</span></span>`,
          html`<span>${fullTime(token.expires_at)}${token.expired && html` <span class="badge warn">over</span>`}</span>`,
          token.last_used_at ? fullTime(token.last_used_at) : "never",
          html`<button type="button" class="danger" aria-label=${`Revoke ${token.name}`}
            onClick=${() => setRevoking(token)}>Revoke …</button>`,
        ],
      }))} />`}
    <p class="actions"><button type="button" onClick=${() => setMaking(true)}>Make a token …</button></p>
    ${making &&
    html`<${Make} userId=${userId} onClose=${() => {
      setMaking(false);
      read();
    }} />`}
    ${revoking &&
    html`<${Act} title=${`Revoke the token ${revoking.name}?`} action="Revoke" danger=${true}
      act=${revoke} onClose=${() => setRevoking(null)}>
      <p>Whoever has it is let out at once, and what they have open ends. It cannot be given back; a new
        token can be made.</p>
    <//>`}
  </section>`;
}

/** @param {{userId: string, onClose: () => void}} props */
function Make({ userId, onClose }) {
  const [secret, setSecret] = useState("");
  const [bearer, setBearer] = useState("");
  const { failure, run } = useDoing();
  const make = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    void run(async () => {
      const wanted = { user_id: userId, name: form.get("name"), scopes: form.getAll("scope"), expires: form.get("expires") };
      const made = await host("CreateToken", wanted);
      setBearer(made.token.bearer);
      setSecret(made.secret);
    });
  };
  if (secret)
    return html`<${Dialog} key="made" title="The token, this once" onClose=${onClose}>
      <p>Nobody can show it again, this server neither. Give it to whom it is for, in a way that nobody
        else reads.</p>
      <p><strong>${bearer}</strong></p>
      <p><code class="secret">${secret}</code></p>
      <p class="actions">
        <${Copy} text=${secret} title="Copy the token" kind="primary" />
        <button type="button" onClick=${onClose}>I have it</button>
      </p>
    <//>`;
  return html`<${Dialog} title=${`Make a token for ${userId}`} onClose=${onClose}>
    <form class="fields" onSubmit=${make}>
      ${failure}
      <p>Whoever has it is ${userId}, and sees everything of ${userId} that it is for.</p>
      <label>Name of the device or program <input name="name" required pattern="[a-z0-9][a-z0-9_\\-]{0,31}"
        autocomplete="off" title="small letters, digits, - and _" /></label>
      <fieldset><legend>What it is for</legend>
        ${SCOPES.map(
          (each) => html`<label class="check" key=${each.name}><input type="checkbox" name="scope" value=${each.name}
            defaultChecked=${each.name !== "admin"} /> <strong>${each.name}</strong>: ${each.says}</label>`,
        )}
      </fieldset>
      <label>Ends after <input name="expires" required defaultValue="90d" pattern="[1-9][0-9]{0,5}[hdw]" size="6"
        title="such as 12h, 30d or 8w" /></label>
      <p class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary">Make it</button>
      </p>
    </form>
  <//>`;
}
