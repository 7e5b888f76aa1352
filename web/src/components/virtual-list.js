/** A list of any length, of which only what is in view is in the document. */

import { html, useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef } from "../view.js";

const MARGIN_PX = 800; // drawn above and below what is in view
const AT_END_PX = 48;

/**
 * Items may have any height and may change it; what is read stays where it is. With `follow` the
 * list stays at its end while somebody is there.
 *
 * @template T
 * @param {{items: T[], keyOf: (item: T) => string, draw: (item: T, index: number) => import("../view.js").Node,
 *   estimate: number, label: string, role?: string, itemRole?: string, follow?: boolean,
 *   reveal?: string, onNearEnd?: () => void, onNearStart?: () => void, class?: string}} props
 *   `estimate`: pixels of an item that was never drawn; `reveal`: the key of an item to scroll to;
 *   `onNearEnd`, `onNearStart`: called when the list is scrolled there, to fetch more
 */
export function VirtualList({
  items,
  keyOf,
  draw,
  estimate,
  label,
  role = "list",
  itemRole = "listitem",
  follow = false,
  reveal,
  onNearEnd,
  onNearStart,
  class: className = "",
}) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const heights = useRef(/** @type {Map<string, number>} */ (new Map()));
  const atEnd = useRef(follow);
  // What is read: an item, and how far the list is scrolled into it.
  const anchor = useRef(/** @type {{key: string, into: number} | null} */ (null));
  const [version, redraw] = useReducer((/** @type {number} */ n) => n + 1, 0);

  const indexOf = useMemo(() => new Map(items.map((item, index) => [keyOf(item), index])), [items]);
  const offsets = useMemo(() => {
    const all = new Float64Array(items.length + 1);
    items.forEach((item, index) => {
      all[index + 1] = all[index] + (heights.current.get(keyOf(item)) ?? estimate);
    });
    return all;
  }, [items, version, estimate]);

  const read = anchor.current && indexOf.get(anchor.current.key);
  const top =
    anchor.current && read != null ? offsets[read] + anchor.current.into : box.current?.scrollTop ?? 0;
  const height = box.current?.clientHeight ?? window.innerHeight;
  const total = offsets[items.length];
  const seen = atEnd.current && follow ? Math.max(0, total - height) : top;
  const first = indexAt(offsets, seen - MARGIN_PX);
  const last = Math.min(items.length, indexAt(offsets, seen + height + MARGIN_PX) + 1);

  const measure = useCallback((/** @type {ResizeObserverEntry[]} */ entries) => {
    let changed = false;
    for (const { target } of entries) {
      const key = /** @type {HTMLElement} */ (target).dataset.key || "";
      const is = target.getBoundingClientRect().height;
      if (!target.isConnected || Math.abs((heights.current.get(key) ?? -1) - is) < 0.5) continue;
      heights.current.set(key, is);
      changed = true;
    }
    if (changed) redraw(undefined);
  }, []);
  const observer = useMemo(() => new ResizeObserver(measure), []);
  useEffect(() => () => observer.disconnect(), []);

  useLayoutEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    observer.disconnect();
    for (const each of [element, ...element.querySelectorAll(":scope > [data-key]")]) observer.observe(each);
    if (follow && atEnd.current) element.scrollTop = element.scrollHeight;
    else if (anchor.current) {
      const index = indexOf.get(anchor.current.key);
      const wanted = index === undefined ? element.scrollTop : offsets[index] + anchor.current.into;
      if (Math.abs(element.scrollTop - wanted) > 1) element.scrollTop = wanted;
    }
  });

  useEffect(() => {
    if (!reveal) return;
    if (!indexOf.has(reveal)) return;
    atEnd.current = false;
    anchor.current = { key: reveal, into: 0 };
    redraw(undefined);
  }, [reveal, items.length > 0]);

  const scrolled = () => {
    const element = /** @type {HTMLElement} */ (box.current);
    const left = element.scrollHeight - element.scrollTop - element.clientHeight;
    atEnd.current = left < AT_END_PX;
    const index = indexAt(offsets, element.scrollTop);
    const atStart = element.scrollTop < 1 && !follow; // where what is new is wanted to be seen
    anchor.current =
      atStart || !items.length
        ? null
        : { key: keyOf(items[index]), into: element.scrollTop - offsets[index] };
    redraw(undefined);
    if (left < MARGIN_PX) onNearEnd?.();
    if (element.scrollTop < MARGIN_PX) onNearStart?.();
  };

  return html`<div class="virtual ${className}" ref=${box} role=${role} aria-label=${label} tabindex="0"
    onScroll=${scrolled}>
    <div aria-hidden="true" style=${{ height: `${offsets[first]}px` }}></div>
    ${items.slice(first, last).map(
      (item, index) => html`<div key=${keyOf(item)} data-key=${keyOf(item)} role=${itemRole}
        aria-setsize=${itemRole === "listitem" ? items.length : undefined}
        aria-posinset=${itemRole === "listitem" ? first + index + 1 : undefined}>
        ${draw(item, first + index)}
      </div>`,
    )}
    <div aria-hidden="true" style=${{ height: `${total - offsets[last]}px` }}></div>
  </div>`;
}

/**
 * @param {Float64Array} offsets ascending
 * @param {number} position
 * @returns {number} the item at the position
 */
function indexAt(offsets, position) {
  let low = 0;
  let high = Math.max(0, offsets.length - 2);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= position) low = middle;
    else high = middle - 1;
  }
  return low;
}
