/** A conversation that reads what is remembered and keeps nothing. */

import { call } from "../../api.js";
import { FailureNotice } from "../../components/notices.js";
import { go } from "../../router.js";
import { count } from "../../text.js";
import { html, useState } from "../../view.js";

/** @param {string} session @returns {boolean} whether nothing is kept of this conversation */
export const isTemporary = (session) => session.startsWith("temporary-");

/**
 * What it is, and its end.
 *
 * @param {{user: string, session: string, turns: number, onEnded: (receipt: string) => void}} props
 */
export function Temporary({ user, session, turns, onEnded }) {
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const end = async () => {
    setProblem(null);
    let receipt = `✓ Erased: ${count(turns)} ${turns === 1 ? "turn" : "turns"} of the temporary conversation; nothing of it was ever stored.`;
    try {
      await call(user, "ForgetSession", { session_id: session });
    } catch (error) {
      if (/** @type {any} */ (error).code !== "not_found") return setProblem(error);
      receipt = "✓ Erased before: the temporary conversation was over; nothing of it was ever stored.";
    }
    go("chat", "", { replace: true });
    onEnded(receipt);
  };
  return html`<div class="notice">
    <p>
      <strong>Temporary.</strong> It reads what is remembered, changes nothing, and is in no list, file or backup. It is
      erased when you end it, when the agent stops, or after an hour without a message. Files that you add stay.
    </p>
    ${problem && html`<${FailureNotice} failure=${problem} />`}
    <p class="actions"><button type="button" onClick=${end}>End and erase</button></p>
  </div>`;
}
