/** All users of this machine: whose agents run, and what can be done about it. */

import { host } from "../../api.js";
import { useRead } from "../../components/doing.js";
import { Empty, FailureNotice, Loading } from "../../components/notices.js";
import { people } from "../../connection.js";
import { href } from "../../router.js";
import { html, useState } from "../../view.js";
import { AddPerson } from "./person.js";
import { UserView } from "./user.js";

/** @typedef {import("../../api.js").Message} Message */

const LOOK_MS = 5000;
/** @type {Record<string, string>} */
const STATES = { running: "runs", stopped: "stopped", stuck: "does not answer" };

/** @param {import("../../pages.js").PageProps} props */
export default function Users({ user, route }) {
  const { found, failed, read: look } = useRead(() => host("ListUsers"), [], LOOK_MS);
  const users = /** @type {Message[] | null} */ (found && (found.users || []));
  const [adding, setAdding] = useState(false);
  const shown = route.id || user;
  const changed = () => {
    people.set(people.value + 1);
    look();
  };
  return html`<div class="page">
    <h1>Users</h1>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${look} />`}
    ${!users && !failed && html`<${Loading} />`}
    ${users && !users.length && html`<${Empty}>There are no users yet.<//>`}
    <p class="actions"><button type="button" onClick=${() => setAdding(true)}>Add a person …</button></p>
    ${users && users.length > 0 &&
    html`<nav class="views" aria-label="Users">
      ${users.map(
        (each) => html`<a key=${each.user_id} href=${href("users", each.user_id)}
          aria-current=${each.user_id === shown ? "page" : undefined}>${each.user_id}
          <span class="muted"> ${STATES[each.state] || each.state}</span></a>`,
      )}
    </nav>`}
    ${users && users.some((each) => each.user_id === shown) &&
    html`<${UserView} key=${shown} userId=${shown} onChanged=${changed} />`}
    ${adding &&
    html`<${AddPerson} insecure=${users?.find((each) => each.user_id === user)?.tier === "process"} onAdded=${changed}
      onClose=${() => setAdding(false)} />`}
  </div>`;
}
