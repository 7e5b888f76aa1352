/** What stands in a conversation that has not begun: who answers, and things to try. */

import { call } from "../../api.js";
import { backOff } from "../../connection.js";
import { href } from "../../router.js";
import { html, useEffect, useState } from "../../view.js";

const DEMO = "offline";
const TO_TRY = [
  "Remember that I take my coffee black.",
  "What do you know about me?",
  "What can you do here, and what can you not reach?",
];
/** The demo understands these. */
const TO_TRY_IN_THE_DEMO = [
  "Remember that my dentist is Dr. Brandt.",
  "What do you know about my dentist?",
  "What can you do?",
];

/** @param {{user: string, operator: boolean, onAsk: (text: string) => void}} props */
export function Welcome({ user, operator, onAsk }) {
  const [known, setKnown] = useState(/** @type {import("../../api.js").Message | null} */ (null));
  useEffect(() => {
    const leaving = new AbortController();
    (async () => {
      for (let tries = 1; !leaving.signal.aborted; tries += 1) {
        const reply = await call(user, "ResolveModel", {}, leaving.signal).catch(() => null);
        if (reply) return setKnown(reply);
        await backOff(tries, leaving.signal); // the page itself says that it cannot ask
      }
    })();
    return () => leaving.abort();
  }, [user]);
  const [provider, ...model] = (known?.configured || "").split(":");
  const demo = provider === DEMO;
  const unusable = known?.providers?.find((/** @type {any} */ each) => each.name === provider)?.unusable;
  return html`<div class="welcome">
    <h1>What shall we do?</h1>
    ${demo &&
    html`<p class="notice"><strong>This is a demo.</strong> A small built-in program answers. It understands a few
      sentences, and shows how the memory works.
      ${operator
        ? html` <a href=${href("settings")}>Set up a real model</a>`
        : " The person who runs this host can set up a real model."}</p>`}
    ${known && !demo && html`<p><strong>${model.join(":")}</strong> answers, by ${provider}.</p>`}
    ${unusable &&
    html`<p class="notice">It cannot answer yet: ${unusable}.
      ${operator && html` <a href=${href("settings")}>Open the settings</a>`}</p>`}
    ${known &&
    html`<ul class="to-try" aria-label="Things to try">
      ${(demo ? TO_TRY_IN_THE_DEMO : TO_TRY).map(
        (text) => html`<li key=${text}><button type="button" onClick=${() => onAsk(text)}>${text}</button></li>`,
      )}
    </ul>`}
    <p class="muted">What you ask goes on when you close this page. Keys: <kbd>?</kbd></p>
  </div>`;
}
