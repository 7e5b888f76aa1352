/**
 * The view library, in one place: Preact, its hooks, and htm's tagged templates. Pages import from
 * here and never from vendor.
 */

import { Fragment, h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { Fragment, render };
export {
  useCallback,
  useEffect,
  useId,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/preact-hooks.js";

/** @typedef {import("preact").VNode<any>} Node */
/** @typedef {import("preact").ComponentChildren} Children */

/** @type {(strings: TemplateStringsArray, ...values: any[]) => Node} */
export const html = /** @type {any} */ (htm).bind(h);
