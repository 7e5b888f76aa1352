/** What a person has allowed in a conversation for more than one call. */

import { call } from "../../api.js";
import { useDoing, useRead } from "../../components/doing.js";
import { ForeignText } from "../../components/foreign-text.js";
import { fullTime } from "../../text.js";
import { html } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */

/** @param {{user: string, session: string, waits: boolean}} props `waits`: a call waits for a person */
export function Allowed({ user, session, waits }) {
  // Where it fails, the page tells of an agent that is away.
  const { found, read } = useRead(() => call(user, "ListGrants", { session_id: session }), [user, session, waits]);
  const { busy, failure, run } = useDoing();
  const grants = /** @type {Message[]} */ (found?.grants || []);
  const withdraw = (/** @type {string} */ id) =>
    run(() => call(user, "WithdrawGrant", { grant_id: id, channel: "web" }).finally(read));
  if (!grants.length) return null;
  return html`<details class="call allowed">
    <summary>Allowed in this conversation: ${grants.length}</summary>
    ${failure}
    ${grants.map(
      (each) => html`<p key=${each.grant_id}><${ForeignText} text=${each.text} />${" "}
        <span class="muted">since ${fullTime(each.given_at)} (${each.channel})</span>${" "}
        <button type="button" disabled=${busy} onClick=${() => withdraw(each.grant_id)}>Withdraw</button></p>`,
    )}
  </details>`;
}
