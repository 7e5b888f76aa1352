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
  { name: "planted", title: "Not vouched for" },
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
      <h1>Memory</h1>
      <nav aria-label="Views of the memory" class="views">
        ${VIEWS.filter((each) => !each.scope || me.operator || me.scopes.includes(each.scope)).map(
          (each) => html`<a key=${each.name} href=${href("memory", "", each.name ? { view: each.name } : {})}
            aria-current=${each.name === view ? "page" : undefined}>${each.title}</a>`,
        )}
      </nav>
      ${failed && html`<${FailureNotice} failure=${failed} onRetry=${recount} />`}
      ${counted && html`<${Figures} counted=${counted} />`}
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
      <span>${count(counted.notes)} ${Number(counted.notes) === 1 ? "note" : "notes"}</span>
      <span><${Share} used=${counted.stored_notes} most=${counted.stored_notes_max}
        label="Notes, superseded ones too" /> ${count(counted.stored_notes)} of ${count(counted.stored_notes_max)} with superseded ones</span>
      <span><${Share} used=${counted.text_bytes} most=${counted.text_bytes_max} label="Text in all versions" />${" "}
        ${bytes(counted.text_bytes)} of ${bytes(counted.text_bytes_max)} of text</span>
      ${counted.encrypted && html`<span>encrypted on the disk</span>`}
      ${counted.store === "remote" &&
      html`<span>on a server${counted.replica_synced_at && `, copied ${fullTime(counted.replica_synced_at)}`}</span>`}
    </p>
    ${counted.state && counted.state !== "ready" &&
    html`<p class="notice" role="status">Nothing can be saved right now, and searches answer from a copy: ${counted.state}.</p>`}
    ${semantic(counted.embedder) &&
    html`<p class="notice" role="status">${semantic(counted.embedder)}</p>`}`;

/** @param {{used?: string, most?: string, label: string}} props */
const Share = ({ used = "0", most = "1", label }) =>
  html`<meter min="0" max=${most} value=${used} high=${Number(most) * 0.9} aria-label=${label}></meter>`;

/** @param {string | undefined} embedder @returns {string} why there is no search by meaning; empty: there is */
function semantic(embedder = "") {
  if (!embedder || embedder === "ready") return "";
  if (embedder === "loading") return "Search by meaning is loading. Until then notes are found by their words.";
  if (embedder === "disabled") return "Search by meaning is switched off: notes are found by their words.";
  return `Search by meaning is away: ${embedder}. Notes are found by their words, and nothing is lost.`;
}
