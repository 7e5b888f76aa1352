/** Adding a person, letting them in by a link, and removing them. */

import { host } from "../../api.js";
import { announce } from "../../components/announcer.js";
import { Copy } from "../../components/copy.js";
import { Dialog } from "../../components/dialog.js";
import { useDoing, useRead } from "../../components/doing.js";
import { FailureNotice, Loading } from "../../components/notices.js";
import { go } from "../../router.js";
import { bytes, fullTime } from "../../text.js";
import { html, useEffect, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */

const HERE = /^(localhost|127\.|\[::1\])/;

/** @param {{insecure: boolean, onAdded: () => void, onClose: () => void}} props */
export function AddPerson({ insecure, onAdded, onClose }) {
  const { busy, failure, run } = useDoing();
  const [added, setAdded] = useState("");
  const add = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const user_id = String(form.get("name"));
    await run(async () => {
      await host("AddUser", { user_id });
      go("users", user_id);
      await host("Start", { user_id, insecure: form.get("insecure") !== null });
      setAdded(user_id);
    });
    onAdded();
  };
  if (added) return html`<${Invitation} userId=${added} onClose=${onClose} />`;
  return html`<${Dialog} title="Add a person" onClose=${onClose}>
    <form class="fields" onSubmit=${add}>
      ${failure}
      <p>They get an agent of their own. They see their own conversations and notes, and nothing of anybody else.
        You run this host, and can see everything.</p>
      <label>Name <input name="name" required pattern="[a-z0-9][a-z0-9_\\-]{0,31}" autocomplete="off"
        title="1 to 32 of: small letters, digits, - and _" /></label>
      <label class="check"><input type="checkbox" name="insecure" defaultChecked=${insecure} />
        without containers: guests are processes of this machine, which confine less</label>
      ${busy && html`<${Loading} what="Starting their agent; this can take a minute" />`}
      <p class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${busy}>Add</button>
      </p>
    </form>
  <//>`;
}

/**
 * A new link, which is made when this is shown.
 *
 * @param {{userId: string, onClose: () => void}} props
 */
export function Invitation({ userId, onClose }) {
  const { found: made, failed } = useRead(() => host("Invite", { user_id: userId }), [userId]);
  const link = made?.links[0] || "";
  return html`<${Dialog} key=${made ? "made" : "making"} title=${`A link for ${userId}`} onClose=${onClose}>
    ${!made && !failed && html`<${Loading} />`}
    ${failed && html`<${FailureNotice} failure=${failed} />`}
    ${made &&
    html`<p>Whoever opens it first is ${userId}: they see all of ${userId}’s conversations and notes, and nothing
        else. It works once, until ${fullTime(made.until)}. An earlier link does not work any more.</p>
      <p><code class="secret">${link}</code></p>
      ${HERE.test(new URL(link).host) &&
      html`<p class="notice">This address leads here from this machine only. To let in other machines,
        set <code>[serve] listen</code> and a certificate: see “From a phone, or another machine” in the guide.</p>`}
      <p class="actions">
        <${Copy} text=${link} title="Copy the link" kind="primary" />
        <button type="button" onClick=${onClose}>I have it</button>
      </p>`}
  <//>`;
}

/** @param {{userId: string, onRemoved: () => void, onClose: () => void}} props */
export function Remove({ userId, onRemoved, onClose }) {
  const [found, setFound] = useState(/** @type {Message | null} */ (null));
  const { busy, failure, run } = useDoing();
  const [typed, setTyped] = useState("");
  useEffect(() => {
    void run(async () => setFound(await host("ListBelongings", { user_id: userId })));
  }, [userId]);
  const remove = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    void run(async () => {
      await host("RemoveUser", { user_id: userId, confirm: typed });
      announce(`${userId} is removed.`);
      onRemoved();
    });
  };
  const also = [
    ...(found?.engine_objects || []),
    ...(found?.tokens || []).map((/** @type {string} */ name) => `the access token ${name}`),
    ...(found?.settings ? [`the settings of ${userId} alone`] : []),
  ];
  return html`<${Dialog} title=${`Remove ${userId}?`} onClose=${onClose}>
    ${failure}
    ${!found && busy && html`<${Loading} />`}
    ${found &&
    html`<form class="fields" onSubmit=${remove}>
      <p>The agent of ${userId} ends, and ${userId} is logged out everywhere. <strong>Deleted for good:</strong></p>
      <ul>
        ${found.parts.map(
          (/** @type {Message} */ each) => html`<li key=${each.what} title=${each.path}>${each.what}, ${bytes(each.size)}</li>`,
        )}
        ${also.map((each) => html`<li key=${each}>${each}</li>`)}
      </ul>
      <p><strong>What stays:</strong> all other people, and copies that somebody has made elsewhere.</p>
      ${found.stays.length > 0 && html`<ul>${found.stays.map((/** @type {string} */ each) => html`<li key=${each}>${each}</li>`)}</ul>`}
      <label>To remove ${userId}, type the name <input value=${typed} autocomplete="off"
        onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} /></label>
      ${busy && html`<${Loading} what="Removing" />`}
      <p class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="danger" disabled=${busy || typed !== userId}>Remove</button>
      </p>
    </form>`}
  <//>`;
}
