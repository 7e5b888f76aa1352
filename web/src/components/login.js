/** The page of who is not logged in. */

import { login } from "../api.js";
import { FailureNotice } from "./notices.js";
import { html, useState } from "../view.js";

/**
 * @param {{problem: import("../api.js").Failure | null, over: boolean,
 *   onLogin: () => Promise<void>}} props
 */
export function Login({ problem, over, onLogin }) {
  const [failed, setFailed] = useState(problem);
  const [busy, setBusy] = useState(false);
  const enter = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const token = String(new FormData(form).get("token")).trim();
    if (!token) return;
    setBusy(true);
    try {
      await login({ token });
      form.reset();
      await onLogin();
    } catch (error) {
      setFailed(/** @type {any} */ (error));
    }
    setBusy(false);
  };
  return html`<main class="login">
    <h1>Oxydra</h1>
    ${over && html`<p>You are logged out here. What your agent was doing goes on.</p>`}
    ${failed && html`<${FailureNotice} failure=${failed} />`}
    <form onSubmit=${enter}>
      <label for="token">Access token</label>
      <input id="token" name="token" type="password" autocomplete="current-password" required
        spellcheck=${false} />
      <button type="submit" class="primary" disabled=${busy}>Log in</button>
    </form>
    <p>
      On the machine that runs the agents, <code>runner serve --open</code> prints a link that logs
      you in once. The person who runs them gives you a token with <code>runner access create</code>.
    </p>
  </main>`;
}
