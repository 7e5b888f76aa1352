/** Whether a user's agent runs, for the operator, and the button that starts it. */

import { host } from "../api.js";
import { unanswered } from "../connection.js";
import { announce } from "./announcer.js";
import { useDoing } from "./doing.js";
import { Loading } from "./notices.js";
import { html, useCallback, useEffect, useState } from "../view.js";

/** @typedef {import("../api.js").Message} Message */

const LOOK_MS = 3000;

/**
 * The state of a user's host once it is known to be stopped. It is looked at when the page comes,
 * when an agent has not answered, and again and again until it runs.
 *
 * @param {string} user
 * @param {boolean} operator nobody else may ask
 * @returns {[Message | null, () => void]} null: it runs, or nobody knows; and what looks anew
 */
export function useStopped(user, operator) {
  const [stopped, setStopped] = useState(/** @type {Message | null} */ (null));
  const look = useCallback(() => {
    if (!operator) return;
    host("Status", { user_id: user }).then(
      (status) => setStopped(status.state === "stopped" ? status : null),
      () => {}, // what the page itself asks will say so
    );
  }, [user, operator]);
  useEffect(() => {
    setStopped(null);
    look();
    return unanswered.watch(look);
  }, [look]);
  const waits = Boolean(stopped);
  useEffect(() => {
    if (!waits) return undefined;
    const timer = setInterval(() => document.hidden || look(), LOOK_MS);
    return () => clearInterval(timer);
  }, [waits, look]);
  return [stopped, look];
}

/**
 * @param {{user: string, tier: string, onStarted: () => void}} props `tier`: in which it is started
 */
export function Start({ user, tier, onStarted }) {
  const { busy, failure, run } = useDoing();
  const start = () =>
    run(async () => {
      await host("Start", { user_id: user });
      announce(`The agent of ${user} runs.`);
      onStarted();
    });
  return html`<section class="notice" aria-label="The agent">
    <p><strong>No agent runs for ${user}.</strong> It starts ${
      tier === "process" ? "without a container around it, as the last time" : `in the ${tier} tier`
    }. What was saved is there.</p>
    ${failure}
    ${busy
      ? html`<${Loading} what="Starting; this can take a minute" />`
      : html`<p class="actions"><button type="button" class="primary" onClick=${start}>Start</button></p>`}
  </section>`;
}
