/** A button that copies a text. */

import { html, useState } from "../view.js";

/** @param {{text: string, title?: string, kind?: string}} props */
export function Copy({ text, title = "Copy", kind = "plain" }) {
  const [shown, setShown] = useState("");
  const copy = async () => {
    const copied = navigator.clipboard?.writeText(text); // absent without TLS on another machine
    setShown(await (copied || Promise.reject()).then(() => "Copied", () => "Not allowed here"));
    setTimeout(() => setShown(""), 2000);
  };
  return html`<button type="button" class=${kind} onClick=${copy}>${shown || title}</button>`;
}
