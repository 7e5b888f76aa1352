/** What a person is told besides the content: failures with their fix, waiting, and nothing there. */

import { here } from "../connection.js";
import { PAGES } from "../pages.js";
import { href } from "../router.js";
import { useStore } from "../store.js";
import { html } from "../view.js";

/**
 * The program's commands: the page that does the same, if one does. A test compares their names.
 *
 * @type {Record<string, string>}
 */
const COMMANDS = {
  access: "users", acp: "", approvals: "chat", ask: "chat", audit: "activity", chat: "chat", completion: "", config: "settings",
  credentials: "settings", doctor: "doctor", egress: "", images: "", init: "settings", logs: "", mcp: "", memory: "", notices: "notices",
  projects: "", restart: "users", schedules: "schedules", serve: "", sessions: "chat", skills: "", start: "users", status: "users", stop: "users", tools: "settings", turns: "chat",
  upgrade: "",
  usage: "usage", users: "users",
};
/** Those that are about no single user. */
const MACHINE = /^(completion|images|init|serve|upgrade|users)$/;
const COMMAND = new RegExp(`(?<![\\w./-])runner (?=((?:--\\S+ [^\\s-]\\S* )*)(${Object.keys(COMMANDS).join("|")})\\b)`, "g");

/** @param {{text: string}} props which may name the command for a login at an MCP server */
export function LogInHere({ text }) {
  const login = /\brunner tools login ([a-z][a-z0-9-]*)/.exec(text)?.[1];
  return login ? html`<p><a href=${href("safe", "", { login })}>Log in at ${login} in this browser</a></p>` : null;
}

/**
 * What somebody is advised to do. A command stands as it runs in a terminal of the host, with the page that
 * does the same beside it; who has no such terminal is sent to the person who has.
 *
 * @param {{text: string, before?: string, user?: string}} props `before`: words in front;
 *   `user`: whose agent it is about, if not who is acted for
 */
export function Advice({ text, before = "", user: whose }) {
  const { operator, program, user: current } = useStore(here);
  const named = [...text.matchAll(COMMAND)].map((match) => match[2]);
  const asks = /person who|whoever/.test(text);
  if ((!whose || whose === current) && text.includes("runner tools login ")) return html`<p>${before}${text}</p><${LogInHere} text=${text} />`;
  if (!named.length) return html`<p>${before}${text}</p>`;
  if (!operator && asks) return html`<p>${before}${text.replace(/: runner [^;]*$/, "")}</p>`;
  if (!operator) return html`<p>${before}ask the person who runs this host. What helps there: ${text}</p>`;
  const user = whose || current;
  const shown = text.replace(COMMAND, (_, options, name) =>
    [program, ...(user === "default" || options || MACHINE.test(name) ? [] : ["--user", user]), ""].join(" "));
  const pages = PAGES.filter((page) => named.some((name) => COMMANDS[name] === page.name));
  const words = shown.split("`").map((each, index) => (index % 2 ? html`<code>${each}</code>` : each));
  return html`<p>${before}${words}</p>
    <p class="muted">The command is for a terminal on the machine that runs this server.${
      pages.map((page) => html` <a key=${page.name} href=${href(page.name, page.name === "users" ? user : "")}>${page.title}</a>`)}${
      pages.length > 0 && " does the same here."}</p>`;
}

/**
 * A failure: what happened, why, and what mends it.
 *
 * @param {{failure: Partial<import("../api.js").Failure> & {message: string},
 *   onRetry?: () => void, onClose?: () => void}} props
 */
export function FailureNotice({ failure, onRetry, onClose }) {
  return html`<div class="notice failure" role="alert">
    <p><strong>${failure.message}</strong></p>
    ${failure.details && html`<p class="details">${failure.details}</p>`}
    ${failure.resolution && html`<${Advice} before="To fix it: " text=${failure.resolution} user=${failure.user} />`}
    ${(onRetry || onClose) &&
    html`<p class="actions">
      ${onRetry && html`<button type="button" onClick=${onRetry}>Try again</button>`}
      ${onClose && html`<button type="button" onClick=${onClose}>Close</button>`}
    </p>`}
  </div>`;
}

/** @param {{what?: string}} props */
export const Loading = ({ what = "Loading" }) =>
  html`<p class="loading" role="status">${what} …</p>`;

/** @param {{children?: import("../view.js").Children}} props */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
