/** Text of others, with each character that cannot be seen named. */

import { html } from "../view.js";
import { pieces, visible } from "../text.js";

/** @param {{text: string}} props */
export function ForeignText({ text }) {
  const all = pieces(text).map((each) =>
    visible(each).map(({ text: shown, odd }) =>
      odd ? html`<span class="odd" title="a character that cannot be seen">${shown}</span>` : shown,
    ),
  );
  return html`${all.length > 1 ? all.map((each) => html`<span class="piece">${each}</span>`) : all}`;
}

/**
 * A call as the gateway tells it to people. Nothing of it is read here; a line that is too long goes
 * on further in, where none begins.
 *
 * @param {{text: string}} props
 */
export const CallText = ({ text }) =>
  html`<pre class="call-text" tabindex="0">${text.split(/^(.{13,})$/m).map((each, index) =>
    index % 2
      ? html`<span class="line"><${ForeignText} text=${each} /></span>`
      : html`<${ForeignText} text=${each} />`,
  )}</pre>`;
