/** What the agent remembers: find, read, write, correct, forget. */

import { call } from "../../api.js";
import { FailureNotice, Loading } from "../../components/notices.js";
import { href } from "../../router.js";
import { bytes, count, fullTime } from "../../text.js";
import { html, useCallback, useEffect, useState } from "../../view.js";
import { History } from "./history.js";
import { Notes } from "./notes.js";
import { Planted } from "./planted.js";
import { Review } from "./review.js";
import { Transfer } from "./transfer.js";

/** @typedef {import("../../api.js").Message} Message */

const VIEWS = [
  { name: "", title: "Notes" },
  { name: "history", title: "Changes" },
  { name: "planted", title: "Unconfirmed" },
  { name: "review", title: "Review" },
  { name: "transfer", title: "Import and export", scope: "admin" },
];

/** @param {import("../../pages.js").PageProps} props */
export default function Memory({ user, route, me }) {
  const view = route.id ? "" : route.query.view || "";
  const [counted, setCounted] = useState(/** @type {Message | null} */ (null));
  const [failed, setFailed] = useState(/** @type {import("../../api.js").Failure | null} */ (null));
  const recount = useCallback(() => {
    const answered = (/** @type {Message} */ now) => {
      setCounted(now);
      setFailed(null);
    };
    call(user, "MemoryStatistics", {}).then(answered, setFailed);
  }, [user]);
  useEffect(recount, [recount]);

  // What arrives later above a button moves it away from under a finger.
  if (!counted && !failed) return html`<${Loading} />`;
  return html`<div class="memory">
    <header class="memory-head">
      <div><h1>Memory</h1> ${counted && html`<${Figures} counted=${counted} />`}</div>
      ${failed && html`<${FailureNotice} failure=${failed} onRetry=${recount} />`}
      ${counted && html`<${Warnings} counted=${counted} />`}
      <nav aria-label="Views of the memory" class="views">
        ${VIEWS.filter((each) => !each.scope || me.operator || me.scopes.includes(each.scope)).map(
          (each) => html`<a key=${each.name} href=${href("memory", "", each.name ? { view: each.name } : {})}
            aria-current=${each.name === view ? "page" : undefined}>${each.title}</a>`,
        )}
      </nav>
    </header>
    <div class="memory-view">
      ${view === "" && html`<${Notes} user=${user} noteId=${route.id} onCount=${recount} />`}
      ${view === "history" && html`<div class="page"><${History} user=${user} /></div>`}
      ${view === "planted" && html`<${Planted} user=${user} onCount=${recount} />`}
      ${view === "review" && html`<${Review} user=${user} onCount=${recount} />`}
      ${view === "transfer" && html`<${Transfer} user=${user} onCount=${recount} />`}
    </div>
  </div>`;
}

/** @param {{counted: Message}} props */
const Figures = ({ counted }) =>
  html`<p class="muted figures">
      <span>${count(counted.notes)} ${Number(counted.notes) === 1 ? "note" : "notes"}${
        setAside(counted) > 0 && `, and ${count(setAside(counted))} set aside`}</span>
      ${fills(counted.stored_notes, counted.stored_notes_max) &&
      html`<span>${count(counted.stored_notes)} of at most ${count(counted.stored_notes_max)} are stored</span>`}
      <span>${bytes(counted.text_bytes)} of text${
        fills(counted.text_bytes, counted.text_bytes_max) && `, of at most ${bytes(counted.text_bytes_max)}`}</span>
      ${counted.encrypted && html`<span>encrypted on the disk</span>`}
      ${counted.store === "remote" &&
      html`<span>on a server${counted.replica_synced_at && `, copied ${fullTime(counted.replica_synced_at)}`}</span>`}
    </p>`;

/** @param {Message} counted @returns {number} notes that are kept and no longer in use */
const setAside = (counted) => Number(counted.stored_notes || 0) - Number(counted.notes || 0);

/** Whether a limit is worth a word. @param {string} used @param {string} most */
const fills = (used = "0", most = "0") => Number(used) > Number(most) / 2;

/** @param {{counted: Message}} props */
const Warnings = ({ counted }) =>
  html`${counted.state && counted.state !== "ready" &&
    html`<p class="notice" role="status">Nothing can be saved right now, and searches answer from a copy: ${counted.state}.</p>`}
    ${semantic(counted.embedder) &&
    html`<p class="notice" role="status">${semantic(counted.embedder)}</p>`}
    ${counted.embedder === "ready" && percent(counted) < 100 &&
    html`<p class="notice" role="status">Search by meaning has read ${percent(counted)} % so far. The rest is found by its words.</p>`}
    ${counted.foreign_percent > 0 &&
    html`<p class="notice" role="status">${counted.foreign_percent} % of the notes are not in English, the only language that
      search by meaning knows now. Whoever runs this can set <code>[embedder] model = "multilingual"</code>.</p>`}`;

/** How much of the memory has its vector. @param {Message} counted */
const percent = (counted) =>
  Number(counted.passages) ? Math.floor((100 * Number(counted.passages_embedded || 0)) / Number(counted.passages)) : 100;

/** @param {string | undefined} embedder @returns {string} why there is no search by meaning; empty: there is */
function semantic(embedder = "") {
  if (!embedder || embedder === "ready") return "";
  if (embedder === "loading") return "Search by meaning is loading. Until then notes are found by their words.";
  if (embedder === "disabled") return "Search by meaning is switched off: notes are found by their words.";
  return `Search by meaning is away: ${embedder}. Notes are found by their words, and nothing is lost.`;
}
