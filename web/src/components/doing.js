/** Doing and reading what takes a while and may fail. */

import { call } from "../api.js";
import { html, useCallback, useEffect, useState } from "../view.js";
import { Confirm } from "./dialog.js";
import { FailureNotice, Loading } from "./notices.js";

/**
 * @returns {{busy: boolean, failure: any, run: (act: () => Promise<any>) => Promise<void>}}
 *   `run` does it; `busy`: it goes on; `failure`: a notice of why the last one failed
 */
export function useDoing() {
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState(/** @type {import("../api.js").Failure | null} */ (null));
  const run = useCallback(async (/** @type {() => Promise<any>} */ act) => {
    setBusy(true);
    setFailed(null);
    await act().catch(setFailed);
    setBusy(false);
  }, []);
  return { busy, failure: failed && html`<${FailureNotice} failure=${failed} />`, run };
}

/**
 * What a page reads when it comes.
 *
 * @param {() => Promise<any>} ask
 * @param {any[]} inputs of `ask`: it is read again when one has changed
 * @param {number} [every] and after so many ms, as long as the page is shown
 * @returns {{found: any, set: (found: any) => void, failed: any, read: () => void}} `found`: null until it
 *   is there; `failed`: why it is not; `read` reads it again
 */
export function useRead(ask, inputs, every) {
  const [found, set] = useState(/** @type {any} */ (null));
  const [failed, setFailed] = useState(/** @type {any} */ (null));
  const read = useCallback(() => {
    if (!every) setFailed(null);
    ask().then((reply) => {
      set(reply);
      setFailed(null);
    }, setFailed);
  }, inputs);
  useEffect(() => {
    read();
    const timer = every && setInterval(() => document.hidden || read(), every);
    return () => clearInterval(timer);
  }, [read]);
  return { found, set, failed, read };
}

/**
 * A list that is read page by page.
 *
 * @param {string} user @param {string} method @param {Record<string, any>} request
 * @param {string} field of the reply @param {any[]} inputs it is read anew when one has changed
 * @returns {{items: any[] | null, set: (items: any[]) => void, failed: any, more: boolean, next: () => void}}
 *   `items`: null until the first page is there; `more`: there are more; `next` reads them
 */
export function usePages(user, method, request, field, inputs = []) {
  const [items, set] = useState(/** @type {any[] | null} */ (null));
  const [cursor, setCursor] = useState("");
  const [failed, setFailed] = useState(/** @type {any} */ (null));
  const fetchPage = async (/** @type {any[]} */ before, /** @type {string} */ from) => {
    setFailed(null);
    try {
      const page = await call(user, method, { ...request, cursor: from });
      set([...before, ...(page[field] || [])]);
      setCursor(page.next_cursor || "");
    } catch (error) {
      setFailed(error);
    }
  };
  useEffect(() => void fetchPage([], ""), [user, ...inputs]);
  return { items, set, failed, more: Boolean(cursor), next: () => void fetchPage(items || [], cursor) };
}

/**
 * A question with one deed, and what went wrong with it.
 *
 * @param {{title: string, action: string, act: () => Promise<void>, onClose: () => void,
 *   danger?: boolean, wait?: string, children?: import("../view.js").Children}} props `wait`: said meanwhile
 */
export function Act({ title, action, act, onClose, danger, wait, children }) {
  const { busy, failure, run } = useDoing();
  return html`<${Confirm} title=${title} action=${action} danger=${danger} busy=${busy}
    onConfirm=${() => run(act)} onClose=${onClose}>
    ${children}
    ${busy && wait && html`<${Loading} what=${wait} />`}
    ${failure}
  <//>`;
}
