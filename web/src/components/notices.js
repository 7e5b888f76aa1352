/** What a person is told besides the content: failures with their fix, waiting, and nothing there. */

import { html } from "../view.js";

/**
 * A failure: what happened, why, and what mends it.
 *
 * @param {{failure: Partial<import("../api.js").Failure> & {message: string},
 *   onRetry?: () => void, onClose?: () => void}} props
 */
export function FailureNotice({ failure, onRetry, onClose }) {
  return html`<div class="notice failure" role="alert">
    <p><strong>${failure.message}</strong></p>
    ${failure.details && html`<p class="details">${failure.details}</p>`}
    ${failure.resolution && html`<p>To fix it: ${failure.resolution}</p>`}
    ${(onRetry || onClose) &&
    html`<p class="actions">
      ${onRetry && html`<button type="button" onClick=${onRetry}>Try again</button>`}
      ${onClose && html`<button type="button" onClick=${onClose}>Close</button>`}
    </p>`}
  </div>`;
}

/** @param {{what?: string}} props */
export const Loading = ({ what = "Loading" }) =>
  html`<p class="loading" role="status">${what} …</p>`;

/** @param {{children?: import("../view.js").Children}} props */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
