/** Keys that act anywhere on a page, and the list of them under `?`. */

import { Dialog } from "./dialog.js";
import { html, useLayoutEffect, useState } from "../view.js";

/** @typedef {{keys: string, does: string, act: () => void}} Shortcut `keys` as in "g c" or "/" */

/** @type {Set<Shortcut>} */
const known = new Set();
let pressed = "";

/** @param {EventTarget | null} target */
const isTyping = (target) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]"))
    return;
  if (isTyping(event.target) || event.key.length > 1) return;
  const sequence = `${pressed} ${event.key}`.trim();
  const all = [...known];
  const found =
    all.find((each) => each.keys === sequence) || all.find((each) => each.keys === event.key);
  pressed = all.some((each) => each.keys.startsWith(`${sequence} `)) ? sequence : "";
  if (!found || pressed) return;
  event.preventDefault();
  found.act();
});

/**
 * Keys that act as long as the component is there: from the moment that it can be seen on.
 *
 * @param {Shortcut[]} shortcuts
 */
export function useShortcuts(shortcuts) {
  useLayoutEffect(() => {
    for (const each of shortcuts) known.add(each);
    return () => {
      for (const each of shortcuts) known.delete(each);
    };
  });
}

/** The list of them, opened by `?`. */
export function ShortcutList() {
  const [open, setOpen] = useState(false);
  useShortcuts([{ keys: "?", does: "Show these keys", act: () => setOpen(true) }]);
  if (!open) return null;
  return html`<${Dialog} title="Keys" onClose=${() => setOpen(false)}>
    <dl class="keys">
      ${[...known].map(
        (each) => html`<div key=${each.keys}>
          <dt>${each.keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt>
          <dd>${each.does}</dd>
        </div>`,
      )}
      <div><dt><kbd>Enter</kbd></dt><dd>Send the message; <kbd>Shift</kbd> <kbd>Enter</kbd> for a new line</dd></div>
      <div><dt><kbd>Esc</kbd></dt><dd>Close a dialog</dd></div>
    </dl>
  <//>`;
}
