/** Logging in at MCP servers: at a page of theirs, from which the browser comes back to this one. */

import { serverLogin } from "../api.js";
import { go } from "../router.js";
import { html } from "../view.js";
import { useDoing } from "./doing.js";

/** With what the browser has come back; it leaves the address, and the browser's history, at once. */
const answers = location.pathname === "/logins/callback" ? [location.search.slice(1)] : [];
if (answers.length) {
  history.replaceState(null, "", "/");
  go("safe", "", { replace: true });
}

/** @param {string} user @returns {Promise<string>} where they are logged in now, if the browser has just come back */
export async function returned(user) {
  const [query] = answers.splice(0);
  return query === undefined ? "" : (await serverLogin(user, "PUT", { query })).name;
}

/** @param {{user: string, server: import("../api.js").Message, refused: string, onChanged: () => void}} props
 *    `refused`: the name of one that has refused a call */
export function ServerLogin({ user, server, refused, onChanged }) {
  const { busy, failure, run } = useDoing();
  const name = server.name.replace("mcp-", "");
  const enter = () => serverLogin(user, "POST", { name }).then(({ url }) => location.assign(url));
  const leave = () => serverLogin(user, "DELETE", { name }).then(onChanged);
  return html`${(server.wanted || server.name === `mcp-${refused}`) &&
    html` <span class="badge warn">${server.kept ? "logged in, but not connected yet" : "wants you to log in"}</span>
      ${" "}<button type="button" disabled=${busy} onClick=${() => run(enter)}>Log in${server.kept && " again"}</button>`}
    ${server.kept && html` <button type="button" disabled=${busy} onClick=${() => run(leave)}>Log out</button>`}${failure}`;
}
