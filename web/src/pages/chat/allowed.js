/** What a person has allowed in a conversation for more than one call. */

import { call } from "../../api.js";
import { ForeignText } from "../../components/foreign-text.js";
import { FailureNotice } from "../../components/notices.js";
import { fullTime } from "../../text.js";
import { html, useEffect, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */

/** @param {{user: string, session: string, waits: boolean}} props `waits`: a call waits for a person */
export function Allowed({ user, session, waits }) {
  const [grants, setGrants] = useState(/** @type {Message[]} */ ([]));
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    let current = true;
    call(user, "ListGrants", { session_id: session })
      .then((reply) => current && setGrants(reply.grants || []))
      .catch(() => current && setGrants([])); // the page tells of an agent that is away
    return () => void (current = false);
  }, [user, session, waits, changes]);
  const withdraw = async (/** @type {string} */ id) => {
    setProblem(null);
    try {
      await call(user, "WithdrawGrant", { grant_id: id, channel: "web" });
    } catch (error) {
      setProblem(error);
    }
    setChanges(changes + 1);
  };
  if (!grants.length) return null;
  return html`<details class="call allowed">
    <summary>Allowed in this conversation: ${grants.length}</summary>
    ${problem && html`<${FailureNotice} failure=${problem} />`}
    ${grants.map(
      (each) => html`<p key=${each.grant_id}><${ForeignText} text=${each.text} />${" "}
        <span class="muted">since ${fullTime(each.given_at)} (${each.channel})</span>${" "}
        <button type="button" onClick=${() => withdraw(each.grant_id)}>Withdraw</button></p>`,
    )}
  </details>`;
}
