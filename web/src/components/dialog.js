/** Dialogs: the browser's own, which holds the focus and closes on Escape. */

import { html, useId, useLayoutEffect, useRef } from "../view.js";

/**
 * A dialog that is open as long as it is drawn.
 *
 * @param {{title: string, onClose: () => void, children?: import("../view.js").Children,
 *   wide?: boolean}} props
 */
export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useLayoutEffect(() => {
    const dialog = /** @type {HTMLDialogElement} */ (element.current);
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    dialog.showModal();
    const first = "a, button, input, select, summary, textarea";
    /** @type {HTMLElement | null} */ (dialog.querySelector("[autofocus]") || dialog.querySelector(`:scope > :not(header) :is(${first}), :scope > :is(${first})`))?.focus();
    return () => {
      dialog.close();
      before?.focus();
    };
  }, []);
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-labelledby=${id}
    onCancel=${(/** @type {Event} */ event) => {
      event.preventDefault();
      onClose();
    }}>
    <header>
      <h2 id=${id}>${title}</h2>
      <button type="button" class="plain" aria-label="Close" onClick=${onClose}>✕</button>
    </header>
    ${children}
  </dialog>`;
}

/**
 * Asks whether something is to be done, and says what it does.
 *
 * @param {{title: string, action: string, danger?: boolean, busy?: boolean,
 *   onConfirm: () => void, onClose: () => void, children?: import("../view.js").Children}} props
 */
export function Confirm({ title, action, danger, busy, onConfirm, onClose, children }) {
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${children}
    <p class="actions">
      <button type="button" onClick=${onClose}>Cancel</button>
      <button type="button" class=${danger ? "danger" : "primary"} disabled=${busy}
        onClick=${onConfirm}>${action}</button>
    </p>
  <//>`;
}
