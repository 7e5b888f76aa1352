/** Text of others, with each character that cannot be seen named. */

import { html } from "../view.js";
import { visible } from "../text.js";

/** @param {{text: string}} props */
export const ForeignText = ({ text }) =>
  html`${visible(text).map((piece) =>
    piece.odd ? html`<span class="odd" title="a character that cannot be seen">${piece.text}</span>` : piece.text,
  )}`;

/**
 * A call as the gateway tells it to people. Nothing of it is read here.
 *
 * @param {{text: string}} props
 */
export const CallText = ({ text }) =>
  html`<pre class="call-text" tabindex="0"><${ForeignText} text=${text} /></pre>`;
