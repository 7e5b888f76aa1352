/** What is searched for, and which notes are wanted. */

import { call } from "../../api.js";
import { html, useEffect, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */
/**
 * @typedef {object} Filter
 * @property {string} query
 * @property {string} type
 * @property {string} tag
 * @property {string} actor
 * @property {string} origin_channel
 * @property {string} session_id
 * @property {string} since
 * @property {string} before
 * @property {boolean} material_only
 * @property {boolean} include_superseded
 * @property {boolean} include_conversation in a search without another filter
 */

/** @type {Filter} */
export const NO_FILTER = {
  query: "",
  type: "",
  tag: "",
  actor: "",
  origin_channel: "",
  session_id: "",
  since: "",
  before: "",
  material_only: false,
  include_superseded: false,
  include_conversation: false,
};

const TYPES = [
  "fact",
  "assumption",
  "hypothesis",
  "discovery",
  "risk",
  "unknown",
  "decision",
  "convention",
  "lesson_learned",
];
const ACTORS = [
  ["user", "you"],
  ["agent", "the agent"],
  ["automatic", "the runtime"],
  ["import", "an import"],
];
const SESSIONS = 100;

/**
 * @param {Filter} filter
 * @returns {Message} what ListNotes and SearchNotes have alike, and the query
 */
export function requestOf({ query, tag, include_conversation, ...rest }) {
  const wanted = query.trim();
  return wanted ? { ...rest, query: wanted, tags: tag ? [tag] : [], include_conversation } : { ...rest, tag };
}

/**
 * @param {{user: string, filter: Filter, onFilter: (filter: Filter) => void,
 *   search: {current: HTMLInputElement | null}}} props
 */
export function Filters({ user, filter, onFilter, search }) {
  const [sessions, setSessions] = useState(/** @type {Message[]} */ ([]));
  useEffect(() => {
    // Without the scope for conversations there is nothing to choose from.
    call(user, "ListSessions", { limit: SESSIONS, include_archived: true }).then(
      (reply) => setSessions(reply.sessions || []),
      () => {},
    );
  }, [user]);
  const { query: _, ...chosen } = filter;
  const active = Object.entries(chosen).filter(([, value]) => value).length;
  const set = (/** @type {keyof Filter} */ name) => (/** @type {any} */ event) => {
    const { type, checked, value } = event.target;
    onFilter({ ...filter, [name]: type === "checkbox" ? checked : value });
  };
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label class="search"><span class="unseen">Search the notes</span>
      <input type="search" ref=${search} value=${filter.query} onInput=${set("query")} placeholder="Search by words and by meaning"
        maxlength="2000" /></label>
    <details>
      <summary>Filters${active ? ` (${active})` : ""}</summary>
      <div class="grid">
        <label>Type <select value=${filter.type} onChange=${set("type")}>
          <option value="">any</option>
          ${TYPES.map((each) => html`<option value=${each}>${each.replace("_", " ")}</option>`)}
        </select></label>
        <label>Written by <select value=${filter.actor} onChange=${set("actor")}>
          <option value="">anybody</option>
          ${ACTORS.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
        </select></label>
        <label>Tag <input value=${filter.tag} onInput=${set("tag")} maxlength="64" /></label>
        <label>Through <input value=${filter.origin_channel} onInput=${set("origin_channel")}
          placeholder="web, cli, mcp …" /></label>
        <label>In the conversation <select value=${filter.session_id} onChange=${set("session_id")}>
          <option value="">any</option>
          ${sessions.map((each) => html`<option value=${each.session_id}>${each.title || each.session_id}</option>`)}
        </select></label>
        <label>From the day <input type="date" value=${filter.since} onChange=${set("since")} /></label>
        <label>Before the day <input type="date" value=${filter.before} onChange=${set("before")} /></label>
      </div>
      <label class="check"><input type="checkbox" checked=${filter.material_only} onChange=${set("material_only")} />
        only unconfirmed notes</label>
      <label class="check"><input type="checkbox" checked=${filter.include_superseded} onChange=${set("include_superseded")} />
        also superseded notes</label>
      <label class="check"><input type="checkbox" checked=${filter.include_conversation} onChange=${set("include_conversation")} />
        search conversations too, where nothing else is chosen</label>
      <p class="actions"><button type="button" onClick=${() => onFilter(NO_FILTER)}>Show all notes</button></p>
    </details>
  </form>`;
}
