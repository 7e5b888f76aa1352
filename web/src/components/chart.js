/** Small charts, drawn as SVG; what they show is told in words besides. */

import { html } from "../view.js";

const WIDTH = 160;
const HEIGHT = 32;

/**
 * A line of what something was over time, the latest at the right.
 *
 * @param {{values: number[], label: string, most?: number}} props `most`: at the top, where no value is
 *   above it
 */
export function Line({ values, label, most = Number.MIN_VALUE }) {
  if (values.length < 2) return null;
  const top = Math.max(...values, most);
  const points = values.map((value, index) => {
    const x = (index / (values.length - 1)) * WIDTH;
    return `${x.toFixed(1)},${(HEIGHT - 1 - (value / top) * (HEIGHT - 2)).toFixed(1)}`;
  });
  return html`<svg class="line" role="img" aria-label=${label} viewBox="0 0 ${WIDTH} ${HEIGHT}"
    width=${WIDTH} height=${HEIGHT} preserveAspectRatio="none">
    <polyline points=${points.join(" ")} fill="none" stroke="currentColor" stroke-width="1.5" />
  </svg>`;
}

/**
 * A bar for each value.
 *
 * @param {{values: {key: string, value: number, text: string}[], label: string}} props
 */
export function Bars({ values, label }) {
  const most = Math.max(...values.map((each) => each.value), Number.MIN_VALUE);
  const step = 100 / Math.max(values.length, 12);
  return html`<svg class="bars" role="img" aria-label=${label} viewBox="0 0 100 100" preserveAspectRatio="none">
    ${values.map(
      ({ key, value, text }, index) => html`<rect key=${key} x=${index * step + step * 0.1} width=${step * 0.8}
        y=${100 - (value / most) * 98} height=${(value / most) * 98}><title>${text}</title></rect>`,
    )}
  </svg>`;
}
