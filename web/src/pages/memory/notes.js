/** All notes, or those that a search finds, and beside them the one that is open. */

import { call } from "../../api.js";
import { FailureNotice, Empty, Loading } from "../../components/notices.js";
import { useShortcuts } from "../../components/shortcuts.js";
import { VirtualList } from "../../components/virtual-list.js";
import { go, href } from "../../router.js";
import { html, useCallback, useEffect, useRef, useState } from "../../view.js";
import { Editor } from "./editor.js";
import { Filters, NO_FILTER, requestOf } from "./filters.js";
import { NoteView } from "./note.js";
import { Marks, Origin, Reason, Tags, Words } from "./text.js";

/** @typedef {import("../../api.js").Message} Message */
/** @typedef {import("../../api.js").Failure} Failure */

const PAGE = 200;
const RESULTS = 20;
const SHOWN_CHARS = 240;
const TYPING_MS = 250;
const ROW_PX = 84;

/** @param {{user: string, noteId: string, onCount: () => void}} props `onCount`: notes came or went */
export function Notes({ user, noteId, onCount }) {
  const [filter, setFilter] = useState(NO_FILTER);
  const found = useNotes(user, filter);
  const [writing, setWriting] = useState(false);
  const [told, setTold] = useState(/** @type {string[]} */ ([]));
  const search = useRef(/** @type {HTMLInputElement | null} */ (null));

  const move = (/** @type {number} */ by) => {
    const at = found.notes.findIndex((note) => note.note_id === noteId);
    const next = found.notes[Math.min(found.notes.length - 1, Math.max(0, at + by))];
    if (next) go("memory", next.note_id, { replace: Boolean(noteId) });
  };
  useShortcuts([
    { keys: "/", does: "Search the notes", act: () => search.current?.focus() },
    { keys: "n", does: "Write a note", act: () => setWriting(true) },
    { keys: "j", does: "The next note", act: () => move(1) },
    { keys: "k", does: "The note before", act: () => move(-1) },
  ]);

  const saved = async (/** @type {Message} */ note, /** @type {string[]} */ warnings) => {
    await found.again(); // whoever sees the note can go to the one beside it
    setWriting(false);
    setTold(warnings);
    onCount();
    go("memory", note.note_id);
  };
  return html`<div class="notes ${noteId ? "open" : ""}">
    <section class="note-list" aria-label="Notes">
      <${Filters} user=${user} filter=${filter} onFilter=${setFilter} search=${search} />
      <p class="actions">
        <button type="button" class="primary" onClick=${() => setWriting(true)}>Write a note</button>
      </p>
      ${[...told, ...found.warnings].map((each) => html`<p class="notice" role="status">${each}</p>`)}
      ${found.failed && html`<${FailureNotice} failure=${found.failed} onRetry=${found.again} />`}
      <p class="unseen" role="status">${found.loading ? "" : said(found, filter)}</p>
      ${!found.notes.length && found.loading && html`<${Loading} />`}
      ${!found.notes.length && !found.loading && !found.failed &&
      html`<${Empty}>${filter === NO_FILTER ? "Nothing is remembered yet." : "No note is like that."}<//>`}
      ${found.notes.length > 0 &&
      html`<${VirtualList} items=${found.notes} estimate=${ROW_PX} label="Notes, newest first"
        keyOf=${(/** @type {Message} */ note) => note.note_id || `talk ${note.created_at} ${note.text}`}
        onNearEnd=${filter.query.trim() ? undefined : found.more} reveal=${noteId}
        draw=${(/** @type {Message} */ note) => html`<${Row} note=${note} query=${filter.query}
          open=${note.note_id === noteId} />`} />`}
      ${filter.query.trim() && found.cursor &&
      html`<p class="actions"><button type="button" onClick=${found.more}>More results</button></p>`}
    </section>
    ${noteId &&
    html`<section class="note-view" aria-label="One note">
      <${NoteView} key=${noteId} user=${user} noteId=${noteId}
        onChanged=${(/** @type {Message} */ note) => {
          found.put(note);
          onCount();
        }}
        onGone=${() => {
          found.drop(noteId);
          onCount();
          go("memory");
        }}
        onTag=${(/** @type {string} */ tag) => setFilter({ ...NO_FILTER, tag })} />
    </section>`}
    ${writing &&
    html`<${Editor} user=${user} title="Write a note" onSaved=${saved} onClose=${() => setWriting(false)} />`}
  </div>`;
}

/** @param {{note: Message, query: string, open: boolean}} props */
function Row({ note, query, open }) {
  const text = note.text || "";
  const content = html`<span class="note-text"><${Words} query=${query}
      text=${text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text} /></span>`;
  return html`<div class="row">
    ${note.note_id
      ? html`<a class="title" href=${href("memory", note.note_id)}
          aria-current=${open ? "true" : undefined}>${content}</a>`
      : html`<div class="title">${content}</div>`}
    <div class="muted">
      <${Marks} note=${note} /> <${Tags} tags=${note.tags} />
      ${note.source === "conversation"
        ? "said in a conversation"
        : html`<${Origin} origin=${note.origin} at=${note.updated_at} />`}
      ${note.matched_by && html` · <${Reason} note=${note} />`}
    </div>
  </div>`;
}

/**
 * The notes that a filter chooses, page by page, or the results of its query.
 *
 * @param {string} user
 * @param {import("./filters.js").Filter} filter
 */
function useNotes(user, filter) {
  const [state, setState] = useState({
    notes: /** @type {Message[]} */ ([]),
    warnings: /** @type {string[]} */ ([]),
    cursor: "",
    loading: true,
    failed: /** @type {Failure | null} */ (null),
  });
  const running = useRef(new AbortController());
  const busy = useRef(false);

  const fetchPage = useCallback(
    async (/** @type {Message[]} */ before, /** @type {string} */ cursor) => {
      if (busy.current) return;
      busy.current = true;
      const { signal } = running.current;
      try {
        const page = filter.query.trim()
          ? await call(user, "SearchNotes", { ...requestOf(filter), read_time: true, top_k: RESULTS, cursor }, signal)
          : await call(user, "ListNotes", { ...requestOf(filter), limit: PAGE, cursor }, signal);
        const { notes = [], next_cursor = "", warnings: told = [], period } = page;
        const warnings = period ? [`${period}; words in quotation marks are no time`, ...told] : told;
        setState({ notes: [...before, ...notes], warnings, cursor: next_cursor, loading: false, failed: null });
      } catch (error) {
        if (signal.aborted) return;
        const failed = /** @type {Failure} */ (error);
        setState((old) => ({ ...old, loading: false, failed }));
      } finally {
        if (running.current.signal === signal) busy.current = false;
      }
    },
    [user, filter],
  );

  const again = useCallback(() => {
    running.current.abort();
    running.current = new AbortController();
    busy.current = false;
    return fetchPage([], "");
  }, [fetchPage]);

  useEffect(() => {
    const timer = setTimeout(again, filter === NO_FILTER ? 0 : TYPING_MS);
    return () => {
      clearTimeout(timer);
      running.current.abort();
    };
  }, [again]);

  return {
    ...state,
    more: () => state.cursor && fetchPage(state.notes, state.cursor),
    again,
    put: (/** @type {Message} */ note) =>
      setState((old) => ({
        ...old,
        notes: old.notes.map((each) =>
          each.note_id === note.note_id
            ? { ...note, score: each.score, matched_by: each.matched_by, meaning: each.meaning, words: each.words, older_than: each.older_than }
            : each,
        ),
      })),
    drop: (/** @type {string} */ noteId) =>
      setState((old) => ({ ...old, notes: old.notes.filter((each) => each.note_id !== noteId) })),
  };
}

/**
 * @param {{notes: Message[], cursor: string}} found
 * @param {import("./filters.js").Filter} filter
 */
const said = ({ notes, cursor }, filter) =>
  `${notes.length}${cursor ? " and more" : ""} ${filter.query ? "result" : "note"}${notes.length === 1 ? "" : "s"}`;
