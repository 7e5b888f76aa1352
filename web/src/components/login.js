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
      Somebody else runs this host? Ask them for a link. It logs you in once, and this browser stays logged in.
    </p>
    <p>
      You run it? The terminal where it was started shows the command that prints such a link.
    </p>
  </main>`;
}
