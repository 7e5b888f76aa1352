/** Dark, light, or as the device prefers. */

import { Store } from "./store.js";

const KEY = "oxydra.theme";
const NEXT = { auto: "dark", dark: "light", light: "auto" };

/** @typedef {"auto" | "dark" | "light"} Theme */

const kept = localStorage.getItem(KEY);

/** @type {Store<Theme>} */
export const theme = new Store(kept === "dark" || kept === "light" ? kept : "auto");

/** @param {Theme} value */
function show(value) {
  document.documentElement.dataset.theme = value;
}

theme.watch((value) => {
  localStorage.setItem(KEY, value);
  show(value);
});
show(theme.value);

export const nextTheme = () => theme.set(/** @type {Theme} */ (NEXT[theme.value]));
