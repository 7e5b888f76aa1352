/** Each probe of a host's boundary, and the button that makes them again. */

import { safety } from "../api.js";
import { announce } from "./announcer.js";
import { useDoing } from "./doing.js";
import { fullTime } from "../text.js";
import { html, useState } from "../view.js";

/** @typedef {import("../api.js").Message} Message */

/**
 * Each probe of the boundary, as the shell guest found it from inside.
 *
 * @param {{userId: string, first?: Message, open?: boolean}} props `first`: what the latest start found;
 *   `open`: every probe is shown at once
 */
export function Boundary({ userId, first, open = false }) {
  const [again, setAgain] = useState(/** @type {Message | null} */ (null));
  const { busy, failure, run } = useDoing();
  const report = again || first;
  const check = () =>
    run(async () => {
      setAgain((await safety(userId, "POST")).boundary);
      announce("The boundary was probed.");
    });
  return html`${failure}
    ${!report && html`<p>There is no shell guest, so nothing was probed.</p>`}
    ${report &&
    html`<p><span class="badge ${report.passed ? "good" : "bad"}">${report.passed ? "the boundary holds" : "the boundary does not hold"}</span>
        <span class="muted"> probed from inside the shell guest, ${fullTime(report.checked_at)}</span></p>
      <p class="actions"><button type="button" disabled=${busy} onClick=${check}>${busy ? "Probing …" : "Probe now"}</button></p>
      <details open=${open || !report.passed}><summary>${(report.checks || []).length} probes</summary>
      <ul class="findings wide">${(report.checks || []).map(
        (/** @type {Message} */ each) => html`<li key=${each.name}>
          <span class="badge ${each.passed ? "good" : "bad"}">${each.passed ? "held" : "broken"}</span>
          <strong>${each.name.replaceAll("_", " ")}</strong> ${each.details}</li>`,
      )}</ul></details>`}`;
}
