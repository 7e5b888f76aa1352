/** What is wrong with this machine and the settings, and what mends it. */

import { host } from "../api.js";
import { useRead } from "../components/doing.js";
import { Advice, FailureNotice, Loading } from "../components/notices.js";
import { html } from "../view.js";

/** @typedef {import("../api.js").Message} Message */

/** @type {Record<string, {text: string, badge: string}>} */
const STATES = {
  ok: { text: "good", badge: "good" },
  warning: { text: "restricted", badge: "warn" },
  problem: { text: "problem", badge: "bad" },
};
const ORDER = ["problem", "warning", "ok"];

/** @param {import("../pages.js").PageProps} props */
export default function Doctor({ user }) {
  const { found: findings, set, failed, read } = useRead(
    async () => /** @type {Message[]} */ ((await host("Doctor", { user_id: user })).findings || []),
    [user],
  );
  const examine = () => {
    set(null);
    read();
  };

  const sorted = [...(findings || [])].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
  const problems = sorted.filter((each) => each.state === "problem").length;
  return html`<div class="page">
    <h1>Doctor</h1>
    <p>Looks at this machine and at what holds for ${user}. It changes nothing.</p>
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${examine} />`}
    ${!findings && !failed && html`<${Loading} what="Examining" />`}
    ${findings &&
    html`<p role="status">${problems ? `${problems} of ${sorted.length} checks found a problem.` : "A start can work."}</p>
      <ul class="findings wide">
        ${sorted.map(
          (each) => html`<li key=${`${each.name} ${each.what}`}>
            <p><span class="badge ${STATES[each.state]?.badge || ""}">${STATES[each.state]?.text || each.state}</span>
              <strong>${each.name}</strong> ${each.what}</p>
            ${each.fix && html`<${Advice} before="To fix it: " text=${each.fix} />`}
          </li>`,
        )}
      </ul>
      <p class="actions"><button type="button" onClick=${examine}>Examine again</button></p>`}
  </div>`;
}
