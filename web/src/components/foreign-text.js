/** Text of others, with each character that cannot be seen named. */

import { html } from "../view.js";
import { visible } from "../text.js";

/** @param {{text: string}} props */
export const ForeignText = ({ text }) =>
  html`${visible(text).map((piece) =>
    piece.odd ? html`<span class="odd" title="a character that cannot be seen">${piece.text}</span>` : piece.text,
  )}`;

/**
 * The arguments of a tool's call, one below the other.
 *
 * @param {{json: string}} props
 */
export function Arguments({ json }) {
  const named = argumentsOf(json);
  if (!named) return html`<pre tabindex="0"><${ForeignText} text=${json} /></pre>`;
  return html`<dl class="arguments">
    ${given(named).map(
      ([name, value]) => html`<div key=${name}>
        <dt><${ForeignText} text=${name} /></dt>
        <dd><pre tabindex="0"><${ForeignText}
          text=${typeof value === "string" ? value : JSON.stringify(value, null, 2)} /></pre></dd>
      </div>`,
    )}
  </dl>`;
}

/**
 * @param {Record<string, unknown>} named
 * @returns {[string, unknown][]} without those that are left at their default
 */
const given = (named) => Object.entries(named).filter(([, value]) => value !== null);

/**
 * The arguments by name; null where they are no such thing.
 *
 * @param {string} json
 * @returns {Record<string, unknown> | null}
 */
export function argumentsOf(json) {
  try {
    const value = JSON.parse(json || "{}");
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
