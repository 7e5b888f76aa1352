/** Is it safe? What an agent can reach, whether its boundary holds, and what it did this week. */

import { call, safety } from "../api.js";
import { Boundary } from "../components/boundary.js";
import { useRead } from "../components/doing.js";
import { FailureNotice, Loading } from "../components/notices.js";
import { returned, ServerLogin } from "../components/server-login.js";
import { href } from "../router.js";
import { bytes, count, money } from "../text.js";
import { html } from "../view.js";
import { accessOf } from "./users/projects.js";

/** @typedef {import("../api.js").Message} Message */

const NOTES = 200;

/** @type {Record<string, string>} */
const TIERS = {
  process:
    "Commands run in a sandbox of their own. No container is around the agent itself: its tools keep to " +
    "the directories below, but an error in its program could reach whatever the account that runs it can. " +
    "In the container tier a container is around it, too.",
  container: "The agent and its commands run in two containers without rights.",
  micro_vm: "The agent and its commands run in two virtual machines, each with a kernel of its own.",
  kubernetes: "The agent and its commands run in two pods without rights.",
};

/** @param {import("../pages.js").PageProps} props */
export default function Safe({ user, me, route }) {
  const { found, failed, read } = useRead(async () => ({ loggedIn: await returned(user), ...(await safety(user)) }), [user]);
  const login = (/** @type {Message} */ each) =>
    html`<${ServerLogin} user=${user} server=${each} refused=${route.query.login} onChanged=${read} />`;
  return html`<div class="page">
    <h1>Is it safe?</h1>
    ${found?.loggedIn && html`<p class="notice" role="status">You are logged in at ${found.loggedIn}.
      The agent uses it within five minutes; after a restart, at once.</p>`}
    ${failed && html`<${FailureNotice} failure=${failed} onRetry=${read} />`}
    ${!found && !failed && html`<${Loading} what="Looking" />`}
    ${found &&
    html`<div class="beside">
      <div>
        <section aria-label="Reach"><h2>What ${me.operator ? `${user}’s` : "your"} agent can reach</h2>
          <p>${TIERS[found.tier] || ""}</p>
          <${Reach} login=${login} egress=${found.egress} workspace=${found.workspace} projects=${found.projects || []} /></section>
        ${found.egress &&
        html`<section aria-label="Boundary"><h2>Does the boundary hold?</h2>
          <p>Each probe is an attempt to get out of where commands run, with the rights that a command has.
            All are made at every start. If one gets through, the agent does not start.</p>
          <${Boundary} userId=${user} first=${found.boundary} open=${true} /></section>`}
      </div>
      <section aria-label="This week"><h2>The last seven days</h2><${Week} user=${user} week=${found.week} operator=${me.operator} /></section>
    </div>`}
  </div>`;
}

/**
 * @param {{login: (server: Message) => any, egress?: Message, workspace?: string, projects: Message[]}} props `egress`: none where no agent
 *   runs; `workspace`: for the operator
 */
const Reach = ({ login, egress, workspace, projects }) =>
  html`<dl class="facts">
    <div><dt>Files</dt><dd>It reads and writes <code>/shared</code> and <code>/tmp</code>, and reads${" "}
      <code>/vault</code>.${workspace && html` They lie in <code>${workspace}</code>.`}</dd></div>
    ${projects.length > 0 &&
    html`<div><dt>Projects</dt><dd><ul class="plain-list">${projects.map(
      (each) => html`<li key=${each.name}><code>/projects/${each.name}</code>${each.path && html` is <code>${each.path}</code>`}: ${accessOf(each)}</li>`,
    )}</ul></dd></div>`}
    <div><dt>Commands</dt><dd>They see <code>/shared</code>${projects.length ? ", projects," : ""} and <code>/tmp</code>. They do not see notes,
      conversations, keys and <code>/vault</code>.</dd></div>
    ${egress &&
    html`<div><dt>Servers</dt><dd><${Servers} login=${login} upstreams=${egress.upstreams || []} /></dd></div>
    <div><dt>Network</dt><dd>The agent: <${Policy} policy=${egress.agent || {}} /></dd></div>
    <div><dt></dt><dd>Its commands: <${Policy} policy=${egress.shell || {}} /></dd></div>
    ${egress.credentials &&
    html`<div><dt>Keys</dt><dd>Commands use these without seeing them:${" "}
      ${egress.credentials.map((/** @type {Message} */ each) => `${each.name} for ${(each.hosts || []).join(", ")}`).join("; ")}.</dd></div>`}`}
    <div><dt>Nothing else</dt><dd>${
      egress
        ? html`Whatever is not named here is refused. MCP servers in guests of their own have rules of their own: <code>runner tools list</code>`
        : "What it may reach on the network is shown while it runs."}</dd></div>
  </dl>`;

/** @param {{login: (server: Message) => any, upstreams: Message[]}} props that the settings name */
const Servers = ({ login, upstreams }) =>
  upstreams.length
    ? html`<ul class="plain-list">${upstreams.map(
        (each) => html`<li key=${each.name}>${each.name}: <code>${each.url}</code>
          ${each.missing && html` <span class="badge warn">${each.missing}</span>`}${login(each)}</li>`,
      )}</ul>`
    : "none: it answers with the built-in demo model";

/** @param {{policy: Message}} props what a guest may reach besides these servers */
const Policy = ({ policy }) => {
  const granted = (policy.grants || []).filter((/** @type {Message} */ each) => !each.denied);
  const allowed = [
    ...(policy.presets || []).map((/** @type {string} */ each) => `preset ${each}`),
    ...(policy.allow || []),
    ...granted.map((/** @type {Message} */ each) => `${each.rule} (a person allowed it)`),
  ];
  return html`${allowed.length ? html`<code>${allowed.join(", ")}</code>` : "nothing"}${
    policy.ask ? "; for anything else you are asked" : ""}${
    policy.deny ? html`; never <code>${policy.deny.join(", ")}</code>` : ""}.`;
};

/** @param {{user: string, week: Message, operator: boolean}} props */
function Week({ user, week, operator }) {
  const since = week.since.slice(0, 10);
  const { found } = useRead(
    () => Promise.all([
      call(user, "GetUsage", { by: "day", since }).then((usage) => usage.total || {}, () => null),
      call(user, "ListNotes", { since, limit: NOTES }).catch(() => null),
    ]),
    [user, since],
  );
  if (!found) return html`<${Loading} what="Counting" />`;
  const [spent, kept] = found;
  const reached = /** @type {Message[]} */ (week.reached);
  const refused = reached.reduce((sum, each) => sum + each.refused, 0);
  const tokens = Number(spent?.input_tokens || 0) + Number(spent?.output_tokens || 0);
  const hosts = new Set(reached.filter((each) => each.requests > each.refused).map((each) => each.host));
  return html`<ul class="cards">
    <li class="card"><h3>Reached</h3><p class="figure">${many(hosts.size, "host")}</p>
      ${reached.length > 0 &&
      html`<ul class="plain-list">${reached.map(
        (each) => html`<li key=${`${each.host} ${each.role}`}><code>${each.host}</code>
          <span class="muted"> ${each.role === "shell" ? "by commands, " : each.role.startsWith("tool-") ? `by ${each.role.slice(5)}, ` : ""}${many(each.requests, "request")}${
            each.requests > each.refused ? `, ${bytes(each.bytes)}` : ""}</span>
          ${each.refused > 0 && html` <span class="badge warn">${count(each.refused)} refused</span>`}</li>`,
      )}</ul>`}
      <p class="muted">${refused ? `${many(refused, "request")} refused.` : "Nothing was refused."}</p></li>
    <li class="card"><h3>Spent</h3><p class="figure">${spent ? money(spent.cost_usd) || many(tokens, "token") : "–"}</p>
      ${spent && html`<p class="muted">${many(Number(spent.requests || 0), "request")} to models, ${many(tokens, "token")}</p>`}
      <p><a href=${href("usage", "", { days: "7" })}>Usage</a></p></li>
    <li class="card"><h3>Kept</h3><p class="figure">${kept ? keptOf(kept) : "–"}</p>
      <p class="muted">new or changed</p>
      <p><a href=${href("memory", "", { view: "history" })}>Changes</a></p></li>
    <li class="card"><h3>Asked</h3><p class="figure">${many(week.asked, "question")}</p>
      <p class="muted">before a call of a tool; ${week.refused ? `${count(week.refused)} refused` : "none refused"}${" "}
        (${many(week.calls, "call")} in all)</p>
      ${operator && html`<p><a href=${href("activity")}>Activity</a></p>`}</li>
  </ul>`;
}

/** @param {number} value @param {string} what */
const many = (value, what) => `${count(value)} ${what}${value === 1 ? "" : "s"}`;

/** @param {Message} page of notes */
const keptOf = ({ notes = [], next_cursor }) => (next_cursor ? `${NOTES} notes or more` : many(notes.length, "note"));
