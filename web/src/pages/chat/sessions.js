/** The list of a user's conversations. */

import { call } from "../../api.js";
import { Confirm, Dialog } from "../../components/dialog.js";
import { FailureNotice } from "../../components/notices.js";
import { useShortcuts } from "../../components/shortcuts.js";
import { VirtualList } from "../../components/virtual-list.js";
import { go, href } from "../../router.js";
import { count, fullTime, shortTime } from "../../text.js";
import { html, useEffect, useMemo, useReducer, useRef, useState } from "../../view.js";

/** @typedef {import("../../api.js").Message} Message */

const MOST = 500;
const SEARCH_AFTER_MS = 350;
const TRIED_AFTER_MS = 3000;
const MOST_WORDS = 0.6;

/**
 * @param {{user: string, current: string, running: Message[], canSearch: boolean, version: number,
 *   onChanged: () => void, onTemporary: () => void}} props `version`: another number where the list is to be read again;
 *   `canSearch`: whether what was said may be searched, which needs the scope of memory
 */
export function Sessions({ user, current, running, canSearch, version, onChanged, onTemporary }) {
  const [sessions, setSessions] = useState(/** @type {Message[]} */ ([]));
  const [archived, setArchived] = useState(false);
  const [query, setQuery] = useState("");
  const [said, setSaid] = useState(/** @type {Message[]} */ ([]));
  const [searching, setSearching] = useState(false);
  const [problem, setProblem] = useState(/** @type {any} */ (null));
  const [open, setOpen] = useState(/** @type {{what: string, session: Message} | null} */ (null));
  const [tries, tryAgain] = useReducer((/** @type {number} */ n) => n + 1, 0);
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useShortcuts([
    { keys: "n", does: "New conversation", act: () => go("chat") },
    { keys: "/", does: "Search conversations", act: () => field.current?.focus() },
  ]);

  useEffect(() => {
    call(user, "ListSessions", { limit: MOST, include_archived: archived }).then((reply) => {
      setSessions(reply.sessions || []);
      setProblem(null);
    }, setProblem);
  }, [user, archived, version, tries]);
  useEffect(() => {
    if (!problem) return undefined;
    const timer = setTimeout(() => tryAgain(undefined), TRIED_AFTER_MS);
    return () => clearTimeout(timer);
  }, [problem]);

  useEffect(() => {
    setSaid([]);
    const asked = query.trim();
    const wanted = canSearch && asked.length >= 3;
    setSearching(wanted);
    if (!wanted) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const request = { query: asked, top_k: 20, include_conversation: true };
      call(user, "SearchNotes", request, stop.signal).then(
        (reply) => setSaid((reply.notes || []).filter((/** @type {Message} */ each) => isSaid(each, wordsOf(asked)))),
        () => {}, // titles are searched all the same
      ).finally(() => stop.signal.aborted || setSearching(false));
    }, SEARCH_AFTER_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [query, user]);

  const shown = useMemo(() => {
    const words = wordsOf(query);
    const best = [...said].sort((a, b) => shareOf(a, words) - shareOf(b, words)); // the last one counts
    const passages = new Map(best.map((each) => [each.origin.session_id, passageOf(each.text, words)]));
    return sessions
      .filter((each) => {
        const title = folded(titleOf(each));
        return words.every((word) => title.includes(word)) || passages.has(each.session_id);
      })
      .map((session) => ({ session, passage: words.length ? passages.get(session.session_id) : "" }));
  }, [sessions, query, said]);

  const act = async (/** @type {string} */ method, /** @type {Message} */ request) => {
    try {
      await call(user, method, request);
      setProblem(null);
    } catch (error) {
      setProblem(error);
    }
    setOpen(null);
    onChanged();
  };

  const row = (/** @type {{session: Message, passage: string}} */ { session, passage }) => {
    const turn = running.find((each) => each.session_id === session.session_id);
    return html`<div class="session" data-current=${session.session_id === current}>
      <a href=${href("chat", session.session_id)}
        aria-current=${session.session_id === current ? "true" : undefined}>
        <span class="title">${titleOf(session)}</span>
        ${turn &&
        html`<span class="state busy">${turn.state === "waiting" ? "waits for you" : "working"}</span>`}
        <span class="muted" title=${fullTime(session.updated_at)}>
          ${shortTime(session.updated_at)}${session.archived_at ? " · archived" : ""}
        </span>
        ${passage && html`<span class="passage muted">${passage}</span>`}
      </a>
      <button type="button" class="plain" aria-label=${`More about ${titleOf(session)}`}
        onClick=${() => setOpen({ what: "more", session })}>⋯</button>
    </div>`;
  };

  return html`<nav class="sessions" aria-label="Conversations">
    <p class="actions">
      <a class="button" href=${href("chat")}>New conversation</a>
      <button type="button" title="It reads what is remembered, keeps nothing, and is erased at its end"
        onClick=${onTemporary}>Temporary</button>
    </p>
    <label class="unseen" for="find-session">Search conversations</label>
    <input id="find-session" type="search" placeholder="Search conversations" ref=${field} value=${query}
      onInput=${(/** @type {any} */ event) => setQuery(event.target.value)} />
    ${problem && html`<${FailureNotice} failure=${problem} />`}
    ${query.trim() && !shown.length && !searching &&
    html`<p class="empty" role="status">No conversation has “${query.trim()}”${archived ? "" : ", but for archived ones"}.</p>`}
    <${VirtualList} items=${shown} keyOf=${(/** @type {any} */ each) => each.session.session_id} draw=${row}
      estimate=${56} label="Conversations" />
    <label class="archived"><input type="checkbox" checked=${archived}
      onChange=${(/** @type {any} */ event) => setArchived(event.target.checked)} /> Show archived</label>
    ${open?.what === "more" &&
    html`<${More} session=${open.session} onClose=${() => setOpen(null)}
      onForget=${() => setOpen({ what: "forget", session: open.session })}
      onArchive=${() =>
        act("ArchiveSession", {
          session_id: open.session.session_id,
          archived: !open.session.archived_at,
        })}
      onRename=${(/** @type {string} */ title) =>
        act("RenameSession", { session_id: open.session.session_id, title })} />`}
    ${open?.what === "forget" &&
    html`<${Confirm} title="Forget this conversation" action="Forget it" danger
      onClose=${() => setOpen(null)}
      onConfirm=${async () => {
        await act("ForgetSession", { session_id: open.session.session_id });
        if (open.session.session_id === current) go("chat", "", { replace: true });
      }}>
      <p>“${titleOf(open.session)}” with ${count(open.session.turns)} turns, and everything that was said
        in it, is erased. No byte of it stays, and it cannot be taken back. Notes that were saved in it
        stay.</p>
    <//>`}
  </nav>`;
}

/**
 * @param {{session: Message, onRename: (title: string) => void, onArchive: () => void,
 *   onForget: () => void, onClose: () => void}} props
 */
function More({ session, onRename, onArchive, onForget, onClose }) {
  const [title, setTitle] = useState(session.title || "");
  return html`<${Dialog} title=${titleOf(session)} onClose=${onClose}>
    <form class="fields" onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      if (title.trim()) onRename(title.trim());
    }}>
      <label>Title <input value=${title} required
        onInput=${(/** @type {any} */ event) => setTitle(event.target.value)} /></label>
      <p class="actions"><button type="submit">Rename</button></p>
    </form>
    <p class="muted">
      Begun ${fullTime(session.created_at)}${session.channel ? ` over ${session.channel}` : ""},${" "}
      ${count(session.turns)} turns.
    </p>
    <p class="actions">
      <button type="button" onClick=${onArchive}>
        ${session.archived_at ? "Take out of the archive" : "Archive"}
      </button>
      <button type="button" class="danger" onClick=${onForget}>Forget …</button>
    </p>
  <//>`;
}

/** @param {Message} session */
const titleOf = (session) => session.title || "Untitled";

/** @param {string} text @returns {string} in small letters without accents */
const folded = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

/** @param {string} query @returns {string[]} its words, long ones without their endings */
const wordsOf = (query) =>
  (folded(query).match(/[\p{L}\p{N}]+/gu) || []).map((word) => (word.length > 5 ? word.slice(0, -2) : word));

/** @param {Message} hit @param {string[]} words @returns {number} how many of them stand in it, of all */
const shareOf = (hit, words) =>
  words.filter((word) => folded(hit.text).includes(word)).length / words.length;

/**
 * Whether a hit of a search is something that was said, and has most of the words: by meaning alone
 * something is always near.
 *
 * @param {Message} hit
 * @param {string[]} words
 */
function isSaid(hit, words) {
  return hit.source === "conversation" && hit.origin?.session_id && shareOf(hit, words) >= MOST_WORDS;
}

/**
 * @param {string} text of a hit, after who said it and when
 * @param {string[]} words
 * @returns {string} a line of it, from shortly before the first of the words
 */
function passageOf(text, words) {
  const said = text.replace(/^\w+ \([^)]*\): /, "");
  const at = Math.min(...words.map((word) => folded(said).indexOf(word)).filter((each) => each >= 0));
  return Number.isFinite(at) && at > 20 ? `…${said.slice(at - 16, at + 160)}` : said.slice(0, 160);
}
