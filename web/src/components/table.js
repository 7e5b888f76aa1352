/** A table whose rows become blocks on a phone, each cell with its column's title before it. */

import { html } from "../view.js";

/**
 * @typedef {object} Column
 * @property {string} title empty: a column of buttons
 * @property {boolean} [number] whether it is set at the end of its column
 */
/** @typedef {{key: string, cells: any[]}} TableRow the first of `cells` names the row */

/**
 * @param {{label: string, columns: Column[], rows: TableRow[], total?: any[]}} props `total`: the
 *   cells of a last row that sums up
 */
export const Table = ({ label, columns, rows, total }) => {
  const row = (/** @type {TableRow} */ { key, cells }) =>
    html`<tr key=${key}>${cells.map((cell, index) => {
      const { title, number } = columns[index];
      return index
        ? html`<td class=${number ? "number" : undefined} data-title=${title || undefined}>${cell}</td>`
        : html`<th scope="row">${cell}</th>`;
    })}</tr>`;
  return html`<div class="wide-table rows" tabindex="0" role="group" aria-label=${label}><table>
    <thead><tr>${columns.map(
      ({ title, number }) =>
        html`<th scope="col" class=${number ? "number" : undefined}>${title || html`<span class="unseen">Actions</span>`}</th>`,
    )}</tr></thead>
    <tbody>${rows.map(row)}</tbody>
    ${total && html`<tfoot>${row({ key: "", cells: total })}</tfoot>`}
  </table></div>`;
};
